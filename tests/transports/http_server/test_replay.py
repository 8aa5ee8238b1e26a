"""Resumed streams: only the same client gets the events it missed, within bounds."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.transports.http_support import (
    ALICE_TOKEN,
    BOB_TOKEN,
    INITIALIZE,
    RawClient,
    SampleService,
    ServerThread,
    find_app,
    verify_alice_or_bob,
)
from tests.waiting import wait_until
from wharfinger.protocol.http.rules import HttpLimits
from wharfinger.protocol.limits import Limits
from wharfinger.transports.http_server.replay import ReplayBuffer, ReplayBuffers, ReplayStream


@pytest.fixture(scope="module")
def server() -> Iterator[ServerThread]:
    with ServerThread() as server:
        yield server


@pytest.fixture
def client(server: ServerThread) -> Iterator[RawClient]:
    with server.connect() as client:
        yield client


def resume(client: RawClient, session: str, last_id: str, **headers: str | None) -> int:
    """Resume a stream after this event, and return the status of the answer."""
    client.request("GET", accept="text/event-stream", mcp_session_id=session, last_event_id=last_id, **headers)
    return client.head()[0]


def start_stream(client: RawClient, session: str, name: str, id: Any = 1) -> None:
    """Read a resource that is answered with a stream, and read the head of the stream."""
    client.send_in_session(session, "resources/read", {"uri": f"test://{name}"}, id)
    status, headers = client.head()
    assert (status, headers["content-type"]) == (200, "text/event-stream")


def test_a_stream_starts_with_an_event_without_data(client: RawClient) -> None:
    """2025-11-25, Streamable HTTP, sending messages, step 6."""
    session = client.initialize()
    start_stream(client, session, "progress")
    first = client.chunk()
    assert first.startswith(b"event: message\nid: ")
    assert first.partition(b"\n\n")[0].endswith(b"-1-0\ndata: ")


@pytest.mark.parametrize("version", ["2025-03-26", "2025-06-18"])
def test_clients_of_older_revisions_get_no_event_without_data(server: ServerThread, version: str) -> None:
    """These clients would parse it as JSON."""
    with server.connect() as client:
        reply = client.call_in_session("", "initialize", INITIALIZE | {"protocolVersion": version}, 0)
        start_stream(client, reply.headers["mcp-session-id"], "progress")
        body = b"".join(client.chunks())
        assert b"data: \n" not in body
        assert body.count(b"id: ") == 4


def test_a_disconnected_client_gets_the_missed_events_and_the_answer(server: ServerThread, client: RawClient) -> None:
    session = client.initialize()
    with server.connect() as first:
        start_stream(first, session, "wait-progress", "w")
        assert first.event()["params"]["progress"] == 1
        last_id = first.last_id
    assert server.service.arrived.acquire(timeout=40)
    server.open_gates()
    assert client.call_in_session(session, "ping").status == 200
    wait_until(lambda: all(request.id != "w" for request in find_app(server).sessions.running), "the read has ended")
    assert resume(client, session, last_id) == 200
    assert client.event()["id"] == "w"
    assert client.event() is None
    # The stream can also be replayed from its start.
    with server.connect() as other:
        assert resume(other, session, last_id.rpartition("-")[0] + "-0") == 200
        assert [other.event().get("id"), other.event()["id"], other.event()] == [None, "w", None]


def test_the_stream_of_a_pending_request_continues_on_another_connection(
    server: ServerThread, client: RawClient
) -> None:
    session = client.initialize()
    with server.connect() as first:
        start_stream(first, session, "wait-progress", "w")
        first.event()
        assert server.service.arrived.acquire(timeout=40)
        assert resume(client, session, first.last_id) == 200
        assert first.event() is None  # a stream has one reader at a time
        server.open_gates()
        assert client.event()["id"] == "w"
        assert client.event() is None


def test_a_call_may_close_its_stream_and_continue(server: ServerThread, client: RawClient) -> None:
    session = client.initialize()
    start_stream(client, session, "detach", "p")
    assert client.event() is None
    assert (client.retry, server.service.detached) == (7, True)
    assert server.service.arrived.acquire(timeout=40)
    with server.connect() as other:
        assert resume(other, session, client.last_id) == 200
        assert [other.event()["params"]["progress"] for _ in range(2)] == [0, 1]
        server.open_gates()
        assert other.event()["id"] == "p"
        assert other.event() is None


def test_a_call_of_an_older_revision_keeps_its_stream(server: ServerThread, client: RawClient) -> None:
    reply = client.call_in_session("", "initialize", INITIALIZE | {"protocolVersion": "2025-06-18"}, 0)
    start_stream(client, reply.headers["mcp-session-id"], "detach", "p")
    assert not server.service.detached
    assert server.service.arrived.acquire(timeout=40)
    server.open_gates()
    assert [event.get("id") for event in (client.event(), client.event(), client.event())] == [None, None, "p"]


def test_streams_of_one_session_are_never_mixed(server: ServerThread, client: RawClient) -> None:
    session = client.initialize()
    last_ids = []
    for name in ("a", "b"):
        with server.connect() as first:
            start_stream(first, session, "progress", name)
            first.event()
            last_ids.append(first.last_id)
            while first.event() is not None:
                pass
    for name, last_id in zip("ab", last_ids, strict=True):
        with server.connect() as other:
            assert resume(other, session, last_id) == 200
            assert [event.get("id") for event in (other.event(), other.event(), other.event())] == [None, None, name]
            assert other.event() is None


def test_the_session_stream_continues_on_another_connection(server: ServerThread, client: RawClient) -> None:
    session = client.initialize()
    client.call_in_session(session, "resources/subscribe", {"uri": "test://a"})
    server_session = server.service.sessions[-1]
    with server.connect() as first:
        first.open_stream(session)
        assert server.call(lambda: [server_session.send(b'{"n":%d}' % n) for n in range(3)]) == [True] * 3
        assert first.event() == {"n": 0}
        last_id = first.last_id
        with server.connect() as second:  # the same client resumes before its first connection has ended
            assert resume(second, session, last_id) == 200
            assert [second.event(), second.event()] == [{"n": 1}, {"n": 2}]
            assert server.call(server_session.send, b'{"n":3}')
            assert second.event() == {"n": 3}


def test_the_event_id_of_another_session_replays_nothing(server: ServerThread, client: RawClient) -> None:
    """Security H29, A11: both sessions have the same request ids and the same numbers of streams."""
    alice, bob = client.initialize(), client.initialize()
    with server.connect() as first:
        start_stream(first, alice, "progress", 1)
        first.event()
        last_id = first.last_id
    with server.connect() as first:
        start_stream(first, bob, "progress", 1)
    for session, id in [(bob, last_id), (bob, "0" * 12 + last_id[12:])]:
        with server.connect() as other:
            assert resume(other, session, id) == 200
            other.socket.settimeout(0.05)
            with pytest.raises(TimeoutError):
                other.event()
        own_stream = find_app(server).sessions._table["", bob.encode()].own_stream
        wait_until(lambda stream=own_stream: stream.reader is None, "the stream has no reader")


def test_only_the_same_principal_can_resume_a_stream() -> None:
    with ServerThread(verify=verify_alice_or_bob) as server, server.connect() as client, server.connect() as other:
        session = client.initialize(authorization=f"Bearer {ALICE_TOKEN}")
        params = {"uri": "test://progress"}
        client.send_in_session(session, "resources/read", params, authorization=f"Bearer {ALICE_TOKEN}")
        assert client.head()[0] == 200
        client.event()
        assert resume(other, session, client.last_id, authorization=f"Bearer {BOB_TOKEN}") == 404


def test_dropped_events_are_reported() -> None:
    """Security H30."""
    with ServerThread(limits=HttpLimits(replay_events=4)) as server, server.connect() as client:
        session = client.initialize()
        start_stream(client, session, "progress", 1)
        client.event()
        last_id = client.last_id
        while client.event() is not None:
            pass
        with server.connect() as other:
            other.request("GET", accept="text/event-stream", mcp_session_id=session, last_event_id=client.last_id)
            assert other.reply().error == -32600  # the stream has been read to its end
        client = server.connect()
        assert len(client.read_in_session(session, "progress", 2).events) == 4
        reply = client.fetch("GET", accept="text/event-stream", mcp_session_id=session, last_event_id=last_id)
        assert (reply.status, reply.error) == (400, -32600)


def test_an_answer_too_large_for_replay_is_replaced_by_an_error() -> None:
    with ServerThread(limits=HttpLimits(replay_size=2000)) as server, server.connect() as client:
        session = client.initialize()
        with server.connect() as first:
            start_stream(first, session, "wait-progress-big", "w")
            first.event()
            last_id = first.last_id
        assert server.service.arrived.acquire(timeout=40)
        app = find_app(server)
        (server_session,) = app.sessions._table.values()
        wait_until(lambda: next(iter(server_session.streams.values())).reader is None, "the stream has no reader")
        server.open_gates()
        assert resume(client, session, last_id) == 200
        answer = client.event()
        assert (answer["id"], answer["error"]["code"]) == ("w", -32603)


def test_answers_in_json_and_ended_sessions_are_not_kept_for_replay(server: ServerThread) -> None:
    buffers = find_app(server).sessions.replay_buffers
    with server.connect() as client:
        session = client.initialize()
        before = buffers.sizes.total
        assert client.read_in_session(session, "a").status == 200
        assert buffers.sizes.total == before
        assert len(client.read_in_session(session, "progress").events) == 4
        assert buffers.sizes.total > before
        assert client.fetch("DELETE", mcp_session_id=session).status == 204
        assert buffers.sizes.total == before


def test_replay_buffers_are_bounded_individually_and_in_total() -> None:
    buffers = ReplayBuffers(HttpLimits(replay_events=10, replay_size=5000, replay_total=8000))
    first, second = ReplayBuffer(buffers, ""), ReplayBuffer(buffers, "")
    for number in range(100):
        assert first.keep(1, number, b"x")
    assert [n for n, _ in first.events_after(1, 0)] == list(range(90, 100))
    assert not first.keep(1, 100, b"x" * 5000)
    for number in range(100):
        assert second.keep(1, number, b"y" * 2000)
        assert buffers.sizes.total <= 8000
    assert len(first.events_after(1, 0)) == 10
    third = ReplayBuffer(buffers, "")
    assert third.keep(1, 1, b"z" * 4000)
    assert buffers.sizes.total <= 8000
    assert not first.events_after(1, 0), "the least recently written buffer is emptied first"
    for buffer in (first, second, third):
        buffer.clear()
    assert (buffers.sizes.total, buffers.buffers) == (0, {})


def test_notifications_without_a_reader_are_bounded_and_not_repeated() -> None:
    stream = ReplayStream(ReplayBuffer(ReplayBuffers(HttpLimits()), ""), "t", 1)
    notification = b'{"jsonrpc":"2.0","method":"notifications/resources/list_changed"}'
    assert [stream.push(notification, 0.0) for _ in range(100)] == [True] * 100
    same = b'{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"list_changed"}}'
    assert [stream.push(same, 0.0) for _ in range(100)].count(True) == 63
    assert stream.push(b"required", 0.0, required=True)
    assert len(stream.buffer) == 65


def test_stateless_streams_have_no_ids(client: RawClient) -> None:
    """2026-07-28 has no resumption."""
    reply = client.read("progress")
    assert b"id: " not in reply.body.replace(b'"id": ', b"")
    assert json.loads(reply.body.split(b"data: ")[-1])["id"] == 1


def test_clients_that_disconnect_in_any_phase_leak_nothing() -> None:
    """Security H35, H49: they disconnect before, during or after their streams, and some resume them."""
    with ServerThread() as server, server.connect() as client:
        app = find_app(server)
        sessions = [client.initialize() for _ in range(10)]
        for number, session in enumerate(sessions):
            for id, name in enumerate(("a", "progress", "wait", "wait-progress", "detach", "ask")):
                with server.connect() as disconnecting_client:
                    disconnecting_client.send_in_session(session, "resources/read", {"uri": f"test://{name}"}, id)
                    if number % 2 and name not in ("a", "wait"):
                        assert disconnecting_client.head()[0] == 200
                        disconnecting_client.chunk()
            with server.connect() as disconnecting_client:
                disconnecting_client.open_stream(session)
                if number % 3 == 0:
                    disconnecting_client.request(
                        "GET", accept="text/event-stream", mcp_session_id=session, last_event_id="x-1-0"
                    )
        for _ in range(10 * 4):  # the blocked reads and the requests to the client
            assert server.service.arrived.acquire(timeout=40)
        for session in sessions:
            assert client.fetch("DELETE", mcp_session_id=session).status == 204
        for _ in range(2000):
            if not (app.sessions.running or app.calls.streams):
                break
            assert client.fetch("GET", "/healthz").status == 200
        assert (len(app.sessions), app.sessions.running, app.sessions.replay_buffers.sizes.total) == (0, {}, 0)
        assert not (
            app.calls.streams
            or app.calls.slow
            or app.calls._streams.total
            or app.calls._in_flight
            or app.sessions.replay_buffers.buffers
        )


def test_a_slow_reader_of_the_stream_of_a_call_uses_bounded_memory() -> None:
    """Notifications are dropped above the limit. The answer is not."""
    service = SampleService(Limits(backlog=64 * 1024))
    with ServerThread(service) as server, server.connect() as client, server.connect() as other:
        session = client.initialize()
        start_stream(client, session, "flood")
        assert server.service.arrived.acquire(timeout=40)
        assert other.call_in_session(session, "ping", id=2).status == 200
        (server_session,) = find_app(server).sessions._table.values()
        assert server_session.buffer._size <= 1024 * 1024
        (stream,) = server_session.streams.values()
        assert stream.reader is not None and stream.reader.stream is not None
        assert stream.reader.stream._size < 1024 * 1024
        server.open_gates()
        received = 0
        while "result" not in (event := client.event()):
            received += 1
        assert event["id"] == 1
        assert 0 < received < 20_000
