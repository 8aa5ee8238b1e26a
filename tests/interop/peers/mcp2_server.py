"""A server of the official Python SDK 2.x (both eras) with the features of common.py."""

import common
import mcp_types as types
from mcp.server.mcpserver import Context, MCPServer

transport, port = common.transport_and_port()
server = MCPServer("mcp2", version="1", log_level="ERROR")
watchers = {}


@server.resource(common.TEXT_URI, name="text", mime_type="text/plain")
async def text() -> str:
    return common.TEXT


@server.resource(common.BLOB_URI, name="blob", mime_type="application/octet-stream")
async def blob() -> bytes:
    return common.BLOB


@server.resource(common.ITEM_TEMPLATE, name="item", mime_type="application/json")
async def item(id: str) -> str:
    return common.item(id)


@server.completion()
async def complete(ref, argument, context):
    return types.Completion(values=[name for name in common.ITEMS if name.startswith(argument.value)])


@server.tool()
async def add(a: int, b: int) -> int:
    return a + b


@server.tool()
async def fails() -> str:
    raise ValueError("on purpose")


@server.tool()
async def touch(uri: str, ctx: Context) -> int:
    await ctx.notify_resource_updated(uri)
    sessions = list(watchers.get(uri, ()))
    for session in sessions:
        await session.send_resource_updated(uri)
    return len(sessions)


@server.tool()
async def grow(ctx: Context) -> str:
    @server.resource(common.GROWN_URI, name="grown", mime_type="text/plain")
    async def grown() -> str:
        return "grown"

    await ctx.notify_resources_changed()
    for session in {session for sessions in watchers.values() for session in sessions}:
        await session.send_resource_list_changed()
    return "grown"


@server.prompt()
async def greet(name: str) -> str:
    return f"Hello, {name}!"


async def on_subscribe(ctx, params):
    watchers.setdefault(str(params.uri), set()).add(ctx.session)
    return types.EmptyResult()


async def on_unsubscribe(ctx, params):
    watchers.pop(str(params.uri), None)
    return types.EmptyResult()


low_level_server = server._lowlevel_server
low_level_server.add_request_handler("resources/subscribe", types.SubscribeRequestParams, on_subscribe)
low_level_server.add_request_handler("resources/unsubscribe", types.UnsubscribeRequestParams, on_unsubscribe)

if transport == "stdio":
    server.run("stdio")
else:
    server.run("streamable-http", host="127.0.0.1", port=port)
