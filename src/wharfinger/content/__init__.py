"""What every floor may use: MIME types, text encodings, front matter, patterns, text for people; knows no protocol."""
