"""Operations as tools: names, schemas, requests and results."""

from __future__ import annotations

import asyncio
import json
from typing import Annotated, Any

import pytest
from fastapi import FastAPI, Form
from msgspec import UNSET
from starlette.applications import Starlette
from starlette.responses import JSONResponse

from wharfinger import Client, Server
from wharfinger.errors import ToolError
from wharfinger.protocol.interfaces import HttpResponse
from wharfinger.sources import openapi
from wharfinger.sources.http_api.api_operations import read_document
from wharfinger.sources.http_api.api_tools import (
    MAX_TOOL_DESCRIPTION_CHARACTERS,
    MAX_TOOL_NAME_CHARACTERS,
    UnusableOperation,
    allowed_operations,
    result_of,
)
from wharfinger.sources.http_api.api_uris import ApiUris
from wharfinger.sources.resource_tool_set.answer_budget import DEFAULT_TOKENS

TEXT = {"schema": {"type": "string"}}
JSON_CONTENT = {"content": {"application/json": {"schema": {"type": "object"}}}}
LIST = {"schema": {"type": "array", "items": {"type": "string"}}}


def document(path: str, method: str, **operation: Any) -> dict[str, Any]:
    operation = {"operationId": "act", "responses": {"200": {"description": ""}}, **operation}
    return {"openapi": "3.1.0", "info": {"title": "Quay", "version": "1"}, "paths": {path: {method: operation}}}


def request_of_call(root: dict[str, Any], arguments: dict[str, Any], tool: str = "act") -> dict[str, Any]:
    """Call a tool of a server of the document. Return the request that the application received."""
    seen: dict[str, Any] = {}

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            raise NotImplementedError
        seen.update(method=scope["method"], path=scope["raw_path"].decode(), query=scope["query_string"].decode())
        seen["headers"] = {name.decode(): value.decode() for name, value in scope["headers"]}
        seen["body"] = (await receive())["body"].decode()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/json")]})
        await send({"type": "http.response.body", "body": b"[1, 2]"})

    async def check() -> None:
        server = Server("quay")
        server.include(openapi(root, app=app, label="quay", allow_operations=["act"]))
        async with Client(server) as client:
            assert (await client.call_tool(tool, arguments)).structured == {"result": [1, 2]}

    asyncio.run(check())
    return seen


def parameter(name: str, location: str, schema: dict[str, Any] = TEXT, **members: Any) -> dict[str, Any]:
    return {"name": name, "in": location, "required": location == "path", **schema, **members}


def test_a_parameter_with_the_name_of_a_credential_in_the_query_is_sent() -> None:
    """A bug: a parameter of the path had no argument, and calls failed with a KeyError."""
    root = document("/a/{key}", "post", parameters=[parameter("key", "path"), parameter("key", "query")])
    root["components"] = {"securitySchemes": {"main": {"type": "apiKey", "in": "query", "name": "key"}}}
    seen = request_of_call(root, {"key": "x"})
    assert (seen["path"], seen["query"]) == ("/a/x", "")


async def test_an_optional_parameter_with_an_unsupported_style_is_not_offered() -> None:
    parameters = [parameter("q", "query"), parameter("X-Trace", "header", style="matrix")]
    server = Server("quay")
    root = document("/a", "get", parameters=parameters)
    server.include(openapi(root, app=Starlette(), label="quay", allow_operations=["act"]))
    async with Client(server) as client:
        schema = next(tool.input_schema for tool in await client.list_tools() if tool.name == "act")
    assert list(schema["properties"]) == ["q"]


@pytest.mark.parametrize("length", [100, 596, 597, 700])
async def test_a_description_is_cut_at_its_limit_before_the_operation_however_long_its_path_is(length: int) -> None:
    root = document("/" + "a" * length, "get", summary="Weigh a ship", description="Long. " * 150)
    server = Server("quay")
    server.include(openapi(root, app=Starlette(), label="quay", allow_operations=["act"]))
    async with Client(server) as client:
        description = next(tool.description for tool in await client.list_tools() if tool.name == "act")
    assert isinstance(description, str) and len(description) <= MAX_TOOL_DESCRIPTION_CHARACTERS
    assert description.startswith("Weigh a ship")
    assert "\n\nGET /aaa" in description


