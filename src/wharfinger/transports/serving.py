"""Encodes the answer to a request whose handler raised, or whose result cannot be encoded.

Each transport runs a request in one task:

    try:
        data = peer.respond(request, await handler(request))
    except BaseException as error:
        data, failure = answer_exception(request, error, peer, limits, reason=…)

Each transport calls `peer.respond` itself, because every request takes that path. All other outcomes are handled here:
the handler needs input from the user, it was cancelled, it raised an error on purpose, it failed, or its result or
error cannot be encoded as JSON. The task catches `BaseException`, so that `sys.exit()` in a handler ends only its call.

The transport decides whether to send the answer: nothing is sent for a request that its client has cancelled.
"""

from __future__ import annotations

import asyncio
import logging
import os
from enum import Enum
from typing import Any, Protocol

from wharfinger.errors import HandlerFailed, InvalidRequest, Overloaded, ProtocolError
from wharfinger.protocol.interfaces import Service
from wharfinger.protocol.limits import Limits
from wharfinger.protocol.observing import Refusal
from wharfinger.protocol.principal import ANONYMOUS, Principal
from wharfinger.protocol.request import (
    ChunkedMessage,
    Request,
    failure_text,
    input_needed,
    name_of_call,
    to_protocol_error,
)
from wharfinger.protocol.shares import Shares

__all__ = [
    "PART_BYTES",
    "AnswerEncoder",
    "CancelReason",
    "answer_exception",
    "check_unread",
    "report",
    "report_refusal",
]

log = logging.getLogger("wharfinger.transports.serving")

PART_BYTES = 256 * 1024
"""The maximum size of an answer that is written at once. A larger one is written in parts of this size, as fast as the
reader accepts them."""


class CancelReason(Enum):
    """Why the server cancels the task of a call."""

    CLIENT_GONE = "the client closed the connection"
    BODY_TIMEOUT = "the body did not arrive in time"
    DEADLINE = "the handler took longer than `Limits.handler_time`"
    DRAIN = "the server is stopping"
    CREDENTIAL_EXPIRED = "the token of the client has expired"
    STREAM_ENDED = "its stream is complete or is continued by another connection, or the session has ended"


class AnswerEncoder(Protocol):
    """Encodes answers. `ServerPeer` is one; it returns None for a request that is no longer in flight."""

    def respond(self, request: Any, result: Any, /) -> bytes | ChunkedMessage | None:
        """Encode a result."""
        ...

    def fail(self, request: Any, error: ProtocolError, /) -> bytes | ChunkedMessage | None:
        """Encode an error."""
        ...


def answer_exception(
    request: Request | None,
    error: BaseException,
    encoder: AnswerEncoder,
    limits: Limits,
    *,
    reason: CancelReason | None = None,
    level: int = logging.ERROR,
) -> tuple[bytes | ChunkedMessage | None, ProtocolError | None]:
    """Return the answer to a request whose handler raised, and its error, which is None if the answer is a result.

    `request` is None if a message was refused before it became a request. `reason` says why the server cancelled the
    handler; it is None if the handler's own code did. An error that was not raised on purpose is logged at `level`.
    """
    if request is not None and (stop := input_needed(error)):
        try:
            return encoder.respond(request, stop.result), None
        except Exception as encoding_error:
            error = encoding_error
    elif isinstance(error, asyncio.CancelledError):
        if reason is CancelReason.DEADLINE:
            error = HandlerFailed(f"The request was cancelled: it took longer than {limits.handler_time:g} s.")
        elif reason is CancelReason.DRAIN:
            error = Overloaded("The server is stopping.")
        elif reason is CancelReason.CREDENTIAL_EXPIRED:
            error = InvalidRequest("The token of this stream has expired: open it again with a new token.")
        else:
            error = _with_cause(RuntimeError("The handler's own task was cancelled."), error)
    name = "HTTP" if request is None else name_of_call(request)
    failure = report(error, name, level)
    try:
        return encoder.fail(request, failure), failure
    except Exception as encoding_error:  # the message or data cannot be encoded, and the client still waits
        failure = report(_with_cause(RuntimeError("The error cannot be encoded."), encoding_error), name)
        return encoder.fail(request, failure), failure


def report(error: BaseException, name: str = "Reading a message", level: int = logging.ERROR) -> ProtocolError:
    """Log an error that was not raised on purpose. Returns the error that the client gets."""
    reference = os.urandom(4).hex()
    answer = to_protocol_error(error, reference)
    if answer is not error:
        log.log(level, "%s", failure_text(name, error, reference), exc_info=error)
    return answer


def report_refusal(
    service: Service,
    error: ProtocolError,
    *,
    request: Request | None = None,
    method: str = "",
    target: str = "",
    address: str = "",
    principal: Principal = ANONYMOUS,
    size: int = 0,
) -> None:
    """Report to the observers of a service, if it has any, that a message was refused before its handler was called."""
    observers = getattr(service, "observers", None)
    if not observers:
        return
    if request is not None:
        name_param = "" if request.row is None else request.row.name_param
        method, principal = request.method, request.caller.principal
        target, address = str(getattr(request.params, name_param, "")) if name_param else "", request.peer or address
    observers.refused(Refusal(error, method, target, address, principal, size))


def _with_cause(error: Exception, cause: BaseException) -> Exception:
    error.__cause__ = cause
    return error


def check_unread(unread: Shares, owner: str, limits: Limits, answer: bytes | ChunkedMessage) -> int:
    """Return the bytes of memory that an answer takes until it is sent.

    Raises:
        Overloaded: unread answers take too much memory, and this owner has used up its share of it.
    """
    size = len(answer) if isinstance(answer, bytes) else answer.memory
    if unread.total and not unread.has_room(owner, limits.unread_total, size):
        raise Overloaded("Too many answers have not been read yet: try again later.")
    return size
