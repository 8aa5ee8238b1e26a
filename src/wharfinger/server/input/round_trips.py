"""Asking a client while its call is served: waits in place where an answer can come, else the call runs again."""

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
    from wharfinger.server.services import Services

__all__ = ["ask", "ask_and_resume", "complete_url", "once", "required_url", "with_replay"]

ASKING_METHODS = frozenset(("tools/call", "prompts/get", "resources/read"))
"""The methods whose results may be questions (2026-07-28, multi round-trip requests)."""
DECLINED_CODE = -1
"""The code by which clients say that their user wants no model to be asked (2025-11-25, sampling)."""


_NO_WAY = "This client cannot be asked: its connection takes no questions."


class _Open(NamedTuple):
    """A question with everything that is needed to put it."""

    key: str
    question: InputQuery
    params: Any
    digest: str
    chosen: bool


async def ask(services: Services, request: Request, questions: Sequence[tuple[str | None, InputQuery]]) -> list[Any]:
    """The answers, in the order of the questions, which are put at once; a key is the author's, or None.

    Raises:
        CannotAsk: this method's results can be no questions.
        MissingClientCapability: the client cannot be asked one of them; none was put then.
        Declined, Cancelled: of the first that was refused, unless it is one with `or_none`.
        NoAnswer: an answer is an error, or does not fit, or does not come.
        InputNeeded: the run ends here; the client sends its request again with the answers.
    """
    root = outermost(request)
    if root.method not in ASKING_METHODS:
        raise CannotAsk(
            f"Only tools, prompts and resources may ask, and this serves {root.method}: "
            "ask in the tool, or let the client pass what is needed as an argument."
        )
    rules = request.caller.rules
    root.ttl_ms, root.cache_scope = 0, "private"  # what comes of answers is not for keeping (2026-07-28, caching)
    for _, question in questions:
        question.check(request.caller)
    transcript = state_of(services, request)
    put = [_opened(transcript, key, question, rules) for key, question in questions]
    answers: dict[str, Any] = {}
    for one in put:
        found = _remembered(transcript, one) if rules.asks_by_result or transcript.replay else UNSET
        if found is not UNSET:
            answers[one.key] = found
    missing = [one for one in put if one.key not in answers]
    if missing:
        waits = None if transcript.replay else _waits(request, missing)
        if waits is None:
            if not (rules.asks_by_result or transcript.replay):
                raise NoAnswer(_NO_WAY)
            raise transcript.stop({one.key: (one.digest, one.question.method, one.params) for one in missing})
        transcript.wait_for(len(missing))
        with pause_context():
            came = await _together(waits)
        answers |= {one.key: _meant(one.question, found) for one, found in zip(missing, came, strict=True)}
    return [_value(one.question, answers[one.key]) for one in put]


def _opened(transcript: RequestState, key: str | None, question: InputQuery, rules: Any) -> _Open:
    params = question.params(rules)
    name = transcript.name(key, question.word)
    return _Open(name, question, params, digest_of(question.method, params), key is not None)


def _remembered(transcript: RequestState, one: _Open) -> Any:
    """What an earlier answer means, a refusal too; UNSET where the question is open, or was answered badly."""
    try:
        raw = transcript.answer(one.key, one.digest, one.chosen)
    except NoAnswer as failure:
        return failure
    if raw is None:
        return UNSET
    try:
        found = _read(one.question, raw)
    except InvalidAnswer:
        return UNSET
    transcript.keep(one.key, one.digest, raw)
    return found


def _read(question: InputQuery, raw: Raw | bytes) -> Any:
    """What an answer means; a refusal is returned, since others may be asked beside it."""
    try:
        return question.read(raw)
    except (Declined, Cancelled) as refusal:
        return refusal


def _value(question: InputQuery, found: Any) -> Any:
    if isinstance(found, NoAnswer):
        if question.or_none and isinstance(found, (Declined, Cancelled)):
            return None
        raise found
    return found


# --- waiting in place -------------------------------------------------------------------------------------------------


def _waits(request: Request, missing: Sequence[_Open]) -> list[Awaitable[Message]] | None:
    """One wait for each question; None where no answer can come while the call goes on."""
    waits: list[Awaitable[Message]] = []
    for one in missing:
        wait = request.channel.ask(request, one.question.method, one.params)
        if wait is None:  # for the first, then: the channel is the same
            return None
        waits.append(wait)
    return waits


async def _together(waits: Sequence[Awaitable[Message]]) -> list[Message | NoAnswer]:
    """All of them; where one fails, the other questions are withdrawn."""
    if len(waits) == 1:
        return [await _message(waits[0])]
    tasks = [asyncio.ensure_future(_message(wait)) for wait in waits]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        for wait in waits:  # what is cancelled in the turn that it begins in never comes to wait
            if inspect.iscoroutine(wait) and inspect.getcoroutinestate(wait) == inspect.CORO_CREATED:
                wait.close()


async def _message(wait: Awaitable[Message]) -> Message | NoAnswer:
    try:
        return await wait
    except RequestTimeout as late:
        return NoAnswer(str(late))


def _meant(question: InputQuery, found: Message | NoAnswer) -> Any:
    """What an answer means, refusals included."""
    if isinstance(found, NoAnswer):
        return found
    if found.error is not UNSET:
        return error_answer(found.error)
    try:
        return _read(question, b"" if found.result is UNSET else found.result)
    except InvalidAnswer as misfit:
        return NoAnswer(f"The client's answer is not what was asked for: {misfit}")


