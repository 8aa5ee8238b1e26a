"""git repositories as live resources: trees, files, commits, differences and logs at any revision."""

from wharfinger.sources.git_repository.git_factory import git
from wharfinger.sources.git_repository.source import GitSource

__all__ = ["GitSource", "git"]
