"""Tasks that run in the background."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

__all__ = ["BackgroundTasks", "retrieve"]


class BackgroundTasks:
    """Keeps references to tasks until they are done, because the event loop itself keeps only weak ones.

    Their exceptions are dropped; with `report_failures` asyncio logs them.
    """

    __slots__ = ("_report_failures", "_tasks")

    def __init__(self, *, report_failures: bool = False) -> None:
        self._report_failures = report_failures
        self._tasks: set[asyncio.Task[Any]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    def start(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run a coroutine as a task."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        if not self._report_failures:
            task.add_done_callback(retrieve)
        return task

    async def finished(self) -> None:
        """Wait until the tasks that run now are done."""
        if self._tasks:
            await asyncio.wait(set(self._tasks))

    async def wait_below(self, limit: int) -> None:
        """Wait until fewer than `limit` tasks run."""
        while len(self._tasks) >= limit:
            await asyncio.wait(set(self._tasks), return_when=asyncio.FIRST_COMPLETED)

    async def cancel(self) -> None:
        """Cancel every task, and wait until all are done."""
        for task in self._tasks:
            task.cancel()
        await self.finished()


def retrieve(task: asyncio.Future[Any]) -> None:
    """Retrieve a task's exception, so that asyncio does not log it as never retrieved."""
    if not task.cancelled():
        task.exception()
