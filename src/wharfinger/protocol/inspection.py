"""`Inspection`: the interface through which the people who run a server see its watchers and recent requests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from wharfinger.protocol.principal import Principal

__all__ = ["Inspection", "RecentRequest", "WatchedResource"]


class WatchedResource(NamedTuple):
    """A resource that is watched now."""

    uri: str
    principals: tuple[str, ...]
    """The subjects of the callers who watch it. Callers without credentials have none, and are left out."""
    watchers: int
    """Sessions and requests that watch it."""


class RecentRequest(NamedTuple):
    """A request that has ended."""

    time: float
    """When it ended (seconds since 1970)."""
    method: str
    target: str
    """The URI or name of the request, or empty."""
    principal: str
    app: str
    """The client's name and version, as it gives them."""
    outcome: str
    """How the request ended (`observing.Outcome`)."""
    seconds: float
    size: int
    """Bytes of the answer."""


class Inspection(Protocol):
    """Inspects a server for a principal, the `viewer`. If the server has a policy, the policy must allow this."""

    def allows(self, viewer: Principal) -> bool:
        """Return whether `viewer` may inspect the server, which needs the action `inspect` (level `admin`)."""
        ...

    def watchers(self, viewer: Principal) -> Sequence[WatchedResource]:
        """Return the resources that are watched now, and by whom."""
        ...

    def recent(self, viewer: Principal) -> Sequence[RecentRequest]:
        """Return the most recent reads, calls and other requests, the latest first."""
        ...

    def view_as(self, viewer: Principal, principal: Principal) -> Any:
        """Return a target for a `Client` that sees the server as `principal` does, and can only read.

        Each request of that client is recorded with the names of both `viewer` and `principal`.

        Raises:
            PermissionDenied: `viewer` may not inspect the server, or the server has no policy.
        """
        ...
