"""`wharfinger dev`: runs a server with reload, full errors and the live page."""

from __future__ import annotations

from typing import Any

import click

from wharfinger.cli.commands.run import run
from wharfinger.cli.options import verbosity_options
from wharfinger.cli.serving.record_options import record_options
from wharfinger.cli.serving.serving_options import ServingCommand, serving_options

__all__ = ["dev"]


@click.command(
    cls=ServingCommand,
    epilog="""\b
Examples:
  wharfinger dev server.py
  wharfinger dev server.py:harbour --http 127.0.0.1:9000""",
)
@click.argument("place", metavar="FILE|MODULE[:NAME]")
@serving_options
@record_options
@verbosity_options
@click.pass_context
def dev(ctx: click.Context, /, place: str, **serving: Any) -> Any:
    """Run the Server in a Python file while you write it.

    This is `wharfinger run --http --reload --dev --browse`: the server restarts when a Python file changes, errors are
    shown in full, and the page at / shows what it offers, live.
    """
    if serving["stdio"] or serving["unix"]:
        raise click.UsageError("dev serves over HTTP: use `wharfinger run` for --stdio and --unix.", ctx)
    serving["http"] = serving["http"] or ""
    serving["browse"] = True
    # Not ctx.invoke: it makes a new context for `run`, which does not know which options were given.
    assert run.callback is not None
    return run.callback(place=place, reload=True, dev=True, **serving)
