"""What a good server has and this one lacks, found in what it offers; it refuses to connect, and to print."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from wharfinger.cli.doctor.offer import Finding, Offer
from wharfinger.cli.doctor.resources import check_apps, check_reads, check_resources, check_templates
from wharfinger.cli.doctor.server import check_identity, check_lists, check_revisions, check_tools_only
from wharfinger.cli.doctor.tools import check_amount, check_annotations, check_schemas
from wharfinger.cli.doctor.words import check_arguments, check_descriptions, check_names, check_titles

__all__ = ["CHECKS", "check"]


def check(offer: Offer) -> list[Finding]:
    """Everything there is to change, problems first."""
    findings = [finding for look in CHECKS for finding in look(offer)]
    return sorted(findings, key=lambda finding: finding.severity != "problem")


CHECKS: tuple[Callable[[Offer], Iterator[Finding]], ...] = (
    check_lists,
    check_reads,
    check_names,
    check_descriptions,
    check_schemas,
    check_annotations,
    check_resources,
    check_templates,
    check_apps,
    check_revisions,
    check_identity,
    check_arguments,
    check_titles,
    check_tools_only,
    check_amount,
)
"""Every check, in the order in which findings of the same severity are told."""
