"""Delays between attempts."""

from __future__ import annotations

from wharfinger.protocol.backoff import MAX_DOUBLINGS, Backoff


def test_the_delay_doubles_up_to_the_maximum() -> None:
    backoff = Backoff(1, 8)
    assert [backoff.failed() for _ in range(5)] == [1, 2, 4, 8, 8]
    assert backoff.failures == 5


def test_the_delay_is_multiplied_by_a_random_number() -> None:
    numbers = iter([0.0, 1.0, 0.5, 1.0])
    backoff = Backoff(1, 8, lambda: next(numbers))
    assert [backoff.failed() for _ in range(4)] == [0, 2, 2, 8]


def test_a_success_resets_the_delay() -> None:
    backoff = Backoff(1, 8)
    backoff.failed()
    backoff.failed()
    backoff.succeeded()
    assert backoff.failures == 0
    assert backoff.failed() == 1


def test_a_success_resets_the_delay_only_after_some_time() -> None:
    backoff = Backoff(1, 8, reset_after=10)
    backoff.failed()
    backoff.succeeded(9.9)
    assert backoff.failures == 1
    backoff.succeeded(10)
    assert backoff.failures == 0


def test_the_delay_never_overflows() -> None:
    backoff = Backoff(0.1, 30)
    assert [backoff.failed() for _ in range(5000)][-1] == 30
    unbounded = Backoff(1, float("inf"))
    assert [unbounded.failed() for _ in range(MAX_DOUBLINGS + 2)][-2:] == [2.0**MAX_DOUBLINGS] * 2
