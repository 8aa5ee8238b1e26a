"""Observers are notified of every request once: its outcome, the size of its answer, and the reads of its handler."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from tests.server.driving import initialize_params
from wharfinger import Client, Context, Server
from wharfinger.auth import static_token
from wharfinger.errors import Overloaded, PermissionDenied, ResourceNotFound
from wharfinger.policy import Policy
from wharfinger.protocol.observing import Observation, Refusal
from wharfinger.protocol.request import Request
from wharfinger.server import Content
from wharfinger.transports.http_server.app import HttpApp
from wharfinger.transports.stream_server import StreamServer


class RecordingObserver:
    """An observer that records its notifications."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, str, str, int, str]] = []
        self.searches: list[tuple[str, int]] = []
        self.refusals: list[Refusal] = []
        self.watches: list[tuple[list[str], list[str]]] = []
        self.unwatched_uris: list[list[str]] = []
        self.began_count = 0
        self.refuses = False

    def began(self, observation: Observation) -> None:
        self.began_count += 1
        if self.refuses:
            raise Overloaded("not now")

    def ended(self, observation: Observation) -> None:
        self.rows.append(
            (
                observation.request.method,
                observation.target,
                observation.outcome,
                observation.size,
                observation.outer_method,
            )
        )

    def searched(self, request: Request, words: str, hits: int) -> None:
        self.searches.append((words, hits))

    def watched(self, request: Request, uris: Sequence[str], refused: Sequence[str]) -> None:
        self.watches.append((list(uris), list(refused)))

    def unwatched(self, request: Request, uris: Sequence[str]) -> None:
        self.unwatched_uris.append(list(uris))

    def refused(self, refusal: Refusal) -> None:
        self.refusals.append(refusal)

    async def start(self) -> None: ...
    async def close(self) -> None: ...

    def rows_of(self, method: str) -> list[tuple[str, str, int, str]]:
        return [row[1:] for row in self.rows if row[0] == method]


def harbour() -> Server:
    server = Server("harbour")

    @server.resource("notes://today")
    async def today() -> str:
        return "calm"

    @server.tool
    async def repeat(uri: str, ctx: Context) -> str:
        return (await ctx.read_resource(uri)).contents[0].text or ""

    @server.tool
    async def find(word: str, ctx: Context) -> int:
        return len(await ctx.search(word))

    @server.tool
    async def broken() -> str:
        raise RuntimeError("no")

    @server.tool
    async def forbidden() -> str:
        raise PermissionDenied("no")

    @server.tool
    async def busy() -> str:
        raise Overloaded("later")

    return server


async def call_tools(server: Server, *calls: tuple[str, dict[str, Any]]) -> None:
    async with Client(server) as client:
        for name, arguments in calls:
            try:
                await client.call_tool(name, arguments)
            except Exception:  # the tests check what the observer received
                continue


def test_handlers_are_wrapped_only_while_there_are_observers() -> None:
    server = harbour()
    before = dict(server.handlers)
    observer = RecordingObserver()
    server.observers.add(observer)
    assert all(server.handlers[name] is not before[name] for name in before)
    server.observers.remove(observer)
    assert {name: handler.__qualname__ for name, handler in server.handlers.items()} == {
        name: handler.__qualname__ for name, handler in before.items()
    }


@pytest.mark.parametrize(
    ("name", "outcome"),
    [("repeat", "allowed"), ("broken", "failed"), ("forbidden", "failed"), ("busy", "limited"), ("none", "failed")],
)
def test_the_outcome_of_a_call_is_observed_once(name: str, outcome: str) -> None:
    server, observer = harbour(), RecordingObserver()
    server.observers.add(observer)
    asyncio.run(call_tools(server, (name, {"uri": "notes://today"} if name == "repeat" else {})))
    ((target, observed_outcome, size, outer),) = observer.rows_of("tools/call")
    assert (target, observed_outcome, outer) == (name, outcome, "")
    assert size > 20


def test_reads_of_a_handler_are_observed_with_the_size_of_their_contents() -> None:
    server, observer = harbour(), RecordingObserver()
    server.observers.add(observer)
    asyncio.run(call_tools(server, ("repeat", {"uri": "notes://today"}), ("repeat", {"uri": "notes://none"})))
    assert observer.rows_of("resources/read") == [
        ("notes://today", "allowed", 4, "tools/call"),
        ("notes://none", "failed", 0, "tools/call"),
    ]


@pytest.mark.parametrize(
    ("contents", "size"),
    [(b"\xff\0\1", 3), ("skær", 5), ("\ud800", 3), ([Content("æ"), Content(b"\xff\xfe"), Content("")], 4)],
)
def test_the_size_of_a_read_counts_the_bytes_of_all_contents(contents: Any, size: int) -> None:
    server, observer = harbour(), RecordingObserver()
    server.resources.add("notes://sizes", lambda: contents)
    server.observers.add(observer)
    asyncio.run(call_tools(server, ("repeat", {"uri": "notes://sizes"})))
    assert [row[2] for row in observer.rows_of("resources/read")] == [size]


