"""One call of a client, and the chain of steps that it goes through.

A step is a function `async def step(call, next)`: it does something before or after `await next(call)`, calls `next`
again, or returns a result without calling `next`. Middleware that users write and the client's own steps are of this
one type. `ClientSession` composes them once:

    middleware → web resources → tasks → multi-round requests → cache → progress and deadlines → retry → connection

Each of the client's own steps names its methods by `applies_to`, and a call passes only through the steps that apply to
it. The connection, at the end of the chain, sends the request and returns its decoded result.
"""

from __future__ import annotations

import asyncio
import inspect
import math
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol, TypedDict

import msgspec
from msgspec import UNSET, Raw, UnsetType

from wharfinger import types as t
from wharfinger.client.callbacks import CallbackQueue
from wharfinger.client.input_handlers import InputHandlers
from wharfinger.errors import RequestTimeout
from wharfinger.protocol.jsonrpc import Message
from wharfinger.protocol.methods import Method
from wharfinger.transports.timeouts import PausableTimeout

__all__ = [
    "PROGRESS",
    "Call",
    "CallManyOptions",
    "CallOptions",
    "Middleware",
    "Next",
    "ProgressStep",
    "ReadManyOptions",
    "Step",
    "check_middleware",
    "compose",
    "progress_in",
]

Progress = Callable[[float, float | None, str | None], Any]
"""Called with the progress of a call: done, the total or None, and a message or None. Plain or async."""

PROGRESS = "notifications/progress"
_decode_progress = msgspec.json.Decoder(t.ProgressNotificationParams).decode


class ReadManyOptions(TypedDict, total=False):
    """Options of `Client.read_many`."""

    concurrency: int
    """The maximum number of reads at a time; 32 by default."""
    timeout: float | None
    """Seconds for each read."""
    bypass_cache: bool
    """Whether to send the request even if a result is cached."""


class CallManyOptions(TypedDict, total=False):
    """Options of `Client.call_many`."""

    concurrency: int
    """The maximum number of calls at a time; 16 by default."""
    timeout: float | None
    """Seconds for each call."""


class CallOptions(TypedDict, total=False):
    """Options of `Client.call_tool`."""

    timeout: float | None
    """Seconds for the whole call."""
    max_timeout: float | None
    """Seconds after which the call fails even if its deadline was extended."""
    progress: Progress | None
    """Called with `(done, total, message)`, plain or async."""
    reset_on_progress: bool
    """Whether each report of progress restarts `timeout`."""
    retry: bool | None
    """Whether the call may be sent again if its connection is lost, so that the tool may run twice. With False it is
    not sent again after a refusal because of a limit either."""


class Call(msgspec.Struct, eq=False):
    """One call, as middleware sees it: the request to send, and options for sending it."""

    row: Method
    """The method, as a row of the table of methods."""
    params: Any
    """The params, a struct of `types`, without the `_meta` that every request gets. Middleware may assign others."""
    timeout: float
    """Seconds for the whole call, not counting the time to answer the server's questions."""
    max_timeout: float
    """Seconds after which the call fails in any case."""
    progress: Progress | None = None
    reset_on_progress: bool = False
    """Whether each report of progress restarts `timeout`."""
    retry: bool | None = None
    """Whether the call may be sent again after its connection was lost. None leaves that to its method or tool. With
    False it is not sent again after a refusal because of a limit either."""
    bypass_cache: bool = False
    """Whether to send the request even if a result is cached."""
    timeout_given: bool = True
    """Whether the caller gave `timeout`, which then bounds a task too."""
    on_notification: Callable[[Message], None] | None = None
    """Called with each notification that belongs to this call. The client handles it as well."""
    raw: Raw | UnsetType = UNSET
    """The encoded result; UNSET before it has arrived."""
    deadline: float | None = None
    """The deadline by the loop's clock; None until `left` is first called."""
    last_deadline: float = math.inf
    """The deadline of `max_timeout`, by the loop's clock. Nothing extends it."""

    def __repr__(self) -> str:
        return f"<Call {self.row.name}>"

    @property
    def method(self) -> str:
        """The method's name, such as `tools/call`."""
        return self.row.name

    def left(self, now: float) -> float | None:
        """Return the seconds that are left, or None if there is no limit.

        `now` is the loop's time. When this is first called, the clock starts.

        Raises:
            RequestTimeout: the time is up.
        """
        if self.deadline is None:
            timeout, max_timeout = self.timeout, self.max_timeout
            self.deadline, self.last_deadline = now + timeout, now + max_timeout
            # `deadline - now` would have a rounding error, which error messages would show.
            left = timeout if timeout < max_timeout else max_timeout
        else:
            left = min(self.deadline, self.last_deadline) - now
            if left <= 0:
                seconds = self.timeout if self.deadline < self.last_deadline else self.max_timeout
                raise RequestTimeout(f"The call was not complete within {seconds:g} s.")
        return None if left == math.inf else left

    def extend_deadline(self, seconds: float) -> None:
        """Extend the deadline by the seconds that a person took to answer."""
        if self.deadline is not None:
            self.deadline += seconds

    def restart(self) -> None:
        """Restart the deadline, with the full `timeout`."""
        self.deadline = asyncio.get_running_loop().time() + self.timeout

    def follow_up(self, row: Method, params: t.RequestParams, seconds: float) -> Call:
        """Return another request of the same call, which times out after `seconds`, or earlier with the call."""
        now = asyncio.get_running_loop().time()
        left = self.left(now)
        return Call(row, params, seconds if left is None else min(seconds, left), self.last_deadline - now)


