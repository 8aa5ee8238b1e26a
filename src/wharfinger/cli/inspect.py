"""`wharfinger inspect`: who a server is, what it declares, which revisions it speaks, and how long it takes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, cast

import click

from wharfinger.cli.completing import complete_words
from wharfinger.cli.options import TargetCommand, connection_options, json_option, verbosity_options
from wharfinger.cli.targets import Target, split_words

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from wharfinger.client import Client

__all__ = ["inspect"]

ROUND_TRIPS = 5


@click.command(
    cls=TargetCommand,
    epilog="""\b
Examples:
  wharfinger inspect http://127.0.0.1:8000/mcp
  wharfinger inspect --no-probe harbour
  wharfinger inspect --json -- python server.py""",
)
@click.argument("words", nargs=-1, metavar="TARGET", shell_complete=complete_words())
@click.option("--no-probe", is_flag=True, help="Do not try the other revisions, which starts a command again for each.")
@json_option
@connection_options
@verbosity_options
@click.pass_context
def inspect(ctx: click.Context, /, words: tuple[str, ...], no_probe: bool, as_json: bool, **options: Any) -> None:
    """Tell who a server is, what it can do, and how fast it answers.

    It lists everything once and counts it; it reads no resource and calls no tool. What a server lacks is told by
    `wharfinger doctor`.
    """
    target, rest = split_words(ctx, words, ())
    if rest:
        raise click.UsageError(f"One TARGET only: {rest[0]!r} is too much.", ctx)
    import time

    from wharfinger.cli.causes import Stderr, located
    from wharfinger.cli.connecting import connecting, make, with_client
    from wharfinger.cli.probe import PROBE_SECONDS, probe_revisions

    how = connecting(options)
    begun = time.perf_counter()

    def pinned(revision: str) -> Client:
        return make(ctx, target, how._replace(revision=revision, timeout=min(how.timeout, PROBE_SECONDS)))

    async def work(client: Client) -> Inspection:
        connected = time.perf_counter() - begun
        seen = await look(client, target, connected)
        if no_probe or how.revision is not None:
            return seen
        yes, no = await probe_revisions(client.revision, pinned)
        return seen._replace(supported=yes, unsupported=no)

    said = Stderr()
    seen = with_client(ctx, target, how, work, said)
    lists = {kind: one._replace(error=located(one.error, said.lines)) for kind, one in seen.lists.items()}
    seen = seen._replace(lists=lists)
    if as_json:
        from wharfinger.cli.output import print_json

        print_json(as_object(seen))
    else:
        tell(seen)


class Listed(NamedTuple):
    """One list: how many items, in how many seconds, or why not."""

    number: int
    seconds: float
    error: str = ""


class Inspection(NamedTuple):
    """What was found; times are in seconds."""

    target: str
    transport: str
    revision: str
    supported: tuple[str, ...]
    unsupported: tuple[str, ...]
    server: Any
    instructions: str | None
    capabilities: Any
    lists: dict[str, Listed]
    connect: float
    round_trips: tuple[float, ...]


async def look(client: Client, target: Target, connected: float) -> Inspection:
    """See what the open connection shows."""
    has = client.capabilities
    listings: dict[str, tuple[Any, Callable[[], Any]]] = {
        "resources": (has.resources, client.list_resources),
        "templates": (has.resources, client.list_resource_templates),
        "tools": (has.tools, client.list_tools),
        "prompts": (has.prompts, client.list_prompts),
    }
    lists = {kind: await count(listing) for kind, (declared, listing) in listings.items() if declared}
    trips = [await timed(client.ping) for _ in range(ROUND_TRIPS)]
    return Inspection(
        target=str(target),
        transport=client.transport,
        revision=client.revision,
        supported=(client.revision,),
        unsupported=(),
        server=client.server_info,
        instructions=client.instructions,
        capabilities=has,
        lists=lists,
        connect=connected,
        round_trips=tuple(trips),
    )


async def count(listing: Callable[[], Any]) -> Listed:
    """Go through a list, keeping nothing of it."""
    import time

    from wharfinger.errors import WharfingerError

    begun = time.perf_counter()
    number = 0
    try:
        async for _ in listing():
            number += 1
    except WharfingerError as error:
        return Listed(number, time.perf_counter() - begun, str(error))
    return Listed(number, time.perf_counter() - begun)


async def timed(call: Callable[[], Awaitable[object]]) -> float:
    """Measure one call."""
    import time

    begun = time.perf_counter()
    await call()
    return time.perf_counter() - begun


def as_object(seen: Inspection) -> dict[str, Any]:
    """Write it for a program; milliseconds."""
    return {
        "target": seen.target,
        "transport": seen.transport,
        "revision": seen.revision,
        "supported": list(seen.supported),
        "server": seen.server,
        "instructions": seen.instructions,
        "capabilities": seen.capabilities,
        "lists": {
            kind: {"count": one.number, "ms": milliseconds(one.seconds), **({"error": one.error} if one.error else {})}
            for kind, one in seen.lists.items()
        },
        "timings": {
            "connectMs": milliseconds(seen.connect),
            "roundTripMs": [milliseconds(trip) for trip in seen.round_trips],
        },
    }


def milliseconds(seconds: float) -> float:
    """Turn seconds into milliseconds, with three places."""
    return round(seconds * 1000, 3)


def tell(seen: Inspection) -> None:
    """Write it for a person."""
    from wharfinger.cli.output import print_rows

    print_rows([(label, text) for label, text in lines(seen) if text])


def lines(seen: Inspection) -> list[tuple[str, str]]:
    """Write each fact as a label and a text."""
    from wharfinger.cli.words import count as counted
    from wharfinger.cli.words import duration

    info = seen.server
    title = f" ({info.title})" if info and isinstance(info.title, str) else ""
    trips = sorted(seen.round_trips)
    listed = [
        (
            "",
            f"{counted(one.number, kind.removesuffix('s'))} in {duration(one.seconds)}"
            + (f", then: {one.error}" if one.error else ""),
        )
        for kind, one in seen.lists.items()
    ]
    if listed:
        listed[0] = ("Lists", listed[0][1])
    extensions = names(seen.capabilities.extensions)
    instructions = (seen.instructions or "").strip().splitlines()
    return [
        ("Server", f"{info.name} {info.version}{title}" if info else "does not say who it is"),
        ("Website", info.website_url if info and isinstance(info.website_url, str) else ""),
        ("Target", seen.target),
        ("Transport", seen.transport),
        ("Revision", seen.revision),
        ("Speaks", ", ".join(seen.supported) if len(seen.supported) > 1 else ""),
        ("Not", ", ".join(seen.unsupported)),
        ("Can do", ", ".join(abilities(seen.capabilities)) or "nothing that it declares"),
        ("Extensions", ", ".join(extensions)),
        *listed,
        ("Connected", f"in {duration(seen.connect)}"),
        ("Round trip", f"{duration(trips[len(trips) // 2])} (median of {len(trips)})" if trips else ""),
        *((("Instructions", instructions[0]), *(("", line) for line in instructions[1:])) if instructions else ()),
    ]


def names(table: Any) -> list[str]:
    """Name what is declared in a table that may be left out."""
    return sorted(cast("dict[str, Any]", table)) if isinstance(table, dict) else []


def abilities(capabilities: Any) -> list[str]:
    """Name the capabilities, each with what it adds."""
    import msgspec

    found: list[str] = []
    for name, declared in msgspec.to_builtins(capabilities).items():
        if name in ("extensions", "experimental"):
            continue
        table = cast("dict[str, Any]", declared) if isinstance(declared, dict) else {}
        adds = [word for word, value in table.items() if value or value == {}]
        found.append(f"{name} ({', '.join(adds)})" if adds else name)
    return found