def test_reads_in_a_mounted_server_are_observed_by_its_parent() -> None:
    whole, observer = Server("whole"), RecordingObserver()
    whole.include(harbour(), prefix="part")
    whole.observers.add(observer)
    asyncio.run(call_tools(whole, ("part_repeat", {"uri": "notes://today"})))
    assert observer.rows_of("tools/call")[0][:2] == ("part_repeat", "allowed")
    assert observer.rows_of("resources/read") == [("notes://today", "allowed", 4, "tools/call")]


def test_observers_of_a_mounted_server_and_its_parent_each_observe_a_request_once() -> None:
    whole, part, first, second = Server("whole"), harbour(), RecordingObserver(), RecordingObserver()
    whole.include(part)
    whole.observers.add(first)
    part.observers.add(second)
    asyncio.run(call_tools(whole, ("repeat", {"uri": "notes://today"})))
    for observer in (first, second):
        assert len(observer.rows_of("tools/call")) == 1
        assert observer.rows_of("resources/read") == [("notes://today", "allowed", 4, "tools/call")]


def test_a_search_is_observed_with_its_number_of_hits() -> None:
    server, observer = harbour(), RecordingObserver()
    server.observers.add(observer)
    asyncio.run(call_tools(server, ("find", {"word": "today"}), ("find", {"word": "storm"})))
    assert observer.searches == [("today", 1), ("storm", 0)]


def test_a_refusal_by_the_policy_is_observed_with_its_rule() -> None:
    server = harbour()
    server.policy = Policy.from_toml(
        '[[allow]]\nwho = "anyone"\nwhat = ["tool:*"]\n[[deny]]\nwho = "anyone"\nwhat = ["notes://**"]'
    )
    decisions: list[Any] = []

    class DecisionRecorder(RecordingObserver):
        def ended(self, observation: Observation) -> None:
            super().ended(observation)
            decisions.append(observation.request.decision)

    observer = DecisionRecorder()
    server.observers.add(observer)
    asyncio.run(call_tools(server, ("repeat", {"uri": "notes://today"})))
    assert observer.rows_of("resources/read") == [("notes://today", "refused", 0, "tools/call")]
    assert not decisions[-2].allowed
    assert decisions[-2].rule
    assert decisions[-1].allowed  # the call itself


def test_an_observer_can_refuse_a_request_before_middleware_runs() -> None:
    server, observer = harbour(), RecordingObserver()
    observer.refuses = True
    server.observers.add(observer)
    methods: list[str] = []

    async def record_method(request: Request, next: Any) -> Any:
        methods.append(request.method)
        return await next(request)

    server.methods.add_middleware(record_method)
    with pytest.raises(Exception, match="not now"):
        asyncio.run(call_tools(server, ("repeat", {"uri": "notes://today"})))
    assert methods == []
    assert {row[2] for row in observer.rows} == {"limited"}


def test_an_error_of_an_observer_is_logged_and_does_not_change_the_answer(caplog: pytest.LogCaptureFixture) -> None:
    server = harbour()

    class FailingObserver(RecordingObserver):
        def began(self, observation: Observation) -> None:
            raise RuntimeError("began")

        def ended(self, observation: Observation) -> None:
            raise RuntimeError("ended")

    server.observers.add(FailingObserver())

    async def read() -> str:
        async with Client(server) as client:
            return (await client.read_resource("notes://today")).contents[0].text or ""

    assert asyncio.run(read()) == "calm"
    assert "FailingObserver failed" in caplog.text
    assert "ended failed" in caplog.text


def test_a_cancelled_request_is_observed() -> None:
    server, observer = harbour(), RecordingObserver()
    server.observers.add(observer)

    async def run() -> None:
        started, stopped = asyncio.Event(), asyncio.Event()

        @server.tool
        async def endless() -> str:
            started.set()
            try:
                await asyncio.Event().wait()
            finally:
                stopped.set()
            return ""

        async with Client(server) as client:
            calling = asyncio.ensure_future(client.call_tool("endless", {}))
            await started.wait()
            calling.cancel()
            await asyncio.wait((calling,))
            await stopped.wait()

    asyncio.run(asyncio.wait_for(run(), 10))
    assert observer.rows_of("tools/call") == [("endless", "cancelled", 0, "")]


