"""Measures how long it takes to index a folder of many small files, and to search the index.

python benchmarks/searching.py [--files N] [--folder FOLDER]

The same searches are measured without an index, where the server reads the files, and with `grep -ril`. The files have
words as in prose, a few frequent and many rare ones; the queries have words of each kind. A search of the index is the
fastest of five; `grep / index` says how many times as long grep takes.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import random
import shutil
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

from wharfinger import Client, Context, Server
from wharfinger.server.document_search import search_documents
from wharfinger.sources import files
from wharfinger.sources.search import search_index

MIB = 1 << 20
REPEATS = 5
WORDS = 20_000
FILE_CHARACTERS = 1_500
"""The approximate number of characters in a file."""


def make(root: Path, number: int) -> int:
    """Make files below a folder. Returns their total bytes."""
    random_text = random.Random(1)
    syllables = [first + vowel for first in "bcdfghklmnprstv" for vowel in "aeiou"]
    syllables += [vowel + last for vowel in "aeiou" for last in "nrst"]
    words = ["".join(random_text.choices(syllables, k=1 + at % 4)) for at in range(WORDS)]
    weights = list(itertools.accumulate(1 / (at + 1) for at in range(WORDS)))
    total = 0
    for at in range(number):
        folder = root / f"{at // 1_000:03d}"
        folder.mkdir(exist_ok=True)
        text = " ".join(random_text.choices(words, cum_weights=weights, k=FILE_CHARACTERS // 6))
        if at % 10_000 == 77:
            text += f"\nthe harbourmaster's note {at}\n"
        (folder / f"note{at:06d}.txt").write_text(text)
        total += len(text)
    return total


async def measure(root: Path, cache: Path, size: int, queries: list[str]) -> None:
    """Index the folder, run the queries, and print the times."""
    server, index = Server("bench"), search_index(cache, max_size=4 << 30)
    folder = files(root)
    server.include(folder)
    server.include(index)

    @server.tool
    async def find(query: str, ctx: Context[object]) -> int:
        return len(await ctx.search(query))

    async with Client(server) as client:
        began, longest, pings = time.perf_counter(), 0.0, list[float]()
        while index.pending:
            asked = time.perf_counter()
            await client.ping()
            pings.append(time.perf_counter() - asked)
            await asyncio.sleep(0.005)
        seconds = time.perf_counter() - began
        longest = max(pings)
        pings.sort()
        index_size = sum(path.stat().st_size for path in cache.iterdir())
        print(
            f"indexed in {seconds:.1f} s: {seconds / size * MIB:.3f} s per MiB; "
            f"the index has {index_size / size:.0%} of the text"
        )
        print(
            f"a ping meanwhile: median {statistics.median(pings) * 1e3:.1f} ms, "
            f"99 of 100 within {pings[int(len(pings) * 0.99)] * 1e3:.1f} ms, longest {longest * 1e3:.0f} ms"
        )
        print(f"\n{'query':24}{'hits':>6}{'index ms':>12}{'reading ms':>12}{'grep -ril ms':>14}{'grep / index':>14}")
        for query in queries:
            times = []
            for _ in range(REPEATS):
                asked = time.perf_counter()
                hits = (await client.call_tool("find", {"query": query})).structured
                times.append(time.perf_counter() - asked)
            asked = time.perf_counter()
            await asyncio.to_thread(search_documents, folder, query, 20)
            reading = time.perf_counter() - asked
            grep = await asyncio.to_thread(grep_seconds, root, query)
            ours = min(times)
            print(
                f"{query:24}{hits!s:>6}{ours * 1e3:>12.1f}{reading * 1e3:>12.0f}{grep * 1e3:>14.0f}{grep / ours:>14.0f}"
            )

    again = Server("again")
    index = search_index(cache, max_size=4 << 30)
    again.include(files(root))
    again.include(index)
    began = time.perf_counter()
    await again.start()
    while index.pending:
        await asyncio.sleep(0.01)
    print(f"\nrestarted with the saved index: checked all files in {time.perf_counter() - began:.1f} s")
    await again.close()


def grep_seconds(root: Path, query: str) -> float:
    """Return the seconds that grep takes to find the files with the first word of the query."""
    began = time.perf_counter()
    subprocess.run(["grep", "-rilF", "--", query.split()[0], str(root)], capture_output=True, check=False)
    return time.perf_counter() - began


def main() -> None:
    """Make the files, index them and search them."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--folder", type=Path, help="search this folder instead of generated files")
    options = parser.parse_args()
    if shutil.which("grep") is None:
        raise SystemExit("This compares with grep: install it.")
    with tempfile.TemporaryDirectory() as temporary:
        root = options.folder or Path(temporary, "notes")
        queries = ["harbourmaster", "harbourmaster note", "nosuchwordatall", "tora", "ba", "qx", "z"]
        if options.folder is None:
            root.mkdir()
            size = make(root, options.files)
        else:
            size = sum(path.stat().st_size for path in root.rglob("*") if path.is_file())
        print(f"{size / MIB:.0f} MiB of text in {root.name}")
        asyncio.run(measure(root, Path(temporary, "cache"), size, queries))


if __name__ == "__main__":
    main()
