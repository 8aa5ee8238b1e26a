"""Measures first pages and windows of large data, and the memory that they need. See `run.py`."""
