"""A client of the official Python SDK 2.x that visits the three programs of docs/coming_from.md."""

import asyncio
import json
import warnings

import common
import mcp_types as types
from mcp import Client, StdioServerParameters
from mcp.shared.exceptions import MCPError

warnings.simplefilter("ignore")  # features that 2026-07-28 deprecates


def schema_summary(schema):
    """Return the types of the members and the required members of an object schema."""
    kinds = {name: member.get("type") for name, member in schema.get("properties", {}).items()}
    return [kinds, sorted(schema.get("required", []))]


async def main():
    visit, seen = common.read_input(), {"input_requests": [], "logs": [], "progress": []}
    action = "accept"

    async def elicit(context, params):
        seen["input_requests"].append([params.message, schema_summary(params.requested_schema)])
        return types.ElicitResult(action=action, content={"hours": 3} if action == "accept" else None)

    async def log(params):
        # FastMCP wraps a text in an object.
        seen["logs"].append(params.data["msg"] if isinstance(params.data, dict) else params.data)

    async def on_progress(done, total, message):
        seen["progress"].append([done, total])

    async def call(name, arguments):
        try:
            result = await client.call_tool(name, arguments, progress_callback=on_progress)
        except MCPError as error:
            return {"code": error.error.code}
        return {
            "failed": result.is_error,
            "structured": result.structured_content,
            "texts": [block.text for block in result.content],
        }

    async def read(uri):
        try:
            content = (await client.read_resource(uri)).contents[0]
        except MCPError as error:
            return {"code": error.error.code}
        return [content.mime_type, content.text]

    command = visit["command"]
    async with Client(
        StdioServerParameters(command=command[0], args=command[1:]),
        mode="legacy" if visit["revision"] != "2026-07-28" else "auto",
        elicitation_callback=elicit,
        logging_callback=log,
        log_level="info",
    ) as client:
        seen["server"] = [
            client.protocol_version, client.server_info.name, client.server_info.version, client.instructions
        ]  # fmt: skip
        seen["tools"] = {
            tool.name: [tool.description, schema_summary(tool.input_schema)]
            for tool in (await client.list_tools()).tools
        }
        seen["berth"] = await call("berth", {"ship": "mary", "draught": 5.0})
        seen["refused"] = await call("berth", {"ship": "mary", "draught": 9.5})
        seen["wrong"] = await call("berth", {"ship": "mary", "draught": "deep"})
        seen["lenient"] = await call("berth", {"ship": "mary", "draught": "5"})
        seen["unknown"] = await call("nothing", {})
        seen["survey"] = await call("survey", {})
        seen["reserve"] = await call("reserve", {"quay": "north"})
        action = "decline"
        seen["declined"] = await call("reserve", {"quay": "north"})
        seen["resources"] = [
            [str(resource.uri), resource.name, resource.description, resource.mime_type]
            for resource in (await client.list_resources()).resources
        ]
        templates = (await client.list_resource_templates()).resource_templates
        seen["templates"] = [template.uri_template for template in templates]
        mime_type, text = await read("harbour://quays")
        seen["quays"] = [mime_type, json.loads(text)]
        seen["quay"] = await read("harbour://quays/north")
        seen["no_quay"] = await read("harbour://quays/west")
        (prompt,) = (await client.list_prompts()).prompts
        required = [[argument.name, bool(argument.required)] for argument in prompt.arguments]
        seen["prompts"] = [prompt.name, prompt.description, required]
        filled = await client.get_prompt("briefing", {"ship": "mary"})
        seen["prompt"] = [[message.role, message.content.text] for message in filled.messages]
    common.report(seen)


asyncio.run(main())
