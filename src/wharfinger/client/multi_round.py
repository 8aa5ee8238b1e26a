"""Results that are not yet the answer: a server's questions, sent back with the same call, or a task that is polled."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import msgspec
from msgspec import UNSET, Raw, UnsetType

from wharfinger import types as t
from wharfinger.client.calls import Budget
from wharfinger.client.input_handlers import Answering
from wharfinger.errors import InvalidResponse, RemoteError, RequestTimeout, URLElicitationRequired, remote_error
from wharfinger.protocol.jsonrpc import Message
from wharfinger.protocol.methods import METHODS, Method
from wharfinger.protocol.request import open_result
from wharfinger.types.task_extension import TaskParams, TaskStarted, TaskUpdateParams

__all__ = ["CANCELLED", "Arrivals", "drive_task", "open_any", "pause", "perform", "urls_wanted"]

Send = Callable[[Method, Any], Awaitable[Raw]]
"""Sends one request and returns its result, encoded."""

ASKABLE = frozenset(("tools/call", "prompts/get", "resources/read"))
"""Methods whose result may be questions (2026-07-28, MRTR)."""
TASKED = frozenset(("tools/call",))
"""Methods whose result may be a task."""
POLL, POLL_LEAST, POLL_MOST = 1.0, 0.05, 60.0
"""Seconds between questions after a task: unless the server names them, the least and the most."""
MOST_ANSWERED = 1000
"""Questions of one task; no honest server has more."""

LONGEST_ID = 4096
"""Characters of the id of an errand at a URL that is remembered."""
MOST_URLS = 16
"""URLs that one refusal names, and completions that are remembered before anybody waits for them."""

_GET, _UPDATE = METHODS["tasks/get"], METHODS["tasks/update"]


class _Kind(msgspec.Struct, gc=False):
    kind: str | UnsetType = msgspec.field(name="resultType", default=UNSET)


_decode_kind = msgspec.json.Decoder(_Kind).decode
_decode_questions = msgspec.json.Decoder(t.InputRequiredResult).decode
_decode_complete = msgspec.json.Decoder(t.ElicitationCompleteNotificationParams).decode
_decode_started = msgspec.json.Decoder(TaskStarted).decode

_WITH_UNKNOWN_CONTENT: dict[str, Callable[[Raw], Any]] = {
    "tools/call": t.decode_call_tool_result,
    "prompts/get": t.decode_get_prompt_result,
}
"""How to read what strict decoding refuses: perhaps it is a block of a type that nobody knew when this was written."""


def open_any(row: Method, raw: Raw, *, stateless: bool = True, tasks: bool = False) -> Any:
    """Decode a result: the method's own, or in the stateless era an InputRequiredResult or a TaskStarted.

    Raises:
        InvalidResponse: it has not the shape of what it says it is, or says it is something unknown.
    """
    try:
        return open_result(row, raw)
    except InvalidResponse as error:
        failure = error
    kind = _kind_of(raw)
    try:
        if stateless and kind == "input_required" and row.name in ASKABLE:
            return _checked(_decode_questions(raw))
        if stateless and tasks and kind == "task" and row.name in TASKED:
            return _decode_started(raw)
        decode = _WITH_UNKNOWN_CONTENT.get(row.name)
        if decode is not None and kind in (UNSET, "complete"):
            return decode(raw)
    except msgspec.MsgspecError as error:
        if kind in (UNSET, "complete"):
            raise failure from None
        raise InvalidResponse(f"The server's answer to {row.name} is no {kind}: {error}") from None
    if kind not in (UNSET, "complete"):
        raise InvalidResponse(f"The server's answer to {row.name} has a resultType that is not expected: {kind!r}.")
    raise failure


def _kind_of(raw: Raw) -> str | UnsetType:
    try:
        return _decode_kind(raw).kind
    except msgspec.MsgspecError:
        return UNSET


def _checked(questions: t.InputRequiredResult) -> t.InputRequiredResult:
    if not questions.input_requests and questions.request_state is UNSET:
        raise InvalidResponse("The server wants input, but asks nothing and gives no state to come back with.")
    return questions


async def perform(
    row: Method,
    params: Any,
    first: Any,
    answering: Answering,
    budget: Budget,
    rounds: int,
    again: Callable[[Any], Awaitable[tuple[Raw, Any]]],
) -> Any:
    """Go from the first result to the last: answer what is asked, and send the same call again with the answers.

    `again` sends params, and gives the result as it came and decoded. The answers and the state go with this call only
    (2026-07-28, MRTR).

    Raises:
        InvalidResponse: there is no end to it, or the server asks what this client does not offer.
    """
    result = first
    for _ in range(rounds):
        if not isinstance(result, t.InputRequiredResult):
            return result
        answers: Any = UNSET
        if result.input_requests:
            answers = await _answers(result.input_requests, answering, budget)
        _, result = await again(
            msgspec.structs.replace(params, input_responses=answers, request_state=result.request_state)
        )
    if isinstance(result, t.InputRequiredResult):
        raise InvalidResponse(f"The server still asks after {rounds} rounds of answers to one {row.name}.")
    return result


async def _answers(questions: t.InputRequests, answering: Answering, budget: Budget) -> dict[str, Raw]:
    """Answers, in time that does not count but for the call's hard maximum."""
    begun = asyncio.get_running_loop().time()
    scope = asyncio.timeout_at(None if budget.hard == math.inf else budget.hard)
    try:
        async with scope:
            return await answering.fulfil(questions)
    except TimeoutError:
        if not scope.expired():
            raise
        raise RequestTimeout(f"The server's questions were not answered within {budget.most:g} s.") from None
    finally:
        budget.give_back(begun)


