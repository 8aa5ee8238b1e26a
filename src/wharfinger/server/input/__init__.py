"""What a handler asks of the client while it serves a request, and how the answers reach it."""
