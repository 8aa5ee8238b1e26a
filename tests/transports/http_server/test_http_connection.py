"""The HTTP connection of Wharfinger compared with an unmodified uvicorn: the same bytes over real sockets.

If uvicorn starts to behave as ours does, its half of a test fails, and that part of our code can be deleted.
"""

from __future__ import annotations

import json
import select
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from tests.transports.http_support import META, RawClient, SampleService, ServerThread, UvicornThread, find_server
from tests.transports.test_http_shares import connect_from
from tests.waiting import wait_until
from wharfinger.protocol.http.rules import HttpLimits, HttpRefusal
from wharfinger.protocol.principal import Principal
from wharfinger.transports.http_server import http_connection
from wharfinger.transports.http_server.app import HttpApp

HEALTH = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"


def read_request(name: str, *headers: bytes, version: bytes = b"1.1", trailers: bytes | None = None) -> bytes:
    """Return a request that reads `test://name`. If there are trailers, its body is chunked."""
    params = {"uri": f"test://{name}", "_meta": META}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "resources/read", "params": params}).encode()
    lines = [
        b"POST /mcp HTTP/%b" % version,
        b"Host: localhost",
        b"Content-Type: application/json",
        b"MCP-Protocol-Version: 2026-07-28",
        b"Mcp-Method: resources/read",
        b"Mcp-Name: test://%b" % name.encode(),
        *headers,
        b"Content-Length: %d" % len(body) if trailers is None else b"Transfer-Encoding: chunked",
    ]
    head = b"\r\n".join(lines) + b"\r\n\r\n"
    return head + (body if trailers is None else b"%x\r\n%b\r\n0\r\n%b" % (len(body), body, trailers))


@contextmanager
def serve_both(
    limits: HttpLimits | None = None, verify: Any = None, **options: Any
) -> Iterator[tuple[UvicornThread, ServerThread]]:
    """Serve the same application in uvicorn, with these options, and in our own server."""
    app = HttpApp(SampleService(), limits=limits, verify=verify, separates_trailers=True)
    with UvicornThread(app, **options) as theirs, ServerThread(limits=limits, verify=verify) as ours:
        yield theirs, ours


def statuses(theirs: UvicornThread, ours: ServerThread, request: bytes) -> tuple[int, int]:
    """Send a request to both servers, and return the statuses of their answers."""
    with theirs.connect() as their_client, ours.connect() as our_client:
        their_client.write(request)
        our_client.write(request)
        return their_client.reply().status, our_client.reply().status


def test_a_post_that_offers_http_2_keeps_its_body() -> None:
    """Java's HTTP client offers it with its first request. uvicorn calls the application with an empty body."""
    offer = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AA"
    with serve_both() as (theirs, ours):
        assert statuses(theirs, ours, read_request("a", offer)) == (400, 200)


@pytest.mark.parametrize(
    "large_request",
    [
        read_request("a", b"X: " + b"y" * 2**20),
        read_request("a", *(b"X-%d: y" % number for number in range(101))),
        read_request("a", trailers=b"A: b\r\n" * 101 + b"\r\n"),
        read_request("a", trailers=b"A: " + b"b" * 2**20 + b"\r\n\r\n"),
    ],
    ids=["size of a head", "headers", "trailers", "size of trailers"],
)
def test_heads_and_trailers_are_bounded(large_request: bytes) -> None:
    """uvicorn keeps heads of any size, and adds trailers of any size to them."""
    with serve_both() as (theirs, ours):
        assert statuses(theirs, ours, large_request) == (200, 431)


def test_a_trailer_is_not_a_header() -> None:
    """In uvicorn the application mistakes it for a header that a proxy has checked (RFC 9110 §6.5.1)."""
    request = read_request("principal", trailers=b"X-User: admin\r\n\r\n")
    with (
        serve_both(verify=lambda headers: Principal(subject=headers.get(b"x-user", b"nobody").decode())) as (
            theirs,
            ours,
        ),
        theirs.connect() as their_client,
        ours.connect() as our_client,
    ):
        their_client.write(request)
        our_client.write(request)
        assert (their_client.reply().text, our_client.reply().text) == ("admin", "nobody")


def is_silent(client: RawClient) -> bool:
    """Return whether neither data nor the end arrives within half a second."""
    return not select.select([client.socket], [], [], 0.5)[0]


@pytest.mark.parametrize("start", [b"", HEALTH[:-2]], ids=["silent", "half a head"])
def test_an_incomplete_request_times_out(start: bytes) -> None:
    """uvicorn has a time limit between requests only."""
    limits = HttpLimits(header_time=2.0 if start else 0.01, sweep_time=0.01)
    with (
        serve_both(limits, timeout_keep_alive=0) as (theirs, ours),
        theirs.connect() as their_client,
        ours.connect() as our_client,
    ):
        their_client.write(start)
        our_client.write(start)
        if start:
            assert our_client.reply().status == 408
        assert our_client.is_closed_by_server()
        assert is_silent(their_client)
        their_client.write(HEALTH[len(start) :])
        assert their_client.reply().status == 200


