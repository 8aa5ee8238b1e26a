"""Limits of callers: over HTTP in both eras, over stdio, and with `Client`."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from typing import Any, cast

import msgspec
import pytest

from tests.server.driving import initialize_params, make_request
from tests.server.test_feature_scopes import StubVerifier, send
from tests.transports.http_support import HANDSHAKE, STATELESS, RawClient, ServerThread
from wharfinger import Client, Context, Server
from wharfinger.auth import TokenAuth
from wharfinger.client import NEVER, Retry
from wharfinger.errors import Overloaded, RemoteError
from wharfinger.policy import Limit, Policy, Rule
from wharfinger.protocol.http.rules import HttpLimits
from wharfinger.protocol.principal import LOCAL
from wharfinger.transports.http_server.open_calls import HOLD_BACK_SECONDS, MAX_HELD_BACK, OpenCalls


class Harbour:
    """A server with a large resource, and tools that wait, read its own resources, and send many messages."""

    def __init__(self, *limits: Limit) -> None:
        self.server = server = Server("harbour", policy=Policy(limits=limits))
        self.gate = threading.Event()
        self.entered = threading.Semaphore(0)

        @server.resource("harbour://{name}")
        def resource(name: str) -> str:
            return "x" * (10_000 if name == "large" else 10)

        @server.tool
        def wait() -> str:
            self.entered.release()
            assert self.gate.wait(20)
            return "waited"

        @server.tool
        async def fetch(ctx: Context) -> str:
            for _ in range(5):
                await ctx.read_resource("harbour://small")
            return "read"

        @server.tool
        async def chatter(ctx: Context) -> str:
            for _ in range(20):
                await ctx.info("x" * 100)
            return "said"


@pytest.fixture
def harbour(request: pytest.FixtureRequest) -> Iterator[tuple[Harbour, ServerThread]]:
    """A harbour with the limits of the test, and its HTTP server."""
    limits = request.param if isinstance(request.param, tuple) else (request.param,)
    harbour = Harbour(*limits)
    with ServerThread(cast("Any", harbour.server), auth=TokenAuth(StubVerifier())) as http:
        try:
            yield harbour, http
        finally:
            harbour.gate.set()


def with_limits(*limits: Limit) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("harbour", [limits], indirect=True, ids=["limits"])


SMALL = {"uri": "harbour://small"}


@with_limits(Limit(do="read", calls="3/h"))
@pytest.mark.parametrize("era", [STATELESS, HANDSHAKE])
def test_a_call_over_the_limit_gets_429_with_retry_after(harbour: tuple[Harbour, ServerThread], era: str) -> None:
    """Security P09: by principal, with any token, session and connection."""
    for n in range(6):
        with harbour[1].connect() as client:
            reply = send(client, era, f"ann/scope{n}", "resources/read", SMALL)
            assert reply.status == (200 if n < 3 else 429)
            if n >= 3:
                assert int(reply.headers["retry-after"]) in range(1195, 1201)
                error = reply.json["error"]
                assert (error["code"], error["data"]) == (-32603, {"retryAfter": int(reply.headers["retry-after"])})
                assert error["message"].startswith("The limit calls = 3/h is reached: try again in ")
    with harbour[1].connect() as client:
        assert send(client, era, "bob", "resources/read", SMALL).status == 200
        assert send(client, era, "ann", "tools/list", {}).status == 200, "the limit applies to reads"


@with_limits(Limit(do="read", calls="2/h"))
def test_both_eras_share_a_limit(harbour: tuple[Harbour, ServerThread]) -> None:
    with harbour[1].connect() as client:
        statuses = [send(client, era, "ann", "resources/read", SMALL).status for era in (STATELESS, HANDSHAKE) * 2]
        assert statuses == [200, 200, 429, 429]


@with_limits(Limit(do="read", calls="2/h"))
def test_each_request_of_a_batch_counts(harbour: tuple[Harbour, ServerThread]) -> None:
    with harbour[1].connect() as client:
        token: dict[str, str | None] = {"authorization": "Bearer ann"}
        session = client.call_in_session("", "initialize", initialize_params("2025-03-26"), 0, **token).headers[
            "mcp-session-id"
        ]
        requests = [{"jsonrpc": "2.0", "id": n, "method": "resources/read", "params": SMALL} for n in range(4)]
        client.post(requests, mcp_session_id=session, **token)
        reply = client.reply()
        assert reply.status == 200
        errors = [answer["error"] for answer in reply.json if "error" in answer]
        assert len(errors) == 2 and all(error["data"]["retryAfter"] > 1700 for error in errors)


@with_limits(Limit(do="read", bytes="12000B/h"))
@pytest.mark.parametrize("era", [STATELESS, HANDSHAKE])
def test_the_next_call_is_refused_after_answers_exceed_the_byte_limit(
    harbour: tuple[Harbour, ServerThread], era: str
) -> None:
    with harbour[1].connect() as client:
        first = send(client, era, "ann", "resources/read", {"uri": "harbour://large"})
        assert first.status == 200 and 10_000 < len(first.body) < 12_000
        assert send(client, era, "ann", "resources/read", {"uri": "harbour://large"}).status == 200
        refused = send(client, era, "ann", "resources/read", SMALL)
        assert refused.status == 429
        debt = 2 * len(first.body) - 12_000
        assert abs(int(refused.headers["retry-after"]) - debt * 3600 / 12_000) < 10
        assert send(client, era, "bob", "resources/read", SMALL).status == 200


@with_limits(Limit(do="call", bytes="1000B/h"))
@pytest.mark.parametrize("era", [HANDSHAKE])
def test_messages_before_the_answer_count_towards_the_byte_limit(
    harbour: tuple[Harbour, ServerThread], era: str
) -> None:
    with harbour[1].connect() as client:
        first = send(client, era, "ann", "tools/call", {"name": "chatter"})
        assert first.status == 200 and len(first.body) > 2000
        refused = send(client, era, "ann", "tools/call", {"name": "chatter"})
        assert int(refused.headers["retry-after"]) > 3600


@with_limits(Limit(do="call", bytes="1000B/h"))
def test_messages_that_are_not_sent_do_not_count_towards_the_byte_limit(harbour: tuple[Harbour, ServerThread]) -> None:
    """A client that accepts no event stream gets no messages before the answer."""
    headers: dict[str, str | None] = {"authorization": "Bearer ann", "accept": "application/json"}
    with harbour[1].connect() as client:
        session = client.initialize(authorization="Bearer ann")
        for number in (1, 2):
            reply = client.call_in_session(session, "tools/call", {"name": "chatter"}, number, **headers)
            assert (reply.status, reply.json["result"]["content"][0]["text"]) == (200, "said")


@with_limits(Limit(parallel=2))
@pytest.mark.parametrize("era", [STATELESS, HANDSHAKE])
def test_parallel_calls_are_counted_until_they_end(harbour: tuple[Harbour, ServerThread], era: str) -> None:
    controls, http = harbour
    token: dict[str, str | None] = {"authorization": "Bearer ann"}
    with http.connect() as first, http.connect() as second, http.connect() as third:
        for client in (first, second):
            send_wait(client, era, token)
            assert controls.entered.acquire(timeout=40)
        refused = call_wait(third, era, token)
        assert (refused.status, refused.headers["retry-after"]) == (429, "1")
        controls.gate.set()
        assert first.reply().status == second.reply().status == 200
        assert call_wait(third, era, token).status == 200


def send_wait(client: RawClient, era: str, token: dict[str, str | None]) -> None:
    """Send a call of the tool `wait`."""
    session = client.initialize(**token) if era == HANDSHAKE else ""
    if session:
        client.send_in_session(session, "tools/call", {"name": "wait"}, **token)
    else:
        client.send_stateless("tools/call", {"name": "wait"}, mcp_name="wait", **token)


def call_wait(client: RawClient, era: str, token: dict[str, str | None]) -> Any:
    """Call the tool `wait`, and return the reply."""
    send_wait(client, era, token)
    return client.reply()


@with_limits(Limit(parallel=1))
def test_a_watch_does_not_count_as_a_parallel_call(harbour: tuple[Harbour, ServerThread]) -> None:
    token: dict[str, str | None] = {"authorization": "Bearer ann"}
    with harbour[1].connect() as client, harbour[1].connect() as other:
        client.listen("harbour://small", **token)
        assert other.call("resources/read", SMALL, **token).status == 200


@with_limits(Limit(do="call", calls="2/h"), Limit(do="read", calls="2/h"))
def test_nested_reads_of_a_tool_count_as_one_read(harbour: tuple[Harbour, ServerThread]) -> None:
    token: dict[str, str | None] = {"authorization": "Bearer ann"}
    with harbour[1].connect() as client:
        client.send_stateless("tools/call", {"name": "fetch"}, mcp_name="fetch", **token)
        reply = client.reply()
        assert reply.status == 200 and reply.json["result"]["content"][0]["text"] == "read"
        assert [client.call("resources/read", SMALL, **token).status for _ in range(2)] == [200, 429]


def test_anonymous_callers_are_limited_by_address() -> None:
    with ServerThread(cast("Any", Harbour(Limit(do="read", calls="2/h")).server)) as http:
        statuses = []
        for _ in range(3):
            with http.connect() as client:
                statuses.append(client.call("resources/read", SMALL).status)
        assert statuses == [200, 200, 429]


def test_a_reload_of_the_policy_keeps_the_counts() -> None:
    harbour = Harbour(Limit(do="read", calls="2/h"))
    with ServerThread(cast("Any", harbour.server)) as http, http.connect() as client:
        assert [client.call("resources/read", SMALL).status for _ in range(3)] == [200, 200, 429]
        allow = [Rule(who="anyone")]
        for limits, status in (
            ([Limit(do="read", calls="2/h"), Limit(calls="9/s")], 429),
            ([], 200),
            ([Limit(do="read", calls="5/h")], 200),
        ):
            policy = Policy(allow=allow, limits=limits)
            http.call(lambda policy=policy: setattr(harbour.server, "policy", policy))
            assert client.call("resources/read", SMALL).status == status


async def test_all_stdio_connections_of_the_local_user_share_a_limit() -> None:
    server = Harbour(Limit(who="local", do="read", calls="2/h")).server
    for n in range(3):
        request = make_request(server, "resources/read", SMALL)
        request.caller = msgspec.structs.replace(request.caller, principal=LOCAL)
        if n < 2:
            await server.handlers["resources/read"](request)
        else:
            with pytest.raises(Overloaded) as refused:
                await server.handlers["resources/read"](request)
            assert refused.value.data == {"retryAfter": 1800}


async def test_the_client_retries_after_the_time_named_by_the_server() -> None:
    server = Harbour(Limit(do=("read", "call"), calls="1/s")).server
    loop = asyncio.get_running_loop()
    with ServerThread(cast("Any", server)) as http:
        async with Client(f"http://127.0.0.1:{http.port}/mcp", retry=Retry(initial_delay=0.01)) as client:
            begun = loop.time()
            for _ in range(2):
                await client.read_resource("harbour://small", bypass_cache=True)
            assert 1 <= loop.time() - begun < 5
            assert (await client.call_tool("fetch")).content, "the call is retried until it is served"


@pytest.mark.parametrize(
    ("limit", "retry", "timeout"),
    [("1/h", Retry(), 60.0), ("1/min", Retry(max_delay=100), 5.0), ("1/s", NEVER, 60.0), ("1/s", Retry(), 0.5)],
)
async def test_the_client_raises_at_once_if_the_wait_is_too_long(limit: str, retry: Retry, timeout: float) -> None:
    server = Harbour(Limit(do="read", calls=limit)).server
    loop = asyncio.get_running_loop()
    async with Client(server, retry=retry) as client:
        await client.read_resource("harbour://small", bypass_cache=True)
        begun = loop.time()
        with pytest.raises(RemoteError, match=f"calls = {limit}") as refused:
            await client.read_resource("harbour://small", bypass_cache=True, timeout=timeout)
        assert refused.value.data["retryAfter"] >= 1
        assert loop.time() - begun < 0.4


async def test_a_call_with_retry_false_is_not_retried() -> None:
    server = Harbour(Limit(do="call", calls="1/s")).server
    async with Client(server) as client:
        await client.call_tool("fetch")
        with pytest.raises(RemoteError, match="calls = 1/s"):
            await client.call_tool("fetch", retry=False)


async def test_requests_are_not_counted_without_limits() -> None:
    server = Harbour().server
    server.policy = Policy(allow=[Rule(who="anyone")])
    request = make_request(server, "resources/read", SMALL)
    await server.handlers["resources/read"](request)
    assert request.usage is None and request.on_answer == ()


@with_limits(Limit(do="read", calls="1/h"))
def test_a_refusal_is_delayed_without_delaying_other_callers(harbour: tuple[Harbour, ServerThread]) -> None:
    ann: dict[str, str | None] = {"authorization": "Bearer ann"}
    bob: dict[str, str | None] = {"authorization": "Bearer bob"}
    with harbour[1].connect() as client, harbour[1].connect() as other:
        assert client.call("resources/read", SMALL, **ann).status == 200
        begun = time.monotonic()
        client.send_stateless("resources/read", SMALL, **ann)
        assert other.call("resources/read", SMALL, **bob).status == 200
        answered = time.monotonic() - begun
        assert client.reply().status == 429
        assert time.monotonic() - begun >= max(HOLD_BACK_SECONDS[0] - 0.01, answered)


async def test_the_number_of_delayed_refusals_is_bounded() -> None:
    calls = OpenCalls(cast("Any", Harbour().server), HttpLimits())
    waiting = [asyncio.ensure_future(calls.hold_back()) for _ in range(MAX_HELD_BACK)]
    await asyncio.sleep(0)
    await calls.hold_back()
    assert not any(task.done() for task in waiting)
    for task in waiting:
        task.cancel()
    await asyncio.wait(waiting)
    extra = asyncio.ensure_future(calls.hold_back())
    await asyncio.sleep(0)
    assert not extra.done()
    extra.cancel()
