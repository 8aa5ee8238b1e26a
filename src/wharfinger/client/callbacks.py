"""Functions of the user's that are told something: in order, with a bound, and a fault of theirs is only logged."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections import deque
from collections.abc import Callable
from typing import Any

__all__ = ["Telling"]

logger = logging.getLogger("wharfinger.client")

MOST_WAITING = 1000
MOST_SIZE = 16 * 1024 * 1024
"""How many messages wait for an async function that is slow, and their bytes; beyond that the oldest are dropped."""


class Telling:
    """One function, plain or async, and what it has not been told yet; no call begins before the last one ended."""

    __slots__ = ("_function", "_size", "_task", "_waiting")

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._waiting: deque[tuple[int, tuple[Any, ...]]] = deque()
        self._size = 0
        self._task: asyncio.Task[None] | None = None

    def tell(self, *args: Any, size: int = 0) -> None:
        """Call the function now if that is possible without waiting, else later; raises nothing.

        `size` is how many bytes the message had that the arguments are from.
        """
        if self._task is not None:
            self._waiting.append((size, args))
            self._size += size
            while len(self._waiting) > MOST_WAITING or self._size > MOST_SIZE:
                self._size -= self._waiting.popleft()[0]
            return
        try:
            doing = self._function(*args)
        except Exception:
            logger.exception("%r failed", self._function)
            return
        if inspect.isawaitable(doing):
            self._task = asyncio.get_running_loop().create_task(self._go_on(doing))

    async def told(self) -> None:
        """Wait until the function has been told everything."""
        if self._task is not None and self._task is not asyncio.current_task():
            await asyncio.wait((self._task,))

    def stop(self) -> None:
        """Tell nothing more."""
        self._waiting.clear()
        self._size = 0
        if self._task is not None:
            self._task.cancel()

    async def _go_on(self, doing: Any) -> None:
        try:
            while True:
                try:
                    if inspect.isawaitable(doing):
                        await doing
                    if not self._waiting:
                        return
                    size, args = self._waiting.popleft()
                    self._size -= size
                    doing = self._function(*args)
                except Exception:
                    logger.exception("%r failed", self._function)
                    doing = None
        finally:
            self._task = None
