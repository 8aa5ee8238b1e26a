"""HTTP+SSE of 2024-11-05 over a real socket: one stream for answers, and one POST for each message."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.transports.http_support import INITIALIZE, SampleService, ServerThread, find_app
from wharfinger.auth import static_token
from wharfinger.protocol.http.rules import HttpLimits
from wharfinger.protocol.limits import Limits

OLD = INITIALIZE | {"protocolVersion": "2024-11-05"}


@pytest.fixture(scope="module")
def http() -> Iterator[ServerThread]:
    with ServerThread() as http:
        yield http


class Pair:
    """A client with one connection for the stream and one for POSTs."""

    def __init__(self, http: ServerThread, **headers: str | None) -> None:
        self.down, self.up = http.wire(), http.wire()
        self.headers = headers
        self.down.request("GET", "/sse", accept="text/event-stream", **headers)
        status, sent = self.down.head()
        assert (status, sent["content-type"]) == (200, "text/event-stream")
        event = self.down.chunk().decode()
        assert event.startswith("event: endpoint\ndata: messages?session_id=")
        self.path = "/" + event.split("data: ")[1].strip()

    def post(self, message: Any, **headers: str | None) -> int:
        body = message if isinstance(message, bytes) else json.dumps({"jsonrpc": "2.0", **message}).encode()
        return self.up.ask("POST", self.path, body, **{**self.headers, **headers}).status

    def ask(self, method: str, params: Any = None, id: Any = 1) -> Any:
        assert self.post({"id": id, "method": method, "params": params or {}}) == 202
        return self.down.event()

    def open(self, version: str = "2024-11-05") -> Pair:
        result = self.ask("initialize", OLD | {"protocolVersion": version}, 0)["result"]
        assert result["protocolVersion"] == version
        assert self.post({"method": "notifications/initialized"}) == 202
        return self

    def close(self) -> None:
        self.down.close()
        self.up.close()

    def __enter__(self) -> Pair:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@pytest.mark.parametrize("version", ["2024-11-05", "2025-11-25"])
def test_a_session_is_served_in_any_revision_of_the_handshake(http: ServerThread, version: str) -> None:
    with Pair(http).open(version) as pair:
        answer = pair.ask("resources/read", {"uri": "test://a"}, "r")
        assert answer["id"] == "r"
        assert answer["result"]["contents"][0]["text"] == "test://a"
        assert pair.ask("resources/read", {"uri": "test://missing"}, 3)["error"]["code"] == -32002


def test_notifications_come_before_their_answer(http: ServerThread) -> None:
    with Pair(http).open() as pair:
        events = [pair.ask("resources/read", {"uri": "test://progress"}), *(pair.down.event() for _ in range(3))]
        assert [event.get("method") for event in events] == ["notifications/progress"] * 3 + [None]


def test_large_content_is_one_event(http: ServerThread) -> None:
    with Pair(http).open() as pair:
        assert len(pair.ask("resources/read", {"uri": "test://big"})["result"]["contents"][0]["blob"]) > 1 << 20


def test_a_message_may_have_line_ends(http: ServerThread) -> None:
    with Pair(http).open() as pair:
        assert pair.post(b'{"jsonrpc":"2.0",\r\n"id":5,\n"method":"ping"}\n') == 202
        assert pair.down.event() == {"jsonrpc": "2.0", "id": 5, "result": {}}


def test_an_invalid_message_is_answered_on_the_stream(http: ServerThread) -> None:
    with Pair(http).open() as pair:
        assert pair.post(b"{") == 202
        assert pair.down.event()["error"]["code"] == -32700


def test_a_request_to_the_client_is_answered_by_a_post(http: ServerThread) -> None:
    with Pair(http).open() as pair:
        asked = pair.ask("resources/read", {"uri": "test://ask"})
        assert asked["method"] == "roots/list"
        assert pair.post({"id": asked["id"], "result": {"roots": []}}) == 202
        assert json.loads(pair.down.event()["result"]["contents"][0]["text"]) == {"roots": []}


def test_a_cancelled_request_is_not_answered(http: ServerThread) -> None:
    """Security L11."""
    with Pair(http).open() as pair:
        assert pair.post({"id": "w", "method": "resources/read", "params": {"uri": "test://wait"}}) == 202
        assert http.service.arrived.acquire(timeout=5)
        assert pair.post({"method": "notifications/cancelled", "params": {"requestId": "w"}}) == 202
        assert http.service.left.acquire(timeout=5)
        assert pair.ask("ping", id="p")["id"] == "p"


def test_the_end_of_the_stream_ends_the_session(http: ServerThread) -> None:
    """The client cannot resume the stream."""
    app = find_app(http)
    with Pair(http).open() as pair:
        assert pair.post({"id": "w", "method": "resources/read", "params": {"uri": "test://wait"}}) == 202
        assert http.service.arrived.acquire(timeout=5)
        path = pair.path
    assert http.service.left.acquire(timeout=5)
    while app.sse:
        pass
    with http.wire() as wire:
        assert wire.ask("POST", path, b"{}").status == 404


@pytest.mark.parametrize(
    "path", ["/messages", "/messages?session_id=", "/messages?session_id=x", "/messages?session_id=%00&x"]
)
def test_an_unknown_session_is_not_found(http: ServerThread, path: str) -> None:
    with http.wire() as wire:
        assert wire.ask("POST", path, b'{"jsonrpc":"2.0","id":1,"method":"ping"}').status == 404


def test_ids_cannot_be_guessed(http: ServerThread) -> None:
    with Pair(http) as one, Pair(http) as other:
        assert one.path != other.path
        assert len(one.path.partition("=")[2]) >= 32


@pytest.mark.parametrize(("verb", "path"), [("POST", "/sse"), ("DELETE", "/sse"), ("GET", "/messages")])
def test_other_http_methods_are_not_allowed(http: ServerThread, verb: str, path: str) -> None:
    with http.wire() as wire:
        assert wire.ask(verb, path).status == 405


def test_foreign_names_and_origins_are_refused(http: ServerThread) -> None:
    """Security H01-H06."""
    events, evil = "text/event-stream", "https://evil.example"
    for status, headers in [
        (403, {"accept": events, "host": "evil.example"}),
        (403, {"accept": events, "origin": evil}),
        (406, {"accept": "application/json"}),
    ]:
        with http.wire() as wire:
            assert wire.ask("GET", "/sse", **headers).status == status
    with http.wire() as wire:
        assert wire.ask("POST", "/messages", b"{}", origin=evil).status == 403
    with Pair(http) as pair:
        assert pair.post({"id": 1, "method": "ping"}, content_type="text/plain") == 415


ALICE, BOB = "alice-0123456789", "bob-0123456789ab"


def test_a_session_belongs_to_its_principal() -> None:
    def verify(headers: Any) -> str:
        for name, token in (("alice", ALICE), ("bob", BOB)):
            if headers.get(b"authorization", b"").endswith(token.encode()):
                return static_token(token, name)(headers)
        return static_token(ALICE)(headers)

    with (
        ServerThread(verify=verify) as http,
        Pair(http, authorization=f"Bearer {ALICE}").open() as pair,
        http.wire() as wire,
    ):
        assert pair.ask("resources/read", {"uri": "test://principal"})["result"]["contents"][0]["text"] == "alice"
        assert pair.post({"id": 1, "method": "ping"}, authorization=f"Bearer {BOB}") == 404
        assert pair.post({"id": 1, "method": "ping"}, authorization=None) == 401
        assert wire.ask("GET", "/sse", accept="text/event-stream").status == 401


def test_sessions_of_one_client_are_bounded() -> None:
    with ServerThread(limits=HttpLimits(streams_per_client=1)) as http, Pair(http), http.wire() as wire:
        assert wire.ask("GET", "/sse", accept="text/event-stream").status == 429


def test_a_body_over_the_limit_is_refused() -> None:
    with ServerThread(SampleService(Limits(message=100))) as http, Pair(http) as pair:
        assert pair.post(b'"' + b"x" * 200 + b'"') == 413


def test_drain_lets_requests_finish_and_ends_the_stream() -> None:
    with ServerThread() as http, Pair(http).open() as pair:
        assert pair.post({"id": "w", "method": "resources/read", "params": {"uri": "test://wait"}}) == 202
        assert http.service.arrived.acquire(timeout=5)
        http.stop()
        http.open_gates()
        assert pair.down.event()["id"] == "w"
        assert pair.down.event() is None


def test_http_sse_can_be_disabled() -> None:
    with ServerThread(sse=False) as http, http.wire() as wire:
        assert wire.ask("GET", "/sse", accept="text/event-stream").status == 404
        assert wire.ask("POST", "/messages?session_id=x", b"{}").status == 404


def test_idle_streams_are_kept_alive() -> None:
    with ServerThread(limits=HttpLimits(comment_time=0.02, sweep_time=0.01)) as http, Pair(http) as pair:
        assert pair.down.chunk().startswith(b":")


def test_a_slow_reader_gets_errors_for_some_reads_and_delays_no_other() -> None:
    service = SampleService(Limits(unread=2 * 1024 * 1024))
    with ServerThread(service) as http, Pair(http).open() as slow, Pair(http).open() as other:
        for id in range(40):
            assert slow.post({"id": id + 1, "method": "resources/read", "params": {"uri": "test://big"}}) == 202
        assert other.ask("ping", id="p")["id"] == "p"
        app = find_app(http)
        assert app.sse is not None
        buffered = [server.parked_bytes + server.events._size for server in app.sse._table.values()]
        assert max(buffered) < 8 * 1024 * 1024
        answers = [slow.down.event() for _ in range(40)]
        assert sorted(answer["id"] for answer in answers) == list(range(1, 41))
        assert {"result" in answer for answer in answers} == {True, False}


def test_an_ended_session_leaks_nothing() -> None:
    with ServerThread() as http:
        for _ in range(20):
            with Pair(http).open() as pair:
                assert pair.post({"id": "w", "method": "resources/read", "params": {"uri": "test://ask"}}) == 202
                assert pair.down.event()["method"] == "roots/list"
        app = find_app(http)
        while app.sse or app.calls.busy:
            pass
        assert not app.calls._streams.total
