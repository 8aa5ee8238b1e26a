"""Tasks that outlive their process, and those of several processes that share a store; real processes, real kills."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.server.driving import META, Wire, line, looped
from wharfinger import Context, Server
from wharfinger.errors import StoreUnusable
from wharfinger.protocol.limits import Limits
from wharfinger.server.tasks import task_extension
from wharfinger.server.tasks.task_extension import Tasks
from wharfinger.types.task_extension import TASKS

STOPPED = "The server stopped before the task was finished: call the tool again."
CAPABILITIES: dict[str, Any] = {"extensions": {TASKS: {}}, "elicitation": {"form": {}}}
FINAL_STATUSES = ("completed", "failed", "cancelled")


def with_capabilities(params: dict[str, Any]) -> dict[str, Any]:
    return {**params, "_meta": {f"{META}clientCapabilities": CAPABILITIES}}


@dataclass
class Confirmation:
    sure: bool


class Worker:
    """One of several servers that share a store, with a short heartbeat, so that it soon sees changes of the others."""

    def __init__(self, path: Path) -> None:
        self.server = server = Server("worker", limits=Limits(drain=0.05), task_store=f"sqlite:///{path}")
        self.go = asyncio.Event()

        @server.tool(task=True)
        async def dredge() -> str:
            await self.go.wait()
            return "done"

        @server.tool(task=True)
        async def sure(ctx: Context[Any]) -> str:
            answer = await ctx.elicit("Sure?", Confirmation)
            return f"{answer.sure}"

        self.tasks: Tasks = server.serve_tasks()
        self.tasks.heartbeat = 0.01


@asynccontextmanager
async def wire_to(worker: Worker, principal: str = "") -> AsyncGenerator[Wire]:
    await worker.server.start()
    async with Wire(worker.server, principal=principal) as wire:
        yield wire
    await worker.server.close()


async def result(wire: Wire, method: str, **params: Any) -> Any:
    answer = await wire.ask(method, with_capabilities(params))
    assert "result" in answer, answer
    return answer["result"]


async def poll_until(wire: Wire, id: str, condition: Callable[[Any], bool]) -> Any:
    """Poll a task, as clients do, until its state fulfils a condition, and return the state."""
    while not condition(state := await result(wire, "tasks/get", taskId=id)):
        pass
    return state


@looped
async def test_any_process_reports_the_state_of_a_task_and_forwards_messages_to_its_runner(
    tmp_path: Path,
) -> None:
    one, two = Worker(tmp_path / "tasks.db"), Worker(tmp_path / "tasks.db")
    async with wire_to(one) as first, wire_to(two) as second:
        id = (await result(first, "tools/call", name="sure"))["taskId"]
        state = await poll_until(second, id, lambda state: state["status"] == "input_required")
        assert state == await result(first, "tasks/get", taskId=id)
        ((key, _),) = state["inputRequests"].items()
        answer = {key: {"action": "accept", "content": {"sure": True}}}
        await result(second, "tasks/update", taskId=id, inputResponses=answer)
        state = await poll_until(second, id, lambda state: state["status"] in FINAL_STATUSES)
        assert state["result"]["content"][0]["text"] == "True"

        id = (await result(first, "tools/call", name="dredge"))["taskId"]
        await result(second, "tasks/cancel", taskId=id)
        state = await poll_until(first, id, lambda state: state["status"] in FINAL_STATUSES)
        assert state["status"] == "cancelled"
        assert await result(second, "tasks/get", taskId=id) == state
        await result(second, "tasks/cancel", taskId=id)
        assert await one.tasks.store.usage("task-inbox/") == (0, 0)


@looped
async def test_listeners_at_another_process_are_notified_too(tmp_path: Path) -> None:
    one, two = Worker(tmp_path / "tasks.db"), Worker(tmp_path / "tasks.db")
    async with wire_to(one) as first, wire_to(two) as second:
        id = (await result(first, "tools/call", name="dredge"))["taskId"]
        second.put("subscriptions/listen", with_capabilities({"notifications": {"taskIds": [id]}}))
        _, now = await second.notice(2)
        assert now["params"]["status"] == "working"
        one.go.set()
        *_, last = await second.notice(3)
        assert (last["method"], last["params"]["status"]) == ("notifications/tasks", "completed")
        assert (two.tasks._listeners, two.tasks._keys_by_listener, two.tasks._last_sent) == ({}, {}, {})
        assert len(second.notices) == 3


@looped
async def test_another_principal_finds_nothing_at_another_process_either(tmp_path: Path) -> None:
    one, two = Worker(tmp_path / "tasks.db"), Worker(tmp_path / "tasks.db")
    async with wire_to(one, "ann") as ann, wire_to(two, "bob") as bob:
        id = (await result(ann, "tools/call", name="dredge"))["taskId"]
        for method in ("tasks/get", "tasks/update", "tasks/cancel"):
            answer = await bob.ask(method, with_capabilities({"taskId": id, "inputResponses": {}}))
            assert answer["error"]["code"] == -32602
        assert (await result(ann, "tasks/get", taskId=id))["status"] == "working"


@looped
async def test_messages_to_a_process_that_does_not_read_them_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_extension, "MAX_INBOX_MESSAGES", 2)
    one, two = Worker(tmp_path / "tasks.db"), Worker(tmp_path / "tasks.db")
    one.tasks.heartbeat = 60
    async with wire_to(one) as first, wire_to(two) as second:
        id = (await result(first, "tools/call", name="sure"))["taskId"]
        for _ in range(2):
            assert "inputResponses" not in await result(second, "tasks/update", taskId=id, inputResponses={})
        answer = await second.ask("tasks/update", with_capabilities({"taskId": id, "inputResponses": {}}))
        assert answer["error"]["message"] == (
            "The process that runs this task has too many messages to handle: try again later."
        )
        assert (await two.tasks.store.usage("task-inbox/"))[0] == 2


@looped
async def test_an_unreadable_message_of_another_process_does_not_delay_the_others(tmp_path: Path) -> None:
    one, two = Worker(tmp_path / "tasks.db"), Worker(tmp_path / "tasks.db")
    async with wire_to(one) as first, wire_to(two) as second:
        id = (await result(first, "tools/call", name="dredge"))["taskId"]
        await two.tasks.store.put(f"task-inbox/{one.tasks.worker}/0", b"of another version")
        await result(second, "tasks/cancel", taskId=id)
        assert (await poll_until(second, id, lambda state: state["status"] in FINAL_STATUSES))["status"] == "cancelled"


@looped
async def test_a_process_without_heartbeat_loses_its_tasks(tmp_path: Path) -> None:
    one, two = Worker(tmp_path / "tasks.db"), Worker(tmp_path / "tasks.db")
    async with wire_to(one) as first, wire_to(two) as second:
        id = (await result(first, "tools/call", name="dredge"))["taskId"]
        await one.tasks.store.delete(f"task-workers/{one.tasks.worker}")  # as if its lease had expired
        state = await result(second, "tasks/get", taskId=id)
        assert (state["status"], state["error"]["message"]) == ("failed", STOPPED)
        one.go.set()
        state = await poll_until(first, id, lambda state: state["status"] in FINAL_STATUSES)
        assert (await result(second, "tasks/get", taskId=id))["status"] == "failed"  # a finished task stays unchanged
        assert (await result(first, "tasks/get", taskId=id))["status"] == "failed"


@looped
async def test_a_process_without_running_tasks_has_no_heartbeat(tmp_path: Path) -> None:
    worker = Worker(tmp_path / "tasks.db")
    async with wire_to(worker) as wire:
        id = (await result(wire, "tools/call", name="dredge"))["taskId"]
        beating: Any = worker.tasks._heartbeat_task
        worker.go.set()
        await poll_until(wire, id, lambda state: state["status"] in FINAL_STATUSES)
        await beating
    assert await worker.tasks.store.usage("task-workers/") == (0, 0)
    await worker.tasks.store.close()


PROGRAM = """
import asyncio, sys
from wharfinger import Context, Server
from wharfinger.types import ElicitResult

