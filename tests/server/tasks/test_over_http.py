"""Tasks over real HTTP: routing headers, and the status of each error."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.transports.http_support import META, RawClient, Reply, ServerThread
from wharfinger import Server
from wharfinger.protocol.limits import Limits
from wharfinger.types.task_extension import TASKS

DECLARED: dict[str, Any] = {**META, "io.modelcontextprotocol/clientCapabilities": {"extensions": {TASKS: {}}}}


def harbour() -> Server:
    server = Server("harbour", limits=Limits(drain=0.05, tasks=2))

    @server.tool(task=True)
    async def dredge(seconds: float = 60) -> str:
        await asyncio.sleep(seconds)
        return "done"

    @server.tool(task="required")
    async def must() -> str:
        return "done"

    return server


def send(wire: RawClient, method: str, params: dict[str, Any], meta: Any = DECLARED, **headers: str | None) -> None:
    named = {"mcp_protocol_version": "2026-07-28", "mcp_method": method}
    name = params.get("taskId", params.get("name"))
    if name is not None:
        named["mcp_name"] = name
    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}
    wire.post(message, **{**named, **headers})


def post(wire: RawClient, method: str, params: dict[str, Any], meta: Any = DECLARED, **headers: str | None) -> Reply:
    send(wire, method, params, meta, **headers)
    return wire.reply()


@pytest.mark.parametrize("method", ["tasks/get", "tasks/update", "tasks/cancel"])
def test_the_name_header_repeats_the_tasks_id(method: str) -> None:
    with ServerThread(harbour()) as http, http.wire() as wire:  # type: ignore[arg-type]
        id = post(wire, "tools/call", {"name": "dredge"}).json["result"]["taskId"]
        params: dict[str, Any] = {"taskId": id, "inputResponses": {}}
        assert post(wire, method, params).status == 200
        for wrong in (None, "another", id.swapcase()):
            reply = post(wire, method, params, mcp_name=wrong)
            assert (reply.status, reply.error) == (400, -32020)


def test_a_repeated_task_id_in_the_body_is_refused() -> None:
    with ServerThread(harbour()) as http, http.wire() as wire:  # type: ignore[arg-type]
        body = (
            b'{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{"taskId":"a","taskId":"b","_meta":'
            b'{"io.modelcontextprotocol/protocolVersion":"2026-07-28",'
            b'"io.modelcontextprotocol/clientInfo":{"name":"a","version":"1"},'
            b'"io.modelcontextprotocol/clientCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}}}}'
        )
        wire.post(body, mcp_protocol_version="2026-07-28", mcp_method="tasks/get", mcp_name="b")
        reply = wire.reply()
        assert (reply.status, reply.error) == (400, -32600)


def test_a_task_continues_after_its_call_is_answered_and_its_connection_closes() -> None:
    with ServerThread(harbour()) as http:  # type: ignore[arg-type]
        with http.wire() as wire:
            id = post(wire, "tools/call", {"name": "dredge", "arguments": {"seconds": 0.05}}).json["result"]["taskId"]
        with http.wire() as wire:
            send(wire, "subscriptions/listen", {"notifications": {"taskIds": [id]}})
            status, headers = wire.head()
            assert (status, headers["content-type"]) == (200, "text/event-stream")
            assert wire.event()["params"]["notifications"] == {"taskIds": [id]}
            while (state := wire.event()["params"])["status"] == "working":
                pass
            assert state["result"]["content"][0]["text"] == "done"


def test_errors_have_their_status() -> None:
    with ServerThread(harbour()) as http, http.wire() as wire:  # type: ignore[arg-type]
        reply = post(wire, "tools/call", {"name": "must"}, META)
        assert (reply.status, reply.error) == (400, -32021)
        reply = post(wire, "tasks/get", {"taskId": "x"}, META)
        assert (reply.status, reply.error) == (400, -32021)
        reply = post(wire, "subscriptions/listen", {"notifications": {"taskIds": ["x"]}}, META)
        assert (reply.status, reply.error) == (400, -32021)
        reply = post(wire, "tasks/get", {"taskId": "x"})
        assert (reply.status, reply.error) == (200, -32602)
        for method in ("tasks/list", "tasks/result"):
            reply = post(wire, method, {"taskId": "x"})
            assert (reply.status, reply.error) == (404, -32601)
        for _ in range(2):
            assert post(wire, "tools/call", {"name": "dredge"}).status == 200
        reply = post(wire, "tools/call", {"name": "dredge"})
        assert (reply.status, reply.error) == (503, -32603)
