"""Limits against hostile or broken clients: the size, number and time of heads and bodies."""

from __future__ import annotations

import json
import select
from collections.abc import Iterator

import pytest

from tests.transports.http_support import META, RawClient, SampleService, ServerThread, find_app, find_server
from tests.waiting import wait_until
from wharfinger.protocol.http.rules import HttpLimits
from wharfinger.protocol.limits import Limits
from wharfinger.transports.http_server.http_connection import MAX_PIPELINED_REQUESTS

HEAD = b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
DISCOVER = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "server/discover", "params": {"_meta": META}}).encode()
ROUTING_HEADERS = b"MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: server/discover\r\n"
SHORT_TIMEOUTS = HttpLimits(header_time=0.05, body_time=0.05, keep_alive=0.05, sweep_time=0.01, watch_after=0.01)


@pytest.fixture(scope="module")
def http() -> Iterator[ServerThread]:
    with ServerThread(SampleService(Limits(message=100_000))) as http:
        yield http


@pytest.fixture
def client(http: ServerThread) -> Iterator[RawClient]:
    with http.connect() as client:
        yield client


@pytest.fixture(scope="module")
def http_with_short_timeouts() -> Iterator[ServerThread]:
    with ServerThread(limits=SHORT_TIMEOUTS) as http:
        yield http


def test_a_body_over_the_limit_is_refused_before_it_is_sent(client: RawClient) -> None:
    """Security H12."""
    client.write(HEAD + b"Content-Length: 67108864\r\n\r\n")
    reply = client.reply()
    assert (reply.status, reply.error) == (413, -32600)
    assert reply.headers["connection"] == "close"
    assert "100000" in reply.json["error"]["message"]
    assert client.is_closed_by_server()


def test_a_client_that_continues_to_send_can_read_the_refusal(client: RawClient) -> None:
    client.write(HEAD + b"Content-Length: 67108864\r\n\r\n")
    for _ in range(20):
        client.write(b"x" * 50_000)
    assert client.reply().status == 413


