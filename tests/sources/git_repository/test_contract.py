"""A git repository keeps the contract of a source."""

from __future__ import annotations

import pytest

from tests.sources.git_repository.conftest import GitRepository
from wharfinger.source import Source
from wharfinger.sources.git_repository import GitSource, git
from wharfinger.testing.contract import SourceContract


class TestGit(SourceContract):
    missing = "git://repo/tree/main/none"
    windowed = "git://repo/tree/main/large.txt"

    @pytest.fixture
    def source(self, history: GitRepository) -> GitSource:
        history.commit("Measure depths", large__txt="".join(f"{number} fathoms\n" for number in range(40_000)))
        self.work = history
        self.number = 0
        return git(history.path, label="repo", max_size=300_000)

    def change(self, source: Source) -> str | None:
        self.number += 1
        self.work.commit(f"Deepen {self.number}", hull__txt=f"{self.number} fathoms\n")
        return "git://repo/tree/main/hull.txt"

    def add(self, source: Source) -> str | None:
        self.number += 1
        self.work.write(f"new/berth{self.number}.txt", "here\n")
        self.work.commit(f"Add a berth {self.number}")
        return f"git://repo/tree/HEAD/new/berth{self.number}.txt"
