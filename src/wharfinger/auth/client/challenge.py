"""Parses `WWW-Authenticate` (RFC 9110 §11.6.1, RFC 6750 §3, RFC 9728 §5.1) in linear time."""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

__all__ = ["Challenge", "bearer_challenge", "parse_challenges"]

MAX_HEADER_CHARACTERS = 16 * 1024
"""The maximum number of characters of a header that are read; the rest is ignored."""

_TOKEN = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"  # noqa: S105  # the `token` of the grammar
_SCHEME = re.compile(rf"[\s,]*({_TOKEN})(?=[\s,]|$)")
# An unquoted value may be more than a token: some servers send URLs without quotes, against the grammar.
_PARAM = re.compile(rf"[\s,]*({_TOKEN})[ \t]{{0,8}}=[ \t]{{0,8}}(?:\"((?:[^\"\\]|\\.)*+)\"|([^\s,\"]+))(?=[\s,]|$)")
_TOKEN68 = re.compile(r"[ \t]+([A-Za-z0-9._~+/-]+=*)[ \t]*(?=,|$)")
_ESCAPED = re.compile(r"\\(.)")


class Challenge(msgspec.Struct, frozen=True):
    """One challenge: the scheme and the names of parameters in lower case, the values without quotes."""

    scheme: str
    params: Mapping[str, str]

    @property
    def scope(self) -> tuple[str, ...]:
        """The required scopes, in order; empty if the challenge names none."""
        return tuple(dict.fromkeys(self.params.get("scope", "").split()))

    @property
    def error(self) -> str:
        """The error code, such as `insufficient_scope`, or empty."""
        return self.params.get("error", "")

    @property
    def resource_metadata(self) -> str | None:
        """The URL of the server's metadata, or None."""
        return self.params.get("resource_metadata")


def parse_challenges(text: str) -> list[Challenge]:
    """Return the challenges of a header, or of several joined by commas. Stops at the first syntax error."""
    text = text[:MAX_HEADER_CHARACTERS]
    challenges: list[Challenge] = []
    position = 0
    while (scheme := _SCHEME.match(text, position)) is not None:
        position = scheme.end()
        params: dict[str, str] = {}
        if _PARAM.match(text, position) is None and (blob := _TOKEN68.match(text, position)) is not None:
            position = blob.end()
        while (param := _PARAM.match(text, position)) is not None:
            position = param.end()
            name, quoted, bare = param.groups()
            params.setdefault(name.lower(), bare if quoted is None else _ESCAPED.sub(r"\1", quoted))
        challenges.append(Challenge(scheme[1].lower(), params))
    return challenges


def bearer_challenge(text: str) -> Challenge | None:
    """Return the first challenge for a bearer token; a challenge without parameters if the header is missing.

    Returns None if the server requires other credentials, which a sign-in does not provide.
    """
    if not text.strip():
        return Challenge("bearer", {})
    return next((challenge for challenge in parse_challenges(text) if challenge.scheme == "bearer"), None)
