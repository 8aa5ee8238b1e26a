"""A server of FastMCP 4.x whose tools send progress, logs and input requests, over stdio, HTTP or HTTP+SSE."""

import sys

from fastmcp import Context, FastMCP
from mcp_types import SamplingMessage, TextContent
from pydantic import BaseModel

transport, port = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 8000
server = FastMCP("fastmcp asker")


class Quay(BaseModel):
    name: str
    depth: int = 4


@server.tool()
async def sound(ctx: Context) -> Quay:
    for step in (1, 2, 3):
        await ctx.report_progress(step, 3, f"cast {step}")
    await ctx.warning("shoal ahead")
    return Quay(name="north", depth=7)


@server.tool()
async def choose(ctx: Context) -> str:
    answer = await ctx.elicit("Which quay?", Quay)
    return f"{answer.data.name} {answer.data.depth}" if answer.action == "accept" else answer.action


@server.tool()
async def advise(ctx: Context) -> str:
    message = SamplingMessage(role="user", content=TextContent(type="text", text="Where to?"))
    result = await ctx.session.create_message([message], max_tokens=10, related_request_id=ctx.request_id)
    return result.content.text


@server.tool()
async def charts(ctx: Context) -> str:
    return " ".join(str(root.uri) for root in (await ctx.session.list_roots()).roots)


if transport == "stdio":
    server.run("stdio", show_banner=False)
else:
    server.run(transport, host="127.0.0.1", port=port, show_banner=False)
