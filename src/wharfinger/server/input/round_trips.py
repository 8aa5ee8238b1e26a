"""Asks a client for input while its call is served.

There are two ways, which look the same to a handler:

- If an answer can reach the handler while it runs, on the connection in the handshake era and by `tasks/update` for a
  task, the request for input is made at once, and the handler waits in place. Its timeouts pause during the wait.
- In the stateless era no request can be sent to the client, so the result itself is the request: `ask` raises
  `InputNeeded`, which ends the run. The client sends the call again with the answers, and the handler runs again from
  its first line; `ask` then returns each answer at once (see `request_state`), until a request has no answer yet.

`once` calls a function in the first run that reaches it. With `Server(replay=True)` the server uses the second way in
every era: in the handshake era it sends the requests on the connection after a run has stopped, and then calls the
handler again (`with_replay`).
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec import UNSET, Raw

from wharfinger import types as t
from wharfinger.errors import (
    Cancelled,
    Declined,
    MissingClientCapability,
    NoAnswer,
    RequestTimeout,
    URLElicitationRequired,
)
from wharfinger.protocol.jsonrpc import Message, encode_notification
from wharfinger.protocol.request import InputNeeded, Request, input_needed
from wharfinger.server.input.input_requests import ElicitUrl, InputQuery, InvalidAnswer
from wharfinger.server.input.request_state import CannotAsk, RequestState, digest_of, outermost, state_of
from wharfinger.transports.timeouts import pause_context

if TYPE_CHECKING:
    from wharfinger.protocol.interfaces import Handler
    from wharfinger.protocol.revisions import Revision
    from wharfinger.server.services import Services

__all__ = ["ask", "ask_and_resume", "complete_url", "once", "url_exception", "with_replay"]

ASKING_METHODS = frozenset(("tools/call", "prompts/get", "resources/read"))
"""The methods whose results may be input requests (2026-07-28, multi round-trip requests)."""
DECLINED_CODE = -1
"""The error code with which clients report that their user declined a sampling request (2025-11-25, sampling)."""
MAX_ELICITATION_SESSIONS = 10_000
"""The maximum number of URLs whose completion is still expected; the oldest is forgotten."""

_NO_CHANNEL = "This client cannot be asked: its connection does not carry requests to it."


class _PreparedQuery(NamedTuple):
    """An input request, ready to be sent."""

    key: str
    query: InputQuery
    params: Any
    digest: str
    own_key: bool
    """Whether the author chose the key."""


async def ask(services: Services, request: Request, queries: Sequence[tuple[str | None, InputQuery]]) -> list[Any]:
    """Ask for several inputs at once, each with the author's key or None; returns the answers in the same order.

    Raises:
        CannotAsk: the results of this method cannot be input requests.
        MissingClientCapability: the client does not support one of them; none was sent.
        Declined, Cancelled: the user refused an input without `or_none`; of several, the first is raised.
        NoAnswer: an answer is an error, is invalid, or did not come in time; or the client cannot be asked.
        InternalError: the call has asked too often, or its state is too large.
        InputNeeded: the run ends here; the client sends its request again with the answers.
    """
    root = outermost(request)
    if root.method not in ASKING_METHODS:
        raise CannotAsk(
            f"Only tools, prompts and resources may ask, and this serves {root.method}: "
            "ask in the tool, or let the client pass what is needed as an argument."
        )
    rules = request.caller.rules
    root.ttl_ms, root.cache_scope = 0, "private"  # a result that depends on answers must not be cached (2026-07-28)
    for _, query in queries:
        query.check(request.caller)
    state = state_of(services, request)
    prepared = [_prepare(state, key, query, rules) for key, query in queries]
    answers: dict[str, Any] = {}
    if rules.asks_by_result or state.replay:
        for item in prepared:
            answer = _earlier_answer(state, item)
            if answer is not UNSET:
                answers[item.key] = answer
    missing = [item for item in prepared if item.key not in answers]
    if missing:
        waits = None if state.replay else _send(request, [(item.query.method, item.params) for item in missing])
        if waits is None:
            if not (rules.asks_by_result or state.replay):
                raise NoAnswer(_NO_CHANNEL)
            raise state.stop({item.key: (item.digest, item.query.method, item.params) for item in missing})
        state.count_waits(len(missing))
        with pause_context():
            messages = await _wait_for_all(waits)
        answers |= {item.key: _read_message(item.query, found) for item, found in zip(missing, messages, strict=True)}
    return [_value_of(item.query, answers[item.key]) for item in prepared]


def _prepare(state: RequestState, key: str | None, query: InputQuery, rules: Revision) -> _PreparedQuery:
    params = query.params(rules)
    name = state.next_key(key, query.key_prefix)
    return _PreparedQuery(name, query, params, digest_of(query.method, params), key is not None)


def _earlier_answer(state: RequestState, prepared: _PreparedQuery) -> Any:
    """Return the value of an earlier answer, or the error to raise for it; UNSET if there is no valid answer."""
    try:
        raw = state.answer(prepared.key, prepared.digest, prepared.own_key)
    except NoAnswer as failure:
        return failure
    if raw is None:
        return UNSET
    try:
        answer = _read_answer(prepared.query, raw)
    except InvalidAnswer:
        return UNSET
    state.keep(prepared.key, prepared.digest, raw)
    return answer


def _read_answer(query: InputQuery, raw: Raw | bytes) -> Any:
    """Return the value of an answer; a refusal is returned, because it must not stop the other queries."""
    try:
        return query.read(raw)
    except (Declined, Cancelled) as refusal:
        return refusal


def _value_of(query: InputQuery, answer: Any) -> Any:
    if isinstance(answer, NoAnswer):
        if query.or_none and isinstance(answer, (Declined, Cancelled)):
            return None
        raise answer
    return answer


# --- waiting in place -------------------------------------------------------------------------------------------------


def _send(request: Request, requests: Sequence[tuple[str, Any]]) -> list[Awaitable[Message]] | None:
    """Send each `(method, params)`, and return an awaitable for each answer; None if the channel cannot ask."""
    waits: list[Awaitable[Message]] = []
    for method, params in requests:
        wait = request.channel.ask(request, method, params)
        if wait is None:  # can only happen for the first, since all use the same channel
            return None
        waits.append(wait)
    return waits


async def _wait_for_all(waits: Sequence[Awaitable[Message]]) -> list[Message | NoAnswer]:
    """Wait for every answer; NoAnswer stands for an answer that came too late. Any other failure cancels the rest."""

    async def wait_for(wait: Awaitable[Message]) -> Message | NoAnswer:
        try:
            return await wait
        except RequestTimeout as late:
            return NoAnswer(str(late))

    if len(waits) == 1:
        return [await wait_for(waits[0])]
    tasks = [asyncio.ensure_future(wait_for(wait)) for wait in waits]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        for wait in waits:  # a task that is cancelled before its first step never awaits its coroutine
            if inspect.iscoroutine(wait) and inspect.getcoroutinestate(wait) == inspect.CORO_CREATED:
                wait.close()


def _read_message(query: InputQuery, answer: Message | NoAnswer) -> Any:
    """Return the value of an answer, or the refusal or error to raise for it."""
    if isinstance(answer, NoAnswer):
        return answer
    if answer.error is not UNSET:
        return error_answer(answer.error)
    try:
        return _read_answer(query, b"" if answer.result is UNSET else answer.result)
    except InvalidAnswer as error:
        return NoAnswer(f"The client's answer is not what was asked for: {error}")


def error_answer(raw: Raw | bytes) -> NoAnswer:
    """Return the exception to raise for a client's JSON-RPC error."""
    try:
        error = msgspec.json.decode(raw, type=t.ErrorObject)
    except msgspec.MsgspecError:
        return NoAnswer("The client answered with a malformed error.")
    if error.code == DECLINED_CODE:
        return Declined(f"The client declined: {error.message}")
    return NoAnswer(f"The client answered with an error: {error.message} (error {error.code})")