async def post(app: HttpApp, body: bytes, *headers: tuple[bytes, bytes]) -> int:
    """Send a POST, and return the status of its answer."""
    events: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(event: Any) -> None:
        events.append(event)

    fields = [(b"host", b"127.0.0.1"), (b"content-type", b"application/json"), (b"accept", b"application/json"),
              (b"content-length", b"%d" % len(body)), *headers]  # fmt: skip
    scope = {"type": "http", "method": "POST", "path": "/mcp", "query_string": b"", "headers": fields,
             "client": ("10.1.2.3", 1), "scheme": "http", "http_version": "1.1"}  # fmt: skip
    await app(scope, receive, send)
    status: int = events[0]["status"]
    return status


def test_http_requests_without_a_token_or_a_valid_message_are_observed() -> None:
    server, observer = harbour(), RecordingObserver()
    server.observers.add(observer)

    async def run() -> list[int]:
        app = HttpApp(server, verify=static_token("0123456789abcdef"))
        token = (b"authorization", b"Bearer 0123456789abcdef")
        statuses = [
            await post(app, b"{}", (b"mcp-method", b"resources/read"), (b"mcp-name", b"notes://today")),
            await post(app, b"nonsense", token),
            await post(app, json.dumps({"jsonrpc": "2.0", "id": 1, "method": "no/such", "params": {}}).encode(), token),
        ]
        await app.aclose(0)
        return statuses

    statuses = asyncio.run(run())
    assert [refusal.error.http_status for refusal in observer.refusals] == statuses
    assert statuses[0] == 401
    assert (observer.refusals[0].method, observer.refusals[0].target, observer.refusals[0].address) == (
        "resources/read",
        "notes://today",
        "10.1.2.3",
    )
    assert observer.refusals[1].principal.subject == "token"
    assert observer.rows == []


def test_requests_over_the_limit_of_a_stream_are_observed() -> None:
    server, observer = harbour(), RecordingObserver()
    server.observers.add(observer)
    server.limits = msgspec.structs.replace(server.limits, in_flight=0)

    async def run() -> None:
        stream = StreamServer(server)
        stream.data_received(b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n')
        stream.eof_received()
        await stream.ended

    asyncio.run(run())
    assert [refusal.error.http_status for refusal in observer.refusals] == [503]


def test_a_missing_resource_is_observed_as_a_failure_and_not_as_a_refusal() -> None:
    server, observer = harbour(), RecordingObserver()
    server.observers.add(observer)

    async def run() -> None:
        async with Client(server) as client:
            with pytest.raises(ResourceNotFound):
                await client.read_resource("notes://none")

    asyncio.run(run())
    assert [row[:2] for row in observer.rows_of("resources/read")] == [("notes://none", "failed")]


def test_watches_are_observed_when_they_begin_and_end() -> None:
    server, observer = harbour(), RecordingObserver()
    server.observers.add(observer)

    async def run() -> None:
        async with Client(server) as client, client.watch("notes://today"):
            assert observer.watches == [(["notes://today"], [])]
            assert observer.rows_of("subscriptions/listen") == []

    asyncio.run(run())
    assert [row[0] for row in observer.rows_of("subscriptions/listen")] == [""]


def test_the_end_of_a_session_is_observed_as_the_end_of_its_watches() -> None:
    server, observer = harbour(), RecordingObserver()
    server.observers.add(observer)

    async def run() -> None:
        stream = StreamServer(server)
        await server.start()
        for message in (
            {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": initialize_params("2025-11-25")},
            {"jsonrpc": "2.0", "method": "notifications/initialized"},
            {"jsonrpc": "2.0", "id": 2, "method": "resources/subscribe", "params": {"uri": "notes://today"}},
        ):
            stream.data_received(json.dumps(message).encode() + b"\n")
        while not observer.rows_of("resources/subscribe"):
            await asyncio.sleep(0)
        stream.connection_lost(None)
        await stream.ended
        await server.close()

    asyncio.run(asyncio.wait_for(run(), 10))
    assert observer.rows_of("resources/subscribe")[0][:2] == ("notes://today", "allowed")
    assert observer.unwatched_uris == [["notes://today"]]


async def test_an_error_while_closing_does_not_hide_the_error_of_the_start(caplog: pytest.LogCaptureFixture) -> None:
    """A bug: the error of the start was lost, and the other observers stayed open."""
    closed: list[str] = []

    class Closing(RecordingObserver):
        def __init__(self, name: str) -> None:
            super().__init__()
            self.name = name

        async def close(self) -> None:
            closed.append(self.name)
            raise OSError("cannot be closed")

    class Failing(RecordingObserver):
        async def start(self) -> None:
            raise ValueError("the disk is full")

    server = Server("observed")
    for observer in (Closing("first"), Closing("second"), Failing()):
        server.observers.add(observer)
    with pytest.raises(ValueError, match="the disk is full"):
        await server.start()
    assert closed == ["first", "second"]
    assert "Closing could not be closed" in caplog.text
