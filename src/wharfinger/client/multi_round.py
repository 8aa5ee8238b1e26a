"""Repeats calls for which the server needs input before it can return a result.

In 2026-07-28 a server cannot send requests. Instead it returns an `InputRequiredResult`, with its questions and an
opaque state. The client answers the questions with its input handlers, and sends the same call again
with the answers and the state, until there is a result (multi round-trip requests). The answers and the state belong to
that call only, and the number of rounds is bounded.

A server of 2025-11-25 may refuse a call until the user has visited a URL (`URLElicitationRequired`). Then the client
asks for consent and waits until the server reports that the visit is complete. Not every server reports this, so the
client waits at most for the `timeout` of the call. Then it sends the call once more.

The time that the user takes to answer does not count towards the call's `timeout`, but does towards `max_timeout`.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from msgspec import UNSET, Raw, UnsetType

from wharfinger import types as t
from wharfinger.client.calls import Call, Next
from wharfinger.client.input_handlers import InputHandlers
from wharfinger.client.results import MULTI_ROUND_METHODS
from wharfinger.errors import ConnectionLost, InvalidResponse, RemoteError, RequestTimeout, URLElicitationRequired
from wharfinger.protocol.jsonrpc import Message
from wharfinger.protocol.methods import Method

__all__ = ["MultiRoundStep", "URLCompletions", "answer_in_time", "url_elicitations"]

MAX_ID_CHARACTERS = 4096
"""The maximum number of characters of an elicitation id that is remembered."""
MAX_URLS = 16
"""The maximum number of URLs that one refusal may name, and of completed visits that are remembered."""

_decode_complete = msgspec.json.Decoder(t.ElicitationCompleteNotificationParams).decode


class MultiRoundStep:
    """Answers the server's questions, and sends the call again."""

    def __init__(self, handlers: InputHandlers, max_rounds: int, completions: URLCompletions) -> None:
        self._handlers = handlers
        self._max_rounds = max_rounds
        self._completions = completions

    def applies_to(self, row: Method) -> bool:
        """Return whether the method's result may ask for input, or the client has handlers.

        Any method may be refused until the user has visited a URL.
        """
        return row.name in MULTI_ROUND_METHODS or self._handlers.has_any

    async def __call__(self, call: Call, next: Next) -> Any:
        """Return the result of the call, after as many rounds as the server needs.

        Raises:
            InvalidResponse: the server asks too often, or for something that this client does not offer.
            RequestTimeout: the time is up.
        """
        try:
            result = await next(call)
        except RemoteError as error:
            if error.code != URLElicitationRequired.code or not await self._visit_urls(call, error):
                raise
            result = await next(call)
        if type(result) is not t.InputRequiredResult:
            return result
        for _ in range(self._max_rounds):
            answers: Any = UNSET
            if result.input_requests:
                answers = await answer_in_time(self._handlers, result.input_requests, call)
            params = msgspec.structs.replace(call.params, input_responses=answers, request_state=result.request_state)
            again = msgspec.structs.replace(call, params=params)
            try:
                result = await next(again)
            finally:  # progress may have restarted the deadline
                call.deadline, call.last_deadline, call.raw = again.deadline, again.last_deadline, again.raw
            if type(result) is not t.InputRequiredResult:
                return result
        raise InvalidResponse(f"The server still asks after {self._max_rounds} rounds of answers to one {call.method}.")

    async def _visit_urls(self, call: Call, error: RemoteError) -> bool:
        """Send the user to the URLs that a refusal names, and wait for the visits. Returns whether the user agreed."""
        visits = url_elicitations(error)
        async with _asking_user(self._handlers, call):
            if not await self._handlers.visit_urls(visits):
                return False
            await self._completions.wait((str(each.elicitation_id) for each in visits), call.timeout)
        return True


async def answer_in_time(handlers: InputHandlers, questions: t.InputRequests, call: Call) -> dict[str, Raw]:
    """Return the answers to the questions of a result, within `max_timeout` of the call.

    Raises:
        RequestTimeout: the answers took longer than `max_timeout`.
        InvalidResponse: the server asks for something that this client does not offer.
        ConnectionLost: the client was closed meanwhile.
    """
    async with _asking_user(handlers, call):
        return await handlers.answer_questions(questions)


@asynccontextmanager
async def _asking_user(handlers: InputHandlers, call: Call) -> AsyncGenerator[None]:
    """Do not count the time of the block towards the deadline of a call. The block itself ends at `max_timeout`.

    Raises:
        RequestTimeout: `max_timeout` is over.
        ConnectionLost: the client was closed meanwhile.
    """
    now = asyncio.get_running_loop().time
    begun = now()
    scope = asyncio.timeout_at(None if call.last_deadline == math.inf else call.last_deadline)
    handlers.waits.add(scope)
    try:
        async with scope:
            yield
    except TimeoutError:
        if not scope.expired():
            raise
        if scope not in handlers.waits:
            raise ConnectionLost("The client was closed before the server's questions were answered.") from None
        limit = f"{call.max_timeout:g} s"
        raise RequestTimeout(
            f"The server's questions were not answered, or its URLs were not visited, within {limit}."
        ) from None
    finally:
        handlers.waits.discard(scope)
        call.extend_deadline(now() - begun)


def url_elicitations(error: RemoteError) -> list[t.ElicitRequestParams]:
    """Return the questions with the URLs that a person must visit before the call is sent again.

    Returns an empty list if the error names no URLs, too many, or one that is invalid or has no id.
    """
    try:
        visits = msgspec.convert(error.data, t.URLElicitationRequiredData).elicitations
    except msgspec.ValidationError:
        return []
    valid = all(
        each.mode == "url"
        and isinstance(each.url, str)
        and isinstance(each.elicitation_id, str)  # the server reports the visit by its id
        and each.requested_schema is UNSET
        for each in visits
    )
    return visits if valid and len(visits) <= MAX_URLS else []


class URLCompletions:
    """The visits to URLs that the server has reported as complete (2025-11-25, elicitation)."""

    def __init__(self) -> None:
        self._completed: deque[str] = deque(maxlen=MAX_URLS)
        self._changed = asyncio.Event()

    def handle(self, message: Message) -> None:
        """Handle a `notifications/elicitation/complete`."""
        if isinstance(message.params, UnsetType):
            return
        try:
            id = _decode_complete(message.params).elicitation_id
        except msgspec.MsgspecError:
            return
        if len(id) <= MAX_ID_CHARACTERS:
            self._completed.append(id)
        self._changed.set()

    async def wait(self, ids: Iterable[str], seconds: float) -> None:
        """Return when all `ids` are complete, or after `seconds`; the call can be sent again in either case."""
        missing = set(ids)
        try:
            async with asyncio.timeout(None if seconds == math.inf else seconds):
                while missing := missing.difference(self._completed):
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            return
