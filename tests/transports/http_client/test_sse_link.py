"""`SseLink`, for HTTP+SSE of 2024-11-05, with stub servers and with a Wharfinger server."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.transports.client_servers import (
    LIMITS,
    ReceivedRequest,
    decode_result,
    encode_event,
    run,
    send_request,
    start_event_stream,
    stub_server,
    write_accepted,
    write_response,
)
from tests.waiting import wait_until_async
from wharfinger import types as t
from wharfinger.errors import (
    ConnectionFailed,
    ConnectionLost,
    InvalidResponse,
    NotAuthorized,
    NotMCP,
    RequestTimeout,
    WharfingerError,
)
from wharfinger.protocol.jsonrpc import Message
from wharfinger.protocol.revisions import REVISIONS
from wharfinger.transports.http_client.sse_link import SseLink

REVISION = REVISIONS["2024-11-05"]


class FakeSseServer:
    """An HTTP+SSE server that answers each request on its event stream."""

    def __init__(self, endpoint: str = "messages?session_id=7") -> None:
        self.endpoint = endpoint
        self.posts: list[tuple[str, Any]] = []
        self.event_stream: asyncio.StreamWriter | None = None
        self.answers: asyncio.Queue[Any] = asyncio.Queue()
        self.status = ""

    async def __call__(self, request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        if request.verb == "GET":
            assert request.headers["accept"] == "text/event-stream"
            self.event_stream = writer
            start_event_stream(writer)
            writer.write(b": hello\n\nevent: endpoint\ndata: " + self.endpoint.encode() + b"\n\n")
            await writer.drain()
            await asyncio.sleep(60)
        message = request.message
        self.posts.append((request.path, message))
        if self.status:
            write_response(writer, b"not now", "text/plain", self.status)
            return
        write_accepted(writer)
        assert self.event_stream is not None
        if "method" not in message:
            self.answers.put_nowait(message)
        elif message["method"] == "end":
            self.event_stream.transport.abort()
        elif "id" in message and message["method"] != "silence":
            self.event_stream.write(encode_event(id=message["id"], result={"method": message["method"]}))
            await self.event_stream.drain()


async def open_link(base: str, path: str = "/old/sse", **options: Any) -> SseLink:
    link = SseLink(f"{base}{path}", LIMITS, **options)
    await link.open()
    link.rules = REVISION
    return link


@pytest.mark.parametrize(
    ("endpoint", "path"),
    [("messages?session_id=7", "/old/messages?session_id=7"), ("/m?id=%2F", "/m?id=%2F"), ("{base}/x", "/x")],
)
def test_messages_are_posted_to_the_url_of_the_first_event(endpoint: str, path: str) -> None:
    async def test() -> None:
        fake = FakeSseServer()
        async with stub_server(fake) as base:
            fake.endpoint = endpoint.replace("{base}", base)
            link = await open_link(base)
            link.notify("notifications/initialized", {})
            answers = await asyncio.gather(*(send_request(link, f"m{n}") for n in range(5)))
            assert [decode_result(each) for each in answers] == [{"method": f"m{n}"} for n in range(5)]
            await link.close()
        assert {posted_path for posted_path, _ in fake.posts} == {path}
        assert fake.posts[0][1]["method"] == "notifications/initialized"

    run(test())


@pytest.mark.parametrize(
    "endpoint", ["http://127.0.0.1:1/messages", "//evil.test/m", "https://127.0.0.1/m", "http://["]
)
def test_an_endpoint_on_another_server_is_refused(endpoint: str) -> None:
    """Security C25: another server must not get the messages."""

    async def test() -> None:
        async with stub_server(FakeSseServer(endpoint)) as base:
            with pytest.raises(ConnectionFailed, match="names another server"):
                await open_link(base)

    run(test())


def test_a_server_may_send_requests() -> None:
    async def test() -> None:
        fake = FakeSseServer()
        async with stub_server(fake) as base:
            link = await open_link(base)

            async def roots(message: Message) -> Any:
                return t.ListRootsResult(roots=[])

            link.events.on_request = roots
            assert fake.event_stream is not None
            fake.event_stream.write(encode_event(id=1, method="ping") + encode_event(id=2, method="roots/list"))
            answers = [await fake.answers.get() for _ in range(2)]
            assert sorted((each["id"], each["result"]) for each in answers) == [(1, {}), (2, {"roots": []})]
            await link.close()

    run(test())


def test_the_end_of_the_stream_fails_pending_requests() -> None:
    async def test() -> None:
        lost: list[WharfingerError] = []
        async with stub_server(FakeSseServer()) as base:
            link = await open_link(base)
            link.events.on_lost = lambda _, error: lost.append(error)
            calls = [asyncio.ensure_future(send_request(link, "silence")) for _ in range(3)]
            errors = await asyncio.gather(send_request(link, "end"), *calls, return_exceptions=True)
            assert [type(error) for error in errors] == [ConnectionLost] * 4
            assert len(lost) == 1
            with pytest.raises(ConnectionLost):
                await send_request(link)
            await link.close()

    run(test())


def test_a_rejected_message_fails_its_request() -> None:
    async def test() -> None:
        fake = FakeSseServer()
        async with stub_server(fake) as base:
            link = await open_link(base)
            fake.status = "500 Oops"
            with pytest.raises(ConnectionFailed, match="500 Oops: not now"):
                await send_request(link)
            fake.status = "401 Unauthorized"
            with pytest.raises(NotAuthorized):
                await send_request(link)
            fake.status = ""
            with pytest.raises(RequestTimeout):
                await send_request(link, "silence", timeout=0.05)
            assert fake.posts[-1][1]["method"] in ("silence", "notifications/cancelled")
            await link.close()

    run(test())


def test_a_rejected_answer_fails_no_request_that_has_the_same_id() -> None:
    async def test() -> None:
        fake = FakeSseServer()
        async with stub_server(fake) as base:
            link = await open_link(base)
            pending = asyncio.ensure_future(send_request(link, "silence"))
            await wait_until_async(lambda: fake.posts, "the request arrives")
            id = fake.posts[0][1]["id"]
            fake.status = "500 Oops"
            assert fake.event_stream is not None
            fake.event_stream.write(encode_event(id=id, method="ping"))
            await wait_until_async(lambda: len(fake.posts) == 2 and not link._posts, "the answer is rejected")
            assert "method" not in fake.posts[1][1]
            fake.event_stream.write(encode_event(id=id, result={"said": "at last"}))
            assert decode_result(await pending) == {"said": "at last"}
            await link.close()

    run(test())


@pytest.mark.parametrize(
    ("status", "content_type", "body", "error", "message"),
    [
        ("404 Not Found", "text/html", b"<html>", ConnectionFailed, "404 Not Found: a web page"),
        ("401 Unauthorized", "text/plain", b"token?", NotAuthorized, "token?"),
        ("200 OK", "text/html", b"<html>Hi", NotMCP, "first bytes were b'<html>Hi'"),
        ("200 OK", "text/event-stream", b"data: x\n\n", ConnectionFailed, "before it sent the URL for POST"),
        ("200 OK", "text/event-stream", b"data: " + b"x" * 200_000, InvalidResponse, "event over the limit"),
    ],
)
def test_a_response_that_is_not_a_stream_is_reported(
    status: str, content_type: str, body: bytes, error: type[Exception], message: str
) -> None:
    async def serve(request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        write_response(writer, body, content_type, status, "Connection: close\r\n")

    async def test() -> None:
        async with stub_server(serve) as base:
            with pytest.raises(error, match=message):
                await open_link(base)

    run(test())


def test_an_event_over_the_limit_closes_the_connection() -> None:
    async def test() -> None:
        fake = FakeSseServer()
        async with stub_server(fake) as base:
            link = await open_link(base)
            pending = asyncio.ensure_future(send_request(link, "silence"))
            assert fake.event_stream is not None
            fake.event_stream.write(b"data: " + b"x" * 200_000)
            with pytest.raises(InvalidResponse, match="event over the limit"):
                await pending
            await link.close()

    run(test())


def test_a_client_connects_to_a_wharfinger_server() -> None:
    import uvicorn

    from wharfinger import Server

    server = Server("harbour")

    @server.tool
    def tide(port: str) -> str:
        return f"high at {port}"

    async def test() -> None:
        config = uvicorn.Config(server.asgi(sse=True), host="127.0.0.1", port=0, log_level="error", lifespan="on")
        runner = uvicorn.Server(config)
        task = asyncio.ensure_future(runner.serve())
        await wait_until_async(lambda: runner.started, "uvicorn starts")  # it has no other signal for it
        port = runner.servers[0].sockets[0].getsockname()[1]
        link = SseLink(f"http://127.0.0.1:{port}/sse", LIMITS)
        await link.open()
        params = t.InitializeRequestParams(
            protocol_version="2024-11-05",
            capabilities=t.ClientCapabilities(),
            client_info=t.Implementation(name="x", version="1"),
        )
        info = await link.request("initialize", params, timeout=40)
        assert json.loads(bytes(info.result))["protocolVersion"] == "2024-11-05"  # type: ignore[arg-type]
        link.rules = REVISION
        link.notify("notifications/initialized", {})
        call = t.CallToolRequestParams(name="tide", arguments={"port": "Bay"})  # type: ignore[arg-type]
        assert "high at Bay" in str(decode_result(await link.request("tools/call", call, timeout=40)))
        await link.close()
        runner.should_exit = True
        await task

    run(test())
