"""OAuth 2.1 for clients: discovery, registration, grants and tokens, as steps that do no I/O."""
