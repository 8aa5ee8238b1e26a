"""A sign-in as generators: each yields the HTTP requests to send and receives their responses.

The logic of OAuth therefore does no I/O; only `run` does. A `Trace` records the result of each step.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Literal, TypeAlias, TypeVar
from urllib.parse import urlencode

import msgspec

from wharfinger.content.text import printable
from wharfinger.errors import NotAuthorized
from wharfinger.protocol.interfaces import Fetch, HttpResponse

__all__ = ["HttpStep", "Steps", "Trace", "TraceStep", "get", "post_form", "post_json", "refusal", "run", "shown"]

T = TypeVar("T")


class HttpStep(msgspec.Struct, frozen=True):
    """A request to send; `purpose` describes it in a few words."""

    purpose: str
    verb: Literal["GET", "POST"]
    url: str
    headers: Mapping[str, str]
    body: bytes | None = None


class TraceStep(msgspec.Struct, frozen=True):
    """The result of one step: `what` was checked, what was `found`, and what to do about it (`fix`).

    `good` is False for a fault, and None if something is missing that a sign-in can do without.
    """

    what: str
    good: bool | None
    found: str
    fix: str = ""


Trace: TypeAlias = list[TraceStep]
"""The results of the steps, in order. It contains no secret."""

Steps: TypeAlias = Generator[HttpStep, HttpResponse, T]
"""A part of a sign-in: yields requests, receives responses, and returns its result."""


async def run(steps: Steps[T], fetch: Fetch) -> T:
    """Send the requests of steps with a fetch function, and return the result of the steps.

    Raises:
        ConnectionFailed: a request got no response.
        NotAuthorized: the sign-in failed.
    """
    try:
        request = next(steps)
        while True:
            try:
                answer = await fetch(request.verb, request.url, request.headers, request.body)
            except Exception as error:
                request = steps.throw(error)
                continue
            request = steps.send(answer)
    except StopIteration as end:
        result: T = end.value
        return result


def get(purpose: str, url: str) -> HttpStep:
    """Return a request for a document."""
    return HttpStep(purpose, "GET", url, {"Accept": "application/json"})


def post_json(purpose: str, url: str, value: object) -> HttpStep:
    """Return a request that posts a JSON document."""
    headers = {"Accept": "application/json", "Content-Type": "application/json"}
    return HttpStep(purpose, "POST", url, headers, msgspec.json.encode(value))


def post_form(purpose: str, url: str, form: Mapping[str, str], headers: Mapping[str, str]) -> HttpStep:
    """Return a request that posts a form."""
    form_headers = {"Accept": "application/json", "Content-Type": "application/x-www-form-urlencoded", **headers}
    return HttpStep(purpose, "POST", url, form_headers, urlencode(form).encode())


class _OAuthError(msgspec.Struct, frozen=True):
    error: str = ""
    error_description: str | None = None


def refusal(subject: str, answer: HttpResponse) -> tuple[str, NotAuthorized]:
    """Return the error code of a refusal (RFC 6749 §5.2), and the exception to raise for it."""
    try:
        error = msgspec.json.decode(answer.body, type=_OAuthError)
    except (ValueError, RecursionError):  # not JSON, or not UTF-8
        error = _OAuthError()
    details = ": ".join(shown(text) for text in (error.error, error.error_description) if text)
    return error.error, NotAuthorized(
        f"{subject} was refused with {answer.status}{f' ({details})' if details else ''}."
    )


def shown(text: str) -> str:
    """Return untrusted text without control characters, shortened to 200 characters."""
    return printable(text, 200)
