"""Notifications of changes in every revision: coalescing, threads, limits, and failures of single watchers."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import Callable
from typing import Any

import pytest

from tests.server.driving import ALL, ERAS, HANDSHAKE, META, Recorder, Wire, ask, hello, looped
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


def notes(**options: Any) -> Server:
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


def notices(wire: Wire, since: int = 0) -> list[tuple[str, Any]]:
    """Return the notifications of a client, without the acknowledgements."""
    return [
        (notice["method"].removeprefix("notifications/"), notice["params"].get("uri") if "params" in notice else None)
        for notice in wire.notices[since:]
        if not notice["method"].endswith("acknowledged")
    ]


async def after(server: Server, wire: Wire) -> list[tuple[str, Any]]:
    """Return the notifications up to now: the last one is a change of `note://end`, which the client watches too."""
    server.resource_updated("note://end")
    await wire.until(lambda: ("resources/updated", "note://end") in notices(wire))
    return notices(wire)[:-1]


@pytest.mark.parametrize("revision", ALL)
@looped
async def test_resource_updated_notifies_watchers_of_every_revision(revision: str) -> None:
    server = notes()
    await server.start()
    async with Wire(server, revision) as wire:
        await wire.watch("note://a", "page://3", "note://end")
        server.resource_updated("page://3")
        server.resource_updated("note://b")
        assert await after(server, wire) == [("resources/updated", "page://3")]
    await server.close()


@pytest.mark.parametrize("revision", ERAS)
@looped
async def test_a_burst_is_reported_once(revision: str) -> None:
    server = notes()
    await server.start()
    async with Wire(server, revision) as wire:
        await wire.watch("note://a", "note://end")
        for _ in range(1000):
            server.resource_updated("note://a")
        assert await after(server, wire) == [("resources/updated", "note://a")]
        server.resource_updated("note://a")
        assert len(await after_again(server, wire)) == 2
    await server.close()


async def after_again(server: Server, wire: Wire) -> list[tuple[str, Any]]:
    number = len(wire.notices)
    server.resource_updated("note://end")
    await wire.until(lambda: ("resources/updated", "note://end") in notices(wire, number))
    return [notice for notice in notices(wire) if notice[1] != "note://end"]


@looped
async def test_changes_may_be_reported_from_any_thread() -> None:
    server = notes()
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
        assert set(await after(server, wire)) == {
            ("resources/updated", "note://a"),
            ("resources/updated", "note://b"),
            ("resources/list_changed", None),
        }
    await server.close()


@looped
async def test_changes_outside_the_servers_run_and_without_watchers_are_ignored() -> None:
    server = notes()
    server.resource_updated("note://a")
    server.list_changed("tools")
    async with Wire(server) as wire:
        await server.start()
        await wire.watch("note://a", "note://end")
        assert await after(server, wire) == []
        number = len(wire.notices)
        server.resource_updated("note://a")
        await server.close()
        server.resource_updated("note://a")
        await asyncio.to_thread(server.resource_updated, "note://a")
        # Its listen ended, with a notification and a result, as on a stream that stays open (subscriptions).
        assert notices(wire, number) == [("cancelled", None)]


def test_a_restarted_server_reports_changes_again() -> None:
    """A change that was pending when the server closed must not block later ones."""
    server = notes()

    async def run() -> None:
        await server.start()
        async with Wire(server, "2025-11-25") as wire:
            await wire.watch("note://a")
            server.resource_updated("note://a")
            await wire.notice()
            server.resource_updated("note://a")
            await server.close()

    asyncio.run(run())
    asyncio.run(asyncio.wait_for(run(), 5))


@looped
async def test_a_repeated_subscription_notifies_once_and_unsubscribing_ends_it() -> None:
    server = notes()
    await server.start()
    async with Wire(server, "2025-11-25") as wire:
        await wire.watch("note://a", "note://a", "note://end")
        server.resource_updated("note://a")
        assert await after(server, wire) == [("resources/updated", "note://a")]
        assert (await wire.ask("resources/unsubscribe", {"uri": "note://a"}))["result"] == {}
        assert (await wire.ask("resources/unsubscribe", {"uri": "note://never"}))["result"] == {}
        server.resource_updated("note://a")
        assert len(await after_again(server, wire)) == 1
    await server.close()


# -- stateless: one request holds the watch


@pytest.mark.parametrize("id", [1, "1"])
@looped
async def test_the_acknowledgement_is_sent_first_and_subscription_ids_keep_their_type(id: Any) -> None:
    server = notes()
    await server.start()
    async with Wire(server) as wire:
        wanted = {"resourceSubscriptions": ["note://a", "note://gone"], "toolsListChanged": True}
        wire.put("subscriptions/listen", {"notifications": wanted}, id)
        server.resource_updated("note://a")
        await wire.notice()
        server.resource_updated("note://a")
        acknowledged, updated = await wire.notice(2)
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


@looped
async def test_only_changes_in_the_filter_are_reported() -> None:
    server = notes()
    server.tools.add(lambda: "x", name="x")
    await server.start()
    async with Wire(server) as wire:
        await wire.watch("note://end", lists=("tools",))
        server.list_changed("resources")
        server.list_changed("prompts")
        server.list_changed("tools")
        server.resource_updated("note://a")
        assert await after(server, wire) == [("tools/list_changed", None)]
        assert wire.notices[0]["params"]["notifications"] == {
            "toolsListChanged": True,
            "resourceSubscriptions": ["note://end"],
        }
    await server.close()


@looped
async def test_two_listens_on_one_stream_are_distinguished_and_cancelling_one_keeps_the_other() -> None:
    server = notes()
    await server.start()
    async with Wire(server) as wire:
        await wire.watch("note://a", "note://end", id=1)
        await wire.watch("note://a", "note://end", id="1")
        server.resource_updated("note://a")
        await wire.notice(4)
        assert [n["params"]["_meta"][f"{META}subscriptionId"] for n in wire.notices[2:]] == [1, "1"]
        wire.notify("notifications/cancelled", {"requestId": 1})
        server.resource_updated("note://a")
        await wire.notice(5)
        assert wire.notices[4]["params"]["_meta"][f"{META}subscriptionId"] == "1"
        await after(server, wire)
        assert len(wire.notices) == 6
        assert wire.answers == {}
    assert server.watching.watched() == []
    await server.close()


@looped
async def test_the_number_of_listens_and_of_watched_resources_is_limited() -> None:
    """security U05, U09"""
    server = notes(limits=Limits(listens=2, watched=2))
    await server.start()
    async with Wire(server) as wire:
        refused = await wire.ask(
            "subscriptions/listen", {"notifications": {"resourceSubscriptions": ["a:", "b:", "c:"]}}
        )
        assert refused["error"]["code"] == -32602
        first = await wire.watch("note://a")
        await wire.watch("note://a")
        refused = await wire.ask("subscriptions/listen", {"notifications": {}})
        assert refused["error"]["code"] == -32602
        wire.notify("notifications/cancelled", {"requestId": first})
        await wire.ask("resources/list")
        await wire.watch("note://b")
    async with Wire(server, "2025-11-25") as wire:
        one, two, three, again = await wire.watch("note://a", "note://b", "page://1", "note://a")
        assert [one["result"], two["result"], three["error"]["code"]] == [{}, {}, -32602]
        assert again["error"]["code"] == -32602
    await server.close()


@looped
async def test_the_total_of_watched_resources_is_limited_and_shared_equally() -> None:
    server = notes(limits=Limits(watched_total=3))
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
        wanted = {"notifications": {"resourceSubscriptions": ["note://a", "note://b", "page://1", "page://2"]}}
        assert (await listener.ask("subscriptions/listen", wanted))["error"]["code"] == -32603
        await listener.watch("note://a", "note://b", "page://1")
    assert server.watching.shares.total == len(server.watching.shares) == 0
    await server.close()


@looped
async def test_a_listen_that_cannot_be_acknowledged_is_refused() -> None:
    """The first message of a subscription is its acknowledgement: the client cannot assign earlier ones."""
    server = notes()
    answer = await ask(server, "subscriptions/listen", {"notifications": {}}, channel=Recorder(full=True))
    assert answer["error"]["code"] == -32603
    assert server.listening.open == {}


@looped
async def test_drain_completes_every_listen() -> None:
    server = notes()
    await server.start()
    async with Wire(server) as one, Wire(server) as other:
        ids = [await one.watch("note://a"), await one.watch(lists=("resources",)), await other.watch("note://a")]
        server.drain()
        answers = [await one.answer(ids[0]), await one.answer(ids[1]), await other.answer(ids[2])]
        assert [a["result"]["resultType"] for a in answers] == ["complete"] * 3
        assert server.listening.open == {}
        assert server.watching.watched() == []
    await server.close()


# -- resources that may be watched


def guarded() -> Server:
    server = notes()

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


MISSING = ["note://gone", "page://10", "page://ten", "secret://x", "secret:static", "picky://x", "unknown:x"]


@pytest.mark.parametrize("uri", MISSING)
@pytest.mark.parametrize("revision", HANDSHAKE)
@looped
async def test_subscribing_to_a_missing_or_forbidden_resource_reports_it_as_missing(revision: str, uri: str) -> None:
    """security U01, U02: watching a resource that may not be read would reveal its changes."""
    server = guarded()
    answer = await ask(server, "resources/subscribe", {"uri": uri}, revision)
    assert answer["error"] == {"code": -32002, "message": f"Resource not found: {uri}", "data": {"uri": uri}}
    assert server.watching.watched() == []


@looped
async def test_a_listen_omits_missing_forbidden_and_failing_resources(caplog: pytest.LogCaptureFixture) -> None:
    server = guarded()
    await server.start()
    async with Wire(server) as wire:
        await wire.watch("note://a", *MISSING, "broken://x", "not a uri")
        assert wire.notices[0]["params"]["notifications"] == {"resourceSubscriptions": ["note://a"]}
    async with Wire(server, principal="ann") as wire:
        await wire.watch("secret://x", "secret:static")
        assert wire.notices[0]["params"]["notifications"] == {"resourceSubscriptions": ["secret://x", "secret:static"]}
    await server.close()
    assert ["broken://x" in record.getMessage() for record in caplog.records] == [True]


@looped
async def test_subscribing_to_an_invalid_uri_fails_with_invalid_params() -> None:
    for uri in ("not a uri", "x" * 10_000):
        answer = await ask(notes(), "resources/subscribe", {"uri": uri}, "2025-11-25")
        assert answer["error"]["code"] == -32602
        assert "data" not in answer["error"]


# -- the end of a watcher


@looped
async def test_the_end_of_a_session_drops_its_watches() -> None:
    server = notes()
    await server.start()
    async with Wire(server, "2025-11-25") as wire:
        await wire.watch("note://a", "note://b")
        assert server.watching.watched() == ["note://a", "note://b"]
    assert server.watching.watched() == []
    assert not any(server.watching._by_list.values())
    assert server.watching._by_watcher == {}
    await server.close()


@looped
async def test_a_subscription_before_initialized_is_dropped_with_the_connection() -> None:
    server = notes()
    wire = Wire(server, "2025-11-25")
    await wire.ask("initialize", hello("2025-11-25"))
    assert (await wire.ask("resources/subscribe", {"uri": "note://a"}))["result"] == {}
    wire.stream.connection_lost(None)
    assert server.watching.watched() == []
    assert server.watching._by_watcher == {}


# -- attaching


class RecordingSource(Source):
    """A source that records what is watched."""

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


@looped
async def test_a_source_is_attached_by_the_first_watcher_and_detached_after_the_last() -> None:
    server = notes()
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
                await wire.until(lambda wire=wire: len(notices(wire)) == 2)  # type: ignore[misc]
                assert notices(wire) == [("resources/updated", "quay:1"), ("resources/list_changed", None)]
        await session.ask("resources/unsubscribe", {"uri": "quay:1"})
        assert quay.calls[3:] == [("detach", "quay:1")]
    assert quay.calls[4:] == [("detach", "quay:2"), ("detach", None)]
    assert other.calls == [("attach", None), ("detach", None)]
    await server.close()


@pytest.mark.parametrize("revision", ERAS)
@looped
async def test_a_source_whose_watch_raises_is_logged_and_the_watch_remains(
    revision: str, caplog: pytest.LogCaptureFixture
) -> None:
    server = notes()
    bad, good = RecordingSource(fails=True), RecordingSource("good:")
    server.include(bad)
    server.include(good)
    await server.start()
    async with Wire(server, revision) as wire:
        await wire.watch("quay:1", "note://end", lists=("resources",))
        assert good.calls == [("attach", None)]
        server.resource_updated("quay:1")
        assert await after(server, wire) == [("resources/updated", "quay:1")]
    assert good.calls == [("attach", None), ("detach", None)]
    assert server.watching.watched() == []
    await server.close()
    assert len(caplog.records) == 4


@looped
async def test_failing_delivery_callbacks_and_watchers_affect_no_other_watcher(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = notes()
    await server.start()
    deliveries: list[tuple[str, int]] = []

    def seen(uri: str, number: int) -> None:
        deliveries.append((uri, number))
        raise RuntimeError("onlooker")

    class Broken:
        def send(self, message: Any) -> bool:
            raise RuntimeError("watcher")

    server.watching.on_sent = seen
    async with Wire(server) as one, Wire(server, "2025-11-25") as other:
        server.watching.watch(Broken(), "note://a")
        await one.watch("note://a", "note://end")
        await other.watch("note://a", "note://end")
        server.resource_updated("note://a")
        assert await after(server, one) == [("resources/updated", "note://a")]
        assert deliveries == [("note://a", 2), ("note://end", 2)]
    await server.close()
    assert len(caplog.records) == 3


# -- watchers as functions


@looped
async def test_a_watcher_function_runs_from_the_first_watcher_to_the_last() -> None:
    server = notes()
    running: dict[str, bool] = {}
    changed = asyncio.Event()

    @server.watcher("page://{number}")
    async def follow(uri: str) -> None:
        running[uri] = True
        server.resource_updated(uri)
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            running[uri] = False
            changed.set()

    await server.start()
    async with Wire(server) as one, Wire(server, "2025-11-25") as other:
        await other.watch("page://1", "note://a")
        assert (await other.notice())[0]["params"] == {"uri": "page://1"}
        id = await one.watch("page://1")
        assert running == {"page://1": True}
        await other.ask("resources/unsubscribe", {"uri": "page://1"})
        await other.ask("resources/list")
        assert running == {"page://1": True}
        one.notify("notifications/cancelled", {"requestId": id})
        await changed.wait()
        assert running == {"page://1": False}
        changed.clear()
        await one.watch("page://1")
        await one.until(lambda: len(notices(one)) == 1)
        assert running == {"page://1": True}
        await server.close()
        assert running == {"page://1": False}


@looped
async def test_a_watcher_function_that_raises_is_logged_and_the_watch_remains(caplog: pytest.LogCaptureFixture) -> None:
    server = notes()

    @server.watcher("note://a")
    async def follow(uri: str) -> None:
        raise RuntimeError("the tide is out")

    await server.start()
    async with Wire(server) as wire:
        await wire.watch("note://a", "note://end")
        server.resource_updated("note://a")
        assert await after(server, wire) == [("resources/updated", "note://a")]
    await server.close()
    assert [(r.name, r.getMessage()) for r in caplog.records] == [
        ("wharfinger.server.subscriptions.watching", "The watcher of note://a failed")
    ]


def test_a_watcher_function_must_be_async() -> None:
    with pytest.raises(TypeError, match="must be an async function"):
        Server("s").watcher("note://a")(lambda uri: None)


# -- lists that change


@pytest.mark.parametrize("revision", ERAS)
@looped
async def test_adding_and_removing_notifies_the_watchers_of_the_list(revision: str) -> None:
    server = notes()
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
        before = len(wire.notices)
        for number, (change, name) in enumerate(changes, 1):
            change()
            await wire.notice(before + number)
            assert notices(wire)[-1] == (f"{name}/list_changed", None)
    await server.close()


@looped
async def test_a_session_gets_no_list_changes_before_it_confirms_the_handshake() -> None:
    server = notes()
    await server.start()
    async with Wire(server) as other:
        await other.watch("note://end", lists=("resources",))
        wire = Wire(server, "2025-11-25")
        await wire.ask("initialize", hello("2025-11-25"))
        server.list_changed("resources")
        await after(server, other)
        assert wire.notices == []
        wire.stream.connection_lost(None)
    await server.close()


@looped
async def test_a_slow_reader_does_not_delay_other_watchers(caplog: pytest.LogCaptureFixture) -> None:
    """security U07, U08"""
    caplog.set_level(logging.WARNING)
    server = notes(limits=Limits(backlog=200))
    await server.start()
    async with Wire(server) as slow, Wire(server) as quick:
        await slow.watch("note://a")
        await quick.watch("note://a")
        slow.stream.pause_writing()
        for number in range(1, 20):
            server.resource_updated("note://a")
            await quick.notice(number + 1)
        assert len(slow.notices) == 1
        assert slow.stream.parked_bytes < 600
        slow.stream.resume_writing()
        assert 1 < len(slow.notices) < 5
    await server.close()
    assert caplog.records == []


def test_a_source_included_in_a_running_server_is_started_and_attached() -> None:
    """Adding a source to a running server must not need a restart."""

    class Late(Source):
        def __init__(self) -> None:
            self.began: list[str] = []

        def matches(self, uri: str) -> bool:
            return False

        async def start(self) -> None:
            self.began.append("started")

        def watch(self, uri: str | None, changed: Changed) -> None:
            self.began.append(f"attached {uri}")

    async def run() -> None:
        server, late = Server("late"), Late()
        server.resources.add("a:b", lambda: "x")
        await server.start()
        session = Session()
        session.phase = Phase.OPEN
        server.watching.watch_list(SessionWatcher(session), "resources")
        server.include(late)
        await server.source_watches._joining.finished()
        assert late.began == ["started", "attached None"]
        await server.close()

    asyncio.run(run())


class CallRecorder(Source):
    """Records its calls."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def matches(self, uri: str) -> bool:
        return uri.startswith("seen:")

    def stat(self, uri: str) -> t.Resource:
        self.asked.append("stat")
        return t.Resource(uri=uri, name="seen")

    def read(self, uri: str) -> t.ReadResourceResult:
        self.asked.append("read")
        return t.ReadResourceResult(contents=[t.ResourceContents(uri=uri, text="")])

    def watch(self, uri: str | None, changed: Changed) -> None:
        if uri is not None:
            self.asked.append("attach")


