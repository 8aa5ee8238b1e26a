"""Tools: registration, listing, calls, errors, and each kind of result."""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import functools
import math
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypedDict

import msgspec
import pydantic
import pytest
from msgspec import UNSET

from tests.server.driving import ALL, STATELESS, Wire, ask
from tests.server.signature.test_header_params import post
from wharfinger import Client, Image
from wharfinger import types as t
from wharfinger.errors import InvalidArgument, InvalidParams, RemoteResourceNotFound, ResourceNotFound, ToolError
from wharfinger.protocol.json_schema import CompiledSchema
from wharfinger.protocol.limits import Limits
from wharfinger.protocol.methods import METHODS
from wharfinger.protocol.request import Caller, Request
from wharfinger.protocol.revisions import REVISIONS
from wharfinger.server.app import Server
from wharfinger.server.context import Context
from wharfinger.source import Source


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
        tools = Server("test", page_size=10).tools
        name = tools.add(function, **options).name
        params = {"name": name} if arguments is UNSET else {"name": name, "arguments": arguments}
        return await tools.call(request("tools/call", params, revision))

    return asyncio.run(run())


def tool(function: Callable[..., Any], **options: Any) -> Any:
    return Server("test", page_size=10).tools.add(function, **options)


def json_value(result: t.CallToolResult) -> Any:
    """Return the JSON value that is sent for this result."""
    return msgspec.json.decode(msgspec.json.encode(result))


