"""Tasks that outlive their process, and tasks of processes that share a store."""

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

from tests.server.driving import META, Wire, line
from wharfinger import Context, Server
from wharfinger.errors import StoreUnusable
from wharfinger.protocol.jsonrpc import encode
from wharfinger.protocol.limits import Limits
from wharfinger.server.tasks import task_extension
from wharfinger.server.tasks.task_extension import Tasks
from wharfinger.types.task_extension import EXTENSION as TASKS

STOPPED_MESSAGE = "The server stopped before the task was finished: call the tool again."
CAPABILITIES: dict[str, Any] = {"extensions": {TASKS: {}}, "elicitation": {"form": {}}}
FINAL_STATUSES = ("completed", "failed", "cancelled")


def with_capabilities(params: dict[str, Any]) -> dict[str, Any]:
    return {**params, "_meta": {f"{META}clientCapabilities": CAPABILITIES}}


@dataclass
class Confirmation:
    sure: bool


class Worker:
    """A server that shares its store with others. Its heartbeat is short, so that it soon reads their messages."""

    def __init__(self, path: Path) -> None:
        self.server = server = Server("worker", limits=Limits(drain=0.05), task_store=f"sqlite:///{path}")
        self.release = asyncio.Event()

        @server.tool(task=True)
        async def dredge() -> str:
            await self.release.wait()
            return "done"

        @server.tool(task=True)
        async def sure(ctx: Context[Any]) -> str:
            answer = await ctx.elicit("Sure?", Confirmation)
            return f"{answer.sure}"

        self.tasks: Tasks = server.serve_tasks()
        self.tasks.heartbeat_seconds = 0.01


@asynccontextmanager
async def wire_to(worker: Worker, principal: str = "") -> AsyncGenerator[Wire]:
    await worker.server.start()
    async with Wire(worker.server, principal=principal) as wire:
        yield wire
    await worker.server.close()


async def request(wire: Wire, method: str, **params: Any) -> Any:
    """Send a request that declares the extension, and return its result."""
    answer = await wire.ask(method, with_capabilities(params))
    assert "result" in answer, answer
    return answer["result"]


async def poll_until(wire: Wire, id: str, condition: Callable[[Any], bool]) -> Any:
    """Poll a task until its state meets a condition, and return the state."""
    while not condition(state := await request(wire, "tasks/get", taskId=id)):
        pass
    return state


async def final_state(wire: Wire, id: str) -> Any:
    """Poll a task until it ends, and return its state."""
    return await poll_until(wire, id, lambda state: state["status"] in FINAL_STATUSES)


async def test_any_process_returns_the_state_of_a_task_and_forwards_messages_to_its_runner(
    tmp_path: Path,
) -> None:
    runner, peer = Worker(tmp_path / "tasks.db"), Worker(tmp_path / "tasks.db")
    async with wire_to(runner) as runner_wire, wire_to(peer) as peer_wire:
        id = (await request(runner_wire, "tools/call", name="sure"))["taskId"]
        state = await poll_until(peer_wire, id, lambda state: state["status"] == "input_required")
        assert state == await request(runner_wire, "tasks/get", taskId=id)
        ((key, _),) = state["inputRequests"].items()
        answer = {key: {"action": "accept", "content": {"sure": True}}}
        await request(peer_wire, "tasks/update", taskId=id, inputResponses=answer)
        state = await final_state(peer_wire, id)
        assert state["result"]["content"][0]["text"] == "True"

        id = (await request(runner_wire, "tools/call", name="dredge"))["taskId"]
        await request(peer_wire, "tasks/cancel", taskId=id)
        state = await final_state(runner_wire, id)
        assert state["status"] == "cancelled"
        assert await request(peer_wire, "tasks/get", taskId=id) == state
        await request(peer_wire, "tasks/cancel", taskId=id)
        assert await runner.tasks.store.usage("task-inbox/") == (0, 0)


async def test_listeners_of_another_process_are_notified(tmp_path: Path) -> None:
    runner, peer = Worker(tmp_path / "tasks.db"), Worker(tmp_path / "tasks.db")
    async with wire_to(runner) as runner_wire, wire_to(peer) as peer_wire:
        id = (await request(runner_wire, "tools/call", name="dredge"))["taskId"]
        peer_wire.send_request("subscriptions/listen", with_capabilities({"notifications": {"taskIds": [id]}}))
        _, current = await peer_wire.wait_for_notifications(2)
        assert current["params"]["status"] == "working"
        runner.release.set()
        *_, last = await peer_wire.wait_for_notifications(3)
        assert (last["method"], last["params"]["status"]) == ("notifications/tasks", "completed")
        assert (peer.tasks._listeners, peer.tasks._keys_by_listener, peer.tasks._last_sent) == ({}, {}, {})
        assert len(peer_wire.notifications) == 3


