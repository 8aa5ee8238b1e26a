"""A client of FastMCP 4.x that makes the calls of client_tour.py, in either era."""

import asyncio
import warnings

import client_tour
import common
import mcp_types as types
from fastmcp import Client
from fastmcp.client.elicitation import ElicitResult
from fastmcp.client.transports import SSETransport, StdioTransport
from fastmcp.exceptions import ToolError

warnings.simplefilter("ignore")  # features that 2026-07-28 deprecates


class ClientAdapter(client_tour.ClientAdapter):
    client: Client
    stateless: bool

    async def call(self, name, arguments, on_progress=None):
        result = client_tour.as_json(await self.client.call_tool_mcp(name, arguments, progress_handler=on_progress))
        if name in ("berth", "refuse"):
            try:
                data = (await self.client.call_tool(name, arguments)).data  # an object of the output schema
                assert data.quay.depth == result["structuredContent"]["quay"]["depth"], data
            except ToolError as error:
                assert str(error) == result["content"][0]["text"]
        return result

    async def set_level(self, level):
        if not self.stateless:
            await self.client.set_logging_level(level)

    async def list_tools(self):
        return await self.client.list_tools_mcp()

    async def list_prompts(self):
        return await self.client.list_prompts_mcp()

    async def get_prompt(self, name, arguments):
        return await self.client.get_prompt(name, arguments)

    async def complete(self, prompt, name, value):
        ref = types.PromptReference(type="ref/prompt", name=prompt)
        return (await self.client.complete(ref, {"name": name, "value": value})).values

    async def log(self, params):
        self.logs.append([params.level, params.logger, params.data])

    async def elicit(self, message, response_type, params, context):
        self.input_requests.append(client_tour.as_json(params))
        if isinstance(params, types.ElicitRequestURLParams):
            return ElicitResult(action="accept")
        action, content = client_tour.answer_form(message)
        return ElicitResult(action=action, content=content and response_type(**content))

    async def sample(self, messages, params, context):
        self.input_requests.append(client_tour.as_json(params))
        text = types.TextContent(type="text", text=client_tour.REPLY)
        return types.CreateMessageResult(role="assistant", model="parrot-1", content=text, stop_reason="endTurn")

    async def roots(self, context):
        self.input_requests.append("roots")
        return [types.Root(uri=uri, name=name) for uri, name in client_tour.ROOTS]


async def main():
    visit, seen, adapter = common.read_input(), {}, ClientAdapter()
    adapter.stateless = visit["revision"] == "2026-07-28"
    if command := visit.get("command"):
        server = StdioTransport(command[0], command[1:])
    elif visit.get("sse"):
        server = SSETransport(visit["sse"])
    else:
        server = visit["url"]
    async with Client(
        server,
        mode="auto" if adapter.stateless else "legacy",
        log_handler=adapter.log,
        elicitation_handler=adapter.elicit,
        sampling_handler=adapter.sample,
        roots=adapter.roots,
    ) as adapter.client:
        seen["revision"] = adapter.client.protocol_version
        await client_tour.tour(adapter, visit, seen)
    common.report(seen)


asyncio.run(main())
