"""Rules that say who may read, call and query what. They do not depend on a server or a source."""

from __future__ import annotations

from wharfinger.policy.access import RuleAccess
from wharfinger.policy.patterns import segments_of
from wharfinger.policy.policy import Policy
from wharfinger.policy.report_only import ReportOnly
from wharfinger.policy.rule import Limit, PolicyTest, Rule, UnusablePolicy

__all__ = ["Limit", "Policy", "PolicyTest", "ReportOnly", "Rule", "RuleAccess", "UnusablePolicy", "segments_of"]
