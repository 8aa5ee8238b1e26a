"""One client that fills a resource leaves room for others: sessions, streams, calls, bodies, connections, replay."""

from __future__ import annotations

import contextlib
import json
import socket

import pytest

from tests.security.places import FIXTURE, Http
from tests.transports.http_server.test_legacy_sse import Pair
from tests.transports.http_support import (
    INITIALIZE,
    META,
    RawClient,
    SampleService,
    ServerThread,
    find_app,
    find_server,
)
from wharfinger.protocol.http.rules import HttpLimits
from wharfinger.protocol.limits import Limits
from wharfinger.protocol.principal import Principal
from wharfinger.transports.http_server.replay import ReplayBuffer, ReplayBuffers
from wharfinger.transports.http_server.runner import max_sockets

OTHER = "127.0.0.2"
HALF = b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 1000000\r\n\r\n"


def wire_from(port: int, address: str = OTHER) -> RawClient:
    """Connect from another address of this machine."""
    wire = RawClient(port)
    wire.socket.close()
    wire.socket = socket.create_connection(("127.0.0.1", port), 10, source_address=(address, 0))
    return wire


def test_an_owner_who_fills_the_session_table_loses_sessions_to_others() -> None:
    with ServerThread(limits=HttpLimits(sessions=20)) as http, http.wire() as greedy, wire_from(http.port) as other:
        sessions = [greedy.initialize() for _ in range(20)]
        mine = other.initialize()
        assert greedy.in_session(sessions[0], "ping").status == 404
        assert greedy.in_session(sessions[1], "ping").status == 200  # now the most recently used one
        later = [greedy.initialize() for _ in range(30)]
        assert other.in_session(mine, "ping").status == 200
        assert greedy.in_session(sessions[1], "ping").status == 404
        assert greedy.in_session(later[-19], "ping").status == 200
        assert len(find_app(http).sessions) == 20


def test_a_session_with_pending_requests_is_ended_last() -> None:
    with (
        ServerThread(limits=HttpLimits(sessions=3)) as http,
        http.wire() as greedy,
        http.wire() as stream,
        http.wire() as waiting,
        wire_from(http.port) as other,
    ):
        streaming, working, idle = (greedy.initialize() for _ in range(3))
        stream.open_stream(streaming)
        waiting.send_in_session(working, "resources/read", {"uri": "test://wait"})
        assert http.service.arrived.acquire(timeout=5)
        greedy.in_session(idle, "ping")
        mine = other.initialize()
        assert greedy.in_session(idle, "ping").status == 404
        second = other.in_session("", "initialize", INITIALIZE)
        assert second.status == 200  # replaces its own session, so that no owner has two more than another
        assert other.in_session(mine, "ping").status == 404
        assert greedy.in_session(streaming, "ping").status == 200
        http.open_gates()
        assert waiting.reply().text == "test://wait"


def test_a_busy_session_is_ended_only_if_its_owner_has_no_idle_one_and_more_sessions() -> None:
    with ServerThread(limits=HttpLimits(sessions=2)) as http, http.wire() as greedy, wire_from(http.port) as other:
        streams = [http.wire() for _ in range(2)]
        for stream in streams:
            stream.open_stream(greedy.initialize())
        mine = other.initialize()
        assert streams[0].event() is None  # the stream of the session that was ended
        with wire_from(http.port) as third:
            third.open_stream(mine)
            assert other.in_session("", "initialize", INITIALIZE).status == 503
            with wire_from(http.port, "127.0.0.3") as fourth:
                assert fourth.in_session("", "initialize", INITIALIZE).status == 503
        for stream in streams:
            stream.close()


def test_each_principal_has_its_own_share() -> None:
    limits = HttpLimits(sessions=5)
    with (
        ServerThread(limits=limits, verify=lambda headers: Principal(subject=headers[b"x-user"].decode())) as http,
        http.wire() as wire,
    ):
        first, *_ = [wire.initialize(x_user="greedy") for _ in range(5)]
        mine = wire.initialize(x_user="modest")
        for _ in range(10):
            wire.initialize(x_user="greedy")
        assert wire.in_session(mine, "ping", x_user="modest").status == 200
        assert wire.in_session(first, "ping", x_user="greedy").status == 404


