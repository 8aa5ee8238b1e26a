"""The options that say how a server is reached, shared by `serve` and `run`, and the choice between stdio and HTTP."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import click

from wharfinger.cli.addresses import Listen, looks_like_address, parse_listen

__all__ = ["ServingCommand", "Settings", "choose", "serving_options"]

F = TypeVar("F", bound=Callable[..., Any])


class Settings(NamedTuple):
    """How a server is to be reached over HTTP; names and meanings are those of the options."""

    listen: Listen
    allow_host: tuple[str, ...] = ()
    allow_origin: tuple[str, ...] = ()
    public_url: str = ""
    token_env: str = ""
    insecure: bool = False
    tls_cert: str = ""
    tls_key: str = ""
    limits: tuple[str, ...] = ()


class ServingCommand(click.Command):
    """A command whose `--http` may stand without a value before a folder: `serve --http charts`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Give `--http` its value where the next word is none."""
        words = list(args)
        end = words.index("--") if "--" in words else len(words)
        for place in range(end):
            if words[place] == "--http" and not (place + 1 < end and looks_like_address(words[place + 1])):
                words[place] = "--http="
        return super().parse_args(ctx, words)


def serving_options(command: F) -> F:
    """Add the options; the command takes them as `**serving` for `choose`."""
    for option in reversed(OPTIONS):
        command = option(command)
    return command


OPTIONS: tuple[Callable[[Any], Any], ...] = (
    click.option("--stdio", is_flag=True, help="Speak over stdin and stdout, as hosts expect."),
    click.option(
        "--http",
        metavar="[HOST:PORT]",
        help="Speak over HTTP. Default 127.0.0.1:8000, or the next free port.",
    ),
    click.option("--unix", metavar="PATH", help="Speak on a Unix socket, as over stdio; only this user may connect."),
    click.option(
        "--allow-host",
        multiple=True,
        metavar="NAME",
        help="A name that requests may give as this server's. Repeatable.",
    ),
    click.option(
        "--allow-origin", multiple=True, metavar="ORIGIN", help="A web page's origin that may call. Repeatable."
    ),
    click.option(
        "--public-url", metavar="URL", default="", help="Where clients reach it from outside, behind a proxy."
    ),
    click.option(
        "--token-env",
        metavar="NAME",
        default="",
        envvar="WHARFINGER_TOKEN_ENV",
        help="Variable that holds a bearer token that every request must carry.",
    ),
    click.option("--insecure", is_flag=True, help="Listen beyond this machine without a token."),
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
        help="Change a bound, for example message=8MiB or sessions=100. Repeatable; `--limit help` lists them.",
    ),
)


def choose(ctx: click.Context, *, stdio: bool, http: str | None, unix: str | None, **rest: Any) -> Settings | None:
    """Return the settings for HTTP, or None for stdio and sockets: as asked, else HTTP where a person sits at stdin."""
    if rest["limits"]:
        from wharfinger.cli.bounds import check, listing

        if "help" in rest["limits"]:
            click.echo(listing(), nl=False)
            ctx.exit()
        check(rest["limits"])
    if stdio and http is not None:
        raise click.UsageError("--stdio and --http exclude each other.", ctx)
    if unix is not None and (stdio or http is not None):
        raise click.UsageError(f"--unix and {'--stdio' if stdio else '--http'} exclude each other.", ctx)
    if not stdio and unix is None and (http is not None or at_terminal()):
        return Settings(parse_listen(http or ""), **rest)
    given = [name for name in ONLY_HTTP if rest[name]]
    if given:
        option = "--" + given[0].replace("_", "-")
        raise click.UsageError(f"{option} is for HTTP: add --http, or leave it out.", ctx)
    return None


ONLY_HTTP = ("allow_host", "allow_origin", "public_url", "token_env", "insecure", "tls_cert", "tls_key")


def at_terminal() -> bool:
    """Tell whether a person sits at stdin."""
    return sys.stdin is not None and sys.stdin.isatty()
