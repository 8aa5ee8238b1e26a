"""One call of a client: what hooks see of it, how long it may take, and hooks put around it; sends nothing."""

from __future__ import annotations

import asyncio
import inspect
import math
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any

from wharfinger.errors import RequestTimeout
from wharfinger.protocol.methods import Method

__all__ = ["Budget", "Call", "Deadline", "Hook", "Next", "around", "check_hook"]

Progress = Callable[[float, float | None, str | None], Any]
"""Told how far a call is: done, the total where it is known, and a text; plain or async."""


class Call:
    """What a hook is given: one request that is about to be made."""

    __slots__ = (
        "bounded",
        "fresh",
        "max_timeout",
        "params",
        "progress",
        "reset_on_progress",
        "retry",
        "row",
        "timeout",
    )

    def __init__(
        self,
        row: Method,
        params: Any,
        timeout: float,
        max_timeout: float,
        progress: Progress | None = None,
        reset_on_progress: bool = False,
    ) -> None:
        self.row = row
        """The method, as a row of the table of methods."""
        self.params = params
        """The params, a struct of `types`, without the `_meta` that every request gets; assign another to change it."""
        self.timeout = timeout
        """Seconds for the whole call; those in which a question of the server is answered do not count."""
        self.max_timeout = max_timeout
        """Seconds after which it fails, whatever happens."""
        self.progress = progress
        self.reset_on_progress = reset_on_progress
        """Whether each sign of progress begins `timeout` anew."""
        self.retry: bool | None = None
        """Whether it may be sent again after its connection was lost; None is what is known of the method or tool."""
        self.fresh = False
        """Whether the server is asked in any case, also where its answer is kept."""
        self.bounded = True
        """Whether `timeout` was asked for, so that it bounds a task, too."""

    def __repr__(self) -> str:
        return f"<Call {self.row.name}>"

    @property
    def method(self) -> str:
        """The method's name, such as `tools/call`."""
        return self.row.name


Next = Callable[[Call], Awaitable[Any]]
"""What a hook is around: the next hook, and at the end the request. Give it the call that came."""

Hook = Callable[[Call, Next], Awaitable[Any]]
"""`async def hook(call, next)`: returns what `await next(call)` returned, or an answer of its own, or raises."""


def around(hook: Hook, inner: Next) -> Next:
    """`inner` with a hook around it."""

    def perform(call: Call) -> Awaitable[Any]:
        return hook(call, inner)

    return perform


def check_hook(hook: Any) -> None:
    """Raises TypeError for what is no async function."""
    function = hook if inspect.isroutine(hook) else getattr(hook, "__call__", None)  # noqa: B004  # an object with one
    if not inspect.iscoroutinefunction(function) and not inspect.iscoroutinefunction(getattr(hook, "func", None)):
        name = getattr(hook, "__name__", type(hook).__name__)
        raise TypeError(f"{name}() must be an async function: async def {name}(call, next)")


class Budget:
    """How much of a call's time is left; what is spent on answering a question is given back."""

    __slots__ = ("_end", "_now", "_whole", "hard", "most", "seconds")

    def __init__(self, seconds: float, most: float, now: Callable[[], float]) -> None:
        self.seconds = seconds
        self.most = most
        self._now = now
        begun = now()
        self.hard = begun + most
        """When it ends at the latest, by the loop's clock."""
        self._end = begun + seconds
        self._whole = True
        """Nothing was asked of it yet, so that errors can name the seconds that were given."""

    def left(self) -> float | None:
        """Seconds, more than none; None where there is no end.

        Raises:
            RequestTimeout: there are none left.
        """
        end = min(self._end, self.hard)
        if end == math.inf:
            return None
        if self._whole:
            self._whole = False
            return min(self.seconds, self.most)
        left = end - self._now()
        if left <= 0:
            raise RequestTimeout(f"The call was not complete within {self.seconds:g} s.")
        return left

    def give_back(self, since: float) -> None:
        """The time since then does not count."""
        self._end += self._now() - since

    def part(self, seconds: float) -> Budget:
        """A budget of so much for one request, but of no more than what is left of this one."""
        left = self.left()
        return Budget(seconds if left is None else min(seconds, left), math.inf, self._now)

    def renew(self) -> None:
        """Begin anew."""
        self._end = self._now() + self.seconds


class Deadline:
    """The end of one wait for a server, which may be put off: by progress, or while a question is open."""

    __slots__ = ("_budget", "_left", "_loop", "_scope")

    def __init__(self, budget: Budget, loop: asyncio.AbstractEventLoop) -> None:
        left = budget.left()
        self._budget = budget
        self._loop = loop
        self._left: float | None = None
        self._scope = asyncio.timeout(left)

    async def __aenter__(self) -> Deadline:
        await self._scope.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        await self._scope.__aexit__(kind, error, trace)
        return None

    @property
    def waited(self) -> float:
        """Seconds that were waited for, to tell of."""
        return min(self._budget.seconds, self._budget.most)

    @property
    def expired(self) -> bool:
        """Whether this is why the wait ended."""
        return self._scope.expired()

    def renew(self) -> None:
        """There was progress."""
        self._budget.renew()
        if self._left is None:
            self._set(self._budget.seconds)
        else:
            self._left = self._budget.seconds

    def pause(self) -> None:
        """Stand still, but for the call's hard maximum."""
        when = self._scope.when()
        if self._left is None and when is not None and not self._scope.expired():
            self._left = when - self._loop.time()
            self._set(math.inf)

    def go_on(self) -> None:
        """Run again with what was left."""
        if self._left is not None:
            left, self._left = self._left, None
            self._set(left)

    def _set(self, seconds: float) -> None:
        if not self._scope.expired():
            when = min(self._loop.time() + seconds, self._budget.hard)
            self._scope.reschedule(None if when == math.inf else when)
