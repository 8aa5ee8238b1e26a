"""`--reload`: the same command line in a child process, started anew when a Python file below the folder changes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import click

from wharfinger.cli.failures import CTRL_C
from wharfinger.cli.loading import source_file

__all__ = ["keep_running"]

PATIENCE = 5.0
"""Seconds that the old process gets to end; its own limit is shorter."""


def keep_running(place: str, marks: Mapping[str, str]) -> int:
    """Run this very command line in a child with `marks` in its environment, until Ctrl-C.

    A child that has failed is started anew by the next change, too.
    """
    try:
        from watchfiles import PythonFilter, watch
    except ImportError:
        from wharfinger.errors import MissingExtra

        raise MissingExtra("fast", "--reload") from None
    file = source_file(place)
    folder = Path(file).parent if file else Path.cwd()
    child = start(marks)
    try:
        for changes in watch(folder, watch_filter=PythonFilter(), raise_interrupt=True):
            names = ", ".join(sorted({Path(path).name for _, path in changes}))
            click.echo(f"Changed: {names}. Starting again.", err=True)
            end(child)
            child = start(marks)
    except KeyboardInterrupt:
        return CTRL_C
    finally:
        end(child)
    return 0


def start(marks: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start the child; it hears the same Ctrl-C as we do."""
    command = [sys.executable, "-m", "wharfinger", *sys.argv[1:]]
    return subprocess.Popen(command, env={**os.environ, **marks})


def end(child: subprocess.Popen[bytes]) -> None:
    """End the child in good order, and for certain."""
    if child.poll() is None:
        child.terminate()
    try:
        child.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
