"""Notifications of changes in every revision: coalescing, threads, limits and errors."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from tests.server.driving import ALL, ERAS, HANDSHAKE, META, RecordingChannel, Wire, ask, initialize_params
from wharfinger import Client
from wharfinger import types as t
from wharfinger.errors import InvalidArgument, PermissionDenied, ResourceNotFound
from wharfinger.protocol.handshake import Phase, Session
from wharfinger.protocol.limits import Limits
from wharfinger.server.app import Server
from wharfinger.server.context import Context
from wharfinger.server.middleware.chain import Call, Next, transparent
from wharfinger.server.subscriptions import watching
from wharfinger.server.subscriptions.watching import SessionWatcher, Watching
from wharfinger.source import Changed, Source

UPDATED = "notifications/resources/updated"


@pytest.fixture(autouse=True)
def short_coalescing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Coalesce for 2 ms, since these tests check order and not time."""
    monkeypatch.setattr(watching, "COALESCE_SECONDS", 0.002)


def notes_server(**options: Any) -> Server:
    server = Server("notes", **options)

    @server.resource("note://a")
    @server.resource("note://b")
    @server.resource("note://end")
    async def note() -> str:
        return "text"

    @server.resource("page://{number}")
    async def page(number: int) -> str:
        if number > 9:
            raise ResourceNotFound(f"page://{number}")
        return str(number)

    return server


def notifications(wire: Wire, since: int = 0) -> list[tuple[str, Any]]:
    """Return the notifications of a client, without the acknowledgements."""
    return [
        (notice["method"].removeprefix("notifications/"), notice["params"].get("uri") if "params" in notice else None)
        for notice in wire.notifications[since:]
        if not notice["method"].endswith("acknowledged")
    ]


async def changes_so_far(server: Server, wire: Wire) -> list[tuple[str, Any]]:
    """Report a change of `note://end`, which the client watches too, and return the notifications before it."""
    since = len(wire.notifications)
    server.resource_updated("note://end")
    await wire.wait_until(lambda: ("resources/updated", "note://end") in notifications(wire, since))
    return [notice for notice in notifications(wire) if notice[1] != "note://end"]


@pytest.mark.parametrize("revision", ALL)
async def test_resource_updated_notifies_watchers_of_every_revision(revision: str) -> None:
    server = notes_server()
    await server.start()
    async with Wire(server, revision) as wire:
        await wire.watch("note://a", "page://3", "note://end")
        server.resource_updated("page://3")
        server.resource_updated("note://b")
        assert await changes_so_far(server, wire) == [("resources/updated", "page://3")]
    await server.close()


@pytest.mark.parametrize("revision", ERAS)
async def test_a_burst_of_changes_is_reported_once(revision: str) -> None:
    server = notes_server()
    await server.start()
    async with Wire(server, revision) as wire:
        await wire.watch("note://a", "note://end")
        for _ in range(1000):
            server.resource_updated("note://a")
        assert await changes_so_far(server, wire) == [("resources/updated", "note://a")]
        server.resource_updated("note://a")
        assert len(await changes_so_far(server, wire)) == 2
    await server.close()


async def test_changes_may_be_reported_from_any_thread() -> None:
    server = notes_server()
    await server.start()
    async with Wire(server) as wire:
        await wire.watch("note://a", "note://b", "note://end", lists=("resources",))

        def work() -> None:
            for _ in range(200):
                server.resource_updated("note://a")
                server.resource_updated("note://b")
                server.list_changed("resources")

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            await asyncio.to_thread(thread.join)
        assert set(await changes_so_far(server, wire)) == {
            ("resources/updated", "note://a"),
            ("resources/updated", "note://b"),
            ("resources/list_changed", None),
        }
    await server.close()


async def test_changes_before_start_after_close_and_without_watchers_are_ignored() -> None:
    server = notes_server()
    server.resource_updated("note://a")
    server.list_changed("tools")
    async with Wire(server) as wire:
        await server.start()
        await wire.watch("note://a", "note://end")
        assert await changes_so_far(server, wire) == []
        since = len(wire.notifications)
        server.resource_updated("note://a")
        await server.close()
        server.resource_updated("note://a")
        await asyncio.to_thread(server.resource_updated, "note://a")
        # Closing the server cancels the listen, as its connection stays open.
        assert notifications(wire, since) == [("cancelled", None)]


def test_a_restarted_server_reports_changes_again() -> None:
    """A change that was pending when the server closed must not block later ones."""
    server = notes_server()

    async def run() -> None:
        await server.start()
        async with Wire(server, "2025-11-25") as wire:
            await wire.watch("note://a")
            server.resource_updated("note://a")
            await wire.wait_for_notifications()
            server.resource_updated("note://a")
            await server.close()

    asyncio.run(run())
    asyncio.run(asyncio.wait_for(run(), 5))