def test_many_sessions_of_one_address_leave_room_for_others() -> None:
    """With a real process."""
    with Http("run", FIXTURE, "--limit", "sessions=300") as server, server.wire() as wire:
        for _ in range(600):
            assert wire.in_session("", "initialize", INITIALIZE).status == 200
        with wire_from(server.port) as other:
            mine = other.initialize()
            for _ in range(600):
                wire.in_session("", "initialize", INITIALIZE)
            assert other.in_session(mine, "ping").status == 200


def wait(http: ServerThread, number: int) -> list[RawClient]:
    """Open this many pending calls, each on its own connection."""
    wires = [http.wire() for _ in range(number)]
    for wire in wires:
        wire.stateless("resources/read", {"uri": "test://wait"})
        assert http.service.arrived.acquire(timeout=5)
    return wires


def test_calls_in_flight_are_shared_between_owners() -> None:
    with ServerThread(SampleService(Limits(in_flight=4))) as http, wire_from(http.port) as other:
        wires = wait(http, 4)
        with http.wire() as one_more:
            assert one_more.read("a").status == 503
        assert other.read("a").status == 200
        for wire in wires:
            wire.close()


def test_unfinished_bodies_leave_room_for_other_callers() -> None:
    with ServerThread(SampleService(Limits(in_flight=4))) as http, wire_from(http.port) as other:
        wires = [http.wire() for _ in range(10)]
        for wire in wires:
            wire.write(HALF)
        calls = find_app(http).calls
        while len(calls.fresh) < 10:
            pass
        assert other.read("a").status == 200
        for wire in wires:
            wire.close()
        while calls.busy:
            pass
        assert calls._in_flight == {}


def test_the_bytes_of_unfinished_bodies_are_shared_between_owners() -> None:
    body = json.dumps(
        {"jsonrpc": "2.0", "id": 1, "method": "server/discover", "params": {"_meta": META, "x": "y" * 200_000}}
    )
    with ServerThread(limits=HttpLimits(unfinished=400_000)) as http, wire_from(http.port) as other:
        wires = [http.wire() for _ in range(4)]
        for wire in wires:
            wire.write(HALF + bytes(95_000))
        app = find_app(http)
        while app._unfinished.total < 4 * 95_000:
            pass
        head = HALF.replace(b"1000000", b"%d" % len(body)).replace(
            b"\r\n\r\n", b"\r\nMCP-Protocol-Version: 2026-07-28\r\nMcp-Method: server/discover\r\n\r\n"
        )
        other.write(head + body[:150_000].encode())
        while app._unfinished.total < 4 * 95_000 + 150_000:
            pass
        other.write(body[150_000:].encode())
        assert other.reply().status == 200
        for wire in wires:
            wire.close()


def test_streams_are_shared_between_owners() -> None:
    with ServerThread(limits=HttpLimits(streams=2)) as http, wire_from(http.port) as other:
        wires = [http.wire() for _ in range(2)]
        for wire in wires:
            wire.listen("test://a")
        with http.wire() as one_more:
            one_more.stateless("subscriptions/listen", {"notifications": {}})
            assert one_more.reply().status == 503
        other.listen("test://a")
        with wire_from(http.port) as one_more:
            one_more.stateless("subscriptions/listen", {"notifications": {}})
            assert one_more.reply().status == 503
        for wire in wires:
            wire.close()


def test_calls_in_sessions_are_shared_between_owners() -> None:
    with (
        ServerThread(limits=HttpLimits(session_requests=2)) as http,
        http.wire() as wire,
        http.wire() as waiting,
        wire_from(http.port) as other,
    ):
        session, mine = wire.initialize(), other.initialize()
        batch = [{"jsonrpc": "2.0", "id": 9, "method": "resources/read", "params": {"uri": "test://wait"}}]
        for id in (7, 8):
            waiting = http.wire()
            waiting.send_in_session(session, "resources/read", {"uri": "test://wait"}, id)
            assert http.service.arrived.acquire(timeout=5)
        assert wire.read_in_session(session, "a", id=9).status == 503
        wire.post(batch, mcp_session_id=session)
        assert wire.reply().status == 503
        assert other.read_in_session(mine, "a").text == "test://a"
        http.open_gates()
        assert waiting.reply().status == 200
        requests = find_app(http).sessions.requests
        while requests.total:
            pass


