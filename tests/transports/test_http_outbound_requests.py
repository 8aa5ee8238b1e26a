"""Requests to the client in a session over HTTP: sent on a stream, and answered by a POST of the same session."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.transports.http_support import RawClient, SampleService, ServerThread, find_app
from tests.waiting import wait_until
from wharfinger.protocol.http.rules import HttpLimits
from wharfinger.protocol.limits import Limits

ROOTS = {"roots": [{"uri": "file:///a"}]}


@pytest.fixture(scope="module")
def server() -> Iterator[ServerThread]:
    with ServerThread() as server:
        yield server


def start_call(client: RawClient, session: str, name: str, id: Any = 1, **headers: str | None) -> Any:
    """Call a handler that sends a request to the client, and return the request."""
    client.send_in_session(session, "resources/read", {"uri": f"test://{name}"}, id, **headers)
    assert client.head()[1]["content-type"] == "text/event-stream"
    while (event := client.event())["method"] != "roots/list":
        pass
    return event


def answer(client: RawClient, session: str, id: Any, **members: Any) -> None:
    """Answer a request of the server, by default with `ROOTS`."""
    client.post({"jsonrpc": "2.0", "id": id, **(members or {"result": ROOTS})}, mcp_session_id=session)
    assert client.reply().status == 202


def text_of(event: Any) -> Any:
    return event["result"]["contents"][0]["text"]


def has_no_pending_requests(server: ServerThread) -> bool:
    return all(
        not session.peer._awaited and not session.pending._paused
        for session in find_app(server).sessions._table.values()
    )


@pytest.mark.parametrize("name", ["ask", "progress-ask"])
def test_a_request_is_sent_on_the_stream_of_its_call(server: ServerThread, name: str) -> None:
    with server.connect() as client, server.connect() as other:
        session = client.initialize()
        request = start_call(client, session, name)
        answer(other, session, request["id"])
        assert json.loads(text_of(client.event())) == ROOTS
        assert client.event() is None
    assert has_no_pending_requests(server)


def test_a_client_may_answer_a_request_with_an_error(server: ServerThread) -> None:
    with server.connect() as client, server.connect() as other:
        session = client.initialize()
        request = start_call(client, session, "ask")
        answer(other, session, request["id"], error={"code": -1, "message": "No."})
        assert json.loads(text_of(client.event()))["code"] == -1


def test_answers_from_another_session_and_late_or_repeated_ones_are_ignored(server: ServerThread) -> None:
    """Security H28."""
    with server.connect() as client, server.connect() as other:
        session, other_session = client.initialize(), other.initialize()
        request = start_call(client, session, "ask")
        answer(other, other_session, request["id"], result={"roots": ["forged"]})
        answer(other, session, str(request["id"]), result={"roots": ["of another id"]})
        answer(other, session, request["id"])
        answer(other, session, request["id"], result={"roots": ["repeated"]})
        assert json.loads(text_of(client.event())) == ROOTS
        answer(other, session, request["id"])


def test_cancelling_the_call_cancels_its_request(server: ServerThread) -> None:
    with server.connect() as client, server.connect() as other:
        session = client.initialize()
        request = start_call(client, session, "ask", "w")
        cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "w"}}
        other.post(cancel, mcp_session_id=session)
        assert other.reply().status == 202
        cancellation = client.event()
        assert cancellation["method"] == "notifications/cancelled"
        assert cancellation["params"]["requestId"] == request["id"]
        assert client.event() is None
        answer(other, session, request["id"])
    assert has_no_pending_requests(server)


def test_a_client_that_accepts_only_json_gets_requests_on_the_session_stream(server: ServerThread) -> None:
    with server.connect() as client, server.connect() as stream, server.connect() as other:
        session = client.initialize()
        stream.open_stream(session)
        client.send_in_session(session, "resources/read", {"uri": "test://ask"}, accept="application/json")
        answer(other, session, stream.event()["id"])
        assert json.loads(client.reply().text) == ROOTS


def test_a_request_fails_if_the_client_has_no_stream(server: ServerThread) -> None:
    with server.connect() as client:
        session = client.initialize()
        client.send_in_session(session, "resources/read", {"uri": "test://ask"}, accept="application/json")
        assert client.reply().text == "Overloaded"
    assert has_no_pending_requests(server)


def test_a_request_to_a_disconnected_client_waits_until_it_resumes(server: ServerThread) -> None:
    with server.connect() as client, server.connect() as stream, server.connect() as other:
        session = client.initialize()
        start_call(client, session, "ask", "w")
        last_id = client.last_id
        client.close()
        stream.request("GET", accept="text/event-stream", mcp_session_id=session, last_event_id=last_id[:-1] + "0")
        assert stream.head()[0] == 200
        answer(other, session, stream.event()["id"])
        assert json.loads(text_of(stream.event())) == ROOTS


def test_a_stateless_call_cannot_send_a_request(server: ServerThread) -> None:
    with server.connect() as client:
        assert client.read("ask").text == "nobody"


def test_an_input_request_that_stops_a_handler_is_its_result_in_both_eras(server: ServerThread) -> None:
    with server.connect() as client:
        assert client.read("input-required").json["result"]["resultType"] == "input_required"
        assert (
            client.read_in_session(client.initialize(), "input-required").json["result"]["resultType"]
            == "input_required"
        )


def test_the_deadline_of_a_call_is_paused_while_its_request_is_pending() -> None:
    service = SampleService(Limits(handler_time=0.05))
    with (
        ServerThread(service, limits=HttpLimits(sweep_time=0.01, watch_after=0.01)) as server,
        server.connect() as client,
    ):
        session = client.initialize()
        request = start_call(client, session, "ask")
        app = find_app(server)
        end = app.calls.now + 0.2
        wait_until(lambda: app.calls.now >= end, "the clock of the server moves on")
        with server.connect() as other:
            answer(other, session, request["id"])
        assert json.loads(text_of(client.event())) == ROOTS
        assert client.event() is None
        # Meanwhile a later call times out.
        request = start_call(client, session, "ask", 2)
        with server.connect() as other:
            assert other.read_in_session(session, "wait", 3).error == -32603
            answer(other, session, request["id"])


def test_a_request_that_the_client_never_answers_times_out() -> None:
    with ServerThread(SampleService(Limits(answer_time=0.02))) as server, server.connect() as client:
        session = client.initialize()
        request = start_call(client, session, "ask")
        assert client.event()["params"]["requestId"] == request["id"]
        assert text_of(client.event()) == "RequestTimeout"
        assert has_no_pending_requests(server)


def test_the_end_of_a_session_fails_its_pending_requests() -> None:
    with ServerThread() as server, server.connect() as client, server.connect() as other:
        session = client.initialize()
        start_call(client, session, "ask")
        assert server.service.arrived.acquire(timeout=40)
        assert other.fetch("DELETE", mcp_session_id=session).status == 204
        assert server.service.ended.acquire(timeout=40)
        assert client.event() is None
        assert not find_app(server).sessions.running
