"""`wharfinger browse`: shows a live page of one or more servers in the browser."""

from __future__ import annotations

import sys
from signal import SIGINT
from typing import TYPE_CHECKING, Any

import click

from wharfinger.cli.error_report import CTRL_C_EXIT_CODE
from wharfinger.cli.options import COMMAND, TargetCommand, connection_options, verbosity_of, verbosity_options
from wharfinger.cli.targets.shell_completion import complete_words
from wharfinger.cli.targets.target import Target, parse_target
from wharfinger.net import is_http_url

if TYPE_CHECKING:
    from wharfinger.cli.targets.open_client import ConnectionOptions
    from wharfinger.upstreams.config import ServerConfig

__all__ = ["browse"]

DEFAULT_PORT = 8400
TRIED_PORTS = 100


@click.command(
    cls=TargetCommand,
    epilog="""\b
Examples:
  wharfinger browse ./charts
  wharfinger browse http://127.0.0.1:8000/mcp server.py
  wharfinger browse mcp.json
  wharfinger browse claude-desktop
  wharfinger browse -- npx -y some-server""",
)
@click.argument("words", nargs=-1, metavar="TARGET…", shell_complete=complete_words())
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    metavar="PORT",
    help="Port of the page. Default: 8400, or the next free one.",
)
@click.option(
    "--open/--no-open", "opens", default=None, help="Open the page in a browser. Default: if stdout is a terminal."
)
@connection_options
@verbosity_options
@click.pass_context
def browse(ctx: click.Context, /, words: tuple[str, ...], port: int | None, opens: bool | None, **options: Any) -> int:
    """Show what servers offer on a live page: resources, tools and prompts, as an agent sees them.

    TARGET is a server as in the other commands, the configuration file of a host, such as mcp.json, or the name of a
    host, such as claude-desktop. The page is for this machine only. Its URL has a token, which works once.
    """
    from wharfinger.cli.stderr_log import log_to_stderr
    from wharfinger.cli.targets.open_client import check_revision, saved_sign_in, take_connection_options
    from wharfinger.client import ClientOptions
    from wharfinger.content.text import escape_controls
    from wharfinger.transports.accepting import AddressInUse

    verbosity = verbosity_of(ctx)
    log_to_stderr(verbosity)
    connection = take_connection_options(options)
    check_revision(ctx, connection)
    configs = read_targets(ctx, words, connection)
    from wharfinger.web.browse_site import BrowseSite
    from wharfinger.web.page_server import run_page

    name = configs[0].name if len(configs) == 1 else f"{len(configs)} servers"
    auth = saved_sign_in(config.target for config in configs)
    client_options = ClientOptions(revision=connection.revision, auth=auth)
    site = BrowseSite(lambda principal: configs, name=name, options=client_options)
    opens_browser = sys.stdout.isatty() if opens is None else opens

    def ready(url: str) -> None:
        names = ", ".join(escape_controls(config.name) for config in configs)
        click.echo(f"Browsing {names}\n  page  {url}    Ctrl-C stops")
        if opens_browser:
            click.launch(url)

    first_port = DEFAULT_PORT if port is None else port
    for tried_port in range(first_port, first_port + (TRIED_PORTS if port is None else 1)):
        try:
            signal = run_page(site, "127.0.0.1", tried_port, ready)
        except AddressInUse:
            if port is not None:
                raise
        else:
            return CTRL_C_EXIT_CODE if signal == SIGINT else 0
    last_port = first_port + TRIED_PORTS - 1
    raise click.UsageError(f"The ports {first_port} to {last_port} are in use: choose one with --port.")


def read_targets(ctx: click.Context, words: tuple[str, ...], connection: ConnectionOptions) -> list[ServerConfig]:
    """Return the servers of the words and of the command after `--`, with different names.

    Raises:
        click.UsageError: a word is not a target, no target is given, or an option does not fit the servers.
        InvalidConfiguration: the file of a host cannot be used.
    """
    from pathlib import Path

    from wharfinger.cli.targets.configured_servers import with_distinct_names
    from wharfinger.cli.targets.open_client import with_options
    from wharfinger.upstreams.config import read_config, read_host_config
    from wharfinger.upstreams.host_formats import HOSTS

    configs: list[ServerConfig] = []
    command: list[str] | None = ctx.meta.get(COMMAND)
    for word in words:
        if word in HOSTS:
            configs += read_host_config(word)
        elif word.endswith((".json", ".toml")) and Path(word).is_file():
            configs += read_config(word)
        else:
            configs.append(as_config(ctx, parse_target(ctx, word), connection.timeout, word))
    if command is not None:
        configs.append(as_config(ctx, Target("", tuple(command)), connection.timeout, command[0] if command else ""))
    if not configs:
        raise click.UsageError(
            "Missing TARGET: a folder, a URL such as http://127.0.0.1:8000/mcp, a host such as claude-desktop, or "
            "`-- command…`.",
            ctx,
        )
    return with_options(ctx, with_distinct_names(configs), connection)


def as_config(ctx: click.Context, target: Target, timeout: float, word: str) -> ServerConfig:
    """Return a target of the command line as the configuration of a server."""
    from urllib.parse import urlsplit

    from wharfinger.cli.render.formatting import slug
    from wharfinger.upstreams.config import ServerConfig

    url = target.url
    if not url and not target.command:
        raise click.UsageError("Give a command after `--`, for example `-- python server.py`.", ctx)
    address = ""
    if is_http_url(url):  # the name is shown and logged, so it has no password, and no query, which may have a token
        parts = urlsplit(url)
        address = parts.netloc.rpartition("@")[2] + parts.path.removesuffix("/mcp")
    return ServerConfig(
        name=slug(address or word.rpartition("/")[2] or word, fallback="server"),
        target=url or list(target.command),
        headers=target.headers,
        env=target.env,
        cwd=target.cwd,
        timeout_seconds=timeout,
    )
