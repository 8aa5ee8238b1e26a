"""`HttpLink` with stub HTTP servers, correct and hostile ones (security C25-C30)."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from tests.client.scripted import QuickLoop
from tests.transports.client_servers import (
    HANDSHAKE,
    LIMITS,
    STATELESS,
    ReceivedRequest,
    encode_event,
    encode_result,
    open_link,
    run,
    send_request,
    start_event_stream,
    stub_server,
    write_accepted,
    write_response,
)
from wharfinger import types as t
from wharfinger.errors import (
    ConnectionFailed,
    ConnectionLost,
    HeaderMismatch,
    InvalidResponse,
    NotAuthorized,
    NotMCP,
    RequestTimeout,
    WharfingerError,
)
from wharfinger.protocol.http.headers import find_header_params
from wharfinger.protocol.jsonrpc import Message
from wharfinger.transports.http_client.http_link import MAX_REPLIES, HttpLink, NoMessage


async def answer_verb(request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
    write_response(writer, encode_result(request, verb=request.verb))


def encoded_result(message: Message) -> bytes:
    """Return the encoded result of a response."""
    assert isinstance(message.result, Raw)
    return bytes(message.result)


def encoded_error(message: Message) -> bytes:
    """Return the encoded error of a response."""
    assert isinstance(message.error, Raw)
    return bytes(message.error)


def test_a_stateless_request_repeats_its_method_and_name_in_headers() -> None:
    """Spec 2026-07-28, Streamable HTTP, standard headers. Values that are not valid in a header are sent in base64."""
    requests: list[ReceivedRequest] = []

    async def serve(request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        requests.append(request)
        write_response(writer, encode_result(request))

    async def test() -> None:
        async with open_link(serve) as link:
            await link.request("resources/read", t.ReadResourceRequestParams(uri="file:///a b%20c"), timeout=40)
            await link.request("resources/read", t.ReadResourceRequestParams(uri="file:///é"), timeout=40)
        expected = [
            {"mcp-method": "resources/read", "mcp-name": "file:///a b%20c", "mcp-protocol-version": "2026-07-28"},
            {
                "mcp-method": "resources/read",
                "mcp-name": "=?base64?ZmlsZTovLy/DqQ==?=",
                "mcp-protocol-version": "2026-07-28",
            },
        ]
        assert [
            {name: text for name, text in each.headers.items() if name.startswith("mcp-")} for each in requests
        ] == expected
        assert requests[0].headers["accept"] == "application/json, text/event-stream"
        assert requests[0].headers["content-type"] == "application/json"
        assert requests[0].message["id"] != requests[1].message["id"]

    run(test())


def test_annotated_arguments_are_repeated_in_headers() -> None:
    """Spec 2026-07-28, x-mcp-header."""
    received_headers: list[dict[str, str]] = []

    async def serve(request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        received_headers.append(request.headers)
        write_response(writer, encode_result(request))

    async def test() -> None:
        schema = {"type": "object", "properties": {"quay": {"type": "integer", "x-mcp-header": "Quay"}}}
        async with open_link(serve) as link:
            link.header_params = {"berth": find_header_params(schema)}
            for arguments in (b'{"quay":7}', b'{"quay":null}'):
                params = t.CallToolRequestParams(name="berth", arguments=msgspec.Raw(arguments))
                await link.request("tools/call", params, timeout=40)
        assert [headers.get("mcp-param-quay") for headers in received_headers] == ["7", None]

    run(test())


def test_a_session_is_used_by_each_request_and_deleted_at_the_end() -> None:
    """Handshake era: each request has the session id and version, and notifications/initialized is sent first."""
    requests: list[tuple[Any, ...]] = []

    async def serve(request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        method = request.message["method"] if request.body else ""
        requests.append(
            (request.verb, method, request.headers.get("mcp-session-id"), request.headers.get("mcp-protocol-version"))
        )
        if request.verb == "DELETE" or method.startswith("notifications/"):
            write_response(writer, b"", status="202 Accepted")
        else:
            write_response(
                writer, encode_result(request), header_lines="Mcp-Session-Id: s1\r\n" if method == "initialize" else ""
            )

    async def test() -> None:
        async with open_link(serve, rules=None) as link:
            await send_request(link, "initialize")
            link.rules = HANDSHAKE
            link.notify("notifications/initialized", t.UNSET)
            await send_request(link)
        assert requests == [
            ("POST", "initialize", None, None),
            ("POST", "notifications/initialized", "s1", "2025-11-25"),
            ("POST", "tools/list", "s1", "2025-11-25"),
            ("DELETE", "", "s1", "2025-11-25"),
        ]

    run(test())


@pytest.mark.parametrize(
    "header", ["Mcp-Session-Id: a\u00e9b\r\n", "Mcp-Session-Id:\r\n", "Content-Encoding: gzip\r\n"]
)
def test_an_answer_with_unusable_headers_is_refused(header: str) -> None:
    """The session id is not valid in a header, or the body is compressed."""

    async def serve(request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        write_response(writer, encode_result(request), header_lines=header)

    async def test() -> None:
        async with open_link(serve, rules=None) as link:
            with pytest.raises(InvalidResponse):
                await send_request(link, "initialize")

    run(test())


def test_an_answer_may_be_sent_as_an_event() -> None:
    """A priming event, comments, other events, progress and an answer to another request come before the answer."""

    async def serve(request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        start_event_stream(writer)
        writer.write(b"id: 1\ndata:\n\n: comment\n\nevent: endpoint\ndata: /x\n\n")
        token = request.message["params"]["_meta"]["progressToken"]
        writer.write(encode_event(method="notifications/progress", params={"progressToken": token, "progress": 1}))
        writer.write(encode_event(id=999, result={"wrong": 1}))
        writer.write(encode_event(id=request.message["id"], result={"right": 1}))
        writer.close()

    async def test() -> None:
        reported: list[Any] = []
        async with open_link(serve) as link:
            params = t.PaginatedRequestParams()
            message = await link.request(
                "tools/list", params, timeout=40, on_notification=lambda m: reported.append(m.method)
            )
        assert encoded_result(message) == b'{"right": 1}'
        assert reported == ["notifications/progress"]

    run(test())


def test_a_server_may_send_requests_on_a_stream_of_the_handshake_era() -> None:
    """A ping is answered by a separate POST while the call continues."""
    replies_from_client: asyncio.Queue[Any] = asyncio.Queue()

    async def serve(request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        if "method" not in request.message:
            replies_from_client.put_nowait(request.message)
            write_response(writer, b"", status="202 Accepted")
            return
        start_event_stream(writer)
        writer.write(
            encode_event(id="p", method="ping") + encode_event(id="s", method="sampling/createMessage", params={})
        )
        replies = [await replies_from_client.get(), await replies_from_client.get()]
        writer.write(encode_event(id=request.message["id"], result={"got": sorted(r["id"] for r in replies)}))
        writer.close()

    async def test() -> None:
        async with open_link(serve, rules=HANDSHAKE) as link:
            assert encoded_result(await send_request(link)) == b'{"got": ["p", "s"]}'

    run(test())


def test_a_ping_is_answered_while_many_notifications_wait() -> None:
    """A bug: notifications counted as answers, of which only a number is sent at the same time."""
    answered, ended = asyncio.Event(), asyncio.Event()

    async def serve(request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        if request.message.get("id") == "p1":
            answered.set()
            write_accepted(writer)
        elif "id" not in request.message:
            await ended.wait()
            write_accepted(writer)
        else:
            start_event_stream(writer)
            writer.write(encode_event(id="p1", method="ping"))
            await answered.wait()
            writer.write(encode_event(id=request.message["id"], result={}))
            writer.close()

    async def test() -> None:
        async with open_link(serve, rules=HANDSHAKE) as link:
            request = asyncio.ensure_future(send_request(link))
            await asyncio.sleep(0)  # the request begins, and does not wait for the notifications
            for _ in range(MAX_REPLIES + 1):
                link.notify("notifications/progress", t.UNSET)
            await request
            ended.set()

    run(test())


def test_cancelling_closes_the_stream_in_the_stateless_era() -> None:
    """Spec §2.7: the disconnect is the cancellation. Nothing else is sent."""

    async def test() -> None:
        request_received, disconnected = asyncio.Event(), asyncio.Event()
        posts: list[str] = []

        async def handle_connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            posts.append((await reader.readuntil(b"\r\n\r\n")).decode().split(" ")[0])
            request_received.set()
            while await reader.read(4096):
                pass
            disconnected.set()
            writer.close()

        server = await asyncio.start_server(handle_connection, "127.0.0.1", 0)
        link = HttpLink(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp", LIMITS)
        link.rules = STATELESS
        call = asyncio.ensure_future(send_request(link))
        await request_received.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await disconnected.wait()
        await link.close()
        server.close()
        assert posts == ["POST"]

    run(test())


def test_cancelling_notifies_the_server_in_the_handshake_era() -> None:
    """Spec §2.9: in this era, a disconnect does not cancel the request."""
    reported: asyncio.Queue[Any] = asyncio.Queue()

    async def serve(request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        if request.message["method"] == "notifications/cancelled":
            reported.put_nowait(request.message["params"]["requestId"])
            write_response(writer, b"", status="202 Accepted")

    async def test() -> None:
        async with open_link(serve, rules=HANDSHAKE) as link:
            with pytest.raises(
                RequestTimeout, match=r"tools/list: no answer from http://127\.0\.0\.1:\d+/mcp within 0.05 s"
            ):
                await send_request(link, timeout=0.05)
            assert await reported.get() == 1

    run(test())


class PausedAuth:
    """Asks a person for the first credentials, who needs `seconds`."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    async def headers(self, url: str) -> dict[str, str]:
        seconds, self._seconds = self._seconds, 0.0
        await asyncio.sleep(seconds)
        return {}

    async def refused(self, *_: Any) -> bool:
        return False


