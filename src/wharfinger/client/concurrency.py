"""Makes several calls at once, with a limit, and returns their results in order."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeVar

from wharfinger.errors import WharfingerError

__all__ = ["gather_limited"]

A = TypeVar("A")
R = TypeVar("R")


async def gather_limited(
    call: Callable[[A], Awaitable[R]], arguments: Iterable[A], limit: int, *, return_errors: bool
) -> list[R | WharfingerError]:
    """Call a function with each argument, at most `limit` at a time. Returns the results in the arguments' order.

    The first failure cancels the other calls and is raised itself, not in an exception group. With `return_errors` a
    WharfingerError is put into the list instead.

    Raises:
        ValueError: `limit` is not positive.
    """
    if limit < 1:
        raise ValueError(f"concurrency must be positive, not {limit}.")
    todo = list(arguments)
    results: list[Any] = [None] * len(todo)
    numbered = iter(enumerate(todo))

    async def work() -> None:
        for number, argument in numbered:
            try:
                results[number] = await call(argument)
            except WharfingerError as error:
                if not return_errors:
                    raise
                results[number] = error

    workers = [asyncio.ensure_future(work()) for _ in range(min(limit, len(todo)))]
    if not workers:
        return []
    failed: list[BaseException] = []
    try:
        done, _ = await asyncio.wait(workers, return_when=asyncio.FIRST_EXCEPTION)
        failed += [error for worker in done if not worker.cancelled() and (error := worker.exception()) is not None]
    finally:
        unfinished = [worker for worker in workers if not worker.done()]
        for worker in unfinished:
            worker.cancel()
        if unfinished:
            await asyncio.wait(unfinished)
    if failed:
        raise failed[0]
    if any(worker.cancelled() for worker in workers):  # by the call itself, so that its result is missing
        raise asyncio.CancelledError
    return results
