"""`wharfinger inspect`: shows a server's name, capabilities, revisions, features and speed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, cast

import click

from wharfinger.cli.options import TargetCommand, connection_options, json_option, verbosity_options
from wharfinger.cli.targets.shell_completion import complete_words
from wharfinger.cli.targets.target import Target, only_target

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, Awaitable, Callable

    from wharfinger import types as t
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
@click.option("--no-probe", is_flag=True, help="Do not try the other protocol revisions.")
@json_option
@connection_options
@verbosity_options
@click.pass_context
def inspect(ctx: click.Context, /, words: tuple[str, ...], no_probe: bool, as_json: bool, **options: Any) -> None:
    """Show a server's name, features and speed.

    Lists everything once and counts it, and tries every protocol revision (which starts a command again for each).
    Reads no resource and calls no tool. `wharfinger doctor` shows what to change about a server.
    """
    target = only_target(ctx, words)
    import time

    from wharfinger.cli.targets.open_client import take_connection_options, with_client
    from wharfinger.cli.targets.revision_probe import probe_revisions
    from wharfinger.cli.tracebacks import ServerStderr, add_location

    connection = take_connection_options(options)
    started = time.perf_counter()

    async def work(client: Client) -> InspectedServer:
        connect_seconds = time.perf_counter() - started
        inspected = await examine(client, target, connect_seconds)
        if no_probe or connection.revision is not None:
            return inspected
        supported, unsupported = await probe_revisions(ctx, target, connection, client.revision)
        return inspected._replace(supported=supported, unsupported=unsupported)

    stderr = ServerStderr()
    inspected = with_client(ctx, target, connection, work, stderr)
    lists = {
        kind: timing._replace(error=add_location(timing.error, stderr.lines))
        for kind, timing in inspected.lists.items()
    }
    inspected = inspected._replace(lists=lists)
    if as_json:
        from wharfinger.cli.render.output import print_json

        print_json(as_object(inspected))
    else:
        from wharfinger.cli.render.output import print_rows

        print_rows([(label, text) for label, text in facts(inspected) if text])


class ListTiming(NamedTuple):
    """One list: its number of items, the seconds it took, and the error if it failed."""

    number: int
    seconds: float
    error: str = ""


class InspectedServer(NamedTuple):
    """The facts about a server; `round_trips` are in seconds."""

    target: str
    transport: str
    revision: str
    supported: tuple[str, ...]
    unsupported: tuple[str, ...]
    server: t.Implementation | None
    instructions: str | None
    capabilities: t.ServerCapabilities
    lists: dict[str, ListTiming]
    connect_seconds: float
    round_trips: tuple[float, ...]
    ping_error: str
    """Why there are fewer round trips than `ROUND_TRIPS`, or an empty string."""


async def examine(client: Client, target: Target, connect_seconds: float) -> InspectedServer:
    """List everything and measure the round trips of an open client."""
    from wharfinger.errors import RemoteError, RequestTimeout

    capabilities = client.capabilities
    listings: dict[str, tuple[object, Callable[[], AsyncIterable[object]]]] = {
        "resources": (capabilities.resources, client.list_resources),
        "templates": (capabilities.resources, client.list_resource_templates),
        "tools": (capabilities.tools, client.list_tools),
        "prompts": (capabilities.prompts, client.list_prompts),
    }
    lists = {kind: await time_list(listing) for kind, (declared, listing) in listings.items() if declared}
    trips: list[float] = []
    ping_error = ""
    try:
        while len(trips) < ROUND_TRIPS:
            trips.append(await measure(client.ping))
    except (RemoteError, RequestTimeout) as error:
        ping_error = str(error)
    return InspectedServer(
        target=str(target),
        transport=client.transport,
        revision=client.revision,
        supported=(client.revision,),
        unsupported=(),
        server=client.server_info,
        instructions=client.instructions,
        capabilities=capabilities,
        lists=lists,
        connect_seconds=connect_seconds,
        round_trips=tuple(trips),
        ping_error=ping_error,
    )


async def time_list(listing: Callable[[], AsyncIterable[object]]) -> ListTiming:
    """Read a list to its end, and return the number of its items and the time."""
    import time

    from wharfinger.errors import WharfingerError

    started = time.perf_counter()
    number = 0
    try:
        async for _ in listing():
            number += 1
    except WharfingerError as error:
        return ListTiming(number, time.perf_counter() - started, str(error))
    return ListTiming(number, time.perf_counter() - started)


async def measure(call: Callable[[], Awaitable[object]]) -> float:
    """Return the seconds that one call takes."""
    import time

    started = time.perf_counter()
    await call()
    return time.perf_counter() - started


def as_object(inspected: InspectedServer) -> dict[str, Any]:
    """Return everything as one JSON object, with times in milliseconds."""
    return {
        "target": inspected.target,
        "transport": inspected.transport,
        "revision": inspected.revision,
        "supported": list(inspected.supported),
        "unsupported": list(inspected.unsupported),
        "server": inspected.server,
        "instructions": inspected.instructions,
        "capabilities": inspected.capabilities,
        "lists": {
            kind: {
                "count": timing.number,
                "ms": milliseconds(timing.seconds),
                **({"error": timing.error} if timing.error else {}),
            }
            for kind, timing in inspected.lists.items()
        },
        "timings": {
            "connectMs": milliseconds(inspected.connect_seconds),
            "roundTripMs": [milliseconds(trip) for trip in inspected.round_trips],
            **({"error": inspected.ping_error} if inspected.ping_error else {}),
        },
    }


def milliseconds(seconds: float) -> float:
    """Return milliseconds with three decimals."""
    return round(seconds * 1000, 3)


def facts(inspected: InspectedServer) -> list[tuple[str, str]]:
    """Return each fact as a label and a text, which may be empty."""
    from wharfinger.cli.render.formatting import duration
    from wharfinger.content.text import many

    info = inspected.server
    title = f" ({info.title})" if info and isinstance(info.title, str) else ""
    trips = sorted(inspected.round_trips)
    listed = [
        (
            "",
            f"{many(timing.number, kind.removesuffix('s'))} in {duration(timing.seconds)}"
            + (f", then: {timing.error}" if timing.error else ""),
        )
        for kind, timing in inspected.lists.items()
    ]
    if listed:
        listed[0] = ("Lists", listed[0][1])
    extensions = sorted(inspected.capabilities.extensions or ())
    instructions = (inspected.instructions or "").strip().splitlines()
    return [
        ("Server", f"{info.name} {info.version}{title}" if info else "unnamed"),
        ("Website", info.website_url if info and isinstance(info.website_url, str) else ""),
        ("Target", inspected.target),
        ("Transport", inspected.transport),
        ("Revision", inspected.revision),
        ("Supports", ", ".join(inspected.supported) if len(inspected.supported) > 1 else ""),
        ("Unsupported", ", ".join(inspected.unsupported)),
        ("Can do", ", ".join(abilities(inspected.capabilities)) or "declares nothing"),
        ("Extensions", ", ".join(extensions)),
        *listed,
        ("Connected", f"in {duration(inspected.connect_seconds)}"),
        ("Round trip", inspected.ping_error or f"{duration(trips[len(trips) // 2])} (median of {len(trips)})"),
        *((("Instructions", instructions[0]), *(("", line) for line in instructions[1:])) if instructions else ()),
    ]


def abilities(capabilities: t.ServerCapabilities) -> list[str]:
    """Return the names of the capabilities with their options, except extensions and experimental capabilities."""
    import msgspec

    described: list[str] = []
    for name, declared in msgspec.to_builtins(capabilities).items():
        if name in ("extensions", "experimental"):
            continue
        table = cast("dict[str, Any]", declared) if isinstance(declared, dict) else {}
        options = [word for word, value in table.items() if value or value == {}]  # {} means without settings
        described.append(f"{name} ({', '.join(options)})" if options else name)
    return described
