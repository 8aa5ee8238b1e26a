"""The access of the current caller."""

from __future__ import annotations

import asyncio

import pytest

from wharfinger.policy import Policy, Rule
from wharfinger.policy.current import CURRENT_ACCESS, may, may_read, may_read_below, readable_uris, reads_all_below
from wharfinger.protocol.principal import Principal

POLICY = Policy(
    allow=[Rule(who="sub:ann", what="file:///docs/**"), Rule(who="sub:ann", do="call", what="tool:a")],
    deny=[Rule(who="anyone", what="file:///docs/private/**")],
)


def test_without_a_policy_everything_is_allowed() -> None:
    assert may_read("file:///anything")
    assert may("query", "db://x")
    assert may_read_below("file:///x/")
    assert reads_all_below("")


@pytest.mark.parametrize(
    ("subject", "expected"),
    [("ann", [True, False, True, False, True, False, False, True]), ("bob", [False] * 8)],
)
def test_decisions_are_those_of_the_current_caller(subject: str, expected: list[bool]) -> None:
    token = CURRENT_ACCESS.set(POLICY.access(Principal(subject=subject)))
    try:
        assert [
            may_read("file:///docs/a"),
            may_read("file:///docs/private/a"),
            may("call", "tool:a"),
            may("call", "tool:b"),
            may_read_below("file:///docs/"),
            may_read_below("file:///docs/private/"),
            reads_all_below("file:///docs/"),
            reads_all_below("file:///docs/open/"),
        ] == expected
    finally:
        CURRENT_ACCESS.reset(token)


def test_concurrent_tasks_and_their_threads_each_have_their_own_access() -> None:
    async def decisions_of(subject: str) -> list[bool]:
        CURRENT_ACCESS.set(POLICY.access(Principal(subject=subject)))
        decisions: list[bool] = []
        for _ in range(20):
            await asyncio.sleep(0)
            decisions += [may_read("file:///docs/a"), await asyncio.to_thread(may_read, "file:///docs/a")]
        return decisions

    async def both() -> list[list[bool]]:
        return await asyncio.gather(decisions_of("ann"), decisions_of("bob"))

    assert asyncio.run(both()) == [[True] * 40, [False] * 40]
    assert may_read("file:///anything")


@pytest.mark.parametrize(
    "uri",
    ["file:/secret", "mailto:/x", "http://H", "https://h:80x", "http://h", "file:///secret", "file:///a:/b", "x",
     "ftp://H", "ws://h:80", "wss://H", "file://localhost"],
)  # fmt: skip
def test_the_decision_for_many_uris_is_the_one_for_each(uri: str) -> None:
    """A bug: URIs that are not canonical, which cannot be read, were shown in lists."""
    policy = Policy(allow=[Rule(who="anyone")], deny=[Rule(who="anyone", what="file:///secret")])
    token = CURRENT_ACCESS.set(policy.access(Principal(subject="ann")))
    try:
        assert readable_uris()(uri) is may_read(uri)
    finally:
        CURRENT_ACCESS.reset(token)
