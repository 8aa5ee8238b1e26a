"""A client of the official Python SDK 2.x that makes the calls of client_tour.py, in either era."""

import asyncio
import warnings

import client_tour
import common
import mcp_types as types
from mcp import Client, StdioServerParameters
from mcp.client.sse import sse_client

warnings.simplefilter("ignore")  # features that 2026-07-28 deprecates


class ClientAdapter(client_tour.ClientAdapter):
    client: Client
    stateless: bool

    async def call(self, name, arguments, on_progress=None):
        return client_tour.as_json(await self.client.call_tool(name, arguments, progress_callback=on_progress))

    async def set_level(self, level):
        if not self.stateless:
            await self.client.set_logging_level(level)

    async def list_tools(self):
        return await self.client.list_tools()

    async def list_prompts(self):
        return await self.client.list_prompts()

    async def get_prompt(self, name, arguments):
        return await self.client.get_prompt(name, arguments)

    async def complete(self, prompt, name, value):
        ref = types.PromptReference(type="ref/prompt", name=prompt)
        return (await self.client.complete(ref, {"name": name, "value": value})).completion.values

    async def log(self, params):
        self.logs.append([params.level, params.logger, params.data])

    async def elicit(self, context, params):
        self.input_requests.append(client_tour.as_json(params))
        if isinstance(params, types.ElicitRequestURLParams):
            return types.ElicitResult(action="accept")
        action, content = client_tour.answer_form(params.message)
        return types.ElicitResult(action=action, content=content)

    async def sample(self, context, params):
        self.input_requests.append(client_tour.as_json(params))
        text = types.TextContent(type="text", text=client_tour.REPLY)
        return types.CreateMessageResult(role="assistant", model="parrot-1", content=text, stop_reason="endTurn")

    async def roots(self, context):
        self.input_requests.append("roots")
        return types.ListRootsResult(roots=[types.Root(uri=uri, name=name) for uri, name in client_tour.ROOTS])


async def main():
    visit, seen, adapter = common.read_input(), {}, ClientAdapter()
    adapter.stateless = visit["revision"] == "2026-07-28"
    if command := visit.get("command"):
        server = StdioServerParameters(command=command[0], args=command[1:])
    elif visit.get("sse"):
        server = sse_client(visit["sse"])
    else:
        server = visit["url"]
    async with Client(
        server,
        mode="auto" if adapter.stateless else "legacy",
        log_level="info",
        logging_callback=adapter.log,
        elicitation_callback=adapter.elicit,
        sampling_callback=adapter.sample,
        list_roots_callback=adapter.roots,
    ) as adapter.client:
        seen["revision"] = adapter.client.protocol_version
        await client_tour.tour(adapter, visit, seen)
    common.report(seen)


asyncio.run(main())
