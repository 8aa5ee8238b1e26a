"""`wharfinger serve`: data of every kind as live MCP resources, over stdio or HTTP."""

from __future__ import annotations

import os
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import click

from wharfinger.cli.options import Verbosity, verbosity_options
from wharfinger.cli.serving import ServingCommand, Settings, choose, serving_options

if TYPE_CHECKING:
    from wharfinger.cli.card import Address, Card
    from wharfinger.server import Server
    from wharfinger.sources.registry import PreparedSource

__all__ = ["serve"]


@click.command(
    cls=ServingCommand,
    epilog="""\b
What a WORD may be; `name=WORD` chooses what it is called in URIs:
  ./docs                          a folder
  git:.                           a git repository
  sqlite:///shop.db               a database, also postgresql://user@host/shop
  'log:logs/*.log'                logs, followed as they rotate
  s3://bucket/prefix              objects, also zip:FILE and objects:URL
  'table:data/*.parquet'          tables in CSV, JSON Lines or Parquet
  system:  screen:                this machine
  'command:df -h'                 what a command prints, with --allow-command
  https://host/mcp                another server's resources
  'mcp:npx -y some-server'        those of a server that a command starts, with --allow-command

\b
Examples:
  wharfinger serve ./charts
  wharfinger serve ./charts maps=~/old/maps --exclude '*.bak'
  wharfinger serve ./docs git:. sqlite:///shop.db 'log:logs/*.log' s3://bucket/prefix
  PGPASSWORD=… wharfinger serve --allow-query postgresql://reader@db.test/shop
  wharfinger serve --http 127.0.0.1:9000 ./charts
  CHARTS_TOKEN=… wharfinger serve --http 0.0.0.0:8000 --token-env CHARTS_TOKEN --allow-host charts.test ./charts""",
)
@click.argument("words", nargs=-1, metavar="WORD…")
@click.option(
    "--include",
    multiple=True,
    metavar="PATTERN",
    help="Of folders, publish only what matches, as in .gitignore. Repeatable.",
)
@click.option("--exclude", multiple=True, metavar="PATTERN", help="Of folders, leave out what matches. Repeatable.")
@click.option("--hidden", is_flag=True, help="Publish hidden files too (never keys and credentials).")
@click.option("--max-size", metavar="SIZE", help="Read larger files in windows only, for example 64MiB.")
@click.option("--absolute-uris", is_flag=True, help="Name files by their absolute path: for a host on this machine.")
@click.option("--allow-command", is_flag=True, help="Run the commands of command: and mcp: words.")
@click.option("--every", type=float, metavar="SECONDS", help="Run commands anew so often, while somebody watches them.")
@click.option("--allow-private", is_flag=True, help="Connect to servers on this machine and in private networks.")
@click.option("--allow-query", is_flag=True, help="Offer a tool that queries the databases (read-only).")
@click.option("--no-search", is_flag=True, help="Keep no search index: a search then reads what it searches.")
@click.option("--no-tools", is_flag=True, help="Offer resources only, without tools that mirror them.")
@click.option("--name", metavar="NAME", help="What the server calls itself. Default: from what it publishes.")
@click.option("--demo", is_flag=True, help="Publish a temporary copy of a folder with a log that grows every 5 s.")
@serving_options
@verbosity_options
@click.pass_context
def serve(
    ctx: click.Context,
    /,
    words: tuple[str, ...],
    no_tools: bool,
    no_search: bool,
    allow_query: bool,
    name: str | None,
    demo: bool,
    **rest: Any,
) -> int | None:
    """Publish data as live MCP resources: listed in pages, read, searched, and told of when they change.

    WORD is a folder, or data of another kind; several are one server. With a terminal at stdin it speaks HTTP on
    127.0.0.1:8000, otherwise stdio. Of folders, files that .gitignore names, hidden files and credentials are left out.
    """
    from wharfinger.cli.publishing import check_options, is_given, publish

    options = {option: rest.pop(option) for option in OF_SOURCES}
    settings = choose(ctx, **rest)
    if not words and not demo:
        raise click.UsageError("Give a folder to publish, for example `wharfinger serve .`", ctx)
    for word in words:
        if word.endswith(".py") and os.path.isfile(word):
            raise click.UsageError(
                f"{word} is a Python file: to run the server in it write `wharfinger run {word}`."
                f" To publish it as a file, publish its folder: `wharfinger serve {os.path.dirname(word) or '.'}"
                f" --include {os.path.basename(word)}`.",
                ctx,
            )
    if no_tools and allow_query:
        raise click.UsageError("--allow-query and --no-tools exclude each other.", ctx)
    check_options(ctx, words, {**options, "allow_query": allow_query})
    if options["max_size"]:
        from wharfinger.cli.bounds import parse_amount

        options["max_size"] = int(parse_amount(options["max_size"]))
    with ExitStack() as stack:
        if demo:
            words = (copied(ctx, stack, words),)
        given = {option: value for option, value in options.items() if is_given(value)}
        server, made = publish(words, given, name=name, tools=not no_tools, search=not no_search, query=allow_query)
        verbosity = ctx.obj if isinstance(ctx.obj, Verbosity) else Verbosity()
        if settings is None:
            from wharfinger.cli.launch import over_lines

            return over_lines(server, rest["unix"], rest["limits"], verbosity)
        return at_terminal(ctx, settings, server, made, verbosity)


OF_SOURCES = ("include", "exclude", "hidden", "max_size", "absolute_uris", "allow_command", "allow_private", "every")
"""Options that are for some kinds of data only."""


def copied(ctx: click.Context, stack: ExitStack, words: tuple[str, ...]) -> str:
    """Make the demo's copy of the folder, as long as the stack is open."""
    from wharfinger.cli.demo import demo_folder
    from wharfinger.sources.registry import FILES, parse_word

    if len(words) > 1 or any(parse_word(word).kind is not FILES for word in words):
        raise click.UsageError("--demo takes one folder.", ctx)
    return stack.enter_context(demo_folder(words[0] if words else None))


def at_terminal(
    ctx: click.Context, settings: Settings, server: Server, made: list[PreparedSource], verbosity: Verbosity
) -> int:
    """Serve over HTTP with the card."""
    from wharfinger.cli.card import make_card
    from wharfinger.cli.launch import over_http
    from wharfinger.cli.programs import ourselves
    from wharfinger.cli.showing import Seen, left_out, look, same_again

    program, again, remark = ourselves(), same_again(ctx.params, made), left_out(made)

    def card(address: Address) -> Card:
        seen = Seen((), "") if verbosity.quiet else look(made)
        return make_card(server.info.name, seen.published, address, program, again, seen.live, remark)

    return over_http(server, settings, card, verbosity)
