"""`wharfinger serve`: folders as live MCP resources, over stdio or HTTP."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import click

from wharfinger.cli.options import Verbosity, verbosity_options
from wharfinger.cli.serving import ServingCommand, Settings, choose, serving_options

if TYPE_CHECKING:
    from wharfinger.cli.card import Address, Card
    from wharfinger.server import Server
    from wharfinger.sources import Folder

__all__ = ["serve"]


@click.command(
    cls=ServingCommand,
    epilog="""\b
Examples:
  wharfinger serve ./charts
  wharfinger serve ./charts maps=~/old/maps --exclude '*.bak'
  wharfinger serve --http 127.0.0.1:9000 ./charts
  CHARTS_TOKEN=… wharfinger serve --http 0.0.0.0:8000 --token-env CHARTS_TOKEN --allow-host charts.test ./charts""",
)
@click.argument("paths", nargs=-1, metavar="PATH…")
@click.option(
    "--include", multiple=True, metavar="PATTERN", help="Publish only what matches, as in .gitignore. Repeatable."
)
@click.option("--exclude", multiple=True, metavar="PATTERN", help="Leave out what matches. Repeatable.")
@click.option("--hidden", is_flag=True, help="Publish hidden files too (never keys and credentials).")
@click.option("--max-size", metavar="SIZE", help="Refuse to read files larger than this, for example 64MiB.")
@click.option("--absolute-uris", is_flag=True, help="Name files by their absolute path: for a host on this machine.")
@click.option("--no-tools", is_flag=True, help="Offer resources only, without tools that mirror them.")
@click.option("--name", metavar="NAME", help="What the server calls itself. Default: from the folders.")
@click.option("--demo", is_flag=True, help="Publish a temporary copy of PATH with a log that grows every 5 s.")
@serving_options
@verbosity_options
@click.pass_context
def serve(
    ctx: click.Context,
    /,
    paths: tuple[str, ...],
    include: tuple[str, ...],
    exclude: tuple[str, ...],
    hidden: bool,
    max_size: str | None,
    absolute_uris: bool,
    no_tools: bool,
    name: str | None,
    demo: bool,
    **serving: Any,
) -> int | None:
    """Publish folders as live MCP resources: listed in pages, read, searched, and told of when they change.

    PATH is a folder, or name=PATH to choose what it is called in URIs. With a terminal at stdin it speaks HTTP on
    127.0.0.1:8000, otherwise stdio. Files that .gitignore names, hidden files and credentials are left out.
    """
    settings = choose(ctx, **serving)
    if not paths and not demo:
        raise click.UsageError("Give a folder to publish, for example `wharfinger serve .`", ctx)
    if demo and len(paths) > 1:
        raise click.UsageError("--demo takes one folder.", ctx)
    chosen: dict[str, Any] = {"include": include, "exclude": exclude, "hidden": hidden, "absolute_uris": absolute_uris}
    if max_size:
        from wharfinger.cli.bounds import parse_amount

        chosen["max_size"] = int(parse_amount(max_size))
    with ExitStack() as stack:
        if demo:
            from wharfinger.cli.demo import demo_folder

            paths = (stack.enter_context(demo_folder(paths[0] if paths else None)),)
        server, folders = publish(paths, name, tools=not no_tools, **chosen)
        verbosity = ctx.obj if isinstance(ctx.obj, Verbosity) else Verbosity()
        if settings is None:
            from wharfinger.cli.launch import over_lines

            return over_lines(server, serving["unix"], serving["limits"], verbosity)
        return at_terminal(ctx, settings, server, folders, verbosity)


def publish(paths: tuple[str, ...], name: str | None, *, tools: bool, **chosen: Any) -> tuple[Server, list[Folder]]:
    """Make the server that has the folders; raises UnusableFolder."""
    from wharfinger.cli.words import slug
    from wharfinger.server import Server
    from wharfinger.sources import files
    from wharfinger.sources.labels import label_paths
    from wharfinger.version import __version__

    labelled = label_paths(paths)
    folders = [files(path, label=label, **chosen) for path, label in labelled]
    server = Server(
        name or slug(*(folder.label for folder in folders)), version=__version__, instructions=instructions(folders)
    )
    for folder in folders:
        server.include(folder)
    if tools:
        from wharfinger.sources import mirrors

        server.include(mirrors())
    return server, folders


def instructions(folders: list[Folder]) -> str:
    """Tell a model what is here and how to get at it."""
    names = ", ".join(f"file:///{folder.label}/" for folder in folders)
    return (
        f"Files below {names}, as they are now. List the resources, read a directory's URI for what is in it, "
        "or search; subscribe to a URI to be told when it changes."
    )


def at_terminal(
    ctx: click.Context,
    settings: Settings,
    server: Server,
    folders: list[Folder],
    verbosity: Verbosity,
) -> int:
    """Serve over HTTP with the card."""
    from wharfinger.cli.card import Published, make_card
    from wharfinger.cli.launch import over_http
    from wharfinger.cli.programs import ourselves

    published = [] if verbosity.quiet else [Published(folder.root, facts(folder, len(folders))) for folder in folders]
    program, again, worth_watching = ourselves(), same_again(ctx.params, folders), live(folders)

    def card(address: Address) -> Card:
        return make_card(server.info.name, published, address, program, again, worth_watching)

    return over_http(server, settings, card, verbosity)


COUNTING = 0.5
"""Seconds that all folders together may be counted before the server starts."""


def facts(folder: Folder, folders: int) -> str:
    """Say how much is published, what is left out, and how changes are noticed."""
    return f"{folder.count(COUNTING / folders)}, watched by {folder.watched_by}"


LOOKED_AT = 500
"""Resources of a folder among which the one worth watching is looked for."""


def live(folders: list[Folder]) -> str:
    """Pick the file that is most likely to change: a log, else the text that changed last, else any."""
    best: tuple[bool, bool, str, str] | None = None
    for folder in folders:
        for item in folder.page(None, LOOKED_AT)[0]:
            kind, stamp = str(item.mime_type), getattr(item.annotations, "last_modified", "")
            if kind == "inode/directory":
                continue
            rank = (item.name.endswith(".log"), kind.startswith("text/"), str(stamp), item.uri)
            best = rank if best is None else max(best, rank)
    return best[3] if best else ""


CHOICES = ("include", "exclude", "hidden", "max_size", "absolute_uris", "no_tools", "limits")
"""Options that change what is published, and so belong to the command that a host is given."""


def same_again(params: dict[str, Any], folders: list[Folder]) -> tuple[str, ...]:
    """Write what `wharfinger add HOST` needs to publish the same folders in the same way."""
    from wharfinger.cli.programs import ourselves
    from wharfinger.sources.labels import parse_path_argument

    given = params["paths"]
    if params["demo"]:  # the copy is gone when this server is
        paths = [resolved(path) for path in given] or [folder.root for folder in folders]
    else:
        paths = [
            folder.root if parse_path_argument(argument).label is None else f"{folder.label}={folder.root}"
            for folder, argument in zip(folders, given, strict=True)
        ]
    name = ("--name", params["name"]) if params["name"] else ()
    options: list[str] = []
    for choice in CHOICES:
        option, value = "--limit" if choice == "limits" else "--" + choice.replace("_", "-"), params[choice]
        if value is True:
            options.append(option)
        elif value:
            options += [word for item in ((value,) if isinstance(value, str) else value) for word in (option, item)]
    if not options:
        return (*name, *paths)
    label = params["name"] or "-".join(folder.label for folder in folders)
    return ("--name", label, "--", *ourselves(), "serve", "--stdio", *name, *options, *paths)


def resolved(path: str) -> str:
    """Make a path absolute."""
    from pathlib import Path

    return str(Path(path).resolve())
