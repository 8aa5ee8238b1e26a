"""What the server asks of its client (handshake era): a task per question, bounded; knows no method."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from msgspec import UNSET, Raw

from wharfinger.errors import InternalError, MethodNotFound, Overloaded, ProtocolError
from wharfinger.protocol.jsonrpc import Id, Message, encode_error, encode_result

__all__ = ["AT_ONCE", "Answers"]

logger = logging.getLogger("wharfinger.transports.inbound_requests")

AT_ONCE = 32
"""Questions of one server that are being answered at once; those beyond it are refused."""

Answerer = Callable[[Message], Awaitable[Any]]
"""Answers one request: a result (a struct, a mapping or raw JSON), or it raises or returns a ProtocolError."""


class Answers:
    """The questions of one connection that are being answered."""

    __slots__ = ("_loop", "_name", "_open", "_room")

    def __init__(self, name: str, room: Callable[[], Awaitable[None]] | None = None) -> None:
        """`room` returns once the server reads what was sent before: answers made by work of ours are not dropped."""
        self._name = name
        self._room = room
        self._loop = asyncio.get_running_loop()
        self._open: dict[Id, asyncio.Task[None]] = {}

    def take(
        self,
        question: Message,
        answerer: Answerer | None,
        send: Callable[[bytes], None],
        refuse: Callable[[bytes], None] | None = None,
    ) -> None:
        """Answer a question in a task of its own; `send` takes the bytes of the answer.

        `refuse` takes those of a refusal, if a flood of them must not be sent as answers are.
        """
        refuse = refuse or send
        id = question.id
        if id is UNSET:
            return
        if answerer is None:
            refuse(encode_error(id, MethodNotFound("This client declares no capability for that method.")))
        elif id in self._open:  # the first one keeps its answer
            logger.debug("%s uses the id %r a second time", self._name, id)
        elif len(self._open) >= AT_ONCE:
            refuse(encode_error(id, Overloaded(f"This client answers {AT_ONCE} questions at once: ask again later.")))
        else:
            task = self._open[id] = self._loop.create_task(self._answer(id, question, answerer, send))
            task.add_done_callback(lambda _: self._open.pop(id, None))

    def withdraw(self, id: Id) -> None:
        """The server no longer wants an answer: none is sent (utilities, cancellation)."""
        task = self._open.get(id)
        if task is not None:
            task.cancel()

    def stop(self) -> None:
        """Nobody can be answered any more."""
        for task in self._open.values():
            task.cancel()

    async def _answer(self, id: Id, question: Message, answerer: Answerer, send: Callable[[bytes], None]) -> None:
        try:
            result = await answerer(question)
            data = _encoded(id, result)
        except ProtocolError as error:
            data = encode_error(id, error)
        except Exception:
            logger.exception("a question of %s could not be answered: %s", self._name, question.method)
            data = encode_error(id, InternalError("This client failed to answer."))
        if self._room is not None:
            await self._room()
        send(data)


def _encoded(id: Id, result: Any) -> bytes:
    if isinstance(result, ProtocolError):
        return encode_error(id, result)
    return encode_result(id, Raw(result) if isinstance(result, bytes) else result)
