"""The handshake era over a real socket: sessions belong to their principal, and requests to their session."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.transports.http_support import (
    ALICE_TOKEN,
    BOB_TOKEN,
    HANDSHAKE,
    INITIALIZE,
    RawClient,
    Reply,
    SampleService,
    ServerThread,
    find_app,
    verify_alice_or_bob,
)
from tests.waiting import wait_until
from wharfinger.protocol.http.rules import HttpLimits
from wharfinger.protocol.limits import Limits
from wharfinger.protocol.request import Request


@pytest.fixture(scope="module")
def server() -> Iterator[ServerThread]:
    with ServerThread() as server:
        yield server


@pytest.fixture
def client(server: ServerThread) -> Iterator[RawClient]:
    with server.connect() as client:
        yield client


def test_initialize_opens_a_session(client: RawClient) -> None:
    reply = client.call_in_session("", "initialize", INITIALIZE, "i")
    assert reply.status == 200
    assert reply.json["id"] == "i"
    assert reply.json["result"]["protocolVersion"] == HANDSHAKE
    session = reply.headers["mcp-session-id"]
    reply = client.read_in_session(session, "a", id=2)
    assert reply.json == {
        "jsonrpc": "2.0",
        "id": 2,
        "result": {"contents": [{"uri": "test://a", "mimeType": "text/plain", "text": "test://a"}]},
    }
    assert client.call_in_session(session, "ping").json["result"] == {}


def test_session_ids_are_unguessable_and_unordered(client: RawClient) -> None:
    """Security H24."""
    ids = [client.initialize() for _ in range(50)]
    assert len(set(ids)) == 50
    assert all(len(id) >= 32 and id.isascii() and id.isprintable() for id in ids)
    assert len({id[:4] for id in ids}) > 40


def test_the_version_header_is_optional_but_must_be_known(client: RawClient) -> None:
    session = client.initialize()
    for version, status in [(None, 200), ("2025-03-26", 200), ("1999-01-01", 400), ("2026-07-28", 400)]:
        assert client.call_in_session(session, "ping", mcp_protocol_version=version).status == status


@pytest.mark.parametrize("session", ["unknown", "x" * 8000, "<script>", "../../x", "' OR 1=1"])
def test_an_unknown_session_is_not_found_and_its_id_is_not_repeated(client: RawClient, session: str) -> None:
    """Security H22, H23: the server never adopts an id of a client."""
    for reply in (
        client.call_in_session(session, "ping"),
        client.call_in_session(session, "initialize", INITIALIZE),
        client.fetch("GET", accept="text/event-stream", mcp_session_id=session),
        client.fetch("DELETE", mcp_session_id=session),
    ):
        assert (reply.status, reply.error) == (404, -32600)
        assert session.encode() not in reply.body


def test_a_request_without_a_session_is_refused(client: RawClient) -> None:
    """Security H21, L01."""
    for reply in (
        client.call_in_session("", "resources/read", {"uri": "test://a"}),
        client.fetch("GET"),
        client.fetch("DELETE"),
    ):
        assert (reply.status, reply.error) == (400, -32600)


def test_a_second_initialize_does_not_renegotiate(client: RawClient) -> None:
    """Security L03."""
    session = client.initialize()
    reply = client.call_in_session(session, "initialize", INITIALIZE | {"protocolVersion": "2024-11-05"})
    assert (reply.status, reply.error) == (400, -32600)
    assert "result" in client.call_in_session(session, "ping").json
    # A bridge that repeats the initialize of its session gets the same answer, and no other session.
    reply = client.call_in_session(session, "initialize", INITIALIZE)
    assert (reply.status, reply.json["result"]["protocolVersion"]) == (200, HANDSHAKE)
    assert "mcp-session-id" not in reply.headers
    assert "result" in client.call_in_session(session, "ping").json


@pytest.mark.parametrize("params", [{}, {"protocolVersion": 1}, []])
def test_a_refused_initialize_opens_no_session(client: RawClient, params: Any) -> None:
    """Security L05, H50."""
    reply = client.call_in_session("", "initialize", params)
    assert reply.status in (200, 400)
    assert reply.error in (-32602, -32600)
    assert "mcp-session-id" not in reply.headers


def test_a_deleted_session_is_not_found(client: RawClient) -> None:
    """Security H25."""
    session = client.initialize()
    assert client.fetch("DELETE", mcp_session_id=session).status == 204
    assert client.call_in_session(session, "ping").status == 404
    assert client.fetch("DELETE", mcp_session_id=session).status == 404


@pytest.mark.parametrize(
    ("name", "code"),
    [("missing", -32002), ("exit", -32603), ("boom", -32603), ("surrogate", -32603), ("surrogate-in-error", -32603)],
)
def test_a_failed_request_is_not_answered_with_404(client: RawClient, name: str, code: int) -> None:
    """Security H32: a 404 would make the client start a new session."""
    session = client.initialize()
    reply = client.read_in_session(session, name)
    assert (reply.status, reply.error, reply.json["id"]) == (200, code, 1)
    reply = client.call_in_session(session, "no/such")
    assert (reply.status, reply.error) == (200, -32601)
    assert client.read_in_session(session, "a").text == "test://a"


@pytest.mark.parametrize(
    "body", [b"{", b"[]", b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]', b'{"id":1,"method":"ping"}']
)
def test_an_invalid_message_is_a_bad_request(client: RawClient, body: bytes) -> None:
    session = client.initialize()
    assert client.fetch("POST", body=body, mcp_session_id=session).status == 400
    assert client.call_in_session(session, "ping").status == 200


def test_a_notification_and_a_late_answer_are_accepted(client: RawClient) -> None:
    session = client.initialize()
    for message in ({"method": "notifications/roots/list_changed"}, {"id": 7, "result": {}}, {"method": "x/y"}):
        client.post({"jsonrpc": "2.0", **message}, mcp_session_id=session)
        reply = client.reply()
        assert (reply.status, reply.body) == (202, b"")


def test_the_first_notification_turns_the_answer_into_a_stream(client: RawClient) -> None:
    session = client.initialize()
    *notifications, answer = client.read_in_session(session, "progress").events
    assert [n["params"]["progress"] for n in notifications] == [0, 1, 2]
    assert answer["result"]["contents"][0]["text"] == "test://progress"


def test_messages_without_a_request_are_sent_on_the_session_stream(server: ServerThread, client: RawClient) -> None:
    session = client.initialize()
    assert client.call_in_session(session, "resources/subscribe", {"uri": "test://a"}).status == 200
    server_session = server.service.sessions[-1]
    assert server.call(server_session.send, b'{"n":0}')  # kept until the stream opens
    with server.connect() as stream:
        stream.open_stream(session)
        assert server.call(server_session.send, b'{"n":1}')
        assert [stream.event(), stream.event()] == [{"n": 0}, {"n": 1}]


def test_a_session_has_one_stream_at_a_time(server: ServerThread, client: RawClient) -> None:
    """Security H26, H27."""
    session = client.initialize()
    with server.connect() as stream:
        stream.open_stream(session)
        reply = client.fetch("GET", accept="text/event-stream", mcp_session_id=session)
        assert (reply.status, reply.error) == (409, -32600)
    for _ in range(1000):  # the server has to notice the disconnect first
        with server.connect() as stream:
            stream.request("GET", accept="text/event-stream", mcp_session_id=session)
            if stream.head()[0] == 200:
                return
    pytest.fail("the session still has its first stream")


@pytest.mark.parametrize("last_id", ["1", "x" * 5000, "<script>", "0/../1"])
def test_an_unknown_last_event_id_replays_nothing(server: ServerThread, client: RawClient, last_id: str) -> None:
    """Security H29, H30: the stream of the session opens without a replay."""
    session = client.initialize()
    with server.connect() as stream:
        stream.request("GET", accept="text/event-stream", mcp_session_id=session, last_event_id=last_id)
        assert stream.head()[0] == 200
        assert client.fetch("DELETE", mcp_session_id=session).status == 204
        assert stream.event() is None


def test_a_client_that_does_not_accept_events_cannot_open_a_stream(client: RawClient) -> None:
    session = client.initialize()
    assert client.fetch("GET", accept="application/json", mcp_session_id=session).status == 406


def test_messages_queued_for_a_stream_are_bounded(server: ServerThread, client: RawClient) -> None:
    session = client.initialize()
    client.call_in_session(session, "resources/subscribe", {"uri": "test://a"})
    server_session = server.service.sessions[-1]
    accepted = server.call(lambda: [server_session.send(b"%d" % number) for number in range(1000)])
    assert accepted.count(True) == 64


def test_delete_ends_the_stream_and_pending_requests() -> None:
    with (
        ServerThread() as server,
        server.connect() as client,
        server.connect() as stream,
        server.connect() as pending_client,
    ):
        session = client.initialize()
        stream.open_stream(session)
        pending_client.send_in_session(session, "resources/read", {"uri": "test://wait"})
        assert server.service.arrived.acquire(timeout=40)
        assert client.fetch("DELETE", mcp_session_id=session).status == 204
        assert server.service.ended.acquire(timeout=40)
        assert stream.event() is None
        assert pending_client.reply().status == 202


def test_a_disconnect_does_not_cancel_the_request() -> None:
    """Revisions before 2026-07-28: a disconnect is not a cancellation. Security H35."""
    with ServerThread() as server, server.connect() as client:
        session = client.initialize()
        with server.connect() as disconnecting_client:
            disconnecting_client.send_in_session(session, "resources/read", {"uri": "test://wait-progress"}, id=9)
            assert server.service.arrived.acquire(timeout=40)
        assert client.read_in_session(session, "a").text == "test://a"
        reply = client.read_in_session(session, "a", id=9)
        assert (reply.status, reply.error) == (400, -32600)  # still in flight
        server.open_gates()
        assert not server.service.ended.acquire(blocking=False)
        assert client.call_in_session(session, "ping").status == 200


def test_a_cancelled_request_is_not_answered(server: ServerThread, client: RawClient) -> None:
    """Security L11."""
    session = client.initialize()
    with server.connect() as pending_client:
        pending_client.send_in_session(session, "resources/read", {"uri": "test://wait"}, id="w")
        assert server.service.arrived.acquire(timeout=40)
        client.post(
            {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "w"}},
            mcp_session_id=session,
        )
        assert client.reply().status == 202
        assert server.service.ended.acquire(timeout=40)
        reply = pending_client.reply()
        assert (reply.status, reply.body) == (202, b"")


def test_nothing_is_sent_for_a_cancelled_call_whose_handler_continues(server: ServerThread, client: RawClient) -> None:
    """Security L11."""
    session = client.initialize()
    with server.connect() as pending_client:
        pending_client.send_in_session(session, "resources/read", {"uri": "test://stubborn"}, id="s")
        assert server.service.arrived.acquire(timeout=40)
        cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "s"}}
        client.post(cancel, mcp_session_id=session)
        assert client.reply().status == 202
        reply = pending_client.reply()
        assert (reply.status, reply.body) == (202, b"")


def test_a_session_cannot_cancel_requests_of_another(server: ServerThread, client: RawClient) -> None:
    """Security H28."""
    session, other_session = client.initialize(), client.initialize()
    with server.connect() as pending_client:
        pending_client.send_in_session(session, "resources/read", {"uri": "test://wait"}, id="w")
        assert server.service.arrived.acquire(timeout=40)
        client.post(
            {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "w"}},
            mcp_session_id=other_session,
        )
        assert client.reply().status == 202
        server.open_gates()
        assert pending_client.reply().text == "test://wait"


def test_a_second_request_with_a_pending_id_is_refused(server: ServerThread, client: RawClient) -> None:
    """Security J18, J19: the first request is still answered, and 1 is not "1"."""
    session = client.initialize()
    with server.connect() as pending_client:
        pending_client.send_in_session(session, "resources/read", {"uri": "test://wait"}, id=1)
        assert server.service.arrived.acquire(timeout=40)
        reply = client.read_in_session(session, "a", id=1)
        assert (reply.status, reply.error, "id" in reply.json) == (400, -32600, False)
        assert client.read_in_session(session, "a", id="1").json["id"] == "1"
        server.open_gates()
        assert pending_client.reply().json["id"] == 1


def test_a_request_over_its_deadline_is_cancelled_and_answered() -> None:
    service = SampleService(Limits(handler_time=0.1))
    with ServerThread(service, limits=HttpLimits(sweep_time=0.02)) as server, server.connect() as client:
        session = client.initialize()
        reply = client.read_in_session(session, "wait")
        assert (reply.status, reply.error) == (200, -32603)


def test_what_a_handler_does_after_its_deadline_is_not_cancelled_again() -> None:
    """Bug: each later check of the deadlines cancelled the handler's `finally` too."""

    class Transactions(SampleService):
        rolled_back = False

        async def read(self, request: Request) -> Any:
            try:
                return await super().read(request)
            finally:
                calls = request.channel.call.calls  # type: ignore[attr-defined]
                calls.sweep_also(calls.now + 1)
                await asyncio.sleep(0)
                self.rolled_back = True

    service = Transactions(Limits(handler_time=0.1))
    with ServerThread(service, limits=HttpLimits(sweep_time=0.02)) as server, server.connect() as client:
        reply = client.read_in_session(client.initialize(), "wait")
        assert (reply.status, reply.error, service.rolled_back) == (200, -32603, True)


