"""Functions around the handlers of methods, and those that are ready to use."""
