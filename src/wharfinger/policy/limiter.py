"""Counts what each caller uses, and refuses requests over the limits of the policy. Does no I/O.

A rate such as `100/min` is a token bucket (GCRA, ITU-T I.371): 100 requests at once, and then one every 0.6 s. A bucket
is one number, the time at which it will be full again; a request moves it 0.6 s into the future, and is refused if that
would be more than a minute away. So a caller never gets twice the amount at once, which fixed windows allow at their
edges.

Bytes are known only after a request. An answer may take a bucket below empty; then requests are refused until the debt
is paid, so that one large answer costs as much as many small ones.

Buckets belong to the caller: a principal, with any token and in any number of sessions, or an address. A full bucket is
forgotten. If there are too many buckets that are not full, all callers without a bucket share a single one, so that a
flood of addresses can neither fill the memory nor make the server forget who has used up a limit.
"""

from __future__ import annotations

import functools
import math
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from wharfinger.errors import RateLimited
from wharfinger.policy.rule import Limit, named_actions
from wharfinger.policy.who import Selector
from wharfinger.protocol.principal import Principal

__all__ = ["Limiter", "Rate", "Use"]

MAX_BUCKETS = 100_000
"""The maximum number of buckets of one rate, for principals and for addresses separately: about 20 MB each."""
MAX_PRINCIPALS = 10_000
"""The maximum number of principals whose limits are remembered."""
EXAMINED_BUCKETS = 2
"""Buckets that are examined for each new one; full ones are forgotten."""
TOLERANCE_SECONDS = 1e-6
"""More than the rounding error of a hundred additions."""
SHARED = ""
"""The key of the bucket that is shared by callers without a bucket of their own, when there are too many buckets."""


class Rate:
    """The buckets of one rate: `amount` in `seconds`."""

    __slots__ = ("_addresses", "_max_buckets", "_principals", "_seconds", "_seconds_each", "name")

    def __init__(self, name: str, amount: float, seconds: float, max_buckets: int = MAX_BUCKETS) -> None:
        self.name = name
        """The limit as it is written in the policy."""
        self._seconds = seconds
        self._seconds_each = seconds / amount
        self._max_buckets = max_buckets
        self._principals: _Buckets = OrderedDict()
        self._addresses: _Buckets = OrderedDict()
        """The buckets of callers who are not signed in. A flood of addresses does not affect the others."""

    def __len__(self) -> int:
        return len(self._principals) + len(self._addresses)

    def seconds_until(self, caller: str, amount: int, now: float) -> float:
        """Return the seconds until the bucket holds this amount; 0 if it already does."""
        buckets, caller = self._find(caller, now)
        full_at = buckets.get(caller, now)
        return max(0.0, full_at + amount * self._seconds_each - now - self._seconds - TOLERANCE_SECONDS)

    def take(self, caller: str, amount: int, now: float) -> None:
        """Take an amount out of the bucket, even if it holds less."""
        buckets, caller = self._find(caller, now)
        known = buckets.get(caller)
        if known is None:
            _forget_full(buckets, now)
        buckets[caller] = (now if known is None or known < now else known) + amount * self._seconds_each

    def _find(self, caller: str, now: float) -> tuple[_Buckets, str]:
        """Return the table that the caller's bucket belongs to, and its key there."""
        buckets = self._principals if caller.startswith("principal ") else self._addresses
        if len(buckets) >= self._max_buckets and caller not in buckets:
            _forget_full(buckets, now)
            if len(buckets) >= self._max_buckets:
                return buckets, SHARED
        return buckets, caller


_Buckets = OrderedDict[str, float]
"""By caller, the time at which the bucket will be full again. The first bucket was examined longest ago."""


def _forget_full(buckets: _Buckets, now: float) -> None:
    for _ in range(min(EXAMINED_BUCKETS, len(buckets))):
        caller, full_at = buckets.popitem(last=False)
        if full_at > now:
            buckets[caller] = full_at  # at the end


class Parallel:
    """The requests of each caller that run now."""

    __slots__ = ("_limit", "_running", "name")

    def __init__(self, name: str, limit: int) -> None:
        self.name = name
        self._limit = limit
        self._running: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._running)

    def is_full(self, caller: str) -> bool:
        """Return whether the caller may not begin another request."""
        return self._running.get(caller, 0) >= self._limit

    def begin(self, caller: str) -> None:
        """Count a request that begins."""
        self._running[caller] = self._running.get(caller, 0) + 1

    def end(self, caller: str) -> None:
        """Stop counting a request that has ended."""
        remaining = self._running[caller] - 1
        if remaining:
            self._running[caller] = remaining
        else:
            del self._running[caller]


class _Meters(NamedTuple):
    """The meters for an action of one principal."""

    calls: Rate | None
    bytes: Rate | None
    parallel: Parallel | None


class _ParsedLimit(NamedTuple):
    """One limit with its selectors and meters."""

    limit: Limit
    selectors: tuple[Selector, ...]
    actions: frozenset[str] | None
    """The counted actions; None for all requests."""
    meters: _Meters

    def applies_to(self, principal: Principal) -> bool:
        issuer = self.limit.issuer
        return (issuer is None or issuer == principal.issuer) and any(
            selector.applies_to(principal) for selector in self.selectors
        )


