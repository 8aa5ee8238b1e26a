"""Ways to carry messages: one module per transport and end; they know methods only as names in a mapping."""
