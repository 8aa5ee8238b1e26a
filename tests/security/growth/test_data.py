"""The server's cost grows no faster than hostile data (folders, archives, logs, tables), at 1 to 100 times its size."""

from __future__ import annotations

import bz2
import json
import lzma
import shutil
import sqlite3
import struct
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.security.growth.measuring import Cost, check_growth, cost_of_command
from tests.security.server_processes import MIB, stateless_request

IDLE_BYTES = 160 * MIB
"""The memory of the process and its libraries without data."""


class Data(NamedTuple):
    """A size to begin with, a maker of data of size n in a folder, the words that publish it, and its requests."""

    size: int
    make: Callable[[Path, int], None]
    words: tuple[str, ...]
    requests: Callable[[int], list[dict[str, object]]]


def call(tool: str, **arguments: object) -> list[dict[str, object]]:
    return [stateless_request(1, "tools/call", {"name": tool, "arguments": arguments})]


def read(uri: str) -> list[dict[str, object]]:
    return [stateless_request(1, "resources/read", {"uri": uri})]


def list_resources(_: int) -> list[dict[str, object]]:
    return [stateless_request(1, "resources/list")]


def make_file(path: str, text: Callable[[int], str]) -> Callable[[Path, int], None]:
    """Return a maker of a file with the text for n, beside a file whose long name the patterns are matched with."""

    def make(folder: Path, n: int) -> None:
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_text(text(n))
        (folder / "docs").mkdir(exist_ok=True)
        (folder / "docs" / ("a" * 200)).write_text("a")

    return make


def make_files(folder: Path, n: int) -> None:
    (folder / "docs").mkdir()
    for i in range(n):
        (folder / "docs" / f"{i}.txt").write_text("a")


def make_nested_folders(folder: Path, n: int) -> None:
    directory = folder / "docs"
    directory.mkdir()
    for _ in range(n):
        directory = directory / "d"
        directory.mkdir()
    (directory / "a.txt").write_text("a")


def make_false_archive(method: int, pack: Callable[[bytes], bytes]) -> Callable[[Path, int], None]:
    """Return a maker of an archive with a member of n KiB whose header declares ten bytes."""

    def make(folder: Path, n: int) -> None:
        data = pack(b"\0" * n * 1024)
        path = folder / "data.zip"
        with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as file:
            file.writestr("a.txt", data)
        raw = bytearray(path.read_bytes())
        for mark, method_at, size_at in ((b"PK\x03\x04", 8, 22), (b"PK\x01\x02", 10, 24)):
            start = raw.index(mark)
            raw[start + method_at : start + method_at + 2] = struct.pack("<H", method)
            raw[start + size_at : start + size_at + 4] = struct.pack("<I", 10)
        path.write_bytes(raw)

    return make


def pack_lzma(data: bytes) -> bytes:
    """Compress as a member of a ZIP archive: the version, the filter's properties, and the stream."""
    properties = bytes([0x5D]) + struct.pack("<I", 1 << 20)
    filters = [{"id": lzma.FILTER_LZMA1, "dict_size": 1 << 20, "lc": 3, "lp": 0, "pb": 2}]
    return b"\x09\x04\x05\x00" + properties + lzma.compress(data, lzma.FORMAT_RAW, filters=filters)


def make_many_members(folder: Path, n: int) -> None:
    with zipfile.ZipFile(folder / "data.zip", "w") as file:
        for i in range(n):
            file.writestr(f"{i}/" * 5 + "a", b"a")


def make_database(folder: Path, n: int) -> None:
    with sqlite3.connect(folder / "data.db") as database:
        database.execute("create table ships (id integer primary key, name text)")
        database.execute("insert into ships values (1, ?)", ("x" * n,))
        database.execute(f"create table wide ({', '.join(f'c{i}' for i in range(min(n // 500, 1500)))})")


