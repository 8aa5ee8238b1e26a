"""Lines reach the file in order and whole: through rotation, renames, full disks and the end of the process."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.waiting import wait_until
from wharfinger.record import audit_file
from wharfinger.record.audit_file import MIN_MAX_BYTES, QUEUE_BYTES, AuditFile, UnusableAuditFile


@pytest.fixture
def quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_file, "RETRY_SECONDS", 0.05)


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    """A separate file system of 128 KiB."""
    mount_point = tmp_path / "small"
    mount_point.mkdir()
    completed = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=128k", "tmpfs", str(mount_point)], capture_output=True
    )
    if completed.returncode:
        pytest.skip("may not mount a file system")
    try:
        yield mount_point
    finally:
        subprocess.run(["umount", "-l", str(mount_point)], check=True)


def line(number: int, size: int = 0) -> bytes:
    return b"%08d" % number + b"x" * max(0, size - 9) + b"\n"


def test_lines_are_written_in_order_by_many_threads(tmp_path: Path) -> None:
    file = AuditFile(tmp_path / "log")
    file.open()

    def write(thread: int) -> None:
        for number in range(500):
            assert file.append(b"%d %04d\n" % (thread, number))

    threads = [threading.Thread(target=write, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    file.close()
    lines = (tmp_path / "log").read_bytes().splitlines()
    assert len(lines) == 2000
    for n in range(4):
        assert [row for row in lines if row.startswith(b"%d " % n)] == [b"%d %04d" % (n, at) for at in range(500)]


def test_the_file_is_private_and_appended_to(tmp_path: Path) -> None:
    path = tmp_path / "log"
    for text in (b"one\n", b"two\n"):
        file = AuditFile(path)
        file.open()
        file.append(text)
        file.close()
    assert path.read_bytes() == b"one\ntwo\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_an_unfinished_line_is_ended_before_the_next(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b'{"half')
    file = AuditFile(path)
    file.append(b"whole\n")
    file.close()
    assert path.read_bytes() == b'{"half\nwhole\n'


@pytest.mark.parametrize("kind", ["link", "dangling", "directory", "fifo", "missing"])
def test_a_path_that_is_not_a_plain_file_is_refused(tmp_path: Path, kind: str) -> None:
    victim, path = tmp_path / "victim", tmp_path / "log"
    if kind == "link":
        victim.write_text("mine")
        path.symlink_to(victim)
    elif kind == "dangling":
        path.symlink_to(victim)
    elif kind == "directory":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    else:
        path = tmp_path / "no" / "log"
    with pytest.raises(UnusableAuditFile, match="cannot be written: "):
        AuditFile(path).open()
    assert not victim.exists() or victim.read_text() == "mine"


def test_a_link_placed_while_the_file_is_open_is_not_followed(tmp_path: Path, quick_retries: None) -> None:
    path, victim = tmp_path / "log", tmp_path / "victim"
    victim.write_text("mine")
    file = AuditFile(path)
    file.append(b"one\n")
    assert file.flush()
    path.rename(tmp_path / "old")
    path.symlink_to(victim)
    file.append(b"two\n")
    wait_until(lambda: file.failure, "writing fails")
    assert "symbolic link" in file.failure
    assert not file.accepting
    path.unlink()
    file.close()
    assert victim.read_text() == "mine"
    assert path.read_bytes() == b"two\n"


def test_the_file_is_rotated_at_its_size_and_no_line_is_split_or_lost(tmp_path: Path) -> None:
    path = tmp_path / "log"
    file = AuditFile(path, max_bytes=MIN_MAX_BYTES)
    for number in range(3000):
        file.append(line(number, 100))
    file.close()
    parts = sorted(tmp_path.glob("log.*"))
    assert len(parts) == 300_000 // MIN_MAX_BYTES
    assert all(part.stat().st_size <= MIN_MAX_BYTES for part in (*parts, path))
    assert all(part.stat().st_size > MIN_MAX_BYTES - 100 for part in parts)
    assert b"".join(part.read_bytes() for part in (*parts, path)) == b"".join(line(n, 100) for n in range(3000))
    assert all(stat.S_IMODE(part.stat().st_mode) == 0o600 for part in (*parts, path))


@pytest.mark.parametrize("keep", [0, 2])
def test_older_parts_are_removed_and_nothing_else(tmp_path: Path, keep: int) -> None:
    other = tmp_path / "log.backup"
    other.write_text("mine")
    file = AuditFile(tmp_path / "log", max_bytes=MIN_MAX_BYTES, keep=keep)
    for number in range(6000):
        file.append(line(number, 100))
    file.close()
    parts = sorted(part for part in tmp_path.glob("log.*") if part != other)
    assert len(parts) == keep
    assert other.read_text() == "mine"
    assert (tmp_path / "log").read_bytes().endswith(line(5999, 100))


def test_a_new_file_is_opened_after_logrotate_renames_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "log"
    file = AuditFile(path)
    file.append(b"one\n")
    assert file.flush()
    path.rename(tmp_path / "log.1")
    file.append(b"two\n")
    file.close()
    assert (tmp_path / "log.1").read_bytes() == b"one\n"
    assert path.read_bytes() == b"two\n"


def test_a_file_truncated_in_place_is_written_from_its_beginning(tmp_path: Path) -> None:
    path = tmp_path / "log"
    file = AuditFile(path)
    file.append(b"one\n")
    assert file.flush()
    os.truncate(path, 0)
    file.append(b"two\n")
    file.close()
    assert path.read_bytes() == b"two\n"


def test_two_processes_rotate_one_file_and_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "log"
    program = (
        "import sys; from pathlib import Path; from wharfinger.record.audit_file import AuditFile\n"
        f"file = AuditFile(Path({str(path)!r}), max_bytes={MIN_MAX_BYTES})\n"
        "for n in range(4000): file.append(b'%s %06d ' % (sys.argv[1].encode(), n) + b'x' * 80 + b'\\n')\n"
        "file.close()"
    )
    writers = [subprocess.Popen([sys.executable, "-c", program, name]) for name in "ab"]
    assert [writer.wait(30) for writer in writers] == [0, 0]
    lines = [row for part in tmp_path.glob("log*") for row in part.read_bytes().splitlines()]
    assert len(lines) == 8000
    assert {row[:8] for row in lines} == {b"%c %06d" % (name, n) for name in b"ab" for n in range(4000)}
    assert all(row.endswith(b" " + b"x" * 80) for row in lines)


def test_a_full_disk_keeps_the_lines_until_there_is_space(full_disk: Path, quick_retries: None) -> None:
    filler = full_disk / "filler"
    filler.write_bytes(bytes(96 * 1024))
    file = AuditFile(full_disk / "log")
    file.open()
    for number in range(900):
        assert file.append(line(number, 100))
    wait_until(lambda: file.failure, "writing fails")
    assert file.failure == "no space left on device"
    assert not file.accepting
    assert file.append(line(900, 100))
    filler.unlink()
    wait_until(lambda: file.accepting, "the file accepts lines again")
    file.close()
    assert (full_disk / "log").read_bytes() == b"".join(line(n, 100) for n in range(901))


def test_the_queue_is_bounded_and_dropped_lines_are_counted(tmp_path: Path) -> None:
    file = AuditFile(Path("/dev/full"))
    if not Path("/dev/full").exists():
        pytest.skip("needs /dev/full")
    accepted_lines = sum(file.append(line(n, 1024)) for n in range(QUEUE_BYTES // 1024 + 5))
    assert accepted_lines == QUEUE_BYTES // 1024
    assert file.dropped == 5
    wait_until(lambda: file.failure, "writing fails")
    file._queue.clear()  # a queued line would delay the end of the process


def test_writing_resumes_after_a_limit_of_the_file_size(tmp_path: Path) -> None:
    """`RLIMIT_FSIZE` cuts a line in the middle, as a full disk does."""
    path = tmp_path / "log"
    program = f"""
