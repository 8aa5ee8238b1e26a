"""Server entries of host configurations: valid ones and the errors of invalid ones."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

from wharfinger import Client
from wharfinger.client.host_entry import HostEntry, read_entry

CODE = """
import os
from wharfinger import Server
server = Server("harbour")
@server.tool
def where() -> str:
    return os.getcwd() + " " + os.environ["SHIP"]
server.run()
"""


@pytest.mark.parametrize("whole", [False, True])
def test_a_command_runs_with_the_settings_of_its_entry(tmp_path: Path, whole: bool) -> None:
    entry = {"command": sys.executable, "args": ["-c", CODE], "env": {"SHIP": "Mary"}, "cwd": str(tmp_path)}

    async def call() -> str:
        async with Client({"mcpServers": {"harbour": entry}} if whole else entry) as client:
            return (await client.call_tool("where")).text

    assert asyncio.run(call()) == f"{tmp_path} Mary"


def test_options_of_the_caller_take_precedence(tmp_path: Path) -> None:
    entry = {"command": sys.executable, "args": ["-c", CODE], "env": {"SHIP": "Mary"}, "cwd": "/"}

    async def call() -> str:
        async with Client(entry, env={"SHIP": "Anna"}, cwd=tmp_path) as client:
            return (await client.call_tool("where")).text

    assert asyncio.run(call()) == f"{tmp_path} Anna"


def test_a_url_is_requested_with_the_headers_of_its_entry() -> None:
    entry = {"type": "http", "url": "https://a.test/mcp", "headers": {"X-Ship": "Mary"}}
    assert read_entry(entry) == HostEntry("https://a.test/mcp", {"X-Ship": "Mary"}, {}, None)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({}, 'either "url" or "command"'),
        ({"url": "https://a.test", "command": "x"}, 'either "url" or "command"'),
        ({"url": "ftp://a.test"}, "http:// or https://"),
        ({"command": "x", "args": "-v"}, "a list of strings"),
        ({"command": 3}, "a list of strings"),
        ({"command": "x", "cwd": 3}, "path of a folder"),
        ({"command": "x", "env": {"A": 1}}, '"env" of an entry'),
        ({"url": "https://a.test", "headers": []}, '"headers" of an entry'),
        ({"httpUrl": "https://a.test"}, 'does not read "httpUrl" of an entry: use "url"'),
        ({"url": "https://a.test", "bearer_token_env_var": "T"}, 'use "headers", or pass it to a Host'),
        ({"command": "x", "envFile": ".env"}, 'does not read "envFile" of an entry: use "env"'),
        ({"mcpServers": {}}, "has no server"),
        ({"mcpServers": {"a": "https://a.test"}}, "The entry of a must be an object"),
        ({"mcpServers": {"a": {}, "b": {}}}, "has a, b: pass the entry of one"),
    ],
)
def test_an_invalid_entry_is_refused(entry: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Client(entry)
