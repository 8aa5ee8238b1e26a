"""Hostile or broken clients: heads and bodies are bounded in size, number and time."""

from __future__ import annotations

import json
import select
from collections.abc import Iterator
from contextlib import suppress

import pytest

from tests.transports.http_support import META, RawClient, SampleService, ServerThread, find_app, find_server
from wharfinger.protocol.http.rules import HttpLimits
from wharfinger.protocol.limits import Limits
from wharfinger.transports.http_server.http_connection import MAX_PIPELINED_REQUESTS

HEAD = b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
DISCOVER = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "server/discover", "params": {"_meta": META}}).encode()
ROUTING_HEADERS = b"MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: server/discover\r\n"
QUICK = HttpLimits(header_time=0.05, body_time=0.05, keep_alive=0.05, sweep_time=0.01, watch_after=0.01)


@pytest.fixture(scope="module")
def http() -> Iterator[ServerThread]:
    with ServerThread(SampleService(Limits(message=100_000))) as http:
        yield http


@pytest.fixture
def wire(http: ServerThread) -> Iterator[RawClient]:
    with http.wire() as wire:
        yield wire


@pytest.fixture(scope="module")
def quick() -> Iterator[ServerThread]:
    with ServerThread(limits=QUICK) as http:
        yield http


def test_a_body_over_the_limit_is_refused_before_it_is_sent(wire: RawClient) -> None:
    """Security H12."""
    wire.write(HEAD + b"Content-Length: 67108864\r\n\r\n")
    reply = wire.reply()
    assert (reply.status, reply.error) == (413, -32600)
    assert reply.headers["connection"] == "close"
    assert "100000" in reply.json["error"]["message"]
    assert wire.closed()


def test_a_client_that_continues_to_send_can_read_the_refusal(wire: RawClient) -> None:
    wire.write(HEAD + b"Content-Length: 67108864\r\n\r\n")
    for _ in range(20):
        wire.write(b"x" * 50_000)
    assert wire.reply().status == 413


