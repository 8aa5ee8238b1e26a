"""The client of mcp 1.x, as its documentation shows it."""

import asyncio

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamablehttp_client
from turns import CALL, TARGET, run_commands


async def main():
    if command := TARGET.get("command"):
        transport = stdio_client(StdioServerParameters(command=command[0], args=command[1:]))
    else:
        transport = streamablehttp_client(TARGET["url"])
    async with transport as streams, ClientSession(*streams[:2]) as session:
        await session.initialize()

        async def ask(method, params):
            if method == CALL:
                return len((await session.call_tool(params["name"], params["arguments"])).content[0].text)
            content = (await session.read_resource(params["uri"])).contents[0]
            return len(content.text if hasattr(content, "text") else content.blob)

        await run_commands(ask)


asyncio.run(main())