def test_an_idle_session_expires_unless_it_has_a_stream() -> None:
    limits = HttpLimits(session_time=0.5, sweep_time=0.01)
    with ServerThread(limits=limits) as server, server.connect() as client, server.connect() as stream:
        idle, busy = client.initialize(), client.initialize()
        stream.open_stream(busy)
        app = find_app(server)
        wait_until(lambda: len(app.sessions) <= 1, "the idle session has expired")
        assert client.call_in_session(idle, "ping").status == 404
        assert client.call_in_session(busy, "ping").status == 200


def test_at_the_limit_of_sessions_an_idle_one_is_ended() -> None:
    """Security H49, X01."""
    limits = HttpLimits(sessions=2)
    with ServerThread(limits=limits) as server, server.connect() as client, server.connect() as stream:
        first, second = client.initialize(), client.initialize()
        stream.open_stream(first)
        client.call_in_session(second, "ping")
        third = client.initialize()
        assert client.call_in_session(second, "ping").status == 404
        assert client.call_in_session(first, "ping").status == 200
        assert client.call_in_session(third, "ping").status == 200


def test_requests_of_all_sessions_are_bounded_including_those_of_disconnected_clients() -> None:
    """Security L22, X06: a disconnect does not cancel a request of a session, so that it still counts."""
    with ServerThread(limits=HttpLimits(session_requests=1)) as server, server.connect() as client:
        first, second = client.initialize(), client.initialize()
        with server.connect() as disconnecting_client:
            disconnecting_client.send_in_session(first, "resources/read", {"uri": "test://wait"}, 7)
            assert server.service.arrived.acquire(timeout=40)
        for session in (first, second):
            reply = client.read_in_session(session, "a")
            assert (reply.status, reply.error, reply.json["id"]) == (503, -32603, 1)
        cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}}
        assert client.fetch("POST", body=json.dumps(cancel).encode(), mcp_session_id=first).status == 202
        assert server.service.ended.acquire(timeout=40)
        assert client.read_in_session(second, "a").text == "test://a"  # the cancelled request no longer counts


