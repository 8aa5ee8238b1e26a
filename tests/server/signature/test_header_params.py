"""Arguments that HTTP headers repeat: annotations, and calls whose headers differ from their arguments."""

from __future__ import annotations

import asyncio
import json
from typing import Annotated, Any, Literal

import pytest

from tests.server.driving import META, STATELESS, ask
from wharfinger import Header, Server
from wharfinger.protocol.interfaces import ToolHeaders


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


async def test_the_header_annotation_is_in_the_schema() -> None:
    properties = (await ask(routing_server()[0], "tools/list"))["result"]["tools"][1]["inputSchema"]["properties"]
    assert properties["region"] == {"type": "string", "description": "Where to.", "x-mcp-header": "Region"}
    assert properties["urgent"] == {"type": "boolean", "x-mcp-header": "Urgent"}
    assert properties["berth"] == {"type": "integer", "default": 1, "x-mcp-header": "Berth"}
    assert properties["side"]["type"] == "string"
    assert "x-mcp-header" not in properties["note"]


def number(a: Annotated[float, Header("A")]) -> None: ...
def with_space(a: Annotated[str, Header("A B")]) -> None: ...
def not_ascii(a: Annotated[str, Header("é")]) -> None: ...
def same_header(a: Annotated[str, Header("Region")], b: Annotated[str, Header("REGION")]) -> None: ...
def array(a: Annotated[list[str], Header("A")]) -> None: ...
def union(a: Annotated[str | int, Header("A")]) -> None: ...


@pytest.mark.parametrize("function", [number, with_space, not_ascii, same_header, array, union])
def test_an_invalid_header_annotation_is_refused_at_registration(function: Any) -> None:
    with pytest.raises(ValueError, match=f"The tool '{function.__name__}': .*x-mcp-header"):
        Server("s").tools.add(function)


def test_an_explicit_schema_may_annotate_members_of_objects_but_not_of_arrays() -> None:
    in_array = {
        "type": "object",
        "properties": {"a": {"type": "array", "items": {"type": "string", "x-mcp-header": "A"}}},
    }
    with pytest.raises(ValueError, match="reachable"):
        Server("s").tools.add(lambda arguments: "", name="f", input_schema=in_array)
    in_object = {"type": "object", "properties": {"a": {"properties": {"b": {"type": "string", "x-mcp-header": "B"}}}}}
    server = Server("s")
    server.tools.add(lambda arguments: "", name="f", input_schema=in_object)
    assert server.header_params["f"][0].path == ("a", "b")
    server.tools.remove("f")
    assert not server.header_params


def test_http_finds_the_annotated_arguments_of_a_server() -> None:
    server: ToolHeaders = Server("s")  # type checkers compare the members
    assert isinstance(server, ToolHeaders)


async def post(server: Server, name: str, arguments: Any, headers: dict[str, str]) -> tuple[int, Any]:
    """Send one POST request to the ASGI application, and return the status and the answer."""
    meta = {f"{META}protocolVersion": STATELESS, f"{META}clientCapabilities": {}}
    params = {"name": name, "arguments": arguments, "_meta": meta}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()
    all_headers = {
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
        "headers": [(key.encode(), value.encode()) for key, value in all_headers.items()],
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


MATCHING_HEADERS = {"mcp-param-region": "north"}


@pytest.mark.parametrize(
    ("arguments", "headers"),
    [
        ({"region": "north"}, MATCHING_HEADERS),
        ({"region": "north", "urgent": None}, MATCHING_HEADERS),
        ({"region": "nörth"}, {"mcp-param-region": "=?base64?bsO2cnRo?="}),
        (
            {"region": "north", "urgent": True, "berth": 7},
            {**MATCHING_HEADERS, "mcp-param-urgent": "true", "mcp-param-berth": "7"},
        ),
        ({"region": "north", "berth": 7.0}, {**MATCHING_HEADERS, "mcp-param-berth": "7"}),
        ({"region": "north"}, {**MATCHING_HEADERS, "mcp-param-unknown": "x"}),
    ],
)
async def test_a_call_whose_headers_match_its_arguments_succeeds(arguments: Any, headers: dict[str, str]) -> None:
    server, called_regions = routing_server()
    status, answer = await post(server, "route", arguments, headers)
    assert (status, answer["result"].get("isError")) == (200, None)
    assert called_regions == [arguments["region"]]


@pytest.mark.parametrize(
    ("arguments", "headers"),
    [
        ({"region": "north"}, {}),  # the header is missing
        ({"region": "north"}, {"mcp-param-region": "south"}),
        ({"region": "north"}, {"mcp-param-region": "NORTH"}),
        ({"region": "north"}, {"mcp-param-region": "=?base64?bm9ydGg?="}),  # the padding is missing
        ({"region": "north"}, {"mcp-param-region": "=?base64?bm9!dGg=?="}),  # not base64
        ({"region": "north", "urgent": True}, MATCHING_HEADERS),
        ({"region": "north"}, {**MATCHING_HEADERS, "mcp-param-urgent": "true"}),
        ({"region": "north", "berth": 7}, {**MATCHING_HEADERS, "mcp-param-berth": "8"}),
        ([], MATCHING_HEADERS),
    ],
)
async def test_a_call_whose_headers_differ_from_its_arguments_is_refused_before_it_runs(
    arguments: Any, headers: dict[str, str]
) -> None:
    server, called_regions = routing_server()
    status, answer = await post(server, "route", arguments, headers)
    assert (status, answer["error"]["code"]) == (400, -32020)
    assert "north" not in answer["error"]["message"]
    assert not called_regions


async def test_tools_without_annotated_arguments_and_unknown_tools_need_no_headers() -> None:
    server, _ = routing_server()
    assert (await post(server, "plain", {}, {}))[0] == 200
    assert (await post(server, "gone", {"region": "north"}, {}))[1]["error"]["code"] == -32602
