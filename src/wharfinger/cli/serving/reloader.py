"""`--reload`: runs the same command line in a child process, and restarts it when a Python file changes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import click

from wharfinger.cli.error_report import CTRL_C_EXIT_CODE
from wharfinger.cli.serving.server_loader import source_file

__all__ = ["keep_running"]

WATCH_MILLISECONDS = 100
"""Time from the start of the watch to that of the child, and between looks at the files."""
STOP_SECONDS = 5.0
"""Longest wait for the child to stop; its own limit is shorter."""
ENDING_SIGNALS = {signal.SIGTERM: 0} if sys.platform == "win32" else {signal.SIGTERM: 0, signal.SIGHUP: 129}
"""Signals that end the child too, with the exit code."""


def keep_running(place: str, variables: Mapping[str, str]) -> int:
    """Run this command line in a child process until a signal, with `variables` added to its environment.

    The child is restarted when a Python file below the folder of `place` changes, even if it has failed.

    Returns:
        The exit code: 130 after Ctrl-C, 0 after SIGTERM, as without `--reload`, and 129 after SIGHUP.
    """
    try:
        from watchfiles import PythonFilter, watch
    except ImportError:
        from wharfinger.errors import MissingExtra

        raise MissingExtra("fast", "--reload") from None
    file = source_file(place)
    folder = Path(file).parent if file else Path.cwd()
    child: subprocess.Popen[bytes] | None = None
    exit_codes: list[int] = []
    handlers = {number: signal.getsignal(number) for number in ENDING_SIGNALS}
    for number, handler in handlers.items():
        if handler is not signal.SIG_IGN:  # nohup
            signal.signal(number, lambda received, _: exit_codes.append(ENDING_SIGNALS[signal.Signals(received)]))
    watching = watch(
        folder,
        watch_filter=PythonFilter(),
        rust_timeout=WATCH_MILLISECONDS,
        yield_on_timeout=True,
        raise_interrupt=True,
    )
    try:
        for changes in watching:
            if exit_codes:
                return exit_codes[0]
            if child is None:  # the watch has begun: no change after the child has read the files is missed
                child = start(variables)
                continue
            if not changes:
                continue
            names = ", ".join(sorted({Path(path).name for _, path in changes}))
            click.echo(f"Changed: {names}. Restarting.", err=True)
            end(child)
            child = start(variables)
    except KeyboardInterrupt:
        return CTRL_C_EXIT_CODE
    finally:
        if child is not None:
            end(child)
        for number, handler in handlers.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
    return 0


def start(variables: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start the child, which receives Ctrl-C as well."""
    command = [sys.executable, "-m", "wharfinger", *sys.argv[1:]]
    return subprocess.Popen(command, env={**os.environ, **variables})


def end(child: subprocess.Popen[bytes]) -> None:
    """Stop the child, by force if it takes too long."""
    if child.poll() is None:
        child.terminate()
    try:
        child.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
