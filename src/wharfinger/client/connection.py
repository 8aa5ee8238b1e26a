"""One server, kept within reach: opens the next connection when one is lost, and says so; knows no call's meaning."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from wharfinger import types as t
from wharfinger.client.connect import Agreement, Checked, Settings, connect
from wharfinger.client.retry import READS, Backoff, passes
from wharfinger.client.subscriptions import Connection, Watches
from wharfinger.errors import ConnectionFailed, ConnectionLost, RequestTimeout, WharfingerError
from wharfinger.protocol.jsonrpc import Message
from wharfinger.protocol.negotiation import RevisionCache, supported_in

__all__ = ["Living"]

logger = logging.getLogger("wharfinger.client.connection")

NOT_OPEN = "This client is not open: use it inside `async with`, or call open()."
MOST_TOOLS = 10_000
"""Tools that are remembered as harmless to call twice."""
WRONG_ERA = frozenset({400, 404, 405})
"""HTTP statuses without a message that may mean that another server answers at this URL by now."""


class Living:
    """The connection of a client, through all that happens to it; belongs to the loop and to no task.

    A lost connection is opened again at the next call, or at once while something is watched.
    """

    def __init__(self, target: Checked, settings: Settings, timeout: float) -> None:
        self.agreed: Agreement | None = None
        """What the two ends know of each other, or last knew."""
        self.noticed: Callable[[Message], None] | None = None
        """Takes every notification that belongs to no request."""
        self.renewed: Callable[[Connection, Agreement], None] | None = None
        """Called with each new connection, before anything is sent on it."""
        self.watches = Watches(self, timeout)
        self._target = target
        self._settings = settings
        self._timeout = timeout
        self._eras = RevisionCache(settings.clock, most=1, age=float("inf"))
        self._name = "the server"
        self._backoff = Backoff(settings.retry, settings.chance)
        self._link: Connection | None = None
        self._opening: asyncio.Task[None] | None = None
        self._burials: set[asyncio.Task[None]] = set()
        self._since = 0.0
        self._probing = asyncio.Lock()
        self._probed = float("-inf")
        self._open = False
        """Whether it is to be open; `_established`: whether it ever was since then."""
        self._established = False
        self._idempotent: set[str] = set()

    # Beginning and end.

    async def open(self) -> None:
        """Connect for the first time; does nothing while it is open. Raises what `connect` raises."""
        if self._established:
            return
        if not self._open:
            self._open = True
            self._opening = asyncio.get_running_loop().create_task(self._connect(0.0))
            self._opening.add_done_callback(_seen)
        opening = self._opening
        assert opening is not None
        try:
            await asyncio.wait((opening,))
        except BaseException:
            await self.close()
            raise
        error = None if opening.cancelled() else opening.exception()
        if error is not None:
            if self._opening is opening:
                self._open = False
            raise error.with_traceback(None)
        if self._opening is not opening:
            raise ConnectionLost("The client was closed while it was opening.", unsent=True)
        self._established = True

    async def close(self) -> None:
        """End it at once, from any task: what waits gets ConnectionLost, watches come to their end."""
        self._open = self._established = False
        link, self._link = self._link, None
        opening, self._opening = self._opening, None
        keepers = self.watches.close()
        if opening is not None and not opening.done():
            opening.cancel()
            await asyncio.wait((opening,))
        if link is not None:
            self._bury(link)
        ending = self._burials.union(keepers)
        if ending:
            await asyncio.wait(ending)

    @property
    def link(self) -> Connection | None:
        """The connection as it is now; None while there is none."""
        return self._link

    async def ready(self, attempts: int | None = None) -> Connection:
        """The connection, opened again first if it was lost.

        `attempts` openings in a row are waited for (default: those of the settings).

        Raises:
            ConnectionLost: this client is closed, or is not to open a connection again.
            ConnectionFailed, NotMCP, UnsupportedRevision, RemoteError: it could not be opened again.
        """
        if self._link is not None:
            return self._link
        left = self._settings.retry.attempts if attempts is None else attempts
        while self._open:
            if left <= 0:
                raise ConnectionLost(f"The connection to {self._name} is gone.", unsent=True)
            left -= 1
            error = await self._next_attempt()
            link = self.link
            if link is not None:
                return link
            if error is not None and (not left or not passes(error)):
                raise error.with_traceback(None)
        raise ConnectionLost(NOT_OPEN, unsent=True)

    # Calls.

    async def request(
        self,
        method: str,
        params: Any,
        *,
        timeout: float | None,
        notified: Callable[[Message], None] | None = None,
        retry: bool | None = None,
    ) -> Message:
        """Send a request on the connection there is, or the next one, and wait for the answer.

        `timeout` is that of an answer, in seconds, and of an opening before it. `retry` says whether the request may be
        sent a second time after the connection was lost: None is what is known of the method, or of the tool.

        Raises:
            ConnectionLost, ConnectionFailed, RequestTimeout, InvalidResponse, NotMCP, UnsupportedRevision: no answer.
        """
        started = self._settings.clock()
        link = self._link or await self._within(method, timeout)
        try:
            answer = await link.request(method, self._stamped(params), timeout=timeout, notified=notified)
        except WharfingerError as error:
            if not self._open or not await self._worth(method, params, error, retry):
                raise
        else:
            if answer.error is UNSET or not await self._refuses_revision(answer):
                return answer
        await self._settings.sleep(self._settings.retry.first * self._settings.chance())
        if timeout is not None:
            timeout = max(0.0, timeout - (self._settings.clock() - started))
        link = self._link or await self._within(method, timeout)
        return await link.request(method, self._stamped(params), timeout=timeout, notified=notified)

    def learn(self, tools: list[t.Tool]) -> None:
        """Take what the server says of its tools: which may be called twice, if its hints are trusted."""
        if self._settings.retry.trust_hints:
            for tool in tools:  # in place: a list of many pages must not cost the square of them
                self._idempotent.discard(tool.name)
                if _is_harmless(tool) and len(self._idempotent) < MOST_TOOLS:
                    self._idempotent.add(tool.name)

    def new_backoff(self) -> Backoff:
        """A count of failures by the settings."""
        return Backoff(self._settings.retry, self._settings.chance)

    @property
    def settings(self) -> Settings:
        """How connections are opened."""
        return self._settings

    @property
    def remote(self) -> bool:
        """Whether the server may go without a word: a process of this machine cannot."""
        return isinstance(self._target, str)

    async def check(self, link: Connection, timeout: float) -> None:
        """Return when the server has answered anything at all; raises what `request` of a link does."""
        assert self.agreed is not None
        method = "ping" if self.agreed.rules.era == "handshake" else "server/discover"
        await link.request(method, t.RequestParams(meta=self.agreed.meta), timeout=timeout)

    def give_up(self, link: Connection) -> None:
        """Take this connection for lost."""
        self._lost(link, ConnectionLost(f"{self._name} does not answer any more."))

    # Inside.

    async def _within(self, method: str, timeout: float | None) -> Connection:
        scope = asyncio.timeout(timeout)
        try:
            async with scope:
                return await self.ready()
        except TimeoutError:
            if not scope.expired():
                raise
            raise RequestTimeout(f"{method}: not connected to {self._name} again within {timeout:g} s.") from None

    async def _next_attempt(self) -> BaseException | None:
        """Wait for one opening, which goes on when the waiting task does not; how it failed, None for a success."""
        if self._opening is None or self._opening.done():
            self._opening = asyncio.get_running_loop().create_task(self._connect(self._backoff.next()))
            self._opening.add_done_callback(_seen)
        opening = self._opening
        await asyncio.wait((opening,))
        return None if opening.cancelled() else opening.exception()

    async def _connect(self, delay: float) -> None:
        if delay:
            await self._settings.sleep(delay)
        if self._burials:  # what the last child held, such as a lock or a port, is free by then
            await asyncio.wait(self._burials)
        self._take(*await connect(self._target, self._settings, self._eras))

    def _take(self, link: Connection, agreed: Agreement) -> None:
        """Go on with this connection."""
        if not self._open:
            self._bury(link)
            return
        self._link, self.agreed, self._name = link, agreed, link.name
        self._since = self._settings.clock()
        link.unasked = self._unasked
        link.lost = lambda error: self._lost(link, error)
        if hasattr(link, "missed"):  # what comes by a stream of its own may break off with it
            setattr(link, "missed", self.watches.missed)  # noqa: B010
        if self.renewed is not None:
            self.renewed(link, agreed)
        if link.is_lost:  # it went between its last answer and now, when nobody was to be told
            self._lost(link, ConnectionLost(f"The connection to {self._name} is gone."))

    def _lost(self, link: Connection, error: WharfingerError) -> None:
        if link is not self._link:
            return
        logger.debug("the connection to %s is lost: %s", self._name, error)
        self._link = None
        self._backoff.lasted(self._settings.clock() - self._since)
        self._bury(link)
        self.watches.lost(link, error)

    def _bury(self, link: Connection) -> None:
        """Take away what a connection leaves behind, such as a child's process group."""
        task = asyncio.get_running_loop().create_task(link.close())
        self._burials.add(task)
        task.add_done_callback(self._burials.discard)
        task.add_done_callback(_seen)

    def _unasked(self, message: Message) -> None:
        self.watches.unasked(message)
        if self.noticed is not None:
            self.noticed(message)

    def _stamped(self, params: Any) -> Any:
        """The params with what a request of the agreed revision carries: they may have been made before a restart."""
        meta = UNSET if self.agreed is None else self.agreed.meta
        given = getattr(params, "meta", UNSET)
        if params is UNSET or given is meta:
            return params
        if not isinstance(meta, UnsetType) and getattr(given, "protocol_version", UNSET) == meta.protocol_version:
            return params
        return msgspec.structs.replace(params, meta=_restamped(given, meta))

    async def _worth(self, method: str, params: Any, error: WharfingerError, retry: bool | None) -> bool:
        """Whether a call that failed so is sent once more."""
        settings = self._settings.retry
        if isinstance(error, ConnectionFailed) and getattr(error, "status", None) in WRONG_ERA:
            return await self._probed_anew()
        if not passes(error) or not settings.attempts:
            return False
        if isinstance(error, ConnectionLost) and error.unsent:
            return True
        if retry is not None:
            return retry
        if method == "tools/call":
            return params.name in self._idempotent
        return settings.reads and method in READS

    async def _refuses_revision(self, answer: Message) -> bool:
        """Whether an answer says that the revision is not spoken, and another attempt is due (spec: §2.4)."""
        supported = supported_in(answer)
        if supported is None or self.agreed is None or not self._settings.retry.attempts:
            return False
        return self.agreed.rules.name in supported or await self._probed_anew()

    async def _probed_anew(self) -> bool:
        """Find out again what is spoken at a URL, and go on with that; true where it is something else than before.

        Calls in flight stay with the connection that they are on unless it is of no use any more.
        """
        asked = self.agreed
        async with self._probing:
            before, link = self.agreed, self._link
            if before is not asked:
                return True
            now = self._settings.clock()
            retry = self._settings.retry
            too_soon = now - self._probed < retry.stable
            if before is None or link is None or too_soon or not retry.attempts or not isinstance(self._target, str):
                return False
            self._probed = now
            try:
                other, agreed = await connect(self._target, self._settings, self._eras)
            except WharfingerError:
                return False
            if agreed.rules is before.rules or self._link is not link:
                await other.close()
                return False
            self._take(other, agreed)
            self.watches.lost(link, ConnectionLost(f"{self._name} speaks another revision by now."))
            self._bury(link)
            return True


def _restamped(given: Any, meta: t.RequestMeta | UnsetType) -> t.RequestMeta | UnsetType:
    """`given`, with what says the revision taken from `meta`."""
    if isinstance(given, UnsetType):
        return meta
    new = t.RequestMeta() if isinstance(meta, UnsetType) else meta
    stamp = msgspec.structs.replace(
        given,
        protocol_version=new.protocol_version,
        client_info=new.client_info,
        client_capabilities=new.client_capabilities,
        log_level=new.log_level,
    )
    return UNSET if stamp == t.RequestMeta() else stamp


def _is_harmless(tool: t.Tool) -> bool:
    hints = tool.annotations
    return not isinstance(hints, UnsetType) and (hints.read_only_hint is True or hints.idempotent_hint is True)


def _seen(task: asyncio.Task[None]) -> None:
    if not task.cancelled():
        task.exception()
