"""Passes the questions of servers to the application: forms, URLs, sampling and roots.

A question names the server that asks. The time for an answer and the number of questions are bounded, except for roots:
a server can neither show a person forms without end, nor spend tokens without end. Each question and its outcome are
recorded, without the texts.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import msgspec

from wharfinger import types as t
from wharfinger.client.input_handlers import Consent, Elicit, Roots, Sample, sampling_result
from wharfinger.errors import Cancelled, Declined
from wharfinger.types import CreateMessageRequestParams, ElicitRequestParams

__all__ = ["Elicitation", "Questions", "Review", "SamplingRequest", "SamplingReview"]

QUESTIONS_PER_MINUTE = 60
"""Maximum number of questions of one server in a minute; others are cancelled."""
MAX_OPEN_QUESTIONS = 8
"""Maximum number of questions of one server that are open at the same time; others are cancelled."""

Q = TypeVar("Q")
T = TypeVar("T")


class Elicitation(ElicitRequestParams, kw_only=True):
    """A form or a URL, with the server that asks."""

    server: str = ""


class SamplingRequest(CreateMessageRequestParams, kw_only=True):
    """A request to a model, with the server that makes it."""

    server: str = ""


class SamplingReview(msgspec.Struct, frozen=True, kw_only=True):
    """A request to a model, shown before it is made (`result` is None) and again with its result."""

    server: str
    request: SamplingRequest
    result: t.CreateMessageResult | None


Reviewed = bool | t.CreateMessageRequestParams | t.CreateMessageResult
Review = Callable[[SamplingReview], Awaitable[Reviewed]]
"""Returns True to continue, False to refuse, or a changed request (before) or result (after)."""


class Questions:
    """The handlers of one server's client.

    Args:
        server: The server that asks.
        elicitation: Shows a form.
        consent: Shows a URL.
        sampling: Asks a model.
        review: Shows a request for sampling before it is made, and its result before the server gets it.
        roots: The folders in which the user works.
        timeout: Seconds for the answer to a question. The model and the reviews of a request for sampling share them.
        record: Called with the server, the method, whether the question was accepted, and why not.
    """

    def __init__(
        self,
        server: str,
        *,
        elicitation: Elicit | None,
        consent: Consent | None,
        sampling: Sample | None,
        review: Review | None,
        roots: Roots | None,
        timeout: float,
        record: Callable[[str, str, bool, str], object],
    ) -> None:
        self.server = server
        self._elicitation, self._consent = elicitation, consent
        self._sampling, self._review, self._roots = sampling, review, roots
        self._timeout = timeout
        self._record = record
        self._open_count = 0
        self._asked_at: deque[float] = deque(maxlen=QUESTIONS_PER_MINUTE)

    @property
    def handlers(self) -> dict[str, Any]:
        """The handlers, as options of the client that is connected to the server."""
        client_options: dict[str, Any] = {}
        if self._elicitation is not None:
            client_options["elicitation"] = self._elicit
        if self._consent is not None:
            client_options["consent"] = self._ask_consent
        if self._sampling is not None:
            client_options["sampling"] = self._sample
        if self._roots is not None:
            client_options["roots"] = self._list_roots
        return client_options

    async def _elicit(self, params: t.ElicitRequestParams) -> Any:
        assert self._elicitation is not None
        question = with_server(params, Elicitation, self.server)
        return await self._wait_for_answer("elicitation/create", self._elicitation, question)

    async def _ask_consent(self, params: t.ElicitRequestParams) -> Any:
        assert self._consent is not None
        question = with_server(params, Elicitation, self.server)
        return await self._wait_for_answer("elicitation/create", self._consent, question)

    async def _sample(self, params: t.CreateMessageRequestParams) -> t.CreateMessageResult:
        return await self._wait_for_answer("sampling/createMessage", self._reviewed_sample, params)

    async def _reviewed_sample(self, params: t.CreateMessageRequestParams) -> t.CreateMessageResult:
        assert self._sampling is not None
        request = with_server(params, SamplingRequest, self.server)
        if self._review is not None:
            answer = await self._review(SamplingReview(server=self.server, request=request, result=None))
            reviewed = decided(answer, request, t.CreateMessageRequestParams)
            request = with_server(reviewed, SamplingRequest, self.server)
        result = sampling_result(await self._sampling(request))
        if self._review is not None:
            answer = await self._review(SamplingReview(server=self.server, request=request, result=result))
            result = decided(answer, result, t.CreateMessageResult)
        return result

    async def _list_roots(self) -> Sequence[Any]:
        assert self._roots is not None
        roots = self._roots
        self._record(self.server, "roots/list", True, "")
        return await roots() if callable(roots) else roots

    async def _wait_for_answer(self, method: str, ask: Callable[[Q], Awaitable[T]], question: Q) -> T:
        """Ask a question, unless there are too many, wait for the answer, and record the outcome."""
        reason = self._count_question()
        if reason:
            self._record(self.server, method, False, reason)
            raise Cancelled(f"This host answers no more questions of {self.server} now: {reason}.")
        self._open_count += 1
        reason = "the handler failed"
        accepted = False
        timeout = asyncio.timeout(self._timeout)
        try:
            async with timeout:
                result = await ask(question)
            accepted, reason = outcome_of(result)
            return result
        except TimeoutError:
            if not timeout.expired():  # raised by the handler itself
                raise
            reason = "nobody answered"
            raise Cancelled(f"Nobody answered within {self._timeout:g} s.") from None
        except Declined:
            reason = "declined"
            raise
        except Cancelled:
            reason = "cancelled"
            raise
        except asyncio.CancelledError:
            reason = "the request was cancelled"
            raise
        finally:
            self._open_count -= 1
            self._record(self.server, method, accepted, reason)

    def _count_question(self) -> str:
        """Count a question, unless there are too many. Returns why it may not be asked, or an empty string."""
        now = asyncio.get_running_loop().time()
        if self._open_count >= MAX_OPEN_QUESTIONS:
            return f"{self._open_count} are open"
        if len(self._asked_at) == QUESTIONS_PER_MINUTE and now - self._asked_at[0] < 60.0:
            return f"it asked {QUESTIONS_PER_MINUTE} within a minute"
        self._asked_at.append(now)
        return ""


def outcome_of(answer: object) -> tuple[bool, str]:
    """Return whether a person accepted, and if not, the reason."""
    action = answer.action if isinstance(answer, t.ElicitResult) else answer
    if action is False or action == "decline":
        return False, "declined"
    return (False, "cancelled") if action == "cancel" else (True, "")


def with_server(params: t.RequestParams, kind: Callable[..., T], server: str) -> T:
    """Return the params of a request with the name of its server."""
    return kind(**{**msgspec.structs.asdict(params), "server": server})


def decided(answer: object, shown: T, kind: type[T]) -> T:
    """Return the request or result that was shown or, if the review changed it, the changed one.

    Raises:
        Declined: the review refused it.
        TypeError: the review returned something else.
    """
    if answer is True:
        return shown
    if answer is False:
        raise Declined("The user refused.")
    if isinstance(answer, kind):
        return answer
    raise TypeError(f"review returns True, False, or a {kind.__name__}, not {type(answer).__name__}.")
