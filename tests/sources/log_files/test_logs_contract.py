"""The contract of a source, over logs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from wharfinger.sources.log_files import Logs, logs
from wharfinger.testing import SourceContract


class TestLogs(SourceContract):
    missing = "log://boats/none.log"
    windowed = "log://boats/large.log?bytes=0-"
    secret = "hunter2"

    @pytest.fixture
    def source(self, tmp_path: Path) -> Iterator[Logs]:
        self.path = tmp_path
        (tmp_path / "app.log").write_text("2026-11-20T10:00:00Z INFO a boat came\n2026-11-20T10:00:01Z ERROR it sank\n")
        (tmp_path / "login.log").write_text("2026-11-20T10:00:00Z INFO password=hunter2\n")
        (tmp_path / "empty.log").write_bytes(b"")
        (tmp_path / "large.log").write_text("".join([f"2026-11-20T10:00:00Z INFO line {n}\n" for n in range(20_000)]))
        (tmp_path / "not.txt").write_text("not published")
        (tmp_path / "link.log").symlink_to(tmp_path / "not.txt")
        yield logs(tmp_path / "*.log", label="boats")

    def change(self, source: Any) -> str | None:
        with (self.path / "app.log").open("a") as file:
            file.write("2026-11-20T10:00:02Z INFO another boat came\n")
        return "log://boats/app.log"

    def add(self, source: Any) -> str | None:
        number = len(list(self.path.iterdir()))
        (self.path / f"new-{number}.log").write_text("2026-11-20T10:00:00Z INFO new\n")
        return f"log://boats/new-{number}.log"

    def whole(self, source: Any) -> str | bytes | None:
        return (self.path / "large.log").read_text()