Next = Callable[[Call], Awaitable[Any]]
"""The rest of the chain: `await next(call)` is the result of the call's method, decoded."""

Middleware = Callable[[Call, Next], Awaitable[Any]]
"""`async def middleware(call, next)`: returns what `await next(call)` returned, or another result, or raises."""


class Step(Protocol):
    """One of the client's own steps."""

    def applies_to(self, row: Method) -> bool:
        """Return whether calls of this method go through the step."""
        ...

    def __call__(self, call: Call, next: Next, /) -> Awaitable[Any]:
        """Handle the call, usually by passing it to `next`."""
        ...


def compose(steps: Sequence[Middleware], last: Next) -> Next:
    """Return the chain of these steps, the first one outermost."""
    for step in reversed(steps):
        last = _bind(step, last)
    return last


def _bind(step: Middleware, next: Next) -> Next:
    def perform(call: Call) -> Awaitable[Any]:
        return step(call, next)

    return perform


def check_middleware(middleware: object) -> None:
    """Raise TypeError unless this is an async function, or an object or `functools.partial` that is called like one."""
    # A class has the `__call__` of its instances, but calling the class makes an instance.
    function = middleware if inspect.isroutine(middleware) else getattr(type(middleware), "__call__", None)  # noqa: B004
    wrapped = getattr(middleware, "func", None)
    if not inspect.iscoroutinefunction(function) and not inspect.iscoroutinefunction(wrapped):
        name = getattr(middleware, "__name__", type(middleware).__name__)
        raise TypeError(f"{name}() must be an async function: async def {name}(call, next)")


class ProgressStep:
    """Reports the progress of a call, and moves its deadline.

    If the call asks for it (`reset_on_progress`), each report of progress restarts the deadline. In the handshake era a
    question to a person pauses it, because the server sends the question while the client waits for the result. In both
    cases the deadline is a `PausableTimeout` around the rest of the chain, and the rest itself has none. In the
    stateless era questions come as results, and no pause is necessary.
    """

    def __init__(
        self,
        handlers: InputHandlers,
        asks_by_result: Callable[[], bool],
        name: Callable[[], str],
    ) -> None:
        """`asks_by_result` returns whether questions come as results (stateless era). `name` returns the server's name
        for errors."""
        self._handlers = handlers
        self._may_be_asked = handlers.has_any
        self._asks_by_result = asks_by_result
        self._name = name

    def applies_to(self, row: Method) -> bool:
        """Return whether the call may report progress, as tools do, or the server may ask for input during it."""
        return row.name == "tools/call" or self._may_be_asked

    def __call__(self, call: Call, next: Next) -> Awaitable[Any]:
        may_pause = self._may_be_asked and not self._asks_by_result()
        if call.progress is None and not call.reset_on_progress and not may_pause:
            return next(call)
        return self._report(call, next, may_pause or call.reset_on_progress)

    async def _report(self, call: Call, next: Next, deadline_moves: bool) -> Any:
        reports = None if call.progress is None else CallbackQueue(call.progress)
        outer_handler = call.on_notification  # set by middleware
        inner, timeout = call, None
        if deadline_moves:
            now = asyncio.get_running_loop().time()
            timeout = PausableTimeout(call.left(now), max_seconds=call.last_deadline - now)
            inner = msgspec.structs.replace(call, timeout=math.inf, max_timeout=math.inf, deadline=None)

        def handle(message: Message) -> None:
            if outer_handler is not None:
                outer_handler(message)
            if message.method != PROGRESS:
                return
            if call.reset_on_progress and timeout is not None:
                timeout.restart(call.timeout)
            progress = None if reports is None else progress_in(message)
            if reports is not None and progress is not None:
                reports.put(*progress, size=len(memoryview(message.params)))  # type: ignore[arg-type]

        if reports is not None or call.reset_on_progress:
            inner.on_notification = handle
        try:
            result = await (next(inner) if timeout is None else self._wait(call, next(inner), timeout))
        except BaseException:
            if reports is not None:
                reports.stop()
            raise
        finally:  # the call may be sent again: by middleware, or after the user has opened a URL
            inner.on_notification = outer_handler
            if timeout is not None:  # pauses and restarts have moved the deadline
                call.deadline = asyncio.get_running_loop().time() + timeout.remaining()
        call.raw = inner.raw
        if reports is not None:
            await reports.finished()
        return result

    async def _wait(self, call: Call, result: Awaitable[Any], timeout: PausableTimeout) -> Any:
        try:
            async with timeout:
                with self._handlers.pausing(timeout):
                    return await result
        except TimeoutError as error:
            if isinstance(error, RequestTimeout) or not timeout.expired:
                raise
            # `asyncio.timeout` may be early by the resolution of the clock.
            at_last = asyncio.get_running_loop().time() > call.last_deadline - 0.001
            seconds = call.max_timeout if at_last else call.timeout
            raise RequestTimeout(f"{call.method}: no answer from {self._name()} within {seconds:g} s.") from None


def progress_in(message: Message) -> tuple[float, float | None, str | None] | None:
    """Return the params of a `notifications/progress` as the arguments of a `Progress`; None if they are invalid."""
    try:
        report = _decode_progress(b"" if isinstance(message.params, UnsetType) else message.params)
    except msgspec.MsgspecError:
        return None
    total = None if isinstance(report.total, UnsetType) else report.total
    return report.progress, total, None if isinstance(report.message, UnsetType) else report.message
