"""A client's connection to a URL (Streamable HTTP): one POST per message, in both eras."""

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
from wharfinger.transports.http_client.get_streams import SESSION, SessionStream, resume_stream, session_gone
from wharfinger.transports.http_client.origin import NoMessage, Origin
from wharfinger.transports.http_client.post_response import PendingPost, is_event_stream, read_body, read_events
from wharfinger.transports.inbound_requests import RequestResponder
from wharfinger.transports.stream_client import mark_unsent
from wharfinger.transports.timeouts import PausableTimeout

if TYPE_CHECKING:
    from aiohttp import ClientResponse

    from wharfinger.protocol.interfaces import Authorize

__all__ = ["HttpLink", "NoMessage"]

log = logging.getLogger("wharfinger.transports.http_client.http_link")

MAX_REPLIES = 32
"""The maximum number of responses that are sent at the same time; further refusals are dropped."""
MAX_SESSION_ID_CHARACTERS = 4096
"""The maximum number of characters of a session id."""
CLOSE_SECONDS = 2.0
"""Longest time that `close` waits for notifications to be sent, and then for the server to end the session."""
ONE_WAY_SECONDS = 10.0
"""Seconds for sending a message that has no response."""


class HttpLink:
    """A `Link` to a URL, which any task of the event loop may use and close; one session in the handshake era."""

    transport = "streamable http"

    def __init__(
        self,
        url: str,
        limits: Limits,
        headers: Mapping[str, str] | None = None,
        auth: Authorize | None = None,
        allow_address: Callable[[str], bool] | None = None,
        events: LinkEvents | None = None,
    ) -> None:
        self._origin = Origin(url, limits, headers, auth, allow_address)
        self.name = self._origin.name
        self.limits = limits
        self.rules: Revision | None = None
        """The negotiated revision; None before the negotiation."""
        self.events = LinkEvents() if events is None else events
        """Callbacks for events; notifications are missed if the session's stream breaks off and cannot be resumed."""
        self.header_params: dict[str, tuple[HeaderParam, ...]] | None = {}
        """The arguments that headers repeat, by tool (2026-07-28, x-mcp-header)."""
        self._loop = asyncio.get_running_loop()
        self._session_id: str | None = None
        self._ids = count(1)
        self._responder = RequestResponder(self.name, lambda: self._replies.wait_below(MAX_REPLIES))
        self._replies = BackgroundTasks()
        """The tasks that send responses to the server's requests."""
        self._posts = BackgroundTasks()
        """The tasks that send notifications, including cancellations of requests."""
        self._notifying: dict[asyncio.Task[None], PausableTimeout] = {}
        """The tasks of `notify` with their timeouts, oldest first: each waits for the one before it."""
        self._stream = SessionStream(
            self._origin, self._session_headers, self._dispatch, self._lose, lambda: self.events.on_missed(self)
        )
        self._closing: asyncio.Task[None] | None = None
        self._end: Callable[[], WharfingerError] | None = None
        """Returns the error for requests after the end of the link; None until then."""

    # The link.

    async def request(
        self,
        method: str,
        params: Any,
        *,
        timeout: float | None,
        on_notification: Callable[[Message], None] | None = None,
    ) -> Message:
        """Send a request and return the response; cancelling the waiting task cancels the request at the server.

        `on_notification` is called with each notification for this request. `timeout` is in seconds.

        Raises:
            ConnectionFailed: the server could not be reached, or its answer is not a message (`NoMessage`).
            ConnectionLost: the connection or the session ended first.
            InvalidResponse: the response breaks the protocol.
            NotAuthorized: the server requires credentials, or does not accept these.
            NotMCP: the server does not speak the protocol.
            RequestTimeout: no response in time.
        """
        seconds = timeout
        if self._notifying and self._end is None:  # the server must read notifications/initialized first
            seconds = await self._wait_notified(method, timeout)
        if self._end is not None:
            raise mark_unsent(self._end())
        peer: ClientPeer[PendingPost] = ClientPeer(self.limits, self._ids)
        peer.rules = self.rules
        peer.handles_requests = True
        post = PendingPost(on_notification)
        progress = on_notification is not None and method != "subscriptions/listen"
        number, data = peer.request(method, params, post, progress=progress)
        clock = PausableTimeout(seconds)
        try:
            async with clock:
                return await self._exchange(method, params, data, peer, post, clock)
        except TimeoutError as error:
            self._notify_cancelled(peer, number, "No answer in time.")
            if clock.expired:
                raise RequestTimeout(f"{method}: no answer from {self.name} within {timeout:g} s.") from None
            raise self._translate(error) from None
        except asyncio.CancelledError:
            self._notify_cancelled(peer, number, "The caller has cancelled the request.")
            raise
        except (self._origin.http.ClientError, OSError) as error:
            if isinstance(error, WharfingerError):
                raise
            raise self._translate(error) from None
        except RuntimeError:
            if self._end is None:
                raise
            # aiohttp raises it if this link is closed while a chunk of the stream is handled.
            raise self._end() from None
        except EventTooLarge:
            raise InvalidResponse(f"{self.name} sent an event over the limit of {self.limits.message} bytes.") from None

    def notify(self, method: str, params: Any) -> None:
        """Send a notification; later requests and notifications wait until the server has received it."""
        if self._end is None:
            clock, before = PausableTimeout(ONE_WAY_SECONDS), next(reversed(self._notifying), None)
            task = self._posts.start(self._post_one_way(encode_notification(method, params), clock, before))
            self._notifying[task] = clock
            task.add_done_callback(self._notifying.pop)

    @property
    def is_lost(self) -> bool:
        """Whether the session has ended, or this link was closed."""
        return self._end is not None

    async def open_session_stream(self, timeout: float | None) -> None:
        """Open the session's stream for messages that belong to no request. The stateless era has none.

        Raises:
            ConnectionFailed: the server has no such stream.
            ConnectionLost: the connection or the session has ended.
            RequestTimeout: it did not open in time.
        """
        if self.rules is None or self.rules.era == "stateless":
            return
        if self._end is not None:
            raise self._end()
        scope = asyncio.timeout(timeout)
        try:
            async with scope:
                if self._notifying:
                    await asyncio.wait(tuple(self._notifying))
                await self._stream.open(self.rules, self._ids)
        except TimeoutError:
            if not scope.expired():
                raise
            raise RequestTimeout(f"{self.name} did not open its stream within {timeout:g} s.") from None

    async def close(self) -> None:
        """End the session and close every connection. Requests that wait fail with ConnectionLost."""
        if self._closing is None:
            self._closing = self._loop.create_task(self._close())
        await asyncio.shield(self._closing)

    # One exchange.

    async def _exchange(
        self,
        method: str,
        params: Any,
        data: bytes,
        peer: ClientPeer[PendingPost],
        post: PendingPost,
        clock: PausableTimeout,
    ) -> Message:
        headers = self._request_headers(method, params)
        response = await self._origin.send("POST", headers, data, timeout=clock)
        status = response.status
        try:
            if method == "initialize":
                self._session_id = self._check_session_id(response.headers.get(SESSION))
            if status in (401, 403):
                raise NotAuthorized(await self._origin.refusal(response))
            if is_event_stream(response, self._origin):
                await self._read_stream(response, peer, post)
            else:
                try:
                    await read_body(response, peer, post, self._dispatch, self._origin)
                except NoMessage as error:
                    if error.status == 404 and self._session_id is not None:
                        raise mark_unsent(self._session_gone()) from None
                    raise
        except BaseException:
            response.close()
            raise
        # This keeps the connection if the answer was read to its end, and closes it if a stream continues.
        response.release()
        if post.error is not None:
            raise post.error
        if post.response is None:
            reason = (
                ""
                if post.error_without_id is None
                else f" It sent an error: {read_error(post.error_without_id).message[:200]}"
            )
            raise ConnectionLost(f"{self.name} ended its answer to {method} before it was complete.{reason}")
        if status == 404 and self._session_id is not None:
            raise mark_unsent(self._session_gone())
        return post.response

    async def _read_stream(self, response: ClientResponse, peer: ClientPeer[PendingPost], post: PendingPost) -> None:
        """Read the events of an answer. In the handshake era the stream may break off, and is resumed with GET."""
        decoder = EventDecoder(self.limits.message)
        resumable = self.rules is not None and self.rules.era == "handshake"
        try:
            await read_events(response, decoder, peer, post, self._dispatch)
        except (self._origin.http.ClientError, OSError) as error:
            if not (resumable and decoder.resume_id) or isinstance(error, WharfingerError):
                raise
        if post.done or not (resumable and decoder.resume_id):
            return
        response.close()
        try:
            await resume_stream(self._origin, self._session_headers, decoder, peer, post, self._dispatch)
        except NoMessage:
            if self._session_id is not None:
                raise self._session_gone() from None

    def _dispatch(self, event: Event[PendingPost], post: PendingPost | None) -> None:
        if type(event) is Response:
            event.waiter.response = event.message
        elif type(event) is Notification:
            # All notifications on the stream of a stateless request belong to that request.
            stateless = self.rules is not None and self.rules.era == "stateless"
            own = post is not None and (event.waiter is not None or stateless)
            if own and post is not None and post.on_notification is not None:
                post.on_notification(event.message)
            else:
                self.events.on_notification(self, event.message)
        elif type(event) is Reply:
            self._refuse(event.data)
        elif type(event) is ServerRequest:
            self._responder.respond(event.message, self.events.on_request, self._reply, self._refuse)
        elif type(event) is Cancellation:
            self._responder.cancel(event.request)
        elif type(event) is UnattributedError:
            log.debug("%s sent an error that names no request", self.name)
            if post is not None:
                post.error_without_id = event.message
        elif type(event) is Malformed:
            event.waiter.error = InvalidResponse(f"{self.name} sent an invalid answer: {event.reason}")

    # HTTP.

    def _request_headers(self, method: str, params: Any) -> dict[str, str]:
        rules = self.rules
        if rules is None or rules.era == "handshake":
            version = getattr(getattr(params, "meta", None), "protocol_version", None)
            if method != "server/discover" or not isinstance(version, str):
                return self._session_headers()
            headers = {**self._origin.headers, "MCP-Protocol-Version": version}
        else:
            headers = {**self._origin.headers, "MCP-Protocol-Version": rules.name}
        headers["Mcp-Method"] = method
        row = METHODS.get(method)
        if row is not None and row.name_param:
            headers["Mcp-Name"] = encode_value(getattr(params, row.name_param)).decode("ascii")
        repeated = self.header_params.get(params.name) if self.header_params and method == "tools/call" else None
        if repeated:
            encoded = b"{}" if params.arguments is msgspec.UNSET else params.arguments
            arguments = msgspec.json.decode(encoded, type=dict[str, Any])
            for name, value in param_headers(repeated, arguments):
                headers[name.decode("ascii")] = value.decode("ascii")
        return headers

    def _check_session_id(self, id: str | None) -> str | None:
        """Return the session id, or None if there is none.

        The specification (2025-11-25, Streamable HTTP) allows only visible ASCII, but a space does no harm.

        Raises:
            InvalidResponse: the id cannot be sent back: it is not printable ASCII, is blank, or is too long.
        """
        if id is not None and not (
            id.isascii() and id.isprintable() and id.strip() and len(id) <= MAX_SESSION_ID_CHARACTERS
        ):
            raise InvalidResponse(f"{self.name} sent an invalid session id: it must be visible ASCII.")
        return id

    def _session_headers(self) -> dict[str, str]:
        headers = dict(self._origin.headers)
        if self._session_id is not None:
            headers[SESSION] = self._session_id
        if self.rules is not None and self.rules.version_header:
            headers["MCP-Protocol-Version"] = self.rules.name
        return headers

    async def _wait_notified(self, method: str, timeout: float | None) -> float | None:
        """Wait until the server has received every earlier notification. Returns how many seconds of `timeout` remain.

        The time in which a person signs in, so that a notification can be sent, does not count.

        Raises:
            RequestTimeout: no time is left. The message names `method`.
        """
        remaining = timeout
        for notifying, clock in tuple(self._notifying.items()):
            remaining_before, clock_before = remaining, clock.remaining()
            while not notifying.done():
                await asyncio.wait((notifying,), timeout=remaining)
                if remaining_before is None:
                    continue
                remaining = remaining_before - (clock_before - clock.remaining())
                if remaining <= 0:
                    raise RequestTimeout(f"{method}: no answer from {self.name} within {timeout:g} s.")
        return remaining

    async def _post_one_way(
        self, data: bytes, clock: PausableTimeout | None = None, before: asyncio.Task[None] | None = None
    ) -> None:
        """Send a message that has no response, when the task `before`, which sends the previous one, has ended.

        A failure is only logged: the next request will raise it.
        """
        clock = clock or PausableTimeout(ONE_WAY_SECONDS)
        if before is not None:
            await asyncio.wait((before,))
        try:
            async with clock:
                response = await self._origin.send("POST", self._session_headers(), data, timeout=clock)
                if response.status >= 400:
                    log.debug("%s answered a notification with %d", self.name, response.status)
                response.release()
        except (self._origin.http.ClientError, OSError, WharfingerError) as error:
            log.debug("a notification did not reach %s: %r", self.name, error)

    def _reply(self, data: bytes) -> None:
        """Send a response to the server's request in its own POST."""
        if self._end is None:
            self._replies.start(self._post_one_way(data))

    def _refuse(self, data: bytes) -> None:
        """Send a refusal, unless many responses are pending: a flood of requests must not become a flood of POSTs."""
        if len(self._replies) < MAX_REPLIES:
            self._reply(data)

    def _notify_cancelled(self, peer: ClientPeer[PendingPost], id: int, reason: str) -> None:
        """Report a cancellation in the handshake era. In the stateless era, disconnecting cancels the request."""
        notice = peer.cancel(id, reason)
        if notice is not None and self._end is None and self.rules is not None and not self.rules.disconnect_cancels:
            self._posts.start(self._post_one_way(notice))

    # The end.

    def _session_gone(self) -> WharfingerError:
        error = session_gone(self._origin)
        self._lose(error)
        return error()

    def _lose(self, end: Callable[[], WharfingerError]) -> None:
        if self._end is None:
            self._end = end
            self._responder.stop()
            self.events.on_lost(self, end())

    async def _close(self) -> None:
        session_open = self._end is None and self._session_id is not None
        if self._notifying:
            await asyncio.wait(tuple(self._notifying), timeout=CLOSE_SECONDS)
        self._lose(lambda: ConnectionLost(f"The connection to {self.name} was closed by this client."))
        await self._stream.close()
        if session_open:
            with suppress(self._origin.http.ClientError, OSError, WharfingerError):
                async with asyncio.timeout(CLOSE_SECONDS):
                    (await self._origin.send("DELETE", self._session_headers(), None)).close()
        await self._replies.cancel()
        await self._posts.cancel()
        await self._origin.close()

    def _translate(self, error: BaseException) -> WharfingerError:
        """Return the error to raise for an error of the HTTP library; if this link has ended, the error of its end."""
        return self._end() if self._end is not None else self._origin.translate(error)
