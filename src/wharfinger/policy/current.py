"""The access of the caller for whom code runs now, for sources whose answers name other resources.

A directory, a log of commits, or the list of an archive contains URIs besides the one that was read. A source leaves
out those that the caller may not read:

    entries = [entry for entry in entries if may_read(entry.uri)]

The server sets the access for each request, also in the threads that the request uses. Without a policy, and in tasks
that belong to no request, such as indexing, everything may be read. So a cache that several callers share must hold all
entries, and be filtered for each caller when it is read.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextvars import ContextVar
from typing import Protocol, TypeVar, runtime_checkable
from urllib.parse import quote_from_bytes

from wharfinger.protocol.interfaces import Access

__all__ = [
    "CURRENT_ACCESS",
    "is_restricted",
    "may",
    "may_read",
    "may_read_below",
    "names_by_decision",
    "readable_names",
    "readable_names_of",
    "readable_uris",
    "reads_all_below",
    "reads_all_of_source",
    "reads_source",
    "unrestricted",
]

T = TypeVar("T")

MAX_DIRECTORIES = 10_000
"""The maximum number of directories that `readable_uris` remembers."""
_CHECKED_AUTHORITIES = ("http://", "https://", "ws://", "wss://", "ftp://", "file://")
"""The beginnings of URIs whose authority can be written in more than one way (see `patterns`)."""
_PLAIN_NAME = re.compile(r"(?!\.{0,2}$)[A-Za-z0-9\-._~!$&'()*+,;=:@]+").fullmatch
_PLAIN = "-._~!$&'()*+,;=:@"
"""The characters besides letters and digits that all sources write unescaped in a segment (RFC 3986 §3.3)."""


@runtime_checkable
class ReadsNames(Protocol):
    """An access that decides faster about many entries of a directory."""

    def readable_names(self, prefix: str) -> Callable[[str], bool]:
        """Return a function that returns whether an entry of a directory may be read, by its decoded name."""
        ...


CURRENT_ACCESS: ContextVar[Access | None] = ContextVar("access", default=None)
"""The permissions of the caller of the current request; None if everything is allowed."""


def is_restricted() -> bool:
    """Return whether the current caller is subject to a policy."""
    return CURRENT_ACCESS.get() is not None


def unrestricted(function: Callable[[], T]) -> T:
    """Call a function as if there were no policy, for work that is not for the current caller alone."""
    token = CURRENT_ACCESS.set(None)
    try:
        return function()
    finally:
        CURRENT_ACCESS.reset(token)


def may_read(uri: str) -> bool:
    """Return whether the current caller may read a URI."""
    access = CURRENT_ACCESS.get()
    return access is None or access.allows("read", uri)


def may(action: str, target: str) -> bool:
    """Return whether the current caller may do an action, such as `query`, on a URI or `tool:NAME`."""
    access = CURRENT_ACCESS.get()
    return access is None or access.allows(action, target)


def may_read_below(prefix: str) -> bool:
    """Return whether the current caller may be able to read at least one URI that begins with `prefix`."""
    access = CURRENT_ACCESS.get()
    return access is None or access.may_read_below(prefix)


def reads_all_below(prefix: str) -> bool:
    """Return whether the current caller may read every URI that begins with `prefix`."""
    access = CURRENT_ACCESS.get()
    return access is None or access.reads_all_below(prefix)


def readable_names(prefix: str) -> Callable[[str], bool] | None:
    """Return a function that returns whether an entry of a directory may be read, by its name; None if all may be.

    Use it for long directories: it is faster than `may_read`. Names are decoded, as `os.fsdecode` gives them.

    Args:
        prefix: The URI of the directory, with a slash at its end.
    """
    access = CURRENT_ACCESS.get()
    if access is None or access.reads_all_below(prefix):
        return None
    return readable_names_of(access, prefix)


def readable_names_of(access: Access, prefix: str) -> Callable[[str], bool]:
    """Return a function that returns whether an entry of a directory may be read with this access, by its name."""
    if isinstance(access, ReadsNames):
        return access.readable_names(prefix)
    return names_by_decision(access, prefix)


def names_by_decision(access: Access, prefix: str) -> Callable[[str], bool]:
    """Return the same as `readable_names_of`, for an access that can only decide about whole URIs."""
    allows = access.allows
    return lambda name: allows("read", prefix + quote_from_bytes(name.encode("utf-8", "surrogateescape"), _PLAIN))


def readable_uris() -> Callable[[str], bool]:
    """Return a function that decides like `may_read`, but faster, for many URIs in few directories."""
    if CURRENT_ACCESS.get() is None:
        return lambda uri: True
    directories: dict[str, Callable[[str], bool] | None] = {}

    def test(uri: str) -> bool:
        path = uri.partition("?")[0]
        start = path.rfind("/") + 1
        prefix, name = path[:start], path[start:]
        # `file:/` and `http://` are not directories. Only `may_read` knows which URIs below them are canonical.
        if not start or prefix.endswith(":/") or prefix in _CHECKED_AUTHORITIES or not _PLAIN_NAME(name):
            return may_read(uri)
        if prefix not in directories:
            if len(directories) >= MAX_DIRECTORIES:
                directories.clear()
            directories[prefix] = readable_names(prefix)
        may_read_name = directories[prefix]
        return may_read_name is None or may_read_name(name)

    return test


def reads_source(uri: str) -> bool:
    """Return whether the current caller may be able to read something of a source, whose top URI may be empty."""
    return not uri or may_read(uri) or may_read_below(uri if uri.endswith("/") else f"{uri}/")


def reads_all_of_source(uri: str) -> bool:
    """Return whether the current caller may read everything of a source with this top URI."""
    return reads_all_below(uri if not uri or uri.endswith("/") else f"{uri}/")
