"""The source of the tables in a folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from wharfinger.sources.table_files import Tables, tables


@pytest.fixture
def source(folder: Path) -> Iterator[Tables]:
    """Publish the tables in `folder`, which each test module defines."""
    published = tables(folder)
    yield published
    published._watches.close()
    published._watches.join()
