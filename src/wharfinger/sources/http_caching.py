"""Headers about caching (RFC 9110 §13, RFC 9111): how long an answer may be reused, and how to ask for changes."""

from __future__ import annotations

import re
from collections.abc import Mapping

__all__ = ["conditional_headers", "fresh_seconds"]

_MAX_AGE = re.compile(r"(?:^|,)\s*max-age\s*=\s*\"?([0-9]{1,9})").search
_SECONDS = re.compile(r"[0-9]{1,9}").fullmatch


def conditional_headers(etag: str, last_modified: str) -> dict[str, str]:
    """Return the headers with which a request asks whether a kept answer has changed. A value may be empty."""
    headers = {"if-none-match": etag, "if-modified-since": last_modified}
    return {name: value for name, value in headers.items() if value}


def fresh_seconds(headers: Mapping[str, str]) -> int | None:
    """Return for how many seconds an answer may be reused without a request; None if its headers do not say."""
    control = headers.get("cache-control", "").lower()
    if {directive.partition("=")[0].strip() for directive in control.split(",")} & {"no-cache", "no-store"}:
        return 0
    max_age = _MAX_AGE(control)
    if max_age is None:
        return None
    age = headers.get("age", "").strip()
    return max(0, int(max_age[1]) - (int(age) if _SECONDS(age) else 0))
