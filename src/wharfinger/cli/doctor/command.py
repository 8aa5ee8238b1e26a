"""`wharfinger doctor`: what a good server has and this one lacks; what counts as good is said elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click
import msgspec
from msgspec import UNSET

from wharfinger.cli.options import TargetCommand, connection_options, json_option, verbosity_options
from wharfinger.cli.targets import split_words

if TYPE_CHECKING:
    from wharfinger.cli.doctor.offer import Finding, Listed, Offer, Read
    from wharfinger.client import Client

__all__ = ["doctor"]

MOST_ITEMS = 5_000  # of one list
SAMPLE_BYTES = 4 << 20  # of a resource that is read, as far as its size is told
SAMPLE_SECONDS = 20.0  # for all of them
READ_SECONDS = 10.0  # for one
PROBE_SECONDS = 10.0  # for one revision
NAMES = 5  # of one finding that are told
LONGEST_NAME = 240  # characters of one of them
DEAREST = 10  # tools whose cost is told


@click.command(
    cls=TargetCommand,
    epilog="""\b
Examples:
  wharfinger doctor http://127.0.0.1:8000/mcp
  wharfinger doctor server.py --json
  wharfinger doctor --sample 0 -- python server.py

Exit codes: 0 nothing wrong (there may be advice), 1 problems, 2 usage, 3 cannot connect, 4 not authorised.""",
)
@click.argument("words", nargs=-1, metavar="TARGET")
@click.option(
    "--sample",
    type=click.IntRange(min=0),
    default=20,
    show_default=True,
    metavar="N",
    help="Read so many of the resources; 0 reads none.",
)
@click.option("--no-probe", is_flag=True, help="Do not connect again in each revision of the protocol.")
@json_option
@connection_options
@verbosity_options
@click.pass_context
def doctor(
    ctx: click.Context,
    /,
    words: tuple[str, ...],
    sample: int,
    no_probe: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Tell what a good server has and this one lacks.

    It connects as a host would, goes through all lists, reads some resources, and tries every revision of the protocol
    (which starts a command again for each). It calls no tool and gets no prompt. A problem keeps a host or model from
    using something; advice makes it better. Each says what to change. Then follow what the tools' definitions cost a
    model, and what each host shows.
    """
    target, rest = split_words(ctx, words, ())
    if rest:
        raise click.UsageError(f"One TARGET only: {rest[0]!r} is too much.", ctx)
    from wharfinger.cli.causes import Stderr, located
    from wharfinger.cli.connecting import connecting, make, with_client
    from wharfinger.cli.doctor.checkup import check

    how = connecting(options)

    def pinned(revision: str) -> Client:
        return make(ctx, target, how._replace(revision=revision, timeout=min(how.timeout, PROBE_SECONDS)))

    async def work(client: Client) -> Offer:
        offer = await examine(client, sample)
        if not no_probe and how.revision is None:
            offer.revisions, offer.unspoken = await spoken(client.revision, pinned)
        return offer

    said = Stderr()
    offer = with_client(ctx, target, how, work, said)
    for kind in KINDS:
        getattr(offer, kind).error = located(getattr(offer, kind).error, said.lines)
    offer.reads = {
        uri: msgspec.structs.replace(one, error=located(one.error, said.lines)) for uri, one in offer.reads.items()
    }
    findings = check(offer)
    if as_json:
        from wharfinger.cli.output import print_json

        print_json(report(offer, findings))
    else:
        tell(offer, findings, str(target))
    if any(finding.severity == "problem" for finding in findings):
        ctx.exit(1)


# -- looking


async def examine(client: Client, sample: int) -> Offer:
    """See everything that the server offers, and read some of it."""
    from wharfinger.cli.doctor.offer import Listed, Offer

    has = client.capabilities

    async def of(name: str, member: str, declared: Any) -> Listed:
        return Listed() if declared is UNSET else await listed(client, name, member)

    offer = Offer(
        name=client.server_info.name if client.server_info else "",
        version=client.server_info.version if client.server_info else "",
        instructions=client.instructions or "",
        capabilities=has,
        revisions=(client.revision,),
        tools=await of("tools/list", "tools", has.tools),
        prompts=await of("prompts/list", "prompts", has.prompts),
        resources=await of("resources/list", "resources", has.resources),
        templates=await of("resources/templates/list", "resource_templates", has.resources),
    )
    offer.reads = await reads(client, chosen(offer, sample))
    return offer


async def listed(client: Client, method: str, member: str) -> Listed:
    """Go through a list; tools that a client must leave out are in it, too."""
    from wharfinger.cli.doctor.offer import Listed
    from wharfinger.errors import ConnectionLost, MethodNotFound, WharfingerError

    found = Listed(items=[])
    cursor: Any = UNSET
    seen: set[str] = set()
    try:
        while True:
            page = await client._page(method, cursor, None, True)
            items = getattr(page, member)
            found.items += items
            found.largest_page = max(found.largest_page, len(items))
            cursor = client._following(page)
            if cursor is UNSET:
                return found
            if cursor in seen or len(found.items) >= MOST_ITEMS:
                found.more = True
                return found
            seen.add(cursor)
    except MethodNotFound as error:
        if method != "resources/templates/list":  # not every server with resources has templates
            found.error = str(error)
    except ConnectionLost:
        raise
    except WharfingerError as error:
        found.error = str(error)
    return found


