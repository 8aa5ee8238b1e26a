"""The default of every bound, as the documentation states it."""

from __future__ import annotations

import msgspec
import pytest

from wharfinger.protocol.http.rules import HttpLimits
from wharfinger.protocol.interfaces import MAX_AUTH_RETRIES
from wharfinger.protocol.limits import Limits

KIB, MIB = 1 << 10, 1 << 20

SERVICE = {
    "message": 4 * MIB, "depth": 64, "members": 250_000, "id_length": 256, "batch": 256, "in_flight": 4096,
    "listens": 64, "watched": 10_000, "watched_total": 1_000_000, "backlog": MIB, "unread": 64 * MIB,
    "unread_total": 256 * MIB, "content": 256 * MIB, "handler_time": 300, "answer_time": 1800, "questions": 64,
    "rounds": 8, "state": 64 * KIB, "state_time": 3600, "tasks": 1000, "tasks_each": 100, "tasks_kept": 10_000,
    "task_result": 16 * MIB, "task_results": 256 * MIB, "drain": 2,
}  # fmt: skip
HTTP = {
    "header_size": 32 * KIB, "header_count": 100, "header_time": 20, "body_time": 20, "body_rate": 64 * KIB,
    "unfinished": 64 * MIB, "connections": 10_000, "sessions": 10_000, "session_time": 1800,
    "session_requests": 16_384, "streams": 10_000, "streams_per_client": 1024, "replay_events": 256,
    "replay_size": MIB, "replay_total": 64 * MIB, "comment_time": 15, "stalled_time": 60, "keep_alive": 65,
    "watch_after": 0.05, "sweep_time": 1, "drain": 3, "backlog": 2048,
}  # fmt: skip


@pytest.mark.parametrize(("limits", "expected"), [(Limits(), SERVICE), (HttpLimits(), HTTP)])
def test_every_limit_has_its_documented_default(limits: Limits | HttpLimits, expected: dict[str, float]) -> None:
    assert msgspec.structs.asdict(limits) == expected


@pytest.mark.parametrize("kind", [Limits, HttpLimits])
def test_limits_are_set_by_name_and_are_immutable(kind: type[Limits] | type[HttpLimits]) -> None:
    limits = kind(drain=7.5)
    assert limits.drain == 7.5
    with pytest.raises(AttributeError):
        limits.drain = 1.0  # type: ignore[misc]


def test_a_refused_request_is_retried_three_times() -> None:
    assert MAX_AUTH_RETRIES == 3
