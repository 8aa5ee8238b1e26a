"""Windows of large texts and files: ranges of lines or bytes, or the last lines."""
