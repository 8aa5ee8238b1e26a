"""The official SDK 2.x through its high-level API. If the last argument is `fast`, it sends JSON answers.

The environment of the fast variant also has uvloop and httptools, which uvicorn then uses.
"""

import sys

import spec
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.resources import BinaryResource, TextResource

mcp = MCPServer(spec.NAME, version=spec.VERSION, log_level="WARNING")
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
    port, _ = spec.arguments()
    if port is None:
        mcp.run("stdio")
    else:
        mcp.run("streamable-http", host="127.0.0.1", port=port, json_response=sys.argv[-1] == "fast")
