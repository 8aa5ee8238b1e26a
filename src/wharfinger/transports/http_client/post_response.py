"""The response to one POST: a JSON body, or a stream of events that may continue on another connection."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from wharfinger.errors import InvalidResponse, NotMCP, WharfingerError
from wharfinger.protocol.client_peer import ClientPeer, Event
from wharfinger.protocol.jsonrpc import Message
from wharfinger.protocol.sse import EventDecoder, Pulse
from wharfinger.transports.http_client.origin import EVENTS, NoMessage, Origin, content_type, excerpt
from wharfinger.transports.stream_client import show_bytes

if TYPE_CHECKING:
    from aiohttp import ClientResponse

__all__ = [
    "MAX_RECONNECTS",
    "EventHandler",
    "PendingPost",
    "is_event_stream",
    "read_body",
    "read_events",
    "reconnect_delay",
    "resumed_decoder",
]

RECONNECT_SECONDS = 1.0
MIN_RECONNECT_SECONDS = 0.01
MAX_RECONNECT_SECONDS = 30.0
"""Seconds to wait before a stream is resumed: the default, and the bounds of the time that a server may name."""
MAX_RECONNECTS = 3
"""The maximum number of attempts in a row that fail or, for the stream of a POST, soon end without a new event."""


class PendingPost:
    """A POST that waits for the response to its request."""

    __slots__ = ("error", "error_without_id", "on_notification", "response")

    def __init__(self, on_notification: Callable[[Message], None] | None) -> None:
        self.on_notification = on_notification
        self.response: Message | None = None
        self.error: WharfingerError | None = None
        self.error_without_id: Message | None = None
        """An error without an id: the response if it is the whole body, but not if it is an event of a stream."""

    @property
    def done(self) -> bool:
        """Whether there is a response, or there will be none."""
        return self.response is not None or self.error is not None


EventHandler = Callable[[Event[PendingPost], PendingPost | None], None]
"""Handles one event; the second argument is the POST on whose stream it came, if any."""


def is_event_stream(response: ClientResponse, origin: Origin) -> bool:
    """Return whether the response is a stream of events rather than one body.

    Raises:
        InvalidResponse: it is compressed, which was not accepted: decompressing would be unbounded work.
    """
    if response.headers.get("Content-Encoding", "identity") != "identity":
        raise InvalidResponse(f"{origin.name} compressed its answer although that was not accepted.")
    return content_type(response) == EVENTS and response.status == 200


async def read_events(
    response: ClientResponse,
    decoder: EventDecoder,
    peer: ClientPeer[PendingPost],
    post: PendingPost | None,
    handle: EventHandler,
) -> None:
    """Read messages until the stream ends, or `post` is done.

    Raises:
        TimeoutError: a server that sent comments regularly has fallen silent: the connection is broken.
        EventTooLarge: an event is over the limit of `decoder`.
    """
    pulse, now = Pulse(), asyncio.get_running_loop().time
    async with asyncio.timeout(None) as silence:
        async for chunk in response.content.iter_any():
            silence.reschedule(pulse.beat(now(), chunk))
            for event in decoder.feed(chunk):
                if not event.data or event.event != "message":  # the first event may only name an id
                    continue
                for peer_event in peer.receive(event.data):
                    handle(peer_event, post)
                if post is not None and post.done:
                    return


async def read_body(
    response: ClientResponse, peer: ClientPeer[PendingPost], post: PendingPost, handle: EventHandler, origin: Origin
) -> None:
    """Read a body, which is one message.

    Raises:
        NoMessage: the body is not a valid response, and the status is an error.
        NotMCP: the body is no response at all, but the status is a success.
        InvalidResponse: the body is larger than `Limits.message`.
    """
    body = await origin.body(response)
    if content_type(response) == "application/json":
        for peer_event in peer.receive(body):
            handle(peer_event, post)
        post.response = post.response or post.error_without_id
        if post.response is not None or (post.error is not None and response.status < 400):
            return
    post.error = None
    reason = f"{response.status} {response.reason or ''}".strip()
    if response.status >= 400:
        retry_after = response.headers.get("Retry-After", "")
        raise NoMessage(f"{origin.name} answered {reason}{excerpt(body)}", response.status, retry_after)
    kind = content_type(response)
    beginning = show_bytes(body)
    raise NotMCP(f"{origin.name} is not MCP: it answered {reason} with {kind}; the first bytes were {beginning}.")


def resumed_decoder(decoder: EventDecoder, limit: int) -> EventDecoder:
    """Return the decoder for the rest of a stream that broke off."""
    resumed = EventDecoder(limit)
    resumed.last_id, resumed.retry = decoder.last_id, decoder.retry
    return resumed


def reconnect_delay(decoder: EventDecoder) -> float:
    """Return the seconds to wait before a stream is resumed: the server's value, within bounds (2025-11-25: MUST)."""
    if decoder.retry is None:
        return RECONNECT_SECONDS
    return min(max(decoder.retry / 1000, MIN_RECONNECT_SECONDS), MAX_RECONNECT_SECONDS)
