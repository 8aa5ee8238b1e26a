"""Authorization of servers: from a bearer token to a principal, and the metadata that leads clients to a token."""
