"""A handler's own time: runs while it works, and stands still while a question of it waits for an answer."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from types import TracebackType

__all__ = ["Patience", "standing_still"]

_RUNNING: ContextVar[tuple[Patience, ...]] = ContextVar("patience", default=())


class Patience:
    """`async with Patience(seconds)`: TimeoutError after so many seconds, without those spent in `standing_still`."""

    __slots__ = ("_left", "_loop", "_scope", "_token", "_waiting")

    def __init__(self, seconds: float) -> None:
        self._scope = asyncio.timeout(seconds)
        self._loop = asyncio.get_running_loop()
        self._waiting = 0
        self._left = 0.0

    @property
    def expired(self) -> bool:
        """Whether the time is what ended the block."""
        return self._scope.expired()

    async def __aenter__(self) -> Patience:
        await self._scope.__aenter__()
        self._token = _RUNNING.set((*_RUNNING.get(), self))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _RUNNING.reset(self._token)
        await self._scope.__aexit__(kind, error, trace)  # raises TimeoutError in the place of its own cancellation

    def pause(self) -> None:
        """Stand still; as often as paused, it must be resumed."""
        self._waiting += 1
        when = self._scope.when()
        if self._waiting == 1 and when is not None:
            self._left = when - self._loop.time()
            with suppress(RuntimeError):  # it is over already
                self._scope.reschedule(None)

    def resume(self) -> None:
        """Go on, once nothing waits any more."""
        self._waiting -= 1
        if self._waiting == 0:
            with suppress(RuntimeError):
                self._scope.reschedule(self._loop.time() + self._left)


@contextmanager
def standing_still() -> Generator[None]:
    """Let no handler's time run that this task works for."""
    scopes = _RUNNING.get()
    for scope in scopes:
        scope.pause()
    try:
        yield
    finally:
        for scope in scopes:
            scope.resume()