async def test_tasks_of_another_principal_are_not_found_in_another_process(tmp_path: Path) -> None:
    runner, peer = Worker(tmp_path / "tasks.db"), Worker(tmp_path / "tasks.db")
    async with wire_to(runner, "ann") as ann, wire_to(peer, "bob") as bob:
        id = (await request(ann, "tools/call", name="dredge"))["taskId"]
        for method in ("tasks/get", "tasks/update", "tasks/cancel"):
            answer = await bob.ask(method, with_capabilities({"taskId": id, "inputResponses": {}}))
            assert answer["error"]["code"] == -32602
        assert (await request(ann, "tasks/get", taskId=id))["status"] == "working"


async def test_the_number_of_unread_messages_to_a_process_is_limited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_extension, "MAX_INBOX_MESSAGES", 2)
    runner, peer = Worker(tmp_path / "tasks.db"), Worker(tmp_path / "tasks.db")
    runner.tasks.heartbeat_seconds = 60
    async with wire_to(runner) as runner_wire, wire_to(peer) as peer_wire:
        id = (await request(runner_wire, "tools/call", name="sure"))["taskId"]
        for _ in range(2):
            assert "inputResponses" not in await request(peer_wire, "tasks/update", taskId=id, inputResponses={})
        answer = await peer_wire.ask("tasks/update", with_capabilities({"taskId": id, "inputResponses": {}}))
        assert answer["error"]["message"] == (
            "The process that runs this task has too many messages to handle: try again later."
        )
        assert (await peer.tasks.store.usage("task-inbox/"))[0] == 2


async def test_a_malformed_message_of_another_process_does_not_delay_the_others(tmp_path: Path) -> None:
    runner, peer = Worker(tmp_path / "tasks.db"), Worker(tmp_path / "tasks.db")
    async with wire_to(runner) as runner_wire, wire_to(peer) as peer_wire:
        id = (await request(runner_wire, "tools/call", name="dredge"))["taskId"]
        await peer.tasks.store.put(f"task-inbox/{runner.tasks.worker}/0", b"of another version")
        await request(peer_wire, "tasks/cancel", taskId=id)
        assert (await final_state(peer_wire, id))["status"] == "cancelled"


