"""A client of the official Python SDK 2.x (both eras). It visits a server and prints the results."""

import asyncio
import base64
import hashlib
import json
import warnings

import common
from mcp import Client, StdioServerParameters
from mcp.shared.exceptions import MCPError
from mcp.shared.subscriptions import ResourcesListChanged, ResourceUpdated
from mcp_types import ResourceTemplateReference

warnings.simplefilter("ignore")  # `subscribe` of the handshake era is deprecated


async def watch_by_listening(client, visit, seen):
    async with client.listen(resources_list_changed=True, resource_subscriptions=[visit["watched"]]) as events:
        await common.apply_change(visit["change"], client.call_tool)
        async for event in events:
            if isinstance(event, ResourceUpdated):
                seen["updated"] = event.uri
                break
        await common.apply_change(visit["grow"], client.call_tool)
        async for event in events:
            if isinstance(event, ResourcesListChanged):
                seen["list_changed"] = True
                break


async def watch_by_subscribing(client, visit, seen, updated, grown):
    await client.subscribe_resource(visit["watched"])
    await common.apply_change(visit["change"], client.call_tool)
    await asyncio.wait_for(updated.wait(), 30)
    grown.clear()
    await common.apply_change(visit["grow"], client.call_tool)
    await asyncio.wait_for(grown.wait(), 30)
    seen["list_changed"] = True
    await client.unsubscribe_resource(visit["watched"])
    await client.send_ping()


async def main():
    visit, seen = common.read_input(), {}
    updated, grown = asyncio.Event(), asyncio.Event()

    async def on_message(message):
        method = getattr(message, "method", "")
        if method == "notifications/resources/updated":
            seen["updated"] = str(message.params.uri)
            updated.set()
        elif method == "notifications/resources/list_changed":
            grown.set()

    command = visit.get("command")
    server = StdioServerParameters(command=command[0], args=command[1:]) if command else visit["url"]
    stateless = visit["revision"] == "2026-07-28"
    async with Client(server, mode="auto" if stateless else "legacy", message_handler=on_message) as client:
        seen["revision"] = client.protocol_version
        seen["server"] = client.server_info and client.server_info.name

        seen["uris"], seen["pages"], cursor = [], 0, None
        while True:
            page = await client.list_resources(cursor=cursor)
            seen["pages"] += 1
            seen["uris"] += [str(resource.uri) for resource in page.resources]
            cursor = page.next_cursor
            if cursor is None:
                break
        seen["templates"] = [t.uri_template for t in (await client.list_resource_templates()).resource_templates]
        read = (await client.read_resource(visit["text"])).contents[0]
        seen["text"], seen["text_type"], seen["text_uri"] = read.text, read.mime_type, str(read.uri)
        read = (await client.read_resource(visit["binary"])).contents[0]
        seen["binary"] = hashlib.sha256(base64.b64decode(read.blob)).hexdigest()
        seen["binary_type"] = read.mime_type
        seen["template_text"] = (await client.read_resource(visit["template_uri"])).contents[0].text
        ref = ResourceTemplateReference(type="ref/resource", uri=visit["template"])
        seen["completion"] = (await client.complete(ref, visit["argument"])).completion.values

        seen["tools"] = [tool.name for tool in (await client.list_tools()).tools]
        if visit.get("search"):
            search_result = await client.call_tool("search", {"query": visit["search"]})
            seen["search"], seen["search_text"] = (
                search_result.structured_content,
                json.loads(search_result.content[0].text),
            )
            fetch_result = await client.call_tool("fetch", {"id": seen["search"]["results"][0]["id"]})
            seen["fetch"], seen["fetch_text"] = (
                fetch_result.structured_content,
                json.loads(fetch_result.content[0].text),
            )

        if stateless:
            await asyncio.wait_for(watch_by_listening(client, visit, seen), 50)
        else:
            await watch_by_subscribing(client, visit, seen, updated, grown)

        try:
            await client.read_resource(visit["missing"])
        except MCPError as error:
            seen["not_found"] = {"code": error.error.code, "data": error.error.data}
    seen["ended"] = True
    common.report(seen)


asyncio.run(main())