async def test_a_repeated_subscription_is_notified_once_and_ends_with_one_unsubscribe() -> None:
    server = notes_server()
    await server.start()
    async with Wire(server, "2025-11-25") as wire:
        await wire.watch("note://a", "note://a", "note://end")
        server.resource_updated("note://a")
        assert await changes_so_far(server, wire) == [("resources/updated", "note://a")]
        assert (await wire.ask("resources/unsubscribe", {"uri": "note://a"}))["result"] == {}
        assert (await wire.ask("resources/unsubscribe", {"uri": "note://never"}))["result"] == {}
        server.resource_updated("note://a")
        assert len(await changes_so_far(server, wire)) == 1
    await server.close()


# -- subscriptions/listen


@pytest.mark.parametrize("id", [1, "1"])
async def test_the_acknowledgement_is_sent_first_and_subscription_ids_keep_their_type(id: Any) -> None:
    server = notes_server()
    await server.start()
    async with Wire(server) as wire:
        filters = {"resourceSubscriptions": ["note://a", "note://gone"], "toolsListChanged": True}
        wire.send_request("subscriptions/listen", {"notifications": filters}, id)
        server.resource_updated("note://a")
        await wire.wait_for_notifications()
        server.resource_updated("note://a")
        acknowledged, updated = await wire.wait_for_notifications(2)
        tag = {f"{META}subscriptionId": id}
        assert acknowledged == {
            "jsonrpc": "2.0",
            "method": "notifications/subscriptions/acknowledged",
            "params": {"_meta": tag, "notifications": {"resourceSubscriptions": ["note://a"]}},
        }
        assert updated == {"jsonrpc": "2.0", "method": UPDATED, "params": {"_meta": tag, "uri": "note://a"}}
        assert type(updated["params"]["_meta"][f"{META}subscriptionId"]) is type(id)
        server.drain()
        assert (await wire.answer(id))["result"]["_meta"][f"{META}subscriptionId"] == id
    await server.close()


async def test_only_changes_in_the_filter_are_reported() -> None:
    server = notes_server()
    server.tools.add(lambda: "x", name="x")
    await server.start()
    async with Wire(server) as wire:
        await wire.watch("note://end", lists=("tools",))
        server.list_changed("resources")
        server.list_changed("prompts")
        server.list_changed("tools")
        server.resource_updated("note://a")
        assert await changes_so_far(server, wire) == [("tools/list_changed", None)]
        assert wire.notifications[0]["params"]["notifications"] == {
            "toolsListChanged": True,
            "resourceSubscriptions": ["note://end"],
        }
    await server.close()


async def test_two_listens_on_one_stream_are_independent() -> None:
    server = notes_server()
    await server.start()
    async with Wire(server) as wire:
        await wire.watch("note://a", "note://end", id=1)
        await wire.watch("note://a", "note://end", id="1")
        server.resource_updated("note://a")
        await wire.wait_for_notifications(4)
        assert [notice["params"]["_meta"][f"{META}subscriptionId"] for notice in wire.notifications[2:]] == [1, "1"]
        wire.notify("notifications/cancelled", {"requestId": 1})
        server.resource_updated("note://a")
        await wire.wait_for_notifications(5)
        assert wire.notifications[4]["params"]["_meta"][f"{META}subscriptionId"] == "1"
        await changes_so_far(server, wire)
        assert len(wire.notifications) == 6
        assert wire.answers == {}
    assert server.watching.watched() == []
    await server.close()


async def test_the_number_of_listens_and_of_watched_resources_is_limited() -> None:
    """Security U05 and U09."""
    server = notes_server(limits=Limits(listens=2, watched=2))
    await server.start()
    async with Wire(server) as wire:
        answer = await wire.ask(
            "subscriptions/listen", {"notifications": {"resourceSubscriptions": ["a:", "b:", "c:"]}}
        )
        assert answer["error"]["code"] == -32602
        listen_id = await wire.watch("note://a")
        await wire.watch("note://a")
        answer = await wire.ask("subscriptions/listen", {"notifications": {}})
        assert answer["error"]["code"] == -32602
        wire.notify("notifications/cancelled", {"requestId": listen_id})
        await wire.ask("resources/list")
        await wire.watch("note://b")
    async with Wire(server, "2025-11-25") as wire:
        first, second, third, repeated = await wire.watch("note://a", "note://b", "page://1", "note://a")
        assert [first["result"], second["result"], third["error"]["code"]] == [{}, {}, -32602]
        assert repeated["error"]["code"] == -32602
    await server.close()


async def test_the_total_number_of_watched_resources_is_limited_and_shared_by_clients() -> None:
    server = notes_server(limits=Limits(watched_total=3))
    await server.start()
    async with Wire(server, "2025-11-25") as newcomer:
        async with Wire(server, "2025-11-25") as greedy:
            answers = await greedy.watch("note://a", "note://b", "page://1", "page://2")
            assert ["error" in answer for answer in answers] == [False, False, False, True]
            assert answers[3]["error"]["code"] == -32603
            first, second = await newcomer.watch("note://a", "note://b")
            assert "result" in first
            assert second["error"]["message"].startswith("Too many resources are watched")
        assert "result" in (await newcomer.watch("note://b"))[0]
    async with Wire(server) as listener:
        listen_params = {"notifications": {"resourceSubscriptions": ["note://a", "note://b", "page://1", "page://2"]}}
        assert (await listener.ask("subscriptions/listen", listen_params))["error"]["code"] == -32603
        await listener.watch("note://a", "note://b", "page://1")
    assert server.watching.shares.total == len(server.watching.shares) == 0
    await server.close()


