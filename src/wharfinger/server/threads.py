"""A pool of daemon threads for blocking functions, shared fairly among callers.

One caller that blocks must not keep others waiting. A call therefore has an owner (a session of a principal, or of an
address), and the owner belongs to a group (the principal or address). A group can use `share` threads, and one owner in
it `member_share`. A call that cannot start at once waits, for at most `max_wait` seconds. When a thread becomes
free, groups take turns, and so do the owners within a group.

A thread cannot be stopped. If its caller gives up, the thread counts as lost, and another one takes its place, so that
a few blocked functions do not use up the pool. After `max_lost` of them calls are refused, until some have returned.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
import threading
from collections import Counter
from collections.abc import Awaitable, Callable
from queue import SimpleQueue
from typing import Any, TypeVar

from wharfinger.errors import Overloaded

__all__ = ["MEMBER_SEPARATOR", "Pool", "is_async"]

MEMBER_SEPARATOR = "\n"
"""Separates the group of an owner from its member, as in "principal ann\\nsession 1"."""
T = TypeVar("T")


def is_async(function: Callable[..., Any]) -> bool:
    """Whether calling it returns a coroutine: for a coroutine function, a partial of one, or an async `__call__`."""
    while isinstance(function, functools.partial):
        function = function.func
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(type(function), "__call__", None)  # noqa: B004  # the class decides, not the attribute
    )


class Job:
    """One blocking call and the future of its result."""

    __slots__ = ("call", "context", "future", "group", "lost", "owner", "threads", "timer")

    def __init__(self, owner: str, call: Callable[[], Any], future: asyncio.Future[Any]) -> None:
        self.owner = owner
        self.group = owner.rpartition(MEMBER_SEPARATOR)[0] or owner
        self.call = call
        self.context = contextvars.copy_context()
        self.future = future
        self.threads: SimpleQueue[Job | None] | None = None
        """The queue from which a thread takes the job; None while it waits for a free thread."""
        self.timer: asyncio.TimerHandle | None = None
        """Ends the wait after `max_wait`."""
        self.lost = False
        """Whether its caller has given up while its thread still runs."""


class Pool:
    """A bounded pool of daemon threads (`concurrent.futures` has threads that delay the interpreter's exit).

    `size` threads run at a time, `share` of them for one group and `member_share` for one owner in a group. `queue`
    calls of a group wait, each for at most `max_wait` seconds. Of `max_lost` threads that were given up, one owner may
    have half and one group three quarters; beyond that its calls are refused.
    """

    def __init__(
        self,
        size: int = 32,
        *,
        share: int = 24,
        member_share: int = 16,
        queue: int = 4096,
        max_wait: float = 2.0,
        max_lost: int = 64,
    ) -> None:
        self.size = size
        self.share = share
        self.member_share = member_share
        self.queue = queue
        self.max_wait = max_wait
        self.max_lost = max_lost
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._threads = 0
        self._idle = 0
        self._busy = _Counts()
        self._lost = _Counts()
        self._waiting: dict[str, dict[str, dict[Job, None]]] = {}
        """Waiting jobs by group and then by owner, in the order of their turns."""
        self._queued: Counter[str] = Counter()
        """The number of waiting calls, by group."""

    async def run(self, owner: str, function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """Call `function` in a thread, with the caller's context variables.

        Raises:
            Overloaded: no thread became free in time, or too many calls wait already.
        """
        loop = asyncio.get_running_loop()
        call = (lambda: function(*args, **kwargs)) if args or kwargs else function
        job = Job(owner, call, loop.create_future())
        if self._may_start(job):
            self._start(job)
        else:
            if self._queued[job.group] >= self.queue:
                raise Overloaded("Too many blocking calls of this caller are waiting: try again later.")
            self._waiting.setdefault(job.group, {}).setdefault(job.owner, {})[job] = None
            self._queued[job.group] += 1
            job.timer = loop.call_later(self.max_wait, self._give_up, job)
        try:
            return await job.future  # type: ignore[no-any-return]
        except asyncio.CancelledError:
            if job.threads is None:
                self._dequeue(job)
            elif job.threads is self._jobs and job.future.cancelled():
                job.lost = True  # `_done` counts it back in if it ever returns
                self._busy.add(job, -1)
                self._lost.add(job)
                self._next()
            raise

    def adapt(self, function: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
        """An async form of a function, called with `(owner, *arguments)`: a plain one runs in a thread.

        If a plain function returns an awaitable, that is awaited too.
        """
        if is_async(function):

            async def adapted(owner: str, *arguments: Any) -> Any:
                return await function(*arguments)
        else:

            async def adapted(owner: str, *arguments: Any) -> Any:
                found: object = await self.run(owner, function, *arguments)
                return await found if inspect.isawaitable(found) else found

        return adapted

    def _may_start(self, job: Job) -> bool:
        busy = self._busy
        return (
            busy.total < self.size
            and busy.groups[job.group] < self.share
            and (job.owner == job.group or busy.owners[job.owner] < self.member_share)
        )

    def _start(self, job: Job) -> None:
        lost, most = self._lost, self.max_lost
        if lost.total >= most or lost.groups[job.group] * 4 >= most * 3 or lost.owners[job.owner] * 2 >= most:
            job.future.set_exception(Overloaded("Too many blocking calls were given up and have not returned."))
            return
        job.threads = self._jobs
        self._busy.add(job)
        if self._idle:
            self._idle -= 1
        else:
            self._threads += 1
            name = f"wharfinger-{self._threads}"
            threading.Thread(target=self._work, args=(self._jobs,), name=name, daemon=True).start()
        self._jobs.put(job)

    def _dequeue(self, job: Job) -> None:
        """Remove a job from those that wait, if it is one of them."""
        group = self._waiting.get(job.group, {})
        jobs = group.get(job.owner, {})
        if job not in jobs:
            return
        del jobs[job]
        if not jobs:
            del group[job.owner]
        if not group:
            del self._waiting[job.group]
        self._queued[job.group] -= 1
        if not self._queued[job.group]:
            del self._queued[job.group]
        if job.timer is not None:
            job.timer.cancel()

    def _give_up(self, job: Job) -> None:
        self._dequeue(job)
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
                # A future refuses StopIteration.
                job.future.set_exception(RuntimeError(repr(error)) if isinstance(error, StopIteration) else error)
        if job.threads is self._jobs:  # otherwise the pool was closed meanwhile, and no longer counts this thread
            self._idle += 1
            (self._lost if job.lost else self._busy).add(job, -1)
            self._next()

    def _next(self) -> None:
        """Start waiting jobs while threads are free; groups, and owners in a group, take turns."""
        while self._busy.total < self.size and (job := self._find_next()) is not None:
            group = self._waiting[job.group]
            self._waiting[job.group] = self._waiting.pop(job.group)
            group[job.owner] = group.pop(job.owner)
            self._dequeue(job)
            if not job.future.done():  # else it was cancelled, and its task has not run since
                self._start(job)

    def _find_next(self) -> Job | None:
        """The first job that may start. The search is short, since few groups and owners have used up their shares."""
        for group, owners in self._waiting.items():
            if self._busy.groups[group] < self.share:
                for jobs in owners.values():
                    job = next(iter(jobs))
                    if self._may_start(job):
                        return job
        return None

    def close(self) -> None:
        """End idle threads, and refuse waiting calls. Busy threads are daemons and do not delay the exit.

        The pool can be used again, also on another event loop.
        """
        waiting, self._waiting = self._waiting, {}
        self._queued.clear()
        for job in (job for group in waiting.values() for jobs in group.values() for job in jobs):
            if job.timer is not None:
                job.timer.cancel()
            if not job.future.done():
                job.future.set_exception(Overloaded("The server ends."))
        for _ in range(self._threads):
            self._jobs.put(None)
        self._jobs = SimpleQueue()
        self._threads = self._idle = 0
        self._busy = _Counts()
        self._lost = _Counts()


class _Counts:
    """Numbers of jobs, by group and by owner. A number of 0 is deleted, because clients are not bounded."""

    def __init__(self) -> None:
        self.total = 0
        self.groups: Counter[str] = Counter()
        self.owners: Counter[str] = Counter()

    def add(self, job: Job, number: int = 1) -> None:
        self.total += number
        for counter, key in ((self.groups, job.group), (self.owners, job.owner)):
            counter[key] += number
            if not counter[key]:
                del counter[key]
