"""Where each host keeps its MCP servers and how an entry in its file looks, as a table."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["HOSTS", "Host", "LocalServer", "RemoteServer", "entry"]


class LocalServer(NamedTuple):
    """A server that the host starts: absolute command with its arguments, and environment."""

    command: tuple[str, ...]
    env: Mapping[str, str] = {}


class RemoteServer(NamedTuple):
    """A server at a URL: headers, and the variable that holds the bearer token (empty if there is none)."""

    url: str
    headers: Mapping[str, str] = {}
    token_env: str = ""


class Host(NamedTuple):
    """One host's files.

    `user` is the user's file below `base`, `project` the file inside a project (empty if there is none), `table` the
    member that holds the servers, `url` the key of a URL (empty if the file takes stdio only), `typed` whether an
    entry names its transport, `reference` how a value refers to an environment variable (empty if there is a key of
    its own for that), `after_add` and `after_remove` what to do then.
    """

    title: str
    base: str
    user: str
    project: str
    table: str
    url: str
    typed: bool
    reference: str
    after_add: str
    after_remove: str


HOSTS: dict[str, Host] = {
    "claude-desktop": Host(
        title="Claude Desktop",
        base="config",
        user="Claude/claude_desktop_config.json",
        project="",
        table="mcpServers",
        url="",
        typed=False,
        reference="",
        after_add="Restart Claude Desktop",
        after_remove="Restart Claude Desktop",
    ),
    "claude-code": Host(
        title="Claude Code",
        base="home",
        user=".claude.json",
        project=".mcp.json",
        table="mcpServers",
        url="url",
        typed=True,
        reference="${%s}",
        after_add="Start a new Claude Code session; /mcp shows it",
        after_remove="Claude Code omits it from the next session on",
    ),
    "vscode": Host(
        title="VS Code",
        base="config",
        user="Code/User/mcp.json",
        project=".vscode/mcp.json",
        table="servers",
        url="url",
        typed=True,
        reference="${env:%s}",
        after_add="In VS Code run `MCP: List Servers` to start it",
        after_remove="If VS Code is open, it stops the server by itself",
    ),
    "cursor": Host(
        title="Cursor",
        base="home",
        user=".cursor/mcp.json",
        project=".cursor/mcp.json",
        table="mcpServers",
        url="url",
        typed=False,
        reference="${env:%s}",
        after_add="Cursor asks before it starts the server",
        after_remove="If Cursor is open, restart it",
    ),
    "codex": Host(
        title="Codex",
        base="codex",
        user="config.toml",
        project=".codex/config.toml",
        table="mcp_servers",
        url="url",
        typed=False,
        reference="",
        after_add="Restart codex; /mcp shows it",
        after_remove="Codex omits it from its next start on",
    ),
    "gemini": Host(
        title="Gemini CLI",
        base="home",
        user=".gemini/settings.json",
        project=".gemini/settings.json",
        table="mcpServers",
        url="httpUrl",
        typed=False,
        reference="${%s}",
        after_add="Restart gemini; /mcp shows it",
        after_remove="Gemini omits it from its next start on",
    ),
}


def user_file(host: Host) -> Path:
    """Return the host's file for this user on this platform."""
    return BASES[host.base]() / host.user


def config_folder() -> Path:
    """Return where desktop applications keep their settings."""
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support"
    if sys.platform == "win32":
        return Path(os.environ.get("APPDATA") or Path.home() / "AppData" / "Roaming")
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")


def codex_folder() -> Path:
    """Return Codex's own folder."""
    return Path(os.environ.get("CODEX_HOME") or Path.home() / ".codex")


BASES = {"home": Path.home, "config": config_folder, "codex": codex_folder}


def entry(host: Host, server: LocalServer | RemoteServer) -> dict[str, Any]:
    """Return the entry for one server in the format of the host's file."""
    if isinstance(server, LocalServer):
        kind: dict[str, Any] = {"type": "stdio"} if host.typed else {}
        env = {"env": dict(server.env)} if server.env else {}
        return {**kind, "command": server.command[0], "args": list(server.command[1:]), **env}
    kind = {"type": "http"} if host.typed else {}
    headers = dict(server.headers)
    token: dict[str, Any] = {}
    if server.token_env and host.reference:
        headers["Authorization"] = "Bearer " + host.reference % server.token_env
    elif server.token_env:
        token = {"bearer_token_env_var": server.token_env}
    named = {"http_headers" if host.base == "codex" else "headers": headers} if headers else {}
    return {**kind, host.url: server.url, **token, **named}
