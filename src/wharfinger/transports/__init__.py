"""The transports, which carry messages: one module for each transport and end."""
