"""Clients of both eras read and watch a served repository while commits arrive."""

from __future__ import annotations

import asyncio
import re
import sys
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

import pytest

from tests.sources.git_repository.conftest import GitRepository
from tests.waiting import wait_until_async
from wharfinger import Client, Server
from wharfinger import types as t
from wharfinger.sources import git
from wharfinger.sources.resource_tool_set import resource_tools
from wharfinger.transports.http_server.runner import serve_http

ERAS = ("2025-11-25", "2026-07-28")
SERVE = """
import sys
from wharfinger import Server
from wharfinger.sources import git

server = Server("harbour")
server.include(git(sys.argv[1], label="repo"))
server.run()
"""
HULL = "git://repo/tree/main/hull.txt"


async def _watch(client: Client, uri: str, watching: asyncio.Event, record: Callable[[float], None]) -> None:
    async with client.watch(uri) as changes:
        watching.set()
        async for _ in changes:
            record(time.monotonic())


async def _use_client(client: Client, work: GitRepository) -> list[float]:
    """List, read and watch resources. Return the seconds from each commit to its notification."""
    listed = [resource.uri for resource in await client.list_resources()]
    assert listed[0] == "git://repo"
    assert "git://repo/tree/HEAD/hull.txt" in listed
    assert (await client.read_resource(HULL)).contents[0].text == "five\nfathoms\n"
    log = (await client.read_resource("git://repo/log/HEAD?limit=2")).contents
    assert "Add a buoy" in str(log[0].text)
    assert "repo/log/" in log[1].uri

    watching, times = asyncio.Event(), list[float]()
    task = asyncio.create_task(_watch(client, HULL, watching, times.append))
    await watching.wait()
    delays: list[float] = []
    for number in range(5):
        count = len(times)
        await asyncio.to_thread(work.commit, f"Deepen {number}", hull__txt=f"{number} fathoms\n")
        committed = time.monotonic()
        await asyncio.to_thread(work.commit, "Another thing", other__txt=str(number))
        await wait_until_async(lambda count=count: len(times) > count, "the change is reported")  # type: ignore[misc]
        delays.append(times[count] - committed)
        assert (await client.read_resource(HULL)).contents[0].text == f"{number} fathoms\n"
    await asyncio.sleep(0.6)
    assert len(times) == 5, "the client gets one notification for each change of the file, and none for other commits"
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    return delays


def run_test(test: Coroutine[Any, Any, list[float]], revision: str) -> None:
    delays = asyncio.run(asyncio.wait_for(test, 50))
    print(revision, [f"{seconds * 1000:.0f} ms" for seconds in delays])  # at most a second on an idle machine


@pytest.mark.parametrize("revision", ERAS)
def test_a_client_over_stdio_is_notified_of_commits(history: GitRepository, revision: str) -> None:
    program = history.path.parent / "serve.py"
    program.write_text(SERVE)

    async def test() -> list[float]:
        async with Client([sys.executable, str(program), str(history.path)], revision=revision) as client:
            return await _use_client(client, history)

    run_test(test(), revision)


@pytest.mark.parametrize("revision", ERAS)
def test_a_client_over_http_is_notified_of_commits(history: GitRepository, revision: str) -> None:
    server = Server("harbour")
    server.include(git(history.path, label="repo"))

    async def test() -> list[float]:
        ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        serving = asyncio.ensure_future(serve_http(server, port=0, on_ready=ready.set_result))
        try:
            async with Client(f"{await ready}/mcp", revision=revision) as client:
                return await _use_client(client, history)
        finally:
            serving.cancel()
            await asyncio.wait((serving,))

    run_test(test(), revision)


@pytest.mark.parametrize("form", ["blame/main/many.txt", "grep/main?text=sounding", "log/main", "log/main?limit=9"])
def test_a_tool_returns_whole_windows_within_its_budget(history: GitRepository, form: str) -> None:
    """A bug: blame and grep did not know the budget, and a log overran it, so that the tool cut the text anywhere."""
    for number in range(9):
        lines = "".join([f"sounding {number if line % 9 == number else 0} of {line}\n" for line in range(60)])
        history.commit(f"Sound {number}\n\n{'Deep water. ' * 20}", many__txt=lines)

    async def read() -> list[str]:
        server = Server("harbour")
        server.include(git(history.path, label="repo"))
        server.include(resource_tools())
        texts: list[str] = []
        async with Client(server) as client:
            whole = (await client.read_resource(f"git://repo/{form}")).contents[0].text
            uri = f"git://repo/{form}"
            while uri:
                answer = await client.call_tool("read_resource", {"uri": uri, "max_tokens": 500})
                text, *notes = [block.text for block in answer.content if isinstance(block, t.TextContent)]
                assert not any("start=" in note for note in notes)
                texts.append(text)
                following = re.search(r"To continue, call read_resource with uri=(\S+)", "".join(notes))
                uri = following[1] if following else ""
        found = re.compile(r"^ .*sound.*$", re.MULTILINE | re.IGNORECASE)
        assert set(found.findall(str(whole))) <= set(found.findall("\n".join(texts)))
        return texts

    assert len(asyncio.run(read())) > 1
