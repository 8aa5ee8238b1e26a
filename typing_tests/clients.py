"""What a type checker knows of a client's answers: `returns=T` gives T, nothing public is Any. Checked, never run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_type

from wharfinger import Client, Server, types
from wharfinger.client import ReadResult
from wharfinger.errors import WharfingerError


@dataclass
class Berth:
    ship: str
    quay: int


async def uses() -> None:
    async with Client("https://example.test/mcp") as client:
        assert_type(client, Client)

        everything = await client.list_resources()
        assert_type(everything, list[types.Resource])
        async for resource in client.list_resources():
            assert_type(resource, types.Resource)
        async for template in client.list_resource_templates():
            assert_type(template, types.ResourceTemplate)
        async for tool in client.list_tools():
            assert_type(tool, types.Tool)

        page = await client.read_resource("log://mary/today")
        assert_type(page.text, str)
        assert_type(page.bytes, bytes)
        assert_type(page.contents, list[types.ResourceContents])

        result = await client.call_tool("berth", {"ship": "Mary"}, returns=Berth, timeout=10)
        assert_type(result.data, Berth)
        numbers = await client.call_tool("depths", returns=list[int])
        assert_type(numbers.data, list[int])

        assert_type(await client.read_many(["a:b"]), list[ReadResult])
        assert_type(await client.read_many(["a:b"], errors="return"), list[ReadResult | WharfingerError])
        assert_type(await client.template("log").read(vessel="mary"), ReadResult)

        async for change in client.watch("log://mary/today"):
            assert_type(change.uri, str)
            break

        await client.read_resource(1)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def targets(server: Server) -> None:
    async with Client(["python", "server.py"]) as by_command, Client(server) as in_process:
        assert_type(by_command, Client)
        assert_type(in_process, Client)
