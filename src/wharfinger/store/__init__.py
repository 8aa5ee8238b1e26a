"""Key-value stores for data that must outlive a request: in memory, or in a SQLite file."""

from __future__ import annotations

from wharfinger.protocol.interfaces import Store

__all__ = ["open_store"]

_SQLITE = "sqlite:///"


def open_store(where: str | None = None) -> Store:
    """Return the store of a URL such as `sqlite:///tasks.db` (three slashes and a path); by default one in memory.

    A file is opened on first use.

    Raises:
        ValueError: the URL is not supported.
    """
    if where is None:
        from wharfinger.store.memory import MemoryStore

        return MemoryStore()
    if not where.startswith(_SQLITE) or where == _SQLITE:
        raise ValueError(f"{where!r} is not the URL of a store: write sqlite:/// and the path of a file.")
    if where == f"{_SQLITE}:memory:":
        raise ValueError("A store at sqlite:///:memory: has no file: to keep it in memory, leave out its URL.")
    from wharfinger.store.sqlite import SqliteStore

    return SqliteStore(where.removeprefix(_SQLITE))
