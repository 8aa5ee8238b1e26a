"""No client can use up a limit: sessions, streams, calls, bodies, connections and replay are shared between owners."""

from __future__ import annotations

import contextlib
import json
import socket

import pytest

from tests.security.server_processes import FIXTURE, HttpProcess
from tests.transports.http_server.test_legacy_sse import SseClient
from tests.transports.http_support import (
    INITIALIZE,
    META,
    RawClient,
    SampleService,
    ServerThread,
    find_app,
    find_server,
)
from tests.waiting import wait_until
from wharfinger.protocol.http.rules import HttpLimits
from wharfinger.protocol.limits import Limits
from wharfinger.protocol.principal import Principal
from wharfinger.transports.http_server.replay import ReplayBuffer, ReplayBuffers
from wharfinger.transports.http_server.runner import max_sockets

OTHER_ADDRESS = "127.0.0.2"
UNFINISHED_REQUEST = (
    b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 1000000\r\n\r\n"
)


def connect_from(port: int, address: str = OTHER_ADDRESS) -> RawClient:
    """Connect from another address of this machine."""
    client = RawClient(port)
    client.socket.close()
    client.socket = socket.create_connection(("127.0.0.1", port), 10, source_address=(address, 0))
    return client


def test_an_owner_of_all_sessions_loses_some_to_others() -> None:
    with (
        ServerThread(limits=HttpLimits(sessions=20)) as http,
        http.connect() as greedy,
        connect_from(http.port) as other,
    ):
        sessions = [greedy.initialize() for _ in range(20)]
        other_session = other.initialize()
        assert greedy.call_in_session(sessions[0], "ping").status == 404
        assert greedy.call_in_session(sessions[1], "ping").status == 200  # and is now the most recently used session
        later = [greedy.initialize() for _ in range(30)]
        assert other.call_in_session(other_session, "ping").status == 200
        assert greedy.call_in_session(sessions[1], "ping").status == 404
        assert greedy.call_in_session(later[-19], "ping").status == 200
        assert len(find_app(http).sessions) == 20


def test_a_session_with_pending_requests_is_ended_last() -> None:
    with (
        ServerThread(limits=HttpLimits(sessions=3)) as http,
        http.connect() as greedy,
        http.connect() as stream,
        http.connect() as pending_client,
        connect_from(http.port) as other,
    ):
        streaming_session, working_session, idle_session = (greedy.initialize() for _ in range(3))
        stream.open_stream(streaming_session)
        pending_client.send_in_session(working_session, "resources/read", {"uri": "test://wait"})
        assert http.service.arrived.acquire(timeout=40)
        greedy.call_in_session(idle_session, "ping")
        other_session = other.initialize()
        assert greedy.call_in_session(idle_session, "ping").status == 404
        second = other.call_in_session("", "initialize", INITIALIZE)
        assert second.status == 200  # ends its own first session: it already has its share
        assert other.call_in_session(other_session, "ping").status == 404
        assert greedy.call_in_session(streaming_session, "ping").status == 200
        http.open_gates()
        assert pending_client.reply().text == "test://wait"


def test_a_busy_session_is_ended_only_if_its_owner_has_more_sessions_and_none_is_idle() -> None:
    with (
        ServerThread(limits=HttpLimits(sessions=2)) as http,
        http.connect() as greedy,
        connect_from(http.port) as other,
    ):
        streams = [http.connect() for _ in range(2)]
        for stream in streams:
            stream.open_stream(greedy.initialize())
        other_session = other.initialize()
        assert streams[0].event() is None  # its session was ended
        with connect_from(http.port) as third:
            third.open_stream(other_session)
            assert other.call_in_session("", "initialize", INITIALIZE).status == 503
            with connect_from(http.port, "127.0.0.3") as fourth:
                assert fourth.call_in_session("", "initialize", INITIALIZE).status == 503
        for stream in streams:
            stream.close()


def test_each_principal_has_its_own_share() -> None:
    limits = HttpLimits(sessions=5)
    with (
        ServerThread(limits=limits, verify=lambda headers: Principal(subject=headers[b"x-user"].decode())) as http,
        http.connect() as client,
    ):
        first, *_ = [client.initialize(x_user="greedy") for _ in range(5)]
        other_session = client.initialize(x_user="modest")
        for _ in range(10):
            client.initialize(x_user="greedy")
        assert client.call_in_session(other_session, "ping", x_user="modest").status == 200
        assert client.call_in_session(first, "ping", x_user="greedy").status == 404


