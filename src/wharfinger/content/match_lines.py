"""Finds the passages of a text that answer a query, each with its best line and the lines around it.

The text is read in blocks of whole lines. In each block, the occurrences of every word are graded (`Word.quality`) and
grouped by line. The score of a line counts its own words in full, and words of neighbouring lines less, depending on
their distance. If a line defines something (a function, a class, a setting, a heading) that the query names, its score
is higher, and more of the lines after it count, because they belong to it. The best lines then also count the words
of the definitions and headings that enclose them. Imports, and lists of bare names, score low.

The numbers in the scores were tuned with half of the questions of `benchmarks/finding.py`.
"""

from __future__ import annotations

import heapq
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

from wharfinger.content.folding import fold
from wharfinger.content.search_query import Query, Word, identifier_parts

__all__ = ["SHOWN_LINE_CHARACTERS", "Passage", "TextMatch", "match_text", "score_of"]

BLOCK_CHARACTERS = 1 << 18
"""Characters of a block, which is searched at once."""
OVERLAP_CHARACTERS = 1 << 10
"""Characters at the end of a block that the next one repeats if the block ends within a line."""
MAX_FOUND_OCCURRENCES = 2_000
"""The maximum number of occurrences of one probe of a word that are looked for in a block."""
MAX_GRADED_OCCURRENCES = 4
"""The maximum number of occurrences of one word in a line that are graded."""
MAX_COUNTED_OCCURRENCES = 1_000
"""The maximum number of occurrences of one word that are counted."""
NEIGHBOUR_SCORED_LINES = 48
"""Lines of a block that are scored with their neighbours."""
DEFINITION_SCORED_LINES = 8
"""Lines of a block that are scored with the definitions around them."""
MAX_PASSAGES = 5
"""The maximum number of passages of one text that are returned."""
MIN_LINES_APART = 12
"""The minimum number of lines between two such passages."""
NEIGHBOUR_LINES, DEFINITION_LINES = 6, 24
"""How many lines before and after a line count for it, and how many after a definition."""
MAX_COUNTED_NEIGHBOURS = 5
"""The maximum number of neighbours with a word that add to the score; more add nothing."""
MAX_ENCLOSING, MAX_ENCLOSING_LINES = 4, 400
"""The maximum numbers of definitions around a line that are found, and of lines that are searched for them."""
MIN_DEFINITION_FIT = 0.15
"""A line whose defined name fits the query better than this is treated as a definition."""
SHOWN_LINE_CHARACTERS = 160
"""Characters of a line that are shown."""
LONG_LINE_CHARACTERS = 2_000
"""A line of more characters is data rather than text, and scores lower."""
SHOWN_BEFORE, SHOWN_AFTER, SHOWN_AFTER_DEFINITION = 1, 2, 3
"""Lines that are shown before the best one, after it, and after it if it is a definition."""

_MODIFIERS = frozenset(
    """
    abstract async cdef cpdef create data declare default export extern final global inline internal local open or
    override partial private protected pub public readonly replace sealed static temporary typedef unique unsafe virtual
    """.split()  # noqa: SIM905
)
_KEYWORDS = frozenset(
    """
    class const def domain enum fn fun func function index interface let macro message method module namespace object
    package procedure protocol record service struct sub table trait trigger type union val var view #define
    """.split()  # noqa: SIM905
)
"""Words that begin a definition, after modifiers, in some common languages."""
_NAME = re.compile(r"[\"'`\[(]?([\w$.]+)")
_GO_METHOD = re.compile(r"\s*func\s+\([^)]{1,80}\)\s+(\w+)")
_DIRECTIVE = re.compile(
    r"\s*\.\. (?:[\w-]+:)?(?!code|note|warning|versionadded|versionchanged|image|literal)[\w-]+:: (.{1,120})"
)
_TITLE = re.compile(r"\s{0,3}#{1,6} +(.{1,160})|\s*<h[1-6][^>]{0,80}>(.{1,160})")
_PARAMETER = re.compile(
    r"\s*(?:[:@](?:param|arg|keyword|raises|ivar|cvar|attribute)\s+(?:[\w\[\].]+\s+)?|[-*] +)"
    r"`{0,2}\**([\w.-]+)`{0,2}\**\s*(?:=[^:]{1,40})?(?::| -|$)"
)
_SETTING = re.compile(
    r"\s*(?:(?:export|static|public|private|final|readonly)\s+)*(?:self\.|this\.)?"
    r"[\"'\[]?([A-Za-z_$][\w$.-]*)[\"'\]]?\??\s*(?:=(?!=)|:=|:(?!:))"
)
_OPTION = re.compile(r"\s*[\"'](-{0,2}[\w.-]+)[\"'],?\s*$")
_IMPORT = re.compile(
    r"\s*(?:from\s+\S+\s+import\b|import\s|#\s*include\b|use\s+\w+::|require\(|@import\b|\.\. (?:auto|currentmodule))"
)
_BARE = re.compile(r"\s*(?:[\w.]+|[\"'][A-Z]\w*[\"'])(?:\s+as\s+\w+)?,?\s*$")
_DEFINES = (
    (_DIRECTIVE, 0.9), (_PARAMETER, 0.6), (_OPTION, 0.5), (_SETTING, 0.4),
)  # fmt: skip
"""Patterns of lines that define something, and how much that adds to the score."""
_MATCHED_CHARACTERS = 400
"""Characters at the beginning of a line that are searched for a definition."""


