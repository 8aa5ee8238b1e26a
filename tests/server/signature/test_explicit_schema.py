"""Arguments with an explicit schema: how a function receives them, and what is refused."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from tests.server.driving import ask
from wharfinger.server.app import Server
from wharfinger.server.context import Context

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "list": {"type": "array"}, "map": {"type": "object"}, "free": True},
    "additionalProperties": False,
}


def whole(arguments: dict[str, Any]) -> str:
    return f"whole {sorted(arguments.items())}"


def mapping(given: Mapping[str, Any], ctx: Context) -> str:
    return f"whole {sorted(given.items())}"


def rest(a: Any = None, **others: Any) -> str:
    return f"rest {a!r} {sorted(others.items())}"


def named(a: float = 0, list: tuple[int, ...] = (), map: Any = None, free: Any = None) -> str:
    return f"named {a!r} {list!r} {map!r} {free!r}"


def call(function: Callable[..., Any], arguments: Any, **options: Any) -> str:
    server = Server("s")
    server.tools.add(function, name="it", input_schema=SCHEMA, **options)
    answer = asyncio.run(ask(server, "tools/call", {"name": "it", "arguments": arguments}))
    return str(answer["result"]["content"][0]["text"] if "result" in answer else answer["error"]["code"])


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (whole, "whole [('a', 1), ('free', 'x'), ('list', [2])]"),
        (mapping, "whole [('a', 1), ('free', 'x'), ('list', [2])]"),
        (rest, "rest 1 [('free', 'x'), ('list', [2])]"),
        (named, "named 1.0 (2,) None 'x'"),
    ],
)
def test_arguments_are_passed_as_a_mapping_by_name_or_converted(function: Callable[..., Any], expected: str) -> None:
    assert call(function, {"a": 1, "list": [2], "free": "x"}) == expected


@pytest.mark.parametrize("function", [whole, mapping, rest, named])
def test_arguments_outside_the_schema_are_refused(function: Callable[..., Any]) -> None:
    for wrong in ({"a": "x"}, {"list": "[1]"}, {"map": 5}, {"other": 1}):
        assert call(function, wrong).startswith("Invalid arguments:\n")
    for none in ([], "x", 5):
        assert call(function, none) == "-32602"


@pytest.mark.parametrize("function", [whole, mapping, rest, named])
def test_strings_are_read_as_arrays_and_objects_only_if_the_option_allows_it(
    function: Callable[..., Any],
) -> None:
    options = {"decode_json_strings": True}
    text = call(function, {"list": "[1, 2]", "map": '{"x": 1}', "free": "[3]"}, **options)
    assert "1, 2" in text and "'x': 1" in text and "'[3]'" in text
    for wrong in ({"list": "[1"}, {"list": "5"}, {"a": "1"}, {"map": "[1]"}, {"list": "[1]", "a": "x"}):
        assert call(function, wrong, **options).startswith("Invalid arguments:\n")
    assert call(function, {"free": "[3]"}, **options) == call(function, {"free": "[3]"})


def test_a_function_that_does_not_match_its_schema_is_refused_by_name() -> None:
    def lacks(a: int) -> str:
        return ""

    def wants(a: int, list: Any, map: Any, free: Any, more: int, most: int) -> str:
        return ""

    def wants_rest(more: int, **rest: Any) -> str:
        return ""

    def default(a: int, list: Any, map: Any, free: Any, more: int = 1) -> str:
        return ""

    for function, expected in (
        (lacks, r"lacks\(\) has no parameter for 'list' of the input_schema of tool 'it': add it"),
        (wants, r"wants\(\) takes 'more', which is not a property of the input_schema of tool 'it'\."),
        (wants_rest, r"wants_rest\(\) takes 'more', which is not a property"),
    ):
        with pytest.raises(TypeError, match=expected):
            Server("s").tools.add(function, name="it", input_schema=SCHEMA)
    Server("s").tools.add(default, name="it", input_schema=SCHEMA)
    one = {"type": "object", "properties": {"arguments": {"type": "object"}}}
    server = Server("s")
    server.tools.add(whole, name="it", input_schema=one)
    answer = asyncio.run(ask(server, "tools/call", {"name": "it", "arguments": {"arguments": {"x": 1}}}))
    assert answer["result"]["content"][0]["text"] == "whole [('x', 1)]"


def test_arguments_are_always_an_object() -> None:
    with pytest.raises(ValueError, match='must have "type": "object": arguments are always an object'):
        Server("s").tools.add(whole, name="it", input_schema={"type": "array"})


def test_numbers_that_cannot_be_read_are_reported_by_name_up_to_eight() -> None:
    async def run() -> str:
        from tests.server.driving import Wire

        server = Server("s")
        server.tools.add(whole, name="it", input_schema={"type": "object"})
        async with Wire(server) as wire:
            id = wire.put("tools/call", {"name": "it", "arguments": {"x": "PLACE"}}, 5)
            del id
            await wire.answer(5)
            import json

            line = json.dumps(
                {
                    "jsonrpc": "2.0",
                    "id": 6,
                    "method": "tools/call",
                    "params": {
                        "name": "it",
                        "arguments": {f"n{n}": "HUGE" for n in range(10)} | {"fine": 1},
                        "_meta": {
                            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                            "io.modelcontextprotocol/clientCapabilities": {},
                        },
                    },
                }
            )
            wire.stream.data_received(line.replace('"HUGE"', "1e400").encode() + b"\n")
            answer = await wire.answer(6)
            return str(answer["result"]["content"][0]["text"])

    lines = asyncio.run(run()).splitlines()
    assert lines[0] == "Invalid arguments:"
    assert [line.partition(":")[0] for line in lines[1:]] == [f"n{n}" for n in range(8)]
