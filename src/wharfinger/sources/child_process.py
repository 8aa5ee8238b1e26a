"""Runs a function in a child process with bounds on time, memory and output, for parsers of hostile data.

A parser in another language may hang, abort, or take any amount of memory, and Python cannot interrupt it. So it runs
in a process of its own, which inherits no environment variables (on Windows only `SYSTEMROOT`), and only the open
files that the caller names. The process ends when it reaches a bound. The steps are:

1. `child_main.py` starts as a script of the standard library alone. It reads the limits and the request from stdin,
   sets the limits of the process, and only then imports the module with the parser.
2. The module's `main(request)` returns the reply, or raises `ChildRefused` with a message for the caller.
3. The reply is written to a temporary file, so that the limit on the size of files bounds it too.

The limits of memory, processor time and files are those of the operating system (`setrlimit(2)`), which Windows does
not have. While a child runs there, only its time is bounded, and a reply that is too large is not read. macOS does not
limit the memory.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from typing import NamedTuple

from wharfinger.sources import child_main
from wharfinger.sources.child_main import ChildRefused

__all__ = ["ChildBounds", "ChildClosed", "ChildProcesses", "ChildRefused", "ChildStopped", "NoFreeChild"]

MAX_CHILDREN = 2
"""Maximum number of children of one `ChildProcesses` that run at once. A further child waits for its
`ChildBounds.seconds` at most."""


class ChildBounds(NamedTuple):
    """The bounds of a child: seconds, bytes of memory, and bytes of each file that it writes, such as its reply."""

    seconds: float
    memory: int
    output: int


class ChildStopped(Exception):
    """The child gave no reply: it reached a bound, crashed, or was killed by `close`. `str()` says why, briefly."""


class NoFreeChild(ChildStopped):
    """The child was not started, because `MAX_CHILDREN` others ran for all of its `ChildBounds.seconds`."""


class ChildClosed(ChildStopped):
    """The child was killed by `close`, or not started because of it."""


class ChildProcesses:
    """Runs children, and can end them all. Several threads may use it at once."""

    def __init__(self) -> None:
        self._running: set[subprocess.Popen[bytes]] = set()
        self._close_count = 0
        """The number of calls of `close`. A child that was requested before such a call is not started after it."""
        self._lock = threading.Lock()
        self._slots = threading.BoundedSemaphore(MAX_CHILDREN)

    def run(self, module: str, request: bytes, bounds: ChildBounds, descriptors: Sequence[int] = ()) -> bytes:
        """Call `main(request)` of a module in a child, and return its reply. Blocks.

        Args:
            module: The full name of the module.
            request: The argument of `main`.
            bounds: When to end the child.
            descriptors: Open files that the child inherits under the same numbers (not on Windows).

        Raises:
            ChildRefused: `main` raised it.
            ChildStopped: there is no reply.
        """
        close_count = self._close_count
        if not self._slots.acquire(timeout=bounds.seconds):
            raise NoFreeChild("too much else is in progress")
        try:
            return self._run(module, request, bounds, descriptors, close_count)
        finally:
            self._slots.release()

    def _run(
        self, module: str, request: bytes, bounds: ChildBounds, descriptors: Sequence[int], close_count: int
    ) -> bytes:
        head = {
            # The child runs in another folder, where relative entries would have another meaning.
            "path": [os.path.abspath(entry) if os.path.exists(entry or os.curdir) else entry for entry in sys.path],
            "module": module,
            "seconds": int(bounds.seconds) + 1,
            "memory": bounds.memory,
            "output": bounds.output,
        }
        # Without this limit, each thread may have an arena, which counts as 128 MiB of memory.
        environment = {"MALLOC_ARENA_MAX": "2", "TZ": "UTC"}
        if sys.platform == "win32":
            environment = {"SYSTEMROOT": os.environ.get("SYSTEMROOT", "")}  # Windows needs it to start a program
        with tempfile.TemporaryFile() as reply:
            with self._lock:  # `close` finds the child, or keeps it from being started
                if close_count != self._close_count:
                    raise ChildClosed("its source was closed")
                child = subprocess.Popen(  # noqa: S603 - this interpreter and a script of this package
                    [sys.executable, "-I", child_main.__file__],
                    stdin=subprocess.PIPE,
                    stdout=reply,
                    stderr=subprocess.DEVNULL,
                    env=environment,
                    cwd=os.path.abspath(os.sep),
                    pass_fds=tuple(descriptors) if os.name == "posix" else (),
                    start_new_session=True,  # Ctrl-C is for this process, which then ends the child
                )
                self._running.add(child)
            try:
                child.communicate(json.dumps(head).encode() + b"\n" + request, timeout=bounds.seconds)
            except subprocess.TimeoutExpired:
                raise ChildStopped(f"it took longer than {bounds.seconds:g} s") from None
            finally:
                child.kill()
                child.wait()
                with self._lock:
                    closed = child not in self._running  # by `close`
                    self._running.discard(child)
            size = reply.seek(0, os.SEEK_END)
            reply.seek(0)
            data = reply.read() if size <= bounds.output else b""
        if child.returncode == 0 and data[:1] == child_main.REPLIED:
            return data[1:]
        if child.returncode == 0 and data[:1] == child_main.REFUSED:
            raise ChildRefused(data[1:].decode("utf-8", "replace"))
        if closed:
            raise ChildClosed("its source was closed")
        if child.returncode == child_main.OUTPUT_EXIT_CODE or size >= bounds.output:
            raise ChildStopped(f"its content takes more than {bounds.output >> 20} MiB")
        if child.returncode in (child_main.MEMORY_EXIT_CODE, *_MEMORY_SIGNALS):
            raise ChildStopped(f"it needs more than {bounds.memory >> 20} MiB of memory")
        if child.returncode in _TIME_SIGNALS:
            raise ChildStopped(f"it took longer than {bounds.seconds:g} s")
        raise ChildStopped("the process that worked on it crashed")

    def close(self) -> None:
        """Kill all children. Their callers, and those whose child has not started yet, get `ChildClosed`."""
        with self._lock:
            self._close_count += 1
            running = list(self._running)
            self._running.clear()
        for child in running:
            child.kill()


# If there is no memory, Rust's allocator aborts, and C++ code may abort or crash.
_MEMORY_SIGNALS = (-6, -11)  # SIGABRT, SIGSEGV
_TIME_SIGNALS = (-14, -24)  # SIGALRM, SIGXCPU
