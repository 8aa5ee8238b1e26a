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
"""The time between two checks of the files. The child is started after the first check."""
STOP_SECONDS = 5.0
"""The maximum wait for the child to stop. By default, the child's own limit (`drain`) is shorter."""
HANGUP: signal.Signals | None = None if sys.platform == "win32" else signal.SIGHUP
HANGUP_EXIT_CODE = 129
"""The exit code that a shell reports for a process that SIGHUP has ended."""


def keep_running(place: str, variables: Mapping[str, str]) -> int:
    """Run this command line in a child process until a signal, with `variables` added to its environment.

    The child is restarted when a Python file changes, even if the child has failed. The files are those below the
    folder of `place` or, if `place` names a module, below the current folder. SIGHUP is passed on to the child: a
    server with a policy or certificate reads them again, any other server ends.

    Returns:
        The exit code, the same as without `--reload`: 130 after Ctrl-C, 0 after SIGTERM, and 129 if SIGHUP ended the
        child or arrived after its end.

    Raises:
        MissingExtra: watchfiles is not installed.
    """
    try:
        from watchfiles import PythonFilter, watch
    except ImportError:
        from wharfinger.errors import MissingExtra

        raise MissingExtra("fast", "--reload") from None
    file = source_file(place)
    folder = Path(file).parent if file else Path.cwd()
    child: subprocess.Popen[bytes] | None = None
    received: set[int] = set()
    handled = (signal.SIGTERM,) if HANGUP is None else (signal.SIGTERM, HANGUP)
    handlers = {number: signal.getsignal(number) for number in handled}
    for number, handler in handlers.items():
        if handler is not signal.SIG_IGN:  # `nohup` ignores SIGHUP, and the child inherits that
            signal.signal(number, lambda number, _: received.add(number))
    watching = watch(
        folder,
        watch_filter=PythonFilter(),
        rust_timeout=WATCH_MILLISECONDS,
        yield_on_timeout=True,
        raise_interrupt=True,
    )
    try:
        for changes in watching:
            if signal.SIGTERM in received:
                return 0
            if child is None:  # the watch has begun: no change after the child has read the files is missed
                child = start(variables)
                continue
            if HANGUP is not None:
                if HANGUP in received:
                    received.remove(HANGUP)
                    if child.poll() is not None:  # perhaps the terminal was closed while the server had failed
                        return HANGUP_EXIT_CODE
                    child.send_signal(HANGUP)
                if child.poll() == -HANGUP:
                    return HANGUP_EXIT_CODE
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
    """Start the child. Ctrl-C at the terminal reaches it directly."""
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
