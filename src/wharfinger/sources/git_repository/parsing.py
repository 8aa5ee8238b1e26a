"""What the bytes of commits, tags and trees say. Reads no objects: only what it is given.

A time, a name or a message that cannot be read is shown as far as it can; what git needs to go on has to be there.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple, overload

from wharfinger.sources.git_repository.safe_text import decode

__all__ = ["Commit", "GitTree", "GitTreeEntry", "NotParsed", "Person", "Tag", "parse_commit", "parse_tag", "parse_tree"]

DIGITS = frozenset("0123456789abcdef")
LONGEST_NAME = 1_000  # bytes of somebody that are shown where the rest cannot be read
_WHEN = re.compile(rb"(-?\d{1,12}) ([+-])(\d\d)(\d\d)").fullmatch
_NO_NAMES = frozenset((b"", b".", b".."))


class NotParsed(ValueError):
    """These bytes are none of such an object."""


class Person(NamedTuple):
    """Who did something, and when: seconds since 1970, and the offset of their clock in minutes."""

    name: str
    seconds: int
    offset: int


class Commit(NamedTuple):
    """What a commit says; of its message all, undecoded things replaced by escapes."""

    oid: str
    tree: str
    parents: tuple[str, ...]
    author: Person
    committer: Person
    message: str

    @property
    def subject(self) -> str:
        """The first line of the message."""
        return self.message.lstrip("\n").partition("\n")[0]


class Tag(NamedTuple):
    """What an annotated tag says."""

    oid: str
    target: str
    tagger: Person | None
    message: str


class GitTreeEntry(NamedTuple):
    """One entry of a tree: its name in bytes, its mode (as in `stat`), and the name of its object."""

    name: bytes
    mode: int
    oid: str


class GitTree(Sequence[GitTreeEntry]):
    """The entries of a tree in git's order, made as they are looked at."""

    def __init__(self, rows: list[tuple[bytes, int, bytes]]) -> None:
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, at: int) -> GitTreeEntry: ...
    @overload
    def __getitem__(self, at: slice) -> list[GitTreeEntry]: ...
    def __getitem__(self, at: int | slice) -> GitTreeEntry | list[GitTreeEntry]:
        if isinstance(at, slice):
            return [_entry(row) for row in self._rows[at]]
        return _entry(self._rows[at])

    @property
    def cost(self) -> int:
        """How many bytes of memory they take, about."""
        return 100 * len(self._rows) + sum([len(row[0]) for row in self._rows]) + 100

    def place_of(self, name: bytes) -> int | None:
        """Where the entry of this name is; None where there is none."""
        return next((at for at, row in enumerate(self._rows) if row[0] == name), None)


def _entry(row: tuple[bytes, int, bytes]) -> GitTreeEntry:
    name, mode, oid = row
    return GitTreeEntry(name, mode, oid.decode("ascii"))


def parse_tree(data: bytes) -> GitTree:
    from dulwich.objects import parse_tree as parse

    try:
        parsed = list(parse(data, 20))
    except Exception:
        raise NotParsed("this is no tree") from None
    return GitTree([row for row in parsed if row[0] not in _NO_NAMES and b"/" not in row[0]])


def parse_commit(oid: str, data: bytes) -> Commit:
    head, message = _fields(data)
    encoding = dict(head).get(b"encoding")
    try:
        found = dict(reversed(head))
        return Commit(
            oid,
            _oid(found[b"tree"]),
            tuple([_oid(value) for name, value in head if name == b"parent"]),
            _person(found.get(b"author", b""), encoding),
            _person(found.get(b"committer", b""), encoding),
            decode(message, encoding),
        )
    except (KeyError, ValueError):
        raise NotParsed("this is no commit") from None


def parse_tag(oid: str, data: bytes) -> Tag:
    head, message = _fields(data)
    found = dict(reversed(head))
    try:
        tagger = found.get(b"tagger")
        return Tag(oid, _oid(found[b"object"]), (tagger and _person(tagger, None)) or None, decode(message))
    except (KeyError, ValueError):
        raise NotParsed("this is no tag") from None


def _fields(data: bytes) -> tuple[list[tuple[bytes, bytes]], bytes]:
    """The fields before the first empty line, and the message after it; what continues a field is left out."""
    head, _, message = data.partition(b"\n\n")
    lines = [line.partition(b" ") for line in head.split(b"\n") if not line.startswith(b" ")]
    return [(name, value) for name, _, value in lines], message


def _oid(value: bytes) -> str:
    text = value.decode("ascii")
    if len(text) != 40 or not set(text) <= DIGITS:
        raise ValueError("no object name")
    return text


def _person(value: bytes, encoding: bytes | None) -> Person:
    """`Name <address> seconds offset`; a time that cannot be read is 1970."""
    name, _, when = value.rpartition(b"> ")
    found = _WHEN(when)
    if found is None:
        return Person(decode(name + b">" if name else value[:LONGEST_NAME], encoding), 0, 0)
    sign = -1 if found[2] == b"-" else 1
    return Person(decode(name + b">", encoding), int(found[1]), sign * (int(found[3]) * 60 + int(found[4])))