server = Server("mortal", task_store=f"sqlite:///{sys.argv[1]}")
server.serve_tasks().lease = 0.3

@server.tool(task=True)
async def quick() -> str:
    return "done"

@server.tool(task=True)
async def slow(ctx: Context) -> str:
    ctx.task_status("on my way")
    await asyncio.sleep(3600)
    return "never"

@server.tool(task=True)
async def asks(ctx: Context) -> str:
    await ctx.elicit_url("Go there", "https://example.test/")
    return "never"

server.run()
"""


class Process:
    """A server on its standard streams, in a process that can be killed."""

    def __init__(self, folder: Path) -> None:
        program = folder / "server.py"
        program.write_text(PROGRAM)
        self.running = subprocess.Popen(
            [sys.executable, str(program), str(folder / "tasks.db")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self.number = 0

    def ask(self, method: str, **params: Any) -> Any:
        assert self.running.stdin is not None
        assert self.running.stdout is not None
        self.number += 1
        meta: dict[str, Any] = {f"{META}clientCapabilities": {**CAPABILITIES, "elicitation": {"url": {}}}}
        self.running.stdin.write(line(method, {**params, "_meta": meta}, self.number))
        self.running.stdin.flush()
        return json.loads(self.running.stdout.readline())["result"]

    def start(self, name: str) -> str:
        id: str = self.ask("tools/call", name=name)["taskId"]
        return id

    def poll(self, id: str, condition: Callable[[Any], bool]) -> Any:
        while not condition(state := self.ask("tasks/get", taskId=id)):
            pass
        return state

    def kill(self) -> None:
        os.kill(self.running.pid, signal.SIGKILL)
        self.running.communicate()

    def end(self) -> None:
        self.running.communicate(timeout=20)


def test_after_a_kill_results_are_kept_and_running_tasks_fail(tmp_path: Path) -> None:
    before = Process(tmp_path)
    done, running, waiting = before.start("quick"), before.start("slow"), before.start("asks")
    finished = before.poll(done, lambda state: state["status"] == "completed")
    before.poll(running, lambda state: state.get("statusMessage") == "on my way")
    before.poll(waiting, lambda state: state["status"] == "input_required")
    before.kill()

    after = Process(tmp_path)
    assert after.ask("tasks/get", taskId=done) == finished
    for id in (running, waiting):
        state = after.poll(id, lambda state: state["status"] in FINAL_STATUSES)
        assert (state["status"], state["statusMessage"]) == ("failed", STOPPED)
        assert state["error"] == {"code": -32603, "message": STOPPED}
        assert "inputRequests" not in state
    after.end()


def test_a_server_that_closes_reports_the_end_of_its_tasks_at_once(tmp_path: Path) -> None:
    before = Process(tmp_path)
    running = before.start("slow")
    before.end()
    after = Process(tmp_path)
    assert after.ask("tasks/get", taskId=running)["statusMessage"] == STOPPED
    after.end()


@looped
async def test_a_process_that_has_lost_a_task_logs_it_once_and_stops_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    one, two = Worker(tmp_path / "tasks.db"), Worker(tmp_path / "tasks.db")
    seen: list[str] = []

    @one.server.tool(task=True)
    async def survey(ctx: Context[Any]) -> str:
        await one.go.wait()
        ctx.task_status("half way")
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise
        return "never"

    async with wire_to(one) as first, wire_to(two) as second:
        id = (await result(first, "tools/call", name="survey"))["taskId"]
        await one.tasks.store.delete(f"task-workers/{one.tasks.worker}")  # as if its lease had expired
        before = await result(first, "tasks/get", taskId=id)
        lost = await result(second, "tasks/get", taskId=id)
        assert (lost["status"], lost["statusMessage"]) == ("failed", STOPPED)
        assert lost["createdAt"] == before["createdAt"] <= lost["lastUpdatedAt"]
        one.go.set()
        state = await poll_until(first, id, lambda state: state["status"] in FINAL_STATUSES)
        assert (state["status"], state["statusMessage"]) == ("failed", STOPPED)
        assert seen == ["cancelled"]
        warnings = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
        assert warnings == ["Another process failed a task, because this one had no heartbeat for 15 s"]


@looped
async def test_input_requests_of_a_lost_task_are_removed(tmp_path: Path) -> None:
    one, two = Worker(tmp_path / "tasks.db"), Worker(tmp_path / "tasks.db")
    async with wire_to(one) as first, wire_to(two) as second:
        id = (await result(first, "tools/call", name="sure"))["taskId"]
        await poll_until(second, id, lambda state: "inputRequests" in state)
        await one.tasks.store.delete(f"task-workers/{one.tasks.worker}")
        state = await result(second, "tasks/get", taskId=id)
        assert (state["status"], "inputRequests" in state) == ("failed", False)


@looped
async def test_the_bytes_of_messages_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = Worker(tmp_path / "tasks.db"), Worker(tmp_path / "tasks.db")
    one.tasks.heartbeat = 60
    async with wire_to(one) as first, wire_to(two) as second:
        id = (await result(first, "tools/call", name="sure"))["taskId"]
        await result(second, "tasks/update", taskId=id, inputResponses={})
        count, size = await two.tasks.store.usage(f"task-inbox/{one.tasks.worker}/")
        assert count == 1
        monkeypatch.setattr(task_extension, "MAX_INBOX_BYTES", 2 * size - 1)
        answer = await second.ask("tasks/update", with_capabilities({"taskId": id, "inputResponses": {}}))
        assert answer["error"]["message"].startswith("The process that runs this task")
        monkeypatch.setattr(task_extension, "MAX_INBOX_BYTES", 2 * size)
        await result(second, "tasks/update", taskId=id, inputResponses={})
        assert await two.tasks.store.usage(f"task-inbox/{one.tasks.worker}/") == (2, 2 * size)


@looped
async def test_a_temporarily_unreadable_store_is_logged_and_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    one, two = Worker(tmp_path / "tasks.db"), Worker(tmp_path / "tasks.db")
    async with wire_to(one) as first, wire_to(two) as second:
        id = (await result(first, "tools/call", name="dredge"))["taskId"]
        scan, failures = one.tasks.store.scan, [StoreUnusable("The disk is away."), ValueError("odd")]

        async def failing(prefix: str, **options: Any) -> Any:
            if failures:
                raise failures.pop(0)
            return await scan(prefix, **options)

        monkeypatch.setattr(one.tasks.store, "scan", failing)
        await result(second, "tasks/cancel", taskId=id)
        assert (await poll_until(second, id, lambda state: state["status"] in FINAL_STATUSES))["status"] == "cancelled"
        assert "The disk is away." in caplog.text
        assert "A message from another process is malformed" in caplog.text


@looped
async def test_a_process_with_running_tasks_writes_one_heartbeat_for_all_of_them(tmp_path: Path) -> None:
    worker = Worker(tmp_path / "tasks.db")
    async with wire_to(worker) as wire:
        assert await worker.tasks.store.usage("task-workers/") == (0, 0)
        written: list[str] = []
        put = worker.tasks.store.put

        async def counting(key: str, value: bytes, **options: Any) -> bool:
            written.append(key)
            return await put(key, value, **options)

        worker.tasks.store.put = counting  # type: ignore[method-assign]
        for _ in range(3):
            await result(wire, "tools/call", name="dredge")
        assert await worker.tasks.store.usage("task-workers/") == (1, 0)
        assert written.count(f"task-workers/{worker.tasks.worker}") == 1
    assert await worker.tasks.store.usage("task-workers/") == (0, 0)
    await worker.tasks.store.close()
