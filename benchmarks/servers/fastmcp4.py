"""FastMCP 4.x, the package of that name."""

import asyncio

import spec
from fastmcp import FastMCP
from fastmcp.resources import BinaryResource, TextResource

mcp = FastMCP(spec.NAME, version=spec.VERSION)
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


@mcp.tool
async def add(a: int, b: int) -> int:
    return a + b


if __name__ == "__main__":
    port, _ = spec.arguments()
    if port is None:
        asyncio.run(mcp.run_stdio_async(show_banner=False, log_level="WARNING"))
    else:
        quiet = {"log_level": "warning", "access_log": False}
        asyncio.run(
            mcp.run_http_async(
                show_banner=False,
                transport="http",
                host="127.0.0.1",
                port=port,
                path="/mcp",
                log_level="WARNING",
                uvicorn_config=quiet,
            )
        )
