"""Pydantic AI: an agent with a server as its toolset and Pydantic AI's model for tests."""

from contextlib import asynccontextmanager

import agent_tour
import scripted
from fastmcp.client.transports import StdioTransport
from pydantic_ai import Agent
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.messages import ModelResponse, RetryPromptPart, TextPart, ToolCallPart, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import FunctionModel


def think(messages, info):
    parts = [part for message in messages for part in message.parts]
    prompt = next(part.content for part in parts if isinstance(part, UserPromptPart))
    results = [
        part.model_response_str() if isinstance(part, ToolReturnPart) else part.model_response()
        for part in parts
        if isinstance(part, ToolReturnPart | RetryPromptPart)
    ]
    kind, tool_or_text, arguments = scripted.next_step(prompt, results, [tool.name for tool in info.function_tools])
    return ModelResponse([TextPart(tool_or_text) if kind == "say" else ToolCallPart(tool_or_text, arguments)])


class FrameworkAdapter(agent_tour.FrameworkAdapter):
    def __init__(self, toolset):
        self.toolset = toolset

    async def tools(self):
        return [tool.name for tool in await self.toolset.list_tools()]

    async def resources(self):
        return [str(resource.uri) for resource in await self.toolset.list_resources()]

    async def read(self, uri, name):
        return await self.toolset.read_resource(uri)

    async def run(self, prompt):
        return (await Agent(FunctionModel(think), toolsets=[self.toolset]).run(prompt)).output


@asynccontextmanager
async def connect(server, model_url):
    parameters = server["url"] if "url" in server else StdioTransport(server["command"][0], server["command"][1:])
    async with MCPToolset(parameters) as toolset:
        yield FrameworkAdapter(toolset)


agent_tour.main(connect)
