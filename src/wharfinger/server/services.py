"""The objects that the features of a server share, so that they do not depend on the server itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from wharfinger import types as t
from wharfinger.protocol.handshake import Session
from wharfinger.protocol.interfaces import Access, Authorizer
from wharfinger.protocol.limits import Limits
from wharfinger.protocol.principal import Principal
from wharfinger.protocol.request import Request
from wharfinger.server.cursors import Keys
from wharfinger.server.dependencies import Overrides
from wharfinger.server.middleware.chain import MethodTable
from wharfinger.server.signature.annotations import RequestContext
from wharfinger.server.subscriptions.watching import Watching
from wharfinger.server.threads import Pool

if TYPE_CHECKING:
    from wharfinger.server.feature_scopes import FeatureScopes
    from wharfinger.server.part_policies import PartPolicies

__all__ = ["ListName", "Services"]

ListName = Literal["resources", "tools", "prompts"]


@dataclass(slots=True, kw_only=True, eq=False)
class Services:
    """The limits, threads, keys and hints of one server, shared by its features."""

    name: str
    """The server's name."""
    limits: Limits
    pool: Pool
    keys: Keys
    methods: MethodTable
    """Every method with its middleware. A feature that uses another method calls it through this table."""
    serve: Callable[[ListName], None]
    """Serves the methods of a kind of feature, here and in every server in which this one is mounted."""
    watching: Watching
    """Receives reports that a list or a resource has changed."""
    enforce_scopes: Callable[[], None]
    """Checks scopes from now on, here and in every server in which this one is mounted."""
    context: Callable[[Request], RequestContext]
    """Returns the `Context` of a request. It refers to the server, which the features do not know."""
    ttl_ms: int = 0
    """The default of the caching hint `ttlMs`."""
    cache_scope: t.CacheScope = "private"
    """The default of the caching hint `cacheScope`."""
    decode_json_strings: bool = False
    """Whether tools also accept arrays and objects as strings of JSON."""
    replay: bool = False
    """Whether handlers that ask for input are run again with the answer even if they could wait for it in place."""
    overrides: Overrides = field(default_factory=Overrides)
    """Functions that replace dependencies."""
    authorizer: Authorizer | None = None
    """Decides what each caller may do; None if there is no policy. Change it with `AccessControl.set`."""
    feature_scopes: FeatureScopes | None = None
    """Finds the scopes that features need; None if no feature needs any."""
    part_policies: PartPolicies | None = None
    """The policies of mounted servers; None if none of them has a policy."""
    elicitation_sessions: dict[str, Session] = field(default_factory=dict[str, Session])
    """The session to notify when a user has finished at a URL, by the elicitation's id (2025-11-25)."""

    @property
    def restricts(self) -> bool:
        """Whether there is a policy, here or in a mounted server, or a feature that needs scopes."""
        return any(part is not None for part in (self.authorizer, self.feature_scopes, self.part_policies))

    def access_of(self, principal: Principal) -> Access | None:
        """Return the access of a principal by policies and the scopes of its token; None if everything is allowed."""
        access = None if self.authorizer is None else self.authorizer.access(principal)
        if self.feature_scopes is not None:
            access = self.feature_scopes.access(access, principal)
        return access if self.part_policies is None else self.part_policies.access(access, principal)
