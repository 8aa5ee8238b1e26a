"""The circuit breaker: its states, delays and notifications, in examples and in random orders of calls and probes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.clock import FakeClock
from wharfinger.protocol.breaker import Breaker, BreakerState


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(100.0)


def test_a_new_breaker_is_closed_and_sends_no_probe(clock: FakeClock) -> None:
    breaker = Breaker(clock)
    assert breaker.state is BreakerState.CLOSED
    assert breaker.admits()
    assert not breaker.down
    assert not breaker.try_probe()
    assert (breaker.down_seconds(), breaker.probe_in(), breaker.reason) == (0, 0, "")


def test_after_a_failure_no_call_is_allowed_until_the_delay_ends_and_one_probe_succeeds(clock: FakeClock) -> None:
    breaker = Breaker(clock, initial_delay=2.0)
    breaker.failed("fog")
    assert (breaker.state, breaker.admits(), breaker.reason) == (BreakerState.OPEN, False, "fog")
    clock.now += 1.999
    assert not breaker.try_probe()
    assert breaker.probe_in() == pytest.approx(0.001)
    clock.now += 0.001
    assert breaker.try_probe()
    assert breaker.state is BreakerState.HALF_OPEN
    assert not breaker.try_probe()  # one at a time
    assert not breaker.admits()
    breaker.succeeded()
    assert breaker.state is BreakerState.CLOSED
    assert breaker.admits()


@pytest.mark.parametrize(
    ("options", "expected"),
    [({"initial_delay": 1.0, "max_delay": 5.0}, [1, 2, 4, 5, 5]), ({}, [1, 2, 4, 8, 16, 32, 60, 60])],
    ids=["set", "default"],
)
def test_each_failed_probe_doubles_the_delay_up_to_max_delay(
    options: dict[str, Any], expected: list[float], clock: FakeClock
) -> None:
    breaker = Breaker(clock, **options)
    delays: list[float] = []
    breaker.failed()
    for _ in expected:
        delays.append(breaker.probe_in())
        clock.now += delays[-1]
        assert breaker.try_probe()
        breaker.failed("still", clock.now)
    assert delays == expected
    breaker.succeeded()
    breaker.failed()
    assert breaker.probe_in() == 1  # a success resets the breaker


def test_concurrent_failures_count_once(clock: FakeClock) -> None:
    breaker = Breaker(clock)
    began = clock.now
    clock.now += 5
    for _ in range(100):
        breaker.failed("silent", began)
        clock.now += 0.01
    assert breaker.failures == 1
    assert breaker.down_seconds() == pytest.approx(6)


def test_a_call_that_began_before_the_outage_does_not_end_the_probe(clock: FakeClock) -> None:
    breaker = Breaker(clock)
    began = clock.now
    clock.now += 5
    breaker.failed("silent", began)
    clock.now += 1
    assert breaker.try_probe()
    breaker.failed("silent", began + 1)
    assert breaker.state is BreakerState.HALF_OPEN


def test_after_a_quick_failure_the_breaker_is_down_but_admits_calls(clock: FakeClock) -> None:
    breaker = Breaker(clock, quick_below=0.25)
    began = clock.now
    clock.now += 0.249
    breaker.failed("gone", began)
    assert (breaker.down, breaker.admits()) == (True, True)
    began = clock.now
    clock.now += 0.25  # at the limit it is no longer quick
    breaker.failed("gone", began)
    assert not breaker.admits()
    breaker.succeeded()
    breaker.failed("silent")  # without a start time, a failure counts as slow
    assert not breaker.admits()


def test_after_a_cancelled_probe_another_caller_may_probe_at_once(clock: FakeClock) -> None:
    breaker = Breaker(clock)
    breaker.failed()
    clock.now += 1
    assert breaker.try_probe()
    breaker.give_up_probe()
    assert breaker.state is BreakerState.OPEN
    assert breaker.try_probe()


def test_observers_are_notified_only_when_the_breaker_opens_or_closes(clock: FakeClock) -> None:
    breaker = Breaker(clock)
    received: list[bool] = []
    breaker.observers.append(lambda: received.append(breaker.down))
    breaker.succeeded()
    for _ in range(3):
        breaker.failed("fog", clock.now)
        clock.now += 10
    breaker.succeeded()
    breaker.succeeded()
    assert received == [True, False]


@given(st.lists(st.floats(0, 1), min_size=1, max_size=20))
@settings(max_examples=50)
def test_jitter_only_shortens_the_delay(factors: list[float]) -> None:
    clock = FakeClock(100.0)
    remaining = iter(factors)
    breaker = Breaker(clock, max_delay=8.0, random=lambda: next(remaining))
    for number, factor in enumerate(factors):
        breaker.failed()
        assert breaker.probe_in() == pytest.approx(min(8.0, 2.0**number) * factor)


class BreakerMachine(RuleBasedStateMachine):
    """Checks the guarantees in random orders of calls, probes and delays."""

    @initialize(initial=st.floats(0.1, 5), longest=st.floats(5, 100), quick=st.sampled_from([0.0, 0.25]))
    def begin(self, initial: float, longest: float, quick: float) -> None:
        self.clock = FakeClock(100.0)
        self.initial, self.longest = initial, longest
        self.breaker = Breaker(self.clock, initial_delay=initial, max_delay=longest, quick_below=quick)
        self.calls: list[float] = []
        self.probe: float | None = None
        self.changes: list[bool] = []
        self.breaker.observers.append(lambda: self.changes.append(self.breaker.down))

    @rule(seconds=st.floats(0.001, 200))
    def time_passes(self, seconds: float) -> None:
        self.clock.now += seconds

    @rule()
    def a_call_begins(self) -> None:
        if self.breaker.admits():
            self.calls.append(self.clock.now)

    @precondition(lambda self: self.calls)
    @rule(data=st.data(), succeeds=st.booleans())
    def a_call_ends(self, data: st.DataObject, succeeds: bool) -> None:
        began = self.calls.pop(data.draw(st.integers(0, len(self.calls) - 1)))
        before = self.breaker.failures
        self.breaker.succeeded() if succeeds else self.breaker.failed("fog", began)
        assert self.breaker.failures == 0 if succeeds else self.breaker.failures - before in (0, 1)

    @rule()
    def a_caller_tries_to_probe(self) -> None:
        due = self.breaker.probe_in() == 0 and self.breaker.state is BreakerState.OPEN
        assert self.breaker.try_probe() == due
        if due:
            self.probe = self.clock.now

    @precondition(lambda self: self.probe is not None)
    @rule(outcome=st.sampled_from(["succeeds", "fails", "cancelled"]))
    def the_probe_ends(self, outcome: str) -> None:
        began, self.probe = self.probe, None
        if outcome == "succeeds":
            self.breaker.succeeded()
            assert self.breaker.admits()
        elif outcome == "fails":
            self.breaker.failed("fog", began)
            assert self.breaker.down
        elif self.breaker.state is BreakerState.HALF_OPEN:
            self.breaker.give_up_probe()
            assert self.breaker.try_probe()
            self.probe = began

    @invariant()
    def delays_are_bounded(self) -> None:
        if hasattr(self, "breaker"):
            assert 0 <= self.breaker.probe_in() <= self.longest + 1e-9

    @invariant()
    def state_is_consistent(self) -> None:
        if not hasattr(self, "breaker"):
            return
        breaker = self.breaker
        assert breaker.down == (breaker.state is not BreakerState.CLOSED) == (breaker.failures > 0)
        assert breaker.admits() or breaker.down
        assert breaker.down or not breaker.reason
        assert all(before is not after for before, after in zip(self.changes, self.changes[1:], strict=False))
        assert (self.changes[-1] if self.changes else False) == breaker.down


TestBreakerMachine = BreakerMachine.TestCase
TestBreakerMachine.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
