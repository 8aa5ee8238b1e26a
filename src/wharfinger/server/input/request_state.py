"""The state of one call over all its runs: its input requests, answers and log messages. Does no I/O.

The stateless protocol has no open connection on which a server could ask. A call that needs input is answered with its
input requests and ends; the client sends the call again with the answers, and the handler runs again from its first
line (2026-07-28, multi round-trip requests). `RequestState` makes the second run continue where the first one stopped:

- An answer belongs to a request by its key (the author's, or its number among the requests of its kind) and by the
  digest of the question. A handler that asks something else under the same key never gets that answer. (The
  answers in a client's first request have no digest: see `RequestState.answer`.)
- Answers, results of `once`, the progress and the number of log messages travel with the client, sealed in
  `requestState`: clients cannot change it, and can read it only if there is no policy. The seal opens for the same
  server, principal, method, name and arguments only, and for `limits.state_time` seconds.
- Log messages that an earlier run has sent are counted, not sent again, and progress only grows.
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
from wharfinger.server.cursors import keys_for, state_kind

if TYPE_CHECKING:
    import asyncio

    from wharfinger.server.services import Services

__all__ = ["CannotAsk", "RequestState", "digest_of", "outermost", "state_of"]

_REQUESTS: dict[str, Any] = {
    "elicitation/create": t.ElicitRequest,
    "sampling/createMessage": t.CreateMessageRequest,
    "roots/list": t.ListRootsRequest,
}
"""The struct for a member of `inputRequests`, by its method."""


class CannotAsk(RuntimeError):
    """A function cannot ask for input, or start a task: it is not async, or serves no tool, prompt or resource."""


class _Sealed(msgspec.Struct, array_like=True):
    """The content of `requestState`, encoded as an array because every byte travels twice in each round."""

    expires: int
    round: int
    open_digests: dict[str, str]
    """Digests of the open requests, by key."""
    answers: dict[str, tuple[str, Raw]]
    """The digest of the request and the answer, by key."""
    once: dict[str, tuple[Raw, int]]
    """The results of `once`, and how many log messages each sent, by key."""
    progress: float | None
    logs: int


class RequestState:
    """The state of one call. It continues from the request's `requestState`, unless `resumed` is False."""

    __slots__ = (
        "_answers",
        "_asked_digests",
        "_came_without_state",
        "_key_counts",
        "_keys_to_recall",
        "_logged_before",
        "_open",
        "_request",
        "_responses",
        "_round",
        "_services",
        "_stop",
        "_waits",
        "failures",
        "logged",
        "once_results",
        "once_running",
        "progress",
        "replay",
    )

    def __init__(self, services: Services, request: Request, *, resumed: bool = True) -> None:
        self._services = services
        self._request = request
        self._round = 0
        self._came_without_state = True
        """Whether the request came without a state, so that it is unknown which requests its answers belong to."""
        self._asked_digests: dict[str, str] = {}
        """The digests of the requests that stopped the previous run, by key."""
        self._responses: Mapping[str, Raw] = {}
        self._answers: dict[str, tuple[str, Raw]] = {}
        self._open: dict[str, tuple[str, Any]] = {}
        """The digest and the member of `inputRequests` of each request that stops this run, by key."""
        self._key_counts: dict[str, int] = {}
        """The last number that was tried, by the author's key or the prefix. Every key in use has an entry too."""
        self._stop: InputNeeded | None = None
        """The exception that ends this run, if it needs input."""
        self._waits = 0
        """The number of requests for input that waited in place for their answers."""
        self._logged_before = 0
        """The number of log messages that earlier runs have sent."""
        self._keys_to_recall: set[str] = set()
        """The keys of results of `once` from earlier runs that this run has not used yet."""
        self.replay = services.replay
        """Whether the handler always runs again and never waits; decided by the server that the client called."""
        self.failures: dict[str, Exception] = {}
        """The errors to raise for requests of a replayed handler, by key."""
        self.once_results: dict[str, tuple[Raw, int]] = {}
        """The results of `once`, and how many log messages each sent, by key."""
        self.once_running: dict[str, asyncio.Future[None]] = {}
        """The calls of `once` that are running now, by key."""
        self.progress: float | None = None
        """The highest progress that was reported; None before the first report."""
        self.logged = 0
        """Log messages of this run so far, including those that were not sent because an earlier run has sent them."""
        if resumed and request.caller.rules.asks_by_result:
            params = request.params
            self.resume(getattr(params, "request_state", UNSET), getattr(params, "input_responses", UNSET))

    def resume(self, state: Any, responses: Any) -> None:
        """Continue from a `requestState` with the answers that came with it.

        Raises:
            InvalidParams: this server did not seal it for this call and caller, or it has expired.
        """
        self._responses = {} if responses is UNSET else responses
        if state is UNSET:
            return
        kind = state_kind(self._services.limits.state)
        sealed: _Sealed = keys_for(self._services.keys, self._request).open(self._purpose(), state, kind, _Sealed)
        if sealed.expires < time.time():
            raise InvalidParams("This requestState has expired: send the request again without it.")
        self._came_without_state = False
        self._round = sealed.round
        self._asked_digests, self._answers = sealed.open_digests, sealed.answers
        self.once_results, self._keys_to_recall = sealed.once, set(sealed.once)
        self.progress, self._logged_before = sealed.progress, sealed.logs

    def _purpose(self) -> str:
        """Return the purpose that binds a state to its call: its server, principal, method, name and arguments."""
        from hashlib import sha256  # on use

        request = self._request
        target = getattr(request.params, request.row.name_param) if request.row and request.row.name_param else ""
        arguments: Any = getattr(request.params, "arguments", UNSET)
        if isinstance(arguments, Raw):
            arguments = msgspec.json.decode(arguments)
        call: list[Any] = [self._services.name, request.caller.principal.key, request.method, target, arguments or {}]
        return "state " + sha256(msgspec.json.encode(call, order="sorted")).hexdigest()

    # -- requests and answers

    def next_key(self, key: str | None, prefix: str) -> str:
        """Return the key of the next request: the author's, or the prefix with a number; unique within this run."""
        base = key or prefix
        number = self._key_counts.get(base, 0) + 1
        while True:
            self._key_counts[base] = number
            numbered = base if key is not None and number == 1 else f"{base}-{number}"
            if numbered == base or numbered not in self._key_counts:
                self._key_counts.setdefault(numbered, 1)
                return numbered
            number += 1

    def answer(self, key: str, digest: str, own_key: bool) -> Raw | None:
        """Return the answer to exactly this request; None if the client must be asked.

        The client's first request may already have answers for keys that the author chose (`own_key`).

        Raises:
            NoAnswer: it was answered with an error, or not in time.
        """
        if key in self.failures:
            raise self.failures[key]
        known = self._answers.get(key)
        if known is not None and known[0] == digest:
            return known[1]
        if key in self._responses and (
            self._asked_digests.get(key) == digest or (self._came_without_state and own_key)
        ):
            return self._responses[key]
        return None

    def keep(self, key: str, digest: str, answer: Raw) -> None:
        """Keep a valid answer for later runs."""
        self._answers[key] = (digest, Raw(bytes(answer)))
        self._open.pop(key, None)

    def drop(self, key: str) -> None:
        """Forget an answer, so that it is asked for again."""
        self._answers.pop(key, None)

    def count_waits(self, number: int) -> None:
        """Count requests for input that wait in place for their answers.

        Raises:
            InternalError: the call has asked more often than it may.
        """
        self._waits += number
        limit = self._services.limits.questions
        if self._waits > limit:
            raise InternalError(f"This call has asked {limit} questions, which is the limit (limits.questions).")

    def stop(self, requests: Mapping[str, tuple[str, str, Any]]) -> InputNeeded:
        """Return the exception that ends this run, with these requests `(digest, method, params)` and the open ones.

        Raises:
            InternalError: the call has had too many rounds, or its state is too large.
        """
        limits = self._services.limits
        if self._round >= limits.rounds:
            raise InternalError(
                f"This call has asked {self._round} times without an end, which is the limit (limits.rounds)."
            )
        for key, (digest, method, params) in requests.items():
            self._open[key] = (digest, _REQUESTS[method](params=params))
        result = self._make_result()
        if self._stop is None:
            self._stop = InputNeeded(result)
        self._stop.result = result
        return self._stop

    def _make_result(self) -> t.InputRequiredResult:
        limits = self._services.limits
        state = _Sealed(
            expires=int(time.time() + limits.state_time),
            round=self._round + 1,
            open_digests={key: digest for key, (digest, _) in self._open.items()},
            answers=self._answers,
            once=self.once_results,
            progress=self.progress,
            logs=max(self.logged, self._logged_before),
        )
        kind = state_kind(limits.state)
        sealed = keys_for(self._services.keys, self._request).seal(self._purpose(), state, kind)
        if len(sealed) > limits.state:
            raise InternalError(
                f"The state of this call is longer than {limits.state} characters (limits.state): "
                "ask for less, or store large values elsewhere."
            )
        return t.InputRequiredResult(
            input_requests={key: request for key, (_, request) in self._open.items()},
            request_state=sealed,
            result_type="input_required",
        )

    # -- log messages, progress and results of `once`

    def count_log(self) -> bool:
        """Count one log message. Returns False if an earlier run has sent it."""
        self.logged += 1
        return self.logged > self._logged_before

    def advance(self, progress: float) -> bool:
        """Record the progress. Returns False if it is not higher than before."""
        if self.progress is not None and progress <= self.progress:
            return False
        self.progress = progress
        return True

    def recall(self, key: str) -> Raw | None:
        """Return the kept result of `once`, or None if it has not been called with this key.

        If the result is from an earlier run, the log messages that `once` sent there count as sent in this one.
        """
        result = self.once_results.get(key)
        if result is None:
            return None
        if key in self._keys_to_recall:
            self._keys_to_recall.discard(key)
            self.logged += result[1]
        return result[0]

    def keep_once(self, key: str, result: Raw, logs: int) -> None:
        """Keep a result of `once` and the number of log messages that were sent during the call.

        If another asyncio task of the call has stopped the run already, the state that the client gets includes the
        result.
        """
        self.once_results[key] = (result, logs)
        if self._stop is not None:
            self._stop.result = self._make_result()


def outermost(request: Request) -> Request:
    """Return the client's own request, for a request that the server made on its behalf."""
    while (outer := getattr(request.channel, "outer", None)) is not None:
        request = outer
    return request


def state_of(services: Services, request: Request) -> RequestState:
    """Return the state of the call that a request belongs to.

    Raises:
        InvalidParams: the `requestState` of the request is not valid for this call.
    """
    request = outermost(request)
    if request.input_state is None:
        request.input_state = RequestState(services, request)
    state: RequestState = request.input_state
    return state


def digest_of(method: str, params: Any) -> str:
    """Return a short digest of an input request; different requests have different digests."""
    from hashlib import sha256  # on use

    return sha256(method.encode() + b"\0" + msgspec.json.encode(params)).hexdigest()[:24]
