"""Many calls at once, with a bound: results in the order of what was asked, and one error, never a group of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeVar

from wharfinger.errors import WharfingerError

__all__ = ["in_order"]

A = TypeVar("A")
R = TypeVar("R")


async def in_order(
    call: Callable[[A], Awaitable[R]], each: Iterable[A], at_once: int, *, keep_errors: bool
) -> list[R | WharfingerError]:
    """`call` for each, at most `at_once` of them at a time; results in their order.

    Where one fails the others are cancelled, and its error is raised; with `keep_errors` an error of ours stands in the
    list at its place.
    """
    if at_once < 1:
        raise ValueError(f"at_once must be positive, not {at_once}.")
    todo = list(each)
    results: list[Any] = [None] * len(todo)
    numbered = iter(enumerate(todo))
    failed: list[BaseException] = []

    async def work() -> None:
        for place, item in numbered:
            try:
                results[place] = await call(item)
            except WharfingerError as error:
                if not keep_errors:
                    raise
                results[place] = error

    workers = [asyncio.ensure_future(work()) for _ in range(min(at_once, len(todo)))]
    if not workers:
        return []
    try:
        done, _ = await asyncio.wait(workers, return_when=asyncio.FIRST_EXCEPTION)
        failed += [error for worker in done if not worker.cancelled() and (error := worker.exception()) is not None]
    finally:
        left = [worker for worker in workers if not worker.done()]
        for worker in left:
            worker.cancel()
        if left:
            await asyncio.wait(left)
    if failed:
        raise failed[0]
    return results