def chosen(offer: Offer, sample: int) -> list[str]:
    """URIs to read: some from all over the list, and the pages that tools name."""
    from wharfinger.cli.doctor.offer import app_of

    if sample == 0:
        return []
    small = [
        item.uri
        for item in offer.resources.items
        if item.mime_type != "inode/directory" and not (isinstance(item.size, int) and item.size > SAMPLE_BYTES)
    ]
    step = max(1, len(small) // sample)
    apps = {app_of(tool): None for tool in offer.tools.items} if offer.capabilities.resources is not UNSET else {}
    return list(dict.fromkeys([*filter(None, apps), *small[::step][:sample]]))


async def reads(client: Client, uris: Sequence[str]) -> dict[str, Read]:
    """Read resources, one after the other, within bounds."""
    from wharfinger.cli.doctor.offer import Read
    from wharfinger.errors import ConnectionLost, WharfingerError

    found: dict[str, Read] = {}
    ends = time.monotonic() + SAMPLE_SECONDS
    for uri in uris:
        left = ends - time.monotonic()
        if left <= 0:
            break
        try:
            result = await client.read_resource(uri, timeout=min(left, READ_SECONDS))
            found[uri] = Read(contents=tuple(result.contents))
        except ConnectionLost:
            raise
        except WharfingerError as error:
            found[uri] = Read(error=str(error))
    return found


async def spoken(known: str, pinned: Callable[[str], Client]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Which revisions the server speaks, and which not: each is asked for, one after the other."""
    from wharfinger.errors import WharfingerError
    from wharfinger.protocol.revisions import SUPPORTED

    yes: list[str] = []
    no: list[str] = []
    for revision in SUPPORTED:
        if revision == known:
            yes.append(revision)
            continue
        try:
            async with pinned(revision):
                yes.append(revision)
        except (WharfingerError, OSError):
            no.append(revision)
    return tuple(yes), tuple(no)


# -- telling


def offered(offer: Offer) -> dict[str, bool]:
    """What there is for a host to show."""
    from wharfinger.cli.doctor.offer import app_of

    return {
        "tools": bool(offer.tools.items),
        "resources": bool(offer.resources.items or offer.templates.items),
        "templates": bool(offer.templates.items),
        "prompts": bool(offer.prompts.items),
        "apps": any(app_of(tool) for tool in offer.tools.items),
    }


def shown_by_hosts(offer: Offer) -> list[dict[str, str]]:
    """What each host shows of what there is."""
    from wharfinger.cli.doctor.host_support import HOST_SUPPORT

    kinds = [kind for kind, there in offered(offer).items() if there]
    return [
        {"host": support.host} | {kind: "yes" if kind == "tools" else getattr(support, kind) for kind in kinds}
        for support in HOST_SUPPORT
    ]


def report(offer: Offer, findings: list[Finding]) -> dict[str, Any]:
    """Everything as one JSON object."""
    from wharfinger.cli.doctor.offer import costs, tokens

    dear = costs(offer)
    return {
        "server": {"name": offer.name, "version": offer.version},
        "revisions": offer.revisions,
        "offers": {kind: len(getattr(offer, kind).items) for kind in KINDS},
        "read": len(offer.reads),
        "findings": [msgspec.to_builtins(finding) for finding in findings],
        "tokens": {
            "estimate": True,
            "tools": sum(cost.tokens for cost in dear),
            "instructions": tokens(offer.instructions),
            "by_tool": {cost.name: cost.tokens for cost in dear},
        },
        "hosts": shown_by_hosts(offer),
    }


KINDS = ("tools", "prompts", "resources", "templates")


def tell(offer: Offer, findings: list[Finding], target: str) -> None:
    """Print everything for people."""
    from wharfinger.cli.words import count

    say(f"{offer.name or 'A server without a name'} {offer.version}".rstrip() + f" at {target}")
    say(f"Speaks {', '.join(offer.revisions)}")
    amounts = [count(len(getattr(offer, kind).items), kind.removesuffix("s")) for kind in KINDS]
    say(f"Offers {', '.join(amounts)}; {count(len(offer.reads), 'resource')} read")
    for severity, title in (("problem", "Problems"), ("advice", "Advice")):
        some = [finding for finding in findings if finding.severity == severity]
        say("")
        say(f"{title}: {len(some) or 'none'}")
        for finding in some:
            say(f"  {finding.what}{names(finding)}")
            say(f"    {finding.change}")
    tell_costs(offer)
    tell_hosts(offer)


def names(finding: Finding) -> str:
    """The first of the things that a finding is about."""
    if not finding.where:
        return ""
    more = len(finding.where) - NAMES
    return f": {', '.join(map(cut, finding.where[:NAMES]))}" + (f" and {more:,} more" if more > 0 else "")


def cut(text: str) -> str:
    """The first characters of what a stranger named."""
    return text if len(text) <= LONGEST_NAME else f"{text[:LONGEST_NAME]}…"


def tell_costs(offer: Offer) -> None:
    """Print what the definitions cost."""
    from wharfinger.cli.doctor.offer import TOKEN, costs, tokens
    from wharfinger.cli.words import columns, count

    dear = costs(offer)
    if not dear and not offer.instructions:
        return
    total = sum(cost.tokens for cost in dear)
    say("")
    say(
        f"Tokens of every conversation, about: {total:,} for {count(len(dear), 'tool')}, "
        f"{tokens(offer.instructions):,} for the instructions (an estimate, {TOKEN} characters each)"
    )
    for line in columns([(f"{cost.tokens:,}".rjust(8), cost.name) for cost in dear[:DEAREST]]):
        say(line)


def tell_hosts(offer: Offer) -> None:
    """Print what each host shows."""
    from wharfinger.cli.words import columns

    rows = shown_by_hosts(offer)
    if len(rows[0]) == 1:
        return
    say("")
    say("What hosts show of it, as far as known (resources: who gets at them)")
    for line in columns([tuple(rows[0]), *(tuple(row.values()) for row in rows)]):
        say(f"  {line}")


def say(line: str) -> None:
    """Print a line, with nothing in it that a terminal would obey."""
    from wharfinger.cli.words import printable

    click.echo(printable(line))