@pytest.mark.parametrize(
    ("parameters", "arguments", "expected"),
    [
        ([], {"id": "a b+c"}, {"path": "/a/a%20b+c"}),
        ([parameter("q", "query", LIST)], {"q": ["x", "y&z"]}, {"query": "q=x&q=y%26z"}),
        ([parameter("q", "query", LIST, explode=False)], {"q": ["x", "y"]}, {"query": "q=x,y"}),
        (
            [parameter("q", "query", {"schema": {"type": "object"}}, style="deepObject")],
            {"q": {"a": "b"}},
            {"query": "q%5Ba%5D=b"},
        ),
        ([parameter("id", "query")], {"query_id": "2"}, {"path": "/a/1", "query": "id=2"}),
        ([parameter("X-Trace", "header")], {"X-Trace": "t"}, {"x-trace": "t"}),
        (
            [parameter("q", "query", JSON_CONTENT)],
            {"q": {"a": 1, "b": [2]}},
            {"query": "q=%7B%22a%22:1,%22b%22:%5B2%5D%7D"},
        ),
        (
            [parameter("X-Trace", "header", {"schema": {"type": "object"}}, explode=True)],
            {"X-Trace": {"a": 1, "b": 2}},
            {"x-trace": "a=1,b=2"},
        ),
        ([parameter("X-Trace", "header", JSON_CONTENT)], {"X-Trace": {"a": 1}}, {"x-trace": '{"a":1}'}),
        ([parameter("filter[a]", "query")], {"filter_a_": "t"}, {"query": "filter%5Ba%5D=t"}),
        ([parameter("n", "query", {"schema": {"type": "integer"}})], {"n": 7}, {"query": "n=7"}),
        ([parameter("on", "query", {"schema": {"type": "boolean"}})], {"on": True}, {"query": "on=true"}),
    ],
)
def test_arguments_are_sent_as_the_document_defines(
    parameters: list[Any], arguments: dict[str, Any], expected: dict[str, str]
) -> None:
    seen = request_of_call(
        document("/a/{id}", "post", parameters=[parameter("id", "path"), *parameters]), {"id": "1", **arguments}
    )
    assert seen["method"] == "POST"
    assert {name: seen.get(name, seen["headers"].get(name)) for name in expected} == expected


@pytest.mark.parametrize(
    ("content_type", "body", "expected"),
    [
        ("application/json", {"a": [1, None]}, '{"a":[1,null]}'),
        ("application/merge-patch+json", {"a": 1}, '{"a":1}'),
        (
            "application/x-www-form-urlencoded",
            {"a": "x y", "b": {"c": 1, "d": [2, 3]}},
            "a=x+y&b%5Bc%5D=1&b%5Bd%5D%5B%5D=2&b%5Bd%5D%5B%5D=3",
        ),
        ("text/plain", "hello", "hello"),
    ],
)
def test_bodies_are_sent_in_their_content_type(content_type: str, body: Any, expected: str) -> None:
    root = document("/a", "put", requestBody={"required": True, "content": {content_type: {"schema": {}}}})
    seen = request_of_call(root, {"body": body})
    assert seen["headers"]["content-type"] == content_type
    assert seen["headers"]["content-length"] == str(len(expected))
    assert seen["body"] == expected


@pytest.mark.parametrize(
    ("encoding", "expected"),
    [
        ({}, "a=1&a=2&b%5B%5D=3"),
        ({"a": {"style": "form", "explode": False}}, "a=1%2C2&b%5B%5D=3"),
        ({"a": {"style": "pipeDelimited", "explode": False}}, "a=1%7C2&b%5B%5D=3"),
        ({"a": {"style": "deepObject", "explode": True}}, "a%5B%5D=1&a%5B%5D=2&b%5B%5D=3"),
    ],
)
def test_a_list_in_a_form_is_sent_as_the_encoding_defines(encoding: Any, expected: str) -> None:
    """A bug: the name got brackets, under which FastAPI and others do not look for the values."""
    content = {"application/x-www-form-urlencoded": {"schema": {}, "encoding": encoding}}
    root = document("/a", "put", requestBody={"required": True, "content": content})
    assert request_of_call(root, {"body": {"a": [1, 2], "b[]": [3], "c": []}})["body"] == expected


