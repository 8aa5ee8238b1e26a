"""Ranks the documents that a search found, and makes the hits.

`match_lines` scores each passage of a text. The score of a hit is that of its best passage, and more if the name of the
document has words of the query. A long document has up to three hits, each for a window of lines that may have several
passages. The score of a document that lacks words is reduced, and one with few of the words is left out.
"""

from __future__ import annotations

import heapq
import math
import re
import time
from collections.abc import Callable, Iterator, Sequence, Set
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote

from msgspec import UNSET

from wharfinger import types as t
from wharfinger.content.folding import fold
from wharfinger.content.match_lines import Passage, TextMatch, score_of
from wharfinger.content.search_query import Query, Word
from wharfinger.content.text import printable
from wharfinger.source import Document, Hit, Hits, Source, TextPlace

if TYPE_CHECKING:
    from wharfinger.server.document_search import SourceReader

__all__ = [
    "ENOUGH_FACTOR",
    "MIN_BASE",
    "MIN_SHARE",
    "FoundDocument",
    "FoundHit",
    "Ranking",
    "correct",
    "is_prose",
    "name_of",
    "name_score",
    "name_text",
    "rarity",
]

ENOUGH_FACTOR = 3
"""A search reads documents until this many times the requested number have all the words."""
SMALL_LINES, SMALL_CHARACTERS = 200, 10_000
"""A hit in a text of at most this size links to the whole text; in a larger one, it links to its window."""
BEFORE_LINES, AFTER_LINES = 20, 180
"""The numbers of lines before and after the hit in its window."""
MAX_WINDOWS = 3
"""The maximum number of windows of one document, and of passages in one window, that are shown."""
LATER_HIT_FACTOR = 0.85
"""Multiplies the score of a document's second hit; the square multiplies that of its third."""
ELSEWHERE_WEIGHT = 0.35
"""How much a word counts for a passage if the document has it only elsewhere."""
MIN_SHARE, MIN_BASE = 0.5, 0.6
"""A document that lacks words is a hit only if it has enough of the words that are in any document: the weights of its
words are at least this share of the sum. Rare words weigh more for MIN_SHARE, and not for MIN_BASE; either suffices."""
MIN_SCORE_SHARE = 0.4
"""A document that lacks words is a hit only if its score is at least this share of the best score."""
MAX_RANKED_DOCUMENTS = 500
"""If more than twice this number of documents are found, only this number is kept. Large limits raise the number."""
FULL_HITS = 8
"""The number of hits that show the lines around each match; later hits show only their best line."""
ALSO_SHOWN_SHARE = 0.6
"""Another passage in the window of a hit is shown if it has at least this share of the best passage's score."""

MAX_CORRECTED_WORDS = 8
"""The maximum number of words of a query whose spelling is checked."""

_SECONDARY = re.compile(
    r"(?:^|/)(?:tests?|testing|specs?|__tests__|testdata|test-data|fixtures|vendor(?:ed)?|third_party|node_modules"
    r"|typeshed|locales?|dist|build)/"
    r"|(?:^|/)(?:test_[^/]*|conftest\.py|[^/]*_test\.\w+|[^/]*\.(?:lock|min\.js|map|svg|csv|po|pyi))$"
    r"|(?:^|/)(?:change(?:s|log)|history|news|release[-_]?notes)\b[^/]*$|(?:^|/)(?:[^/]*-lock|_?version)\.\w+$",
    re.IGNORECASE,
)
_SECONDARY_FACTOR = 0.6
"""Multiplies the scores of tests, copies of other projects, changelogs and generated files, which explain little."""


class FoundHit(Hit, frozen=True, kw_only=True):
    """A hit with its score, and the words of the query that its text has and its name lacks."""

    words: tuple[str, ...] = ()
    score: float = 0.0
    document_type: str = ""
    """The MIME type of the document. It differs from the type of a hit that is the text of one page."""
    place: str = ""
    """The label of the hit's part of the document, such as `page 3`."""


