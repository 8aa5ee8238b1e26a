"""`git()`: publishes a repository of this machine, or a clone of a remote one."""

from __future__ import annotations

import os

from wharfinger.source import UnusableSource
from wharfinger.sources.git_repository.answers import Repository
from wharfinger.sources.git_repository.source import POLL_SECONDS, GitSource
from wharfinger.sources.windows.window import MAX_READ_BYTES

__all__ = ["git"]


def git(
    path: str | os.PathLike[str],
    *,
    label: str | None = None,
    every: float | None = None,
    max_size: int = MAX_READ_BYTES,
    git_dir: str | os.PathLike[str] | None = None,
    max_clone_size: int | None = None,
) -> GitSource:
    """Publish a git repository: `server.include(git("."))`, or `git("https://git.example.org/docs.git")`.

    Clients read trees, files, commits, differences and logs at any revision. The source never runs a program that the
    repository names, never writes to a repository of this machine, and reads nothing outside the folders of the
    repository. Unless a policy hides files, clients can read every object by its name, even one that is in no branch.

    A remote repository is cloned into the user's cache folder when the server starts, and fetched regularly. A token
    for it is read from the environment (`WHARFINGER_GIT_TOKEN`). While its server cannot be reached, the state of the
    last fetch is served.

    Args:
        path: The top folder of a repository, a bare repository, the git directory of a worktree or a submodule, or the
            `https://` address of a remote repository.
        label: The name in URIs, `git://<label>/…`; by default that of the folder, or the last part of the address.
        every: Seconds between two checks of branches, tags and HEAD while a client watches, 0.25 by default. For a
            remote repository: seconds between two fetches, 60 by default and at least 1.
        max_size: The size in bytes of the largest file that is read whole; a larger one is read in windows.
        git_dir: The git directory that a `.git` file in `path` may name, or a directory above it.
        max_clone_size: The size in bytes of the largest clone of a remote repository, 2 GiB by default.

    Raises:
        UnusableSource: `path` is not a repository, parts of it are stored elsewhere, the address, the label or the
            cache folder cannot be used, or git is missing or too old.
    """
    # Imported on use: a repository of this machine needs no network.
    from wharfinger.sources.git_remote.remote_address import is_remote

    if isinstance(path, str) and is_remote(path):
        from wharfinger.sources.git_remote.remote_source import publish_clone

        if git_dir is not None:
            raise UnusableSource("git_dir is for repositories of this machine: leave it out.")
        return publish_clone(path, label, every=every, max_size=max_size, max_clone_size=max_clone_size)
    repository = Repository.open(path, label, max_size, git_dir=git_dir)
    return GitSource(repository, POLL_SECONDS if every is None else every)