def result_in(function: Callable[..., Any], revision: str) -> Any:
    """Return the result of a call in this revision, without `resultType` and `_meta`."""
    server = Server("test")
    server.tools.add(function, name="it")
    result = asyncio.run(ask(server, "tools/call", {"name": "it"}, revision))["result"]
    return {name: value for name, value in result.items() if name not in ("resultType", "_meta")}


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
    assert json_value(call(berth, {"ship": "Mary"})) == text('{"ship":"Mary","quay":1}') | {
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
def test_values_returned_without_an_annotation_are_sent_by_their_type(value: Any, expected: dict[str, Any]) -> None:
    def f():  # type: ignore[no-untyped-def]
        return value

    assert json_value(call(f)) == expected
    older_result = result_in(f, "2025-11-25")
    assert older_result["content"] == expected["content"]
    data = expected.get("structuredContent", UNSET)
    wrapped_data = data if data is UNSET or isinstance(data, dict) else {"result": data}
    assert older_result.get("structuredContent", UNSET) == wrapped_data


def maybe() -> Berth | None:
    return Berth("Mary")


def nothing() -> Berth | None:
    return None


def number() -> int:
    return 3


def rows() -> list[Row]:
    return [{"n": 1}]


def call_tool_result() -> t.CallToolResult:
    return t.CallToolResult(content=[t.TextContent(text="[1]")], structured_content=[1])


WRAPPED_RESULTS: list[tuple[Callable[[], Any], Any]] = [
    (maybe, {"ship": "Mary", "quay": 1}), (nothing, None), (number, 3), (rows, [{"n": 1}]), (call_tool_result, [1]),
]  # fmt: skip
"""Functions, and the structured content that older revisions need in an object."""


@pytest.mark.parametrize(("function", "value"), WRAPPED_RESULTS)
@pytest.mark.parametrize("revision", ["2025-06-18", "2025-11-25"])
def test_a_value_is_wrapped_in_an_object_for_older_revisions(
    function: Callable[[], Any], value: Any, revision: str
) -> None:
    """Older revisions allow only objects as structured content; both official SDKs wrap other values like this."""
    assert result_in(function, revision)["structuredContent"] == {"result": value}
    assert result_in(function, "2026-07-28")["structuredContent"] == value


# A function that returns a CallToolResult has no output schema.
@pytest.mark.parametrize(("function", "value"), WRAPPED_RESULTS[:-1])
@pytest.mark.parametrize("revision", ["2025-06-18", "2025-11-25"])
def test_the_listed_output_schema_matches_the_wrapped_value(
    function: Callable[[], Any], value: Any, revision: str
) -> None:
    server = Server("s")
    server.tools.add(function)
    (listed,) = asyncio.run(ask(server, "tools/list", {}, revision))["result"]["tools"]
    schema = listed["outputSchema"]
    assert (schema["type"], schema["required"], schema["x-fastmcp-wrap-result"]) == ("object", ["result"], True)
    assert CompiledSchema(schema, "it").fits({"result": value})
    assert not CompiledSchema(schema, "it").fits({"result": "text"})
    (listed,) = asyncio.run(ask(server, "tools/list", {}))["result"]["tools"]
    assert CompiledSchema(listed["outputSchema"], "it").fits(value)


async def test_output_schemas_of_other_types_are_wrapped_for_older_revisions() -> None:
    server = Server("s")

    @server.tool(output_schema={"type": "array", "items": {"type": "integer"}})
    def quays():  # type: ignore[no-untyped-def]
        return [1, 2]

    @server.tool
    def depth() -> float:
        return 2.5

    for revision in ALL:
        tools = (await ask(server, "tools/list", revision=revision))["result"]["tools"]
        types = ("array", "number") if revision == STATELESS else ("object", "object")
        assert tuple(tool["outputSchema"]["type"] for tool in tools) == types
        result = (await ask(server, "tools/call", {"name": "quays"}, revision))["result"]
        assert result["structuredContent"] == ([1, 2] if revision == STATELESS else {"result": [1, 2]})
        assert result["content"] == [{"type": "text", "text": "[1,2]"}]


def test_references_of_an_explicit_schema_resolve_after_wrapping() -> None:
    tree = {
        "type": "array",
        "items": {"anyOf": [{"$ref": "#"}, {"$ref": "#/$defs/leaf"}, {"$ref": "#/items/anyOf/1"}]},
        "$defs": {"leaf": {"const": 1}},
    }
    schema = CompiledSchema(tool(lambda: [[1]], name="tree", output_schema=tree).definition.output_schema, "it")
    assert schema.fits({"result": [[1], 1]})
    assert not schema.fits({"result": [[2]]})


@pytest.mark.parametrize(("function", "value"), WRAPPED_RESULTS)
@pytest.mark.parametrize("revision", ALL)
def test_the_client_unwraps_the_value_in_every_revision(function: Callable[[], Any], value: Any, revision: str) -> None:
    server = Server("s")
    server.tools.add(function, name="it")

    async def run() -> None:
        async with Client(server, revision=revision) as client:
            assert (await client.call_tool("it")).data == value
            await client.list_tools()
            assert (await client.call_tool("it")).data == value

    asyncio.run(run())


def test_the_client_does_not_unwrap_an_object_with_a_result_member() -> None:
    server = Server("s")
    server.tools.add(lambda: {"result": 3}, name="it")

    async def run() -> None:
        async with Client(server, revision="2025-11-25") as client:
            assert (await client.call_tool("it")).data == {"result": 3}

    asyncio.run(run())


def test_none_is_structured_content_if_the_annotation_is_optional() -> None:
    def maybe() -> int | None:
        return None

    assert json_value(call(maybe)) == text("null") | {"structuredContent": None}


@pytest.mark.parametrize(
    "annotation", [str, None, bytes, t.TextContent, list[t.TextContent | t.ImageContent], Any, str | None]
)
def test_text_and_content_annotations_have_no_output_schema(annotation: Any) -> None:
    def f():  # type: ignore[no-untyped-def]
        return "x"

    f.__annotations__["return"] = annotation
    assert tool(f).full_definition.output_schema is UNSET


def test_a_result_that_does_not_match_its_annotation_raises_type_error() -> None:
    def f() -> Berth:
        return {"ship": 1}  # type: ignore[return-value]

    with pytest.raises(TypeError, match="return annotation"):
        call(f)


def test_invalid_arguments_are_reported_and_the_function_does_not_run() -> None:
    ran: list[int] = []

    def f(n: int) -> None:
        ran.append(n)

    assert json_value(call(f, {"n": "1", "m": 2})) == {
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
def test_tool_errors_are_results_with_is_error(error: Exception, message: str) -> None:
    def f() -> None:
        raise error

    assert json_value(call(f)) == text(message) | {"isError": True}


def test_other_exceptions_propagate_to_the_transport() -> None:
    def f() -> None:
        raise KeyError("secret")

    with pytest.raises(KeyError):
        call(f)


def test_an_unknown_tool_raises_invalid_params() -> None:
    tools = Server("test", page_size=10).tools
    with pytest.raises(InvalidParams, match=r"Unknown tool: a\?b") as caught:
        asyncio.run(tools.call(request("tools/call", {"name": "a\nb"})))
    assert caught.value.code == -32602


def test_a_lambda_needs_a_name() -> None:
    with pytest.raises(ValueError, match="pass name="):
        tool(lambda: None)
    assert tool(lambda: None, name="nothing").name == "nothing"


def test_sync_functions_run_in_a_thread_unless_inline() -> None:
    def in_main_thread() -> bool:
        return threading.current_thread() is threading.main_thread()

    assert json_value(call(in_main_thread))["structuredContent"] is False
    assert json_value(call(in_main_thread, inline=True))["structuredContent"] is True


def test_an_async_function_gets_its_context() -> None:
    async def f(n: int, ctx: Context) -> str:
        return f"{n} {ctx.request_id}"

    assert json_value(call(f, {"n": 2})) == text("2 1")


def test_a_fallback_tool_is_replaced_by_a_regular_one() -> None:
    def search(q: str) -> str:
        return "mine"

    for order in ((False, True), (True, False)):
        tools = Server("test", page_size=10).tools
        for fallback in order:
            tools.add(search, fallback=fallback, title=str(fallback))
        assert [feature.definition.title for feature in tools.features] == ["False"]
        with pytest.raises(ValueError, match="'search'"):
            tools.add(search)
        tools.remove("search")
        with pytest.raises(KeyError):
            tools.remove("search")


class Harbour:
    def __init__(self) -> None:
        self.name = "north"

    def where(self, ship: str) -> str:
        """Say where."""
        return f"{ship} in {self.name}"

    async def __call__(self, ship: str) -> str:
        return f"called for {ship}"


def test_bound_methods_partials_and_callable_objects_are_tools() -> None:
    assert json_value(call(Harbour().where, {"ship": "Mary"})) == text("Mary in north")
    assert json_value(call(Harbour(), {"ship": "Mary"}, name="it")) == text("called for Mary")

    def double(a: int, b: int) -> str:
        return str(a * b)

    assert json_value(call(functools.partial(double, b=2), {"a": 4})) == text("8")
    assert tool(functools.partial(double, b=2)).name == "double"


def test_an_unbound_method_is_refused_with_advice() -> None:
    with pytest.raises(TypeError, match="add the bound method"):
        tool(Harbour.where)


@pytest.mark.parametrize(
    "options",
    [
        {"annotations": t.ToolAnnotations(read_only_hint=True, destructive_hint=False)},
        {"annotations": {"readOnlyHint": True, "destructiveHint": False}},
        {"read_only": True, "destructive": False},
        {"annotations": {"readOnlyHint": True}, "destructive": False},
    ],
)
def test_hints_may_be_given_as_annotations_or_options(options: dict[str, Any]) -> None:
    def f() -> None: ...

    assert json_value(tool(f, **options).definition.annotations) == {"readOnlyHint": True, "destructiveHint": False}


def test_a_hint_of_another_type_is_refused() -> None:
    with pytest.raises(ValueError, match="readOnlyHint"):
        tool(Harbour().where, annotations={"readOnlyHint": "yes"})


def test_a_disabled_tool_is_unknown_until_it_is_enabled_and_keeps_its_position() -> None:
    server = Server("s")
    changes: list[str] = []
    server.watching.list_changed = changes.append  # type: ignore[method-assign,assignment]
    for name in "abc":
        server.tools.add(lambda: "x", name=name)
    changes.clear()

    async def names() -> list[str]:
        return [tool["name"] for tool in (await ask(server, "tools/list"))["result"]["tools"]]

    async def run() -> None:
        assert await names() == ["a", "b", "c"]
        server.tools.disable("b")
        server.tools.disable("b")
        assert await names() == ["a", "c"]
        assert (await ask(server, "tools/call", {"name": "b"}))["error"]["code"] == -32602
        with pytest.raises(ValueError, match="registered already"):
            server.tools.add(lambda: "x", name="b")
        server.tools.enable("b")
        server.tools.enable("b")
        assert await names() == ["a", "b", "c"]
        assert (await ask(server, "tools/call", {"name": "b"}))["result"]["content"]
        server.tools.disable("a")
        server.tools.remove("a")
        assert await names() == ["b", "c"]
        with pytest.raises(KeyError):
            server.tools.enable("a")

    asyncio.run(run())
    assert changes == ["tools"] * 4


def count(names: list[str]) -> int:
    return len(names)


async def count_async(names: list[str]) -> int:
    return len(names)


@pytest.mark.parametrize("function", [count, count_async])
def test_json_strings_are_decoded_if_the_tool_or_the_server_enables_it(function: Callable[[list[str]], Any]) -> None:
    for server, option, decoded in (
        (Server("s"), None, False),
        (Server("s"), True, True),
        (Server("s", decode_json_strings=True), None, True),
        (Server("s", decode_json_strings=True), False, False),
    ):
        server.tools.add(function, name="count", decode_json_strings=option)
        answer = asyncio.run(ask(server, "tools/call", {"name": "count", "arguments": {"names": '["a"]'}}))
        assert answer["result"].get("isError", False) is not decoded


def cyclic_list() -> Any:
    value: list[Any] = []
    value.append(value)
    return value


def recurse_forever(n: int = 0) -> int:
    return recurse_forever(n + 1)


def exit_process() -> None:
    sys.exit(3)


class Tide(msgspec.Struct):
    height: float


def nan_height() -> Tide:
    return Tide(math.nan)


class TideModel(pydantic.BaseModel):
    height: float


def nan_height_of_a_model() -> TideModel:
    return TideModel(height=math.nan)


def deeply_nested() -> Any:
    value: Any = None
    for _ in range(100_000):
        value = [value]
    return value


FAILING_TOOLS: list[Callable[[], Any]] = [
    cyclic_list,
    recurse_forever,
    exit_process,
    deeply_nested,
    nan_height,
    nan_height_of_a_model,
    lambda: [TideModel(height=math.nan)],
    lambda: "\ud800",
    lambda: {"a": "\ud800"},
    lambda: math.nan,
    lambda: {"a": [math.inf, None]},
    lambda: object(),
    lambda: {"a": object()},
]


@pytest.mark.parametrize("inline", [True, False])
@pytest.mark.parametrize("function", FAILING_TOOLS)
@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
def test_a_failing_tool_does_not_affect_other_calls(function: Callable[[], Any], inline: bool, revision: str) -> None:
    server = Server("s")
    server.tools.add(function, name="broken", inline=inline)
    server.tools.add(lambda: "fine", name="fine", inline=True)

    async def run() -> None:
        async with Wire(server, revision) as client:
            ids = [client.send_request("tools/call", {"name": name}) for name in ("fine", "broken", "fine")]
            first, failed, last = [await client.answer(id) for id in ids]
            assert failed["result"]["isError"] is True
            assert "reference" in failed["result"]["content"][0]["text"]
            for answer in (first, last, await client.ask("tools/call", {"name": "fine"})):
                assert answer["result"]["content"] == [{"type": "text", "text": "fine"}]

    asyncio.run(asyncio.wait_for(run(), 20))


@pytest.mark.parametrize("function", FAILING_TOOLS)
def test_a_failing_tool_does_not_affect_the_next_call_over_http(function: Callable[[], Any]) -> None:
    server = Server("s")
    server.tools.add(function, name="broken")
    server.tools.add(lambda: "fine", name="fine")

    async def run() -> None:
        status, answer = await post(server, "broken", {}, {})
        assert (status, answer["result"]["isError"]) == (200, True)
        assert (await post(server, "fine", {}, {}))[1]["result"]["content"]

    asyncio.run(asyncio.wait_for(run(), 20))


def test_pydantic_models_are_structured_results_with_a_schema() -> None:
    class Inner(pydantic.BaseModel):
        n: int

    class Model(pydantic.BaseModel):
        ship_name: str = pydantic.Field(alias="shipName")
        inner: list[Inner] = []

    def one() -> Model:
        return Model(shipName="Mary", inner=[Inner(n=1)])

    def many() -> list[Model]:
        return [one()]

    def valid_dict() -> Model:
        return {"shipName": "Mary"}  # type: ignore[return-value]

    def invalid_dict() -> Model:
        return {"shipName": 3}  # type: ignore[return-value]

    for function in (one, valid_dict, invalid_dict):
        function.__annotations__["return"] = Model
    many.__annotations__["return"] = list[Model]
    schema = tool(one).definition.output_schema
    assert (schema["type"], list(schema["properties"])) == ("object", ["shipName", "inner"])
    value = {"shipName": "Mary", "inner": [{"n": 1}]}
    assert json_value(call(one))["structuredContent"] == value
    assert json_value(call(many))["structuredContent"] == [value]
    assert json_value(call(valid_dict))["structuredContent"] == {"shipName": "Mary"}
    with pytest.raises(TypeError, match=r"not what its return annotation \(Model\) says"):
        call(invalid_dict)


def test_other_values_in_a_list_of_blocks_are_sent_as_json_text() -> None:
    def f() -> Any:
        return [t.TextContent(text="x"), {"a": 1}, 3, b"bytes"]

    assert [block["text"] for block in json_value(call(f))["content"]] == ["x", '{"a":1}', "3", "bytes"]


def test_the_structured_content_of_a_call_tool_result_is_wrapped_for_older_revisions() -> None:
    def f() -> t.CallToolResult:
        return t.CallToolResult(content=[], structured_content=[1])

    assert json_value(call(f)) == {"content": [], "structuredContent": [1]}
    assert result_in(f, "2025-11-25") == {"content": [], "structuredContent": {"result": [1]}}


def test_a_function_without_a_context_returns_the_same_results() -> None:
    """The server calls a function without a context by a shorter code path."""

    async def add(a: int, b: int) -> int:
        if a < 0:
            raise ToolError("below zero")
        return a + b

    async def pair(a: int) -> Berth:
        return Berth(str(a))

    assert json_value(call(add, {"a": 1, "b": 2})) == text("3") | {"structuredContent": 3}
    assert json_value(call(add, {"a": 1.0, "b": 2})) == text("3") | {"structuredContent": 3}
    assert json_value(call(add, {"a": -1, "b": 2})) == text("below zero") | {"isError": True}
    assert json_value(call(add, {"a": "1"})) == text(
        "Invalid arguments:\na: expected an integer, got a string\nb: missing"
    ) | {"isError": True}
    assert json_value(call(add))["isError"]
    assert json_value(call(pair, {"a": 1}, revision="2025-06-18"))["structuredContent"] == {"ship": "1", "quay": 1}


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
def test_the_timeout_option_ends_a_call(revision: str) -> None:
    server = Server("s")

    @server.tool(timeout=0.01)
    async def waits(a: int) -> int:
        await asyncio.Event().wait()
        return a

    answer = asyncio.run(ask(server, "tools/call", {"name": "waits", "arguments": {"a": 1}}, revision))
    assert answer["result"]["isError"] is True
    assert answer["result"]["content"][0]["text"] == "The handler took longer than 0.01 s."


@pytest.mark.parametrize("revision", ALL)
def test_the_handler_time_limit_is_reported_as_a_tool_result(revision: str) -> None:
    server = Server("s", limits=Limits(handler_time=0.01))

    @server.tool
    async def waits() -> None:
        await asyncio.Event().wait()

    async def run() -> None:
        async with Wire(server, revision) as client:
            result = (await client.ask("tools/call", {"name": "waits"}))["result"]
            assert result["isError"] is True
            assert "it took longer than 0.01 s" in result["content"][0]["text"]

    asyncio.run(asyncio.wait_for(run(), 20))


@pytest.mark.parametrize("revision", ["2024-11-05", "2025-11-25", "2026-07-28"])
def test_tools_are_listed_in_the_order_of_registration(revision: str) -> None:
    server = Server("s", page_size=2)
    for name in ("c", "a", "b", "d", "e"):
        server.tools.add(lambda: 1, name=name)

    async def run() -> list[str]:
        names: list[str] = []
        params: dict[str, Any] = {}
        while True:
            result = (await ask(server, "tools/list", params, revision))["result"]
            assert result == (await ask(server, "tools/list", params, revision))["result"]
            names += [tool["name"] for tool in result["tools"]]
            if "nextCursor" not in result:
                return names
            params = {"cursor": result["nextCursor"]}

    assert asyncio.run(run()) == ["c", "a", "b", "d", "e"]


def test_static_methods_can_be_decorated_in_the_class_body() -> None:
    server = Server("s")

    class Quay:
        @server.tool
        @staticmethod
        async def depth(gate: int) -> str:
            return f"{gate} m"

        @server.prompt
        @staticmethod
        def brief(ship: str) -> str:
            return ship

    async def run() -> None:
        answer = await ask(server, "tools/call", {"name": "depth", "arguments": {"gate": 4}})
        assert answer["result"] == answer["result"] | text("4 m")
        assert (await ask(server, "prompts/get", {"name": "brief", "arguments": {"ship": "M"}}))["result"]

    asyncio.run(run())
    assert asyncio.run(Quay.depth(1)) == "1 m"
    with pytest.raises(TypeError, match="has no class yet"):

        class Lock:
            @server.tool
            @classmethod
            def state(cls, gate: int) -> str:
                return str(gate)


def test_an_unknown_option_is_reported_with_the_nearest_option() -> None:
    server = Server("test")
    with pytest.raises(TypeError, match=r"A tool has no option 'descripton': did you mean 'description'\?"):
        server.tools.add(len, descripton="x")
    with pytest.raises(TypeError, match="A tool has no option 'qqq': there are annotations, app, decode_json_strings"):
        server.tools.add(len, qqq={"a"})
    with pytest.raises(TypeError, match="A prompt has no option 'inlined': did you mean 'inline'"):
        server.prompts.add(len, inlined=True)
    decorate: Any = server.tool
    with pytest.raises(TypeError, match=r"by name=: @server.tool\(name='high_water'\)"):
        decorate("high_water")


def test_generators_are_refused() -> None:
    def sync_generator() -> Any:
        yield 1

    async def async_generator() -> Any:
        yield 1

    for function in (sync_generator, async_generator, functools.partial(async_generator)):
        with pytest.raises(TypeError, match=r"is a generator, but a call has one result: return a list"):
            Server("test").tools.add(function)
        with pytest.raises(TypeError, match=r"is a generator, but a call has one result: return a list"):
            Server("test").prompts.add(function)


@pytest.mark.parametrize("context", [False, True])
def test_tool_errors_in_an_exception_group_are_reported(context: bool) -> None:
    server = Server("s")

    async def fail(text: str) -> None:
        raise ToolError(text)

    async def both() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(fail("The quay is taken."))
            group.create_task(fail("The tide is out."))

    async def with_context(ctx: Context) -> None:
        await both()

    server.tools.add(with_context if context else both, name="both")
    result = asyncio.run(ask(server, "tools/call", {"name": "both"}))["result"]
    assert (result["isError"], result["content"][0]["text"]) == (True, "The quay is taken.\nThe tide is out.")


def test_an_unknown_annotation_is_refused() -> None:
    with pytest.raises(TypeError, match="'readOnly' is not an annotation of a tool: there are title, readOnlyHint"):
        Server("s").tools.add(lambda: "x", name="x", annotations={"readOnly": True})


# -- kinds of results

PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\xff"
WAV = b"RIFF\xff\0\0\0WAVE"


def result_of(value: Any, annotation: Any = None, **options: Any) -> Any:
    """Return the result of a tool that returns this value, with this return annotation if it is not None."""

    def it():  # type: ignore[no-untyped-def]
        return value

    if annotation is not None:
        it.__annotations__["return"] = annotation
    return json_value(call(it, **options))


@pytest.mark.parametrize(
    ("value", "content"),
    [
        (PNG, [{"type": "image", "data": base64.b64encode(PNG).decode(), "mimeType": "image/png"}]),
        (bytearray(WAV), [{"type": "audio", "data": base64.b64encode(WAV).decode(), "mimeType": "audio/wav"}]),
        (bytearray(b"text"), [{"type": "text", "text": "text"}]),
        (
            [PNG, {"a": 1}, t.TextContent(text="x")],
            [
                {"type": "image", "data": base64.b64encode(PNG).decode(), "mimeType": "image/png"},
                {"type": "text", "text": '{"a":1}'},
                {"type": "text", "text": "x"},
            ],
        ),
        ((t.TextContent(text="x"), 5), [{"type": "text", "text": "x"}, {"type": "text", "text": "5"}]),
    ],
)
def test_bytes_become_blocks_of_their_detected_type_and_lists_with_a_block_become_blocks(
    value: Any, content: Any
) -> None:
    assert result_of(value) == {"content": content}


def test_bytes_of_an_unknown_type_are_refused() -> None:
    with pytest.raises(TypeError, match="bytes that are not an image, audio or text"):
        result_of(b"\xff\x00\xfe")


@pytest.mark.parametrize("in_result", [True, False])
def test_images_are_encoded_in_lists_and_in_call_tool_results(in_result: bool, tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(PNG)
    for image in (Image(data=PNG), Image(tmp_path / "a.png")):
        content: Any = [t.TextContent(text="x"), image]
        blocks = result_of(t.CallToolResult(content=content) if in_result else content)["content"]
        assert [block["type"] for block in blocks] == ["text", "image"]
        assert blocks[1]["data"] == base64.b64encode(PNG).decode()


@dataclasses.dataclass
class Depth:
    metres: float
    note: str | None = None


NON_FINITE_VALUES: list[Any] = [
    math.nan, math.inf, -math.inf, [math.nan], (1, math.inf), {math.nan}, frozenset([math.inf]), {"a": {"b": math.nan}},
    Depth(math.nan), [Depth(1.0), Depth(-math.inf)], Tide(math.inf), {"a": Tide(math.nan)}, {"a": [None, math.nan]},
]  # fmt: skip


@pytest.mark.parametrize("value", NON_FINITE_VALUES)
def test_nan_and_infinity_are_refused_at_any_depth(value: Any) -> None:
    with pytest.raises(TypeError, match=r"(nan|inf), which JSON does not have"):
        result_of(value)


@pytest.mark.parametrize("value", [[None], {"a": None}, [None, 1.5], Depth(1.0), [Depth(2.5)], {"a": [None, -1e308]}])
def test_null_and_finite_numbers_are_sent_unchanged(value: Any) -> None:
    assert result_of(value)["structuredContent"] == msgspec.to_builtins(value)


@pytest.mark.parametrize(
    ("annotation", "allowed"),
    [
        (None, True),
        (Any, True),
        (object, True),
        (type(None), True),
        (t.CallToolResult, True),
        (str | None, True),
        (list[t.TextContent] | None, True),
        (str, False),
        (str | bytes, False),
        (bytes, False),
        (list[Any], False),
        (list, False),
        (list[t.TextContent], False),
        (t.TextContent, False),
    ],
)
def test_none_is_refused_unless_the_annotation_allows_it(annotation: Any, allowed: bool) -> None:
    if allowed:
        assert result_of(None, annotation) == {"content": []}
    else:
        with pytest.raises(TypeError, match="is a return missing"):
            result_of(None, annotation)


def test_a_function_annotated_with_str_returns_text_or_content() -> None:
    for value in (5, ["x"], {"a": 1}, Berth("Mary")):
        with pytest.raises(TypeError, match=f"{type(value).__name__}, and its return annotation is str"):
            result_of(value, str)
    assert result_of("x", str) == result_of(b"x", str) == result_of(t.TextContent(text="x"), str) == text("x")
    assert result_of([t.TextContent(text="x")], str) == text("x")


def test_the_error_for_a_mismatched_result_names_the_annotation_and_the_reason() -> None:
    with pytest.raises(TypeError, match=r"what its return annotation \(int\) says: Expected `int`, got `str`$"):
        result_of("x", int)
    with pytest.raises(TypeError, match=r"\(Berth\) says: .* \(is a return missing\?\)$"):
        result_of(None, Berth)
    with pytest.raises(TypeError, match=r"\(list\[int\]\) says"):
        result_of(["x"], list[int])
    assert result_of([1], list[int])["structuredContent"] == [1]
    assert result_of(True, bool)["structuredContent"] is True


OUTPUT_SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


def test_results_are_validated_against_an_explicit_output_schema() -> None:
    assert result_of({"n": 1}, output_schema=OUTPUT_SCHEMA)["structuredContent"] == {"n": 1}
    valid = t.CallToolResult(content=[], structured_content={"n": 1})
    assert result_of(valid, output_schema=OUTPUT_SCHEMA) == {"content": [], "structuredContent": {"n": 1}}
    raw = t.CallToolResult(content=[], structured_content=msgspec.Raw(b'{"n":1}'))
    assert result_of(raw, output_schema=OUTPUT_SCHEMA)["structuredContent"] == {"n": 1}
    failed = t.CallToolResult(content=[], is_error=True)
    assert result_of(failed, output_schema=OUTPUT_SCHEMA) == {"content": [], "isError": True}
    for value in (
        {"n": "x"},
        t.CallToolResult(content=[], structured_content={"n": "x"}),
        t.CallToolResult(content=[], structured_content=msgspec.Raw(b'{"n":"x"}')),
        t.CallToolResult(content=[], structured_content={}, is_error=False),
    ):
        with pytest.raises(TypeError, match="it does not match its output_schema: "):
            result_of(value, output_schema=OUTPUT_SCHEMA)
    for missing in (t.CallToolResult(content=[]), t.CallToolResult(content=[], is_error=False)):
        with pytest.raises(TypeError, match="without structured_content, which its output_schema promises"):
            result_of(missing, output_schema=OUTPUT_SCHEMA)
        assert result_of(missing)["content"] == []


async def test_an_explicit_output_schema_is_listed_and_a_result_that_does_not_match_it_is_an_error() -> None:
    server = Server("s")
    answers: list[Any] = [{"quay": 3}, {"quay": "three"}, "text"]

    @server.tool(output_schema={"type": "object", "properties": {"quay": {"type": "integer"}}, "required": ["quay"]})
    def berth():  # type: ignore[no-untyped-def]
        return answers.pop(0)

    (tool,) = (await ask(server, "tools/list"))["result"]["tools"]
    assert tool["outputSchema"]["required"] == ["quay"]
    result = (await ask(server, "tools/call", {"name": "berth"}))["result"]
    assert result["structuredContent"] == {"quay": 3}
    assert result["content"] == [{"type": "text", "text": '{"quay":3}'}]
    for _ in range(2):
        assert (await ask(server, "tools/call", {"name": "berth"}))["result"]["isError"] is True


def test_a_call_tool_result_with_invalid_content_is_refused() -> None:
    with pytest.raises(TypeError, match="whose content is not a list of blocks"):
        result_of(t.CallToolResult(content="x"))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="a CallToolResult with str in its content"):
        result_of(t.CallToolResult(content=[t.TextContent(text="x"), "x"]))  # type: ignore[list-item]
    with pytest.raises(TypeError, match="nan, which JSON does not have"):
        result_of(t.CallToolResult(content=[], structured_content={"a": math.nan}))
    assert result_of(t.CallToolResult(content=(t.TextContent(text="x"),))) == text("x")  # type: ignore[arg-type]


class Node(msgspec.Struct):
    value: int
    next: "Node | None" = None  # noqa: UP037  # a forward reference


class Fleet(msgspec.Struct):
    ships: list[Berth]


def test_output_schemas_contain_only_referenced_definitions() -> None:
    def fleet() -> Fleet:
        return Fleet([Berth("Mary")])

    def node() -> Node:
        return Node(1, Node(2))

    def berth() -> Berth:
        return Berth("Mary")

    schema: Any = tool(fleet).full_definition.output_schema
    assert list(schema["$defs"]) == ["Berth"]
    assert schema["properties"]["ships"] == {"type": "array", "items": {"$ref": "#/$defs/Berth"}}
    schema = tool(node).full_definition.output_schema
    assert list(schema["$defs"]) == ["Node"]
    assert schema["properties"]["value"] == {"type": "integer"}
    assert "$defs" not in tool(berth).full_definition.output_schema
    assert json_value(call(node))["structuredContent"] == {"value": 1, "next": {"value": 2, "next": None}}


class Crew(msgspec.Struct):
    name: str


@pytest.mark.parametrize("annotation", [Berth | Crew, Callable[[], int]])
def test_an_annotation_that_cannot_be_checked_has_no_output_schema(annotation: Any) -> None:
    def f():  # type: ignore[no-untyped-def]
        return {"a": 1}

    f.__annotations__["return"] = annotation
    assert tool(f).full_definition.output_schema is UNSET


@pytest.mark.parametrize(
    ("annotation", "has_schema"),
    [
        (list, False), (tuple, False), (list[Any], False), (tuple[Any, ...], False), (list[Image], False),
        (list[str | t.TextContent], False), (tuple[str, Image], False), (Image, False), (Image | str, False),
        (list[str], True), (list[str | int], True), (tuple[str, int], True), (Berth | None, True), (str | int, True),
        (dict[str, Any], True), (Berth, True), (dict, True),
    ],
)  # fmt: skip
def test_only_annotations_of_data_have_an_output_schema(annotation: Any, has_schema: bool) -> None:
    def f():  # type: ignore[no-untyped-def]
        return "x"

    f.__annotations__["return"] = annotation
    assert (tool(f).full_definition.output_schema is not UNSET) is has_schema


def test_wrapping_a_schema_rewrites_references_but_not_literal_values() -> None:
    def listed_schema(schema: dict[str, Any]) -> Any:
        return tool(lambda: 1, name="it", output_schema=schema).definition.output_schema

    branches = [{"const": {"$ref": "#"}}, {"enum": [{"$ref": "#/x"}]}]
    items = {"anyOf": [{"$ref": "#/items/anyOf/1"}, *branches, {"$ref": "#"}]}
    inner = {"type": "array", "items": items, "default": [{"$ref": "#"}]}
    schema = listed_schema(inner | {"$defs": {"a": {"$ref": "#/items/anyOf/1"}, "b": {"$ref": "#/$defs/a"}}})
    assert schema["properties"]["result"] == {
        "type": "array",
        "items": {
            "anyOf": [
                {"$ref": "#/properties/result/items/anyOf/1"},
                *branches,
                {"$ref": "#/properties/result"},
            ]
        },
        "default": [{"$ref": "#"}],
    }
    assert schema["$defs"] == {"a": {"$ref": "#/properties/result/items/anyOf/1"}, "b": {"$ref": "#/$defs/a"}}
    schema_with_id = {"$id": "https://a.example/b", "type": "integer", "$defs": {"a": {"type": "integer"}}}
    schema = listed_schema(schema_with_id)
    assert schema["properties"]["result"] == schema_with_id
    assert set(schema) == {"type", "properties", "required", "x-fastmcp-wrap-result"}
    object_schema = {"type": "object", "properties": {"n": {"$ref": "#/$defs/n"}}, "$defs": {"n": {"type": "integer"}}}
    assert listed_schema(object_schema) == object_schema


@pytest.mark.parametrize("revision", ["2025-06-18", "2025-11-25", "2026-07-28"])
def test_an_object_result_is_the_same_in_every_revision(revision: str) -> None:
    async def berth() -> Berth:
        return Berth("Mary")

    server = Server("s")
    server.tools.add(berth)
    (listed,) = asyncio.run(ask(server, "tools/list", {}, revision))["result"]["tools"]
    assert set(listed["outputSchema"]["properties"]) == {"ship", "quay"}
    assert result_in(berth, revision)["structuredContent"] == {"ship": "Mary", "quay": 1}


class Model(pydantic.BaseModel):
    full_name: str = pydantic.Field(alias="fullName")
    left: float | None = None


def test_results_of_async_functions_are_validated_and_encoded() -> None:
    async def model() -> Model:
        return Model(fullName="Mary")

    async def another_type() -> int:
        return "x"  # type: ignore[return-value]

    async def no_value() -> str:
        return None  # type: ignore[return-value]

    async def pair() -> Pair:
        return Pair(1, 2)

    async def flag() -> bool:
        return True

    async def nan_height() -> Tide:
        return Tide(math.nan)

    assert result_in(model, "2026-07-28")["structuredContent"] == {"fullName": "Mary", "left": None}
    assert result_in(pair, "2026-07-28")["structuredContent"] == {"a": 1, "b": 2}
    assert result_in(flag, "2026-07-28") == text("true") | {"structuredContent": True}
    assert result_in(flag, "2025-11-25") == text("true") | {"structuredContent": {"result": True}}
    for function in (another_type, no_value, nan_height):
        assert "internal error" in result_in(function, "2026-07-28")["content"][0]["text"].lower()


def test_the_repr_of_a_coroutine_is_an_error_and_other_text_in_angle_brackets_is_sent() -> None:
    coroutine = asyncio.sleep(0)
    coroutine.close()
    formatted = repr(coroutine)

    async def angle_brackets() -> str:
        return "1 < 2, <b>"

    async def without_annotation():  # type: ignore[no-untyped-def]
        return formatted

    async def annotated() -> str:
        return formatted

    async def sentence() -> Sentence:
        return Sentence("1 < 2, null")

    assert result_in(angle_brackets, "2026-07-28") == text("1 < 2, <b>")
    assert result_in(sentence, "2026-07-28")["structuredContent"] == {"text": "1 < 2, null"}
    for function in (without_annotation, annotated, lambda: formatted):
        assert "Internal error (reference" in result_in(function, "2026-07-28")["content"][0]["text"]


class Sentence(msgspec.Struct):
    text: str


def test_a_result_of_an_async_function_is_checked_against_its_annotation() -> None:
    async def number():  # type: ignore[no-untyped-def]
        return 5

    async def blocks():  # type: ignore[no-untyped-def]
        return [t.TextContent(text="x"), "y"]

    async def nothing():  # type: ignore[no-untyped-def]
        return None

    async def boolean() -> int:
        return True

    assert result_in(number, "2026-07-28") == text("5") | {"structuredContent": 5}
    assert [block["text"] for block in result_in(blocks, "2026-07-28")["content"]] == ["x", "y"]
    assert result_in(nothing, "2026-07-28") == {"content": []}
    assert result_in(boolean, "2026-07-28")["isError"] is True


@pytest.mark.parametrize("group", [[ToolError("notices"), LookupError("secret")], [LookupError("secret")]])
def test_an_exception_group_with_an_unexpected_error_hides_all_messages(group: list[Exception]) -> None:
    async def raises() -> None:
        raise ExceptionGroup("several", group)

    result = result_in(raises, "2026-07-28")
    assert result["isError"] is True
    message = result["content"][0]["text"]
    assert message.startswith("Internal error (reference")
    assert "notices" not in message
    assert "secret" not in message


def test_tool_errors_in_nested_groups_are_reported_in_order() -> None:
    inner = ExceptionGroup("inner", [ToolError("two"), InvalidArgument("three")])

    async def raises() -> None:
        raise ExceptionGroup("outer", [ToolError("one"), inner, ResourceNotFound("a:b"), ToolError("five")])

    result = result_in(raises, "2026-07-28")
    assert result["isError"] is True
    assert result["content"][0]["text"] == "one\ntwo\nthree\nResource not found: a:b\nfive"


def test_an_error_of_another_server_is_not_passed_to_the_client() -> None:
    async def raises() -> None:
        raise RemoteResourceNotFound(-32602, "secret of another")

    async def run() -> Any:
        server = Server("s")
        server.tools.add(raises)
        async with Wire(server) as client:
            return await client.ask("tools/call", {"name": "raises"})

    answer = asyncio.run(run())
    assert "secret of another" not in str(answer)
    assert "reference" in str(answer)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, None),
        ({"annotations": t.ToolAnnotations(title="T")}, {"title": "T"}),
        ({"annotations": {"title": "T"}}, {"title": "T"}),
        ({"annotations": {"title": "T"}, "read_only": False}, {"title": "T", "readOnlyHint": False}),
        ({"destructive": True}, {"destructiveHint": True}),
        ({"idempotent": True}, {"idempotentHint": True}),
        ({"open_world": False}, {"openWorldHint": False}),
        ({"read_only": True, "annotations": {"readOnlyHint": False}}, {"readOnlyHint": True}),
    ],
)
def test_annotations_contain_only_the_hints_that_were_given(options: dict[str, Any], expected: Any) -> None:
    annotations = tool(lambda: "x", name="x", **options).definition.annotations
    assert (None if annotations is UNSET else json_value(annotations)) == expected


