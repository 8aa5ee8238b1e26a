"""A server of the official Python SDK 2.x whose tools send progress, logs and input requests, over any transport."""

import sys

import mcp_types as types
from interactive_tools import add_tools
from mcp.server.mcpserver import Context, MCPServer

transport, port = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 8000
server = MCPServer("mcp2 asker", log_level="ERROR")
add_tools(server, Context, types, lambda ctx, text: ctx.log("warning", text))
if transport == "stdio":
    server.run("stdio")
else:
    server.run({"http": "streamable-http"}.get(transport, transport), host="127.0.0.1", port=port)
