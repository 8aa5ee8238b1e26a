"""How large data may be: a first page or window of each, and the memory that it costs. See `run.py`."""
