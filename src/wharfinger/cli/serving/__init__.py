"""What `serve` and `run` have in common: options, loading, publishing, and running a server with its access log."""
