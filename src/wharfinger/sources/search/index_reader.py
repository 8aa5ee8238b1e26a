"""Asking a source from a thread, whether its methods are plain or coroutine functions."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from wharfinger.errors import InternalError, InvalidParams, PermissionDenied, ResourceNotFound
from wharfinger.server.threads import is_async
from wharfinger.source import Document, Source, document_of

__all__ = ["IndexReader", "Stopped", "keys_of"]

PATIENCE = 60.0
"""Seconds that a coroutine of a source may take."""
MISSING = (ResourceNotFound, InvalidParams, PermissionDenied, PermissionError)
"""What a source raises of something that is not there, or not for us."""


class Stopped(Exception):
    """The server ends."""


class IndexReader:
    """Asks sources on behalf of threads; the coroutines run on `loop`, which is the server's."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.stopped = threading.Event()

    def documents(self, source: Source, after: str | None, limit: int) -> tuple[list[Document], str | None]:
        """A page of what a search of the source looks through."""
        page: tuple[list[Document], str | None] = self._call(source.documents, after, limit)
        return page

    def document(self, source: Source, uri: str) -> Document | None:
        """One of its documents; None where it is missing, or has no version of its own."""
        try:
            return document_of(self._call(source.stat, uri))
        except MISSING:
            return None

    def exists(self, source: Source, uri: str) -> bool:
        """Whether the source has this URI now; one that cannot be asked hides no other's."""
        try:
            return self.document(source, uri) is not None
        except (InternalError, OSError):
            return False

    def text(self, source: Source, uri: str) -> Iterator[str]:
        """The text of a document in pieces; none where it is missing, or no text."""
        try:
            pieces: Iterable[str] = self._call(source.text, uri)
            for piece in pieces if not hasattr(pieces, "__anext__") else self._pieces(pieces):
                if self.stopped.is_set():
                    raise Stopped
                yield piece
        except (*MISSING, OSError):
            return

    def _pieces(self, pieces: Any) -> Iterator[str]:
        """What an async iterator yields, of which each piece is awaited on the loop."""

        async def following() -> str | None:
            return await anext(pieces, None)

        while (piece := self._call(following)) is not None:
            yield piece

    def _call(self, method: Callable[..., Any], *arguments: Any) -> Any:
        if not is_async(method):
            return method(*arguments)
        if self.stopped.is_set():
            raise Stopped
        return asyncio.run_coroutine_threadsafe(method(*arguments), self._loop).result(PATIENCE)


def keys_of(sources: Iterable[Source]) -> dict[str, Source]:
    """A key for each source, the same in every run: its URI, or what else it is called."""
    keys: dict[str, Source] = {}
    for source in sources:
        key = source.uri or source.name or type(source).__name__
        number = sum(1 for known in keys if known.partition("#")[0] == key)
        keys[f"{key}#{number}" if number else key] = source
    return keys
