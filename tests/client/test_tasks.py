"""Calls that a server turns into tasks: polls, input requests, failures and cancellation."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine
from typing import Any

import pytest

from wharfinger import Client, Context, Server
from wharfinger import types as t
from wharfinger.errors import InvalidResponse, RemoteError, RequestTimeout, ToolError

SCRIPT = """
import json, sys
def say(message): print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)
TASK = {"taskId": "T", "createdAt": "2026-01-01T00:00:00Z", "lastUpdatedAt": "2026-01-01T00:00:00Z", "ttlMs": None,
        "pollIntervalMs": 1}
DONE = {"resultType": "complete"}
FORM = {"method": "elicitation/create", "params": {"message": "?",
        "requestedSchema": {"type": "object", "properties": {}}}}
log, polls = [], 0
for line in sys.stdin:
    message = json.loads(line)
    id, method, params = message.get("id"), message["method"], message.get("params", {})
    log.append(method)
    if method == "server/discover":
        result = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, **DONE}
        say({"id": id, "result": {**result, "ttlMs": 0, "cacheScope": "private"}})
    elif method == "tools/call":
        if params["name"] == "log":
            say({"id": id, "result": {**DONE, "content": [], "structuredContent": log}})
        else:
            log.append(json.dumps(params["_meta"]["io.modelcontextprotocol/clientCapabilities"]))
            say({"id": id, "result": {"resultType": "task", "status": "working", **TASK}})
    elif method == "tasks/get":
        state = STATES[min(polls, len(STATES) - 1)]
        polls += 1
        say({"id": id, "result": {**DONE, **TASK, **state}})
    elif id is not None:
        log.append(json.dumps(params.get("inputResponses")))
        say({"id": id, "result": DONE})
"""
COMPLETED = {"status": "completed", "result": {"content": [{"type": "text", "text": "done"}]}}
WORKING = {"status": "working"}


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 20))


def scripted(*states: dict[str, Any], **settings: Any) -> Client:
    plain = repr(list(states)).replace("'FORM'", "FORM")
    return Client([sys.executable, "-c", SCRIPT.replace("log, polls", f"STATES = {plain}\nlog, polls", 1)], **settings)


async def answer_form(_: t.ElicitRequestParams) -> dict[str, Any]:
    return {"a": 1}


def test_a_task_is_polled_until_it_is_completed() -> None:
    async def test() -> None:
        async with scripted(WORKING, WORKING, COMPLETED, tasks=True) as client:
            assert (await client.call_tool("x")).text == "done"
            log = (await client.call_tool("log")).data
        assert log.count("tasks/get") == 3
        assert '{"extensions": {"io.modelcontextprotocol/tasks": {}}}' in log

    run(test())


def test_each_input_request_of_a_task_is_answered_once() -> None:
    first = {"status": "input_required", "inputRequests": {"k": "FORM"}}
    more = {"status": "input_required", "inputRequests": {"k": "FORM", "l": "FORM"}}

    async def test() -> None:
        async with scripted(first, first, more, WORKING, COMPLETED, tasks=True, elicitation=answer_form) as client:
            assert (await client.call_tool("x")).text == "done"
            log = (await client.call_tool("log")).data
        accepted = '{"action": "accept", "content": {"a": 1}}'
        assert [line for line in log if "action" in line] == [f'{{"k": {accepted}}}', f'{{"l": {accepted}}}']

    run(test())


@pytest.mark.parametrize(
    ("state", "error", "message"),
    [
        ({"status": "failed", "error": {"code": -32602, "message": "bad"}}, RemoteError, "bad"),
        ({"status": "failed", "statusMessage": "sunk"}, RemoteError, "sunk"),
        ({"status": "cancelled"}, RemoteError, "cancelled the task"),
        ({"status": "completed"}, InvalidResponse, "no result"),
        ({"status": "completed", "result": {"x": 1}}, InvalidResponse, "content"),
        ({"status": "confused"}, InvalidResponse, "tasks/get"),
        ({"taskId": "other", "status": "working"}, InvalidResponse, "about a different task"),
        ({"status": "completed", "result": {"isError": True, "content": []}}, ToolError, "failed, without a reason"),
    ],
)
def test_a_failed_task_fails_its_call(state: dict[str, Any], error: type[Exception], message: str) -> None:
    async def test() -> None:
        async with scripted(state, tasks=True) as client:
            with pytest.raises(error, match=message):
                await client.call_tool("x")

    run(test())


def test_a_timeout_or_a_cancellation_cancels_the_task() -> None:
    async def test() -> None:
        async with scripted(WORKING, tasks=True) as client:
            with pytest.raises(RequestTimeout):
                await client.call_tool("x", timeout=0.3)
            call = asyncio.ensure_future(client.call_tool("x"))
            while (await client.call_tool("log")).data.count("tasks/get") < 20:
                pass
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            while (await client.call_tool("log")).data.count("tasks/cancel") < 2:
                pass

    run(test())


def test_a_task_of_a_wharfinger_server_is_a_call() -> None:
    server = Server("slow")

    @server.tool(task=True)
    async def build(ctx: Context) -> str:
        return "built " + await ctx.elicit("What?", str)

    async def say(_: t.ElicitRequestParams) -> dict[str, Any]:
        return {"value": "a quay"}

    async def test() -> None:
        async with Client(server, tasks=True, elicitation=say) as client:
            assert (await client.call_tool("build")).text == "built a quay"

    run(test())
