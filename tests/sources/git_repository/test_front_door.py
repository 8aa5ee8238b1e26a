"""A repository that another process serves, and real clients of both eras, while real commits arrive."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

import pytest

from tests.sources.git_repository.conftest import Work
from wharfinger import Client, Server
from wharfinger.sources import git
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


async def _watch(client: Client, uri: str, began: asyncio.Event, recorder: Callable[[float], None]) -> None:
    async with client.watch(uri) as changes:
        began.set()
        async for _ in changes:
            recorder(time.monotonic())


async def _try_it(client: Client, work: Work) -> list[float]:
    """List, read, complete and watch. Returns the seconds from each commit to its notice."""
    listed = [resource.uri for resource in await client.list_resources()]
    assert listed[0] == "git://repo"
    assert "git://repo/tree/HEAD/hull.txt" in listed
    assert (await client.read_resource(HULL)).contents[0].text == "five\nfathoms\n"
    log = (await client.read_resource("git://repo/log/HEAD?limit=2")).contents
    assert "Add a buoy" in str(log[0].text)
    assert "repo/log/" in log[1].uri

    began, times = asyncio.Event(), list[float]()
    task = asyncio.create_task(_watch(client, HULL, began, times.append))
    await began.wait()
    late: list[float] = []
    for number in range(5):
        many = len(times)
        await asyncio.to_thread(work.commit, f"Deepen {number}", hull__txt=f"{number} fathoms\n")
        committed = time.monotonic()
        await asyncio.to_thread(work.commit, "Another thing", other__txt=str(number))
        async with asyncio.timeout(10):
            while len(times) == many:
                await asyncio.sleep(0.005)
        late.append(times[many] - committed)
        assert (await client.read_resource(HULL)).contents[0].text == f"{number} fathoms\n"
    await asyncio.sleep(0.6)
    assert len(times) == 5, "one notice for each change of the file, and none for other commits"
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    return late


def run(test: Coroutine[Any, Any, list[float]], revision: str) -> None:
    late = asyncio.run(asyncio.wait_for(test, 50))
    print(revision, [f"{seconds * 1000:.0f} ms" for seconds in late])
    assert max(late) < 5  # promised is one second, on a machine that does nothing else


@pytest.mark.parametrize("revision", ERAS)
def test_over_stdio(history: Work, revision: str) -> None:
    """A server of its own process."""
    program = history.path.parent / "serve.py"
    program.write_text(SERVE)

    async def test() -> list[float]:
        async with Client([sys.executable, str(program), str(history.path)], revision=revision) as client:
            return await _try_it(client, history)

    run(test(), revision)


@pytest.mark.parametrize("revision", ERAS)
def test_over_http(history: Work, revision: str) -> None:
    """A server over HTTP."""
    server = Server("harbour")
    server.include(git(history.path, label="repo"))

    async def test() -> list[float]:
        ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        serving = asyncio.ensure_future(serve_http(server, port=0, on_ready=ready.set_result))
        try:
            async with Client(f"{await ready}/mcp", revision=revision) as client:
                return await _try_it(client, history)
        finally:
            serving.cancel()
            await asyncio.wait((serving,))

    run(test(), revision)
