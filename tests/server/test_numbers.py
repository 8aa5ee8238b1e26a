"""Numbers at the limits of Python and JSON, in every part of a request."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from tests.server.driving import ERAS, Wire, line
from wharfinger.server.app import Server

TYPES: dict[str, Any] = {
    "int": int,
    "float": float,
    "decimal": Decimal,
    "text": str,
    "bool": bool,
    "optional": int | str | None,
    "number": int | float,
    "any": Any,
    "list": list[float],
    "object": dict[str, float],
    "unannotated": None,
}
TOO_LARGE = ["1e400", "-1e400", "1E+999999999", "9" * 5_000, "-" + "9" * 5_000, "9" * 4_301]
RARE = [
    "-0",
    "-0.0",
    "1e-400",
    "0e999999999",
    "1." + "3" * 5_000,
    "9" * 400,
    "18446744073709551616",
    "9007199254740993",
]


def echo(annotation: Any) -> Any:
    async def echo(v) -> str:  # type: ignore[no-untyped-def]
        return repr(v)[:20]

    if annotation is not None:
        echo.__annotations__["v"] = annotation
    return echo


def server_with_all_types() -> Server:
    server = Server("s")
    for name, annotation in TYPES.items():
        server.tools.add(echo(annotation), name=name)
        server.prompts.add(echo(annotation), name=name)
        server.resources.add(f"{name}:" + "{v}", echo(annotation))

    @server.tool(input_schema={"type": "object", "properties": {"v": {}, "w": {"type": "number"}}})
    async def given(v: Any = 0, w: Any = 0) -> str:
        return repr(v)[:20]

    @server.tool(input_schema={"type": "object"})
    async def whole(arguments: dict[str, Any]) -> str:
        return repr(arguments)[:20]

    return server


async def ask_raw(wire: Wire, id: int, method: str, params: Any, number: str) -> Any:
    """Send a request with this number in place of `"@"`. Our encoder would not write such numbers."""
    wire.stream.data_received(line(method, params, id, wire.revision).replace(b'"@"', number.encode()))
    return await wire.answer(id)


@pytest.mark.parametrize("revision", ERAS)
async def test_a_number_of_any_size_is_accepted_or_reported_as_an_invalid_argument(revision: str) -> None:
    """Regression: 1e400, which is infinite as a float, caused an internal error."""
    id = 1_000
    async with Wire(server_with_all_types(), revision) as wire:
        for name in (*TYPES, "given", "whole"):
            for shape in ("@", ["@"], {"a": "@"}):
                for number in (*TOO_LARGE, *RARE):
                    id += 1
                    answer = await ask_raw(wire, id, "tools/call", {"name": name, "arguments": {"v": shape}}, number)
                    result = answer["result"]
                    text = result["content"][0]["text"]
                    if result.get("isError"):
                        assert text.startswith("Invalid arguments:\nv"), (name, shape, number[:10], text)
                        assert number[:30] not in text or len(number) < 10
                    else:
                        assert name == "decimal" or number not in TOO_LARGE, (name, shape, number[:10], text)


@pytest.mark.parametrize("revision", ERAS)
async def test_a_number_out_of_range_is_reported_with_its_path(revision: str) -> None:
    async with Wire(server_with_all_types(), revision) as wire:
        for id, (name, shape, fault) in enumerate(
            [
                ("float", "@", "v: is out of range"),
                ("list", [1, "@"], "v[1]: is out of range"),
                ("any", {"a": ["@"]}, "v[...][0]: is out of range"),
                ("given", "@", "v: is out of range"),
                ("given", [[], ["@"]], "v[1][0]: is out of range"),
                ("whole", "@", "v: is out of range"),
            ]
        ):
            answer = await ask_raw(wire, id, "tools/call", {"name": name, "arguments": {"v": shape}}, "1e400")
            assert answer["result"]["content"][0]["text"] == f"Invalid arguments:\n{fault}"


@pytest.mark.parametrize("revision", ERAS)
async def test_a_number_as_text_is_accepted_or_invalid_in_prompts_and_templates(revision: str) -> None:
    """Regression: "inf" and "nan" were accepted as floats, which JSON does not have."""
    async with Wire(server_with_all_types(), revision) as wire:
        for name in TYPES:
            for number in (
                *TOO_LARGE,
                *RARE,
                "inf",
                "nan",
                "-Infinity",
                "[" * 50_000,
                "[1e400]",
                '{"a":1e400}',
                "0x10",
            ):
                got = await wire.ask("prompts/get", {"name": name, "arguments": {"v": number}})
                assert got.get("error", {"code": -32602})["code"] == -32602, (name, number[:10], got)
                if "error" in got:
                    assert got["error"]["message"].startswith("Invalid arguments: v")
                if len(number) < 4_000 and number[0] not in "[{":
                    read = await wire.ask("resources/read", {"uri": f"{name}:{number}"})
                    assert read.get("error", {"code": -32602})["code"] in (-32602, -32002), (name, number[:10], read)
                if name == "float" and number in ("inf", "nan", "-Infinity"):
                    assert "error" in got and "error" in read


REQUESTS: list[tuple[str, Any]] = [
    ("tools/call", {"name": "int", "arguments": {"v": 1}, "_meta": {"progressToken": "@"}}),
    ("tools/call", {"name": "int", "arguments": {"v": 1}, "_meta": {"x/y": ["@"]}}),
    ("tools/call", {"name": "int", "arguments": {"v": 1}, "task": {"ttl": "@"}}),
    ("tools/call", {"name": "int", "arguments": "@"}),
    ("tools/call", {"name": "int", "arguments": {"v": 1}, "inputResponses": {"x": "@"}, "requestState": "x"}),
    ("tools/list", {"cursor": "@"}),
    ("resources/read", {"uri": "@"}),
    ("prompts/get", {"name": "int", "arguments": {"v": "@"}}),
    ("completion/complete", {"ref": {"type": "ref/prompt", "name": "int"}, "argument": {"name": "v", "value": "@"}}),
    ("tasks/get", {"taskId": "@"}),
    ("logging/setLevel", {"level": "@"}),
    ("subscriptions/listen", {"notifications": {"toolsListChanged": "@"}}),
    ("nobody/knows", {"x": "@"}),
]


@pytest.mark.parametrize("revision", ERAS)
@pytest.mark.parametrize(("method", "params"), REQUESTS)
async def test_a_number_of_any_size_never_causes_an_internal_error(method: str, params: Any, revision: str) -> None:
    async with Wire(server_with_all_types(), revision) as wire:
        for id, number in enumerate((*TOO_LARGE, *RARE)):
            answer = await ask_raw(wire, id, method, params, number)
            assert answer.get("error", {}).get("code") != -32603, (number[:10], answer)
        assert "result" in await wire.ask("tools/list")
