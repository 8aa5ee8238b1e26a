"""Makes the arguments of a call from a function's signature, or from an explicit schema."""
