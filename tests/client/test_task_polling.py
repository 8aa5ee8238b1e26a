"""Calls that a client sends as tasks because their tool requires it (2025-11-25). The caller sees a plain call."""

from __future__ import annotations

import asyncio
import json
import math
import sys
from collections.abc import Coroutine
from typing import Any

import msgspec
import pytest

from wharfinger import Client
from wharfinger import types as t
from wharfinger.client.calls import Call
from wharfinger.client.input_handlers import InputHandlers
from wharfinger.client.task_polling import CALL_AS_TASK, GET, MAX_TOOLS, TaskStep, TaskTools
from wharfinger.errors import InvalidResponse, RemoteError, RequestTimeout, ToolError
from wharfinger.protocol.jsonrpc import Message
from wharfinger.types import tasks

SCRIPT = """
import json, sys
def say(**message): print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)
def error(text, code=-32601): say(id=id, error={"code": code, "message": text})
TASK = {"taskId": "T", "createdAt": "2026-01-01T00:00:00Z", "lastUpdatedAt": "2026-01-01T00:00:00Z", "ttl": None,
        "pollInterval": POLL}
CALLS = {"tasks": {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}} if CAPABLE else {}
RELATED = {"_meta": {"io.modelcontextprotocol/related-task": {"taskId": "T"}}}
FORM = {"message": "?", "requestedSchema": {"type": "object", "properties": {}}}
log, polls, token, waiting = [], 0, None, None
for line in sys.stdin:
    message = json.loads(line)
    id, method, params = message.get("id"), message.get("method"), message.get("params", {})
    log.append([method, params] if method else ["answer", message])
    if method == "initialize":
        info = {"name": "tasks", "version": "1"}
        say(id=id, result={"protocolVersion": "2025-11-25", "capabilities": {"tools": {}, **CALLS}, "serverInfo": info})
    elif method == "tools/list":
        tools = [{"name": name, "inputSchema": {"type": "object"}, "execution": {"taskSupport": name}}
                 for name in ("forbidden", "optional", "required")]
        say(id=id, result={"tools": [*tools, {"name": "log", "inputSchema": {"type": "object"}}]})
    elif method == "tools/call" and params["name"] == "log":
        say(id=id, result={"content": [], "structuredContent": {"log": log}})
    elif method == "tools/call" and "task" not in params:
        if params["name"] != "required":
            say(id=id, result={"content": [{"type": "text", "text": "plain"}]})
        elif REFUSES == "error":
            error("This tool requires task-augmented invocation")
        else:
            text = "MCP error -32601: Tool required requires task augmentation (taskSupport: 'required')"
            say(id=id, result={"isError": True, "content": [{"type": "text", "text": text}]})
    elif method == "tools/call" and STATES == ["at once"]:
        say(id=id, result={"content": [{"type": "text", "text": "at once"}]})
    elif method == "tools/call":
        token = params.get("_meta", {}).get("progressToken")
        say(id=id, result={"task": {"status": "working", **TASK}})
    elif method == "tasks/get":
        state = STATES[min(polls, len(STATES) - 1)]
        polls += 1
        if token is not None:
            say(method="notifications/progress", params={"progressToken": token, "progress": polls, **RELATED})
        say(id=id, result={**TASK, **state})
        if state.get("notified"):
            say(method="notifications/tasks/status", params={**TASK, "status": "completed"})
    elif method == "tasks/result" and polls <= len(STATES) and STATES[polls - 1]["status"] == "input_required":
        waiting = id
        say(id="q", method="elicitation/create", params={**FORM, **RELATED})
    elif method == "tasks/result":
        if isinstance(RESULT, str):
            error(RESULT, -32602)
        else:
            say(id=id, result={**RESULT, **RELATED})
    elif method is None and message.get("id") == "q":
        say(id=waiting, result={"content": [{"type": "text", "text": json.dumps(message["result"])}], **RELATED})
    elif method == "tasks/cancel":
        say(id=id, result={**TASK, "status": "cancelled"})
"""
WORKING, COMPLETED, FAILED = {"status": "working"}, {"status": "completed"}, {"status": "failed"}
DONE = {"content": [{"type": "text", "text": "done"}]}


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 20))


