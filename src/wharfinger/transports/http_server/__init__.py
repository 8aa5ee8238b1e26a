"""Streamable HTTP for servers: an ASGI application and its runner."""