class SlowInitialize(SampleService):
    """A service whose `initialize` waits for its gate."""

    def __init__(self) -> None:
        super().__init__()
        initialize = self.handlers["initialize"]

        async def wait(request: Request) -> Any:
            gate = asyncio.Event()
            self.gates.append(gate)
            self.arrived.release()
            await gate.wait()
            return await initialize(request)

        self.handlers["initialize"] = wait


def open_batch_session(client: RawClient) -> str:
    """Open a session of the only revision with batches."""
    reply = client.call_in_session("", "initialize", INITIALIZE | {"protocolVersion": "2025-03-26"})
    return reply.headers["mcp-session-id"]


def post_batch(client: RawClient, session: str, *messages: dict[str, Any]) -> Reply:
    client.post([{"jsonrpc": "2.0", **message} for message in messages], mcp_session_id=session)
    return client.reply()


@pytest.mark.parametrize(("pings", "status"), [(2, 200), (3, 503)])
def test_each_request_of_a_batch_counts_as_one_that_runs(pings: int, status: int) -> None:
    with ServerThread(limits=HttpLimits(session_requests=2)) as server, server.connect() as client:
        session = open_batch_session(client)
        messages = [{"id": number, "method": "ping"} for number in range(pings)]
        assert post_batch(client, session, *messages).status == status
        assert post_batch(client, session, *messages[:2]).status == 200  # the ids of refused requests are free


