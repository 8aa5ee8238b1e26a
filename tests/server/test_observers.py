"""Observers see every request once: its outcome, the size of its answer, and what its handler read."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest

from wharfinger import Client, Context, Server
from wharfinger.errors import Overloaded, PermissionDenied, ResourceNotFound
from wharfinger.policy import Policy
from wharfinger.protocol.observing import Observation, Refusal
from wharfinger.protocol.request import Request
from wharfinger.transports.http_server.app import HttpApp
from wharfinger.transports.stream_server import StreamServer


class Seen:
    """Records its calls."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, str, str, int, str]] = []
        self.searches: list[tuple[str, int]] = []
        self.refusals: list[Refusal] = []
        self.watches: list[tuple[list[str], list[str]]] = []
        self.ends: list[list[str]] = []
        self.began_count = 0
        self.refusing = False

    def began(self, seen: Observation) -> None:
        self.began_count += 1
        if self.refusing:
            raise Overloaded("not now")

    def ended(self, seen: Observation) -> None:
        self.rows.append((seen.request.method, seen.target, seen.outcome, seen.size, seen.outer))

    def searched(self, request: Request, words: str, hits: int) -> None:
        self.searches.append((words, hits))

    def watched(self, request: Request, uris: Sequence[str], refused: Sequence[str]) -> None:
        self.watches.append((list(uris), list(refused)))

    def unwatched(self, request: Request, uris: Sequence[str]) -> None:
        self.ends.append(list(uris))

    def refused(self, refusal: Refusal) -> None:
        self.refusals.append(refusal)

    async def start(self) -> None: ...
    async def close(self) -> None: ...

    def of(self, method: str) -> list[tuple[str, str, int, str]]:
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


async def call(server: Server, *names: tuple[str, dict[str, Any]]) -> None:
    async with Client(server) as client:
        for name, arguments in names:
            try:
                await client.call_tool(name, arguments)
            except Exception:  # this test is about the observer
                continue


def test_a_server_without_observers_has_the_handlers_themselves() -> None:
    server = harbour()
    before = dict(server.handlers)
    seen = Seen()
    server.observers.add(seen)
    assert all(server.handlers[name] is not before[name] for name in before)
    server.observers.remove(seen)
    assert {name: handler.__qualname__ for name, handler in server.handlers.items()} == {
        name: handler.__qualname__ for name, handler in before.items()
    }


@pytest.mark.parametrize(
    ("name", "outcome"),
    [("repeat", "allowed"), ("broken", "failed"), ("forbidden", "failed"), ("busy", "limited"), ("none", "failed")],
)
def test_the_outcome_of_a_call_is_seen_once(name: str, outcome: str) -> None:
    server, seen = harbour(), Seen()
    server.observers.add(seen)
    asyncio.run(call(server, (name, {"uri": "notes://today"} if name == "repeat" else {})))
    ((target, what, size, outer),) = seen.of("tools/call")
    assert (target, what, outer) == (name, outcome, "")
    assert size > 20


def test_reads_of_a_handler_are_seen_with_the_size_of_their_contents() -> None:
    server, seen = harbour(), Seen()
    server.observers.add(seen)
    asyncio.run(call(server, ("repeat", {"uri": "notes://today"}), ("repeat", {"uri": "notes://none"})))
    assert seen.of("resources/read") == [
        ("notes://today", "allowed", 4, "tools/call"),
        ("notes://none", "failed", 0, "tools/call"),
    ]


def test_reads_of_a_mounted_server_are_seen_by_the_outer_server() -> None:
    whole, seen = Server("whole"), Seen()
    whole.include(harbour(), prefix="part")
    whole.observers.add(seen)
    asyncio.run(call(whole, ("part_repeat", {"uri": "notes://today"})))
    assert seen.of("tools/call")[0][:2] == ("part_repeat", "allowed")
    assert seen.of("resources/read") == [("notes://today", "allowed", 4, "tools/call")]


def test_observers_of_a_mounted_server_and_of_its_parent_each_see_a_request_once() -> None:
    whole, part, first, second = Server("whole"), harbour(), Seen(), Seen()
    whole.include(part)
    whole.observers.add(first)
    part.observers.add(second)
    asyncio.run(call(whole, ("repeat", {"uri": "notes://today"})))
    for seen in (first, second):
        assert len(seen.of("tools/call")) == 1
        assert seen.of("resources/read") == [("notes://today", "allowed", 4, "tools/call")]


def test_a_search_is_seen_with_its_hits() -> None:
    server, seen = harbour(), Seen()
    server.observers.add(seen)
    asyncio.run(call(server, ("find", {"word": "today"}), ("find", {"word": "storm"})))
    assert seen.searches == [("today", 1), ("storm", 0)]


def test_a_refusal_by_the_policy_is_seen_with_its_rule() -> None:
    server, seen = harbour(), Seen()
    server.policy = Policy.from_toml(
        '[[allow]]\nwho = "anyone"\nwhat = ["tool:*"]\n[[deny]]\nwho = "anyone"\nwhat = ["notes://**"]'
    )
    decisions: list[Any] = []

    class Rules(Seen):
        def ended(self, seen: Observation) -> None:
            super().ended(seen)
            decisions.append(seen.request.decision)

    seen = Rules()
    server.observers.add(seen)
    asyncio.run(call(server, ("repeat", {"uri": "notes://today"})))
    assert seen.of("resources/read") == [("notes://today", "refused", 0, "tools/call")]
    assert not decisions[-2].allowed
    assert decisions[-2].rule
    assert decisions[-1].allowed  # the call itself


