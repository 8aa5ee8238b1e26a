"""The sub-commands of `wharfinger`, a module each, imported when the command is called."""