def test_many_sessions_of_one_address_leave_room_for_others() -> None:
    with HttpProcess("run", FIXTURE, "--limit", "sessions=300") as server, server.connect() as client:
        for _ in range(600):
            assert client.call_in_session("", "initialize", INITIALIZE).status == 200
        with connect_from(server.port) as other:
            other_session = other.initialize()
            for _ in range(600):
                client.call_in_session("", "initialize", INITIALIZE)
            assert other.call_in_session(other_session, "ping").status == 200


def open_pending_calls(http: ServerThread, number: int) -> list[RawClient]:
    """Start calls that wait, each on its own connection."""
    clients = [http.connect() for _ in range(number)]
    for client in clients:
        client.send_stateless("resources/read", {"uri": "test://wait"})
        assert http.service.arrived.acquire(timeout=40)
    return clients


def test_calls_in_flight_are_shared_between_owners() -> None:
    with ServerThread(SampleService(Limits(in_flight=4))) as http, connect_from(http.port) as other:
        clients = open_pending_calls(http, 4)
        with http.connect() as extra:
            assert extra.read("a").status == 503
        assert other.read("a").status == 200
        for client in clients:
            client.close()


def test_unfinished_bodies_leave_room_for_other_callers() -> None:
    with ServerThread(SampleService(Limits(in_flight=4))) as http, connect_from(http.port) as other:
        clients = [http.connect() for _ in range(10)]
        for client in clients:
            client.write(UNFINISHED_REQUEST)
        calls = find_app(http).calls
        wait_until(lambda: len(calls.fresh) >= 10, "the requests have begun")
        assert other.read("a").status == 200
        for client in clients:
            client.close()
        wait_until(lambda: not calls.busy, "the requests have ended")
        assert calls._in_flight == {}


def test_the_bytes_of_unfinished_bodies_are_shared_between_owners() -> None:
    body = json.dumps(
        {"jsonrpc": "2.0", "id": 1, "method": "server/discover", "params": {"_meta": META, "x": "y" * 200_000}}
    )
    with ServerThread(limits=HttpLimits(unfinished=400_000)) as http, connect_from(http.port) as other:
        clients = [http.connect() for _ in range(4)]
        for client in clients:
            client.write(UNFINISHED_REQUEST + bytes(95_000))
        app = find_app(http)
        wait_until(lambda: app._unfinished.total >= 4 * 95_000, "the beginnings of the requests arrive")
        head = UNFINISHED_REQUEST.replace(b"1000000", b"%d" % len(body)).replace(
            b"\r\n\r\n", b"\r\nMCP-Protocol-Version: 2026-07-28\r\nMcp-Method: server/discover\r\n\r\n"
        )
        other.write(head + body[:150_000].encode())
        wait_until(lambda: app._unfinished.total >= 4 * 95_000 + 150_000, "the beginning of the larger request arrives")
        other.write(body[150_000:].encode())
        assert other.reply().status == 200
        for client in clients:
            client.close()


def test_streams_are_shared_between_owners() -> None:
    with ServerThread(limits=HttpLimits(streams=2)) as http, connect_from(http.port) as other:
        clients = [http.connect() for _ in range(2)]
        for client in clients:
            client.listen("test://a")
        with http.connect() as extra:
            extra.send_stateless("subscriptions/listen", {"notifications": {}})
            assert extra.reply().status == 503
        other.listen("test://a")
        with connect_from(http.port) as extra:
            extra.send_stateless("subscriptions/listen", {"notifications": {}})
            assert extra.reply().status == 503
        for client in clients:
            client.close()


def test_calls_in_sessions_are_shared_between_owners() -> None:
    with (
        ServerThread(limits=HttpLimits(session_requests=2)) as http,
        http.connect() as client,
        connect_from(http.port) as other,
    ):
        session, other_session = client.initialize(), other.initialize()
        initialized = client.call_in_session("", "initialize", INITIALIZE | {"protocolVersion": "2025-03-26"})
        batch = [{"jsonrpc": "2.0", "id": 9, "method": "resources/read", "params": {"uri": "test://wait"}}]
        pending_clients = [http.connect() for _ in range(2)]
        for id, caller in enumerate(pending_clients, 7):
            caller.send_in_session(session, "resources/read", {"uri": "test://wait"}, id)
            assert http.service.arrived.acquire(timeout=40)
        assert client.read_in_session(session, "a", id=9).status == 503
        client.post(batch, mcp_session_id=initialized.headers["mcp-session-id"])
        assert client.reply().status == 503
        assert other.read_in_session(other_session, "a").text == "test://a"
        http.open_gates()
        assert pending_clients[-1].reply().status == 200
        requests = find_app(http).sessions.requests
        wait_until(lambda: not requests.total, "the requests have ended")


