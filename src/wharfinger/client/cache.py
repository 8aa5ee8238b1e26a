"""Results that are kept as long as their server allows, for whom it allows.

A server says of a list or a resource how long its result may be kept (`ttlMs`), and for whom (`cacheScope`). `Cache`
holds such results for any number of clients; `CacheStep` is one client's part of it, and a step of its calls.

A result is found by a `Key`: the server, the method, the URI or cursor, who asked (`partition`), and what else a server
may answer by (`vary`: the revision and the client's capabilities). A public result is stored without a partition.

Equal calls at the same time make one request (`InFlight`): the first asks, the others wait and take its result, but
only if it may be kept. Otherwise it belongs to the first alone, and each of the others asks as well; from then on equal
calls do not wait for each other (`is_uncacheable`).

Whatever changes while a request is under way spoils it: its result goes to those who wait, and is not kept.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable, Mapping
from threading import Lock
from typing import Any, NamedTuple

import msgspec
from msgspec import UNSET, Raw

from wharfinger import types as t
from wharfinger.client.calls import Call, Next
from wharfinger.client.retry import is_transient
from wharfinger.errors import InvalidParams, NotAuthorized, RemoteError, RequestTimeout, WharfingerError
from wharfinger.protocol.interfaces import Authorize
from wharfinger.protocol.methods import Method
from wharfinger.protocol.request import open_result
from wharfinger.protocol.revisions import Revision

__all__ = ["Cache", "CacheStep", "Key"]

NAME_PARAMS = {
    "resources/list": "cursor",
    "resources/templates/list": "cursor",
    "resources/read": "uri",
    "tools/list": "cursor",
    "prompts/list": "cursor",
    "skills/list": "cursor",
    "skills/get": "uri",
}
"""Methods whose results may be kept, and the param that distinguishes one result from another.

`server/discover` is not among them: a client asks it to learn how things are now.
"""

CHANGES: dict[str, tuple[str, ...]] = {
    "resources": ("resources/list", "resources/templates/list", "skills/list", "skills/get"),
    "tools": ("tools/list",),
    "prompts": ("prompts/list",),
}
"""By list: the methods whose results are outdated once it has changed. Templates have no notification of their own."""

READS = tuple(method for method, name in NAME_PARAMS.items() if name == "uri")
"""Methods whose result changes with a resource."""

NOTIFYING = {"resources/list": "resources", "tools/list": "tools", "prompts/list": "prompts"}
"""By method: the capability that promises a notification of each change of the list (handshake era)."""

MAX_NAME = 8192
"""Characters of a URI or a cursor whose result is kept: servers choose their cursors, which outlive the result."""
OVERHEAD = 512
"""Bytes that an entry takes in addition to its result, about."""

IsValid = Callable[[], bool]
"""Whether every change since a result came was heard, so that it is still true."""


class Key(NamedTuple):
    """What a result is found by."""

    server: Hashable
    method: str
    name: str | None
    """The URI or the cursor; None for the first page of a list."""
    partition: Hashable
    """Who asked; None for a public result."""
    vary: Hashable
    """The revision and the client's capabilities: a server may answer others differently."""


class _Entry(NamedTuple):
    data: bytes
    expires: float
    """By the cache's clock."""
    valid: IsValid | None
    """Whether every change since then was heard; None if time alone decides."""


class InFlight:
    """A request that is under way, and that others may wait for."""

    __slots__ = ("_done", "raw", "spoiled", "uncacheable")

    def __init__(self) -> None:
        self.raw: Raw | None = None
        """The result, once it is there and may be given to those who wait."""
        self.spoiled = False
        """Something has changed since: the result is not kept, and later calls ask again."""
        self.uncacheable = False
        """The result is for one caller only: the others have to ask as well."""
        self._done: asyncio.Future[None] | None = None

    async def wait(self, seconds: float | None) -> None:
        """Wait until it is done, at most so long. A waiting task may be cancelled without harm to the others."""
        if self._done is None:
            self._done = asyncio.get_running_loop().create_future()
        await asyncio.wait((self._done,), timeout=seconds)

    def finish(self) -> None:
        """Let those go on who wait."""
        if self._done is not None:
            self._done.set_result(None)


