"""`ReportOnly`: logs what a policy would refuse, without refusing it, to try the policy with real requests."""

from __future__ import annotations

import logging
from collections import OrderedDict

from wharfinger.content.text import escape_controls
from wharfinger.policy.access import RuleAccess
from wharfinger.policy.policy import Policy
from wharfinger.protocol.interfaces import Access, Decision
from wharfinger.protocol.principal import Principal

__all__ = ["ReportOnly"]

log = logging.getLogger("wharfinger.policy")

MAX_REPORTED_REFUSALS = 10_000
"""The maximum number of refusals that are remembered. Each is logged once, and again after it was forgotten."""


class ReportOnly:
    """Allows everything except `inspect`, and logs each request that `policy` would refuse.

    Lists are complete, and not logged. The policy decides about `inspect`: it shows the requests of others.
    """

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self._reported: OrderedDict[tuple[str, str, str], None] = OrderedDict()

    @property
    def version(self) -> str:
        """The version of the policy."""
        return self.policy.version

    def access(self, principal: Principal) -> Access:
        """Return an access that allows everything except `inspect`."""
        return _ReportingAccess(self, principal, self.policy.access(principal))

    def report(self, principal: Principal, action: str, target: str, rule: str) -> None:
        """Log a refusal, unless it was logged before."""
        who, target = principal.subject or "anyone", target[:1_000]
        refusal = (principal.key or who, action, target)
        if refusal in self._reported:
            return
        self._reported[refusal] = None
        if len(self._reported) > MAX_REPORTED_REFUSALS:
            self._reported.popitem(last=False)
        reason = f"by {rule}" if rule else "because no rule allows it"
        who, target = escape_controls(who), escape_controls(target)  # a line break could forge an entry
        log.warning("The policy would refuse %s: %s %s, %s.", who, action, target, reason)


class _ReportingAccess:
    def __init__(self, owner: ReportOnly, principal: Principal, access: RuleAccess) -> None:
        self.key = f"report-only {access.key}"
        self._owner = owner
        self._principal = principal
        self._access = access

    def decide(self, action: str, target: str) -> Decision:
        """Allow the action unless it is `inspect`. The decision names the rule that would have refused it."""
        decision = self._access.decide(action, target)
        if decision.allowed or action == "inspect":
            return decision
        self._owner.report(self._principal, action, target, decision.rule)
        return Decision(True, f"{decision.rule or 'no rule'} (report only)")

    def allows(self, action: str, target: str) -> bool:
        """Return True except for `inspect`, without a report: lists ask this about each of their entries."""
        return action != "inspect" or self._access.allows(action, target)

    def may_read_below(self, prefix: str) -> bool:
        """Return True."""
        return True

    def reads_all_below(self, prefix: str) -> bool:
        """Return True."""
        return True

    def is_public(self, uri: str) -> bool:
        """Return whether the policy lets every caller read a URI."""
        return self._access.is_public(uri)
