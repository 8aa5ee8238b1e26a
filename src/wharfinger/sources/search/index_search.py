"""From words to hits: what the index takes for possible is looked at as it is now, ranked, and shown by a line.

Ranking, first things first: documents that have more of the words in their name, those whose name fits better, those
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
"""How long one search may look into documents."""
RANKED = 3
"""Times as many as are wanted are looked at before the best are taken."""
LARGE_LINES, LARGE = 2_000, 1 << 18
"""Lines and characters behind which a hit is shown by a window of its own."""
BEFORE, AFTER = 20, 180
"""Lines of such a window around the hit."""


class Verified(NamedTuple):
    """A document that fits as it is now."""

    row: IndexRow
    named: int
    sighting: LineMatch | None


def find(
    store: IndexStore,
    sources: Mapping[str, Source],
    reader: SourceReader,
    words: Sequence[str],
    filters: Filters,
    limit: int,
) -> Hits:
    """At most so many hits, best first; blocks.

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
    verified.sort(key=lambda one: (*name_rank(one.row.name, words), -_score(one.sighting), -one.row.changed))
    hits += [_hit(sources[one.row.source], reader, one) for one in verified[:limit]]
    if time.monotonic() > ends:
        left = len(rows) - looked_at
        hits.truncated = (
            f"The search took its {SECONDS:g} s: {left:,} documents that may fit as well were not looked at."
        )
    if len(rows) >= most:
        hits.truncated = hits.truncated or f"More than {most:,} documents may fit: narrow the search."
    if down:
        hits.truncated = not_searched(down.values())
    return hits


def _verify(source: Source, reader: SourceReader, row: IndexRow, words: Sequence[str], ends: float) -> Verified | None:
    rest = [word for word in words if word not in row.name]
    if not rest:
        return None if reader.document(source, row.uri) is None else Verified(row, len(words), None)
    sighting = look(_within(reader.text(source, row.uri), ends), rest)
    return None if sighting is None else Verified(row, len(words) - len(rest), sighting)


def _within(pieces: Iterable[str], ends: float) -> Iterator[str]:
    """What of a text may be looked at: as much as is indexed, and not for longer."""
    left = TEXT
    for piece in pieces:
        yield piece
        left -= len(piece)
        if left <= 0 or time.monotonic() > ends:
            return


def _score(sighting: LineMatch | None) -> float:
    return 0.0 if sighting is None else sum(math.log2(1 + count) for count in sighting.counts)


def _hit(source: Source, reader: SourceReader, found: Verified) -> Hit:
    row, seen = found.row, found.sighting
    uri = row.uri
    if seen is not None and (seen.line > LARGE_LINES or seen.offset > LARGE):
        window = f"{uri}?lines={max(1, seen.line - BEFORE)}-{seen.line + AFTER}"
        if "?" not in uri and source.matches(window) and reader.exists(source, window):
            uri = window
    return hit_of(uri, row.title, row.kind, "" if seen is None else seen.snippet)
