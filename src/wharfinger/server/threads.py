"""A pool of daemon threads for blocking functions, shared fairly among callers.

One caller that blocks must not keep others waiting. So a call has an owner (a session of a principal, or of an
address), and the owner belongs to a group (the principal or address). A group can use `share` threads, and one owner in
it `member_share`. A call that cannot start at once waits, for at most `max_wait` seconds. When a thread becomes
free, groups take turns, and so do the owners within a group.

A thread cannot be stopped. If its caller gives up, the thread counts as lost, and another one takes its place, so that
a few blocked functions do not use up the pool. If `max_lost` threads are lost, calls are refused until some return.

Handing a call to a thread and its result back takes 39 µs, longer than reading a small file. So the calls of a `quick`
function share a thread: the waiting calls of one owner become a `CallBatch`. One thread makes them one after another,
while the next batch collects. As long as every call is quick, this is no slower than a thread for each. When they are
not (a disk is waking up, a network is down), the waiting calls get threads of their own, and so do the calls of the
next quarter of a second.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
import threading
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from contextlib import nullcontext, suppress
from queue import SimpleQueue
from typing import Any, ParamSpec, TypeVar, TypeVarTuple, overload

from wharfinger.errors import Overloaded
from wharfinger.server.signature.annotations import unwrap_partial
from wharfinger.source import Source, is_quick

__all__ = ["MEMBER_SEPARATOR", "Pool", "group_of", "is_async", "run_in_own_thread"]

MEMBER_SEPARATOR = "\n"
"""Separates the two parts of an owner, the group and the member of this group: "principal ann\\nsession 1"."""
BATCH_CALLS = 64
"""The maximum number of calls in a batch."""
COLLECTING_TURNS = 3
"""Turns of the event loop for which a batch collects calls before it starts, so that requests that are arriving are in
it. With 32 reads in flight this saves a tenth of the time of a read; a single read waits 10 µs longer."""
CHECK_SECONDS = 0.005
"""Time between two checks of a running batch."""
MIN_QUICK_CALLS = 8
"""If fewer calls return between two checks, the function is not quick at present. The first check does not count,
because the whole process may have waited just before it."""
APART_SECONDS = 0.25
"""How long the calls of a function that is not quick at present have threads of their own."""
P = ParamSpec("P")
T = TypeVar("T")
Args = TypeVarTuple("Args")


def is_async(function: Callable[..., Any]) -> bool:
    """Return whether `function` is a coroutine function, a partial of one, or has an async `__call__`."""
    function = unwrap_partial(function)
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(type(function), "__call__", None)  # noqa: B004  # the class decides, not the attribute
    )


def group_of(owner: str) -> str:
    """Return the group of an owner: its principal or address."""
    return owner.rpartition(MEMBER_SEPARATOR)[0] or owner


class Job:
    """One blocking call and the future of its result."""

    # Defaults of the class, because most jobs are part of a batch and never change them.
    group = ""
    """The group of the owner; empty for a job in a batch."""
    thread_queue: SimpleQueue[Job | None] | None = None
    """The queue from which a thread takes the job; None while it waits for a free thread."""
    timer: asyncio.TimerHandle | None = None
    """Ends the wait after `max_wait`."""
    lost = False
    """Whether the caller has given up while the thread still runs."""
    batch: CallBatch | None = None
    """The batch that the job is in, if it does not have a thread of its own."""
    size = 1
    """The number of calls."""

    def __init__(
        self, owner: str, function: Callable[..., Any], arguments: tuple[Any, ...], future: asyncio.Future[Any]
    ) -> None:
        self.owner = owner
        self.function = function
        self.arguments = arguments
        self.context = contextvars.copy_context()
        self.future = future

    def end(self, result: object, error: BaseException | None) -> None:
        """Pass the result or the error to the caller."""
        if self.future.done():
            return
        if error is None:
            self.future.set_result(result)
        else:
            # A future refuses StopIteration.
            self.future.set_exception(RuntimeError(repr(error)) if isinstance(error, StopIteration) else error)


async def run_in_own_thread(function: Callable[[], T], thread_name: str) -> T:
    """Call `function` in a daemon thread, with the caller's context variables, even if no thread of a pool is free."""
    loop = asyncio.get_running_loop()
    job = Job("", function, (), loop.create_future())

    def run() -> None:
        result: Any = None
        error: BaseException | None = None
        try:
            result = job.context.run(function)
        except BaseException as caught:
            error = caught
        with suppress(RuntimeError):  # the loop is closed, so nothing waits for the result
            loop.call_soon_threadsafe(job.end, result, error)

    threading.Thread(target=run, name=thread_name, daemon=True).start()
    return await job.future  # type: ignore[no-any-return]


