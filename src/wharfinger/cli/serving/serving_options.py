"""The options of `serve` and `run` for transports, addresses and access, and the choice between stdio and HTTP."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import click

from wharfinger.cli.serving.listen_address import ListenAddress, looks_like_address, parse_listen

__all__ = ["HttpSettings", "ServingCommand", "choose_transport", "serving_options"]

F = TypeVar("F", bound=Callable[..., Any])


class HttpSettings(NamedTuple):
    """The settings of a server over HTTP: the address of `--http`, and the values of the other options by name."""

    listen: ListenAddress
    allow_host: tuple[str, ...] = ()
    allow_origin: tuple[str, ...] = ()
    public_url: str = ""
    token_env: str = ""
    tokens: str = ""
    auth: tuple[str, ...] = ()
    require_scope: tuple[str, ...] = ()
    insecure: bool = False
    tls_cert: str = ""
    tls_key: str = ""
    limits: tuple[str, ...] = ()
    browse: bool = False


class ServingCommand(click.Command):
    """A command whose `--http` needs no value, even before a folder: `serve --http charts`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Give `--http` an empty value unless an address follows."""
        words = list(args)
        end = words.index("--") if "--" in words else len(words)
        for index in range(end):
            if words[index] == "--http" and not (index + 1 < end and looks_like_address(words[index + 1])):
                words[index] = "--http="
        return super().parse_args(ctx, words)


def serving_options(command: F) -> F:
    """Add the options. The command passes all but those of the policy to `choose_transport`."""
    for option in reversed(OPTIONS):
        command = option(command)
    return command


OPTIONS: tuple[Callable[[Any], Any], ...] = (
    click.option("--stdio", is_flag=True, help="Serve over stdin and stdout, as hosts expect."),
    click.option(
        "--http",
        metavar="[HOST:PORT]",
        help="Serve over HTTP. Default 127.0.0.1:8000, or the next free port.",
    ),
    click.option(
        "--unix", type=click.Path(), metavar="PATH", help="Serve on a Unix socket; only this user may connect."
    ),
    click.option("--browse", is_flag=True, help="Show the live page of `wharfinger browse` at / (extra browse)."),
    click.option(
        "--allow-host",
        multiple=True,
        metavar="NAME",
        help="Host name under which requests may reach the server. Repeatable.",
    ),
    click.option(
        "--allow-origin",
        multiple=True,
        metavar="ORIGIN",
        help="Origin of web pages that may call the server. Repeatable.",
    ),
    click.option(
        "--public-url", metavar="URL", default="", help="URL that clients use, if the server is behind a proxy."
    ),
    click.option(
        "--token-env",
        metavar="NAME",
        default="",
        envvar="WHARFINGER_TOKEN_ENV",
        help="Variable with the bearer token that every request must have.",
    ),
    click.option(
        "--tokens",
        type=click.Path(dir_okay=False),
        default="",
        metavar="FILE",
        help="Require a token of this file, which `wharfinger token create` writes.",
    ),
    click.option(
        "--auth",
        multiple=True,
        metavar="ISSUER_URL",
        help="Require an access token of this OAuth authorization server. Repeatable.",
    ),
    click.option(
        "--require-scope", multiple=True, metavar="SCOPE", help="Scope that every token must have. Repeatable."
    ),
    click.option(
        "--policy",
        type=click.Path(dir_okay=False),
        default="",
        metavar="FILE",
        help="Rules that say who may read and call what; `wharfinger policy init` writes a first file.",
    ),
    click.option("--policy-report-only", is_flag=True, help="Log what the policy would refuse, without refusing it."),
    click.option("--insecure", is_flag=True, help="Allow other machines to connect without a token."),
    click.option(
        "--tls-cert", type=click.Path(), default="", metavar="FILE", help="Certificate chain (PEM), for HTTPS."
    ),
    click.option(
        "--tls-key", type=click.Path(), default="", metavar="FILE", help="Private key of the certificate (PEM)."
    ),
    click.option(
        "--limit",
        "limits",
        multiple=True,
        metavar="NAME=VALUE",
        help="Change a limit, for example message=8MiB or sessions=100. Repeatable; `--limit help` lists them.",
    ),
)


def choose_transport(
    ctx: click.Context, *, stdio: bool, http: str | None, unix: str | None, **rest: Any
) -> HttpSettings | None:
    """Return the settings for HTTP, or None for stdio and sockets. The default is HTTP if stdin is a terminal.

    Raises:
        click.UsageError: options exclude each other, are only for HTTP, or have an invalid value.
    """
    if rest["limits"]:
        from wharfinger.cli.serving.limits_option import check_limits, limits_help

        if "help" in rest["limits"]:
            click.echo(limits_help(), nl=False)
            ctx.exit()
        check_limits(rest["limits"])
    chosen = {"stdio": stdio, "http": http is not None, "unix": unix is not None}
    typed = [name for name in chosen if chosen[name] and not is_from_file(ctx, name)]
    if typed:  # the command line overrides the file
        stdio = stdio and "stdio" in typed
        http = http if "http" in typed else None
        unix = unix if "unix" in typed else None
    if stdio and http is not None:
        raise click.UsageError("--stdio and --http exclude each other.", ctx)
    if unix is not None and (stdio or http is not None):
        raise click.UsageError(f"--unix and {'--stdio' if stdio else '--http'} exclude each other.", ctx)
    at_terminal = sys.stdin is not None and sys.stdin.isatty()
    if not stdio and unix is None and (http is not None or at_terminal):
        return HttpSettings(parse_listen(http or ""), **rest)
    unused = [name for name in ONLY_HTTP if rest[name] and not is_from_file(ctx, name)]
    if unused:
        option = "--" + unused[0].replace("_", "-")
        raise click.UsageError(f"{option} is for HTTP: add --http, or leave it out.", ctx)
    return None


def is_from_file(ctx: click.Context, name: str) -> bool:
    """Return whether the value of an option comes from the file of `serve -f`."""
    return ctx.get_parameter_source(name) is click.core.ParameterSource.DEFAULT_MAP


ONLY_HTTP = (
    "allow_host", "allow_origin", "public_url", "token_env", "tokens", "auth", "require_scope", "insecure", "tls_cert",
    "tls_key", "browse",
)  # fmt: skip
