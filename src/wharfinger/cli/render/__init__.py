"""What the commands print: lines in columns, trees, colours, progress, content, and the banner of a server."""
