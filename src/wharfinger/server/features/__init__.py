"""Tools, resources, resource templates, prompts and completion: how they are registered, listed and called."""
