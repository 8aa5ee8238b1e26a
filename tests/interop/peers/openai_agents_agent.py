"""OpenAI Agents: an agent with a server."""

from contextlib import asynccontextmanager

import agent_tour
from agents import Agent, OpenAIChatCompletionsModel, Runner, set_tracing_disabled
from agents.mcp import MCPServerStdio, MCPServerStreamableHttp
from openai import AsyncOpenAI

set_tracing_disabled(True)  # traces would be sent to OpenAI


class FrameworkAdapter(agent_tour.FrameworkAdapter):
    def __init__(self, server, model_url):
        self.server, self.model_url = server, model_url

    async def tools(self):
        return [tool.name for tool in await self.server.list_tools()]

    async def resources(self):
        return [str(resource.uri) for resource in (await self.server.list_resources()).resources]

    async def read(self, uri, name):
        return (await self.server.read_resource(uri)).contents[0].text

    async def run(self, prompt):
        client = AsyncOpenAI(base_url=self.model_url, api_key="none", max_retries=0)
        agent = Agent(
            name="agent", mcp_servers=[self.server], model=OpenAIChatCompletionsModel("scripted", openai_client=client)
        )
        return (await Runner.run(agent, prompt, max_turns=20)).final_output


@asynccontextmanager
async def connect(server, model_url):
    if "url" in server:
        mcp_server = MCPServerStreamableHttp({"url": server["url"]}, client_session_timeout_seconds=30)
    else:
        parameters = {"command": server["command"][0], "args": server["command"][1:]}
        mcp_server = MCPServerStdio(parameters, client_session_timeout_seconds=30)
    async with mcp_server:
        yield FrameworkAdapter(mcp_server, model_url)


agent_tour.main(connect)
