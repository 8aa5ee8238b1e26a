"""An entry of a host's configuration (`mcpServers`) as a client's target. Reads no file and expands no variables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, cast

from wharfinger.net import is_http_url

__all__ = ["HostEntry", "read_entry"]

HOST_MEMBERS = {
    "httpUrl": "url",
    "serverUrl": "url",
    "http_headers": "headers",
    "env_http_headers": "headers",
    "bearer_token_env_var": "headers",
    "envFile": "env",
    "env_vars": "env",
}
"""Members about reaching a server that only a `Host` reads, and the one to use instead. To ignore them would lose a
secret or a setting."""


class HostEntry(NamedTuple):
    """The members of an entry that say how to reach its server."""

    target: str | list[str]
    """Its URL, or its command and arguments."""
    headers: dict[str, str]
    env: dict[str, str]
    cwd: str | None


def read_entry(entry: Mapping[str, Any]) -> HostEntry:
    """Read `{"command": …, "args": […]}` or `{"url": …}`, or a whole configuration with one such server.

    `HOST_MEMBERS` are refused, and other members ignored.

    Raises:
        ValueError: the configuration has no server or several, the entry has both `url` and `command` or neither, or a
            member has the wrong type or is for a `Host`.
    """
    servers = entry.get("mcpServers", entry.get("servers"))
    if isinstance(servers, Mapping):
        by_name = cast("Mapping[str, Any]", servers)
        if not by_name:
            raise ValueError("This configuration has no server.")
        if len(by_name) > 1:
            names = ", ".join(by_name)
            raise ValueError(f"A client takes one server, and this configuration has {names}: pass the entry of one.")
        ((name, only),) = by_name.items()
        if not isinstance(only, Mapping):
            raise ValueError(f"The entry of {name} must be an object.")
        entry = cast("Mapping[str, Any]", only)
    for name, replacement in HOST_MEMBERS.items():
        if entry.get(name) is not None:
            raise ValueError(f'A client does not read "{name}" of an entry: use "{replacement}", or pass it to a Host.')
    url, command = entry.get("url"), entry.get("command")
    if (url is None) == (command is None):
        raise ValueError('An entry of a configuration needs either "url" or "command".')
    if url is not None:
        if not isinstance(url, str) or not is_http_url(url):
            raise ValueError('"url" of an entry must be an http:// or https:// URL.')
        return HostEntry(url, _texts(entry, "headers"), {}, None)
    arguments = entry.get("args", [])
    if not isinstance(arguments, list) or not all(isinstance(part, str) for part in [command, *arguments]):  # pyright: ignore[reportUnknownVariableType]
        raise ValueError('"command" of an entry must be a string, and "args" a list of strings.')
    cwd = entry.get("cwd")
    if not isinstance(cwd, str | None):
        raise ValueError('"cwd" of an entry must be the path of a folder.')
    return HostEntry(cast("list[str]", [command, *arguments]), {}, _texts(entry, "env"), cwd)


def _texts(entry: Mapping[str, Any], name: str) -> dict[str, str]:
    table = entry.get(name, {})
    if not isinstance(table, Mapping) or not all(isinstance(value, str) for value in cast("Any", table).values()):
        raise ValueError(f'"{name}" of an entry must be an object of strings.')
    return dict(cast("Mapping[str, str]", table))
