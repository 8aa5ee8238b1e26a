"""What must outlive a request, or its process: bytes by key, in memory or in a SQLite file; knows not what they say."""

from __future__ import annotations

from wharfinger.protocol.interfaces import Store

__all__ = ["open_store"]

_SQLITE = "sqlite:///"


def open_store(where: str | None = None) -> Store:
    """The store that a text names: `sqlite:///tasks.db` (three slashes and a path); without one, this process's memory.

    Nothing is opened before it is used.

    Raises:
        ValueError: the text names no store.
    """
    if where is None:
        from wharfinger.store.memory import MemoryStore

        return MemoryStore()
    if not where.startswith(_SQLITE) or where == _SQLITE:
        raise ValueError(f"{where!r} names no store: write sqlite:/// and the path of a file.")
    from wharfinger.store.sqlite import SqliteStore

    return SqliteStore(where.removeprefix(_SQLITE))
