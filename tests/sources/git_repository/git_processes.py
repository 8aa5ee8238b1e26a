"""The git processes that a source has started, as Linux reports them in /proc."""

from __future__ import annotations

import os
from pathlib import Path


def git_processes(parent: int | None = None) -> dict[int, str]:
    """Return the ids and command lines of the git processes that this or another process has started."""
    found: dict[int, str] = {}
    for children in Path("/proc", str(parent or os.getpid()), "task").glob("*/children"):
        try:
            pids = children.read_text().split()
        except OSError:
            continue
        for pid in pids:
            command = command_of(int(pid))
            if os.path.basename(command.split(" ")[0]) == "git":
                found[int(pid)] = command
    return found


def command_of(pid: int) -> str:
    """Return the command line of a process, or an empty string if it has ended."""
    try:
        return Path("/proc", str(pid), "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""