def test_task_ttl_is_refused_without_the_task_option() -> None:
    with pytest.raises(TypeError, match="task_ttl"):
        Server("s").tools.add(lambda: "x", name="x", task_ttl=5)
    Server("s").tools.add(lambda: "x", name="x", task=True, task_ttl=5)


@pytest.mark.parametrize("name", ["x", "x" * 128, "a.b-c/d_e", "0"])
def test_a_name_of_up_to_128_characters_is_accepted(name: str) -> None:
    assert tool(lambda: "x", name=name).name == name


@pytest.mark.parametrize("name", ["", "x" * 129, "a b", "é", "ü", "a\n", "x:y"])
def test_an_overlong_or_invalid_name_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="cannot be the name of a tool"):
        tool(lambda: "x", name=name)


def test_header_params_are_those_of_the_registered_tool() -> None:
    schema = {"type": "object", "properties": {"city": {"type": "string", "x-mcp-header": "City"}}}
    plain = {"type": "object", "properties": {"city": {"type": "string"}}}
    server = Server("s")
    server.tools.add(lambda city: city, name="a", input_schema=schema)
    assert list(server.tools.header_params) == ["a"]
    server.tools.remove("a")
    assert server.tools.header_params == {}
    server.tools.add(lambda city: city, name="a", input_schema=schema, fallback=True)
    assert list(server.tools.header_params) == ["a"]
    server.tools.add(lambda city: city, name="a", input_schema=plain)
    assert server.tools.header_params == {}
    server.tools.add(lambda city: city, name="a", input_schema=schema, fallback=True)
    assert server.tools.header_params == {}


