"""How TARGET becomes an open client: hosts and their configuration files, suggestions, and callbacks."""
