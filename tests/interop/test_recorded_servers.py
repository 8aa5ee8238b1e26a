"""The recorded tools of public servers (tests/host/model_apis) match those of the installed servers."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.host.model_apis.test_public_servers import LISTS, check_definitions
from tests.interop.programs import PROBE_SECONDS, installed, node
from wharfinger import Client

COMMANDS = {
    "filesystem": lambda folder: [*node("servers_js", "@modelcontextprotocol/server-filesystem/dist/index.js"), folder],
    "memory": lambda folder: node("servers_js", "@modelcontextprotocol/server-memory/dist/index.js"),
    "git": lambda folder: [installed("mcp2", "bin/mcp-server-git")],
    "time": lambda folder: [installed("mcp2", "bin/mcp-server-time")],
    "sqlite": lambda folder: [installed("mcp1", "bin/mcp-server-sqlite")],
}


@pytest.mark.parametrize("server", COMMANDS)
async def test_an_installed_server_has_the_recorded_tools(server: str, tmp_path: Path) -> None:
    variables = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    command = COMMANDS[server](str(tmp_path))
    async with Client(command, cwd=tmp_path, env=variables, probe_timeout=PROBE_SECONDS) as client:
        tools = await client.list_tools()
    check_definitions(tools)
    assert {tool.name for tool in tools} == {tool.name for tool in LISTS[server]}
