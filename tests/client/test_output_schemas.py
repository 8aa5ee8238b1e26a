"""Validation of tool results against their output schemas, within a bounded time."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import Any

import msgspec
import pytest

from wharfinger import Client, Server
from wharfinger import types as t
from wharfinger.client.output_schemas import OutputSchemas
from wharfinger.errors import ConnectionLost, InvalidResponse, RequestTimeout
from wharfinger.protocol.interfaces import LinkEvents
from wharfinger.protocol.limits import Limits
from wharfinger.transports.memory import MemoryLink

SHIP = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


def check(schema: dict[str, Any], value: Any) -> None:
    outputs = OutputSchemas()
    outputs.learn(t.Tool(name="x", input_schema={"type": "object"}, output_schema=schema))
    outputs.check("x", t.CallToolResult(content=[], structured_content=value))


def test_valid_results_are_accepted_and_invalid_ones_raise_their_fault() -> None:
    check(SHIP, {"name": "Mary", "more": 1})
    with pytest.raises(InvalidResponse, match="name: expected a string"):
        check(SHIP, {"name": 1})
    with pytest.raises(InvalidResponse, match="structuredContent: expected an object"):
        check(SHIP, [])
    with pytest.raises(InvalidResponse, match="no structured content"):
        check(SHIP, t.UNSET)


def test_a_result_without_structured_content_passes_if_the_schema_cannot_be_used() -> None:
    check({"$ref": "#/missing"}, t.UNSET)


def test_null_is_valid_structured_content() -> None:
    check({"type": "null"}, None)


def test_the_result_of_an_unlisted_tool_is_not_validated() -> None:
    OutputSchemas().check("x", t.CallToolResult(content=[], structured_content=1))


def doubled(levels: int) -> dict[str, Any]:
    """Return a schema of few definitions that are applied 2 ** `levels` times."""
    definitions: dict[str, Any] = {f"a{n}": {"allOf": [{"$ref": f"#/$defs/a{n + 1}"}] * 2} for n in range(levels)}
    return {"$ref": "#/$defs/a0", "$defs": {**definitions, f"a{levels}": {"type": "string"}}}


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (doubled(60), 1),
        (doubled(15), [1] * 10_000),
        ({"pattern": "^(a+)+$"}, "a" * 50_000 + "b"),
        ({"pattern": r"^(?=(a+)+$)x\1"}, "a" * 50_000 + "b"),
        ({"items": {"pattern": "(.*a){30}b"}}, ["ac" * 8000] * 100),
        ({"items": {"enum": [{"a": n} for n in range(5000)]}}, [{"a": -1}] * 10_000),
        ({"$ref": "https://example.invalid/schema.json"}, 1),
        ({"$ref": "file:///etc/passwd"}, 1),
        ({"$ref": "#"}, 1),
        ({"type": "no such type"}, 1),
        ({"uniqueItems": True}, [{"a": n} for n in range(50_000)]),
    ],
)
def test_validation_with_any_schema_takes_a_bounded_time(schema: dict[str, Any], value: Any) -> None:
    begun = time.process_time()
    with suppress(InvalidResponse):
        check(schema, value)
    assert time.process_time() - begun < 1.0


def test_the_result_of_a_listed_tool_is_validated_unless_validate_is_false() -> None:
    server = Server("liar")

    @server.tool
    async def ship() -> dict[str, str]:
        return {"name": "Mary"}

    async def test() -> None:
        for validate in (True, False):
            async with Client(server, validate=validate, middleware=[falsify]) as client:
                await client.list_tools()
                if validate:
                    with pytest.raises(InvalidResponse, match="output schema"):
                        await client.call_tool("ship")
                else:
                    assert (await client.call_tool("ship")).structured == {"name": 1}

    async def falsify(call: Any, next: Any) -> Any:
        result = await next(call)
        if call.method == "tools/call":
            result.structured_content = {"name": 1}
        return result

    asyncio.run(asyncio.wait_for(test(), 20))


@pytest.mark.parametrize("assigned", [True, False])
def test_a_result_is_checked_by_the_schema_of_the_tool_that_middleware_called_instead(assigned: bool) -> None:
    """A bug: it was checked by the schema of the tool that the caller named."""
    server = Server("shipyard")

    @server.tool
    async def ship() -> dict[str, str]:
        return {"name": "Mary"}

    @server.tool
    async def ship_length() -> dict[str, int]:
        return {"metres": 80}

    async def call_other(call: Any, next: Any) -> Any:
        if call.method == "tools/call":
            if assigned:
                call.params = msgspec.structs.replace(call.params, name="ship_length")
            else:
                call.params.name = "ship_length"
            result = await next(call)
            return t.CallToolResult(content=[], structured_content=answers.pop(0) or result.structured_content)
        return await next(call)

    answers: list[Any] = [None, {"metres": "80"}]

    async def test() -> None:
        async with Client(server, middleware=[call_other]) as client:
            await client.list_tools()
            assert (await client.call_tool("ship")).structured == {"metres": 80}
            with pytest.raises(InvalidResponse, match="'ship_length' does not match its output schema"):
                await client.call_tool("ship")

    asyncio.run(asyncio.wait_for(test(), 20))


class Target:
    """Connects to the server that was started last, which has one tool."""

    def __init__(self, returned: Any, kind: Any) -> None:
        self.start(returned, kind)

    def start(self, returned: Any, kind: Any) -> None:
        """Start a server whose tool `ship` returns this value, of this type."""
        self.server = Server("shipyard")

        async def ship() -> Any:
            return returned

        ship.__annotations__["return"] = kind
        self.server.tool(ship)

    async def open_link(self, limits: Limits, events: LinkEvents) -> MemoryLink:
        self.events, self.link = events, MemoryLink(self.server, limits, events)
        await self.link.open()
        return self.link

    def restart(self, returned: Any, kind: Any) -> None:
        """End the connection, and start another server."""
        self.start(returned, kind)
        self.events.on_lost(self.link, ConnectionLost("gone"))


@pytest.mark.parametrize("kind", [dict[str, int], Any])
def test_a_result_is_checked_by_the_schema_of_a_restarted_server(kind: Any) -> None:
    """A bug: it was checked by the schema of the server before, until the tools were listed again."""
    listings: list[str] = []

    async def count(call: Any, next: Any) -> Any:
        if call.method == "tools/list":
            listings.append(call.method)
        return await next(call)

    async def test() -> None:
        target = Target({"name": "Mary"}, dict[str, str])
        async with Client(target, middleware=[count]) as client:
            await client.list_tools()
            target.restart({"name": 1}, kind)
            for _ in range(2):
                assert (await client.call_tool("ship")).data == {"name": 1}
                assert len(listings) == 2

    asyncio.run(asyncio.wait_for(test(), 20))


def test_a_tool_that_is_no_longer_listed_has_no_schema() -> None:
    hidden: list[bool] = []

    async def hide(call: Any, next: Any) -> Any:
        result = await next(call)
        if call.method == "tools/list" and hidden:
            result.tools = []
        return result

    async def test() -> None:
        target = Target({"name": "Mary"}, dict[str, str])
        async with Client(target, middleware=[hide]) as client:
            await client.list_tools()
            target.restart({"name": 1}, dict[str, int])
            hidden.append(True)
            assert (await client.call_tool("ship")).data == {"name": 1}

    asyncio.run(asyncio.wait_for(test(), 20))


def test_a_mismatch_is_reported_if_the_tools_cannot_be_listed_again() -> None:
    refused: list[bool] = []

    async def refuse(call: Any, next: Any) -> Any:
        if call.method == "tools/list" and refused:
            raise RequestTimeout("no answer")
        return await next(call)

    async def test() -> None:
        target = Target({"name": "Mary"}, dict[str, str])
        async with Client(target, middleware=[refuse]) as client:
            await client.list_tools()
            target.restart({"name": 1}, dict[str, int])
            refused.append(True)
            with pytest.raises(InvalidResponse, match="name: expected a string"):
                await client.call_tool("ship")

    asyncio.run(asyncio.wait_for(test(), 20))
