"""Headers about caching (RFC 9110 §13, RFC 9111): how long an answer may be reused, and how to ask for changes."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping

from wharfinger.net import unix_time

__all__ = ["conditional_headers", "dated_validator", "fresh_seconds"]

_MAX_AGE = re.compile(r"(?:^|,)\s*max-age\s*=\s*\"?([0-9]{1,9})").search
_SECONDS = re.compile(r"[0-9]{1,9}").fullmatch


def conditional_headers(etag: str, last_modified: str) -> dict[str, str]:
    """Return the headers with which a request asks whether a kept answer has changed. Empty values are left out."""
    headers = {"if-none-match": etag, "if-modified-since": last_modified}
    return {name: value for name, value in headers.items() if value}


def dated_validator(headers: Mapping[str, str]) -> str:
    """Return the `Last-Modified` of an answer if a later request can use it to ask for changes.

    Returns an empty string if this header is missing or not a valid date. It is not used either if the answer was sent
    less than a second after the change: a later change in that second would have the same date (RFC 9110 §8.8.2.2).
    """
    last_modified = headers.get("last-modified", "").strip()
    modified = unix_time(last_modified)
    answered = unix_time(headers.get("date", "")) or time.time()
    return last_modified if modified is not None and answered - modified >= 1 else ""


def fresh_seconds(headers: Mapping[str, str]) -> int | None:
    """Return for how many seconds an answer may be reused without a request; None if `Cache-Control` does not say."""
    control = headers.get("cache-control", "").lower()
    if {directive.partition("=")[0].strip() for directive in control.split(",")} & {"no-cache", "no-store"}:
        return 0
    max_age = _MAX_AGE(control)
    if max_age is None:
        return None
    age = headers.get("age", "").strip()
    return max(0, int(max_age[1]) - (int(age) if _SECONDS(age) else 0))
