"""Answers a server's requests for input with the handlers that the client's author provides.

Up to 2025-11-25 a server sends requests; in 2026-07-28 it puts its questions into the result of a call. The same
handlers answer both. Only the handlers show anything to the user.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, cast

import msgspec
from msgspec import UNSET, Raw, UnsetType

from wharfinger import types as t
from wharfinger.errors import (
    Cancelled,
    Declined,
    InternalError,
    InvalidParams,
    InvalidResponse,
    MethodNotFound,
    ProtocolError,
)
from wharfinger.protocol.jsonrpc import Message, encode
from wharfinger.protocol.methods import METHODS
from wharfinger.transports.timeouts import PausableTimeout

__all__ = ["Consent", "Elicit", "InputHandlers", "Roots", "Sample", "sampling_result"]

Elicit = Callable[[t.ElicitRequestParams], Awaitable[Any]]
"""Shows a form. Returns the fields (a value that encodes to an object), `"decline"`, `"cancel"`, or an ElicitResult.

It may also raise `Declined` or `Cancelled`.
"""

Consent = Callable[[t.ElicitRequestParams], Awaitable[Any]]
"""Shows the whole URL to the user and asks before opening it.

Returns True if the user opened it; otherwise False, `"decline"` or `"cancel"`. It may also return an ElicitResult, or
raise `Declined` or `Cancelled`.
"""

Sample = Callable[[t.CreateMessageRequestParams], Awaitable[str | t.CreateMessageResult]]
"""Asks a model. Returns its text, or the whole result. Raises `Declined` or `Cancelled` if the user refuses."""

RootLike = str | os.PathLike[str] | t.Root
Roots = Sequence[RootLike] | Callable[[], Awaitable[Sequence[RootLike]]]
"""Folders and files in which the user works: paths, `file:` URIs, or an async function that returns them."""

MAX_QUESTIONS = 64
"""The maximum number of questions in one result."""
REJECTED_CODE = -1
"""The code for a sampling request that the user refused (2025-11-25, sampling: error handling)."""
ANONYMOUS_MODEL = "unnamed"


class InputHandlers:
    """The handlers of one client, and the capabilities that it declares for them."""

    def __init__(
        self,
        *,
        elicitation: Elicit | None = None,
        consent: Consent | None = None,
        sampling: Sample | None = None,
        sampling_tools: bool = False,
        roots: Roots | None = None,
    ) -> None:
        """Check the handlers.

        Raises:
            TypeError: a handler cannot be called; `roots` is neither a function nor a sequence, or is a single path; or
                `sampling_tools` is given without `sampling`.
        """
        for name, handler in (("elicitation", elicitation), ("consent", consent), ("sampling", sampling)):
            if handler is not None and not callable(handler):
                raise TypeError(f"{name} must be an async function, not {type(handler).__name__}.")
        if isinstance(roots, str | os.PathLike) or not (
            roots is None or callable(roots) or isinstance(roots, Sequence)
        ):
            raise TypeError("roots must be a list of paths or file: URIs, or an async function that returns one.")
        if sampling_tools and sampling is None:
            raise TypeError("sampling_tools is about the sampling handler: pass sampling= too.")
        self._elicitation, self._consent = elicitation, consent
        self._sampling, self._sampling_tools = sampling, sampling_tools
        self._roots = roots
        self._open_questions = 0
        self._timeouts: set[PausableTimeout] = set()
        self.waits: set[asyncio.Timeout] = set()
        """The scopes in which calls wait for the user."""
        self._by_method: dict[str, Callable[[Any], Awaitable[Any]]] = {}
        if elicitation is not None or consent is not None:
            self._by_method["elicitation/create"] = self._elicit
        if sampling is not None:
            self._by_method["sampling/createMessage"] = self._sample
        if roots is not None:
            self._by_method["roots/list"] = self._list_roots

    @property
    def capabilities(self) -> t.ClientCapabilities:
        """The capabilities that the client declares for its handlers."""
        declared = t.ClientCapabilities()
        if self._elicitation is not None or self._consent is not None:
            declared.elicitation = t.ElicitationCapability(
                form={} if self._elicitation is not None else UNSET, url={} if self._consent is not None else UNSET
            )
        if self._sampling is not None:
            declared.sampling = t.SamplingCapability(tools={} if self._sampling_tools else UNSET)
        if self._roots is not None:
            declared.roots = t.RootsCapability(list_changed=True)
        return declared

    @property
    def has_any(self) -> bool:
        """Whether there is any handler."""
        return bool(self._by_method)

    # Requests (handshake era).

    async def answer_request(self, message: Message) -> Any:
        """Answer a request of the server. Returns the result.

        Raises:
            ProtocolError: the error to send instead of a result.
            Exception: what a handler raises, except Declined and Cancelled.
        """
        method = message.method if isinstance(message.method, str) else ""
        handle = self._by_method.get(method)
        if handle is None:
            raise MethodNotFound(f"This client declares no capability for {method[:64]!r}.")
        try:
            params = METHODS[method].decode_params(b"{}" if isinstance(message.params, UnsetType) else message.params)
        except msgspec.MsgspecError as error:
            raise InvalidParams(f"Invalid params: {error}") from None
        try:
            with self._asking():
                return _with_related_task(await handle(params), params.meta)
        except ProtocolError as error:
            if error.remote:  # it came from another server and must not be passed on
                raise InternalError("This client failed to answer.") from error
            raise

    # Questions in a result (stateless era).

    async def answer_questions(self, questions: Mapping[str, t.InputRequest]) -> dict[str, Raw]:
        """Answer the questions of one result in order. Returns the answers by the same keys.

        Raises:
            InvalidResponse: the server asks too many questions, asks for something that the client did not declare, or
                asks in an invalid way.
            ProtocolError: the user refused a sampling request.
            Exception: what a handler raises, except Declined and Cancelled.
        """
        if len(questions) > MAX_QUESTIONS:
            raise InvalidResponse(f"The server asks {len(questions)} questions at once; {MAX_QUESTIONS} are allowed.")
        answers: dict[str, Raw] = {}
        for key, question in questions.items():
            method = cast("str", question.__struct_config__.tag)
            handle = self._by_method.get(method)
            if handle is None:
                raise InvalidResponse(f"The server asks {method}, for which this client declared no capability.")
            try:
                with self._asking():
                    answers[key] = Raw(encode(await handle(question.params)))
            except (InvalidParams, MethodNotFound) as error:
                if error.remote:
                    raise
                raise InvalidResponse(f"The server asks {method} in an invalid way: {error}") from None
        return answers

    async def visit_urls(self, visits: Sequence[t.ElicitRequestParams]) -> bool:
        """Ask the user to open these URLs, one after the other. Returns whether all were opened.

        No other URL is asked for after one that the user did not open. Returns False also if there is no URL, or no
        handler to ask.

        Raises:
            InvalidParams: the server asks in an invalid way.
            Exception: what the handler raises, except Declined and Cancelled.
        """
        if self._consent is None or not visits:
            return False
        for visit in visits:
            with self._asking():
                if (await self._elicit(visit)).action != "accept":
                    return False
        return True

    @contextmanager
    def pausing(self, timeout: PausableTimeout) -> Generator[None]:
        """Pause a timeout whenever a question is open, until the `with` block ends."""
        self._timeouts.add(timeout)
        if self._open_questions:
            timeout.pause()
        try:
            yield
        finally:
            self._timeouts.discard(timeout)

    def end_waits(self) -> None:
        """End the scopes in `waits`, because the client was closed."""
        waits, self.waits = self.waits, set()
        for wait in waits:
            if not wait.expired():
                wait.reschedule(0.0)

    @contextmanager
    def _asking(self) -> Generator[None]:
        """Pause the timeouts while a question is open."""
        self._open_questions += 1
        if self._open_questions == 1:
            for timeout in self._timeouts:
                timeout.pause()
        try:
            yield
        finally:
            self._open_questions -= 1
            if not self._open_questions:
                for timeout in self._timeouts:
                    timeout.resume()

    # Elicitation.

    async def _elicit(self, question: t.ElicitRequestParams) -> t.ElicitResult:
        try:
            t.check_elicitation(question)
        except ValueError as error:
            raise InvalidParams(str(error)) from None
        by_url = question.mode == "url"
        handler = self._consent if by_url else self._elicitation
        if handler is None:
            # The method is known, but not in this mode (2025-11-25, elicitation: -32602).
            raise InvalidParams(f"This client declares no elicitation by {'url' if by_url else 'form'}.")
        try:
            answer: Any = await handler(question)
        except Declined:
            return t.ElicitResult(action="decline")
        except Cancelled:
            return t.ElicitResult(action="cancel")
        return _consent_result(answer) if by_url else _form_result(answer, question)

    # Sampling.

    async def _sample(self, params: t.CreateMessageRequestParams) -> t.CreateMessageResult:
        if not self._sampling_tools and (params.tools is not UNSET or params.tool_choice is not UNSET):
            raise InvalidParams("This client declares no sampling.tools.")
        try:
            t.check_tool_use(params.messages)
        except ValueError as error:
            raise InvalidParams(str(error)) from None
        assert self._sampling is not None
        try:
            answer = await self._sampling(params)
        except (Declined, Cancelled) as error:
            raise ProtocolError(error.text or "The user refused.", code=REJECTED_CODE) from None
        return sampling_result(answer)

    # Roots.

    async def _list_roots(self, _: Any) -> t.ListRootsResult:
        assert self._roots is not None
        roots = await self._roots() if callable(self._roots) else self._roots
        return t.ListRootsResult(roots=[_root(each) for each in roots])


def _with_related_task(result: Any, meta: t.RequestMeta | UnsetType) -> Any:
    """Add the related task to an answer if the question named one (2025-11-25, tasks: related task)."""
    if isinstance(meta, UnsetType) or isinstance(meta.related_task, UnsetType):
        return result
    own: dict[str, Any] = {} if isinstance(result.meta, UnsetType) else result.meta
    return msgspec.structs.replace(result, meta={**own, t.META_RELATED_TASK: meta.related_task})


def sampling_result(answer: str | t.CreateMessageResult) -> t.CreateMessageResult:
    """Return the answer of a sampling handler as a result. Raises TypeError if it is neither text nor a result."""
    if isinstance(answer, str):
        return t.CreateMessageResult(
            model=ANONYMOUS_MODEL, role="assistant", content=t.TextContent(text=answer), stop_reason="endTurn"
        )
    if not isinstance(answer, t.CreateMessageResult):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"A sampling handler returns text or a CreateMessageResult, not {type(answer).__name__}.")
    return answer


_REFUSALS: Mapping[str, Literal["decline", "cancel"]] = {"decline": "decline", "cancel": "cancel"}


def _consent_result(answer: Any) -> t.ElicitResult:
    if isinstance(answer, t.ElicitResult):
        return msgspec.structs.replace(answer, content=UNSET)
    if isinstance(answer, bool):
        return t.ElicitResult(action="accept" if answer else "decline")
    if isinstance(answer, str) and answer in _REFUSALS:
        return t.ElicitResult(action=_REFUSALS[answer])
    raise TypeError(f"A consent handler returns True, False, 'decline' or 'cancel', not {answer!r}.")


def _form_result(answer: Any, question: t.ElicitRequestParams) -> t.ElicitResult:
    """Return the answer to a form; missing fields get the form's defaults (2025-11-25, elicitation)."""
    accepted = t.ElicitResult(action="accept")
    fields: Any
    if isinstance(answer, t.ElicitResult):
        if answer.action != "accept":
            return msgspec.structs.replace(answer, content=UNSET)
        accepted, fields = answer, {} if answer.content is UNSET else answer.content
    elif isinstance(answer, str):
        if answer not in _REFUSALS:
            raise TypeError(f"An elicitation handler returns fields, 'decline' or 'cancel', not {answer!r}.")
        return t.ElicitResult(action=_REFUSALS[answer])
    else:
        fields = answer.model_dump(mode="json") if hasattr(answer, "model_dump") else msgspec.to_builtins(answer)
    if not isinstance(fields, dict):
        raise TypeError(f"An elicitation handler returns fields, 'decline' or 'cancel', not {type(answer).__name__}.")
    assert not isinstance(question.requested_schema, UnsetType)
    defaults = {
        name: field.default
        for name, field in question.requested_schema.properties.items()
        if not isinstance(field.default, UnsetType)
    }
    return msgspec.structs.replace(accepted, content={**defaults, **cast("dict[str, Any]", fields)})


def _root(value: RootLike) -> t.Root:
    if isinstance(value, t.Root):
        return value
    if isinstance(value, str) and value.startswith("file:"):
        return t.Root(uri=value)
    path = Path(value).absolute()
    return t.Root(uri=path.as_uri(), name=path.name or UNSET)
