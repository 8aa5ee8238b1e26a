"""Runs an event loop in a thread, for a library that is bound to one loop but called from several threads."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

__all__ = ["LoopThread"]

CLOSE_SECONDS = 2.0
"""Longest time that `close` waits for cancelled tasks to end."""

T = TypeVar("T")


class LoopThread:
    """A thread that runs an event loop. It starts with the first `run` or `submit`, and ends with `close`."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._calls: set[Future[Any]] = set()
        """The calls that are not done."""

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the loop, and block until it is done.

        Raises:
            CancelledError: `close` was called.
        """
        return self.submit(work).result()

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Start a coroutine in the loop, and return its future without waiting."""
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._calls = set()
                arguments = (self._loop, self._calls)
                self._thread = threading.Thread(target=_serve, args=arguments, name=self._name, daemon=True)
                self._thread.start()
            calls = self._calls
            call = asyncio.run_coroutine_threadsafe(work, self._loop)
            calls.add(call)
        call.add_done_callback(calls.discard)
        return call

    @property
    def running(self) -> bool:
        """Whether the loop runs."""
        return self._loop is not None

    def close(self) -> None:
        """Cancel all tasks and end the thread. Tasks that resist are abandoned after `CLOSE_SECONDS`."""
        with self._lock:
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()


def _serve(loop: asyncio.AbstractEventLoop, calls: set[Future[Any]]) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
        pending = asyncio.all_tasks(loop)
        for task in pending:
            task.cancel()
        if pending:
            loop.run_until_complete(asyncio.wait(pending, timeout=CLOSE_SECONDS))
        for call in list(calls):  # their tasks resist: nothing else would end them
            call.cancel()
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        loop.close()
