"""Arguments in HTTP headers: which may be marked, and which calls are refused before the function runs."""

from __future__ import annotations

import asyncio
import json
from typing import Annotated, Any, Literal

import pytest

from tests.server.driving import META, STATELESS, ask, looped
from wharfinger import Header, Server


def routing_server() -> tuple[Server, list[str]]:
    server, called_regions = Server("s"), []

    @server.tool
    def plain() -> str:
        return "plain"

    @server.tool
    def route(
        region: Annotated[str, Header("Region"), "Where to."],
        urgent: Annotated[bool | None, Header("Urgent")] = None,
        berth: Annotated[int, Header("Berth")] = 1,
        side: Annotated[Literal["port", "starboard"], Header("Side")] = "port",
        note: str = "",
    ) -> str:
        called_regions.append(region)
        return region

    return server, called_regions


@looped
async def test_the_header_annotation_is_in_the_schema() -> None:
    properties = (await ask(routing_server()[0], "tools/list"))["result"]["tools"][1]["inputSchema"]["properties"]
    assert properties["region"] == {"type": "string", "description": "Where to.", "x-mcp-header": "Region"}
    assert properties["urgent"] == {"type": "boolean", "x-mcp-header": "Urgent"}
    assert properties["berth"] == {"type": "integer", "default": 1, "x-mcp-header": "Berth"}
    assert properties["side"]["type"] == "string"
    assert "x-mcp-header" not in properties["note"]


def number(a: Annotated[float, Header("A")]) -> None: ...
def spaced(a: Annotated[str, Header("A B")]) -> None: ...
def empty(a: Annotated[str, Header("é")]) -> None: ...
def twice(a: Annotated[str, Header("Region")], b: Annotated[str, Header("REGION")]) -> None: ...
def listed(a: Annotated[list[str], Header("A")]) -> None: ...
def either(a: Annotated[str | int, Header("A")]) -> None: ...


@pytest.mark.parametrize("function", [number, spaced, empty, twice, listed, either])
def test_an_argument_that_a_header_cannot_repeat_is_refused_at_registration(function: Any) -> None:
    with pytest.raises(ValueError, match=f"The tool '{function.__name__}': .*x-mcp-header"):
        Server("s").tools.add(function)


def test_header_annotations_of_an_explicit_schema_are_found() -> None:
    inside = {
        "type": "object",
        "properties": {"a": {"type": "array", "items": {"type": "string", "x-mcp-header": "A"}}},
    }
    with pytest.raises(ValueError, match="reachable"):
        Server("s").tools.add(lambda arguments: "", name="f", input_schema=inside)
    nested = {"type": "object", "properties": {"a": {"properties": {"b": {"type": "string", "x-mcp-header": "B"}}}}}
    server = Server("s")
    server.tools.add(lambda arguments: "", name="f", input_schema=nested)
    assert server.header_params["f"][0].path == ("a", "b")
    server.tools.remove("f")
    assert not server.header_params


async def post(server: Server, name: str, arguments: Any, headers: dict[str, str]) -> tuple[int, Any]:
    """Send one POST to the ASGI application itself, and return the status and the answer."""
    meta = {f"{META}protocolVersion": STATELESS, f"{META}clientCapabilities": {}}
    params = {"name": name, "arguments": arguments, "_meta": meta}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()
    given = {
        "host": "localhost",
        "content-type": "application/json",
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": STATELESS,
        "mcp-method": "tools/call",
        "mcp-name": name,
    } | headers
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/mcp",
        "root_path": "",
        "headers": [(key.encode(), value.encode()) for key, value in given.items()],
        "client": ("127.0.0.1", 1),
    }
    sent: list[Any] = []

    bodies = [body]

    async def receive() -> Any:
        if not bodies:
            await asyncio.Event().wait()
        return {"type": "http.request", "body": bodies.pop(), "more_body": False}

    async def send(event: Any) -> None:
        sent.append(event)

    app = server.asgi()
    try:
        await app(scope, receive, send)
    finally:
        await app.aclose()
    return sent[0]["status"], json.loads(b"".join(event.get("body", b"") for event in sent[1:]))


GOOD = {"mcp-param-region": "north"}


@pytest.mark.parametrize(
    ("arguments", "headers"),
    [
        ({"region": "north"}, GOOD),
        ({"region": "north", "urgent": None}, GOOD),
        ({"region": "nörth"}, {"mcp-param-region": "=?base64?bsO2cnRo?="}),
        ({"region": "north", "urgent": True, "berth": 7}, {**GOOD, "mcp-param-urgent": "true", "mcp-param-berth": "7"}),
        ({"region": "north", "berth": 7.0}, {**GOOD, "mcp-param-berth": "7"}),
        ({"region": "north"}, {**GOOD, "mcp-param-unknown": "x"}),
    ],
)
@looped
async def test_a_call_whose_headers_match_its_arguments_is_served(arguments: Any, headers: dict[str, str]) -> None:
    server, called_regions = routing_server()
    status, answer = await post(server, "route", arguments, headers)
    assert (status, answer["result"].get("isError")) == (200, None)
    assert called_regions == [arguments["region"]]


@pytest.mark.parametrize(
    ("arguments", "headers"),
    [
        ({"region": "north"}, {}),
        ({"region": "north"}, {"mcp-param-region": "south"}),
        ({"region": "north"}, {"mcp-param-region": "NORTH"}),
        ({"region": "north"}, {"mcp-param-region": "=?base64?bm9ydGg?="}),
        ({"region": "north"}, {"mcp-param-region": "=?base64?bm9!dGg=?="}),
        ({"region": "north", "urgent": True}, GOOD),
        ({"region": "north"}, {**GOOD, "mcp-param-urgent": "true"}),
        ({"region": "north", "berth": 7}, {**GOOD, "mcp-param-berth": "8"}),
        ([], GOOD),
    ],
)
@looped
async def test_a_call_whose_headers_differ_from_its_arguments_is_refused_before_it_runs(
    arguments: Any, headers: dict[str, str]
) -> None:
    server, called_regions = routing_server()
    status, answer = await post(server, "route", arguments, headers)
    assert (status, answer["error"]["code"]) == (400, -32020)
    assert "north" not in answer["error"]["message"]
    assert not called_regions


@looped
async def test_tools_without_annotated_arguments_and_unknown_tools_need_no_headers() -> None:
    server, _ = routing_server()
    assert (await post(server, "plain", {}, {}))[0] == 200
    assert (await post(server, "gone", {"region": "north"}, {}))[1]["error"]["code"] == -32602