def test_a_chunked_body_over_the_limit_is_refused(wire: RawClient) -> None:
    """Security H13."""
    wire.write(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
    for _ in range(3):
        wire.write(b"c350\r\n" + b"x" * 50_000 + b"\r\n")
    assert wire.reply().status == 413


def test_chunked_body_within_the_limit_is_served(wire: RawClient) -> None:
    wire.write(HEAD + ROUTING_HEADERS + b"Transfer-Encoding: chunked\r\n\r\n")
    for part in (DISCOVER[:50], DISCOVER[50:]):
        wire.write(b"%x\r\n%b\r\n" % (len(part), part))
    wire.write(b"0\r\n\r\n")
    assert wire.reply().status == 200


@pytest.mark.parametrize(
    "lengths",
    [
        b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
        b"Content-Length: 5\r\nContent-Length: 6\r\n",
        b"Content-Length: 5\r\nContent-Length: 5\r\n",
        b"Content-Length: -5\r\n",
        b"Content-Length: 5x\r\n",
        b"Content-Length: 99999999999999999999999\r\n",
        b"Transfer-Encoding: gzip\r\n",
    ],
)
def test_contradictory_lengths_are_refused_and_the_connection_is_closed(wire: RawClient, lengths: bytes) -> None:
    """Security H14: no second request may hide in the body."""
    wire.write(HEAD + lengths + b"\r\n0\r\n\r\nGET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
    reply = wire.reply()
    assert (reply.status, reply.error) == (400, -32600)
    assert wire.closed()


def test_a_body_that_never_ends_times_out(quick: ServerThread) -> None:
    """Security H15."""
    with quick.wire() as wire:
        wire.write(HEAD + b"Content-Length: 100\r\n\r\n{")
        reply = wire.reply()
        assert (reply.status, reply.error) == (408, -32600)
        assert wire.closed()


def test_a_body_that_never_starts_times_out(quick: ServerThread) -> None:
    with quick.wire() as wire:
        wire.write(HEAD + b"Content-Length: 100\r\n\r\n")
        assert wire.reply().status == 408


@pytest.mark.parametrize("start", [b"P", b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nX: y"])
def test_a_head_that_never_ends_times_out(quick: ServerThread, start: bytes) -> None:
    """Security H16."""
    with quick.wire() as wire:
        wire.write(start)
        reply = wire.reply()
        assert (reply.status, reply.error) == (408, -32600)
        assert wire.closed()


def test_connection_without_a_request_is_closed(quick: ServerThread) -> None:
    with quick.wire() as wire:
        assert wire.closed()


def test_idle_connection_is_closed(quick: ServerThread) -> None:
    with quick.wire() as wire:
        assert wire.ask("GET", "/healthz").status == 200
        assert wire.closed()


def test_unfinished_heads_do_not_delay_other_clients(http: ServerThread) -> None:
    """Security H17."""
    wires = [http.wire() for _ in range(300)]
    for half in wires:
        half.write(b"POST /mcp HT")
    with http.wire() as wire:
        assert wire.read("a").status == 200
    for half in wires:
        half.close()


@pytest.mark.parametrize(
    "headers",
    [
        b"".join(b"X-%d: y\r\n" % number for number in range(5000)),
        b"X: " + b"y" * 131_072 + b"\r\n",
        b"X" * 131_072 + b": y\r\n",
        b"".join(b"X-%d: %b\r\n" % (number, b"y" * 500) for number in range(90)),
    ],
)
@pytest.mark.parametrize("finished", [True, False])
def test_a_head_over_the_limit_is_refused(wire: RawClient, headers: bytes, finished: bool) -> None:
    """Security H18."""
    if not finished:
        headers = headers.removesuffix(b"\r\n") + b"y" * 300_000
    wire.write(
        b"POST /mcp HTTP/1.1\r\nHost: localhost\r\n" + headers + (b"Content-Length: 0\r\n\r\n" if finished else b"")
    )
    reply = wire.reply()
    assert (reply.status, reply.error) == (431, -32600)


def test_a_url_over_the_limit_is_refused(wire: RawClient) -> None:
    wire.write(b"GET /" + b"x" * 200_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert wire.reply().status == 431


@pytest.mark.parametrize(
    "request_line",
    [
        b"\x16\x03\x01\x02\x00",
        b"GET\r\n\r\n",
        b"BREW /mcp HTTP/1.1\r\n\r\n",
        b"GET /mcp HTTP/9.9\r\n\r\n",
        b"CONNECT x:1 HTTP/1.1\r\n\r\n",
    ],
)
def test_a_request_that_is_not_http_is_refused_in_json(wire: RawClient, request_line: bytes) -> None:
    """Security H19, H47."""
    wire.write(request_line)
    reply = wire.reply()
    assert 400 <= reply.status < 500
    assert reply.error == -32600


def test_the_host_of_an_absolute_url_is_checked(wire: RawClient) -> None:
    """Security H20."""
    wire.write(b"POST http://evil.test/mcp HTTP/1.1\r\nHost: evil.test\r\nContent-Length: 0\r\n\r\n")
    assert wire.reply().status == 403


def test_an_upgrade_is_ignored(wire: RawClient) -> None:
    """Some clients offer HTTP/2 with their first request, which is served over HTTP/1.1."""
    wire.write(
        HEAD + ROUTING_HEADERS + b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AA\r\n"
        b"Content-Length: %d\r\n\r\n%b" % (len(DISCOVER), DISCOVER)
    )
    assert wire.reply().status == 200


def test_expect_100_continue_is_answered_before_the_body(wire: RawClient) -> None:
    wire.write(HEAD + ROUTING_HEADERS + b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n" % len(DISCOVER))
    assert wire.until(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
    wire.write(DISCOVER)
    assert wire.reply().status == 200


def test_expect_100_continue_is_refused_if_the_body_is_over_the_limit(wire: RawClient) -> None:
    wire.write(HEAD + b"Expect: 100-continue\r\nContent-Length: 67108864\r\n\r\n")
    assert wire.reply().status == 413


def test_pipelined_requests_are_answered_in_order(wire: RawClient) -> None:
    """Security H51."""
    requests = b""
    for number in range(50):
        body = DISCOVER.replace(b'"id": 1', b'"id": %d' % number)
        requests += HEAD + ROUTING_HEADERS + b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
    wire.write(requests)
    assert [wire.reply().json["id"] for _ in range(50)] == list(range(50))


@pytest.mark.parametrize("count", [MAX_PIPELINED_REQUESTS, MAX_PIPELINED_REQUESTS + 1])
def test_pipelined_requests_are_bounded_in_number(http: ServerThread, count: int) -> None:
    with http.wire() as wire, suppress(EOFError, ConnectionResetError):
        wire.stateless("resources/read", {"uri": "test://wait"})
        assert http.service.arrived.acquire(timeout=5)
        wire.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n" * count)
        if count > MAX_PIPELINED_REQUESTS:
            assert http.service.left.acquire(timeout=5)
        http.open_gates()
        replies = [wire.reply().status for _ in range(count + 1)]
        assert replies == [200] * (count + 1)
        assert count == MAX_PIPELINED_REQUESTS


@pytest.mark.parametrize(
    "request_",
    [b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n", HEAD + b"Content-Length: 999999999\r\n\r\n"],
    ids=["requests", "a body"],
)
def test_requests_pipelined_after_a_stream_are_not_read_without_a_bound(request_: bytes) -> None:
    """The stream waits for a disconnect and must not read without a bound."""
    with ServerThread(limits=HttpLimits(comment_time=0.1, sweep_time=0.05)) as http, http.wire() as wire:
        wire.listen("test://a")
        assert http.service.arrived.acquire(timeout=5)
        wire.write(request_)
        wire.socket.settimeout(1)
        with pytest.raises(OSError):  # the server stops reading or closes the connection
            for _ in range(64):
                wire.write(request_ * (2**20 // len(request_)) if request_.startswith(b"GET") else bytes(2**20))
        wire.close()
        assert http.service.left.acquire(timeout=10)  # the next comment detects the disconnect


def test_unfinished_bodies_share_one_budget() -> None:
    """Security X06."""
    with ServerThread(limits=HttpLimits(unfinished=300_000)) as http:
        wires = [http.wire() for _ in range(10)]
        for wire in wires:
            wire.write(HEAD + b"Content-Length: 1000000\r\n\r\n" + b"x" * 100_000)
        (readable, *_), _, _ = select.select([wire.socket for wire in wires], [], [], 10)
        (refused,) = [wire for wire in wires if wire.socket is readable]
        reply = refused.reply()
        assert (reply.status, reply.error) == (503, -32603)
        assert http.call(lambda: find_app(http)._unfinished.total) <= 300_000 + 256 * 1024
        for wire in wires:
            wire.close()
        with http.wire() as wire:
            assert wire.read("a").status == 200
            while http.call(lambda: find_app(http)._unfinished.total):
                pass


def test_connections_are_bounded() -> None:
    with ServerThread(limits=HttpLimits(connections=2)) as http, http.wire() as first, http.wire() as second:
        for busy in (first, second):
            busy.stateless("resources/read", {"uri": "test://wait"})
            assert http.service.arrived.acquire(timeout=5)
        with http.wire() as third:
            reply = third.reply()
            assert (reply.status, reply.error) == (503, -32603)
        http.open_gates()
        assert [first.reply().status, second.reply().status] == [200, 200]
        with http.wire() as third:  # replaces the connection that was idle longest
            assert third.ask("GET", "/healthz").status == 200
        assert first.closed()
        assert second.ask("GET", "/healthz").status == 200


def test_a_client_that_reads_nothing_is_disconnected() -> None:
    service = SampleService()
    with ServerThread(service, limits=HttpLimits(stalled_time=0.05, sweep_time=0.01)) as http, http.wire() as wire:
        for number in range(20):
            wire.stateless("resources/read", {"uri": "test://big"}, id=number)
        with pytest.raises((EOFError, ConnectionResetError)):
            expect_disconnect(http, wire)


def expect_disconnect(http: ServerThread, wire: RawClient) -> None:
    """Read nothing until the server has closed all connections, then check that the rest is missing."""
    server = find_server(http)
    while server.connections.open:
        pass
    for _ in range(20):
        wire.reply()
