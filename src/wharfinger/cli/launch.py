"""Serve a server that is ready: over stdio or a socket in silence, or over HTTP with the card and a line per event."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from signal import SIGINT
from typing import TYPE_CHECKING

import click

from wharfinger.cli.bounds import apply
from wharfinger.cli.failures import CTRL_C
from wharfinger.cli.options import Verbosity

if TYPE_CHECKING:
    from wharfinger.cli.card import Address, Card
    from wharfinger.cli.serving import Settings
    from wharfinger.protocol.interfaces import Verify
    from wharfinger.server import Server

__all__ = ["over_http", "over_lines"]

PORTS = 100
"""How many ports after the default one are tried."""


def over_lines(
    server: Server, unix: str | None, limits: tuple[str, ...], verbosity: Verbosity, *, tracebacks: bool = False
) -> int:
    """Serve on the Unix socket `unix`, else over stdio: its stdout carries the protocol and nothing else.

    Return 130 for Ctrl-C, else 0.
    """
    from wharfinger.cli.logs import log_to_stderr

    log_to_stderr(verbosity, tracebacks=tracebacks)
    server.limits = apply(server.limits, limits)
    if unix is not None:
        from wharfinger.transports.unix_server import serve_unix

        def ready() -> None:
            if not verbosity.quiet:
                click.echo(f"Serving {server.info.name} at unix:{os.path.abspath(unix)}")

        return CTRL_C if serve_unix(server, unix, on_ready=ready) else 0
    from wharfinger.transports.stdio_server import serve_stdio

    return CTRL_C if serve_stdio(server) else 0


def over_http(
    server: Server,
    settings: Settings,
    make: Callable[[Address], Card],
    verbosity: Verbosity,
    *,
    tracebacks: bool = False,
) -> int:
    """Serve until a signal; return 130 for Ctrl-C, 0 for SIGTERM.

    The card and the lines go to stdout, for they are what this command is asked for; everything else to stderr.
    The card is made in a thread, while the first requests are answered.
    """
    import asyncio

    from wharfinger.cli.bounds import apply_http
    from wharfinger.cli.journal import Journal
    from wharfinger.cli.listing import Listing
    from wharfinger.cli.logs import log_to_stderr
    from wharfinger.cli.printer import Printer
    from wharfinger.transports.http_server.runner import AddressInUse, run_http

    log_to_stderr(verbosity, tracebacks=tracebacks)
    server.limits = apply(server.limits, settings.limits)
    printer = Printer()
    shown: list[Card] = []
    showing: list[asyncio.Task[None]] = []
    if not verbosity.quiet:
        Journal(printer.print).follow(server)

    async def show(url: str) -> None:
        from wharfinger.cli.card import terminal

        # The signals are taken by now, and whoever waits for the card may send one.
        shown.append(await asyncio.to_thread(make, address(url, settings)))
        if not verbosity.quiet:
            printer.print(terminal(shown[0]).rstrip("\n"))

    def ready(url: str) -> None:
        showing.append(asyncio.get_running_loop().create_task(show(url)))

    listing = Listing(server)

    async def page() -> tuple[str, bytes]:
        from wharfinger.cli.card import page as write

        if not shown:
            from wharfinger.errors import Overloaded

            raise Overloaded("The server is starting.")
        return "text/html; charset=utf-8", write(shown[0], await listing.look()).encode("utf-8", "surrogateescape")

    wanted = settings.listen
    try:
        verify = bearer(settings.token_env) if settings.token_env else None
        for port in range(wanted.port, wanted.port + (1 if wanted.chosen else PORTS)):
            try:
                signal = run_http(
                    server,
                    wanted.host,
                    port,
                    verify=verify,
                    insecure=settings.insecure,
                    allow_hosts=settings.allow_host,
                    allow_origins=settings.allow_origin,
                    public_url=settings.public_url,
                    tls_cert=settings.tls_cert,
                    tls_key=settings.tls_key,
                    limits=apply_http(settings.limits),
                    pages={"/": page},
                    contents=listing.read,
                    on_ready=ready,
                )
            except AddressInUse:
                if wanted.chosen:
                    raise
                if not verbosity.quiet:
                    click.echo(f"Port {port} is in use: trying {port + 1}.", err=True)
            else:
                return CTRL_C if signal == SIGINT else 0
        raise click.UsageError(f"No port from {wanted.port} on is free: choose one with --http HOST:PORT.")
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    finally:
        printer.close()
        sys.stdout.flush()


def address(url: str, settings: Settings) -> Address:
    """Tell where clients find the server whose base URL is `url`."""
    from wharfinger.cli.addresses import reachable
    from wharfinger.cli.card import Address

    base = reachable(url)
    if settings.public_url:
        base = settings.public_url.removesuffix("/").removesuffix("/mcp")
    return Address(f"{base}/mcp", f"{base}/", settings.token_env)


def bearer(name: str) -> Verify:
    """Make the check of the bearer token that the variable `name` holds; ValueError where it is too short."""
    from wharfinger.auth import static_token

    token = os.environ.get(name, "")
    if not token:
        raise click.UsageError(f"The variable {name} is not set: put the token into it, and only there.")
    return static_token(token)
