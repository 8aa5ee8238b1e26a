"""Taking passwords out of what a person wrote, so that it can be shown; opens nothing."""

from __future__ import annotations

import re

__all__ = ["has_password", "redacted"]

_USERINFO = re.compile(r"(?<=://)([^/?#@:\s]*):[^/?#\s]*@")
_OF_DATABASE = re.compile(
    r"\b((?:sqlite|postgres(?:ql)?|mysql|mariadb|oracle|mssql)(?:\+\w+)?://[^:/@]*):[^@]*@(?:[^/?#]*@)?", re.IGNORECASE
)
"""SQLAlchemy lets a password have slashes."""
_QUERY = re.compile(
    r"([?&])((?:password|passwd|pwd|token|secret|access_token|api_?key|sslpassword|key|secret_?key|sig)=[^&#]*)(&?)",
    re.IGNORECASE,
)


def redacted(url: str) -> str:
    """A URL, or any word, without the password that may be in it."""
    without = _USERINFO.sub(r"\1@", _OF_DATABASE.sub(r"\1@", url))
    if "://" not in without:
        return without
    while (found := _QUERY.search(without)) is not None:
        mark = found[1] if found[3] else ""
        without = without[: found.start()] + mark + without[found.end() :]
    return without


def has_password(url: str) -> bool:
    """Whether there is one in it."""
    return redacted(url) != url
