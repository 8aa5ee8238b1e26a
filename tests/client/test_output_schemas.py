"""Validation of tool results against their output schemas, within a bounded time."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import Any

import pytest

from wharfinger import Client, Server
from wharfinger import types as t
from wharfinger.client.output_schemas import OutputSchemas
from wharfinger.errors import InvalidResponse

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
