"""Semantic Kernel: an agent with a server as its plugin. Plugins have tools and prompts but no resources."""

from contextlib import asynccontextmanager

import agent_tour
from openai import AsyncOpenAI
from semantic_kernel.agents import ChatCompletionAgent
from semantic_kernel.connectors.ai.open_ai import OpenAIChatCompletion
from semantic_kernel.connectors.mcp import MCPStdioPlugin, MCPStreamableHttpPlugin
from semantic_kernel.functions import KernelPlugin


class FrameworkAdapter(agent_tour.FrameworkAdapter):
    def __init__(self, plugin, model_url):
        self.plugin, self.model_url = plugin, model_url

    async def tools(self):
        return list(KernelPlugin.from_object("ours", self.plugin).functions)

    async def run(self, prompt):
        service = OpenAIChatCompletion(
            ai_model_id="scripted", async_client=AsyncOpenAI(base_url=self.model_url, api_key="none", max_retries=0)
        )
        agent = ChatCompletionAgent(service=service, name="agent", plugins=[self.plugin])
        return str((await agent.get_response(messages=prompt)).content)


@asynccontextmanager
async def connect(server, model_url):
    if "url" in server:
        plugin = MCPStreamableHttpPlugin(name="ours", url=server["url"])
    else:
        plugin = MCPStdioPlugin(name="ours", command=server["command"][0], args=server["command"][1:])
    async with plugin:
        yield FrameworkAdapter(plugin, model_url)


agent_tour.main(connect)
