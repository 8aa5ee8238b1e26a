"""The lists of the servers that a policy is for."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import click
import pytest

from wharfinger import Server
from wharfinger.cli.error_report import CommandError
from wharfinger.cli.serving import published_lists
from wharfinger.source import UnusableSource


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


def test_a_word_that_cannot_be_published_beside_others_is_named(tmp_path: Path) -> None:
    context = click.Context(click.Command("check"))
    with pytest.raises(UnusableSource, match=r"^tides: is not a kind of data that can be published"):
        published_lists.read_target_lists(context, [str(tmp_path), "tides:north"])
    with pytest.raises(click.UsageError, match="Give one server"):
        published_lists.read_target_lists(context, [str(tmp_path), str(tmp_path / "server.py")])
