"""Which errors and methods are retried, and after which delay."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.client.scripted import SILENCE, Refusal, Script, run
from wharfinger.client import Client, skills
from wharfinger.client.retry import is_transient, requested_wait
from wharfinger.client.retry_step import READ_METHODS
from wharfinger.client.task_polling import RESULT
from wharfinger.errors import (
    ConnectionFailed,
    ConnectionLost,
    InvalidResponse,
    NotAuthorized,
    NotMCP,
    RemoteError,
    UnsupportedRevision,
)
from wharfinger.protocol.methods import METHODS
from wharfinger.transports.http_client.origin import NoMessage


@pytest.mark.parametrize(
    ("error", "transient"),
    [
        (ConnectionLost(), True),
        (ConnectionFailed("refused"), True),
        (NoMessage("gateway", 503), True),
        (NoMessage("wrong path", 404), False),
        (NotAuthorized("no"), False),
        (NotMCP("a web page"), False),
        (UnsupportedRevision("none in common"), False),
        (InvalidResponse("nonsense"), False),
        (RemoteError(-32603, "broken"), False),
        (ValueError(), False),
    ],
)
def test_only_transient_errors_are_retried(error: Exception, transient: bool) -> None:
    assert is_transient(error) is transient


def test_only_read_only_methods_are_retried() -> None:
    assert {*METHODS, skills.LIST.name, skills.GET.name, skills.DIRECTORY.name, RESULT.name} > READ_METHODS
    assert not READ_METHODS & {"tools/call", "prompts/get", "resources/subscribe", "initialize", "subscriptions/listen"}


@pytest.mark.parametrize(
    ("method", "call"),
    [
        ("skills/list", lambda client: client.list_skills()),
        ("skills/get", lambda client: client.get_skill("skill://a/SKILL.md")),
        ("resources/directory/read", lambda client: client.read_directory("skill://a")),
    ],
)
def test_reads_of_the_skills_extension_are_sent_again_after_a_lost_connection(
    method: str, call: Callable[[Client], Awaitable[Any]]
) -> None:
    """A bug: they raised ConnectionLost, unlike other lists and reads."""

    async def test() -> None:
        def answer(_: Any) -> Any:
            if server.count(method) == 1:
                server.hang_up()
                return SILENCE
            return Refusal(-32602, "served")

        async with Script() as server, server.client() as client:
            server.answers[method] = answer
            with pytest.raises(RemoteError, match="served"):
                await call(client)
            assert server.count(method) == 2

    run(test())


@pytest.mark.parametrize(
    ("error", "seconds"),
    [
        (RemoteError(-32603, "busy", {"retryAfter": 3}), 3.0),
        (RemoteError(-32603, "busy", {"retryAfter": 0.5}), 0.5),
        (RemoteError(-32603, "busy", {"retryAfter": 0}), 0.0),
        (RemoteError(-32603, "busy", {"retryAfter": -1}), None),
        (RemoteError(-32603, "busy", {"retryAfter": True}), None),
        (RemoteError(-32603, "busy", {"retryAfter": "3"}), None),
        (RemoteError(-32603, "busy", {"retryAfter": float("nan")}), None),
        (RemoteError(-32603, "busy", {"retryAfter": 10**400}), None),
        (RemoteError(-32603, "busy", [3]), None),
        (RemoteError(-32603, "busy"), None),
        (NoMessage("a proxy", 429, "7"), 7.0),
        (NoMessage("a proxy", 429), None),
        (NoMessage("a proxy", 429, "1.5"), 2.0),
        (NoMessage("a proxy", 429, "Wed, 21 Oct 2015 07:28:00 GMT"), 0.0),
        (NoMessage("a proxy", 429, "9" * 10), None),
        (NoMessage("a proxy", 429, "\u0663"), None),
        (NoMessage("a proxy", 503, "7"), None),
        (ConnectionLost(), None),
    ],
)
def test_retry_after_is_read_in_seconds(error: Exception, seconds: float | None) -> None:
    assert requested_wait(error) == seconds