async def test_a_listen_that_cannot_be_acknowledged_is_refused() -> None:
    """The first message of a subscription is its acknowledgement: the client cannot assign earlier ones."""
    server = notes_server()
    answer = await ask(server, "subscriptions/listen", {"notifications": {}}, channel=RecordingChannel(full=True))
    assert answer["error"]["code"] == -32603
    assert server.listening.open_listens == {}


async def test_drain_completes_every_listen() -> None:
    server = notes_server()
    await server.start()
    async with Wire(server) as first, Wire(server) as second:
        ids = [await first.watch("note://a"), await first.watch(lists=("resources",)), await second.watch("note://a")]
        server.drain()
        answers = [await first.answer(ids[0]), await first.answer(ids[1]), await second.answer(ids[2])]
        assert [answer["result"]["resultType"] for answer in answers] == ["complete"] * 3
        assert server.listening.open_listens == {}
        assert server.watching.watched() == []
    await server.close()


# -- resources that may be watched


def restricted_server() -> Server:
    server = notes_server()

    @server.resource("secret://{name}")
    async def secret(name: str, ctx: Context) -> str:
        if ctx.principal.subject != "ann":
            raise PermissionDenied("secret://* is for ann")
        return name

    @server.resource("secret:static")
    def static(ctx: Context) -> str:
        if ctx.principal.subject != "ann":
            raise PermissionDenied
        return ""

    @server.resource("picky://{name}")
    def picky(name: str) -> str:
        raise InvalidArgument("no such name")

    @server.resource("broken://{name}")
    def broken(name: str) -> str:
        raise RuntimeError("hunter2")

    return server


MISSING_OR_FORBIDDEN = [
    "note://gone",
    "page://10",
    "page://ten",
    "secret://x",
    "secret:static",
    "picky://x",
    "unknown:x",
]


@pytest.mark.parametrize("uri", MISSING_OR_FORBIDDEN)
@pytest.mark.parametrize("revision", HANDSHAKE)
async def test_subscribing_to_a_missing_or_forbidden_resource_reports_it_as_missing(revision: str, uri: str) -> None:
    """Security U01 and U02: watching a resource that may not be read would reveal its changes."""
    server = restricted_server()
    answer = await ask(server, "resources/subscribe", {"uri": uri}, revision)
    assert answer["error"] == {"code": -32002, "message": f"Resource not found: {uri}", "data": {"uri": uri}}
    assert server.watching.watched() == []


async def test_a_listen_omits_missing_forbidden_and_failing_resources(caplog: pytest.LogCaptureFixture) -> None:
    server = restricted_server()
    await server.start()
    async with Wire(server) as wire:
        await wire.watch("note://a", *MISSING_OR_FORBIDDEN, "broken://x", "not a uri")
        assert wire.notifications[0]["params"]["notifications"] == {"resourceSubscriptions": ["note://a"]}
    async with Wire(server, principal="ann") as wire:
        await wire.watch("secret://x", "secret:static")
        assert wire.notifications[0]["params"]["notifications"] == {
            "resourceSubscriptions": ["secret://x", "secret:static"]
        }
    await server.close()
    assert ["broken://x" in record.getMessage() for record in caplog.records] == [True]


async def test_subscribing_to_an_invalid_uri_fails_with_invalid_params() -> None:
    for uri in ("not a uri", "x" * 10_000):
        answer = await ask(notes_server(), "resources/subscribe", {"uri": uri}, "2025-11-25")
        assert answer["error"]["code"] == -32602
        assert "data" not in answer["error"]


# -- the end of a watcher


async def test_the_end_of_a_session_drops_its_watches() -> None:
    server = notes_server()
    await server.start()
    async with Wire(server, "2025-11-25") as wire:
        await wire.watch("note://a", "note://b")
        assert server.watching.watched() == ["note://a", "note://b"]
    assert server.watching.watched() == []
    assert not any(server.watching._by_list.values())
    assert server.watching._by_watcher == {}
    await server.close()


async def test_a_subscription_before_initialized_is_dropped_with_the_connection() -> None:
    server = notes_server()
    wire = Wire(server, "2025-11-25")
    await wire.ask("initialize", initialize_params("2025-11-25"))
    assert (await wire.ask("resources/subscribe", {"uri": "note://a"}))["result"] == {}
    wire.stream.connection_lost(None)
    assert server.watching.watched() == []
    assert server.watching._by_watcher == {}


async def test_a_subscription_that_ends_after_its_session_watches_nothing() -> None:
    """A bug: nothing dropped it, so its source watched for ever."""
    server, begun = Server("s"), asyncio.Event()

    @server.resource("note://{name}")
    async def note(name: str) -> str:
        begun.set()
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        return name

    async with Wire(server, "2025-11-25") as wire:
        wire.send_request("resources/subscribe", {"uri": "note://a"})
        await begun.wait()
    assert server.watching.watched() == []


# -- sources


