"""Default limits and times have their documented values."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from wharfinger import Context, Server
from wharfinger.content import globs, search_query
from wharfinger.server import cursors, near_uris, search
from wharfinger.server.features import completion, listing, pages, resource
from wharfinger.server.input import round_trips
from wharfinger.server.input.input_requests import Sample
from wharfinger.server.middleware import development, guards
from wharfinger.server.middleware.guards import Times, limit_rate
from wharfinger.server.search import SearchRequest
from wharfinger.server.signature import arguments, type_schemas
from wharfinger.server.skills import serve_skills
from wharfinger.server.subscriptions import watching
from wharfinger.server.tasks import task_extension
from wharfinger.server.tasks.task_extension import Tasks
from wharfinger.server.threads import Pool
from wharfinger.source import Source, UnusableSource

MIB = 1024 * 1024

BOUNDS: list[tuple[Any, dict[str, Any]]] = [
    (completion, {"MAX_VALUES": 100}),
    (development, {"BLOCKED_SECONDS": 0.25}),
    (globs, {"MAX_PATTERN_CHARACTERS": 1_000}),
    (guards, {"MAX_SUBJECT_CHARACTERS": 200}),
    (listing, {"DEFAULT_PAGE_SIZE": 1_000, "PAGE_BYTES": MIB, "MAX_CACHED_PAGES": 64}),
    (pages, {"MAX_CURSOR_URIS": 16, "MAX_CURSOR_URI_CHARACTERS": 4_096}),
    (arguments, {"MAX_DECODERS": 256}),
    (resource, {"MAX_RESOURCE_URI_CHARACTERS": 8_192}),
    (round_trips, {"MAX_ELICITATION_SESSIONS": 10_000, "DECLINED_CODE": -1}),
    (search, {"MAX_TERM_CHARACTERS": 2_000, "FILTERED_LIMIT_FACTOR": 10}),
    (search_query, {"MAX_QUERY_CHARACTERS": 2_000, "MAX_QUERY_WORDS": 16, "MAX_PARTS": 8}),
    (
        near_uris,
        {
            "LISTING_SECONDS": 0.25,
            "MAX_COMPARED_URIS": 5_000,
            "MAX_CONCURRENT_SEARCHES": 2,
            "MAX_SUGGESTIONS": 3,
            "MAX_COMPARED_CHARACTERS": 400,
        },
    ),
    (
        task_extension,
        {
            "COALESCE_SECONDS": 0.05,
            "MIN_KEPT_SECONDS": 300.0,
            "GRACE_SECONDS": 60.0,
            "LEASE_SECONDS": 15.0,
            "HEARTBEAT_SECONDS": 1.0,
            "MAX_INBOX_MESSAGES": 1_000,
            "MAX_INBOX_BYTES": 64 * MIB,
            "MAX_ID_CHARACTERS": 64,
        },
    ),
    (type_schemas, {"MAX_SCHEMAS": 256}),
    (watching, {"COALESCE_SECONDS": 0.05, "WATCHERS_PER_TURN": 200}),
]


@pytest.mark.parametrize(("module", "bounds"), BOUNDS, ids=[module.__name__ for module, _ in BOUNDS])
def test_default_bounds_have_their_documented_value(module: Any, bounds: dict[str, Any]) -> None:
    assert {name: getattr(module, name) for name in bounds} == bounds


def test_sealed_values_have_their_documented_lengths() -> None:
    assert (cursors.CURSOR.mac_bytes, cursors.CURSOR.max_characters) == (12, 48 * 1024)
    assert cursors.state_kind(100)[:2] == (32, 100)


DEFAULTS: list[tuple[Callable[..., Any], dict[str, Any]]] = [
    (Server, {"ttl": 0.0, "task_ttl": 3600.0, "task_poll": 1.0}),
    (Tasks, {"ttl": 3600.0, "poll": 1.0}),
    (Pool, {"size": 32, "share": 24, "member_share": 16, "max_queued": 4_096, "max_wait": 2.0, "max_lost": 64}),
    (Sample, {"max_tokens": 1024}),
    (Context.sample, {"max_tokens": 1024}),
    (Context.search, {"limit": 20}),
    (Context.close_stream, {"retry_ms": 1000}),
    (Source.children, {"limit": 1_000}),
    (limit_rate, {"max_callers": 10_000}),
    (serve_skills, {"page_size": 500}),
]


@pytest.mark.parametrize(("function", "defaults"), DEFAULTS, ids=[f.__qualname__ for f, _ in DEFAULTS])
def test_omitted_options_have_their_defaults(function: Callable[..., Any], defaults: dict[str, Any]) -> None:
    parameters = inspect.signature(function).parameters
    assert {name: parameters[name].default for name in defaults} == defaults


def test_objects_created_without_arguments_have_their_defaults() -> None:
    assert SearchRequest(query="x").limit == 20
    assert Times() == Times(count=0, failed=0, total=0.0, longest=0.0)
    assert UnusableSource.exit_code == 2
