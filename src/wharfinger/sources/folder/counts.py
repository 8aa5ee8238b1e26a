"""Counts the published files and the withheld entries of a folder within a limited time."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import NamedTuple

from wharfinger.content.text import many, size_text
from wharfinger.sources.folder.ignore import Verdict
from wharfinger.sources.folder.safe_open import NotServed, stat_entry
from wharfinger.sources.folder.tree import FileTree

__all__ = ["Count", "count"]


class Count(NamedTuple):
    """How much of a folder is published, and how many entries are withheld for each reason.

    A withheld directory counts as one entry. `complete` is False if the time ran out.
    """

    files: int
    directories: int
    size: int
    withheld: dict[Verdict, int]
    complete: bool

    def __str__(self) -> str:
        amount = f"{'' if self.complete else 'more than '}{many(self.files, 'file')}, {size_text(self.size)}"
        reasons = [
            f"{self.withheld[verdict]:,} {words}" for verdict, words in _WITHHELD.items() if self.withheld.get(verdict)
        ]
        return f"{amount} ({', '.join(reasons)})" if reasons else amount


_WITHHELD: Mapping[Verdict, str] = {
    "ignored": "ignored by .gitignore",
    "hidden": "hidden",
    "secret": "credential-like",
    "excluded": "excluded",
}


def count(tree: FileTree, seconds: float) -> Count:
    """Count the published files and the withheld entries, for at most about this many seconds."""
    deadline = time.monotonic() + seconds
    files = directories = size = 0
    complete = True
    withheld: dict[Verdict, int] = {}
    entries = tree.walk()
    try:
        for number, entry in enumerate(entries, 1):
            if number % 256 == 0 and time.monotonic() > deadline:
                complete = False
                break
            if entry.is_directory:
                directories += 1
                for verdict, amount in entry.listing.withheld.items():
                    withheld[verdict] = withheld.get(verdict, 0) + amount
                continue
            try:
                size += stat_entry(entry.handle, entry.name).st_size
            except (OSError, NotServed):
                continue
            files += 1
    finally:
        entries.close()
    return Count(files, directories, size, withheld, complete)