@pytest.mark.parametrize("sign_in", [0.0, 60.0])
@pytest.mark.parametrize("delay", [4.0, 9.0])
def test_the_wait_for_the_notification_before_counts_toward_the_timeout(delay: float, sign_in: float) -> None:
    """A bug: the response got the full timeout again. The time of a sign-in does not count."""

    async def test() -> None:
        async def serve(request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
            methods.append(request.message["method"])
            if "id" not in request.message:
                await asyncio.sleep(delay)
                write_response(writer, b"", status="202 Accepted")

        methods: list[str] = []
        async with open_link(serve, rules=HANDSHAKE, auth=PausedAuth(sign_in) if sign_in else None) as link:
            began = asyncio.get_running_loop().time()
            link.notify("notifications/initialized", t.UNSET)
            with pytest.raises(RequestTimeout, match=r"tools/list: no answer from .* within 6 s"):
                await send_request(link, timeout=6)
            assert asyncio.get_running_loop().time() - began == pytest.approx(6 + sign_in)
            assert methods == ["notifications/initialized", *(["tools/list"] if delay < 6 else [])]

    with asyncio.Runner(loop_factory=QuickLoop) as runner:
        runner.run(test())


def test_notifications_and_the_request_after_them_arrive_in_the_order_in_which_they_were_sent() -> None:
    """A bug: they were sent together, and the request waited only for the last notification."""
    seen: list[str] = []

    async def serve(request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        method = request.message["method"]
        seen.append(f"{method} arrives")
        if method == "notifications/slow":
            for _ in range(20):  # turns in which other messages could arrive
                await asyncio.sleep(0.001)
        seen.append(f"{method} is answered")
        if "id" in request.message:
            write_response(writer, encode_result(request))
        else:
            write_response(writer, b"", status="202 Accepted")

    async def test() -> None:
        async with open_link(serve) as link:
            link.notify("notifications/slow", t.UNSET)
            link.notify("notifications/quick", t.UNSET)
            await send_request(link)
        order = ["notifications/slow", "notifications/quick", "tools/list"]
        assert seen == [f"{method} {what}" for method in order for what in ("arrives", "is answered")]

    run(test())


@pytest.mark.parametrize("timeout", [None, 30.0])
def test_the_time_limit_of_a_notification_begins_when_it_is_sent(timeout: float | None) -> None:
    async def test() -> None:
        async def serve(request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
            methods.append(request.message["method"])
            if "id" in request.message:
                write_response(writer, encode_result(request))
            else:
                await asyncio.sleep(9)
                write_response(writer, b"", status="202 Accepted")

        methods: list[str] = []
        async with open_link(serve, rules=HANDSHAKE) as link:
            began = asyncio.get_running_loop().time()
            link.notify("notifications/first", t.UNSET)
            link.notify("notifications/second", t.UNSET)
            await send_request(link, timeout=timeout)
            assert asyncio.get_running_loop().time() - began == pytest.approx(18)
        assert methods == ["notifications/first", "notifications/second", "tools/list"]

    with asyncio.Runner(loop_factory=QuickLoop) as runner:
        runner.run(test())


@pytest.mark.parametrize("sign_in", [0.0, 60.0])
def test_the_wait_for_several_notifications_counts_toward_the_timeout(sign_in: float) -> None:
    async def test() -> None:
        async def serve(request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
            methods.append(request.message["method"])
            await asyncio.sleep(4)
            write_response(writer, b"", status="202 Accepted")

        methods: list[str] = []
        async with open_link(serve, rules=HANDSHAKE, auth=PausedAuth(sign_in) if sign_in else None) as link:
            began = asyncio.get_running_loop().time()
            link.notify("notifications/first", t.UNSET)
            link.notify("notifications/second", t.UNSET)
            with pytest.raises(RequestTimeout, match=r"tools/list: no answer from .* within 6 s"):
                await send_request(link, timeout=6)
            assert asyncio.get_running_loop().time() - began == pytest.approx(6 + sign_in)
            assert methods == ["notifications/first", "notifications/second"]

    with asyncio.Runner(loop_factory=QuickLoop) as runner:
        runner.run(test())


def test_closing_fails_pending_calls() -> None:
    async def never_answer(request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        request_received.set()

    request_received = asyncio.Event()

    async def test() -> None:
        async with open_link(never_answer) as link:
            calls = [asyncio.ensure_future(send_request(link)) for _ in range(3)]
            await request_received.wait()
            await link.close()
            errors = await asyncio.gather(*calls, return_exceptions=True)
            assert [type(error) for error in errors] == [ConnectionLost] * 3
            assert "closed by this client" in str(errors[0])
            with pytest.raises(ConnectionLost):
                await send_request(link)

    run(test())


def test_an_unreachable_url_is_reported() -> None:
    async def test() -> None:
        server = await asyncio.start_server(lambda r, w: None, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        server.close()
        await server.wait_closed()
        link = HttpLink(f"http://user:hunter2@127.0.0.1:{port}/mcp?key=hunter2", LIMITS)
        with pytest.raises(ConnectionFailed, match=rf"^Cannot connect to http://127\.0\.0\.1:{port}/mcp: ") as caught:
            await send_request(link)
        assert "hunter2" not in str(caught.value)
        await link.close()

    run(test())


@pytest.mark.parametrize("url", ["http://", "ftp://host/mcp", "/mcp", "http://host:99999999/mcp", "http://[::1/mcp"])
def test_an_invalid_url_is_refused(url: str) -> None:
    async def test() -> None:
        with pytest.raises(ConnectionFailed, match="is not a URL"):
            HttpLink(url, LIMITS)

    run(test())


FORBIDDEN = b'{"jsonrpc":"2.0","error":{"code":-32600,"message":"bad Host"}}'
NOT_UTF_8 = b'{"error":{"code":1,"message":"\xff"}}'


@pytest.mark.parametrize(
    ("status", "content_type", "body", "error", "message"),
    [
        ("200 OK", "text/html", b"<html>hello", NotMCP, "first bytes were b'<html>hello'"),
        ("200 OK", "application/json", b"", NotMCP, "is not MCP"),
        ("200 OK", "application/json", b'{"jsonrpc":"2.0","id":1,"res', InvalidResponse, "sent an invalid answer"),
        ("200 OK", "application/json", b'{"hello":1}', NotMCP, "first bytes were"),
        ("202 Accepted", "application/json", b"", NotMCP, "202 Accepted"),
        ("404 Not Found", "text/html", b"<html>no", NoMessage, "404 Not Found: a web page"),
        ("404 Not Found", "text/plain", b"", NoMessage, "404 Not Found."),
        ("500 Oops", "application/json", b'{"detail":"x"}', NoMessage, "500 Oops"),
        ("502 Bad Gateway", "text/plain", b"upstream\n down", NoMessage, "502 Bad Gateway: upstream down"),
        ("401 Unauthorized", "text/plain", b"token?", NotAuthorized, "401 Unauthorized: token?"),
        ("403 Forbidden", "application/json", FORBIDDEN, NotAuthorized, "bad Host"),
        ("403 Forbidden", "application/json", NOT_UTF_8, NotAuthorized, "403 Forbidden: "),
        ("403 Forbidden", "application/json", b'{"error":' + b"[" * 5_000, NotAuthorized, "403 Forbidden: "),
        ("303 See Other", "text/plain", b"", NotMCP, "303 See Other"),
    ],
)  # fmt: skip
def test_a_response_that_is_not_an_answer_is_reported(
    status: str, content_type: str, body: bytes, error: type[Exception], message: str
) -> None:
    """Security C28: the error is prompt and typed, and contains the URL and the response."""

    async def serve(request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        write_response(writer, body, content_type, status)

    async def test() -> None:
        async with open_link(serve) as link:
            with pytest.raises(error) as caught:
                await send_request(link)
            assert type(caught.value) is error
            assert message in str(caught.value)
            assert "http://127.0.0.1" in str(caught.value)

    run(test())


def test_an_error_object_is_accepted_with_any_status() -> None:
    """Spec §2.7: the body is read first. An error without an id answers the request of its POST."""

    async def serve(request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        body = b'{"jsonrpc":"2.0","id":null,"error":{"code":-32020,"message":"x"}}'
        write_response(writer, body, status="400 Bad Request")

    async def test() -> None:
        async with open_link(serve) as link:
            for message in await asyncio.gather(send_request(link), send_request(link)):
                assert json.loads(encoded_error(message))["code"] == HeaderMismatch.code

    run(test())


def test_an_error_event_without_an_id_is_not_an_answer() -> None:
    """An event may belong to any request. The body of the answer to a POST belongs to its request."""

    async def serve(request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        start_event_stream(writer)
        writer.write(encode_event(error={"code": -32603, "message": "astray"}))
        if request.message["method"] != "x/ended":
            await writer.drain()
            await asyncio.sleep(0.1)
            writer.write(encode_event(id=request.message["id"], result={"late": 1}))
        writer.close()

    async def test() -> None:
        for rules in (HANDSHAKE, STATELESS):
            async with open_link(serve, rules=rules) as link:
                assert encoded_result(await send_request(link)) == b'{"late": 1}'
                with pytest.raises(ConnectionLost, match="It sent an error: astray"):
                    await send_request(link, "x/ended")

    run(test())


def test_the_end_of_the_session_is_reported_for_each_later_request() -> None:
    """Security C30: the server answers 404 within a session."""

    async def serve(request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        if request.message["method"] == "initialize":
            write_response(writer, encode_result(request), header_lines="Mcp-Session-Id: s1\r\n")
        else:
            write_response(
                writer, b'{"jsonrpc":"2.0","error":{"code":-32600,"message":"no session"}}', status="404 Not Found"
            )

    async def test() -> None:
        lost: list[WharfingerError] = []
        async with open_link(serve, rules=HANDSHAKE) as link:
            link.events.on_lost = lambda _, error: lost.append(error)
            await send_request(link, "initialize")
            for _ in range(2):
                with pytest.raises(ConnectionLost, match="has ended the session") as caught:
                    await send_request(link)
                assert caught.value.unsent  # the request had no effect
        assert [type(error) for error in lost] == [ConnectionLost]

    run(test())


def test_a_stream_that_cannot_be_resumed_does_not_end_a_link_without_a_session() -> None:
    """A bug: a server without sessions and without GET, whose stream broke off, was taken to have ended the session."""

    async def serve(request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        if request.verb == "GET":
            write_response(writer, b"", "text/plain", "404 Not Found")
        elif request.message["method"] == "tools/call":
            start_event_stream(writer)
            writer.write(b"retry: 1\nid: e1\ndata: \n\n")
            writer.close()
        else:
            write_response(writer, encode_result(request))

    async def test() -> None:
        async with open_link(serve, rules=HANDSHAKE) as link:
            with pytest.raises(ConnectionLost, match="ended its answer to tools/call before it was complete"):
                await send_request(link, "tools/call")
            assert not link.is_lost
            await send_request(link)

    run(test())


@pytest.mark.parametrize(
    "partial_response", [b"", b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 50\r\n\r\n{"]
)
def test_a_closed_connection_is_reported(partial_response: bytes) -> None:
    """Security C29: the connection is reset before or within an answer."""

    async def serve(request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        writer.write(partial_response)
        writer.close()

    async def test() -> None:
        async with open_link(serve) as link:
            with pytest.raises(ConnectionLost, match=r"http://127\.0\.0\.1:\d+/mcp closed the connection"):
                await send_request(link)

    run(test())


def test_a_server_without_http_is_reported() -> None:
    async def serve(request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        writer.write(b"SSH-2.0-OpenSSH_9\r\n\r\n")
        writer.close()

    async def test() -> None:
        async with open_link(serve) as link:
            with pytest.raises(NotMCP):
                await send_request(link)

    run(test())


def test_a_stream_that_ends_without_an_answer_is_reported() -> None:
    async def serve(request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        start_event_stream(writer)
        writer.write(b": nothing\n\n")
        writer.close()

    async def test() -> None:
        async with open_link(serve) as link:
            with pytest.raises(ConnectionLost, match="before it was complete"):
                await send_request(link)

    run(test())


@pytest.mark.parametrize("declared", [True, False])
def test_a_body_over_the_limit_is_refused(declared: bool) -> None:
    """Security C27: the limit applies to the declared and to the received size."""
    sent = 0

    async def serve(request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        length = "Content-Length: 64000000\r\n" if declared else "Connection: close\r\n"
        writer.write(f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n{length}\r\n".encode())
        while sent < 64_000_000:
            writer.write(b" " * 100_000)
            sent += 100_000
            await writer.drain()

    async def test() -> None:
        async with open_link(serve) as link:
            with pytest.raises(InvalidResponse, match="limit of 100000 bytes"):
                await send_request(link)
        assert sent < 30_000_000

    run(test())


def test_an_endless_event_is_refused() -> None:
    """Security C26."""

    async def serve(request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        start_event_stream(writer)
        writer.write(b"data: ")
        for _ in range(1000):
            writer.write(b"x" * 10_000)
            await writer.drain()

    async def test() -> None:
        async with open_link(serve) as link:
            with pytest.raises(InvalidResponse, match="event over the limit"):
                await send_request(link)

    run(test())


def test_a_redirect_within_the_origin_is_followed_and_later_requests_use_its_target() -> None:
    paths: list[str] = []

    async def serve(request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        paths.append(request.path)
        if request.path == "/mcp":
            write_response(writer, b"", "text/plain", "307 Temporary Redirect", "Location: /mcp/\r\n")
        else:
            write_response(writer, encode_result(request))

    async def test() -> None:
        async with open_link(serve) as link:
            await send_request(link)
            await send_request(link)
        assert paths == ["/mcp", "/mcp/", "/mcp/"]

    run(test())


def test_a_redirect_to_another_origin_is_not_followed() -> None:
    """Security C25: another origin must not get the credentials."""
    requests: list[ReceivedRequest] = []

    async def record(request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        requests.append(request)
        write_response(writer, encode_result(request))

    async def test() -> None:
        async with stub_server(record) as other_origin:
            for location in (
                f"{other_origin}/mcp",
                other_origin.replace("http:", "https:"),
                "//127.0.0.1:1/x",
                "http://[",
                "",
            ):

                async def serve(request: ReceivedRequest, writer: asyncio.StreamWriter, target: str = location) -> None:
                    write_response(writer, b"", "text/plain", "307 Temporary Redirect", f"Location: {target}\r\n")

                async with open_link(serve) as link:
                    with pytest.raises(ConnectionFailed, match="redirects to another server"):
                        await send_request(link)
        assert requests == []

    run(test())


def test_a_redirect_loop_is_refused() -> None:
    async def serve(request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        write_response(writer, b"", "text/plain", "308 Permanent Redirect", "Location: /mcp\r\n")

    async def test() -> None:
        async with open_link(serve) as link:
            with pytest.raises(ConnectionFailed, match="more than 3 times"):
                await send_request(link)

    run(test())


def test_a_session_stream_receives_notifications_and_is_resumed() -> None:
    """Handshake era: the client sends a GET, with the id of the last event after a break."""
    last_event_ids: list[str | None] = []
    methods: asyncio.Queue[Any] = asyncio.Queue()

    async def serve(request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        last_event_ids.append(request.headers.get("last-event-id"))
        assert (request.verb, request.headers["accept"]) == ("GET", "text/event-stream")
        start_event_stream(writer)
        number = len(last_event_ids)
        writer.write(b"retry: 1\nid: e%d\n" % number + encode_event(method=f"notifications/x{number}"))
        await writer.drain()
        if number < 3:
            writer.close()
        else:
            await asyncio.sleep(30)

    async def test() -> None:
        async with open_link(serve, rules=HANDSHAKE) as link:
            link.events.on_notification = lambda _, message: methods.put_nowait(message.method)
            await asyncio.gather(link.open_session_stream(5), link.open_session_stream(5))
            assert [await methods.get() for _ in range(3)] == [f"notifications/x{n}" for n in (1, 2, 3)]
            assert last_event_ids == [None, "e1", "e2"]

    run(test())


def test_a_session_stream_that_ends_at_once_is_opened_again_after_growing_delays() -> None:
    """A bug: it was opened every second for ever. A stream with a message begins with the first delay again."""
    opened_at: list[float] = []
    many = asyncio.Event()

    async def serve(request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        opened_at.append(time.monotonic())
        start_event_stream(writer)
        writer.write(b"retry: 10\nid: e%d\ndata:\n\n" % len(opened_at))
        if len(opened_at) == 7:
            writer.write(encode_event(method="notifications/x"))
        await writer.drain()
        writer.close()
        if len(opened_at) == 13:
            many.set()

    async def test() -> None:
        async with open_link(serve, rules=HANDSHAKE) as link:
            await link.open_session_stream(5)
            await many.wait()

    run(test())
    assert opened_at[6] - opened_at[0] >= 0.01 * (1 + 2 + 4 + 8 + 16 + 32)


def test_a_server_without_a_session_stream_is_reported() -> None:
    async def serve(request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        write_response(writer, b"", "text/plain", "405 Method Not Allowed")

    async def test() -> None:
        async with open_link(serve, rules=HANDSHAKE) as link:
            with pytest.raises(ConnectionFailed, match=r"cannot report changes: .*GET: 405"):
                await link.open_session_stream(5)

    run(test())


def test_the_stateless_era_has_no_session_stream() -> None:
    async def test() -> None:
        async with open_link(answer_verb) as link:
            await link.open_session_stream(5)
            assert encoded_result(await send_request(link)) == b'{"verb": "POST"}'

    run(test())
