"""Helpers of the tests: samples of a source, answers that may be errors, and checks of a resource."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, cast

import msgspec
from msgspec import UNSET

from wharfinger import types as t
from wharfinger.content.mime import DIRECTORY
from wharfinger.errors import WharfingerError
from wharfinger.source import VERSION, Source
from wharfinger.testing.source_suite.driver import ContractBroken, SourceDriver, expect

__all__ = [
    "ABSENT_PATHS",
    "DEADLINE_SECONDS",
    "MAX_RESOURCES",
    "NEXT",
    "ODD_PATHS",
    "answer_of",
    "attempt",
    "below",
    "brief",
    "bytes_of",
    "check_resource",
    "completions_of",
    "directories",
    "few",
    "is_all",
    "is_directory",
    "is_texts",
    "is_valid_uri",
    "next_of",
    "same_in_all_sizes",
    "sample",
    "until",
    "version_of_contents",
]

MAX_RESOURCES = 40
"""The maximum number of resources of a list that are checked one by one."""
MAX_COMPLETIONS = 101
"""The maximum number of values of a completion: clients get 100, and one more means that there are others."""
DEADLINE_SECONDS = 10.0
"""Time within which a change must be reported."""
NEXT = "wharfinger/next"
"""In `_meta` of a window: the URI of the next one."""
ABSENT_PATHS = (
    *("../etc/passwd", "../../../../etc/passwd", "%2e%2e/%2e%2e/etc/passwd", "..%2f..%2fetc%2fpasswd", "%2e%2e"),
    *("a%00b", "a\0b", "%", "%zz", "%c3%28", "\ud800", "a/" * 20_000),
)
"""Paths that are appended to the top URI: nothing may be found there."""
ODD_PATHS = (
    *("//", "./", "?", "?=", "?a=b&a=c", "?lines=1-2&lines=3-4", "?%00=1", "?lines=9-1", "?tail=-1", "?bytes=x"),
    *("?nobody=knows", "#fragment", "%252e%252e/x", "*", "{path}", "'; drop table x; --", "--help", "con", "a\nb"),
)
"""Paths that are appended to the top URI: answered, or refused with ResourceNotFound or InvalidArgument."""

is_valid_uri = re.compile(
    r"[A-Za-z][A-Za-z0-9+.-]*:(?:[A-Za-z0-9\-._~:/?#\[\]@!$&'()*+,;=]|%[0-9A-Fa-f]{2})*"
).fullmatch
_is_mime_type = re.compile(r"[\w.+-]+/[\w.+*-]+(; ?[\w.-]+=\S+)?").fullmatch
_is_timestamp = re.compile(r"\d{4,}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)").fullmatch


def sample(driver: SourceDriver) -> list[t.Resource]:
    """Return the first resources of the list."""
    resources: list[t.Resource] = driver.pages(MAX_RESOURCES, 1)
    return resources


def answer_of(driver: SourceDriver, method: str, *arguments: Any) -> Any:
    """Call a method of the source. Returns its result, or the exception that it raises."""
    return attempt(lambda: driver.ask(method, *arguments))


def attempt(function: Callable[[], Any]) -> Any:
    """Call a function. Returns its result, or the exception that it raises."""
    try:
        return function()
    except ContractBroken:
        raise
    except Exception as error:
        return error


def until(holds: Callable[[], bool], clause: str, problem: str) -> None:
    """Wait until the condition holds; raise ContractBroken with `problem` if that takes too long."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not holds():
        expect(time.monotonic() < deadline, clause, problem)
        time.sleep(0.02)


def same_in_all_sizes(list_uris: Callable[[int, int], list[str]], live: bool) -> None:
    """Compare a list, as `list_uris(limit, max_pages)` returns it, with itself in pages of other sizes.

    Of a `live` list, only one size is read, and checked for duplicates.
    """
    whole = list_uris(1_000, 2)
    twice = [uri for uri, times in Counter(whole).items() if times > 1]
    expect(not twice, "Pages", f"Listed twice: {few(twice)}.")
    for limit in () if live else (1, 2, 7):
        listed = list_uris(limit, MAX_RESOURCES)
        expected = whole[: len(listed)] if len(listed) >= limit * MAX_RESOURCES else whole
        problem = (
            f"In pages of {limit} the list differs from that in pages of 1,000: {few(set(expected) ^ set(listed))}."
        )
        expect(listed == expected, "Pages", problem)