def scripted(
    *states: Any, result: Any = DONE, refuses: str = "error", poll: int = 1, capable: bool = True, **settings: Any
) -> Client:
    head = f"STATES, RESULT, REFUSES, POLL, CAPABLE = {list(states)!r}, {result!r}, {refuses!r}, {poll}, {capable}\n"
    return Client([sys.executable, "-c", head + SCRIPT], revision="2025-11-25", **settings)


async def read_log(client: Client) -> list[Any]:
    log: list[Any] = (await client.call_tool("log")).data["log"]
    return log


def methods(log: list[Any]) -> list[str]:
    return [method for method, _ in log if method not in ("initialize", "notifications/initialized")]


@pytest.mark.parametrize("refuses", ["error", "result"])
def test_a_tool_that_requires_a_task_is_called_as_one(refuses: str) -> None:
    """Without a list of tools the first call is refused, in one of two ways. The caller sees one call."""

    async def test() -> None:
        async with scripted(WORKING, COMPLETED, refuses=refuses) as client:
            result = await client.call_tool("required", {"a": 1}, max_timeout=90)
            assert result.text == "done"
            log = await read_log(client)
            assert (await client.call_tool("required")).text == "done"
            again = methods(await read_log(client))
        assert methods(log) == [
            "tools/call", "tools/list", "tools/call", "tasks/get", "tasks/get", "tasks/result", "tools/call",
        ]  # fmt: skip
        (params,) = [params for method, params in log if method == "tools/call" and "task" in params]
        assert params == {"name": "required", "arguments": {"a": 1}, "task": {"ttl": 90_000}}
        assert all(params == {"taskId": "T"} for method, params in log if method.startswith("tasks/"))
        assert again.count("tools/list") == 1

    run(test())


@pytest.mark.parametrize("reports", [False, True])
def test_a_call_as_a_task_keeps_the_meta_of_middleware(reports: bool) -> None:
    """A bug: it was replaced, and a trace ended there."""

    async def trace(call: Call, next: Any) -> Any:
        call.params = msgspec.structs.replace(call.params, meta=t.RequestMeta(traceparent="00-ab-cd-01"))
        return await next(call)

    async def test() -> None:
        async with scripted(COMPLETED, middleware=[trace]) as client:
            await client.list_tools()
            await client.call_tool("required", progress=(lambda *_: None) if reports else None)
            log = await read_log(client)
        (params,) = [params for method, params in log if method == "tools/call" and "task" in params]
        assert params["_meta"]["traceparent"] == "00-ab-cd-01"
        assert ("progressToken" in params["_meta"]) is reports

    run(test())


@pytest.mark.parametrize("tasks", [False, True])
def test_the_listed_task_support_of_a_tool_decides_how_it_is_called(tasks: bool) -> None:
    async def test() -> None:
        async with scripted(COMPLETED, tasks=tasks) as client:
            await client.list_tools()
            texts = [(await client.call_tool(name)).text for name in ("forbidden", "optional", "required")]
            assert texts == ["plain", "done" if tasks else "plain", "done"]

    run(test())


def test_no_task_is_requested_from_a_server_without_task_support() -> None:
    async def test() -> None:
        async with scripted(COMPLETED, capable=False) as client:
            await client.list_tools()
            with pytest.raises(RemoteError, match="requires task-augmented"):
                await client.call_tool("required")
            assert methods(await read_log(client)) == ["tools/list", "tools/call", "tools/call"]

    run(test())


def test_a_result_instead_of_a_task_is_returned() -> None:
    async def test() -> None:
        async with scripted("at once") as client:
            assert (await client.call_tool("required")).text == "at once"

    run(test())


def test_elicitations_of_a_task_are_answered_while_its_result_is_pending() -> None:
    """The answer names its task."""

    async def answer_form(question: t.ElicitRequestParams) -> dict[str, Any]:
        assert not isinstance(question.meta, msgspec.UnsetType)
        assert question.meta.related_task == t.RelatedTaskMetadata(task_id="T")
        return {"a": 1}

    async def test() -> None:
        async with scripted(WORKING, {"status": "input_required"}, elicitation=answer_form) as client:
            answer = json.loads((await client.call_tool("required")).text)
        assert answer == {
            "action": "accept",
            "content": {"a": 1},
            "_meta": {"io.modelcontextprotocol/related-task": {"taskId": "T"}},
        }

    run(test())


