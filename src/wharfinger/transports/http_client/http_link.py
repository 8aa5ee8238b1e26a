"""A server behind a URL: one POST per message, JSON or event-stream answers, in both eras; knows hardly a method."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING, Any

import msgspec

from wharfinger.errors import ConnectionLost, InvalidResponse, NotAuthorized, RequestTimeout, WharfingerError
from wharfinger.protocol.client_peer import ClientPeer, Event
from wharfinger.protocol.events import (
    Cancellation,
    Malformed,
    Notification,
    Reply,
    Response,
    ServerRequest,
    UnattributedError,
)
from wharfinger.protocol.http.headers import HeaderParam, encode_value, param_headers
from wharfinger.protocol.interfaces import LinkEvents
from wharfinger.protocol.jsonrpc import Message, encode_notification
from wharfinger.protocol.limits import Limits
from wharfinger.protocol.methods import METHODS
from wharfinger.protocol.negotiation import read_error
from wharfinger.protocol.revisions import Revision
from wharfinger.protocol.sse import EventDecoder, EventTooLarge
from wharfinger.transports.background import BackgroundTasks
from wharfinger.transports.http_client.get_streams import SESSION, Listening, read_on, session_gone
from wharfinger.transports.http_client.origin import NoMessage, Origin
from wharfinger.transports.http_server.post_response import Call, read_body, read_events, speaks_plainly
from wharfinger.transports.inbound_requests import Answers
from wharfinger.transports.stream_client import not_sent
from wharfinger.transports.timeouts import PausableTimeout

if TYPE_CHECKING:
    from aiohttp import ClientResponse

    from wharfinger.protocol.interfaces import Authorize

__all__ = ["HttpLink", "NoMessage"]

logger = logging.getLogger("wharfinger.transports.http_client.http_link")

REPLIES = 32
"""Answers to the server's own requests that are on their way at once; refusals beyond it are dropped."""
SESSION_ID = 4096
"""Characters of a session's id."""
GOODBYE = 2.0
"""Seconds for telling the server that the session ends."""


