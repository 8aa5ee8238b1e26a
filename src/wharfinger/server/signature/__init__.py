"""From a function's signature, or a schema written out, to the arguments of a call."""
