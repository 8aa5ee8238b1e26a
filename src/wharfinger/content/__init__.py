"""Tools for content: MIME types, text encodings, front matter, glob patterns, redaction, search."""
