"""The official SDK 1.x through its high-level API."""

import spec
from mcp.server.fastmcp import FastMCP
from mcp.server.fastmcp.resources import BinaryResource, TextResource

port, _ = spec.arguments()
mcp = FastMCP(spec.NAME, log_level="WARNING", host="127.0.0.1", port=port or 8000)
mcp.add_resource(TextResource(uri=spec.STATIC_URI, name="static", mime_type=spec.TEXT, text=spec.STATIC_TEXT))
mcp.add_resource(BinaryResource(uri=spec.BLOB_URI, name="blob", mime_type=spec.BINARY, data=spec.BLOB))
for uri, name in spec.ENTRIES:
    mcp.add_resource(TextResource(uri=uri, name=name, mime_type=spec.TEXT, text=name))


@mcp.resource(spec.BIG_BLOB_URI, mime_type=spec.BINARY)
async def big_blob() -> bytes:
    return spec.big_blob()


@mcp.resource(spec.ITEM_TEMPLATE, mime_type=spec.JSON)
async def item(id: str) -> str:
    return spec.item_text(id)


@mcp.tool()
async def add(a: int, b: int) -> int:
    return a + b


if __name__ == "__main__":
    mcp.run("stdio" if port is None else "streamable-http")