class RecordingSource(Source):
    """A source that records the calls of `watch` and `unwatch`."""

    def __init__(self, scheme: str = "quay:", fails: bool = False) -> None:
        self.scheme = scheme
        self.fails = fails
        self.calls: list[tuple[str, str | None]] = []
        self.changed: dict[str | None, Changed] = {}

    def matches(self, uri: str) -> bool:
        return uri.startswith(self.scheme)

    async def stat(self, uri: str) -> Any:
        return None

    def watch(self, uri: str | None, changed: Changed) -> None:
        self.calls.append(("attach", uri))
        self.changed[uri] = changed
        if self.fails:
            raise RuntimeError("attach")

    def unwatch(self, uri: str | None) -> None:
        self.calls.append(("detach", uri))
        if self.fails:
            raise RuntimeError("detach")


async def test_a_source_is_attached_by_the_first_watcher_and_detached_after_the_last() -> None:
    server = notes_server()
    quay, other = RecordingSource(), RecordingSource("other:")
    server.include(quay)
    server.include(other)
    await server.start()
    async with Wire(server, "2025-11-25") as session:
        assert quay.calls == other.calls == [("attach", None)]
        async with Wire(server) as stream:
            await stream.watch("quay:1", lists=("resources",))
            await session.watch("quay:1", "quay:2")
            assert quay.calls[1:] == [("attach", "quay:1"), ("attach", "quay:2")]
            await asyncio.to_thread(quay.changed["quay:1"], "quay:1")
            await asyncio.to_thread(quay.changed[None], None)
            for wire in (session, stream):
                await wire.wait_until(lambda wire=wire: len(notifications(wire)) == 2)  # type: ignore[misc]
                assert notifications(wire) == [("resources/updated", "quay:1"), ("resources/list_changed", None)]
        await session.ask("resources/unsubscribe", {"uri": "quay:1"})
        assert quay.calls[3:] == [("detach", "quay:1")]
    assert quay.calls[4:] == [("detach", "quay:2"), ("detach", None)]
    assert other.calls == [("attach", None), ("detach", None)]
    await server.close()


@pytest.mark.parametrize("revision", ERAS)
async def test_a_source_whose_watch_raises_is_logged_and_the_watch_remains(
    revision: str, caplog: pytest.LogCaptureFixture
) -> None:
    server = notes_server()
    failing, working = RecordingSource(fails=True), RecordingSource("good:")
    server.include(failing)
    server.include(working)
    await server.start()
    async with Wire(server, revision) as wire:
        await wire.watch("quay:1", "note://end", lists=("resources",))
        assert working.calls == [("attach", None)]
        server.resource_updated("quay:1")
        assert await changes_so_far(server, wire) == [("resources/updated", "quay:1")]
    assert working.calls == [("attach", None), ("detach", None)]
    assert server.watching.watched() == []
    await server.close()
    assert len(caplog.records) == 4


