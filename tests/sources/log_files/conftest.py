"""Logs of boats, and a source that publishes them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from wharfinger.sources.log_files import Logs, logs

__all__ = ["append", "source"]


@pytest.fixture
def source(tmp_path: Path) -> Iterator[Logs]:
    """Return a source of the logs in `tmp_path`, with the label `boats`."""
    source = logs(tmp_path / "*.log", label="boats", timezone="UTC")
    yield source
    source._watches.close()
    source._watches.join()


def append(path: Path, data: bytes) -> None:
    """Append bytes to a file."""
    with path.open("ab") as file:
        file.write(data)
