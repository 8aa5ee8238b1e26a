"""A server of the official Python SDK 1.x (handshake era) with the features of common.py."""

import common
from mcp.server.fastmcp import Context, FastMCP
from mcp.types import Completion
from pydantic import AnyUrl

transport, port = common.transport_and_port()
server = FastMCP("mcp1", log_level="ERROR", host="127.0.0.1", port=port or 8000)
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
    return Completion(values=[name for name in common.ITEMS if name.startswith(argument.value)])


@server.tool()
async def add(a: int, b: int) -> int:
    return a + b


@server.tool()
async def fails() -> str:
    raise ValueError("on purpose")


@server.tool()
async def touch(uri: str) -> int:
    sessions = list(watchers.get(uri, ()))
    for session in sessions:
        await session.send_resource_updated(AnyUrl(uri))
    return len(sessions)


@server.tool()
async def grow(ctx: Context) -> str:
    @server.resource(common.GROWN_URI, name="grown", mime_type="text/plain")
    async def grown() -> str:
        return "grown"

    await ctx.session.send_resource_list_changed()
    return "grown"


@server.prompt()
async def greet(name: str) -> str:
    return f"Hello, {name}!"


@server._mcp_server.subscribe_resource()
async def on_subscribe(uri: AnyUrl) -> None:
    watchers.setdefault(str(uri), set()).add(server._mcp_server.request_context.session)


@server._mcp_server.unsubscribe_resource()
async def on_unsubscribe(uri: AnyUrl) -> None:
    watchers.pop(str(uri), None)


server.run("stdio" if transport == "stdio" else "streamable-http")
