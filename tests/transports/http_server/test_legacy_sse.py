"""HTTP+SSE of 2024-11-05 over a real socket: one stream for answers, and one POST for each message."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.transports.http_support import (
    ALICE_TOKEN,
    BOB_TOKEN,
    INITIALIZE,
    SampleService,
    ServerThread,
    find_app,
    verify_alice_or_bob,
)
from tests.waiting import wait_until
from wharfinger.protocol.http.rules import HttpLimits
from wharfinger.protocol.limits import Limits


@pytest.fixture(scope="module")
def http() -> Iterator[ServerThread]:
    with ServerThread() as http:
        yield http


class SseClient:
    """A client with one connection for the stream and one for POSTs."""

    def __init__(self, http: ServerThread, **headers: str | None) -> None:
        self.stream, self.posts = http.connect(), http.connect()
        self.headers = headers
        self.stream.request("GET", "/sse", accept="text/event-stream", **headers)
        status, received_headers = self.stream.head()
        assert (status, received_headers["content-type"]) == (200, "text/event-stream")
        event = self.stream.chunk().decode()
        assert event.startswith("event: endpoint\ndata: messages?session_id=")
        self.path = "/" + event.split("data: ")[1].strip()

    def post(self, message: Any, **headers: str | None) -> int:
        body = message if isinstance(message, bytes) else json.dumps({"jsonrpc": "2.0", **message}).encode()
        return self.posts.fetch("POST", self.path, body, **{**self.headers, **headers}).status

    def request(self, method: str, params: Any = None, id: Any = 1) -> Any:
        assert self.post({"id": id, "method": method, "params": params or {}}) == 202
        return self.stream.event()

    def initialize(self, version: str = "2024-11-05") -> SseClient:
        result = self.request("initialize", INITIALIZE | {"protocolVersion": version}, 0)["result"]
        assert result["protocolVersion"] == version
        assert self.post({"method": "notifications/initialized"}) == 202
        return self

    def close(self) -> None:
        self.stream.close()
        self.posts.close()

    def __enter__(self) -> SseClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@pytest.mark.parametrize("version", ["2024-11-05", "2025-11-25"])
def test_a_session_is_served_in_any_revision_of_the_handshake_era(http: ServerThread, version: str) -> None:
    with SseClient(http).initialize(version) as client:
        answer = client.request("resources/read", {"uri": "test://a"}, "r")
        assert answer["id"] == "r"
        assert answer["result"]["contents"][0]["text"] == "test://a"
        assert client.request("resources/read", {"uri": "test://missing"}, 3)["error"]["code"] == -32002


def test_notifications_come_before_their_answer(http: ServerThread) -> None:
    with SseClient(http).initialize() as client:
        events = [
            client.request("resources/read", {"uri": "test://progress"}),
            *(client.stream.event() for _ in range(3)),
        ]
        assert [event.get("method") for event in events] == ["notifications/progress"] * 3 + [None]


def test_large_content_is_one_event(http: ServerThread) -> None:
    with SseClient(http).initialize() as client:
        assert len(client.request("resources/read", {"uri": "test://big"})["result"]["contents"][0]["blob"]) > 1 << 20


def test_a_message_may_contain_line_breaks(http: ServerThread) -> None:
    with SseClient(http).initialize() as client:
        assert client.post(b'{"jsonrpc":"2.0",\r\n"id":5,\n"method":"ping"}\n') == 202
        assert client.stream.event() == {"jsonrpc": "2.0", "id": 5, "result": {}}


def test_an_invalid_message_is_answered_on_the_stream(http: ServerThread) -> None:
    with SseClient(http).initialize() as client:
        assert client.post(b"{") == 202
        assert client.stream.event()["error"]["code"] == -32700


def test_a_request_to_the_client_is_answered_by_a_post(http: ServerThread) -> None:
    with SseClient(http).initialize() as client:
        request = client.request("resources/read", {"uri": "test://ask"})
        assert request["method"] == "roots/list"
        assert client.post({"id": request["id"], "result": {"roots": []}}) == 202
        assert json.loads(client.stream.event()["result"]["contents"][0]["text"]) == {"roots": []}


def test_a_cancelled_request_is_not_answered(http: ServerThread) -> None:
    """Security L11."""
    with SseClient(http).initialize() as client:
        assert client.post({"id": "w", "method": "resources/read", "params": {"uri": "test://wait"}}) == 202
        assert http.service.arrived.acquire(timeout=40)
        assert client.post({"method": "notifications/cancelled", "params": {"requestId": "w"}}) == 202
        assert http.service.ended.acquire(timeout=40)
        assert client.request("ping", id="p")["id"] == "p"


def test_the_end_of_the_stream_ends_the_session(http: ServerThread) -> None:
    """The client cannot resume the stream."""
    app = find_app(http)
    with SseClient(http).initialize() as client:
        assert client.post({"id": "w", "method": "resources/read", "params": {"uri": "test://wait"}}) == 202
        assert http.service.arrived.acquire(timeout=40)
        path = client.path
    assert http.service.ended.acquire(timeout=40)
    wait_until(lambda: not app.sse, "the stream has ended")
    with http.connect() as other_client:
        assert other_client.fetch("POST", path, b"{}").status == 404


@pytest.mark.parametrize(
    "path", ["/messages", "/messages?session_id=", "/messages?session_id=x", "/messages?session_id=%00&x"]
)
def test_an_unknown_session_is_not_found(http: ServerThread, path: str) -> None:
    with http.connect() as client:
        assert client.fetch("POST", path, b'{"jsonrpc":"2.0","id":1,"method":"ping"}').status == 404


def test_session_ids_cannot_be_guessed(http: ServerThread) -> None:
    with SseClient(http) as first, SseClient(http) as second:
        assert first.path != second.path
        assert len(first.path.partition("=")[2]) >= 32


@pytest.mark.parametrize(("verb", "path"), [("POST", "/sse"), ("DELETE", "/sse"), ("GET", "/messages")])
def test_other_http_methods_are_not_allowed(http: ServerThread, verb: str, path: str) -> None:
    with http.connect() as client:
        assert client.fetch(verb, path).status == 405


def test_foreign_hosts_and_origins_and_other_media_types_are_refused(http: ServerThread) -> None:
    """Security H01-H06."""
    events, evil = "text/event-stream", "https://evil.example"
    for status, headers in [
        (403, {"accept": events, "host": "evil.example"}),
        (403, {"accept": events, "origin": evil}),
        (406, {"accept": "application/json"}),
    ]:
        with http.connect() as other_client:
            assert other_client.fetch("GET", "/sse", **headers).status == status
    with http.connect() as other_client:
        assert other_client.fetch("POST", "/messages", b"{}", origin=evil).status == 403
    with SseClient(http) as client:
        assert client.post({"id": 1, "method": "ping"}, content_type="text/plain") == 415


def test_a_session_belongs_to_its_principal() -> None:
    with (
        ServerThread(verify=verify_alice_or_bob) as http,
        SseClient(http, authorization=f"Bearer {ALICE_TOKEN}").initialize() as client,
        http.connect() as other_client,
    ):
        assert client.request("resources/read", {"uri": "test://principal"})["result"]["contents"][0]["text"] == "alice"
        assert client.post({"id": 1, "method": "ping"}, authorization=f"Bearer {BOB_TOKEN}") == 404
        assert client.post({"id": 1, "method": "ping"}, authorization=None) == 401
        assert other_client.fetch("GET", "/sse", accept="text/event-stream").status == 401


def test_sessions_of_one_client_are_bounded() -> None:
    with ServerThread(limits=HttpLimits(streams_per_client=1)) as http, SseClient(http), http.connect() as client:
        assert client.fetch("GET", "/sse", accept="text/event-stream").status == 429


def test_a_body_over_the_limit_is_refused() -> None:
    with ServerThread(SampleService(Limits(message=100))) as http, SseClient(http) as client:
        assert client.post(b'"' + b"x" * 200 + b'"') == 413


def test_drain_lets_requests_finish_and_ends_the_stream() -> None:
    with ServerThread() as http, SseClient(http).initialize() as client:
        assert client.post({"id": "w", "method": "resources/read", "params": {"uri": "test://wait"}}) == 202
        assert http.service.arrived.acquire(timeout=40)
        http.stop()
        http.open_gates()
        assert client.stream.event()["id"] == "w"
        assert client.stream.event() is None


def test_a_response_is_accepted_while_requests_are_refused_because_too_many_run() -> None:
    """A bug: it was refused, so that the request that waited for it could not end."""
    with ServerThread(limits=HttpLimits(session_requests=1)) as http, SseClient(http).initialize() as client:
        question = client.request("resources/read", {"uri": "test://ask"}, "r")
        assert client.post({"id": "p", "method": "ping"}) == 503
        assert client.post({"id": question["id"], "result": {"roots": []}}) == 202
        assert client.stream.event()["id"] == "r"
        assert client.request("ping", id="p")["id"] == "p"


def test_a_cancellation_is_accepted_while_requests_are_refused_because_too_many_run() -> None:
    """A bug: it was refused, so that the request that it cancels went on."""
    with ServerThread(limits=HttpLimits(session_requests=1)) as http, SseClient(http).initialize() as client:
        assert client.post({"id": "w", "method": "resources/read", "params": {"uri": "test://wait"}}) == 202
        assert http.service.arrived.acquire(timeout=40)
        assert client.post({"method": "notifications/cancelled", "params": {"requestId": "w"}}) == 202
        assert http.service.ended.acquire(timeout=40)
        assert client.request("ping", id="p")["id"] == "p"


def test_a_response_in_a_batch_is_accepted_although_the_requests_of_the_batch_are_refused() -> None:
    limits = HttpLimits(session_requests=1)
    with ServerThread(limits=limits) as http, SseClient(http).initialize("2025-03-26") as client:
        question = client.request("resources/read", {"uri": "test://ask"}, "r")
        response = {"jsonrpc": "2.0", "id": question["id"], "result": {"roots": []}}
        batch = [{"jsonrpc": "2.0", "id": "p", "method": "ping"}, response]
        assert client.post(json.dumps(batch).encode()) == 503
        assert client.stream.event()["id"] == "r"
        assert client.request("ping", id="p")["id"] == "p"


def test_a_response_is_accepted_while_the_server_stops() -> None:
    """A bug: it was refused, so that the server waited in vain for the request to end."""
    with ServerThread() as http, SseClient(http).initialize() as client:
        question = client.request("resources/read", {"uri": "test://ask"}, "r")
        sse = find_app(http).sse
        assert sse is not None
        http.call(sse.drain)
        assert client.post({"id": "p", "method": "ping"}) == 503
        assert client.post({"id": question["id"], "result": {"roots": []}}) == 202
        assert client.stream.event()["id"] == "r"
        assert client.stream.event() is None


def test_http_with_sse_can_be_disabled() -> None:
    with ServerThread(sse=False) as http, http.connect() as client:
        assert client.fetch("GET", "/sse", accept="text/event-stream").status == 404
        assert client.fetch("POST", "/messages?session_id=x", b"{}").status == 404


def test_an_idle_stream_gets_comments() -> None:
    with ServerThread(limits=HttpLimits(comment_time=0.02, sweep_time=0.01)) as http, SseClient(http) as client:
        assert client.stream.chunk().startswith(b":")


def test_a_slow_reader_gets_errors_for_some_reads_and_does_not_delay_others() -> None:
    service = SampleService(Limits(unread=2 * 1024 * 1024))
    with ServerThread(service) as http, SseClient(http).initialize() as slow, SseClient(http).initialize() as other:
        for id in range(40):
            assert slow.post({"id": id + 1, "method": "resources/read", "params": {"uri": "test://big"}}) == 202
        assert other.request("ping", id="p")["id"] == "p"
        app = find_app(http)
        assert app.sse is not None
        buffered = [server.queued_bytes + server.events._size for server in app.sse._table.values()]
        assert max(buffered) < 8 * 1024 * 1024
        answers = [slow.stream.event() for _ in range(40)]
        assert sorted(answer["id"] for answer in answers) == list(range(1, 41))
        assert {"result" in answer for answer in answers} == {True, False}


def test_an_ended_session_leaks_nothing() -> None:
    with ServerThread() as http:
        for _ in range(20):
            with SseClient(http).initialize() as client:
                assert client.post({"id": "w", "method": "resources/read", "params": {"uri": "test://ask"}}) == 202
                assert client.stream.event()["method"] == "roots/list"
        app = find_app(http)
        wait_until(lambda: not app.sse and not app.calls.busy, "the streams and their calls have ended")
        assert not app.calls._streams.total
