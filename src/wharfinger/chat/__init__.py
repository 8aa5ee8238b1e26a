"""A chat with a model that uses the resources, tools and prompts of MCP servers, for the terminal."""
