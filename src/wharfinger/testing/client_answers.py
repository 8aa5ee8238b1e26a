"""What a client answers to questions, written down beforehand; asks nobody, and knows no transport."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from wharfinger import types as t
from wharfinger.errors import Cancelled, Declined

__all__ = ["Answers", "Script", "answer_to", "question_of"]

Answers = Mapping[str, Any] | Callable[[Any], Any]
"""What a client answers: by the text of a form's or URL's message, by `sampling/createMessage` and by `roots/list`; or
a function from the params of a question to its answer.

An answer is the content of a form (a dict, or the value of a form that has one), a model's text, a list of URIs, True
for a URL, `Declined` or `Cancelled`, or a result of the protocol as it is.
"""


class Script:
    """Answers as handlers of a `Client`: `Client(server, **Script({"Which quay?": "north"}).handlers)`.

    A question that is not in the script fails its call with a KeyError that names it.
    """

    def __init__(self, answers: Answers) -> None:
        self._answers = answers
        self.asked: list[str] = []
        """What was asked so far, by what `answers` knows it."""

    @property
    def handlers(self) -> dict[str, Any]:
        """The arguments `elicitation`, `consent`, `sampling` and `roots` of a client: it declares all of them."""
        return {"elicitation": self._fill_in, "consent": self._fill_in, "sampling": self._sample, "roots": self._roots}

    @property
    def unused(self) -> list[str]:
        """Answers that no question has wanted; none of them where `answers` is a function."""
        return [] if callable(self._answers) else [name for name in self._answers if name not in self.asked]

    async def _fill_in(self, question: t.ElicitRequestParams) -> t.ElicitResult:
        result: t.ElicitResult = self._answer("elicitation/create", question)
        return result

    async def _sample(self, params: t.CreateMessageRequestParams) -> t.CreateMessageResult:
        result: t.CreateMessageResult = self._answer("sampling/createMessage", params)
        return result

    async def _roots(self) -> Sequence[t.Root]:
        result: t.ListRootsResult = self._answer("roots/list", t.RequestParams())
        return result.roots

    def _answer(self, method: str, params: Any) -> Any:
        self.asked.append(question_of(method, params))
        return answer_to(method, params, self._answers)


def question_of(method: str, params: Any) -> str:
    """What a question is known by: the text that its user reads, else its method."""
    return str(getattr(params, "message", method))


def answer_to(method: str, params: Any, answers: Answers) -> Any:
    """The result for one question.

    Raises:
        KeyError: no answer was written down.
    """
    answer = answers(params) if callable(answers) else answers[question_of(method, params)]
    if isinstance(answer, t.Result):
        return answer
    if method == "roots/list":
        return t.ListRootsResult(roots=[t.Root(uri=uri) for uri in answer])
    if method == "sampling/createMessage":
        return t.CreateMessageResult(model="rehearsal", role="assistant", content=t.TextContent(text=answer))
    if answer is Declined or answer is Cancelled:
        return t.ElicitResult(action="decline" if answer is Declined else "cancel")
    if params.mode == "url":
        return t.ElicitResult(action="accept")
    content: Any = answer
    if not isinstance(answer, dict):
        content = {next(iter(params.requested_schema.properties)): answer}
    return t.ElicitResult(action="accept", content=msgspec.to_builtins(content))
