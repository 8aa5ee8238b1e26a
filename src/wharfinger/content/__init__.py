"""Tools for content that all packages use: MIME types, text encodings, front matter, glob patterns, redaction."""
