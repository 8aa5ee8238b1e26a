"""Limits of callers, with a clock that the test moves."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.clock import FakeClock
from wharfinger.auth import Principal
from wharfinger.errors import RateLimited
from wharfinger.policy import Limit, Policy, Rule, UnusablePolicy
from wharfinger.policy.limiter import EXAMINED_BUCKETS, Limiter, Parallel, Rate
from wharfinger.protocol.principal import ANONYMOUS, LOCAL

ANN = Principal(subject="ann", issuer="https://id.example", scopes=frozenset({"a"}))
BOB = Principal(subject="bob", issuer="https://other.example")


def make_limiter(*limits: Limit, clock: FakeClock | None = None, **options: Any) -> Limiter:
    return Limiter(limits, clock=clock or FakeClock(1000.0), **options)


def call(limiter: Limiter, principal: Principal = ANN, action: str = "read", size: int = 0) -> int:
    """Make one call as this principal. Return 0, or the seconds to wait if it is refused."""
    use = limiter.use_of(f"principal {principal.key}" if principal.key else "address 192.0.2.1")
    try:
        end = limiter.begin(principal, action, use)
    except RateLimited as error:
        assert error.data == {"retryAfter": error.retry_after}
        return error.retry_after
    use.charge(size)
    if end is not None:
        end()
    return 0


def test_the_whole_amount_may_be_used_at_once_and_is_refilled_gradually() -> None:
    clock = FakeClock(1000.0)
    limiter = make_limiter(Limit(calls="100/min"), clock=clock)
    assert [call(limiter) for _ in range(102)] == [0] * 100 + [1, 1]
    clock.now += 0.59
    assert call(limiter) == 1
    clock.now += 0.02
    assert [call(limiter), call(limiter)] == [0, 1]
    clock.now += 30
    assert [call(limiter) for _ in range(60)].count(0) == 50
    clock.now += 10_000
    assert [call(limiter) for _ in range(102)].count(0) == 100


def test_retry_after_is_the_time_until_the_next_allowed_call() -> None:
    clock = FakeClock(1000.0)
    limiter = make_limiter(Limit(calls="1/min"), clock=clock)
    assert call(limiter) == 0
    assert call(limiter) == 60
    clock.now += 30.5
    assert call(limiter) == 30
    clock.now += 29.4
    assert call(limiter) == 1
    clock.now += 0.2
    assert call(limiter) == 0


@given(
    amount=st.integers(1, 50),
    seconds=st.sampled_from([1, 60, 3600]),
    steps=st.lists(st.tuples(st.floats(0, 100), st.integers(1, 30)), max_size=30),
)
def test_no_interval_allows_more_than_a_full_bucket_and_its_refill(
    amount: int, seconds: int, steps: list[tuple[float, int]]
) -> None:
    clock = FakeClock(1000.0)
    limiter = make_limiter(
        Limit(calls=f"{amount}/{'s' if seconds == 1 else 'min' if seconds == 60 else 'h'}"), clock=clock
    )
    allowed: list[float] = []
    for pause, tries in steps:
        clock.now += pause
        allowed += [clock.now] * sum(call(limiter) == 0 for _ in range(tries))
    for first, start in enumerate(allowed):
        for last in range(first, len(allowed)):
            passed = Fraction(allowed[last]) - Fraction(start)
            assert last - first + 1 <= amount + passed * amount / seconds + Fraction(1, 1000)


@given(steps=st.lists(st.tuples(st.floats(0, 50), st.integers(0, 500)), max_size=40))
def test_bytes_are_counted_after_the_call_and_an_overdraft_delays_the_next_one(steps: list[tuple[float, int]]) -> None:
    """The limiter agrees with a bucket in exact fractions: 600 bytes, refilled by 10 each second."""
    clock, before = FakeClock(1000.0), Fraction(1000)
    limiter = make_limiter(Limit(bytes="600/min"), clock=clock)
    level = Fraction(600)
    for pause, size in steps:
        clock.now += pause
        level = min(Fraction(600), level + (Fraction(clock.now) - before) * 10)
        before = Fraction(clock.now)
        wait_seconds = call(limiter, size=size)
        if abs(level - 1) > Fraction(1, 1000):
            assert (wait_seconds == 0) == (level >= 1)
        if not wait_seconds:
            level -= size


def test_an_answer_over_the_limit_is_sent_and_delays_the_next_call() -> None:
    clock = FakeClock(1000.0)
    limiter = make_limiter(Limit(bytes="1KiB/s"), clock=clock)
    assert call(limiter, size=10 * 1024) == 0
    assert call(limiter) == 10
    clock.now += 9
    assert call(limiter) == 1
    clock.now += 0.1
    assert call(limiter) == 0


def test_parallel_calls_are_counted_until_they_end() -> None:
    limiter = make_limiter(Limit(parallel=2))
    uses = [limiter.use_of("principal a") for _ in range(3)]
    ends = [limiter.begin(ANN, "call", use) for use in uses[:2]]
    with pytest.raises(RateLimited, match="parallel = 2") as refused:
        limiter.begin(ANN, "call", uses[2])
    assert refused.value.retry_after == 1
    assert limiter.begin(ANN, "call", limiter.use_of("principal b")) is not None
    assert ends[0] is not None
    ends[0]()
    assert limiter.begin(ANN, "call", uses[2]) is not None


def test_a_refused_call_uses_up_nothing() -> None:
    clock = FakeClock(1000.0)
    limiter = make_limiter(Limit(calls="2/min", parallel=1), clock=clock)
    use = limiter.use_of("principal a")
    end = limiter.begin(ANN, "call", use)
    assert end is not None
    for _ in range(10):
        with pytest.raises(RateLimited, match="parallel = 1"):
            limiter.begin(ANN, "call", limiter.use_of("principal a"))
    end()
    assert limiter.begin(ANN, "call", limiter.use_of("principal a")) is not None


def test_all_requests_of_one_handler_count_as_one() -> None:
    limiter = make_limiter(Limit(do="read", calls="2/min"), Limit(calls="3/min", parallel=1))
    use = limiter.use_of("principal a")
    end = limiter.begin(ANN, "call", use)
    assert end is not None
    for _ in range(5):
        assert limiter.begin(ANN, "read", use, parallel=False) is None
    end()
    end = limiter.begin(ANN, "read", limiter.use_of("principal a"))
    assert end is not None, "the five reads counted as one, and have ended"
    end()
    with pytest.raises(RateLimited, match="calls = 2/min"):
        limiter.begin(ANN, "read", limiter.use_of("principal a"))


def test_a_handler_cannot_read_for_a_caller_who_has_used_up_their_reads() -> None:
    limiter = make_limiter(Limit(do="read", calls="1/min"))
    assert [call(limiter, action="read"), call(limiter, action="call")] == [0, 0]
    use = limiter.use_of(f"principal {ANN.key}")
    limiter.begin(ANN, "call", use)
    with pytest.raises(RateLimited):
        limiter.begin(ANN, "read", use, parallel=False)


@pytest.mark.parametrize(
    ("limits", "principal", "action", "expected_count"),
    [
        ([Limit(calls="2/min"), Limit(calls="5/min")], ANN, "read", 2),
        ([Limit(who="sub:ann", calls="2/min"), Limit(calls="5/min")], BOB, "read", 5),
        ([Limit(do=("search", "watch"), calls="2/min"), Limit(calls="5/min")], ANN, "read", 2),
        ([Limit(do="call", calls="2/min"), Limit(calls="5/min")], ANN, "read", 5),
        ([Limit(issuer="https://id.example", calls="2/min"), Limit(calls="5/min")], ANN, "read", 2),
        ([Limit(issuer="https://id.example", calls="2/min"), Limit(calls="5/min")], BOB, "read", 5),
        ([Limit(who=("local", "scope:a"), calls="2/min"), Limit(calls="5/min")], ANN, "read", 2),
        ([Limit(who="signed-in", calls="2/min"), Limit(calls="5/min")], ANONYMOUS, "read", 5),
        ([Limit(who="local", calls="2/min"), Limit(calls="5/min")], LOCAL, "read", 2),
        ([Limit(parallel=3), Limit(calls="5/min")], ANN, "read", 5),
        ([Limit(calls="2/min")], ANN, "", 2),
        ([Limit(do="read", calls="2/min")], ANN, "", 9),
        ([Limit(who="sub:bob", calls="2/min")], ANN, "read", 9),
    ],
)
def test_the_first_limit_that_applies_counts(
    limits: Sequence[Limit], principal: Principal, action: str, expected_count: int
) -> None:
    limiter = make_limiter(*limits)
    assert [call(limiter, principal, action) for _ in range(9)].count(0) == expected_count


def test_a_new_policy_keeps_the_usage_of_unchanged_limits() -> None:
    clock = FakeClock(1000.0)
    before = make_limiter(Limit(calls="2/min"), clock=clock)
    assert [call(before) for _ in range(3)].count(0) == 2
    after = make_limiter(Limit(parallel=3), Limit(calls="2/min"), clock=clock, previous=before)
    assert call(after) > 0
    changed = make_limiter(Limit(calls="3/min"), clock=clock, previous=after)
    assert call(changed) == 0


def test_all_tokens_of_a_caller_share_a_limit() -> None:
    """Security P09: by principal."""
    limiter = make_limiter(Limit(calls="2/min"))
    tokens = [Principal(subject="ann", issuer="https://id.example", scopes=frozenset({str(n)})) for n in range(9)]
    assert [call(limiter, token) for token in tokens].count(0) == 2


def test_full_buckets_are_dropped() -> None:
    clock, rate = FakeClock(1000.0), Rate("r", 1, 1)
    for n in range(10_000):
        clock.now += 0.01
        rate.take(f"address {n}", 1, clock.now)
    assert len(rate) <= 200, "100 of them are not full"


def test_a_flood_of_addresses_neither_grows_memory_nor_lifts_a_limit() -> None:
    clock = FakeClock(1000.0)
    rate = Rate("r", 2, 60, max_buckets=100)
    for _ in range(2):
        rate.take("address used-up", 1, clock.now)
        rate.take("principal ann", 1, clock.now)
    for n in range(100_000):
        clock.now += 0.0001
        if not rate.seconds_until(f"address {n}", 1, clock.now):
            rate.take(f"address {n}", 1, clock.now)
    assert len(rate) <= 100 + 1 + 1, "the table, one bucket for all others, and Ann's"
    assert rate.seconds_until("address used-up", 1, clock.now) > 0
    assert rate.seconds_until("address new", 1, clock.now) > 0, "all others share a bucket, which is used up"
    assert rate.seconds_until("principal bob", 1, clock.now) == 0, "each signed-in caller has a bucket"
    clock.now += 120
    for _ in range(100 // EXAMINED_BUCKETS + 1):
        assert rate.seconds_until("address late", 1, clock.now) == 0
    rate.take("address late", 1, clock.now)
    assert rate.seconds_until("address late", 2, clock.now) > 0
    assert len(rate) < 100


def test_ended_calls_are_dropped() -> None:
    parallel = Parallel("p", 2)
    for n in range(1000):
        parallel.begin(f"address {n}")
        parallel.end(f"address {n}")
    assert len(parallel) == 0


def test_a_policy_with_limits_alone_allows_everything_but_inspect() -> None:
    access = Policy(limits=[Limit(calls="1/min")]).access(ANONYMOUS)
    assert (
        access.allows("read", "file:///a") and access.allows("call", "tool:a") and access.allows("prompt", "prompt:a")
    )
    assert access.allows("query", "sqlite:///a") and not access.allows("inspect", "server:a")
    assert not Policy().access(ANONYMOUS).allows("read", "file:///a")
    limited = Policy(limits=[Limit(calls="1/min")], deny=[Rule(who="anyone", what="file:///a")])
    assert not limited.access(ANONYMOUS).allows("read", "file:///b"), (
        "if there is any rule, actions that no rule allows are refused"
    )


@pytest.mark.parametrize("action", ["query", "inspect"])
def test_a_limit_that_would_count_nothing_is_refused(action: str) -> None:
    with pytest.raises(UnusablePolicy, match=f"limit 1: {action} is a call of a tool"):
        Policy(limits=[Limit(do=("read", action), calls="1/min")])


def test_with_several_issuers_a_limit_must_name_its_issuer() -> None:
    policy = Policy(limits=[Limit(calls="1/s"), Limit(who="sub:ann", calls="1/min")])
    policy.check_issuers(["https://a.example"])
    with pytest.raises(UnusablePolicy, match="limit 2: this server trusts several issuers"):
        policy.check_issuers(["https://a.example", "https://b.example"])
    with pytest.raises(UnusablePolicy, match="limit 1: this server does not trust the issuer"):
        Policy(limits=[Limit(issuer="https://c.example", calls="1/s")]).check_issuers(["https://a.example"])
