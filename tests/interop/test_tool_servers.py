"""Our client uses popular servers: listing, calling, reading, and errors."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.interop.programs import HANDSHAKE, PROBE_SECONDS, STATELESS, installed, node
from wharfinger import Client, ResourceNotFound, ToolError
from wharfinger.errors import RemoteError, RemoteInvalidParams

OFFICIAL = "@modelcontextprotocol"


def make_client(command: list[str], **variables: str) -> Client:
    """Return a client that starts a server with this command."""
    return Client(command, probe_timeout=PROBE_SECONDS, env={"PATH": os.environ["PATH"], **variables})


async def tool_names(client: Client) -> set[str]:
    return {tool.name for tool in await client.list_tools()}


async def test_our_client_uses_the_filesystem_server(tmp_path: Path) -> None:
    """This server has no resources. Its files are read by tools."""
    command = [*node("servers_js", f"{OFFICIAL}/server-filesystem/dist/index.js"), str(tmp_path)]
    async with make_client(command) as client:
        assert client.revision == HANDSHAKE
        assert {"read_text_file", "write_file", "list_directory"} <= await tool_names(client)
        tides = str(tmp_path / "tides.txt")
        await client.call_tool("write_file", {"path": tides, "content": "høy\n"})
        assert (tmp_path / "tides.txt").read_text() == "høy\n"
        assert (await client.call_tool("read_text_file", {"path": tides})).data == {"content": "høy\n"}
        assert "[FILE] tides.txt" in (await client.call_tool("list_directory", {"path": str(tmp_path)})).text
        with pytest.raises(ToolError, match="outside allowed directories"):
            await client.call_tool("read_text_file", {"path": "/etc/hostname"})
        with pytest.raises(ToolError, match="Input validation error"):
            await client.call_tool("read_text_file", {})
        assert (await client.call_tool("read_text_file", {"path": tides})).text == "høy\n"


async def test_our_client_uses_the_memory_server(tmp_path: Path) -> None:
    command = node("servers_js", f"{OFFICIAL}/server-memory/dist/index.js")
    async with make_client(command, MEMORY_FILE_PATH=str(tmp_path / "memory.jsonl")) as client:
        assert client.revision == HANDSHAKE
        assert {"create_entities", "read_graph"} <= await tool_names(client)
        amber = {"name": "amber", "entityType": "ship", "observations": ["late"]}
        created = await client.call_tool("create_entities", {"entities": [amber]})
        assert created.data == {"entities": [amber]}
        (resource,) = await client.list_resources()
        assert (await client.read_resource(resource.uri)).json() == {"entities": [amber], "relations": []}
        nobody = {"entityName": "nobody", "contents": ["late"]}
        with pytest.raises(ToolError, match="nobody not found"):
            await client.call_tool("add_observations", {"observations": [nobody]})
        with pytest.raises(RemoteInvalidParams, match="not found"):
            await client.read_resource("memory://nothing")
        assert "amber" in (await client.call_tool("search_nodes", {"query": "amber"})).text


async def test_our_client_uses_the_git_server(tmp_path: Path) -> None:
    author = {"GIT_AUTHOR_NAME": "Mary", "GIT_AUTHOR_EMAIL": "mary@example.test"}
    committer = {"GIT_COMMITTER_NAME": "Mary", "GIT_COMMITTER_EMAIL": "mary@example.test"}
    repository = tmp_path / "charts"
    for arguments in (
        ["init", "--quiet", str(repository)],
        ["-C", str(repository), "commit", "--quiet", "--allow-empty", "-m", "first"],
    ):
        subprocess.run(["git", *arguments], check=True, env={**os.environ, **author, **committer})
    (repository / "north.txt").write_text("six metres\n")

    command = [installed("mcp2", "bin/mcp-server-git"), "--repository", str(repository)]
    async with make_client(command, HOME=str(tmp_path), **author, **committer) as client:
        assert client.revision == STATELESS
        assert {"git_status", "git_add", "git_commit", "git_log"} <= await tool_names(client)
        repository_argument: dict[str, Any] = {"repo_path": str(repository)}
        assert "north.txt" in (await client.call_tool("git_status", repository_argument)).text
        await client.call_tool("git_add", {**repository_argument, "files": ["north.txt"]})
        await client.call_tool("git_commit", {**repository_argument, "message": "Sound the north quay"})
        assert "Sound the north quay" in (await client.call_tool("git_log", repository_argument)).text
        with pytest.raises(ToolError, match="did not resolve"):
            await client.call_tool("git_show", {**repository_argument, "revision": "nowhere"})
        with pytest.raises(ToolError, match="Field required"):
            await client.call_tool("git_log")
        with pytest.raises(RemoteInvalidParams, match="Unknown tool"):
            await client.call_tool("git_push", repository_argument)
        assert list(await client.list_resources()) == []
        with pytest.raises(ResourceNotFound):
            await client.read_resource("git://nothing")


async def test_our_client_uses_the_sqlite_server(tmp_path: Path) -> None:
    command = [installed("mcp1", "bin/mcp-server-sqlite"), "--db-path", str(tmp_path / "ships.db")]
    async with make_client(command) as client:
        assert client.revision == HANDSHAKE
        assert {"create_table", "write_query", "read_query"} <= await tool_names(client)
        await client.call_tool("create_table", {"query": "CREATE TABLE ships (name TEXT)"})
        await client.call_tool("write_query", {"query": "INSERT INTO ships VALUES ('amber')"})
        assert (await client.call_tool("read_query", {"query": "SELECT * FROM ships"})).text == "[{'name': 'amber'}]"
        failed = await client.call_tool("read_query", {"query": "SELECT age FROM ships"})
        assert "no such column" in failed.text  # this server does not mark it as an error
        with pytest.raises(ToolError, match="required property"):
            await client.call_tool("read_query")
        await client.call_tool("append_insight", {"insight": "amber is always late"})
        (resource,) = await client.list_resources()
        assert "amber is always late" in (await client.read_resource(resource.uri)).text
        with pytest.raises(RemoteError, match="Unsupported URI scheme"):
            await client.read_resource("ships://amber")


async def test_our_client_uses_the_time_server() -> None:
    async with make_client([installed("mcp2", "bin/mcp-server-time"), "--local-timezone", "UTC"]) as client:
        assert client.revision == STATELESS
        assert await tool_names(client) == {"get_current_time", "convert_time"}
        noon = {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"}
        converted = await client.call_tool("convert_time", noon)
        assert converted.data["target"]["timezone"] == "Asia/Tokyo"
        assert "T21:00:00+09:00" in json.loads(converted.text)["target"]["datetime"]
        with pytest.raises(ToolError, match="Nowhere"):
            await client.call_tool("get_current_time", {"timezone": "Nowhere"})
        with pytest.raises(ResourceNotFound):
            await client.read_resource("time://now")
