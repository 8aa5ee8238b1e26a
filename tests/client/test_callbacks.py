"""Functions of the user that are called with messages: in order, whatever the function does."""

from __future__ import annotations

import asyncio
import logging

import pytest

from wharfinger.client.callbacks import CallbackQueue


async def test_messages_are_delivered_after_a_function_waited_for_a_cancelled_task(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A bug: the next messages were stuck, and then delivered after later ones."""
    delivered: list[int] = []
    cancelled = asyncio.get_running_loop().create_future()
    cancelled.cancel()

    async def note(number: int) -> None:
        delivered.append(number)
        if number == 1:
            await cancelled

    queue = CallbackQueue(note)
    for number in (1, 2, 3):
        queue.put(number)
    await queue.finished()
    queue.put(4)
    await queue.finished()
    assert delivered == [1, 2, 3, 4]
    assert [(record.levelno, record.getMessage()) for record in caplog.records] == [(logging.ERROR, f"{note!r} failed")]


@pytest.mark.filterwarnings("error")
async def test_a_queue_that_is_stopped_at_once_leaves_no_coroutine_unawaited() -> None:
    """A bug: Python warned that a coroutine was never awaited."""
    delivered: list[str] = []

    async def note(text: str) -> None:
        delivered.append(text)

    queue = CallbackQueue(note)
    queue.put("before")
    queue.stop()
    await queue.finished()
    queue.put("after")
    await queue.finished()
    assert delivered == ["after"]


async def test_a_function_is_cancelled_with_the_task_that_waits_for_it() -> None:
    """A bug: a cancelled call left its progress function running."""
    begun, ended = asyncio.Event(), asyncio.Event()
    delivered: list[int] = []

    async def note(number: int) -> None:
        delivered.append(number)
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    queue = CallbackQueue(note)
    queue.put(1)
    queue.put(2)
    waiting = asyncio.create_task(queue.finished())
    await begun.wait()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await asyncio.wait_for(ended.wait(), 10)
    assert delivered == [1]