class CallBatch(Job):
    """Calls of one quick function for one owner, which one thread runs one after another.

    The thread takes calls from `jobs` and appends to `ended`, while the event loop appends to `jobs` and takes from
    `ended`. Each of these is a single operation of a deque, which no other thread can interrupt.
    """

    def __init__(self, owner: str, key: BatchKey, future: asyncio.Future[Any]) -> None:
        super().__init__(owner, self.run, (), future)
        self.key = key
        self.jobs: deque[Job] = deque()
        self.ended: deque[tuple[Job, Any, BaseException | None]] = deque()
        """Results that the event loop has not taken yet."""
        self.current: Job | None = None
        """The call that the thread is running."""
        self.ended_calls = 0
        self.counted = -1
        """The value of `ended_calls` at the last check; -1 before the first one."""
        self.next_check: asyncio.TimerHandle | None = None

    def run(self) -> None:
        """Run all calls, in the thread, except those that were cancelled before their turn."""
        bound_to = getattr(self.key[1], "__self__", None)
        with bound_to.batch() if isinstance(bound_to, Source) else nullcontext():
            jobs, ended = self.jobs, self.ended
            while True:
                try:
                    job = jobs.popleft()
                except IndexError:
                    break
                if job.future.cancelled():
                    continue
                self.current = job
                try:
                    ended.append((job, job.context.run(job.function, *job.arguments), None))
                except BaseException as error:
                    ended.append((job, None, error))
                self.ended_calls += 1
                self.current = None

    def take_all(self) -> list[Job]:
        """Remove and return all calls that have not begun."""
        jobs: list[Job] = []
        with suppress(IndexError):  # the thread may take the last one first
            while True:
                jobs.append(self.jobs.popleft())
        return jobs

    def deliver(self) -> None:
        """Pass the results so far to their callers, on the event loop."""
        ended = self.ended
        while ended:
            job, result, error = ended.popleft()
            if error is None and not job.future.done():
                job.future.set_result(result)
            else:
                job.end(result, error)

    def end(self, result: object, error: BaseException | None) -> None:
        """Pass all results to their callers; if the batch was refused, pass the error to all of them."""
        self.deliver()
        if error is not None:
            for job in self.take_all():
                job.end(None, error)
        if not self.future.done():
            self.future.set_result(None)


BatchKey = tuple[str, Callable[..., Any]]
"""An owner and a function."""


