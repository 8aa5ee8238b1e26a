"""How a client handles HTTP statuses, arguments in headers, and failures without a pending call."""

from __future__ import annotations

import asyncio
import gc
import logging
from typing import Any

import pytest

from tests.client.scripted import HANDSHAKE, STATELESS, Refusal, Script, run, settle
from tests.client.test_eras import FakeServer, handshake, stateless
from tests.transports.client_servers import (
    ReceivedRequest,
    encode_event,
    encode_result,
    start_event_stream,
    stub_server,
    write_response,
)
from wharfinger.client import Client, Retry
from wharfinger.errors import ConnectionFailed, ConnectionLost, RequestTimeout, WharfingerError

OBJECT = {"type": "object"}


@pytest.mark.parametrize(
    ("status", "again"), [(500, False), (501, False), (502, True), (503, True), (504, True), (505, False)]
)
def test_a_read_is_retried_once_after_a_gateway_error(status: int, again: bool) -> None:
    async def test() -> None:
        async with FakeServer() as fake, Client(fake.url) as client:
            fake.new_methods()
            away = iter([True, False])
            fake.reply_to = lambda message: (status, "<html>") if next(away) else stateless(message)
            if again:
                await client.list_tools()
            else:
                with pytest.raises(ConnectionFailed, match=str(status)):
                    await client.list_tools()
            assert fake.new_methods() == ["tools/list"] * (2 if again else 1)
            fake.reply_to = lambda _: (status, "<html>")
            with pytest.raises(ConnectionFailed, match=str(status)):
                await client.call_tool("x")
            assert fake.new_methods() == ["tools/call"]

    run(test())


@pytest.mark.parametrize(
    ("status", "again"), [(400, True), (401, False), (404, True), (405, True), (406, False), (410, False)]
)
def test_the_era_is_detected_again_after_a_status_that_may_mean_another_server(status: int, again: bool) -> None:
    async def test() -> None:
        async with FakeServer() as fake, Client(fake.url) as client:
            fake.new_methods()

            def other(message: Any) -> Any:
                if "io.modelcontextprotocol/protocolVersion" in message.get("params", {}).get("_meta", {}):
                    return status, "<html>"
                return handshake(message)

            fake.reply_to = other
            if again:
                await client.list_tools()
                assert client.revision == "2025-11-25"
                assert fake.new_methods()[-1] == "tools/list"
                await settle()
                assert client.transport == "streamable http"
                await client.list_tools()
            else:
                with pytest.raises(WharfingerError, match=str(status)):
                    await client.list_tools()
                assert fake.new_methods() == ["tools/list"]

    run(test())


def test_the_era_is_not_detected_again_without_attempts() -> None:
    async def test() -> None:
        async with FakeServer() as fake, Client(fake.url, retry=Retry(attempts=0)) as client:
            fake.new_methods()
            for reply_to in (handshake, lambda _: (400, {"error": refused})):
                fake.reply_to = reply_to
                with pytest.raises(WharfingerError):
                    await client.list_tools()
                assert fake.new_methods() == ["tools/list"]

    refused = {"code": -32022, "message": "no", "data": {"supported": [STATELESS], "requested": "?"}}
    run(test())


def test_the_connection_is_kept_if_a_second_detection_finds_the_same_era() -> None:
    async def test() -> None:
        async with FakeServer() as fake, Client(fake.url) as client:
            fake.new_methods()
            fake.reply_to = lambda m: stateless(m) if m["method"] == "server/discover" else (404, "<html>")
            calls = [asyncio.ensure_future(client.call_tool("x")) for _ in range(3)]
            for call in calls:
                with pytest.raises(ConnectionFailed, match="404"):
                    await call
            assert sorted(fake.new_methods()) == ["server/discover", *["tools/call"] * 3]
            fake.reply_to = stateless
            await client.list_tools()
            assert fake.new_methods() == ["tools/list"]

    run(test())


# Arguments in headers.


def annotated(name: str, header: str | None = "Quay", kind: str = "integer") -> dict[str, Any]:
    quay = {"type": kind} | ({} if header is None else {"x-mcp-header": header})
    return {"name": name, "inputSchema": {**OBJECT, "properties": {"quay": quay}}}