def test_a_refusing_observer_is_called_first_and_sees_the_end() -> None:
    server, seen = harbour(), Seen()
    seen.refusing = True
    server.observers.add(seen)
    called: list[str] = []

    async def around(request: Request, next: Any) -> Any:
        called.append(request.method)
        return await next(request)

    server.methods.add_middleware(around)
    with pytest.raises(Exception, match="not now"):
        asyncio.run(call(server, ("repeat", {"uri": "notes://today"})))
    assert called == []
    assert {row[2] for row in seen.rows} == {"limited"}


def test_an_observer_that_fails_changes_no_answer(caplog: pytest.LogCaptureFixture) -> None:
    server = harbour()

    class Broken(Seen):
        def began(self, seen: Observation) -> None:
            raise RuntimeError("began")

        def ended(self, seen: Observation) -> None:
            raise RuntimeError("ended")

    server.observers.add(Broken())

    async def read() -> str:
        async with Client(server) as client:
            return (await client.read_resource("notes://today")).contents[0].text or ""

    assert asyncio.run(read()) == "calm"
    assert "Broken failed" in caplog.text
    assert "ended failed" in caplog.text


def test_a_cancelled_request_is_seen() -> None:
    server, seen = harbour(), Seen()
    server.observers.add(seen)

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
    assert seen.of("tools/call") == [("endless", "cancelled", 0, "")]


async def http(app: HttpApp, body: bytes, *headers: tuple[bytes, bytes]) -> int:
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
    from wharfinger.auth import static_token

    server, seen = harbour(), Seen()
    server.observers.add(seen)

    async def run() -> list[int]:
        app = HttpApp(server, verify=static_token("0123456789abcdef"))
        token = (b"authorization", b"Bearer 0123456789abcdef")
        statuses = [
            await http(app, b"{}", (b"mcp-method", b"resources/read"), (b"mcp-name", b"notes://today")),
            await http(app, b"nonsense", token),
            await http(app, json.dumps({"jsonrpc": "2.0", "id": 1, "method": "no/such", "params": {}}).encode(), token),
        ]
        await app.aclose(0)
        return statuses

    statuses = asyncio.run(run())
    assert [refusal.error.http_status for refusal in seen.refusals] == statuses
    assert statuses[0] == 401
    assert (seen.refusals[0].method, seen.refusals[0].target, seen.refusals[0].address) == (
        "resources/read",
        "notes://today",
        "10.1.2.3",
    )
    assert seen.refusals[1].principal.subject == "token"
    assert seen.rows == []


def test_requests_beyond_the_limit_of_a_stream_are_seen() -> None:
    import dataclasses

    import msgspec

    server, seen = harbour(), Seen()
    server.observers.add(seen)
    limits: Any = server.limits
    replace = msgspec.structs.replace if isinstance(limits, msgspec.Struct) else dataclasses.replace
    server.limits = replace(limits, in_flight=0)

    async def run() -> None:
        stream = StreamServer(server)
        stream.data_received(b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n')
        stream.eof_received()
        await stream.ended

    asyncio.run(run())
    assert [refusal.error.http_status for refusal in seen.refusals] == [503]


def test_missing_resources_are_failures_and_not_refusals() -> None:
    server, seen = harbour(), Seen()
    server.observers.add(seen)

    async def run() -> None:
        async with Client(server) as client:
            with pytest.raises(ResourceNotFound):
                await client.read_resource("notes://none")

    asyncio.run(run())
    assert [row[:2] for row in seen.of("resources/read")] == [("notes://none", "failed")]


def test_watches_are_seen_when_they_begin_and_end() -> None:
    server, seen = harbour(), Seen()
    server.observers.add(seen)

    async def run() -> None:
        async with Client(server) as client, client.watch("notes://today"):
            assert seen.watches == [(["notes://today"], [])]
            assert seen.of("subscriptions/listen") == []

    asyncio.run(run())
    assert [row[0] for row in seen.of("subscriptions/listen")] == [""]


def test_the_end_of_a_session_is_observed_as_the_end_of_its_watches() -> None:
    server, seen = harbour(), Seen()
    server.observers.add(seen)

    async def run() -> None:
        stream = StreamServer(server)
        await server.start()
        hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
        for message in (
            {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello},
            {"jsonrpc": "2.0", "method": "notifications/initialized"},
            {"jsonrpc": "2.0", "id": 2, "method": "resources/subscribe", "params": {"uri": "notes://today"}},
        ):
            stream.data_received(json.dumps(message).encode() + b"\n")
        while not seen.of("resources/subscribe"):
            await asyncio.sleep(0)
        stream.connection_lost(None)
        await stream.ended
        await server.close()

    asyncio.run(asyncio.wait_for(run(), 10))
    assert seen.of("resources/subscribe")[0][:2] == ("notes://today", "allowed")
    assert seen.ends == [["notes://today"]]