def urls_wanted(error: RemoteError) -> list[t.ElicitRequestParams]:
    """What a refusal asks the user to do at URLs before the call is made again; nothing for any other error."""
    if error.code != URLElicitationRequired.code:
        return []
    try:
        wanted = msgspec.convert(error.data, t.URLElicitationRequiredData).elicitations
    except msgspec.ValidationError:
        return []
    return wanted if len(wanted) <= MOST_URLS else []


class Arrivals:
    """Which errands at URLs are done, as the server tells (2025-11-25, elicitation)."""

    def __init__(self) -> None:
        self._done: deque[str] = deque(maxlen=MOST_URLS)
        self._told = asyncio.Event()

    def tell(self, message: Message) -> None:
        """Take a `notifications/elicitation/complete`."""
        if isinstance(message.params, UnsetType):
            return
        try:
            id = _decode_complete(message.params).elicitation_id
            if len(id) <= LONGEST_ID:
                self._done.append(id)
        except msgspec.MsgspecError:
            return
        self._told.set()

    async def wait(self, ids: Iterable[str], seconds: float) -> None:
        """Return when all of these are done, or after so long: then the server may be asked anyway."""
        missing = set(ids)
        try:
            async with asyncio.timeout(None if seconds == math.inf else seconds):
                while missing := missing.difference(self._done):
                    self._told.clear()
                    await self._told.wait()
        except TimeoutError:
            return


async def drive_task(row: Method, task: TaskStarted, answering: Answering, budget: Budget, send: Send) -> Any:
    """Wait for a task: poll it as often as its server wants, answer what it asks, and give its result.

    Raises:
        InvalidResponse: what the server says of the task breaks the protocol.
        RemoteError: the task failed, or was cancelled at the server.
    """
    state: Any = task
    answered: set[str] = set()
    params = TaskParams(task_id=task.task_id)
    while True:
        if state.status == "completed":
            return _result_of(row, state)
        if state.status == "failed":
            raise _failure_of(state)
        if state.status == "cancelled":
            raise RemoteError(CANCELLED, f"The server cancelled the task of this {row.name}.")
        if state.status == "input_required":
            await _answer(state, answered, answering, budget, send)
        if state is not task or state.status == "working":
            await asyncio.sleep(pause(state.poll_interval_ms, budget))
        raw = await send(_GET, params)
        state = open_result(_GET, raw)
        if state.task_id != task.task_id:
            raise InvalidResponse("The server told of another task than the one it was asked for.")


CANCELLED = -32603
"""The code of the error for a task that the server cancelled; the protocol has none."""


def pause(named: int | UnsetType, budget: Budget) -> float:
    """Seconds before the next question after a task, whose server names milliseconds."""
    wait = POLL if isinstance(named, UnsetType) else named / 1000
    left = budget.left()
    wait = min(max(wait, POLL_LEAST), POLL_MOST)
    return wait if left is None else min(wait, left)


def _result_of(row: Method, state: Any) -> Any:
    raw = getattr(state, "result", UNSET)
    if isinstance(raw, UnsetType):
        raise InvalidResponse("The server says that a task is complete, and gives no result.")
    return open_any(row, raw, stateless=False)


def _failure_of(state: Any) -> RemoteError:
    error = getattr(state, "error", UNSET)
    if isinstance(error, UnsetType):
        text = state.status_message
        return RemoteError(CANCELLED, "The task failed." if isinstance(text, UnsetType) else text)
    return remote_error(error.code, error.message, None if error.data is UNSET else error.data)


async def _answer(state: Any, answered: set[str], answering: Answering, budget: Budget, send: Send) -> None:
    """Answer the questions that were not answered yet: a key is never used twice (spec: §2.19)."""
    asked = getattr(state, "input_requests", UNSET)
    new = {} if isinstance(asked, UnsetType) else {key: value for key, value in asked.items() if key not in answered}
    if not new:
        return
    answered.update(new)
    if len(answered) > MOST_ANSWERED:
        raise InvalidResponse(f"The server's task asks more than {MOST_ANSWERED} questions.")
    answers = await _answers(new, answering, budget)
    await send(_UPDATE, TaskUpdateParams(task_id=state.task_id, input_responses=answers))