def error_answer(raw: Raw | bytes) -> NoAnswer:
    """What it means that a client answers a question with an error."""
    try:
        error = msgspec.json.decode(raw, type=t.ErrorObject)
    except msgspec.MsgspecError:
        return NoAnswer("The client answered with an error that cannot be read.")
    if error.code == DECLINED_CODE:
        return Declined(f"The client declined: {error.message}")
    return NoAnswer(f"The client answered with an error: {error.message} (error {error.code})")


# --- running again ----------------------------------------------------------------------------------------------------


def with_replay(services: Services, handler: Handler) -> Handler:
    """A handler that runs again with the answers wherever it asks, in the handshake era too (`Server(replay=True)`)."""

    async def rerun(request: Request) -> Any:
        while True:
            state_of(services, request)  # which parts of this server find, whatever they say themselves
            try:
                return await handler(request)
            except BaseException as error:
                stop = input_needed(error)
                if stop is None or request.caller.rules.asks_by_result:
                    raise
            await ask_and_resume(services, request, stop)

    return rerun


async def ask_and_resume(services: Services, request: Request, stop: InputNeeded) -> None:
    """Put the questions of a run, and prepare the next one."""
    result: t.InputRequiredResult = stop.result
    asked: Any = result.input_requests
    waits = [
        wait
        for one in asked.values()
        if (wait := request.channel.ask(request, one.__struct_config__.tag, one.params)) is not None
    ]
    if len(waits) < len(asked):
        raise NoAnswer(_NO_WAY)
    earlier = state_of(services, request)
    root = outermost(request)
    transcript = root.asked = RequestState(services, root, resumed=False)
    transcript.replay = earlier.replay
    transcript.failures = dict(earlier.failures)
    answers: dict[str, Raw] = {}
    for key, found in zip(asked, await _together(waits), strict=True):
        if isinstance(found, NoAnswer):
            transcript.failures[key] = found
        elif found.error is not UNSET:
            transcript.failures[key] = error_answer(found.error)
        elif found.result is not UNSET:
            answers[key] = found.result
    transcript.resume(result.request_state, answers)


async def once(services: Services, request: Request, key: str, function: Callable[[], Any], kind: Any) -> Any:
    """What `function` returned in the first run that came here; later ones do not call it.

    Raises:
        TypeError: what it returned has no form in JSON.
    """
    transcript = state_of(services, request)
    name = key if outermost(request) is request else f"{request.params.uri} {key}"
    while (busy := transcript.running.get(name)) is not None:
        await asyncio.wait((busy,))
    raw = transcript.recall(name)
    if raw is None:
        done = transcript.running[name] = asyncio.get_running_loop().create_future()
        said = transcript.said
        try:
            value = function()
            if inspect.isawaitable(value):
                value = await value
            raw = _encoded(key, value)
            transcript.kept[name] = (raw, transcript.said - said)
        finally:
            del transcript.running[name]
            done.set_result(None)
        transcript.refresh()
    return _decoded(raw, _returned(function) if kind is None else kind)


def _encoded(key: str, value: Any) -> Raw:
    if hasattr(value, "model_dump_json"):  # pydantic, which is never imported here
        return Raw(value.model_dump_json().encode())
    try:
        return Raw(msgspec.json.encode(value))
    except (TypeError, ValueError) as error:
        raise TypeError(f"What once({key!r}, …) keeps must have a form in JSON: {error}") from None


def _returned(function: Callable[..., Any]) -> Any:
    from wharfinger.server.signature.annotations import annotations_of  # which needs much else

    return annotations_of(function).get("return", Any)


def _decoded(raw: Raw, kind: Any) -> Any:
    if hasattr(kind, "model_validate_json"):
        return kind.model_validate_json(bytes(raw))
    try:
        return msgspec.json.decode(raw, type=kind)
    except (TypeError, msgspec.ValidationError):
        if kind is Any:
            raise
        return msgspec.json.decode(raw)  # an annotation that says more than JSON can


# --- URLs -------------------------------------------------------------------------------------------------------------

MAX_OPEN_URLS = 10_000


def required_url(services: Services, request: Request, error: URLElicitationRequired) -> BaseException:
    """What to raise where an author says that the user must open a URL first: it depends on the revision."""
    rules = request.caller.rules
    question = ElicitUrl(error.message, error.url, elicitation_id=error.elicitation_id)
    try:
        question.check(request.caller)
        if rules.url_required:
            if error.elicitation_id is None:
                from secrets import token_hex  # on use

                error = URLElicitationRequired(error.message, error.url, elicitation_id=token_hex(16))
            remember_url(services, request, error.elicitation_id)
            return error
        if outermost(request).method not in ASKING_METHODS:
            return CannotAsk(f"{outermost(request).method} cannot ask for a URL to be opened.")
        transcript = state_of(services, request)
        one = _opened(transcript, None, question, rules)
        found = _remembered(transcript, one)
        if isinstance(found, NoAnswer):
            return found
        transcript.drop(one.key)  # they went there, and it is still required
        return transcript.stop({one.key: (one.digest, question.method, one.params)})
    except MissingClientCapability as lacking:
        return lacking


def remember_url(services: Services, request: Request, id: str | None) -> None:
    """Keep whom to tell when what a URL is for is done, where the revision has a notification for it."""
    if id is None or request.session is None:
        return
    urls = services.open_urls
    while len(urls) >= MAX_OPEN_URLS:
        urls.pop(next(iter(urls)), None)
    urls[id] = request.session


def complete_url(services: Services, id: str) -> bool:
    """Tell the client that what a URL was for is done; False where it does not wait for it, or cannot be told."""
    session = services.open_urls.pop(id, None)
    params = t.ElicitationCompleteNotificationParams(elicitation_id=id)
    return session is not None and session.send(encode_notification("notifications/elicitation/complete", params))
