"""Input requests over HTTP: in an `input_required` result, or in a session on the event stream of the call."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.server.input.fake_client import ALL_CAPABILITIES, accept
from tests.transports.http_support import INITIALIZE, META, STATELESS, RawClient, Reply, ServerThread
from wharfinger import Context, Server


@pytest.fixture(scope="module")
def http() -> Iterator[ServerThread]:
    server = Server("s")

    @server.tool
    async def ask_name(ctx: Context) -> str:
        return await ctx.elicit("Who?", str, key="name")

    @server.tool
    async def report_then_ask(ctx: Context) -> str:
        ctx.report_progress(1)
        return await ctx.elicit("Who?", str, key="name")

    service: Any = server
    with ServerThread(service) as http:
        yield http


def call(client: RawClient, name: str, capabilities: dict[str, Any], **params: Any) -> Reply:
    meta = {**META, "io.modelcontextprotocol/clientCapabilities": capabilities, "progressToken": 1}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": name, "_meta": meta, **params}}
    client.post(message, mcp_protocol_version=STATELESS, mcp_method="tools/call", mcp_name=name)
    return client.reply()


def test_a_stateless_call_returns_its_input_request(http: ServerThread) -> None:
    with http.connect() as client:
        reply = call(client, "ask_name", ALL_CAPABILITIES)
        result = reply.json["result"]
        assert (reply.status, result["resultType"], list(result["inputRequests"])) == (200, "input_required", ["name"])
        answer = {"requestState": result["requestState"], "inputResponses": {"name": accept(value="Ann")}}
        assert call(client, "ask_name", ALL_CAPABILITIES, **answer).json["result"]["content"][0]["text"] == "Ann"
        reply = call(client, "ask_name", ALL_CAPABILITIES, requestState="made up")
        assert reply.json["error"]["code"] == -32602


def test_an_input_request_may_follow_streamed_notifications(http: ServerThread) -> None:
    with http.connect() as client:
        events = call(client, "report_then_ask", ALL_CAPABILITIES).events
        assert [event.get("method", "answer") for event in events] == ["notifications/progress", "answer"]
        result = events[-1]["result"]
        answer = {"requestState": result["requestState"], "inputResponses": {"name": accept(value="Ann")}}
        assert call(client, "report_then_ask", ALL_CAPABILITIES, **answer).json["result"]["content"][0]["text"] == "Ann"


def test_a_missing_client_capability_is_reported_with_status_400(http: ServerThread) -> None:
    with http.connect() as client:
        reply = call(client, "ask_name", {"sampling": {}})
        assert (reply.status, reply.json["error"]["code"]) == (400, -32021)
        assert reply.json["error"]["data"] == {"requiredCapabilities": {"elicitation": {}}}


def test_a_session_gets_input_requests_on_the_stream_of_its_call(http: ServerThread) -> None:
    with http.connect() as client, http.connect() as other:
        reply = client.call_in_session("", "initialize", {**INITIALIZE, "capabilities": ALL_CAPABILITIES}, 0)
        session = reply.headers["mcp-session-id"]
        client.post({"jsonrpc": "2.0", "method": "notifications/initialized"}, mcp_session_id=session)
        assert client.reply().status == 202
        client.send_in_session(session, "tools/call", {"name": "ask_name"}, 7)
        status, headers = client.head()
        assert (status, headers["content-type"]) == (200, "text/event-stream")
        input_request = next_message(client)
        assert input_request["method"] == "elicitation/create"
        other.post({"jsonrpc": "2.0", "id": input_request["id"], "result": accept(value="Ann")}, mcp_session_id=session)
        assert other.reply().status == 202
        assert next_message(client)["result"]["content"][0]["text"] == "Ann"


def next_message(client: RawClient) -> Any:
    """Return the next event with a message, after events without one at the start of a stream."""
    while not (message := client.event()):
        continue
    return message