DATA = {
    "stars of a pattern in .gitignore": Data(
        1, make_file("docs/.gitignore", lambda n: "*a" * 4 * n + "b"), ("docs",), list_resources
    ),
    "double stars of a pattern in .gitignore": Data(
        1, make_file("docs/.gitignore", lambda n: "**/a*" * n + "/b"), ("docs",), list_resources
    ),
    "brackets of a pattern in .gitignore": Data(
        100, make_file("docs/.gitignore", lambda n: "[a" * n + "]" * n), ("docs",), list_resources
    ),
    "patterns in .gitignore": Data(200, make_file("docs/.gitignore", lambda n: "*.o\n" * n), ("docs",), list_resources),
    "files": Data(100, make_files, ("docs",), list_resources),
    "folders in each other": Data(3, make_nested_folders, ("docs",), lambda n: call("search", query="a")),
    "characters of a path filter": Data(
        3_000, make_file("docs/a.txt", lambda n: "a"), ("docs",), lambda n: call("search", query="a", path="*a" * n)
    ),
    "double stars of a path filter": Data(
        3_000, make_file("docs/a.txt", lambda n: "a"), ("docs",),
        lambda n: call("search", query="a", path="**/" * n + "b"),
    ),
    "words of a search": Data(
        300,
        make_file("docs/a.txt", lambda n: "a"),
        ("docs",),
        lambda n: call("search", query=" ".join(f"w{i}" for i in range(n))),
    ),
    "quotes of a search": Data(
        3_000, make_file("docs/a.txt", lambda n: "a"), ("docs",), lambda n: call("search", query='"' * n)
    ),
    "characters of a line": Data(
        100_000, make_file("docs/a.txt", lambda n: "a" * n), ("docs",), lambda n: call("search", query="aaa")
    ),
    "characters of a line in a log": Data(
        100_000, make_file("a.log", lambda n: "2026-11-20T10:00:00Z ERROR " + "a=" * n), ("logs=log:a.log",),
        lambda n: read("log://logs/a.log?level=error"),
    ),
    "what may be secrets in a log": Data(
        3_000, make_file("a.log", lambda n: "password=" * n + "\n" + "Bearer " * n + "\n" + "://a:" * n),
        ("logs=log:a.log",),
        lambda n: read("log://logs/a.log"),
    ),
    "lines of a log": Data(
        3_000, make_file("a.log", lambda n: "2026-11-20T10:00:00Z INFO gate opened\n" * n), ("logs=log:a.log",),
        lambda n: read("log://logs/a.log?level=error"),
    ),
    "members of an archive": Data(300, make_many_members, ("zip:data.zip",), list_resources),
    "inflated bytes of a member (bzip2)": Data(
        3_000, make_false_archive(12, bz2.compress), ("zip:data.zip",), lambda n: read("zip://data.zip/a.txt")
    ),
    "inflated bytes of a member (LZMA)": Data(
        3_000, make_false_archive(14, pack_lzma), ("zip:data.zip",), lambda n: read("zip://data.zip/a.txt")
    ),
    "characters of a cell": Data(
        100_000, make_database, ("sqlite:///data.db",), lambda n: read("sqlite://data/ships/rows")
    ),
    "quotes of a CSV": Data(
        30_000, make_file("a.csv", lambda n: 'a,b\n"' + '""' * n), ("tables=table:a.csv",), lambda n: read("table://tables/a.csv")
    ),
}  # fmt: skip


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", DATA)
def test_cost_grows_no_faster_than_the_data(tmp_path: Path, name: str) -> None:
    size, make, words, requests = DATA[name]

    def measure(n: int) -> Cost:
        folder = tmp_path / str(n)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        make(folder, n)
        stdin = b"".join(json.dumps(message).encode() + b"\n" for message in requests(n))
        command = [sys.executable, "-m", "wharfinger", "serve", "-q", "--stdio", *words]
        return cost_of_command(command, folder, stdin, b'"id":1')

    check_growth(measure, size, max_kept_bytes=0, base_bytes=IDLE_BYTES)
