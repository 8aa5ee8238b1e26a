"""Authorization for servers: finds the principal of a bearer token, and publishes how clients get a token."""
