"""A timeout that can be paused while a person answers.

A request has a deadline, but it may have to wait for a person: until a user signs in, fills in a form, or decides
whether a tool may run. On client and server, the time that the person takes does not count, except for a client's
`max_timeout`.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Generator
from contextlib import contextmanager, suppress
from contextvars import ContextVar, Token
from types import TracebackType

__all__ = ["PausableTimeout", "Pauses", "pause_context", "paused"]

_CONTEXT_TIMEOUTS: ContextVar[tuple[PausableTimeout, ...]] = ContextVar("timeouts", default=())


class Pauses:
    """The pauses of one clock, which may overlap. Callers pass the current time as `now`, in seconds.

    To move a time that is kept as a number, such as a deadline or the start of a request: call `begin` when a question
    is asked and `end` when it is answered, and add the seconds that `end` returns to the number.
    """

    __slots__ = ("_open", "since")

    def __init__(self) -> None:
        self._open = 0
        self.since = 0.0
        """When the clock stopped; only meaningful while it is stopped."""

    def __bool__(self) -> bool:
        """Whether the clock is stopped."""
        return self._open > 0

    def begin(self, now: float) -> bool:
        """Begin a pause. Returns whether it stopped the clock."""
        self._open += 1
        if self._open > 1:
            return False
        self.since = now
        return True

    def end(self, now: float) -> float | None:
        """End a pause. Returns the seconds for which the clock was stopped, or None while another pause lasts."""
        self._open -= 1
        return None if self._open else now - self.since


class PausableTimeout:
    """`async with PausableTimeout(seconds):` works like `asyncio.timeout`, but can be paused.

    - The code that waits enters the block, and gets TimeoutError when the time is up; `expired` distinguishes it from a
      TimeoutError that the block itself raised.
    - The code that asks a person calls `pause()` before and `resume()` after it, or uses
      `with timeout.paused():`. Pauses may overlap, and may come from any task of the same event loop. They are allowed
      before the block begins and after it has ended.
    - The code that receives progress calls `restart()`, which starts `seconds` again.

    `seconds` may be None or `math.inf` for no limit. `max_seconds` count from the beginning of the block, pauses and
    restarts included. With `in_context` the code in the block, and the tasks that it starts, can pause the timeout
    with `pause_context`, without a reference to it.
    """

    __slots__ = ("_end", "_in_context", "_last", "_max_seconds", "_pauses", "_scope", "_token", "seconds")

    def __init__(self, seconds: float | None, *, max_seconds: float | None = None, in_context: bool = False) -> None:
        self.seconds = math.inf if seconds is None else seconds
        self._max_seconds = math.inf if max_seconds is None else max_seconds
        self._in_context = in_context
        self._pauses = Pauses()
        self._end = self._last = math.inf
        """The deadlines by the loop's clock: `_end` moves with each pause, `_last` does not."""
        self._scope: asyncio.Timeout | None = None
        self._token: Token[tuple[PausableTimeout, ...]] | None = None

    @property
    def expired(self) -> bool:
        """Whether the block was ended because its time was up."""
        return self._scope is not None and self._scope.expired()

    def remaining(self) -> float:
        """Return the seconds that are left now; later pauses and restarts may add to them. No limit is `math.inf`.

        During a pause, only `max_seconds` runs on.
        """
        if self._scope is None:
            return min(self.seconds, self._max_seconds)
        now = asyncio.get_running_loop().time()
        return min(self._end - (self._pauses.since if self._pauses else now), self._last - now)

    async def __aenter__(self) -> PausableTimeout:
        now = asyncio.get_running_loop().time()
        self._end, self._last = now + self.seconds, now + self._max_seconds
        if self._pauses:
            self._pauses.since = now
        self._scope = asyncio.timeout_at(self._when())
        await self._scope.__aenter__()
        if self._in_context:
            self._token = _CONTEXT_TIMEOUTS.set((*_CONTEXT_TIMEOUTS.get(), self))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._token is not None:
            _CONTEXT_TIMEOUTS.reset(self._token)
        assert self._scope is not None
        await self._scope.__aexit__(kind, error, trace)  # replaces its own cancellation by TimeoutError

    def pause(self) -> None:
        """Stop the clock until `resume` was called as often as `pause`."""
        if self._pauses.begin(asyncio.get_running_loop().time()):
            self._reschedule()

    def resume(self) -> None:
        """End one pause; after the last one the clock continues with the time that was left."""
        stopped = self._pauses.end(asyncio.get_running_loop().time())
        if stopped is not None:
            self._end += stopped
            self._reschedule()

    @contextmanager
    def paused(self) -> Generator[None]:
        """Stop the clock for a block."""
        self.pause()
        try:
            yield
        finally:
            self.resume()

    def restart(self, seconds: float | None = None) -> None:
        """Start the timeout again, with the given or the original seconds, from now or from the end of the pause."""
        begin = self._pauses.since if self._pauses else asyncio.get_running_loop().time()
        self._end = begin + (self.seconds if seconds is None else seconds)
        self._reschedule()

    def _when(self) -> float | None:
        when = self._last if self._pauses else min(self._end, self._last)
        return None if when == math.inf else when

    def _reschedule(self) -> None:
        if self._scope is not None:
            with suppress(RuntimeError):  # the block has ended, or is just being ended
                self._scope.reschedule(self._when())


@contextmanager
def paused(*timeouts: PausableTimeout | None) -> Generator[None]:
    """Stop several clocks for a block; None means no timeout."""
    stopped = [timeout for timeout in timeouts if timeout is not None]
    for timeout in stopped:
        timeout.pause()
    try:
        yield
    finally:
        for timeout in stopped:
            timeout.resume()


@contextmanager
def pause_context() -> Generator[None]:
    """Stop the clock of every timeout that was entered with `in_context` around the running code, for a block."""
    with paused(*_CONTEXT_TIMEOUTS.get()):
        yield