import resource, time
from pathlib import Path
from wharfinger.record import audit_file
audit_file.RETRY_SECONDS = 0.02
file = audit_file.AuditFile(Path({str(path)!r}))
resource.setrlimit(resource.RLIMIT_FSIZE, (1050, resource.RLIM_INFINITY))
for n in range(20): file.append(b"%08d" % n + b"x" * 91 + b"\\n")
while not file.failure: time.sleep(0.001)
assert file.failure == "file too large", file.failure
assert Path({str(path)!r}).stat().st_size == 1050
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
file.close()
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=30)
    assert path.read_bytes() == b"".join(line(n, 100) for n in range(20))


def test_a_line_that_was_unfinished_at_close_is_written_again_as_a_whole(tmp_path: Path) -> None:
    """A bug: after the file was opened again, the rest of the line was written as a line of its own."""
    path = tmp_path / "log"
    program = f"""
import resource, time
from pathlib import Path
from wharfinger.record import audit_file
audit_file.RETRY_SECONDS, audit_file.CLOSE_SECONDS = 0.02, 0.1
file = audit_file.AuditFile(Path({str(path)!r}))
resource.setrlimit(resource.RLIMIT_FSIZE, (1050, resource.RLIM_INFINITY))
for n in range(20): file.append(b"%08d" % n + b"x" * 91 + b"\\n")
while not file.failure: time.sleep(0.001)
file.close()
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
audit_file.CLOSE_SECONDS = 10
file.append(b"%08d" % 20 + b"x" * 91 + b"\\n")
file.close()
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=30)
    written, unfinished = b"".join(line(n, 100) for n in range(10)), line(10, 100)[:50] + b"\n"
    assert path.read_bytes() == written + unfinished + b"".join(line(n, 100) for n in range(10, 21))


def test_a_line_that_is_cut_again_after_another_process_wrote_is_whole_in_the_end(tmp_path: Path) -> None:
    """A bug: its beginning was followed by the rest of the first attempt, without what comes between."""
    path = tmp_path / "log"
    program = f"""
