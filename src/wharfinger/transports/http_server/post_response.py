"""The answer to one POST: JSON, or events that may go on over another connection; knows no session and no URL."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from wharfinger.errors import InvalidResponse, NotMCP, WharfingerError
from wharfinger.protocol.client_peer import ClientPeer, Event
from wharfinger.protocol.jsonrpc import Message
from wharfinger.protocol.sse import EventDecoder, Pulse
from wharfinger.transports.http_client.origin import EVENTS, NoMessage, Origin, content_type, excerpt
from wharfinger.transports.stream_client import shown_bytes

if TYPE_CHECKING:
    from aiohttp import ClientResponse

__all__ = ["RETRIES", "Call", "Happen", "gone_on", "pause_before", "read_body", "read_events", "speaks_plainly"]

RETRY = 1.0
RETRY_LEAST = 0.01
RETRY_MOST = 30.0
RETRIES = 3
"""Going on with a stream: seconds to wait unless the server names them, their least and most, failures in a row."""


class Call:
    """One POST that waits for the answer to its request."""

    __slots__ = ("answer", "error", "nameless", "notified")

    def __init__(self, notified: Callable[[Message], None] | None) -> None:
        self.notified = notified
        self.answer: Message | None = None
        self.error: WharfingerError | None = None
        self.nameless: Message | None = None
        """An error without an id: the answer if it is the whole body, but not if it is one event of several."""

    @property
    def over(self) -> bool:
        """Whether there is an answer, or there will be none."""
        return self.answer is not None or self.error is not None


Happen = Callable[[Event[Call], "Call | None"], None]
"""Takes what one message means, with the call on whose stream it came."""


def speaks_plainly(response: ClientResponse, origin: Origin) -> bool:
    """Whether the answer comes as events; False for a body.

    Raises:
        InvalidResponse: it is compressed, which was not accepted: unpacking would be work without a bound.
    """
    if response.headers.get("Content-Encoding", "identity") != "identity":
        raise InvalidResponse(f"{origin.name} compressed its answer although that was not accepted.")
    return content_type(response) == EVENTS and response.status == 200


async def read_events(
    response: ClientResponse, decoder: EventDecoder, peer: ClientPeer[Call], call: Call | None, happen: Happen
) -> None:
    """Take messages until the stream ends, or `call` has its answer.

    Raises:
        TimeoutError: the server has ceased to keep the stream open: it is broken, although nobody has said so.
    """
    pulse, now = Pulse(), asyncio.get_running_loop().time
    async with asyncio.timeout(None) as silence:
        async for chunk in response.content.iter_any():
            silence.reschedule(pulse.beat(now(), chunk))
            for event in decoder.feed(chunk):
                if not event.data or event.event != "message":  # an event to start with has nothing to read
                    continue
                for happened in peer.receive(event.data):
                    happen(happened, call)
                if call is not None and call.over:
                    return


async def read_body(
    response: ClientResponse, peer: ClientPeer[Call], call: Call, happen: Happen, origin: Origin
) -> None:
    """Take the one message of a body.

    Raises:
        NoMessage: there is none, and the status says that something is wrong.
        NotMCP: there is none although the status is good.
    """
    body = await origin.body(response)
    if content_type(response) == "application/json":
        for happened in peer.receive(body):
            happen(happened, call)
        call.answer = call.answer or call.nameless
        if call.answer is not None or (call.error is not None and response.status < 400):
            return
    call.error = None
    reason = f"{response.status} {response.reason or ''}".strip()
    if response.status >= 400:
        raise NoMessage(f"{origin.name} answered {reason}{excerpt(body)}", response.status)
    kind = content_type(response)
    first = shown_bytes(body)
    raise NotMCP(f"{origin.name} is not MCP: it answered {reason} with {kind}; the first bytes were {first}.")


def gone_on(decoder: EventDecoder, limit: int) -> EventDecoder:
    """The decoder for what comes after a break of this stream."""
    again = EventDecoder(limit)
    again.last_id, again.retry = decoder.last_id, decoder.retry
    return again


def pause_before(decoder: EventDecoder) -> float:
    """Seconds to wait before going on: what the stream asked for, within bounds (2025-11-25: MUST)."""
    return RETRY if decoder.retry is None else min(max(decoder.retry / 1000, RETRY_LEAST), RETRY_MOST)
