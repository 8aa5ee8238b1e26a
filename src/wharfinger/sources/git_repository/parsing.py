"""Parses commits, tags and trees. A damaged time, name or message is shown as far as possible."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import NamedTuple, overload

from wharfinger.sources.git_repository.safe_text import decode

__all__ = ["Commit", "GitTree", "GitTreeEntry", "NotParsed", "Person", "Tag", "parse_commit", "parse_tag", "parse_tree"]

MAX_PERSON_BYTES = 1_000
"""Maximum bytes that are shown of an author, committer or tagger that cannot be parsed."""
_WHEN = re.compile(rb"\s*(-?\d{1,12})\s+([+-])(\d{1,9})").match
_OID = re.compile(rb"[0-9a-f]{40}|[0-9a-f]{64}").fullmatch
_ENTRIES = {length: re.compile(rb"([0-7]{1,7}) ([^\0]*)\0([\s\S]{%d})" % length) for length in (20, 32)}
_NOT_FILE_NAMES = frozenset((b"", b".", b".."))


class NotParsed(ValueError):
    """These bytes are not an object of this kind."""


class Person(NamedTuple):
    """An author, committer or tagger, with the time in seconds since 1970, and its offset from UTC in minutes.

    `name` includes the address: `Ada <ada@example.org>`.
    """

    name: str
    seconds: int
    offset: int


class Commit(NamedTuple):
    """A commit. Bytes of its message that cannot be decoded are written as escapes."""

    oid: str
    tree: str
    parents: tuple[str, ...]
    author: Person
    committer: Person
    message: str

    @property
    def subject(self) -> str:
        """The first line of the message that is not empty."""
        return self.message.lstrip().partition("\n")[0]


class Tag(NamedTuple):
    """An annotated tag."""

    oid: str
    target: str
    tagger: Person | None
    message: str


class GitTreeEntry(NamedTuple):
    """One entry of a tree: its name in bytes, its mode (as in `stat`), and the name of its object."""

    name: bytes
    mode: int
    oid: str

    @property
    def part(self) -> str:
        """The name as a part of a path."""
        return os.fsdecode(self.name)


class GitTree(Sequence[GitTreeEntry]):
    """The entries of a tree in git's order."""

    def __init__(self, rows: list[tuple[bytes, bytes, bytes]]) -> None:
        self._rows = rows
        self._indexes_by_name: dict[bytes, int] | None = None

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
        """Approximate bytes of memory that this takes."""
        return 250 * len(self._rows) + sum([len(row[1]) for row in self._rows]) + 100

    def index_of(self, name: bytes) -> int | None:
        """Return the index of the entry with this name, or None."""
        if self._indexes_by_name is None:
            self._indexes_by_name = {row[1]: index for index, row in enumerate(self._rows)}
        return self._indexes_by_name.get(name)


def _entry(row: tuple[bytes, bytes, bytes]) -> GitTreeEntry:
    mode, name, oid = row
    return GitTreeEntry(name, int(mode, 8), oid.hex())


def parse_tree(data: bytes, oid_bytes: int = 20) -> GitTree:
    """Parse a tree whose object names have `oid_bytes` bytes.

    Entries with impossible names are left out, and of several with the same name, all but the first.

    Raises:
        NotParsed: these bytes are not a tree.
    """
    rows = _ENTRIES[oid_bytes].findall(data)
    if sum([len(mode) + len(name) + 2 + oid_bytes for mode, name, _ in rows]) != len(data):
        raise NotParsed("this is not a tree")
    rows_by_name = {row[1]: row for row in reversed(rows) if row[1] not in _NOT_FILE_NAMES and b"/" not in row[1]}
    if len(rows_by_name) < len(rows):
        rows = [row for row in rows if rows_by_name.get(row[1]) is row]
    return GitTree(rows)


def parse_commit(oid: str, data: bytes) -> Commit:
    """Parse a commit.

    Raises:
        NotParsed: these bytes are not a commit.
    """
    head, message = _fields(data)
    fields = dict(reversed(head))  # of a repeated field, the first counts
    encoding = fields.get(b"encoding")
    try:
        return Commit(
            oid,
            _oid(fields[b"tree"]),
            tuple([_oid(value) for name, value in head if name == b"parent"]),
            _person(fields.get(b"author", b""), encoding),
            _person(fields.get(b"committer", b""), encoding),
            decode(message, encoding),
        )
    except (KeyError, ValueError):
        raise NotParsed("this is not a commit") from None


def parse_tag(oid: str, data: bytes) -> Tag:
    """Parse an annotated tag.

    Raises:
        NotParsed: these bytes are not a tag.
    """
    head, message = _fields(data)
    fields = dict(reversed(head))
    try:
        tagger = fields.get(b"tagger")
        return Tag(oid, _oid(fields[b"object"]), (tagger and _person(tagger, None)) or None, decode(message))
    except (KeyError, ValueError):
        raise NotParsed("this is not a tag") from None


def _fields(data: bytes) -> tuple[list[tuple[bytes, bytes]], bytes]:
    """Split data into the fields before the first empty line, without continuation lines, and the message after it."""
    head, _, message = data.partition(b"\n\n")
    lines = [line.partition(b" ") for line in head.split(b"\n") if not line.startswith(b" ")]
    return [(name, value) for name, _, value in lines], message


def _oid(value: bytes) -> str:
    if not _OID(value):
        raise ValueError("no object name")
    return value.decode("ascii")


def _person(value: bytes, encoding: bytes | None) -> Person:
    """Parse `Name <address> seconds offset` as leniently as git. A time that cannot be read becomes 1970."""
    name, end, when = value.rpartition(b">")
    match = _WHEN(when)
    if match is None:
        return Person(decode(name + end or value[:MAX_PERSON_BYTES], encoding), 0, 0)
    hours, minutes = divmod(int(match[3]), 100)  # a damaged offset such as +051800 means 518 hours to git
    sign = -1 if match[2] == b"-" else 1
    return Person(decode(name + end, encoding), int(match[1]), sign * (hours * 60 + minutes))
