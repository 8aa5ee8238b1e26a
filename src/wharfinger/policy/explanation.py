"""Explains one decision of a policy: the rule that decides, or the unmet condition of each rule that almost allows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from wharfinger.policy.pattern_sets import pattern_matches
from wharfinger.policy.patterns import segments_of
from wharfinger.policy.policy import Policy
from wharfinger.policy.rule import words
from wharfinger.protocol.principal import Principal

__all__ = ["Explanation", "NearMiss", "explain"]


class NearMiss(NamedTuple):
    """A rule that would allow the action but for one unmet condition."""

    rule: str
    needs: str
    """The unmet condition, such as `it needs group:staff`."""


class Explanation(NamedTuple):
    """A decision with its reasons."""

    allowed: bool
    rule: str
    """The rule that decides; empty if none does."""
    missing_scopes: tuple[str, ...]
    """The scopes that the server names to the caller, because of a rule with `reveal`."""
    near_misses: tuple[NearMiss, ...]
    remark: str = ""
    """A sentence about the target, for example that no rule matches this spelling of a URI."""


def explain(policy: Policy, principal: Principal, action: str, target: str) -> Explanation:
    """Explain whether a principal may do an action on a URI, `tool:NAME` or `prompt:NAME`."""
    decision = policy.access(principal).decide(action, target)
    remark = ""
    is_name = action in ("call", "prompt") or (action == "inspect" and target.startswith(("tool:", "prompt:")))
    if not is_name and segments_of(target) is None:
        remark = "No rule matches this spelling of a URI: leave out '..', '//', '#' and escapes that are not needed."
    near = (
        ()
        if decision.allowed or decision.rule or remark
        else tuple(_find_near_misses(policy, principal, action, target))
    )
    return Explanation(decision.allowed, decision.rule, decision.missing_scopes, near, remark)


def _find_near_misses(policy: Policy, principal: Principal, action: str, target: str) -> Iterator[NearMiss]:
    """Yield the rules about this target that would allow the action but for one unmet condition."""
    for parsed in policy.rules:
        if parsed.denies or not any(pattern_matches(pattern, target) for pattern in parsed.patterns):
            continue
        rule, needs = parsed.rule, list[str]()
        if action not in parsed.actions:
            needs.append(f"it allows {', '.join(sorted(parsed.actions))} only")
        if rule.issuer is not None and rule.issuer != principal.issuer:
            needs.append(f"it needs a token of {rule.issuer or 'this server itself'}")
        if not any(selector.applies_to(principal) for selector in parsed.selectors):
            needs.append(f"it needs {' or '.join(words(rule.who))}")
        if missing := [scope for scope in words(rule.scopes) if scope not in principal.scopes]:
            needs.append(f"it needs the scope{'s' if len(missing) > 1 else ''} {' '.join(missing)}")
        if len(needs) == 1:
            yield NearMiss(parsed.id, needs[0])
