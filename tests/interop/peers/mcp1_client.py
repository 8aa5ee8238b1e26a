"""A client of the official Python SDK 1.x (handshake era). It visits a server and prints the results."""

import asyncio
import base64
import hashlib
import json
import sys

import common
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import McpError
from mcp.types import ResourceTemplateReference
from pydantic import AnyUrl


async def main():
    visit, seen = common.read_input(), {}
    updated, grown = asyncio.Event(), asyncio.Event()

    async def on_message(message):
        root = getattr(message, "root", None)
        if getattr(root, "method", "") == "notifications/resources/updated":
            seen["updated"] = str(root.params.uri)
            updated.set()
        elif getattr(root, "method", "") == "notifications/resources/list_changed":
            grown.set()

    if visit.get("command"):
        transport = stdio_client(
            StdioServerParameters(command=visit["command"][0], args=visit["command"][1:]), sys.stderr
        )
    else:
        transport = streamable_http_client(visit["url"])
    async with transport as streams, ClientSession(streams[0], streams[1], message_handler=on_message) as session:
        initialize_result = await session.initialize()
        seen["revision"] = initialize_result.protocolVersion
        seen["server"] = initialize_result.serverInfo.name

        seen["uris"], seen["pages"], cursor = [], 0, None
        while True:
            page = await session.list_resources(cursor)
            seen["pages"] += 1
            seen["uris"] += [str(resource.uri) for resource in page.resources]
            cursor = page.nextCursor
            if not cursor:
                break
        seen["templates"] = [t.uriTemplate for t in (await session.list_resource_templates()).resourceTemplates]
        read = (await session.read_resource(AnyUrl(visit["text"]))).contents[0]
        seen["text"], seen["text_type"], seen["text_uri"] = read.text, read.mimeType, str(read.uri)
        read = (await session.read_resource(AnyUrl(visit["binary"]))).contents[0]
        seen["binary"] = hashlib.sha256(base64.b64decode(read.blob)).hexdigest()
        seen["binary_type"] = read.mimeType
        seen["template_text"] = (await session.read_resource(AnyUrl(visit["template_uri"]))).contents[0].text
        ref = ResourceTemplateReference(type="ref/resource", uri=visit["template"])
        seen["completion"] = (await session.complete(ref, visit["argument"])).completion.values

        seen["tools"] = [tool.name for tool in (await session.list_tools()).tools]
        if visit.get("search"):
            search_result = await session.call_tool("search", {"query": visit["search"]})
            seen["search"], seen["search_text"] = (
                search_result.structuredContent,
                json.loads(search_result.content[0].text),
            )
            fetch_result = await session.call_tool("fetch", {"id": seen["search"]["results"][0]["id"]})
            seen["fetch"], seen["fetch_text"] = fetch_result.structuredContent, json.loads(fetch_result.content[0].text)

        await session.subscribe_resource(AnyUrl(visit["watched"]))
        await common.apply_change(visit["change"], session.call_tool)
        await asyncio.wait_for(updated.wait(), 30)
        grown.clear()
        await common.apply_change(visit["grow"], session.call_tool)
        await asyncio.wait_for(grown.wait(), 30)
        seen["list_changed"] = True
        await session.unsubscribe_resource(AnyUrl(visit["watched"]))

        try:
            await session.read_resource(AnyUrl(visit["missing"]))
        except McpError as error:
            seen["not_found"] = {"code": error.error.code, "data": error.error.data}
        await session.send_ping()
    seen["ended"] = True
    common.report(seen)


asyncio.run(main())
