"""Answers the requests of a server to its client (handshake era), each in a task; their number is bounded."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from msgspec import UNSET, Raw

from wharfinger.errors import InternalError, MethodNotFound, Overloaded, ProtocolError
from wharfinger.protocol.jsonrpc import Id, Message, encode_error, encode_result

__all__ = ["MAX_REQUESTS", "RequestResponder"]

log = logging.getLogger("wharfinger.transports.inbound_requests")

MAX_REQUESTS = 32
"""The maximum number of requests of one server that are answered at the same time; more are refused."""

Answer = Callable[[Message], Awaitable[Any]]
"""Answers one request: returns a result (a struct, a mapping or raw JSON), or returns or raises a ProtocolError."""


class RequestResponder:
    """Answers the requests of the server at the other end of one connection."""

    __slots__ = ("_loop", "_name", "_tasks", "_wait_writable")

    def __init__(self, name: str, wait_writable: Callable[[], Awaitable[object]] | None = None) -> None:
        """`wait_writable` returns when the server has read enough of the earlier messages, so that no finished response
        has to be dropped."""
        self._name = name
        self._wait_writable = wait_writable
        self._loop = asyncio.get_running_loop()
        self._tasks: dict[Id, asyncio.Task[None]] = {}

    def respond(
        self,
        request: Message,
        answer: Answer | None,
        send: Callable[[bytes], None],
        refuse: Callable[[bytes], None] | None = None,
    ) -> None:
        """Answer a request in its own task, and `send` the response.

        `refuse`, if given, sends the refusals instead: it may drop them, but `send` must not drop a response.
        """
        refuse = refuse or send
        id = request.id
        if id is UNSET:
            return
        if answer is None:
            refuse(encode_error(id, MethodNotFound("This client declares no capability for that method.")))
        elif id in self._tasks:  # the first request with this id gets its response
            log.debug("%s uses the id %r a second time", self._name, id)
        elif len(self._tasks) >= MAX_REQUESTS:
            busy = f"This client answers at most {MAX_REQUESTS} requests at the same time: try again later."
            refuse(encode_error(id, Overloaded(busy)))
        else:
            task = self._tasks[id] = self._loop.create_task(self._respond(id, request, answer, send))
            task.add_done_callback(lambda _: self._tasks.pop(id, None))

    def cancel(self, id: Id) -> None:
        """Stop answering a request that the server has cancelled; no response is sent (utilities, cancellation)."""
        task = self._tasks.get(id)
        if task is not None:
            task.cancel()

    def stop(self) -> None:
        """Stop answering, because the connection is gone."""
        for task in self._tasks.values():
            task.cancel()

    async def _respond(self, id: Id, request: Message, answer: Answer, send: Callable[[bytes], None]) -> None:
        try:
            try:
                result = await answer(request)
            except ProtocolError as error:
                result = error
            if isinstance(result, ProtocolError):
                data = encode_error(id, result)
            else:
                data = encode_result(id, Raw(result) if isinstance(result, bytes) else result)
        except Exception:  # also a result or an error that cannot be encoded: the server waits for a response
            log.exception("a request of %s could not be answered: %s", self._name, request.method)
            data = encode_error(id, InternalError("This client failed to answer."))
        if self._wait_writable is not None:
            await self._wait_writable()
        send(data)
