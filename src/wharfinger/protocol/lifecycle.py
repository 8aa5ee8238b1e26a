"""The handlers that all services share: `initialize`, `server/discover`, `ping` and `logging/setLevel`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import UNSET

from wharfinger import types as t
from wharfinger.protocol.handshake import Session
from wharfinger.protocol.interfaces import Handler
from wharfinger.protocol.revisions import SUPPORTED

if TYPE_CHECKING:
    from wharfinger.protocol.interfaces import Service
    from wharfinger.protocol.request import Request

__all__ = ["handlers"]


def handlers(service: Service) -> dict[str, Handler]:
    """Return the handlers by method. They read the capabilities of the service at each request."""

    async def initialize(request: Request) -> t.InitializeResult:
        # `open_request` has agreed on the revision, so that a request sent together with this one is served by it.
        rules = request.caller.rules
        return t.InitializeResult(
            protocol_version=rules.name,
            capabilities=service.capabilities(rules),
            server_info=service.info,
            instructions=service.instructions or UNSET,
        )

    async def discover(request: Request) -> t.DiscoverResult:
        return t.DiscoverResult(
            supported_versions=list(SUPPORTED),
            capabilities=service.capabilities(request.caller.rules),
            instructions=service.instructions or UNSET,
        )

    async def ping(request: Request) -> t.EmptyResult:
        return t.EmptyResult()

    async def set_level(request: Request) -> t.EmptyResult:
        session: Session = request.session  # type: ignore[assignment]  # the method exists in the handshake era only
        session.log_level = request.params.level
        return t.EmptyResult()

    return {"initialize": initialize, "server/discover": discover, "ping": ping, "logging/setLevel": set_level}
