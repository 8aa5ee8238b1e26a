"""`wharfinger doctor`: what to change about a server, and what it costs a model."""
