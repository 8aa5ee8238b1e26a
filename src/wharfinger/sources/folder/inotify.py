"""Watches directories with Linux's inotify (inotify(7)). The interface is that of the notifier in `watchfiles`.

That notifier also requests an event for each file that is opened, which no option turns off. Each read of a published
file would then wake a thread, which costs 5 of the 35 µs that a read takes. `InotifyNotifier` requests only changes. It
also accepts names that are not valid UTF-8.
"""

from __future__ import annotations

import errno
import math
import os
import select
import struct
import time
from collections.abc import Iterable
from typing import Protocol

__all__ = ["ADDED", "DELETED", "MODIFIED", "Hints", "InotifyNotifier", "StopSignal"]

ADDED, MODIFIED, DELETED = 1, 2, 3
"""Kinds of changes, as `watchfiles` numbers them."""
Hints = set[tuple[int, str]] | str
"""The result of `watch`: a set of changes `(kind, path)`, or the reason for an empty result, `stop` or `timeout`."""

_IN_MODIFY, _IN_ATTRIB, _IN_CLOSE_WRITE = 0x2, 0x4, 0x8
_IN_MOVED_FROM, _IN_MOVED_TO, _IN_CREATE, _IN_DELETE = 0x40, 0x80, 0x100, 0x200
_IN_DELETE_SELF, _IN_MOVE_SELF, _IN_UNMOUNT, _IN_Q_OVERFLOW, _IN_IGNORED = 0x400, 0x800, 0x2000, 0x4000, 0x8000
_IN_ONLYDIR = 0x01000000
_ADDED = _IN_CREATE | _IN_MOVED_TO
_DELETED = _IN_DELETE | _IN_MOVED_FROM | _IN_DELETE_SELF | _IN_MOVE_SELF | _IN_UNMOUNT
# IN_UNMOUNT is sent without a request.
_CHANGES = _ADDED | _DELETED & ~_IN_UNMOUNT | _IN_MODIFY | _IN_ATTRIB | _IN_CLOSE_WRITE
_EVENT = struct.Struct("iIII")  # watch, mask, cookie, length of the name
_READ_BYTES = 64 << 10


class StopSignal(Protocol):
    """Signals that a wait should end."""

    def is_set(self) -> bool:
        """Return whether the wait should end."""
        ...


class InotifyNotifier:
    """Watches directories and their entries, but not the entries of sub-directories.

    A directory that this process may not read is left out.

    Raises:
        FileNotFoundError, NotADirectoryError: one of the directories is gone.
        OSError: a limit is reached (EMFILE for instances, ENOSPC for watches), or the system has no inotify.
    """

    def __init__(self, directories: Iterable[str]) -> None:
        import ctypes  # takes 10 ms, and most servers never watch

        libc = ctypes.CDLL(None, use_errno=True)
        self._paths: dict[int, str] = {}
        """The path of each watched directory, by the number of its watch."""
        self._first_directory = ""
        self._descriptor: int = libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
        if self._descriptor < 0:
            raise _error(ctypes.get_errno())
        try:
            for directory in directories:
                self._first_directory = self._first_directory or directory
                path = os.fsencode(directory)
                watch: int = libc.inotify_add_watch(self._descriptor, path, ctypes.c_uint32(_CHANGES | _IN_ONLYDIR))
                if watch >= 0:
                    self._paths[watch] = directory
                elif (number := ctypes.get_errno()) != errno.EACCES:
                    raise _error(number, directory)
        except BaseException:
            self.close()
            raise

    def watch(self, debounce_ms: int, step_ms: int, timeout_ms: int, stop_event: StopSignal) -> Hints:
        """Wait for a change, collect others that follow it, and return all of them.

        Args:
            debounce_ms: Maximum time in which changes are collected. It ends earlier after a step without a new one.
            step_ms: The time between two checks of `stop_event`.
            timeout_ms: Maximum time to wait for the first change, or 0 for no limit.
            stop_event: Ends the wait.
        """
        changes: set[tuple[int, str]] = set()
        poll = select.poll()
        poll.register(self._descriptor, select.POLLIN)
        deadline = time.monotonic() + timeout_ms / 1000 if timeout_ms else math.inf  # for the first change
        while not stop_event.is_set():
            old_count = len(changes)
            if poll.poll(step_ms):
                self._read_changes(changes)
                if changes and not old_count:
                    deadline = time.monotonic() + debounce_ms / 1000  # for further ones
                time.sleep(step_ms / 1000 / 5)  # so that the next read returns several changes
            if changes and (len(changes) == old_count or time.monotonic() >= deadline):
                return changes
            if not changes and time.monotonic() >= deadline:
                return "timeout"
        return changes or "stop"

    def close(self) -> None:
        """Stop watching."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _read_changes(self, changes: set[tuple[int, str]]) -> None:
        """Add the changes that have arrived."""
        try:
            data = os.read(self._descriptor, _READ_BYTES)
        except BlockingIOError:
            return
        offset = 0
        while offset < len(data):
            watch, mask, _, length = _EVENT.unpack_from(data, offset)
            offset += _EVENT.size
            name = data[offset : offset + length].rstrip(b"\0")
            offset += length
            directory = self._paths.get(watch)
            if mask & _IN_Q_OVERFLOW:  # events were lost: everything may have changed
                changes.add((MODIFIED, self._first_directory))
            elif directory is not None and not mask & _IN_IGNORED:
                kind = ADDED if mask & _ADDED else DELETED if mask & _DELETED else MODIFIED
                changes.add((kind, os.path.join(directory, os.fsdecode(name)) if name else directory))


def _error(number: int, path: str = "") -> OSError:
    return OSError(number, os.strerror(number), path) if path else OSError(number, os.strerror(number))