def test_calls_over_http_and_sse_are_bounded_and_counted_with_the_others() -> None:
    with ServerThread(limits=HttpLimits(session_requests=2)) as http, Pair(http) as pair, wire_from(http.port) as other:
        pair.open()
        for id in (7, 8):
            assert pair.post({"id": id, "method": "resources/read", "params": {"uri": "test://wait"}}) == 202
            assert http.service.arrived.acquire(timeout=5)
        assert pair.post({"id": 9, "method": "ping"}) == 503
        assert other.read_in_session(other.initialize(), "a").text == "test://a"
        http.open_gates()
        assert {pair.down.event()["id"], pair.down.event()["id"]} == {7, 8}
        assert pair.post({"id": 9, "method": "ping"}) == 202


def test_connections_are_shared_between_owners() -> None:
    with ServerThread(limits=HttpLimits(connections=10)) as http:
        wires = [http.wire() for _ in range(10)]
        for wire in wires:
            wire.write(b"POST /mcp HT")  # counts as a pending request
        server = find_server(http)
        while http.call(lambda: sum(connection.busy for connection in server.connections.open)) < 10:
            pass
        with http.wire() as one_more:
            assert one_more.reply().status == 503
        with wire_from(http.port) as other:
            assert other.read("a").status == 200
            assert wires[0].closed()
            wires[1].write(b"TP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n")
            assert wires[1].reply().status == 415
        for wire in wires:
            wire.close()


def test_idle_connections_of_the_largest_owner_are_closed_first() -> None:
    with ServerThread(limits=HttpLimits(connections=3)) as http, wire_from(http.port) as other:
        busy, idle = (*wait(http, 1), http.wire())
        assert idle.ask("GET", "/healthz").status == 200
        assert other.ask("GET", "/healthz").status == 200
        with wire_from(http.port, "127.0.0.3") as third:
            assert third.ask("GET", "/healthz").status == 200
            assert idle.closed()
            http.open_gates()
            assert busy.reply().status == 200
        busy.close()


def test_a_flood_of_refused_connections_is_closed() -> None:
    with ServerThread(limits=HttpLimits(connections=1)) as http, contextlib.ExitStack() as stack:
        busy = wait(http, 1)[0]
        for _ in range(300):
            stack.enter_context(http.wire())
        server = find_server(http)
        with http.wire() as wire, contextlib.suppress(ConnectionResetError):
            assert wire.reply().status == 503
        assert http.call(lambda: len(server.connections.open)) <= 1 + 32
        http.open_gates()
        assert busy.reply().status == 200
        busy.close()


def test_the_limit_of_connections_follows_the_limit_of_descriptors() -> None:
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        for limit, most in ((256, 128), (100, 50), (4096, 3968)):
            if hard == resource.RLIM_INFINITY or limit <= hard:
                resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
                assert max_sockets() == most
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_refused_connections_leave_descriptors_to_others() -> None:
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    try:
        server = Http("run", FIXTURE)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    with server, contextlib.ExitStack() as stack:
        for _ in range(400):
            wire = stack.enter_context(server.wire(10))
            with contextlib.suppress(ConnectionError):  # closed by the server
                wire.write(b"POST /mcp HTTP/1.1\r\n")
        assert server.descriptors() < 256 - 32
        with wire_from(server.port) as other:
            assert other.call("tools/list").status == 200


def test_events_of_the_largest_owner_are_dropped_first() -> None:
    buffers = ReplayBuffers(HttpLimits(replay_total=10_000, replay_size=10_000, replay_events=100))
    modest, greedy, also = (ReplayBuffer(buffers, owner) for owner in ("modest", "greedy", "greedy"))
    modest.keep(0, 1, b"x" * 1000)
    for number in range(100):
        (greedy, also)[number % 2].keep(0, number, b"x" * 1000)
    assert len(modest) == 1
    assert len(greedy) + len(also) == 7
    assert buffers.sizes.total <= 10_000
    for buffer in (modest, greedy, also):
        buffer.clear()
    assert (buffers.sizes.total, buffers.buffers) == (0, {})
