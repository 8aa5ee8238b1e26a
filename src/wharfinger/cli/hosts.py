"""Where each host keeps its MCP servers and how it writes one, as a table; it refuses to write files."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["HOSTS", "Host", "Local", "Remote", "entry"]


class Local(NamedTuple):
    """A server that the host starts: absolute command, arguments, environment."""

    command: tuple[str, ...]
    env: Mapping[str, str] = {}


class Remote(NamedTuple):
    """A server that the host reaches by URL: headers, and the variable that holds the bearer token (or empty)."""

    url: str
    headers: Mapping[str, str] = {}
    token_env: str = ""


class Host(NamedTuple):
    """One host's habits.

    `user` is its file below `base`, `project` its file inside a project (empty: it has none), `table` the member
    that holds the servers, `url` the key of a URL (empty: its file takes stdio only), `typed` whether an entry says
    its transport, `reference` how a value names an environment variable (empty: it has a key of its own for that),
    `then` what to do when a server was added and `gone` when it was removed.
    """

    title: str
    base: str
    user: str
    project: str
    table: str
    url: str
    typed: bool
    reference: str
    then: str
    gone: str


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
        then="Quit and start Claude Desktop again",
        gone="Quit and start Claude Desktop again",
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
        then="Start a new Claude Code session; /mcp shows it",
        gone="Claude Code leaves it out from its next session on",
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
        then="In VS Code run `MCP: List Servers` to start it",
        gone="If VS Code is open, it ends the server by itself",
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
        then="Cursor asks before it starts it",
        gone="If Cursor is open, start it again",
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
        then="Start codex again; /mcp shows it",
        gone="Codex leaves it out from its next start on",
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
        then="Start gemini again; /mcp shows it",
        gone="Gemini leaves it out from its next start on",
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
    """Return Codex's own folder, which it lets one move."""
    return Path(os.environ.get("CODEX_HOME") or Path.home() / ".codex")


BASES = {"home": Path.home, "config": config_folder, "codex": codex_folder}


def entry(host: Host, server: Local | Remote) -> dict[str, Any]:
    """Write one server as the host wants it."""
    if isinstance(server, Local):
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
