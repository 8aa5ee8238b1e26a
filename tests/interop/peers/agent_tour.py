"""What the Python agent frameworks do with a server of ours: each says how it does it, this says what.

Whatever fails is seen as `{"failed": TRACEBACK}` in its place, and the tour goes on.
"""

import asyncio
import logging
import traceback

import common
import scripted

PATIENCE = 60


class Way:
    """How a framework does each thing; subclasses fill it in. What it cannot do gives None."""

    async def tools(self):
        """Return the names of the server's tools."""
        raise NotImplementedError

    async def resources(self):
        """Return the URIs, or names, of the server's resources."""

    async def read(self, uri, name):
        """Return the text of a resource."""

    async def run(self, prompt):
        """Return the agent's final answer to this prompt."""
        raise NotImplementedError


async def attempt(coroutine):
    try:
        return await asyncio.wait_for(coroutine, PATIENCE)
    except Exception:
        return {"failed": traceback.format_exc()}


async def visit(connect, server, model):
    seen = {}
    async with connect(server, model) as way:
        seen["tools"] = await attempt(way.tools())
        seen["resources"] = await attempt(way.resources())
        seen["read"] = await attempt(way.read(server["read"], server["read_name"]))
        seen["runs"] = {name: await attempt(way.run(scripted.prompt(calls))) for name, calls in server["runs"].items()}
    return seen


async def tour(connect):
    """Visit every server; `connect(server, model)` is an async context manager that gives a `Way`."""
    asked, seen = common.visit(), {}
    for name, server in asked["servers"].items():
        seen[name] = await attempt(visit(connect, server, asked["model"]))
    common.report(seen)


def main(connect):
    logging.disable(logging.CRITICAL)  # what goes wrong is in what was seen
    asyncio.run(tour(connect))
