"""Finds the protocol revisions that a server speaks, by connecting once with each."""

from __future__ import annotations

import click

from wharfinger.cli.targets.open_client import ConnectionOptions, make_client
from wharfinger.cli.targets.target import Target
from wharfinger.errors import WharfingerError
from wharfinger.protocol.revisions import SUPPORTED

__all__ = ["probe_revisions"]

PROBE_SECONDS = 10.0
"""The maximum time for one connection attempt."""


async def probe_revisions(
    ctx: click.Context, target: Target, options: ConnectionOptions, known: str
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the revisions that the server speaks and those that it does not, newest first.

    `known` is a revision that the server is known to speak.
    """
    timeout = min(options.timeout, PROBE_SECONDS)
    supported: list[str] = []
    unsupported: list[str] = []
    for revision in SUPPORTED:
        if revision != known:
            try:
                async with make_client(ctx, target, options._replace(revision=revision, timeout=timeout)):
                    pass
            except (WharfingerError, OSError):
                unsupported.append(revision)
                continue
        supported.append(revision)
    return tuple(supported), tuple(unsupported)
