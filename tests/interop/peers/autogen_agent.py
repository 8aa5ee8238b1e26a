"""AutoGen: an assistant with a server as its workbench."""

from contextlib import asynccontextmanager

import agent_tour
from autogen_agentchat.agents import AssistantAgent
from autogen_ext.models.openai import OpenAIChatCompletionClient
from autogen_ext.tools.mcp import McpWorkbench, StdioServerParams, StreamableHttpServerParams

MODEL_INFO = {
    "vision": False,
    "function_calling": True,
    "json_output": True,
    "structured_output": True,
    "family": "unknown",
    "multiple_system_messages": True,
}


class FrameworkAdapter(agent_tour.FrameworkAdapter):
    def __init__(self, workbench, model_url):
        self.workbench, self.model_url = workbench, model_url

    async def tools(self):
        return [tool["name"] for tool in await self.workbench.list_tools()]

    async def resources(self):
        return [str(resource.uri) for resource in (await self.workbench.list_resources()).resources]

    async def read(self, uri, name):
        return (await self.workbench.read_resource(uri)).contents[0].text

    async def run(self, prompt):
        model = OpenAIChatCompletionClient(
            model="scripted", base_url=self.model_url, api_key="none", model_info=MODEL_INFO, max_retries=0
        )
        agent = AssistantAgent("agent", model, workbench=self.workbench, max_tool_iterations=20)
        return (await agent.run(task=prompt)).messages[-1].content


@asynccontextmanager
async def connect(server, model_url):
    if "url" in server:
        parameters = StreamableHttpServerParams(url=server["url"])
    else:
        parameters = StdioServerParams(command=server["command"][0], args=server["command"][1:])
    async with McpWorkbench(parameters) as workbench:
        yield FrameworkAdapter(workbench, model_url)


agent_tour.main(connect)
