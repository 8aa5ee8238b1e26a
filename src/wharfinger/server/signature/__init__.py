"""From a function's signature, or an explicit schema, to the arguments of a call."""