class Pool:
    """A bounded pool of daemon threads. The threads of `concurrent.futures` would delay the interpreter's exit.

    At most `size` threads run at a time, at most `share` of them for one group and `member_share` for one owner in a
    group. While `max_queued` calls of a group wait, its further calls are refused; a call waits for at most `max_wait`
    seconds. At most `max_lost` threads can be lost, half of them by one owner and three quarters by one group; beyond
    that, calls are refused.
    """

    def __init__(
        self,
        size: int = 32,
        *,
        share: int = 24,
        member_share: int = 16,
        max_queued: int = 4096,
        max_wait: float = 2.0,
        max_lost: int = 64,
    ) -> None:
        self.size = size
        self.share = share
        self.member_share = member_share
        self.max_queued = max_queued
        self.max_wait = max_wait
        self.max_lost = max_lost
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._threads = 0
        self._idle = 0
        self._busy = _Counts()
        self._lost = _Counts()
        self._waiting: dict[str, dict[str, dict[Job, None]]] = {}
        """Waiting jobs by group and then by owner, in the order of their turns."""
        self._collecting: dict[BatchKey, CallBatch] = {}
        """The batches that collect calls and have not started, at most one for each owner and function."""
        self._running: dict[BatchKey, CallBatch] = {}
        """The batches that run; the next batch with the same key waits until they end, or until it is full."""
        self._slow: dict[BatchKey, asyncio.TimerHandle] = {}
        """Functions that are not quick at present, by owner; the timer removes the entry."""
        self._queued: Counter[str] = Counter()
        """The number of waiting calls, by group."""

    async def run(self, owner: str, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call `function` in a thread, with the caller's context variables.

        Raises:
            Overloaded: no thread became free in time, too many calls are waiting or threads lost, or the pool was
                closed.
        """
        loop = asyncio.get_running_loop()
        job = Job(owner, functools.partial(function, **kwargs) if kwargs else function, args, loop.create_future())
        key = (owner, function)
        if is_quick(function) and key not in self._slow:
            self._collect(job, key, loop)
        else:
            self._submit(job, loop)
        try:
            return await job.future  # type: ignore[no-any-return]
        except asyncio.CancelledError:
            self._cancel(job)
            raise

    def _submit(self, job: Job, loop: asyncio.AbstractEventLoop) -> None:
        """Start a job if a thread is free for it; otherwise let it wait."""
        job.group = group_of(job.owner)
        if self._may_start(job):
            self._start(job)
        elif self._queued[job.group] >= self.max_queued:
            self._end(job, None, Overloaded("Too many blocking calls of this caller are waiting: try again later."))
        else:
            self._waiting.setdefault(job.group, {}).setdefault(job.owner, {})[job] = None
            self._queued[job.group] += job.size
            job.timer = loop.call_later(self.max_wait, self._time_out, job)

    def _cancel(self, job: Job) -> None:
        """Release the thread, or the place in the queue, of a job whose caller was cancelled."""
        batch = job.batch
        if batch is None:
            if job.thread_queue is None:
                self._dequeue(job)
            elif job.future.cancelled():
                self._lose(job)
        elif batch.current is job:  # it may block its thread for long, and no other call must wait for this thread
            batch.deliver()
            self._spread(batch, batch.future.get_loop())
            self._lose(batch)
            self._leave(batch)
        # Otherwise the thread skips it when its turn comes.

    def _lose(self, job: Job) -> None:
        """Count the thread of a job as lost, until the thread returns."""
        if job.thread_queue is self._jobs and not job.lost:
            job.lost = True
            self._busy.add(job, -1)
            self._lost.add(job)
            self._start_waiting()

    # Batches

    def _collect(self, job: Job, key: BatchKey, loop: asyncio.AbstractEventLoop) -> None:
        """Add a call to the collecting batch.

        The batch starts some turns of the loop later or, if another one with the same key runs, after that one has
        ended. A full batch starts at once.
        """
        batch = self._collecting.get(key)
        if batch is None:
            batch = self._collecting[key] = CallBatch(job.owner, key, loop.create_future())
            if key not in self._running:
                self._start_after(COLLECTING_TURNS, batch)
        batch.jobs.append(job)
        job.batch = batch
        if len(batch.jobs) >= BATCH_CALLS:
            self._start_batch(batch)

    def _start_after(self, turns: int, batch: CallBatch) -> None:
        """Start a batch after some turns of the loop."""
        if turns:
            batch.future.get_loop().call_soon(self._start_after, turns - 1, batch)
        else:
            self._start_batch(batch)

    def _start_batch(self, batch: CallBatch) -> None:
        if self._collecting.get(batch.key) is batch:
            del self._collecting[batch.key]
            self._running[batch.key] = batch
            batch.size = len(batch.jobs)
            self._submit(batch, batch.future.get_loop())

    def _check(self, batch: CallBatch) -> None:
        """Deliver what a running batch has finished. If it is slow, give the other calls threads of their own."""
        first = batch.counted < 0
        returned, batch.counted = batch.ended_calls - batch.counted, batch.ended_calls
        batch.deliver()
        loop = batch.future.get_loop()
        if first or returned >= MIN_QUICK_CALLS or (batch.current is None and not batch.jobs):
            batch.next_check = loop.call_later(CHECK_SECONDS, self._check, batch)
            return
        key = batch.key
        if key not in self._slow:
            self._slow[key] = loop.call_later(APART_SECONDS, self._slow.pop, key, None)
        self._spread(batch, loop)
        if (collecting := self._collecting.pop(key, None)) is not None:
            self._spread(collecting, loop)
        self._leave(batch)

    def _spread(self, batch: CallBatch, loop: asyncio.AbstractEventLoop) -> None:
        """Give a thread of its own to each call of a batch that has not begun."""
        for job in batch.take_all():
            job.batch = None
            if not job.future.done():
                self._submit(job, loop)

    def _leave(self, batch: CallBatch) -> None:
        """Stop waiting for a batch, and start the one that collected in the meantime."""
        if batch.next_check is not None:
            batch.next_check.cancel()
        if self._running.get(batch.key) is batch:
            del self._running[batch.key]
            following = self._collecting.get(batch.key)
            if following is not None:  # not at once: the next calls of this batch's callers should be in it
                self._start_after(COLLECTING_TURNS, following)

    @overload
    def call(self, owner: str, function: Callable[[*Args], Awaitable[T]], *arguments: *Args) -> Awaitable[T]: ...
    @overload
    def call(self, owner: str, function: Callable[[*Args], T], *arguments: *Args) -> Awaitable[T]: ...
    def call(self, owner: str, function: Callable[[*Args], Any], *arguments: *Args) -> Awaitable[Any]:
        """Call a function; a plain function runs in a thread. If it returns an awaitable, that is awaited too."""
        if is_quick(function):
            return self.run(owner, function, *arguments)
        return self.adapt(function)(owner, *arguments)

    @overload
    def adapt(self, function: Callable[[*Args], Awaitable[T]]) -> Callable[[str, *Args], Awaitable[T]]: ...
    @overload
    def adapt(self, function: Callable[[*Args], T]) -> Callable[[str, *Args], Awaitable[T]]: ...
    def adapt(self, function: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
        """Return an async function of `(owner, *arguments)` that calls `function` as `call` does."""
        if is_async(function):

            async def adapted(owner: str, *arguments: Any) -> Any:
                return await function(*arguments)
        else:

            async def adapted(owner: str, *arguments: Any) -> Any:
                result: object = await self.run(owner, function, *arguments)
                return await result if inspect.isawaitable(result) else result

        return adapted

    def _may_start(self, job: Job) -> bool:
        """Return whether a thread is free for a job. An owner without a member may use the share of a whole group."""
        busy = self._busy
        return (
            busy.total < self.size
            and busy.groups[job.group] < self.share
            and (job.owner == job.group or busy.owners[job.owner] < self.member_share)
        )

    def _start(self, job: Job) -> None:
        lost, max_lost = self._lost, self.max_lost
        if (
            lost.total >= max_lost
            or lost.groups[job.group] * 4 >= max_lost * 3
            or lost.owners[job.owner] * 2 >= max_lost
        ):
            self._end(job, None, Overloaded("Too many blocking calls were given up and have not returned."))
            return
        job.thread_queue = self._jobs
        self._busy.add(job)
        if self._idle:
            self._idle -= 1
        else:
            self._threads += 1
            name = f"wharfinger-{self._threads}"
            threading.Thread(target=self._run_thread, args=(self._jobs,), name=name, daemon=True).start()
        self._jobs.put(job)
        if isinstance(job, CallBatch):
            job.next_check = job.future.get_loop().call_later(CHECK_SECONDS, self._check, job)

    def _dequeue(self, job: Job) -> None:
        """Remove a job from the waiting jobs, if it is one of them."""
        group = self._waiting.get(job.group, {})
        jobs = group.get(job.owner, {})
        if job not in jobs:
            return
        del jobs[job]
        if not jobs:
            del group[job.owner]
        if not group:
            del self._waiting[job.group]
        self._queued[job.group] -= job.size
        if not self._queued[job.group]:
            del self._queued[job.group]
        if job.timer is not None:
            job.timer.cancel()

    def _time_out(self, job: Job) -> None:
        """Refuse a job that has waited for `max_wait` seconds."""
        self._dequeue(job)
        if job.thread_queue is None:
            self._end(job, None, Overloaded("No thread became free for this blocking call: try again later."))

    def _run_thread(self, jobs: SimpleQueue[Job | None]) -> None:
        while (job := jobs.get()) is not None:
            result: Any = None
            error: BaseException | None = None
            try:
                result = job.context.run(job.function, *job.arguments)
            except BaseException as caught:
                error = caught
            try:
                job.future.get_loop().call_soon_threadsafe(self._done, job, result, error)
            except RuntimeError:  # the loop is closed: the server has ended
                return
            del job, result, error

    def _end(self, job: Job, result: Any, error: BaseException | None) -> None:
        job.end(result, error)
        if isinstance(job, CallBatch):
            self._leave(job)

    def _done(self, job: Job, result: Any, error: BaseException | None) -> None:
        self._end(job, result, error)
        if job.thread_queue is self._jobs:  # otherwise the pool was closed, and no longer counts this thread
            self._idle += 1
            (self._lost if job.lost else self._busy).add(job, -1)
            self._start_waiting()

    def _start_waiting(self) -> None:
        """Start waiting jobs while threads are free; groups, and owners in a group, take turns."""
        while self._busy.total < self.size and (job := self._next_that_may_start()) is not None:
            group = self._waiting[job.group]
            self._waiting[job.group] = self._waiting.pop(job.group)
            group[job.owner] = group.pop(job.owner)
            self._dequeue(job)
            if not job.future.done():  # otherwise it was cancelled, and its task has not run since
                self._start(job)

    def _next_that_may_start(self) -> Job | None:
        """Return the first job that may start; None if none may."""
        # This is quick, because few groups and owners have used up their shares.
        for group, owners in self._waiting.items():
            if self._busy.groups[group] < self.share:
                for jobs in owners.values():
                    job = next(iter(jobs))
                    if self._may_start(job):
                        return job
        return None

    def close(self) -> None:
        """End idle threads, and refuse waiting calls. Busy threads are daemons and do not delay the exit.

        The pool can be used again afterwards, even on another event loop.
        """
        waiting, self._waiting = self._waiting, {}
        self._queued.clear()
        collecting, self._collecting = self._collecting, {}
        self._running.clear()
        while self._slow:
            self._slow.popitem()[1].cancel()
        for job in (
            *collecting.values(),
            *(job for group in waiting.values() for jobs in group.values() for job in jobs),
        ):
            if job.timer is not None:
                job.timer.cancel()
            job.end(None, Overloaded("The server ends."))
        for _ in range(self._threads):
            self._jobs.put(None)
        self._jobs = SimpleQueue()
        self._threads = self._idle = 0
        self._busy = _Counts()
        self._lost = _Counts()


class _Counts:
    """Numbers of jobs, by group and by owner. Entries of 0 are deleted, since the number of clients has no bound."""

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
