"""The level of a line of a log, written as one of the words, letters and numbers that programs use."""

from __future__ import annotations

import re

from wharfinger.errors import InvalidArgument

__all__ = ["LEVELS", "level_of", "read_level"]

LEVELS = {"trace": 0, "debug": 10, "info": 20, "notice": 25, "warning": 30, "error": 40, "critical": 50, "alert": 60}
"""The values of `level=`, least severe first, and their ranks."""

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
_SYSLOG = ("alert", "alert", "critical", "error", "warning", "notice", "info", "debug")  # severities 0 to 7

_LONGEST_FIRST = sorted(_RANKS, key=lambda word: -len(word))
_WORDS = b"|".join(_LONGEST_FIRST)
_LOUD = b"|".join([word.upper() for word in _LONGEST_FIRST if word != b"fine"])
_JSON = re.compile(
    rb'"(?:level|severity|levelname|log\.level|lvl|loglevel)"\s{0,4}:\s{0,4}(?:"([A-Za-z]{1,16})"|([0-9]{1,3}))',
    re.IGNORECASE,
).search
# `level=error`, `[error]`, `[core:error]`, `error:`; or a separate word in capitals.
_WORD = re.compile(
    rb'(?:\b(?i:level|severity|lvl)=["\']?((?i:' + _WORDS + rb"))\b)|(?:[\[:<|]((?i:" + _WORDS + rb"))[\]>|])"
    rb"|(?:(?<![A-Za-z0-9_\-/])(" + _LOUD + rb")(?![A-Za-z0-9_\-/]))|(?:(?:^|[\s\]])((?i:" + _WORDS + rb")):\s)"
).search
_LETTER = re.compile(rb"\[([TVDINWEFCA])\]|^([IWEFD])[0-9]{4} |^([VDIWEF])/| ([VDIWEF]) (?=[\w/]{1,40}\s{0,4}:)").search
_PRIORITY = re.compile(rb"<([0-9]{1,3})>").match


def level_of(line: bytes) -> int | None:
    """The rank (see `LEVELS`) of a line; None if it has no level. The beginning of the line is enough."""
    if line[:1] == b"{":
        return _json_level(line)
    if (found := _PRIORITY(line)) and int(found[1]) < 192:
        return LEVELS[_SYSLOG[int(found[1]) & 7]]
    if found := _WORD(line):
        return _RANKS[found[found.lastindex or 0].lower()]
    if found := _LETTER(line):
        return _LETTERS[found[found.lastindex or 0]]
    return None


def _json_level(line: bytes) -> int | None:
    found = _JSON(line)
    if found is None:
        return None
    word, number = found.groups()
    if word:
        return _RANKS.get(word.lower())
    value = int(number)
    if value < 8:  # severities of syslog, as GELF has them
        return LEVELS[_SYSLOG[value]]
    return value - 10 if value <= 60 else LEVELS["alert"]  # pino and bunyan: 10 is trace, 30 info, 60 fatal


def read_level(written: str) -> int:
    """Convert the value of `level=` in a URI to a rank.

    Raises:
        InvalidArgument: it is not a level.
    """
    rank = _RANKS.get(written.lower().encode("utf-8", "replace"))
    if rank is None:
        raise InvalidArgument(f"level={written} is not one of {', '.join(LEVELS)}.")
    return rank
