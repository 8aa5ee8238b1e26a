"""Turns TARGET into an open client: hosts and their configuration files, suggestions, and callbacks."""
