"""Prepared answers to the questions that a server asks its client."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from wharfinger import types as t
from wharfinger.errors import Cancelled, Declined

__all__ = ["Answers", "Script", "answer_to", "question_key"]

Answers = Mapping[str, Any] | Callable[[Any], Any]
"""A mapping from questions to answers, or a function that takes the params of a question and returns the answer.

The key of a form or a URL is its message. The key of other questions is their method, `sampling/createMessage` or
`roots/list`.
An answer is the content of a form (a dict, or the value of its only field), True or False for a URL, a model's text, a
list of URIs for roots, `Declined` or `Cancelled` for a form or a URL, or a result struct of `wharfinger.types`.
"""


class Script:
    """Prepared answers as handlers of a `Client`: `Client(server, **Script({"Which quay?": "north"}).handlers)`.

    If a question has no answer, the call fails: in the stateless era with a KeyError that names the question, in the
    handshake era with the server's error that the client failed to answer.
    """

    def __init__(self, answers: Answers) -> None:
        self._answers = answers
        self.questions: list[str] = []
        """The keys of the questions that were asked, in order."""

    @property
    def handlers(self) -> dict[str, Any]:
        """The arguments `elicitation`, `consent`, `sampling` and `roots` for a `Client`, which declares all of them."""
        return {"elicitation": self._fill_in, "consent": self._fill_in, "sampling": self._sample, "roots": self._roots}

    @property
    def unused_answers(self) -> list[str]:
        """The keys of answers that no question has used yet, or an empty list if `answers` is a function."""
        return [] if callable(self._answers) else [key for key in self._answers if key not in self.questions]

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
        self.questions.append(question_key(method, params))
        return answer_to(method, params, self._answers)


def question_key(method: str, params: object) -> str:
    """Return the key of a question in `Answers`: the message that the user reads, or else the method."""
    return str(getattr(params, "message", method))


def answer_to(method: str, params: Any, answers: Answers) -> Any:
    """Look up an answer, and return it as a result of the protocol.

    Raises:
        KeyError: there is no answer to this question.
    """
    answer = answers(params) if callable(answers) else answers[question_key(method, params)]
    if isinstance(answer, t.Result):
        return answer
    if method == "roots/list":
        return t.ListRootsResult(roots=[t.Root(uri=uri) for uri in answer])
    if method == "sampling/createMessage":
        return t.CreateMessageResult(model="rehearsal", role="assistant", content=t.TextContent(text=answer))
    if answer is Declined or answer is Cancelled:
        return t.ElicitResult(action="decline" if answer is Declined else "cancel")
    if params.mode == "url":
        return t.ElicitResult(action="accept" if answer else "decline")
    content: Any = answer
    if not isinstance(answer, dict):
        content = {next(iter(params.requested_schema.properties)): answer}
    return t.ElicitResult(action="accept", content=msgspec.to_builtins(content))
