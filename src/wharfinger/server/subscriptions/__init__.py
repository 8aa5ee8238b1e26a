"""Who watches which resource, where changes come from, and how watchers hear of them."""
