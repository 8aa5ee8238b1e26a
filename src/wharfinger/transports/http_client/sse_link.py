"""A client's connection over HTTP+SSE of 2024-11-05: a GET for the server's messages, a POST for each of the client's.

Deprecated since 2025-03-26; for servers that support nothing newer.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import msgspec
from msgspec import UNSET, UnsetType

from wharfinger.errors import (
    ConnectionFailed,
    ConnectionLost,
    InvalidResponse,
    NotAuthorized,
    NotMCP,
    WharfingerError,
)
from wharfinger.protocol.interfaces import LinkEvents
from wharfinger.protocol.jsonrpc import Id
from wharfinger.protocol.limits import Limits
from wharfinger.protocol.sse import Event, EventDecoder, EventTooLarge
from wharfinger.transports.background import BackgroundTasks
from wharfinger.transports.http_client.origin import EVENTS, NoMessage, Origin, content_type
from wharfinger.transports.stream_client import StreamLink, show_bytes
from wharfinger.transports.timeouts import PausableTimeout

if TYPE_CHECKING:
    from aiohttp import ClientResponse
    from yarl import URL

    from wharfinger.protocol.interfaces import Authorize

__all__ = ["SseLink"]

log = logging.getLogger("wharfinger.transports.http_client.sse_link")

MAX_POSTS = 64
"""While this many messages of any kind are being sent, new requests and responses wait, which bounds the memory."""
POST_SECONDS = 30.0
"""Seconds after which a message counts as sent. Some servers acknowledge a request only with the response to it."""
LAST_NOTIFICATION_SECONDS = 1.0
"""Seconds that `disconnect` waits at most until the last notification, such as a cancellation, is sent."""


class _IdAndMethod(msgspec.Struct):
    """The members that distinguish requests, notifications and answers."""

    id: Id | UnsetType = UNSET
    method: str | UnsetType = UNSET


_decode_id_and_method = msgspec.json.Decoder(_IdAndMethod).decode


class SseLink(StreamLink):
    """A `Link` to a URL of HTTP+SSE. The session lasts as long as the stream."""

    transport = "http+sse"

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
        super().__init__(self._origin.name, limits, events)
        self._posts = BackgroundTasks()
        self._last_notification: asyncio.Task[None] | None = None
        """The task that sends the last notification; None once it is sent. Later messages wait, to arrive after it."""
        self._reading: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Open the stream; its first event says where to POST (2024-11-05, HTTP with SSE).

        Raises:
            ConnectionFailed: the server cannot be reached, has no stream at this URL, ended it, or named a URL of
                another server.
            NotAuthorized: the server requires credentials.
            NotMCP: the response is not HTTP, or not a stream of events.
            ConnectionLost: the server closed the connection before its answer.
            InvalidResponse: an event is over the limit.
        """
        origin = self._origin
        try:
            response = await origin.send("GET", self._headers(EVENTS), None)
            try:
                await self._check(response)
                decoder = EventDecoder(self.limits.message)
                endpoint = await self._find_endpoint(response, decoder)
            except BaseException:
                response.close()
                raise
        except BaseException as error:
            await origin.close()
            if isinstance(error, EventTooLarge):
                raise self._too_large() from None
            if isinstance(error, origin.http.ClientError | OSError):
                raise origin.translate(error) from None
            raise
        self._endpoint = endpoint
        self.write = self._post_lines

    async def disconnect(self) -> None:
        """End the stream, and with it the session."""
        if self._last_notification is not None:
            await asyncio.wait((self._last_notification,), timeout=LAST_NOTIFICATION_SECONDS)
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait((self._reading,))
        await self._posts.cancel()
        await self._origin.close()

    # Reading.

    async def _check(self, response: ClientResponse) -> None:
        status, name = response.status, self.name
        if status in (401, 403):
            raise NotAuthorized(await self._origin.refusal(response))
        if status != 200:
            raise NoMessage(await self._origin.refusal(response), status)
        if content_type(response) != EVENTS:
            first = await response.content.read(80)
            raise NotMCP(
                f"{name} is not MCP: GET returned {content_type(response)}; the first bytes were {show_bytes(first)}."
            )

    async def _find_endpoint(self, response: ClientResponse, decoder: EventDecoder) -> URL:
        """Return the URL for POST, which an event of the stream names, and start a task that reads the rest."""
        async for chunk in response.content.iter_any():
            events = decoder.feed(chunk)
            for number, event in enumerate(events):
                if event.event == "endpoint":
                    endpoint = self._origin.resolve(event.data.decode("utf-8", "replace"), self._origin.url, "names")
                    self._reading = self._loop.create_task(self._read(response, decoder, events[number + 1 :]))
                    return endpoint
        raise ConnectionFailed(f"{self.name} ended its stream before it sent the URL for POST.")

    async def _read(self, response: ClientResponse, decoder: EventDecoder, events: list[Event]) -> None:
        origin = self._origin
        failure: WharfingerError = ConnectionLost(f"{self.name} ended the stream.")
        try:
            self._receive_events(events)
            async for chunk in response.content.iter_any():
                self._receive_events(decoder.feed(chunk))
        except EventTooLarge:
            failure = self._too_large()
        except (origin.http.ClientError, OSError) as error:
            failure = ConnectionLost(f"{self.name} interrupted the stream: {str(error) or type(error).__name__}.")
        finally:
            response.close()
        kind, text = type(failure), str(failure)
        self.lose(lambda: kind(text))  # each waiting request gets an error of its own

    def _receive_events(self, events: list[Event]) -> None:
        for event in events:
            if event.data and event.event == "message":
                self.receive(event.data)

    def _too_large(self) -> InvalidResponse:
        return InvalidResponse(f"{self.name} sent an event over the limit of {self.limits.message} bytes.")

    # Writing.

    def _post_lines(self, data: bytes) -> None:
        for message in data.rstrip(b"\n").split(b"\n"):
            members = _decode_id_and_method(message)
            # An answer repeats the id of the server's request, which a request of this client may have too.
            request_id = UNSET if isinstance(members.method, UnsetType) else members.id
            task = self._posts.start(self._post(message, request_id, self._last_notification))
            if isinstance(members.id, UnsetType):
                self._last_notification = task
            task.add_done_callback(self._posted)
        if len(self._posts) >= MAX_POSTS:
            self.pause_writing()

    def _posted(self, task: asyncio.Task[None]) -> None:
        if self._last_notification is task:
            self._last_notification = None
        if len(self._posts) < MAX_POSTS:
            self.resume_writing()

    async def _post(self, message: bytes, request_id: Id | UnsetType, after: asyncio.Task[None] | None) -> None:
        origin = self._origin
        if after is not None:
            await asyncio.wait((after,))
        try:
            async with PausableTimeout(POST_SECONDS) as clock:
                response = await origin.send("POST", self._headers(), message, url=self._endpoint, timeout=clock)
                try:
                    if response.status in (401, 403):
                        raise NotAuthorized(await origin.refusal(response))
                    if response.status >= 400:
                        raise ConnectionFailed(await origin.refusal(response))
                finally:
                    response.release()
        except TimeoutError:
            log.debug("%s has not acknowledged a message", self.name)
        except (origin.http.ClientError, OSError, WharfingerError) as error:
            call = None if isinstance(request_id, UnsetType) else self._peer.awaited.pop(request_id, None)
            if call is None:
                log.debug("a message did not reach %s: %s", self.name, error)
            else:
                self._fail(call, origin.translate(error))

    def _headers(self, accept: str = "") -> dict[str, str]:
        headers = dict(self._origin.headers)
        if accept:
            headers["Accept"] = accept
            headers.pop("Content-Type", None)
        if self.rules is not None and self.rules.version_header:
            headers["MCP-Protocol-Version"] = self.rules.name
        return headers
