"""The client of FastMCP, as its documentation shows it."""

import asyncio

from fastmcp import Client
from fastmcp.client.transports import StdioTransport
from turns import CALL, TARGET, run_commands


async def main():
    command = TARGET.get("command")
    target = StdioTransport(command=command[0], args=command[1:]) if command else TARGET["url"]
    async with Client(target) as client:

        async def ask(method, params):
            if method == CALL:
                return len((await client.call_tool(params["name"], params["arguments"])).content[0].text)
            content = (await client.read_resource(params["uri"]))[0]
            return len(content.text if hasattr(content, "text") else content.blob)

        await run_commands(ask)


asyncio.run(main())
