"""Writes and parses the URIs of one repository, such as those of trees and commits, without access to it.

A revision is one part of the path, so the slash of `feature/x` is written `%2F`. The parts of a path are file names,
byte for byte, as in `file:` URIs.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from wharfinger.content.text import shown
from wharfinger.errors import InvalidArgument, ResourceNotFound
from wharfinger.sources.folder.file_uri import UnreadableUri, join_parts, quote, split_path
from wharfinger.sources.windows.window import split_query

__all__ = ["GitAddress", "GitUris", "Parts", "plain_path", "quote_rev", "unquote_rev"]

Parts = tuple[str, ...]
"""File names below the top of a tree, as `os.fsdecode` gives them."""

MAX_URI_CHARACTERS = 65_536
_PLAIN = re.compile(r"[A-Za-z0-9\-._~]*").fullmatch


class GitAddress(NamedTuple):
    """A parsed URI. `kind` is `top` or a key of `_QUERIES`, such as `tree`; `uri` is without the query."""

    kind: str
    uri: str
    query: dict[str, str]
    rev: str = ""
    to: str | None = None
    parts: Parts = ()
    ends_with_slash: bool = False


class GitUris:
    """The URIs of one repository."""

    def __init__(self, label: str) -> None:
        self.top = f"git://{quote(label)}"
        self._prefix = self.top + "/"

    def matches(self, uri: str) -> bool:
        """Return whether a URI belongs to this repository. It need not exist."""
        return uri.startswith((self._prefix, self.top + "?")) or uri == self.top

    # Writing

    def tree(self, rev: str, parts: Parts = ()) -> str:
        """Return the URI of a tree, or of a file or folder in it."""
        return f"{self._prefix}tree/{quote_rev(rev)}" + ("/" + join_parts(parts) if parts else "")

    def commit(self, rev: str) -> str:
        """Return the URI of a commit."""
        return f"{self._prefix}commit/{quote_rev(rev)}"

    def diff(self, rev: str, to: str | None = None, parts: Parts = ()) -> str:
        """Return the URI of the difference between two revisions, or between a commit and its parent if `to` is None.

        With `parts`, it is the difference at this path only.
        """
        first = quote_rev(rev)
        if to is not None:
            # If the name ends with a dot, escape it: the two dots of the separator follow.
            first = f"{first[:-1]}%2E" if first.endswith(".") else first
        revisions = first if to is None else f"{first}..{quote_rev(to)}"
        return f"{self._prefix}diff/{revisions}" + ("/" + join_parts(parts) if parts else "")

    def log(self, rev: str) -> str:
        """Return the URI of the commits that led to a revision."""
        return f"{self._prefix}log/{quote_rev(rev)}"

    def blame(self, rev: str, parts: Parts) -> str:
        """Return the URI of the commits that wrote the lines of a file."""
        return f"{self._prefix}blame/{quote_rev(rev)}/{join_parts(parts)}"

    def changes(self, parts: Parts = ()) -> str:
        """Return the URI of the uncommitted changes in the working tree, or at a path of it."""
        return f"{self._prefix}changes" + ("/" + join_parts(parts) if parts else "")

    def grep(self, rev: str) -> str:
        """Return the URI of a search in the files of a revision, without its parameter `text`."""
        return f"{self._prefix}grep/{quote_rev(rev)}"

    @property
    def templates(self) -> dict[str, str]:
        """The URI templates, by name."""
        prefix = self._prefix
        return {
            "tree": f"{prefix}tree/{{rev}}/{{+path}}",
            "root": f"{prefix}tree/{{rev}}",
            "commit": f"{prefix}commit/{{rev}}",
            "commit diff": f"{prefix}diff/{{rev}}",
            "diff": f"{prefix}diff/{{from}}..{{to}}",
            "path diff": f"{prefix}diff/{{from}}..{{to}}/{{+path}}",
            "log": f"{prefix}log/{{rev}}{{?path,author,grep,pickaxe,since,until,limit,after}}",
            "blame": f"{prefix}blame/{{rev}}/{{+path}}{{?lines}}",
            "changes": f"{prefix}changes/{{+path}}",
            "grep": f"{prefix}grep/{{rev}}{{?text,path,after}}",
        }

    # Reading

    def parse(self, uri: str) -> GitAddress:
        """Parse a URI.

        Raises:
            ResourceNotFound: it cannot name anything in this repository.
            InvalidArgument: its query cannot be read.
        """
        if len(uri) > MAX_URI_CHARACTERS or "#" in uri or not self.matches(uri):
            raise ResourceNotFound(uri[:MAX_URI_CHARACTERS])
        base, query = split_query(uri, "surrogateescape")
        if base in (self.top, self._prefix):
            _check_query(base, query, ())
            return GitAddress("top", base, query)
        kind, _, rest = base[len(self._prefix) :].partition("/")
        allowed = _QUERIES.get(kind)
        first, slash, path = ("", "", rest) if kind == "changes" else rest.partition("/")
        if allowed is None or not (first or kind == "changes"):
            raise ResourceNotFound(uri)
        try:
            parts, ends_with_slash = split_path(path) if path else ((), bool(slash))
            rev, dots, to = first.partition("..") if kind == "diff" else (first, "", "")
            rev = unquote_rev(rev) if kind != "changes" else ""
            address = GitAddress(kind, base, query, rev, unquote_rev(to) if dots else None, parts, ends_with_slash)
        except (UnreadableUri, ValueError):
            raise ResourceNotFound(uri) from None
        if (kind in ("commit", "log", "grep") and parts) or (kind != "tree" and ends_with_slash):
            raise ResourceNotFound(uri)
        _check_query(base, query, allowed)
        return address


_QUERIES = {
    "tree": ("lines", "bytes", "tail"),
    "commit": (),
    "blame": ("lines", "tail"),
    "changes": ("after",),
    "grep": ("text", "path", "after"),
    "diff": ("after",),
    "log": ("path", "author", "grep", "pickaxe", "since", "until", "limit", "after"),
}
"""The parameters that the URIs of each kind may have."""


def _check_query(base: str, query: dict[str, str], allowed: tuple[str, ...]) -> None:
    unknown = [name for name in query if name not in allowed]
    if unknown:
        hint = f"its parameters are {', '.join(allowed)}" if allowed else "it has no parameters"
        raise InvalidArgument(f"{base[:200]} has no parameter {shown(unknown[0][:50])!r}: {hint}.")


def plain_path(text: str) -> Parts:
    """Split a path without escapes into its parts.

    Raises:
        UnreadableUri: it is not a path.
    """
    return split_path("/".join([quote(part) for part in text.split("/")]))[0]


def quote_rev(rev: str) -> str:
    """Write a revision as one part of a URI's path: escape `..`, and all except ASCII letters, digits, `-._~`."""
    if _PLAIN(rev) and ".." not in rev:  # most revisions need no escapes
        return rev
    return "".join([
        character
        if _PLAIN(character)
        else "".join([f"%{byte:02X}" for byte in character.encode("utf-8", "surrogateescape")])
        for character in rev
    ]).replace("..", "%2E%2E")  # fmt: skip


def unquote_rev(part: str) -> str:
    """Read one part of a URI's path as a revision; escapes are decoded once.

    Raises:
        ValueError: it is empty, or has an invalid escape or a NUL.
    """
    raw = re.sub(rb"%([0-9A-Fa-f]{2})?", _decode, part.encode())
    if not raw or b"\0" in raw:
        raise ValueError("no revision")
    return raw.decode("utf-8", "surrogateescape")


def _decode(match: re.Match[bytes]) -> bytes:
    if match[1] is None:
        raise ValueError("a bad escape")
    return bytes((int(match[1], 16),))
