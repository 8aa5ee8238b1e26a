"""Scopes that features require of a caller's token: `@server.tool(scopes=["orders:write"])`.

`ScopedAccess` adds them to the rules of the policy. So a feature whose scopes the token lacks is left out of lists,
completions, watches and links, and a request for it gets 403 with the scopes that it needs. The decision depends only
on the URI or name, before the feature is called, so the answer is the same whether the resource of a template exists or
not.

Callers over stdio and Unix sockets have no token. They are the user who started the server, so scopes do not apply to
them. Over HTTP, a caller without a token has no scopes.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from wharfinger.policy.current import names_by_decision, readable_names_of
from wharfinger.protocol.interfaces import Access, Decision
from wharfinger.protocol.principal import LOCAL, Principal

if TYPE_CHECKING:
    from wharfinger.server.features.feature_set import Features

__all__ = ["FeatureScopes", "NestedAccess", "ScopedAccess", "decide_template"]

MAX_PRINCIPALS = 10_000
"""The maximum number of principals whose access is remembered."""
ALLOWED = Decision(True)


class ScopedFeature(Protocol):
    """A feature that may need scopes."""

    @property
    def scopes(self) -> tuple[str, ...]:
        """The scopes that a caller's token must have, all of them."""
        ...


class FeatureScopes:
    """Finds the scopes that the features of one server need, including those of mounted servers."""

    def __init__(
        self,
        tools: Features[Any],
        prompts: Features[Any],
        resources: Sequence[Features[Any]],
        find_resource: Callable[[str], ScopedFeature | None],
    ) -> None:
        """`resources` are the sets of resources and templates; `find_resource` finds the one for a URI."""
        self._tools = tools
        self._prompts = prompts
        self._resources = resources
        self._find_resource = find_resource
        self._remembered: OrderedDict[int, tuple[Principal, Access | None, ScopedAccess]] = OrderedDict()

    def needed(self, action: str, target: str) -> tuple[str, ...]:
        """Return the scopes for an action on a URI, `tool:NAME` or `prompt:NAME`; empty if there is no such feature."""
        if action == "call":
            return _scopes_in(self._tools, target.removeprefix("tool:"))
        if action == "prompt":
            return _scopes_in(self._prompts, target.removeprefix("prompt:"))
        feature = self._find_resource(target)
        return () if feature is None else feature.scopes

    def of_template(self, text: str) -> tuple[str, ...]:
        """Return the scopes that each resource of a template needs."""
        return next((scopes for features in self._resources if (scopes := _scopes_in(features, text))), ())

    def below(self, prefix: str) -> Mapping[str, tuple[str, ...]]:
        """Return the scopes of the resources and templates that may have a URI that begins with `prefix`."""
        scopes: dict[str, tuple[str, ...]] = {}
        for features in self._resources:
            for text, feature in features.items():
                start = text.partition("{")[0]
                if feature.scopes and (start.startswith(prefix) or ("{" in text and prefix.startswith(start))):
                    scopes[text] = feature.scopes
        return scopes

    def access(self, rules: Access | None, principal: Principal) -> Access | None:
        """Return the access of a principal by the rules (None: everything) and by the scopes of its token."""
        if principal is LOCAL:
            return rules
        known = self._remembered.get(id(principal))
        if known is not None and known[0] is principal and known[1] is rules:
            return known[2]
        access = ScopedAccess(rules, principal.scopes, self)
        self._remembered[id(principal)] = principal, rules, access
        while len(self._remembered) > MAX_PRINCIPALS:
            self._remembered.popitem(last=False)
        return access