# --- running again ----------------------------------------------------------------------------------------------------


def with_replay(services: Services, handler: Handler) -> Handler:
    """Return a handler that runs again with the answers in the handshake era too, for `Server(replay=True)`."""

    async def replay(request: Request) -> Any:
        while True:
            # Create the state here, so that a mounted server uses the replay setting of the outer server.
            state_of(services, request)
            try:
                return await handler(request)
            except BaseException as error:
                stop = input_needed(error)
                if stop is None or request.caller.rules.asks_by_result:
                    raise
            await ask_and_resume(services, request, stop)

    return replay


async def ask_and_resume(services: Services, request: Request, stop: InputNeeded) -> None:
    """Send the requests that stopped a run on the connection, and put the answers into the state for the next run.

    Raises:
        NoAnswer: the connection does not carry requests to the client.
    """
    result: t.InputRequiredResult = stop.result
    requests: Any = result.input_requests
    waits = _send(request, [(each.__struct_config__.tag, each.params) for each in requests.values()])
    if waits is None:
        raise NoAnswer(_NO_CHANNEL)
    earlier, root = state_of(services, request), outermost(request)
    state = root.input_state = RequestState(services, root, resumed=False)  # the state in the request itself is older
    state.replay = earlier.replay
    state.failures = dict(earlier.failures)
    responses: dict[str, Raw] = {}
    for key, answer in zip(requests, await _wait_for_all(waits), strict=True):
        if isinstance(answer, NoAnswer):
            state.failures[key] = answer
        elif answer.error is not UNSET:
            state.failures[key] = error_answer(answer.error)
        elif answer.result is not UNSET:
            responses[key] = answer.result
    state.resume(result.request_state, responses)


