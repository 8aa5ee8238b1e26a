"""What a step of signing in is: a generator that yields a request and is sent its answer; does no I/O itself."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Literal, TypeAlias, TypeVar
from urllib.parse import urlencode

import msgspec

from wharfinger.content.text import printable
from wharfinger.errors import NotAuthorized
from wharfinger.protocol.interfaces import Fetch, Fetched

__all__ = ["HttpStep", "Steps", "Trace", "TraceStep", "ask_form", "ask_json", "get", "refusal", "run", "shown"]

T = TypeVar("T")


class HttpStep(msgspec.Struct, frozen=True):
    """A request to send; `purpose` says in a few words what for."""

    purpose: str
    verb: Literal["GET", "POST"]
    url: str
    headers: Mapping[str, str]
    body: bytes | None = None


class TraceStep(msgspec.Struct, frozen=True):
    """What one step found: `good` is None where it went on elsewhere; `fix` says what would help."""

    what: str
    good: bool | None
    found: str
    fix: str = ""


Trace: TypeAlias = list[TraceStep]
"""What was asked and found so far, in order; it never holds a secret."""

Steps: TypeAlias = Generator[HttpStep, Fetched, T]
"""A part of signing in: yields what is to be asked, is sent what was answered, returns what it found."""


async def run(steps: Steps[T], fetch: Fetch) -> T:
    """Drive steps to their end with a fetch function.

    Raises:
        ConnectionFailed: a request was not answered.
        NotAuthorized: the steps cannot go on.
    """
    try:
        ask = next(steps)
        while True:
            try:
                answer = await fetch(ask.verb, ask.url, ask.headers, ask.body)
            except Exception as error:
                ask = steps.throw(error)
                continue
            ask = steps.send(answer)
    except StopIteration as end:
        found: T = end.value
        return found


def get(purpose: str, url: str) -> HttpStep:
    """Ask for a document."""
    return HttpStep(purpose, "GET", url, {"Accept": "application/json"})


def ask_json(purpose: str, url: str, value: object) -> HttpStep:
    """Post a JSON document."""
    headers = {"Accept": "application/json", "Content-Type": "application/json"}
    return HttpStep(purpose, "POST", url, headers, msgspec.json.encode(value))


def ask_form(purpose: str, url: str, form: Mapping[str, str], headers: Mapping[str, str]) -> HttpStep:
    """Post a form."""
    given = {"Accept": "application/json", "Content-Type": "application/x-www-form-urlencoded", **headers}
    return HttpStep(purpose, "POST", url, given, urlencode(form).encode())


class _OAuthError(msgspec.Struct, frozen=True):
    error: str = ""
    error_description: str = ""


def refusal(what: str, answer: Fetched) -> tuple[str, NotAuthorized]:
    """The error code of a refusing answer (RFC 6749 §5.2), and what to raise for it."""
    try:
        said = msgspec.json.decode(answer.body, type=_OAuthError)
    except (msgspec.MsgspecError, RecursionError):
        said = _OAuthError()
    told = ": ".join(shown(text) for text in (said.error, said.error_description) if text)
    return said.error, NotAuthorized(f"{what} was refused with {answer.status}{f' ({told})' if told else ''}.")


def shown(text: str) -> str:
    """A stranger's text, short and with nothing in it that a terminal would obey."""
    return printable(text, 200)
