"""The HTTP connection of Wharfinger compared with an unmodified uvicorn: the same bytes over real sockets.

Where uvicorn comes to do as ours does, its half of a test fails: then that part of our code can go.
"""

from __future__ import annotations

import json
import select
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from tests.transports.http_support import META, RawClient, SampleService, ServerThread, UvicornThread, find_server
from tests.transports.test_http_shares import wire_from
from wharfinger.protocol.http.rules import HttpLimits, HttpRefusal
from wharfinger.protocol.principal import Principal
from wharfinger.transports.http_server.app import HttpApp

HEALTH = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"


def read_request(name: str, *headers: bytes, version: bytes = b"1.1", chunked: bytes | None = None) -> bytes:
    """Return a request that reads `test://name`. Its body is chunked and followed by these bytes, if they are given."""
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
        b"Content-Length: %d" % len(body) if chunked is None else b"Transfer-Encoding: chunked",
    ]
    head = b"\r\n".join(lines) + b"\r\n\r\n"
    return head + (body if chunked is None else b"%x\r\n%b\r\n0\r\n%b" % (len(body), body, chunked))


@contextmanager
def serve_both(
    limits: HttpLimits | None = None, verify: Any = None, **options: Any
) -> Iterator[tuple[UvicornThread, ServerThread]]:
    """Serve the same application behind uvicorn, with these options, and behind our own server."""
    app = HttpApp(SampleService(), limits=limits, verify=verify, separates_trailers=True)
    with UvicornThread(app, **options) as theirs, ServerThread(limits=limits, verify=verify) as ours:
        yield theirs, ours


def statuses(theirs: UvicornThread, ours: ServerThread, request: bytes) -> tuple[int, int]:
    """Return the statuses of both servers."""
    with theirs.wire() as their_wire, ours.wire() as our_wire:
        their_wire.write(request)
        our_wire.write(request)
        return their_wire.reply().status, our_wire.reply().status


def test_a_post_that_offers_http_2_keeps_its_body() -> None:
    """Java's HTTP client offers it with its first request. uvicorn calls the application with an empty body."""
    offer = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AA"
    with serve_both() as (theirs, ours):
        assert statuses(theirs, ours, read_request("a", offer)) == (400, 200)


@pytest.mark.parametrize(
    "request_",
    [
        read_request("a", b"X: " + b"y" * 2**20),
        read_request("a", *(b"X-%d: y" % number for number in range(101))),
        read_request("a", chunked=b"A: b\r\n" * 101 + b"\r\n"),
        read_request("a", chunked=b"A: " + b"b" * 2**20 + b"\r\n\r\n"),
    ],
    ids=["size of a head", "headers", "trailers", "size of trailers"],
)
def test_heads_and_trailers_are_bounded(request_: bytes) -> None:
    """uvicorn keeps a head, and adds trailers to it, without a bound."""
    with serve_both() as (theirs, ours):
        assert statuses(theirs, ours, request_) == (200, 431)


def test_a_trailer_is_not_a_header() -> None:
    """uvicorn's application takes it for a header that a proxy has checked (RFC 9110 §6.5.1)."""
    request = read_request("principal", chunked=b"X-User: admin\r\n\r\n")
    with (
        serve_both(verify=lambda headers: Principal(subject=headers.get(b"x-user", b"nobody").decode())) as (
            theirs,
            ours,
        ),
        theirs.wire() as their_wire,
        ours.wire() as our_wire,
    ):
        their_wire.write(request)
        our_wire.write(request)
        assert (their_wire.reply().text, our_wire.reply().text) == ("admin", "nobody")


def is_silent(wire: RawClient) -> bool:
    """Return whether nothing arrives, not even the end, for fifty times the time limit."""
    return not select.select([wire.socket], [], [], 0.5)[0]


@pytest.mark.parametrize("start", [b"", HEALTH[:-2]], ids=["silent", "half a head"])
def test_an_incomplete_request_times_out(start: bytes) -> None:
    """uvicorn has a time limit between requests only."""
    limits = HttpLimits(header_time=0.01, sweep_time=0.01)
    with (
        serve_both(limits, timeout_keep_alive=0) as (theirs, ours),
        theirs.wire() as their_wire,
        ours.wire() as our_wire,
    ):
        their_wire.write(start)
        our_wire.write(start)
        if start:
            assert our_wire.reply().status == 408
        assert our_wire.closed()
        assert is_silent(their_wire)
        their_wire.write(HEALTH[len(start) :])
        assert their_wire.reply().status == 200


def test_a_client_that_reads_nothing_is_disconnected() -> None:
    """uvicorn keeps the answer and the connection of such a client without a limit."""
    limits = HttpLimits(stalled_time=0.01, sweep_time=0.01)
    with serve_both(limits) as (theirs, ours), theirs.wire() as their_wire, ours.wire() as our_wire:
        for _ in range(20):
            their_wire.write(read_request("big"))
            our_wire.write(read_request("big"))
        server = find_server(ours)
        while server.connections.open:
            pass
        with pytest.raises((EOFError, ConnectionResetError)):
            read_answers(our_wire, 20)
        assert read_answers(their_wire, 20) == [200] * 20


def read_answers(wire: RawClient, count: int) -> list[int]:
    return [wire.reply().status for _ in range(count)]


def test_a_client_that_continues_to_send_can_read_the_refusal() -> None:
    """uvicorn closes with unread bytes, which resets the connection."""
    head = read_request("a").partition(b"Content-Length")[0] + b"Content-Length: 67108864\r\n\r\n"
    with serve_both() as (theirs, ours), theirs.wire() as their_wire, ours.wire() as our_wire:
        our_wire.write(head)
        for _ in range(100):
            our_wire.write(bytes(50_000))
        assert our_wire.reply().status == 413
        their_wire.write(head)
        with pytest.raises(OSError):
            for _ in range(1000):
                their_wire.write(bytes(50_000))


