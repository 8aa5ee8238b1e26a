"""Where blocking functions run: daemon threads with a share for each caller, so that one cannot exhaust another's."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeVar

from wharfinger.errors import Overloaded

__all__ = ["Pool"]

T = TypeVar("T")


class Job:
    """One blocking call and the future of its result."""

    __slots__ = ("call", "context", "future", "owner", "started")

    def __init__(self, owner: str, call: Callable[[], Any], future: asyncio.Future[Any]) -> None:
        self.owner = owner
        self.call = call
        self.context = contextvars.copy_context()
        self.future = future
        self.started = False


class Pool:
    """A bounded pool of daemon threads. Not `concurrent.futures`, whose threads hold up the interpreter's exit.

    `size` threads work; one owner (a principal, or a peer's address) has at most `share` of them, and `queue` calls
    waiting for at most `patience` seconds. A thread whose call was given up is counted lost and replaced until `lost`
    are, from when on calls are refused.
    """

    def __init__(
        self, size: int = 32, *, share: int = 24, queue: int = 1024, patience: float = 2.0, lost: int = 64
    ) -> None:
        self.size = size
        self.share = share
        self.queue = queue
        self.patience = patience
        self.most_lost = lost
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._threads = 0
        self._idle = 0
        self._lost = 0
        self._busy: dict[str, int] = {}
        self._waiting: dict[str, deque[Job]] = {}

    async def run(self, owner: str, function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """Call `function` in a thread, with the caller's context variables.

        Raises:
            Overloaded: no thread became free in time, or too many calls wait already.
        """
        loop = asyncio.get_running_loop()
        call = (lambda: function(*args, **kwargs)) if args or kwargs else function
        job = Job(owner, call, loop.create_future())
        if self._may_start(owner):
            self._start(job)
        else:
            self._enqueue(job, loop)
        try:
            return await job.future  # type: ignore[no-any-return]
        except asyncio.CancelledError:
            if job.started and job.future.cancelled():
                self._lost += 1  # nothing stops a thread; `_done` counts it back in should it ever return
            raise

    def _may_start(self, owner: str) -> bool:
        working = sum(self._busy.values()) - self._lost
        return working < self.size and self._busy.get(owner, 0) < self.share + self._lost

    def _start(self, job: Job) -> None:
        if self._lost >= self.most_lost:
            job.future.set_exception(Overloaded("Too many blocking calls never returned."))
            return
        job.started = True
        self._busy[job.owner] = self._busy.get(job.owner, 0) + 1
        if self._idle:
            self._idle -= 1
        else:
            self._threads += 1
            loop = asyncio.get_running_loop()
            threading.Thread(target=self._work, args=(loop,), name=f"wharfinger-{self._threads}", daemon=True).start()
        self._jobs.put(job)

    def _enqueue(self, job: Job, loop: asyncio.AbstractEventLoop) -> None:
        queue = self._waiting.setdefault(job.owner, deque())
        if len(queue) >= self.queue:
            raise Overloaded("Too many blocking calls of this caller are waiting: try again later.")
        queue.append(job)
        loop.call_later(self.patience, self._give_up, job)

    def _give_up(self, job: Job) -> None:
        if not job.started and not job.future.done():
            job.future.set_exception(Overloaded("No thread became free for this blocking call: try again later."))

    def _work(self, loop: asyncio.AbstractEventLoop) -> None:
        while (job := self._jobs.get()) is not None:
            result: Any = None
            error: BaseException | None = None
            try:
                result = job.context.run(job.call)
            except BaseException as caught:
                error = caught
            try:
                loop.call_soon_threadsafe(self._done, job, result, error)
            except RuntimeError:  # the loop is closed: the server has ended
                return
            del job, result, error

    def _done(self, job: Job, result: Any, error: BaseException | None) -> None:
        self._idle += 1
        left = self._busy[job.owner] - 1
        if left:
            self._busy[job.owner] = left
        else:
            del self._busy[job.owner]
        if job.future.cancelled():
            self._lost -= 1
        elif error is None:
            job.future.set_result(result)
        else:
            # A future takes no StopIteration.
            job.future.set_exception(RuntimeError(repr(error)) if isinstance(error, StopIteration) else error)
        self._next()

    def _next(self) -> None:
        """Start what waits, one owner after the other."""
        for owner in list(self._waiting):
            queue = self._waiting[owner]
            while queue and queue[0].future.done():
                queue.popleft()
            if queue and self._may_start(owner):
                self._start(queue.popleft())
            if not queue:
                del self._waiting[owner]

    def close(self) -> None:
        """Let idle threads end; busy ones are daemons and hold up nothing."""
        for _ in range(self._threads):
            self._jobs.put(None)