class Passage(NamedTuple):
    """A passage of a text."""

    score: float
    """The score of the passage within its text."""
    line: int
    """The number of the best line, from 1."""
    evidence: tuple[float, ...]
    """How well each word of the query fits here, from 0 to 1."""
    bonus: float
    """Raises the score of a passage that defines what the query names, or has its words side by side or repeatedly."""
    factor: float
    """Less than 1 if the best line is an import, a name alone or a line of data."""
    lines: tuple[tuple[int, str], ...]
    """The lines to show, with their numbers."""

    @property
    def snippet(self) -> str:
        """The lines as `grep -C` shows them: the best line after `12:`, the lines around it after `11-` or `13-`."""
        return "\n".join(
            f"{number}{':' if number == self.line else '-'} {text}".rstrip() for number, text in self.lines
        )

    @property
    def brief(self) -> Passage:
        """The same passage with only its best line."""
        return self._replace(lines=tuple(line for line in self.lines if line[0] == self.line))

    def within(self, first: int, last: int) -> Passage:
        """Return the passage without lines outside this range, with lines numbered from 1 at `first`."""
        return self._replace(lines=tuple(line for line in self.lines if first <= line[0] <= last)).moved(1 - first)

    def moved(self, lines: int) -> Passage:
        """Return the same passage with this many more lines before it."""
        return self._replace(line=self.line + lines, lines=tuple((at + lines, text) for at, text in self.lines))


class TextMatch(NamedTuple):
    """The words of a query in a text, and the best passages."""

    counts: tuple[int, ...]
    """How often each word occurs, up to `MAX_COUNTED_OCCURRENCES`."""
    passages: tuple[Passage, ...]
    """The best passages, the best first."""
    lines: int
    """The number of lines that were read."""
    length: int
    """The number of characters that were read."""


def match_text(
    pieces: Iterable[str], query: Query, named: Sequence[float] = (), *, prose: bool = False
) -> TextMatch | None:
    """Find a query in a text that comes in pieces.

    `named` says how well each word fits the name of the text, from 0 to 1; a passage need not repeat such a word. In
    `prose`, a line that begins with `#` is a heading; elsewhere it is a comment. Returns None if the text has no word
    of the query, or if a phrase of the query is neither in the text nor in its name.
    """
    words = query.words
    counts = [0] * len(words)
    name_fits = [0.5 * fit for fit in named] or [0.0] * len(words)
    best: list[Passage] = []
    first, length = 1, 0
    for text, following in _blocks(pieces):
        block = _Block(text, query, name_fits, counts, first, prose)
        best = heapq.nlargest(
            MAX_PASSAGES * 4, [*best, *block.passages()], key=lambda passage: (passage.score, -passage.line)
        )
        first += text.count("\n", 0, following)
        length += following
    missing = any(
        word.phrase and not count and not name for word, count, name in zip(words, counts, name_fits, strict=True)
    )
    if missing or not best:
        return None
    return TextMatch(tuple(counts), tuple(_apart(best)), first, length)


def _apart(passages: Iterable[Passage]) -> Iterator[Passage]:
    """Yield the best passages that are not close to a better one."""
    shown: list[int] = []
    for passage in passages:
        if len(shown) < MAX_PASSAGES and all(abs(passage.line - line) >= MIN_LINES_APART for line in shown):
            shown.append(passage.line)
            yield passage


