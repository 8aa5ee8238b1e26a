"""Windows over text and bytes: parts of a large content by lines, bytes, or from its end."""