async def test_failing_delivery_callbacks_and_watchers_affect_no_other_watcher(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = notes_server()
    await server.start()
    deliveries: list[tuple[str, int]] = []

    def record_delivery(uri: str, number: int) -> None:
        deliveries.append((uri, number))
        raise RuntimeError("callback")

    class BrokenWatcher:
        def send(self, message: Any) -> bool:
            raise RuntimeError("watcher")

    server.watching.on_sent = record_delivery
    async with Wire(server) as stream, Wire(server, "2025-11-25") as session:
        server.watching.watch(BrokenWatcher(), "note://a")
        await stream.watch("note://a", "note://end")
        await session.watch("note://a", "note://end")
        server.resource_updated("note://a")
        assert await changes_so_far(server, stream) == [("resources/updated", "note://a")]
        assert deliveries == [("note://a", 2), ("note://end", 2)]
    await server.close()
    assert len(caplog.records) == 3


# -- watchers as functions


async def test_a_watcher_function_runs_while_a_client_watches() -> None:
    server = notes_server()
    running: dict[str, bool] = {}
    stopped = asyncio.Event()

    @server.watcher("page://{number}")
    async def follow(uri: str) -> None:
        running[uri] = True
        server.resource_updated(uri)
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            running[uri] = False
            stopped.set()

    await server.start()
    async with Wire(server) as stream, Wire(server, "2025-11-25") as session:
        await session.watch("page://1", "note://a")
        assert (await session.wait_for_notifications())[0]["params"] == {"uri": "page://1"}
        id = await stream.watch("page://1")
        assert running == {"page://1": True}
        await session.ask("resources/unsubscribe", {"uri": "page://1"})
        await session.ask("resources/list")
        assert running == {"page://1": True}
        stream.notify("notifications/cancelled", {"requestId": id})
        await stopped.wait()
        assert running == {"page://1": False}
        await stream.watch("page://1")
        await stream.wait_until(lambda: len(notifications(stream)) == 1)
        assert running == {"page://1": True}
        await server.close()
        assert running == {"page://1": False}


async def test_a_watcher_function_that_raises_is_logged_and_the_watch_remains(caplog: pytest.LogCaptureFixture) -> None:
    server = notes_server()

    @server.watcher("note://a")
    async def follow(uri: str) -> None:
        raise RuntimeError("the tide is out")

    await server.start()
    async with Wire(server) as wire:
        await wire.watch("note://a", "note://end")
        server.resource_updated("note://a")
        assert await changes_so_far(server, wire) == [("resources/updated", "note://a")]
    await server.close()
    assert [(record.name, record.getMessage()) for record in caplog.records] == [
        ("wharfinger.server.subscriptions.watching", "The watcher of note://a failed")
    ]


def test_a_watcher_function_must_be_async() -> None:
    with pytest.raises(TypeError, match="must be an async function"):
        Server("s").watcher("note://a")(lambda uri: None)


# -- lists that change


@pytest.mark.parametrize("revision", ERAS)
async def test_adding_and_removing_notifies_the_watchers_of_the_list(revision: str) -> None:
    server = notes_server()
    server.tools.add(lambda: "x", name="first")
    server.prompts.add(lambda: "x", name="first")
    await server.start()
    async with Wire(server, revision) as wire:
        await wire.watch("note://end", lists=("resources", "tools", "prompts"))
        changes: list[tuple[Callable[[], None], str]] = [
            (lambda: server.resources.add("new://x", lambda: ""), "resources"),
            (lambda: server.resources.remove("new://x"), "resources"),
            (lambda: server.resources.add("new://{x}", lambda x: ""), "resources"),
            (lambda: server.resources.remove("new://{x}"), "resources"),
            (lambda: server.include(RecordingSource()), "resources"),
            (lambda: server.tools.add(lambda: "x", name="second"), "tools"),
            (lambda: server.tools.remove("second"), "tools"),
            (lambda: server.prompts.add(lambda: "x", name="second"), "prompts"),
            (lambda: server.prompts.remove("second"), "prompts"),
        ]
        before = len(wire.notifications)
        for number, (change, name) in enumerate(changes, 1):
            change()
            await wire.wait_for_notifications(before + number)
            assert notifications(wire)[-1] == (f"{name}/list_changed", None)
    await server.close()


async def test_a_session_receives_no_list_changes_before_initialized() -> None:
    server = notes_server()
    await server.start()
    async with Wire(server) as other:
        await other.watch("note://end", lists=("resources",))
        wire = Wire(server, "2025-11-25")
        await wire.ask("initialize", initialize_params("2025-11-25"))
        server.list_changed("resources")
        await changes_so_far(server, other)
        assert wire.notifications == []
        wire.stream.connection_lost(None)
    await server.close()


async def test_a_slow_reader_does_not_delay_other_watchers(caplog: pytest.LogCaptureFixture) -> None:
    """Security U07 and U08."""
    caplog.set_level(logging.WARNING)
    server = notes_server(limits=Limits(backlog=200))
    await server.start()
    async with Wire(server) as slow, Wire(server) as quick:
        await slow.watch("note://a")
        await quick.watch("note://a")
        slow.stream.pause_writing()
        for number in range(1, 20):
            server.resource_updated("note://a")
            await quick.wait_for_notifications(number + 1)
        assert len(slow.notifications) == 1
        assert slow.stream.queued_bytes < 600
        slow.stream.resume_writing()
        assert 1 < len(slow.notifications) < 5
    await server.close()
    assert caplog.records == []


def test_a_source_included_in_a_running_server_is_started_and_attached() -> None:
    """Adding a source to a running server must not need a restart."""

    class LateSource(Source):
        def __init__(self) -> None:
            self.calls: list[str] = []

        def matches(self, uri: str) -> bool:
            return False

        async def start(self) -> None:
            self.calls.append("started")

        def watch(self, uri: str | None, changed: Changed) -> None:
            self.calls.append(f"attached {uri}")

    async def run() -> None:
        server, source = Server("late"), LateSource()
        server.resources.add("a:b", lambda: "x")
        await server.start()
        session = Session()
        session.phase = Phase.OPEN
        server.watching.watch_list(SessionWatcher(session), "resources")
        server.include(source)
        await server.source_watches._joining.finished()
        assert source.calls == ["started", "attached None"]
        await server.close()

    asyncio.run(run())


async def test_a_list_that_is_first_watched_while_a_new_source_starts_is_watched_once_at_the_source() -> None:
    """A bug: the source was watched again after its start, and later unwatched twice."""

    class SlowSource(Source):
        def __init__(self) -> None:
            self.started = asyncio.Event()
            self.calls: list[str] = []

        def matches(self, uri: str) -> bool:
            return False

        async def start(self) -> None:
            await self.started.wait()

        def watch(self, uri: str | None, changed: Changed) -> None:
            self.calls.append(f"watch {uri}")

        def unwatch(self, uri: str | None) -> None:
            self.calls.append(f"unwatch {uri}")

    server, source = Server("late"), SlowSource()
    server.resources.add("a:b", lambda: "x")
    await server.start()
    server.include(source)
    session = Session()
    session.phase = Phase.OPEN
    watcher = SessionWatcher(session)
    server.watching.watch_list(watcher, "resources")
    source.started.set()
    await server.source_watches._joining.finished()
    assert source.calls == ["watch None"]
    server.watching.drop(watcher)
    assert source.calls == ["watch None", "unwatch None"]
    await server.close()


async def test_a_new_source_watches_its_uris_that_are_watched_already_and_no_other_source_has() -> None:
    """A bug: changes in the source were not noticed until the last watcher had left."""

    class Shelf(Source):
        def __init__(self) -> None:
            self.watched: list[str | None] = []

        def matches(self, uri: str) -> bool:
            return uri.startswith("a:")

        def watch(self, uri: str | None, changed: Changed) -> None:
            self.watched.append(uri)

    server, first, second = Server("late"), Shelf(), Shelf()
    server.resources.add("a:b", lambda: "x")
    await server.start()
    session = Session()
    session.phase = Phase.OPEN
    for uri in ("a:b", "c:d"):
        server.watching.watch(SessionWatcher(session), uri)
    for source in (first, second):
        server.include(source)
        await server.source_watches._joining.finished()
    assert (first.watched, second.watched) == (["a:b"], [])
    await server.close()


class CallRecorder(Source):
    def __init__(self) -> None:
        self.calls: list[str] = []

    def matches(self, uri: str) -> bool:
        return uri.startswith("seen:")

    def stat(self, uri: str) -> t.Resource:
        self.calls.append("stat")
        return t.Resource(uri=uri, name="seen")

    def read(self, uri: str) -> t.ReadResourceResult:
        self.calls.append("read")
        return t.ReadResourceResult(contents=[t.ResourceContents(uri=uri, text="")])

    def watch(self, uri: str | None, changed: Changed) -> None:
        if uri is not None:
            self.calls.append("attach")


@pytest.mark.parametrize("revision", ERAS)
@pytest.mark.parametrize(("middleware", "reads"), [(None, []), ("transparent", []), ("plain", ["read"])])
async def test_a_watch_calls_stat_before_it_attaches_with_any_middleware(
    middleware: str | None, reads: list[str], revision: str
) -> None:
    """A source compares later states with the one at `watch`, so the server calls `watch` last."""

    async def pass_through(call: Call, next: Next) -> Any:
        return await next(call)

    server, source = Server("s"), CallRecorder()
    server.include(source)
    if middleware:
        server.methods.add_middleware(
            transparent(pass_through) if middleware == "transparent" else pass_through, ("resources/read",)
        )
    async with Client(server, revision=revision) as client, client.watch("seen:it"):
        assert source.calls == [*reads, "stat", "attach"]


# -- time and order


class RecordingWatcher:
    """A watcher that records the URI or method of each notification."""

    def __init__(self, received: list[tuple[RecordingWatcher, str]]) -> None:
        self.received = received
        self.on_send: Callable[[], object] = lambda: None

    def send(self, message: Callable[[bytes | None], bytes]) -> bool:
        notice = json.loads(message(None))
        self.received.append((self, notice.get("params", {}).get("uri") or notice["method"]))
        self.on_send()
        return True


class WatcherGroup:
    """A running `Watching` with this many watchers of `a:`, `b:` and the list of resources."""

    def __init__(self, number: int) -> None:
        self.watching = Watching(lambda uri: None, lambda uri: None)
        self.received: list[tuple[RecordingWatcher, str]] = []
        self.members = [RecordingWatcher(self.received) for _ in range(number)]
        for member in self.members:
            self.watching.watch(member, "a:")
            self.watching.watch(member, "b:")
            self.watching.watch_list(member, "resources")
        self.watching.start(asyncio.get_running_loop())

    async def run_turns(self, number: int) -> None:
        """Let the event loop run this many turns."""
        for _ in range(number):
            await asyncio.sleep(0)

    async def wait_for_notifications(self, number: int) -> None:
        """Wait until this many notifications were sent."""
        while len(self.received) < number:
            await asyncio.sleep(0.001)

    def notifications_of(self, member: int) -> list[str]:
        return [change for watcher, change in self.received if watcher is self.members[member]]


async def test_the_first_change_is_sent_in_the_next_turn_and_later_ones_are_coalesced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A single change is not delayed."""
    monkeypatch.setattr(watching, "COALESCE_SECONDS", 3600.0)
    group = WatcherGroup(2)
    group.watching.updated("a:")
    assert group.received == []  # the caller may report it again in this turn
    group.watching.updated("a:")
    await group.run_turns(2)
    assert [change for _, change in group.received] == ["a:", "a:"]
    group.watching.updated("a:")
    group.watching.updated("b:")
    group.watching.list_changed("resources")
    await group.run_turns(5)
    assert group.notifications_of(0) == ["a:", "b:", "notifications/resources/list_changed"]
    group.watching.stop()


async def test_changes_during_the_coalescing_time_are_sent_once() -> None:
    group = WatcherGroup(1)
    group.watching.updated("a:")
    await group.run_turns(2)
    for _ in range(100):
        group.watching.updated("a:")
        await group.run_turns(1)
    await group.wait_for_notifications(2)
    await asyncio.sleep(watching.COALESCE_SECONDS * 5)
    sent_count = len(group.received)
    assert 2 <= sent_count <= 5  # under load the hundred turns may take longer than COALESCE_SECONDS
    await asyncio.sleep(watching.COALESCE_SECONDS * 5)
    assert len(group.received) == sent_count
    group.watching.updated("a:")
    await group.run_turns(2)
    assert len(group.received) == sent_count + 1
    group.watching.stop()


@pytest.mark.parametrize("threaded", [False, True])
async def test_many_changes_are_coalesced_and_the_last_one_is_sent(threaded: bool) -> None:
    group = WatcherGroup(1)
    state, seen = 0, []
    group.members[0].on_send = lambda: seen.append(state)

    def change_often() -> None:
        nonlocal state
        for number in range(1, 1001):
            state = number
            group.watching.updated("a:")

    if threaded:
        await asyncio.to_thread(change_often)
    else:
        change_often()
    while not seen or seen[-1] != 1000:
        await asyncio.sleep(0.001)
    await asyncio.sleep(watching.COALESCE_SECONDS * 5)
    assert len(seen) < 100
    group.watching.stop()


async def test_many_watchers_are_notified_in_slices_over_several_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "WATCHERS_PER_TURN", 3)
    group = WatcherGroup(10)
    group.watching.updated("a:")
    group.watching.updated("b:")
    numbers = []
    while len(group.received) < 20:
        await group.run_turns(1)
        numbers.append(len(group.received))
    assert numbers == [3, 6, 9, 12, 15, 18, 20]
    assert all(group.notifications_of(member) == ["a:", "b:"] for member in range(10))
    group.watching.stop()


@pytest.mark.parametrize("number", [2, 3, 4])
async def test_every_watcher_is_notified_once_if_their_number_is_near_the_size_of_a_slice(
    monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.setattr(watching, "WATCHERS_PER_TURN", 3)
    group = WatcherGroup(number)
    for changes in (1, 2, 3):
        group.watching.updated("a:")
        await group.wait_for_notifications(number * changes)
        await asyncio.sleep(watching.COALESCE_SECONDS * 5)
    assert len(group.received) == number * 3
    group.watching.stop()


async def test_a_watcher_dropped_before_its_slice_is_not_notified(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "WATCHERS_PER_TURN", 1)
    group = WatcherGroup(4)
    group.members[1].on_send = lambda: group.watching.drop(group.members[3])
    group.watching.updated("a:")
    await group.run_turns(1)
    group.watching.unwatch(group.members[2], "a:")
    await group.run_turns(10)
    assert [group.notifications_of(member) for member in range(4)] == [["a:"], ["a:"], [], []]
    group.watching.stop()


async def test_a_change_between_slices_is_sent_to_watchers_notified_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(watching, "WATCHERS_PER_TURN", 1)
    group = WatcherGroup(3)
    group.watching.updated("a:")
    await group.run_turns(2)
    assert group.notifications_of(0) == ["a:"]
    group.watching.updated("a:")
    await group.wait_for_notifications(6)
    assert all(group.notifications_of(member) == ["a:", "a:"] for member in range(3))
    group.watching.stop()


async def test_a_watcher_that_fails_affects_no_other_watcher(caplog: pytest.LogCaptureFixture) -> None:
    group = WatcherGroup(3)

    def fail() -> None:
        raise RuntimeError("broken")

    group.members[1].on_send = fail
    sent_counts: list[int] = []
    group.watching.on_sent = lambda uri, number: sent_counts.append(number)
    group.watching.updated("a:")
    await group.run_turns(2)
    assert [group.notifications_of(member) for member in range(3)] == [["a:"]] * 3
    assert sent_counts == [2]
    assert "The change of a: could not be sent to a watcher" in caplog.text
    group.watching.stop()


async def test_a_uri_that_cannot_be_sent_affects_no_other_uri(caplog: pytest.LogCaptureFixture) -> None:
    group = WatcherGroup(1)
    group.watching.watch(group.members[0], "a:\ud800")
    group.watching.updated("a:\ud800")
    group.watching.updated("b:")
    await group.run_turns(3)
    assert group.notifications_of(0) == ["b:"]
    assert "updated failed" in caplog.text
    group.watching.stop()


async def test_stop_drops_pending_slices_and_watching_can_start_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(watching, "WATCHERS_PER_TURN", 1)
    group = WatcherGroup(3)
    group.watching.updated("a:")
    group.watching.updated("b:")
    await group.run_turns(1)
    group.watching.stop()
    await group.run_turns(10)
    assert len(group.received) == 1
    group.watching.start(asyncio.get_running_loop())
    group.watching.updated("a:")
    await group.wait_for_notifications(4)
    await asyncio.sleep(watching.COALESCE_SECONDS * 5)
    assert [change for _, change in group.received] == ["a:"] * 4
    group.watching.stop()


# -- limits


async def test_a_server_without_listens_keeps_nothing_of_a_refused_one() -> None:
    """A bug: it kept every connection that had tried one."""
    server = notes_server(limits=Limits(listens=0))
    await server.start()
    async with Wire(server) as wire:
        assert "error" in await wire.ask("subscriptions/listen", {"notifications": {}})
    assert server.listening.open_listens == {}


async def test_a_listen_may_watch_up_to_the_limit() -> None:
    server = notes_server(limits=Limits(watched=3, listens=2))
    await server.start()
    async with Wire(server) as wire:
        await wire.watch("note://a", "note://b", "page://1")
        four = {"notifications": {"resourceSubscriptions": ["note://a", "note://b", "page://1", "page://2"]}}
        answer = await wire.ask("subscriptions/listen", four)
        assert answer["error"]["message"] == "One listen may watch 3 resources and tasks: split it."
        repeated = {"notifications": {"resourceSubscriptions": ["note://a", "note://a", "note://a", "note://a"]}}
        wire.send_request("subscriptions/listen", repeated)
        await wire.wait_for_notifications(2)
        answer = await wire.ask("subscriptions/listen", {"notifications": {}})
        assert answer["error"]["message"] == "2 listens are open on this connection: cancel some."
    async with Wire(server, "2025-11-25") as wire:
        answers = await wire.watch("note://a", "note://b", "page://1", "page://2")
        assert ["result" in answer for answer in answers] == [True, True, True, False]
        assert answers[3]["error"]["message"] == "A session may watch 3 resources: unsubscribe from some."
        await wire.ask("resources/unsubscribe", {"uri": "note://a"})
        assert "result" in (await wire.watch("page://2"))[0]
    await server.close()


async def test_a_listen_above_the_total_is_refused_before_any_uri_is_read() -> None:
    server = notes_server(limits=Limits(watched_total=2))
    reads: list[str] = []

    @server.resource("seen://{x}")
    async def seen(x: str) -> str:
        reads.append(x)
        return x

    await server.start()
    async with Wire(server) as wire:
        three = {"notifications": {"resourceSubscriptions": ["seen://a", "seen://b", "seen://c"]}}
        answer = await wire.ask("subscriptions/listen", three)
        assert answer["error"]["message"].startswith("Too many resources are watched")
        assert reads == []
        await wire.watch("seen://a", "seen://b")
        assert reads == ["a", "b"]
    assert server.listening.open_listens == {}
    await server.close()


async def test_dropped_watches_no_longer_count_and_can_be_added_again() -> None:
    attached: list[Any] = []
    watches = Watching(lambda uri: attached.append(uri), lambda uri: attached.append(f"-{uri}"))
    first, second = SessionWatcher(Session("")), SessionWatcher(Session(""))
    watches.watch(first, "a:b", "ann")
    watches.watch(first, "a:c", "bob")
    watches.watch(second, "a:b", "bob")
    assert [watches.count(first), watches.count(second), watches.shares["ann"], watches.shares["bob"]] == [2, 1, 2, 1]
    watches.unwatch(first, "a:b")
    assert (watches.count(first), watches.is_watching(first)) == (1, True)
    watches.unwatch(first, "a:b")
    assert watches.count(first) == 1
    watches.watch_list(first, "resources")
    watches.drop(first)
    assert (watches.count(first), watches.is_watching(first), watches.shares["ann"]) == (0, False, 0)
    watches.watch(first, "a:b", "bob")
    assert (watches.shares["ann"], watches.shares["bob"]) == (0, 2)
    assert attached == ["a:b", "a:c", None, "-a:c", "-None"]
    assert first == SessionWatcher(first.session) and first != second and first != "watcher"
    list_watcher = SessionWatcher(Session(""))
    assert not watches.is_watching(list_watcher)
    watches.watch_list(list_watcher, "tools")
    assert watches.is_watching(list_watcher)
    watches.drop(list_watcher)
    assert not watches.is_watching(list_watcher)
    assert attached[5:] == []


async def test_a_watcher_that_subscribes_again_is_notified_once() -> None:
    server = notes_server()
    await server.start()
    async with Wire(server, "2025-11-25") as wire:
        for _ in range(3):
            await wire.watch("note://a", "note://end")
            await wire.ask("resources/unsubscribe", {"uri": "note://a"})
        await wire.watch("note://a")
        server.resource_updated("note://a")
        assert await changes_so_far(server, wire) == [("resources/updated", "note://a")]
    assert server.watching.watched() == []
    await server.close()


async def test_a_drained_listen_is_cancelled_before_its_result() -> None:
    server = notes_server()
    await server.start()
    async with Wire(server) as wire:
        id = await wire.watch("note://a", id="own")
        server.drain()
        await wire.answer(id)
        notice = wire.notifications[-1]
        assert (notice["method"], notice["params"]["requestId"]) == ("notifications/cancelled", "own")
        assert notice["params"]["reason"] == "The server ends the subscription."
    await server.close()


async def test_close_cancels_watcher_functions_that_clients_still_watch() -> None:
    server = notes_server(limits=Limits(drain=20))
    seen: list[str] = []

    @server.watcher("page://{number}")
    async def follow(uri: str) -> None:
        seen.append(uri)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    await server.start()
    async with Wire(server, "2025-11-25") as wire:
        await wire.watch("page://1")
        while not seen:
            await asyncio.sleep(0)
        await asyncio.wait_for(server.close(), 10)
        assert seen == ["page://1", "cancelled"]
