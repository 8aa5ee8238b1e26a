"""Middleware for development: full errors, and a log of blocking code. `wharfinger run --dev` adds both."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
import time
from types import FrameType
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from wharfinger.errors import HandlerFailed, ProtocolError
from wharfinger.protocol.request import LIBRARIES, name_of_call
from wharfinger.server.middleware.chain import Call, Next, transparent

if TYPE_CHECKING:
    from wharfinger.server.app import Server

__all__ = ["debug_errors", "develop"]

log = logging.getLogger("wharfinger.server")

BLOCKED_SECONDS = 0.25
"""Seconds that the event loop may be blocked before the log reports it."""
CLOSED_SECONDS = 1.0
"""Seconds between two looks at whether a blocked event loop has been closed."""


def develop(server: Server) -> None:
    """Send callers every error in full, and log where a handler blocks the event loop. Never use it in production."""
    server.add_middleware(debug_errors)
    server.add_middleware(Watchdog())


class Watchdog:
    """Warns, once for each line, when a handler blocks the event loop and so all calls."""

    transparent = True

    def __init__(self) -> None:
        self._loops: WeakSet[asyncio.AbstractEventLoop] = WeakSet()
        """The loops that a thread watches."""
        self._seen: set[tuple[str, int]] = set()

    async def __call__(self, call: Call, next: Next) -> Any:
        """Serve the call while a thread watches the loop."""
        loop = asyncio.get_running_loop()
        if loop not in self._loops:
            self._loops.add(loop)
            arguments = (loop, threading.get_ident())
            threading.Thread(target=self._watch, args=arguments, name="wharfinger-watchdog", daemon=True).start()
        return await next(call)

    def _watch(self, loop: asyncio.AbstractEventLoop, thread_id: int) -> None:
        turned = threading.Event()
        while True:
            turned.clear()
            try:
                loop.call_soon_threadsafe(turned.set)
            except RuntimeError:  # the loop is closed
                return
            if not turned.wait(BLOCKED_SECONDS):
                self._warn(sys._current_frames().get(thread_id))
                while not turned.wait(CLOSED_SECONDS):
                    if loop.is_closed():  # it never runs `turned.set`
                        return
            time.sleep(BLOCKED_SECONDS / 5)

    def _warn(self, frame: FrameType | None) -> None:
        """Log the innermost line of the author's code that blocks the loop's thread, and the call that it serves."""
        blocking: FrameType | None = None
        call: Call | None = None
        while frame is not None:
            name = frame.f_code.co_filename
            if blocking is None and not name.startswith(LIBRARIES) and "site-packages" not in name:
                blocking = frame
            request = frame.f_locals.get("request") if name.startswith(LIBRARIES) else None
            if call is None and isinstance(request, Call):
                call = request
            frame = frame.f_back
        if (
            blocking is None
            or call is None
            or (location := (blocking.f_code.co_filename, blocking.f_lineno)) in self._seen
        ):
            return
        self._seen.add(location)
        log.warning(
            "%s blocks the event loop, and all other calls, at %s:%d, in %s: "
            "make it a plain def, which runs in a thread, or use `await asyncio.to_thread(…)` there.",
            name_of_call(call),
            *location,
            blocking.f_code.co_name,
        )


@transparent
async def debug_errors(call: Call, next: Next) -> Any:
    """Send the caller the exception's text with the log's reference. Never use it in production.

    Add it with `server.add_middleware(debug_errors)`.

    Raises:
        HandlerFailed: the handler failed; the message names the exception and repeats its text.
    """
    try:
        return await next(call)
    except Exception as error:
        if isinstance(error, ProtocolError) and not error.remote:
            raise
        reference = os.urandom(4).hex()
        log.exception("%s failed (reference %s)", call.method, reference)
        raise HandlerFailed(f"Internal error (reference {reference}): {type(error).__name__}: {error}") from None
