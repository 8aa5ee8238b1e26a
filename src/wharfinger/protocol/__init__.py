"""The protocol without I/O: no asyncio, no sockets, no clock, no randomness; bytes and values in, bytes and values out."""
