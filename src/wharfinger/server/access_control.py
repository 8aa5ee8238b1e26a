"""Enforces a policy: every request is checked here, outside of all middleware, before it has any effect.

To a caller, a resource or tool that is forbidden looks exactly like one that does not exist: the error is the same, and
the request reaches neither the source nor the middleware. (If only scopes are missing, the error may name them.)
Resources in the result of a read, a tool or a prompt are filtered here. All other answers are filtered where they are
made, by `request.access`: lists in `features.listing`, searches in `server.search`, completions in
`features.completion`, notices in `subscriptions.visible_changes`. A source itself filters the answers that it composes
of several resources (`policy.current`). If neither the server nor a mounted one has a policy or features that need
scopes, methods have no guard, and `request.access` is None.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import msgspec

from wharfinger import types as t
from wharfinger.errors import InsufficientScope, ProtocolError, ResourceNotFound
from wharfinger.policy.current import CURRENT_ACCESS, may_read
from wharfinger.policy.limiter import Limiter
from wharfinger.protocol.interfaces import Access, Authorizer, Decision, Handler
from wharfinger.protocol.methods import CORE
from wharfinger.protocol.principal import LOCAL, Principal
from wharfinger.protocol.request import Request, no_such_method
from wharfinger.server.feature_scopes import NestedAccess, decide_template
from wharfinger.server.features.completion import unknown_template
from wharfinger.server.features.prompts import unknown_prompt
from wharfinger.server.features.tools import unknown_tool
from wharfinger.server.near_uris import add_near_uris
from wharfinger.server.owners import share_owner_of

if TYPE_CHECKING:
    from wharfinger.server.feature_scopes import FeatureScopes
    from wharfinger.server.features.resources import Resources
    from wharfinger.server.part_policies import PartPolicies
    from wharfinger.server.services import Services
    from wharfinger.server.subscriptions.visible_changes import VisibleChanges

__all__ = ["AccessControl", "readable_part"]

_CHECKED_BY_HANDLER = frozenset(
    {"tasks/get", "tasks/update", "tasks/cancel", "skills/list", "skills/get", "resources/directory/read"}
)
"""Methods of our own extensions, whose handlers check URIs and names. An author's method needs a rule of its own."""
MAX_REMEMBERED = 10_000
"""The maximum number of decisions that a guard remembers, one for each principal and target."""
MAX_REMEMBERED_CHARACTERS = 512
"""Decisions about longer targets are not remembered."""


class AccessControl:
    """Checks the requests of one server."""

    def __init__(self, services: Services, resources: Resources, changes: VisibleChanges) -> None:
        self._services = services
        self._resources = resources
        self._changes = changes
        self._limiter: Limiter | None = None

    def set(self, authorizer: Authorizer | None) -> None:
        """Enforce another policy for all later requests and notifications. None removes the policy.

        Watchers are notified if the part that they may see of a list or resource has changed, or may have changed.
        """
        self._services.authorizer = authorizer
        limits = getattr(authorizer, "limits", ())
        self._limiter = Limiter(limits, previous=self._limiter) if limits else None
        self._set_guard()
        self._changes.policy_changed()

    def enforce_scopes(self, scopes: FeatureScopes) -> None:
        """Check the scopes of features for all later requests and notifications. Can be called from any thread.

        Watchers are notified as in `set`, except those to whom no scopes apply.
        """
        self._services.feature_scopes = scopes
        self._set_guard()
        self._services.watching.call_on_loop(partial(self._changes.policy_changed, only_restricted=True))

    def enforce_part_policies(self, policies: PartPolicies | None) -> None:
        """Enforce the policies of mounted servers for all later requests and notifications. None means no policies.

        Watchers are notified as in `set`.
        """
        self._services.part_policies = policies
        self._set_guard()
        self._changes.policy_changed()

    def _set_guard(self) -> None:
        watching, guarded = self._services.watching, self._services.restricts
        watching.may_send = self._changes.may_send if guarded else None
        watching.on_leave = self._changes.forget if guarded else None
        self._services.methods.set_guard(self._guard if guarded else None)

    def _guard(self, method: str, handler: Handler) -> Handler:
        """Return a handler that checks each request of a method first, and filters its result."""
        services = self._services
        action, target_of = _ACTIONS.get(method, ""), _TARGETS.get(method)
        if method not in CORE and method not in _CHECKED_BY_HANDLER:
            action, target_of = "call", _target_of_own_method
        filters, is_extension = method in _COMPOSED, method not in CORE
        # A guard lives as long as its policy and scopes, so a decision by rules alone stays valid. A request with a
        # principal and target that were seen before costs one look-up.
        by_rules = services.feature_scopes is None and services.part_policies is None
        remembers = by_rules and getattr(services.authorizer, "decides_by_rules", False)
        remembered: dict[tuple[Principal, str], tuple[Access, Decision | None]] = {}

        def decide(request: Request, target: str) -> tuple[Access, Decision | None] | None:
            principal, outer = request.caller.principal, request.access
            access = services.access_of(principal)
            if access is None:  # a local caller, or the policy was removed while this request was on its way
                return None
            if outer is not None and outer is not access:  # this server is mounted in another
                access = NestedAccess(outer, access)
            decision = access.decide(action, target) if target_of is not None else None
            if method == "completion/complete":
                ref = request.params.ref
                if isinstance(ref, t.PromptReference):
                    decision = access.decide("prompt", f"prompt:{ref.name}")
                else:
                    decision = decide_template(access, ref.uri)
            elif remembers and outer is None and len(target) <= MAX_REMEMBERED_CHARACTERS:
                if len(remembered) >= MAX_REMEMBERED:
                    remembered.clear()
                remembered[principal, target] = access, decision
            return access, decision

        async def serve(request: Request) -> Any:
            target = "" if target_of is None else target_of(request)
            outer = request.access
            decided = remembered.get((request.caller.principal, target)) if outer is None else None
            if decided is None and (decided := decide(request, target)) is None:
                return await handler(request)
            access, decision = decided
            request.access = access
            token = CURRENT_ACCESS.set(access)
            try:
                if decision is not None:
                    request.decision = decision
                    if not decision.allowed:
                        raise await self._refusal(request, decision)
                result = await handler(request)
                if is_extension:
                    request.cache_scope = "private"  # a shared cache would answer callers who may see less
                return readable_part(request, result) if filters else result
            finally:
                CURRENT_ACCESS.reset(token)
                if outer is not None:
                    request.access = outer

        limiter = self._limiter
        if limiter is None:
            return serve

        async def count_and_serve(request: Request) -> Any:
            end = self._count(limiter, request, action)  # before the decision: refused requests count too
            try:
                return await serve(request)
            finally:
                if end is not None:
                    end()

        return count_and_serve

    def _count(self, limiter: Limiter, request: Request, action: str) -> Callable[[], None] | None:
        """Count a request towards the limits of its caller. Returns the function to call when it has ended, or None.

        Raises:
            RateLimited: a limit is reached.
        """
        principal = request.caller.principal
        use = request.usage
        if use is None:
            use = request.usage = limiter.use_of("local" if principal is LOCAL else share_owner_of(request))
            request.when_answered(use.charge)
        # A watch does no work until something changes, and a handshake or ping takes no time.
        works = action != "" and (request.row is None or not request.row.long)
        return limiter.begin(principal, action, use, parallel=works and not request.nested)

    async def _refusal(self, request: Request, decision: Decision) -> ProtocolError:
        """Return the error for a refused request: the same as if nothing had this URI or name.

        If the caller lacks only scopes, and may know this, the error names the scopes.
        """
        if decision.missing_scopes:
            return InsufficientScope(decision.missing_scopes)
        params = request.params
        match request.method:
            case "resources/read":
                error = ResourceNotFound(params.uri)
                await add_near_uris(self._services, self._resources, request, error)
                return error
            case "resources/subscribe":
                return ResourceNotFound(params.uri)
            case "tools/call":
                return unknown_tool(params.name)
            case "prompts/get":
                return unknown_prompt(params.name)
            case "completion/complete" if isinstance(params.ref, t.PromptReference):
                return unknown_prompt(params.ref.name)
            case "completion/complete":
                return unknown_template()
            case _:
                return no_such_method(request)


