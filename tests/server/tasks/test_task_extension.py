"""Tool calls that run as tasks: the states that clients receive and the records that the server stores."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.server.driving import ALL, HANDSHAKE, META, RecordingChannel, Wire, ask
from wharfinger import Context, Server, ToolError
from wharfinger.errors import Declined, InternalError, StoreUnusable
from wharfinger.protocol.limits import Limits
from wharfinger.server.input.request_state import CannotAsk
from wharfinger.server.tasks import task_extension
from wharfinger.server.tasks.task_extension import Tasks
from wharfinger.store.memory import MemoryStore
from wharfinger.types.task_extension import EXTENSION as TASKS

CAPABILITIES: dict[str, Any] = {"extensions": {TASKS: {}}, "elicitation": {"form": {}}, "sampling": {}, "roots": {}}
TASKS_REQUIRED: dict[str, Any] = {"requiredCapabilities": {"extensions": {TASKS: {}}}}
UNKNOWN_TASK_ERROR = {"code": -32602, "message": "There is no such task, or it has expired."}
STOPPED_MESSAGE = "The server stopped before the task was finished: call the tool again."


@dataclass
class Confirmation:
    sure: bool


class TaskClient:
    """A client that declares the extension in every request."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire

    async def ask(self, method: str, params: dict[str, Any] | None = None) -> Any:
        """Send a request and return the whole response."""
        return await self.wire.ask(method, with_capabilities(params))

    async def result(self, method: str, params: dict[str, Any] | None = None) -> Any:
        answer = await self.ask(method, params)
        assert "result" in answer, answer
        return answer["result"]

    async def call(self, name: str, **arguments: Any) -> Any:
        return await self.result("tools/call", {"name": name, "arguments": arguments})

    async def start(self, name: str, **arguments: Any) -> str:
        """Call a tool that becomes a task and return the id of the task."""
        task = await self.call(name, **arguments)
        assert task["resultType"] == "task", task
        id: str = task["taskId"]
        return id

    async def get(self, id: str) -> Any:
        return await self.result("tasks/get", {"taskId": id})

    async def wait_for(self, id: str, matches: Callable[[Any], bool]) -> Any:
        """Listen to a task and return the first of its states that matches."""
        request_id = self.wire.send_request(
            "subscriptions/listen", with_capabilities({"notifications": {"taskIds": [id]}})
        )
        states: list[Any] = []

        def find() -> bool:
            states[:] = [
                notice["params"]
                for notice in self.wire.notifications
                if notice["method"] == "notifications/tasks"
                and notice["params"]["taskId"] == id
                and notice["params"]["_meta"][f"{META}subscriptionId"] == request_id
                and matches(notice["params"])
            ]
            return bool(states)

        await self.wire.wait_until(find)
        self.wire.notify("notifications/cancelled", {"requestId": request_id})
        return states[0]

    async def final_state(self, id: str) -> Any:
        """Wait until a task ends, and return its state."""
        return await self.wait_for(id, lambda state: state["status"] in ("completed", "failed", "cancelled"))

    async def input_requests(self, id: str, number: int = 1) -> Any:
        """Wait until this many input requests of a task are open, and return them."""
        state = await self.wait_for(id, lambda state: len(state.get("inputRequests", ())) == number)
        return state["inputRequests"]


def with_capabilities(params: dict[str, Any] | None = None) -> dict[str, Any]:
    return {**(params or {}), "_meta": {f"{META}clientCapabilities": CAPABILITIES}}


@asynccontextmanager
async def client_of(server: Server, principal: str = "") -> AsyncGenerator[TaskClient]:
    await server.start()
    async with Wire(server, principal=principal) as wire:
        yield TaskClient(wire)
    await server.close()


def contains(text: str, state: Any) -> bool:
    return text in str(state)


def stable_members(state: Any) -> Any:
    """Return a state without the members that differ from run to run."""
    return {
        name: value
        for name, value in state.items()
        if name not in ("taskId", "createdAt", "lastUpdatedAt", "_meta", "pollIntervalMs", "ttlMs")
    }


class Harbour:
    """A server whose tools wait for `release` and record how they end."""

    def __init__(self, **options: Any) -> None:
        options = {"limits": Limits(drain=0.05), **options}
        self.server = server = Server("harbour", **options)
        self.release = asyncio.Event()
        self.begun = asyncio.Event()
        self.outcomes: list[str] = []

        @server.tool(task=True)
        async def dredge(metres: int = 1) -> dict[str, int]:
            """Dredge the quay."""
            await self.wait()
            return {"metres": metres}

        @server.tool(task="required")
        async def task_only() -> str:
            await self.wait()
            return "done"

    async def wait(self) -> None:
        self.begun.set()
        try:
            await self.release.wait()
        except asyncio.CancelledError:
            self.outcomes.append("cancelled")
            raise
        self.outcomes.append("done")


# -- from the call to the result


async def test_a_call_returns_a_task_that_completes_with_the_result() -> None:
    harbour = Harbour()
    async with client_of(harbour.server) as client:
        task = await client.call("dredge", metres=3)
        assert task.keys() == {
            "resultType", "_meta", "taskId", "status", "createdAt", "lastUpdatedAt", "ttlMs", "pollIntervalMs",
        }  # fmt: skip
        assert (task["resultType"], task["status"]) == ("task", "working")
        assert (task["ttlMs"], task["pollIntervalMs"]) == (3_600_000, 1000)
        assert len(task["taskId"]) >= 22  # at least 128 bits, six in each character
        state = await client.get(task["taskId"])
        assert state.pop("resultType") == "complete"
        assert {**task, "resultType": None} == {**state, "resultType": None}
        harbour.release.set()
        state = await client.final_state(task["taskId"])
        assert stable_members(state) == {
            "status": "completed",
            "result": {
                "resultType": "complete",
                "content": [{"type": "text", "text": '{"metres":3}'}],
                "structuredContent": {"metres": 3},
            },
        }
        again = await client.get(task["taskId"])
        assert {**again, "_meta": 0, "resultType": 0} == {**state, "_meta": 0, "resultType": 0}
        assert state["createdAt"] <= state["lastUpdatedAt"]
        assert state["createdAt"].endswith("Z")


@pytest.mark.parametrize("revision", ALL)
async def test_a_client_without_the_extension_receives_the_result(revision: str) -> None:
    harbour = Harbour()
    harbour.release.set()
    answer = await ask(harbour.server, "tools/call", {"name": "dredge", "arguments": {}}, revision)
    assert answer["result"]["content"][0]["text"] == '{"metres":1}'
    assert await tasks_of(harbour.server).store.usage("") == (0, 0)


@pytest.mark.parametrize("revision", ALL)
async def test_calling_a_tool_that_requires_tasks_fails_without_the_extension(revision: str) -> None:
    harbour = Harbour()
    error = (await ask(harbour.server, "tools/call", {"name": "task_only"}, revision))["error"]
    assert (error["code"], error["data"]) == (-32021, TASKS_REQUIRED)
    assert error["message"] == (
        "The tool 'task_only' needs a client of 2026-07-28 or later that declares the extension "
        "io.modelcontextprotocol/tasks in its request."
    )
    assert not harbour.begun.is_set()


