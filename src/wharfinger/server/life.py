"""The time in which something runs, in one task of its own; knows nothing of what runs."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from typing import Any

__all__ = ["Life"]


class Life:
    """Enters a context manager and leaves it, both in its own task, whoever begins and ends it.

    What a lifespan opens may have to be closed by the task that opened it (task groups, cancel scopes), and one caller
    who goes away while it begins must not take the others with it.
    """

    def __init__(self, manager: AbstractAsyncContextManager[Any]) -> None:
        loop = asyncio.get_running_loop()
        self._begun: asyncio.Future[None] = loop.create_future()
        self._ending = asyncio.Event()
        self._task = loop.create_task(self._live(manager))

    async def begun(self) -> None:
        """Wait until it has begun; raises what entering raised."""
        await asyncio.shield(self._begun)

    @property
    def failed(self) -> bool:
        """Whether entering raised, so that there is nothing to leave."""
        return self._begun.done() and self._begun.exception() is not None

    async def end(self) -> None:
        """Leave, and wait until it is left; raises what leaving raised. What has not begun yet is cancelled."""
        self._ending.set()
        if not self._begun.done():
            self._task.cancel()
        await asyncio.shield(self._task)

    async def _live(self, manager: AbstractAsyncContextManager[Any]) -> None:
        try:
            async with manager:
                self._begun.set_result(None)
                await self._ending.wait()
        except BaseException as error:
            if self._begun.done():
                raise
            if isinstance(error, asyncio.CancelledError):  # nobody who waits was cancelled
                error = RuntimeError("The server was ended before it had started.")
            self._begun.set_exception(error)
            self._begun.exception()  # it is raised where somebody waits for it, and nobody need