def _target_of_own_method(request: Request) -> str:
    """Return the target for the rules about a method that the author has added."""
    return f"method:{request.method}"


_TARGETS: dict[str, Callable[[Request], str]] = {
    "resources/read": attrgetter("params.uri"),
    "resources/subscribe": attrgetter("params.uri"),
    "tools/call": lambda request: f"tool:{request.params.name}",
    "prompts/get": lambda request: f"prompt:{request.params.name}",
}
"""By method, a function that returns the target of a request (see `Access`). `_guard` itself finds the targets of
completions and of an author's methods. Handlers of other methods filter their answers, or check targets themselves."""

_ACTIONS = {
    "resources/list": "read",
    "resources/templates/list": "read",
    "resources/read": "read",
    "resources/subscribe": "read",
    "subscriptions/listen": "read",
    "completion/complete": "read",
    "tools/list": "call",
    "tools/call": "call",
    "prompts/list": "prompt",
    "prompts/get": "prompt",
}
"""The actions of methods, for rules and for limits. Methods without an action count only for limits without `do`."""

_COMPOSED = ("resources/read", "tools/call", "prompts/get")
"""Methods whose results may contain other resources, or links to them."""


def readable_part(request: Request, result: Any) -> Any:
    """Return a result without the resources, and the links to resources, that the current caller may not read.

    A public result, which a cache may share between callers, becomes private unless every caller gets the same.
    """
    if type(result) is t.ReadResourceResult:
        uri = request.params.uri
        if request.cache_scope == "public" and not _is_public(request.access, uri, result.contents):
            request.cache_scope = "private"
        if len(result.contents) == 1 and result.contents[0].uri == uri:
            return result
        contents = [content for content in result.contents if content.uri == uri or may_read(content.uri)]
        return result if len(contents) == len(result.contents) else msgspec.structs.replace(result, contents=contents)
    if type(result) is t.CallToolResult:
        content = [block for block in result.content if _is_readable(block)]
        return result if len(content) == len(result.content) else msgspec.structs.replace(result, content=content)
    if type(result) is t.GetPromptResult:
        messages = [message for message in result.messages if _is_readable(message.content)]
        return result if len(messages) == len(result.messages) else msgspec.structs.replace(result, messages=messages)
    return result


def _is_public(access: Access, uri: str, contents: Sequence[t.ResourceContents]) -> bool:
    if not access.is_public(uri):
        return False
    if len(contents) == 1 and contents[0].uri == uri:
        return True
    # The source may have left out what this caller may not read.
    if not access.reads_all_below(uri if uri.endswith("/") else f"{uri}/"):
        return False
    return all(access.is_public(content.uri) for content in contents)


def _is_readable(block: Any) -> bool:
    if isinstance(block, t.ResourceLink):
        return may_read(block.uri)
    return not isinstance(block, t.EmbeddedResource) or may_read(block.resource.uri)
