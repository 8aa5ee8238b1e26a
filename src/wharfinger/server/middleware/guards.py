"""Ready-made middleware: logs and times calls, and limits their rate and size. It never logs arguments or results."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import UNSET, Raw

from wharfinger import types as t
from wharfinger.content.text import printable
from wharfinger.errors import InternalError, ProtocolError, RateLimited
from wharfinger.policy.limiter import Rate
from wharfinger.protocol.jsonrpc import encode
from wharfinger.protocol.request import input_needed
from wharfinger.protocol.shares import name_owner
from wharfinger.server.middleware.chain import Call, Middleware, Next, Result, transparent

__all__ = ["Times", "Timing", "limit_rate", "limit_size", "log_calls", "outcome_of", "subject_of"]

Clock = Callable[[], float]
"""Returns seconds since any fixed time, and never decreases."""

MAX_SUBJECT_CHARACTERS = 200
"""The maximum number of characters of a name or URI that a log line shows."""


def log_calls(
    logger: logging.Logger | None = None, *, level: int = logging.INFO, clock: Clock = time.perf_counter
) -> Middleware:
    """Log a line for each call: method, name or URI, principal, duration and outcome.

    These are also attributes of the log record, for structured logs: `mcp_method`, `mcp_name`, `mcp_principal`,
    `mcp_seconds`, `mcp_outcome`. Arguments, results and texts of errors are never logged. `logger` is
    `wharfinger.calls` unless another is given.
    """
    log = logger or logging.getLogger("wharfinger.calls")

    @transparent
    async def logs(call: Call, next: Next) -> Result:
        if not log.isEnabledFor(level):
            return await next(call)
        name, begun, outcome = subject_of(call), clock(), ""
        try:
            result = await next(call)
            outcome = outcome_of(result)
            return result
        except BaseException as error:
            outcome = outcome_of(error)
            raise
        finally:
            seconds, principal = clock() - begun, printable(call.caller.principal.subject, MAX_SUBJECT_CHARACTERS)
            log.log(
                level,
                "%s %s by %s in %.1f ms: %s",
                call.method,
                name or "-",
                principal or "-",
                seconds * 1000,
                outcome,
                extra={
                    "mcp_method": call.method,
                    "mcp_name": name,
                    "mcp_principal": principal,
                    "mcp_seconds": seconds,
                    "mcp_outcome": outcome,
                },
            )

    return logs


class Times(msgspec.Struct):
    """How long the calls of one method took, in seconds."""

    count: int = 0
    failed: int = 0
    """Calls whose outcome was not `ok`, `task` or `input required`."""
    total: float = 0.0
    longest: float = 0.0

    @property
    def mean(self) -> float:
        """Average seconds of a call; 0.0 before the first."""
        return self.total / self.count if self.count else 0.0


class Timing:
    """Keeps times by method in `by_method`, and calls `on_call(call, seconds, outcome)` for each call."""

    transparent = True

    def __init__(
        self, on_call: Callable[[Call, float, str], None] | None = None, *, clock: Clock = time.perf_counter
    ) -> None:
        self.by_method: dict[str, Times] = {}
        self._on_call = on_call
        self._clock = clock

    async def __call__(self, call: Call, next: Next) -> Result:
        """Serve the call, and record how long it took."""
        begun = self._clock()
        try:
            result = await next(call)
        except BaseException as error:
            self._record(call, self._clock() - begun, outcome_of(error))
            raise
        self._record(call, self._clock() - begun, outcome_of(result))
        return result

    def _record(self, call: Call, seconds: float, outcome: str) -> None:
        times = self.by_method.setdefault(call.method, Times())
        times.count += 1
        times.failed += outcome not in ("ok", "task", "input required")
        times.total += seconds
        times.longest = max(times.longest, seconds)
        if self._on_call is not None:
            self._on_call(call, seconds, outcome)


def limit_rate(
    per_second: float, *, burst: int | None = None, max_callers: int = 10_000, clock: Clock = time.monotonic
) -> Middleware:
    """Refuse calls of a principal, or of an anonymous caller's address, above a rate.

    `burst` calls may come at once (by default as many as in one second, at least 1), and `per_second` after that. The
    error says when to try again: in its message, as `retryAfter` (seconds) in its data, and over HTTP as status 429
    with the header `Retry-After`. At most `max_callers` principals and as many addresses have limits of their own; the
    other principals share one, and so do the other addresses. The limits of a policy also count bytes and concurrent
    calls.

    Raises:
        ValueError: `per_second` is not positive and finite, or another bound is below 1.
    """
    burst_size = max(1.0, per_second) if burst is None else float(burst)
    if not (0 < per_second < math.inf and burst_size >= 1 and max_callers >= 1):
        raise ValueError("limit_rate() needs a positive rate, and a burst and a number of callers of at least 1.")
    rate = Rate("", burst_size, burst_size / per_second, max_callers)

    @transparent
    async def limits(call: Call, next: Next) -> Result:
        caller, now = name_owner(call.caller.principal.key, call.peer), clock()
        if (wait := rate.seconds_until(caller, 1, now)) > 0:
            seconds = math.ceil(wait)
            raise RateLimited(f"Too many calls: try again in {seconds} s.", seconds)
        rate.take(caller, 1, now)
        return await next(call)

    return limits


def limit_size(max_bytes: int) -> Middleware:
    """Refuse results of more than `max_bytes` bytes, before they are sent.

    For tools, the caller gets a result with `isError`, so that the model can ask for less; for other methods, an error.
    Contents of resources and cached pages are counted directly; any other result is encoded once more to count its
    bytes.

    Raises:
        ValueError: `max_bytes` is not positive.
    """
    if max_bytes < 1:
        raise ValueError("limit_size() needs a positive number of bytes.")

    @transparent
    async def limits(call: Call, next: Next) -> Result:
        result = await next(call)
        if _size(result) <= max_bytes:
            return result
        text = f"The result has more than {max_bytes} bytes, which is this server's limit: ask for less."
        if call.method == "tools/call":
            return t.CallToolResult(content=[t.TextContent(text=text)], is_error=True)
        raise InternalError(text)

    return limits


def _size(result: Result) -> int:
    """Return the approximate bytes of a result; 0 if it has no JSON form."""
    if type(result) is Raw:
        return len(bytes(result))
    if isinstance(result, t.ReadResourceResult):
        return sum(_length(content.text) + _length(content.blob) for content in result.contents)
    try:
        return len(encode(result))
    except (TypeError, ValueError):
        return 0


def _length(data: Any) -> int:
    if isinstance(data, str):
        return len(data) if data.isascii() else len(data.encode(errors="replace"))
    return 0 if data is UNSET else (len(data) + 2) // 3 * 4


def subject_of(call: Call) -> str:
    """Return the name of the tool or prompt, or the URI of the resource, on one line; empty for other calls."""
    name_param = call.row.name_param if call.row is not None else ""
    if name_param not in ("name", "uri"):
        return ""
    return printable(str(getattr(call.params, name_param)), MAX_SUBJECT_CHARACTERS)


def outcome_of(answer: object) -> str:
    """Return a short word for a call's result or exception.

    `ok`, `tool error`, `task`, `input required`, `refused (code)` for a protocol error, `cancelled`, `failed`.
    """
    if not isinstance(answer, BaseException):
        if getattr(answer, "is_error", UNSET) is True:
            return "tool error"
        kind = getattr(answer, "result_type", UNSET)
        return "ok" if kind in (UNSET, "complete") else str(kind).replace("_", " ")
    if input_needed(answer) is not None:
        return "input required"
    if isinstance(answer, ProtocolError) and not answer.remote:
        return f"refused ({answer.code})"
    return "cancelled" if isinstance(answer, asyncio.CancelledError) else "failed"
