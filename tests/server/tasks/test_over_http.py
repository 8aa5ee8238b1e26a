"""Tasks over HTTP: routing headers, listening, and the status of each error."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.transports.http_support import META, RawClient, Reply, ServerThread
from wharfinger import Server
from wharfinger.protocol.limits import Limits
from wharfinger.types.task_extension import EXTENSION as TASKS

TASK_META: dict[str, Any] = {**META, "io.modelcontextprotocol/clientCapabilities": {"extensions": {TASKS: {}}}}


def task_server() -> Server:
    server = Server("harbour", limits=Limits(drain=0.05, tasks=2))

    @server.tool(task=True)
    async def dredge(seconds: float = 60) -> str:
        await asyncio.sleep(seconds)
        return "done"

    @server.tool(task="required")
    async def task_only() -> str:
        return "done"

    return server


def send(client: RawClient, method: str, params: dict[str, Any], meta: Any = TASK_META, **headers: str | None) -> None:
    standard_headers = {"mcp_protocol_version": "2026-07-28", "mcp_method": method}
    name = params.get("taskId", params.get("name"))
    if name is not None:
        standard_headers["mcp_name"] = name
    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}
    client.post(message, **{**standard_headers, **headers})


def post(client: RawClient, method: str, params: dict[str, Any], meta: Any = TASK_META, **headers: str | None) -> Reply:
    send(client, method, params, meta, **headers)
    return client.reply()


@pytest.mark.parametrize("method", ["tasks/get", "tasks/update", "tasks/cancel"])
def test_task_requests_require_the_task_id_in_the_name_header(method: str) -> None:
    with ServerThread(task_server()) as http, http.connect() as client:  # type: ignore[arg-type]
        id = post(client, "tools/call", {"name": "dredge"}).json["result"]["taskId"]
        params: dict[str, Any] = {"taskId": id, "inputResponses": {}}
        assert post(client, method, params).status == 200
        for name in (None, "another", id.swapcase()):
            reply = post(client, method, params, mcp_name=name)
            assert (reply.status, reply.error) == (400, -32020)


def test_a_body_with_two_task_ids_is_refused() -> None:
    with ServerThread(task_server()) as http, http.connect() as client:  # type: ignore[arg-type]
        body = (
            b'{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{"taskId":"a","taskId":"b","_meta":'
            b'{"io.modelcontextprotocol/protocolVersion":"2026-07-28",'
            b'"io.modelcontextprotocol/clientInfo":{"name":"a","version":"1"},'
            b'"io.modelcontextprotocol/clientCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}}}}'
        )
        client.post(body, mcp_protocol_version="2026-07-28", mcp_method="tasks/get", mcp_name="b")
        reply = client.reply()
        assert (reply.status, reply.error) == (400, -32600)


def test_a_task_continues_after_its_call_is_answered_and_its_connection_closes() -> None:
    with ServerThread(task_server()) as http:  # type: ignore[arg-type]
        with http.connect() as client:
            id = post(client, "tools/call", {"name": "dredge", "arguments": {"seconds": 0.05}}).json["result"]["taskId"]
        with http.connect() as client:
            send(client, "subscriptions/listen", {"notifications": {"taskIds": [id]}})
            status, headers = client.head()
            assert (status, headers["content-type"]) == (200, "text/event-stream")
            assert client.event()["params"]["notifications"] == {"taskIds": [id]}
            while (state := client.event()["params"])["status"] == "working":
                pass
            assert state["result"]["content"][0]["text"] == "done"


def test_each_error_has_its_http_status() -> None:
    with ServerThread(task_server()) as http, http.connect() as client:  # type: ignore[arg-type]
        reply = post(client, "tools/call", {"name": "task_only"}, META)
        assert (reply.status, reply.error) == (400, -32021)
        reply = post(client, "tasks/get", {"taskId": "x"}, META)
        assert (reply.status, reply.error) == (400, -32021)
        reply = post(client, "subscriptions/listen", {"notifications": {"taskIds": ["x"]}}, META)
        assert (reply.status, reply.error) == (400, -32021)
        reply = post(client, "tasks/get", {"taskId": "x"})
        assert (reply.status, reply.error) == (200, -32602)
        for method in ("tasks/list", "tasks/result"):
            reply = post(client, method, {"taskId": "x"})
            assert (reply.status, reply.error) == (404, -32601)
        for _ in range(2):
            assert post(client, "tools/call", {"name": "dredge"}).status == 200
        reply = post(client, "tools/call", {"name": "dredge"})
        assert (reply.status, reply.error) == (503, -32603)
