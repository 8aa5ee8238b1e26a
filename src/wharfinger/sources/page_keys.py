"""The keys of pages, as sources give them out and are given them back: one that is none is refused in the same words.

A server seals the keys of its sources, so that a bad one was made by hand, or is of another list.
"""

from __future__ import annotations

from wharfinger.errors import InvalidArgument
from wharfinger.sources.folder.tree import TreePosition, read_key

__all__ = ["bad_cursor", "need_no_cursor", "read_position"]


def bad_cursor() -> InvalidArgument:
    """What is raised for a key that is none of this list."""
    return InvalidArgument("This cursor is not valid here: list again without one.")


def need_no_cursor(after: str | None) -> None:
    """Accept no key, of a list of one page.

    Raises:
        InvalidArgument: there is one.
    """
    if after is not None:
        raise bad_cursor()


def read_position(key: str) -> TreePosition:
    """The place in a tree that a key means (`tree.write_key`).

    Raises:
        InvalidArgument: it means none.
    """
    try:
        return read_key(key)
    except ValueError:
        raise bad_cursor() from None
