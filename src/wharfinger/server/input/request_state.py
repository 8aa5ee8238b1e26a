"""What one call asked, was answered and has told so far, from its first run to its last; asks nobody itself.

A stateless request that asks is sent again with the answers, and its handler runs again from its first line. What came
before travels with the client as a sealed text: protected from change, not from reading (2026-07-28, multi round-trip
requests). It opens for the same principal, method, name and arguments only, and not for long.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET, Raw

from wharfinger import types as t
from wharfinger.errors import InternalError, InvalidParams
from wharfinger.protocol.request import InputNeeded, Request
from wharfinger.server.cursors import STATE

if TYPE_CHECKING:
    import asyncio

    from wharfinger.server.services import Services

__all__ = ["CannotAsk", "RequestState", "digest_of", "outermost", "state_of"]

_REQUESTS: dict[str, Any] = {
    "elicitation/create": t.ElicitRequest,
    "sampling/createMessage": t.CreateMessageRequest,
    "roots/list": t.ListRootsRequest,
}
"""How a question stands in a result, by its method."""


class CannotAsk(RuntimeError):
    """A function asks that serves something else than a tool, a prompt or a resource."""


class _State(msgspec.Struct, array_like=True):
    """What is sealed; an array, since every byte travels twice a round."""

    expires: int
    round: int
    asked: dict[str, str]
    """Digests of the questions that were open, by key."""
    answers: dict[str, tuple[str, Raw]]
    """Digest of the question and the answer, by key."""
    kept: dict[str, tuple[Raw, int]]
    """What `once` kept, and how many log messages it sent."""
    progress: float | None
    logs: int


class RequestState:
    """One call's memory. Questions are matched by their place, which makes the key, and by their digest.

    It is `resumed` from what came with the request, or else begins empty.
    """

    __slots__ = (
        "_answers",
        "_asked",
        "_before",
        "_fresh",
        "_given",
        "_missing",
        "_request",
        "_round",
        "_services",
        "_skipped",
        "_stop",
        "_used",
        "_waited",
        "failures",
        "kept",
        "progress",
        "replay",
        "running",
        "said",
    )

    def __init__(self, services: Services, request: Request, *, resumed: bool = True) -> None:
        self._services = services
        self._request = request
        self._round = 0
        self._fresh = True
        """Whether the request came without a state, so that nothing says what its answers are to."""
        self._asked: dict[str, str] = {}
        self._given: Mapping[str, Raw] = {}
        self._answers: dict[str, tuple[str, Raw]] = {}
        self._missing: dict[str, tuple[str, Any]] = {}
        self._used: dict[str, int] = {}
        self._stop: InputNeeded | None = None
        self._waited = 0
        self._before = 0
        self._skipped: set[str] = set()
        self.replay = services.replay
        """Whether nothing waits in place; it is what the server says that the client called, not a part of it."""
        self.failures: dict[str, Exception] = {}
        """Questions that were answered with an error, where the server asks for a handler that runs again."""
        self.kept: dict[str, tuple[Raw, int]] = {}
        self.running: dict[str, asyncio.Future[None]] = {}
        """What `once` computes just now, by key."""
        self.progress: float | None = None
        """The highest that was told; None before the first."""
        self.said = 0
        """Log messages of this run so far, also those that an earlier run has sent."""
        if resumed and request.caller.rules.asks_by_result:
            self.resume(
                getattr(request.params, "request_state", UNSET), getattr(request.params, "input_responses", UNSET)
            )

    def resume(self, state: Any, answers: Any) -> None:
        """Go on from a state of ours, with what was answered since.

        Raises:
            InvalidParams: it is none of ours, of another call or caller, or too old.
        """
        self._given = {} if answers is UNSET else answers
        if state is UNSET:
            return
        opened: _State = self._services.keys.open(self._purpose(), state, STATE, _State)
        if opened.expires < time.time():
            raise InvalidParams("This requestState has expired: send the request again without it.")
        self._fresh = False
        self._round = opened.round
        self._asked, self._answers = opened.asked, opened.answers
        self.kept, self._skipped = opened.kept, set(opened.kept)
        self.progress, self._before = opened.progress, opened.logs

    def _purpose(self) -> str:
        """Binds a state to its call: another server, principal, method, name or argument is another purpose."""
        from hashlib import sha256  # on use

        request = self._request
        named = getattr(request.params, request.row.name_param) if request.row and request.row.name_param else ""
        arguments: Any = getattr(request.params, "arguments", UNSET)
        if isinstance(arguments, Raw):
            arguments = msgspec.json.decode(arguments)
        call: list[Any] = [self._services.name, request.caller.principal, request.method, named, arguments or {}]
        return "state " + sha256(msgspec.json.encode(call, order="sorted")).hexdigest()

    # -- questions

    def name(self, key: str | None, word: str) -> str:
        """The key of the next question: the author's, or a word with a number; unlike all others of this run."""
        base = key or word
        number = self._used.get(base, 0) + 1
        while True:
            self._used[base] = number
            name = base if key is not None and number == 1 else f"{base}-{number}"
            if name == base or name not in self._used:
                self._used.setdefault(name, 1)
                return name
            number += 1

    def answer(self, key: str, digest: str, chosen: bool) -> Raw | None:
        """The answer to this very question; None where it has to be asked.

        A first request may bring answers along for keys that the author has `chosen`: they are part of an interface.
        """
        if key in self.failures:
            raise self.failures[key]
        known = self._answers.get(key)
        if known is not None and known[0] == digest:
            return known[1]
        if key in self._given and (self._asked.get(key) == digest or (self._fresh and chosen)):
            return self._given[key]
        return None

    def keep(self, key: str, digest: str, answer: Raw) -> None:
        """Remember an answer that was what the question asked for."""
        self._answers[key] = (digest, Raw(bytes(answer)))
        self._missing.pop(key, None)

    def drop(self, key: str) -> None:
        """Ask this again, although it is answered."""
        self._answers.pop(key, None)

    def wait_for(self, count: int) -> None:
        """Count questions whose answers are waited for. Raises InternalError where these are too many for one call."""
        self._waited += count
        limits = self._services.limits
        if self._waited > limits.questions:
            raise InternalError(
                f"This call has asked {limits.questions} questions, which is the most (limits.questions)."
            )

    def stop(self, questions: Mapping[str, tuple[str, str, Any]]) -> InputNeeded:
        """What ends a run: these questions, as `(digest, method, params)`, and others that wait beside them.

        Raises:
            InternalError: the call has asked too often, or has too much to remember.
        """
        limits = self._services.limits
        if self._round >= limits.rounds:
            raise InternalError(
                f"This call has asked {self._round} times without an end, which is the most (limits.rounds)."
            )
        for key, (digest, method, params) in questions.items():
            self._missing[key] = (digest, _REQUESTS[method](params=params))
        result = self._result()
        if self._stop is None:
            self._stop = InputNeeded(result)
        self._stop.result = result
        return self._stop

    def refresh(self) -> None:
        """Put into the stop what came to be known since, by another task of the same call."""
        if self._stop is not None:
            self._stop.result = self._result()

    def _result(self) -> t.InputRequiredResult:
        return t.InputRequiredResult(
            input_requests={key: request for key, (_, request) in self._missing.items()},
            request_state=self._sealed(),
            result_type="input_required",
        )

    def _sealed(self) -> str:
        limits = self._services.limits
        state = _State(
            expires=int(time.time() + limits.state_time),
            round=self._round + 1,
            asked={key: digest for key, (digest, _) in self._missing.items()},
            answers=self._answers,
            kept=self.kept,
            progress=self.progress,
            logs=max(self.said, self._before),
        )
        sealed = self._services.keys.seal(self._purpose(), state, STATE)
        if len(sealed) > limits.state:
            raise InternalError(
                f"This call has to remember more than fits into {limits.state} characters (limits.state): "
                "ask for less, or keep what is large elsewhere."
            )
        return sealed

    # -- what was told

    def tells(self) -> bool:
        """Count one log message; False where an earlier run has sent it."""
        self.said += 1
        return self.said > self._before

    def grows(self, done: float) -> bool:
        """Whether progress grows by this; it is the highest from then on."""
        if self.progress is not None and done <= self.progress:
            return False
        self.progress = done
        return True

    def recall(self, key: str) -> Raw | None:
        """What `once` kept; log messages that it sent in an earlier run count as said."""
        found = self.kept.get(key)
        if found is None:
            return None
        if key in self._skipped:
            self._skipped.discard(key)
            self.said += found[1]
        return found[0]


def outermost(request: Request) -> Request:
    """The request that a client sent, for one that works on its behalf."""
    while (outer := getattr(request.channel, "outer", None)) is not None:
        request = outer
    return request


def state_of(services: Services, request: Request) -> RequestState:
    """The memory of the call that a request belongs to.

    Raises:
        InvalidParams: the state that came with it is not valid for it.
    """
    request = outermost(request)
    if request.asked is None:
        request.asked = RequestState(services, request)
    found: RequestState = request.asked
    return found


def digest_of(method: str, params: Any) -> str:
    """Short text that is another for any other question."""
    from hashlib import sha256  # on use

    return sha256(method.encode() + b"\0" + msgspec.json.encode(params)).hexdigest()[:24]
