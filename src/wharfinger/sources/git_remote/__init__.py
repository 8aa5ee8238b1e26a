"""Remote git repositories: a clone in the cache that follows its remote, and is read like a local repository."""
