"""Tasks: calls that continue after they are answered (the extension `io.modelcontextprotocol/tasks`)."""
