"""What the clauses look with: samples of a source, answers that may be errors, and what a valid resource is."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any, cast

import msgspec
from msgspec import UNSET

from wharfinger import types as t
from wharfinger.content.mime import DIRECTORY
from wharfinger.errors import WharfingerError
from wharfinger.source import VERSION, Source
from wharfinger.testing.source_suite.stage import Broken, Stage, expect

__all__ = [
    "DEADLINE",
    "NEVER",
    "NEXT",
    "ODD",
    "SAMPLE",
    "URI",
    "answered",
    "attempt",
    "behind",
    "brief",
    "bytes_of",
    "check_resource",
    "completed",
    "directories",
    "few",
    "is_all",
    "is_directory",
    "is_texts",
    "next_of",
    "same_in_all_sizes",
    "sample",
    "until",
    "version_of_contents",
]

SAMPLE = 40
"""Resources that are looked at one by one."""
DEADLINE = 10.0
"""Seconds until a change must have been told."""
NEXT = "wharfinger/next"
"""In `_meta` of a window: the URI of the next one."""
NEVER = (
    *("../etc/passwd", "../../../../etc/passwd", "%2e%2e/%2e%2e/etc/passwd", "..%2f..%2fetc%2fpasswd", "%2e%2e"),
    *("a%00b", "a\0b", "%", "%zz", "%c3%28", "\ud800", "a/" * 20_000),
)
"""Behind a top: what may not lead anywhere."""
ODD = (
    *("//", "./", "?", "?=", "?a=b&a=c", "?lines=1-2&lines=3-4", "?%00=1", "?lines=9-1", "?tail=-1", "?bytes=x"),
    *("?nobody=knows", "#fragment", "%252e%252e/x", "*", "{path}", "'; drop table x; --", "--help", "con", "a\nb"),
)
"""Behind a top: what may be answered, or refused in the usual ways."""

URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:(?:[A-Za-z0-9\-._~:/?#\[\]@!$&'()*+,;=]|%[0-9A-Fa-f]{2})*").fullmatch
_MIME = re.compile(r"[\w.+-]+/[\w.+*-]+(; ?[\w.-]+=\S+)?").fullmatch
_STAMP = re.compile(r"\d{4,}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)").fullmatch


def sample(stage: Stage) -> list[t.Resource]:
    """The first resources of the list."""
    found: list[t.Resource] = stage.pages(SAMPLE, 1)
    return found


def answered(stage: Stage, method: str, *arguments: Any) -> Any:
    """What a method returns, or the exception that it raises."""
    return attempt(lambda: stage.ask(method, *arguments))


def attempt(function: Callable[[], Any]) -> Any:
    """What it returns, or the exception that it raises."""
    try:
        return function()
    except Broken:
        raise
    except Exception as error:
        return error


def until(holds: Callable[[], bool], clause: str, problem: str) -> None:
    """Wait until it holds; the problem, where it does not in time."""
    ends = time.monotonic() + DEADLINE
    while not holds():
        expect(time.monotonic() < ends, clause, problem)
        time.sleep(0.02)


def same_in_all_sizes(uris: Callable[[int, int], list[str]], live: bool) -> None:
    """Compare a list, as `uris(limit, most_pages)` gives it, with itself in pages of other sizes."""
    whole = uris(1_000, 2)
    twice = {uri for uri in whole if whole.count(uri) > 1} if len(whole) < 1_000 else ()
    expect(not twice, "Pages", f"Listed twice: {few(twice)}.")
    for limit in () if live else (1, 2, 7):
        found = uris(limit, SAMPLE)
        wanted = whole[: len(found)] if len(found) >= limit * SAMPLE else whole
        problem = (
            f"In pages of {limit} the list is another one than in pages of 1,000: {few(set(wanted) ^ set(found))}."
        )
        expect(found == wanted, "Pages", problem)


def directories(stage: Stage, most: int = 20) -> list[str]:
    """The top and what is below it, as far as `most` goes."""
    found = [stage.source.uri]
    for directory in found:
        for child in stage.children(directory, SAMPLE, most=1):
            if len(found) < most and child.mime_type == DIRECTORY and child.uri not in found:
                found.append(child.uri)
    return found


def is_directory(stage: Stage, uri: str) -> bool:
    """Whether there is such a directory."""
    answer = answered(stage, "stat", uri) if uri else None
    return isinstance(answer, t.Resource) and answer.mime_type == DIRECTORY


def check_resource(item: t.Resource, clause: str) -> None:
    """A resource has a valid URI, and names, types and sizes that a person and a client can use."""
    uri = item.uri
    expect(isinstance(item, t.Resource), clause, f"{item!r} is no Resource.")
    expect(URI(uri) and len(uri) <= 8_192, clause, f"{uri!r} is no URI: escape what RFC 3986 does not allow.")
    for part in ("name", "title"):
        text = getattr(item, part)
        if text is not UNSET:
            problem = f"{uri}: its {part} is no line of plain text: {text!r}"
            expect(text and len(text) <= 1_000 and text.isprintable(), clause, problem)
    expect(item.mime_type is UNSET or _MIME(item.mime_type), clause, f"{uri}: {item.mime_type!r} is no MIME type.")
    size: Any = item.size
    expect(size is UNSET or (isinstance(size, int) and size >= 0), clause, f"{uri}: {size!r} is no size.")
    if item.annotations is not UNSET and item.annotations.last_modified is not UNSET:
        stamp = item.annotations.last_modified
        expect(_STAMP(stamp), clause, f"{uri}: {stamp!r} is no time as ISO 8601 writes it.")
    msgspec.json.encode(item)


def behind(source: Source, ends: tuple[str, ...]) -> list[str]:
    """URIs below the top of the source."""
    if not source.uri:
        return []
    top = source.uri if source.uri.endswith("/") else source.uri + "/"
    return [top + end for end in ends]


def completed(
    stage: Stage, template: t.ResourceTemplate, variable: str, value: str, values: dict[str, str]
) -> list[str]:
    """What completes a variable of a template."""
    found: Any = stage.ask("complete", template.uri_template, variable, value, dict(values))
    problem = f"{template.uri_template}: completions of {variable} are {brief(found)}."
    expect(is_texts(found) and len(found) <= 100, "complete", problem)
    return list(found)


def is_texts(found: Any) -> bool:
    """Whether it is a list of strings."""
    return is_all(found, str)


def is_all(found: Any, kind: type) -> bool:
    """Whether it is a list of values of this type."""
    return isinstance(found, (list, tuple)) and all(isinstance(value, kind) for value in cast("list[Any]", found))


def version_of_contents(result: t.ReadResourceResult) -> str:
    """The version that a read says."""
    meta = result.contents[0].meta
    return "" if meta is UNSET else str(meta.get(VERSION, ""))


def next_of(content: t.ResourceContents) -> str | None:
    """The URI of the next window."""
    value = None if content.meta is UNSET else content.meta.get(NEXT)
    return None if value is None else str(value)


def bytes_of(content: t.ResourceContents) -> bytes:
    """A content as bytes."""
    return content.text.encode() if content.text is not UNSET else content.blob or b""


def few(uris: Any) -> str:
    """Some URIs of many, for a message."""
    return ", ".join(sorted(uris)[:5])


def brief(value: Any) -> str:
    """Something that was answered, for a message: what it is, and not all of it."""
    text = repr(value)
    if isinstance(value, WharfingerError):
        text = f"{type(value).__name__}: {value}"
    return text if len(text) <= 120 else f"{text[:120]}… ({len(text):,} characters)"
