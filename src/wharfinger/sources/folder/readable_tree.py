"""The part of a tree that the current caller may read by the policy (`policy.current`)."""

from __future__ import annotations

from collections.abc import Callable

from wharfinger.policy.current import may_read_below, readable_names, reads_all_below
from wharfinger.sources.folder.file_uri import join_parts

__all__ = ["ReadableTree", "readable_tree"]

Parts = tuple[str, ...]


class ReadableTree:
    """The `TreeView` of the current caller, for a tree whose URIs begin with `prefix`."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix

    def prefix(self, parts: Parts) -> str:
        """Return the beginning of all URIs in a directory."""
        return f"{self._prefix}{join_parts(parts)}/" if parts else self._prefix

    def name_filter(self, parts: Parts) -> Callable[[str], bool] | None:
        """Return a function that returns whether an entry of a directory may be read; None if all of them may be."""
        return readable_names(self.prefix(parts))

    def may_read_below(self, parts: Parts) -> bool:
        """Return whether anything below a directory may be read."""
        return may_read_below(self.prefix(parts))

    def reads_all_below(self, parts: Parts) -> bool:
        """Return whether everything below a directory may be read.

        If not, the directory's dates are not shown: they would reveal when other entries were added or removed.
        """
        return reads_all_below(self.prefix(parts))


def readable_tree(prefix: str) -> ReadableTree | None:
    """Return the view of the current caller, or None if the caller may read the whole tree."""
    return None if reads_all_below(prefix) else ReadableTree(prefix)