class FoundDocument(NamedTuple):
    """A document that may be a hit."""

    source: Source
    uri: str
    title: str
    mime_type: str
    name_matches: tuple[float, ...]
    """How well each word of the query fits the name."""
    match: TextMatch | None
    """The words in the text; None if it has none of them, lacks a phrase, or was not read."""
    changed: int = 0
    """A counter of the index at the last change; 0 without an index. Of equal scores, the latest change comes first."""


class _Candidate(NamedTuple):
    """A possible hit: a document, or a window of it, with its passages, the best first."""

    score: float
    order: int
    """The number of the document, in the order in which documents were added."""
    found: FoundDocument
    passages: list[Passage]
    large: bool = False
    """Whether the text is so large that the hit links to a window of it."""
    place: TextPlace | None = None
    """The part of the document in which the passages are, if it has parts."""


class Ranking:
    """Collects documents in any order, and returns the best hits."""

    def __init__(self, query: Query, limit: int) -> None:
        self.query = query
        self.limit = limit
        self.seen = [False] * len(query.words)
        """For each word, whether any document has it."""
        self.added = 0
        """Documents that were added and have at least one word."""
        self._found: list[tuple[list[bool], list[_Candidate]]] = []
        """For each document that was kept, whether it has each word, and its possible hits."""
        self._max_documents = max(MAX_RANKED_DOCUMENTS, ENOUGH_FACTOR * limit)
        self._complete = 0
        """Documents that have all the words."""
        self._asks_for_secondary = any(
            word.text.startswith(("test", "change", "release", "stub")) for word in query.words
        )

    @property
    def enough(self) -> bool:
        """Whether so many documents have all the words that more would hardly change the hits."""
        return self._complete >= ENOUGH_FACTOR * self.limit

    def add(self, found: FoundDocument) -> None:
        """Add a document, unless it has none of the words or lacks a phrase."""
        counts = found.match.counts if found.match is not None else (0,) * len(found.name_matches)
        has_words = [count > 0 or in_name > 0 for count, in_name in zip(counts, found.name_matches, strict=True)]
        if not any(has_words):
            return
        if found.match is None and any(
            word.phrase and not in_name for word, in_name in zip(self.query.words, found.name_matches, strict=True)
        ):
            return
        self.added += 1
        self.seen = [before or now for before, now in zip(self.seen, has_words, strict=True)]
        self._complete += all(has or not word.weight for has, word in zip(has_words, self.query.words, strict=True))
        self._found.append((has_words, list(self._candidates(found))))
        if len(self._found) > 2 * self._max_documents:

            def worth(entry: tuple[list[bool], list[_Candidate]]) -> tuple[bool, float]:
                has_words, candidates = entry
                return all(has_words), max(candidate.score for candidate in candidates)

            self._found = heapq.nlargest(self._max_documents, self._found, key=worth)

    def _candidates(self, found: FoundDocument) -> Iterator[_Candidate]:
        """Yield the possible hits of one document: the whole document, or windows of it."""
        name_bonus = name_score(self.query, name_text(found.title, found.uri), found.name_matches)
        factor = _SECONDARY_FACTOR if is_secondary(found.title) and not self._asks_for_secondary else 1.0
        if found.match is None:
            evidence = tuple(0.8 * match for match in found.name_matches)
            share = sum(word.weight * match for word, match in zip(self.query.words, evidence, strict=True))
            yield _Candidate(((share / (self.query.weight or 1.0)) ** 1.5 + name_bonus) * factor, self.added, found, [])
            return
        candidates: list[_Candidate] = []
        elsewhere = [ELSEWHERE_WEIGHT * (count > 0) for count in found.match.counts]
        large = found.match.lines > SMALL_LINES or found.match.length > SMALL_CHARACTERS
        for passage in found.match.passages:
            evidence = tuple(map(max, passage.evidence, elsewhere))
            score = score_of(self.query, evidence, passage.bonus, passage.factor)
            score = (score + name_bonus) * factor * LATER_HIT_FACTOR ** len(candidates)
            place = found.source.place(found.uri, passage.line)
            known = next((candidate for candidate in candidates if _belongs(candidate, passage, place, large)), None)
            if known is None and len(candidates) < MAX_WINDOWS:
                candidates.append(_Candidate(score, self.added, found, [passage], large, place))
            elif (
                known is not None
                and len(known.passages) < MAX_WINDOWS
                and passage.score >= ALSO_SHOWN_SHARE * known.passages[0].score
            ):
                known.passages.append(passage)
        yield from candidates

    def _share(self, has_words: Sequence[bool], base: bool = False) -> float:
        """Return the share that a document has, by weight, of the words that any document has.

        With `base`, the weights do not depend on how rare the words are.
        """
        weights = [word.base if base else word.weight for word in self.query.words]
        known = sum(weight for weight, seen in zip(weights, self.seen, strict=True) if seen)
        return sum(weight for weight, has in zip(weights, has_words, strict=True) if has) / (known or 1.0)

    def hits(self, reader: SourceReader, deadline: float) -> Hits:
        """Return the best hits. A hit links to its window if the source has it; this is checked until `deadline`."""
        candidates: list[_Candidate] = []
        top = max((candidate.score for _, possible in self._found for candidate in possible), default=0.0)
        for has_words, possible in self._found:
            if any(seen and not has_word for seen, has_word in zip(self.seen, has_words, strict=True)):
                share = self._share(has_words)
                if share < MIN_SHARE and self._share(has_words, base=True) < MIN_BASE:
                    continue
                possible = [candidate._replace(score=candidate.score * (0.5 + 0.5 * share)) for candidate in possible]
                possible = [candidate for candidate in possible if candidate.score >= MIN_SCORE_SHARE * top]
            candidates += possible
        candidates.sort(key=lambda candidate: (-round(candidate.score, 6), -candidate.found.changed, candidate.order))
        hits = Hits()
        shown: set[str] = set()
        for candidate in candidates:
            if len(hits) == self.limit:
                break
            hit = self._make_hit(candidate, reader, deadline, brief=len(hits) >= FULL_HITS)
            if hit.uri not in shown:
                shown.add(hit.uri)
                hits.append(hit)
        if hits and not any(all(has_words) for has_words, _ in self._found):
            hits.remark = "No document has all the words; these have most of them."
        return hits

    def _make_hit(self, candidate: _Candidate, reader: SourceReader, deadline: float, *, brief: bool) -> Hit:
        found = candidate.found
        uri, place, mime_type = found.uri, candidate.place, found.mime_type
        if place is not None:
            uri, mime_type = place.uri, ""
            if place.last - place.first >= SMALL_LINES:
                line = candidate.passages[0].line - place.first + 1
                uri += f"&lines={max(1, line - BEFORE_LINES)}-{line + AFTER_LINES}"
        elif candidate.large and "?" not in uri and time.monotonic() < deadline:
            line = candidate.passages[0].line
            window = f"{uri}?lines={max(1, line - BEFORE_LINES)}-{line + AFTER_LINES}"
            if found.source.matches(window) and reader.exists(found.source, window):
                uri = window
        name = found.title.rstrip("/").rpartition("/")[2] or found.title
        resource = t.Resource(uri=uri, name=name, title=found.title, mime_type=mime_type or UNSET)
        words = tuple(
            word.text
            for index, word in enumerate(self.query.words)
            if not found.name_matches[index] and any(passage.evidence[index] > 0 for passage in candidate.passages)
        )
        shown = [passage.brief for passage in candidate.passages[:1]] if brief else candidate.passages
        if place is not None:
            shown = [passage.within(place.first, place.last) for passage in shown]
        snippet = "\n…\n".join(passage.snippet for passage in sorted(shown, key=lambda passage: passage.line))
        label = "" if place is None else place.label
        return FoundHit(
            uri=uri,
            title=found.title,
            snippet=f"{label}\n{snippet}" if label and snippet else snippet,
            resource=resource,
            words=words,
            score=candidate.score,
            document_type=found.mime_type,
            place=label,
        )