@pytest.mark.parametrize("revision", ERAS)
@pytest.mark.parametrize(("hook", "asked"), [(None, []), ("transparent", []), ("plain", ["read"])])
@looped
async def test_a_watch_calls_stat_before_it_attaches_with_any_middleware(
    hook: str | None, asked: list[str], revision: str
) -> None:
    """A source compares with the state at `watch`, so no later change may be lost."""

    async def around(call: Call, next: Next) -> Any:
        return await next(call)

    server, source = Server("s"), CallRecorder()
    server.include(source)
    if hook:
        server.methods.add_middleware(transparent(around) if hook == "transparent" else around, ("resources/read",))
    async with Client(server, revision=revision) as client, client.watch("seen:it"):
        assert source.asked == [*asked, "stat", "attach"]


# -- time and order


class RecordingWatcher:
    """A watcher of a `Watching`, with the methods and URIs of its notices."""

    def __init__(self, received: list[tuple[RecordingWatcher, str]]) -> None:
        self.received = received
        self.on_send: Callable[[], object] = lambda: None

    def send(self, message: Callable[[bytes | None], bytes]) -> bool:
        notice = json.loads(message(None))
        self.received.append((self, notice.get("params", {}).get("uri") or notice["method"]))
        self.on_send()
        return True


class Watchers:
    """A running `Watching` with this many watchers of `a:`, `b:` and the resources."""

    def __init__(self, number: int) -> None:
        self.watching = Watching(lambda uri: None, lambda uri: None)
        self.received: list[tuple[RecordingWatcher, str]] = []
        self.members = [RecordingWatcher(self.received) for _ in range(number)]
        for member in self.members:
            self.watching.watch(member, "a:")
            self.watching.watch(member, "b:")
            self.watching.watch_list(member, "resources")
        self.watching.start(asyncio.get_running_loop())

    async def turns(self, number: int) -> None:
        for _ in range(number):
            await asyncio.sleep(0)

    async def until(self, number: int) -> None:
        """Wait until this many notices were sent."""
        while len(self.received) < number:
            await asyncio.sleep(0.001)

    def notices_of(self, member: int) -> list[str]:
        return [what for who, what in self.received if who is self.members[member]]


