"""A server with a few features of each kind, for tests in memory and as a process."""

from __future__ import annotations

import asyncio

import msgspec

from wharfinger.errors import ToolError
from wharfinger.server import Server


class Berth(msgspec.Struct):
    quay: int
    name: str


def example_server() -> Server:
    """Return a server with a few features of each kind."""
    server = Server("harbour", version="3", instructions="Ships and tides.", page_size=3)

    @server.resource("notes://today", mime_type="text/plain")
    def today() -> str:
        return "high tide ✓"

    @server.resource("notes://picture", mime_type="image/png")
    async def picture() -> bytes:
        return bytes(range(256)) * 1000

    @server.resource("notes://data")
    async def data() -> dict[str, int]:
        return {"a": 1}

    for number in range(8):
        server.resources.add(f"notes://n{number}", today, name=f"n{number}")

    @server.resource("log://{vessel}/today")
    async def log(vessel: str) -> str:
        return f"log of {vessel}"

    @server.tool
    async def berth(quay: int, name: str = "Mary") -> Berth:
        return Berth(quay, name)

    @server.tool
    async def add(a: int, b: int) -> int:
        return a + b

    @server.tool
    async def sink() -> str:
        raise ToolError("it leaks")

    @server.tool
    async def change(uri: str) -> str:
        server.resource_updated(uri)
        return "changed"

    @server.tool
    async def grow() -> str:
        server.resources.add("notes://grown", today)
        return "grown"

    @server.tool
    async def wait() -> str:
        await asyncio.sleep(60)
        return "late"

    @server.prompt
    def greet(name: str) -> str:
        return f"Hello, {name}!"

    return server


if __name__ == "__main__":
    example_server().run()
