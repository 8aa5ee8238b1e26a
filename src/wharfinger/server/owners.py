"""Whose share of threads, watches and tasks a request uses."""

from __future__ import annotations

from wharfinger.protocol.request import Request
from wharfinger.protocol.shares import name_owner
from wharfinger.server.threads import MEMBER_SEPARATOR

__all__ = ["owner_of", "share_of"]


def share_of(request: Request) -> str:
    """Whose share a request uses: the principal's, else its address's, else that of its connection.

    All callers over HTTP without an address are one: each of their calls may have a connection of its own.
    """
    principal = request.caller.principal
    if principal or request.peer or request.headers is not None:
        return name_owner(principal, request.peer)
    return f"connection {id(request.session or request.channel)}"


def owner_of(request: Request) -> str:
    """Whose threads a request uses: `share_of`, and in that of a principal or an address one session.

    Requests without a session have their client's name in its place: HTTP/1.1 needs a connection for each call that is
    under way, so that connections say nothing of which application it is.
    """
    share = share_of(request)
    if share.startswith("connection"):
        return share
    client = request.caller.info
    if request.session is not None:
        member = f"session {id(request.session)}"
    else:
        member = client.name[:64].replace(MEMBER_SEPARATOR, " ") if client else ""
    return f"{share}{MEMBER_SEPARATOR}{member}"
