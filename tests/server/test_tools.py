"""Tools from a function to a result: what is listed, what is refused, and what each kind of result becomes."""

from __future__ import annotations

import asyncio
import dataclasses
import threading
from collections.abc import Callable
from typing import Any, TypedDict

import msgspec
import pytest
from msgspec import UNSET

from wharfinger import types as t
from wharfinger.errors import InvalidArgument, InvalidParams, ResourceNotFound, ToolError
from wharfinger.protocol.exchange import Caller, Request
from wharfinger.protocol.methods import METHODS
from wharfinger.protocol.revisions import REVISIONS
from wharfinger.server.app import Server
from wharfinger.server.context import Context
from wharfinger.server.tools import Tools


class Berth(msgspec.Struct):
    ship: str
    quay: int = 1


@dataclasses.dataclass
class Pair:
    a: int
    b: int


class Row(TypedDict):
    n: int


def request(method: str, params: dict[str, Any], revision: str = "2026-07-28") -> Request:
    row = METHODS[method]
    raw = msgspec.Raw(msgspec.json.encode(params))
    caller = Caller(REVISIONS[revision], None, t.ClientCapabilities())
    return Request(1, method, row, row.decode_params(raw), raw, caller, None)


def call(
    function: Callable[..., Any], arguments: Any = UNSET, revision: str = "2026-07-28", **options: Any
) -> t.CallToolResult:
    async def run() -> t.CallToolResult:
        tools = Tools(Server("test"), 10)
        name = tools.add(function, **options).name
        params = {"name": name} if arguments is UNSET else {"name": name, "arguments": arguments}
        return await tools.call(request("tools/call", params, revision))

    return asyncio.run(run())


def tool(function: Callable[..., Any], **options: Any) -> Any:
    return Tools(Server("test"), 10).add(function, **options)


def wire(result: t.CallToolResult) -> Any:
    return msgspec.json.decode(msgspec.json.encode(result))


def text(value: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": value}]}


def test_a_function_is_listed_with_its_docstring_and_schemas() -> None:
    def berth(ship: str) -> Berth:
        """Assign a berth.

        Args:
            ship: Its name.
        """
        return Berth(ship)

    definition = tool(
        berth, title="Berth", annotations=t.ToolAnnotations(read_only_hint=True), meta={"k": 1}
    ).definition
    assert msgspec.json.decode(msgspec.json.encode(definition)) == {
        "name": "berth",
        "title": "Berth",
        "description": "Assign a berth.",
        "inputSchema": {
            "type": "object",
            "properties": {"ship": {"type": "string", "description": "Its name."}},
            "required": ["ship"],
            "additionalProperties": False,
        },
        "outputSchema": {
            "title": "Berth",
            "type": "object",
            "properties": {"ship": {"type": "string"}, "quay": {"type": "integer", "default": 1}},
            "required": ["ship"],
        },
        "annotations": {"readOnlyHint": True},
        "_meta": {"k": 1},
    }
    assert wire(call(berth, {"ship": "Mary"})) == text('{"ship":"Mary","quay":1}') | {
        "structuredContent": {"ship": "Mary", "quay": 1}
    }


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("hello", text("hello")),
        ('{"a": 1}', text('{"a": 1}')),
        (None, {"content": []}),
        (b"bytes", text("bytes")),
        ({"a": 1}, text('{"a":1}') | {"structuredContent": {"a": 1}}),
        (Pair(1, 2), text('{"a":1,"b":2}') | {"structuredContent": {"a": 1, "b": 2}}),
        ([1, 2], text("[1,2]") | {"structuredContent": [1, 2]}),
        (3, text("3") | {"structuredContent": 3}),
        (False, text("false") | {"structuredContent": False}),
        (["a"], text('["a"]') | {"structuredContent": ["a"]}),
        (t.TextContent(text="x"), text("x")),
        ([t.TextContent(text="x"), "y"], {"content": [{"type": "text", "text": "x"}, {"type": "text", "text": "y"}]}),
        (t.CallToolResult(content=[], is_error=True), {"content": [], "isError": True}),
    ],
)
def test_what_a_function_without_annotation_returns(value: Any, expected: dict[str, Any]) -> None:
    def f():  # type: ignore[no-untyped-def]
        return value

    assert wire(call(f)) == expected
    older = wire(call(f, revision="2025-11-25"))
    assert older["content"] == expected["content"]
    assert isinstance(older.get("structuredContent", {}), dict)


