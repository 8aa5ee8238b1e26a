"""From words to hits: candidates of the index are read as they are now, ranked, and shown by a line.

Ranking, in this order: documents that have more of the words in their name, those whose name fits better, those
in whose text the words occur more often, those that changed last.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from wharfinger.content.match_lines import LineMatch, look
from wharfinger.errors import InternalError
from wharfinger.server.document_search import SourceReader, hit_of, name_rank
from wharfinger.server.search import not_searched
from wharfinger.source import Hit, Hits, Source
from wharfinger.sources.search.index_store import TEXT, Filters, IndexRow, IndexStore

__all__ = ["find"]

CANDIDATES = 20_000
"""Documents that one search may consider."""
SECONDS = 2.0
"""How long one search may read documents."""
RANKED = 3
"""So many times the wanted hits are read before the best are taken."""
LARGE_LINES, LARGE = 2_000, 1 << 18
"""A hit after this number of lines or characters links to a window around it."""
BEFORE, AFTER = 20, 180
"""Lines of such a window around the hit."""


class Verified(NamedTuple):
    """A document that fits as it is now."""

    row: IndexRow
    named: int
    match: LineMatch | None

    @property
    def score(self) -> float:
        """How often the words occur in the text; further occurrences count less and less."""
        return 0.0 if self.match is None else sum(math.log2(1 + count) for count in self.match.counts)


def find(
    store: IndexStore,
    sources: Mapping[str, Source],
    reader: SourceReader,
    words: Sequence[str],
    filters: Filters,
    limit: int,
) -> Hits:
    """Return at most `limit` hits, best first. Blocks.

    Raises:
        sqlite3.DatabaseError: the index is damaged.
    """
    most = max(CANDIDATES, limit)
    rows = store.find(words, filters, most)
    rows.sort(key=lambda row: (*name_rank(row.name, words), -row.changed))
    ends = time.monotonic() + SECONDS
    verified: list[Verified] = []
    hits = Hits()
    looked_at = 0
    down: dict[str, Source] = {}
    for row in rows:
        if len(verified) >= RANKED * limit or time.monotonic() > ends:
            break
        looked_at += 1
        source = sources.get(row.source)
        if source is None or row.source in down:
            continue
        try:
            fitting = _verify(source, reader, row, words, ends)
        except (InternalError, OSError):  # one that is down hides nothing of the others
            down[row.source] = source
            continue
        if fitting is not None:
            verified.append(fitting)
    verified.sort(key=lambda one: (*name_rank(one.row.name, words), -one.score, -one.row.changed))
    hits += [_hit(sources[one.row.source], reader, one) for one in verified[:limit]]
    if time.monotonic() > ends:
        left = len(rows) - looked_at
        hits.truncated = f"The search took its {SECONDS:g} s: {left:,} documents that may match too were not read."
    if len(rows) >= most:
        hits.truncated = hits.truncated or f"More than {most:,} documents may fit: narrow the search."
    if down:
        hits.truncated = not_searched(down.values())
    return hits


def _verify(source: Source, reader: SourceReader, row: IndexRow, words: Sequence[str], ends: float) -> Verified | None:
    rest = [word for word in words if word not in row.name]
    if not rest:
        return None if reader.document(source, row.uri) is None else Verified(row, len(words), None)
    match = look(_within(reader.text(source, row.uri), ends), rest)
    return None if match is None else Verified(row, len(words) - len(rest), match)


def _within(pieces: Iterable[str], ends: float) -> Iterator[str]:
    """The pieces of a text that may be read: as much as is indexed, and until the time is over."""
    left = TEXT
    for piece in pieces:
        yield piece
        left -= len(piece)
        if left <= 0 or time.monotonic() > ends:
            return


def _hit(source: Source, reader: SourceReader, found: Verified) -> Hit:
    row, seen = found.row, found.match
    uri = row.uri
    if seen is not None and (seen.line > LARGE_LINES or seen.offset > LARGE):
        window = f"{uri}?lines={max(1, seen.line - BEFORE)}-{seen.line + AFTER}"
        if "?" not in uri and source.matches(window) and reader.exists(source, window):
            uri = window
    return hit_of(uri, row.title, row.kind, "" if seen is None else seen.snippet)
