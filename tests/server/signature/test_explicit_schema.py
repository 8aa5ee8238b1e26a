"""Arguments of a tool with an explicit schema: how the function receives them, and errors."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from tests.conformance.fixture.schemas import CONTACT_SCHEMA
from tests.server.driving import ALL, Wire, ask, line
from wharfinger.server.app import Server
from wharfinger.server.context import Context

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "list": {"type": "array"}, "map": {"type": "object"}, "free": True},
    "additionalProperties": False,
}


def one_dict(arguments: dict[str, Any]) -> str:
    return f"whole {sorted(arguments.items())}"


def one_mapping(values: Mapping[str, Any], ctx: Context) -> str:
    return f"whole {sorted(values.items())}"


async def one_parameter(everything) -> str:  # type: ignore[no-untyped-def]
    return f"whole {sorted(everything.items())}"


def rest_as_keywords(a: Any = None, **others: Any) -> str:
    return f"rest {a!r} {sorted(others.items())}"


def named_parameters(a: float = 0, list: tuple[int, ...] = (), map: Any = None, free: Any = None) -> str:
    return f"named {a!r} {list!r} {map!r} {free!r}"


def call(function: Callable[..., Any], arguments: Any, **options: Any) -> str:
    server = Server("s")
    server.tools.add(function, name="it", input_schema=SCHEMA, **options)
    answer = asyncio.run(ask(server, "tools/call", {"name": "it", "arguments": arguments}))
    return str(answer["result"]["content"][0]["text"] if "result" in answer else answer["error"]["code"])


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (one_dict, "whole [('a', 1), ('free', 'x'), ('list', [2])]"),
        (one_mapping, "whole [('a', 1), ('free', 'x'), ('list', [2])]"),
        (one_parameter, "whole [('a', 1), ('free', 'x'), ('list', [2])]"),
        (rest_as_keywords, "rest 1 [('free', 'x'), ('list', [2])]"),
        (named_parameters, "named 1.0 (2,) None 'x'"),
    ],
)
def test_arguments_are_passed_as_a_mapping_or_by_name(function: Callable[..., Any], expected: str) -> None:
    assert call(function, {"a": 1, "list": [2], "free": "x"}) == expected


@pytest.mark.parametrize("revision", ALL)
async def test_an_explicit_input_schema_is_listed_unchanged(revision: str) -> None:
    server = Server("s")

    @server.tool(input_schema=CONTACT_SCHEMA)
    def contact(arguments: dict[str, Any]) -> str:
        return json.dumps(arguments)

    (tool,) = (await ask(server, "tools/list", revision=revision))["result"]["tools"]
    assert json.dumps(tool["inputSchema"]) == json.dumps(CONTACT_SCHEMA)
    arguments = {"name": "Mary", "contactMethod": "phone", "phone": "1"}
    result = (await ask(server, "tools/call", {"name": "contact", "arguments": arguments}, revision))["result"]
    assert json.loads(result["content"][0]["text"]) == arguments
    result = (await ask(server, "tools/call", {"name": "contact", "arguments": {"phone": 1}}, revision))["result"]
    assert result["isError"]
    assert "phone: expected a string" in result["content"][0]["text"].splitlines()


@pytest.mark.parametrize("function", [one_dict, one_mapping, one_parameter, rest_as_keywords, named_parameters])
def test_arguments_outside_the_schema_are_refused(function: Callable[..., Any]) -> None:
    for arguments in ({"a": "x"}, {"list": "[1]"}, {"map": 5}, {"other": 1}):
        assert call(function, arguments).startswith("Invalid arguments:\n")
    assert call(function, {"other": 1}) == "Invalid arguments:\nother: no such member"
    for value in ([], "x", 5):
        assert call(function, value) == "-32602"


@pytest.mark.parametrize("function", [one_dict, one_mapping, one_parameter, rest_as_keywords, named_parameters])
def test_json_strings_are_decoded_only_if_the_option_is_set(
    function: Callable[..., Any],
) -> None:
    options = {"decode_json_strings": True}
    text = call(function, {"list": "[1, 2]", "map": '{"x": 1}', "free": "[3]"}, **options)
    assert "1, 2" in text and "'x': 1" in text and "'[3]'" in text
    for arguments in ({"list": "[1"}, {"list": "5"}, {"a": "1"}, {"map": "[1]"}, {"list": "[1]", "a": "x"}):
        assert call(function, arguments, **options).startswith("Invalid arguments:\n")
    assert call(function, {"free": "[3]"}, **options) == call(function, {"free": "[3]"})


def test_the_error_for_a_function_that_does_not_match_its_schema_names_the_parameter() -> None:
    def missing_parameter(a: int) -> str:
        return ""

    def extra_parameter(a: int, list: Any, map: Any, free: Any, more: int, most: int) -> str:
        return ""

    def extra_parameter_and_rest(more: int, **others: Any) -> str:
        return ""

    def optional_extra_parameter(a: int, list: Any, map: Any, free: Any, more: int = 1) -> str:
        return ""

    for function, expected in (
        (
            missing_parameter,
            r"missing_parameter\(\) has no parameter for 'list' of the input_schema of tool 'it': add it",
        ),
        (
            extra_parameter,
            r"extra_parameter\(\) takes 'more', which is not a property of the input_schema of tool 'it'\.",
        ),
        (extra_parameter_and_rest, r"extra_parameter_and_rest\(\) takes 'more', which is not a property"),
    ):
        with pytest.raises(TypeError, match=expected):
            Server("s").tools.add(function, name="it", input_schema=SCHEMA)
    Server("s").tools.add(optional_extra_parameter, name="it", input_schema=SCHEMA)


def test_a_parameter_with_the_name_of_a_property_receives_its_value() -> None:
    schema = {"type": "object", "properties": {"arguments": {"type": "object"}}}
    server = Server("s")
    server.tools.add(one_dict, name="it", input_schema=schema)
    answer = asyncio.run(ask(server, "tools/call", {"name": "it", "arguments": {"arguments": {"x": 1}}}))
    assert answer["result"]["content"][0]["text"] == "whole [('x', 1)]"


@pytest.mark.parametrize("schema", [{"type": "array"}, {"properties": {}}])
def test_a_schema_whose_type_is_not_object_is_refused(schema: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match='must have "type": "object": arguments are always an object'):
        Server("s").tools.add(one_dict, name="it", input_schema=schema)


async def test_up_to_eight_arguments_with_numbers_out_of_range_are_named() -> None:
    server = Server("s")
    server.tools.add(one_dict, name="it", input_schema={"type": "object"})
    arguments = {f"n{n}": "HUGE" for n in range(10)} | {"fine": 1}
    async with Wire(server) as wire:
        message = line("tools/call", {"name": "it", "arguments": arguments}, 6)
        wire.stream.data_received(message.replace(b'"HUGE"', b"1e400"))
        answer = await wire.answer(6)
    lines = answer["result"]["content"][0]["text"].splitlines()
    assert lines[0] == "Invalid arguments:"
    assert [line.partition(":")[0] for line in lines[1:]] == [f"n{n}" for n in range(8)]
