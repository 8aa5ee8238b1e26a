"""Measures what an input costs a process, and whether the cost grows faster than the input."""

from __future__ import annotations

import os
import resource
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from tests.security.places import MIB, Process

__all__ = ["STEPS", "Cost", "check_growth", "cost_of", "cost_of_command"]

STEPS = (1, 10, 100)
"""Each input is sent at these multiples of its smallest size."""
NOISE_SECONDS = 0.05
"""What a smaller cost is taken for: below it, the machine's noise is larger than what is measured."""
SLACK = 4
"""How much faster than the input the cost may seem to grow: quadratic cost grows ten times faster with each step."""
FIXED_BYTES = 32 * MIB
MESSAGE_BYTES = 4 * MIB
"""The limit of a message; more is never kept, whatever is sent."""
BYTES_PER_BYTE = 24
"""Python's smallest objects that JSON can ask for: `{},` becomes a dictionary of 64 bytes and a pointer to it."""
TRIES = 3
COMMAND_SECONDS = 60.0
"""Of a processor, after which a command is ended."""


class Cost(NamedTuple):
    """Processor time in seconds, and memory in bytes beyond the memory in use before."""

    seconds: float
    memory: int


def cost_of(process: Process, work: Callable[[], object]) -> Cost:
    """Measure what `work` costs the process, by its own clock and its own peak of memory."""
    clock = (~process.process.pid << 3) | 2  # clock_getcpuclockid(3)
    base, before = process.forget_peak(), time.clock_gettime(clock)
    work()
    return Cost(time.clock_gettime(clock) - before, process.peak - base)


def cost_of_command(command: Sequence[str], cwd: Path, stdin: bytes = b"", answered: bytes = b"") -> Cost:
    """What a command costs from its start to its end; its memory counts from zero.

    Its input stays open until a line with `answered` in it has come. Its processor time is limited, so that what would
    never end fails.
    """
    limit = int(COMMAND_SECONDS)
    with (
        tempfile.TemporaryFile() as errors,
        subprocess.Popen(
            command,
            cwd=cwd,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (limit, limit)),
        ) as process,
    ):
        assert process.stdin is not None and process.stdout is not None
        with suppress(BrokenPipeError):
            process.stdin.write(stdin)
            process.stdin.flush()
        came = not answered or any(answered in line for line in process.stdout)
        with suppress(BrokenPipeError):
            process.stdin.close()
        while process.stdout.read(MIB):
            pass
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        errors.seek(0)
        message = errors.read()[-2000:]
    assert came and process.returncode >= 0, (process.returncode, usage.ru_utime, message)
    return Cost(usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024)


def check_growth(measure: Callable[[int], Cost], size: int, *, kept: int = MESSAGE_BYTES, base: int = 0) -> None:
    """Fail if cost grows faster than the argument of `measure`, or memory beyond what an input of `kept` bytes needs.

    A cost is the least of several tries, since what disturbs a machine only ever adds.
    """
    for _ in range(TRIES):
        small, medium, large = (measure(size * step) for step in STEPS)
        allowed = 10 * SLACK * max(medium.seconds - small.seconds, NOISE_SECONDS)
        if large.seconds - small.seconds <= allowed and large.memory <= base + FIXED_BYTES + BYTES_PER_BYTE * kept:
            return
    raise AssertionError(f"cost grows faster than the input: {small}, {medium}, {large} at sizes 1, 10 and 100")
