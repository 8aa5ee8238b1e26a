"""Resumed streams: only the same client gets the events it missed, within bounds."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.transports.http_support import INITIALIZE, RawClient, SampleService, ServerThread, find_app
from wharfinger.auth import static_token
from wharfinger.protocol.http.rules import HttpLimits
from wharfinger.protocol.limits import Limits
from wharfinger.transports.http_server.replay import ReplayBuffer, ReplayBuffers, ReplayStream


@pytest.fixture(scope="module")
def server() -> Iterator[ServerThread]:
    with ServerThread() as server:
        yield server


@pytest.fixture
def wire(server: ServerThread) -> Iterator[RawClient]:
    with server.wire() as wire:
        yield wire


def read_on(wire: RawClient, session: str, last: str, **headers: str | None) -> int:
    wire.request("GET", accept="text/event-stream", mcp_session_id=session, last_event_id=last, **headers)
    return wire.head()[0]


def begin(wire: RawClient, session: str, name: str, id: Any = 1) -> None:
    """Read a resource that is answered with a stream, and read the head of the stream."""
    wire.send_in_session(session, "resources/read", {"uri": f"test://{name}"}, id)
    status, headers = wire.head()
    assert (status, headers["content-type"]) == (200, "text/event-stream")


def test_a_stream_starts_with_an_event_without_data(wire: RawClient) -> None:
    """2025-11-25, sending messages, 6."""
    session = wire.initialize()
    begin(wire, session, "progress")
    first = wire.chunk()
    assert first.startswith(b"event: message\nid: ")
    assert first.partition(b"\n\n")[0].endswith(b"-1-0\ndata: ")


@pytest.mark.parametrize("version", ["2025-03-26", "2025-06-18"])
def test_clients_of_older_revisions_get_no_event_without_data(server: ServerThread, version: str) -> None:
    """These clients would parse it as JSON."""
    with server.wire() as wire:
        opened = wire.in_session("", "initialize", INITIALIZE | {"protocolVersion": version}, 0)
        begin(wire, opened.headers["mcp-session-id"], "progress")
        body = b"".join(wire.chunks())
        assert b"data: \n" not in body
        assert body.count(b"id: ") == 4


def test_a_disconnected_client_gets_the_missed_events_and_the_answer(server: ServerThread, wire: RawClient) -> None:
    session = wire.initialize()
    with server.wire() as cut:
        begin(cut, session, "wait-progress", "w")
        assert cut.event()["params"]["progress"] == 1
        last = cut.last_id
    assert server.service.arrived.acquire(timeout=5)
    server.open_gates()
    assert wire.in_session(session, "ping").status == 200
    while any(request.id == "w" for request in find_app(server).sessions.running):
        pass
    assert read_on(wire, session, last) == 200
    assert wire.event()["id"] == "w"
    assert wire.event() is None
    # The stream can also be replayed from its start.
    with server.wire() as other:
        assert read_on(other, session, last.rpartition("-")[0] + "-0") == 200
        assert [other.event().get("id"), other.event()["id"], other.event()] == [None, "w", None]


def test_the_stream_of_a_pending_request_continues_on_another_connection(server: ServerThread, wire: RawClient) -> None:
    session = wire.initialize()
    with server.wire() as first:
        begin(first, session, "wait-progress", "w")
        first.event()
        assert server.service.arrived.acquire(timeout=5)
        assert read_on(wire, session, first.last_id) == 200
        assert first.event() is None  # a stream has one reader at a time
        server.open_gates()
        assert wire.event()["id"] == "w"
        assert wire.event() is None


def test_a_call_may_close_its_connection_and_continue(server: ServerThread, wire: RawClient) -> None:
    session = wire.initialize()
    begin(wire, session, "polled", "p")
    assert wire.event() is None
    assert (wire.retry, server.service.released) == (7, True)
    assert server.service.arrived.acquire(timeout=5)
    with server.wire() as other:
        assert read_on(other, session, wire.last_id) == 200
        assert [other.event()["params"]["progress"] for _ in range(2)] == [0, 1]
        server.open_gates()
        assert other.event()["id"] == "p"
        assert other.event() is None


def test_older_revisions_keep_their_connection(server: ServerThread, wire: RawClient) -> None:
    opened = wire.in_session("", "initialize", INITIALIZE | {"protocolVersion": "2025-06-18"}, 0)
    begin(wire, opened.headers["mcp-session-id"], "polled", "p")
    assert not server.service.released
    assert server.service.arrived.acquire(timeout=5)
    server.open_gates()
    assert [event.get("id") for event in (wire.event(), wire.event(), wire.event())] == [None, None, "p"]


def test_streams_of_one_session_are_never_mixed(server: ServerThread, wire: RawClient) -> None:
    session = wire.initialize()
    lasts = []
    for name in ("a", "b"):
        with server.wire() as cut:
            begin(cut, session, "progress", name)
            cut.event()
            lasts.append(cut.last_id)
            while cut.event() is not None:
                pass
    for name, last in zip("ab", lasts, strict=True):
        with server.wire() as other:
            assert read_on(other, session, last) == 200
            assert [e.get("id") for e in (other.event(), other.event(), other.event())] == [None, None, name]
            assert other.event() is None


def test_the_session_stream_continues_on_another_connection(server: ServerThread, wire: RawClient) -> None:
    session = wire.initialize()
    wire.in_session(session, "resources/subscribe", {"uri": "test://a"})
    ours = server.service.sessions[-1]
    with server.wire() as first:
        first.open_stream(session)
        assert server.call(lambda: [ours.send(b'{"n":%d}' % n) for n in range(3)]) == [True] * 3
        assert first.event() == {"n": 0}
        last = first.last_id
        with server.wire() as second:  # the same client knows the last event of the first connection
            assert read_on(second, session, last) == 200
            assert [second.event(), second.event()] == [{"n": 1}, {"n": 2}]
            assert server.call(ours.send, b'{"n":3}')
            assert second.event() == {"n": 3}


def test_event_ids_of_another_session_replay_nothing(server: ServerThread, wire: RawClient) -> None:
    """Security H29, A11: both sessions have the same request ids and the same numbers of streams."""
    alice, bob = wire.initialize(), wire.initialize()
    with server.wire() as cut:
        begin(cut, alice, "progress", 1)
        cut.event()
        last = cut.last_id
    with server.wire() as cut:
        begin(cut, bob, "progress", 1)
    for session, id in [(bob, last), (bob, "0" * 12 + last[12:])]:
        with server.wire() as other:
            assert read_on(other, session, id) == 200
            other.socket.settimeout(0.05)
            with pytest.raises(TimeoutError):
                other.event()
        while find_app(server).sessions._table["", bob.encode()].own_stream.reader is not None:
            pass


ALICE, BOB = "alice-0123456789", "bob-0123456789ab"


def test_a_stream_is_resumed_by_its_principal_only() -> None:
    def verify(headers: Any) -> str:
        name = "bob" if headers.get(b"authorization", b"").endswith(BOB.encode()) else "alice"
        return static_token(BOB if name == "bob" else ALICE, name)(headers)

    with ServerThread(verify=verify) as server, server.wire() as wire, server.wire() as other:
        session = wire.initialize(authorization=f"Bearer {ALICE}")
        params = {"uri": "test://progress"}
        wire.send_in_session(session, "resources/read", params, authorization=f"Bearer {ALICE}")
        assert wire.head()[0] == 200
        wire.event()
        assert read_on(other, session, wire.last_id, authorization=f"Bearer {BOB}") == 404


def test_dropped_events_are_reported() -> None:
    """Security H30."""
    with ServerThread(limits=HttpLimits(replay_events=4)) as server, server.wire() as wire:
        session = wire.initialize()
        begin(wire, session, "progress", 1)
        wire.event()
        last = wire.last_id
        while wire.event() is not None:
            pass
        with server.wire() as again:
            again.request("GET", accept="text/event-stream", mcp_session_id=session, last_event_id=wire.last_id)
            assert again.reply().error == -32600  # the stream has been read to its end
        wire = server.wire()
        assert len(wire.read_in_session(session, "progress", 2).events) == 4
        reply = wire.ask("GET", accept="text/event-stream", mcp_session_id=session, last_event_id=last)
        assert (reply.status, reply.error) == (400, -32600)


def test_an_answer_that_is_too_large_is_not_kept_and_that_is_reported() -> None:
    with ServerThread(limits=HttpLimits(replay_size=2000)) as server, server.wire() as wire:
        session = wire.initialize()
        with server.wire() as cut:
            begin(cut, session, "wait-progress-big", "w")
            cut.event()
            last = cut.last_id
        assert server.service.arrived.acquire(timeout=5)
        app = find_app(server)
        (ours,) = app.sessions._table.values()
        while next(iter(ours.streams.values())).reader is not None:
            pass
        server.open_gates()
        assert read_on(wire, session, last) == 200
        answer = wire.event()
        assert (answer["id"], answer["error"]["code"]) == ("w", -32603)


def test_answers_in_json_and_ended_sessions_are_not_kept_for_replay(server: ServerThread) -> None:
    buffers = find_app(server).sessions.replay_buffers
    with server.wire() as wire:
        session = wire.initialize()
        before = buffers.sizes.total
        assert wire.read_in_session(session, "a").status == 200
        assert buffers.sizes.total == before
        assert len(wire.read_in_session(session, "progress").events) == 4
        assert buffers.sizes.total > before
        assert wire.ask("DELETE", mcp_session_id=session).status == 204
        assert buffers.sizes.total == before


def test_replay_buffers_are_bounded_individually_and_in_total() -> None:
    buffers = ReplayBuffers(HttpLimits(replay_events=10, replay_size=5000, replay_total=8000))
    one, other = ReplayBuffer(buffers, ""), ReplayBuffer(buffers, "")
    for number in range(100):
        assert one.keep(1, number, b"x")
    assert [n for n, _ in one.events_after(1, 0)] == list(range(90, 100))
    assert not one.keep(1, 100, b"x" * 5000)
    for number in range(100):
        assert other.keep(1, number, b"y" * 2000)
        assert buffers.sizes.total <= 8000
    assert len(one.events_after(1, 0)) == 10
    three = ReplayBuffer(buffers, "")
    assert three.keep(1, 1, b"z" * 4000)
    assert buffers.sizes.total <= 8000
    assert not one.events_after(1, 0), "the one that was written to least recently gives way"
    for buffer in (one, other, three):
        buffer.clear()
    assert (buffers.sizes.total, buffers.buffers) == (0, {})


def test_notifications_without_a_reader_are_bounded_and_not_repeated() -> None:
    stream = ReplayStream(ReplayBuffer(ReplayBuffers(HttpLimits()), ""), "t", 1)
    hint = b'{"method":"notifications/resources/list_changed"}'
    assert [stream.push(hint, 0.0) for _ in range(100)] == [True] * 100
    assert [stream.push(b"same", 0.0) for _ in range(100)].count(True) == 63
    assert stream.push(b"must", 0.0, required=True)
    assert len(stream.buffer) == 65


def test_stateless_streams_have_no_ids(wire: RawClient) -> None:
    """2026-07-28 has no resumption."""
    reply = wire.read("progress")
    assert b"id: " not in reply.body.replace(b'"id": ', b"")
    assert json.loads(reply.body.split(b"data: ")[-1])["id"] == 1


def test_clients_that_disconnect_in_any_phase_leak_nothing() -> None:
    """Security H35, H49: cut off before, in and after their streams, asked or polled, and come back or not."""
    with ServerThread() as server, server.wire() as wire:
        app = find_app(server)
        sessions = [wire.initialize() for _ in range(10)]
        for number, session in enumerate(sessions):
            for id, name in enumerate(("a", "progress", "wait", "wait-progress", "polled", "ask")):
                with server.wire() as leaving:
                    leaving.send_in_session(session, "resources/read", {"uri": f"test://{name}"}, id)
                    if number % 2 and name not in ("a", "wait"):
                        assert leaving.head()[0] == 200
                        leaving.chunk()
            with server.wire() as leaving:
                leaving.open_stream(session)
                if number % 3 == 0:
                    leaving.request("GET", accept="text/event-stream", mcp_session_id=session, last_event_id="x-1-0")
        for _ in range(10 * 4):  # the blocked reads and the requests to the client
            assert server.service.arrived.acquire(timeout=5)
        for session in sessions:
            assert wire.ask("DELETE", mcp_session_id=session).status == 204
        for _ in range(2000):
            if not (app.sessions.running or app.calls.streams):
                break
            assert wire.ask("GET", "/healthz").status == 200
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
    with ServerThread(service) as server, server.wire() as wire, server.wire() as other:
        session = wire.initialize()
        begin(wire, session, "flood")
        assert server.service.arrived.acquire(timeout=5)
        assert other.in_session(session, "ping", id=2).status == 200
        (ours,) = find_app(server).sessions._table.values()
        assert ours.buffer._size <= 1024 * 1024
        (stream,) = ours.streams.values()
        assert stream.reader is not None and stream.reader.stream is not None
        assert stream.reader.stream._size < 1024 * 1024
        server.open_gates()
        seen = 0
        while "result" not in (event := wire.event()):
            seen += 1
        assert event["id"] == 1
        assert 0 < seen < 20_000