async def once(services: Services, request: Request, key: str, function: Callable[[], Any], kind: Any) -> Any:
    """Call `function` in the first run that gets here, and return its result in every run.

    Raises:
        TypeError: JSON cannot express the result.
    """
    state = state_of(services, request)
    # The handler of a resource that this call reads has keys of its own.
    name = key if outermost(request) is request else f"{request.params.uri} {key}"
    while (running := state.once_running.get(name)) is not None:
        await asyncio.wait((running,))
    raw = state.recall(name)
    if raw is None:
        future = state.once_running[name] = asyncio.get_running_loop().create_future()
        logged = state.logged
        try:
            value = function()
            if inspect.isawaitable(value):
                value = await value
            raw = _encode_result(key, value)
            state.keep_once(name, raw, state.logged - logged)
        finally:
            del state.once_running[name]
            future.set_result(None)
    if kind is None:
        from wharfinger.server.signature.annotations import annotations_of  # on use: it imports much

        kind = annotations_of(function).get("return", Any)
    return _decode_result(raw, kind)


def _encode_result(key: str, value: Any) -> Raw:
    from wharfinger.server.features.tool_results import to_wire  # on use

    try:
        return Raw(to_wire(value))
    except (TypeError, ValueError, RecursionError) as error:
        raise TypeError(f"The result of once({key!r}, …) must be encodable as JSON: {error}") from None


def _decode_result(raw: Raw, kind: Any) -> Any:
    from wharfinger.server.signature.type_schemas import from_json  # on use

    try:
        if hasattr(kind, "model_validate_json"):
            return kind.model_validate_json(bytes(raw))
        return msgspec.json.decode(raw, type=kind, dec_hook=from_json)
    except (TypeError, ValueError, NotImplementedError):  # pydantic's errors are of type ValueError
        if kind is Any:
            raise
        return msgspec.json.decode(raw)  # JSON cannot be converted to this type


# --- URLs -------------------------------------------------------------------------------------------------------------


def url_exception(services: Services, request: Request, error: URLElicitationRequired) -> BaseException:
    """Return the exception for a handler whose user must open a URL first; it depends on the client's revision."""
    rules = request.caller.rules
    query = ElicitUrl(error.message, error.url, elicitation_id=error.elicitation_id)
    try:
        query.check(request.caller)
        if rules.url_required:
            if error.elicitation_id is None:
                from secrets import token_hex  # on use

                error = URLElicitationRequired(error.message, error.url, elicitation_id=token_hex(16))
            remember_url(services, request, error.elicitation_id)
            return error
        root = outermost(request)
        if root.method not in ASKING_METHODS:
            return CannotAsk(f"{root.method} cannot ask for a URL to be opened.")
        state = state_of(services, request)
        prepared = _prepare(state, None, query, rules)
        answer = _earlier_answer(state, prepared)
        if isinstance(answer, NoAnswer):
            return answer
        state.drop(prepared.key)  # the user agreed to open the URL, and it is still required
        return state.stop({prepared.key: (prepared.digest, query.method, prepared.params)})
    except MissingClientCapability as missing:
        return missing


def remember_url(services: Services, request: Request, id: str | None) -> None:
    """Remember the session to notify when the user has finished at this URL. Without an id or a session, do nothing."""
    if id is None or request.session is None:
        return
    sessions = services.elicitation_sessions
    while len(sessions) >= MAX_ELICITATION_SESSIONS:
        sessions.pop(next(iter(sessions)), None)
    sessions[id] = request.session


def complete_url(services: Services, id: str) -> bool:
    """Notify the client that its user has finished at a URL. Returns False if no session waits for that any more."""
    session = services.elicitation_sessions.pop(id, None)
    params = t.ElicitationCompleteNotificationParams(elicitation_id=id)
    return session is not None and session.send(encode_notification("notifications/elicitation/complete", params))