@pytest.mark.parametrize("pings", [0, 1])
def test_responses_in_a_batch_are_accepted_while_requests_are_refused_because_too_many_run(pings: int) -> None:
    """Regression: the batch was refused, so that the request that waited for the response could not end."""
    with ServerThread(limits=HttpLimits(session_requests=1)) as server, server.connect() as client:
        session = open_batch_session(client)
        with server.connect() as asking:
            asking.send_in_session(session, "resources/read", {"uri": "test://ask"}, "r", mcp_protocol_version=None)
            _, headers = asking.head()
            assert headers["content-type"].startswith("text/event-stream")
            question = asking.event()
            response = {"id": question["id"], "result": {"roots": []}}
            refused = [{"id": "p", "method": "ping"}] * pings
            assert post_batch(client, session, *refused, response).status == (503 if pings else 202)
            assert asking.event()["id"] == "r"


def test_sessions_that_open_at_once_are_bounded() -> None:
    """Regression: each found room, since none was in the table before its `initialize` was answered."""
    service = SlowInitialize()
    with ServerThread(service, limits=HttpLimits(sessions=2)) as server:
        clients = [server.connect() for _ in range(3)]
        for client in clients:
            client.send_in_session("", "initialize", INITIALIZE, 0)
            assert service.arrived.acquire(timeout=40)
        server.open_gates()
        assert [client.reply().status for client in clients] == [200] * 3
        assert server.call(lambda: len(find_app(server).sessions)) == 2
        for client in clients:
            client.close()


