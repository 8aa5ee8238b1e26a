"""Calls an ASGI application in this process, without a socket, as if it were an HTTP API.

A request is one call of the application with an `http` scope (ASGI 3.0, HTTP & WebSocket 2.5), in a task: its answer is
complete with the last message, but the application may continue (Starlette's background tasks). The application's
lifespan runs from the first use to `close()`, in a task of its own, since it may hold a task group open. The
application is bounded like a remote server: the size and the time of an answer are limited, and an exception becomes an
answer of 500.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections.abc import Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import unquote_to_bytes, urlsplit

from wharfinger.errors import ConnectionFailed
from wharfinger.fetching import MAX_REDIRECTS, REDIRECTS, TooLarge, same_origin
from wharfinger.net import join_headers, join_url
from wharfinger.protocol.interfaces import AsgiApp, AsgiMessage, HttpResponse
from wharfinger.transports.background import BackgroundTasks

__all__ = ["AsgiTransport"]

log = logging.getLogger("wharfinger.sources.http_api")

LIFESPAN_SECONDS = 30.0
"""Time that the application has to start, and to end."""


class AsgiTransport:
    """Sends requests to an ASGI application. It belongs to one event loop at a time."""

    def __init__(self, app: AsgiApp, *, timeout: float, max_body_bytes: int) -> None:
        self._app = app
        self._timeout = timeout
        self._max_body_bytes = max_body_bytes
        self._lifespan: _Lifespan | None = None
        self._requests = BackgroundTasks()
        self._lock = asyncio.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        """The event loop of the lock."""

    async def request(
        self, method: str, url: str, *, headers: Mapping[str, str] | None = None, body: bytes | None = None
    ) -> HttpResponse:
        """Call the application, and return its answer.

        Raises:
            ConnectionFailed: it does not start, does not answer within the bounds, or redirects elsewhere or too often.
        """
        await self._start()
        try:
            async with asyncio.timeout(self._timeout):
                for _ in range(MAX_REDIRECTS + 1):
                    response = await self._exchange(method, url, headers or {}, body or b"")
                    location = response.headers.get("location", "")
                    if response.status not in REDIRECTS or not location or method not in ("GET", "HEAD"):
                        return response
                    target = join_url(url, location)
                    if not same_origin(url, target):
                        raise ConnectionFailed("The application redirects elsewhere, which is not followed.")
                    url = target.partition("#")[0]
        except TimeoutError:
            raise ConnectionFailed(f"The application did not answer within {self._timeout:g} s.") from None
        raise ConnectionFailed(f"The application redirects more than {MAX_REDIRECTS} times.")

    async def _exchange(self, method: str, url: str, headers: Mapping[str, str], body: bytes) -> HttpResponse:
        parts = urlsplit(url)
        request_headers = {"host": parts.netloc, **{name.lower(): value for name, value in headers.items()}}
        if body:
            request_headers["content-length"] = str(len(body))
        state = {} if self._lifespan is None else self._lifespan.state
        scope: AsgiMessage = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.5"},
            "http_version": "1.1",
            "method": method,
            "scheme": parts.scheme,
            "path": unquote_to_bytes(parts.path).decode("utf-8", "replace"),
            "raw_path": parts.path.encode("ascii"),
            "query_string": parts.query.encode("ascii"),
            "root_path": "",
            "headers": [(name.encode("latin-1"), value.encode("latin-1")) for name, value in request_headers.items()],
            "client": ("127.0.0.1", 0),
            "server": (parts.hostname or "localhost", parts.port or 80),
            "state": dict(state),
        }
        answer = _Answer(self._max_body_bytes)
        inbox = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> AsgiMessage:
            if inbox:
                return inbox.pop()
            await answer.ended.wait()
            return {"type": "http.disconnect"}

        async def run() -> None:
            try:
                await self._app(scope, receive, answer.send)
            except Exception:
                if answer.error is None:
                    answer.failed = True
                    log.warning("The application failed at %s %s", method, parts.path, exc_info=True)
            finally:
                answer.ended.set()

        running = self._requests.start(run())
        try:
            await answer.ended.wait()
        except asyncio.CancelledError:
            running.cancel()
            await asyncio.wait((running,))
            raise
        if answer.is_complete:
            return HttpResponse(answer.status, answer.headers, b"".join(answer.pieces))
        if answer.failed:
            return HttpResponse(500, {}, b"")
        raise answer.error or ConnectionFailed("The application ended without an answer.")

    async def _start(self) -> None:
        loop = asyncio.get_running_loop()
        if self._lifespan is not None and self._lifespan.loop is loop:
            return
        if self._loop is not loop:  # a lock for which a task has waited is bound to that task's loop
            self._loop, self._lock = loop, asyncio.Lock()
        async with self._lock:
            if self._lifespan is None or self._lifespan.loop is not loop:
                lifespan = _Lifespan(self._app, loop)
                await lifespan.start()
                self._lifespan = lifespan

    async def close(self) -> None:
        """End the application's lifespan, after at most `LIFESPAN_SECONDS` for running requests.

        A later request starts the lifespan again.
        """
        lifespan, self._lifespan = self._lifespan, None
        if lifespan is not None and lifespan.loop is asyncio.get_running_loop():
            with suppress(TimeoutError):
                async with asyncio.timeout(LIFESPAN_SECONDS):
                    await self._requests.finished()
            await self._requests.cancel()
            await lifespan.close()


class _Answer:
    """Collects the messages of an answer."""

    def __init__(self, max_bytes: int) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.pieces: list[bytes] = []
        self.is_complete = False
        self.failed = False
        """Whether the application raised an exception of its own."""
        self.error: TooLarge | None = None
        """What `send` raised. The application may hide it; Starlette raises ClientDisconnect instead."""
        self.ended = asyncio.Event()
        """Set when the answer is complete, or when the application has ended."""
        self._remaining_bytes = max_bytes
        self._max_bytes = max_bytes

    async def send(self, message: AsgiMessage) -> None:
        if message["type"] == "http.response.start":
            self.status = int(message["status"])
            raw = message.get("headers", ())
            self.headers = join_headers((name.decode("latin-1"), value.decode("latin-1")) for name, value in raw)
        elif message["type"] == "http.response.body" and not self.is_complete:
            piece = bytes(message.get("body", b""))
            self._remaining_bytes -= len(piece)
            if self._remaining_bytes < 0:
                self.error = TooLarge(f"The application sent more than {self._max_bytes} bytes.")
                raise self.error
            self.pieces.append(piece)
            if not message.get("more_body", False):
                self.is_complete = True
                self.ended.set()


class _Lifespan:
    """The lifespan of an application in one event loop (ASGI 3.0, lifespan protocol 2.0)."""

    def __init__(self, app: AsgiApp, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.state: dict[str, Any] = {}
        self._app = app
        self._events: asyncio.Queue[AsgiMessage] = asyncio.Queue()
        self._started: asyncio.Future[str] = loop.create_future()
        self._ended: asyncio.Future[str] = loop.create_future()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start the application.

        Raises:
            ConnectionFailed: it reports that it cannot start, or does not report in time.
        """
        self._events.put_nowait({"type": "lifespan.startup"})
        # Not in the context of a request: the lifespan outlives it.
        self._task = self.loop.create_task(self._run(), context=contextvars.Context())
        try:
            async with asyncio.timeout(LIFESPAN_SECONDS):
                failure = await asyncio.shield(self._started)
        except TimeoutError:
            self._task.cancel()
            raise ConnectionFailed(f"The application did not start within {LIFESPAN_SECONDS:g} s.") from None
        except asyncio.CancelledError:
            self._task.cancel()
            raise
        if failure:
            self._task.cancel()
            raise ConnectionFailed("The application could not start.")

    async def close(self) -> None:
        """End the application, and wait until it has ended, for a bounded time."""
        if self._task is None or self._task.done():
            return
        self._events.put_nowait({"type": "lifespan.shutdown"})
        await asyncio.wait((self._ended,), timeout=LIFESPAN_SECONDS)
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task

    async def _run(self) -> None:
        scope: AsgiMessage = {
            "type": "lifespan",
            "asgi": {"version": "3.0", "spec_version": "2.0"},
            "state": self.state,
        }
        try:
            await self._app(scope, self._events.get, self._send)
        except Exception:  # an application without a lifespan raises
            log.debug("The application has no lifespan", exc_info=True)
        for future in (self._started, self._ended):
            if not future.done():
                future.set_result("")

    async def _send(self, message: AsgiMessage) -> None:
        phase, _, outcome = message["type"].removeprefix("lifespan.").partition(".")
        future = self._started if phase == "startup" else self._ended
        if not future.done():
            failed = outcome == "failed"
            if failed:
                log.warning("The application failed at its %s: %s", phase, str(message.get("message", ""))[:500])
            future.set_result("failed" if failed else "")
