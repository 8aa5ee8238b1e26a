"""Following logs while they are written, rotated, truncated, replaced and compressed."""

from __future__ import annotations

import gzip
import os
import shutil
import subprocess
import sys
import textwrap
import time
import tracemalloc
from contextlib import suppress
from pathlib import Path

import pytest

from tests.sources.log_files.conftest import append
from wharfinger.sources.log_files import Follower, logs

LINES = 100_000

# The writers wait for a read, ten times, or they might end before the second one.
HANDLER = """
    import logging, logging.handlers, sys
    path, lines = sys.argv[1], int(sys.argv[2])
    handler = logging.handlers.RotatingFileHandler(path, maxBytes=128 << 10, backupCount=1000)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    log = logging.getLogger("boats")
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    for number in range(lines):
        if number % 10_000 == 9_999:
            sys.stdin.readline()
        log.info("line %d", number)
"""
# Rotates like logrotate with `copytruncate`. The writer does it, so that no line is lost between copy and truncation.
COPY_TRUNCATE = """
    import os, shutil, sys
    path, lines = sys.argv[1], int(sys.argv[2])
    with open(path, "ab", 0) as log:
        for number in range(lines):
            if number % 10_000 == 9_999:
                sys.stdin.readline()
            log.write(b"2026-11-20T10:00:00Z INFO line %d\\n" % number)
            if number % 2_000 == 1_999:
                for age in range(number // 2_000, 0, -1):
                    if os.path.exists(f"{path}.{age}"):
                        os.rename(f"{path}.{age}", f"{path}.{age + 1}")
                shutil.copyfile(path, f"{path}.1")
                os.truncate(path, 0)
"""


def numbers(lines: list[bytes]) -> list[int]:
    assert all(line.endswith(b"\n") for line in lines)
    return [int(line.rpartition(b" ")[2]) for line in lines]


@pytest.mark.parametrize("writer", [HANDLER, COPY_TRUNCATE], ids=["renamed", "copied and cut"])
def test_each_line_is_read_once_while_another_process_rotates_the_log(tmp_path: Path, writer: str) -> None:
    path = tmp_path / "app.log"
    path.touch()
    follower = Follower(path)
    command = [sys.executable, "-c", textwrap.dedent(writer), str(path), str(LINES)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, bufsize=0)
    assert process.stdin is not None
    found: list[int] = []
    reads = 0
    try:
        while True:
            ended = process.poll() is not None
            lines = numbers(follower.read())
            found += lines
            if lines:
                reads += 1
                with suppress(BrokenPipeError):  # it has ended
                    process.stdin.write(b"\n")
            elif ended:
                break
    finally:
        process.kill()
        process.communicate()
    assert found == list(range(LINES))
    assert not follower.lost
    assert reads >= 10
    assert len(list(tmp_path.iterdir())) > 20


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "app.log"
    path.write_bytes(b"one 1\ntwo 2\n")
    return path


def test_a_line_is_read_when_it_is_complete(log: Path) -> None:
    follower = Follower(log)
    append(log, b"three")
    assert follower.read() == []
    append(log, b" 3\nfour")
    assert follower.read() == [b"three 3\n"]


def test_the_last_line_of_a_rotated_file_is_read_without_a_line_end(log: Path) -> None:
    follower = Follower(log)
    append(log, b"three 3")
    log.rename(f"{log}.1")
    assert follower.read() == []
    log.write_bytes(b"four 4\n")
    assert follower.read() == [b"three 3", b"four 4\n"]


def test_lines_after_an_empty_rotated_file_are_read(log: Path) -> None:
    """A bug: nothing was read until the file with the position was deleted."""
    follower = Follower(log)
    log.rename(f"{log}.2")
    Path(f"{log}.1").touch()
    log.write_bytes(b"three 3\n")
    assert follower.read() == [b"three 3\n"]
    assert not follower.lost


@pytest.mark.parametrize("rest", [b"", b"five 5"])
def test_a_line_after_a_rotation_is_whole_if_the_window_is_almost_full(tmp_path: Path, rest: bytes) -> None:
    """A bug: it was cut where the window ended."""
    path = tmp_path / "app.log"
    older = [b"%0*d\n" % (1 << 19, 1), b"%0*d\n" % ((1 << 19) - 8, 2)]
    path.touch()
    follower = Follower(path)
    append(path, b"".join(older))
    path.rename(f"{path}.1")
    path.write_bytes(b"three 3\nfour 4\n" + rest)
    assert follower.read() == [*older, b"three 3\n", b"four 4\n"]
    append(path, b"\n")
    assert follower.read() == [rest + b"\n"]
    assert not follower.lost