def _blocks(pieces: Iterable[str]) -> Iterator[tuple[str, int]]:
    """Yield the text in blocks, each with the position at which the next one begins."""
    waiting: list[str] = []
    length = 0
    for piece in pieces:
        waiting.append(piece)
        length += len(piece)
        if length <= BLOCK_CHARACTERS:
            continue
        text = "".join(waiting)
        begin = 0
        while (limit := begin + BLOCK_CHARACTERS) < len(text):
            cut = text.rfind("\n", begin + BLOCK_CHARACTERS // 2, limit) + 1
            end, following = (cut, cut) if cut else (limit, limit - OVERLAP_CHARACTERS)
            yield text[begin:end], following - begin
            begin = following
        waiting, length = [text[begin:]], len(text) - begin
    text = "".join(waiting)
    if text:
        yield text, len(text)


class _Line:
    """A line with words of the query: how well each fits, and where it is."""

    __slots__ = ("evidence", "graded", "occurrences", "worth")

    def __init__(self, size: int) -> None:
        self.evidence = [0.0] * size
        """How well each word of the query fits at its best graded occurrence."""
        self.occurrences: list[tuple[int, int, int]] = []
        """The occurrences of words: `(begin, end, number of the word)`."""
        self.graded = [0] * size
        """The number of graded occurrences of each word."""
        self.worth = 0.0
        """The sum of `evidence`, each word with its weight."""


class _Block:
    """Some lines of a text, and the words of a query in them.

    `first` is the number of the first line. The occurrences of each word are added to `counts`.
    """

    def __init__(
        self,
        text: str,
        query: Query,
        name_fits: Sequence[float],
        counts: list[int],
        first: int,
        prose: bool,
    ) -> None:
        self.text = text
        self.folded = fold(text)
        self.query = query
        self.name_fits = name_fits
        self.first = first
        self.query_weight = query.weight or 1.0
        self.prose = prose
        self.found: dict[int, _Line] = {}
        """The lines that have a word of the query, by row: the index of a line in the block."""
        self.definitions: dict[int, float] = {}
        """The results of `_definition_fit`, by row."""
        occurrences = [list(self._occurrences(word)) for word in query.words]
        for number, found in enumerate(occurrences):
            counts[number] = min(MAX_COUNTED_OCCURRENCES, counts[number] + len(found))
        if not any(occurrences):
            return
        self.lines = text.split("\n")
        self.starts = list(accumulate((len(line) + 1 for line in self.lines), initial=0))
        for number, (word, found) in enumerate(zip(query.words, occurrences, strict=True)):
            self._grade(number, word, found)
        for number, (word, found) in enumerate(zip(query.words, occurrences, strict=True)):
            if len(found) >= MAX_FOUND_OCCURRENCES:
                self._grade(number, word, list(self._occurrences_beside_others(number, word)))

    def _occurrences_beside_others(self, number: int, word: Word) -> Iterator[tuple[int, str]]:
        """Yield the first occurrence of a frequent word in each line that has another word.

        Most of its occurrences are not graded, but a line that also has a rare word of the query is one of the best.
        """
        for row, line in self.found.items():
            if not line.graded[number]:
                for probe in word.probes:
                    at = self.folded.find(probe, self.starts[row], self.starts[row + 1])
                    if at >= 0:
                        yield at, probe

    def _occurrences(self, word: Word) -> Iterator[tuple[int, str]]:
        """Yield the positions at which a word occurs, each with the probe that found it."""
        for probe in word.probes:
            at = self.folded.find(probe)
            for _ in range(MAX_FOUND_OCCURRENCES):
                if at < 0:
                    break
                yield at, probe
                at = self.folded.find(probe, at + len(probe))

    def _grade(self, number: int, word: Word, occurrences: Iterable[tuple[int, str]]) -> None:
        """Grade occurrences of the word with this number, and add them to their lines."""
        for at, probe in occurrences:
            row = bisect_right(self.starts, at) - 1
            line = self.found.get(row)
            if line is None:
                line = self.found[row] = _Line(len(self.query.words))
            if line.evidence[number] < 1 and line.graded[number] < MAX_GRADED_OCCURRENCES:
                line.graded[number] += 1
                quality = word.quality(self.text, self.folded, at, probe)
                line.occurrences.append((at, at + len(probe), number))
                if quality > line.evidence[number]:
                    line.worth += word.weight * (quality - line.evidence[number])
                    line.evidence[number] = quality

    def passages(self) -> list[Passage]:
        """Return the best passages of this block."""
        if not self.found:
            return []
        rows = heapq.nlargest(NEIGHBOUR_SCORED_LINES, self.found, key=lambda row: (self._rough_score(row), -row))
        scored = sorted(
            (self._with_neighbours(row) for row in rows), key=lambda passage: (-passage.score, passage.line)
        )
        best = sorted(
            (self._with_enclosing(passage) for passage in scored[:DEFINITION_SCORED_LINES]),
            key=lambda passage: (-passage.score, passage.line),
        )
        return [passage._replace(lines=tuple(self._lines_to_show(passage))) for passage in _apart(best)]

    def _rough_score(self, row: int) -> float:
        """Return a rough score of a line by itself. This must be quick, because every line with a word gets one."""
        worth = self.found[row].worth
        return 1.5 * worth if _defined_name(self.lines[row]) else worth

    def _factor(self, row: int) -> float:
        """Return the factor of a line: less than 1 for an import, a name alone or a very long line.

        A name in quotes that is the first argument of a call is an exception: its factor is 1.
        """
        line = self.lines[row]
        if len(line) > LONG_LINE_CHARACTERS:
            return 0.4
        if _IMPORT.match(line):
            return 0.4
        if _BARE.match(line) and not self._is_heading(row):
            previous = self.lines[row - 1].rstrip() if row else ""
            return 1.0 if previous.endswith("(") and not _IMPORT.match(previous) and _OPTION.match(line) else 0.4
        return 1.0

    def _definition_fit(self, row: int) -> float:
        """Return how well the name of what a line defines fits the query, from 0 to 1."""
        known = self.definitions.get(row)
        if known is not None:
            return known
        line = self.lines[row][:_MATCHED_CHARACTERS]
        if name := _defined_name(line):
            best = self._name_fit(name)
        else:
            best = 0.9 * self._name_fit(line) if self._is_heading(row) else 0.0
            for pattern, worth in _DEFINES:
                matched = pattern.match(line)
                if matched is not None and (pattern is not _OPTION or self._begins_value(row)):
                    best = max(best, worth * self._name_fit(matched[1]))
        self.definitions[row] = best
        return best

    def _begins_value(self, row: int) -> bool:
        """Return whether a line is a whole argument or entry, and not the rest of an earlier line."""
        return row > 0 and self.lines[row - 1].rstrip().endswith(("(", "[", "{", ",", ":"))

    def _name_fit(self, name: str) -> float:
        """Return how well a name fits: by the share of the query in it, and the share of the name in the query."""
        parts = identifier_parts(name)
        if not parts:
            return 0.0
        fits = self.query.match_name(name, fold(name))
        found_weight = sum(word.weight * fit for word, fit in zip(self.query.words, fits, strict=True) if fit > 0.3)
        covered = sum(len(word.parts) or 1 for word, fit in zip(self.query.words, fits, strict=True) if fit > 0.3)
        return found_weight / self.query_weight * (0.4 + 0.6 * min(1.0, covered / len(parts)))

    def _with_neighbours(self, row: int) -> Passage:
        """Return the passage of a line, scored with its neighbours."""
        line = self.found[row]
        evidence = [max(own, name) for own, name in zip(line.evidence, self.name_fits, strict=True)]
        definition_fit = self._definition_fit(row)
        reach = DEFINITION_LINES if definition_fit > MIN_DEFINITION_FIT else NEIGHBOUR_LINES
        neighbour_counts = [0] * len(evidence)
        for other in range(row - NEIGHBOUR_LINES, row + reach + 1):
            beside = self.found.get(other)
            if beside is None or other == row:
                continue
            # A definition on an outer level does not belong to this line, and neither does anything after it.
            if (
                other > row
                and _indent(self.lines[other]) < _indent(self.lines[row])
                and _defined_name(self.lines[other])
            ):
                break
            distance = abs(other - row)
            fade = 0.85 - 0.5 * distance / (reach if other > row else NEIGHBOUR_LINES)
            for number, quality in enumerate(beside.evidence):
                evidence[number] = max(evidence[number], fade * quality)
                neighbour_counts[number] += quality > 0.4
        repeated = sum(
            word.weight * min(1.0, count / MAX_COUNTED_NEIGHBOURS)
            for word, count in zip(self.query.words, neighbour_counts, strict=True)
        )
        bonus = definition_fit + 0.3 * repeated / self.query_weight + self._side_by_side_bonus(line)
        return self._make_passage(row, evidence, bonus, self._factor(row))

    def _side_by_side_bonus(self, line: _Line) -> float:
        """Return a bonus if the line has the whole query, or words that follow each other as in the query."""
        if not self.query.whole:
            return 0.0
        begin, end = line.occurrences[0][0], line.occurrences[0][1]
        row_begin = self.folded.rfind("\n", 0, begin) + 1
        row_end = self.folded.find("\n", end)
        if self.folded.find(self.query.whole, row_begin, row_end if row_end >= 0 else len(self.folded)) >= 0:
            return 0.6
        occurrences = sorted(line.occurrences)
        pairs = sum(
            after[2] == before[2] + 1 and 0 <= after[0] - before[1] <= 6
            for at, before in enumerate(occurrences)
            for after in occurrences[at + 1 : at + 3]
        )
        return 0.3 * min(1.0, pairs / max(1, len(self.query.words) - 1))

    def _with_enclosing(self, passage: Passage) -> Passage:
        """Return a passage, scored with the definitions and headings around it."""
        row = passage.line - self.first
        evidence = list(passage.evidence)
        indent = _indent(self.lines[row])
        seen = 0
        deeper = " " * indent if indent else "\0"  # no line begins with NUL
        for above in range(row - 1, max(-1, row - MAX_ENCLOSING_LINES), -1):
            line = self.lines[above]
            if not line or line.startswith(deeper) or (line[0] == "\t" and indent):
                continue
            heading = self._is_heading(above)
            if not heading and (not indent or not _defined_name(line)):
                continue
            indent = _indent(line)
            deeper = " " * indent if indent else "\0"
            found = self.found.get(above)
            if found is not None:
                for number, quality in enumerate(found.evidence):
                    evidence[number] = max(evidence[number], 0.6 * quality)
            seen += 1
            if seen == MAX_ENCLOSING or heading or indent == 0:
                break
        return self._make_passage(row, evidence, passage.bonus, passage.factor)

    def _is_heading(self, row: int) -> bool:
        """Return whether a line is the title of what follows."""
        line = self.lines[row]
        if line[:1] == "#" or line.lstrip()[:2] == "<h":
            return self.prose and _TITLE.match(line) is not None
        if row + 1 >= len(self.lines) or len(line) > SHOWN_LINE_CHARACTERS:
            return False
        below = self.lines[row + 1].strip()
        return 3 <= len(below) >= len(line.strip()) > 0 and below[0] in '=-~^"' and not below.strip(below[0])

    def _make_passage(self, row: int, evidence: Sequence[float], bonus: float, factor: float) -> Passage:
        score = score_of(self.query, evidence, bonus, factor)
        return Passage(score, self.first + row, tuple(evidence), bonus, factor, ())

    def _lines_to_show(self, passage: Passage) -> Iterator[tuple[int, str]]:
        """Yield the best line and the lines around it, without empty lines at either end."""
        row = passage.line - self.first
        after = SHOWN_AFTER_DEFINITION if self._definition_fit(row) > MIN_DEFINITION_FIT else SHOWN_AFTER
        begin, end = max(0, row - SHOWN_BEFORE), min(len(self.lines), row + after + 1)
        while begin < row and not self.lines[begin].strip():
            begin += 1
        while end > row + 1 and not self.lines[end - 1].strip():
            end -= 1
        for each in range(begin, end):
            yield self.first + each, self._cut(each, row)

    def _cut(self, row: int, best: int) -> str:
        """Return a line, shortened if it is long; of the `best` line, the part that has a word of the query."""
        line = self.lines[row].rstrip()
        if len(line) <= SHOWN_LINE_CHARACTERS:
            return line
        begin = 0
        at = min(self.found[row].occurrences)[0] - self.starts[row] if row == best else 0
        if at > SHOWN_LINE_CHARACTERS - 40:  # the word would be cut off, or be the last one that is shown
            begin = max(0, min(at - SHOWN_LINE_CHARACTERS // 3, len(line) - SHOWN_LINE_CHARACTERS))
        end = begin + SHOWN_LINE_CHARACTERS
        return f"{'…' if begin else ''}{line[begin:end]}{'…' if end < len(line) else ''}"


def score_of(query: Query, evidence: Sequence[float], bonus: float, factor: float) -> float:
    """Return the score of a passage, which is mostly its share of the query's words."""
    share = sum(word.weight * fit for word, fit in zip(query.words, evidence, strict=True)) / (query.weight or 1.0)
    return float(share**1.25 + 0.65 * bonus) * factor


def _defined_name(line: str) -> str:
    """Return the name of the function, class, table or similar that a line defines, or an empty string."""
    words = iter(line[:_MATCHED_CHARACTERS].split(None, 8))
    for word in words:
        word = word.lower()
        if word in _MODIFIERS or word[0] == "@" or word.startswith("pub("):
            continue
        if word not in _KEYWORDS:
            return ""
        break
    name = next(words, "")
    while name.lower() in ("if", "not", "exists", "class"):
        name = next(words, "")
    if name.startswith("(") and (method := _GO_METHOD.match(line)):
        return method[1]
    matched = _NAME.match(name)
    return matched[1] if matched is not None else ""


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())
