"""The server that the security tests start as a real process, with `wharfinger run`."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time
from dataclasses import dataclass

from wharfinger import Context, Server
from wharfinger.protocol.limits import Limits

server = Server("fixture", limits=Limits(drain=0.5))
cancelled_count = 0
released = threading.Event()


@server.tool
async def echo(value: str) -> str:
    return value


@server.tool
async def wait() -> str:
    """Waits until it is cancelled, and counts the cancellations."""
    global cancelled_count
    try:
        await asyncio.Event().wait()
    finally:
        cancelled_count += 1
    return "never"


@server.tool
async def cancelled() -> int:
    return cancelled_count


@server.tool
def block() -> str:
    """Blocks its thread until `release`."""
    released.wait(60)
    return "released"


@server.tool
async def release() -> str:
    released.set()
    return "ok"


@server.tool
def quick() -> str:
    return "quick"


@server.tool
def double(number: int) -> int:
    return 2 * number


@server.tool
async def exits() -> str:
    sys.exit(3)


@server.tool
def recursion() -> str:
    return recursion()


@server.tool
async def raises() -> str:
    raise ValueError("the password is hunter2")


@server.tool
async def surrogate() -> str:
    return "\ud800"


@server.tool
async def large(size: int) -> str:
    return "x" * size


@server.tool
async def chatter(ctx: Context, events: int) -> str:
    """Reports progress without waiting for anybody."""
    for step in range(events):
        ctx.report_progress(step, events, "a\r\n\r\nevent: fake\ndata: {}\u2028")
    return "done"


@server.tool
def floods(lines: int) -> str:
    for _ in range(lines):
        print("x" * 100, file=sys.stderr)
    return "done"


@server.tool
async def object_of(value: dict[str, float | str]) -> str:
    return json.dumps(value)


@dataclass
class Crate:
    """A crate with other crates in it: its schema refers to itself."""

    name: str
    contents: list[Crate]


@server.tool
async def unpack(crate: Crate) -> str:
    return crate.name


@server.tool
async def asks(ctx: Context, ship: str) -> str:
    """Asks before it answers."""
    await ctx.elicit(f"May {ship} sail?", bool, key="agree")
    return f"{ship} sails for {ctx.principal.subject}"


@server.tool
async def storm(changes: int) -> str:
    """Reports changes of one resource as fast as it can."""
    for step in range(changes):
        server.resource_updated("fix://counter")
        if step % 100 == 0:
            await asyncio.sleep(0)
    return "done"


@server.resource("fix://counter")
async def counter() -> str:
    return "0"


@server.resource("fix://blocks/{name}")
def blocks(name: str) -> str:
    released.wait(60)
    return name


@server.resource("fix://any/{+rest}")
async def anything(rest: str) -> str:
    return rest[:10]


@server.resource("fix://slow")
async def slow() -> str:
    await asyncio.sleep(3600)
    return "never"


@server.resource("fix://sleeps")
def sleeps() -> str:
    time.sleep(3600)
    return "never"