def test_a_session_is_refused_if_busy_ones_have_opened_since_its_initialize_began() -> None:
    service = SlowInitialize()
    with ServerThread(service, limits=HttpLimits(sessions=1)) as server:
        busy, late = clients = [server.connect() for _ in range(2)]
        for client in clients:
            client.send_in_session("", "initialize", INITIALIZE, 0)
            assert service.arrived.acquire(timeout=40)
        server.call(service.gates.pop(0).set)
        session = busy.reply().headers["mcp-session-id"]
        with server.connect() as stream:
            stream.open_stream(session)
            server.open_gates()
            assert late.reply().status == 503
            assert busy.call_in_session(session, "ping").status == 200
        for client in clients:
            client.close()


def test_a_session_belongs_to_its_principal() -> None:
    """Security A09, A10."""
    with ServerThread(verify=verify_alice_or_bob) as server, server.connect() as client:
        session = client.initialize(authorization=f"Bearer {ALICE_TOKEN}")
        read = {"uri": "test://principal"}
        assert (
            client.call_in_session(session, "resources/read", read, authorization=f"Bearer {ALICE_TOKEN}").text
            == "alice"
        )
        assert client.call_in_session(session, "ping", authorization=f"Bearer {BOB_TOKEN}").status == 404
        assert client.fetch("DELETE", mcp_session_id=session, authorization=f"Bearer {BOB_TOKEN}").status == 404
        assert client.call_in_session(session, "ping").status == 401
        with server.connect() as other:
            assert other.call_in_session(session, "ping", authorization=f"Bearer {ALICE_TOKEN}").status == 200


def test_a_new_request_is_refused_while_draining() -> None:
    with ServerThread() as server, server.connect() as client, server.connect() as other:
        session = client.initialize()
        assert other.fetch("GET", "/healthz").status == 200
        client.send_in_session(session, "resources/read", {"uri": "test://wait"})
        assert server.service.arrived.acquire(timeout=40)
        app = find_app(server)
        server.call(lambda: (setattr(app, "draining", True), app.sessions.drain()))
        for reply in (other.read_in_session(session, "a", id=2), other.read("a")):
            assert (reply.status, reply.error) == (503, -32603)
        server.open_gates()
        assert client.reply().status == 200


def test_drain_ends_streams_and_lets_requests_finish() -> None:
    with ServerThread() as server, server.connect() as client, server.connect() as stream:
        session = client.initialize()
        stream.open_stream(session)
        client.send_in_session(session, "resources/read", {"uri": "test://wait"})
        assert server.service.arrived.acquire(timeout=40)
        server.stop()
        assert stream.event() is None
        server.open_gates()
        assert json.loads(client.reply().body)["result"]
