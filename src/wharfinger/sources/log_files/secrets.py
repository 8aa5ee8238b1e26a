"""Finds secrets in the bytes of a log, by a table of words and patterns.

The time is linear in the length of any text: a pattern is tried only where one of its words occurs, its repetitions
are possessive (`++`), so that they do not backtrack, and the next try begins after the last match.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from wharfinger.content.secret_forms import SECRET_NAMES, TOKEN_FORMS, TOKEN_START

__all__ = ["CONTEXT_BYTES", "KINDS", "REDACTED", "SecretKind", "cut_between_secrets", "secret_spans"]

REDACTED = "[redacted]"
CONTEXT_BYTES = 16_384
"""Bytes around a window that are also examined, because a secret is recognised by the text before it."""


class SecretKind(NamedTuple):
    """One kind of secret: its name, the words (in lower case) with which it begins, and the pattern to try there.

    The last group that matched is the secret.
    """

    name: str
    words: tuple[bytes, ...]
    pattern: re.Pattern[bytes]


_QUOTE = rb"\\{0,3}[\"']?"
_ASSIGNMENT = _QUOTE + rb"\s{0,4}(?:=>|[:=])\s{0,4}\\{0,3}"
_VALUE = (
    rb"(?:\"((?:[^\"\\\n]|\\.)++)|'((?:[^'\\\n]|\\.)++)"
    rb"|((?:(?i:bearer|basic|digest|token|negotiate) )?[^\s\"'&,;)}\]]++))"
)
_WORDS = {spelled for name in SECRET_NAMES for spelled in (name, name.replace("_", "-"), name.replace("_", ""))}
_BY_LENGTH = tuple(sorted((word.encode() for word in _WORDS), key=lambda word: (-len(word), word)))

KINDS = (
    SecretKind(
        "private keys",
        (b"-----begin ",),
        re.compile(rb"-----BEGIN [A-Z0-9 ]{0,32}PRIVATE KEY(?: BLOCK)?-----((?:[^-]|-(?!----END))*+)"),
    ),
    SecretKind(
        "values of names such as password, token, secret, api_key, Authorization",
        _BY_LENGTH,
        re.compile(rb"(?i:" + b"|".join(_BY_LENGTH) + rb")" + _ASSIGNMENT + _VALUE),
    ),
    SecretKind("bearer tokens", (b"bearer ",), re.compile(rb".{7}([A-Za-z0-9._~+/=-]{8,}+)")),
    SecretKind("cookies", (b"cookie",), re.compile(rb".{6}" + _ASSIGNMENT + rb"[\"']?([^\r\n\"]++)")),
    SecretKind("passwords in URLs", (b"://",), re.compile(rb"://[^\s/:@\"']{0,256}+:([^\s/@\"']++)@")),
    *(
        SecretKind(
            form.name,
            tuple(beginning.lower().encode() for beginning in form.beginnings),
            re.compile(f"{TOKEN_START}({form.pattern})".encode()),
        )
        for form in TOKEN_FORMS
    ),
)


def secret_spans(data: bytes) -> list[tuple[int, int]]:
    """Return the start and end of each secret in `data`, in order and without overlaps."""
    lower = data.lower()
    return list(
        _joined(sorted(span for kind in KINDS for word in kind.words for span in _find(data, lower, kind, word)))
    )


def cut_between_secrets(data: bytes, size: int) -> bytes:
    """Return the first `size` bytes, or fewer if they end with a part of a secret that would not be found by itself.

    The password in a URL, for example, is recognised by the `@` after it.
    """
    starts = {start for start, _ in secret_spans(data[:size])}
    for start, end in secret_spans(data[: size + CONTEXT_BYTES]):
        if start < size <= end and start not in starts:
            return data[:start]
    return data[:size]


def _find(data: bytes, lower: bytes, kind: SecretKind, word: bytes) -> Iterator[tuple[int, int]]:
    position = lower.find(word)
    while position >= 0:
        match = kind.pattern.match(data, position)
        if match is not None:
            yield match.span(match.lastindex or 0)
        position = lower.find(word, max(position + len(word), match.end() if match else 0))


def _joined(spans: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    begin, end = -1, -1
    for start, stop in spans:
        if start > end:
            if end > begin:
                yield begin, end
            begin, end = start, stop
        else:
            end = max(end, stop)
    if end > begin:
        yield begin, end
