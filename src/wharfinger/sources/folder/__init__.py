"""A folder as live resources."""
