"""A table of hosts: the files in which they configure MCP servers, and the format of an entry."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from wharfinger.private_files import home_folder

__all__ = ["HOSTS", "HostFormat", "LocalServer", "RemoteServer", "entry"]


class LocalServer(NamedTuple):
    """A server that the host starts: its command (an absolute path) with arguments, and its environment."""

    command: tuple[str, ...]
    env: Mapping[str, str] = {}


class RemoteServer(NamedTuple):
    """A server at a URL: headers, and the variable that holds the bearer token (empty if there is none)."""

    url: str
    headers: Mapping[str, str] = {}
    token_env: str = ""


class HostFormat(NamedTuple):
    """The configuration files of one host."""

    title: str
    base: str
    """The folder that contains `user`, as a key of `BASES`."""
    user: str
    """Path of the user's file in that folder."""
    project: str
    """Path of the file in a project, or an empty string if there is none."""
    table: str
    """The member of the file that contains the servers."""
    url: str
    """The key of a server's URL, or an empty string if the file takes stdio only."""
    typed: bool
    """Whether an entry names its transport."""
    reference: str
    """How a value refers to an environment variable.

    Empty if the variable is named under another key, or the file takes stdio only.
    """
    after_add: str
    """A note for the user after a server was added."""
    after_remove: str
    """A note for the user after a server was removed."""


HOSTS: dict[str, HostFormat] = {
    "claude-desktop": HostFormat(
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
    "claude-code": HostFormat(
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
    "vscode": HostFormat(
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
    "cursor": HostFormat(
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
    "codex": HostFormat(
        title="Codex",
        base="codex",
        user="config.toml",
        project=".codex/config.toml",
        table="mcp_servers",
        url="url",
        typed=False,
        reference="",
        after_add="Restart codex; /mcp shows it",
        after_remove="Codex omits it after a restart",
    ),
    "gemini": HostFormat(
        title="Gemini CLI",
        base="home",
        user=".gemini/settings.json",
        project=".gemini/settings.json",
        table="mcpServers",
        url="httpUrl",
        typed=False,
        reference="${%s}",
        after_add="Restart gemini; /mcp shows it",
        after_remove="Gemini omits it after a restart",
    ),
}


def user_file(host: HostFormat) -> Path:
    """Return the host's file for this user on this platform.

    Raises:
        FileNotFoundError: this user has no home folder.
    """
    return BASES[host.base]() / host.user


def config_folder() -> Path:
    """Return the folder in which desktop applications keep their settings."""
    if sys.platform == "darwin":
        return home_folder() / "Library" / "Application Support"
    if sys.platform == "win32":
        return Path(os.environ.get("APPDATA") or home_folder("APPDATA") / "AppData" / "Roaming")
    return Path(os.environ.get("XDG_CONFIG_HOME") or home_folder("XDG_CONFIG_HOME") / ".config")


def codex_folder() -> Path:
    """Return Codex's own folder."""
    return Path(os.environ.get("CODEX_HOME") or home_folder("CODEX_HOME") / ".codex")


BASES = {"home": home_folder, "config": config_folder, "codex": codex_folder}


def entry(host: HostFormat, server: LocalServer | RemoteServer) -> dict[str, Any]:
    """Return the entry for one server in the format of the host's file. A remote server needs a host with a `url`."""
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
    header_member = {"http_headers" if host.base == "codex" else "headers": headers} if headers else {}
    return {**kind, host.url: server.url, **token, **header_member}
