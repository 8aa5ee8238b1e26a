"""Two servers with many kinds of tools and resources, and a host of them."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

from wharfinger import Image, Server, ToolError
from wharfinger import types as t
from wharfinger.host import Host

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
PDF = b"%PDF-1.4\n%%EOF\n"
LOG = "".join(f"{n:05} all well\n" for n in range(10_000))


def harbour() -> Server:
    """Return a server with many kinds of tools, which records the arguments of `berth` in its attribute `calls`."""
    server = Server("harbour")
    calls: list[dict[str, Any]] = []
    server.calls = calls  # type: ignore[attr-defined]
    running = 0

    @server.tool
    async def berth(ship: str, draught: float | None = None, hours: int = 1) -> dict[str, Any]:
        """Find a berth for a ship."""
        calls.append({"ship": ship, "draught": draught, "hours": hours})
        return {"ship": ship, "berth": "north 4"}

    @server.tool
    async def photograph(quay: str) -> list[Any]:
        """Take a picture of a quay."""
        return [f"The {quay} quay at noon", Image(data=PNG, format="png")]

    @server.tool
    async def chart() -> t.CallToolResult:
        """The chart of the harbour, as a link and as a document."""
        link = t.ResourceLink(
            uri="log://today", name="today", title="Log of today", mime_type="text/plain", size=160_000
        )
        document = t.ResourceContents(uri="chart://pdf", mime_type="application/pdf", blob=PDF)
        return t.CallToolResult(content=[link, t.EmbeddedResource(resource=document)])

    @server.tool
    async def refuse(ship: str) -> str:
        """Always fails."""
        raise ToolError(f"The {ship} is not expected.")

    @server.tool
    async def meet(number: int) -> int:
        """Returns when three calls of it run at the same time."""
        nonlocal running
        running += 1
        async with asyncio.timeout(40):
            while running < 3:
                await asyncio.sleep(0.001)
        return number

    @server.tool
    async def number(of: int) -> int:
        """A result that is not an object."""
        return of

    @server.tool(name="read.log")
    async def read_log(limit: int = 10_000) -> str:
        """The log of today."""
        return LOG[: limit * 15]

    return server


def library() -> Server:
    """Return a server with resources and no tools."""
    server = Server("library")

    @server.resource("log://today", title="Log of today", mime_type="text/plain")
    async def today() -> str:
        return LOG

    @server.resource("picture://quay", mime_type="image/png")
    async def picture() -> bytes:
        return PNG

    @server.resource("ship://{name}", name="ship", description="What is known of a ship")
    async def ship(name: str) -> str:
        return f"{name}: 40 m"

    return server


def make_host(**options: Any) -> Host:
    return Host({"harbour": harbour(), "library": library()}, **options)
