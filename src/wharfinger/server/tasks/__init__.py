"""Tasks: calls that continue after they were answered (the extension `io.modelcontextprotocol/tasks`)."""