def test_progress_is_reported_after_the_task_was_created() -> None:
    steps: list[float] = []

    async def test() -> None:
        async with scripted(WORKING, WORKING, COMPLETED) as client:
            await client.call_tool("required", progress=lambda done, *_: steps.append(done))
        assert steps == [1, 2, 3]

    run(test())


@pytest.mark.parametrize("progress", [None, lambda *report: None])
def test_a_status_notification_ends_the_wait_for_the_next_poll(progress: Any) -> None:
    """The server asks for a minute between polls, and reports the end of the task by a notification after the first."""

    async def test() -> None:
        async with scripted({**WORKING, "notified": True, "pollInterval": 60_000}, COMPLETED) as client:
            assert (await client.call_tool("required", progress=progress)).text == "done"
            assert methods(await read_log(client)).count("tasks/get") == 2

    run(test())


@pytest.mark.parametrize(
    ("state", "result", "error", "message"),
    [
        (FAILED, "no such result", RemoteError, "no such result"),
        (FAILED, {"isError": True, "content": [{"type": "text", "text": "sunk"}]}, ToolError, "sunk"),
        (COMPLETED, {"x": 1}, InvalidResponse, "content"),
        ({"status": "cancelled"}, DONE, RemoteError, "cancelled the task"),
        ({"status": "confused"}, DONE, InvalidResponse, "tasks/get"),
        ({"status": "working", "taskId": "other"}, DONE, InvalidResponse, "about a different task"),
    ],
)
def test_a_failed_task_fails_its_call(state: dict[str, Any], result: Any, error: type[Exception], message: str) -> None:
    async def test() -> None:
        async with scripted(state, result=result) as client:
            with pytest.raises(error, match=message):
                await client.call_tool("required")

    run(test())


def test_a_timeout_or_a_cancellation_cancels_the_task() -> None:
    async def test() -> None:
        async with scripted(WORKING) as client:
            with pytest.raises(RequestTimeout):
                await client.call_tool("required", timeout=0.3)
            with pytest.raises(RequestTimeout):
                await client.call_tool("required", max_timeout=0.3)
            before = methods(await read_log(client)).count("tasks/get")
            call = asyncio.ensure_future(client.call_tool("required"))
            while methods(await read_log(client)).count("tasks/get") < before + 2:
                pass
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            while methods(await read_log(client)).count("tasks/cancel") < 3:
                pass

    run(test())


def tool(name: str, support: str) -> t.Tool:
    return msgspec.convert(
        {"name": name, "inputSchema": {}, "execution": {"taskSupport": support}} if support else
        {"name": name, "inputSchema": {}}, t.Tool,
    )  # fmt: skip


def test_the_task_support_of_tools_is_bounded_and_updated() -> None:
    known = TaskTools(optional=False)
    known.learn(tool(str(number), "required") for number in range(MAX_TOOLS + 1))
    assert known.as_tasks[str(MAX_TOOLS - 1)] and str(MAX_TOOLS) not in known.as_tasks
    known.learn([tool("1", ""), tool(str(MAX_TOOLS), "required")])
    assert "1" not in known.as_tasks and known.as_tasks[str(MAX_TOOLS)]


def test_a_notification_that_arrives_with_an_answer_is_not_missed() -> None:
    states = ["working", "working", "completed"]
    task_fields = {"taskId": "T", "createdAt": "x", "lastUpdatedAt": "x", "ttl": None, "pollInterval": 60_000}
    status = msgspec.Raw(msgspec.json.encode({**task_fields, "status": "working"}))
    step = TaskStep(InputHandlers(), extension=False)

    async def next(call: Call) -> Any:
        asyncio.get_running_loop().call_soon(
            step.notification_received, Message("2.0", method="notifications/tasks/status", params=status)
        )
        if call.row is CALL_AS_TASK:
            return msgspec.Raw(msgspec.json.encode({"task": {**task_fields, "status": "working"}}))
        if call.row is not GET:
            return msgspec.Raw(b'{"content": []}')
        step.notification_received(Message("2.0", method="notifications/tasks/status", params=status))
        return msgspec.convert({**task_fields, "status": states.pop(0)}, tasks.GetTaskResult)

    async def call() -> t.CallToolResult:
        params = t.CallToolRequestParams(name="x")
        async with asyncio.timeout(10):
            result: t.CallToolResult = await step(Call(CALL_AS_TASK, params, math.inf, math.inf), next)
        return result

    assert asyncio.run(call()).content == []
