"""Servers that security tests share, since hostile input must not affect later requests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.security.server_processes import FIXTURE, HttpProcess, StdioProcess


@pytest.fixture(scope="module")
def stdio() -> Iterator[StdioProcess]:
    """The fixture server over stdio, once per module."""
    with StdioProcess("run", FIXTURE) as server:
        server.call_tool("quick")
        yield server


@pytest.fixture(scope="module")
def http() -> Iterator[HttpProcess]:
    """The fixture server over HTTP, once per module."""
    with HttpProcess("run", FIXTURE) as server:
        server.call_tool("quick")
        yield server


@pytest.fixture
def charts(tmp_path: Path) -> Path:
    """A published folder beside an unpublished one, with names of every kind."""
    folder = tmp_path / "charts"
    (folder / "sub").mkdir(parents=True)
    (folder / "a.txt").write_text("a")
    (folder / "sub" / "b.txt").write_text("inside")
    Path(os.fsdecode(os.fsencode(folder) + b"/caf\xe9 \x1b[31m\n.txt")).write_text("latin")
    os.mkfifo(folder / "fifo")
    (tmp_path / "charts-evil").mkdir()
    (tmp_path / "charts-evil" / "b.txt").write_text("private")
    return folder
