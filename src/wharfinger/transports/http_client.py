"""A server behind a URL: one POST per message, JSON or event-stream answers, in both eras; knows hardly a method."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager, suppress
from itertools import count
from typing import TYPE_CHECKING, Any

import msgspec

from wharfinger.errors import (
    ConnectionFailed,
    ConnectionLost,
    InvalidResponse,
    NotAuthorized,
    NotMCP,
    RequestTimeout,
    WharfingerError,
)
from wharfinger.protocol.client_peer import Answer, ClientPeer, Event, Notice, Reply, Unreadable
from wharfinger.protocol.era import read_error
from wharfinger.protocol.header_values import Mirror, encode_value, param_headers
from wharfinger.protocol.jsonrpc import Message, encode_notification
from wharfinger.protocol.limits import Limits
from wharfinger.protocol.methods import METHODS
from wharfinger.protocol.revisions import Revision
from wharfinger.protocol.sse import EventDecoder, EventTooLarge

if TYPE_CHECKING:
    from aiohttp import ClientResponse, ClientSession
    from yarl import URL

__all__ = ["HttpLink", "NoMessage"]

logger = logging.getLogger("wharfinger.transports.http_client")

ACCEPT = "application/json, text/event-stream"
KEEP_ALIVE = 4.0
"""Seconds that an idle connection is kept: less than the 5 s after which many servers close theirs under a request."""
POOL = 256
"""Connections at once; each open listen stream takes one."""
REDIRECTS = 3
REPLIES = 32
"""Answers to the server's own requests that are on their way at once; those beyond it are dropped."""
RETRY = 1.0
RETRY_MOST = 30.0
RETRIES = 3
"""Reopening a session's stream: seconds to wait unless the server names them, the most of those, attempts in a row."""
SESSION_ID = 4096
"""Characters of a session's id."""
GOODBYE = 2.0
"""Seconds for telling the server that the session ends."""


