"""The level of a line of a log, written as one of the words, letters and numbers that programs use.

A line of an access log (Common Log Format, Express, Gin) has the level of its HTTP status: 5xx is an error, 4xx a
warning, any other is info. Words in its URL or user agent are ignored. A level before the request counts only if it is
more severe than the status, because uvicorn writes INFO before each request. In JSON, and in any other line with a
`status=`, the status counts only if no level is written.
"""

from __future__ import annotations

import re

from wharfinger.errors import InvalidArgument

__all__ = ["LEVELS", "LEVEL_BYTES", "level_of", "read_level"]

LEVEL_BYTES = 16 << 10
"""Bytes at the beginning of an entry that can decide its level. An HTTP status comes after a URL, which can be long."""
WORD_BYTES = 512
"""Bytes at the beginning of an entry that are searched for a level that is written, such as `ERROR`."""

LEVELS = {"trace": 0, "debug": 10, "info": 20, "notice": 25, "warning": 30, "error": 40, "critical": 50, "alert": 60}
"""The levels, as `level=` in a URI names them, least severe first, and their ranks."""

_OTHER_WORDS = {
    "verbose": "trace", "fine": "debug", "dbg": "debug", "information": "info", "inf": "info", "warn": "warning",
    "wrn": "warning", "err": "error", "severe": "error", "crit": "critical", "fatal": "critical", "panic": "critical",
    "emerg": "alert", "emergency": "alert",
}  # fmt: skip
_RANKS = {word.encode(): rank for word, rank in LEVELS.items()} | {
    word.encode(): LEVELS[level] for word, level in _OTHER_WORDS.items()
}
_LETTERS = {
    b"T": 0, b"V": 0, b"D": 10, b"I": 20, b"N": 25, b"W": 30, b"E": 40, b"F": 50, b"C": 50, b"A": 60,
}  # fmt: skip
_MONOLOG = {
    100: "debug", 200: "info", 250: "notice", 300: "warning", 400: "error", 500: "critical", 550: "alert", 600: "alert",
}  # fmt: skip
_SYSLOG = ("alert", "alert", "critical", "error", "warning", "notice", "info", "debug")  # severities 0 to 7

_LONGEST_FIRST = sorted(_RANKS, key=lambda word: -len(word))
_WORDS = b"|".join(_LONGEST_FIRST)
_CAPITALS = b"|".join([word.upper() for word in _LONGEST_FIRST if word != b"fine"])
_JSON = re.compile(
    rb'"(?:level|severity|levelname|log\.level|lvl|loglevel)"\s{0,4}:\s{0,4}(?:"([A-Za-z]{1,16})"|([0-9]{1,3})(?![0-9]))',
    re.IGNORECASE,
).search
# `level=error`, `[error]`, `[core:error]`, `error:`; or a separate word in capitals.
_WORD = re.compile(
    rb'(?:\b(?i:level|severity|lvl)=["\']?((?i:' + _WORDS + rb"))\b)|(?:[\[:<|]((?i:" + _WORDS + rb"))[\]>|])"
    rb"|(?:(?<![A-Za-z0-9_\-/])(" + _CAPITALS + rb")(?![A-Za-z0-9_\-/]))|(?:(?:^|[\s\]])((?i:" + _WORDS + rb")):\s)"
).search
# `[E]`, `E0102 ` (klog), `E/tag` and ` E tag:` (Android).
_LETTER = re.compile(rb"\[([TVDINWEFCA])\]|^([IWEFD])[0-9]{4} |^([VDIWEF])/| ([VDIWEF]) (?=[\w/]{1,40}\s{0,4}:)").search
_PRIORITY = re.compile(rb"<([0-9]{1,3})>").match


_METHOD = rb"(?:GET|POST|PUT|HEAD|DELETE|PATCH|OPTIONS|CONNECT|TRACE|PROPFIND)"
# The request of the Common Log Format (`"GET / HTTP/1.1" 500 12`), of Express (`GET / 500 12 ms`), of Gin (`| 500 |`).
_REQUESTS = (
    # Linear: a quotation mark after a backslash begins no request, so no text is searched twice.
    re.compile(rb'(?<!\\)"' + _METHOD + rb' (?:[^"\\]|\\.){0,16000}+" ([1-5][0-9][0-9])(?![0-9])').search,
    re.compile(rb"(?<![^\s\]])" + _METHOD + rb" /\S{0,16000} ([1-5][0-9][0-9])(?= |$)").search,
    re.compile(rb"\| +([1-5][0-9][0-9]) +\|").search,
)
_STATUS = re.compile(
    rb"""(?:^|[\s,{"'])(?:http_|http\.)?(?:status|status_code|statusCode|response_code)["']?\s{0,4}[=:]\s{0,4}["']?"""
    rb"""([1-5][0-9][0-9])(?![0-9.])"""
).search


def level_of(entry: bytes) -> int | None:
    """Return the rank (see `LEVELS`) of an entry, or None if it has no level. Pass at least its first `LEVEL_BYTES`."""
    beginning = entry[:WORD_BYTES]
    if entry[:1] == b"{":
        rank = _json_level(beginning)
        return rank if rank is not None else _status_level(_STATUS(entry.partition(b"\n")[0]))
    line = entry.partition(b"\n")[0][:LEVEL_BYTES]
    for request in _REQUESTS:
        if found := request(line):
            status = _status_level(found) or 0
            return max(status, _written_level(line[: found.start()][:WORD_BYTES]) or 0)
    rank = _written_level(beginning)
    return rank if rank is not None else _status_level(_STATUS(line))


def _status_level(found: re.Match[bytes] | None) -> int | None:
    """Return the rank of the HTTP status in a match."""
    if found is None:
        return None
    return LEVELS[{b"5": "error", b"4": "warning"}.get(found[1][:1], "info")]


def _written_level(line: bytes) -> int | None:
    if (found := _PRIORITY(line)) and int(found[1]) < 192:  # RFC 5424, §6.2.1
        return LEVELS[_SYSLOG[int(found[1]) & 7]]
    if found := _WORD(line):
        return _RANKS[found[found.lastindex or 0].lower()]
    if found := _LETTER(line):
        return _LETTERS[found[found.lastindex or 0]]
    return None


def _json_level(line: bytes) -> int | None:
    match = _JSON(line)
    if match is None:
        return None
    word, number = match.groups()
    if word:
        return _RANKS.get(word.lower())
    value = int(number)
    if value < 8:  # severities of syslog, as in GELF
        return LEVELS[_SYSLOG[value]]
    if value in _MONOLOG:
        return LEVELS[_MONOLOG[value]]
    return max(value - 10, 0) if value <= 60 else LEVELS["alert"]  # pino and bunyan: 10 is trace, 30 info, 60 fatal


def read_level(text: str) -> int:
    """Convert the value of `level=` in a URI to a rank.

    Raises:
        InvalidArgument: it is not a level.
    """
    rank = _RANKS.get(text.lower().encode("utf-8", "replace"))
    if rank is None:
        raise InvalidArgument(f"level={text} is not one of {', '.join(LEVELS)}.")
    return rank
