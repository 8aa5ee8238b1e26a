"""Appends lines to a file, in order, in a thread of its own.

`append` never blocks: it puts the line into a bounded queue. The thread writes the queue in batches, so that a line is
in the file within about 20 ms. If a write fails (disk full, no permission), the lines stay in the queue, the thread
tries again every second, and `failure` has the reason. `accepting` is False then, and while the queue is at least half
full.

Lines are written whole. If the disk was full in the middle of a line, its rest is written later. If another process has
appended to the file in the meantime, the whole line is written again.

Rotation renames the file to `NAME.2026-11-22T15-36-01.123Z` and begins a new one. Other processes may append to the
same file, and rename it: this class in another process, or logrotate. So before each batch the thread checks whether
the name still belongs to the file that it has open, and opens the new file if it does not. A lock on the file makes
sure that only one process renames it.

The file is created with mode 0600, and never opened through a symbolic link: in a directory that others may write to,
the link could let the server append to any file.
"""

from __future__ import annotations

import atexit
import errno
import logging
import os
import stat
import sys
import threading
import time
from collections import deque
from contextlib import suppress
from pathlib import Path

from wharfinger.errors import WharfingerError

__all__ = ["MIN_MAX_BYTES", "AuditFile", "UnusableAuditFile"]

log = logging.getLogger("wharfinger.record")

QUEUE_BYTES = 8 * 1024 * 1024
"""The maximum number of bytes of lines that wait to be written."""
BATCH_BYTES = 64 * 1024
"""The maximum number of bytes that are written at a time, unless a single line is longer."""
PAUSE_SECONDS = 0.02
"""Time between two batches, in which the queue collects lines."""
RETRY_SECONDS = 1.0
"""Time between two attempts while the file cannot be written."""
CLOSE_SECONDS = 2.0
"""How long `flush` waits by default. `close` gives up after this time without progress, and then waits this long for
the thread to end."""
MIN_MAX_BYTES = 64 * 1024
"""The minimum of `max_bytes`, which is larger than any line."""
SETTLE_SECONDS = 0.01
"""How long the size of a file must stay the same before its last line counts as unfinished."""

_DESCRIPTOR_NAMES = {1: "standard output", 2: "standard error"}


class UnusableAuditFile(WharfingerError):
    """The audit log cannot be written; the message says why."""

    exit_code = 2