import os, resource, subprocess, sys, time
from pathlib import Path
from wharfinger.record import audit_file
audit_file.RETRY_SECONDS = 0.02
path = Path({str(path)!r})
file = audit_file.AuditFile(path)
def limit(size): resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
def wait_for(size):
    while path.stat().st_size != size: time.sleep(0.001)
limit(1050)
for n in range(20): file.append(b"%08d" % n + b"x" * 91 + b"\\n")
while not file.failure: time.sleep(0.001)
other = "import resource, sys; resource.setrlimit(1, (-1, -1)); open(sys.argv[1], 'a').write('other process')"
subprocess.run([sys.executable, "-c", other, path], check=True)
wait_for(1063)
limit(1083)
wait_for(1083)
limit(resource.RLIM_INFINITY)
file.close()
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=30)
    before = b"".join(line(n, 100) for n in range(10)) + line(10, 100)[:50] + b"other process\n"
    assert path.read_bytes() == before + b"".join(line(n, 100) for n in range(10, 20))


def test_queued_lines_are_written_when_the_process_ends(tmp_path: Path) -> None:
    path = tmp_path / "log"
    program = (
        "from pathlib import Path; from wharfinger.record.audit_file import AuditFile\n"
        f"file = AuditFile(Path({str(path)!r}))\n"
        "for n in range(5000): file.append(b'%d\\n' % n)"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=30)
    assert path.read_bytes() == b"".join(b"%d\n" % n for n in range(5000))


def test_lines_after_close_open_the_file_again(tmp_path: Path) -> None:
    file = AuditFile(tmp_path / "log")
    file.append(b"one\n")
    file.close()
    file.append(b"two\n")
    file.close()
    assert (tmp_path / "log").read_bytes() == b"one\ntwo\n"


def test_a_file_that_is_opened_after_a_failure_accepts_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bug: a server that was started again refused every request, since nothing wrote the lines that waited."""
    monkeypatch.setattr(audit_file, "CLOSE_SECONDS", 0.05)
    file = AuditFile(tmp_path / "new" / "log")
    file.append(b"one\n")
    wait_until(lambda: file.failure, "writing fails")
    file.close()
    (tmp_path / "new").mkdir()
    file.open()
    wait_until(lambda: file.accepting, "the file accepts lines")
    file.close()
    assert (tmp_path / "new" / "log").read_bytes() == b"one\n"


def test_a_file_that_cannot_be_renamed_is_not_kept_locked(tmp_path: Path) -> None:
    """A bug: all other processes that write to it waited for the lock for ever."""
    fcntl = pytest.importorskip("fcntl")
    path = tmp_path / ("x" * 240)  # with the time of a rotation, the name is too long
    file = AuditFile(path, max_bytes=MIN_MAX_BYTES)
    for number in range(MIN_MAX_BYTES // 100 + 1):
        file.append(line(number, 100))
    wait_until(lambda: file.failure, "rotating fails")
    with path.open("rb") as other:
        lock_flags = fcntl.LOCK_EX | fcntl.LOCK_NB
        wait_until(lambda: fcntl.flock(other, lock_flags) is None, "the lock is free", ignore=BlockingIOError)
    file.max_bytes = None
    file.close()


def test_appending_does_not_wait_for_a_slow_file() -> None:
    reader, writer = os.pipe()
    try:
        file = AuditFile(writer)
        for number in range(2000):  # a pipe holds 64 KiB, and it is not read
            assert file.append(line(number, 100))
        data = b""
        while len(data) < 200_000:
            data += os.read(reader, 65536)
        assert data == b"".join(line(n, 100) for n in range(2000))
        assert file.flush()
    finally:
        os.close(reader)
        os.close(writer)


def test_close_of_a_stuck_file_says_so_and_leaves_one_writer(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A bug: the next line started a second thread, which wrote the same lines as the first; no reason was logged."""
    monkeypatch.setattr(audit_file, "CLOSE_SECONDS", 0.05)
    reader, writer = os.pipe()
    try:
        file = AuditFile(writer)
        for number in range(2000):
            assert file.append(line(number, 100))
        thread = file._thread
        assert thread is not None
        file.close()  # the thread waits for a reader
        assert "were not written: the last write has not ended." in caplog.text
        for number in range(2000, 2010):
            assert file.append(line(number, 100))
        assert file._thread is thread
        data = b""
        while len(data) < 201_000:
            data += os.read(reader, 65536)
        assert data == b"".join(line(n, 100) for n in range(2010))
        wait_until(lambda: not thread.is_alive(), "the thread ends")
        assert file.append(line(2010, 100))
        assert file.flush(20)
        assert os.read(reader, 65536) == line(2010, 100)
        file.close()
    finally:
        os.close(reader)
        os.close(writer)


def test_a_descriptor_is_named_in_messages() -> None:
    """Ours: over stdio, `--audit -` writes to standard error."""
    assert [AuditFile(number).name for number in (1, 2, 7)] == ["standard output", "standard error", "descriptor 7"]
