"""Streamable HTTP for servers, as an ASGI application, and what runs it."""
