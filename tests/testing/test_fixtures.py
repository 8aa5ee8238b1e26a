"""A test that uses `client` runs once for each revision, in any project that has pytest."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from wharfinger import Context, Server
from wharfinger.testing import REVISIONS, ClientFactory, client

__all__ = ["client"]


async def test_the_client_speaks_the_revision_of_its_run(client: ClientFactory) -> None:
    async with client(Server("s")) as opened:
        assert opened.revision == client.revision
    async with client(Server("s"), revision="2025-06-18") as opened:
        assert opened.revision == "2025-06-18"


async def test_answers_are_a_script(client: ClientFactory) -> None:
    server = Server("s")

    @server.tool
    async def sail(ctx: Context) -> str:
        return (await ctx.sample("Say something")).text

    async with client(server, answers={"sampling/createMessage": "Ahoy"}) as opened:
        assert (await opened.call_tool("sail")).text == "Ahoy"


def test_the_revisions_are_five_and_in_order() -> None:
    assert REVISIONS == ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28")


def test_a_project_needs_nothing_but_the_import(tmp_path: Path) -> None:
    (tmp_path / "test_mine.py").write_text(
        "import asyncio\n"
        "from wharfinger import Server\n"
        "from wharfinger.testing import client\n"
        "def test_it(client):\n"
        "    async def use():\n"
        "        async with client(Server('s')) as opened:\n"
        "            assert opened.revision == client.revision\n"
        "    asyncio.run(use())\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=50, check=False)
    assert "5 passed" in done.stdout, done.stdout + done.stderr


def test_the_tools_are_loaded_without_pytest() -> None:
    code = "import sys; from wharfinger.testing import Wire, Script, rehearse; assert 'pytest' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=50).returncode == 0
