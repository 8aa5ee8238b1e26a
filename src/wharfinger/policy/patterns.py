"""Patterns over URIs and names, matched segment by segment.

A URI becomes a tuple of decoded segments: `git://flask/HEAD/a%20b.md` is `("git://", "flask", "HEAD", "a b.md")`.
The query is left out, since it selects a part or a view of the same resource. A slash at the end is left out too, so
that a rule for a directory does not depend on how a client writes it.

Only the canonical spelling of a URI has segments; no pattern matches another spelling. So no other spelling of a denied
file is ever allowed. A URI is not canonical if it has `%2e`, `%2F`, `..`, `//` inside the path, or a control character;
with `http:` and similar schemes also if it has a host in upper case, an IP address in an unusual form, a default port
or user information.

In a pattern, `*` stands for any characters within a segment, and `**` as a whole segment for any number of segments.
The matcher keeps the set of all positions that it may have reached, as the bits of an integer. So its time is
proportional to the length of the URI. The positions after the segments of a directory also say whether a match there or
below may be possible (at least one position is left), or is certain below (`TargetPattern.covers`).
"""

from __future__ import annotations

import ipaddress
import re
from typing import NamedTuple
from urllib.parse import unquote

from wharfinger.content.globs import Matcher, compile_glob
from wharfinger.errors import WharfingerError

__all__ = [
    "EVERYTHING",
    "Segments",
    "TargetPattern",
    "UnusablePattern",
    "has_unusual_character",
    "parse_pattern",
    "segments_below",
    "segments_of",
]

MAX_PATTERN_CHARACTERS = 1_000
MAX_SEGMENTS = 64
"""The maximum number of segments of a pattern."""
MAX_URI_CHARACTERS = 32_768
MAX_URI_SEGMENTS = 512
"""`segments_of` returns None for a URI with more segments, since the time of a decision grows with them."""

Segments = tuple[str, ...]
"""The scheme with its `:` or `://`; after `://` the authority, which may be empty; the segments of the path.

`file:///docs` has the segments `("file://", "", "docs")`.
"""

_SCHEME = re.compile(r"([a-z][a-z0-9+.\-]*:)(//)?")
_NOT_CANONICAL = re.compile(
    r"[\x00-\x20\x7f\\#]"  # control characters, spaces, a backslash, a fragment
    r"|%(?![0-9A-F]{2})"  # a bad escape, or lower-case digits (RFC 3986 §6.2.2.1)
    r"|%(?:2[DEF]|3[0-9]|4[1-9A-F]|5[0-9ACF]|6[1-9A-F]|7[0-9AEF]|[01][0-9A-F])"
    # an escape of an unreserved character (§6.2.2.2), of a separator or of a control character
)
has_unusual_character = re.compile(r"[\x00-\x1f\x7f\\]").search
"""Finds a character in a decoded segment that no canonical URI can contain."""
_KINDS = ("tool", "prompt", "method")
_SCHEME_BEGINNING = re.compile(r"([a-z][a-z0-9+.\-]*(:/{0,2})?)?")
_DEFAULT_PORTS = {"http://": ":80", "https://": ":443", "ws://": ":80", "wss://": ":443", "ftp://": ":21"}
_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9_*\0\-]+(\.[a-z0-9_*\0\-]+)*)(:([1-9][0-9]{0,4}|\*))?")
"""A host as RFC 3986 §6.2 normalizes it, with a port; `*` is for patterns, and a NUL stands for an escaped `*`."""

_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*").fullmatch


class UnusablePattern(WharfingerError, ValueError):
    """The text is not a pattern; the message says what to write instead."""

    exit_code = 2


def segments_of(uri: str) -> Segments | None:
    """Return the decoded segments of a URI; None if it is not a URI, or not in its canonical spelling."""
    text = uri.partition("?")[0]
    if len(text) > MAX_URI_CHARACTERS or _NOT_CANONICAL.search(text):
        return None
    segments = _split(text)
    return None if segments is None or len(segments) > MAX_URI_SEGMENTS else segments


