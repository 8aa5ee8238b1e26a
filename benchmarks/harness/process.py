"""A process under test: alone on its core, with its CPU time and memory as Linux reports them."""

from __future__ import annotations

import atexit
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from .environments import LOGS

CORES = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [0]
DRIVER_CORE, SERVER_CORE = CORES[0], CORES[-1]
PRIORITY = -15
"""The nice value of driver and servers, if the user may set it: other work on the machine disturbs them less."""


def settle(core: int) -> None:
    """Keep the calling process on one core, with priority over other processes there."""
    os.sched_setaffinity(0, {core})
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, PRIORITY)


def settle_driver() -> None:
    """Call `settle` for the driver. Where Linux groups processes by session, raise the priority of its group too."""
    settle(DRIVER_CORE)
    _group_priority(PRIORITY)
    atexit.register(_group_priority, 0)


def _group_priority(nice: int) -> None:
    with suppress(OSError):
        Path("/proc/self/autogroup").write_text(str(nice))


def environment() -> dict[str, str]:
    """Return the environment of a process under test, without the shell's settings (PYTHON*, NODE_*, proxies)."""
    kept = {key: os.environ[key] for key in ("PATH", "HOME", "LANG", "TMPDIR") if key in os.environ}
    return {**kept, "NO_COLOR": "1"}


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@contextmanager
def serve(*words: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run `wharfinger serve` with these arguments over HTTP, without a search index.

    Yields the process and its MCP URL.

    Raises:
        SystemExit: it has not started.
    """
    command = [sys.executable, "-m", "wharfinger", "serve", *words, "--no-search", "--http", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            for line in process.stdout:
                if found := re.search(r"MCP  (http://\S+/mcp)", line):
                    threading.Thread(target=process.stdout.read, daemon=True).start()
                    yield process, found[1]
                    break
            else:
                raise SystemExit(f"{' '.join(command)} did not start")
        finally:
            process.terminate()


class Process:
    """A server process. With `pipes`, the driver has its stdin and stdout; its stderr always goes to a log file."""

    def __init__(self, argv: Sequence[str], name: str, *, pipes: bool) -> None:
        LOGS.mkdir(parents=True, exist_ok=True)
        self.log = LOGS / f"{name}.log"
        with self.log.open("wb") as log:
            self.spawned = time.perf_counter()
            self.popen = subprocess.Popen(
                argv,
                stdin=subprocess.PIPE if pipes else subprocess.DEVNULL,
                stdout=subprocess.PIPE if pipes else log,
                stderr=log,
                env=environment(),
                bufsize=0,
                preexec_fn=lambda: settle(SERVER_CORE),
            )
        self.pid = self.popen.pid

    def age(self) -> float:
        """Return the seconds since it was spawned."""
        return time.perf_counter() - self.spawned

    def alive(self) -> bool:
        return self.popen.poll() is None

    def cpu(self) -> float:
        """Return the CPU seconds used by all its threads, from its nanosecond clock (clock_getcpuclockid(3))."""
        return time.clock_gettime((~self.pid << 3) | 2)

    def rss(self) -> float:
        """Return its resident memory in MiB."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20

    def log_tail(self) -> str:
        return self.log.read_bytes()[-600:].decode("utf-8", "replace").strip()

    def end(self) -> None:
        """Close its stdin or send SIGTERM. If it does not exit, send SIGTERM after 4 s and SIGKILL after 8 s."""
        if self.popen.stdin:
            with suppress(OSError):
                self.popen.stdin.close()
        else:
            self.popen.terminate()
        for next_signal in (signal.SIGTERM, signal.SIGKILL):
            try:
                self.popen.wait(4)
                break
            except subprocess.TimeoutExpired:
                self.popen.send_signal(next_signal)
        self.popen.wait(5)
        if self.popen.stdout:
            self.popen.stdout.close()
