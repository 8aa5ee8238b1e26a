"""Clients of servers that crash, restart or lose their state: failures, recovery and resource use."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import os
import signal
import subprocess
import sys
import time
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.client.example_server import example_server
from tests.client.scripted import HANDSHAKE, Script
from tests.client.test_connect import OLD, PRELUDE, STATELESS
from tests.conftest import free_port
from tests.waiting import wait_until_async, wait_until_listening
from wharfinger.client import Change, Client, Retry
from wharfinger.client.retry import NEVER
from wharfinger.errors import ConnectionFailed, ConnectionLost, RequestTimeout, WharfingerError

PROGRAM = str(Path(__file__).with_name("crashing_server.py"))
ERAS = pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
QUICK = Retry(initial_delay=0.01)
TASKS = len({"wait_for", "test"}) if sys.version_info < (3, 12) else 1
"""The number of tasks that `run` itself needs."""
MISSED = Change("resource", "log://today", missed=True)


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 30))


def child(folder: Path, **settings: Any) -> Client:
    return Client([sys.executable, PROGRAM, folder], **{"retry": QUICK, **settings})


async def pid_of(client: Client) -> int:
    return int((await client.call_tool("pid")).text)


class ServerProcess:
    """A server in another process, on a port that stays the same."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self.folder = folder
        self.url = f"http://127.0.0.1:{self.port}/mcp"
        self.start()

    def start(self) -> None:
        command = [sys.executable, PROGRAM, str(self.folder), str(self.port)]
        self.process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        wait_until_listening(self.process, self.port)

    def end(self, number: int = signal.SIGKILL) -> None:
        self.process.send_signal(number)
        self.process.wait()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    process = ServerProcess(tmp_path)
    yield process
    process.end()


# Child processes.


@ERAS
def test_a_killed_child_fails_its_calls_and_the_next_call_succeeds(tmp_path: Path, revision: str) -> None:
    async def test() -> None:
        async with child(tmp_path, revision=revision) as client:
            first = await pid_of(client)
            waiting = asyncio.ensure_future(client.call_tool("wait"))
            await wait_until_async((tmp_path / "waiting").exists, "the tool is called")
            os.kill(first, signal.SIGKILL)
            with pytest.raises(ConnectionLost, match="ended with signal SIGKILL"):
                await waiting
            second = await pid_of(client)
            assert second != first
            assert client.revision == revision
        for pid in (first, second):
            with pytest.raises(ProcessLookupError):
                os.killpg(pid, 0)

    run(test())


def test_reconnect_starts_a_new_child_at_once_and_reports_both_changes(tmp_path: Path) -> None:
    async def test() -> None:
        client = child(tmp_path)
        seen: list[str] = []
        lost = asyncio.Event()

        def changed(error: WharfingerError | None) -> None:
            seen.append(str(error))
            if error is not None:
                lost.set()

        client.observe_connection(changed)
        async with client:
            first = await pid_of(client)
            os.kill(first, signal.SIGKILL)
            await lost.wait()
            await client.reconnect()
            assert seen[0] == seen[2] == "None"
            assert "ended with signal SIGKILL" in seen[1]
            assert len(seen) == 3
            await client.reconnect()  # does nothing while it is connected
            assert await pid_of(client) != first
            assert client.watch_count == 0
            async with client.watch("log://today"):
                assert client.watch_count == 1
            assert client.watch_count == 0
        with pytest.raises(ConnectionLost, match="not open"):
            await client.reconnect()

    run(test())


@ERAS
def test_a_watch_continues_with_the_next_child_and_reports_the_gap(tmp_path: Path, revision: str) -> None:
    async def test() -> None:
        async with (
            child(tmp_path, revision=revision) as client,
            client.watch("log://today") as changes,
            client.watch_lists() as lists,
        ):
            for _ in range(2):
                await client.call_tool("change", {"uri": "log://today"})
                assert await anext(changes) == Change("resource", "log://today")
                os.kill(await pid_of(client), signal.SIGKILL)
                assert await anext(changes) == MISSED
                assert {await anext(lists) for _ in range(3)} == {
                    Change(kind, missed=True) for kind in ("resources", "tools", "prompts")
                }
            await client.call_tool("grow")
            assert await anext(lists) == Change("resources")
        assert [change async for change in changes] == []

    run(test())


