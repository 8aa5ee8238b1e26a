"""Answers that are kept as long as their server allows, for whom it allows; sends nothing, knows no connection."""

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
from wharfinger.client.retry import passes
from wharfinger.errors import InvalidParams, NotAuthorized, RemoteError, RequestTimeout, WharfingerError
from wharfinger.protocol.interfaces import Authorize
from wharfinger.protocol.revisions import Revision

__all__ = ["Cache", "Key", "Shelf"]

NAMED = {
    "resources/list": "cursor",
    "resources/templates/list": "cursor",
    "resources/read": "uri",
    "tools/list": "cursor",
    "prompts/list": "cursor",
    "skills/list": "cursor",
    "skills/get": "uri",
}
"""Methods whose answers may be kept, and the parameter that tells one answer from another.

`server/discover` is none of them: a client asks it to learn how things are now.
"""

CHANGED: dict[str, tuple[str, ...]] = {
    "resources": ("resources/list", "resources/templates/list", "skills/list", "skills/get"),
    "tools": ("tools/list",),
    "prompts": ("prompts/list",),
}
"""By list: what is not true any more once it has changed. Templates have no notice of their own."""

READS = tuple(method for method, named in NAMED.items() if named == "uri")
"""Methods whose answer changes with a resource."""

HEARD = {"resources/list": "resources", "tools/list": "tools", "prompts/list": "prompts"}
"""By method: the capability that promises a notice of each change of the list (handshake era)."""

ANSWERS = ("input_responses", "request_state")
"""Parameters of a request whose answer must not be kept (2026-07-28, caching)."""

LONGEST_NAME = 8192
"""Characters of a URI or a cursor whose answer is kept: servers choose their cursors, which stay beyond the answer."""
OVERHEAD = 512
"""Bytes that an entry takes beyond its answer, about."""


class Key(NamedTuple):
    """What one answer belongs to."""

    server: Hashable
    method: str
    name: str | None
    """The URI or the cursor; None for the first page of a list."""
    whose: Hashable
    """Who has asked: None for an answer that anybody may have."""
    vary: Hashable
    """The revision and the client's capabilities: a server may answer others otherwise."""


class _Entry(NamedTuple):
    data: bytes
    until: float
    """When it is fresh no more, by the cache's clock."""
    heard: Callable[[], bool] | None
    """Whether every change since then was heard; None where time alone decides."""


class Flight:
    """A request that is under way, and others may wait for."""

    __slots__ = ("_over", "alone", "raw", "spoiled")

    def __init__(self) -> None:
        self.raw: Raw | None = None
        """The answer, once it is there and may be given to who waits."""
        self.spoiled = False
        """Something has changed meanwhile: the answer is not kept, and whoever comes now asks anew."""
        self.alone = False
        """The answer was for one only: whoever waited has to ask as well."""
        self._over: asyncio.Future[None] | None = None

    async def wait(self, seconds: float | None) -> None:
        """Wait for its end, at most so long; a waiting task that is cancelled does nothing to the others."""
        if self._over is None:
            self._over = asyncio.get_running_loop().create_future()
        await asyncio.wait((self._over,), timeout=seconds)

    def end(self) -> None:
        """Whoever waits goes on."""
        if self._over is not None:
            self._over.set_result(None)


