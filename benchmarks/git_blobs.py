"""Compares reads of random files of a large git repository through its source with `git cat-file --batch`.

    python benchmarks/git_blobs.py                       with a repository of 250 MiB, made once under .bench/git
    WHARFINGER_REPOS=~/clones python benchmarks/git_blobs.py       with each repository in a folder
    python benchmarks/git_blobs.py --blobs 20000 --rounds 9

Each round chooses other blobs. Both read the same blobs, and take turns to be first. git reads all of them in one
process, and its output is compared with what the source returned. A source is new in each round; its time includes
finding the repository, starting git, and decoding text. The exit status is 1 if the source takes more than 1.5 times as
long, or if anything differs. Linux and macOS only.
"""

from __future__ import annotations

import argparse
import asyncio
import inspect
import os
import random
import resource
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

if __package__ in (None, ""):
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from msgspec import UNSET

from wharfinger.sources import git
from wharfinger.sources.windows.window import ENCODING

DATA = Path(__file__).resolve().parent.parent / ".bench" / "git"
SERIES, VERSIONS = 540, 100
MAX_RATIO = 1.5
IN_FLIGHT = 32
MAX_BLOB_BYTES = 32 << 20
"""Larger blobs are left out, since a source does not read them whole."""
ENVIRONMENT = {"PATH": os.environ["PATH"], "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull, "LC_ALL": "C"}


def command(repository: Path, *arguments: str, data: bytes = b"") -> bytes:
    """Run git. Returns its output."""
    safe = ["git", "-c", f"safe.directory={repository}", "-C", str(repository), *arguments]
    return subprocess.run(safe, input=data, env=ENVIRONMENT, capture_output=True, check=True).stdout


# The repository


def make(repository: Path) -> Path:
    """Make a repository of 250 MiB unless it exists: 540 files in 100 versions each, stored as deltas."""
    made = repository.with_name(f"{repository.name}.made")
    if made.exists():
        return repository
    print(f"making {repository}: a minute", file=sys.stderr)
    shutil.rmtree(repository, ignore_errors=True)
    repository.mkdir(parents=True)
    command(repository, "init", "-q", ".")
    importer = subprocess.Popen(
        ["git", "-C", str(repository), "fast-import", "--quiet"], stdin=subprocess.PIPE, env=ENVIRONMENT
    )
    assert importer.stdin is not None
    for piece in _history():
        importer.stdin.write(piece)
    importer.stdin.close()
    if importer.wait():
        raise SystemExit("git fast-import failed.")
    made.touch()
    return repository


def _history() -> Iterator[bytes]:
    chance = random.Random(1)
    mark = 0
    for series in range(SERIES):
        lines = [chance.randbytes(30).hex().encode() for _ in range(chance.randrange(20, 600))]
        for _ in range(VERSIONS):
            for _ in range(max(1, len(lines) // 2)):
                lines[chance.randrange(len(lines))] = chance.randbytes(30).hex().encode()
            text = b"\n".join(lines) + b"\n"
            mark += 1
            yield b"blob\nmark :%d\ndata %d\n%s\n" % (mark, len(text), text)
        yield b"commit refs/heads/main\ncommitter A <a@b> %d +0000\ndata 6\nSeries\n" % (1_700_000_000 + series)
        yield b"M 100644 :%d dir%02d/file%03d.txt\n\n" % (mark, series % 20, series)


def blobs_of(repository: Path) -> list[str]:
    """Return the names of all blobs of at most `MAX_BLOB_BYTES` bytes."""
    listed = command(repository, "cat-file", "--batch-all-objects", "--batch-check", "--unordered").split(b"\n")
    rows = [line.decode().split() for line in listed if line]
    return sorted(oid for oid, kind, size in rows if kind == "blob" and int(size) <= MAX_BLOB_BYTES)


# The two readers


def by_git(repository: Path, oids: list[str]) -> list[bytes]:
    """Return the contents, read by one git process."""
    data = command(repository, "cat-file", "--batch", "--buffer", data="".join([f"{oid}\n" for oid in oids]).encode())
    found, at = list[bytes](), 0
    while at < len(data):
        end = data.index(b"\n", at)
        size = int(data[at:end].split()[2])
        found.append(data[end + 1 : end + 1 + size])
        at = end + size + 2
    return found


def by_source(repository: Path, oids: list[str], in_flight: int) -> list[Any]:
    """Return the first content of each read, with up to `in_flight` reads at a time."""

    async def read_all() -> list[Any]:
        source = git(repository, label="bench")
        await source.start()
        found: list[Any] = [None] * len(oids)
        waiting = iter(enumerate(oids))

        async def read_some() -> None:
            for number, oid in waiting:
                result: Any = source.read(f"git://bench/tree/{oid}")
                found[number] = (await result if inspect.isawaitable(result) else result).contents[0]

        await asyncio.gather(*[read_some() for _ in range(in_flight)])
        await source.close()
        return found

    return asyncio.run(read_all())


def count_differences(contents: list[Any], expected: list[bytes]) -> int:
    """Return how many contents differ from these bytes, ignoring byte order marks."""
    wrong = 0
    for found, data in zip(contents, expected, strict=True):
        if found.text is UNSET:
            wrong += bytes(found.blob) != data
        else:
            encoding = str(found.meta.get(ENCODING, "utf-8"))
            wrong += not data.endswith(found.text.encode(encoding)) or len(data) - len(found.text.encode(encoding)) > 4
    return wrong


def timed(call: Callable[[], Any]) -> tuple[float, float, Any]:
    """Call a function. Returns the seconds, the CPU seconds of this process and its children, and the result."""
    began, used = time.perf_counter(), cpu_seconds()
    result = call()
    return time.perf_counter() - began, cpu_seconds() - used, result


def cpu_seconds() -> float:
    """Return the CPU seconds of this process and of its children that have ended."""
    whose = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return sum(sum(resource.getrusage(who)[:2]) for who in whose)


def measure(repository: Path, number: int, rounds: int) -> bool:
    """Measure one repository, and print the times. Returns whether all contents are right and read fast enough."""
    blobs = blobs_of(repository)
    size = sum(path.stat().st_size for path in repository.rglob("*") if path.is_file())
    number = min(number, len(blobs))
    print(f"\n{repository.name}: {size >> 20} MiB, {len(blobs):,} blobs, of which {number:,} are read in each round")
    print(f"{'round':>6}{'git s':>9}{f'{IN_FLIGHT} in flight s':>18}{'ratio':>8}{'one at a time s':>18}{'ratio':>8}")
    ratios: dict[int, list[float]] = {IN_FLIGHT: [], 1: []}
    processor_ratios: list[float] = []
    wrong = 0
    for turn in range(rounds):
        chosen = random.Random(turn).sample(blobs, number)
        readers: list[Callable[[], Any]] = [
            lambda chosen=chosen: by_git(repository, chosen),
            lambda chosen=chosen: by_source(repository, chosen, IN_FLIGHT),
            lambda chosen=chosen: by_source(repository, chosen, 1),
        ]
        took: dict[int, float] = {}
        used: dict[int, float] = {}
        results: dict[int, Any] = {}
        for at in sorted(range(3), key=lambda at: (at + turn) % 3):
            took[at], used[at], results[at] = timed(readers[at])
        wrong += count_differences(results[1], results[0]) + count_differences(results[2], results[0])
        ratios[IN_FLIGHT].append(took[1] / took[0])
        ratios[1].append(took[2] / took[0])
        processor_ratios.append(used[1] / used[0])
        print(
            f"{turn + 1:>6}{took[0]:>9.2f}{took[1]:>18.2f}{took[1] / took[0]:>8.2f}{took[2]:>18.2f}"
            f"{took[2] / took[0]:>8.2f}"
        )
    median = statistics.median(ratios[IN_FLIGHT])
    print(
        f"ratio {median:.2f} ({statistics.median(ratios[1]):.2f} one at a time, "
        f"{statistics.median(processor_ratios):.2f} of processor time), required: {MAX_RATIO}"
    )
    if wrong:
        print(f"{wrong:,} contents differ from what git reads")
    return not wrong and median <= MAX_RATIO


def main() -> int:
    """Measure the repositories in `WHARFINGER_REPOS`, or a generated one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--blobs", type=int, default=5_000, help="blobs of each round (default: 5000)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds (default: 5)")
    options = parser.parse_args()
    if shutil.which("git") is None:
        raise SystemExit("This compares with git: install it.")
    folder = os.environ.get("WHARFINGER_REPOS")
    folders = sorted(Path(folder).iterdir()) if folder else [make(DATA)]
    repositories = [path for path in folders if (path / "HEAD").exists() or (path / ".git").exists()]
    good = [measure(path, options.blobs, options.rounds) for path in repositories]
    return int(not all(good))


if __name__ == "__main__":
    sys.exit(main())