def _belongs(candidate: _Candidate, passage: Passage, place: TextPlace | None, large: bool) -> bool:
    """Return whether a passage is in the same part of the document, or in the same window, as those of a candidate."""
    if place is not None or candidate.place is not None:
        small = place is None or place.last - place.first < SMALL_LINES
        return place == candidate.place and (small or _in_window(candidate.passages[0], passage))
    return not large or _in_window(candidate.passages[0], passage)


def _in_window(first: Passage, other: Passage) -> bool:
    return first.line - BEFORE_LINES <= other.line <= first.line + AFTER_LINES


def name_text(title: str, uri: str) -> str:
    """Return a title, and the last part of the URI if the title does not contain it."""
    last = unquote(uri.partition("?")[0].rstrip("/").rpartition("/")[2])
    return title if last in title else f"{title}\n{last}"


def is_secondary(title: str) -> bool:
    """Return whether the path is that of a test, a copy of another project, a changelog or a generated file."""
    return _SECONDARY.search(title) is not None


_PROSE = (".md", ".rst", ".txt", ".adoc", ".mdx", ".markdown", ".html", ".docx", ".pptx", ".epub")


def is_prose(title: str) -> bool:
    """Return whether a document is prose, judging by its file extension."""
    return title.lower().endswith(_PROSE)