class ScopedAccess:
    """The access of a caller with these scopes: what the rules allow, except for features that need other scopes."""

    def __init__(self, rules: Access | None, token_scopes: frozenset[str], scopes: FeatureScopes) -> None:
        self._rules = rules
        self._token_scopes = token_scopes
        self._scopes = scopes
        text = f"{'' if rules is None else rules.key} {sorted(token_scopes)}"
        self.key = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]

    def decide(self, action: str, target: str) -> Decision:
        """Decide by the rules and the feature's scopes. If both lack scopes, `missing_scopes` has those of both."""
        decision = ALLOWED if self._rules is None else self._rules.decide(action, target)
        if not decision.allowed and not decision.missing_scopes:
            return decision
        needed = self._scopes.needed(action, target)
        if not needed or self._token_scopes.issuperset(needed):
            return decision
        return Decision(False, "scopes", tuple(dict.fromkeys((*decision.missing_scopes, *needed))))

    def allows(self, action: str, target: str) -> bool:
        """Return whether `decide` allows the action."""
        return self.decide(action, target).allowed

    def decide_template(self, text: str) -> Decision:
        """Decide whether the caller may see and complete a template of resources."""
        if not self.may_read_below(text.partition("{")[0]):
            return Decision(False)
        needed = self._scopes.of_template(text)
        return ALLOWED if self._token_scopes.issuperset(needed) else Decision(False, "scopes", needed)

    def readable_names(self, prefix: str) -> Callable[[str], bool]:
        """Return a function that returns whether an entry of a directory may be read, by its decoded name."""
        if self._rules is None or self._scopes.below(prefix):
            return names_by_decision(self, prefix)
        return readable_names_of(self._rules, prefix)

    def may_read_below(self, prefix: str) -> bool:
        """Return whether any URI that begins with `prefix` may be allowed."""
        return self._rules is None or self._rules.may_read_below(prefix)

    def reads_all_below(self, prefix: str) -> bool:
        """Return whether every URI that begins with `prefix` is allowed."""
        if self._rules is not None and not self._rules.reads_all_below(prefix):
            return False
        return all(self._token_scopes.issuperset(scopes) for scopes in self._scopes.below(prefix).values())

    def is_public(self, uri: str) -> bool:
        """Return whether every caller may read a URI."""
        return (self._rules is None or self._rules.is_public(uri)) and not self._scopes.needed("read", uri)


class NestedAccess:
    """The access of a caller to a mounted server. A URI must also be allowed by the rules of the outer server.

    The outer server has already checked the name of a tool or prompt, with the prefix that it has there.
    """

    def __init__(self, outer: Access, own: Access) -> None:
        self._outer = outer
        self._own = own
        self.key = f"{outer.key} {own.key}"

    def decide(self, action: str, target: str) -> Decision:
        """Decide by both; a refusal of the outer server wins."""
        if action not in ("call", "prompt") and not (decision := self._outer.decide(action, target)).allowed:
            return decision
        return self._own.decide(action, target)

    def allows(self, action: str, target: str) -> bool:
        """Return whether `decide` allows the action."""
        return self.decide(action, target).allowed

    def decide_template(self, text: str) -> Decision:
        """Decide whether the caller may see and complete a template of resources, by both."""
        decision = decide_template(self._outer, text)
        return decide_template(self._own, text) if decision.allowed else decision

    def may_read_below(self, prefix: str) -> bool:
        """Return whether any URI that begins with `prefix` may be allowed."""
        return self._outer.may_read_below(prefix) and self._own.may_read_below(prefix)

    def reads_all_below(self, prefix: str) -> bool:
        """Return whether every URI that begins with `prefix` is allowed."""
        return self._outer.reads_all_below(prefix) and self._own.reads_all_below(prefix)

    def is_public(self, uri: str) -> bool:
        """Return whether every caller may read a URI."""
        return self._outer.is_public(uri) and self._own.is_public(uri)


def decide_template(access: Access, text: str) -> Decision:
    """Decide whether a caller may see and complete a template of resources, by its text."""
    decide: Callable[[str], Decision] | None = getattr(access, "decide_template", None)  # not every access has it
    return Decision(access.may_read_below(text.partition("{")[0])) if decide is None else decide(text)


def _scopes_in(features: Features[Any], key: str) -> tuple[str, ...]:
    found = features.find(key)
    scopes: tuple[str, ...] = () if found is None else found.feature.scopes
    return scopes
