"""The client of mcp 2.x, as its documentation shows it."""

import asyncio

from mcp import Client, StdioServerParameters
from turns import CALL, TARGET, run_commands


async def main():
    command = TARGET.get("command")
    server = StdioServerParameters(command=command[0], args=command[1:]) if command else TARGET["url"]
    async with Client(server, mode="auto" if TARGET["mode"] == "stateless" else "legacy") as client:

        async def ask(method, params):
            if method == CALL:
                return len((await client.call_tool(params["name"], params["arguments"])).content[0].text)
            content = (await client.read_resource(params["uri"])).contents[0]
            return len(content.text if hasattr(content, "text") else content.blob)

        await run_commands(ask)


asyncio.run(main())
