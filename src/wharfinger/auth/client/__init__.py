"""OAuth 2.1 for clients. Discovery, registration and grants are steps that do no I/O (see `steps`)."""