class NoMessage(ConnectionFailed):
    """An HTTP answer without a JSON-RPC message in it; `status` decides how an opening goes on."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class _Call:
    """One POST that waits for the answer to its request."""

    __slots__ = ("answer", "error", "notified")

    def __init__(self, notified: Callable[[Message], None] | None) -> None:
        self.notified = notified
        self.answer: Message | None = None
        self.error: WharfingerError | None = None


class HttpLink:
    """A `Link` to a URL; belongs to the loop and to no task. In the handshake era it holds one session."""

    def __init__(self, url: str, limits: Limits, headers: Mapping[str, str] | None = None) -> None:
        import aiohttp  # imported on use: 60 ms and 10 MiB
        from yarl import URL

        self._http = aiohttp
        try:
            self._url = URL(url)
            self.name = str(self._url.with_user(None).with_query(None).with_fragment(None))
        except ValueError as error:
            raise ConnectionFailed(f"{url!r} is no URL: {error}.") from None
        if self._url.scheme not in ("http", "https") or not self._url.host:
            raise ConnectionFailed(f"{url!r} is no URL of a server: it should look like https://host/mcp.")
        self.limits = limits
        self.rules: Revision | None = None
        """What the two ends have agreed on; None before that."""
        self.unasked: Callable[[Message], None] | None = None
        """Takes notifications that belong to no request."""
        self.lost: Callable[[WharfingerError], None] | None = None
        """Called once when the session is gone, whoever ends it."""
        self.mirrors: dict[str, tuple[Mirror, ...]] | None = {}
        """By tool: the arguments that headers repeat (2026-07-28, x-mcp-header)."""
        self._loop = asyncio.get_running_loop()
        self._headers = {
            "Accept": ACCEPT,
            "Content-Type": "application/json",
            "Accept-Encoding": "identity",
            **(headers or {}),
        }
        self._session: ClientSession | None = None
        self._session_id: str | None = None
        self._ids = count(1)
        self._tasks: set[asyncio.Task[None]] = set()
        self._telling: asyncio.Task[None] | None = None
        self._stream: asyncio.Task[None] | None = None
        self._streaming: asyncio.Future[None] | None = None
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
            raise self._end()
        if self._telling is not None:  # the server must read notifications/initialized first
            await asyncio.wait((self._telling,), timeout=timeout)
            self._telling = None
        peer: ClientPeer[_Call] = ClientPeer(self.limits, self._ids)
        peer.rules = self.rules
        call = _Call(notified)
        progress = notified is not None and method != "subscriptions/listen"
        number, data = peer.request(method, params, call, progress=progress)
        headers = self._request_headers(method, params)
        scope = asyncio.timeout(timeout)
        try:
            async with scope:
                return await self._exchange(method, data, headers, peer, call)
        except TimeoutError as error:
            self._tell_cancelled(peer, number, "No answer in time.")
            if scope.expired():
                raise RequestTimeout(f"{method}: no answer from {self.name} within {timeout:g} s.") from None
            raise self._told(error) from None
        except asyncio.CancelledError:
            self._tell_cancelled(peer, number, "The caller no longer wants the answer.")
            raise
        except (self._http.ClientError, OSError) as error:
            if isinstance(error, WharfingerError):
                raise
            raise self._told(error) from None
        except EventTooLarge:
            raise InvalidResponse(f"{self.name} sent an event over the limit of {self.limits.message} bytes.") from None

    def notify(self, method: str, params: Any) -> None:
        """Send a notification; the next request waits until it was taken."""
        if self._end is None:
            self._telling = self._in_background(self._post_only(encode_notification(method, params)))

    async def listen_in(self, timeout: float | None) -> None:
        """Open the session's stream for what belongs to no request, unless it is open; the stateless era has none.

        Raises:
            ConnectionFailed: the server keeps no such stream.
            RequestTimeout: it did not open in time.
        """
        if self.rules is None or self.rules.era == "stateless":
            return
        if self._streaming is None:
            self._streaming = self._loop.create_future()
            self._stream = self._in_background(self._read_stream(self._streaming))
        streaming = self._streaming
        await asyncio.wait((streaming,), timeout=timeout)
        if not streaming.done():
            raise RequestTimeout(f"{self.name} did not open its stream within {timeout:g} s.")
        streaming.result()

    async def close(self) -> None:
        """End the session and close every connection; what waits fails with ConnectionLost."""
        if self._closing is None:
            self._closing = self._loop.create_task(self._close())
        await asyncio.shield(self._closing)

    # One exchange.

    async def _exchange(
        self, method: str, data: bytes, headers: dict[str, str], peer: ClientPeer[_Call], call: _Call
    ) -> Message:
        async with self._send("POST", headers, data) as response:
            if method == "initialize":
                self._session_id = self._checked_id(response.headers.get("Mcp-Session-Id"))
            if response.status in (401, 403):
                raise NotAuthorized(await self._refusal(response))
            if response.headers.get("Content-Encoding", "identity") != "identity":
                raise InvalidResponse(f"{self.name} compressed its answer although that was not accepted.")
            if response.content_type == "text/event-stream" and response.status == 200:
                await self._read_events(response, EventDecoder(self.limits.message), peer, call)
            else:
                await self._read_body(response, peer, call)
        if call.answer is None and call.error is None:
            raise ConnectionLost(f"{self.name} ended its answer to {method} before it was complete.")
        if call.error is not None:
            raise call.error
        assert call.answer is not None
        if response.status == 404 and self._session_id is not None and call.answer.id is msgspec.UNSET:
            raise self._session_gone()
        return call.answer

    async def _read_events(
        self, response: ClientResponse, decoder: EventDecoder, peer: ClientPeer[_Call], call: _Call | None
    ) -> None:
        async for chunk in response.content.iter_any():
            for event in decoder.feed(chunk):
                if not event.data or event.event != "message":  # an event to start with has nothing to read
                    continue
                for happened in peer.receive(event.data):
                    self._happen(happened, call)
                if call is not None and (call.answer is not None or call.error is not None):
                    return

    async def _read_body(self, response: ClientResponse, peer: ClientPeer[_Call], call: _Call) -> None:
        body = await self._body(response)
        if response.content_type == "application/json":
            for happened in peer.receive(body):
                self._happen(happened, call)
            if call.answer is not None or (call.error is not None and response.status < 400):
                return
        call.error = None
        reason = f"{response.status} {response.reason or ''}".strip()
        if response.status == 404 and self._session_id is not None:
            raise self._session_gone()
        if response.status >= 400:
            raise NoMessage(f"{self.name} answered {reason}{_excerpt(body)}", response.status)
        kind = response.content_type
        raise NotMCP(f"{self.name} is not MCP: it answered {reason} with {kind}; the first bytes were {body[:80]!r}.")

    async def _body(self, response: ClientResponse) -> bytes:
        """The whole body, within the bound, joined once."""
        limit = self.limits.message
        size = response.content_length or 0
        chunks: list[bytes] = []
        if size <= limit:
            size = 0
            async for chunk in response.content.iter_any():
                size += len(chunk)
                if size > limit:
                    break
                chunks.append(chunk)
        if size > limit:
            raise InvalidResponse(f"{self.name} sent an answer over the limit of {limit} bytes; set a larger limit.")
        return b"".join(chunks)

    def _happen(self, event: Event[_Call], call: _Call | None) -> None:
        if type(event) is Answer:
            event.waiter.answer = event.message
        elif type(event) is Notice:
            stateless = self.rules is not None and self.rules.era == "stateless"
            # A stateless request's stream is its own: what comes there belongs to it, tagged or not.
            mine = call is not None and (event.waiter is not None or stateless)
            take = call.notified if mine and call is not None else self.unasked
            if take is not None:
                take(event.message)
        elif type(event) is Reply:
            if len(self._tasks) < REPLIES:
                self._in_background(self._post_only(event.data))
        elif type(event) is Unreadable:
            event.waiter.error = InvalidResponse(f"{self.name} sent an answer that cannot be read: {event.reason}")

    # HTTP.

    @asynccontextmanager
    async def _send(self, verb: str, headers: dict[str, str], data: bytes | None) -> AsyncGenerator[ClientResponse]:
        """One HTTP exchange; redirects are followed within the origin only (security: C25)."""
        session, url = self._open_session(), self._url
        for _ in range(REDIRECTS + 1):
            async with session.request(verb, url, data=data, headers=headers, allow_redirects=False) as response:
                if response.status not in (301, 302, 307, 308):
                    if url != self._url and response.status < 400:
                        self._url = url
                    yield response
                    return
                url = self._same_origin(url, response.headers.get("Location", ""))
        raise ConnectionFailed(f"{self.name} redirects more than {REDIRECTS} times.")

    def _same_origin(self, url: URL, location: str) -> URL:
        from yarl import URL

        try:
            target = url.join(URL(location))
            same = bool(location) and target.origin() == self._url.origin()
        except ValueError:
            target, same = url, False
        if not same:
            raise ConnectionFailed(
                f"{self.name} redirects to another server, which is not followed: {location[:200]!r}."
            )
        return target

    def _open_session(self) -> ClientSession:
        if self._session is None:
            http = self._http
            self._session = http.ClientSession(
                connector=http.TCPConnector(limit=POOL, keepalive_timeout=KEEP_ALIVE),
                timeout=http.ClientTimeout(total=None, sock_connect=None, sock_read=None),
                # Nothing compressed was asked for, and unpacking it would be work without a bound.
                auto_decompress=False,
                read_bufsize=512 * 1024,
            )
        return self._session

    def _request_headers(self, method: str, params: Any) -> dict[str, str]:
        rules, headers = self.rules, dict(self._headers)
        if rules is None or rules.era == "handshake":
            stated = getattr(getattr(params, "meta", None), "protocol_version", None)
            if method != "server/discover" or not isinstance(stated, str):
                return self._with_session(headers)
            headers["MCP-Protocol-Version"] = stated
        else:
            headers["MCP-Protocol-Version"] = rules.name
        headers["Mcp-Method"] = method
        row = METHODS.get(method)
        if row is not None and row.named_by:
            headers["Mcp-Name"] = encode_value(getattr(params, row.named_by)).decode("ascii")
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

    def _with_session(self, headers: dict[str, str]) -> dict[str, str]:
        if self._session_id is not None:
            headers["Mcp-Session-Id"] = self._session_id
        if self.rules is not None and self.rules.version_header:
            headers["MCP-Protocol-Version"] = self.rules.name
        return headers

    async def _post_only(self, data: bytes) -> None:
        """Send what has no answer; that it failed is seen by the next request, and only told to the log here."""
        try:
            async with asyncio.timeout(GOODBYE * 5):
                async with self._send("POST", self._with_session(dict(self._headers)), data) as response:
                    if response.status >= 400:
                        logger.debug("%s answered a notification with %d", self.name, response.status)
        except (self._http.ClientError, OSError, WharfingerError) as error:
            logger.debug("a notification did not reach %s: %r", self.name, error)

    def _tell_cancelled(self, peer: ClientPeer[_Call], id: int, reason: str) -> None:
        """In the handshake era a disconnect says nothing; in the stateless era it cancels (spec: §2.7, §2.9)."""
        notice = peer.cancel(id, reason)
        if notice is not None and self._end is None and self.rules is not None and not self.rules.disconnect_cancels:
            self._in_background(self._post_only(notice))

    # The session's own stream (handshake era).

    async def _read_stream(self, ready: asyncio.Future[None]) -> None:
        decoder = EventDecoder(self.limits.message)
        peer: ClientPeer[_Call] = ClientPeer(self.limits, self._ids)
        peer.rules = self.rules
        failed = 0
        while failed < RETRIES and self._end is None:
            try:
                await self._read_stream_once(decoder, peer, ready)
                failed = 0
            except (self._http.ClientError, OSError, WharfingerError) as error:
                failed += 1
                if not ready.done():
                    ready.set_exception(error if isinstance(error, WharfingerError) else self._told(error))
                    ready.exception()
                    self._streaming = None
                    return
                logger.debug("the stream of %s broke off: %r", self.name, error)
            again = EventDecoder(self.limits.message)
            again.last_id = decoder.last_id
            wait = RETRY if decoder.retry is None else decoder.retry / 1000
            decoder = again
            await asyncio.sleep(min(wait, RETRY_MOST))
        self._lose(lambda: ConnectionLost(f"{self.name} closed the session's stream."))

    async def _read_stream_once(
        self, decoder: EventDecoder, peer: ClientPeer[_Call], ready: asyncio.Future[None]
    ) -> None:
        headers = self._with_session({**self._headers, "Accept": "text/event-stream"})
        headers.pop("Content-Type")
        if decoder.last_id and decoder.last_id.isprintable() and decoder.last_id.isascii():
            headers["Last-Event-ID"] = decoder.last_id
        async with self._send("GET", headers, None) as response:
            if response.status == 404:
                raise self._session_gone()
            if response.status != 200 or response.content_type != "text/event-stream":
                reason = f"{self.name} cannot tell of changes: it keeps no stream for them (GET: {response.status})."
                raise NoMessage(reason, response.status)
            if not ready.done():
                ready.set_result(None)
            await self._read_events(response, decoder, peer, None)

    # The end.

    def _session_gone(self) -> WharfingerError:
        def gone() -> WharfingerError:
            return ConnectionLost(f"{self.name} has ended the session: connect again.")

        self._lose(gone)
        return gone()

    def _lose(self, end: Callable[[], WharfingerError]) -> None:
        if self._end is None:
            self._end = end
            if self.lost is not None:
                self.lost(end())

    async def _close(self) -> None:
        session_open = self._end is None and self._session_id is not None and self._session is not None
        if self._telling is not None and not self._telling.done():
            await asyncio.wait((self._telling,), timeout=GOODBYE)
        self._lose(lambda: ConnectionLost(f"The connection to {self.name} was closed by this client."))
        if session_open:
            with suppress(self._http.ClientError, OSError, WharfingerError):
                async with (
                    asyncio.timeout(GOODBYE),
                    self._send("DELETE", self._with_session(dict(self._headers)), None),
                ):
                    pass
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        if self._session is not None:
            await self._session.close()

    def _in_background(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # Errors.

    async def _refusal(self, response: ClientResponse) -> str:
        body = await self._body(response)
        return f"{self.name} answered {response.status} {response.reason or ''}{_excerpt(body)}"

    def _told(self, error: BaseException) -> WharfingerError:
        """One of our errors for one of the HTTP library's."""
        if self._end is not None:
            return self._end()
        http = self._http
        if isinstance(error, http.ClientConnectorCertificateError | http.ClientSSLError):
            return ConnectionFailed(f"Cannot connect to {self.name}: TLS failed ({error}).")
        if isinstance(error, http.ClientConnectorError):
            return ConnectionFailed(f"Cannot connect to {self.name}: {error.os_error.strerror or error.os_error}.")
        if isinstance(error, http.ClientResponseError):
            return NotMCP(f"{self.name} is not MCP over HTTP: {error.message}.")
        if isinstance(error, http.InvalidURL):
            return ConnectionFailed(f"{self.name} is no URL that can be reached.")
        return ConnectionLost(
            f"{self.name} broke the connection off before its answer: {str(error) or type(error).__name__}."
        )


def _excerpt(body: bytes) -> str:
    """What a refusal says: the message of an error object, else the beginning of a short text."""
    text = body[:200].decode("utf-8", "replace").strip()
    if body[:1] == b"{":
        with suppress(msgspec.MsgspecError):
            message = msgspec.json.decode(body, type=_Refusal)
            error = read_error(Message(error=message.error))
            text = error.message[:200]
    elif text.startswith("<"):
        return ": a web page."
    return f": {' '.join(text.split())}" if text else "."


class _Refusal(msgspec.Struct):
    error: msgspec.Raw