@pytest.mark.parametrize("arguments", [[], "x", 5, None])
def test_arguments_that_are_not_an_object_are_invalid_params(arguments: Any) -> None:
    server = Server("s")
    for function in (lambda: "x", plain_async):
        server.tools.add(function, name=f"tool-{id(function)}")
        answer = asyncio.run(ask(server, "tools/call", {"name": f"tool-{id(function)}", "arguments": arguments}))
        assert answer["error"]["code"] == -32602


async def plain_async(n: int = 1) -> str:
    return str(n)


class Chart(msgspec.Struct):
    path: Path


async def test_a_struct_with_a_field_that_msgspec_does_not_encode_is_a_structured_result() -> None:
    """A bug: the tool had an output schema, and each call was an internal error."""
    server = Server("s")

    @server.tool
    def chart() -> Chart:
        return Chart(Path("a.png"))

    result = (await ask(server, "tools/call", {"name": "chart"}))["result"]
    assert result["structuredContent"] == {"path": "a.png"}


class LearningSource(Source):
    """A source that adds a tool when it has started, like that of an API whose document must be fetched first."""

    name = "tides"

    def __init__(self, server: Server) -> None:
        self.server = server
        self.released = asyncio.Event()
        server.include(self)
        server.serve("tools")

    def matches(self, uri: str) -> bool:
        return False

    async def start(self) -> None:
        await self.released.wait()
        self.server.tools.add(lambda: "high", name="tide")