def test_pipelined_requests_are_bounded() -> None:
    """uvicorn reads any number of requests before it has answered the first."""
    with serve_both() as (theirs, ours), theirs.wire() as their_wire, ours.wire() as our_wire:
        their_wire.write(HEALTH * 1000)
        our_wire.write(HEALTH * 1000)
        assert read_answers(their_wire, 1000) == [200] * 1000
        assert our_wire.closed()


def test_one_address_leaves_connections_to_others() -> None:
    """uvicorn also limits connections, but then refuses all callers."""
    with (
        serve_both(HttpLimits(connections=10), limit_concurrency=11) as (theirs, ours),
        wires(theirs.port, 10),
        wires(ours.port, 10),
        wire_from(theirs.port) as their_wire,
        wire_from(ours.port) as our_wire,
    ):
        their_wire.write(HEALTH)
        our_wire.write(HEALTH)
        assert (their_wire.reply().status, our_wire.reply().status) == (503, 200)


@contextmanager
def wires(port: int, count: int) -> Iterator[None]:
    """Open this many connections of one address, each with half a head."""
    with ExitStack() as stack:
        for _ in range(count):
            stack.enter_context(RawClient(port)).write(HEALTH[:-2])
        yield


def test_http_1_0_gets_no_chunked_answer() -> None:
    """RFC 9112 §6.1. uvicorn sends them."""
    request = read_request("progress", b"Accept: application/json, text/event-stream", version=b"1.0")
    with serve_both() as (theirs, ours), theirs.wire() as their_wire, ours.wire() as our_wire:
        their_wire.write(request)
        our_wire.write(request)
        assert their_wire.head()[1].get("transfer-encoding") == "chunked"
        assert "transfer-encoding" not in our_wire.head()[1]
        while our_wire.more():
            pass
        assert b"data: " in our_wire.buffered


def test_streams_end_with_their_result_when_the_server_ends() -> None:
    """uvicorn does not report a signal to the application. It waits for the streams or closes them."""
    with (
        serve_both(timeout_graceful_shutdown=0) as (theirs, ours),
        theirs.wire() as their_wire,
        ours.wire() as our_wire,
    ):
        their_wire.listen("test://a")
        our_wire.listen("test://a")
        theirs.stop()
        ours.stop()
        assert our_wire.event()["result"]["resultType"] == "complete"
        with pytest.raises((EOFError, ConnectionResetError)):
            their_wire.event()


def test_an_answer_header_with_a_line_end_is_not_sent() -> None:
    """Neither sends a header with line ends, which a careless `verify` may build."""

    def verify(headers: Any) -> str:
        raise HttpRefusal(401, "No.", ((b"www-authenticate", b"Bearer\r\nSet-Cookie: a=b"),))

    with serve_both(verify=verify) as (theirs, ours), theirs.wire() as their_wire, ours.wire() as our_wire:
        for wire in (their_wire, our_wire):
            wire.write(read_request("a"))
            assert wire.closed()


# --- without uvicorn


@pytest.mark.parametrize(("size", "status"), [(1000, 200), (1001, 431)])
@pytest.mark.parametrize("cuts", [0, 1], ids=["at once", "in two parts"])
def test_a_head_is_bounded_in_bytes(size: int, status: int, cuts: int) -> None:
    """The target, and each name and value with four bytes around them."""
    filler = size - len(b"/healthz") - len(b"hostlocalhostx") - 8
    head = HEALTH[:-2] + b"X: %b\r\n\r\n" % (b"y" * filler)
    with ServerThread(limits=HttpLimits(header_size=1000)) as ours, ours.wire() as wire:
        for part in (head[: len(head) // 2], head[len(head) // 2 :]) if cuts else (head,):
            wire.write(part)
        assert wire.reply().status == status


@pytest.mark.parametrize(("count", "status"), [(100, 200), (101, 431)])
def test_a_head_is_bounded_in_headers(count: int, status: int) -> None:
    with ServerThread() as ours, ours.wire() as wire:
        wire.write(HEALTH[:-2] + b"X: y\r\n" * (count - 1) + b"\r\n")
        assert wire.reply().status == status


@pytest.mark.parametrize("step", [1, 7, 1000])
def test_requests_may_arrive_in_chunks_of_any_size(step: int) -> None:
    offer = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AA"
    trailers = b"X-User: admin\r\nA: b\r\n\r\n"
    requests = [
        read_request("a"),
        read_request("b", offer),
        read_request("c", chunked=trailers),
        read_request("d", offer, chunked=trailers),
        HEALTH,
    ]
    data = b"".join(requests * 2)
    with ServerThread() as ours, ours.wire() as wire:
        for start in range(0, len(data), step):
            wire.write(data[start : start + step])
        for _ in range(2):
            assert [wire.reply().text for _ in range(4)] == ["test://a", "test://b", "test://c", "test://d"]
            assert wire.reply().status == 200


def test_no_100_continue_is_sent_for_a_body_that_has_arrived() -> None:
    """Also when the application waits for the client to leave."""
    with ServerThread(limits=HttpLimits(watch_after=0.01, sweep_time=0.01)) as ours, ours.wire() as wire:
        wire.write(read_request("wait", b"Expect: 100-continue"))
        assert ours.service.arrived.acquire(timeout=5)
        (connection,) = find_server(ours).connections.open
        while connection.serving is None or connection.serving.waiter is None:
            pass
        ours.open_gates()
        assert wire.reply().status == 200