def test_a_chunked_body_over_the_limit_is_refused(client: RawClient) -> None:
    """Security H13."""
    client.write(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
    for _ in range(3):
        client.write(b"c350\r\n" + b"x" * 50_000 + b"\r\n")
    assert client.reply().status == 413


def test_a_chunked_body_within_the_limit_is_served(client: RawClient) -> None:
    client.write(HEAD + ROUTING_HEADERS + b"Transfer-Encoding: chunked\r\n\r\n")
    for part in (DISCOVER[:50], DISCOVER[50:]):
        client.write(b"%x\r\n%b\r\n" % (len(part), part))
    client.write(b"0\r\n\r\n")
    assert client.reply().status == 200


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
def test_contradictory_lengths_are_refused_and_the_connection_is_closed(client: RawClient, lengths: bytes) -> None:
    """Security H14: no second request may hide in the body."""
    client.write(HEAD + lengths + b"\r\n0\r\n\r\nGET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
    reply = client.reply()
    assert (reply.status, reply.error) == (400, -32600)
    assert client.is_closed_by_server()


def test_a_body_that_never_ends_times_out(http_with_short_timeouts: ServerThread) -> None:
    """Security H15."""
    with http_with_short_timeouts.connect() as client:
        client.write(HEAD + b"Content-Length: 100\r\n\r\n{")
        reply = client.reply()
        assert (reply.status, reply.error) == (408, -32600)
        assert client.is_closed_by_server()


def test_a_body_that_never_starts_times_out(http_with_short_timeouts: ServerThread) -> None:
    with http_with_short_timeouts.connect() as client:
        client.write(HEAD + b"Content-Length: 100\r\n\r\n")
        assert client.reply().status == 408


@pytest.mark.parametrize("start", [b"P", b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nX: y"])
def test_a_head_that_never_ends_times_out(http_with_short_timeouts: ServerThread, start: bytes) -> None:
    """Security H16."""
    with http_with_short_timeouts.connect() as client:
        client.write(start)
        reply = client.reply()
        assert (reply.status, reply.error) == (408, -32600)
        assert client.is_closed_by_server()


def test_a_connection_without_a_request_is_closed(http_with_short_timeouts: ServerThread) -> None:
    with http_with_short_timeouts.connect() as client:
        assert client.is_closed_by_server()


def test_an_idle_connection_is_closed(http_with_short_timeouts: ServerThread) -> None:
    with http_with_short_timeouts.connect() as client:
        assert client.fetch("GET", "/healthz").status == 200
        assert client.is_closed_by_server()


def test_unfinished_heads_do_not_delay_other_clients(http: ServerThread) -> None:
    """Security H17."""
    clients = [http.connect() for _ in range(300)]
    for unfinished in clients:
        unfinished.write(b"POST /mcp HT")
    with http.connect() as client:
        assert client.read("a").status == 200
    for unfinished in clients:
        unfinished.close()


@pytest.mark.parametrize(
    "headers",
    [
        b"".join(b"X-%d: y\r\n" % number for number in range(5000)),
        b"X: " + b"y" * 131_072 + b"\r\n",
        b"X" * 131_072 + b": y\r\n",
        b"".join(b"X-%d: %b\r\n" % (number, b"y" * 500) for number in range(90)),
    ],
)
@pytest.mark.parametrize("complete", [True, False])
def test_a_head_over_the_limit_is_refused(client: RawClient, headers: bytes, complete: bool) -> None:
    """Security H18."""
    if not complete:
        headers = headers.removesuffix(b"\r\n") + b"y" * 300_000
    client.write(
        b"POST /mcp HTTP/1.1\r\nHost: localhost\r\n" + headers + (b"Content-Length: 0\r\n\r\n" if complete else b"")
    )
    reply = client.reply()
    assert (reply.status, reply.error) == (431, -32600)


def test_a_url_over_the_limit_is_refused(client: RawClient) -> None:
    client.write(b"GET /" + b"x" * 200_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert client.reply().status == 431


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
def test_a_request_that_is_not_http_is_refused_in_json(client: RawClient, request_line: bytes) -> None:
    """Security H19, H47."""
    client.write(request_line)
    reply = client.reply()
    assert 400 <= reply.status < 500
    assert reply.error == -32600


def test_the_host_of_an_absolute_url_is_checked(client: RawClient) -> None:
    """Security H20."""
    client.write(b"POST http://evil.test/mcp HTTP/1.1\r\nHost: evil.test\r\nContent-Length: 0\r\n\r\n")
    assert client.reply().status == 403


def test_an_offer_to_upgrade_to_http_2_is_ignored(client: RawClient) -> None:
    """Some clients offer HTTP/2 with their first request, which is served over HTTP/1.1."""
    client.write(
        HEAD + ROUTING_HEADERS + b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AA\r\n"
        b"Content-Length: %d\r\n\r\n%b" % (len(DISCOVER), DISCOVER)
    )
    assert client.reply().status == 200


def test_expect_100_continue_is_answered_before_the_body(client: RawClient) -> None:
    client.write(HEAD + ROUTING_HEADERS + b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n" % len(DISCOVER))
    assert client.read_until(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
    client.write(DISCOVER)
    assert client.reply().status == 200


def test_expect_100_continue_is_refused_if_the_body_is_over_the_limit(client: RawClient) -> None:
    client.write(HEAD + b"Expect: 100-continue\r\nContent-Length: 67108864\r\n\r\n")
    assert client.reply().status == 413


def test_pipelined_requests_are_answered_in_order(client: RawClient) -> None:
    """Security H51."""
    requests = b""
    for number in range(50):
        body = DISCOVER.replace(b'"id": 1', b'"id": %d' % number)
        requests += HEAD + ROUTING_HEADERS + b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
    client.write(requests)
    assert [client.reply().json["id"] for _ in range(50)] == list(range(50))


@pytest.mark.parametrize("count", [MAX_PIPELINED_REQUESTS, MAX_PIPELINED_REQUESTS + 1])
def test_pipelined_requests_are_bounded_in_number(http: ServerThread, count: int) -> None:
    with http.connect() as client:
        client.send_stateless("resources/read", {"uri": "test://wait"})
        assert http.service.arrived.acquire(timeout=40)
        client.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n" * count)
        if count > MAX_PIPELINED_REQUESTS:
            assert http.service.ended.acquire(timeout=40)
            assert client.is_closed_by_server()
        else:
            http.open_gates()
            assert [client.reply().status for _ in range(count + 1)] == [200] * (count + 1)


@pytest.mark.parametrize(
    "pipelined_request",
    [b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n", HEAD + b"Content-Length: 999999999\r\n\r\n"],
    ids=["requests", "a body"],
)
def test_requests_pipelined_after_a_stream_are_read_only_up_to_a_bound(pipelined_request: bytes) -> None:
    """A stream reads in order to notice a disconnect, and must not read without a bound."""
    with ServerThread(limits=HttpLimits(comment_time=0.1, sweep_time=0.05)) as http, http.connect() as client:
        client.listen("test://a")
        assert http.service.arrived.acquire(timeout=40)
        client.write(pipelined_request)
        client.socket.settimeout(1)
        with pytest.raises(OSError):  # the server stops reading or closes the connection
            for _ in range(64):
                client.write(
                    pipelined_request * (2**20 // len(pipelined_request))
                    if pipelined_request.startswith(b"GET")
                    else bytes(2**20)
                )
        client.close()
        assert http.service.ended.acquire(timeout=40)  # the next comment detects the disconnect


def test_the_bytes_of_unfinished_bodies_are_bounded_in_total() -> None:
    """Security X06."""
    with ServerThread(limits=HttpLimits(unfinished=300_000)) as http:
        clients = [http.connect() for _ in range(10)]
        for client in clients:
            client.write(HEAD + b"Content-Length: 1000000\r\n\r\n" + b"x" * 100_000)
        (readable, *_), _, _ = select.select([client.socket for client in clients], [], [], 10)
        (refused_client,) = [client for client in clients if client.socket is readable]
        reply = refused_client.reply()
        assert (reply.status, reply.error) == (503, -32603)
        assert http.call(lambda: find_app(http)._unfinished.total) <= 300_000 + 256 * 1024
        for client in clients:
            client.close()
        with http.connect() as client:
            assert client.read("a").status == 200
            wait_until(lambda: not http.call(lambda: find_app(http)._unfinished.total), "no request is unfinished")


def test_connections_are_bounded() -> None:
    with ServerThread(limits=HttpLimits(connections=2)) as http, http.connect() as first, http.connect() as second:
        for busy in (first, second):
            busy.send_stateless("resources/read", {"uri": "test://wait"})
            assert http.service.arrived.acquire(timeout=40)
        with http.connect() as third:
            reply = third.reply()
            assert (reply.status, reply.error) == (503, -32603)
        http.open_gates()
        assert [first.reply().status, second.reply().status] == [200, 200]
        with http.connect() as third:  # closes the connection that was idle longest
            assert third.fetch("GET", "/healthz").status == 200
        assert first.is_closed_by_server()
        assert second.fetch("GET", "/healthz").status == 200


def test_a_client_that_reads_nothing_is_disconnected() -> None:
    service = SampleService()
    with ServerThread(service, limits=HttpLimits(stalled_time=0.05, sweep_time=0.01)) as http, http.connect() as client:
        for number in range(20):
            client.send_stateless("resources/read", {"uri": "test://big"}, id=number)
        with pytest.raises((EOFError, ConnectionResetError)):
            expect_disconnect(http, client)


def expect_disconnect(http: ServerThread, client: RawClient) -> None:
    """Wait until the server has closed all connections, then read the answers, which are incomplete."""
    server = find_server(http)
    wait_until(lambda: not server.connections.open, "all connections are closed")
    for _ in range(20):
        client.reply()
