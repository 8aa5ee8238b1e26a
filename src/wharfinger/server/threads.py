"""Where blocking functions run: daemon threads with a share for each caller, so that one cannot exhaust another's."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections import Counter, deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeVar

from wharfinger.errors import Overloaded

__all__ = ["Pool"]

T = TypeVar("T")


class Job:
    """One blocking call and the future of its result."""

    __slots__ = ("call", "context", "future", "lost", "owner", "threads")

    def __init__(self, owner: str, call: Callable[[], Any], future: asyncio.Future[Any]) -> None:
        self.owner = owner
        self.call = call
        self.context = contextvars.copy_context()
        self.future = future
        self.threads: SimpleQueue[Job | None] | None = None
        """Where it was given to the threads; None while it waits."""
        self.lost = False
        """Its caller has given it up, and its thread still runs."""


class Pool:
    """A bounded pool of daemon threads. Not `concurrent.futures`, whose threads hold up the interpreter's exit.

    `size` threads work; one owner (a principal, or a peer's address) has at most `share` of them, and `queue` calls
    waiting for at most `patience` seconds. A thread whose call was given up is counted lost and replaced; an owner may
    lose half of `lost` threads, and all together `lost`, from when on calls are refused.
    """

    def __init__(
        self, size: int = 32, *, share: int = 24, queue: int = 4096, patience: float = 2.0, lost: int = 64
    ) -> None:
        self.size = size
        self.share = share
        self.queue = queue
        self.patience = patience
        self.most_lost = lost
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._threads = 0
        self._idle = 0
        self._busy: Counter[str] = Counter()
        self._lost: Counter[str] = Counter()
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
            if job.threads is self._jobs and job.future.cancelled():
                job.lost = True  # nothing stops a thread; `_done` counts it back in should it ever return
                self._move(owner, self._busy, self._lost)
                self._next()
            raise

    def _may_start(self, owner: str) -> bool:
        return self._busy.total() < self.size and self._busy[owner] < self.share

    def _start(self, job: Job) -> None:
        if self._lost.total() >= self.most_lost or self._lost[job.owner] * 2 >= self.most_lost:
            job.future.set_exception(Overloaded("Too many blocking calls were given up and have not returned."))
            return
        job.threads = self._jobs
        self._busy[job.owner] += 1
        if self._idle:
            self._idle -= 1
        else:
            self._threads += 1
            name = f"wharfinger-{self._threads}"
            threading.Thread(target=self._work, args=(self._jobs,), name=name, daemon=True).start()
        self._jobs.put(job)

    def _move(self, owner: str, counter: Counter[str], to: Counter[str] | None = None) -> None:
        """Count one less, and forget an owner of none: there are as many as there ever were clients."""
        counter[owner] -= 1
        if not counter[owner]:
            del counter[owner]
        if to is not None:
            to[owner] += 1

    def _enqueue(self, job: Job, loop: asyncio.AbstractEventLoop) -> None:
        queue = self._waiting.setdefault(job.owner, deque())
        if len(queue) >= self.queue:  # those that were given up count no more
            queue = self._waiting[job.owner] = deque(waiting for waiting in queue if not waiting.future.done())
        if len(queue) >= self.queue:
            raise Overloaded("Too many blocking calls of this caller are waiting: try again later.")
        queue.append(job)
        loop.call_later(self.patience, self._give_up, job)

    def _give_up(self, job: Job) -> None:
        if job.threads is None and not job.future.done():
            job.future.set_exception(Overloaded("No thread became free for this blocking call: try again later."))

    def _work(self, jobs: SimpleQueue[Job | None]) -> None:
        while (job := jobs.get()) is not None:
            result: Any = None
            error: BaseException | None = None
            try:
                result = job.context.run(job.call)
            except BaseException as caught:
                error = caught
            try:
                job.future.get_loop().call_soon_threadsafe(self._done, job, result, error)
            except RuntimeError:  # the loop is closed: the server has ended
                return
            del job, result, error

    def _done(self, job: Job, result: Any, error: BaseException | None) -> None:
        if not job.future.done():
            if error is None:
                job.future.set_result(result)
            else:
                # A future takes no StopIteration.
                job.future.set_exception(RuntimeError(repr(error)) if isinstance(error, StopIteration) else error)
        if job.threads is self._jobs:  # else the pool was closed meanwhile, and has forgotten this thread
            self._idle += 1
            self._move(job.owner, self._lost if job.lost else self._busy)
            self._next()

    def _next(self) -> None:
        """Start what waits, one owner after the other: who got a thread comes last the next time."""
        for owner in list(self._waiting):
            queue = self._waiting[owner]
            while queue and queue[0].future.done():
                queue.popleft()
            if queue and self._may_start(owner):
                self._start(queue.popleft())
                self._waiting[owner] = self._waiting.pop(owner)
            if not queue:
                del self._waiting[owner]

    def close(self) -> None:
        """Let the threads end, and refuse what waits; a busy one is a daemon and holds up nothing.

        The pool may be used again, also on another loop: it begins anew.
        """
        waiting, self._waiting = self._waiting, {}
        for job in (job for queue in waiting.values() for job in queue):
            if not job.future.done():
                job.future.set_exception(Overloaded("The server ends."))
        for _ in range(self._threads):
            self._jobs.put(None)
        self._jobs = SimpleQueue()
        self._threads = self._idle = 0
        self._busy.clear()
        self._lost.clear()
