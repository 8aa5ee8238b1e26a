"""Hostile answers at 10 and 100 times a base size: time and memory grow no faster than the input."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
import tracemalloc
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec
import pytest

from tests.transports.client_servers import (
    HANDSHAKE,
    ReceivedRequest,
    encode_event,
    encode_result,
    open_link,
    send_request,
    start_event_stream,
    stub_server,
    write_accepted,
    write_response,
)
from wharfinger import Client, Server
from wharfinger import types as t
from wharfinger.auth.client.challenge import parse_challenges
from wharfinger.client.cache import MAX_NAME_CHARACTERS, Cache, CacheStep, Key
from wharfinger.client.callbacks import MAX_WAITING_BYTES, MAX_WAITING_MESSAGES, CallbackQueue
from wharfinger.client.output_schemas import OutputSchemas
from wharfinger.client.results import Listing
from wharfinger.client.settings import LIMITS
from wharfinger.client.subscriptions import MAX_PENDING_CHANGES, MAX_URI_CHARACTERS, _OpenWatch
from wharfinger.client.templates import MAX_TEMPLATE_CHARACTERS
from wharfinger.errors import ConnectionFailed, InvalidResponse, WharfingerError
from wharfinger.protocol.client_peer import MAX_BATCH_MESSAGES, ClientPeer
from wharfinger.protocol.events import NotAMessage, Reply
from wharfinger.protocol.http.headers import InvalidHeaderAnnotation, find_header_params
from wharfinger.protocol.revisions import REVISIONS
from wharfinger.protocol.sse import EventDecoder
from wharfinger.transports.http_client.http_link import MAX_REPLIES

MIB = 1024 * 1024


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 30))


def pending_peer(revision: str = "2025-11-25") -> ClientPeer[str]:
    peer: ClientPeer[str] = ClientPeer(LIMITS)
    peer.rules, peer.handles_requests = REVISIONS[revision], True
    peer.request("tools/list", t.RequestParams(), "one")
    return peer


def receive(data: bytes) -> None:
    pending_peer().receive(data)


def receive_batch(data: bytes) -> None:
    pending_peer("2025-03-26").receive(data)


def read_events(data: bytes) -> None:
    decoder = EventDecoder(LIMITS.message)
    for start in range(0, len(data), 1 << 16):
        decoder.feed(data[start : start + (1 << 16)])


def read_form(data: bytes) -> None:
    t.check_elicitation(msgspec.json.decode(data, type=t.ElicitRequestParams))


def read_tool(data: bytes) -> None:
    tool = msgspec.json.decode(data, type=t.Tool)
    with contextlib.suppress(InvalidHeaderAnnotation):
        find_header_params(tool.input_schema)
    outputs = OutputSchemas()
    outputs.learn(tool)
    with contextlib.suppress(InvalidResponse):
        outputs.check("x", t.CallToolResult(content=[], structured_content={"a": ["b"] * 1000}))


def respond(body: bytes) -> bytes:
    return b'{"jsonrpc":"2.0","id":1,"result":' + body + b"}"


def tool(schema: Any) -> bytes:
    return json.dumps({"name": "x", "inputSchema": schema, "outputSchema": schema}).encode()


def doubling(n: int) -> Any:
    defs = {f"s{i}": {"allOf": [{"$ref": f"#/$defs/s{i + 1}"}] * 2} for i in range(n)}
    return {"$ref": "#/$defs/s0", "$defs": {**defs, f"s{n}": {}}}


CASES: dict[str, tuple[int, Callable[[int], bytes], Callable[[bytes], Any]]] = {
    "nested arrays": (1000, lambda n: respond(b"[" * n + b"]" * n), receive),
    "nested arrays, unclosed": (1000, lambda n: b'{"id":null,"error":' + b"[" * n, receive),
    "empty arrays": (1000, lambda n: respond(b"[" + b"[]," * n + b"0]"), receive),
    "open strings": (1000, lambda n: respond(b'["\\"' * n), receive),
    "spaces": (10_000, lambda n: b"{" + b" " * n + b"x", receive),
    "1e400": (1000, lambda n: respond(b"[" + b"1e400," * n + b"1]"), receive),
    "a member many times": (1000, lambda n: respond(b"{" + b'"a":1,' * n + b'"a":1}'), receive),
    "many members": (1000, lambda n: respond(b"{%s}" % b",".join(b'"%d":1' % i for i in range(n))), receive),
    "a batch of numbers": (10_000, lambda n: b"[" + b"1," * n + b"1]", receive_batch),
    "a batch of pings": (
        100, lambda n: b"[%s]" % b",".join([b'{"jsonrpc":"2.0","id":1,"method":"ping"}'] * n), receive_batch),
    "a nested batch": (1000, lambda n: b"[" * n + b"]" * n, receive_batch),
    "events without data": (1000, lambda n: b"id:1\n\n" * n, read_events),
    "empty lines of data": (1000, lambda n: b"data:\n" * n, read_events),
    "a line without end": (10_000, lambda n: b"data:" + b"x" * n, read_events),
    "carriage returns": (1000, lambda n: b"\r" * n, read_events),
    "challenges": (1000, lambda n: b"a " * n, lambda data: parse_challenges(data.decode())),
    "parameters": (1000, lambda n: b"Bearer " + b'a="b",' * n, lambda data: parse_challenges(data.decode())),
    "an open parameter": (1000, lambda n: b'Bearer a="' + b"\\" * n, lambda data: parse_challenges(data.decode())),
    "a form": (
        100, lambda n: json.dumps({"message": "?", "requestedSchema": {"type": "object", "properties": {
            str(i): {"type": "string", "pattern": "(a+)+$"} for i in range(n)}}}).encode(), read_form),
    "a schema of many fields": (
        10, lambda n: tool({"type": "object", "properties": {
            str(i): {"type": "string", "x-mcp-header": str(i)} for i in range(n)}}), read_tool),
    "a schema of references": (10, lambda n: tool(doubling(n)), read_tool),
    "a schema of patterns": (
        10, lambda n: tool({"patternProperties": {"(a|b)*" * i + "c$": {} for i in range(n)}}), read_tool),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_time_and_memory_grow_no_faster_than_the_input(name: str) -> None:
    """Compare ten times the size with a hundred times, since smaller sizes are noise."""
    size, make, use = CASES[name]
    spent: list[tuple[float, int]] = []
    use(make(size))  # created once
    for times in (10, 100):
        data = make(size * times)
        seconds = min(_timed(use, data) for _ in range(3))
        tracemalloc.start()
        use(data)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        spent.append((seconds, peak))
        assert peak < 64 * len(data) + MIB
    (before, _), (after, _) = spent
    assert after < max(60 * before, 0.5)


def _timed(use: Callable[[bytes], Any], data: bytes) -> float:
    begun = time.perf_counter()
    use(data)
    return time.perf_counter() - begun


@pytest.mark.parametrize(
    "head", [b'{"jsonrpc":"2.0","id":null,"error":', b"[", b'[{"a":', b'{"jsonrpc":"2.0","id":1,"error":']
)
@pytest.mark.parametrize("revision", ["2025-03-26", "2025-11-25", "2026-07-28"])
def test_deep_nesting_raises_no_exception(head: bytes, revision: str) -> None:
    pending_peer(revision).receive(head + b"[" * 100_000)
    pending_peer(revision).receive(head + b"[" * 100_000 + b"]" * 100_000 + (b"}" if head[:1] == b"{" else b"]"))


def test_a_batch_over_the_limit_is_not_a_message() -> None:
    ping = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
    events = pending_peer("2025-03-26").receive(b"[%s]" % b",".join([ping] * MAX_BATCH_MESSAGES))
    assert [type(event) for event in events] == [Reply] * MAX_BATCH_MESSAGES
    (event,) = pending_peer("2025-03-26").receive(b"[%s]" % b",".join([ping] * (MAX_BATCH_MESSAGES + 1)))
    assert type(event) is NotAMessage


# Lists.


@pytest.mark.parametrize("cycle", [1, 2, 7])
def test_a_list_with_repeated_cursors_raises_an_error(cycle: int) -> None:
    cursors: list[Any] = []

    async def page(cursor: Any) -> tuple[list[int], str]:
        cursors.append(cursor)
        return [1], f"cursor {len(cursors) % cycle}"

    async def test() -> None:
        with pytest.raises(InvalidResponse, match="never ends"):
            await Listing(page, 10_000)

    run(test())
    assert len(cursors) == cycle + 1


def test_a_template_over_the_limit_raises_an_error() -> None:
    async def uri(text: str) -> str:
        async def lists(call: Any, next: Any) -> t.ListResourceTemplatesResult:
            return t.ListResourceTemplatesResult(resource_templates=[t.ResourceTemplate(name="x", uri_template=text)])

        async with Client(Server("templates"), middleware=[lists]) as client:
            return await client.template("x").uri()

    assert len(asyncio.run(uri("x" * MAX_TEMPLATE_CHARACTERS))) == MAX_TEMPLATE_CHARACTERS
    with pytest.raises(InvalidResponse, match=str(MAX_TEMPLATE_CHARACTERS)):
        asyncio.run(uri("x" * (MAX_TEMPLATE_CHARACTERS + 1)))


# Floods of messages.


def test_messages_for_a_slow_function_are_bounded_in_number_and_bytes() -> None:
    async def reported(count: int, size: int) -> list[int]:
        released, numbers = asyncio.Event(), list[int]()

        async def slow(number: int) -> None:
            await released.wait()
            numbers.append(number)

        queue = CallbackQueue(slow)
        for number in range(count):
            queue.put(number, size=size)
        released.set()
        await queue.finished()
        return numbers

    async def test() -> None:
        assert await reported(100, MAX_WAITING_BYTES // 10) == [0, *range(90, 100)]
        assert await reported(MAX_WAITING_MESSAGES + 1, 1) == list(range(MAX_WAITING_MESSAGES + 1))
        assert len(await reported(MAX_WAITING_MESSAGES + 2, 1)) == MAX_WAITING_MESSAGES + 1

    run(test())


def test_messages_are_delivered_after_a_queue_was_stopped_at_once() -> None:
    """A bug: a client that was closed in the same turn in which a message arrived lost all later messages."""

    async def test() -> None:
        delivered: list[str] = []
        returned = asyncio.get_running_loop().create_future()
        returned.set_result(None)

        def note(text: str) -> asyncio.Future[None]:
            delivered.append(text)
            return returned

        queue = CallbackQueue(note)
        queue.put("before")
        queue.stop()
        await queue.finished()
        queue.put("after")
        assert delivered == ["before", "after"]
        await queue.finished()

    run(test())


def test_pending_changes_are_bounded_in_number_and_bytes() -> None:
    async def test() -> None:
        subscription = _OpenWatch(("a:",), False, asyncio.get_running_loop().create_future())
        for number in range(10 * MAX_PENDING_CHANGES):
            subscription.put("resource", f"a:{number}")
            assert len(subscription.pending) <= MAX_PENDING_CHANGES + 1
        subscription.put("resource", "a:" + "x" * (MAX_URI_CHARACTERS - 2))
        assert any(len(uri) == MAX_URI_CHARACTERS for _, uri in subscription.pending)
        subscription.put("resource", "a:" + "x" * (MAX_URI_CHARACTERS - 1))
        assert subscription.pending == {("resource", "a:"): False}
        assert (await subscription.take()).uri == "a:"

    run(test())


def test_a_flood_of_changes_is_handled_quickly_with_a_full_cache() -> None:
    """Each change notification is compared with all results in the cache."""
    cache = Cache()
    step = CacheStep(cache, "http://x", {}, t.ClientCapabilities())
    step.connection_made(REVISIONS["2026-07-28"], t.ServerCapabilities())
    for number in range(1024):
        params = t.ReadResourceRequestParams(uri=f"file:///{number}/{'x' * 200}")
        key, _ = step.find_key("resources/read", params)
        assert key is not None
        cache.put(key, b"{}", 100, public=True)
    begun = time.perf_counter()
    for number in range(1000):
        step.changed("resource", f"file:///other/{number}")
    assert time.perf_counter() - begun < 20
    assert len(cache) == 1024


def test_a_list_with_a_long_cursor_is_not_cached() -> None:
    step = CacheStep(Cache(), "http://x", {}, t.ClientCapabilities())
    step.connection_made(REVISIONS["2026-07-28"], t.ServerCapabilities())
    kept, too_long = (
        t.PaginatedRequestParams(cursor="x" * length) for length in (MAX_NAME_CHARACTERS, MAX_NAME_CHARACTERS + 1)
    )
    assert isinstance(step.find_key("tools/list", kept)[0], Key)
    assert step.find_key("tools/list", too_long)[0] is None


@pytest.mark.parametrize("handled", [True, False])
def test_a_flood_of_requests_over_http_causes_no_flood_of_posts(handled: bool) -> None:
    posted = 0

    async def serve(request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        nonlocal posted
        if "method" not in request.message:
            posted += 1
            write_accepted(writer)
            return
        start_event_stream(writer)
        writer.write(b"".join(encode_event(id=f"q{number}", method="roots/list") for number in range(5000)))
        writer.write(encode_event(id=request.message["id"], result={}))
        writer.close()

    async def test() -> None:
        async with open_link(serve, rules=HANDSHAKE) as link:

            async def roots(_: Any) -> Any:
                return {"roots": []}

            link.events.on_request = roots if handled else None
            await send_request(link)
            assert len(link._replies) <= 2 * MAX_REPLIES

    run(test())
    assert posted <= 10 * MAX_REPLIES


# HTTP.


async def open_error(client: Client) -> WharfingerError:
    with pytest.raises(WharfingerError) as caught:
        await client.open()
    return caught.value


@pytest.mark.parametrize("times", [1, 10, 100])
@pytest.mark.parametrize(
    "head",
    [
        lambda n: b"WWW-Authenticate: Bearer " + b'a="b",' * n,
        lambda n: b"\r\n".join([b"WWW-Authenticate: Bearer"] * n),
        lambda n: b"X: " + b"\xff" * n,
        lambda n: b"Content-Type: text/html" + b";" * min(n, 7000),
        lambda n: b"Content-Type: " + b'a/b; c="\\"' * min(n, 700),
        lambda n: b"Location: /" + b"../" * min(n, 2000),
    ],
    ids=["challenge", "challenges", "header", "semicolons", "quotes", "location"],
)
def test_long_response_headers_are_refused_quickly(head: Callable[[int], bytes], times: int) -> None:
    """aiohttp accepts up to 128 fields of 8 KiB. Fields within these limits must be handled quickly."""

    async def serve(request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        field = head(100 * times)
        status = b"307 Moved" if field.startswith(b"Location") else b"401 No"
        writer.write(b"HTTP/1.1 " + status + b"\r\n" + field + b"\r\nContent-Length: 0\r\n\r\n")

    async def test() -> None:
        async with stub_server(serve) as base:
            begun = time.perf_counter()
            error = await open_error(Client(f"{base}/mcp", open_timeout=20))
            assert time.perf_counter() - begun < 20
            assert len(str(error)) < 2000

    run(test())


@pytest.mark.parametrize("content_type", ["text/html", "text/event-stream", "x" * 5000, ""])
def test_a_body_over_the_limit_is_not_kept_in_memory(content_type: str) -> None:
    async def serve(request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        head = f"HTTP/1.1 200 OK\r\nContent-Type: {content_type}\r\nConnection: close\r\n\r\n"
        writer.write(head.encode())
        for _ in range(64):
            writer.write(b"x" * MIB)
            await writer.drain()
        writer.close()

    async def test() -> None:
        async with open_link(serve) as link:
            tracemalloc.start()
            with pytest.raises(WharfingerError) as caught:
                await send_request(link)
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            assert peak < 24 * MIB  # the server runs in this process too
            assert len(str(caught.value)) < 1000

    run(test())


def test_instructions_of_10_mib_are_read() -> None:
    async def serve(request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        if request.message.get("method") == "initialize":
            info = {"name": "x", "version": "1"}
            reported = {"capabilities": {}, "serverInfo": info, "instructions": "x" * 10 * MIB}
            write_response(writer, encode_result(request, protocolVersion="2025-11-25", **reported))
        elif "id" in request.message:
            write_response(
                writer,
                json.dumps(
                    {"jsonrpc": "2.0", "id": request.message["id"], "error": {"code": -32601, "message": "x" * MIB}}
                ).encode(),
            )
        else:
            write_accepted(writer)

    async def test() -> None:
        async with stub_server(serve) as base, Client(f"{base}/mcp") as client:
            assert len(client.instructions or "") == 10 * MIB

    run(test())


def test_endless_redirects_raise_an_error() -> None:
    paths: list[str] = []

    async def serve(request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        paths.append(request.path)
        writer.write(b"HTTP/1.1 307 Moved\r\nLocation: %sx\r\nContent-Length: 0\r\n\r\n" % request.path.encode())

    async def test() -> None:
        async with stub_server(serve) as base:
            with pytest.raises(ConnectionFailed, match="redirects more than"):
                await Client(f"{base}/mcp").open()

    run(test())
    assert len(paths) == 4


def test_text_with_deeply_nested_json_is_an_invalid_response() -> None:
    """Regression: a RecursionError. The limit of a message's depth does not count JSON in a text."""
    server = Server("hostile")

    @server.tool
    def nested() -> t.CallToolResult:
        return t.CallToolResult(content=[t.TextContent(text="[" * 100_000)])

    @server.resource("a:nested", mime_type="application/json")
    def resource() -> str:
        return "[" * 100_000

    async def test() -> None:
        async with Client(server) as client:
            with pytest.raises(InvalidResponse):
                await client.call_tool("nested", returns=dict)
            with pytest.raises(ValueError, match="a:nested is not the JSON"):
                (await client.read_resource("a:nested")).json()

    run(test())
