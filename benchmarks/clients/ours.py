"""Our client, as its documentation shows it."""

import asyncio

from turns import CALL, TARGET, obey

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
            return 4 * -(-len(content.blob) // 3)  # it holds the bytes; the others hold base64, and leave that to you

        await obey(ask)


asyncio.run(main())