def test_an_output_schema_that_is_no_object_is_for_revisions_that_take_it() -> None:
    def rows() -> list[Row]:
        return [{"n": 1}]

    listed = tool(rows)
    assert listed.definition.output_schema is UNSET
    assert listed.full_definition.output_schema["type"] == "array"
    assert wire(call(rows)) == text('[{"n":1}]') | {"structuredContent": [{"n": 1}]}
    assert wire(call(rows, revision="2025-06-18")) == text('[{"n":1}]')


def test_null_is_structured_content_where_it_was_promised() -> None:
    def maybe() -> int | None:
        return None

    assert wire(call(maybe)) == text("null") | {"structuredContent": None}


@pytest.mark.parametrize(
    "annotation", [str, None, bytes, t.TextContent, list[t.TextContent | t.ImageContent], Any, str | None]
)
def test_text_and_content_promise_no_structure(annotation: Any) -> None:
    def f():  # type: ignore[no-untyped-def]
        return "x"

    f.__annotations__["return"] = annotation
    assert tool(f).full_definition.output_schema is UNSET


def test_a_result_unlike_its_annotation_is_a_fault_of_the_server() -> None:
    def f() -> Berth:
        return {"ship": 1}  # type: ignore[return-value]

    with pytest.raises(TypeError, match="return annotation"):
        call(f)


def test_arguments_that_do_not_fit_are_told_and_the_function_is_not_run() -> None:
    ran: list[int] = []

    def f(n: int) -> None:
        ran.append(n)

    assert wire(call(f, {"n": "1", "m": 2})) == {
        "isError": True,
        "content": [
            {
                "type": "text",
                "text": "Invalid arguments:\n"
                "n: expected an integer, got a string\n"
                "m: no such argument; the arguments are n",
            }
        ],
    }
    assert ran == []


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ToolError("no berth"), "no berth"),
        (InvalidArgument("no such quay"), "no such quay"),
        (ResourceNotFound("a://b"), "Resource not found: a://b"),
    ],
)
def test_errors_that_authors_raise_are_results(error: Exception, message: str) -> None:
    def f() -> None:
        raise error

    assert wire(call(f)) == text(message) | {"isError": True}


def test_any_other_exception_is_left_to_the_transport() -> None:
    def f() -> None:
        raise KeyError("secret")

    with pytest.raises(KeyError):
        call(f)


def test_an_unknown_tool_is_an_invalid_param() -> None:
    tools = Tools(Server("test"), 10)
    with pytest.raises(InvalidParams, match=r"Unknown tool: a\?b") as caught:
        asyncio.run(tools.call(request("tools/call", {"name": "a\nb"})))
    assert caught.value.code == -32602


@pytest.mark.parametrize("name", ["", "a b", "a\n", "ü", "x" * 129])
def test_an_odd_name_is_refused_at_registration(name: str) -> None:
    with pytest.raises(ValueError, match="name"):
        tool(lambda: None, name=name)


def test_a_lambda_needs_a_name() -> None:
    with pytest.raises(ValueError, match="pass name="):
        tool(lambda: None)
    assert tool(lambda: None, name="nothing").name == "nothing"


def test_sync_functions_run_in_a_thread_unless_inline() -> None:
    def where() -> bool:
        return threading.current_thread() is threading.main_thread()

    assert wire(call(where))["structuredContent"] is False
    assert wire(call(where, inline=True))["structuredContent"] is True


def test_an_async_function_gets_its_context() -> None:
    async def f(n: int, ctx: Context) -> str:
        return f"{n} {ctx.request_id}"

    assert wire(call(f, {"n": 2})) == text("2 1")


def test_a_fallback_gives_way() -> None:
    def search(q: str) -> str:
        return "mine"

    for ours_first in (True, False):
        tools = Tools(Server("test"), 10)
        for fallback in (False, True) if ours_first else (True, False):
            tools.add(search, fallback=fallback, title=str(fallback))
        assert [feature.definition.title for feature in tools.features] == ["False"]
        with pytest.raises(ValueError, match="'search'"):
            tools.add(search)
        tools.remove("search")
        with pytest.raises(KeyError):
            tools.remove("search")