async def test_the_extension_is_declared_only_in_the_stateless_revision() -> None:
    server = Harbour().server
    discovered = await ask(server, "server/discover")
    assert discovered["result"]["capabilities"]["extensions"] == {TASKS: {}}
    for revision in HANDSHAKE:
        async with Wire(server, revision) as wire:
            (initialize_answer,) = [answer for answer in wire.answers.values() if "result" in answer]
            assert TASKS not in initialize_answer["result"]["capabilities"].get("extensions", {})
            assert "tasks" not in initialize_answer["result"]["capabilities"]


async def test_a_server_without_task_tools_has_no_task_methods_or_capability() -> None:
    server = Server("plain")

    @server.tool
    async def quick() -> str:
        return "now"

    assert server.tasks is None
    assert "extensions" not in (await ask(server, "server/discover"))["result"]["capabilities"]
    for method in ("tasks/get", "tasks/update", "tasks/cancel"):
        answer = await ask(server, method, with_capabilities({"taskId": "x", "inputResponses": {}}))
        assert answer["error"]["code"] == -32601


def test_a_server_without_task_tools_imports_no_task_modules() -> None:
    program = (
        "import sys\nfrom wharfinger import Server\nserver = Server('plain')\n"
        "@server.tool\ndef quick() -> str: ...\n"
        "print([name for name in sys.modules if 'store' in name or name.startswith('wharfinger.server.task') "
        "or name in ('sqlite3', 'secrets')])"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout == "[]\n"


@pytest.mark.parametrize("method", ["tasks/list", "tasks/result"])
async def test_task_methods_of_2025_11_25_are_not_found(method: str) -> None:
    answer = await ask(Harbour().server, method, with_capabilities({"taskId": "x"}))
    assert answer["error"]["code"] == -32601


@pytest.mark.parametrize("method", ["tasks/get", "tasks/update", "tasks/cancel"])
@pytest.mark.parametrize("revision", HANDSHAKE)
async def test_task_methods_are_not_found_in_sessions(method: str, revision: str) -> None:
    answer = await ask(Harbour().server, method, {"taskId": "x"}, revision)
    assert answer["error"]["code"] == -32601


@pytest.mark.parametrize("method", ["tasks/get", "tasks/update", "tasks/cancel"])
async def test_task_methods_fail_for_clients_without_the_extension(method: str) -> None:
    answer = await ask(Harbour().server, method, {"taskId": "x", "inputResponses": {}})
    assert (answer["error"]["code"], answer["error"]["data"]) == (-32021, TASKS_REQUIRED)


async def test_invalid_arguments_are_reported_without_creating_a_task() -> None:
    harbour = Harbour()
    async with client_of(harbour.server) as client:
        result = await client.call("dredge", metres="3")
        assert (result["resultType"], result["isError"]) == ("complete", True)
        assert not harbour.begun.is_set()
        assert not tasks_of(harbour.server).running


async def test_tasks_of_an_included_server_belong_to_the_including_server() -> None:
    harbour, parent = Harbour(), Server("whole")
    parent.include(harbour.server, prefix="tides")
    async with client_of(parent) as client:
        id = await client.start("tides_dredge", metres=2)
        assert (await client.get(id))["status"] == "working"
        harbour.release.set()
        assert (await client.final_state(id))["result"]["structuredContent"] == {"metres": 2}
    assert harbour.server.tasks is parent.tasks


async def test_middleware_receives_the_created_task_as_the_result() -> None:
    harbour = Harbour()
    seen: list[Any] = []

    @harbour.server.middleware("tools/call")
    async def record(call: Any, next: Any) -> Any:
        result = await next(call)
        seen.append(result.result_type)
        return result

    async with client_of(harbour.server) as client:
        await client.start("dredge")
        assert seen == ["task"]


# -- how tasks end


def failing_server(error: BaseException) -> Server:
    server = Server("failing")

    @server.tool(task=True)
    async def job() -> str:
        raise error

    return server


async def test_a_tool_error_completes_its_task_with_is_error() -> None:
    async with client_of(failing_server(ToolError("No crane."))) as client:
        state = await client.final_state(await client.start("job"))
        assert stable_members(state) == {
            "status": "completed",
            "result": {
                "resultType": "complete",
                "content": [{"type": "text", "text": "No crane."}],
                "isError": True,
            },
        }


async def test_a_protocol_error_fails_its_task() -> None:
    error = InternalError("The crane fell.", data={"crane": 3})
    async with client_of(failing_server(error)) as client:
        state = await client.final_state(await client.start("job"))
        assert stable_members(state) == {
            "status": "failed",
            "statusMessage": "The crane fell.",
            "error": {"code": -32603, "message": "The crane fell.", "data": {"crane": 3}},
        }


@pytest.mark.parametrize("error", [ValueError("secret"), SystemExit(3), asyncio.CancelledError(), KeyboardInterrupt()])
async def test_an_unexpected_exception_completes_its_task_with_is_error(error: BaseException) -> None:
    async with client_of(failing_server(error)) as client:
        state = await client.final_state(await client.start("job"))
        assert (state["status"], state["result"]["isError"]) == ("completed", True)
        assert "Internal error (reference " in state["result"]["content"][0]["text"]
        assert "secret" not in str(state)
        assert (await client.final_state(await client.start("job")))["status"] == "completed"


async def test_a_result_that_cannot_be_encoded_is_an_error_of_the_tool() -> None:
    server = Server("odd")

    @server.tool(task=True)
    async def job() -> str:
        return "\ud800"

    async with client_of(server) as client:
        state = await client.final_state(await client.start("job"))
        assert (state["status"], state["result"]["isError"]) == ("completed", True)


@pytest.mark.parametrize("error", [InternalError("\udcff"), InternalError("odd", data={"crane": "\udcff"})])
async def test_an_error_that_cannot_be_encoded_fails_its_task(error: InternalError) -> None:
    server = failing_server(error)
    async with client_of(server) as client:
        state = await client.final_state(await client.start("job"))
        assert (state["status"], state["error"]["code"]) == ("failed", -32603)
        assert not server.serve_tasks().running


async def test_characters_that_cannot_be_encoded_are_replaced_in_status_messages() -> None:
    server, release = Server("odd"), asyncio.Event()

    @server.tool(task=True)
    async def job(ctx: Context[Any]) -> str:
        ctx.task_status("at quay \udcff")
        await release.wait()
        return "done"

    async with client_of(server) as client:
        id = await client.start("job")
        state = await client.wait_for(id, lambda state: "statusMessage" in state)
        assert state["statusMessage"] == "at quay ?"
        release.set()
        assert (await client.final_state(id))["status"] == "completed"


async def test_a_sync_function_can_run_as_a_task() -> None:
    server = Server("threads")

    @server.tool(task=True)
    def job(ctx: Context[Any]) -> str:
        ctx.task_status("half way")
        return "done"

    async with client_of(server) as client:
        state = await client.final_state(await client.start("job"))
        assert state["result"]["content"][0]["text"] == "done"
        assert "statusMessage" not in state


async def test_the_timeout_of_a_tool_ends_its_task_but_handler_time_does_not() -> None:
    server = Server("slow", limits=Limits(handler_time=0.0))

    @server.tool(task=True)
    async def patient(ctx: Context[Any]) -> str:
        await asyncio.sleep(1.5)  # longer than the interval of the sweeper
        return "done"

    @server.tool(task=True, timeout=0.01)
    async def hasty() -> str:
        await asyncio.sleep(60)
        return "never"

    async with client_of(server) as client:
        slow = await client.start("patient")
        state = await client.final_state(await client.start("hasty"))
        assert (state["status"], state["result"]["isError"]) == ("completed", True)
        assert state["result"]["content"][0]["text"] == "The handler took longer than 0.01 s."
        assert (await client.final_state(slow))["status"] == "completed"


# -- cancelling


async def test_cancelling_a_task_cancels_its_handler() -> None:
    harbour = Harbour()
    async with client_of(harbour.server) as client:
        id = await client.start("dredge")
        await harbour.begun.wait()
        acknowledgement = await client.result("tasks/cancel", {"taskId": id})
        assert acknowledgement.keys() == {"resultType", "_meta"}
        assert stable_members(await client.final_state(id)) == {"status": "cancelled"}
        assert harbour.outcomes == ["cancelled"]
        assert (await client.result("tasks/cancel", {"taskId": id}))["resultType"] == "complete"
        assert (await client.get(id))["status"] == "cancelled"


async def test_cancelling_a_completed_task_is_acknowledged_and_changes_nothing() -> None:
    harbour = Harbour()
    harbour.release.set()
    async with client_of(harbour.server) as client:
        id = await client.start("dredge")
        before = await client.final_state(id)
        assert (await client.result("tasks/cancel", {"taskId": id})).keys() == {"resultType", "_meta"}
        assert stable_members(await client.final_state(id)) == stable_members(before)


async def test_a_cancelled_handler_that_returns_a_result_completes_its_task() -> None:
    server, begun = Server("stubborn"), asyncio.Event()

    @server.tool(task=True)
    async def job() -> str:
        begun.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            return "tidied up"
        return "never"

    async with client_of(server) as client:
        id = await client.start("job")
        await begun.wait()
        await client.result("tasks/cancel", {"taskId": id})
        assert (await client.final_state(id))["result"]["content"][0]["text"] == "tidied up"


async def test_a_task_is_cancelled_even_if_its_handler_raises_during_cleanup() -> None:
    server, begun = Server("messy"), asyncio.Event()

    @server.tool(task=True)
    async def job() -> str:
        begun.set()
        try:
            await asyncio.sleep(60)
        finally:
            raise ValueError("while tidying up")

    async with client_of(server) as client:
        id = await client.start("job")
        await begun.wait()
        await client.result("tasks/cancel", {"taskId": id})
        assert (await client.final_state(id))["status"] == "cancelled"


# -- input requests of a task


def eliciting_server() -> Server:
    server = Server("asking")

    @server.tool(task=True)
    async def one(ctx: Context[Any]) -> str:
        answer = await ctx.elicit("Sure?", Confirmation)
        return f"sure: {answer.sure}"

    @server.tool(task=True)
    async def two(ctx: Context[Any]) -> str:
        first, second = await asyncio.gather(ctx.elicit("First?", Confirmation), ctx.elicit("Second?", Confirmation))
        third = await ctx.elicit("Third?", Confirmation)
        return f"{first.sure} {second.sure} {third.sure}"

    @server.tool(task=True)
    async def refused(ctx: Context[Any]) -> str:
        try:
            await ctx.elicit("Sure?", Confirmation)
        except Declined:
            return "declined"
        return "answered"

    @server.tool(task=True)
    async def impatient(ctx: Context[Any]) -> str:
        try:
            async with asyncio.timeout(0.01):
                await ctx.elicit("Quick?", Confirmation)
        except TimeoutError:
            await ctx.elicit("Slow?", Confirmation)
        return "done"

    return server


def accept(sure: bool) -> dict[str, Any]:
    return {"action": "accept", "content": {"sure": sure}}


async def test_an_input_request_is_answered_by_an_update_of_its_task() -> None:
    async with client_of(eliciting_server()) as client:
        id = await client.start("one")
        requests = await client.input_requests(id)
        ((key, request),) = requests.items()
        assert request["method"] == "elicitation/create"
        assert request["params"]["message"] == "Sure?"
        assert request["params"]["requestedSchema"]["properties"] == {"sure": {"type": "boolean"}}
        state = await client.get(id)
        assert (state["status"], state["inputRequests"]) == ("input_required", requests)
        assert "requestState" not in state
        acknowledgement = await client.result("tasks/update", {"taskId": id, "inputResponses": {key: accept(True)}})
        assert acknowledgement.keys() == {"resultType", "_meta"}
        state = await client.final_state(id)
        assert state["result"]["content"][0]["text"] == "sure: True"
        assert "inputRequests" not in state


async def test_input_requests_may_be_answered_separately_and_keys_are_never_reused() -> None:
    async with client_of(eliciting_server()) as client:
        id = await client.start("two")
        requests = await client.input_requests(id, 2)
        keys = {request["params"]["message"]: key for key, request in requests.items()}
        update = {"taskId": id, "inputResponses": {keys["First?"]: accept(True), "unknown": {"ignored": 1}}}
        await client.result("tasks/update", update)
        assert (await client.get(id))["inputRequests"].keys() == {keys["Second?"]}
        update["inputResponses"] = {keys["First?"]: accept(False), keys["Second?"]: accept(False)}
        await client.result("tasks/update", update)
        last = await client.wait_for(id, lambda state: "Third?" in str(state))
        ((third, _),) = last["inputRequests"].items()
        assert third not in keys.values()
        await client.result("tasks/update", {"taskId": id, "inputResponses": {third: accept(True)}})
        state = await client.final_state(id)
        assert state["result"]["content"][0]["text"] == "True False True"
        await client.result("tasks/update", {"taskId": id, "inputResponses": {third: accept(True)}})


async def test_a_declined_elicitation_raises_in_the_tool() -> None:
    async with client_of(eliciting_server()) as client:
        id = await client.start("refused")
        (key,) = await client.input_requests(id)
        await client.result("tasks/update", {"taskId": id, "inputResponses": {key: {"action": "decline"}}})
        assert (await client.final_state(id))["result"]["content"][0]["text"] == "declined"


async def test_an_input_request_is_removed_when_the_tool_stops_waiting() -> None:
    async with client_of(eliciting_server()) as client:
        id = await client.start("impatient")
        state = await client.wait_for(id, lambda state: "Slow?" in str(state))
        ((key, _),) = state["inputRequests"].items()
        await client.result("tasks/update", {"taskId": id, "inputResponses": {key: accept(True)}})
        assert (await client.final_state(id))["status"] == "completed"


async def test_a_task_that_waits_for_input_can_be_cancelled() -> None:
    async with client_of(eliciting_server()) as client:
        id = await client.start("one")
        (key,) = await client.input_requests(id)
        await client.result("tasks/cancel", {"taskId": id})
        assert stable_members(await client.final_state(id)) == {"status": "cancelled"}
        await client.result("tasks/update", {"taskId": id, "inputResponses": {key: accept(True)}})


async def test_a_task_fails_if_the_client_lacks_the_capability_of_its_input_request() -> None:
    server = eliciting_server()
    await server.start()
    async with Wire(server) as wire:
        params: dict[str, Any] = {"_meta": {f"{META}clientCapabilities": {"extensions": {TASKS: {}}}}}
        task = await wire.ask("tools/call", {"name": "one", **params})
        state = await TaskClient(wire).final_state(task["result"]["taskId"])
        assert (state["status"], state["error"]["code"]) == ("failed", -32021)
    await server.close()


async def test_replay_runs_the_function_of_a_task_again_with_the_answers() -> None:
    server = Server("replaying", replay=True)
    runs: list[int] = []

    @server.tool(task=True)
    async def job(ctx: Context[Any]) -> str:
        runs.append(1)
        first = await ctx.elicit("First?", Confirmation)
        second = await ctx.elicit("Second?", Confirmation)
        return f"{first.sure} {second.sure}"

    async with client_of(server) as client:
        id = await client.start("job")
        for message, sure in (("First?", True), ("Second?", False)):
            state = await client.wait_for(id, partial(contains, message))
            ((key, _),) = state["inputRequests"].items()
            await client.result("tasks/update", {"taskId": id, "inputResponses": {key: accept(sure)}})
        assert (await client.final_state(id))["result"]["content"][0]["text"] == "True False"
        assert len(runs) == 3


# -- status messages


async def test_a_task_sends_neither_progress_nor_logs() -> None:
    server = Server("talkative")

    @server.tool(task=True)
    async def job(ctx: Context[Any]) -> str:
        ctx.report_progress(1, 2)
        ctx.info("working")
        return "done"

    async with client_of(server) as client:
        meta = {**with_capabilities()["_meta"], "progressToken": 1, f"{META}logLevel": "debug"}
        task = await client.wire.ask("tools/call", {"name": "job", "_meta": meta})
        await client.final_state(task["result"]["taskId"])
        methods = {notice["method"] for notice in client.wire.notifications}
        assert methods == {"notifications/subscriptions/acknowledged", "notifications/tasks"}


async def test_a_task_reports_its_status_message_while_it_runs() -> None:
    server, release = Server("telling"), asyncio.Event()

    @server.tool(task=True)
    async def job(ctx: Context[Any]) -> str:
        ctx.task_status("half way")
        await release.wait()
        return "done"

    async with client_of(server) as client:
        id = await client.start("job")
        state = await client.wait_for(id, lambda state: "statusMessage" in state)
        assert (state["status"], state["statusMessage"]) == ("working", "half way")
        assert (await client.get(id))["statusMessage"] == "half way"
        release.set()
        assert "statusMessage" not in await client.final_state(id)


async def test_a_listener_of_a_task_that_ends_during_catch_up_is_removed() -> None:
    tasks = Harbour().server.serve_tasks()

    class Listener:
        def send(self, message: Any) -> bool:
            return True

    listener = Listener()
    tasks._listeners["tasks/a/b"] = {listener: None}
    tasks._keys_by_listener[listener] = {"tasks/a/b"}

    class RacingStore(MemoryStore):
        """A store in which the task ends while its record is read."""

        async def get(self, key: str) -> bytes | None:
            tasks._remove_listeners(key)
            return b'{"worker":"","state":{}}'

    tasks.store = RacingStore()
    await tasks.catch_up(listener)
    assert not tasks._keys_by_listener
    assert not tasks._listeners
    assert not tasks._last_sent


# -- start_task


class LaterServer:
    """A server whose tool starts its task when `may_start` is set, and ends when `may_end` is."""

    def __init__(self) -> None:
        self.server = server = Server("later")
        self.may_start, self.may_end, self.begun = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.outcomes: list[Any] = []

        @server.tool(task="later")
        async def survey(ctx: Context[Any], error: bool = False, quick: bool = False) -> str:
            self.begun.set()
            try:
                await self.may_start.wait()
                if error:
                    raise ValueError("secret")
                if quick:
                    return "at once"
                ctx.report_progress(1)
                self.outcomes.append(await ctx.start_task())
                ctx.report_progress(2)
                ctx.task_status("surveying")
                self.outcomes.append(await ctx.start_task())
                await self.may_end.wait()
            except asyncio.CancelledError:
                self.outcomes.append("cancelled")
                raise
            return "done"

        @server.tool(task="later")
        async def elicit_around_start(ctx: Context[Any]) -> str:
            before = await ctx.elicit("Before?", Confirmation)
            await ctx.start_task()
            after = await ctx.elicit("After?", Confirmation)
            return f"{before.sure} {after.sure}"


async def test_a_call_becomes_a_task_when_its_function_calls_start_task() -> None:
    later = LaterServer()
    async with client_of(later.server) as client:
        meta = {**with_capabilities()["_meta"], "progressToken": 1}
        request_id = client.wire.send_request("tools/call", {"name": "survey", "_meta": meta})
        await later.begun.wait()
        assert not client.wire.answers
        later.may_start.set()
        task = (await client.wire.answer(request_id))["result"]
        assert (task["resultType"], task["status"]) == ("task", "working")
        id = task["taskId"]
        assert (await client.wait_for(id, lambda state: True))["statusMessage"] == "surveying"
        later.may_end.set()
        assert (await client.final_state(id))["result"]["content"][0]["text"] == "done"
        assert later.outcomes == [True, True]
        progress = [notice for notice in client.wire.notifications if notice["method"] == "notifications/progress"]
        assert [notice["params"]["progress"] for notice in progress] == [1]


@pytest.mark.parametrize("revision", ALL)
async def test_start_task_returns_false_if_the_client_does_not_support_tasks(revision: str) -> None:
    later = LaterServer()
    later.may_start.set()
    later.may_end.set()
    answer = await ask(later.server, "tools/call", {"name": "survey"}, revision)
    assert answer["result"]["content"][0]["text"] == "done"
    assert later.outcomes == [False, False]


async def test_a_plain_function_cannot_start_a_task() -> None:
    """A bug: it got a coroutine, which is true, and nothing started."""
    server = Server("later")

    @server.tool(task="later")
    def survey(ctx: Context[Any]) -> None:
        with pytest.raises(CannotAsk, match=r"Context.start_task\(\) must be awaited"):
            ctx.start_task()

    async with client_of(server) as client:
        assert (await client.call("survey"))["content"] == []


async def test_a_function_that_does_not_start_its_task_returns_a_plain_result() -> None:
    later = LaterServer()
    later.may_start.set()
    async with client_of(later.server) as client:
        assert (await client.call("survey", quick=True))["content"][0]["text"] == "at once"
        answer = await client.ask("tools/call", {"name": "survey", "arguments": {"error": True}})
        assert answer["result"]["isError"] is True
        assert not tasks_of(later.server).running
        assert not tasks_of(later.server).calls


async def test_a_call_cancelled_before_its_task_starts_stores_nothing() -> None:
    later = LaterServer()
    async with client_of(later.server) as client:
        request_id = client.wire.send_request("tools/call", with_capabilities({"name": "survey"}))
        await later.begun.wait()
        client.wire.notify("notifications/cancelled", {"requestId": request_id})
        async with asyncio.timeout(40):
            while tasks_of(later.server).calls:
                await client.ask("tasks/get", {"taskId": "x"})
        assert later.outcomes == ["cancelled"]
        assert await tasks_of(later.server).store.usage("") == (0, 0)


async def test_a_task_that_starts_after_the_cancellation_of_its_call_ends_with_its_function() -> None:
    """A bug: nothing ended it, so it occupied a place of `Limits.tasks_each` until the server closed."""
    server, begun = Server("later"), asyncio.Event()

    @server.tool(task="later")
    async def finish_anyway(ctx: Context[Any]) -> str:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await ctx.start_task()
        return "done"

    async with client_of(server) as client:
        request_id = client.wire.send_request("tools/call", with_capabilities({"name": "finish_anyway"}))
        await begun.wait()
        client.wire.notify("notifications/cancelled", {"requestId": request_id})
        async with asyncio.timeout(40):
            while tasks_of(server).calls or tasks_of(server).running:
                await client.ask("tasks/get", {"taskId": "x"})


async def test_concurrent_calls_of_start_task_start_one_task(tmp_path: Path) -> None:
    """A bug: with a store that takes time, each began a task, and nothing ended the others."""
    server = Server("later", task_store=f"sqlite:///{tmp_path}/tasks.db")

    @server.tool(task="later")
    async def survey(ctx: Context[Any]) -> str:
        return str(await asyncio.gather(ctx.start_task(), ctx.start_task()))

    async with client_of(server) as client:
        task = await client.call("survey")
        assert (await client.final_state(task["taskId"]))["result"]["content"][0]["text"] == "[True, True]"
        assert not tasks_of(server).running


async def test_input_requests_before_start_task_return_input_required_and_later_ones_belong_to_the_task() -> None:
    async with client_of(LaterServer().server) as client:
        first = await client.call("elicit_around_start")
        assert first["resultType"] == "input_required"
        assert "taskId" not in first
        (key,) = first["inputRequests"]
        answers = {"inputResponses": {key: accept(True)}, "requestState": first["requestState"]}
        task = await client.result("tools/call", {"name": "elicit_around_start", **answers})
        assert task["resultType"] == "task"
        assert task.keys().isdisjoint({"requestState", "inputRequests"})
        id = task["taskId"]
        ((key, request),) = (await client.input_requests(id)).items()
        assert request["params"]["message"] == "After?"
        await client.result("tasks/update", {"taskId": id, "inputResponses": {key: accept(False)}})
        assert (await client.final_state(id))["result"]["content"][0]["text"] == "True False"


async def test_start_task_in_a_tool_without_the_task_option_is_an_error() -> None:
    server = Server("wrong")

    @server.tool
    async def job(ctx: Context[Any]) -> str:
        ctx.task_status("nothing happens")
        await ctx.start_task()
        return "never"

    answer = await ask(server, "tools/call", {"name": "job"})
    assert answer["result"]["isError"] is True

    @server.tool(task=True)
    async def other() -> str:
        return ""

    answer = await ask(server, "tools/call", {"name": "job"})
    assert answer["result"]["isError"] is True


@pytest.mark.parametrize("options", [{"task": "sometimes"}, {"task": True, "task_ttl": 0}, {"task": 1.5}])
def test_invalid_task_options_are_refused(options: dict[str, Any]) -> None:
    server = Server("wrong")

    async def job() -> str:
        return ""

    with pytest.raises(ValueError, match="write"):
        server.tools.add(job, **options)


def test_an_invalid_store_is_refused_when_the_server_is_created() -> None:
    with pytest.raises(ValueError, match="is not the URL of a store"):
        Server("wrong", task_store="tasks.db")


# -- other principals


async def test_tasks_of_another_principal_are_not_found_by_any_method() -> None:
    harbour = Harbour()
    async with client_of(harbour.server, "ann") as ann:
        id = await ann.start("dredge")
        for name in ("bob", ""):
            async with Wire(harbour.server, principal=name) as wire:
                other = TaskClient(wire)
                for method in ("tasks/get", "tasks/update", "tasks/cancel"):
                    for target in (id, "never-was", id + "/", "../ann/" + id, "x" * 10_000, ""):
                        answer = await other.ask(method, {"taskId": target, "inputResponses": {}})
                        assert answer["error"] == UNKNOWN_TASK_ERROR
                request_id = wire.send_request(
                    "subscriptions/listen", with_capabilities({"notifications": {"taskIds": [id]}})
                )
                (acknowledgement,) = await wire.wait_for_notifications()
                assert acknowledgement["params"]["notifications"] == {}
                wire.notify("notifications/cancelled", {"requestId": request_id})
        assert (await ann.get(id))["status"] == "working"
        harbour.release.set()
        assert (await ann.final_state(id))["status"] == "completed"
        async with Wire(harbour.server, principal="bob") as wire:
            assert (await TaskClient(wire).ask("tasks/get", {"taskId": id}))["error"] == UNKNOWN_TASK_ERROR


# -- listeners


async def test_a_listener_receives_each_change_with_the_full_state_and_its_subscription_id() -> None:
    harbour = Harbour()
    async with client_of(harbour.server) as client:
        id = await client.start("dredge")
        listen_params = {"notifications": {"taskIds": [id, "unknown", id], "toolsListChanged": True}}
        client.wire.send_request("subscriptions/listen", with_capabilities(listen_params), id="me")
        acknowledgement, current = await client.wire.wait_for_notifications(2)
        assert acknowledgement["method"] == "notifications/subscriptions/acknowledged"
        assert acknowledgement["params"]["notifications"] == {"taskIds": [id], "toolsListChanged": True}
        tag = {f"{META}subscriptionId": "me"}
        assert current["method"] == "notifications/tasks"
        assert current["params"]["_meta"] == tag
        assert stable_members(current["params"]) == {"status": "working"}
        harbour.release.set()
        *_, last = await client.wire.wait_for_notifications(3)
        state = await client.get(id)
        assert {**last["params"], "_meta": 0} == {name: state[name] for name in last["params"]} | {"_meta": 0}
        assert (last["params"]["status"], last["params"]["_meta"]) == ("completed", tag)
        assert not tasks_of(harbour.server)._listeners


async def test_listening_to_tasks_fails_without_the_extension() -> None:
    harbour = Harbour()
    recorder = RecordingChannel()
    params = {"notifications": {"taskIds": ["x"]}}
    answer = await ask(harbour.server, "subscriptions/listen", params, channel=recorder)
    assert (answer["error"]["code"], answer["error"]["data"]) == (-32021, TASKS_REQUIRED)
    assert recorder.sent == []


async def test_a_cancelled_listen_removes_its_listeners() -> None:
    harbour = Harbour()
    async with client_of(harbour.server) as client:
        id = await client.start("dredge")
        await client.wait_for(id, lambda state: True)
        await client.get(id)
        tasks = tasks_of(harbour.server)
        assert (tasks._listeners, tasks._keys_by_listener) == ({}, {})


# -- limits


async def test_the_number_of_running_tasks_per_principal_is_limited() -> None:
    harbour = Harbour(limits=Limits(tasks=3, tasks_each=2, drain=0.05))
    async with client_of(harbour.server, "ann") as ann, Wire(harbour.server, principal="bob") as wire:
        first = await ann.start("dredge")
        await ann.start("dredge")
        answer = await ann.ask("tools/call", {"name": "dredge"})
        assert answer["error"] == {
            "code": -32603,
            "message": "Too many tasks are running: wait for one, or cancel one.",
        }
        bob = TaskClient(wire)
        await bob.start("dredge")
        assert "error" in await bob.ask("tools/call", {"name": "dredge"})
        await ann.result("tasks/cancel", {"taskId": first})
        await ann.final_state(first)
        await ann.start("dredge")


async def test_the_number_of_stored_tasks_is_limited_and_one_principal_may_use_half_of_it() -> None:
    harbour = Harbour(limits=Limits(tasks_kept=4))
    harbour.release.set()
    async with client_of(harbour.server, "ann") as ann, Wire(harbour.server, principal="bob") as wire:
        for _ in range(2):
            await ann.final_state(await ann.start("dredge"))
        answer = await ann.ask("tools/call", {"name": "dredge"})
        assert "Too many tasks are stored" in answer["error"]["message"]
        bob = TaskClient(wire)
        for _ in range(2):
            await bob.final_state(await bob.start("dredge"))
        async with Wire(harbour.server, principal="eve") as other:
            assert "error" in await TaskClient(other).ask("tools/call", {"name": "dredge"})
        assert not tasks_of(harbour.server).running


@pytest.mark.parametrize("limits", [Limits(task_result=1000), Limits(task_results=2000)])
async def test_a_result_that_is_too_large_fails_its_task(limits: Limits) -> None:
    server = Server("large", limits=limits)

    @server.tool(task=True)
    async def job() -> str:
        return "x" * 1000

    async with client_of(server) as client:
        state = await client.final_state(await client.start("job"))
        assert state["status"] == "failed"
        assert "x" * 1000 not in str(state)


async def test_ended_tasks_leave_only_their_stored_records() -> None:
    harbour = Harbour()
    harbour.release.set()
    async with client_of(harbour.server) as client:
        for _ in range(20):
            await client.final_state(await client.start("dredge"))
        tasks = tasks_of(harbour.server)
        await tasks._jobs.finished()
        assert not any((tasks.running, tasks.calls, tasks._shares, tasks._jobs, tasks._last_sent))
        assert (await tasks.store.usage("tasks/"))[0] == 20
        assert tasks._heartbeat_task is None  # a store in memory is not shared


# -- time to live


async def test_a_task_that_exceeds_its_ttl_fails() -> None:
    server = Server("slow")

    @server.tool(task=True, task_ttl=0.05)
    async def job() -> str:
        await asyncio.sleep(60)
        return "never"

    async with client_of(server) as client:
        task = await client.call("job")
        assert task["ttlMs"] == 50
        state = await client.final_state(task["taskId"])
        assert (state["status"], state["statusMessage"]) == ("failed", "The task did not finish within 0.05 s.")
        assert state["ttlMs"] > 250_000  # the failed state is kept for five minutes


async def test_a_result_is_deleted_after_its_ttl() -> None:
    clock_offset = [0.0]
    store = MemoryStore(lambda: time.time() + clock_offset[0])
    harbour = Harbour(task_store=store, task_ttl=1000.0)
    harbour.release.set()
    async with client_of(harbour.server) as client:
        id = await client.start("dredge")
        assert (await client.final_state(id))["ttlMs"] == 1_000_000
        clock_offset[0] = 990.0
        assert (await client.get(id))["status"] == "completed"
        clock_offset[0] = 1001.0
        assert (await client.ask("tasks/get", {"taskId": id}))["error"] == UNKNOWN_TASK_ERROR
        assert await store.usage("") == (0, 0)


async def test_a_task_without_a_ttl_never_expires() -> None:
    clock_offset = [0.0]
    server = Server("eternal", task_store=MemoryStore(lambda: time.time() + clock_offset[0]))

    @server.tool(task=True, task_ttl=None)
    async def job() -> str:
        return "done"

    async with client_of(server) as client:
        task = await client.call("job")
        assert task["ttlMs"] is None
        await client.final_state(task["taskId"])
        clock_offset[0] = 1e9
        assert (await client.get(task["taskId"]))["ttlMs"] is None


# -- the store


class SlowStore(MemoryStore):
    """A store whose writes wait for `release`."""

    def __init__(self) -> None:
        super().__init__()
        self.release, self.write_started = asyncio.Event(), asyncio.Event()

    async def put(self, key: str, value: bytes, **options: Any) -> bool:
        self.write_started.set()
        await self.release.wait()
        return await super().put(key, value, **options)


async def test_a_task_is_stored_before_its_call_is_answered_and_before_its_function_runs() -> None:
    store = SlowStore()
    harbour = Harbour(task_store=store)
    async with client_of(harbour.server) as client:
        request_id = client.wire.send_request("tools/call", with_capabilities({"name": "dredge"}))
        await store.write_started.wait()
        await client.ask("tasks/get", {"taskId": "x"})
        assert (type(request_id), request_id) not in client.wire.answers
        assert not harbour.begun.is_set()
        store.release.set()
        assert (await client.wire.answer(request_id))["result"]["resultType"] == "task"
        await harbour.begun.wait()


class BrokenStore(MemoryStore):
    """A store whose writes fail while `broken` is true."""

    broken = False

    async def put(self, key: str, value: bytes, **options: Any) -> bool:
        if self.broken:
            raise StoreUnusable("The disk is full.")
        return await super().put(key, value, **options)


async def test_a_task_that_cannot_be_stored_is_not_created() -> None:
    store = BrokenStore()
    store.broken = True
    harbour = Harbour(task_store=store)
    async with client_of(harbour.server) as client:
        answer = await client.ask("tools/call", {"name": "dredge"})
        assert answer["result"]["isError"] is True
        assert "disk" not in str(answer)
        assert not harbour.begun.is_set()
        assert not tasks_of(harbour.server).running


async def test_a_result_that_cannot_be_stored_is_still_served_by_its_process() -> None:
    store = BrokenStore()
    harbour = Harbour(task_store=store)
    async with client_of(harbour.server) as client:
        id = await client.start("dredge")
        await harbour.begun.wait()
        store.broken = True
        harbour.release.set()
        assert (await client.final_state(id))["status"] == "completed"
        assert (await client.get(id))["status"] == "completed"
        store.broken = False


async def test_start_raises_if_the_store_cannot_be_opened() -> None:
    harbour = Harbour(task_store="sqlite:////nowhere/at/all/tasks.db")
    with pytest.raises(StoreUnusable, match=r"/nowhere/at/all/tasks\.db: it cannot be opened"):
        await harbour.server.start()
    await harbour.server.close()


# -- shutdown


async def test_close_lets_tasks_finish_within_the_drain_time_and_fails_the_rest() -> None:
    store = MemoryStore()
    harbour = Harbour(task_store=store, limits=Limits(drain=0.2))

    @harbour.server.tool(task=True)
    async def soon() -> str:
        await asyncio.sleep(0.05)
        return "in time"

    async with client_of(harbour.server) as client:
        quick_id = await client.start("soon")
        stopped_id = await client.start("dredge")
        await harbour.begun.wait()
        await harbour.server.close()
        assert harbour.outcomes == ["cancelled"]
        answer = await client.ask("tools/call", {"name": "dredge"})
        assert answer["error"]["message"] == "The server is stopping."
        await harbour.server.start()
        assert (await client.get(quick_id))["result"]["content"][0]["text"] == "in time"
        state = await client.get(stopped_id)
        assert (state["status"], state["error"]) == ("failed", {"code": -32603, "message": STOPPED_MESSAGE})
        again = await client.start("dredge")
        assert (await client.get(again))["status"] == "working"


async def test_tasks_are_failed_if_the_task_of_the_lifespan_is_cancelled() -> None:
    """A bug: they stayed `working` in the store. The end of `asyncio.run` cancels this task."""
    harbour = Harbour(task_store=MemoryStore(), limits=Limits(drain=0.05))
    async with client_of(harbour.server) as client:
        id = await client.start("dredge")
        await harbour.begun.wait()
        run = harbour.server.running._run
        assert run is not None
        run.task.cancel()
        await asyncio.wait((run.task,))
        assert harbour.outcomes == ["cancelled"]
        with pytest.raises(asyncio.CancelledError):
            await harbour.server.close()
        await harbour.server.start()
        assert (await client.get(id))["statusMessage"] == STOPPED_MESSAGE


async def test_close_fails_tasks_that_wait_for_input_or_ignore_cancellation() -> None:
    server = Server("stubborn", limits=Limits(drain=0.05), task_store=MemoryStore())
    elicit_called, begun, free = asyncio.Event(), asyncio.Event(), asyncio.Event()

    @server.tool(task=True)
    async def waits(ctx: Context[Any]) -> str:
        elicit_called.set()
        await ctx.elicit("Sure?", Confirmation)
        return "never"

    @server.tool(task=True)
    async def stays() -> str:
        begun.set()
        while not free.is_set():
            try:
                await free.wait()
            except asyncio.CancelledError:
                continue
        return "at last"

    async with client_of(server) as client:
        first, second = await client.start("waits"), await client.start("stays")
        await elicit_called.wait()
        await begun.wait()
        await server.close()
        await server.start()
        for id in (first, second):
            assert (await client.get(id))["statusMessage"] == STOPPED_MESSAGE
        free.set()
        assert (await client.get(second))["statusMessage"] == STOPPED_MESSAGE


def tasks_of(server: Server) -> Tasks:
    assert server.tasks is not None
    return server.tasks


# -- values at each limit and one above


def large_result_server(store: MemoryStore | None = None, **limits: int) -> Server:
    server = Server("large", limits=Limits(**limits), task_store=store or MemoryStore())

    @server.tool(task=True)
    async def job() -> str:
        return "x" * 1000

    return server


async def state_of_job(server: Server) -> Any:
    """Run the tool `job` as a task and return its last state."""
    async with client_of(server) as client:
        return await client.final_state(await client.start("job"))


async def test_a_result_of_exactly_the_limit_is_accepted_and_one_byte_more_fails() -> None:
    size = len(msgspec.json.encode((await state_of_job(large_result_server()))["result"]))
    assert (await state_of_job(large_result_server(task_result=size)))["status"] == "completed"
    state = await state_of_job(large_result_server(task_result=size - 1))
    assert state["error"] == {
        "code": -32603,
        "message": f"The task's result has {size} bytes, the limit is {size - 1}.",
    }


async def test_the_results_of_one_principal_may_take_half_of_the_limit() -> None:
    class MeasuringStore(MemoryStore):
        max_size = 0

        async def usage(self, prefix: str) -> tuple[int, int]:
            count, size = await super().usage(prefix)
            self.max_size = max(self.max_size, size)
            return count, size

    store = MeasuringStore()
    size = len(msgspec.json.encode((await state_of_job(large_result_server(store)))["result"]))
    limit = 2 * (store.max_size + size)
    assert (await state_of_job(large_result_server(task_results=limit)))["status"] == "completed"
    state = await state_of_job(large_result_server(task_results=limit - 1))
    assert state["error"]["message"] == ("The stored results of tasks are too large: try again when some have expired.")


async def test_one_principal_may_store_half_of_the_tasks_kept() -> None:
    harbour = Harbour(limits=Limits(tasks_kept=4))
    harbour.release.set()
    async with client_of(harbour.server) as client:
        for _ in range(2):
            assert (await client.final_state(await client.start("dredge")))["status"] == "completed"
        assert "error" in await client.ask("tools/call", {"name": "dredge"})


async def test_a_cancelled_task_frees_one_slot() -> None:
    harbour = Harbour(limits=Limits(tasks_each=2, drain=0.05))
    async with client_of(harbour.server) as client:
        first = await client.start("dredge")
        await client.start("dredge")
        await client.result("tasks/cancel", {"taskId": first})
        await client.final_state(first)
        await client.start("dredge")
        assert "Too many tasks are running" in (await client.ask("tools/call", {"name": "dredge"}))["error"]["message"]


async def test_a_timed_out_task_is_kept_for_five_minutes() -> None:
    server = Server("slow")

    @server.tool(task=True, task_ttl=0.05)
    async def job() -> str:
        await asyncio.sleep(60)
        return "never"

    state = await state_of_job(server)
    began, ended = (datetime.fromisoformat(state[name]) for name in ("createdAt", "lastUpdatedAt"))
    assert abs(state["ttlMs"] - 300_000 - (ended - began).total_seconds() * 1000) <= 2


async def test_a_running_task_is_stored_for_a_minute_longer_than_its_ttl() -> None:
    clock_offset = [0.0]
    store = MemoryStore(lambda: time.time() + clock_offset[0])
    harbour = Harbour(task_store=store, task_ttl=1000.0)
    async with client_of(harbour.server) as client:
        await client.start("dredge")
        clock_offset[0] = 1050.0
        assert (await store.usage("tasks/"))[0] == 1
        clock_offset[0] = 1061.0
        assert (await store.usage("tasks/"))[0] == 0


@pytest.mark.parametrize("ttl", [0, -1, -2, 0.0, float("nan"), float("inf"), 1e300])
def test_an_impossible_ttl_is_refused(ttl: float) -> None:
    """A bug: -1, of a tool, meant that of the server, and infinity failed when a task began."""
    with pytest.raises(ValueError, match="write more than 0 seconds, and at most 1e\\+09; None for no limit"):
        Server("s").tools.add(lambda: "x", name="x", task=True, task_ttl=ttl)
    with pytest.raises(ValueError, match="write more than 0 seconds"):
        Server("s", task_ttl=ttl)


# -- failures of the store and of handlers


async def test_a_task_whose_creation_fails_after_the_write_is_deleted() -> None:
    class UncertainStore(MemoryStore):
        """A store whose writes raise an error after they succeed."""

        deleted = asyncio.Event()

        async def put(self, key: str, value: bytes, **options: Any) -> bool:
            await super().put(key, value, **options)
            raise StoreUnusable("The disk is full.")

        async def delete(self, key: str) -> None:
            await super().delete(key)
            self.deleted.set()

    store = UncertainStore()
    harbour = Harbour(task_store=store)
    async with client_of(harbour.server) as client:
        assert (await client.ask("tools/call", {"name": "dredge"}))["result"]["isError"] is True
        await store.deleted.wait()
        assert await store.usage("tasks/") == (0, 0)


async def test_a_task_stored_after_its_server_closed_never_runs() -> None:
    store = SlowStore()
    harbour = Harbour(task_store=store)
    async with client_of(harbour.server) as client:
        request_id = client.wire.send_request("tools/call", with_capabilities({"name": "dredge"}))
        await store.write_started.wait()
        tasks = tasks_of(harbour.server)
        closing = asyncio.ensure_future(harbour.server.close())
        while not any(task.stop_reason for task in tasks.running.values()):
            await asyncio.sleep(0)
        store.release.set()
        await client.wire.answer(request_id)
        await closing
        assert not harbour.begun.is_set()
        ((_, record),) = await store.scan("tasks/")
        record = msgspec.json.decode(record)
        assert (record["worker"], record["state"]["status"], record["state"]["statusMessage"]) == (
            "",
            "failed",
            STOPPED_MESSAGE,
        )


async def test_a_handler_that_returns_after_close_does_not_change_its_failed_task() -> None:
    store = MemoryStore()
    server = Server("stubborn", limits=Limits(drain=0.01), task_store=store)
    begun, free, returned = asyncio.Event(), asyncio.Event(), asyncio.Event()

    @server.tool(task=True)
    async def stays() -> str:
        begun.set()
        while not free.is_set():
            try:
                await free.wait()
            except asyncio.CancelledError:
                continue
        returned.set()
        return "at last"

    async with client_of(server) as client:
        id = await client.start("stays")
        await begun.wait()
        await server.close()
        ((key, before),) = await store.scan("tasks/")
        assert b'"worker":""' in before and STOPPED_MESSAGE.encode() in before
        await server.start()
        free.set()
        await returned.wait()
        for _ in range(20):
            assert (await client.get(id))["status"] == "failed"
        assert await store.scan("tasks/") == [(key, before)]


async def test_a_task_whose_end_cannot_be_stored_is_logged_and_kept_in_memory(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(task_extension, "MIN_KEPT_SECONDS", 0.02)
    store = BrokenStore()
    harbour = Harbour(task_store=store, task_ttl=None)
    async with client_of(harbour.server) as client:
        id = await client.start("dredge")
        await harbour.begun.wait()
        store.broken = True
        harbour.release.set()
        await client.final_state(id)
        assert "The end of a task could not be stored: only this process knows it" in caplog.text
        assert tasks_of(harbour.server).running
        store.broken = False
        while tasks_of(harbour.server).running:
            await client.ask("tools/list")


async def test_a_change_that_cannot_be_stored_is_logged_and_still_sent(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = BrokenStore()
    server, release, may_report = Server("telling", task_store=store), asyncio.Event(), asyncio.Event()

    @server.tool(task=True)
    async def job(ctx: Context[Any]) -> str:
        await may_report.wait()
        ctx.task_status("half way")
        await release.wait()
        return "done"

    async with client_of(server) as client:
        id = await client.start("job")
        store.broken = True
        may_report.set()
        await client.wait_for(id, lambda state: state.get("statusMessage") == "half way")
        while "A change of a task could not be stored" not in caplog.text:
            await client.ask("tools/list")
        store.broken = False
        release.set()
        assert (await client.final_state(id))["status"] == "completed"


async def test_unexpected_errors_of_tasks_are_logged_with_their_reference_and_tool_errors_are_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    state = await state_of_job(failing_server(ValueError("secret")))
    (record,) = [record for record in caplog.records if record.levelno >= logging.ERROR]
    text = state["result"]["content"][0]["text"]
    reference = text.partition("(reference ")[2][:8]
    assert reference.isalnum() and text.partition(reference)[2].startswith(")")
    assert reference in record.getMessage() and "The task of" in record.getMessage() and "job" in record.getMessage()
    assert record.exc_info is not None
    caplog.clear()
    await state_of_job(failing_server(ToolError("No crane.")))
    await state_of_job(failing_server(InternalError("The crane fell.")))
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []
    await state_of_job(failing_server(InternalError("\udcff")))
    assert "The error of a task cannot be sent (reference " in caplog.text


async def test_unknown_and_repeated_input_responses_are_ignored() -> None:
    async with client_of(eliciting_server()) as client:
        id = await client.start("one")
        ((key, _),) = (await client.input_requests(id)).items()
        before = await client.get(id)
        await client.result("tasks/update", {"taskId": id, "inputResponses": {"question-99": accept(True)}})
        assert (await client.get(id))["inputRequests"].keys() == before["inputRequests"].keys()
        answers = {key: accept(True)}
        await client.result("tasks/update", {"taskId": id, "inputResponses": answers})
        await client.result("tasks/update", {"taskId": id, "inputResponses": answers})
        assert key not in (await client.get(id)).get("inputRequests", {})
        await client.result("tasks/cancel", {"taskId": id})


async def test_a_repeated_status_message_does_not_update_the_task() -> None:
    server, release = Server("telling"), asyncio.Event()

    @server.tool(task=True)
    async def job(ctx: Context[Any]) -> str:
        ctx.task_status("half way")
        await release.wait()
        return "done"

    async with client_of(server) as client:
        id = await client.start("job")
        state = await client.wait_for(id, lambda state: "statusMessage" in state)
        (task,) = tasks_of(server).running.values()
        task.set_message("half way")
        assert (await client.get(id))["lastUpdatedAt"] == state["lastUpdatedAt"]
        release.set()
        await client.final_state(id)


async def test_a_listen_omits_unknown_tasks() -> None:
    harbour = Harbour()
    async with client_of(harbour.server) as client:
        id = await client.start("dredge")
        client.wire.send_request(
            "subscriptions/listen", with_capabilities({"notifications": {"taskIds": ["nothing", id]}})
        )
        acknowledgement, current = await client.wire.wait_for_notifications(2)
        assert acknowledgement["params"]["notifications"]["taskIds"] == [id]
        assert (current["params"]["taskId"], current["params"]["status"]) == (id, "working")


async def wait_for_status(client: TaskClient, status: str) -> None:
    """Wait until the last notification has this task status."""
    await client.wire.wait_until(
        lambda: any(
            notice["method"] == "notifications/tasks" and notice["params"]["status"] == status
            for notice in client.wire.notifications[-1:]
        )
    )


@pytest.mark.parametrize("answers", [True, False])
async def test_a_listener_is_notified_when_an_input_request_opens_and_closes(answers: bool) -> None:
    server, withdraw, release = Server("asking"), asyncio.Event(), asyncio.Event()

    @server.tool(task=True)
    async def job(ctx: Context[Any]) -> str:
        elicitation = asyncio.ensure_future(ctx.elicit("Sure?", Confirmation))
        withdrawal = asyncio.ensure_future(withdraw.wait())
        await asyncio.wait((elicitation, withdrawal), return_when=asyncio.FIRST_COMPLETED)
        elicitation.cancel()
        withdrawal.cancel()
        await release.wait()
        return "done"

    async with client_of(server) as client:
        id = await client.start("job")
        client.wire.send_request("subscriptions/listen", with_capabilities({"notifications": {"taskIds": [id]}}))
        await wait_for_status(client, "input_required")
        if answers:
            ((key, _),) = (await client.get(id))["inputRequests"].items()
            await client.result("tasks/update", {"taskId": id, "inputResponses": {key: accept(True)}})
        else:
            withdraw.set()
        await wait_for_status(client, "working")
        release.set()
        await wait_for_status(client, "completed")


async def test_task_times_are_sent_in_milliseconds_and_are_at_least_one() -> None:
    clock_offset = [0.0]
    store = MemoryStore(lambda: time.time() + clock_offset[0])
    server = Server("quick", task_poll=0.0001, task_ttl=1_000_000.0, task_store=store)
    server.tools.add(lambda: "x", name="x", task=True)
    server.tools.add(lambda: "x", name="soon", task=True, task_ttl=0.0001)
    async with client_of(server) as client:
        task = await client.call("x")
        assert (task["ttlMs"], task["pollIntervalMs"]) == (1_000_000_000, 1)
        await client.final_state(task["taskId"])
        clock_offset[0] = 999_500.0
        assert (await client.get(task["taskId"]))["status"] == "completed"
        clock_offset[0] = 1_000_001.0
        assert (await client.ask("tasks/get", {"taskId": task["taskId"]}))["error"] == UNKNOWN_TASK_ERROR
        clock_offset[0] = 0.0
        assert (await client.call("soon"))["ttlMs"] == 1