class Cache:
    """Answers of servers, in memory, kept as long as `ttlMs` says (2026-07-28, caching).

    A client has one of its own. Given to several (`Client(…, cache=cache)`) it keeps an answer whose `cacheScope` is
    `public` for all of them, and a private one for those with the same authorization. It may be used from several
    threads.

    `entries` and `size` (bytes) bound it: what was not used for longest goes first. `longest` is how many seconds
    anything is kept, whatever the server says. For `stale_if_error` seconds after its time an answer is still given
    when the server cannot be reached. `clock` counts seconds, and never goes back.
    """

    def __init__(
        self,
        *,
        entries: int = 1024,
        size: int = 64 * 1024 * 1024,
        longest: float = 86_400.0,
        stale_if_error: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Nothing is kept yet.

        Raises:
            ValueError: a bound is negative.
        """
        if min(entries, size, longest, stale_if_error) < 0:
            raise ValueError("The bounds of a cache cannot be negative.")
        self._most = entries
        self._most_bytes = size
        self._longest = longest
        self._stale = stale_if_error
        self._clock = clock
        self._entries: OrderedDict[Key, _Entry] = OrderedDict()
        self._size = 0
        self._alone: OrderedDict[Key, None] = OrderedDict()
        """What was not to be kept the last time: who asks for it does not wait for others."""
        self._lock = Lock()
        self.flights: dict[tuple[asyncio.AbstractEventLoop, Key], Flight] = {}
        """Requests under way, by the loop that waits for them."""

    def __repr__(self) -> str:
        return f"<Cache: {len(self._entries)} answers, {self._size} bytes>"

    def __len__(self) -> int:
        """How many answers are kept, with those that nobody would get any more."""
        return len(self._entries)

    @property
    def size(self) -> int:
        """Bytes that they take, about."""
        return self._size

    def clear(self) -> None:
        """Keep nothing of what there is, nor of what is under way."""
        self.drop(lambda _: True)

    def get(self, key: Key, *, stale: bool = False) -> bytes | None:
        """The answer that is kept for this key, or for everybody; `stale` also takes one that is fresh no more."""
        if not self._entries:
            return None
        now = self._clock()
        with self._lock:
            for each in (key, _everybodys(key)):
                entry = self._entries.get(each)
                if entry is None:
                    continue
                if now >= entry.until + self._stale or (entry.heard is not None and not entry.heard()):
                    self._remove(each)
                elif stale or now < entry.until:
                    self._entries.move_to_end(each)
                    return entry.data
        return None

    def put(
        self, key: Key, data: Raw | bytes, seconds: float, *, public: bool, heard: Callable[[], bool] | None = None
    ) -> None:
        """Keep an answer for so long, in the place of any older one."""
        size = len(memoryview(data)) + _weight(key)
        with self._lock:
            self._forget(key)
            if seconds <= 0 or size > self._most_bytes or not self._most:
                return
            key = _everybodys(key) if public else key
            self._entries[key] = _Entry(bytes(data), self._clock() + min(seconds, self._longest), heard)
            self._size += size
            while len(self._entries) > self._most or self._size > self._most_bytes:
                self._remove(next(iter(self._entries)))

    def forget(self, key: Key) -> None:
        """This answer is not true any more, also where it was everybody's."""
        with self._lock:
            self._forget(key)

    def drop(self, gone: Callable[[Key], bool]) -> None:
        """Forget every answer whose key is `gone`; those under way are not kept."""
        with self._lock:
            for key in [key for key in self._entries if gone(key)]:
                self._remove(key)
        for (_, key), flight in list(self.flights.items()):
            if gone(key):
                flight.spoiled = True

    def is_for_one(self, key: Key) -> bool:
        """Whether the last answer was not to be kept, so that waiting for another one's is likely to be in vain."""
        return key in self._alone

    def note_for_one(self, key: Key, alone: bool) -> None:
        """Remember that."""
        if alone == (key in self._alone):
            return
        with self._lock:
            self._alone.pop(key, None)
            if alone and self._most:
                self._alone[key] = None
                if len(self._alone) > self._most:
                    self._alone.popitem(last=False)

    def _forget(self, key: Key) -> None:
        if self._entries:
            for each in (key, _everybodys(key)):
                if each in self._entries:
                    self._remove(each)

    def _remove(self, key: Key) -> None:
        self._size -= len(self._entries.pop(key).data) + _weight(key)


class Shelf:
    """One client's part of a cache: which answers are its own, and how it comes by them."""

    def __init__(
        self, cache: Cache, target: Any, headers: Mapping[str, str], capabilities: t.ClientCapabilities
    ) -> None:
        self._cache = cache
        self._server: Hashable = _place(target)
        self._headers = frozenset((name.lower(), value) for name, value in headers.items())
        self._person: Hashable = (self._headers, None)
        """Who asks: the headers, and the credential that the sign-in gave last; another one is another person."""
        self._session = object()
        """Who has asked, in the handshake era: what a session has been told belongs to that session."""
        self._capabilities = msgspec.json.encode(capabilities)
        self._vary: Hashable = None
        self._rules: Revision | None = None
        self._told: t.ServerCapabilities | None = None
        self._met = False

    # What happens to the client.

    def renewed(self, rules: Revision, capabilities: t.ServerCapabilities) -> None:
        """There is a connection. After the first one nobody knows what has changed unheard, or who answers now."""
        if self._met:
            self._cache.drop(lambda key: key.server == self._server)
        self._met = True
        self._session = object()
        self._rules, self._told = rules, capabilities
        self._vary = rules.name, self._capabilities

    def closed(self) -> None:
        """The client is closed: it is given nothing, and what is under way is not kept."""
        self._rules = None

    def changed(self, kind: str, uri: str = "") -> None:
        """The server has told of a change, or it may have done so unheard: `resource` with its URI, or a list."""
        if kind == "resource":
            self._cache.drop(
                lambda key: key.server == self._server and key.method in READS and _touches(uri, key.name or "")
            )
        else:
            methods = CHANGED[kind]
            self._cache.drop(lambda key: key.server == self._server and key.method in methods)

    def note(self, auth: Authorize) -> Authorize:
        """The same sign-in; from now on it is known here with which credentials requests go out."""
        return _Noted(auth, self)

    def sends(self, headers: Mapping[str, str]) -> None:
        """A request goes out with these headers of the sign-in."""
        # What else there is, such as a proof of possession, is another one for each request.
        named = {name.lower(): value for name, value in headers.items()}
        self._person = self._headers, named.get("authorization") or frozenset(named.items()) or None

    # Calls.

    def key(self, method: str, params: Any, heard: Callable[[], bool] | None) -> Key | None:
        """What an answer would be kept under; None where it cannot be kept.

        `heard` tells whether the changes of lists are heard, None where they are not: the handshake era has no time.
        """
        rules, named = self._rules, NAMED.get(method)
        if rules is None or named is None:
            return None
        if any(getattr(params, each, UNSET) is not UNSET for each in ANSWERS):
            return None
        name = getattr(params, named)
        if name is not UNSET and len(name) > LONGEST_NAME:
            return None
        whose: Hashable = self._person
        if rules.era == "handshake":
            if heard is None or not self._is_told(method):
                return None
            whose = self._session
        return Key(self._server, method, None if name is UNSET else name, whose, self._vary)

    async def answer(
        self,
        key: Key,
        ask: Callable[[], Awaitable[tuple[Raw, Any]]],
        read: Callable[[Raw], Any],
        *,
        left: Callable[[], float | None],
        fresh: bool = False,
        heard: Callable[[], bool] | None = None,
    ) -> Any:
        """What is kept, or what another one who asks the same at this moment gets, or what the server answers.

        `ask` sends the request and gives the answer encoded and decoded, `read` decodes: each caller gets objects of
        its own. `left` is how many seconds may be waited. `fresh` asks in any case.
        """
        spot = asyncio.get_running_loop(), key
        alone = fresh
        while not alone:
            held = self._cache.get(key)
            if held is not None:
                return read(Raw(held))
            if self._cache.is_for_one(key):
                return await self._for_one(key, ask)
            flight = self._cache.flights.get(spot)
            if flight is None or flight.spoiled:
                break
            await flight.wait(left())
            if flight.raw is not None:
                return read(flight.raw)
            alone = flight.alone
        flight = Flight()
        before = self._cache.flights.get(spot)
        if before is not None:  # its answer is older, and must not come to stand in the place of the newer one
            before.spoiled = True
        self._cache.flights[spot] = flight
        try:
            raw, result = await ask()
            self._keep(key, flight, raw, result, heard)
            return result
        except WharfingerError as error:
            held = self._after(key, flight, error, fresh=fresh)
            if held is None:
                raise
            return read(Raw(held))
        finally:
            if self._cache.flights.get(spot) is flight:
                del self._cache.flights[spot]
            flight.end()

    # Inside.

    async def _for_one(self, key: Key, ask: Callable[[], Awaitable[tuple[Raw, Any]]]) -> Any:
        """Ask without more ado what was not to be kept the last time; if that has changed, the next answer is kept."""
        try:
            _, result = await ask()
        except RemoteError as error:
            self._after(key, Flight(), error, fresh=True)
            raise
        if _seconds(result) > 0:
            self._cache.note_for_one(key, False)
        return result

    def _keep(self, key: Key, flight: Flight, raw: Raw, result: Any, heard: Callable[[], bool] | None) -> None:
        seconds = _seconds(result) if heard is None else float("inf") if heard() else 0.0
        flight.alone = seconds <= 0
        if heard is None:
            self._cache.note_for_one(key, flight.alone)
        if flight.alone:
            self._cache.forget(key)
            return
        if not self._is_still(key):  # asked with one credential, answered perhaps for another one
            flight.alone = True
            return
        flight.raw = raw
        if not flight.spoiled:
            public = heard is None and result.cache_scope == "public"
            self._cache.put(key, raw, seconds, public=public, heard=heard)

    def _after(self, key: Key, flight: Flight, error: WharfingerError, *, fresh: bool) -> bytes | None:
        """What a failure means for what is kept; an answer that is given in its place."""
        if passes(error) or isinstance(error, RequestTimeout):  # it says nothing of what is kept
            return self._cache.get(key, stale=True) if self._is_still(key) and not fresh else None
        flight.alone = True
        if isinstance(error, NotAuthorized):
            self._cache.drop(lambda each: each.server == key.server and each.whose == key.whose)
        elif isinstance(error, RemoteError):
            self._cache.forget(key)
            if error.code == InvalidParams.code and NAMED[key.method] == "cursor" and key.name is not None:
                self._cache.drop(
                    lambda each: each[:2] == key[:2] and each.whose in (key.whose, None)  # one list, all its pages
                )
        return None

    def _is_still(self, key: Key) -> bool:
        """Whether this client is open, and who it was when it asked."""
        if self._rules is None:
            return False
        return key.whose == (self._session if self._rules.era == "handshake" else self._person)

    def _is_told(self, method: str) -> bool:
        """Whether the server has promised to tell when this list changes."""
        capability = getattr(self._told, HEARD.get(method, ""), UNSET)
        return getattr(capability, "list_changed", UNSET) is True


class _Noted:
    """An `Authorize` whose headers a shelf gets to know."""

    def __init__(self, auth: Authorize, shelf: Shelf) -> None:
        self._auth = auth
        self._shelf = shelf

    async def headers(self, url: str) -> Mapping[str, str]:
        headers = await self._auth.headers(url)
        self._shelf.sends(headers)
        return headers

    async def refused(self, url: str, status: int, headers: Mapping[str, str], sent: Mapping[str, str]) -> bool:
        return await self._auth.refused(url, status, headers, sent)


class _Same:
    """A server of this process, which is equal to itself only, and stays while something of it is kept."""

    __slots__ = ("_of",)

    def __init__(self, of: object) -> None:
        self._of = of

    def __hash__(self) -> int:
        return id(self._of)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other._of is self._of


def _place(target: Any) -> Hashable:
    """Which server it is, among all that share a cache; each client of a command has a process of its own."""
    if isinstance(target, str):
        return target
    if isinstance(target, list):
        return object()
    path = getattr(target, "path", None)
    return ("unix", path) if isinstance(target, msgspec.Struct) and path is not None else _Same(target)


def _seconds(result: Any) -> float:
    """How long a result may be kept; questions and whatever else has no time of its own: not at all."""
    if not isinstance(result, t.CacheableResult) or isinstance(result.ttl_ms, msgspec.UnsetType):
        return 0.0
    return min(result.ttl_ms, 1 << 53) / 1000


def _everybodys(key: Key) -> Key:
    return Key(key.server, key.method, key.name, None, key.vary)


def _weight(key: Key) -> int:
    return OVERHEAD + len(key.name or "")


def _touches(one: str, other: str) -> bool:
    """Whether one of two URIs is the other, or lies below it: a folder changes with what is in it."""
    # In this order: a server may tell of changes in a flood, and each is compared with all that is kept.
    if one.startswith(other):
        shorter, longer = other, one
    elif other.startswith(one):
        shorter, longer = one, other
    else:
        return False
    return len(longer) == len(shorter) or shorter.endswith("/") or longer[len(shorter)] in "/?#"
