"""The server: features (tools, resources, templates, prompts) from plain functions and sources, served to every revision."""
