"""Background tasks: references, counts, cancellation and reported failures."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Coroutine
from typing import Any

import pytest

from wharfinger.transports.background import BackgroundTasks


def run(test: Coroutine[Any, Any, None]) -> list[str]:
    """Run a test and return the messages that asyncio reported to the exception handler of the loop."""
    reports: list[str] = []

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: reports.append(context["message"]))
        await test
        gc.collect()

    asyncio.run(main())
    return reports


def test_a_task_is_counted_until_it_is_done() -> None:
    async def test() -> None:
        tasks, gate = BackgroundTasks(), asyncio.Event()
        tasks.start(gate.wait())
        tasks.start(gate.wait())
        assert len(tasks) == 2
        gate.set()
        await tasks.finished()
        assert len(tasks) == 0
        await tasks.finished()

    run(test())


def test_wait_below_returns_when_fewer_tasks_run_than_the_limit() -> None:
    async def test() -> None:
        tasks, gates = BackgroundTasks(), [asyncio.Event() for _ in range(3)]
        for gate in gates:
            tasks.start(gate.wait())
        await tasks.wait_below(4)
        waiting = asyncio.ensure_future(tasks.wait_below(2))
        for expected, gate in zip((False, True), gates, strict=False):
            gate.set()
            for _ in range(5):
                await asyncio.sleep(0)
            assert waiting.done() is expected
        await tasks.cancel()
        assert len(tasks) == 0

    run(test())


@pytest.mark.parametrize("report", [False, True])
def test_a_failure_is_reported_only_on_request(report: bool) -> None:
    async def fail() -> None:
        raise RuntimeError("secret")

    async def test() -> None:
        tasks = BackgroundTasks(report_failures=report)
        tasks.start(fail())
        await tasks.finished()
        del tasks

    assert ("Task exception was never retrieved" in run(test())) is report