def test_calls_over_http_with_sse_count_as_requests_of_sessions() -> None:
    with (
        ServerThread(limits=HttpLimits(session_requests=2)) as http,
        SseClient(http) as sse,
        connect_from(http.port) as other,
    ):
        sse.initialize()
        for id in (7, 8):
            assert sse.post({"id": id, "method": "resources/read", "params": {"uri": "test://wait"}}) == 202
            assert http.service.arrived.acquire(timeout=40)
        assert sse.post({"id": 9, "method": "ping"}) == 503
        assert other.read_in_session(other.initialize(), "a").text == "test://a"
        http.open_gates()
        assert {sse.stream.event()["id"], sse.stream.event()["id"]} == {7, 8}
        assert sse.post({"id": 9, "method": "ping"}) == 202


def test_connections_are_shared_between_owners() -> None:
    with ServerThread(limits=HttpLimits(connections=10)) as http:
        clients = [http.connect() for _ in range(10)]
        for client in clients:
            client.write(b"POST /mcp HT")  # counts as a pending request
        server = find_server(http)

        def count_busy() -> int:
            return sum(connection.busy for connection in server.connections.open)

        wait_until(lambda: http.call(count_busy) >= 10, "the connections are busy")
        with http.connect() as extra:
            assert extra.reply().status == 503
        with connect_from(http.port) as other:
            assert other.read("a").status == 200
            assert clients[0].is_closed_by_server()
            clients[1].write(b"TP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n")
            assert clients[1].reply().status == 415
        for client in clients:
            client.close()


def test_idle_connections_of_the_largest_owner_are_closed_first() -> None:
    with ServerThread(limits=HttpLimits(connections=3)) as http, connect_from(http.port) as other:
        busy, idle = (*open_pending_calls(http, 1), http.connect())
        assert idle.fetch("GET", "/healthz").status == 200
        assert other.fetch("GET", "/healthz").status == 200
        with connect_from(http.port, "127.0.0.3") as third:
            assert third.fetch("GET", "/healthz").status == 200
            assert idle.is_closed_by_server()
            http.open_gates()
            assert busy.reply().status == 200
        busy.close()


def test_refused_connections_are_bounded_in_number() -> None:
    with ServerThread(limits=HttpLimits(connections=1)) as http, contextlib.ExitStack() as stack:
        busy = open_pending_calls(http, 1)[0]
        for _ in range(300):
            stack.enter_context(http.connect())
        server = find_server(http)
        with http.connect() as client, contextlib.suppress(ConnectionResetError):
            assert client.reply().status == 503
        assert http.call(lambda: len(server.connections.open)) <= 1 + 32
        http.open_gates()
        assert busy.reply().status == 200
        busy.close()


def test_the_limit_of_connections_follows_the_limit_of_descriptors() -> None:
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        for limit, expected in ((256, 128), (100, 50), (4096, 3968)):
            if hard == resource.RLIM_INFINITY or limit <= hard:
                resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
                assert max_sockets() == expected
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_refused_connections_leave_descriptors_to_others() -> None:
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    try:
        server = HttpProcess("run", FIXTURE)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    with server, contextlib.ExitStack() as stack:
        for _ in range(400):
            client = stack.enter_context(server.connect(10))
            with contextlib.suppress(ConnectionError):  # closed by the server
                client.write(b"POST /mcp HTTP/1.1\r\n")
        assert server.descriptors() < 256 - 32
        with connect_from(server.port) as other:
            assert other.call("tools/list").status == 200


def test_events_of_the_largest_owner_are_dropped_first() -> None:
    buffers = ReplayBuffers(HttpLimits(replay_total=10_000, replay_size=10_000, replay_events=100))
    modest, greedy, second_greedy = (ReplayBuffer(buffers, owner) for owner in ("modest", "greedy", "greedy"))
    modest.keep(0, 1, b"x" * 1000)
    for number in range(100):
        (greedy, second_greedy)[number % 2].keep(0, number, b"x" * 1000)
    assert len(modest) == 1
    assert len(greedy) + len(second_greedy) == 7
    assert buffers.sizes.total <= 10_000
    for buffer in (modest, greedy, second_greedy):
        buffer.clear()
    assert (buffers.sizes.total, buffers.buffers) == (0, {})