class AuditFile:
    """A file for lines. `path` is a Path, or a descriptor that is never closed or rotated.

    The file is rotated before it exceeds `max_bytes` (None: never), and `keep` rotated files are kept (None: all).
    """

    def __init__(self, path: Path | int, *, max_bytes: int | None = None, keep: int | None = None) -> None:
        self.path = path
        self.max_bytes = max_bytes
        self.keep = keep
        self.failure = ""
        """Why lines cannot be written now; empty if they can."""
        self.failing_since = 0.0
        """When the latest failure began, in seconds since 1970; 0 if there was none."""
        self.dropped = 0
        """The number of lines that were dropped because the queue was full."""
        self._queue: deque[bytes] = deque()
        self._queued_bytes = 0
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._written = threading.Condition(self._lock)
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        self._descriptor = -1
        self._rest = b""
        """The rest of a line of which only the beginning is in the file."""
        self._rest_line = b""
        """The whole line that `_rest` belongs to."""
        self._end = 0
        """The size of the file after our last write."""

    # -- from any thread

    @property
    def accepting(self) -> bool:
        """Whether lines can be written, and the queue has room for the lines of the running requests."""
        return not self.failure and self._queued_bytes < QUEUE_BYTES // 2

    @property
    def name(self) -> str:
        """The path, or the name of the descriptor, for messages."""
        return (
            str(self.path)
            if isinstance(self.path, Path)
            else _DESCRIPTOR_NAMES.get(self.path, f"descriptor {self.path}")
        )

    def append(self, line: bytes) -> bool:
        """Write a line soon. Returns False if the queue is full; then the line is counted and dropped."""
        if self._queued_bytes + len(line) > QUEUE_BYTES:
            self.dropped += 1
            return False
        with self._lock:
            self._queue.append(line)
            self._queued_bytes += len(line)
            if self._thread is None:
                self._start_thread()
        if not self._wake.is_set():
            self._wake.set()
        return True

    def open(self) -> None:
        """Open the file now, to find out whether it can be used. Blocks.

        Raises:
            UnusableAuditFile: it cannot be opened or written.
        """
        with self._lock:
            if self._thread is not None:
                return
            try:
                self._reopen()
            except OSError as error:
                raise UnusableAuditFile(f"The audit log {self.name} cannot be written: {_reason(error)}") from None
            self._start_thread()
            self._wake.set()  # lines may wait since an earlier failure

    def flush(self, timeout: float = CLOSE_SECONDS) -> bool:
        """Wait until all lines are written. Returns False if that takes too long. Blocks."""
        self._wake.set()
        with self._written:
            return self._written.wait_for(lambda: not self._queued_bytes, timeout)

    def close(self) -> None:
        """Write the remaining lines, and close the file. Lines that come later open it again. Blocks.

        If a write does not end in time, the thread continues after `close` returns, so that no second thread writes the
        same lines.
        """
        thread = self._thread
        if thread is None:
            return
        before = -1
        # A slow disk gets more time while it makes progress.
        while not self.flush(CLOSE_SECONDS) and self._queued_bytes != before:
            before = self._queued_bytes
        self._closing.set()
        self._wake.set()
        thread.join(CLOSE_SECONDS)
        if not thread.is_alive():
            atexit.unregister(self.close)
        if lost := len(self._queue):
            reason = self.failure or "the last write has not ended"
            log.error("%s lines of the audit log %s were not written: %s.", lost, self.name, reason)

    def _start_thread(self) -> None:
        self._closing.clear()
        self._thread = threading.Thread(target=self._work, name="wharfinger-audit", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    # -- in the thread

    def _work(self) -> None:
        while True:
            self._wake.wait()
            self._wake.clear()
            while self._queue and self._write_batch():
                self._closing.wait(0 if self._queued_bytes > BATCH_BYTES else PAUSE_SECONDS)
            if self._closing.is_set():
                self._close_descriptor()
                with self._lock:
                    if self.failure or not self._queue:
                        self._thread = None
                        return
                self._wake.set()  # a line has come in the meantime
            elif self._queue:
                self._closing.wait(RETRY_SECONDS)
                self._wake.set()

    def _write_batch(self) -> bool:
        """Write some lines. Returns False if that failed; then they are still in the queue."""
        try:
            self._reopen()
            self._write_rest()
            if self._queue:
                self._write(self._next_lines(self._make_room(len(self._queue[0]))))
        except OSError as error:
            if not self.failure:
                self.failing_since = time.time()
                log.error("The audit log %s cannot be written: %s", self.name, _reason(error))
            self.failure = _reason(error)
            return False
        if self.failure:
            log.warning("The audit log %s is written again.", self.name)
            self.failure = ""
        return True

    def _next_lines(self, room: int) -> list[bytes]:
        """Return the first line, and as many more as fit with it into `room` and `BATCH_BYTES`."""
        lines: list[bytes] = []
        size = 0
        with self._lock:
            for line in self._queue:
                size += len(line)
                if lines and size > min(BATCH_BYTES, room):
                    break
                lines.append(line)
        return lines

    def _write_rest(self) -> None:
        """Write the rest of a line whose beginning is in the file."""
        if not self._rest:
            return
        unchanged = self._size() == self._end
        rest = self._rest if unchanged else b"\n" + self._rest_line
        written = os.write(self._descriptor, rest)
        self._end = self._size()
        self._rest = rest[written:]
        if self._rest:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._remove_written(1)

    def _write(self, lines: list[bytes]) -> None:
        """Write lines. Those that are whole in the file leave the queue; `_rest` has the rest of one that is not."""
        written = os.write(self._descriptor, b"".join(lines))
        self._end = self._size()
        whole = 0
        for line in lines:
            if written < len(line):
                break
            written -= len(line)
            whole += 1
        self._remove_written(whole)
        if whole < len(lines):
            if written:
                self._rest, self._rest_line = lines[whole][written:], lines[whole]
                self._write_rest()  # this raises the error that made the first write a short one
            else:
                self._write(lines[whole:])

    def _remove_written(self, count: int) -> None:
        """Remove the first `count` lines, which are in the file now, from the queue."""
        with self._written:
            self._queued_bytes -= sum(len(self._queue.popleft()) for _ in range(count))
            if not self._queued_bytes:
                self._written.notify_all()

    def _size(self) -> int:
        return os.fstat(self._descriptor).st_size if isinstance(self.path, Path) else 0

    # -- opening and rotating

    def _reopen(self) -> None:
        """Open the file if it is not open, or if its name now belongs to another file."""
        if isinstance(self.path, int):
            self._descriptor = self.path
            return
        if self._descriptor >= 0:
            # A line that was begun is finished in the same file.
            if self._rest or _still_names(self.path, self._descriptor):
                return
            self._close_descriptor()
        self._descriptor = _open(self.path)
        self._end = self._size()
        if self._rest:  # `_open` has ended the beginning of this line, so the whole line is written again
            self._rest = self._rest_line

    def _close_descriptor(self) -> None:
        if self._descriptor >= 0 and isinstance(self.path, Path):
            with suppress(OSError):  # a device, or a full disk: written lines are in the page cache
                os.fsync(self._descriptor)
            os.close(self._descriptor)
        self._descriptor = -1

    def _make_room(self, needed: int) -> int:
        """Rotate the file if it has no room for `needed` more bytes. Returns the bytes for which there is room."""
        if self.max_bytes is None or not isinstance(self.path, Path):
            return BATCH_BYTES
        size = self._size()
        if size == 0 or size + needed <= self.max_bytes:
            return self.max_bytes - size
        if not stat.S_ISREG(os.fstat(self._descriptor).st_mode):
            return BATCH_BYTES
        try:
            if sys.platform != "win32":
                import fcntl

                fcntl.flock(self._descriptor, fcntl.LOCK_EX)
            if _still_names(self.path, self._descriptor):  # no other process has renamed it in the meantime
                rotated = _rotated_path(self.path)
                if sys.platform == "win32":  # which cannot rename an open file
                    self._close_descriptor()
                os.rename(self.path, rotated)
                self._remove_old_files()
        finally:
            self._close_descriptor()  # this also releases the lock, for which other processes wait
        self._reopen()
        return self.max_bytes - self._size()

    def _remove_old_files(self) -> None:
        if self.keep is None or not isinstance(self.path, Path):
            return
        prefix = f"{self.path.name}."
        rotated = sorted(
            file
            for file in self.path.parent.iterdir()
            if file.name.startswith(prefix) and is_rotation_suffix(file.name.removeprefix(prefix))
        )
        for file in rotated[: max(0, len(rotated) - self.keep)]:
            file.unlink(missing_ok=True)


def _open(path: Path) -> int:
    """Open a file to append to it, and end its last line if a process that was killed left it unfinished.

    Raises:
        OSError: it cannot be opened, or is a symbolic link, a directory or the file of another user.
    """
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0)
    try:
        descriptor = os.open(path, flags | getattr(os, "O_NONBLOCK", 0), 0o600)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(errno.ELOOP, "it is a symbolic link: name the file itself") from None
        raise
    try:
        info = os.fstat(descriptor)
        if not (stat.S_ISREG(info.st_mode) or stat.S_ISCHR(info.st_mode)):
            raise OSError(errno.EINVAL, "it is not a regular file")
        if hasattr(os, "geteuid") and info.st_uid not in (0, os.geteuid()):
            raise OSError(errno.EPERM, "it belongs to another user")
        if stat.S_ISREG(info.st_mode) and _ends_within_line(descriptor):
            os.write(descriptor, b"\n")
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _ends_within_line(descriptor: int) -> bool:
    """Return whether the last line has no end.

    The size of a file grows in steps while another process appends to it. So a line without an end counts only if the
    size stays the same for a moment.
    """
    before = -1
    while (size := os.fstat(descriptor).st_size) != before:
        if not size:
            return False
        os.lseek(descriptor, size - 1, os.SEEK_SET)  # appending does not use the position
        if os.read(descriptor, 1) == b"\n":
            return False
        before = size
        time.sleep(SETTLE_SECONDS)
    return True


def _still_names(path: Path, descriptor: int) -> bool:
    """Return whether a path still names the file that is open."""
    try:
        status_of_path = os.lstat(path)
    except FileNotFoundError:
        return False
    return os.path.samestat(status_of_path, os.fstat(descriptor))


def _rotated_path(path: Path) -> Path:
    """Return an unused path for a file that is rotated now; such paths sort by time."""
    while True:
        now = time.time()
        stamp = time.strftime("%Y-%m-%dT%H-%M-%S", time.gmtime(now))
        rotated = path.with_name(f"{path.name}.{stamp}.{int(now * 1000) % 1000:03d}Z")
        if not os.path.lexists(rotated):
            return rotated
        time.sleep(0.001)


def is_rotation_suffix(suffix: str) -> bool:
    """Return whether this is the time that a rotation adds to a name; `.gz` may follow it."""
    time_text = suffix.removesuffix(".gz")
    return len(time_text) == 24 and time_text[10] == "T" and time_text.endswith("Z")


def _reason(error: OSError) -> str:
    """Return why a file cannot be written, in one short text."""
    text = error.strerror or str(error)
    return f"{text[:1].lower()}{text[1:]}"
