"""Clients of both protocol eras follow a log over stdio while another process writes and rotates it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from wharfinger.client import Client
from wharfinger.sources.windows.window import NEXT, SUMMARY

LINE_COUNT = 20_000

SERVER = """
    import sys
    from wharfinger import Server
    from wharfinger.sources import logs

    server = Server("harbour")
    server.include(logs(sys.argv[1], label="boats"))
    server.run()
"""
WRITER = """
    import logging, logging.handlers, sys, time
    handler = logging.handlers.RotatingFileHandler(sys.argv[1], maxBytes=100 << 10, backupCount=1000)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    log = logging.getLogger("boats")
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    for number in range(int(sys.argv[2])):
        log.info("line %d", number)
        if number % 1_000 == 0:
            time.sleep(0.01)
"""


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
def test_a_client_follows_a_rotating_log_and_reads_every_line_once(tmp_path: Path, revision: str) -> None:
    (tmp_path / "server.py").write_text(textwrap.dedent(SERVER))
    (tmp_path / "writer.py").write_text(textwrap.dedent(WRITER))
    path = tmp_path / "app.log"
    path.touch()
    command = [sys.executable, str(tmp_path / "server.py"), str(tmp_path / "*.log")]

    async def follow() -> tuple[list[int], int]:
        numbers: list[int] = []
        waits = 0
        async with Client(command, revision=revision) as client:
            uri, _ = await read_window(client, "log://boats/app.log")
            async with client.watch("log://boats/app.log") as changes:
                with subprocess.Popen([sys.executable, str(tmp_path / "writer.py"), str(path), str(LINE_COUNT)]):
                    while len(numbers) < LINE_COUNT:
                        uri, text = await read_window(client, uri)
                        numbers += [int(line.rpartition(" ")[2]) for line in text.splitlines()]
                        if not text and len(numbers) < LINE_COUNT:
                            waits += 1
                            await asyncio.wait_for(anext(aiter(changes)), 20)
                _, rest = await read_window(client, uri)
                assert rest == ""
        return numbers, waits

    numbers, waits = asyncio.run(follow())
    assert numbers == list(range(LINE_COUNT))
    assert waits > 0
    assert len(list(tmp_path.glob("app.log.*"))) > 5


async def read_window(client: Client, uri: str) -> tuple[str, str]:
    """Return the text of a window of the log, and the URI of the next window."""
    first, *summaries = (await client.read_resource(uri)).contents
    meta: Any = first.meta
    assert all((summary.meta or {}).get(SUMMARY) for summary in summaries)
    return meta[NEXT], str(first.text)


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
def test_a_watcher_is_notified_of_each_line_and_of_a_rotation(tmp_path: Path, revision: str) -> None:
    (tmp_path / "server.py").write_text(textwrap.dedent(SERVER))
    path = tmp_path / "app.log"
    path.write_text("2026-11-20T10:00:00Z INFO line 0\n")
    command = [sys.executable, str(tmp_path / "server.py"), str(tmp_path / "*.log")]

    async def follow() -> None:
        async with (
            Client(command, revision=revision) as client,
            client.watch("log://boats/app.log?tail=1", "log://boats/app.log?level=error") as changes,
        ):
            await asyncio.sleep(0.3)  # changes before the watch may be reported
            for number in range(1, 11):
                with path.open("a") as file:
                    file.write(f"2026-11-20T10:00:00Z INFO line {number}\n")
                while True:
                    change = await asyncio.wait_for(anext(aiter(changes)), 20)
                    assert "level" not in str(change)
                    if str(number) in str((await client.read_resource("log://boats/app.log?tail=1")).contents[0].text):
                        break
                if number == 5:
                    path.rename(f"{path}.1")
                    path.touch()

    asyncio.run(follow())  # benchmarks/noticing.py measures the latency