@pytest.mark.parametrize("mounted", [False, True])
@pytest.mark.parametrize("method", ["tools/list", "tools/call"])
async def test_a_source_that_is_starting_can_add_a_tool_before_the_first_request_is_answered(
    method: str, mounted: bool
) -> None:
    server = part = Server("sea")
    if mounted:
        server = Server("parent")
        server.include(part)
    source = LearningSource(part)
    await server.start()
    answering = asyncio.ensure_future(ask(server, method, {"name": "tide"} if method == "tools/call" else {}))
    await asyncio.sleep(0)
    source.released.set()
    result = (await answering)["result"]
    if method == "tools/list":
        assert [tool["name"] for tool in result["tools"]] == ["tide"]
    else:
        assert result["content"] == [{"type": "text", "text": "high"}]
    await server.close()


async def test_tools_wait_for_a_starting_source_at_most_for_its_patience() -> None:
    server = Server("sea")
    LearningSource(server).patience = 0.1
    server.tools.add(lambda: "here", name="known")
    await server.start()
    async with asyncio.timeout(40):
        assert [tool["name"] for tool in (await ask(server, "tools/list"))["result"]["tools"]] == ["known"]
        assert (await ask(server, "tools/call", {"name": "tide"}))["error"]["message"] == "Unknown tool: tide"
    await server.close()
