"""What `WWW-Authenticate` says (RFC 9110 §11.6.1, RFC 6750 §3, RFC 9728 §5.1), parsed in linear time; asks nobody."""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

__all__ = ["Challenge", "bearer_challenge", "parse_challenges"]

MAX_HEADER_CHARACTERS = 16 * 1024
"""Characters of a header that are looked at."""

_TOKEN = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"  # noqa: S105 - a grammar's word
_SCHEME = re.compile(rf"[\s,]*({_TOKEN})(?=[\s,]|$)")
# An unquoted value may hold more than a token: URLs are sent so, against the grammar.
_PARAM = re.compile(rf"[\s,]*({_TOKEN})[ \t]{{0,8}}=[ \t]{{0,8}}(?:\"((?:[^\"\\]|\\.)*+)\"|([^\s,\"]+))(?=[\s,]|$)")
_TOKEN68 = re.compile(r"[ \t]+([A-Za-z0-9._~+/-]+=*)[ \t]*(?=,|$)")
_ESCAPED = re.compile(r"\\(.)")


class Challenge(msgspec.Struct, frozen=True):
    """One challenge: its scheme and its parameters in lower case, the values as they were sent."""

    scheme: str
    params: Mapping[str, str]

    @property
    def scope(self) -> tuple[str, ...]:
        """The scopes that it asks for, in order; empty where it names none."""
        return tuple(dict.fromkeys(self.params.get("scope", "").split()))

    @property
    def error(self) -> str:
        """The error code, such as `insufficient_scope`; empty where it names none."""
        return self.params.get("error", "")

    @property
    def resource_metadata(self) -> str | None:
        """Where the server says that its metadata is."""
        return self.params.get("resource_metadata")


def parse_challenges(text: str) -> list[Challenge]:
    """Every challenge of a header, or of several joined by commas; what follows a fault is left out."""
    text = text[:MAX_HEADER_CHARACTERS]
    found: list[Challenge] = []
    place = 0
    while (scheme := _SCHEME.match(text, place)) is not None:
        place = scheme.end()
        params: dict[str, str] = {}
        if _PARAM.match(text, place) is None and (blob := _TOKEN68.match(text, place)) is not None:
            place = blob.end()
        while (param := _PARAM.match(text, place)) is not None:
            place = param.end()
            name, quoted, bare = param.groups()
            params.setdefault(name.lower(), bare if quoted is None else _ESCAPED.sub(r"\1", quoted))
        found.append(Challenge(scheme[1].lower(), params))
    return found


def bearer_challenge(text: str) -> Challenge | None:
    """The first challenge that asks for a bearer token; an empty one where the header is missing.

    None: the server wants something else, which signing in does not give.
    """
    if not text.strip():
        return Challenge("bearer", {})
    return next((challenge for challenge in parse_challenges(text) if challenge.scheme == "bearer"), None)
