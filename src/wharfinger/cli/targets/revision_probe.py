"""Finds the protocol revisions that a server speaks, by connecting in each."""

from __future__ import annotations

from collections.abc import Callable

from wharfinger.client import Client
from wharfinger.errors import WharfingerError
from wharfinger.protocol.revisions import SUPPORTED

__all__ = ["PROBE_SECONDS", "probe_revisions"]

PROBE_SECONDS = 10.0
"""The maximum time for connecting in one revision."""


async def probe_revisions(known: str, connect: Callable[[str], Client]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the revisions that the server speaks and those that it does not, newest first.

    `known` is a revision that the server is known to speak. `connect` makes a client that uses one revision.
    """
    supported: list[str] = []
    unsupported: list[str] = []
    for revision in SUPPORTED:
        if revision != known:
            try:
                async with connect(revision):
                    pass
            except (WharfingerError, OSError):
                unsupported.append(revision)
                continue
        supported.append(revision)
    return tuple(supported), tuple(unsupported)
