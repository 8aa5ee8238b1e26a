"""A server of FastMCP 4.x whose tools send progress, logs and input requests, over stdio, HTTP or HTTP+SSE."""

import sys

import mcp_types as types
from fastmcp import Context, FastMCP
from interactive_tools import add_tools

transport, port = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 8000
server = FastMCP("fastmcp asker")
add_tools(server, Context, types, lambda ctx, text: ctx.warning(text))
if transport == "stdio":
    server.run("stdio", show_banner=False)
else:
    server.run(transport, host="127.0.0.1", port=port, show_banner=False)