@looped
async def test_the_first_change_is_sent_in_the_next_turn_and_later_ones_are_coalesced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A single change is not delayed."""
    monkeypatch.setattr(watching, "COALESCE_SECONDS", 3600.0)
    group = Watchers(2)
    group.watching.updated("a:")
    assert group.received == []  # a handler may change it again in this turn
    group.watching.updated("a:")
    await group.turns(2)
    assert [what for _, what in group.received] == ["a:", "a:"]
    group.watching.updated("a:")
    group.watching.updated("b:")
    group.watching.list_changed("resources")
    await group.turns(5)
    assert group.notices_of(0) == ["a:", "b:", "notifications/resources/list_changed"]
    group.watching.stop()


@looped
async def test_changes_during_the_coalescing_time_are_sent_once() -> None:
    group = Watchers(1)
    group.watching.updated("a:")
    await group.turns(2)
    for _ in range(100):
        group.watching.updated("a:")
        await group.turns(1)
    await group.until(2)
    await asyncio.sleep(watching.COALESCE_SECONDS * 5)
    notices = len(group.received)
    assert 2 <= notices <= 5  # under load the hundred turns may take longer than COALESCE
    await asyncio.sleep(watching.COALESCE_SECONDS * 5)
    assert len(group.received) == notices
    group.watching.updated("a:")
    await group.turns(2)
    assert len(group.received) == notices + 1
    group.watching.stop()


@pytest.mark.parametrize("threaded", [False, True])
@looped
async def test_many_changes_are_coalesced_and_the_last_one_is_sent(threaded: bool) -> None:
    group = Watchers(1)
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


@looped
async def test_many_watchers_are_notified_in_slices_over_several_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "WATCHERS_PER_TURN", 3)
    group = Watchers(10)
    group.watching.updated("a:")
    group.watching.updated("b:")
    numbers = []
    while len(group.received) < 20:
        await group.turns(1)
        numbers.append(len(group.received))
    assert numbers == [3, 6, 9, 12, 15, 18, 20]
    assert all(group.notices_of(member) == ["a:", "b:"] for member in range(10))
    group.watching.stop()


@pytest.mark.parametrize("number", [2, 3, 4])
@looped
async def test_every_watcher_is_notified_once_around_the_size_of_a_slice(
    monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.setattr(watching, "WATCHERS_PER_TURN", 3)
    group = Watchers(number)
    for times in (1, 2, 3):
        group.watching.updated("a:")
        await group.until(number * times)
        await asyncio.sleep(watching.COALESCE_SECONDS * 5)
    assert len(group.received) == number * 3
    group.watching.stop()


@looped
async def test_a_watcher_dropped_before_its_slice_is_not_notified(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "WATCHERS_PER_TURN", 1)
    group = Watchers(4)
    group.members[1].on_send = lambda: group.watching.drop(group.members[3])
    group.watching.updated("a:")
    await group.turns(1)
    group.watching.unwatch(group.members[2], "a:")
    await group.turns(10)
    assert [group.notices_of(member) for member in range(4)] == [["a:"], ["a:"], [], []]
    group.watching.stop()


@looped
async def test_a_change_between_slices_is_sent_to_watchers_notified_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(watching, "WATCHERS_PER_TURN", 1)
    group = Watchers(3)
    group.watching.updated("a:")
    await group.turns(2)
    assert group.notices_of(0) == ["a:"]
    group.watching.updated("a:")
    await group.until(6)
    assert all(group.notices_of(member) == ["a:", "a:"] for member in range(3))
    group.watching.stop()


@looped
async def test_a_watcher_that_fails_affects_no_other_watcher(caplog: pytest.LogCaptureFixture) -> None:
    group = Watchers(3)

    def fail() -> None:
        raise RuntimeError("broken")

    group.members[1].on_send = fail
    notices: list[int] = []
    group.watching.on_sent = lambda uri, number: notices.append(number)
    group.watching.updated("a:")
    await group.turns(2)
    assert [group.notices_of(member) for member in range(3)] == [["a:"]] * 3
    assert notices == [2]
    assert "The change of a: could not be sent to a watcher" in caplog.text
    group.watching.stop()


@looped
async def test_a_uri_that_cannot_be_sent_affects_no_other_uri(caplog: pytest.LogCaptureFixture) -> None:
    group = Watchers(1)
    group.watching.watch(group.members[0], "a:\ud800")
    group.watching.updated("a:\ud800")
    group.watching.updated("b:")
    await group.turns(3)
    assert group.notices_of(0) == ["b:"]
    assert "updated failed" in caplog.text
    group.watching.stop()


@looped
async def test_stop_drops_pending_slices_and_watching_can_start_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(watching, "WATCHERS_PER_TURN", 1)
    group = Watchers(3)
    group.watching.updated("a:")
    group.watching.updated("b:")
    await group.turns(1)
    group.watching.stop()
    await group.turns(10)
    assert len(group.received) == 1
    group.watching.start(asyncio.get_running_loop())
    group.watching.updated("a:")
    await group.until(4)
    await asyncio.sleep(watching.COALESCE_SECONDS * 5)
    assert [what for _, what in group.received] == ["a:"] * 4
    group.watching.stop()


# -- limits


@looped
async def test_a_listen_may_watch_up_to_the_limit() -> None:
    server = notes(limits=Limits(watched=3, listens=2))
    await server.start()
    async with Wire(server) as wire:
        await wire.watch("note://a", "note://b", "page://1")
        over = {"notifications": {"resourceSubscriptions": ["note://a", "note://b", "page://1", "page://2"]}}
        refused = await wire.ask("subscriptions/listen", over)
        assert refused["error"]["message"] == "One listen may watch 3 resources: split it."
        twice = {"notifications": {"resourceSubscriptions": ["note://a", "note://a", "note://a", "note://a"]}}
        wire.put("subscriptions/listen", twice)
        await wire.notice(2)
        refused = await wire.ask("subscriptions/listen", {"notifications": {}})
        assert refused["error"]["message"] == "2 listens are open on this connection: cancel some."
    async with Wire(server, "2025-11-25") as wire:
        answers = await wire.watch("note://a", "note://b", "page://1", "page://2")
        assert ["result" in answer for answer in answers] == [True, True, True, False]
        assert answers[3]["error"]["message"] == "A session may watch 3 resources: unsubscribe from some."
        await wire.ask("resources/unsubscribe", {"uri": "note://a"})
        assert "result" in (await wire.watch("page://2"))[0]
    await server.close()


@looped
async def test_a_listen_above_the_total_is_refused_before_any_uri_is_read() -> None:
    server = notes(limits=Limits(watched_total=2))
    looked: list[str] = []

    @server.resource("seen://{x}")
    async def seen(x: str) -> str:
        looked.append(x)
        return x

    await server.start()
    async with Wire(server) as wire:
        many = {"notifications": {"resourceSubscriptions": ["seen://a", "seen://b", "seen://c"]}}
        refused = await wire.ask("subscriptions/listen", many)
        assert refused["error"]["message"].startswith("Too many resources are watched")
        assert looked == []
        await wire.watch("seen://a", "seen://b")
        assert looked == ["a", "b"]
    assert server.listening.open == {}
    await server.close()


@looped
async def test_dropped_watches_no_longer_count_and_can_be_added_again() -> None:
    attached: list[Any] = []
    watched = Watching(lambda uri: attached.append(uri), lambda uri: attached.append(f"-{uri}"))
    one, other = SessionWatcher(Session("")), SessionWatcher(Session(""))
    watched.watch(one, "a:b", "ann")
    watched.watch(one, "a:c", "bob")
    watched.watch(other, "a:b", "bob")
    assert [watched.count(one), watched.count(other), watched.shares["ann"], watched.shares["bob"]] == [2, 1, 2, 1]
    watched.unwatch(one, "a:b")
    assert (watched.count(one), watched.is_watching(one)) == (1, True)
    watched.unwatch(one, "a:b")
    assert watched.count(one) == 1
    watched.watch_list(one, "resources")
    watched.drop(one)
    assert (watched.count(one), watched.is_watching(one), watched.shares["ann"]) == (0, False, 0)
    watched.watch(one, "a:b", "bob")
    assert (watched.shares["ann"], watched.shares["bob"]) == (0, 2)
    assert attached == ["a:b", "a:c", None, "-a:c", "-None"]
    assert one == SessionWatcher(one.session) and one != other and one != "watcher"
    listing = SessionWatcher(Session(""))
    assert not watched.is_watching(listing)
    watched.watch_list(listing, "tools")
    assert watched.is_watching(listing)
    watched.drop(listing)
    assert not watched.is_watching(listing)
    assert attached[5:] == []


@looped
async def test_a_watcher_that_subscribes_again_is_notified_once() -> None:
    server = notes()
    await server.start()
    async with Wire(server, "2025-11-25") as wire:
        for _ in range(3):
            await wire.watch("note://a", "note://end")
            await wire.ask("resources/unsubscribe", {"uri": "note://a"})
        await wire.watch("note://a")
        server.resource_updated("note://a")
        assert await after(server, wire) == [("resources/updated", "note://a")]
    assert server.watching.watched() == []
    await server.close()


@looped
async def test_a_drained_listen_is_cancelled_before_its_result() -> None:
    server = notes()
    await server.start()
    async with Wire(server) as wire:
        id = await wire.watch("note://a", id="own")
        server.drain()
        await wire.answer(id)
        notice = wire.notices[-1]
        assert (notice["method"], notice["params"]["requestId"]) == ("notifications/cancelled", "own")
        assert notice["params"]["reason"] == "The server ends the subscription."
    await server.close()


@looped
async def test_close_cancels_watcher_functions_that_clients_still_watch() -> None:
    server = notes(limits=Limits(drain=20))
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
