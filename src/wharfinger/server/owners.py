"""The owner of a request: the caller whose share of threads, watches and tasks it uses."""

from __future__ import annotations

from wharfinger.protocol.request import Request
from wharfinger.protocol.shares import name_owner
from wharfinger.server.threads import MEMBER_SEPARATOR

__all__ = ["owner_of", "share_owner_of"]


def share_owner_of(request: Request) -> str:
    """Return the owner whose share a request uses: its principal, else its address, else its connection.

    All HTTP callers with neither a principal nor an address have the same owner, since each call may use a connection
    of its own.
    """
    key = request.caller.principal.key
    if key or request.peer or request.headers is not None:
        return name_owner(key, request.peer)
    return _name_connection(request)


def owner_of(request: Request) -> str:
    """Return the owner of a request's threads: its session, as a member of the group that is its `share_owner_of`.

    For requests without a session, the client's name takes its place. The connection does not identify an application,
    since HTTP/1.1 needs a connection for each concurrent call.
    """
    if not (request.caller.principal.key or request.peer or request.headers is not None):
        return _name_connection(request)
    client = request.caller.info
    if request.session is not None:
        member = f"session {id(request.session)}"
    else:
        member = client.name[:64].replace(MEMBER_SEPARATOR, " ") if client else ""
    return f"{share_owner_of(request)}{MEMBER_SEPARATOR}{member}"


def _name_connection(request: Request) -> str:
    return f"connection {id(request.session or request.channel)}"
