"""Calls of sources that do not answer: which callers wait, for how long, and their errors."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.server.driving import ask, make_request
from tests.waiting import wait_until_async
from wharfinger import types as t
from wharfinger.errors import InvalidArgument, Overloaded, ResourceNotFound
from wharfinger.protocol.breaker import BreakerState
from wharfinger.server.app import Server
from wharfinger.server.source_calls import MAX_LATE_PAGES, PROBE_RATIO, SourceCalls
from wharfinger.source import Source, SourceUnavailable, outage_of


class Buoy(Source):
    """A source that answers at once, unless `gate` holds every call back or `error` is set."""

    name, uri, noun = "buoy", "buoy:", "buoy"
    patience = 0.05

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.gate.set()
        self.error: Exception | None = None
        self.probes = 0

    def matches(self, uri: str) -> bool:
        return uri.startswith("buoy:")

    async def page(self, after: Any, limit: int) -> Any:
        await self._answer()
        return [t.Resource(uri="buoy:1", name="1"), t.Resource(uri="buoy:2", name="2")], None

    async def read(self, uri: str) -> t.ReadResourceResult:
        await self._answer()
        return t.ReadResourceResult(contents=[t.ResourceContents(uri=uri, text="high tide")])

    async def probe(self) -> None:
        self.probes += 1
        await self._answer()

    async def _answer(self) -> None:
        await self.gate.wait()
        if self.error is not None:
            raise self.error


@asynccontextmanager
async def calls_of(source: Source) -> AsyncGenerator[SourceCalls]:
    """Start a server with this source, and yield the object through which it calls sources."""
    server = Server("sea")
    server.include(source)
    await server.start()
    try:
        yield server.resources.calls
    finally:
        await server.close()


async def test_waiting_calls_fail_if_the_probe_is_not_answered_either() -> None:
    buoy = Buoy()
    async with calls_of(buoy) as calls:
        buoy.gate.clear()
        waiting = [asyncio.ensure_future(calls.call(buoy, buoy.read, "owner", "buoy:1")) for _ in range(5)]
        for task in waiting:
            with pytest.raises(SourceUnavailable, match=r"^buoy 'buoy:' has not answered for 1 s: try again later\.$"):
                await task
        assert buoy.breaker.state is not BreakerState.CLOSED
        assert not buoy.gate.is_set()
        with pytest.raises(SourceUnavailable, match="has not answered for"):
            await calls.call(buoy, buoy.read, "owner", "buoy:1")


async def test_a_long_call_continues_while_probes_are_answered() -> None:
    buoy = Buoy()
    finished = asyncio.Event()

    async def read() -> str:
        await finished.wait()
        return "all of it"

    async with calls_of(buoy) as calls:
        reading = asyncio.ensure_future(calls.call(buoy, read, "owner"))
        await wait_until_async(lambda: buoy.probes >= 3, "three probes")
        assert buoy.breaker.state is BreakerState.CLOSED
        finished.set()
        assert await reading == "all of it"


async def test_probing_continues_after_the_probe_of_a_long_call_during_which_the_outage_began() -> None:
    class SinkingBuoy(Buoy):
        async def probe(self) -> None:
            self.probes += 1
            if self.probes == 1:
                self.breaker.failed()  # as by another call
                await asyncio.sleep(0)  # the server handles that while this probe runs
                raise SourceUnavailable("adrift")

    buoy = SinkingBuoy()
    async with calls_of(buoy) as calls:
        with pytest.raises(SourceUnavailable):
            await calls.call(buoy, asyncio.Event().wait, "owner")
        assert buoy.probes == 1
        await wait_until_async(lambda: buoy.breaker.state is BreakerState.CLOSED, "the outage ends")


async def test_a_caller_can_be_cancelled_while_its_call_is_abandoned() -> None:
    buoy = Buoy()
    async with calls_of(buoy) as calls:
        buoy.gate.clear()
        waiting = asyncio.ensure_future(calls.call(buoy, buoy.read, "owner", "buoy:1"))
        await asyncio.sleep(0)
        buoy.breaker.failed()
        calls._give_up(buoy, calls._state(buoy))
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert waiting.cancelled()


async def test_an_outage_that_is_noticed_while_the_server_closes_is_not_followed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    buoy = Buoy()
    async with calls_of(buoy) as calls:
        buoy.breaker.failed()  # the loop is to follow it soon
        await calls.close()
        for _ in range(3):
            await asyncio.sleep(0)
        assert not any(state.probe for state in calls._states.values())
    assert (buoy.probes, caplog.text) == (0, "")


async def test_a_task_can_continue_and_use_timeouts_after_its_call_is_abandoned() -> None:
    buoy = Buoy()
    async with calls_of(buoy) as calls:
        buoy.gate.clear()

        async def read_and_continue() -> str:
            with pytest.raises(SourceUnavailable):
                await calls.call(buoy, buoy.read, "owner", "buoy:1")
            task = asyncio.current_task()
            assert task is not None
            assert task.cancelling() == 0
            async with asyncio.timeout(20):
                return "continued"

        assert await read_and_continue() == "continued"


async def test_watchers_are_notified_when_a_source_fails_and_when_a_probe_succeeds() -> None:
    buoy = Buoy()
    server = Server("sea")
    server.include(buoy)
    await server.start()
    received: list[tuple[str, str]] = []

    class Observer:
        def updated(self, uri: str) -> None:
            received.append(("updated", uri))

        def list_changed(self, name: str) -> None:
            received.append(("list", name))

    class Watcher:
        def send(self, message: Any) -> bool:
            return True

    server.watching.observers.append(Observer())
    server.watching.watch(Watcher(), "buoy:1")
    server.watching.watch(Watcher(), "else:1")
    buoy.error = SourceUnavailable("adrift")
    calls = server.resources.calls
    with pytest.raises(SourceUnavailable, match="adrift"):
        await calls.call(buoy, buoy.read, "owner", "buoy:1")
    await wait_until_async(lambda: len(received) == 2, "two changes for the outage")
    buoy.error = None
    await wait_until_async(lambda: len(received) == 4, "two changes for its end")
    assert received == [("list", "resources"), ("updated", "buoy:1")] * 2
    assert buoy.breaker.state is BreakerState.CLOSED
    await server.close()


@pytest.mark.parametrize(
    "error", [ResourceNotFound("buoy:1"), InvalidArgument("no"), Overloaded("busy"), ValueError("odd")]
)
async def test_an_error_of_one_call_is_not_an_outage_of_the_source(error: Exception) -> None:
    buoy = Buoy()
    buoy.error = error
    async with calls_of(buoy) as calls:
        for function, arguments in ((buoy.read, ("buoy:1",)), (buoy.page, (None, 5))):
            with pytest.raises(type(error)):
                await calls.call(buoy, function, "owner", *arguments)
        assert buoy.breaker.state is BreakerState.CLOSED
        assert calls.describe_missing(buoy) == outage_of(buoy) == ""


async def test_a_probe_has_its_own_thread_and_probes_do_not_overlap() -> None:
    """The pool may be full of calls that wait for this source."""
    threads: list[str] = []
    released = threading.Event()

    class StuckSource(Source):
        name, uri, patience = "stuck", "stuck:", 0.02

        def probe(self) -> None:
            threads.append(threading.current_thread().name)
            released.wait(20)

        def read(self, uri: str) -> t.ReadResourceResult:
            released.wait(20)
            raise ResourceNotFound(uri)

    stuck = StuckSource()
    async with calls_of(stuck) as calls:
        waiting = [asyncio.ensure_future(calls.call(stuck, stuck.read, "owner", "stuck:1")) for _ in range(40)]
        for result in await asyncio.gather(*waiting, return_exceptions=True):
            assert isinstance(result, (SourceUnavailable, Overloaded))
        await wait_until_async(lambda: stuck.breaker.failures >= 2, "two failures")
        assert threads == ["wharfinger-probe"]
        released.set()  # a late answer ends the outage too
        await wait_until_async(lambda: stuck.breaker.state is BreakerState.CLOSED, "the outage ends")


async def test_a_search_detects_a_source_that_does_not_answer() -> None:
    class SearchableBuoy(Buoy):
        async def search(self, query: str, limit: int) -> Any:
            await self._answer()
            return []

    searchable = SearchableBuoy()
    server = Server("sea")
    server.include(searchable)
    await server.start()
    searchable.gate.clear()
    request = make_request(server, "resources/list")
    hits = await server.resources.search(request, "tide", 5)
    assert hits.truncated == "Not searched: buoy cannot be reached now."
    await wait_until_async(lambda: not searchable.breaker.admits(), "calls are refused")
    hits = await server.resources.search(request, "tide", 5)  # does not wait
    assert hits.truncated == "Not searched: buoy 'buoy:' has not answered for 1 s."
    await server.close()


async def test_a_source_that_is_down_when_the_server_starts_is_probed_without_a_call() -> None:
    source = Buoy()
    while not source.breaker.down:
        source.breaker.failed("it is gone", source.breaker.clock())
    async with calls_of(source):
        await wait_until_async(lambda: source.breaker.state is BreakerState.CLOSED, "the outage ends")
    assert source.probes == 1


@pytest.mark.parametrize(("waited", "probes"), [(PROBE_RATIO * 8.0, 1), (PROBE_RATIO * 8.0 - 0.001, 0)])
async def test_a_source_is_probed_after_a_cancelled_call_that_waited_for_most_of_its_patience(
    waited: float, probes: int
) -> None:
    source = Buoy()
    source.patience = 8.0
    async with calls_of(source) as calls:
        before, now = source.probes, 0.0
        source.breaker.clock = lambda: now
        source.gate.clear()
        call = asyncio.ensure_future(calls.call(source, source.read, "", "buoy:1"))
        await asyncio.sleep(0)
        now = waited
        source.gate.set()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await asyncio.sleep(0)
        assert source.probes - before == probes


async def test_calls_of_a_source_that_never_starts_fail_and_the_server_can_close() -> None:
    class NeverStartingBuoy(Buoy):
        async def start(self) -> None:
            await asyncio.Event().wait()

    stuck = NeverStartingBuoy()
    async with calls_of(stuck) as calls:
        assert calls.describe_missing(stuck) == "buoy 'buoy:' is starting; its resources are missing from this list."
        with pytest.raises(SourceUnavailable, match="has not answered for"):
            await calls.call(stuck, stuck.read, "owner", "buoy:1")


async def test_the_first_list_contains_templates_that_a_source_sets_while_it_starts() -> None:
    released = asyncio.Event()

    class LearningBuoy(Buoy):
        async def start(self) -> None:
            await released.wait()
            self.templates = (t.ResourceTemplate(uri_template="buoy:{number}", name="buoy"),)

    server = Server("sea")
    server.include(LearningBuoy())
    await server.start()
    listing = asyncio.ensure_future(ask(server, "resources/templates/list"))
    await asyncio.sleep(0)
    released.set()
    assert [template["uriTemplate"] for template in (await listing)["result"]["resourceTemplates"]] == ["buoy:{number}"]
    await server.close()


async def test_a_list_of_templates_waits_for_a_source_at_most_for_its_patience() -> None:
    class NeverStartingBuoy(Buoy):
        patience = 0.3

        async def start(self) -> None:
            await asyncio.Event().wait()

    server = Server("sea")
    server.include(NeverStartingBuoy())
    await server.start()
    async with asyncio.timeout(40):
        assert (await ask(server, "resources/templates/list"))["result"]["resourceTemplates"] == []
    await server.close()


@pytest.mark.parametrize("method", ["resources/templates/list", "tools/list"])
async def test_requests_do_not_wait_again_for_a_source_that_does_not_start(method: str) -> None:
    """A bug: each list of templates took the whole patience, as long as the source was starting."""

    class NeverStartingBuoy(Buoy):
        async def start(self) -> None:
            await asyncio.Event().wait()

    buoy, server = NeverStartingBuoy(), Server("sea")
    server.include(buoy)
    server.serve("tools")
    await server.start()
    await ask(server, method)
    await wait_until_async(lambda: buoy.breaker.down, "the source counts as down")
    buoy.patience = 600.0
    async with asyncio.timeout(40):
        await ask(server, method)
    await server.close()


async def test_a_late_page_is_used_by_the_same_owner() -> None:
    buoy = Buoy()
    arrived = asyncio.Event()
    async with calls_of(buoy) as calls:
        buoy.gate.clear()
        for _ in range(2):
            with pytest.raises(SourceUnavailable):
                await calls.first_page(buoy, "ann", 10, arrived.set)
        with pytest.raises(SourceUnavailable):
            await calls.first_page(buoy, "ben", 10, arrived.set)  # another owner gets the same error
        buoy.gate.set()
        await arrived.wait()
        await wait_until_async(lambda: buoy.breaker.state is BreakerState.CLOSED, "the outage ends")
        buoy.gate.clear()  # a new request would not be answered
        for _ in range(2):
            found, key = await calls.first_page(buoy, "ann", 10, arrived.set)
            assert ([resource.uri for resource in found], key) == (["buoy:1", "buoy:2"], None)


async def late_page(calls: SourceCalls, buoy: Buoy, owner: str) -> None:
    """List a source that answers after the list has ended, and wait for the page."""
    arrived = asyncio.Event()
    buoy.gate.clear()
    with pytest.raises(SourceUnavailable):
        await calls.first_page(buoy, owner, 10, arrived.set)
    buoy.gate.set()
    await arrived.wait()
    await wait_until_async(lambda: buoy.breaker.state is BreakerState.CLOSED, "the outage ends")


async def test_callers_who_list_a_slow_source_at_each_notice_soon_need_no_more_requests() -> None:
    buoy = Buoy()
    async with calls_of(buoy) as calls:
        await late_page(calls, buoy, "ann")
        await late_page(calls, buoy, "ben")  # the notice for ben lets ann list the source again
        buoy.gate.clear()
        for owner in ("ann", "ben", "ann"):
            found, _ = await calls.first_page(buoy, owner, 10, lambda: None)
            assert len(found) == 2


async def test_a_late_page_is_not_used_after_a_change_of_the_source_nor_after_its_time() -> None:
    buoy = Buoy()
    async with calls_of(buoy) as calls:
        await late_page(calls, buoy, "ann")
        pages = calls._state(buoy).late
        page = await calls.first_page(buoy, "ann", 10, lambda: None)
        until = pages["ann", 10].used_until
        assert until is not None
        buoy.breaker.clock = lambda: math.nextafter(until, 0)
        assert await calls.first_page(buoy, "ann", 10, lambda: None) is page
        buoy.breaker.clock = lambda: until
        assert await calls.first_page(buoy, "ann", 10, lambda: None) is not page
        buoy.breaker.clock = time.monotonic

        await late_page(calls, buoy, "ann")
        page = await calls.first_page(buoy, "ann", 10, lambda: None)
        calls.forget_late_pages(buoy)
        assert await calls.first_page(buoy, "ann", 10, lambda: None) is not page


async def test_the_list_is_requested_again_after_a_watched_source_has_changed() -> None:
    class ChangingBuoy(Buoy):
        def watch(self, uri: str | None, changed: Callable[[str | None], None]) -> None:
            self.changed = changed

    buoy = ChangingBuoy()
    server = Server("sea")
    server.include(buoy)
    await server.start()
    calls = server.resources.calls
    server.source_watches.attach(None)
    await late_page(calls, buoy, "ann")
    page = await calls.first_page(buoy, "ann", 10, lambda: None)
    buoy.changed("buoy:1")
    assert await calls.first_page(buoy, "ann", 10, lambda: None) is page
    buoy.changed(None)
    assert await calls.first_page(buoy, "ann", 10, lambda: None) is not page
    await server.close()


async def test_the_number_of_late_pages_is_bounded() -> None:
    buoy = Buoy()
    async with calls_of(buoy) as calls:
        lists = [calls.first_page(buoy, f"caller {number}", 10, lambda: None) for number in range(MAX_LATE_PAGES)]
        buoy.gate.clear()
        await asyncio.gather(*lists, return_exceptions=True)
        pages = calls._state(buoy).late
        assert len(pages) == MAX_LATE_PAGES
        first = pages["caller 0", 10].answer
        buoy.gate.set()
        await asyncio.wait([page.answer for page in pages.values()])
        await wait_until_async(lambda: buoy.breaker.state is BreakerState.CLOSED, "the outage ends")
        assert len(pages) == MAX_LATE_PAGES
        await late_page(calls, buoy, "one more")
        assert len(pages) == MAX_LATE_PAGES
        assert first not in [page.answer for page in pages.values()]


async def test_lists_of_one_caller_at_the_same_time_leave_one_request() -> None:
    buoy = Buoy()
    before = asyncio.all_tasks()
    async with calls_of(buoy) as calls:
        buoy.gate.clear()
        lists = [calls.first_page(buoy, "ann", 10, lambda: None) for _ in range(3)]
        assert {type(error) for error in await asyncio.gather(*lists, return_exceptions=True)} == {SourceUnavailable}
        assert list(calls._state(buoy).late) == [("ann", 10)]
    await wait_until_async(lambda: asyncio.all_tasks() == before, "all requests end")


async def test_a_source_that_cannot_start_stays_unavailable() -> None:
    starts = 0
    failing = asyncio.Event()

    class FailingBuoy(Buoy):
        async def start(self) -> None:
            nonlocal starts
            starts += 1
            await failing.wait()
            raise ValueError("the configuration is not valid")

    buoy = FailingBuoy()
    async with calls_of(buoy) as calls:
        failing.set()
        await wait_until_async(lambda: buoy.breaker.down, "the failure is noticed")
        await calls.probe([buoy])
        assert starts == 2
        assert buoy.breaker.down
        assert "(it did not start)" in calls.why_missing(buoy)


async def test_a_source_that_answers_a_call_with_an_ordinary_error_is_back() -> None:
    buoy = Buoy()
    server = Server("sea")  # not started: the callers probe
    server.include(buoy)
    calls = server.resources.calls
    buoy.breaker.failed("it cannot be read")
    now = buoy.breaker.clock() + 60
    buoy.breaker.clock = lambda: now
    buoy.error = ResourceNotFound("buoy:1")
    with pytest.raises(ResourceNotFound):
        await calls.call(buoy, buoy.read, "owner", "buoy:1")
    assert not buoy.breaker.down


async def test_closing_a_server_leaves_no_task_running() -> None:
    buoy = Buoy()
    before = asyncio.all_tasks()
    async with calls_of(buoy) as calls:
        buoy.gate.clear()
        with pytest.raises(SourceUnavailable):
            await calls.first_page(buoy, "ann", 10, lambda: None)
        with pytest.raises(SourceUnavailable):
            await calls.call(buoy, buoy.read, "owner", "buoy:1")
    assert asyncio.all_tasks() == before


@pytest.mark.parametrize(
    ("seconds", "duration"),
    [(0, "1 s"), (1.4, "1 s"), (119, "119 s"), (120, "2 min"), (7199, "120 min"), (7200, "2 h")],
)
def test_an_outage_is_reported_with_its_duration_and_reason(seconds: float, duration: str) -> None:
    buoy = Buoy()
    now = 0.0
    buoy.breaker.clock = lambda: now
    buoy.breaker.failed()
    now = seconds
    assert outage_of(buoy) == f"buoy 'buoy:' has not answered for {duration}"
    buoy.breaker.failed("The chain is broken.")
    assert outage_of(buoy) == f"buoy 'buoy:' has been unavailable for {duration} (The chain is broken)"
    buoy.breaker.succeeded()
    assert outage_of(buoy) == ""
