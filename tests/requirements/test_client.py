"""Tests of the requirements on a client that have no other test."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.transports.client_servers import (
    ReceivedRequest,
    encode_event,
    encode_result,
    start_event_stream,
    stub_server,
    write_accepted,
    write_response,
)
from wharfinger import Client, Context, Server
from wharfinger.errors import InvalidResponse
from wharfinger.testing import REVISIONS, Replay, Script, Transcript, Wire
from wharfinger.testing.transcripts import Line

META = "io.modelcontextprotocol/"
HANDSHAKE, STATELESS = REVISIONS[:4], REVISIONS[4]


def make_server(name: str = "harbour") -> Server:
    """Return a server with two tools and a resource."""
    server = Server(name, version="7")

    @server.tool
    def repeat(text: str) -> str:
        return text

    @server.tool
    async def greet(ctx: Context) -> str:
        return (await ctx.sample("Say something")).text

    @server.resource("s://note")
    def note() -> str:
        return "text"

    return server


async def use_features(client: Client) -> list[Any]:
    """Use the features of the server and return the results."""
    text = (await client.read_resource("s://note")).text
    names = [tool.name for tool in await client.list_tools()]
    return [text, names, (await client.call_tool("repeat", {"text": "a\nb\r\u2028c"})).text]


async def record(server: Server, revision: str, **options: Any) -> Transcript:
    """Return the messages between a client of this revision and the server."""
    wire = Wire(server)
    async with Client(wire, revision=revision, **options) as client:
        assert await use_features(client) == ["text", ["repeat", "greet"], "a\nb\r\u2028c"]
    return wire.transcript


@pytest.mark.parametrize("revision", REVISIONS)
async def test_every_message_is_one_line_with_a_unique_id(revision: str) -> None:
    """Requirements C2.1-1 and C2.6-1."""
    transcript = await record(make_server(), revision)
    ids = [message["id"] for message in transcript.messages(">") if "id" in message]
    assert len(ids) >= 4 and len(set(ids)) == len(ids)
    assert all(isinstance(id, int | str) for id in ids)
    assert all(message["jsonrpc"] == "2.0" for message in transcript.messages(">"))


@pytest.mark.parametrize("revision", REVISIONS)
async def test_unknown_members_are_tolerated(revision: str) -> None:
    """Requirement C2.1-5."""

    def with_unknown_members(value: Any) -> Any:
        if isinstance(value, list):
            return [with_unknown_members(item) for item in value]
        return (
            {key: with_unknown_members(item) for key, item in value.items()} | {"xNew": [1]}
            if isinstance(value, dict)
            else value
        )

    transcript = await record(make_server(), revision)
    lines = [
        Line("<", json.dumps(json.loads(line.text) | {"result": with_unknown_members(json.loads(line.text)["result"])}))
        if line.sender == "<"
        else line
        for line in transcript.lines
    ]
    assert "xNew" in str(Transcript(lines))
    async with Client(Replay(Transcript(lines)), revision=revision) as client:
        assert (await use_features(client))[::2] == ["text", "a\nb\r\u2028c"]


@pytest.mark.parametrize("revision", HANDSHAKE)
async def test_the_handshake_is_complete_before_other_requests(revision: str) -> None:
    """Requirements C2.2-1, C2.2-2 and C2.2-5."""
    transcript = await record(make_server(), revision)
    messages = [line for line in transcript.lines if line.sender != "#"]
    first, response, notification = (json.loads(line.text) for line in messages[:3])
    assert [line.sender for line in messages[:3]] == [">", "<", ">"]
    assert first["method"] == "initialize" and response["id"] == first["id"]
    assert first["params"]["protocolVersion"] == revision
    assert first["params"]["capabilities"] == {}
    assert first["params"]["clientInfo"].keys() >= {"name", "version"}
    assert notification["method"] == "notifications/initialized" and "id" not in notification


async def test_every_stateless_request_names_its_client() -> None:
    """Requirements C2.3-1 and C2.3-2."""
    transcript = await record(make_server(), STATELESS, **Script({}).handlers)
    for message in transcript.messages(">"):
        meta = message["params"]["_meta"]
        assert meta[f"{META}protocolVersion"] == STATELESS
        assert meta[f"{META}clientCapabilities"].keys() >= {"elicitation", "sampling", "roots"}
        assert meta[f"{META}clientInfo"]["name"]


@pytest.mark.parametrize("revision", REVISIONS)
async def test_the_server_name_affects_no_request(revision: str) -> None:
    """Requirement C2.3-6."""
    (await record(make_server(), revision)).compare(await record(make_server("wharfinger-stub"), revision))


def discover_result(request: ReceivedRequest) -> bytes:
    """Return the result of `server/discover`."""
    capabilities = {"tools": {}, "resources": {}}
    return encode_result(request, resultType="complete", supportedVersions=[STATELESS], capabilities=capabilities, ttlMs=0,
                  cacheScope="private")  # fmt: skip


async def test_a_repeated_request_has_a_new_id() -> None:
    """Requirements C2.7-7 and C2.14-3."""
    ids: list[Any] = []

    async def serve(request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        if request.message["method"] == "server/discover":
            write_response(writer, discover_result(request))
            return
        ids.append(request.message["id"])
        if len(ids) == 1:
            start_event_stream(writer)
            writer.close()
        elif len(ids) == 2:
            write_response(writer, encode_result(request, resultType="input_required", requestState="s"))
        else:
            write_response(
                writer, encode_result(request, resultType="complete", contents=[], ttlMs=0, cacheScope="private")
            )

    async with stub_server(serve) as url, Client(f"{url}/mcp") as client:
        await client.read_resource("s://note")
    assert len(set(ids)) == len(ids) == 3


async def test_the_number_of_input_rounds_is_bounded() -> None:
    """Requirement C2.14-7."""
    rounds = 0

    async def serve(request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        nonlocal rounds
        if request.message["method"] == "server/discover":
            write_response(writer, discover_result(request))
        else:
            rounds += 1
            write_response(writer, encode_result(request, resultType="input_required", requestState=str(rounds)))

    async with stub_server(serve) as url, Client(f"{url}/mcp") as client:
        with pytest.raises(InvalidResponse, match="still asks after"):
            await client.call_tool("endless")
    assert 2 < rounds < 20


@pytest.mark.parametrize("has_session_stream", [True, False])
async def test_a_client_with_handlers_opens_the_session_stream(has_session_stream: bool) -> None:
    """Requirements C2.9-8 and C2.9-9: some servers send requests only on that stream, and others have no such stream."""
    session_streams: list[asyncio.StreamWriter] = []
    answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    async def serve(request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        message = request.message if request.verb == "POST" else {}
        method = message.get("method")
        if request.verb == "GET" and has_session_stream:
            start_event_stream(writer)
            session_streams.append(writer)
        elif request.verb != "POST":
            write_response(writer, b"", status="405 Method Not Allowed")
        elif "id" not in message:
            write_accepted(writer)
        elif method is None:
            answered.set_result(message["result"])
            write_accepted(writer)
        elif method == "initialize":
            info = {"name": "s", "version": "1"}
            opened = encode_result(request, protocolVersion="2025-11-25", capabilities={"tools": {}}, serverInfo=info)
            write_response(writer, opened, header_lines="Mcp-Session-Id: abc\r\n")
        elif method != "tools/call":
            write_response(writer, b"{}", status="400 Bad Request")
        else:
            if has_session_stream:
                session_streams[0].write(encode_event(id=1, method="roots/list"))
                await session_streams[0].drain()
                await answered
            write_response(writer, encode_result(request, content=[]))

    async with stub_server(serve) as url, Client(f"{url}/mcp", roots=["file:///home"]) as client:
        await client.call_tool("where")
        assert client.revision == "2025-11-25"
    assert answered.done() is has_session_stream
    assert not has_session_stream or answered.result() == {"roots": [{"uri": "file:///home"}]}
    assert bool(session_streams) is has_session_stream


async def test_a_tool_that_is_left_out_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Requirement C2.8-6."""

    async def serve(request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        if request.message["method"] == "server/discover":
            write_response(writer, discover_result(request))
            return
        invalid = {"type": "object", "properties": {"n": {"type": "number", "x-mcp-header": "N"}}}
        tools = [{"name": "fine", "inputSchema": {"type": "object"}}, {"name": "broken", "inputSchema": invalid}]
        write_response(
            writer, encode_result(request, resultType="complete", tools=tools, ttlMs=0, cacheScope="private")
        )

    async with stub_server(serve) as url, Client(f"{url}/mcp") as client:
        assert [tool.name for tool in await client.list_tools()] == ["fine"]
    assert "left out the tool 'broken'" in caplog.text


async def test_a_server_of_http_with_sse_is_detected() -> None:
    """Requirement C2.10-3."""
    streams: list[asyncio.StreamWriter] = []

    async def serve(request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        if request.verb == "GET":
            start_event_stream(writer)
            writer.write(b"event: endpoint\ndata: /messages?id=1\n\n")
            streams.append(writer)
        elif request.path != "/messages?id=1":
            write_response(writer, b"", status="405 Method Not Allowed")
        else:
            write_accepted(writer)
            if request.message.get("method") == "initialize":
                info = {"name": "s", "version": "1"}
                streams[-1].write(
                    encode_event(
                        id=request.message["id"],
                        result={"protocolVersion": "2024-11-05", "capabilities": {}, "serverInfo": info},
                    )
                )
                await streams[-1].drain()

    async with stub_server(serve) as url, Client(f"{url}/sse") as client:
        assert client.revision == "2024-11-05"


@pytest.mark.parametrize("revision", REVISIONS)
async def test_changed_roots_are_reported_in_the_handshake_era(revision: str) -> None:
    """Requirement C2.18-9."""
    wire = Wire(make_server())
    async with Client(wire, revision=revision, roots=["file:///home"]) as client:
        client.roots_changed()
        await client.list_tools()
    methods = [message["method"] for message in wire.transcript.messages(">")]
    assert methods.count("notifications/roots/list_changed") == (revision in HANDSHAKE)
