"""Measures what an input costs a process, and whether the cost grows faster than the input."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from tests.security.server_processes import MIB, ServerProcess

__all__ = ["STEPS", "Cost", "check_growth", "cost_of", "cost_of_command"]

STEPS = (1, 10, 100)
"""Each input is sent at these multiples of its smallest size."""
NOISE_SECONDS = 0.05
"""Smaller differences are rounded up to this one, since the noise of the machine is larger."""
SLACK = 4
"""Tolerance for noise: cost may grow this much faster than the input. Quadratic cost grows 10 times faster per step."""
FIXED_BYTES = 32 * MIB
"""The memory that work of any size may need."""
MESSAGE_BYTES = 4 * MIB
"""The largest message that a server keeps."""
BYTES_PER_BYTE = 24
"""The most memory that a byte of JSON can need: `{},` becomes a dictionary of 64 bytes and a pointer to it."""
TRIES = 3
COMMAND_SECONDS = 60.0
"""The limit of a command's processor time."""
LAUNCHER = f"""
import json, os, resource, sys
resource.setrlimit(resource.RLIMIT_CPU, ({int(COMMAND_SECONDS)}, {int(COMMAND_SECONDS)}))
report, *command = sys.argv[1:]
pid = os.posix_spawnp(command[0], command, os.environ)
_, status, usage = os.wait4(pid, 0)
seconds, peak = usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024
os.write(int(report), json.dumps([os.waitstatus_to_exitcode(status), seconds, peak]).encode())
"""
"""Runs a command in a child, with a limit of processor time, and reports its exit code, seconds and peak of memory.

The peak of a process includes the memory of the process that started it, up to `exec`: this one is small.
"""


class Cost(NamedTuple):
    """Processor time in seconds, and memory in bytes beyond the memory in use before."""

    seconds: float
    memory: int


def cost_of(process: ServerProcess, work: Callable[[], object]) -> Cost:
    """Measure the processor time and the memory that `work` costs the process."""
    clock = (~process.process.pid << 3) | 2  # clock_getcpuclockid(3)
    base, before = process.reset_peak(), time.clock_gettime(clock)
    work()
    return Cost(time.clock_gettime(clock) - before, process.peak - base)


def cost_of_command(command: Sequence[str], cwd: Path, stdin: bytes = b"", answer: bytes = b"") -> Cost:
    """Measure a command from its start to its end, with all of its memory.

    Its input stays open until it has printed a line that contains `answer`. Its processor time is limited, so that an
    endless loop fails. A command that refuses its arguments (exit code 2) fails too, since it has done nothing.
    """
    report_reader, report_writer = os.pipe()
    with (
        open(report_reader) as report,
        tempfile.TemporaryFile() as errors,
        subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", LAUNCHER, str(report_writer), *command],
            cwd=cwd,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            pass_fds=[report_writer],
        ) as process,
    ):
        os.close(report_writer)
        assert process.stdin is not None and process.stdout is not None
        with suppress(BrokenPipeError):
            process.stdin.write(stdin)
            process.stdin.flush()
        answer_seen = not answer or any(answer in line for line in process.stdout)
        with suppress(BrokenPipeError):
            process.stdin.close()
        while process.stdout.read(MIB):
            pass
        exit_code, seconds, peak = json.loads(report.read())
        errors.seek(0)
        message = errors.read()[-2000:]
    assert answer_seen and exit_code >= 0 and exit_code != 2, (exit_code, seconds, message)
    return Cost(seconds, peak)


def check_growth(
    measure: Callable[[int], Cost], size: int, *, max_kept_bytes: int = MESSAGE_BYTES, base_bytes: int = 0
) -> None:
    """Fail if time grows faster than the argument of `measure`, or memory exceeds what `max_kept_bytes` of input need.

    It passes if one of several tries does, since other processes can only increase a cost.
    """
    for _ in range(TRIES):
        small, medium, large = (measure(size * step) for step in STEPS)
        allowed = 10 * SLACK * max(medium.seconds - small.seconds, NOISE_SECONDS)
        if (
            large.seconds - small.seconds <= allowed
            and large.memory <= base_bytes + FIXED_BYTES + BYTES_PER_BYTE * max_kept_bytes
        ):
            return
    raise AssertionError(f"cost grows faster than the input: {small}, {medium}, {large} at sizes 1, 10 and 100")