def test_a_client_that_reads_nothing_is_disconnected() -> None:
    """uvicorn has no time limit for such a client."""
    limits = HttpLimits(stalled_time=0.01, sweep_time=0.01)
    with serve_both(limits) as (theirs, ours), theirs.connect() as their_client, ours.connect() as our_client:
        their_client.write(read_request("big") * 20)
        our_client.write(read_request("big") * 20)
        our_client.socket.recv(1, socket.MSG_PEEK)  # the server has begun to answer
        server = find_server(ours)
        wait_until(lambda: not server.connections.open, "the connection is closed")
        with pytest.raises((EOFError, ConnectionResetError)):
            read_statuses(our_client, 20)
        assert read_statuses(their_client, 20) == [200] * 20


def test_a_client_that_does_not_read_its_last_answers_is_disconnected() -> None:
    """A bug: a connection that was closed after the answers stayed open while the client took no bytes."""
    limits = HttpLimits(stalled_time=0.01, keep_alive=0.01, sweep_time=0.01)
    with ServerThread(limits=limits) as ours, ours.connect() as client:
        server = find_server(ours)
        wait_until(lambda: len(server.connections.open) == 1, "the connection is accepted")
        (connection,) = server.connections.open
        ours.call(connection.transport.set_write_buffer_limits, 2**30)  # as if the rest of the answers were small
        client.write(read_request("big") * 20)
        client.socket.recv(1, socket.MSG_PEEK)  # the server has begun to answer
        wait_until(lambda: not server.connections.open, "the connection is closed")
        with pytest.raises((EOFError, ConnectionResetError)):
            read_statuses(client, 20)


def read_statuses(client: RawClient, count: int) -> list[int]:
    return [client.reply().status for _ in range(count)]


def test_a_client_that_continues_to_send_can_read_the_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    """uvicorn closes with unread bytes, which resets the connection."""
    monkeypatch.setattr(http_connection, "LINGER_SECONDS", 60)
    head = read_request("a").partition(b"Content-Length")[0] + b"Content-Length: 67108864\r\n\r\n"
    with serve_both() as (theirs, ours), theirs.connect() as their_client, ours.connect() as our_client:
        our_client.write(head)
        for _ in range(100):
            our_client.write(bytes(50_000))
        assert our_client.reply().status == 413
        their_client.write(head)
        with pytest.raises(OSError):
            for _ in range(1000):
                their_client.write(bytes(50_000))


def test_pipelined_requests_are_bounded() -> None:
    """uvicorn reads any number of requests before it has answered the first."""
    with serve_both() as (theirs, ours), theirs.connect() as their_client, ours.connect() as our_client:
        their_client.write(HEALTH * 1000)
        our_client.write(HEALTH * 1000)
        assert read_statuses(their_client, 1000) == [200] * 1000
        assert our_client.is_closed_by_server()


def test_one_address_cannot_take_all_connections() -> None:
    """uvicorn also limits connections, but at its limit it refuses all callers."""
    with (
        serve_both(HttpLimits(connections=10), limit_concurrency=11) as (theirs, ours),
        unfinished_requests(theirs.port, 10),
        unfinished_requests(ours.port, 10),
        connect_from(theirs.port) as their_client,
        connect_from(ours.port) as our_client,
    ):
        their_client.write(HEALTH)
        our_client.write(HEALTH)
        assert (their_client.reply().status, our_client.reply().status) == (503, 200)


@contextmanager
def unfinished_requests(port: int, count: int) -> Iterator[None]:
    """Open connections from one address and send half a head on each."""
    with ExitStack() as stack:
        for _ in range(count):
            stack.enter_context(RawClient(port)).write(HEALTH[:-2])
        yield


def test_http_1_0_gets_no_chunked_answer() -> None:
    """RFC 9112 §6.1. uvicorn sends one."""
    request = read_request("progress", b"Accept: application/json, text/event-stream", version=b"1.0")
    with serve_both() as (theirs, ours), theirs.connect() as their_client, ours.connect() as our_client:
        their_client.write(request)
        our_client.write(request)
        assert their_client.head()[1].get("transfer-encoding") == "chunked"
        assert "transfer-encoding" not in our_client.head()[1]
        while our_client.receive():
            pass
        assert b"data: " in our_client.buffered


def test_streams_end_with_their_result_when_the_server_stops() -> None:
    """uvicorn does not report a signal to the application. It waits for the streams or closes them."""
    with (
        serve_both(timeout_graceful_shutdown=0) as (theirs, ours),
        theirs.connect() as their_client,
        ours.connect() as our_client,
    ):
        their_client.listen("test://a")
        our_client.listen("test://a")
        theirs.stop()
        ours.stop()
        assert our_client.event()["result"]["resultType"] == "complete"
        with pytest.raises((EOFError, ConnectionResetError)):
            their_client.event()


def test_an_answer_header_with_a_line_break_is_not_sent() -> None:
    """Neither server sends a header with line breaks, which a careless `verify` may return."""

    def verify(headers: Any) -> str:
        raise HttpRefusal(401, "No.", ((b"www-authenticate", b"Bearer\r\nSet-Cookie: a=b"),))

    with serve_both(verify=verify) as (theirs, ours), theirs.connect() as their_client, ours.connect() as our_client:
        for client in (their_client, our_client):
            client.write(read_request("a"))
            assert client.is_closed_by_server()


