"""The protocol without I/O: no asyncio, no sockets, no clock, no randomness; values in, values out."""
