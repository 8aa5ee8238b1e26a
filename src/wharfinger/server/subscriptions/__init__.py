"""Watches of resources: who watches what, where changes come from, and how watchers are notified."""
