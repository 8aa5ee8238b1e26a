"""Requests to the client in a session over HTTP: sent on a stream, and answered by a POST of the same session."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.transports.http_support import RawClient, SampleService, ServerThread, find_app
from wharfinger.protocol.http.rules import HttpLimits
from wharfinger.protocol.limits import Limits

ROOTS = {"roots": [{"uri": "file:///a"}]}


@pytest.fixture(scope="module")
def server() -> Iterator[ServerThread]:
    with ServerThread() as server:
        yield server


def call(wire: RawClient, session: str, name: str, id: Any = 1, **headers: str | None) -> Any:
    """Call a tool that sends a request to the client, and return the request."""
    wire.send_in_session(session, "resources/read", {"uri": f"test://{name}"}, id, **headers)
    assert wire.head()[1]["content-type"] == "text/event-stream"
    while (event := wire.event())["method"] != "roots/list":
        pass
    return event


def answer(wire: RawClient, session: str, id: Any, **text_of: Any) -> None:
    wire.post({"jsonrpc": "2.0", "id": id, **(text_of or {"result": ROOTS})}, mcp_session_id=session)
    assert wire.reply().status == 202


def text_of(event: Any) -> Any:
    return event["result"]["contents"][0]["text"]


def nothing_pending(server: ServerThread) -> bool:
    return all(
        not session.peer._awaited and not session.pending._paused
        for session in find_app(server).sessions._table.values()
    )


@pytest.mark.parametrize("name", ["ask", "ask-tellingly"])
def test_a_request_is_sent_on_the_stream_of_its_call(server: ServerThread, name: str) -> None:
    with server.wire() as wire, server.wire() as other:
        session = wire.initialize()
        asked = call(wire, session, name)
        answer(other, session, asked["id"])
        assert json.loads(text_of(wire.event())) == ROOTS
        assert wire.event() is None
    assert nothing_pending(server)


def test_an_error_answers_a_request(server: ServerThread) -> None:
    with server.wire() as wire, server.wire() as other:
        session = wire.initialize()
        asked = call(wire, session, "ask")
        answer(other, session, asked["id"], error={"code": -1, "message": "No."})
        assert json.loads(text_of(wire.event()))["code"] == -1


def test_answers_from_another_session_and_late_or_repeated_ones_are_ignored(server: ServerThread) -> None:
    """Security H28."""
    with server.wire() as wire, server.wire() as other:
        session, stranger = wire.initialize(), other.initialize()
        asked = call(wire, session, "ask")
        answer(other, stranger, asked["id"], result={"roots": ["forged"]})
        answer(other, session, str(asked["id"]), result={"roots": ["of another id"]})
        answer(other, session, asked["id"])
        answer(other, session, asked["id"], result={"roots": ["doubled"]})
        assert json.loads(text_of(wire.event())) == ROOTS
        answer(other, session, asked["id"])


def test_cancelling_the_call_cancels_its_request(server: ServerThread) -> None:
    with server.wire() as wire, server.wire() as other:
        session = wire.initialize()
        asked = call(wire, session, "ask", "w")
        gone = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "w"}}
        other.post(gone, mcp_session_id=session)
        assert other.reply().status == 202
        withdrawn = wire.event()
        assert withdrawn["method"] == "notifications/cancelled"
        assert withdrawn["params"]["requestId"] == asked["id"]
        assert wire.event() is None
        answer(other, session, asked["id"])
    assert nothing_pending(server)


def test_a_client_that_accepts_only_json_gets_requests_on_the_session_stream(server: ServerThread) -> None:
    with server.wire() as wire, server.wire() as stream, server.wire() as other:
        session = wire.initialize()
        stream.open_stream(session)
        wire.send_in_session(session, "resources/read", {"uri": "test://ask"}, accept="application/json")
        answer(other, session, stream.event()["id"])
        assert json.loads(wire.reply().text) == ROOTS


def test_a_request_fails_if_the_client_has_no_stream(server: ServerThread) -> None:
    with server.wire() as wire:
        session = wire.initialize()
        wire.send_in_session(session, "resources/read", {"uri": "test://ask"}, accept="application/json")
        assert wire.reply().text == "Overloaded"
    assert nothing_pending(server)


def test_a_request_waits_for_a_disconnected_client(server: ServerThread) -> None:
    with server.wire() as wire, server.wire() as stream, server.wire() as other:
        session = wire.initialize()
        call(wire, session, "ask", "w")
        last = wire.last_id
        wire.close()
        stream.request("GET", accept="text/event-stream", mcp_session_id=session, last_event_id=last[:-1] + "0")
        assert stream.head()[0] == 200
        answer(other, session, stream.event()["id"])
        assert json.loads(text_of(stream.event())) == ROOTS


def test_a_stateless_call_cannot_wait_for_an_answer(server: ServerThread) -> None:
    with server.wire() as wire:
        assert wire.read("ask").text == "nobody"


def test_an_input_request_that_stops_a_handler_is_its_result_in_both_eras(server: ServerThread) -> None:
    with server.wire() as wire:
        assert wire.read("stopped").json["result"]["resultType"] == "input_required"
        assert wire.read_in_session(wire.initialize(), "stopped").json["result"]["resultType"] == "input_required"


def test_the_deadline_of_a_call_is_paused_while_its_request_is_pending() -> None:
    service = SampleService(Limits(handler_time=0.05))
    with ServerThread(service, limits=HttpLimits(sweep_time=0.01, watch_after=0.01)) as server, server.wire() as wire:
        session = wire.initialize()
        asked = call(wire, session, "ask")
        app = find_app(server)
        until = app.calls.now + 0.2
        while app.calls.now < until:
            pass
        with server.wire() as other:
            answer(other, session, asked["id"])
        assert json.loads(text_of(wire.event())) == ROOTS
        assert wire.event() is None
        # A later call times out meanwhile.
        asked = call(wire, session, "ask", 2)
        with server.wire() as other:
            assert other.read_in_session(session, "wait", 3).error == -32603
            answer(other, session, asked["id"])


def test_a_request_that_the_client_never_answers_times_out() -> None:
    with ServerThread(SampleService(Limits(answer_time=0.02))) as server, server.wire() as wire:
        session = wire.initialize()
        asked = call(wire, session, "ask")
        assert wire.event()["params"]["requestId"] == asked["id"]
        assert text_of(wire.event()) == "RequestTimeout"
        assert nothing_pending(server)


def test_the_end_of_a_session_fails_its_pending_requests() -> None:
    with ServerThread() as server, server.wire() as wire, server.wire() as other:
        session = wire.initialize()
        call(wire, session, "ask")
        assert server.service.arrived.acquire(timeout=5)
        assert other.ask("DELETE", mcp_session_id=session).status == 204
        assert server.service.left.acquire(timeout=5)
        assert wire.event() is None
        assert not find_app(server).sessions.running
