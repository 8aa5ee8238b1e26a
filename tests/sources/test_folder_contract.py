"""A folder keeps the contract of a source."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from wharfinger.sources.folder.source import Folder, files
from wharfinger.testing import SourceContract

LINES = "".join(f"2026-07-01T{number % 24:02}:00 {number} höhe\n" for number in range(20_000))


class TestFolder(SourceContract):
    missing = "file:///charts/none"
    windowed = "file:///charts/tides.log"
    secret = "hunter2"

    @pytest.fixture
    def source(self, charts: Path) -> Iterator[Folder]:
        (charts / "tides.log").write_text(LINES)
        (charts / ".env").write_text("PASSWORD=hunter2")
        (charts / "a b?#%.txt").write_text("odd")
        source = files(charts, max_size=100_000)
        yield source
        source._watches.join()

    def whole(self, source: Folder) -> str:
        return LINES

    def change(self, source: Folder) -> str:
        path = Path(source.root, "README.md")
        path.write_text(path.read_text() + "More.\n")
        return f"{source.uri}/README.md"

    def add(self, source: Folder) -> str:
        path = Path(source.root, "harbours", "north", f"light-{len(list(Path(source.root).rglob('*')))}.txt")
        path.write_text("lit")
        return f"{source.uri}/harbours/north/{path.name}"

    def hide(self, source: Folder) -> Callable[[], object]:
        root = Path(source.root)
        away = root.rename(root.with_name("away"))
        return lambda: away.rename(root)


class TestFolderThatIsPolled(TestFolder):
    @pytest.fixture
    def source(self, charts: Path) -> Iterator[Folder]:
        (charts / "tides.log").write_text(LINES)
        source = files(charts, max_size=100_000, poll=0.02)
        yield source
        source._watches.join()
