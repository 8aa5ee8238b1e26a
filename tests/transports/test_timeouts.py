"""Timeouts that are paused while a user answers."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable

import pytest

from wharfinger.transports.timeouts import PausableTimeout, Pauses, pause_context, paused


def test_overlapping_pauses_count_once() -> None:
    pauses = Pauses()
    assert not pauses
    assert pauses.begin(10.0) is True
    assert pauses.begin(12.0) is False
    assert pauses and pauses.since == 10.0
    assert pauses.end(13.0) is None
    assert pauses.end(15.0) == 5.0
    assert not pauses


class Clock:
    """The clock of the loop, which a test sets."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._now = 1000.0
        loop.time = lambda: self._now  # type: ignore[method-assign]

    async def advance(self, seconds: float) -> None:
        """Advance the clock and run what is due."""
        self._now += seconds
        for _ in range(5):
            await asyncio.sleep(0)


def run(test: Callable[[Clock], Awaitable[None]]) -> None:
    async def main() -> None:
        await test(Clock(asyncio.get_running_loop()))

    asyncio.run(main())


async def wait_until_expired(timeout: PausableTimeout) -> None:
    """Enter a block with this timeout, and wait until it expires."""
    with pytest.raises(TimeoutError):
        async with timeout:
            await asyncio.Event().wait()


def test_a_block_ends_when_its_timeout_expires() -> None:
    async def test(clock: Clock) -> None:
        timeout = PausableTimeout(10)
        assert timeout.remaining() == 10
        waiting = asyncio.ensure_future(wait_until_expired(timeout))
        await clock.advance(0)
        await clock.advance(9.5)
        assert not waiting.done() and not timeout.expired
        assert timeout.remaining() == 0.5
        await clock.advance(0.5)
        assert waiting.done() and timeout.expired

    run(test)


def test_a_timeout_is_paused_until_every_pause_has_ended() -> None:
    async def test(clock: Clock) -> None:
        timeout = PausableTimeout(10)
        waiting = asyncio.ensure_future(wait_until_expired(timeout))
        await clock.advance(0)
        await clock.advance(4)
        timeout.pause()
        timeout.pause()
        await clock.advance(100)
        timeout.resume()
        await clock.advance(100)
        assert timeout.remaining() == 6
        timeout.resume()
        await clock.advance(5.9)
        assert not waiting.done()
        await clock.advance(0.1)
        assert waiting.done() and timeout.expired

    run(test)


def test_a_pause_may_start_before_the_block() -> None:
    async def test(clock: Clock) -> None:
        timeout = PausableTimeout(10)
        timeout.pause()
        await clock.advance(50)
        waiting = asyncio.ensure_future(wait_until_expired(timeout))
        await clock.advance(0)
        await clock.advance(20)
        assert timeout.remaining() == 10
        timeout.resume()
        await clock.advance(9.9)
        assert not waiting.done()
        await clock.advance(0.1)
        assert waiting.done()

    run(test)


def test_a_pause_may_end_after_the_block() -> None:
    async def test(clock: Clock) -> None:
        timeout = PausableTimeout(10)
        async with timeout:
            timeout.pause()
        timeout.resume()
        timeout.restart()
        assert not timeout.expired

    run(test)


def test_max_seconds_includes_pauses_and_restarts() -> None:
    async def test(clock: Clock) -> None:
        timeout = PausableTimeout(10, max_seconds=30)
        waiting = asyncio.ensure_future(wait_until_expired(timeout))
        await clock.advance(0)
        await clock.advance(5)
        timeout.restart()
        timeout.pause()
        await clock.advance(24.9)
        assert not waiting.done()
        await clock.advance(0.1)
        assert waiting.done() and timeout.expired

    run(test)


def test_a_restart_resets_the_timeout() -> None:
    async def test(clock: Clock) -> None:
        timeout = PausableTimeout(10)
        waiting = asyncio.ensure_future(wait_until_expired(timeout))
        await clock.advance(0)
        await clock.advance(9)
        timeout.restart(20)
        assert timeout.remaining() == 20
        timeout.restart()
        assert timeout.remaining() == 10
        await clock.advance(4)
        timeout.pause()
        timeout.restart()
        await clock.advance(40)
        timeout.resume()
        await clock.advance(9.9)
        assert not waiting.done()
        await clock.advance(0.1)
        assert waiting.done()

    run(test)


@pytest.mark.parametrize("seconds", [None, math.inf])
def test_a_timeout_may_be_infinite(seconds: float | None) -> None:
    async def test(clock: Clock) -> None:
        timeout = PausableTimeout(seconds)
        assert timeout.remaining() == math.inf
        async with timeout:
            with timeout.paused():
                await clock.advance(1e9)
            await clock.advance(1e9)

    run(test)


def test_another_timeout_error_in_the_block_is_raised_unchanged() -> None:
    async def test(clock: Clock) -> None:
        timeout = PausableTimeout(10)
        with pytest.raises(TimeoutError, match="a socket's"):
            async with timeout:
                raise TimeoutError("a socket's")
        assert not timeout.expired

    run(test)


def test_pause_context_pauses_only_timeouts_in_the_context() -> None:
    async def test(clock: Clock) -> None:
        outer, not_in_context, inner = (
            PausableTimeout(10, in_context=True),
            PausableTimeout(10),
            PausableTimeout(10, in_context=True),
        )

        async def pause_for_5_seconds() -> None:
            with pause_context():
                await clock.advance(5)

        async with outer, not_in_context, inner:
            await asyncio.create_task(pause_for_5_seconds())
            assert [timeout.remaining() for timeout in (outer, not_in_context, inner)] == [10, 5, 10]
        with pause_context():  # the context has no timeouts after the block
            assert not outer.expired

    run(test)


def test_paused_pauses_several_timeouts_for_a_block() -> None:
    async def test(clock: Clock) -> None:
        first, second = PausableTimeout(10), PausableTimeout(20)
        async with first, second:
            with paused(first, None, second):
                await clock.advance(50)
            assert (first.remaining(), second.remaining()) == (10, 20)

    run(test)
