"""A server of the official Python SDK 1.x whose tools send progress, logs and input requests, over any transport."""

import sys

from interactive_tools import add_tools
from mcp import types
from mcp.server.fastmcp import Context, FastMCP

transport, port = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 8000
server = FastMCP("mcp1 asker", log_level="ERROR", host="127.0.0.1", port=port)
add_tools(server, Context, types, lambda ctx, text: ctx.log("warning", text))
server.run({"http": "streamable-http"}.get(transport, transport))
