"""The steps of the Python agent frameworks with our servers. Each framework implements them as a `FrameworkAdapter`.

The result of a step that fails is `{"failed": TRACEBACK}`, and the tour continues.
"""

import asyncio
import logging
import traceback

import common
import scripted

TIMEOUT_SECONDS = 60


class FrameworkAdapter:
    """The steps of a framework, for subclasses to implement. A step that it does not support returns None."""

    async def tools(self):
        """Return the names of the server's tools."""
        raise NotImplementedError

    async def resources(self):
        """Return the URIs or names of the server's resources."""

    async def read(self, uri, name):
        """Return the text of a resource."""

    async def run(self, prompt):
        """Return the agent's final answer to this prompt."""
        raise NotImplementedError


async def attempt(coroutine):
    try:
        return await asyncio.wait_for(coroutine, TIMEOUT_SECONDS)
    except Exception:
        return {"failed": traceback.format_exc()}


async def visit(connect, server, model_url):
    seen = {}
    async with connect(server, model_url) as adapter:
        seen["tools"] = await attempt(adapter.tools())
        seen["resources"] = await attempt(adapter.resources())
        seen["read"] = await attempt(adapter.read(server["read"], server["read_name"]))
        seen["runs"] = {
            name: await attempt(adapter.run(scripted.prompt(calls))) for name, calls in server["runs"].items()
        }
    return seen


async def tour(connect):
    """Visit every server. `connect(server, model_url)` is an async context manager that yields a `FrameworkAdapter`."""
    program_input, seen = common.read_input(), {}
    for name, server in program_input["servers"].items():
        seen[name] = await attempt(visit(connect, server, program_input["model_url"]))
    common.report(seen)


def main(connect):
    logging.disable(logging.CRITICAL)  # the report has the errors
    asyncio.run(tour(connect))