def directories(driver: SourceDriver, limit: int = 20) -> list[str]:
    """Return the top directory and those below it, at most `limit`."""
    uris = [driver.source.uri]
    for directory in uris:
        for child in driver.children(directory, MAX_RESOURCES, max_pages=1):
            if len(uris) < limit and child.mime_type == DIRECTORY and child.uri not in uris:
                uris.append(child.uri)
    return uris


def is_directory(driver: SourceDriver, uri: str) -> bool:
    """Return whether this is the URI of a directory."""
    answer = answer_of(driver, "stat", uri) if uri else None
    return isinstance(answer, t.Resource) and answer.mime_type == DIRECTORY


def check_resource(item: t.Resource, clause: str) -> None:
    """Check that a resource has a valid URI, name, title, type, size and time of change."""
    uri = item.uri
    expect(isinstance(item, t.Resource), clause, f"{item!r} is not a Resource.")
    problem = f"{uri!r} is not a valid URI: escape what RFC 3986 does not allow."
    expect(is_valid_uri(uri) and len(uri) <= 8_192, clause, problem)
    for part in ("name", "title"):
        text = getattr(item, part)
        if text is not UNSET:
            problem = f"{uri}: its {part} is not one line of plain text: {text!r}"
            expect(text and len(text) <= 1_000 and text.isprintable(), clause, problem)
    has_valid_type = item.mime_type is UNSET or _is_mime_type(item.mime_type)
    expect(has_valid_type, clause, f"{uri}: {item.mime_type!r} is not a MIME type.")
    size: Any = item.size
    expect(size is UNSET or (isinstance(size, int) and size >= 0), clause, f"{uri}: {size!r} is not a size.")
    if item.annotations is not UNSET and item.annotations.last_modified is not UNSET:
        stamp = item.annotations.last_modified
        expect(_is_timestamp(stamp), clause, f"{uri}: {stamp!r} is not an ISO 8601 time.")
    msgspec.json.encode(item)


def below(source: Source, paths: tuple[str, ...]) -> list[str]:
    """Return the URIs of these paths below the source; an empty list if the source has no URI."""
    if not source.uri:
        return []
    top = source.uri if source.uri.endswith("/") else source.uri + "/"
    return [top + path for path in paths]


def completions_of(
    driver: SourceDriver, template: t.ResourceTemplate, variable: str, value: str, values: dict[str, str]
) -> list[str]:
    """Return the completions of a variable of a template; `values` has the values of other variables."""
    completion: Any = driver.ask("complete", template.uri_template, variable, value, dict(values))
    completions = values_of(completion)
    problem = f"{template.uri_template}: completions of {variable} are {brief(completion)}."
    expect(is_texts(completions) and len(completions) <= MAX_COMPLETIONS, "complete", problem)
    return list(completions)


def values_of(completion: Any) -> Any:
    """Return the values of a completion, which a source may also return as a list."""
    return completion.values if isinstance(completion, t.Completion) else completion


def is_texts(value: Any) -> bool:
    """Return whether a value is a list or tuple of strings."""
    return is_all(value, str)


def is_all(value: Any, kind: type) -> bool:
    """Return whether a value is a list or tuple whose items have this type."""
    return isinstance(value, (list, tuple)) and all(isinstance(item, kind) for item in cast("list[Any]", value))


def version_of_contents(result: t.ReadResourceResult) -> str:
    """Return the version in the first content of a result, or an empty text."""
    meta = result.contents[0].meta
    return "" if meta is UNSET else str(meta.get(VERSION, ""))


def next_of(content: t.ResourceContents) -> str | None:
    """Return the URI of the next window, or None if there is none."""
    value = None if content.meta is UNSET else content.meta.get(NEXT)
    return None if value is None else str(value)


def bytes_of(content: t.ResourceContents) -> bytes:
    """Return a content as bytes."""
    return content.text.encode() if content.text is not UNSET else content.blob or b""


def few(uris: Any) -> str:
    """Return the first URIs of many, for a message."""
    return ", ".join(sorted(uris)[:5])


def brief(value: Any) -> str:
    """Return an answer, shortened for a message."""
    text = repr(value)
    if isinstance(value, WharfingerError):
        text = f"{type(value).__name__}: {value}"
    return text if len(text) <= 120 else f"{text[:120]}… ({len(text):,} characters)"