# --- our server only


@pytest.mark.parametrize(("size", "status"), [(1000, 200), (1001, 431)])
@pytest.mark.parametrize("cuts", [0, 1], ids=["at once", "in two parts"])
def test_a_head_is_bounded_in_bytes(size: int, status: int, cuts: int) -> None:
    """The size is that of the target, and of each name and value plus four bytes."""
    filler = size - len(b"/healthz") - len(b"hostlocalhostx") - 8
    head = HEALTH[:-2] + b"X: %b\r\n\r\n" % (b"y" * filler)
    with ServerThread(limits=HttpLimits(header_size=1000)) as ours, ours.connect() as client:
        for part in (head[: len(head) // 2], head[len(head) // 2 :]) if cuts else (head,):
            client.write(part)
        assert client.reply().status == status


@pytest.mark.parametrize(("count", "status"), [(100, 200), (101, 431)])
def test_a_head_is_bounded_in_number_of_headers(count: int, status: int) -> None:
    with ServerThread() as ours, ours.connect() as client:
        client.write(HEALTH[:-2] + b"X: y\r\n" * (count - 1) + b"\r\n")
        assert client.reply().status == status


@pytest.mark.parametrize("step", [1, 7, 1000])
def test_requests_may_arrive_in_chunks_of_any_size(step: int) -> None:
    offer = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AA"
    trailers = b"X-User: admin\r\nA: b\r\n\r\n"
    requests = [
        read_request("a"),
        read_request("b", offer),
        read_request("c", trailers=trailers),
        read_request("d", offer, trailers=trailers),
        HEALTH,
    ]
    data = b"".join(requests * 2)
    with ServerThread() as ours, ours.connect() as client:
        for start in range(0, len(data), step):
            client.write(data[start : start + step])
        for _ in range(2):
            assert [client.reply().text for _ in range(4)] == ["test://a", "test://b", "test://c", "test://d"]
            assert client.reply().status == 200


def test_no_100_continue_is_sent_for_a_body_that_has_arrived() -> None:
    """Not even if the application waits for the client to disconnect."""
    with ServerThread(limits=HttpLimits(watch_after=0.01, sweep_time=0.01)) as ours, ours.connect() as client:
        client.write(read_request("wait", b"Expect: 100-continue"))
        assert ours.service.arrived.acquire(timeout=20)
        (connection,) = find_server(ours).connections.open
        wait_until(
            lambda: connection.serving is not None and connection.serving.waiter is not None,
            "the application waits for the client to disconnect",
        )
        ours.open_gates()
        assert client.reply().status == 200


@pytest.mark.parametrize("start", [b"GET /healthz HTTP/1.1\r\nHost", b"!\r\n\r\n"], ids=["late", "malformed"])
def test_a_request_is_answered_although_the_next_one_is_refused(start: bytes) -> None:
    """A bug: the request was cancelled, and got the error of the next one."""
    with ServerThread(limits=HttpLimits(watch_after=0.01, sweep_time=0.01)) as ours, ours.connect() as client:
        client.write(read_request("wait"))
        assert ours.service.arrived.acquire(timeout=20)
        (connection,) = find_server(ours).connections.open
        client.write(start)
        if start.startswith(b"GET"):
            wait_until(lambda: connection.in_head, "the next head has begun")
            ours.call(connection.check_deadlines, connection.deadline + 1)
        wait_until(lambda: connection.lingering, "the next request is refused")
        ours.open_gates()
        assert client.reply().status == 200
        assert client.is_closed_by_server()


@pytest.mark.parametrize("rest_arrives", [True, False])
def test_a_pipelined_head_does_not_time_out_while_reading_is_paused(rest_arrives: bool) -> None:
    """A bug: the connection closed without the answer to a request that took longer than `header_time`."""
    with ServerThread() as ours, ours.connect() as client:
        # In a session, a request that waits does not read, to find out whether its client has disconnected.
        session = client.initialize().encode()
        body = json.dumps(
            {"jsonrpc": "2.0", "id": 1, "method": "resources/read", "params": {"uri": "test://wait"}}
        ).encode()
        head = HEALTH.replace(b"GET /healthz", b"POST /mcp")[:-2]
        head += b"Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"
        head += b"Mcp-Session-Id: %b\r\nContent-Length: %d\r\n\r\n" % (session, len(body))
        client.write(head + body + HEALTH + HEALTH[:-2])
        assert ours.service.arrived.acquire(timeout=20)
        (connection,) = find_server(ours).connections.open
        wait_until(lambda: connection.reading_paused and connection.in_head, "the third head has begun")
        ours.call(connection.check_deadlines, connection.deadline + 1)
        ours.open_gates()
        assert read_statuses(client, 2) == [200, 200]
        if rest_arrives:
            client.write(HEALTH[-2:])
            assert client.reply().status == 200
        else:
            ours.call(connection.check_deadlines, connection.deadline + 1)
            assert client.reply().status == 408
