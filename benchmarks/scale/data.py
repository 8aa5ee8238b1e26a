"""The data that is served: made once, and kept under .bench/scale. Delete that to make it again."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

FILES, DIRECTORIES = 100_000, 1_000
ROWS = 10_000_000
LOG_BYTES = 5 << 30
COMMITS = 10_000
BLOB_BYTES = 1 << 30


def make(root: Path, report: Callable[[str], None]) -> None:
    """Make the data that does not exist yet. Takes about a minute and 7 GiB the first time."""
    root.mkdir(parents=True, exist_ok=True)
    for name, maker in MAKERS.items():
        done = root / f".{name}.made"
        if not done.exists():
            report(f"making {name}")
            maker(root / name)
            done.touch()


def make_files(folder: Path) -> None:
    """Make 100,000 files in 1,000 directories; all files of a directory are hard links to its first file."""
    for number in range(DIRECTORIES):
        directory = folder / f"d{number:04}"
        directory.mkdir(parents=True, exist_ok=True)
        first = directory / "f00.md"
        first.write_text(f"# Directory {number}\n\nSoundings in fathoms.\n")
        for other in range(1, FILES // DIRECTORIES):
            os.link(first, directory / f"f{other:02}.md")


def make_database(path: Path) -> None:
    """Make a table of ten million rows."""
    path.unlink(missing_ok=True)
    with sqlite3.connect(path) as database:
        database.execute("PRAGMA journal_mode = OFF")
        database.execute("PRAGMA synchronous = OFF")
        database.execute("CREATE TABLE soundings (id INTEGER PRIMARY KEY, place TEXT NOT NULL, fathoms REAL)")
        database.execute(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?) "
            "INSERT INTO soundings SELECT i, 'place ' || (i * 7919 % 100003), (i % 997) / 10.0 FROM n",
            (ROWS,),
        )


def make_log(folder: Path) -> None:
    """Make 5 GiB of lines; those of each MiB have the same second."""
    folder.mkdir(exist_ok=True)
    begin = 1_750_000_000
    block = 1 << 20
    with (folder / "harbour.log").open("wb") as log:
        for second in range(LOG_BYTES // block):
            stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(begin + second)).encode()
            level = b"ERROR" if second % 100 == 0 else b"INFO "
            line = b"%b %b quay=%05d crane moved, load 12.5 t, wind 4 m/s, tide rising, nothing else to tell here\n"
            line %= (stamp, level, second)
            log.write((line * (block // len(line) + 1))[: block // len(line) * len(line)])


def make_repository(folder: Path) -> None:
    """Make ten thousand commits to a hundred files, with `git fast-import`."""
    folder.mkdir(exist_ok=True)
    subprocess.run(["git", "init", "--quiet", "--initial-branch=main", str(folder)], check=True)
    lines: list[str] = []
    for number in range(COMMITS):
        text, message = f"sounding {number}\n", f"Note {number}"
        lines.append(
            f"commit refs/heads/main\ncommitter Mary <mary@example.test> {1_700_000_000 + number} +0000\n"
            f"data {len(message)}\n{message}\nM 100644 inline notes/{number % 100:02}.txt\ndata {len(text)}\n{text}"
        )
    subprocess.run(["git", "-C", str(folder), "fast-import", "--quiet"], input="\n".join(lines).encode(), check=True)


def make_blob(folder: Path) -> None:
    """Make a binary file of 1 GiB. It is sparse, so that reading it needs no disk access."""
    folder.mkdir(exist_ok=True)
    with (folder / "tide.bin").open("wb") as blob:
        blob.write(b"\0\1\2\3")
        blob.truncate(BLOB_BYTES)


MAKERS: dict[str, Callable[[Path], None]] = {
    "files": make_files,
    "shop.db": make_database,
    "logs": make_log,
    "repository": make_repository,
    "blob": make_blob,
}
