"""From the TARGET argument to an open client: hosts and their configuration files, suggestions, and callbacks."""