def name_of(document: Document) -> str:
    """Return a document's name: its title, and the last part of its URI if the title does not contain it."""
    return name_text(document.title, document.uri)


def name_score(query: Query, name: str, name_matches: Sequence[float]) -> float:
    """Return how much the name of a document adds to its score.

    A name whose last part, with or without its suffix, is the query adds the most. A name with all words adds less, and
    one with only some of them the least. Of equal names, the one in fewer folders adds more.
    """
    if not any(name_matches):
        return 0.0
    folded = fold(name)
    last = folded.partition("\n")[0].rstrip("/").rpartition("/")[2]
    deduction = 0.005 * min(folded.count("/"), 40)
    spellings = {query.whole} if query.whole else set(query.words[0].spellings)
    if last in spellings or last.rpartition(".")[0] in spellings:
        return 1.6 - deduction
    weight = sum(word.weight * match for word, match in zip(query.words, name_matches, strict=True))
    share = weight / (query.weight or 1.0)
    if not all(name_matches):
        return 0.3 * share - deduction / 10
    # `last` as it is in `name`, before folding, which keeps the number of characters. The part of the URI may follow.
    end = name[len(name.partition("\n")[0].rstrip("/")) - len(last) :] if last else name
    end_has_all = all(query.match_name(end, fold(end)))
    return (0.6 + 0.5 * end_has_all) * (0.4 + 0.6 * share) - deduction


def rarity(count: int, total: int) -> float:
    """Return the weight of a word that `count` documents have: about 1 if it is rare, 0.25 if all do, 0 if none."""
    if not count:
        return 0.0
    return 0.25 + 0.75 * max(0.0, math.log((total + 1) / (count + 0.5)) / math.log(total + 2))


def correct(query: Query, unknown: Set[str], near: Callable[[Word], str]) -> tuple[Query, str]:
    """Return the query with another spelling of each `unknown` word, and the sentences that say so.

    If no spelling is near, a word of several parts, such as `TypeChecker`, is replaced by its parts.
    """
    remarks: list[str] = []
    missing: list[str] = []
    for word in query.words[:MAX_CORRECTED_WORDS]:
        if word.phrase or word.text not in unknown:
            continue
        if other := near(word) or " ".join(word.parts):
            query = query.replaced(word, other)
            remarks.append(f"Nothing has {quoted(word.text)}: searched for {quoted(other)}.")
        else:
            missing.append(quoted(word.text))
    if missing:
        remarks.append(f"Nothing has {' or '.join(missing)}.")
    return query, " ".join(remarks)


def quoted(word: str) -> str:
    """Return a word in quotation marks, printable and shortened."""
    return f"“{printable(word, 60)}”"
