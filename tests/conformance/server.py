"""The server that the official conformance suite is pointed at, written with the public interface only.

`python tests/conformance/server.py PORT` serves it at http://127.0.0.1:PORT/mcp. Names and texts are the suite's.
"""

from __future__ import annotations

import json
import struct
import sys
import zlib
from typing import Annotated

from wharfinger import Complete, Context, Server, ToolError
from wharfinger.errors import MissingClientCapability


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


PNG = (
    b"\x89PNG\r\n\x1a\n"
    + chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0))
    + chunk(b"IDAT", zlib.compress(b"\x00\xff\x00\x00"))
    + chunk(b"IEND", b"")
)

server = Server("conformance", version="1.0.0", instructions="Fixtures for the conformance suite.", ttl=60.0)


@server.resource("test://static-text", name="Static text", mime_type="text/plain")
def static_text() -> str:
    """A text that never changes."""
    return "This is the content of the static text resource."


@server.resource("test://static-binary", name="Static binary", mime_type="image/png")
def static_binary() -> bytes:
    """An image that never changes."""
    return PNG


@server.resource("test://template/{id}/data", name="Template", mime_type="application/json")
async def template_data(id: str) -> str:
    """Data made for the id in the URI."""
    return json.dumps({"id": id, "templateTest": True, "data": f"Data for ID: {id}"})


@server.resource("test://watched-resource", name="Watched", mime_type="text/plain")
def watched() -> str:
    """A text to subscribe to."""
    return "Watched resource content."


@server.tool
def test_simple_text() -> str:
    """Answer with a text."""
    return "This is a simple text response for testing."


@server.tool
def test_error_handling() -> str:
    """Fail, on purpose."""
    raise ToolError("This tool intentionally returns an error for testing")


@server.tool
async def test_missing_capability(ctx: Context) -> str:
    """Need sampling of the client."""
    if not ctx.caller.capabilities.sampling:
        raise MissingClientCapability({"sampling": {}})
    return "The client can sample."


@server.tool
async def test_streaming_elicitation() -> str:
    """Answer without asking anything on the stream."""
    return "Nothing was asked."


@server.tool
async def test_logging_tool(ctx: Context) -> str:
    """Log, for those who asked for logs."""
    ctx.info("This is a log message.")
    return "Logged."


@server.tool
def test_trigger_tool_change() -> str:
    """Say that the list of tools changed."""
    server.list_changed("tools")
    return "Told."


@server.tool
def test_trigger_prompt_change() -> str:
    """Say that the list of prompts changed."""
    server.list_changed("prompts")
    return "Told."


async def first_arguments(typed: str) -> list[str]:
    return [word for word in ("test1", "test2", "hello") if word.startswith(typed)]


@server.prompt
def test_simple_prompt() -> str:
    """A prompt without arguments."""
    return "This is a simple prompt for testing."


@server.prompt
def test_prompt_with_arguments(arg1: Annotated[str, Complete(first_arguments)], arg2: str) -> str:
    """A prompt with two arguments.

    Args:
        arg1: The first.
        arg2: The second.
    """
    return f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"


if __name__ == "__main__":
    server.run(http=f"127.0.0.1:{sys.argv[1]}")
