"""Streamable HTTP for clients, and HTTP+SSE of 2024-11-05."""
