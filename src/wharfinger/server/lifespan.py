"""Starts a server for its first holder, and ends it when the last holder has closed it.

The holders of a server are the transports that serve it, and the servers in which it is mounted. The first holder
starts the server, the others wait for this start, and the server ends when the last one has closed it. Some resources
must be closed by the task that opened them (task groups, cancel scopes), and a holder that is cancelled during the
start must not cancel the others. So the lifespan runs in its own task, which opens and closes everything.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from wharfinger.protocol.request import failure_text

__all__ = ["ServerLifespan", "logged_lifespan"]

log = logging.getLogger("wharfinger.server")


class ServerLifespan:
    """Enters the context manager that `serving` makes for the first holder, and leaves it after the last one.

    `stop`, a plain function, is called when the last holder ends it, also during the start.
    """

    def __init__(self, serving: Callable[[], AbstractAsyncContextManager[None]], stop: Callable[[], None]) -> None:
        self._serving = serving
        self._stop = stop
        self._run: _Run | None = None
        self._ending: set[asyncio.Task[None]] = set()
        """The tasks of earlier runs that have not ended yet."""
        self._holders: set[object] = set()

    def __bool__(self) -> bool:
        """Whether a start has begun, and no end since then."""
        return self._run is not None

    async def begin(self, holder: object) -> None:
        """Start, or wait for the start in progress. Raises the error of entering the context manager.

        If an earlier run is still ending, the start waits for its end.
        """
        self._holders.add(holder)
        if self._run is None:
            # Do not wait for the run that calls this, or for one whose event loop was closed: neither would end.
            waits_for = {
                task for task in self._ending if task is not asyncio.current_task() and not task.get_loop().is_closed()
            }
            self._run = _Run(self._serving(), waits_for)
        run = self._run
        try:
            await asyncio.shield(run.begun)
        except BaseException:
            if run.begun.done() and run.begun.exception() is not None and self._run is run:
                self._run = None  # so that a later call can start again
                self._holders.clear()
            raise

    async def end(self, holder: object) -> None:
        """End, unless there is another holder; cancels a start in progress. Raises the error of leaving the manager."""
        self._holders.discard(holder)
        if self._holders or self._run is None:
            return
        run, self._run = self._run, None
        self._ending.add(run.task)
        run.task.add_done_callback(self._ending.discard)
        self._stop()
        run.ending.set()
        # Not at once: a task that is cancelled before its first step never sets `begun`, and holders wait for ever.
        asyncio.get_running_loop().call_soon(run.cancel_start)
        await asyncio.shield(run.task)


class _Run:
    """One run of a server: a task that waits for `earlier` runs, enters a context manager, and leaves it."""

    def __init__(self, manager: AbstractAsyncContextManager[None], earlier: set[asyncio.Task[None]]) -> None:
        loop = asyncio.get_running_loop()
        self.begun: asyncio.Future[None] = loop.create_future()
        self.ending = asyncio.Event()
        self.task = loop.create_task(self._hold_open(manager, earlier))

    def cancel_start(self) -> None:
        """Cancel the start. Does nothing after it."""
        if not self.begun.done():
            self.task.cancel()

    async def _hold_open(self, manager: AbstractAsyncContextManager[None], earlier: set[asyncio.Task[None]]) -> None:
        try:
            if earlier:
                await asyncio.wait(earlier)
            async with manager:
                self.begun.set_result(None)
                await self.ending.wait()
        except BaseException as error:
            if self.begun.done():
                raise
            if isinstance(error, asyncio.CancelledError):  # none of the waiting holders was cancelled
                error = RuntimeError("The server was ended before it had started.")
            self.begun.set_exception(error)
            self.begun.exception()  # mark it as retrieved, since perhaps no holder waits for it


@asynccontextmanager
async def logged_lifespan(name: str, lifespan: Callable[[Any], object], server: object) -> AsyncGenerator[Any]:
    """Enter and leave the author's lifespan. If one of the two fails, log the error with its file and line.

    Raises:
        TypeError: `lifespan` does not return an asynchronous context manager.
    """
    error_inside: BaseException | None = None
    try:
        manager: Any = lifespan(server)
        if not hasattr(manager.__class__, "__aenter__"):
            raise TypeError("lifespan= takes an async context manager: put @contextlib.asynccontextmanager before it.")
        async with manager as state:
            try:
                yield state
            except BaseException as error:
                error_inside = error  # such as that of a mounted server, which is logged there
                raise
    except Exception as error:
        if error is not error_inside:
            log.error("%s", failure_text(f"The lifespan of the server {name!r}", error))
        raise
