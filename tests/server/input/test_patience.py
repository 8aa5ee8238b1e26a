"""A handler's own time, which questions do not use up."""

from __future__ import annotations

import asyncio

import pytest

from tests.server.driving import looped
from wharfinger.server.input.patience import Patience, standing_still


@looped
async def test_time_that_stands_still_is_not_used_up() -> None:
    async with Patience(0.05) as outer, Patience(0.05):
        with standing_still():
            async with asyncio.TaskGroup() as group:  # each of them stands still too, and none wakes the others' time
                for seconds in (0.01, 0.1):
                    group.create_task(_still(seconds))
    assert not outer.expired


async def _still(seconds: float) -> None:
    with standing_still():
        await asyncio.sleep(seconds)


@looped
async def test_time_goes_on_afterwards() -> None:
    patience = Patience(0.05)
    with pytest.raises(TimeoutError):
        async with patience:
            with standing_still():
                await asyncio.sleep(0.1)
            await asyncio.sleep(10)
    assert patience.expired


@looped
async def test_a_handlers_own_time_out_is_not_ours() -> None:
    patience = Patience(10)
    with pytest.raises(TimeoutError):
        async with patience, asyncio.timeout(0.01):
            with standing_still():
                await asyncio.sleep(10)
    assert not patience.expired


@looped
async def test_outside_of_any_time_nothing_stands_still() -> None:
    with standing_still():
        await asyncio.sleep(0)
