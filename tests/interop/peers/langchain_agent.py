"""LangChain: an agent with the tools of a server, through langchain-mcp-adapters."""

from contextlib import asynccontextmanager

import agent_tour
from langchain.agents import create_agent
from langchain_mcp_adapters.client import MultiServerMCPClient
from langchain_mcp_adapters.resources import load_mcp_resources
from langchain_mcp_adapters.tools import load_mcp_tools
from langchain_openai import ChatOpenAI


class FrameworkAdapter(agent_tour.FrameworkAdapter):
    def __init__(self, session, tools, model_url):
        self.session, self.loaded_tools, self.model_url = session, tools, model_url

    async def tools(self):
        return [tool.name for tool in self.loaded_tools]

    async def resources(self):
        return [str(blob.metadata["uri"]) for blob in await load_mcp_resources(self.session)]

    async def read(self, uri, name):
        (blob,) = await load_mcp_resources(self.session, uris=uri)
        return blob.as_string()

    async def run(self, prompt):
        model = ChatOpenAI(model="scripted", base_url=self.model_url, api_key="none", max_retries=0)
        agent = create_agent(model, self.loaded_tools)
        result = await agent.ainvoke({"messages": [{"role": "user", "content": prompt}]})
        return result["messages"][-1].content


@asynccontextmanager
async def connect(server, model_url):
    if "url" in server:
        parameters = {"transport": "http", "url": server["url"]}
    else:
        parameters = {"transport": "stdio", "command": server["command"][0], "args": server["command"][1:]}
    async with MultiServerMCPClient({"ours": parameters}).session("ours") as session:
        yield FrameworkAdapter(session, await load_mcp_tools(session), model_url)


agent_tour.main(connect)