def segments_below(prefix: str) -> Segments | None:
    """Return the segments of the directory in which all URIs that begin with `prefix` are; None as in `segments_of`.

    They are empty if the prefix ends before its `scheme://` is complete, as `gi`, `git:` and `git:/` do.
    Use it for the literal beginning of a template: that of `file:///docs/re{name}` is in the directory `file:///docs/`.
    """
    if _SCHEME_BEGINNING.fullmatch(prefix):
        scheme = _SCHEME.fullmatch(prefix)
        return (scheme[0],) if scheme and scheme[2] else ()  # `git:` begins `git:x` and `git://x`
    text, query, _ = prefix.partition("?")
    if query:
        return segments_of(text)
    directory = text[: text.rfind("/") + 1] or text[: text.find(":") + 1]
    scheme = _SCHEME.fullmatch(directory)
    return (scheme[0],) if scheme else segments_of(directory)


def _split(text: str) -> Segments | None:
    """Return the segments of a URI without a query; None if its scheme, authority or path is not canonical."""
    scheme = _SCHEME.match(text)
    if scheme is None:
        return None
    segments = text[scheme.end() :].split("/")
    if len(segments) > 1 and not segments[-1]:
        segments.pop()
    start = 1 if scheme[2] else 0  # an authority may be empty
    for segment in segments[start:]:
        if segment in ("", ".", ".."):
            return None
    if start and not _is_canonical_authority(scheme[0], segments[0]):
        return None
    if "%" in text:
        segments = [unquote(segment, errors="surrogateescape") for segment in segments]
    return (scheme[0], *segments)


def _is_canonical_authority(scheme: str, authority: str) -> bool:
    """Return whether an authority is in its canonical spelling.

    The authorities of most schemes here are labels, which are compared as they are.
    """
    if scheme == "file://":
        return authority.lower() != "localhost"  # the same as an empty one (RFC 8089 §2)
    port = _DEFAULT_PORTS.get(scheme)
    if port is None or authority == "**":
        return True
    if not _HOST.fullmatch(authority) or authority.endswith(port):
        return False
    host = authority.partition(":")[0]
    if _NUMBER(host.rpartition(".")[2]) and "*" not in host and "\0" not in host:  # resolvers read an IPv4 address
        return _is_canonical_ipv4(host)
    return not authority.startswith("[") or _is_canonical_ipv6(authority[1 : authority.index("]")])


def _is_canonical_ipv4(text: str) -> bool:
    """Return whether this is an IPv4 address as RFC 3986 §3.2.2 writes it, and not `10.5`, `0xa.0.0.5` or a number."""
    try:
        ipaddress.IPv4Address(text)
    except ValueError:
        return False
    return True


def _is_canonical_ipv6(text: str) -> bool:
    """Return whether this is an IPv6 address in its only short form (RFC 5952 §4).

    An address that is mapped from IPv4 is not: the IPv4 address is another spelling of it.
    """
    try:
        address = ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return str(address) == text and address.ipv4_mapped is None


class _AnySegments:
    """The item for `**`."""


_ANY = _AnySegments()
_Item = str | Matcher | _AnySegments


class TargetPattern(NamedTuple):
    """A compiled pattern. Positions are the bits of an integer: bit `n` means that the first `n` items have matched.

    If no bit is set, no match is possible any more.
    """

    text: str
    kind: str
    """`uri`, `tool`, `prompt`, `method` (of an extension), or `any` for all of them."""
    items: tuple[_Item, ...]
    first: int
    """The positions before the first segment."""
    final: int
    """The position after a match."""
    open_end: int
    """The positions from which any further segments match."""

    def step(self, positions: int, segment: str) -> int:
        """Return the positions after one more segment."""
        reached = 0
        items = self.items
        index = 0
        while positions:
            if positions & 1 and index < len(items):
                item = items[index]
                if item is _ANY:
                    reached |= 1 << index
                elif item == segment if isinstance(item, str) else item(segment):  # type: ignore[operator]
                    reached |= 2 << index
            positions >>= 1
            index += 1
        return self.skip(reached)

    def skip(self, positions: int) -> int:
        """Add the positions after each `**`, which may match no segment."""
        for index, item in enumerate(self.items):
            if item is _ANY and positions >> index & 1:
                positions |= 2 << index
        return positions

    def next_name(self, positions: int) -> str | None:
        """Return the only segment that may follow these positions; None if none or several may."""
        if not positions or positions & (positions - 1):
            return None
        index = positions.bit_length() - 1
        item = self.items[index] if index < len(self.items) else None
        return item if isinstance(item, str) else None

    def last_items(self, positions: int) -> list[str | Matcher | None]:
        """Return what one more segment may be, if it completes a match: strings, matchers, or None for any."""
        items: list[str | Matcher | None] = []
        for index, item in enumerate(self.items):
            if positions >> index & 1:
                if isinstance(item, _AnySegments):
                    if self.skip(1 << index) & self.final:
                        items.append(None)
                elif self.skip(2 << index) & self.final:
                    items.append(item)
        return items

    def matches(self, segments: Segments) -> bool:
        """Return whether the pattern matches exactly these segments."""
        positions = self.first
        for segment in segments:
            positions = self.step(positions, segment)
        return bool(positions & self.final)

    def covers(self, positions: int) -> bool:
        """Return whether only `**` is left at one of these positions, so that every URI below them matches."""
        return bool(positions & self.open_end)


