"""The contract of a source, over the journal."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.sources.systemd_journal.conftest import NOON, WrittenJournal
from wharfinger.sources.systemd_journal import Journal, journal
from wharfinger.testing import SourceContract


class TestJournal(SourceContract):
    missing = "journal://boats/none.service"
    windowed = f"journal://boats/large.service?since={NOON}&until={NOON + 9_000}"
    secret = "hunter2"

    @pytest.fixture
    def source(self, journal_files: WrittenJournal) -> Iterator[Journal]:
        self.journal_files = journal_files
        journal_files.write("a boat came", "it sank", PRIORITY=3)
        journal_files.write("password=hunter2", _SYSTEMD_UNIT="login.service")
        journal_files.write(*[f"line {number}" for number in range(2_000)], _SYSTEMD_UNIT="large.service")
        journal_files.write("Linux", _SYSTEMD_UNIT="", _TRANSPORT="kernel", SYSLOG_IDENTIFIER="kernel", _PID="")
        yield journal(directory=journal_files.folder, label="boats")

    def change(self, source: Any) -> str | None:
        self.journal_files.write("another boat came")
        return "journal://boats/nginx.service"

    def add(self, source: Any) -> str | None:
        name = f"new-{os.urandom(4).hex()}.service"
        self.journal_files.write("new", _SYSTEMD_UNIT=name)
        return f"journal://boats/{name}"

    def whole(self, source: Any) -> str | bytes | None:
        unit = ("--unit=large.service", "--output=cat")
        lines = self.journal_files.read(*unit).decode().splitlines()
        text = "".join([self.line(number, line) for number, line in enumerate(lines)])
        assert len(lines) == 2_000
        return text

    def line(self, number: int, message: str) -> str:
        seconds = 3 + number
        clock = f"12:{seconds // 60:02}:{seconds % 60:02}"
        return f"2026-11-18T{clock}.000Z INFO nginx[7]: {message}\n"

    def hide(self, source: Any) -> Callable[[], object]:
        path = Path(self.journal_files.folder)
        moved = path.rename(path.with_name("away"))
        return lambda: moved.rename(path)
