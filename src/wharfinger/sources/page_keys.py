"""Makes the error for an invalid page key, which is the same in all sources.

A key is a position in one source's list, as text that only the source understands (a name, a path, the key of a row).
Three modules handle pages: the source writes and reads its keys; `server.features.pages` joins the lists of sources and
catalogues; `server.cursors` seals the keys that clients get, so that clients can return only keys that were sent to
them. Even so, each source refuses keys that are not its own, with the same error.
"""

from __future__ import annotations

from wharfinger.errors import InvalidArgument

__all__ = ["bad_cursor", "refuse_cursor"]


def bad_cursor() -> InvalidArgument:
    """Return the error for a key that does not belong to this list."""
    return InvalidArgument("This cursor is not valid here: list again without one.")


def refuse_cursor(after: str | None) -> None:
    """Refuse any key, for a list of one page.

    Raises:
        InvalidArgument: there is a key.
    """
    if after is not None:
        raise bad_cursor()
