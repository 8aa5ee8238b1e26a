"""Turns TARGET into an open client: configured servers, the files of hosts, questions at the terminal, and hints."""
