"""Where secrets stand in the bytes of a log, by a table of words and patterns; knows no files.

A pattern is tried only where one of its words stands, goes over a run of characters once (`++`, never back), and the
next try is behind what it found: the time is linear in the text, whatever is in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

__all__ = ["CONTEXT", "KINDS", "REDACTED", "SecretKind", "secret_spans"]

REDACTED = "[redacted]"
CONTEXT = 16_384
"""Bytes before and behind a window that are looked at, so that a secret is known by what it begins with."""


class SecretKind(NamedTuple):
    """One kind of secret: what it is called, the words at which it is looked for in lower case, and the pattern, of
    which the last group that matched is what nobody may see."""

    name: str
    words: tuple[bytes, ...]
    pattern: re.Pattern[bytes]


_QUOTE = rb"\\{0,3}[\"']?"
_IS = _QUOTE + rb"\s{0,4}(?:=>|[:=])\s{0,4}\\{0,3}"
_VALUE = (
    rb"(?:\"((?:[^\"\\\n]|\\.)++)|'((?:[^'\\\n]|\\.)++)"
    rb"|((?:(?i:bearer|basic|digest|token|negotiate) )?[^\s\"'&,;)}\]]++))"
)
_ALONE = rb"(?<![A-Za-z0-9_-])"
_TOKENS = (
    "ghp_ gho_ ghu_ ghs_ ghr_ github_pat_ glpat- xoxa- xoxb- xoxe- xoxp- xoxr- xoxs- sk- sk_live_ sk_test_ rk_live_ "
    "npm_ pypi- hf_"
)
_NAMES = (
    "password passwd passphrase pwd secret secret_key secret-key secretkey api_key api-key apikey access_key "
    "access-key accesskey accesskeyid access_key_id token credential credentials private_key privatekey private-key "
    "client_secret sessionid session_id session-id authorization signature"
)
_BY_LENGTH = tuple(sorted((word.encode() for word in _NAMES.split()), key=len, reverse=True))

KINDS = (
    SecretKind(
        "private keys",
        (b"-----begin ",),
        re.compile(rb"-----BEGIN [A-Z0-9 ]{0,32}PRIVATE KEY(?: BLOCK)?-----((?:[^-]|-(?!----END))*+)"),
    ),
    SecretKind(
        "values of names such as password, token, secret, api_key, Authorization",
        _BY_LENGTH,
        re.compile(rb"(?i:" + b"|".join(_BY_LENGTH) + rb")" + _IS + _VALUE),
    ),
    SecretKind("bearer tokens", (b"bearer ",), re.compile(rb".{7}([A-Za-z0-9._~+/=-]{8,}+)")),
    SecretKind("cookies", (b"cookie",), re.compile(rb".{6}" + _IS + rb"[\"']?([^\r\n\"]++)")),
    SecretKind("passwords in URLs", (b"://",), re.compile(rb"://[^\s/:@\"']{0,256}+:([^\s/@\"']++)@")),
    SecretKind("AWS key ids", (b"akia", b"asia"), re.compile(_ALONE + rb"(A[KS]IA[A-Z0-9]{16})(?![A-Za-z0-9])")),
    SecretKind(
        "tokens of GitHub, GitLab, Slack, Stripe, OpenAI, npm, PyPI, Hugging Face",
        tuple(word.encode() for word in _TOKENS.split()),
        re.compile(_ALONE + rb"([A-Za-z_]{2,11}[_-][A-Za-z0-9_-]{16,}+)"),
    ),
    SecretKind("Google API keys", (b"aiza",), re.compile(_ALONE + rb"(AIza[A-Za-z0-9_-]{35})")),
    SecretKind(
        "JSON Web Tokens",
        (b"eyj",),
        re.compile(_ALONE + rb"(eyJ[A-Za-z0-9_-]{8,}+\.[A-Za-z0-9_-]{4,}+(?:\.[A-Za-z0-9_-]*+)?)"),
    ),
)


def secret_spans(data: bytes) -> list[tuple[int, int]]:
    """The parts of `data` that are secrets, in order, none overlapping."""
    lower = data.lower()
    return list(
        _joined(sorted(span for kind in KINDS for word in kind.words for span in _find(data, lower, kind, word)))
    )


def _find(data: bytes, lower: bytes, kind: SecretKind, word: bytes) -> Iterator[tuple[int, int]]:
    at = lower.find(word)
    while at >= 0:
        match = kind.pattern.match(data, at)
        if match is not None:
            yield match.span(match.lastindex or 0)
        at = lower.find(word, max(at + len(word), match.end() if match else 0))


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
