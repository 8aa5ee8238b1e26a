"""Calls user functions with messages, in order, with a bound on waiting messages. Logs exceptions."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections import deque
from collections.abc import Callable
from typing import Any

__all__ = ["CallbackQueue"]

log = logging.getLogger("wharfinger.client")

MAX_WAITING_MESSAGES = 1000
MAX_WAITING_BYTES = 16 * 1024 * 1024
"""The maximum number of messages that wait for a slow async function, and of their bytes. Beyond either, the oldest are
dropped, without a log entry."""


class CallbackQueue:
    """Calls one plain or async function with one message after another, never concurrently."""

    __slots__ = ("_function", "_size", "_task", "_waiting")

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._waiting: deque[tuple[int, tuple[Any, ...]]] = deque()
        self._size = 0
        self._task: asyncio.Task[None] | None = None

    def put(self, *args: Any, size: int = 0) -> None:
        """Call the function with these arguments, after all earlier calls. Logs its exceptions.

        `size` is the number of bytes of the message.
        """
        if self._task is not None and not self._task.done():
            self._waiting.append((size, args))
            self._size += size
            while len(self._waiting) > MAX_WAITING_MESSAGES or self._size > MAX_WAITING_BYTES:
                self._size -= self._waiting.popleft()[0]
            return
        try:
            result = self._function(*args)
        except Exception:
            log.exception("%r failed", self._function)
            return
        if inspect.isawaitable(result):
            self._task = asyncio.get_running_loop().create_task(self._work(result))
            if inspect.iscoroutine(result):  # if the task is cancelled before it begins, nothing awaits the coroutine
                self._task.add_done_callback(lambda _: result.close())

    async def finished(self) -> None:
        """Wait until all calls have returned. If the caller is cancelled meanwhile, stop."""
        if self._task is not None and self._task is not asyncio.current_task():
            try:
                await asyncio.wait((self._task,))
            except asyncio.CancelledError:
                self.stop()
                raise

    def stop(self) -> None:
        """Drop the waiting calls, and cancel the running call unless it is the caller of this method."""
        self._waiting.clear()
        self._size = 0
        if self._task is not None and self._task is not asyncio.current_task():
            self._task.cancel()

    async def _work(self, result: Any) -> None:
        task = asyncio.current_task()
        assert task is not None
        try:
            while True:
                try:
                    if inspect.isawaitable(result):
                        await result
                    if not self._waiting:
                        return
                    size, args = self._waiting.popleft()
                    self._size -= size
                    result = self._function(*args)
                except (Exception, asyncio.CancelledError) as error:
                    # A CancelledError may also come from a task that the function waited for.
                    if isinstance(error, asyncio.CancelledError) and task.cancelling():
                        raise
                    log.exception("%r failed", self._function)
                    result = None
        finally:
            self._task = None
