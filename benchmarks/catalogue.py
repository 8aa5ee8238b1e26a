"""Measures how long a catalogue of many resources takes to list, filter, open a folder and search, and its size.

python benchmarks/catalogue.py [--resources N]

A server in this process lists N resources in folders of 300; a host reads the list and keeps it. The time of each call
is the best of three. The memory of the list is measured with tracemalloc. The exit status is 1 if opening a folder
takes more than `MAX_FOLDER_SECONDS`.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
import tracemalloc
from collections.abc import Awaitable, Callable
from typing import Any

from wharfinger import Server
from wharfinger import types as t
from wharfinger.host import Host
from wharfinger.source import ResourcePage, Source

MAX_FOLDER_SECONDS = 0.2
"""The bound for opening a folder, for any number of resources."""


class Archive(Source):
    """A source of reports in folders."""

    name, uri = "archive", "file:///archive"

    def __init__(self, number: int) -> None:
        self.number = number

    def matches(self, uri: str) -> bool:
        return uri.startswith(self.uri)

    def page(self, after: str | None, limit: int) -> ResourcePage:
        begin = int(after or 0)
        end = min(begin + limit, self.number)
        return [self.resource(number) for number in range(begin, end)], str(end) if end < self.number else None

    def resource(self, number: int) -> t.Resource:
        path = f"part{number // 300:03}/report-{number:06}.md"
        stamp = t.Annotations(last_modified=f"2026-11-{number % 28 + 1:02}T00:00:00Z")
        return t.Resource(
            uri=f"{self.uri}/{path}", name=path.rpartition("/")[2], title=path, description=f"Report {number}",
            mime_type="text/markdown", size=number, annotations=stamp,
        )  # fmt: skip


async def best(call: Callable[[], Awaitable[Any]]) -> float:
    """Return the seconds of the fastest of three calls."""
    times: list[float] = []
    for _ in range(3):
        began = time.perf_counter()
        await call()
        times.append(time.perf_counter() - began)
    return min(times)


async def measure(number: int) -> int:
    """Print the times and the size. Returns 1 if a bound was missed."""
    server = Server("archive")
    server.include(Archive(number))
    async with Host({"archive": server}) as host:
        await host.ready()
        catalogue = host.catalogue
        tracemalloc.start()
        began = time.perf_counter()
        changes = catalogue.changes()
        following = asyncio.ensure_future(anext(changes))
        while len(entries := await catalogue.entries()) < number:
            await asyncio.sleep(0.1)
        read = time.perf_counter() - began
        del entries
        size = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        following.cancel()
        folder = "file:///archive/"
        print(f"{number:,} resources: read in {read:.1f} s (with tracemalloc), {size / 2**20:.0f} MiB")
        rows: dict[str, Callable[[], Awaitable[Any]]] = {
            "open a folder": lambda: catalogue.tree("archive", folder),
            "find a URI": lambda: catalogue.find(f"{folder}part000/report-000001.md"),
            "first 200 entries": lambda: catalogue.entries(limit=200),
            "all entries": lambda: catalogue.entries(),
            "filter by pattern": lambda: catalogue.entries(pattern="*-000123.md"),
            "filter by date": lambda: catalogue.entries(since="2026-11-20"),
            "search of names": lambda: catalogue.search("report 000123", contents=False),
        }
        seconds = {name: await best(call) for name, call in rows.items()}
    for name, best_seconds in seconds.items():
        print(f"{name:24}{best_seconds * 1e3:10.2f} ms")
    return int(seconds["open a folder"] > MAX_FOLDER_SECONDS)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--resources", type=int, default=100_000)
    return asyncio.run(measure(parser.parse_args().resources))


if __name__ == "__main__":
    sys.exit(main())