async def test_an_application_gets_the_lists_of_a_form() -> None:
    app = FastAPI()

    @app.post("/ships", operation_id="add")
    def add(names: Annotated[list[str], Form()]) -> list[str]:
        return names

    server = Server("quay")
    server.include(openapi(app.openapi(), app=app, label="quay", allow_operations=["add"]))
    async with Client(server) as client:
        result = await client.call_tool("add", {"body": {"names": ["Astrid", "Bo & Co"]}})
    assert result.structured == {"result": ["Astrid", "Bo & Co"]}


async def test_a_server_declares_tools_before_their_document_is_loaded() -> None:
    """A bug: a client that connected in the first moment was told that the server has no tools, and never asked."""
    loading = asyncio.Event()
    root = document("/a", "post")

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            await loading.wait()
            await JSONResponse(root)(scope, receive, send)

    server = Server("quay")
    server.include(openapi("/openapi.json", app=app, label="quay", allow_operations=["act"]))
    async with Client(server) as client:
        assert client.capabilities.tools is not UNSET
        assert await client.list_tools() == []
        loading.set()
        while not await client.list_tools(bypass_cache=True):
            await asyncio.sleep(0)


@pytest.mark.parametrize(
    "value", ["..", ".", "a/b", "../admin", "a\\b", "a\0b", "", "a\nb", "%2e%2e", "a%2fb", "%252e."]
)
def test_an_argument_cannot_change_the_path(value: str) -> None:
    with pytest.raises(ToolError, match="cannot be a part of a path"):
        request_of_call(document("/a/{id}", "delete", parameters=[parameter("id", "path")]), {"id": value})


def test_a_header_with_a_line_break_is_refused() -> None:
    root = document("/a", "post", parameters=[parameter("X-Trace", "header")])
    with pytest.raises(ToolError, match="printable characters"):
        request_of_call(root, {"X-Trace": "a\r\nX-Evil: 1"})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [({}, "id: missing"), ({"more": 2}, "more: no such member"), ({"id": 5}, "id: expected")],
)
def test_arguments_are_checked_against_the_document(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ToolError, match=message):
        request_of_call(document("/a/{id}", "post", parameters=[parameter("id", "path")]), arguments)


def test_operations_are_allowed_by_id_or_by_method_and_path() -> None:
    root = document("/orders", "post", operationId="orders/place order")
    found = read_document(root, "it")
    for name in ("orders/place order", "POST /orders", "post /orders"):
        assert list(allowed_operations(found, [name])) == ["orders_place_order"]
    with pytest.raises(UnusableOperation, match="There is no operation 'place'"):
        allowed_operations(found, ["place"])


def test_an_operation_that_is_allowed_twice_is_one_tool() -> None:
    root = document("/orders", "post", operationId="place")
    assert list(allowed_operations(read_document(root, "it"), ["place", "POST /orders"])) == ["place"]


def test_tool_names_that_are_equal_after_the_cut_are_numbered_within_the_limit() -> None:
    ids = ["a" * MAX_TOOL_NAME_CHARACTERS + str(number) for number in range(101)]
    root = document("/0", "post")
    root["paths"] = {
        f"/{number}": {"post": {"operationId": id, "responses": {"200": {"description": ""}}}}
        for number, id in enumerate(ids)
    }
    names = list(allowed_operations(read_document(root, "it"), ids))
    assert (names[0], names[1], names[-1]) == ("a" * 64, "a" * 62 + "_2", "a" * 60 + "_101")
    assert max(map(len, names)) == MAX_TOOL_NAME_CHARACTERS


def test_arguments_whose_names_are_equal_after_the_cut_are_all_sent() -> None:
    name = "n" * MAX_TOOL_NAME_CHARACTERS
    parameters = [parameter(name + end, "query") for end in ("a", "b", "c")]
    arguments = {name: "1", "query_" + name[:-6]: "2", "query_" + name[:-8] + "_2": "3"}
    seen = request_of_call(document("/a", "get", parameters=parameters), arguments)
    assert seen["query"] == f"{name}a=1&{name}b=2&{name}c=3"


