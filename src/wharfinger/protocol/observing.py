"""Observers of requests, for records, metrics and traces: their interface, and the observations that they receive."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, Protocol

from wharfinger.errors import PermissionDenied, ProtocolError
from wharfinger.protocol.principal import ANONYMOUS, Principal
from wharfinger.protocol.request import Request, input_needed

__all__ = ["Observation", "Outcome", "Refusal", "RequestObserver", "outcome_of_error", "outcome_of_result"]

Outcome = Literal["allowed", "refused", "failed", "cancelled", "limited"]
"""How a request ended. A request that asks its client for input is `allowed`."""

LIMITED = (429, 503)
"""HTTP statuses of a caller or a server that is at a limit."""


class Observation:
    """One request, from its beginning to its answer.

    These are set before observers see the end: `result` or `error`, what the handler returned or raised; `seconds`, the
    time from `began`; and `size`, the bytes of the encoded answer or, for a read that a handler makes, of the contents.
    """

    __slots__ = (
        "began", "cancelled", "error", "notes", "outer_method", "params", "request", "result", "seconds", "size",
        "trace",
    )  # fmt: skip

    def __init__(self, request: Request, began: float, outer_method: str = "") -> None:
        self.request = request
        self.params = request.params
        """The params as the client sent them. Middleware may change `request.params`."""
        self.began = began
        """When the request began, by a clock that only measures durations."""
        self.outer_method = outer_method
        """The method of the request whose handler made this one; empty if a client did."""
        self.result: Any = None
        self.error: BaseException | None = None
        self.cancelled = False
        """Whether the client or the server cancelled the handler."""
        self.size = 0
        self.seconds = 0.0
        self.trace = ""
        """The id of the trace that the request belongs to, if an observer creates traces; otherwise empty."""
        self.notes: dict[RequestObserver, Any] = {}
        """The data that each observer keeps between `began` and `ended`."""

    @property
    def target(self) -> str:
        """The URI or name of the request, or its reference for a completion; empty if it has none."""
        params = self.params
        row = self.request.row
        if row is not None and row.name_param:
            return str(getattr(params, row.name_param, ""))
        if isinstance(uri := getattr(params, "uri", None), str):
            return uri
        ref = getattr(params, "ref", None)
        return str(getattr(ref, "uri", "") or getattr(ref, "name", ""))

    @property
    def outcome(self) -> Outcome:
        """How the request ended."""
        request, error = self.request, self.error
        if self.cancelled:
            return "cancelled"
        if request.decision is not None and not request.decision.allowed and (error or request.failure):
            return "refused"
        failure = request.failure or error
        if failure is not None:
            return "allowed" if input_needed(failure) is not None else outcome_of_error(failure)
        return outcome_of_result(self.result)

    @property
    def code(self) -> int | None:
        """The JSON-RPC code of the error; None without an error, or if it has no code."""
        failure = self.request.failure or self.error
        return failure.code if isinstance(failure, ProtocolError) else None


def outcome_of_result(result: object) -> Outcome:
    """Return `failed` for the result of a tool that failed, `allowed` for any other result."""
    return "failed" if getattr(result, "is_error", False) is True else "allowed"


def outcome_of_error(error: BaseException) -> Outcome:
    """Return whether an error is a refusal, a limit or a failure."""
    status = error.http_status if isinstance(error, ProtocolError) else 200
    if isinstance(error, PermissionDenied) or status in (401, 403):
        return "refused"
    return "limited" if status in LIMITED else "failed"


class Refusal(NamedTuple):
    """A message that was answered with an error before it became a `Request`, such as one over HTTP without a token."""

    error: ProtocolError
    method: str = ""
    """The method that the caller named, in a message or in HTTP headers; empty if none is known."""
    target: str = ""
    """The URI or name in the message; empty if none is known."""
    address: str = ""
    """The client's network address, or empty."""
    principal: Principal = ANONYMOUS
    size: int = 0
    """Bytes of the encoded answer."""


class RequestObserver(Protocol):
    """Observes the requests of a server. All methods are called on the event loop, and must not block.

    An exception is logged and changes nothing, except where a method says otherwise.
    """

    def began(self, seen: Observation) -> None:
        """Observe the beginning of a request, before its access is checked.

        Raises:
            ProtocolError: the request must not be served, because it cannot be observed.
        """
        ...

    def ended(self, seen: Observation) -> None:
        """Observe the end of a request, before its answer is sent.

        Called once, even if `began` raised, or was not called because the `began` of another observer raised.
        """
        ...

    def searched(self, request: Request, words: str, hits: int) -> None:
        """Observe a search that the handler of a request made for its caller."""
        ...

    def watched(self, request: Request, uris: Sequence[str], refused: Sequence[str]) -> None:
        """Observe that a request began to watch URIs, and that it may not watch others."""
        ...

    def unwatched(self, request: Request, uris: Sequence[str]) -> None:
        """Observe that the session that watched these URIs has ended; `request` was its first subscription."""
        ...

    def refused(self, refusal: Refusal) -> None:
        """Observe a refusal, which was sent already or is about to be."""
        ...

    async def start(self) -> None:
        """Called when the server starts. If it raises, the server does not start."""
        ...

    async def close(self) -> None:
        """Called when the server has ended."""
        ...
