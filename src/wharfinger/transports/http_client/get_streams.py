"""The streams that a client opens with GET: the session's own, and the rest of a POST's stream that broke off."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING

from wharfinger.errors import ConnectionLost, WharfingerError
from wharfinger.protocol.client_peer import ClientPeer, Event
from wharfinger.protocol.revisions import Revision
from wharfinger.protocol.sse import EventDecoder
from wharfinger.transports.http_client.origin import EVENTS, NoMessage, Origin, content_type
from wharfinger.transports.http_client.post_response import (
    MAX_RECONNECT_SECONDS,
    MAX_RECONNECTS,
    EventHandler,
    PendingPost,
    read_events,
    reconnect_delay,
    resumed_decoder,
)

if TYPE_CHECKING:
    from aiohttp import ClientResponse

__all__ = ["SESSION", "SessionStream", "resume_stream", "session_gone"]

log = logging.getLogger("wharfinger.transports.http_client.get_streams")

SESSION = "Mcp-Session-Id"
LIVE_SECONDS = 5.0
"""A session's stream that lasted less than this, without a message, is opened again with a longer delay each time. The
stream of a POST is not given up while its connections last this long: a proxy may limit their duration."""


def session_gone(origin: Origin) -> Callable[[], WharfingerError]:
    """Return a function that makes the error for a session that has ended: each waiting request gets its own."""
    return lambda: ConnectionLost(f"{origin.name} has ended the session: connect again.")


async def open_stream(origin: Origin, headers: dict[str, str], last_id: str) -> ClientResponse:
    """Open a stream with GET; if `last_id` is not empty, the stream continues after that event.

    Raises:
        NoMessage: the server does not open it.
    """
    headers = {**headers, "Accept": EVENTS}
    headers.pop("Content-Type", None)
    if last_id:
        headers["Last-Event-ID"] = last_id
    response = await origin.send("GET", headers, None)
    if response.status != 200 or content_type(response) != EVENTS:
        status = response.status
        response.close()
        raise NoMessage(f"{origin.name} cannot report changes: it opens no stream for them (GET: {status}).", status)
    return response


async def resume_stream(
    origin: Origin,
    headers: Callable[[], dict[str, str]],
    decoder: EventDecoder,
    peer: ClientPeer[PendingPost],
    post: PendingPost,
    handle: EventHandler,
) -> None:
    """Resume the stream of a POST that broke off, until `post` is done (2025-11-25, resumability).

    Returns before `post` is done if the stream has no event id that can be sent back, if the server does not
    resume the stream, or if `MAX_RECONNECTS` attempts in a row last less than `LIVE_SECONDS` and bring no new event.

    Raises:
        NoMessage: the server answers 404. If there is a session, it no longer exists.
    """
    failures = 0
    while failures < MAX_RECONNECTS and not post.done and (last_id := decoder.resume_id):
        await asyncio.sleep(reconnect_delay(decoder))
        decoder = resumed_decoder(decoder, origin.limits.message)
        opened_at = math.inf
        try:
            response = await open_stream(origin, headers(), last_id)
            opened_at = time.monotonic()
            try:
                await read_events(response, decoder, peer, post, handle)
            finally:
                response.close()
        except NoMessage as refused:
            if refused.status == 404:
                raise
            return
        except (origin.http.ClientError, OSError) as error:
            if isinstance(error, WharfingerError):
                raise
            log.debug("the stream of %s broke again: %r", origin.name, error)
        lived = decoder.resume_id != last_id or time.monotonic() - opened_at >= LIVE_SECONDS
        failures = 0 if lived else failures + 1


class SessionStream:
    """The session's own stream, for messages that belong to no request.

    It is opened once, on demand, and again whenever it breaks off.
    """

    def __init__(
        self,
        origin: Origin,
        headers: Callable[[], dict[str, str]],
        handle: EventHandler,
        lost: Callable[[Callable[[], WharfingerError]], None],
        missed: Callable[[], None],
    ) -> None:
        """`lost` is called when the session is gone, or its stream cannot be opened again. `missed` is called when the
        stream was opened again but messages in between may be lost, because the server had sent no event id."""
        self._origin = origin
        self._headers = headers
        self._handle = handle
        self._lost = lost
        self._missed = missed
        self._opened: asyncio.Future[None] | None = None
        """Done when the stream has opened; None before the first attempt, and after it has failed."""
        self._task: asyncio.Task[None] | None = None
        self._lived = False
        """Whether the last stream had a message or lasted for some time."""

    async def open(self, rules: Revision, ids: count[int]) -> None:
        """Open the stream, unless it is open.

        Raises:
            ConnectionFailed: the server has no such stream, or cannot be reached.
            ConnectionLost: the session or the connection has ended, or `close` was called first.
        """
        if self._opened is None:
            loop = asyncio.get_running_loop()
            self._opened = loop.create_future()
            peer: ClientPeer[PendingPost] = ClientPeer(self._origin.limits, ids)
            peer.rules = rules
            peer.handles_requests = True
            self._task = loop.create_task(self._run(self._opened, peer))
        opened = self._opened
        await asyncio.wait((opened,))
        opened.result()

    async def close(self) -> None:
        """Stop reading."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))
        if self._opened is not None and not self._opened.done():
            self._opened.set_exception(ConnectionLost(f"The connection to {self._origin.name} was closed."))
            self._opened.exception()

    async def _run(self, opened: asyncio.Future[None], peer: ClientPeer[PendingPost]) -> None:
        origin = self._origin
        decoder = EventDecoder(origin.limits.message)
        failures = short_streams = 0
        while failures < MAX_RECONNECTS:
            self._lived = False
            try:
                await self._read(decoder, peer, opened)
                failures = 0
            except (origin.http.ClientError, OSError, WharfingerError) as error:
                session_ended = isinstance(error, NoMessage) and error.status == 404 and SESSION in self._headers()
                if not opened.done():
                    opened.set_exception(session_gone(origin)() if session_ended else origin.translate(error))
                    opened.exception()
                    self._opened = None
                if session_ended:
                    self._lost(session_gone(origin))
                if session_ended or self._opened is None:
                    return
                failures = 0 if self._lived else failures + 1
                log.debug("the stream of %s broke off: %r", origin.name, error)
            short_streams = 0 if self._lived else short_streams + 1
            growth = 2.0 ** min(max(0, short_streams - 1), 16)
            await asyncio.sleep(min(reconnect_delay(decoder) * growth, MAX_RECONNECT_SECONDS))
            decoder = resumed_decoder(decoder, origin.limits.message)
        self._lost(lambda: ConnectionLost(f"{origin.name} closed the session's stream."))

    async def _read(self, decoder: EventDecoder, peer: ClientPeer[PendingPost], opened: asyncio.Future[None]) -> None:
        """Read the stream to its end."""
        response = await open_stream(self._origin, self._headers(), decoder.resume_id)

        def handle(event: Event[PendingPost], post: PendingPost | None) -> None:
            self._lived = True
            self._handle(event, post)

        began = time.monotonic()
        try:
            if not opened.done():
                opened.set_result(None)
            elif not decoder.resume_id:
                self._missed()
            await read_events(response, decoder, peer, None, handle)
        finally:
            response.close()
            self._lived = self._lived or time.monotonic() - began >= LIVE_SECONDS
