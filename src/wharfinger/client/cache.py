"""Caches results as their server allows: for how long, and for whom.

For a list or a resource, the server says how long its result may be kept (`ttlMs`), and for whom (`cacheScope`). In
the handshake era it says neither, and only lists are kept, while a watch reports their changes. `Cache` stores results
for any number of clients; `CacheStep` uses it for one client, as a step of its calls.

The `Key` of a result has the server, the method, the URI or cursor, the caller (`partition`), and everything else that
the response may depend on (`vary`: the revision and the client's capabilities). A public result has no partition.

Equal calls at the same time make one request (`InFlight`): the first is sent, and the others wait for its result, but
use it only if it may be cached. Otherwise the others are sent too, and from then on equal calls do not wait for each
other (`is_uncacheable`).

If a list or resource changes while it is requested, the result goes to the waiting calls, but is not cached.
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
from wharfinger.protocol.subscriptions import covers

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
"""Methods whose results may be cached, and the param that distinguishes one result from another.

`server/discover` is not among them: a client sends it to get the current state.
"""

OUTDATED_METHODS: dict[str, tuple[str, ...]] = {
    "resources": ("resources/list", "resources/templates/list", "skills/list", "skills/get"),
    "tools": ("tools/list",),
    "prompts": ("prompts/list",),
}
"""By list: the methods whose results are outdated after a change of the list. Templates have no notification of their
own."""

RESOURCE_METHODS = tuple(method for method, name in NAME_PARAMS.items() if name == "uri")
"""Methods whose result changes if a resource changes."""

NOTIFYING_LISTS = {"resources/list": "resources", "tools/list": "tools", "prompts/list": "prompts"}
"""By method: the capability that promises a notification of each change of the list (handshake era)."""

MAX_NAME_CHARACTERS = 8192
"""The maximum length of a URI or cursor whose result is cached: the cache keeps it with the result."""
ENTRY_OVERHEAD_BYTES = 512
"""Approximate bytes that an entry takes in addition to its result."""

IsValid = Callable[[], bool]
"""Returns whether the client was notified of every change since it requested a result. If so, the result is still
valid: a notification would have dropped it."""


class Key(NamedTuple):
    """The key of a cached result."""

    server: Hashable
    method: str
    name: str | None
    """The URI or the cursor; None for the first page of a list."""
    partition: Hashable
    """The caller's credentials or session; None for a public result."""
    vary: Hashable
    """The revision and the client's capabilities: with others, a server may answer differently."""


class _Entry(NamedTuple):
    data: bytes
    expires: float
    """In seconds of the cache's clock."""
    valid: IsValid | None
    """Checks whether the result is still valid; None if only its age matters."""


class InFlight:
    """A request in flight, for which equal calls may wait."""

    __slots__ = ("_done", "outdated", "raw", "uncacheable")

    def __init__(self) -> None:
        self.raw: Raw | None = None
        """The result, once it may be given to waiting calls."""
        self.outdated = False
        """Whether its result may be outdated. If so, it is not cached, and later calls send their own requests."""
        self.uncacheable = False
        """Whether the result is for the first call only, so that waiting calls must send their own requests."""
        self._done: asyncio.Future[None] | None = None

    async def wait(self, seconds: float | None) -> None:
        """Wait at most `seconds` until the request is done. Cancelling one waiting task does not affect the others."""
        if self._done is None:
            self._done = asyncio.get_running_loop().create_future()
        await asyncio.wait((self._done,), timeout=seconds)

    def finish(self) -> None:
        """Wake up the waiting calls."""
        if self._done is not None:
            self._done.set_result(None)


