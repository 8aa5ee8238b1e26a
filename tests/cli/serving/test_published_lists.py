"""The lists of the servers that a policy is for."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from wharfinger import Server
from wharfinger.cli.error_report import CommandError
from wharfinger.cli.serving import published_lists


def test_a_server_that_does_not_answer_is_an_error_with_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bug: it was an unexpected TimeoutError without a text."""
    monkeypatch.setattr(published_lists, "TIMEOUT_SECONDS", 0.1)
    server = Server("harbour")

    @server.tool
    def berth(ship: str) -> str:
        return ship

    async def never(request: Any, next: Any) -> Any:
        await asyncio.Event().wait()

    server.methods.add_middleware(never, ("tools/list",))
    with pytest.raises(CommandError, match=r"harbour did not list what it publishes within 0.1 s"):
        published_lists.read_server_lists(server)
