"""A server of this project with every feature that a client can use, written with the public interface only.

`python feature_server.py stdio` or `python feature_server.py http PORT`.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from wharfinger import (
    Cancelled,
    Complete,
    Context,
    Declined,
    Depends,
    Elicit,
    Header,
    Image,
    Roots,
    Sample,
    Server,
    ToolError,
    types,
)
from wharfinger.sources import skills

server = Server("harbour", version="1.2.3", instructions="Berths, and who may have them.")
SHIPS = ["amber", "anchor", "beacon"]
stopped: list[str] = []
"""The tags of the cancelled calls, added by their functions."""
charged: dict[str, int] = {}
"""The number of charges by tag."""


@dataclass
class Quay:
    name: str
    depth: float
    lit: bool = True


@dataclass
class Berth:
    ship: str
    quay: Quay
    tags: list[str] = field(default_factory=list)
    note: str | None = None


@dataclass
class Stay:
    """A form for the user."""

    quay: Literal["north", "south"]
    hours: int
    power: bool = False


@server.tool
async def berth(ship: str, draught: float, tags: list[str] = []) -> Berth:  # noqa: B006  # never changed
    """Find a berth.

    Args:
        ship: Name of the ship.
        draught: In metres.
    """
    return Berth(ship, Quay("north", draught + 1), list(tags))


@server.tool
async def berths() -> list[Berth]:
    """List the berths that are taken."""
    return [Berth("amber", Quay("north", 6.5)), Berth("anchor", Quay("south", 4.0, lit=False), ["late"], "no crane")]


@server.tool
async def count(ship: str) -> int:
    """Count the letters of a name."""
    return len(ship)


@server.tool
async def picture() -> list[types.TextContent | Image | types.ResourceLink]:
    """Return three blocks of content."""
    return [
        types.TextContent(text="the quay"),
        Image(data=b"\x89PNG\r\n\x1a\n", format="png"),
        types.ResourceLink(uri="harbour://quay", name="quay"),
    ]


async def pilots() -> AsyncIterator[list[str]]:
    yield ["olga", "tom"]


@server.tool
async def pilot(
    harbour: Annotated[str, Header("Harbour")], number: int, names: Annotated[list[str], Depends(pilots)]
) -> str:
    """Return the pilot of a harbour. In the stateless era, HTTP requests have the harbour in a header too."""
    return f"{names[number]} of {harbour}"


@server.tool
async def refuse(ship: str) -> str:
    """Fail with a message for the caller."""
    raise ToolError(f"{ship} is not expected")


@server.tool
async def spoken(ctx: Context) -> str:
    """Return the protocol revision of the caller."""
    return ctx.caller.rules.name


@server.tool
async def capsize(ship: str) -> str:
    """Fail with an error that was not foreseen."""
    raise LookupError(f"no keel under {ship}")


@server.tool
async def chart(ship: str) -> list[types.TextContent | types.ResourceLink]:
    """Return a text and a resource link."""
    return [types.TextContent(text=f"{ship} lies at the quay"), types.ResourceLink(uri="harbour://quay", name="quay")]


@server.tool
async def load(steps: int, ctx: Context) -> str:
    """Report progress and log a message at each step."""
    for step in range(1, steps + 1):
        ctx.info(f"step {step}", logger="crane")
        ctx.report_progress(step, steps, f"{step} of {steps}")
        await asyncio.sleep(0.02)
    await asyncio.sleep(0.5)  # the TypeScript SDKs drop progress that arrives in one piece with the answer
    ctx.debug({"loaded": steps})
    return f"loaded {steps}"


@server.tool
async def wait(tag: str, ctx: Context) -> str:
    """Report progress once, and wait until the call is cancelled."""
    ctx.report_progress(1, 2, "waiting")
    try:
        await asyncio.sleep(120)
    except asyncio.CancelledError:
        stopped.append(tag)
        raise
    return "nobody cancelled"


@server.tool
async def was_stopped(tag: str) -> str:
    """Return "yes" if the call with this tag is cancelled within twenty seconds."""
    for _ in range(2_000):
        if tag in stopped:
            return "yes"
        await asyncio.sleep(0.01)
    return "no"


@server.tool
async def reserve(message: str, ctx: Context) -> str:
    """Ask the user one question."""
    try:
        stay = await ctx.elicit(message, Stay)
    except Declined:
        return "declined"
    except Cancelled:
        return "cancelled"
    return f"{stay.quay} for {stay.hours} h"


@server.tool
async def extend(tag: str, ctx: Context) -> str:
    """Ask the user two questions, and charge once between them."""

    def charge() -> int:
        charged[tag] = charged.get(tag, 0) + 1
        return charged[tag]

    first = await ctx.elicit("Which quay?", Stay)
    times = await ctx.once("charge", charge)
    second = await ctx.elicit("And after that?", Stay)
    return f"{first.hours + second.hours} h, charged {times} time(s) of {charged[tag]}"


@server.tool
async def pay(ctx: Context) -> str:
    """Ask the user to open a URL."""
    await ctx.elicit_url("Pay the harbour dues", "https://dues.example.test/12")
    return "paid"


@server.tool
async def advise(ctx: Context) -> str:
    """Ask the client's model."""
    reply = await ctx.sample("Which quay is best?", max_tokens=50, system="You know every quay.")
    return f"{reply.model}: {reply.text}"


@server.tool
async def charts(ctx: Context) -> list[str]:
    """Ask for the client's roots."""
    return [str(root.uri) for root in await ctx.roots()]


@server.tool
async def plan(ctx: Context) -> str:
    """Ask for a form, a sample and the roots at once."""
    answers = await ctx.ask(stay=Elicit("Which quay?", Stay), advice=Sample("Which quay is best?"), places=Roots())
    return f"{answers['stay'].quay}, {answers['advice'].text} {len(answers['places'])} places"


def ships(typed: str) -> list[str]:
    return [name for name in SHIPS if name.startswith(typed)]


@server.prompt
def briefing(
    ship: Annotated[str, Complete(ships)], tone: Literal["short", "long"] = "short", line: int = 1
) -> list[types.PromptMessage | str]:
    """Brief a watch on a ship."""
    notes = types.ResourceContents(uri=f"harbour://notes/{ship}", text=f"notes on {ship}", mime_type="text/plain")
    return [
        f"Brief me on {ship}, {tone}, from line {line}.",
        types.PromptMessage(role="assistant", content=types.TextContent(text="Aye.")),
        types.PromptMessage(role="user", content=types.EmbeddedResource(resource=notes)),
    ]


@server.resource("harbour://quay", mime_type="text/plain")
async def quay() -> str:
    return "the north quay"


server.include(skills(Path(__file__).parent / "skills"))


if __name__ == "__main__":
    if sys.argv[1] == "http":
        server.run(http=f"127.0.0.1:{sys.argv[2]}")
    else:
        server.run()