class Cache:
    """Results of servers, in memory, kept as long as `ttlMs` says (2026-07-28, caching).

    A client has one of its own. Given to several (`Client(…, cache=cache)`) it keeps a result whose `cacheScope` is
    `public` for all of them, and a private one for those with the same authorization. It may be used from several
    threads.

    `entries` and `size` (bytes) bound it: what was not used for longest goes first. `max_ttl` is how many seconds
    anything is kept, whatever the server says. For `stale_if_error` seconds after it expired a result is still returned
    if the server cannot be reached. `clock` counts seconds, and never goes back.
    """

    def __init__(
        self,
        *,
        entries: int = 1024,
        size: int = 64 * 1024 * 1024,
        max_ttl: float = 86_400.0,
        stale_if_error: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Raises ValueError if a bound is negative."""
        if min(entries, size, max_ttl, stale_if_error) < 0:
            raise ValueError("The bounds of a cache cannot be negative.")
        self._max_entries = entries
        self._max_size = size
        self._max_ttl = max_ttl
        self._stale_if_error = stale_if_error
        self._clock = clock
        self._entries: OrderedDict[Key, _Entry] = OrderedDict()
        self._size = 0
        self._uncacheable: OrderedDict[Key, None] = OrderedDict()
        """What could not be kept the last time."""
        self._lock = Lock()
        self.in_flight: dict[tuple[asyncio.AbstractEventLoop, Key], InFlight] = {}
        """Requests under way, by the loop that waits for them."""

    def __repr__(self) -> str:
        return f"<Cache: {len(self._entries)} results, {self._size} bytes>"

    def __len__(self) -> int:
        """How many results are kept, including expired ones."""
        return len(self._entries)

    @property
    def size(self) -> int:
        """Bytes that they take, about."""
        return self._size

    def clear(self) -> None:
        """Forget every result, and keep nothing of what is under way."""
        self.drop(lambda _: True)

    def get(self, key: Key, *, stale: bool = False) -> bytes | None:
        """The result for this key, or the public one; with `stale` also one that expired a short time ago."""
        if not self._entries:
            return None
        now = self._clock()
        with self._lock:
            for each in (key, _public(key)):
                entry = self._entries.get(each)
                if entry is None:
                    continue
                if now >= entry.expires + self._stale_if_error or (entry.valid is not None and not entry.valid()):
                    self._remove(each)
                elif stale or now < entry.expires:
                    self._entries.move_to_end(each)
                    return entry.data
        return None

    def put(self, key: Key, data: Raw | bytes, seconds: float, *, public: bool, valid: IsValid | None = None) -> None:
        """Keep a result for so long, instead of any older one; with `valid` only while that returns True."""
        size = len(memoryview(data)) + _weight(key)
        with self._lock:
            self._forget(key)
            if seconds <= 0 or size > self._max_size or not self._max_entries:
                return
            key = _public(key) if public else key
            self._entries[key] = _Entry(bytes(data), self._clock() + min(seconds, self._max_ttl), valid)
            self._size += size
            while len(self._entries) > self._max_entries or self._size > self._max_size:
                self._remove(next(iter(self._entries)))

    def forget(self, key: Key) -> None:
        """Forget this result, also if it is public."""
        with self._lock:
            self._forget(key)

    def drop(self, outdated: Callable[[Key], bool]) -> None:
        """Forget every result whose key is `outdated`, and do not keep those under way."""
        with self._lock:
            for key in [key for key in self._entries if outdated(key)]:
                self._remove(key)
        for (_, key), request in list(self.in_flight.items()):
            if outdated(key):
                request.spoiled = True

    def is_uncacheable(self, key: Key) -> bool:
        """Whether the last result could not be kept, so that there is no use in waiting for somebody else's."""
        return key in self._uncacheable

    def mark_uncacheable(self, key: Key, uncacheable: bool) -> None:
        """Remember whether a result could be kept."""
        if uncacheable == (key in self._uncacheable):
            return
        with self._lock:
            self._uncacheable.pop(key, None)
            if uncacheable and self._max_entries:
                self._uncacheable[key] = None
                if len(self._uncacheable) > self._max_entries:
                    self._uncacheable.popitem(last=False)

    def _forget(self, key: Key) -> None:
        if self._entries:
            for each in (key, _public(key)):
                if each in self._entries:
                    self._remove(each)

    def _remove(self, key: Key) -> None:
        self._size -= len(self._entries.pop(key).data) + _weight(key)


class CacheStep:
    """Returns a kept result, or that of an equal call under way, or asks the server and keeps what it may.

    `hear_lists` returns a function that says whether each change of a list was heard from now on (handshake era), or
    None if they are not heard at the moment.
    """

    def __init__(
        self,
        cache: Cache,
        target: Any,
        headers: Mapping[str, str],
        capabilities: t.ClientCapabilities,
        hear_lists: Callable[[], IsValid | None] = lambda: None,
    ) -> None:
        self._cache = cache
        self._server: Hashable = _server_key(target)
        self._headers = frozenset((name.lower(), value) for name, value in headers.items())
        self._credentials: Hashable = (self._headers, None)
        """Who asks: the headers, and the credentials that the sign-in gave last."""
        self._session = object()
        """Who asks in the handshake era: what a session was sent belongs to that session."""
        self._capabilities = msgspec.json.encode(capabilities)
        self._vary: Hashable = None
        self._rules: Revision | None = None
        self._notifying: frozenset[str] = frozenset()
        """Methods of lists whose changes the server promises to report."""
        self._was_connected = False
        self._hear_lists = hear_lists

    # What happens to the client.

    def connected(self, rules: Revision, capabilities: t.ServerCapabilities) -> None:
        """There is a connection. If it is not the first one, anything may have changed, even the server."""
        if self._was_connected:
            self._cache.drop(lambda key: key.server == self._server)
        self._was_connected = True
        self._session = object()
        self._rules = rules
        self._notifying = frozenset(
            method
            for method, name in NOTIFYING.items()
            if getattr(getattr(capabilities, name), "list_changed", UNSET) is True
        )
        self._vary = rules.name, self._capabilities

    def closed(self) -> None:
        """The client is closed: it gets nothing, and what is under way is not kept."""
        self._rules = None

    def changed(self, kind: str, uri: str = "") -> None:
        """A resource (`resource` and its URI) or a list has changed, or may have changed."""
        if kind == "resource":
            self._cache.drop(
                lambda key: key.server == self._server and key.method in READS and _touches(uri, key.name or "")
            )
        else:
            methods = CHANGES[kind]
            self._cache.drop(lambda key: key.server == self._server and key.method in methods)

    def observe(self, auth: Authorize) -> Authorize:
        """The same sign-in, whose credentials this step gets to know."""
        return _ObservedAuth(auth, self)

    def signed(self, headers: Mapping[str, str]) -> None:
        """A request goes out with these headers of the sign-in."""
        # What else there is, such as a proof of possession, differs from request to request.
        named = {name.lower(): value for name, value in headers.items()}
        self._credentials = self._headers, named.get("authorization") or frozenset(named.items()) or None

    # Calls.

    def applies_to(self, row: Method) -> bool:
        """Methods whose results may be kept."""
        return row.name in NAME_PARAMS

    def __call__(self, call: Call, next: Next) -> Awaitable[Any]:
        key, valid = self.find_key(call.row.name, call.params)
        return next(call) if key is None else self._answer(call, next, key, valid)

    def find_key(self, method: str, params: Any) -> tuple[Key | None, IsValid | None]:
        """What a result is kept under, None if it cannot be kept; and how long it is true, None if for its time."""
        rules, valid = self._rules, None
        if rules is None:
            return None, None
        partition: Hashable = self._credentials
        if rules.era == "handshake":  # it has no time to live: a list is kept while its changes are heard
            if method not in self._notifying or (valid := self._hear_lists()) is None:
                return None, None
            partition = self._session
        name = getattr(params, NAME_PARAMS[method])
        if name is not UNSET and len(name) > MAX_NAME:
            return None, None
        if method == "resources/read" and (params.input_responses is not UNSET or params.request_state is not UNSET):
            return None, None  # what comes of answers is not for keeping (2026-07-28, caching)
        return Key(self._server, method, None if name is UNSET else name, partition, self._vary), valid

    async def _answer(self, call: Call, next: Next, key: Key, valid: IsValid | None) -> Any:
        cache, place = self._cache, (asyncio.get_running_loop(), key)
        alone = call.bypass_cache
        while not alone:
            kept = cache.get(key)
            if kept is not None:
                return open_result(call.row, kept)  # decoded again: each caller gets objects of its own
            if cache.is_uncacheable(key):
                return await self._ask_alone(call, next, key)
            request = cache.in_flight.get(place)
            if request is None or request.spoiled:
                break
            await request.wait(call.left(asyncio.get_running_loop().time()))
            if request.raw is not None:
                return open_result(call.row, request.raw)
            alone = request.uncacheable
        request = InFlight()
        before = cache.in_flight.get(place)
        if before is not None:  # its result is older, and must not replace the newer one
            before.spoiled = True
        cache.in_flight[place] = request
        try:
            result = await next(call)
            self._keep(call, key, request, result, valid)
            return result
        except WharfingerError as error:
            kept = self._after_failure(key, request, error)
            if kept is None or call.bypass_cache:
                raise
            return open_result(call.row, kept)
        finally:
            if cache.in_flight.get(place) is request:
                del cache.in_flight[place]
            request.finish()

    async def _ask_alone(self, call: Call, next: Next, key: Key) -> Any:
        """Ask for what could not be kept the last time. If that has changed, the next result is kept."""
        try:
            result = await next(call)
        except RemoteError as error:
            self._after_failure(key, InFlight(), error)
            raise
        if _time_to_live(result) > 0:
            self._cache.mark_uncacheable(key, False)
        return result

    def _keep(self, call: Call, key: Key, request: InFlight, result: Any, valid: IsValid | None) -> None:
        seconds = _time_to_live(result) if valid is None else float("inf") if valid() else 0.0
        request.uncacheable = seconds <= 0
        if valid is None:
            self._cache.mark_uncacheable(key, request.uncacheable)
        if request.uncacheable:
            self._cache.forget(key)
            return
        if not self._is_current(key) or isinstance(call.raw, msgspec.UnsetType):
            request.uncacheable = True  # asked with one credential, perhaps answered for another one
            return
        request.raw = call.raw
        if not request.spoiled:
            public = valid is None and result.cache_scope == "public"
            self._cache.put(key, call.raw, seconds, public=public, valid=valid)

    def _after_failure(self, key: Key, request: InFlight, error: WharfingerError) -> bytes | None:
        """Forget what an error disproves. Returns a result to use instead of the error, if one may be."""
        if is_transient(error) or isinstance(error, RequestTimeout):  # it disproves nothing
            return self._cache.get(key, stale=True) if self._is_current(key) else None
        request.uncacheable = True
        if isinstance(error, NotAuthorized):
            self._cache.drop(lambda each: each.server == key.server and each.partition == key.partition)
        elif isinstance(error, RemoteError):
            self._cache.forget(key)
            if error.code == InvalidParams.code and NAME_PARAMS[key.method] == "cursor" and key.name is not None:
                partitions = (key.partition, None)  # one list, all its pages
                self._cache.drop(lambda each: each[:2] == key[:2] and each.partition in partitions)
        return None

    def _is_current(self, key: Key) -> bool:
        """Whether this client is open, and still who it was when it asked."""
        if self._rules is None:
            return False
        return key.partition == (self._session if self._rules.era == "handshake" else self._credentials)


class _ObservedAuth:
    """An `Authorize` whose headers a cache gets to know."""

    def __init__(self, auth: Authorize, step: CacheStep) -> None:
        self._auth = auth
        self._step = step

    async def headers(self, url: str) -> Mapping[str, str]:
        headers = await self._auth.headers(url)
        self._step.signed(headers)
        return headers

    async def refused(self, url: str, status: int, headers: Mapping[str, str], sent: Mapping[str, str]) -> bool:
        return await self._auth.refused(url, status, headers, sent)


class _ById:
    """A server of this process, which equals only itself, and lives as long as something of it is kept."""

    __slots__ = ("_target",)

    def __init__(self, target: object) -> None:
        self._target = target

    def __hash__(self) -> int:
        return id(self._target)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ById) and other._target is self._target


