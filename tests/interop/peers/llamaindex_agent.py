"""LlamaIndex: a function-calling agent with the tools of a server and LlamaIndex's model for tests."""

from contextlib import asynccontextmanager

import agent_tour
import scripted
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.base.llms.types import ChatMessage, ToolCallBlock
from llama_index.core.llms.mock import MockFunctionCallingLLM
from llama_index.tools.mcp import BasicMCPClient, McpToolSpec


def think(messages, tools=(), **kwargs):
    prompt = next(message.content for message in messages if message.role == "user")
    results = [message.content for message in messages if message.role == "tool"]
    kind, tool_or_text, arguments = scripted.next_step(prompt, results, [tool.metadata.name for tool in tools])
    if kind == "say":
        return ChatMessage(role="assistant", content=tool_or_text)
    call = ToolCallBlock(tool_call_id=f"call_{len(results)}", tool_name=tool_or_text, tool_kwargs=arguments)
    return ChatMessage(role="assistant", blocks=[call])


class FrameworkAdapter(agent_tour.FrameworkAdapter):
    def __init__(self, client):
        self.client = client

    async def tools(self):
        return [tool.metadata.name for tool in await McpToolSpec(self.client).to_tool_list_async()]

    async def resources(self):
        return [str(resource.uri) for resource in (await self.client.list_resources()).resources]

    async def read(self, uri, name):
        return (await self.client.read_resource(uri)).contents[0].text

    async def run(self, prompt):
        tools = await McpToolSpec(self.client).to_tool_list_async()
        agent = FunctionAgent(tools=tools, llm=MockFunctionCallingLLM(response_generator=think), streaming=False)
        return (await agent.run(prompt)).response.content


@asynccontextmanager
async def connect(server, model_url):
    if "url" in server:
        yield FrameworkAdapter(BasicMCPClient(server["url"]))
    else:
        yield FrameworkAdapter(BasicMCPClient(server["command"][0], args=server["command"][1:]))


agent_tour.main(connect)
