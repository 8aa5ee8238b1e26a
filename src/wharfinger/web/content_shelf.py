"""Contents for frames, images and players of the page: bytes under unguessable addresses, for one visitor each."""

from __future__ import annotations

import secrets
from collections import OrderedDict
from typing import NamedTuple

__all__ = ["ContentShelf", "ShelfItem"]

MAX_SHELF_BYTES = 128 * 1024 * 1024
"""Maximum bytes of all contents together; the oldest make room for the newest, which is kept whatever its size."""
MAX_SHELF_ITEMS = 200


class ShelfItem(NamedTuple):
    """The content of one resource as a browser gets it."""

    visitor: str
    kind: str
    """The MIME type."""
    body: bytes


class ContentShelf:
    """Keeps the contents that open tabs show."""

    def __init__(self) -> None:
        self._items: OrderedDict[str, ShelfItem] = OrderedDict()
        self._bytes = 0

    def put(self, visitor: str, kind: str, body: bytes) -> str:
        """Keep content for a visitor, and return its path for the browser."""
        key = secrets.token_urlsafe(24)
        self._items[key] = ShelfItem(visitor, kind, body)
        self._bytes += len(body)
        while len(self._items) > 1 and (self._bytes > MAX_SHELF_BYTES or len(self._items) > MAX_SHELF_ITEMS):
            self._bytes -= len(self._items.popitem(last=False)[1].body)
        return f"/content/{key}"

    def take_away(self, path: str) -> None:
        """Forget content that no tab shows any more."""
        item = self._items.pop(path.removeprefix("/content/"), None)
        if item is not None:
            self._bytes -= len(item.body)

    def find(self, visitor: str, path: str) -> ShelfItem | None:
        """Return the content at a path, or None if this visitor has no content there."""
        item = self._items.get(path.removeprefix("/content/"))
        return item if item is not None and item.visitor == visitor else None