class HeaderServer:
    """A server that lists these tools and returns the header of each call."""

    def __init__(self, *tools: Any) -> None:
        self.tools = list(tools)

    async def __call__(self, request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        method = request.message["method"] if request.body else ""
        if method == "server/discover":
            found = encode_result(request, supportedVersions=[STATELESS], capabilities={}, resultType="complete")
        elif method == "tools/list":
            found = encode_result(request, tools=self.tools, resultType="complete")
        else:
            header = request.headers.get("mcp-param-quay")
            found = encode_result(request, content=[], structuredContent=header, resultType="complete")
        write_response(writer, found)


def test_arguments_are_repeated_in_the_headers_of_the_latest_list() -> None:
    async def test() -> None:
        quays = HeaderServer(annotated("berth"))
        async with stub_server(quays) as base, Client(f"{base}/mcp", cache=False) as client:
            for tools, header in (
                ([annotated("berth")], "7"),
                ([annotated("berth", None)], None),
                ([annotated("berth")], "7"),
                ([annotated("berth", "Other")], None),
            ):
                quays.tools = tools
                await client.list_tools()
                assert (await client.call_tool("berth", {"quay": 7})).data == header

    run(test())


def test_a_tool_with_invalid_headers_is_left_out_over_http_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        quays = HeaderServer(annotated("wrong", kind="number"), annotated("berth"))
        async with stub_server(quays) as base, Client(f"{base}/mcp") as client:
            assert [tool.name for tool in await client.list_tools()] == ["berth"]
            (record,) = [each for each in caplog.records if "left out" in each.getMessage()]
            assert (record.levelno, "'wrong'" in record.getMessage()) == (logging.WARNING, True)
        async with Script(tools__list={"tools": quays.tools}) as server, server.client() as client:
            assert [tool.name for tool in await client.list_tools()] == ["wrong", "berth"]

    run(test())


def test_the_headers_of_tools_are_remembered_up_to_a_number() -> None:
    async def test() -> None:
        quays = HeaderServer(*(annotated(f"n{n}") for n in range(10_001)))
        async with stub_server(quays) as base, Client(f"{base}/mcp") as client:
            assert len(await client.list_tools()) == 10_001
            assert (await client.call_tool("n9999", {"quay": 7})).data == "7"
            assert (await client.call_tool("n10000", {"quay": 7})).data is None

    run(test())


def test_a_client_can_be_closed_when_a_message_arrives_on_the_stream_of_a_call() -> None:
    """Two bugs: the call raised a RuntimeError of the HTTP library, and the message was still logged."""

    async def test() -> None:
        streams: list[asyncio.StreamWriter] = []
        logged: list[Any] = []
        arrived = asyncio.Event()
        quays = HeaderServer()

        async def serve(request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
            if request.message["method"] != "tools/call":
                await quays(request, writer)
                return
            start_event_stream(writer)
            streams.append(writer)
            writer.write(encode_event(method="notifications/message", params={"level": "info", "data": "before"}))

        def note(message: Any) -> None:
            logged.append(message.data)
            arrived.set()

        async with stub_server(serve) as base:
            client = Client(f"{base}/mcp", log=note, log_level="info")
            await client.open()
            calling = asyncio.ensure_future(client.call_tool("x", progress=print))
            await arrived.wait()
            streams[0].write(encode_event(method="notifications/message", params={"level": "info", "data": "after"}))
            await client.close()
            with pytest.raises(ConnectionLost):
                await calling
        assert logged == ["before"]

    run(test())


# Failures without a pending call.


def test_failures_without_a_pending_call_are_not_logged() -> None:
    async def fail() -> None:
        logs: dict[str, Any] = {"logging": {}}
        async with Script(HANDSHAKE, capabilities=logs) as server, server.client(log=print) as client:
            server.answers["logging/setLevel"] = Refusal()
            await client.ping()
            await server.leave()
            with pytest.raises(RequestTimeout):
                await client.call_tool("x", timeout=0.001)
            await asyncio.sleep(1)
            await server.listen()
            server.answers["logging/setLevel"] = lambda _: server.hang_up()
            for _ in range(3):
                with pytest.raises(WharfingerError):
                    await client.call_tool("x")
                await asyncio.sleep(1)
        async with Script(HANDSHAKE) as server:
            path = server.path
        opening = asyncio.ensure_future(Client(f"unix:{path}").open())
        await asyncio.sleep(0)
        opening.cancel()
        await asyncio.wait((opening,))
        await settle()

    async def test() -> None:
        reports: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: reports.append(context))
        await fail()
        gc.collect()
        await settle()
        assert reports == []

    run(test())
