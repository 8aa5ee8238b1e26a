"""The thread pool: shares, queues, limits, contexts, and batches of quick calls."""

from __future__ import annotations

import asyncio
import contextvars
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest

from wharfinger.errors import Overloaded
from wharfinger.server.threads import BATCH_CALLS, COLLECTING_TURNS, MEMBER_SEPARATOR, Pool, run_in_own_thread
from wharfinger.source import Source, quick

NAME: contextvars.ContextVar[str] = contextvars.ContextVar("NAME", default="nobody")


class Gate:
    """A gate that blocks threads until it opens."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.blocked = threading.Semaphore(0)

    def wait(self) -> str:
        """Block until the gate opens."""
        self.blocked.release()
        assert self.open.wait(20)
        return "through"

    async def until_blocked(self, number: int) -> None:
        """Wait until this many more threads block here."""
        for _ in range(number):
            # asyncio.run joins its threads, which the time limit of a test cannot interrupt: hence the timeout.
            assert await asyncio.to_thread(self.blocked.acquire, timeout=20)


@asynccontextmanager
async def pool_and_gate(**options: Any) -> AsyncIterator[tuple[Pool, Gate]]:
    """Yield a pool and a gate, and open the gate on exit."""
    pool, gate = Pool(**options), Gate()
    try:
        yield pool, gate
    finally:
        gate.open.set()
        pool.close()


def start(pool: Pool, owner: str, gate: Gate, number: int = 1) -> list[asyncio.Task[str]]:
    """Start this many calls that wait at the gate."""
    return [asyncio.create_task(pool.run(owner, gate.wait)) for _ in range(number)]


async def lose_threads(pool: Pool, owner: str, gate: Gate, number: int) -> None:
    """Start and cancel this many calls, whose threads stay blocked."""
    for _ in range(number):
        (call,) = start(pool, owner, gate)
        await gate.until_blocked(1)
        call.cancel()
        await asyncio.wait((call,))


async def is_refused(pool: Pool, owner: str) -> bool:
    try:
        await pool.run(owner, lambda: None)
    except Overloaded as error:
        assert "were given up and have not returned" in str(error)
        return True
    return False


async def test_a_call_receives_its_arguments_and_the_callers_context() -> None:
    async with pool_and_gate() as (pool, _):
        NAME.set("ann")
        assert await pool.run("", lambda a, *, b: (a, b, NAME.get()), 1, b=2) == (1, 2, "ann")
        token = NAME.set("bob")
        assert await pool.run("", lambda: NAME.get()) == "bob"
        NAME.reset(token)
        await pool.run("", lambda: NAME.set("changed in the thread"))
        assert NAME.get() == "ann"


async def test_a_call_in_a_thread_of_its_own_receives_the_callers_context_and_passes_on_errors() -> None:
    """A bug: a StopIteration, which a future refuses, left the caller waiting forever."""
    NAME.set("ann")
    assert await run_in_own_thread(lambda: (NAME.get(), threading.current_thread().name), "own") == ("ann", "own")
    nothing: Iterator[str] = iter(())
    with pytest.raises(RuntimeError, match="StopIteration"):
        await run_in_own_thread(lambda: next(nothing), "own")
    with pytest.raises(ZeroDivisionError):
        await run_in_own_thread(lambda: 1 // 0, "own")


async def test_an_owner_uses_at_most_its_share_of_threads() -> None:
    """Security H53, F09: sixty blocked calls of one client, and a short call of another."""
    async with pool_and_gate(size=4, share=3, max_wait=20) as (pool, gate):
        greedy = start(pool, "greedy", gate, 60)
        await gate.until_blocked(3)
        assert await pool.run("modest", lambda: "served") == "served"
        gate.open.set()
        assert await asyncio.gather(*greedy) == ["through"] * 60


async def test_waiting_owners_take_turns() -> None:
    async with pool_and_gate(size=1, share=1, max_wait=20) as (pool, gate):
        order: list[str] = []
        held = start(pool, "first", gate)
        await gate.until_blocked(1)
        calls = [pool.run(name, order.append, name) for name in ("a", "a", "a", "b", "b", "c")]
        waiting = [asyncio.create_task(call) for call in calls]
        await asyncio.sleep(0)
        gate.open.set()
        await asyncio.gather(*held, *waiting)
        assert order == ["a", "b", "c", "a", "b", "a"]


async def test_a_full_queue_refuses_calls_and_cancelled_calls_free_their_slot() -> None:
    """Security L22."""
    async with pool_and_gate(size=1, max_queued=2, max_wait=20) as (pool, gate):
        held = start(pool, "", gate)
        await gate.until_blocked(1)
        waiting = start(pool, "", gate, 2)
        await asyncio.sleep(0)
        with pytest.raises(Overloaded):
            await pool.run("", gate.wait)
        assert pool._waiting.keys() == {""}
        waiting[0].cancel()
        await asyncio.wait(waiting[:1])
        later = start(pool, "", gate)
        await asyncio.sleep(0)
        gate.open.set()
        assert await asyncio.gather(*held, waiting[1], *later) == ["through"] * 3
        assert pool._waiting == {}


async def test_a_call_that_exceeds_max_wait_is_refused() -> None:
    async with pool_and_gate(size=1, max_wait=0.01) as (pool, gate):
        held = start(pool, "", gate)
        await gate.until_blocked(1)
        with pytest.raises(Overloaded):
            await pool.run("", lambda: "never")
        gate.open.set()
        assert await asyncio.gather(*held) == ["through"]
        assert await pool.run("", lambda: "free again") == "free again"


async def test_the_thread_of_a_cancelled_call_is_replaced_until_the_call_returns() -> None:
    """Security F10."""
    async with pool_and_gate(size=1, max_wait=20) as (pool, gate):
        (lost,) = start(pool, "", gate)
        await gate.until_blocked(1)
        waiting = asyncio.create_task(pool.run("", lambda: "served"))
        await asyncio.sleep(0)
        lost.cancel()
        assert await waiting == "served"
        assert (pool._lost.total, pool._busy.total) == (1, 0)
        gate.open.set()
        while pool._lost.total:
            await pool.run("", lambda: None)
        assert (pool._lost.owners, pool._busy.owners) == ({}, {})


async def test_an_owner_is_refused_after_losing_half_of_max_lost_threads() -> None:
    async with pool_and_gate(size=2, share=2, max_lost=4, max_wait=20) as (pool, gate):
        await lose_threads(pool, "bad", gate, 2)
        with pytest.raises(Overloaded):
            await pool.run("bad", lambda: None)
        assert await pool.run("good", lambda: "served") == "served"
        await lose_threads(pool, "worse", gate, 2)
        with pytest.raises(Overloaded):
            await pool.run("good", lambda: None)
        gate.open.set()
        while pool._lost.total:
            await asyncio.sleep(0)
        assert await pool.run("bad", lambda: "served") == "served"


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), ValueError("no"), asyncio.CancelledError()])
async def test_an_exception_is_raised_to_the_caller_and_its_thread_is_reused(error: BaseException) -> None:
    """Security F06."""

    def fail() -> None:
        raise error

    async with pool_and_gate(size=1) as (pool, _):
        with pytest.raises(type(error)):
            await pool.run("", fail)
        assert await pool.run("", lambda: "alive") == "alive"
        assert pool._threads == 1


async def test_stop_iteration_is_raised_as_a_runtime_error() -> None:
    async with pool_and_gate() as (pool, _):
        with pytest.raises(RuntimeError, match="StopIteration"):
            await pool.run("", lambda: next(iter(())))


async def test_close_refuses_waiting_jobs_and_does_not_wait_for_blocked_jobs() -> None:
    async with pool_and_gate(size=1, max_wait=20) as (pool, gate):
        (held,) = start(pool, "", gate)
        await gate.until_blocked(1)
        (waiting,) = start(pool, "", gate)
        await asyncio.sleep(0)
        pool.close()
        with pytest.raises(Overloaded):
            await waiting
        assert await pool.run("", lambda: "works again") == "works again"
        gate.open.set()
        assert await held == "through"
        assert pool._busy.owners == pool._busy.groups == {}


def test_a_pool_works_on_a_second_event_loop() -> None:
    pool, gate = Pool(size=2), Gate()

    async def block_and_close() -> None:
        start(pool, "", gate)
        await gate.until_blocked(1)
        assert await pool.run("", lambda: 1) == 1
        pool.close()

    asyncio.run(block_and_close())

    async def run_calls() -> list[int]:
        return await asyncio.wait_for(asyncio.gather(*(pool.run("", lambda: 1) for _ in range(5))), 5)

    assert asyncio.run(run_calls()) == [1] * 5
    gate.open.set()
    pool.close()


async def test_many_short_calls_use_no_more_threads_than_the_size_of_the_pool() -> None:
    async with pool_and_gate(size=3, share=3, max_queued=2_000, max_wait=20) as (pool, _):
        results = await asyncio.gather(*(pool.run(str(n % 7), lambda n=n: n) for n in range(2_000)))
        assert results == list(range(2_000))
        assert pool._threads <= 3
        assert (pool._busy.owners, pool._waiting, pool._queued) == ({}, {}, {})


# -- members of a group: the sessions of one address


async def test_a_member_of_a_group_leaves_threads_to_other_members_and_groups() -> None:
    async with pool_and_gate(size=8, share=6, member_share=4, max_wait=20) as (pool, gate):
        one = start(pool, f"host{MEMBER_SEPARATOR}one", gate, 60)
        await gate.until_blocked(4)
        assert await pool.run(f"host{MEMBER_SEPARATOR}two", lambda: "served") == "served"
        two = start(pool, f"host{MEMBER_SEPARATOR}two", gate, 60)
        await gate.until_blocked(2)
        await asyncio.sleep(0)
        assert (pool._busy.total, pool._busy.groups["host"]) == (6, 6)
        assert await pool.run("elsewhere", lambda: "served") == "served"
        gate.open.set()
        assert await asyncio.gather(*one, *two) == ["through"] * 120
        assert (pool._busy.owners, pool._waiting, pool._queued) == ({}, {}, {})


async def test_many_members_of_a_group_use_at_most_the_share_of_the_group() -> None:
    async with pool_and_gate(size=8, share=6, member_share=4, max_wait=20) as (pool, gate):
        held = [task for number in range(50) for task in start(pool, f"host{MEMBER_SEPARATOR}{number}", gate)]
        await gate.until_blocked(6)
        await asyncio.sleep(0)
        assert pool._busy.total == 6
        assert await pool.run("elsewhere", lambda: "served") == "served"
        gate.open.set()
        await asyncio.gather(*held)


async def test_groups_and_their_members_take_turns() -> None:
    async with pool_and_gate(size=1, share=1, member_share=1, max_wait=20) as (pool, gate):
        order: list[str] = []
        held = start(pool, "first", gate)
        await gate.until_blocked(1)
        names = ["h\n1", "h\n1", "h\n1", "h\n2", "h\n2", "k\n1"]
        waiting = [asyncio.create_task(pool.run(name, order.append, name)) for name in names]
        await asyncio.sleep(0)
        gate.open.set()
        await asyncio.gather(*held, *waiting)
        assert order == ["h\n1", "k\n1", "h\n2", "h\n1", "h\n2", "h\n1"]


async def test_threads_lost_by_one_member_do_not_block_another() -> None:
    async with pool_and_gate(size=2, share=2, member_share=2, max_lost=8, max_wait=20) as (pool, gate):
        await lose_threads(pool, f"host{MEMBER_SEPARATOR}bad", gate, 4)
        with pytest.raises(Overloaded):
            await pool.run(f"host{MEMBER_SEPARATOR}bad", lambda: None)
        assert await pool.run(f"host{MEMBER_SEPARATOR}good", lambda: "served") == "served"
        gate.open.set()


async def test_a_job_that_timed_out_or_was_cancelled_is_dropped_from_the_queue() -> None:
    async with pool_and_gate(size=1, max_wait=0.01) as (pool, gate):
        held = start(pool, "first", gate)
        await gate.until_blocked(1)
        waiting = start(pool, f"host{MEMBER_SEPARATOR}one", gate, 5)
        await asyncio.sleep(0)
        assert pool._queued == {"host": 5}
        waiting[0].cancel()
        await asyncio.wait(waiting)
        assert [task.cancelled() for task in waiting] == [True] + [False] * 4
        assert all(isinstance(task.exception(), Overloaded) for task in waiting[1:])
        assert (pool._waiting, pool._queued) == ({}, {})
        gate.open.set()
        await asyncio.gather(*held)


async def test_a_call_cancelled_in_the_queue_never_runs() -> None:
    """This holds even if its turn comes before its task handles the cancellation."""
    async with pool_and_gate(size=1) as (pool, gate):
        loop = asyncio.get_running_loop()
        ran: list[str] = []

        def cancel() -> None:
            gate.open.set()
            time.sleep(0.1)  # blocks the loop, so that the end of the first call is handled before the cancellation
            waiting.cancel()

        first = start(pool, "ann", gate)[0]
        await gate.until_blocked(1)
        waiting = asyncio.create_task(pool.run("ann", ran.append, "cancelled"))
        after = asyncio.create_task(pool.run("ann", ran.append, "after"))
        await asyncio.sleep(0)
        loop.call_soon(cancel)
        assert await first == "through"
        await after
        assert waiting.cancelled()
        assert ran == ["after"]


# -- limits


async def test_the_size_of_the_pool_limits_concurrent_calls() -> None:
    async with pool_and_gate(size=3, share=3, member_share=3, max_wait=20) as (pool, gate):
        held = start(pool, "a", gate, 3)
        await gate.until_blocked(3)
        late = start(pool, "b", gate)
        for _ in range(3):
            await asyncio.sleep(0)
        assert not gate.blocked.acquire(blocking=False)
        gate.open.set()
        assert await asyncio.gather(*held, *late) == ["through"] * 4


@pytest.mark.parametrize(("share", "member_share", "expected"), [(2, 9, 2), (9, 1, 1), (3, 2, 2)])
async def test_a_member_is_limited_by_its_own_share_and_the_share_of_its_group(
    share: int, member_share: int, expected: int
) -> None:
    async with pool_and_gate(size=9, share=share, member_share=member_share, max_wait=20) as (pool, gate):
        calls = start(pool, f"ann{MEMBER_SEPARATOR}one", gate, expected + 1)
        await gate.until_blocked(expected)
        assert await pool.run("bob", lambda: "served") == "served"
        for _ in range(3):
            await asyncio.sleep(0)
        assert not gate.blocked.acquire(blocking=False)
        gate.open.set()
        assert await asyncio.gather(*calls) == ["through"] * (expected + 1)


async def test_an_owner_without_members_has_the_share_of_a_group() -> None:
    async with pool_and_gate(size=9, share=3, member_share=1, max_wait=20) as (pool, gate):
        calls = start(pool, "ann", gate, 4)
        await gate.until_blocked(3)
        gate.open.set()
        assert await asyncio.gather(*calls) == ["through"] * 4


async def test_idle_threads_are_reused() -> None:
    async with pool_and_gate(size=8) as (pool, _):
        names = {await pool.run("", lambda: threading.current_thread().name) for _ in range(20)}
        assert len(names) == 1
        assert all(name.startswith("wharfinger-") for name in names)


@pytest.mark.parametrize(
    ("lost", "refused_owners", "served_owners"),
    [
        ({f"ann{MEMBER_SEPARATOR}one": 3}, [], [f"ann{MEMBER_SEPARATOR}one", "bob"]),
        ({f"ann{MEMBER_SEPARATOR}one": 4}, [f"ann{MEMBER_SEPARATOR}one"], [f"ann{MEMBER_SEPARATOR}two", "bob"]),
        ({f"ann{MEMBER_SEPARATOR}one": 3, f"ann{MEMBER_SEPARATOR}two": 2}, [], [f"ann{MEMBER_SEPARATOR}three", "bob"]),
        ({f"ann{MEMBER_SEPARATOR}one": 3, f"ann{MEMBER_SEPARATOR}two": 3}, [f"ann{MEMBER_SEPARATOR}three"], ["bob"]),
        ({f"ann{MEMBER_SEPARATOR}one": 3, f"ann{MEMBER_SEPARATOR}two": 2, "bob": 2}, [], ["eve"]),
        ({f"ann{MEMBER_SEPARATOR}one": 3, f"ann{MEMBER_SEPARATOR}two": 2, "bob": 3}, ["eve", "bob"], []),
    ],
)
async def test_lost_threads_are_limited_in_total_per_group_and_per_member(
    lost: dict[str, int], refused_owners: list[str], served_owners: list[str]
) -> None:
    async with pool_and_gate(size=9, share=9, member_share=9, max_lost=8, max_wait=20) as (pool, gate):
        for owner, number in lost.items():
            await lose_threads(pool, owner, gate, number)
        assert [await is_refused(pool, owner) for owner in refused_owners] == [True] * len(refused_owners)
        assert [await is_refused(pool, owner) for owner in served_owners] == [False] * len(served_owners)
        gate.open.set()
        while await is_refused(pool, (*refused_owners, *served_owners)[0]):
            await asyncio.sleep(0)


async def test_each_group_has_its_own_queue() -> None:
    async with pool_and_gate(size=1, max_queued=1, max_wait=20) as (pool, gate):
        held = start(pool, "ann", gate)
        await gate.until_blocked(1)
        waiting = start(pool, "ann", gate) + start(pool, "bob", gate)
        for _ in range(2):
            await asyncio.sleep(0)
        for owner in ("ann", "bob", f"ann{MEMBER_SEPARATOR}other"):
            with pytest.raises(Overloaded, match="of this caller are waiting"):
                await pool.run(owner, gate.wait)
        gate.open.set()
        assert await asyncio.gather(*held, *waiting) == ["through"] * 3


async def test_a_closed_pool_refuses_waiting_jobs_with_a_message_and_can_start_again() -> None:
    async with pool_and_gate(size=1, max_wait=0.05) as (pool, gate):
        held = start(pool, "ann", gate)
        await gate.until_blocked(1)
        waiting = start(pool, "ann", gate, 2)
        await asyncio.sleep(0)
        pool.close()
        for call in waiting:
            with pytest.raises(Overloaded, match="The server ends"):
                await call
        assert await pool.run("ann", lambda: "again") == "again"
        gate.open.set()
        assert await asyncio.gather(*held) == ["through"]
        assert await pool.run("ann", lambda: "and again") == "and again"
        running = start(pool, "ann", gate)
        assert await asyncio.gather(*running) == ["through"]


async def test_a_full_queue_is_empty_after_the_pool_is_closed() -> None:
    async with pool_and_gate(size=1, max_wait=20, max_queued=1) as (pool, gate):
        held = start(pool, "ann", gate)
        await gate.until_blocked(1)
        (waiting,) = start(pool, "ann", gate)
        await asyncio.sleep(0)
        pool.close()
        with pytest.raises(Overloaded, match="The server ends"):
            await waiting
        next_gate = Gate()
        calls = start(pool, "ann", next_gate)
        await next_gate.until_blocked(1)
        calls += start(pool, "ann", next_gate)
        await asyncio.sleep(0)
        gate.open.set()
        next_gate.open.set()
        assert await asyncio.gather(*held, *calls) == ["through"] * 3


async def test_the_error_for_exceeding_max_wait_advises_to_try_again() -> None:
    async with pool_and_gate(size=1, max_wait=0.01) as (pool, gate):
        held = start(pool, "", gate)
        await gate.until_blocked(1)
        with pytest.raises(Overloaded, match="No thread became free for this blocking call: try again later"):
            await pool.run("", lambda: "never")
        gate.open.set()
        await asyncio.gather(*held)


# -- quick calls share a thread


class BatchedSource(Source):
    """A source that records its quick reads by batch."""

    def __init__(self, gate: Gate | None = None) -> None:
        self.gate = gate
        self.batches: list[list[str]] = []
        self.threads: list[str] = []
        self._here = threading.local()

    @contextmanager
    def batch(self) -> Iterator[None]:
        self._here.reads = []
        self.batches.append(self._here.reads)
        yield
        del self._here.reads

    @quick
    def read(self, uri: str) -> Any:
        getattr(self._here, "reads", self.batches[-1] if self.batches else []).append(uri)
        self.threads.append(threading.current_thread().name)
        if uri == "stuck" and self.gate is not None:
            self.gate.wait()
        if uri == "bad":
            raise ValueError(uri)
        return f"{NAME.get()} reads {uri}"


async def test_quick_calls_share_a_thread_and_keep_their_own_context_and_error() -> None:
    async with pool_and_gate() as (pool, _):
        source = BatchedSource()

        async def read(name: str, uri: str) -> Any:
            NAME.set(name)
            return await pool.call("", source.read, uri)

        reads = [read("ann", "a"), read("bob", "bad"), read("cy", "c")]
        first, second, third = await asyncio.gather(
            *(asyncio.create_task(coroutine) for coroutine in reads), return_exceptions=True
        )
        assert (first, third) == ("ann reads a", "cy reads c")
        assert isinstance(second, ValueError)
        assert source.batches == [["a", "bad", "c"]]
        assert len(set(source.threads)) == 1
        assert (pool._busy.total, pool._running, pool._collecting) == (0, {}, {})


async def test_owners_and_functions_do_not_share_a_batch() -> None:
    async with pool_and_gate() as (pool, _):
        one, two = BatchedSource(), BatchedSource()
        await asyncio.gather(
            pool.run("ann", one.read, "a"), pool.run("bob", one.read, "b"), pool.run("ann", two.read, "c")
        )
        assert sorted(one.batches) == [["a"], ["b"]]
        assert two.batches == [["c"]]


@pytest.mark.parametrize(("number", "sizes"), [(BATCH_CALLS, [BATCH_CALLS]), (BATCH_CALLS + 1, [1, BATCH_CALLS])])
async def test_the_size_of_a_batch_is_limited(number: int, sizes: list[int]) -> None:
    async with pool_and_gate() as (pool, _):
        source = BatchedSource()
        found = await asyncio.gather(*(pool.run("", source.read, str(index)) for index in range(number)))
        assert found == [f"nobody reads {index}" for index in range(number)]
        assert sorted(map(len, source.batches)) == sizes


async def test_jobs_that_arrive_during_a_batch_run_after_it_in_order() -> None:
    async with pool_and_gate() as (pool, gate):
        source = BatchedSource(gate)
        held = asyncio.create_task(pool.run("", source.read, "stuck"))
        await gate.until_blocked(1)
        waiting = [asyncio.create_task(pool.run("", source.read, uri)) for uri in "abc"]
        await asyncio.sleep(0)
        gate.open.set()
        await asyncio.gather(held, *waiting)
        assert [uri for batch in source.batches for uri in batch] == ["stuck", "a", "b", "c"]


async def test_a_blocked_quick_call_does_not_delay_other_calls() -> None:
    """For example if a disk hangs. Calls of its batch, queued calls and later calls all get other threads."""
    async with pool_and_gate(max_wait=20) as (pool, gate):
        source = BatchedSource(gate)
        before = asyncio.create_task(pool.run("", source.read, "before"))
        held = asyncio.create_task(pool.run("", source.read, "stuck"))
        same_batch = [asyncio.create_task(pool.run("", source.read, uri)) for uri in "ab"]
        await gate.until_blocked(1)
        queued = [asyncio.create_task(pool.run("", source.read, uri)) for uri in "cd"]
        assert await asyncio.wait_for(asyncio.gather(before, *same_batch, *queued), 10) == [
            f"nobody reads {uri}" for uri in ("before", "a", "b", "c", "d")
        ]
        assert pool._slow
        later = [asyncio.create_task(pool.run("", source.read, "stuck")) for _ in range(3)]
        await gate.until_blocked(3)  # each in its own thread
        assert not held.done()
        gate.open.set()
        await asyncio.gather(held, *later)
        assert pool._busy.total == 0
        while pool._slow:
            await asyncio.sleep(0.01)
        source.batches.clear()
        await asyncio.gather(pool.run("", source.read, "a"), pool.run("", source.read, "b"))
        assert source.batches == [["a", "b"]]


async def test_a_quick_call_cancelled_before_its_batch_never_runs() -> None:
    async with pool_and_gate() as (pool, _):
        source = BatchedSource()
        reads = [asyncio.create_task(pool.run("", source.read, uri)) for uri in "abc"]
        await asyncio.sleep(0)
        reads[1].cancel()
        await asyncio.wait(reads)
        assert reads[1].cancelled()
        assert source.batches == [["a", "c"]]


async def test_cancelling_a_running_quick_call_moves_the_rest_of_its_batch_to_another_thread() -> None:
    async with pool_and_gate(size=1, max_wait=20) as (pool, gate):
        source = BatchedSource(gate)
        reads = [asyncio.create_task(pool.run("", source.read, uri)) for uri in ("before", "stuck", "a", "b")]
        await gate.until_blocked(1)
        reads[1].cancel()
        assert await asyncio.gather(reads[0], *reads[2:]) == [f"nobody reads {uri}" for uri in ("before", "a", "b")]
        assert (pool._lost.total, pool._busy.total, pool._running) == (1, 0, {})
        gate.open.set()
        while pool._lost.total:
            await asyncio.sleep(0.001)
        assert await pool.run("", source.read, "c") == "nobody reads c"


async def test_a_batch_that_exceeds_max_wait_is_refused_as_a_whole() -> None:
    async with pool_and_gate(size=1, max_wait=0.01) as (pool, gate):
        held = start(pool, "", gate)
        await gate.until_blocked(1)
        source = BatchedSource()
        reads = await asyncio.gather(*(pool.run("", source.read, uri) for uri in "abc"), return_exceptions=True)
        assert [type(read) for read in reads] == [Overloaded] * 3
        gate.open.set()
        await asyncio.gather(*held)
        assert await pool.run("", source.read, "a") == "nobody reads a"
        assert (pool._waiting, pool._queued, pool._running, pool._collecting) == ({}, {}, {}, {})


async def test_a_batch_collects_calls_for_several_turns_of_the_loop() -> None:
    async with pool_and_gate() as (pool, _):
        source = BatchedSource()
        reads = [asyncio.create_task(pool.run("", source.read, "a"))]
        await asyncio.sleep(0)
        (batch,) = pool._collecting.values()
        for turn in range(COLLECTING_TURNS - 1):
            reads.append(asyncio.create_task(pool.run("", source.read, str(turn))))
            await asyncio.sleep(0)
            assert len(batch.jobs) == len(reads)
        await asyncio.sleep(0)
        assert (pool._collecting, list(pool._running.values())) == ({}, [batch])
        assert len(await asyncio.gather(*reads)) == COLLECTING_TURNS


async def test_calls_of_waiting_batches_count_towards_the_queue() -> None:
    async with pool_and_gate(size=1, max_queued=3, max_wait=20) as (pool, gate):
        held = start(pool, "", gate)
        await gate.until_blocked(1)
        source = BatchedSource()
        reads = [asyncio.create_task(pool.run("", source.read, uri)) for uri in "abc"]
        for _ in range(1 + COLLECTING_TURNS):
            await asyncio.sleep(0)
        assert pool._queued == {"": 3}
        with pytest.raises(Overloaded):
            await pool.run("", gate.wait)
        gate.open.set()
        await asyncio.gather(*held, *reads)
        assert pool._queued == {}


async def test_close_refuses_calls_of_a_collecting_batch_and_the_pool_can_be_used_again() -> None:
    async with pool_and_gate() as (pool, gate):
        source = BatchedSource(gate)
        held = asyncio.create_task(pool.run("", source.read, "stuck"))
        await gate.until_blocked(1)
        waiting = asyncio.create_task(pool.run("", source.read, "a"))
        await asyncio.sleep(0)
        pool.close()
        with pytest.raises(Overloaded):
            await waiting
        assert await pool.run("", source.read, "b") == "nobody reads b"
        gate.open.set()
        assert await held == "nobody reads stuck"
        assert (pool._busy.total, pool._running, pool._slow) == (0, {}, {})


async def test_a_thousand_quick_calls_of_many_owners_are_all_answered() -> None:
    async with pool_and_gate(max_wait=20) as (pool, _):
        source = BatchedSource()
        found = await asyncio.gather(*(pool.run(str(number % 7), source.read, str(number)) for number in range(1_000)))
        assert found == [f"nobody reads {number}" for number in range(1_000)]
        assert (pool._busy.total, pool._running, pool._collecting, pool._queued) == (0, {}, {}, {})