def test_a_rewritten_log_that_is_longer_than_before_is_read_from_its_beginning(log: Path) -> None:
    follower = Follower(log)
    log.write_bytes(b"a whole new line 3\nand one more line 4\n")
    assert follower.read() == [b"a whole new line 3\n", b"and one more line 4\n"]
    assert follower.lost


def test_a_copied_log_that_is_not_truncated_yet_is_read_once(log: Path) -> None:
    follower = Follower(log, beginning=True)
    shutil.copyfile(log, f"{log}.1")
    assert follower.read() == [b"one 1\n", b"two 2\n"]
    os.truncate(log, 0)
    assert follower.read() == []
    os.rename(f"{log}.1", f"{log}.2")
    append(log, b"three 3\n")
    shutil.copyfile(log, f"{log}.1")
    assert follower.read() == [b"three 3\n"]
    append(log, b"four 4\n")
    assert follower.read() == [b"four 4\n"]
    assert not follower.lost


def test_a_file_that_is_compressed_meanwhile_is_read(log: Path) -> None:
    follower = Follower(log)
    position = follower.position
    append(log, b"three 3\n")
    Path(f"{log}.2.gz").write_bytes(gzip.compress(log.read_bytes()))
    log.unlink()
    Path(f"{log}.1").write_bytes(b"four 4\n")
    log.write_bytes(b"five 5\n")
    assert follower.read() == [b"three 3\n", b"four 4\n", b"five 5\n"]
    assert Follower(log, position).read() == [b"three 3\n", b"four 4\n", b"five 5\n"]
    assert not follower.lost


def test_a_replaced_log_is_read_and_its_old_lines_are_reported_as_lost(log: Path) -> None:
    follower = Follower(log)
    time.sleep(0.02)  # longer than a tick of the clock of the file system
    log.unlink()
    log.write_bytes(b"nine 9\n")
    assert follower.read() == [b"nine 9\n"]
    assert follower.lost


def test_a_log_that_is_created_later_is_read_from_its_beginning(tmp_path: Path) -> None:
    follower = Follower(tmp_path / "app.log")
    assert follower.read() == []
    (tmp_path / "app.log").write_bytes(b"one 1\n")
    assert follower.read() == [b"one 1\n"]
    assert follower.read() == []


def test_a_file_with_a_similar_name_is_not_a_rotated_log(log: Path) -> None:
    follower = Follower(log)
    log.with_name("app-2.log").write_bytes(b"other 1\n")
    log.with_name("app.log.json").write_bytes(b"other 2\n")
    append(log, b"three 3\n")
    assert follower.read() == [b"three 3\n"]


@pytest.mark.parametrize("rest", ["", "the beginning of a line", "x" * 300_000])
def test_a_follower_begins_after_the_last_complete_line_without_reading_the_log(tmp_path: Path, rest: str) -> None:
    path = tmp_path / "app.log"
    path.write_text("one line\n" * 3_000_000 + rest)
    tracemalloc.start()
    follower = Follower(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 << 20, "the log has 27 MB"
    append(path, b" and its end\nnext\n")
    assert follower.read() == [f"{rest} and its end\n".encode(), b"next\n"]


def test_a_follower_of_a_log_without_a_line_end_begins_at_its_start(tmp_path: Path) -> None:
    path = tmp_path / "app.log"
    path.write_text("beginning")
    follower = Follower(path)
    append(path, b" and end\n")
    assert follower.read() == [b"beginning and end\n"]


def test_a_log_that_was_last_changed_before_1970_is_read(log: Path) -> None:
    """Such times are in archives, or come from a wrong clock."""
    append(log, b"one\n")
    os.utime(log, (-1_000, -1_000))
    source = logs(log, label="boats")
    content = source.read(f"{source.uri}/{log.name}").contents[0]
    assert "one" in str(content.text)
    following = str(dict(content.meta or {})["wharfinger/next"])
    append(log, b"two\n")
    assert str(source.read(following).contents[0].text).splitlines() == ["two"]


@pytest.mark.parametrize("name", ["a[1].log", "d\\e.log", "space .log ", "star*.log", "#!.log"])
def test_a_log_whose_name_has_special_characters_of_patterns_is_followed(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"one\n")
    assert Follower(tmp_path / name, beginning=True).read() == [b"one\n"]
