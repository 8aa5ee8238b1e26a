"""Counts the published and withheld files of a folder within a limited time."""

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
    """The numbers of published and withheld files of a folder; `complete` is False if the time ran out."""

    files: int
    directories: int
    size: int
    withheld: dict[Verdict, int]
    complete: bool

    def __str__(self) -> str:
        amount = f"{'' if self.complete else 'more than '}{many(self.files, 'file')}, {size_text(self.size)}"
        reasons = [f"{self.withheld[why]:,} {words}" for why, words in _WITHHELD.items() if self.withheld.get(why)]
        return f"{amount} ({', '.join(reasons)})" if reasons else amount


_WITHHELD: Mapping[Verdict, str] = {
    "ignored": "ignored by .gitignore",
    "hidden": "hidden",
    "secret": "credential-like",
    "excluded": "excluded",
}


def count(tree: FileTree, seconds: float) -> Count:
    """Count the published and withheld files, for at most about this many seconds."""
    ends = time.monotonic() + seconds
    number = directories = size = 0
    complete = True
    withheld: dict[Verdict, int] = {}
    entries = tree.walk()
    try:
        for entry in entries:
            if entry.is_directory:
                directories += 1
                for why, amount in entry.listing.withheld.items():
                    withheld[why] = withheld.get(why, 0) + amount
                continue
            try:
                size += stat_entry(entry.handle, entry.name).st_size
            except (OSError, NotServed):
                continue
            number += 1
            if number % 256 == 0 and time.monotonic() > ends:
                complete = False
                break
    finally:
        entries.close()
    return Count(number, directories, size, withheld, complete)
