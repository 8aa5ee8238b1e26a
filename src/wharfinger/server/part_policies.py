"""Applies the policies of mounted servers in the server that they are mounted in.

Their own guards check only requests that reach them. The parent itself makes lists, searches, completions and notices,
so its accesses ask the policy of the part that has a feature too.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from wharfinger.protocol.interfaces import Access, Decision
from wharfinger.protocol.principal import Principal
from wharfinger.server.feature_scopes import ALLOWED, MAX_PRINCIPALS, decide_template

if TYPE_CHECKING:
    from wharfinger.server.features.feature_set import Features
    from wharfinger.server.part import Part

__all__ = ["PartAccess", "PartPolicies"]

AccessOf = Callable[[Principal], Access | None]


class PartPolicies:
    """The parts of one server that have a policy, and where each of their features is found."""

    def __init__(
        self,
        parts: Sequence[tuple[Part, AccessOf]],
        tools: Features[Any],
        prompts: Features[Any],
        part_of: Callable[[str], Part | None],
        part_of_template: Callable[[str], Part | None],
    ) -> None:
        """`parts` are the mounted servers with a policy, each with a function that returns a principal's access.

        `part_of` finds the part that has a URI, and `part_of_template` the one that has a template, by its text. They
        return None if the server has it itself, or no server does.
        """
        self._parts = parts
        self._tools = tools
        self._prompts = prompts
        self._part_of = part_of
        self.part_of_template = part_of_template
        self._remembered: OrderedDict[int, tuple[Principal, PartAccess]] = OrderedDict()

    def find(self, action: str, target: str) -> tuple[Part | None, str]:
        """Return the part that has a feature, and its target there; None if this server has it, or nobody."""
        if action not in ("call", "prompt"):
            return self._part_of(target), target
        features, kind = (self._tools, "tool:") if action == "call" else (self._prompts, "prompt:")
        found = features.find(target.removeprefix(kind)) if target.startswith(kind) else None
        return (None, target) if found is None or found.part is None else (found.part, kind + found.key)

    def access(self, own: Access | None, principal: Principal) -> Access:
        """Return the access of a principal by this server's own rules and scopes (None: everything) and the parts'."""
        parts = {part: access for part, access_of in self._parts if (access := access_of(principal)) is not None}
        known = self._remembered.get(id(principal))
        if known is not None and known[0] is principal and known[1].has(own, parts):
            return known[1]
        access = PartAccess(own, parts, self)
        self._remembered[id(principal)] = principal, access
        while len(self._remembered) > MAX_PRINCIPALS:
            self._remembered.popitem(last=False)
        return access


class PartAccess:
    """The access of a caller to a server and to its parts: a part's feature must be allowed by both."""

    def __init__(self, own: Access | None, parts: Mapping[Part, Access], policies: PartPolicies) -> None:
        self._own = own
        self._parts = parts
        self._policies = policies
        self.key = " ".join(["" if own is None else own.key, *[access.key for access in parts.values()]])

    def has(self, own: Access | None, parts: Mapping[Part, Access]) -> bool:
        """Return whether this access is made of these."""
        mine = self._parts
        return own is self._own and mine.keys() == parts.keys() and all(mine[part] is parts[part] for part in parts)

    def decide(self, action: str, target: str) -> Decision:
        """Decide by this server's rules, then by those of the part that has the target."""
        decision = ALLOWED if self._own is None else self._own.decide(action, target)
        if not decision.allowed:
            return decision
        part, target = self._policies.find(action, target)
        access = None if part is None else self._parts.get(part)
        return decision if access is None else access.decide(action, target)

    def allows(self, action: str, target: str) -> bool:
        """Return whether `decide` allows the action."""
        return self.decide(action, target).allowed

    def decide_template(self, text: str) -> Decision:
        """Decide whether the caller may see and complete a template of resources."""
        decision = ALLOWED if self._own is None else decide_template(self._own, text)
        part = self._policies.part_of_template(text)
        access = None if part is None else self._parts.get(part)
        return decision if access is None or not decision.allowed else decide_template(access, text)

    def may_read_below(self, prefix: str) -> bool:
        """Return whether any URI that begins with `prefix` may be allowed."""
        if self._own is not None and not self._own.may_read_below(prefix):
            return False
        part = self._policies.find("read", prefix)[0]
        access = None if part is None else self._parts.get(part)
        return access is None or access.may_read_below(prefix)

    def reads_all_below(self, prefix: str) -> bool:
        """Return whether every URI that begins with `prefix` is allowed."""
        if self._own is not None and not self._own.reads_all_below(prefix):
            return False
        return all(access.reads_all_below(prefix) for access in self._parts.values())

    def is_public(self, uri: str) -> bool:
        """Return whether every caller may read a URI."""
        if self._own is not None and not self._own.is_public(uri):
            return False
        part = self._policies.find("read", uri)[0]
        access = None if part is None else self._parts.get(part)
        return access is None or access.is_public(uri)
