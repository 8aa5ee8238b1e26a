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
"""What waits for an async function that is slow; beyond it the oldest is dropped."""


class Telling:
    """One function, plain or async, and what it has not been told yet; no call begins before the last one ended."""

    __slots__ = ("_function", "_task", "_waiting")

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._waiting: deque[tuple[Any, ...]] = deque(maxlen=MOST_WAITING)
        self._task: asyncio.Task[None] | None = None

    def tell(self, *args: Any) -> None:
        """Call the function now if that is possible without waiting, else later; raises nothing."""
        if self._task is not None:
            self._waiting.append(args)
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
                    doing = self._function(*self._waiting.popleft())
                except Exception:
                    logger.exception("%r failed", self._function)
                    doing = None
        finally:
            self._task = None
