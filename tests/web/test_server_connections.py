"""How the page connects to servers."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest

from wharfinger import Server
from wharfinger.client import ClientOptions
from wharfinger.upstreams.config import ServerConfig
from wharfinger.web.server_connections import ServerConnections


@pytest.mark.parametrize("revision", ["2025-06-18", "2025-11-25"])
def test_a_server_is_asked_for_the_revision_that_was_chosen(revision: str) -> None:
    async def connect() -> str:
        config = ServerConfig(name="harbour", target=Server("harbour"))
        async with ServerConnections([config], options=ClientOptions(revision=revision)) as connections:
            await connections.upstreams.ready(10)
            return connections.upstreams["harbour"].client.revision

    assert asyncio.run(connect()) == revision


def test_a_revision_that_does_not_exist_is_a_usage_error() -> None:
    words = [sys.executable, "-m", "wharfinger", "browse", "--no-open", "--revision", "1999-01-01", "."]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "choose one of" in done.stderr
