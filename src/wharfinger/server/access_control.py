"""Enforces a policy: every request is checked here, outside of all middleware, before anything of it is done.

What a caller may not read or call looks exactly like what does not exist: the same error, and neither the source nor
the middleware is called. Whatever an answer contains besides is filtered where it is made, by `request.access`: lists
in `features.listing`, searches in `server.search`, completions in `features.completion`, notices in
`subscriptions.watching`, and answers that are composed of several resources in their source (`policy.current`).
Without a policy, methods have no guard, and `request.access` is None.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from wharfinger import types as t
from wharfinger.content.text import printable
from wharfinger.errors import InvalidParams, ProtocolError, ResourceNotFound
from wharfinger.policy.current import CURRENT_ACCESS
from wharfinger.protocol.interfaces import Access, Authorizer, Decision, Handler
from wharfinger.protocol.request import Request
from wharfinger.server.near_uris import add_near_uris

if TYPE_CHECKING:
    from wharfinger.server.features.resources import Resources
    from wharfinger.server.services import Services

__all__ = ["AccessControl"]


class AccessControl:
    """Checks the requests of one server."""

    def __init__(self, services: Services, resources: Resources) -> None:
        self._services = services
        self._resources = resources

    def set(self, authorizer: Authorizer | None) -> None:
        """Enforce another policy from the next request on; None allows everything."""
        self._services.authorizer = authorizer
        self._services.methods.set_guard(None if authorizer is None else self._guarded)

    def _guarded(self, method: str, handler: Handler) -> Handler:
        """Return a handler that checks each request of a method first."""
        check = _CHECKS.get(method)

        async def serve(request: Request) -> Any:
            authorizer = self._services.authorizer
            if authorizer is None:  # the policy was removed while this request was on its way
                return await handler(request)
            access = request.access = authorizer.access(request.caller.principal)
            token = CURRENT_ACCESS.set(access)
            try:
                if check is not None:
                    await check(self, request, access)
                return await handler(request)
            finally:
                CURRENT_ACCESS.reset(token)

        return serve

    # -- checks of methods

    async def check_read(self, request: Request, access: Access) -> None:
        uri = request.params.uri
        decision = access.decide("read", uri)
        if not decision.allowed:
            missing = ResourceNotFound(uri)
            await add_near_uris(self._services, self._resources, request, missing)
            raise self._refusal(decision, missing)

    async def check_subscription(self, request: Request, access: Access) -> None:
        decision = access.decide("read", request.params.uri)
        if not decision.allowed:
            raise self._refusal(decision, ResourceNotFound(request.params.uri))

    async def check_call(self, request: Request, access: Access) -> None:
        name = request.params.name
        decision = access.decide("call", f"tool:{name}")
        if not decision.allowed:
            raise self._refusal(decision, InvalidParams(f"Unknown tool: {printable(name)}"))

    async def check_prompt(self, request: Request, access: Access) -> None:
        name = request.params.name
        decision = access.decide("prompt", f"prompt:{name}")
        if not decision.allowed:
            raise self._refusal(decision, InvalidParams(f"Unknown prompt: {printable(name)}"))

    async def check_completion(self, request: Request, access: Access) -> None:
        ref = request.params.ref
        if isinstance(ref, t.PromptReference):
            if not access.allows("prompt", f"prompt:{ref.name}"):
                raise InvalidParams(f"Unknown prompt: {printable(ref.name)}")
        elif not access.may_read_below(ref.uri.partition("{")[0]):
            raise InvalidParams(
                "There is no such resource template: send its uriTemplate from resources/templates/list."
            )

    def _refusal(self, decision: Decision, missing: ProtocolError) -> ProtocolError:
        """Return the error for a refused request: that of something that does not exist."""
        return missing


_CHECKS: dict[str, Callable[[AccessControl, Request, Access], Awaitable[None]]] = {
    "resources/read": AccessControl.check_read,
    "resources/subscribe": AccessControl.check_subscription,
    "tools/call": AccessControl.check_call,
    "prompts/get": AccessControl.check_prompt,
    "completion/complete": AccessControl.check_completion,
}
