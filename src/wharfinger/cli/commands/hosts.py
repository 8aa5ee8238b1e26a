"""`wharfinger hosts`: lists the servers that are configured for hosts on this machine. Starts none of them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from wharfinger.cli.options import json_option, verbosity_of, verbosity_options

if TYPE_CHECKING:
    from wharfinger.upstreams.config_files import ConfiguredServer

__all__ = ["hosts"]


class HostConfiguration(NamedTuple):
    """A file that configures servers."""

    host: str
    """The name that `Host.from_config` takes for this file, or an empty string if it takes only the path."""
    title: str
    file: Path
    servers: list[ConfiguredServer]
    error: str


@click.command(
    epilog="""\b
Examples:
  wharfinger hosts
  wharfinger hosts --json""",
)
@json_option
@verbosity_options
@click.pass_context
def hosts(ctx: click.Context, as_json: bool) -> None:
    """List the servers that are configured for hosts on this machine, and in this folder.

    No server is started. An entry that cannot be used is listed with the reason. Passwords and tokens are hidden. In
    Python, Host.from_config("claude-desktop") uses the servers of a host, by the name at the beginning of its heading,
    and Host.from_config("path/mcp.json") uses the servers in a file.
    """
    configuration_files = configurations()
    if as_json:
        from wharfinger.cli.render.output import print_json

        for configuration in configuration_files:
            print_json(as_object(configuration))
        return
    from wharfinger.cli.render.output import print_rows
    from wharfinger.content.text import escape_controls

    for number, configuration in enumerate(configuration_files):
        if number:
            click.echo()
        name = f"{configuration.host}  " if configuration.host else ""
        click.echo(f"{name}{configuration.title}, {escape_controls(str(configuration.file))}")
        if configuration.error:
            click.echo(f"  cannot be read: {escape_controls(configuration.error)}")
        elif not configuration.servers:
            click.echo("  no server")
        print_rows([("  " + server.name, shown_target(server), remark(server)) for server in configuration.servers])
    if not configuration_files and not verbosity_of(ctx).quiet:
        from wharfinger.upstreams.config_files import config_files

        searched = ", ".join(map(str, config_files()))
        click.echo(f"No host has a configuration of servers here. Searched {searched}.", err=True)


def configurations() -> list[HostConfiguration]:
    """Return the configuration files that exist: the user's files of hosts, then those of this folder and our own."""
    from wharfinger.upstreams.config_files import config_files, servers_in
    from wharfinger.upstreams.host_formats import HOSTS, user_file
    from wharfinger.upstreams.placeholders import InvalidConfiguration

    user_files = {user_file(host): (name, host.title) for name, host in HOSTS.items()}
    projects = {Path(host.project): ("", f"{host.title}, this folder") for host in HOSTS.values() if host.project}
    headings = {**user_files, **{file: heading for file, heading in projects.items() if file not in user_files}}
    configured: list[HostConfiguration] = []
    for file in sorted(config_files(), key=lambda file: file not in user_files):
        host, title = headings.get(file, ("", "This folder" if file == Path("mcp.json") else "Wharfinger"))
        try:
            configured.append(HostConfiguration(host, title, file, servers_in(file, all_entries=True), ""))
        except FileNotFoundError:
            continue
        except InvalidConfiguration as error:
            configured.append(HostConfiguration(host, title, file, [], str(error)))
    return configured


def shown_target(server: ConfiguredServer) -> str:
    """Return the URL or the command of a server, without secrets."""
    from wharfinger.content.redaction import redacted, redacted_command

    if server.address:
        return redacted(server.address)
    words: list[Any] = []
    parts: list[Any] = [server.entry.get("command") or [], server.entry.get("args") or []]
    for part in parts:
        words += part if isinstance(part, list) else [part]  # pyright: ignore[reportUnknownArgumentType]
    return redacted_command([str(word) for word in words])


def remark(server: ConfiguredServer) -> str:
    """Return a remark if a server is disabled or its entry cannot be used, or else an empty string."""
    if is_disabled(server):
        return "(disabled)"
    mistake = mistake_in(server)
    return f"({mistake.removesuffix('.')})" if mistake else ""


def mistake_in(server: ConfiguredServer) -> str:
    """Return why the entry of a server cannot be used, or an empty string if it can.

    Inputs, which are asked for when the server is used, count as filled in.
    """
    import os

    from wharfinger.content.redaction import redacted_text
    from wharfinger.upstreams.config import config_or_error

    def answer(name: str, described: Mapping[str, Any]) -> str:
        return "http://localhost" if server.address.startswith(f"${{input:{name}}}") else "1"  # also valid as a port

    error = config_or_error(server, os.environ, answer, {}).error
    return redacted_text(error).removeprefix(server.name_in_errors).lstrip(": ")


def is_disabled(server: ConfiguredServer) -> bool:
    """Return whether the host would not start a server."""
    return server.entry.get("disabled") is True or server.entry.get("enabled") is False


def as_object(configuration: HostConfiguration) -> dict[str, Any]:
    """Return a configuration as one JSON object."""
    servers = [
        {
            "name": server.name,
            "target": shown_target(server),
            "disabled": is_disabled(server),
            **({"error": mistake} if (mistake := mistake_in(server)) else {}),
        }
        for server in configuration.servers
    ]
    error = {"error": configuration.error} if configuration.error else {}
    return {
        "host": configuration.host,
        "title": configuration.title,
        "file": str(configuration.file),
        "servers": servers,
        **error,
    }
