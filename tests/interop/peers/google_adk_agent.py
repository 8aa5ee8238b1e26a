"""Google ADK: an agent with a server as its toolset. The scripted model is a subclass of its BaseLlm."""

import json
from contextlib import asynccontextmanager

import agent_tour
import scripted
from google.adk.agents import LlmAgent
from google.adk.models import BaseLlm, LlmResponse
from google.adk.runners import InMemoryRunner
from google.adk.tools.mcp_tool import McpToolset, StdioConnectionParams, StreamableHTTPConnectionParams
from google.genai import types
from mcp import StdioServerParameters


class Model(BaseLlm):
    async def generate_content_async(self, llm_request, stream=False):
        parts = [part for content in llm_request.contents for part in content.parts]
        prompt = next(part.text for part in parts if part.text)
        results = [json.dumps(part.function_response.response) for part in parts if part.function_response]
        kind, tool_or_text, arguments = scripted.next_step(prompt, results, list(llm_request.tools_dict))
        part = (
            types.Part(text=tool_or_text)
            if kind == "say"
            else types.Part.from_function_call(name=tool_or_text, args=arguments)
        )
        yield LlmResponse(content=types.Content(role="model", parts=[part]))


class FrameworkAdapter(agent_tour.FrameworkAdapter):
    def __init__(self, toolset):
        self.toolset = toolset

    async def tools(self):
        return [tool.name for tool in await self.toolset.get_tools()]

    async def resources(self):
        return await self.toolset.list_resources()

    async def read(self, uri, name):
        return (await self.toolset.read_resource(name))[0].text

    async def run(self, prompt):
        agent = LlmAgent(name="agent", model=Model(model="scripted"), tools=[self.toolset])
        runner = InMemoryRunner(agent, app_name="agents")
        session = await runner.session_service.create_session(app_name="agents", user_id="mary")
        message = types.Content(role="user", parts=[types.Part(text=prompt)])
        events = [event async for event in runner.run_async(user_id="mary", session_id=session.id, new_message=message)]
        return events[-1].content.parts[0].text


@asynccontextmanager
async def connect(server, model_url):
    if "url" in server:
        parameters = StreamableHTTPConnectionParams(url=server["url"])
    else:
        parameters = StdioServerParameters(command=server["command"][0], args=server["command"][1:])
        parameters = StdioConnectionParams(server_params=parameters, timeout=30)
    toolset = McpToolset(connection_params=parameters)
    try:
        yield FrameworkAdapter(toolset)
    finally:
        await toolset.close()


agent_tour.main(connect)