def test_processes_of_a_dead_child_are_killed_before_the_next_child_starts(tmp_path: Path) -> None:
    """Security C10: the whole process group is killed."""

    async def test() -> None:
        async with child(tmp_path) as client:
            grandchild = int((await client.call_tool("spawn")).text)
            os.kill(await pid_of(client), signal.SIGKILL)
            with pytest.raises(ConnectionLost):
                await client.call_tool("wait")
            await client.call_tool("pid")
            assert ended(grandchild)

    run(test())


def ended(pid: int) -> bool:
    """Return whether a process has ended, or is a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_a_read_is_retried_once_and_a_tool_call_only_if_it_is_safe(tmp_path: Path) -> None:
    async def test() -> None:
        async with child(tmp_path) as client:
            assert (await client.read_resource("log://once")).text == "afloat"
            with pytest.raises(ConnectionLost):
                await client.call_tool("sink")
            assert (await client.call_tool("sink")).data == "sunk"
            (tmp_path / "sink").unlink()
            assert (await client.call_tool("sink", retry=True)).data == "sunk"
            await client.list_tools()
            with pytest.raises(ConnectionLost):  # a server's annotations of its tools are not trusted by default
                await client.call_tool("look")
        for mark in ("sink", "look"):
            (tmp_path / mark).unlink()
        async with child(tmp_path, retry=Retry(initial_delay=0.01, trust_hints=True)) as client:
            await client.list_tools()
            assert (await client.call_tool("look")).data == "seen"
            with pytest.raises(ConnectionLost):
                await client.call_tool("sink")

    run(test())


def test_a_read_that_kills_each_child_fails_after_one_retry(tmp_path: Path) -> None:
    async def test() -> None:
        async with child(tmp_path) as client:
            with pytest.raises(ConnectionLost, match="SIGKILL"):
                await client.read_resource("log://never")
        assert len((tmp_path / "starts").read_text().split()) == 2

    run(test())


def test_a_client_without_retries_starts_no_new_child(tmp_path: Path) -> None:
    async def test() -> None:
        async with child(tmp_path, retry=NEVER) as client:
            with pytest.raises(ConnectionLost, match="SIGKILL"):
                await client.read_resource("log://once")
            with pytest.raises(ConnectionLost, match="is gone"):
                await client.read_resource("log://today")
        assert len((tmp_path / "starts").read_text().split()) == 1

    run(test())


@pytest.mark.parametrize("watched", [False, True])
def test_a_child_that_cannot_be_restarted_fails_after_the_attempts(tmp_path: Path, watched: bool) -> None:
    async def test() -> None:
        program = tmp_path / "server.py"
        program.write_text(Path(PROGRAM).read_text())
        retry = Retry(attempts=3, watch_attempts=3, initial_delay=0.001)
        async with Client([sys.executable, program, tmp_path], retry=retry) as client:
            pid = await pid_of(client)
            changes = await client.watch("log://today") if watched else None
            program.write_text("import sys; open(sys.argv[1] + '/starts', 'a').write('x\\n'); sys.exit('no disk')")
            os.kill(pid, signal.SIGKILL)
            with pytest.raises(ConnectionFailed, match="no disk"):
                await (anext(changes) if changes else client.list_tools())
        assert len((tmp_path / "starts").read_text().split()) == 4

    run(test())


def test_a_call_that_waits_for_the_next_child_keeps_its_timeout(tmp_path: Path) -> None:
    async def test() -> None:
        program = tmp_path / "server.py"
        program.write_text(Path(PROGRAM).read_text())
        async with Client([sys.executable, program, tmp_path], retry=QUICK) as client:
            pid = await pid_of(client)
            program.write_text("import time; time.sleep(60)")
            os.kill(pid, signal.SIGKILL)
            with pytest.raises((RequestTimeout, ConnectionLost)):
                await client.call_tool("pid", timeout=0.2)
            with pytest.raises(RequestTimeout):
                await client.call_tool("pid", timeout=0.2)

    run(test())


def test_close_cancels_a_reconnection_and_fails_the_calls_that_wait_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wharfinger.transports.stdio_client.GRACE_SECONDS", 0.1)

    async def test() -> None:
        program = tmp_path / "server.py"
        program.write_text(Path(PROGRAM).read_text())
        client = Client([sys.executable, program, tmp_path], retry=QUICK)
        await client.open()
        pid = await pid_of(client)
        changes = await client.watch("log://today")
        program.write_text(
            "import os, sys, time; open(sys.argv[1] + '/late', 'w').write(str(os.getpid())); time.sleep(60)"
        )
        os.kill(pid, signal.SIGKILL)
        calls = [asyncio.ensure_future(client.read_resource("log://today")) for _ in range(3)]
        late = tmp_path / "late"
        await wait_until_async(lambda: late.exists() and late.read_text(), "the child runs")
        begun = time.monotonic()
        await client.close()
        assert time.monotonic() - begun < 15
        for outcome in await asyncio.gather(*calls, return_exceptions=True):
            assert isinstance(outcome, ConnectionLost)
        assert [change async for change in changes] == []
        with pytest.raises(ProcessLookupError):
            os.kill(int(late.read_text()), 0)
        assert len(asyncio.all_tasks()) == TASKS

    run(test())


def test_close_cancels_the_first_connection_attempt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wharfinger.transports.stdio_client.GRACE_SECONDS", 0.1)

    async def test() -> None:
        started = tmp_path / "started"
        code = f"import time; open({str(started)!r}, 'w'); time.sleep(60)"
        client = Client([sys.executable, "-c", code])
        openings = [asyncio.ensure_future(client.open()) for _ in range(2)]
        await wait_until_async(started.exists, "the program runs")
        await client.close()
        for outcome in await asyncio.gather(*openings, return_exceptions=True):
            assert isinstance(outcome, ConnectionLost)

    run(test())


@pytest.mark.parametrize("era", [STATELESS, OLD])
def test_output_that_is_not_a_message_is_ignored(era: str) -> None:
    noise = r"raw(b'Traceback (most recent call last):\n\xff\xfe\n{half a mes\n[]\n\n')"
    code = PRELUDE + era.replace("m = read()\n", f"m = read(); {noise}\n")

    async def test() -> None:
        async with Client([sys.executable, "-I", "-S", "-c", code], retry=NEVER) as client:
            for _ in range(3):
                assert len(await client.list_tools()) == 1

    run(test())


def test_a_child_that_exits_after_its_first_answer_is_restarted(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    once = f"if not os.path.exists({str(mark)!r}): open({str(mark)!r}, 'w'); sys.exit(3)\n"
    first = "discovered(read(), '2026-07-28')\n" + once
    command = [sys.executable, "-I", "-S", "-c", PRELUDE + first + STATELESS]

    async def test() -> None:
        async with Client(command, retry=QUICK) as client:
            assert len(await client.list_tools()) == 1
            assert len(await client.list_tools()) == 1

    run(test())


# HTTP.


@ERAS
def test_a_client_reconnects_to_a_restarted_http_server(server: ServerProcess, revision: str) -> None:
    async def test() -> None:
        async with (
            Client(server.url, revision=revision, retry=QUICK) as client,
            client.watch("log://today") as changes,
        ):
            first = await pid_of(client)
            server.end()
            await asyncio.to_thread(server.start)
            second = await pid_of(client)
            assert second != first
            assert await anext(changes) == MISSED
            await client.call_tool("change", {"uri": "log://today"})
            assert await anext(changes) == Change("resource", "log://today")
            assert client.revision == revision

    run(test())


@ERAS
def test_a_pending_http_call_fails_and_a_read_is_retried(server: ServerProcess, revision: str) -> None:
    async def test() -> None:
        async with Client(
            server.url, revision=revision, retry=Retry(initial_delay=0.01, attempts=50, max_delay=0.1)
        ) as client:
            waiting = asyncio.ensure_future(client.call_tool("wait"))
            await wait_until_async((server.folder / "waiting").exists, "the tool is called")
            server.end()
            with pytest.raises((ConnectionLost, ConnectionFailed)):
                await waiting
            with pytest.raises((ConnectionLost, ConnectionFailed)):
                await client.call_tool("pid")
            await asyncio.to_thread(server.start)
            assert (await client.read_resource("log://today")).text == "calm"

    run(test())


def test_an_ended_session_is_opened_again(server: ServerProcess) -> None:
    """2025-11-25, sessions: `initialize` without the id answers a 404. The call had no effect and is repeated."""

    async def test() -> None:
        import aiohttp

        async with (
            Client(server.url, revision="2025-11-25", retry=QUICK) as client,
            client.watch("log://today") as changes,
        ):
            link: Any = client._session.connections.link
            async with aiohttp.ClientSession() as other:
                headers = {"Mcp-Session-Id": link._session_id, "MCP-Protocol-Version": "2025-11-25"}
                async with other.delete(server.url, headers=headers) as answer:
                    assert answer.status in (200, 204)
            assert await pid_of(client) == server.process.pid
            assert await anext(changes) == MISSED
            assert client._session.connections.link is not link

    run(test())


def test_a_client_reconnects_over_http_sse(server: ServerProcess) -> None:
    """HTTP+SSE of 2024-11-05: the URL takes no messages, and its stream names the URL that does."""

    async def test() -> None:
        async with (
            Client(server.url.removesuffix("/mcp") + "/sse", retry=Retry(initial_delay=0.01, attempts=20)) as client,
            client.watch("log://today") as changes,
        ):
            first = await pid_of(client)
            server.end()
            await asyncio.to_thread(server.start)
            assert await pid_of(client) != first
            assert await anext(changes) == MISSED
            await client.call_tool("change", {"uri": "log://today"})
            assert await anext(changes) == Change("resource", "log://today")

    run(test())


def test_a_gap_in_the_stream_of_a_session_is_reported(server: ServerProcess) -> None:
    async def test() -> None:
        async with (
            Client(server.url, revision="2025-11-25") as client,
            client.watch("log://today") as changes,
            client.watch_lists() as lists,
        ):
            link: Any = client._session.connections.link
            link.events.on_missed(link)
            assert await anext(changes) == MISSED
            assert (await anext(lists)).missed

    run(test())


def test_many_watches_resume_together_and_report_one_gap_each(server: ServerProcess) -> None:
    async def test() -> None:
        async with Client(server.url, retry=Retry(initial_delay=0.02)) as client:
            watches = [await client.watch("log://today") for _ in range(50)]
            server.end(signal.SIGTERM)
            await asyncio.to_thread(server.start)
            assert {await anext(watch) for watch in watches} == {MISSED}
            await client.call_tool("change", {"uri": "log://today"})
            assert {await anext(watch) for watch in watches} == {Change("resource", "log://today")}

    run(test())


# Resource use.


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd" if os.path.isdir("/proc/self/fd") else "/dev/fd"))


def test_a_thousand_clients_in_memory_leak_nothing() -> None:
    async def cycle(server: Any) -> None:
        async with Client(server) as client, client.watch("notes://today"):
            await client.call_tool("add", {"a": 1, "b": 2})

    async def test() -> None:
        server = example_server()
        for _ in range(20):
            await cycle(server)
        gc.collect()
        before, objects = descriptors(), len(gc.get_objects())
        for _ in range(1000):
            await cycle(server)
        gc.collect()
        assert descriptors() == before
        assert len(asyncio.all_tasks()) == TASKS
        assert len(gc.get_objects()) - objects < 500

    run(test())


def test_fifty_children_leak_nothing(tmp_path: Path) -> None:
    async def cycle() -> None:
        async with child(tmp_path) as client, client.watch("log://today"):
            await client.call_tool("pid")

    async def test() -> None:
        await cycle()
        gc.collect()
        before = descriptors()
        for _ in range(10):
            await asyncio.gather(*(cycle() for _ in range(5)))
        gc.collect()
        assert descriptors() == before
        assert len(asyncio.all_tasks()) == TASKS
        for pid in (tmp_path / "starts").read_text().split():
            with pytest.raises(ProcessLookupError):
                os.kill(int(pid), 0)

    asyncio.run(asyncio.wait_for(test(), 120))


def test_a_question_after_a_reconnection_is_answered_in_the_context_in_which_the_client_was_opened() -> None:
    """A bug: it was that of the call that reconnected, so that the question seemed to belong to this call."""
    place: contextvars.ContextVar[str] = contextvars.ContextVar("place", default="nowhere")
    asked: asyncio.Queue[str] = asyncio.Queue()

    async def elicit(question: Any) -> str:
        asked.put_nowait(place.get())
        return "decline"

    async def test() -> None:
        place.set("opened")
        async with Script(HANDSHAKE, tools__list={"tools": []}) as script:
            async with script.client(elicitation=elicit, retry=QUICK) as client:

                async def call() -> None:
                    place.set("called")
                    await client.list_tools()

                script.hang_up()
                await asyncio.create_task(call())
                form = {"type": "object", "properties": {}}
                script.say(id=1, method="elicitation/create", params={"message": "?", "requestedSchema": form})
                assert await asked.get() == "opened"
            assert script.connections == 2

    run(test())
