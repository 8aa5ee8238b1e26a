"""Runs a function in a thread of its own, for calls that must not wait for a thread of the pool."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

__all__ = ["run_in_own_thread"]


async def run_in_own_thread(function: Callable[[], Any], thread_name: str) -> Any:
    """Return what `function` returns. Its thread does not delay the end of the process."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()

    def finish(result: Any, error: BaseException | None) -> None:
        if future.done():
            return
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)

    def run() -> None:
        result: Any = None
        error: BaseException | None = None
        try:
            result = function()
        except BaseException as caught:
            error = caught
        with suppress(RuntimeError):  # the loop is closed, so nothing waits for the result
            loop.call_soon_threadsafe(finish, result, error)

    threading.Thread(target=run, name=thread_name, daemon=True).start()
    return await future