def parse_pattern(text: str) -> TargetPattern:
    """Compile a pattern: a URI with `*` and `**`, `**` for every URI, or `tool:NAME`, `prompt:NAME` or `method:NAME`.

    Raises:
        UnusablePattern: the text has another form.
    """
    if not text or len(text) > MAX_PATTERN_CHARACTERS:
        raise UnusablePattern(f"A pattern has 1 to {MAX_PATTERN_CHARACTERS:,} characters: {text[:60]!r}.")
    kind, _, name = text.partition(":")
    if kind in _KINDS:
        if not name or name.startswith("/"):
            problem = "has a name that begins with '/'" if name else "has no name"
            raise UnusablePattern(f"{text!r} {problem}: write {kind}:NAME, or {kind}:* for all.")
        return _compile(text, kind, (_glob(name),))
    if text == "**":
        return _compile(text, "uri", (_ANY,))
    if "?" in text:
        raise UnusablePattern(f"{text!r}: rules apply to URIs without their query: leave out the '?' and what follows.")
    if _SCHEME.match(text) is None:
        raise UnusablePattern(
            f"{text!r} is not a URI: begin with a scheme in lower case, as in file:///docs/**, or write tool:NAME or "
            "prompt:NAME."
        )
    segments = None if _NOT_CANONICAL.search(text) else _split(text.replace("%2A", "\0"))
    if segments is None:
        raise UnusablePattern(
            f"{text!r} must be written in another way: leave out empty, '.' and '..' segments, '#' and what follows, "
            "the host localhost, default ports, user names, and escapes such as %2E that are not needed; write a space "
            "as %20, a host in lower case, an IPv4 address with four decimal numbers, an IPv6 address in its shortest "
            "form, and other escapes with upper-case digits, as in %C3%A9."
        )
    if len(segments) > MAX_SEGMENTS:
        raise UnusablePattern(f"{text[:60]!r}… has more than {MAX_SEGMENTS} segments.")
    items: list[_Item] = []
    for segment in segments:
        if segment == "**":
            items.append(_ANY)
        elif "**" in segment:
            raise UnusablePattern(f"{text!r}: '**' must be a whole segment, as in file:///docs/**/*.md.")
        else:
            items.append(_glob(segment))
    return _compile(text, "uri", tuple(items))


def _glob(segment: str) -> str | Matcher:
    """Return a segment itself, or a matcher if it contains `*`; a NUL stands for an escaped `*`."""
    if "*" not in segment:
        return segment.replace("\0", "*")
    escaped = re.sub(r"[?\[\]\\\0]", lambda found: "\\" + found[0].replace("\0", "*"), segment)
    return compile_glob(escaped, path=False)


def _compile(text: str, kind: str, items: tuple[_Item, ...]) -> TargetPattern:
    start = len(items)
    while start and items[start - 1] is _ANY:
        start -= 1
    open_end = sum(1 << index for index in range(start, len(items)))
    pattern = TargetPattern(text, kind, items, 0, 1 << len(items), open_end)
    return pattern._replace(first=pattern.skip(1))


EVERYTHING = _compile("everything", "any", (_ANY,))
"""Matches every URI and every name."""
