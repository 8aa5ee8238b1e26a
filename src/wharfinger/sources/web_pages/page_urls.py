"""The URLs of a site's pages: one spelling for each, and which of them are below the operator's URL.

A policy needs URIs that can be written in one way only (`policy.patterns`). So every URL is normalized when it enters
the list (RFC 3986 §6.2.2: case of the host, percent-encoding, dots), and a request must use that spelling.
"""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import quote, urlsplit

from wharfinger.net import join_url, origin_of, split_url
from wharfinger.policy.patterns import segments_of

__all__ = ["Scope", "normalized", "resolved"]

MAX_URL_CHARACTERS = 2_000
_ESCAPE = re.compile(r"%([0-9A-Fa-f]{2})?")
_UNRESERVED = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
_PATH_CHARACTERS = "%-._~!$&'()*+,;=:@/"
_QUERY_CHARACTERS = _PATH_CHARACTERS + "?"


def resolved(link: str, base: str) -> str | None:
    """Return the normalized URL of a link in a document at `base`; None if it is not the URL of a page."""
    return normalized(join_url(base, link.strip()))


def normalized(url: str) -> str | None:
    """Return the one spelling of a URL, without its fragment; None if it is not a URL of a page."""
    if len(url) > MAX_URL_CHARACTERS:
        return None
    try:
        parts = urlsplit(url)
    except ValueError:
        return None
    path = parts.path
    if "/." in path and "//" not in path:  # two slashes are refused below
        path = urlsplit(join_url("http://host/", path)).path  # without dot segments (RFC 3986 §6.2.2.3)
    path = quote(_ESCAPE.sub(_normal_escape, path), safe=_PATH_CHARACTERS) or "/"
    query = quote(_ESCAPE.sub(_normal_escape, parts.query), safe=_QUERY_CHARACTERS)
    origin = origin_of(f"{parts.scheme.lower()}://{parts.netloc}/")
    result = f"{origin}{path}{'?' if query else ''}{query}"
    if origin is None or split_url(result) is None or segments_of(result) is None or len(result) > MAX_URL_CHARACTERS:
        return None
    return result


def _normal_escape(escape: re.Match[str]) -> str:
    if escape[1] is None:
        return "%25"
    character = chr(int(escape[1], 16))
    return character if character in _UNRESERVED else escape[0].upper()


class Scope(NamedTuple):
    """The URLs that the operator's URL covers: those of its origin whose path begins with the same segments."""

    origin: str
    path: str
    """Begins and ends with a slash."""

    @property
    def url(self) -> str:
        """The URL of the top, with a slash at its end."""
        return self.origin + self.path

    def covers(self, url: str) -> bool:
        """Return whether a normalized URL is the top, or below it."""
        return f"{url.partition('?')[0]}/".startswith(self.url)