def _server_key(target: Any) -> Hashable:
    """Which server it is, for all who share a cache. Each client of a command has a process of its own."""
    if isinstance(target, str):
        return target
    if isinstance(target, list):
        return object()
    path = getattr(target, "path", None)
    return ("unix", path) if isinstance(target, msgspec.Struct) and path is not None else _ById(target)


def _time_to_live(result: Any) -> float:
    """Seconds for which a result may be kept; 0 for questions and whatever else has no time to live."""
    if not isinstance(result, t.CacheableResult) or isinstance(result.ttl_ms, msgspec.UnsetType):
        return 0.0
    return min(result.ttl_ms, 1 << 53) / 1000


def _public(key: Key) -> Key:
    return Key(key.server, key.method, key.name, None, key.vary)


def _weight(key: Key) -> int:
    return OVERHEAD + len(key.name or "")


def _touches(one: str, other: str) -> bool:
    """Whether one of two URIs is the other, or lies below it: a folder changes with what is in it."""
    # In this order: changes may come in a flood, and each is compared with everything that is kept.
    if one.startswith(other):
        shorter, longer = other, one
    elif other.startswith(one):
        shorter, longer = one, other
    else:
        return False
    return len(longer) == len(shorter) or shorter.endswith("/") or longer[len(shorter)] in "/?#"