def test_a_path_parameter_may_have_the_name_of_a_credential_in_the_query(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: it was no argument of the tool, so that each call failed with a KeyError."""
    monkeypatch.setenv("QUAY_KEY", "secret")
    root = document("/a/{key}", "get", parameters=[parameter("key", "path")], security=[{"key": []}])
    root["components"] = {"securitySchemes": {"key": {"type": "apiKey", "in": "query", "name": "key"}}}
    assert request_of_call(root, {"key": "7"})["path"] == "/a/7"
    uris = ApiUris("quay", frozenset({"key"}))
    assert uris.plain(read_document(root, "it").operations[0]) == ""


@pytest.mark.parametrize(
    ("types", "chosen"),
    [
        (["application/xml", "text/plain"], "text/plain"),
        (["text/plain", "*/*"], "application/json"),
        (["text/plain", "application/merge-patch+json"], "application/merge-patch+json"),
        (["application/merge-patch+json", "application/x-www-form-urlencoded"], "application/x-www-form-urlencoded"),
    ],
)
def test_a_body_has_the_best_type_that_a_tool_can_send(types: list[str], chosen: str) -> None:
    """A bug: an operation that takes XML or text could not be allowed."""
    schemas = {kind: {"schema": {"description": kind}} for kind in types}
    root = document("/a", "post", requestBody={"content": schemas})
    body = allowed_operations(read_document(root, "it"), ["act"])["act"].body
    assert body is not None and body.mime_type == chosen
    assert body.schema == schemas[chosen if chosen in types else "*/*"]["schema"]


def test_an_operation_with_a_multipart_body_cannot_be_allowed() -> None:
    root = document("/a", "post", requestBody={"content": {"multipart/form-data": {}}})
    with pytest.raises(UnusableOperation, match="multipart/form-data, which no tool can send"):
        allowed_operations(read_document(root, "it"), ["act"])


def response(status: int, body: bytes, content_type: str = "application/json") -> HttpResponse:
    return HttpResponse(status, {"content-type": content_type}, body)


def test_a_result_is_structured_and_within_the_budget() -> None:
    assert result_of(response(200, b'{"a": 1}'), "quay").structured_content == {"a": 1}
    assert "quay answered 204" in str(result_of(response(204, b""), "quay").content)
    assert "image/png, 8 B" in str(result_of(response(200, b"\x89PNG\r\n\x1a\n", "image/png"), "quay").content)
    max_characters = DEFAULT_TOKENS * 4
    fitting = result_of(response(200, json.dumps("x" * (max_characters - 2)).encode()), "quay")
    assert fitting.structured_content == {"result": "x" * (max_characters - 2)}
    long = result_of(response(200, json.dumps(["x" * 100] * 1_000).encode()), "quay")
    assert sum(len(getattr(block, "text", "")) for block in long.content) <= max_characters + 200
    assert "These are the first" in str(long.content[-1])


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'{"detail": "no room"}', "quay answered 422 Unprocessable Entity: no room."),
        (b'{"error": {"message": "no room"}}', "quay answered 422 Unprocessable Entity: no room."),
        (b'{"detail": [{"msg": "bad"}]}', 'quay answered 422 Unprocessable Entity: [{"msg":"bad"}].'),
        (b"\xff", "quay answered 422 Unprocessable Entity."),
        (b'{"detail": "' + b"x" * 10_000 + b'"}', "quay answered 422 Unprocessable Entity: xxx"),
    ],
)
def test_an_error_has_the_message_of_the_api(body: bytes, message: str) -> None:
    with pytest.raises(ToolError) as error:
        result_of(response(422, body), "quay")
    # Python 3.13 calls this status "Unprocessable Content"
    assert str(error.value).replace("Content", "Entity").startswith(message)
    assert len(str(error.value)) < 500


@pytest.mark.parametrize(
    ("method", "read_only", "destructive"),
    [("get", True, False), ("post", False, UNSET), ("put", False, True), ("delete", False, True)],
)
def test_the_hints_of_a_tool_are_those_that_its_method_tells(method: str, read_only: bool, destructive: Any) -> None:
    """A bug: a POST was said to destroy nothing. Without the hint it may (2025-11-25, schema, ToolAnnotations)."""

    async def tool() -> Any:
        server = Server("quay")
        server.include(openapi(document("/a", method), app=FastAPI(), label="quay", allow_operations=["act"]))
        async with Client(server) as client:
            return next(tool for tool in await client.list_tools() if tool.name == "act")

    hints = asyncio.run(tool()).annotations
    assert (hints.read_only_hint, hints.destructive_hint) == (read_only, destructive)
