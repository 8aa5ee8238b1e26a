"""Makes the server of `wharfinger serve`: sources, search index, tools and instructions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from wharfinger.server import Server
    from wharfinger.source import Source
    from wharfinger.sources.registry import PreparedSource, SourceKind

__all__ = ["SOURCE_OPTIONS", "check_options", "flag_of", "instructions", "is_given", "make_server"]

SOURCE_OPTIONS = (
    "include",
    "exclude",
    "hidden",
    "max_size",
    "absolute_uris",
    "allow_command",
    "allow_operations",
    "base_url",
    "allow_private_networks",
    "encoding",
    "every",
    "max_clone_size",
    "patience",
)
"""Options of sources. All but `patience` are for some kinds of data only."""
NAMED_SOURCES = 20
"""Maximum number of sources that the instructions name."""


def make_server(
    words: Sequence[str], options: Mapping[str, Any], *, name: str | None, tools: bool, search: bool, query: bool
) -> tuple[Server, list[PreparedSource]]:
    """Make the server that publishes what the words of the command line name.

    Raises:
        UnusableSource: one of the words cannot be published.
        MissingExtra: a library for one of them is not installed.
    """
    from wharfinger.cli.render.formatting import slug
    from wharfinger.server import Server
    from wharfinger.sources.registry import make_sources
    from wharfinger.version import __version__

    sources = make_sources(words, options)
    server_name = name or slug(*(prepared.name for prepared in sources))
    server = Server(server_name, version=__version__, instructions=lambda: instructions(sources))
    for prepared in sources:
        prepared.source.patience = options.get("patience", prepared.source.patience)
        server.include(prepared.source)
    if search:
        from wharfinger.sources.search import search_index

        server.include(search_index())
    if tools:
        from wharfinger.sources import resource_tools

        server.include(resource_tools(allow_query=query))
    return server, sources


def instructions(sources: Sequence[PreparedSource]) -> str:
    """Return the instructions for a model: how to list, read in part, search and watch, and a line for each source.

    A line has the URI of the source, the parameters that the source declares, and the kind of data if it is not files.
    If there are several sources of one kind, only the line of the first has parameters. Sources in which the current
    caller may read nothing have no line, and of the others only the first `NAMED_SOURCES` have one.
    """
    from wharfinger.policy.current import reads_source
    from wharfinger.sources.registry import FILES
    from wharfinger.sources.resource_tool_set.uri_queries import explained

    sources = [prepared for prepared in sources if reads_source(prepared.source.uri)]
    advice = (
        "List the resources, read a directory's URI to see what it holds, or search; subscribe to a URI to learn when"
    )
    if not sources:
        return f"{advice} it changes."
    explained_families: set[tuple[type[Source], str]] = set()
    lines: list[str] = []
    for prepared in sources[:NAMED_SOURCES]:
        source = prepared.source
        family = (type(source), source.uri.partition(":")[0])
        remark = "" if prepared.parsed.kind is FILES else f" ({prepared.parsed.kind.description})"
        lines.append(f"- {explained(source, parameters=family not in explained_families)}{remark}")
        explained_families.add(family)
    if len(sources) > NAMED_SOURCES:
        lines.append(f"- and {len(sources) - NAMED_SOURCES} more")
    only_files = all(prepared.parsed.kind is FILES for prepared in sources)
    head = f"{'Files, as they are' if only_files else 'Live data, as it is'} now. {advice} it changes."
    return "\n".join([f"{head} To read less, add a query, as in:", *lines])


def check_options(ctx: click.Context, words: Iterable[str], options: Mapping[str, Any]) -> None:
    """Raise click.UsageError if an option was given that none of the sources takes."""
    from wharfinger.sources.registry import FILES, KINDS, parse_word

    kinds = [parse_word(word).kind for word in words] or [FILES]
    for name, value in options.items():
        if is_given(value) and not any(takes(kind, name) for kind in kinds):
            forms = list(dict.fromkeys(kind.form for kind in (FILES, *KINDS) if takes(kind, name)))
            raise click.UsageError(
                f"{flag_of(name)} is for {', '.join(forms)}, and nothing of that kind is published.", ctx
            )


def flag_of(option: str) -> str:
    """Return the flag of an option: `--max-size` for `max_size`, and `--limit` for `limits`."""
    return _SINGULAR.get(option) or "--" + option.replace("_", "-")


_SINGULAR = {"limits": "--limit", "allow_operations": "--allow-operation"}


def is_given(value: object) -> bool:
    """Return whether an option was given; 0 is a value."""
    return value is not None and value is not False and value != ()


def takes(kind: SourceKind, option: str) -> bool:
    """Return whether this kind of source takes an option."""
    if option == "allow_query":
        return kind.accepts_queries
    return option in kind.takes or option in ("patience", kind.needs)
