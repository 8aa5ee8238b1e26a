"""The sub-commands of `wharfinger`: one module for each, imported when the command is called."""
