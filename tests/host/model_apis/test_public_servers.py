"""Each API accepts the definitions of the tools of published servers.

record_servers.py recorded the tools. tests/interop/test_recorded_servers.py compares them with installed servers.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.host.model_apis.checkers import tool_faults
from tests.host.model_apis.record_servers import RECORDED, SERVERS, recorded_tools
from wharfinger import types as t
from wharfinger.host.model_apis import MODEL_APIS, OfferedTool, define_tools
from wharfinger.host.model_apis.narrowing import narrow

LISTS = {path.stem: recorded_tools(path) for path in sorted(RECORDED.glob("*.json"))}
FORMATS = tuple(MODEL_APIS)


def check_definitions(tools: list[t.Tool]) -> None:
    """Assert that each API accepts the definitions of the tools, also in strict mode."""
    offered = [OfferedTool(f"server_{tool.name}"[:64], tool) for tool in tools]
    for format, api in MODEL_APIS.items():
        for strict in (False, True) if api.strict_rules is not None else (False,):
            definitions = define_tools(offered, api, strict=strict)
            assert tool_faults(format, definitions) == []
            assert len(definitions.names) == len(tools)


def test_at_least_ten_servers_are_recorded() -> None:
    assert len(LISTS) >= 10 and LISTS.keys() <= SERVERS.keys()
    assert sum(map(len, LISTS.values())) > 100


@pytest.mark.parametrize("server", LISTS)
def test_the_definitions_of_a_published_server_are_accepted(server: str) -> None:
    check_definitions(LISTS[server])


def test_more_tools_than_openai_allows_are_reported() -> None:
    offered = [OfferedTool(f"{name}_{tool.name}", tool) for name, tools in LISTS.items() for tool in tools]
    for format in FORMATS:
        definitions = define_tools(offered, MODEL_APIS[format])
        assert tool_faults(format, definitions) == []
        left_out = [drop for drop in definitions.dropped if drop.reason.startswith("left out")]
        assert len(definitions.names) + len(left_out) == len(offered)
        assert bool(left_out) is format.startswith("openai")


def test_gemini_would_refuse_most_of_the_original_definitions() -> None:
    api = MODEL_APIS["gemini"]
    tools = [tool for tools in LISTS.values() for tool in tools]
    original_definitions = [api.gather([api.define("x", tool.name, dict(tool.input_schema), False)]) for tool in tools]
    assert sum(bool(tool_faults("gemini", definitions)) for definitions in original_definitions) > len(tools) / 2


@pytest.mark.parametrize(
    ("schema", "formats"),
    [
        ({"type": "object"}, FORMATS),
        ({"type": "string", "properties": {}}, FORMATS),
        ({"type": "object", "properties": {"x": {"type": "array"}}}, FORMATS),
        ({"type": "object", "properties": {"x": {"type": "any"}}}, FORMATS),
        ({"type": "object", "properties": {"x": {"$ref": "#/$defs/y"}}}, FORMATS),
        ({"type": "object", "properties": {"x": {}}, "anyOf": [{"required": ["x"]}]}, FORMATS),
        ({"type": "object", "properties": {"$x": {}}}, ("anthropic", "gemini")),
        ({"type": "object", "properties": {"x": {"const": 1}}}, ("gemini",)),
    ],
)
def test_the_checkers_refuse_invalid_schemas(schema: dict[str, Any], formats: tuple[str, ...]) -> None:
    for format, api in MODEL_APIS.items():
        definitions = [{"name": "x", "description": "x", "parametersJsonSchema": schema}]
        wrapped = api.gather(definitions if format == "gemini" else [api.define("x", "x", schema, False)])
        assert bool(tool_faults(format, wrapped)) is (format in formats)


@pytest.mark.parametrize("format", FORMATS)
def test_every_property_is_kept_and_dropped_keywords_have_a_reason(format: str) -> None:
    for tool in (tool for tools in LISTS.values() for tool in tools):
        narrowed = narrow(tool.input_schema, MODEL_APIS[format].rules)
        properties = tool.input_schema.get("properties", {})
        assert set(properties) <= {narrowed.renamed.get(name, name) for name in narrowed.schema["properties"]}
        for drop in narrowed.dropped:
            assert drop.reason and (drop.keyword or drop.path)
