"""Writes a path below a root as the end of a URI, and reads it back, byte for byte. Does no I/O.

The parts of a path are file names as `os.fsdecode` gives them: bytes that are not UTF-8 are lone surrogates. In a URI,
such bytes are escapes, as in `%FF`.
"""

from __future__ import annotations

import os
import re
from functools import lru_cache

__all__ = ["MAX_PATH_CHARACTERS", "UnreadableUri", "join_parts", "quote", "split_path", "unquote"]

MAX_PATH_CHARACTERS = 32_768
"""Maximum length of a URI's path. Linux needs at most 12,288: 4,096 bytes (PATH_MAX), each as `%XX`."""
MAX_CACHED_CHARACTERS = 256
"""Maximum length of a path whose parts are cached."""

_PLAIN = re.compile(r"[A-Za-z0-9\-._~!$&'()*+,;=:@]*").fullmatch  # pchar (RFC 3986, §3.3)
_PLAIN_PATH = re.compile(r"[A-Za-z0-9\-._~!$&'()*+,;=:@/]*").fullmatch
_ESCAPES = tuple(chr(byte) if _PLAIN(chr(byte)) else f"%{byte:02X}" for byte in range(256))
_ESCAPE = re.compile(rb"%([0-9A-Fa-f]{2})?")
_NOT_FILE_NAMES = frozenset(("", ".", ".."))
_SPECIAL_ON_WINDOWS = re.compile(
    r'[\\:<>"|?*]|[. ]$|^(?:con|prn|aux|nul|conin\$|conout\$|com[\d¹²³]|lpt[\d¹²³])(?:\.|$)', re.IGNORECASE
)


class UnreadableUri(ValueError):
    """This is not the path of a file. The message says why."""


def quote(name: str) -> str:
    """Write a file name as a segment of a URI's path."""
    if _PLAIN(name):
        return name
    return "".join([_ESCAPES[byte] for byte in os.fsencode(name)])


def unquote(segment: str) -> str:
    """Read a segment of a URI's path as a file name; escapes are decoded once.

    Raises:
        UnreadableUri: an invalid escape, a lone surrogate, or not a file name: empty, `.`, `..`, with `/` or NUL, or
            special on Windows.
    """
    try:
        raw = segment.encode()
    except UnicodeEncodeError:
        raise UnreadableUri("a lone surrogate") from None
    if b"%" in raw:
        raw = _ESCAPE.sub(_decode_escape, raw)
    if raw in (b"", b".", b"..") or b"/" in raw or b"\0" in raw:
        raise UnreadableUri("not a file name")
    name = os.fsdecode(raw)
    if os.name == "nt" and _SPECIAL_ON_WINDOWS.search(name):
        raise UnreadableUri("not a plain Windows file name")
    return name


def _decode_escape(match: re.Match[bytes]) -> bytes:
    digits = match[1]
    if digits is None:
        raise UnreadableUri("a bad escape")
    return bytes((int(digits, 16),))


def join_parts(parts: tuple[str, ...]) -> str:
    """Write file names as a URI's path, without a slash in front."""
    return "/".join([quote(part) for part in parts])


def split_path(path: str) -> tuple[tuple[str, ...], bool]:
    """Return the file names in a URI's path, and whether it ends with a slash, which means a directory.

    Raises:
        UnreadableUri: a segment is not a file name, the path is too long, or there is a query or a fragment.
    """
    return _split_cached(path) if len(path) <= MAX_CACHED_CHARACTERS else _split(path)


def _split(path: str) -> tuple[tuple[str, ...], bool]:
    if len(path) > MAX_PATH_CHARACTERS or "?" in path or "#" in path:
        raise UnreadableUri("too long, or more than a path")
    ends_with_slash = path.endswith("/")
    inner = path[:-1] if ends_with_slash else path
    if not inner:
        return (), ends_with_slash
    segments = inner.split("/")
    if _PLAIN_PATH(inner) and _NOT_FILE_NAMES.isdisjoint(segments) and os.name != "nt":  # most need no decoding
        return tuple(segments), ends_with_slash
    return tuple([unquote(segment) for segment in segments]), ends_with_slash


_split_cached = lru_cache(1_024)(_split)  # the same paths are read again and again