class Use:
    """The usage of limits by one request of a client, together with the requests that its handler makes."""

    __slots__ = ("_bytes", "_caller", "_calls", "_clock")

    def __init__(self, caller: str, clock: Callable[[], float]) -> None:
        self._caller = caller
        self._clock = clock
        self._calls: list[Rate] = []
        self._bytes: list[Rate] = []

    def begin(self, meters: _Meters, *, parallel: bool = True) -> Callable[[], None] | None:
        """Count a request, once by each limit. Returns the function to call when it has ended, or None.

        Raises:
            RateLimited: a limit is reached; nothing was counted.
        """
        caller, now = self._caller, self._clock()
        calls, volume, running = meters
        if running is not None and parallel and running.is_full(caller):
            raise _refusal(running.name, 1)
        if volume is not None and (seconds := volume.seconds_until(caller, 1, now)) > 0:
            raise _refusal(volume.name, seconds)
        if calls is not None and calls not in self._calls:
            if (seconds := calls.seconds_until(caller, 1, now)) > 0:
                raise _refusal(calls.name, seconds)
            calls.take(caller, 1, now)
            self._calls.append(calls)
        if volume is not None and volume not in self._bytes:
            self._bytes.append(volume)
        if running is None or not parallel:
            return None
        running.begin(caller)
        return functools.partial(running.end, caller)

    def charge(self, size: int) -> None:
        """Count the bytes of the answer."""
        now = self._clock()
        for rate in self._bytes:
            rate.take(self._caller, size, now)


class Limiter:
    """The limits of a policy, and what every caller has used of them.

    A limit that is equal to one of `previous` continues its counts, so that a new policy gives no caller a new budget.
    `clock` returns seconds of a monotonic clock.
    """

    def __init__(
        self,
        limits: Sequence[Limit],
        *,
        previous: Limiter | None = None,
        clock: Callable[[], float] = time.monotonic,
        max_buckets: int = MAX_BUCKETS,
    ) -> None:
        self._clock = clock
        self._meters: dict[bytes, _Meters] = {}
        self._limits: list[_ParsedLimit] = []
        known = {} if previous is None else previous._meters
        for limit in limits:
            key = msgspec.json.encode(limit)
            meters = self._meters.get(key) or known.get(key) or _meters_of(limit, max_buckets)
            self._meters[key] = meters
            actions = None if limit.do is None else named_actions(limit.do)
            self._limits.append(_ParsedLimit(limit, limit.selectors(), actions, meters))
        self._remembered: OrderedDict[int, tuple[Principal, dict[str, _Meters | None]]] = OrderedDict()
        """By `id` of a principal: the principal, which the entry keeps alive, and its meters by action."""

    def use_of(self, caller: str) -> Use:
        """Return an empty `Use` for a request of a client, which counts for this caller."""
        return Use(caller, self._clock)

    def begin(self, principal: Principal, action: str, use: Use, *, parallel: bool = True) -> Callable[[], None] | None:
        """Count a request. Returns the function to call when it has ended, or None.

        A handler's own requests pass the use of its client's request: each limit counts all of them together once.
        `parallel` says whether the request counts as one of those that run at the same time.

        Raises:
            RateLimited: a limit is reached.
        """
        meters = self._meters_for(principal, action)
        return None if meters is None else use.begin(meters, parallel=parallel)

    def _meters_for(self, principal: Principal, action: str) -> _Meters | None:
        """Return the first meters of requests, bytes and parallel requests that apply; None if none of them exists."""
        known = self._remembered.get(id(principal))
        if known is None or known[0] is not principal:
            known = self._remembered[id(principal)] = principal, {}
            while len(self._remembered) > MAX_PRINCIPALS:
                self._remembered.popitem(last=False)
        by_action = known[1]
        if action in by_action:
            return by_action[action]
        applying = [
            limit.meters
            for limit in self._limits
            if (limit.actions is None or action in limit.actions) and limit.applies_to(principal)
        ]
        found = _Meters(
            calls=next((meters.calls for meters in applying if meters.calls is not None), None),
            bytes=next((meters.bytes for meters in applying if meters.bytes is not None), None),
            parallel=next((meters.parallel for meters in applying if meters.parallel is not None), None),
        )
        by_action[action] = None if found == (None, None, None) else found
        return by_action[action]


def _meters_of(limit: Limit, max_buckets: int) -> _Meters:
    calls, volume = limit.rate("calls"), limit.rate("bytes")
    return _Meters(
        None if calls is None else Rate(f"calls = {limit.calls}", *calls, max_buckets),
        None if volume is None else Rate(f"bytes = {limit.bytes}", *volume, max_buckets),
        None if limit.parallel is None else Parallel(f"parallel = {limit.parallel}", limit.parallel),
    )


def _refusal(name: str, seconds: float) -> RateLimited:
    retry_after = max(1, math.ceil(seconds))
    return RateLimited(f"The limit {name} is reached: try again in {retry_after} s.", retry_after)