class HttpLink:
    """A `Link` to a URL; belongs to the loop and to no task. In the handshake era it holds one session."""

    transport = "streamable http"

    def __init__(
        self,
        url: str,
        limits: Limits,
        headers: Mapping[str, str] | None = None,
        auth: Authorize | None = None,
        reaches: Callable[[str], bool] | None = None,
        events: LinkEvents | None = None,
    ) -> None:
        self._origin = Origin(url, limits, headers, auth, reaches)
        self.name = self._origin.name
        self.limits = limits
        self.rules: Revision | None = None
        """What the two ends have agreed on; None before that."""
        self.events = LinkEvents() if events is None else events
        """What to call with what happens; notifications are missed if the session's stream cannot be resumed."""
        self.mirrors: dict[str, tuple[HeaderParam, ...]] | None = {}
        """By tool: the arguments that headers repeat (2026-07-28, x-mcp-header)."""
        self._loop = asyncio.get_running_loop()
        self._session_id: str | None = None
        self._ids = count(1)
        self._answers = Answers(self.name, self._fewer_posts)
        self._posts = BackgroundTasks()
        self._telling: asyncio.Task[None] | None = None
        self._listening = Listening(self._origin, self._with_session, self._happen, self._lose, self._may_have_missed)
        self._closing: asyncio.Task[None] | None = None
        self._end: Callable[[], WharfingerError] | None = None

    # The link.

    async def request(
        self,
        method: str,
        params: Any,
        *,
        timeout: float | None,
        notified: Callable[[Message], None] | None = None,
    ) -> Message:
        """Send a request and wait for its answer; cancelling the waiting task cancels the request at the server, too.

        `notified` takes what the server sends for this request before its answer. `timeout` is in seconds.

        Raises:
            ConnectionFailed: the server could not be reached, or answered with no message (`NoMessage`).
            ConnectionLost: the connection ended first, or the session is gone.
            InvalidResponse: the answer breaks the protocol.
            NotAuthorized: the server wants credentials, or does not accept those it got.
            NotMCP: what answers does not speak the protocol.
            RequestTimeout: no answer in time.
        """
        if self._end is not None:
            raise not_sent(self._end())
        if self._telling is not None:  # the server must read notifications/initialized first
            await asyncio.wait((self._telling,), timeout=timeout)
            self._telling = None
        peer: ClientPeer[Call] = ClientPeer(self.limits, self._ids)
        peer.rules = self.rules
        peer.answers = True
        call = Call(notified)
        progress = notified is not None and method != "subscriptions/listen"
        number, data = peer.request(method, params, call, progress=progress)
        clock = PausableTimeout(timeout)
        try:
            async with clock:
                return await self._exchange(method, params, data, peer, call, clock)
        except TimeoutError as error:
            self._tell_cancelled(peer, number, "No answer in time.")
            if clock.expired:
                raise RequestTimeout(f"{method}: no answer from {self.name} within {timeout:g} s.") from None
            raise self._told(error) from None
        except asyncio.CancelledError:
            self._tell_cancelled(peer, number, "The caller no longer wants the answer.")
            raise
        except (self._origin.http.ClientError, OSError) as error:
            if isinstance(error, WharfingerError):
                raise
            raise self._told(error) from None
        except EventTooLarge:
            raise InvalidResponse(f"{self.name} sent an event over the limit of {self.limits.message} bytes.") from None

    def notify(self, method: str, params: Any) -> None:
        """Send a notification; the next request waits until it was taken."""
        if self._end is None:
            self._telling = self._posts.start(self._post_only(encode_notification(method, params)))

    @property
    def is_lost(self) -> bool:
        """Whether the session is gone, or this end has closed it."""
        return self._end is not None

    async def listen_in(self, timeout: float | None) -> None:
        """Open the session's stream for what belongs to no request, unless it is open; the stateless era has none.

        Raises:
            ConnectionFailed: the server keeps no such stream.
            RequestTimeout: it did not open in time.
        """
        if self.rules is None or self.rules.era == "stateless":
            return
        if self._end is not None:
            raise self._end()
        if self._telling is not None:
            await asyncio.wait((self._telling,), timeout=timeout)
        await self._listening.open(self.rules, self._ids, timeout)

    async def close(self) -> None:
        """End the session and close every connection; what waits fails with ConnectionLost."""
        if self._closing is None:
            self._closing = self._loop.create_task(self._close())
        await asyncio.shield(self._closing)

    # One exchange.

    async def _exchange(
        self,
        method: str,
        params: Any,
        data: bytes,
        peer: ClientPeer[Call],
        call: Call,
        clock: PausableTimeout,
    ) -> Message:
        headers = self._request_headers(method, params)
        response = await self._origin.send("POST", headers, data, timeout=clock)
        status = response.status
        try:
            if method == "initialize":
                self._session_id = self._checked_id(response.headers.get(SESSION))
            if status in (401, 403):
                raise NotAuthorized(await self._origin.refusal(response))
            if speaks_plainly(response, self._origin):
                await self._take_stream(response, peer, call)
            else:
                await self._take_body(response, peer, call)
        except BaseException:
            response.close()
            raise
        # Read to its end the connection is kept; a stream left after its answer is closed.
        response.release()
        if call.error is not None:
            raise call.error
        if call.answer is None:
            said = "" if call.nameless is None else f" It sent an error: {read_error(call.nameless).message[:200]}"
            raise ConnectionLost(f"{self.name} ended its answer to {method} before it was complete.{said}")
        if status == 404 and self._session_id is not None:
            raise not_sent(self._session_gone())
        return call.answer

    async def _take_stream(self, response: ClientResponse, peer: ClientPeer[Call], call: Call) -> None:
        """Read the answer's stream; in the handshake era it may break off and go on elsewhere."""
        decoder = EventDecoder(self.limits.message)
        resumable = self.rules is not None and self.rules.era == "handshake"
        try:
            await read_events(response, decoder, peer, call, self._happen)
        except (self._origin.http.ClientError, OSError) as error:
            if not (resumable and decoder.last_id) or isinstance(error, TimeoutError | WharfingerError):
                raise
        if call.over or not (resumable and decoder.last_id):
            return
        response.close()
        try:
            await read_on(self._origin, self._with_session, decoder, peer, call, self._happen)
        except NoMessage:
            raise self._session_gone() from None

    async def _take_body(self, response: ClientResponse, peer: ClientPeer[Call], call: Call) -> None:
        try:
            await read_body(response, peer, call, self._happen, self._origin)
        except NoMessage as error:
            if error.status == 404 and self._session_id is not None:
                raise not_sent(self._session_gone()) from None
            raise

    def _happen(self, event: Event[Call], call: Call | None) -> None:
        if type(event) is Response:
            event.waiter.answer = event.message
        elif type(event) is Notification:
            stateless = self.rules is not None and self.rules.era == "stateless"
            # A stateless request's stream is its own: what comes there belongs to it, tagged or not.
            mine = call is not None and (event.waiter is not None or stateless)
            if mine and call is not None and call.notified is not None:
                call.notified(event.message)
            else:
                self.events.notified(self, event.message)
        elif type(event) is Reply:
            self._refuse(event.data)
        elif type(event) is ServerRequest:
            self._answers.take(event.message, self.events.answer, self._reply, self._refuse)
        elif type(event) is Cancellation:
            self._answers.withdraw(event.request)
        elif type(event) is UnattributedError:
            logger.debug("%s sent an error that names no request", self.name)
            if call is not None:
                call.nameless = event.message
        elif type(event) is Malformed:
            event.waiter.error = InvalidResponse(f"{self.name} sent an answer that cannot be read: {event.reason}")

    # HTTP.

    def _request_headers(self, method: str, params: Any) -> dict[str, str]:
        rules = self.rules
        if rules is None or rules.era == "handshake":
            stated = getattr(getattr(params, "meta", None), "protocol_version", None)
            if method != "server/discover" or not isinstance(stated, str):
                return self._with_session()
            headers = {**self._origin.headers, "MCP-Protocol-Version": stated}
        else:
            headers = {**self._origin.headers, "MCP-Protocol-Version": rules.name}
        headers["Mcp-Method"] = method
        row = METHODS.get(method)
        if row is not None and row.name_param:
            headers["Mcp-Name"] = encode_value(getattr(params, row.name_param)).decode("ascii")
        mirrors = self.mirrors.get(params.name) if self.mirrors and method == "tools/call" else None
        if mirrors:
            given = b"{}" if params.arguments is msgspec.UNSET else params.arguments
            arguments = msgspec.json.decode(given, type=dict[str, Any])
            headers.update(
                {name.decode("ascii"): value.decode("ascii") for name, value in param_headers(mirrors, arguments)}
            )
        return headers

    def _checked_id(self, id: str | None) -> str | None:
        """A session's id is visible ASCII (2025-11-25, Streamable HTTP), or it could not be sent back."""
        if id is not None and not (id.isascii() and id.isprintable() and id.strip() and len(id) <= SESSION_ID):
            raise InvalidResponse(f"{self.name} gave a session id that is none: it must be visible ASCII.")
        return id

    def _with_session(self) -> dict[str, str]:
        headers = dict(self._origin.headers)
        if self._session_id is not None:
            headers[SESSION] = self._session_id
        if self.rules is not None and self.rules.version_header:
            headers["MCP-Protocol-Version"] = self.rules.name
        return headers

    async def _post_only(self, data: bytes) -> None:
        """Send what has no answer; that it failed is seen by the next request, and only told to the log here."""
        try:
            async with PausableTimeout(GOODBYE * 5) as clock:
                response = await self._origin.send("POST", self._with_session(), data, timeout=clock)
                if response.status >= 400:
                    logger.debug("%s answered a notification with %d", self.name, response.status)
                response.release()
        except (self._origin.http.ClientError, OSError, WharfingerError) as error:
            logger.debug("a notification did not reach %s: %r", self.name, error)

    def _reply(self, data: bytes) -> None:
        """Answer the server in a POST of its own."""
        if self._end is None:
            self._posts.start(self._post_only(data))

    def _refuse(self, data: bytes) -> None:
        """The same for what costs the server nothing to ask: a flood of it must not become one of POSTs."""
        if len(self._posts) < REPLIES:
            self._reply(data)

    async def _fewer_posts(self) -> None:
        await self._posts.wait_below(REPLIES)

    def _tell_cancelled(self, peer: ClientPeer[Call], id: int, reason: str) -> None:
        """In the handshake era a disconnect says nothing; in the stateless era it cancels (spec: §2.7, §2.9)."""
        notice = peer.cancel(id, reason)
        if notice is not None and self._end is None and self.rules is not None and not self.rules.disconnect_cancels:
            self._posts.start(self._post_only(notice))

    # The end.

    def _session_gone(self) -> WharfingerError:
        gone = session_gone(self._origin)
        self._lose(gone)
        return gone()

    def _may_have_missed(self) -> None:
        self.events.missed(self)

    def _lose(self, end: Callable[[], WharfingerError]) -> None:
        if self._end is None:
            self._end = end
            self._answers.stop()
            self.events.lost(self, end())

    async def _close(self) -> None:
        session_open = self._end is None and self._session_id is not None
        if self._telling is not None and not self._telling.done():
            await asyncio.wait((self._telling,), timeout=GOODBYE)
        self._lose(lambda: ConnectionLost(f"The connection to {self.name} was closed by this client."))
        await self._listening.close()
        if session_open:
            with suppress(self._origin.http.ClientError, OSError, WharfingerError):
                async with asyncio.timeout(GOODBYE):
                    (await self._origin.send("DELETE", self._with_session(), None)).close()
        await self._posts.cancel()
        await self._origin.close()

    def _told(self, error: BaseException) -> WharfingerError:
        """One of our errors for one of the HTTP library's."""
        return self._end() if self._end is not None else self._origin.told(error)
