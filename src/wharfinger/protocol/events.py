"""The events that `ServerPeer` and `ClientPeer` return to their transport for each incoming message.

`ServerPeer` has two more: `Request`, and `Batch`, whose responses are sent together.

    event              what the transport does with it
    Reply              sends its bytes back at once
    Response           gives it to `waiter`
    Cancellation       stops the work on `request`, whose answer is not needed any more
    Notification       passes it on to `waiter`, or to the listeners of the connection
    ServerRequest      answers what the server asks (client only)
    Malformed          fails `waiter`: the response breaks the protocol (client only)
    UnattributedError  fails `suspect` if no answer follows (client only)
    NotAMessage        skips it (client only)
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import msgspec

from wharfinger.protocol.jsonrpc import Message

__all__ = [
    "Cancellation",
    "Malformed",
    "NotAMessage",
    "Notification",
    "Reply",
    "Response",
    "ServerRequest",
    "UnattributedError",
]

W = TypeVar("W")
"""The object that waits for a response, such as a future; the transport passes it with each request."""


class Response(msgspec.Struct, Generic[W], frozen=True, gc=False):
    """The response that `waiter` waits for: a result or an error. Its id is no longer in use."""

    waiter: W
    message: Message


class Reply(msgspec.Struct, frozen=True, gc=False):
    """Bytes to send back at once: the message is refused, or needs no handler. `status` is the HTTP status."""

    data: bytes
    status: int = 400


class Cancellation(msgspec.Struct, frozen=True, gc=False):
    """The other side has cancelled its request; send nothing more for it.

    On a server `request` is the `Request`, on a client the id of the server's request.
    """

    request: Any


class Notification(msgspec.Struct, Generic[W], frozen=True, gc=False):
    """A notification.

    `waiter` waits for the response to the request that the notification belongs to; it is None if the notification
    belongs to the connection or to a task. On a server `params` are decoded; on a client they are only in `message`.
    """

    waiter: W | None
    message: Message
    params: Any = None


class ServerRequest(msgspec.Struct, frozen=True, gc=False):
    """A request of the server (handshake era), to be answered with its id. Needs `ClientPeer.handles_requests`."""

    message: Message


class Malformed(msgspec.Struct, Generic[W], frozen=True, gc=False):
    """A response for `waiter` that breaks the protocol; no other response will come."""

    waiter: W
    reason: str


class UnattributedError(msgspec.Struct, Generic[W], frozen=True, gc=False):
    """An error without an id, so that it is unclear which request it answers.

    `suspect` waits for the response to the one request that it can be about: the error says that a message could not be
    read (JSON-RPC 2.0, §5), and the server has shown that it read every other message. None if there is no such
    request, or several.
    """

    suspect: W | None
    message: Message


class NotAMessage(msgspec.Struct, frozen=True, gc=False):
    """Bytes that are not a message, such as a line of a log on standard output."""

    data: bytes
