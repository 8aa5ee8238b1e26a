"""A policy that only reports: everything is allowed, and each refusal is logged once."""

from __future__ import annotations

import pytest

from wharfinger import Client, Server
from wharfinger.policy import Policy, ReportOnly, Rule
from wharfinger.protocol.principal import ANONYMOUS, Principal
from wharfinger.server.server_inspection import ServerInspection


async def test_requests_are_served_and_refusals_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    policy = Policy(allow=[Rule(who="local", what="note://**")], deny=[Rule(who="anyone", what="note://b")])
    server = Server("notes", policy=ReportOnly(policy))
    for name in "ab":
        server.resource(f"note://{name}")(lambda: "text")
    server.tool(lambda: "done", name="stop")
    async with Client(server, cache=False) as client:
        assert [resource.uri async for resource in client.list_resources()] == ["note://a", "note://b"]
        assert not caplog.records, "a list is not a refused request"
        for _ in range(2):
            await client.read_resource("note://b")
        await client.read_resource("note://a")
        await client.call_tool("stop")
    assert [record.getMessage() for record in caplog.records] == [
        "The policy would refuse local: read note://b, by deny 1.",
        "The policy would refuse local: call tool:stop, because no rule allows it.",
    ]


def test_the_decision_names_the_rule_that_would_refuse() -> None:
    access = ReportOnly(Policy(deny=[Rule(who="anyone", what="note://b", name="no b")])).access(ANONYMOUS)
    assert access.decide("read", "note://b") == (True, "no b (report only)", ())
    assert access.decide("read", "note://a") == (True, "no rule (report only)", ())
    assert access.allows("read", "note://b")
    assert access.may_read_below("note://")
    assert access.reads_all_below("note://")
    assert not access.is_public("note://b")


def test_only_those_whom_the_policy_allows_it_may_inspect_the_server() -> None:
    """A bug: a policy on trial let everyone see the requests of others."""
    policy = Policy(allow=[Rule(who="sub:ann", level="admin"), Rule(who="anyone", do="read")])
    server = Server("notes", policy=ReportOnly(policy))
    inspection = ServerInspection(server, shared=True)
    ann, bob = Principal(subject="ann"), Principal(subject="bob")
    assert [inspection.allows(principal) for principal in (ann, bob, ANONYMOUS)] == [True, False, False]
    decide = server.policy.access(bob).decide  # type: ignore[union-attr]
    assert not decide("inspect", "note://a").allowed


def test_a_target_cannot_forge_a_log_entry(caplog: pytest.LogCaptureFixture) -> None:
    ReportOnly(Policy()).access(Principal(subject="a\nb")).decide("read", "note://a\nWARNING all is well")
    (record,) = caplog.records
    assert "\n" not in record.getMessage()


def test_each_principal_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    report = ReportOnly(Policy())
    for subject in ("ann", "bob", "ann"):
        report.access(Principal(subject=subject)).decide("read", "note://a")
    assert [record.getMessage().split()[4] for record in caplog.records] == ["ann:", "bob:"]
