"""Input requests over real HTTP, in both eras: as an `input_required` result, and on the event stream of a call."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.server.input.fake_client import EVERYTHING, accepted
from tests.transports.http_support import INITIALIZE, META, STATELESS, RawClient, Reply, ServerThread
from wharfinger import Context, Server


@pytest.fixture(scope="module")
def http() -> Iterator[ServerThread]:
    server = Server("s")

    @server.tool
    async def it(ctx: Context) -> str:
        return await ctx.elicit("Who?", str, key="name")

    @server.tool
    async def chatty(ctx: Context) -> str:
        ctx.report_progress(1)
        return await ctx.elicit("Who?", str, key="name")

    service: Any = server
    with ServerThread(service) as http:
        yield http


def call(wire: RawClient, name: str, capabilities: dict[str, Any], **more: Any) -> Reply:
    meta = {**META, "io.modelcontextprotocol/clientCapabilities": capabilities, "progressToken": 1}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": name, "_meta": meta, **more}}
    wire.post(message, mcp_protocol_version=STATELESS, mcp_method="tools/call", mcp_name=name)
    return wire.reply()


def test_a_stateless_call_returns_its_input_request(http: ServerThread) -> None:
    with http.wire() as wire:
        reply = call(wire, "it", EVERYTHING)
        result = reply.json["result"]
        assert (reply.status, result["resultType"], list(result["inputRequests"])) == (200, "input_required", ["name"])
        answer = {"requestState": result["requestState"], "inputResponses": {"name": accepted(value="Ann")}}
        assert call(wire, "it", EVERYTHING, **answer).json["result"]["content"][0]["text"] == "Ann"
        reply = call(wire, "it", EVERYTHING, requestState="made up")
        assert reply.json["error"]["code"] == -32602


def test_an_input_request_may_follow_streamed_notifications(http: ServerThread) -> None:
    with http.wire() as wire:
        reported = call(wire, "chatty", EVERYTHING).events
        assert [event.get("method", "answer") for event in reported] == ["notifications/progress", "answer"]
        result = reported[-1]["result"]
        answer = {"requestState": result["requestState"], "inputResponses": {"name": accepted(value="Ann")}}
        assert call(wire, "chatty", EVERYTHING, **answer).json["result"]["content"][0]["text"] == "Ann"


def test_a_missing_client_capability_is_reported_with_its_status(http: ServerThread) -> None:
    with http.wire() as wire:
        reply = call(wire, "it", {"sampling": {}})
        assert (reply.status, reply.json["error"]["code"]) == (400, -32021)
        assert reply.json["error"]["data"] == {"requiredCapabilities": {"elicitation": {}}}


def test_a_session_gets_input_requests_on_the_stream_of_its_call(http: ServerThread) -> None:
    with http.wire() as wire, http.wire() as other:
        reply = wire.in_session("", "initialize", {**INITIALIZE, "capabilities": EVERYTHING}, 0)
        session = reply.headers["mcp-session-id"]
        wire.post({"jsonrpc": "2.0", "method": "notifications/initialized"}, mcp_session_id=session)
        assert wire.reply().status == 202
        wire.send_in_session(session, "tools/call", {"name": "it"}, 7)
        status, headers = wire.head()
        assert (status, headers["content-type"]) == (200, "text/event-stream")
        input_request = next_message(wire)
        assert input_request["method"] == "elicitation/create"
        other.post(
            {"jsonrpc": "2.0", "id": input_request["id"], "result": accepted(value="Ann")}, mcp_session_id=session
        )
        assert other.reply().status == 202
        assert next_message(wire)["result"]["content"][0]["text"] == "Ann"


def next_message(wire: RawClient) -> Any:
    """Return the next event with a message: a stream may begin with an event without one."""
    while not (message := wire.event()):
        continue
    return message
