"""Calls the observers of a server's requests: the audit log, metrics, traces.

The handlers of a server are wrapped while it has an observer, outside of middleware and of the policy. So an observer
sees every request, refused ones too, and a server without observers pays nothing. The wrapper records the outcome of
the handler; the transport then reports the size of the answer (`Request.when_answered`), and the observation ends.

Reads that a handler makes for its caller (`nested_requests`) are reported to all observers that saw its request. For a
request to a mounted server, these include the observers of the server around it, which thus see its reads too.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from msgspec import UNSET

from wharfinger.errors import ProtocolError
from wharfinger.protocol.interfaces import Handler
from wharfinger.protocol.observing import Observation, Refusal, RequestObserver
from wharfinger.protocol.request import Request
from wharfinger.server.logged_calls import call_logged
from wharfinger.server.middleware.chain import MethodTable

__all__ = ["Observers", "observed_read"]

log = logging.getLogger("wharfinger.server.observers")


class Observers:
    """The observers of one server."""

    def __init__(self, methods: MethodTable, changed: Callable[[], None]) -> None:
        self._methods = methods
        self._changed = changed
        self._all: tuple[RequestObserver, ...] = ()

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[RequestObserver]:
        return iter(self._all)

    def add(self, observer: RequestObserver) -> None:
        """Add an observer of the requests."""
        self._set((*self._all, observer))

    def remove(self, observer: RequestObserver) -> None:
        """Remove an observer; does nothing if it was not added."""
        self._set(tuple(other for other in self._all if other is not observer))

    def _set(self, observers: tuple[RequestObserver, ...]) -> None:
        self._all = observers
        self._methods.set_observer(self._observe if observers else None)
        self._changed()

    async def start(self) -> None:
        """Start every observer; if one cannot start, close those that did."""
        started: list[RequestObserver] = []
        try:
            for observer in self._all:
                await observer.start()
                started.append(observer)
        except BaseException:
            await self.close(started)
            raise

    async def close(self, observers: Sequence[RequestObserver] | None = None) -> None:
        """Close these observers, by default all. An error is logged, and the others are still closed."""
        for observer in self._all if observers is None else observers:
            try:
                await observer.close()
            except Exception:
                log.exception("%s could not be closed", type(observer).__name__)

    def refused(self, refusal: Refusal) -> None:
        """Report a message that was answered with an error before it became a `Request`: no handler was called."""
        for observer in self._all:
            call_logged(observer.refused, refusal)

    # -- requests

    def _observe(self, method: str, handler: Handler) -> Handler:
        """Return a handler whose requests are observed."""

        async def serve(request: Request) -> Any:
            if request.nested:  # if it is a read, `observed_read` reports it
                return await handler(request)
            seen = Observation(request, time.perf_counter())
            request.observers += (self,)
            request.when_answered(partial(self._answered, seen))
            return await self._serve(seen, handler)

        return serve

    async def _serve(self, seen: Observation, handler: Handler) -> Any:
        """Call the handler, and record its outcome."""
        try:
            for observer in self._all:
                try:
                    observer.began(seen)
                except ProtocolError:  # the audit log refuses a request that it cannot record
                    raise
                except Exception:
                    log.exception("%s failed", type(observer).__name__)
            seen.result = result = await handler(seen.request)
        except BaseException as error:
            seen.error = error
            seen.cancelled = isinstance(error, asyncio.CancelledError)
            raise
        return result

    def _answered(self, seen: Observation, size: int) -> None:
        seen.size = size
        seen.seconds = time.perf_counter() - seen.began
        for observer in self._all:
            call_logged(observer.ended, seen)
        seen.result = seen.error = None  # a cycle: the error's traceback refers to frames with `seen`

    def searched(self, request: Request, words: str, hits: int) -> None:
        """Report a search that the handler of a request made."""
        for observer in self._all:
            call_logged(observer.searched, request, words, hits)

    def watched(self, request: Request, uris: Sequence[str], refused: Sequence[str]) -> None:
        """Report that a request began to watch URIs, and that others were refused."""
        for observer in self._all:
            call_logged(observer.watched, request, uris, refused)

    def unwatched(self, request: Request, uris: Sequence[str]) -> None:
        """Report that the session that watched these URIs has ended; `request` was its first subscription."""
        for observer in self._all:
            call_logged(observer.unwatched, request, uris)

    async def read(self, outer: Request, request: Request, handler: Handler) -> Any:
        """Read for the handler of `outer`, and report the read with the size of its contents."""
        seen = Observation(request, time.perf_counter(), outer.method)
        request.observers += (self,)
        size = 0
        try:
            result = await self._serve(seen, handler)
            size = _contents_size(result)
        finally:
            self._answered(seen, size)
        return result


async def observed_read(outer: Request, request: Request, handler: Handler) -> Any:
    """Read for the handler of `outer`: call `handler` with `request`, and report this to the observers of `outer`."""
    for observers in outer.observers:
        handler = partial(observers.read, outer, handler=handler)
    return await handler(request)


def _contents_size(result: Any) -> int:
    """Return the size of the contents of a read, in bytes."""
    size = 0
    for content in getattr(result, "contents", ()):
        if isinstance(content.text, str):
            size += len(content.text) if content.text.isascii() else len(content.text.encode("utf-8", "surrogatepass"))
        elif content.blob is not UNSET:
            size += len(content.blob)
    return size
