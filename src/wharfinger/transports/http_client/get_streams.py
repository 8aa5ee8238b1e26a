"""Streams of a session that GET opens: its own, and the rest of a POST's that broke off; knows no request (R2-R4)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING

from wharfinger.errors import ConnectionLost, RequestTimeout, WharfingerError
from wharfinger.protocol.client_peer import ClientPeer
from wharfinger.protocol.revisions import Revision
from wharfinger.protocol.sse import EventDecoder
from wharfinger.transports.http_client.origin import EVENTS, NoMessage, Origin, content_type
from wharfinger.transports.http_server.post_response import RETRIES, Call, Happen, gone_on, pause_before, read_events

if TYPE_CHECKING:
    from aiohttp import ClientResponse

__all__ = ["SESSION", "Listening", "read_on", "session_gone"]

logger = logging.getLogger("wharfinger.transports.http_client.get_streams")


SESSION = "Mcp-Session-Id"
LONGEST_ID = 4096
"""Characters of an event's id that is sent back."""


def session_gone(origin: Origin) -> Callable[[], WharfingerError]:
    """Makes the error that says that the session is no more."""
    return lambda: ConnectionLost(f"{origin.name} has ended the session: connect again.")


async def open_stream(origin: Origin, headers: dict[str, str], last_id: str) -> ClientResponse:
    """A stream by GET, behind the event `last_id` if that is one.

    Raises:
        NoMessage: the server opens none.
    """
    headers = {**headers, "Accept": EVENTS}
    headers.pop("Content-Type", None)
    if last_id and len(last_id) <= LONGEST_ID and last_id.isprintable() and last_id.isascii():
        headers["Last-Event-ID"] = last_id
    response = await origin.send("GET", headers, None)
    if response.status != 200 or content_type(response) != EVENTS:
        status = response.status
        response.close()
        reason = f"{origin.name} cannot tell of changes: it keeps no stream for them (GET: {status})."
        raise NoMessage(reason, status)
    return response


async def read_on(
    origin: Origin,
    headers: Callable[[], dict[str, str]],
    decoder: EventDecoder,
    peer: ClientPeer[Call],
    call: Call,
    happen: Happen,
) -> None:
    """Go on with a POST's stream that broke off, until `call` has its answer (2025-11-25, resumability).

    Returns without one where the server does not go on, or brings nothing new several times in a row.

    Raises:
        NoMessage: the server no longer knows the session (404).
    """
    failures = 0
    while failures < RETRIES and not call.over:
        before = decoder.last_id
        await asyncio.sleep(pause_before(decoder))
        decoder = gone_on(decoder, origin.limits.message)
        try:
            response = await open_stream(origin, headers(), before)
            try:
                await read_events(response, decoder, peer, call, happen)
            finally:
                response.close()
        except NoMessage as refused:
            if refused.status == 404:
                raise
            return
        except (origin.http.ClientError, OSError) as error:
            if isinstance(error, WharfingerError):
                raise
            logger.debug("the stream of %s broke off again: %r", origin.name, error)
        failures = 0 if decoder.last_id != before else failures + 1


class Listening:
    """The session's own stream, for what belongs to no request: open at most once, and opened again when it breaks."""

    def __init__(
        self,
        origin: Origin,
        headers: Callable[[], dict[str, str]],
        happen: Happen,
        ended: Callable[[Callable[[], WharfingerError]], None],
        missed: Callable[[], None],
    ) -> None:
        """`ended` is told when the session is gone or its stream cannot be had again; `missed` when it was opened again
        and the server had named no place to go on from."""
        self._origin = origin
        self._headers = headers
        self._happen = happen
        self._ended = ended
        self._missed = missed
        self._ready: asyncio.Future[None] | None = None
        self._task: asyncio.Task[None] | None = None

    async def open(self, rules: Revision, ids: count[int], timeout: float | None) -> None:
        """Open it, unless it is open.

        Raises:
            ConnectionFailed: the server keeps no such stream.
            RequestTimeout: it did not open in time.
        """
        if self._ready is None:
            loop = asyncio.get_running_loop()
            self._ready = loop.create_future()
            peer: ClientPeer[Call] = ClientPeer(self._origin.limits, ids)
            peer.rules = rules
            peer.answers = True
            self._task = loop.create_task(self._run(self._ready, peer))
        ready = self._ready
        await asyncio.wait((ready,), timeout=timeout)
        if not ready.done():
            raise RequestTimeout(f"{self._origin.name} did not open its stream within {timeout:g} s.")
        ready.result()

    async def close(self) -> None:
        """Read no more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))
        if self._ready is not None and not self._ready.done():
            self._ready.set_exception(ConnectionLost(f"The connection to {self._origin.name} was closed."))
            self._ready.exception()

    async def _run(self, ready: asyncio.Future[None], peer: ClientPeer[Call]) -> None:
        origin = self._origin
        decoder = EventDecoder(origin.limits.message)
        failures = 0
        while failures < RETRIES:
            try:
                await self._read(decoder, peer, ready)
                failures = 0
            except (origin.http.ClientError, OSError, WharfingerError) as error:
                gone = isinstance(error, NoMessage) and error.status == 404 and SESSION in self._headers()
                if not ready.done():
                    ready.set_exception(session_gone(origin)() if gone else origin.told(error))
                    ready.exception()
                    self._ready = None
                if gone:
                    self._ended(session_gone(origin))
                if gone or self._ready is None:
                    return
                failures += 1
                logger.debug("the stream of %s broke off: %r", origin.name, error)
            await asyncio.sleep(pause_before(decoder))
            decoder = gone_on(decoder, origin.limits.message)
        self._ended(lambda: ConnectionLost(f"{origin.name} closed the session's stream."))

    async def _read(self, decoder: EventDecoder, peer: ClientPeer[Call], ready: asyncio.Future[None]) -> None:
        response = await open_stream(self._origin, self._headers(), decoder.last_id)
        try:
            if not ready.done():
                ready.set_result(None)
            elif not decoder.last_id:
                self._missed()
            await read_events(response, decoder, peer, None, self._happen)
        finally:
            response.close()
