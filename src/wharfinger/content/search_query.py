"""Parses a query into words, exact phrases, and identifiers in all their spellings. Stop words are left out.

Text in double quotes is a phrase, which must occur as it is, except for case. The rest is cut into words at spaces and
punctuation: `ClientSession.get()` becomes `ClientSession` and `get`. A word of several parts, such as `TypeChecker`,
`type_checker` or `type-checker`, matches all of these spellings. An English word also matches its other forms:
`connecting` finds `connect` and `connections`.

Each word has `probes`: wherever the word occurs, at least one of these strings occurs. An index, or `str.find`, can
find probes; `Word.quality` then says how well an occurrence fits.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from wharfinger.content.folding import fold

__all__ = ["MAX_QUERY_CHARACTERS", "MAX_QUERY_WORDS", "Query", "Word", "identifier_parts", "query_of"]

MAX_QUERY_CHARACTERS = 2_000
"""The maximum number of characters of a query; the rest is ignored."""
MAX_QUERY_WORDS = 16
"""The maximum number of words of a query; the rest is ignored."""
MAX_PARTS = 8
"""An identifier of more parts is found only as it is written."""
MAX_TAIL_CHARACTERS = 24
"""The maximum number of letters after a probe that are compared with the rest of a word."""

STOP_WORDS = frozenset(
    """
    a about all am an and any are as at be because been being but by can could did do does doing done for from had
    has have having he her here his how i if in into is it its just kind made me my no nor not of on or our out over
    own please she should so some such than that the their them then there these they this those to too up us very
    was we were what when where which while who whom whose why will with would you your
    """.split()  # noqa: SIM905
)
"""Words that say nothing about the subject. They count only in a phrase, or if a query has no others."""
WEAK_WORDS = frozenset(
    """
    after again also another before between big called case change class code computed configure configured contain
    contains create created current data decided declared define defined determined different each exist explain
    file files find found function get gets give given gives go handle handled happen happens help implement
    implemented kind know large last list long look make makes many mean means method most much multiple must name
    need needed new next number object one only other place previous put run same say see set sets several short
    show shown single small something start take tell thing try two type under use used uses using value values want
    way work works
    """.split()  # noqa: SIM905
)
"""Words that say little about the subject."""
WEAK_WEIGHT = 0.45
"""The weight of a weak word, of a number among words, and of each word of a dotted name but the last."""
FILE = re.compile(
    r"[\w.-]+\.(?:py|pyi|md|rst|txt|js|ts|tsx|jsx|json|toml|cfg|ini|ya?ml|csv|html?|css|c|cc|cpp|h|hpp|go|rs|java|kt|rb"
    r"|php|sh|sql|xml|log|lock|conf)"
)
"""Matches the name of a file, which is one word."""

_CHUNK = re.compile(r'"([^"]+)"|(\S+)')
_WORD = re.compile(r"\d+(?:\.\d+)+|--?\w[\w-]*|\w+(?:-\w+)*[+#]{0,2}")
_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_RUN = re.compile(r"[^\W\d_]+|\d+")
_PLAIN = re.compile(r"[a-z]{4,}")
_INFLECTION_ENDINGS = (
    ("ies", 4), ("ying", 4), ("ied", 4), ("ing", 4), ("ed", 4), ("es", 4), ("s", 3), ("e", 4), ("y", 4),
)  # fmt: skip
"""Endings that number and tense change, each with the minimum number of letters before it."""
_DERIVATION_ENDINGS = (
    ("ations", 5), ("ation", 5), ("ions", 6), ("ion", 6), ("ments", 5), ("ment", 5), ("ers", 5), ("er", 5), ("ors", 5),
    ("or", 5),
)  # fmt: skip
"""Endings that make nouns, each with the minimum number of letters before it."""


_SHORT = """
argument arg args | attribute attr | authentication auth authenticate | authorization authz | buffer buf | button btn
character char | command cmd | configuration config conf cfg | configure config | connection conn | constant const
context ctx | database db | default dflt | definition defn | delete del | dependency dep deps | destination dest dst
development dev | dictionary dict | directory dir dirs | document doc docs | documentation docs doc | environment env
error err | event evt | exception exc | execute exec | expression expr | extension ext | function func fn
generator gen | identifier ident id | image img | implementation impl | index idx | information info | initialize init
initialization init | integer int | iterator iter | iteration iter | keyword kw | language lang | length len
library lib | maximum max | memory mem | message msg | minimum min | module mod | operator op | operation op
original orig | package pkg | parameter param params | password passwd pwd | pointer ptr | position pos | previous prev
procedure proc | process proc | production prod | property prop props | reference ref | regular reg | repository repo
request req | response resp | result res | separator sep | sequence seq | source src | specification spec
statement stmt | statistics stats | string str | synchronize sync | system sys | synchronous sync | table tbl
temporary temp tmp | transaction txn | utility util utils | value val | variable var | version ver | window win
asynchronous async | average avg | calculate calc | column col | counter cnt | day days | description desc
difference diff | hardware hw | kubernetes k8s | number num | object obj | pixel px | second sec secs | millisecond ms
"""
_ABBREVIATIONS = {
    words[0]: words[1:] for line in _SHORT.replace("\n", "|").split("|") if (words := tuple(line.split()))
}
"""Abbreviations of words in programs."""


class Word(NamedTuple):
    """One word, or phrase, of a query."""

    text: str
    """The word, folded."""
    written: str
    """The word as it is written in the query."""
    probes: tuple[str, ...]
    """Folded strings; wherever the word occurs, one of them occurs."""
    spellings: tuple[str, ...]
    """The folded spellings of the word itself, without its other forms."""
    weight: float = 1.0
    """How much the word counts compared with the other words."""
    base: float = 1.0
    """How much the word counts regardless of how rare it is."""
    phrase: bool = False
    """Whether the text must occur as it is, except for case."""
    parts: tuple[str, ...] = ()
    """The parts of an identifier, folded, or an empty tuple if it has only one."""
    short: tuple[str, ...] = ()
    """The abbreviations of the word in programs."""

    def quality(self, text: str, folded: str, begin: int, probe: str) -> float:
        """Return how well the occurrence of a probe fits, from 0 to 1: whole words fit best, then parts, then forms."""
        if self.phrase:
            return 1.0
        for spelling in self.spellings:
            if len(spelling) > len(probe) and folded.startswith(spelling, begin):
                probe = spelling
                break
        end = begin + len(probe)
        start = _starts(text, begin)
        if not start:
            return 0.25 if len(probe) > 3 else 0.1
        tail = _tail(text, end)
        exact = probe in self.spellings
        if exact and not tail:
            whole = start == WHOLE and not (text[end : end + 1] == "_" or text[end : end + 1].isalnum())
            same = self.written == self.text or text.startswith(self.written, begin)
            return (1.0 if whole else 0.9) - (0.0 if same else 0.1)
        form = folded[begin : end + len(tail)]
        if _without_inflection(form) == _without_inflection(self.text):
            return 0.88 if start == WHOLE else 0.8
        if form in self.short:
            return 0.7
        return 0.5 if _without_derivation(form) == _without_derivation(self.text) else 0.35


class Query(NamedTuple):
    """The words of a query."""

    words: tuple[Word, ...] = ()
    whole: str = ""
    """The whole query as one text if it has several words; otherwise empty."""

    @property
    def weight(self) -> float:
        """The weight of all words together."""
        return sum(word.weight for word in self.words)

    def weighted(self, factors: Iterable[float]) -> Query:
        """Return the query with the weight of each word multiplied by a factor."""
        words = (word._replace(weight=word.weight * factor) for word, factor in zip(self.words, factors, strict=True))
        return self._replace(words=tuple(words))

    def replaced(self, old: Word, new: str) -> Query:
        """Return the query with one of its words replaced, and without `whole`."""
        words = list(_words_of(new, old.weight)) if new.strip() else [old]
        words_after = [other for word in self.words for other in (words if word is old else (word,))]
        return Query(_unique(words_after), "")

    def match_name(self, text: str, folded: str) -> tuple[float, ...]:
        """Return how well each word fits a name, such as a path. Only the last occurrence of each probe counts."""
        return tuple(
            max(
                (word.quality(text, folded, at, probe) for probe in word.probes if (at := folded.rfind(probe)) >= 0),
                default=0.0,
            )
            for word in self.words
        )


def query_of(query: str) -> Query:
    """Parse a query. It has no words if the text has only spaces."""
    query = query[:MAX_QUERY_CHARACTERS]
    words: list[Word] = []
    for quoted, chunk in _CHUNK.findall(query):
        if quoted:
            text = fold(quoted)
            words.append(Word(text, quoted, (text,), (text,), phrase=True))
        else:
            words += _words_of(chunk)
    useful = [word for word in words if word.phrase or word.text not in STOP_WORDS]
    words = useful or words
    if len(words) > 1:
        words = [
            word._replace(weight=WEAK_WEIGHT)
            if not word.phrase and (word.text in WEAK_WORDS or word.text.isdigit())
            else word
            for word in words
        ]
    words = [word._replace(base=word.weight) for word in words]
    whole = " ".join(fold(query).replace('"', " ").split())
    return Query(_unique(words), whole if len(words) > 1 else "")


def _unique(words: Iterable[Word]) -> tuple[Word, ...]:
    """Return the first `MAX_QUERY_WORDS` words without repetitions, each with its greatest weight."""
    unique: dict[tuple[str, bool], Word] = {}
    for word in words:
        key = (word.text, word.phrase)
        if key not in unique or unique[key].weight < word.weight:
            unique[key] = word
    return tuple(unique.values())[:MAX_QUERY_WORDS]


def _words_of(chunk: str, weight: float = 1.0) -> Iterator[Word]:
    """Yield the words of a text without spaces. Punctuation alone, or the name of a file, is one word."""
    bare = chunk.strip(".,;:!?()[]{}<>'`\"*")
    if FILE.fullmatch(bare):
        yield _make_word(bare, weight)
        return
    names: list[str] = _WORD.findall(bare)
    if not names:
        text = fold(chunk)
        yield Word(text, chunk, (text,), (text,), weight, weight)
        return
    *owners, last = names
    for owner in owners:
        yield _make_word(owner, weight * WEAK_WEIGHT if "." in bare or ":" in bare else weight)
    yield _make_word(last, weight)


def _make_word(written: str, weight: float) -> Word:
    text = fold(written)
    bare = written.strip("-")
    parts = tuple(map(fold, identifier_parts(bare)))
    if 1 < len(parts) <= MAX_PARTS and not written.startswith("__") and "." not in written and written[0] != "-":
        joined = (sign.join(each) for each in (parts, _with_digits(parts)) for sign in ("_", "", "-", " "))
        spellings = tuple(dict.fromkeys((text, *joined)))
        return Word(text, written, _without_longer(spellings), spellings, weight, weight, parts=parts)
    if not _PLAIN.fullmatch(text):
        return Word(text, written, (text,), (text,), weight, weight)
    short = _ABBREVIATIONS.get(text) or _ABBREVIATIONS.get(text.removesuffix("s"), ())
    probes = (_without_derivation(text), *(abbreviation for abbreviation in short if len(abbreviation) > 2))
    return Word(text, written, _without_longer(probes), (text,), weight, weight, short=short)


def _without_longer(texts: Sequence[str]) -> tuple[str, ...]:
    """Return the strings without those that contain another one."""
    return tuple(text for text in dict.fromkeys(texts) if not any(other != text and other in text for other in texts))


def _with_digits(parts: Sequence[str]) -> list[str]:
    """Return the parts with digits joined to the part before them: `http`, `server2`."""
    joined: list[str] = []
    for part in parts:
        if part.isdigit() and joined:
            joined[-1] += part
        else:
            joined.append(part)
    return joined


def identifier_parts(name: str) -> list[str]:
    """Return the parts of an identifier: `HTTP`, `Server` and `2` for `HTTPServer2`."""
    if name.isascii():
        return _PART.findall(name)
    parts: list[str] = []
    for run in _RUN.findall(name):
        starts = [at for at in range(len(run)) if at == 0 or _starts(run, at)]
        parts += [run[begin:end] for begin, end in pairwise([*starts, len(run)])]
    return parts


@lru_cache(maxsize=4_096)
def _without_inflection(word: str) -> str:
    """Return an English word without its ending of number or tense."""
    for ending, min_length in _INFLECTION_ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= min_length and not word.endswith(("ss", "us")):
            bare = word[: -len(ending)]
            if ending in ("ing", "ed") and bare[-1] == bare[-2] and bare[-1] not in "ls":
                return bare[:-1]
            return bare[:-1] if ending == "s" and bare.endswith("e") and len(bare) > 4 else bare
    return word


@lru_cache(maxsize=4_096)
def _without_derivation(word: str) -> str:
    """Return an English word without an ending that makes a noun or, if it has none, one of number or tense."""
    for ending, min_length in _DERIVATION_ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= min_length:
            return word[: -len(ending)]
    return _without_inflection(word)


WHOLE, PART = 2, 1


def _starts(text: str, at: int) -> int:
    """Return WHOLE if a word begins at a position, PART if a part of an identifier does, and 0 otherwise."""
    if at == 0:
        return WHOLE
    before, first = text[at - 1], text[at]
    if not before.isalnum():
        return PART if before == "_" else WHOLE
    if not first.isalnum():
        return WHOLE
    if before.isdigit() != first.isdigit() or not (before.isupper() or before.islower()):
        return PART
    if first.isupper() and (before.islower() or text[at + 1 : at + 2].islower()):
        return PART
    return 0


def _tail(text: str, at: int) -> str:
    """Return the rest of a word after a position: the letters up to the next part of an identifier."""
    if at == 0 or not text[at - 1].isalnum():
        return ""
    last = at
    while last < len(text) and last < at + MAX_TAIL_CHARACTERS and text[last].isalpha() and not _starts(text, last):
        last += 1
    return text[at:last]
