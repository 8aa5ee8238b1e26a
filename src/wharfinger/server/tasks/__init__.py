"""Tasks: calls that go on after they were answered (the extension `io.modelcontextprotocol/tasks`)."""
