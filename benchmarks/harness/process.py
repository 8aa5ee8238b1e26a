"""A process under test: started alone on its core, its CPU and memory read from Linux, always ended by its own pid."""

from __future__ import annotations

import atexit
import os
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from .environments import LOGS

CORES = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [0]
DRIVER_CORE, SERVER_CORE = CORES[0], CORES[-1]
PRIORITY = -15
"""Nice value of driver and servers alike, where the user may set it: against other work on the machine."""


def settle(core: int) -> None:
    """Keep the calling process on one core, ahead of what else runs there."""
    os.sched_setaffinity(0, {core})
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, PRIORITY)


def settle_driver() -> None:
    """The same for the driver; where Linux groups processes by terminal session, its group is put ahead until exit."""
    settle(DRIVER_CORE)
    _group_priority(PRIORITY)
    atexit.register(_group_priority, 0)


def _group_priority(nice: int) -> None:
    with suppress(OSError):
        Path("/proc/self/autogroup").write_text(str(nice))


def environment() -> dict[str, str]:
    """Nothing of the shell's tuning (PYTHON*, NODE_*, proxies) reaches a process under test."""
    kept = {key: os.environ[key] for key in ("PATH", "HOME", "LANG", "TMPDIR") if key in os.environ}
    return {**kept, "NO_COLOR": "1"}


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


class Process:
    """A server process. With `pipes` its stdin and stdout are ours; its stderr always goes to a log file."""

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
        """Seconds since just before it was spawned."""
        return time.perf_counter() - self.spawned

    def alive(self) -> bool:
        return self.popen.poll() is None

    def cpu(self) -> float:
        """CPU seconds used by all its threads, from its nanosecond clock (clock_getcpuclockid(3))."""
        return time.clock_gettime((~self.pid << 3) | 2)

    def rss(self) -> float:
        """Resident MiB."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20

    def last_words(self) -> str:
        return self.log.read_bytes()[-600:].decode("utf-8", "replace").strip()

    def end(self) -> None:
        """Ask politely (close its stdin, or SIGTERM), then insist; 8 s at most."""
        if self.popen.stdin:
            with suppress(OSError):
                self.popen.stdin.close()
        else:
            self.popen.terminate()
        for insist in (signal.SIGTERM, signal.SIGKILL):
            try:
                self.popen.wait(4)
                break
            except subprocess.TimeoutExpired:
                self.popen.send_signal(insist)
        self.popen.wait(5)
        if self.popen.stdout:
            self.popen.stdout.close()
