"""The access of the caller for whom code runs now, for sources whose answers name other resources.

A directory, a log of commits, or the list of an archive contains URIs besides the one that was read. A source leaves
out those that the caller may not read:

    entries = [entry for entry in entries if may_read(entry.uri)]

The server sets the access for each request, and it also holds in the threads that a request uses. Without a policy, and
in tasks that belong to no request, such as indexing, everything may be read. A cache that several callers share must
therefore hold what is there, and be filtered after it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from urllib.parse import quote_from_bytes

from wharfinger.policy.access import RuleAccess
from wharfinger.protocol.interfaces import Access

__all__ = ["CURRENT_ACCESS", "is_restricted", "may", "may_read", "may_read_below", "readable_names", "reads_all_below"]

CURRENT_ACCESS: ContextVar[Access | None] = ContextVar("access", default=None)
"""What the caller of the current request may do; None if everything."""


def is_restricted() -> bool:
    """Return whether the current caller is subject to a policy."""
    return CURRENT_ACCESS.get() is not None


def may_read(uri: str) -> bool:
    """Return whether the current caller may read a URI."""
    access = CURRENT_ACCESS.get()
    return access is None or access.allows("read", uri)


def may(action: str, target: str) -> bool:
    """Return whether the current caller may do an action, such as `query`, on a URI, or on `tool:NAME`."""
    access = CURRENT_ACCESS.get()
    return access is None or access.allows(action, target)


def may_read_below(prefix: str) -> bool:
    """Return whether the current caller may read any URI that begins with a text, such as that of a directory."""
    access = CURRENT_ACCESS.get()
    return access is None or access.may_read_below(prefix)


def reads_all_below(prefix: str) -> bool:
    """Return whether the current caller may read every URI that begins with a text."""
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
    if isinstance(access, RuleAccess):
        return access.readable_names(prefix)
    allows = access.allows
    return lambda name: allows("read", prefix + quote_from_bytes(name.encode("utf-8", "surrogateescape"), _PLAIN))


_PLAIN = "-._~!$&'()*+,;=:@"
"""The characters of a segment that are not escaped (RFC 3986 §3.3), as all sources write their URIs."""