async def test_a_message_for_a_task_that_does_not_run_here_is_ignored(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    runner, peer = Worker(tmp_path / "tasks.db"), Worker(tmp_path / "tasks.db")
    async with wire_to(runner) as runner_wire, wire_to(peer) as peer_wire:
        id = (await request(runner_wire, "tools/call", name="dredge"))["taskId"]
        message = encode(task_extension.TaskMessage(key="task/of-another-process"))
        await peer.tasks.store.put(f"task-inbox/{runner.tasks.worker}/0", message)
        await request(peer_wire, "tasks/cancel", taskId=id)
        assert (await final_state(peer_wire, id))["status"] == "cancelled"
    assert "malformed" not in caplog.text


async def test_a_process_without_heartbeat_loses_its_tasks(tmp_path: Path) -> None:
    runner, peer = Worker(tmp_path / "tasks.db"), Worker(tmp_path / "tasks.db")
    async with wire_to(runner) as runner_wire, wire_to(peer) as peer_wire:
        id = (await request(runner_wire, "tools/call", name="dredge"))["taskId"]
        await runner.tasks.store.delete(f"task-workers/{runner.tasks.worker}")  # as if its lease had expired
        state = await request(peer_wire, "tasks/get", taskId=id)
        assert (state["status"], state["error"]["message"]) == ("failed", STOPPED_MESSAGE)
        runner.release.set()
        state = await final_state(runner_wire, id)
        assert state["status"] == "failed"  # a final state does not change
        assert (await request(peer_wire, "tasks/get", taskId=id))["status"] == "failed"


async def test_a_process_without_running_tasks_has_no_heartbeat(tmp_path: Path) -> None:
    worker = Worker(tmp_path / "tasks.db")
    async with wire_to(worker) as wire:
        id = (await request(wire, "tools/call", name="dredge"))["taskId"]
        heartbeat: Any = worker.tasks._heartbeat_task
        worker.release.set()
        await final_state(wire, id)
        await heartbeat
    assert await worker.tasks.store.usage("task-workers/") == (0, 0)
    await worker.tasks.store.close()


PROGRAM = """
import asyncio, sys
from wharfinger import Context, Server
from wharfinger.types import ElicitResult

server = Server("mortal", task_store=f"sqlite:///{sys.argv[1]}")
server.serve_tasks().lease_seconds = 0.3

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


class ServerProcess:
    """A stdio server in a process that can be killed."""

    def __init__(self, folder: Path) -> None:
        program = folder / "server.py"
        program.write_text(PROGRAM)
        self.process = subprocess.Popen(
            [sys.executable, str(program), str(folder / "tasks.db")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self.number = 0

    def ask(self, method: str, **params: Any) -> Any:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.number += 1
        meta: dict[str, Any] = {f"{META}clientCapabilities": {**CAPABILITIES, "elicitation": {"url": {}}}}
        self.process.stdin.write(line(method, {**params, "_meta": meta}, self.number))
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())["result"]

    def start(self, name: str) -> str:
        id: str = self.ask("tools/call", name=name)["taskId"]
        return id

    def poll(self, id: str, condition: Callable[[Any], bool]) -> Any:
        while not condition(state := self.ask("tasks/get", taskId=id)):
            pass
        return state

    def kill(self) -> None:
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.communicate()

    def end(self) -> None:
        self.process.communicate(timeout=20)


def test_results_survive_a_killed_process_and_its_running_tasks_fail(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path)
    done, running, waiting = server.start("quick"), server.start("slow"), server.start("asks")
    result_state = server.poll(done, lambda state: state["status"] == "completed")
    server.poll(running, lambda state: state.get("statusMessage") == "on my way")
    server.poll(waiting, lambda state: state["status"] == "input_required")
    server.kill()

    restarted = ServerProcess(tmp_path)
    assert restarted.ask("tasks/get", taskId=done) == result_state
    for id in (running, waiting):
        state = restarted.poll(id, lambda state: state["status"] in FINAL_STATUSES)
        assert (state["status"], state["statusMessage"]) == ("failed", STOPPED_MESSAGE)
        assert state["error"] == {"code": -32603, "message": STOPPED_MESSAGE}
        assert "inputRequests" not in state
    restarted.end()


def test_a_server_that_closes_fails_its_running_tasks_without_waiting_for_the_lease(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path)
    id = server.start("slow")
    server.end()
    restarted = ServerProcess(tmp_path)
    assert restarted.ask("tasks/get", taskId=id)["statusMessage"] == STOPPED_MESSAGE
    restarted.end()


async def test_a_process_cancels_a_task_that_another_process_failed_and_logs_one_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    runner, peer = Worker(tmp_path / "tasks.db"), Worker(tmp_path / "tasks.db")
    seen: list[str] = []

    @runner.server.tool(task=True)
    async def survey(ctx: Context[Any]) -> str:
        await runner.release.wait()
        ctx.task_status("half way")
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise
        return "never"

    async with wire_to(runner) as runner_wire, wire_to(peer) as peer_wire:
        id = (await request(runner_wire, "tools/call", name="survey"))["taskId"]
        await runner.tasks.store.delete(f"task-workers/{runner.tasks.worker}")  # as if its lease had expired
        before = await request(runner_wire, "tasks/get", taskId=id)
        lost_state = await request(peer_wire, "tasks/get", taskId=id)
        assert (lost_state["status"], lost_state["statusMessage"]) == ("failed", STOPPED_MESSAGE)
        assert lost_state["createdAt"] == before["createdAt"] <= lost_state["lastUpdatedAt"]
        runner.release.set()
        state = await final_state(runner_wire, id)
        assert (state["status"], state["statusMessage"]) == ("failed", STOPPED_MESSAGE)
        assert seen == ["cancelled"]
        warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
        assert warnings == ["Another process marked a task as failed, because this one had no heartbeat for 15 s"]


async def test_input_requests_of_a_lost_task_are_removed(tmp_path: Path) -> None:
    runner, peer = Worker(tmp_path / "tasks.db"), Worker(tmp_path / "tasks.db")
    async with wire_to(runner) as runner_wire, wire_to(peer) as peer_wire:
        id = (await request(runner_wire, "tools/call", name="sure"))["taskId"]
        await poll_until(peer_wire, id, lambda state: "inputRequests" in state)
        await runner.tasks.store.delete(f"task-workers/{runner.tasks.worker}")
        state = await request(peer_wire, "tasks/get", taskId=id)
        assert (state["status"], "inputRequests" in state) == ("failed", False)


async def test_the_size_of_unread_messages_to_a_process_is_limited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner, peer = Worker(tmp_path / "tasks.db"), Worker(tmp_path / "tasks.db")
    runner.tasks.heartbeat_seconds = 60
    async with wire_to(runner) as runner_wire, wire_to(peer) as peer_wire:
        id = (await request(runner_wire, "tools/call", name="sure"))["taskId"]
        await request(peer_wire, "tasks/update", taskId=id, inputResponses={})
        count, size = await peer.tasks.store.usage(f"task-inbox/{runner.tasks.worker}/")
        assert count == 1
        monkeypatch.setattr(task_extension, "MAX_INBOX_BYTES", 2 * size - 1)
        answer = await peer_wire.ask("tasks/update", with_capabilities({"taskId": id, "inputResponses": {}}))
        assert answer["error"]["message"].startswith("The process that runs this task")
        monkeypatch.setattr(task_extension, "MAX_INBOX_BYTES", 2 * size)
        await request(peer_wire, "tasks/update", taskId=id, inputResponses={})
        assert await peer.tasks.store.usage(f"task-inbox/{runner.tasks.worker}/") == (2, 2 * size)


async def test_errors_of_reading_messages_are_logged_and_the_next_heartbeat_reads_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    runner, peer = Worker(tmp_path / "tasks.db"), Worker(tmp_path / "tasks.db")
    async with wire_to(runner) as runner_wire, wire_to(peer) as peer_wire:
        id = (await request(runner_wire, "tools/call", name="dredge"))["taskId"]
        scan, failures = runner.tasks.store.scan, [StoreUnusable("The disk is away."), ValueError("odd")]

        async def scan_with_failures(prefix: str, **options: Any) -> Any:
            if failures:
                raise failures.pop(0)
            return await scan(prefix, **options)

        monkeypatch.setattr(runner.tasks.store, "scan", scan_with_failures)
        await request(peer_wire, "tasks/cancel", taskId=id)
        assert (await final_state(peer_wire, id))["status"] == "cancelled"
        assert "The disk is away." in caplog.text
        assert "The heartbeat of tasks failed once, and continues" in caplog.text


async def test_a_process_with_running_tasks_writes_one_heartbeat_for_all_of_them(tmp_path: Path) -> None:
    worker = Worker(tmp_path / "tasks.db")
    async with wire_to(worker) as wire:
        assert await worker.tasks.store.usage("task-workers/") == (0, 0)
        written: list[str] = []
        put = worker.tasks.store.put

        async def counting_put(key: str, value: bytes, **options: Any) -> bool:
            written.append(key)
            return await put(key, value, **options)

        worker.tasks.store.put = counting_put  # type: ignore[method-assign]
        for _ in range(3):
            await request(wire, "tools/call", name="dredge")
        assert await worker.tasks.store.usage("task-workers/") == (1, 0)
        assert written.count(f"task-workers/{worker.tasks.worker}") == 1
    assert await worker.tasks.store.usage("task-workers/") == (0, 0)
    await worker.tasks.store.close()


async def test_a_task_that_finishes_while_the_server_drains_has_only_its_result(tmp_path: Path) -> None:
    """A bug: while its result was being stored, the task failed as if it still ran, and had a result and an error."""
    worker, restarted = Worker(tmp_path / "tasks.db"), Worker(tmp_path / "tasks.db")
    await worker.server.start()
    async with Wire(worker.server) as wire:
        id = (await request(wire, "tools/call", name="dredge"))["taskId"]
        worker.release.set()
        await worker.server.close()
    async with wire_to(restarted) as wire:
        state = await request(wire, "tasks/get", taskId=id)
    assert (state["status"], state["result"]["content"][0]["text"], "error" in state) == ("completed", "done", False)


async def test_a_task_of_a_dead_process_is_kept_for_its_ttl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bug: it was deleted after five minutes, although clients were told its `ttl`."""
    monkeypatch.setattr(task_extension, "MIN_KEPT_SECONDS", 0.0)
    runner, peer = Worker(tmp_path / "tasks.db"), Worker(tmp_path / "tasks.db")
    async with wire_to(runner) as runner_wire, wire_to(peer) as peer_wire:
        id = (await request(runner_wire, "tools/call", name="dredge"))["taskId"]
        await runner.tasks.store.delete(f"task-workers/{runner.tasks.worker}")
        for _ in range(2):
            state = await request(peer_wire, "tasks/get", taskId=id)
            assert (state["status"], state["ttlMs"]) == ("failed", 3_600_000)


async def test_listeners_of_a_task_that_another_process_failed_get_the_stored_end(tmp_path: Path) -> None:
    """A bug: if its function returned, they were told that it was completed, while `tasks/get` said that it failed."""
    runner, peer = Worker(tmp_path / "tasks.db"), Worker(tmp_path / "tasks.db")
    async with wire_to(runner) as runner_wire, wire_to(peer) as peer_wire:
        id = (await request(runner_wire, "tools/call", name="dredge"))["taskId"]
        runner_wire.send_request("subscriptions/listen", with_capabilities({"notifications": {"taskIds": [id]}}))
        await runner_wire.wait_for_notifications(2)
        await runner.tasks.store.delete(f"task-workers/{runner.tasks.worker}")
        assert (await request(peer_wire, "tasks/get", taskId=id))["status"] == "failed"
        runner.release.set()
        *_, last = await runner_wire.wait_for_notifications(3)
        assert (last["params"]["status"], "result" in last["params"]) == ("failed", False)
        assert (await request(runner_wire, "tasks/get", taskId=id))["status"] == "failed"
