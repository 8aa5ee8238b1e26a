"""Our client, as its documentation shows it."""

import asyncio

from turns import CALL, TARGET, run_commands

from wharfinger import Client


async def main():
    revision = "2026-07-28" if TARGET["mode"] == "stateless" else "2025-11-25"
    async with Client(TARGET.get("command") or TARGET["url"], revision=revision) as client:

        async def ask(method, params):
            if method == CALL:
                return len((await client.call_tool(params["name"], params["arguments"])).text)
            content = (await client.read_resource(params["uri"])).contents[0]
            if content.text:
                return len(content.text)
            return 4 * -(-len(content.blob) // 3)  # the length in base64: other clients do not decode it

        await run_commands(ask)


asyncio.run(main())
