"""`wharfinger run`: a server that a user wrote, over stdio or HTTP, started anew when its code changes."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from wharfinger.cli.options import Verbosity, verbosity_options
from wharfinger.cli.serving import ServingCommand, Settings, choose, serving_options

if TYPE_CHECKING:
    from wharfinger.cli.card import Address, Card
    from wharfinger.server import Server

__all__ = ["run"]


@click.command(
    cls=ServingCommand,
    epilog="""\b
Examples:
  wharfinger run server.py
  wharfinger run server.py:harbour --reload --dev
  wharfinger run package.module:app --http 127.0.0.1:9000""",
)
@click.argument("place", metavar="FILE|MODULE[:NAME]")
@click.option("--reload", is_flag=True, help="Start anew when a Python file below its folder changes (HTTP only).")
@click.option(
    "--dev", is_flag=True, help="Show errors in full, on stderr and to callers, and what blocks the event loop."
)
@serving_options
@verbosity_options
@click.pass_context
def run(ctx: click.Context, /, place: str, reload: bool, dev: bool, **serving: Any) -> int | None:
    """Run the Server in a Python file or module.

    NAME is the variable that holds it; without one it is the only Server there is, or the one named server, app or
    mcp. With a terminal at stdin it speaks HTTP on 127.0.0.1:8000, otherwise stdio.
    """
    settings = choose(ctx, **serving)
    verbosity = ctx.obj if isinstance(ctx.obj, Verbosity) else Verbosity()
    if dev:
        verbosity.level = max(verbosity.level, 1)
    if settings is None:
        if reload:
            raise click.UsageError(
                "--reload needs HTTP: a host on stdio loses its session when the server restarts.", ctx
            )
        from wharfinger.cli.launch import over_lines

        with stdout_kept_clean():
            server = loaded(place, dev)
        return over_lines(server, serving["unix"], serving["limits"], verbosity, tracebacks=dev)
    if reload and not os.environ.get(RELOADED):
        from wharfinger.cli.reloading import keep_running

        return keep_running(place, {RELOADED: "1"})
    return at_terminal(settings, place, loaded(place, dev), verbosity, dev=dev)


def loaded(place: str, dev: bool) -> Server:
    """The server at a place; with `dev` it tells its callers errors in full."""
    from wharfinger.cli.loading import load_server

    server = load_server(place)
    if dev:
        from wharfinger.server.middleware.development import develop

        develop(server)
    return server


RELOADED = "_WHARFINGER_RELOADED"
"""Set in the environment of the process that `--reload` starts."""


@contextmanager
def stdout_kept_clean() -> Generator[None]:
    """Send what the user's module prints while it is imported to stderr: stdout belongs to the protocol."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)


def at_terminal(settings: Settings, place: str, server: Server, verbosity: Verbosity, *, dev: bool) -> int:
    """Serve over HTTP with the card."""
    from wharfinger.cli.card import Published, make_card
    from wharfinger.cli.launch import over_http
    from wharfinger.cli.loading import source_file, split_place
    from wharfinger.cli.programs import ourselves
    from wharfinger.cli.words import slug

    file, (where, name) = source_file(place), split_place(place)
    program = ourselves()
    again = (f"{file}:{name}" if name else file,) if file else ("--", *program, "run", "--stdio", place)
    uri = next((uri for uri, _ in server.resources.static.items()), "")

    def card(address: Address) -> Card:
        published = [Published(server.info.name, f"{features(server)}, from {file or where}", "Serving")]
        return make_card(slug(server.info.name, fallback="server"), published, address, program, again, uri)

    return over_http(server, settings, card, verbosity, tracebacks=dev)


def features(server: Server) -> str:
    """Count what the server has."""
    from wharfinger.cli.words import count

    numbers = (
        (len(server.resources.static), "resource"),
        (len(server.resources.templates), "template"),
        (len(server.resources.sources), "source"),
        (len(server.tools.features), "tool"),
        (len(server.prompts.features), "prompt"),
    )
    return ", ".join(count(number, noun) for number, noun in numbers if number) or "nothing yet"