class Cache:
    """An in-memory cache of servers' results, which are kept for their `ttlMs` (2026-07-28, caching).

    In older revisions, only lists are kept, while `Client.watch_lists` is open and the server reports their changes.

    By default each client has its own. Clients, also in several threads, can share one (`Client(…, cache=cache)`). A
    `public` result serves all of them, and a private one the clients with the same authorization (`cacheScope`).

    `max_entries` and `max_bytes` bound it; the least recently used result is dropped first. `max_ttl` is the longest
    time in seconds that a result is kept. An expired result is still returned if the server cannot be reached, for
    `stale_if_error` seconds. `clock` returns seconds, and never decreases.
    """

    def __init__(
        self,
        *,
        max_entries: int = 1024,
        max_bytes: int = 64 * 1024 * 1024,
        max_ttl: float = 86_400.0,
        stale_if_error: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Raises ValueError if a bound is negative."""
        if min(max_entries, max_bytes, max_ttl, stale_if_error) < 0:
            raise ValueError("The bounds of a cache cannot be negative.")
        self._max_entries = max_entries
        self._max_bytes = max_bytes
        self._max_ttl = max_ttl
        self._stale_if_error = stale_if_error
        self._clock = clock
        self._entries: OrderedDict[Key, _Entry] = OrderedDict()
        self._size = 0
        self._uncacheable: OrderedDict[Key, None] = OrderedDict()
        """Keys whose last result could not be cached."""
        self._lock = Lock()
        self.in_flight: dict[tuple[asyncio.AbstractEventLoop, Key], InFlight] = {}
        """Requests in flight, by event loop and key."""

    def __repr__(self) -> str:
        return f"<Cache: {len(self._entries)} results, {self._size} bytes>"

    def __len__(self) -> int:
        """The number of results, including expired ones."""
        return len(self._entries)

    @property
    def size(self) -> int:
        """Approximate bytes of all results."""
        return self._size

    def clear(self) -> None:
        """Drop every result, and do not cache those of requests in flight."""
        self.drop(lambda _: True)

    def get(self, key: Key, *, stale: bool = False) -> bytes | None:
        """Return the result for this key, or the public one.

        With `stale`, this includes a result that expired less than `stale_if_error` seconds ago.
        """
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

    def put(
        self,
        key: Key,
        data: Raw | bytes,
        seconds: float,
        *,
        public: bool,
        valid: IsValid | None = None,
        request: InFlight | None = None,
    ) -> None:
        """Cache a result for `seconds`, in place of an older one. With `valid`, use it only while `valid()` is True.

        Does nothing if its `request` is outdated. If the result is too large, or `seconds` is not positive, the older
        one is dropped and nothing is cached.
        """
        size = len(memoryview(data)) + _overhead(key)
        with self._lock:
            if request is not None and request.outdated:
                return
            self._forget(key)
            if seconds <= 0 or size > self._max_bytes or not self._max_entries:
                return
            key = _public(key) if public else key
            self._entries[key] = _Entry(bytes(data), self._clock() + min(seconds, self._max_ttl), valid)
            self._size += size
            while len(self._entries) > self._max_entries or self._size > self._max_bytes:
                self._remove(next(iter(self._entries)))

    def forget(self, key: Key) -> None:
        """Drop this result, private or public."""
        with self._lock:
            self._forget(key)

    def drop(self, outdated: Callable[[Key], bool]) -> None:
        """Drop every result whose key is `outdated`, and do not cache one with such a key that is in flight."""
        with self._lock:
            for key in [key for key in self._entries if outdated(key)]:
                self._remove(key)
            for (_, key), request in list(self.in_flight.items()):
                if outdated(key):
                    request.outdated = True

    def is_uncacheable(self, key: Key) -> bool:
        """Return whether the key's last result could not be cached, so that equal calls do not wait for each other."""
        return key in self._uncacheable

    def mark_uncacheable(self, key: Key, uncacheable: bool) -> None:
        """Remember whether the key's last result could not be cached."""
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
        self._size -= len(self._entries.pop(key).data) + _overhead(key)


class CacheStep:
    """Returns a cached result, or the result of an equal call in flight; else sends the call and caches its result.

    `track_list_changes` is for the handshake era. It is called when a list is requested, and returns a function, which
    says whether the client was notified of every change since that call. It returns None if the client receives no such
    notifications now.
    """

    def __init__(
        self,
        cache: Cache,
        target: object,
        headers: Mapping[str, str],
        capabilities: t.ClientCapabilities,
        track_list_changes: Callable[[], IsValid | None] = lambda: None,
    ) -> None:
        self._cache = cache
        self._server: Hashable = _server_key(target)
        self._headers = frozenset((name.lower(), value) for name, value in headers.items())
        self._credentials: Hashable = (self._headers, None)
        """Identifies the caller: the headers, and the latest credentials of the sign-in."""
        self._session = object()
        """Identifies the current connection: in the handshake era, no other connection uses its results."""
        self._capabilities = msgspec.json.encode(capabilities)
        self._vary: Hashable = None
        self._rules: Revision | None = None
        self._notifying: frozenset[str] = frozenset()
        """Methods of lists whose changes the server promises to report."""
        self._was_connected = False
        self._track_list_changes = track_list_changes

    # Events of the client.

    def connection_made(self, rules: Revision, capabilities: t.ServerCapabilities) -> None:
        """Called when a connection was opened. If it is not the first, anything may have changed, even the server."""
        if self._was_connected:
            self._cache.drop(lambda key: key.server == self._server)
        self._was_connected = True
        self._session = object()
        self._rules = rules
        self._notifying = frozenset(
            method
            for method, name in NOTIFYING_LISTS.items()
            if getattr(getattr(capabilities, name), "list_changed", UNSET) is True
        )
        self._vary = rules.name, self._capabilities

    def closed(self) -> None:
        """Called when the client was closed: from then on, it neither uses the cache nor adds results to it."""
        self._rules = None

    def changed(self, kind: str, uri: str = "") -> None:
        """Called when something has changed, or may have: `kind` is `resource`, with a URI, or the name of a list."""
        if kind != "resource":
            methods = OUTDATED_METHODS[kind]
            self._cache.drop(lambda key: key.server == self._server and key.method in methods)
            return

        def outdated(key: Key) -> bool:
            name = key.name or ""
            is_resource = key.server == self._server and key.method in RESOURCE_METHODS
            return is_resource and (covers(uri, name) or covers(name, uri))

        self._cache.drop(outdated)

    def observe(self, auth: Authorize) -> Authorize:
        """Wrap a sign-in, so that this step sees its credentials."""
        return _ObservedAuth(auth, self)

    def use_credentials(self, headers: Mapping[str, str]) -> None:
        """Called for each request with the headers that the sign-in adds to it."""
        # Other headers, such as a proof of possession, differ from request to request.
        by_name = {name.lower(): value for name, value in headers.items()}
        self._credentials = self._headers, by_name.get("authorization") or frozenset(by_name.items()) or None

    # Calls.

    def applies_to(self, row: Method) -> bool:
        """Return whether the method's results may be cached."""
        return row.name in NAME_PARAMS

    def __call__(self, call: Call, next: Next) -> Awaitable[Any]:
        key, valid = self.find_key(call.row.name, call.params)
        return next(call) if key is None else self._answer(call, next, key, valid)

    def find_key(self, method: str, params: Any) -> tuple[Key | None, IsValid | None]:
        """Return the key of a result (None if it must not be cached), and its validity check (None if it has none)."""
        rules, valid = self._rules, None
        if rules is None:
            return None, None
        partition: Hashable = self._credentials
        if rules.era == "handshake":  # results have no time to live: a list is cached while its changes are reported
            if method not in self._notifying or (valid := self._track_list_changes()) is None:
                return None, None
            partition = self._session
        name = getattr(params, NAME_PARAMS[method])
        if name is not UNSET and len(name) > MAX_NAME_CHARACTERS:
            return None, None
        if method == "resources/read" and (params.input_responses is not UNSET or params.request_state is not UNSET):
            return None, None  # a result that depends on answers is not cached (2026-07-28, caching)
        return Key(self._server, method, None if name is UNSET else name, partition, self._vary), valid

    async def _answer(self, call: Call, next: Next, key: Key, valid: IsValid | None) -> Any:
        cache, slot = self._cache, (asyncio.get_running_loop(), key)
        must_send = call.bypass_cache
        while not must_send:
            cached = cache.get(key)
            if cached is not None:
                return open_result(call.row, cached)  # decoded again: each caller gets its own objects
            if cache.is_uncacheable(key):
                return await self._send_alone(call, next, key)
            request = cache.in_flight.get(slot)
            if request is None or request.outdated:
                break
            try:
                await request.wait(call.left(asyncio.get_running_loop().time()))
            except RequestTimeout as error:
                cached = self._handle_failure(key, request, error)
                if cached is None:
                    raise
                return open_result(call.row, cached)
            if request.raw is not None:
                return open_result(call.row, request.raw)
            must_send = request.uncacheable
        request = InFlight()
        before = cache.in_flight.get(slot)
        if before is not None:  # its result is older and must not replace the newer one
            before.outdated = True
        cache.in_flight[slot] = request
        try:
            result = await next(call)
            self._keep(call, key, request, result, valid)
            return result
        except WharfingerError as error:
            cached = self._handle_failure(key, request, error)
            if cached is None or call.bypass_cache:
                raise
            return open_result(call.row, cached)
        finally:
            if cache.in_flight.get(slot) is request:
                del cache.in_flight[slot]
            request.finish()

    async def _send_alone(self, call: Call, next: Next, key: Key) -> Any:
        """Send a call whose last result could not be cached, without waiting for an equal call.

        Its result is not cached. If it may be, equal calls are cached again from then on.
        """
        try:
            result = await next(call)
        except (NotAuthorized, RemoteError) as error:
            self._handle_failure(key, InFlight(), error)  # a new `InFlight`: no call waits for this one
            raise
        if _time_to_live(result) > 0:
            self._cache.mark_uncacheable(key, False)
        return result

    def _keep(self, call: Call, key: Key, request: InFlight, result: Any, valid: IsValid | None) -> None:
        if valid is None:
            seconds = _time_to_live(result)
            self._cache.mark_uncacheable(key, seconds <= 0)
        else:
            seconds = float("inf") if valid() else 0.0
        request.uncacheable = seconds <= 0
        if request.uncacheable:
            self._cache.forget(key)
            return
        if not self._is_current(key) or isinstance(call.raw, msgspec.UnsetType):
            request.uncacheable = True  # sent with one credential, perhaps answered for another one
            return
        request.raw = call.raw
        public = valid is None and result.cache_scope == "public"
        self._cache.put(key, call.raw, seconds, public=public, valid=valid, request=request)

    def _handle_failure(self, key: Key, request: InFlight, error: WharfingerError) -> bytes | None:
        """Drop results that an error shows to be outdated. Returns a result to use instead of the error, or None."""
        if is_transient(error) or isinstance(error, RequestTimeout):  # cached results may still be valid
            return self._cache.get(key, stale=True) if self._is_current(key) else None
        request.uncacheable = True
        if isinstance(error, NotAuthorized):
            self._cache.drop(lambda each: each.server == key.server and each.partition == key.partition)
        elif isinstance(error, RemoteError):
            self._cache.forget(key)
            if error.code == InvalidParams.code and NAME_PARAMS[key.method] == "cursor" and key.name is not None:
                partitions = (key.partition, None)  # drop all pages of the list
                self._cache.drop(lambda each: each[:2] == key[:2] and each.partition in partitions)
        return None

    def _is_current(self, key: Key) -> bool:
        """Return whether this client is open, and has the same credentials or session as when it sent the request."""
        if self._rules is None:
            return False
        return key.partition == (self._session if self._rules.era == "handshake" else self._credentials)


class _ObservedAuth:
    """An `Authorize` that passes its headers to a cache step."""

    def __init__(self, auth: Authorize, step: CacheStep) -> None:
        self._auth = auth
        self._step = step

    async def headers(self, url: str) -> Mapping[str, str]:
        headers = await self._auth.headers(url)
        self._step.use_credentials(headers)
        return headers

    async def refused(self, url: str, status: int, headers: Mapping[str, str], sent: Mapping[str, str]) -> bool:
        return await self._auth.refused(url, status, headers, sent)


class _ById:
    """A server of this process as a key: equal only to itself, and kept alive while the cache has its results."""

    __slots__ = ("_target",)

    def __init__(self, target: object) -> None:
        self._target = target

    def __hash__(self) -> int:
        return id(self._target)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ById) and other._target is self._target


def _server_key(target: object) -> Hashable:
    """Return the key of a server in a shared cache.

    Each client of a command has its own process, and so its own key.
    """
    if isinstance(target, str):
        return target
    if isinstance(target, list):
        return object()
    path = getattr(target, "path", None)
    return ("unix", path) if isinstance(target, msgspec.Struct) and path is not None else _ById(target)


def _time_to_live(result: Any) -> float:
    """Return the seconds for which a result may be cached; 0 for results without a time to live, such as questions."""
    if not isinstance(result, t.CacheableResult) or isinstance(result.ttl_ms, msgspec.UnsetType):
        return 0.0
    return min(result.ttl_ms, 1 << 53) / 1000


def _public(key: Key) -> Key:
    return Key(key.server, key.method, key.name, None, key.vary)


def _overhead(key: Key) -> int:
    return ENTRY_OVERHEAD_BYTES + len(key.name or "")
