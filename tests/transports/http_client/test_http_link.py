"""A link to a URL, with hand-written HTTP servers that behave well or badly (security: C25-C30)."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from tests.transports.client_servers import (
    HANDSHAKE,
    LIMITS,
    STATELESS,
    ReceivedRequest,
    answer,
    ask,
    event,
    linked,
    result,
    run,
    serving,
    stream,
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
from wharfinger.transports.http_client.http_link import HttpLink, NoMessage


async def ok(request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
    answer(writer, result(request, verb=request.verb))


def got(message: Message) -> bytes:
    """Return the encoded result of an answer."""
    assert isinstance(message.result, Raw)
    return bytes(message.result)


def refused(message: Message) -> bytes:
    """Return the encoded error of an answer."""
    assert isinstance(message.error, Raw)
    return bytes(message.error)


def test_a_stateless_request_repeats_its_routing_in_headers() -> None:
    """2026-07-28, Streamable HTTP, standard headers. Values that are not valid in a header are sent in base64."""
    seen: list[ReceivedRequest] = []

    async def serve(request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        seen.append(request)
        answer(writer, result(request))

    async def test() -> None:
        async with linked(serve) as link:
            await link.request("resources/read", t.ReadResourceRequestParams(uri="file:///a b%20c"), timeout=9)
            await link.request("resources/read", t.ReadResourceRequestParams(uri="file:///é"), timeout=9)
        wanted = [
            {"mcp-method": "resources/read", "mcp-name": "file:///a b%20c", "mcp-protocol-version": "2026-07-28"},
            {
                "mcp-method": "resources/read",
                "mcp-name": "=?base64?ZmlsZTovLy/DqQ==?=",
                "mcp-protocol-version": "2026-07-28",
            },
        ]
        assert [{name: a.headers[name] for name in a.headers if name.startswith("mcp-")} for a in seen] == wanted
        assert seen[0].headers["accept"] == "application/json, text/event-stream"
        assert seen[0].headers["content-type"] == "application/json"
        assert seen[0].message["id"] != seen[1].message["id"]

    run(test())


def test_annotated_arguments_are_repeated_in_headers() -> None:
    """2026-07-28, x-mcp-header."""
    seen: list[dict[str, str]] = []

    async def serve(request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        seen.append(request.headers)
        answer(writer, result(request))

    async def test() -> None:
        schema = {"type": "object", "properties": {"quay": {"type": "integer", "x-mcp-header": "Quay"}}}
        async with linked(serve) as link:
            link.header_params = {"berth": find_header_params(schema)}
            for arguments in (b'{"quay":7}', b'{"quay":null}'):
                params = t.CallToolRequestParams(name="berth", arguments=msgspec.Raw(arguments))
                await link.request("tools/call", params, timeout=9)
        assert [headers.get("mcp-param-quay") for headers in seen] == ["7", None]

    run(test())


def test_a_session_is_kept_and_ended() -> None:
    """Handshake era: each request has the session id and version, and notifications/initialized is sent first."""
    seen: list[tuple[Any, ...]] = []

    async def serve(request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        method = request.message["method"] if request.body else ""
        seen.append(
            (request.verb, method, request.headers.get("mcp-session-id"), request.headers.get("mcp-protocol-version"))
        )
        if request.verb == "DELETE" or method.startswith("notifications/"):
            answer(writer, b"", status="202 Accepted")
        else:
            answer(writer, result(request), more="Mcp-Session-Id: s1\r\n" if method == "initialize" else "")

    async def test() -> None:
        async with linked(serve, rules=None) as link:
            await ask(link, "initialize")
            link.rules = HANDSHAKE
            link.notify("notifications/initialized", t.UNSET)
            await ask(link)
        assert seen == [
            ("POST", "initialize", None, None),
            ("POST", "notifications/initialized", "s1", "2025-11-25"),
            ("POST", "tools/list", "s1", "2025-11-25"),
            ("DELETE", "", "s1", "2025-11-25"),
        ]

    run(test())


@pytest.mark.parametrize("more", ["Mcp-Session-Id: a\u00e9b\r\n", "Mcp-Session-Id:\r\n", "Content-Encoding: gzip\r\n"])
def test_an_unusable_answer_is_refused(more: str) -> None:
    """The session id is not valid in a header, or the body is compressed."""

    async def serve(request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        answer(writer, result(request), more=more)

    async def test() -> None:
        async with linked(serve, rules=None) as link:
            with pytest.raises(InvalidResponse):
                await ask(link, "initialize")

    run(test())


def test_an_answer_may_be_sent_as_an_event() -> None:
    """A priming event, comments, other events, progress and an answer to another request come before the answer."""

    async def serve(request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        stream(writer)
        writer.write(b"id: 1\ndata:\n\n: comment\n\nevent: endpoint\ndata: /x\n\n")
        token = request.message["params"]["_meta"]["progressToken"]
        writer.write(event(method="notifications/progress", params={"progressToken": token, "progress": 1}))
        writer.write(event(id=999, result={"wrong": 1}))
        writer.write(event(id=request.message["id"], result={"right": 1}))
        writer.close()

    async def test() -> None:
        reported: list[Any] = []
        async with linked(serve) as link:
            params = t.PaginatedRequestParams()
            message = await link.request(
                "tools/list", params, timeout=9, on_notification=lambda m: reported.append(m.method)
            )
        assert got(message) == b'{"right": 1}'
        assert reported == ["notifications/progress"]

    run(test())


def test_a_server_may_send_requests_on_a_stream_of_the_handshake_era() -> None:
    """A ping is answered by a separate POST while the call continues."""
    replied: asyncio.Queue[Any] = asyncio.Queue()

    async def serve(request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        if "method" not in request.message:
            replied.put_nowait(request.message)
            answer(writer, b"", status="202 Accepted")
            return
        stream(writer)
        writer.write(event(id="p", method="ping") + event(id="s", method="sampling/createMessage", params={}))
        replies = [await replied.get(), await replied.get()]
        writer.write(event(id=request.message["id"], result={"got": sorted(r["id"] for r in replies)}))
        writer.close()

    async def test() -> None:
        async with linked(serve, rules=HANDSHAKE) as link:
            assert got(await ask(link)) == b'{"got": ["p", "s"]}'

    run(test())


def test_cancelling_closes_the_stream_in_the_stateless_era() -> None:
    """Spec §2.7: the disconnect is the cancellation. Nothing else is sent."""

    async def test() -> None:
        asked_once, gone = asyncio.Event(), asyncio.Event()
        posts: list[str] = []

        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            posts.append((await reader.readuntil(b"\r\n\r\n")).decode().split(" ")[0])
            asked_once.set()
            while await reader.read(4096):
                pass
            gone.set()
            writer.close()

        server = await asyncio.start_server(connected, "127.0.0.1", 0)
        link = HttpLink(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp", LIMITS)
        link.rules = STATELESS
        call = asyncio.ensure_future(ask(link))
        await asked_once.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await gone.wait()
        await link.close()
        server.close()
        assert posts == ["POST"]

    run(test())


def test_cancelling_notifies_the_server_in_the_handshake_era() -> None:
    """Spec §2.9: a disconnect has no meaning there."""
    reported: asyncio.Queue[Any] = asyncio.Queue()

    async def serve(request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        if request.message["method"] == "notifications/cancelled":
            reported.put_nowait(request.message["params"]["requestId"])
            answer(writer, b"", status="202 Accepted")

    async def test() -> None:
        async with linked(serve, rules=HANDSHAKE) as link:
            with pytest.raises(
                RequestTimeout, match=r"tools/list: no answer from http://127\.0\.0\.1:\d+/mcp within 0.05 s"
            ):
                await ask(link, timeout=0.05)
            assert await reported.get() == 1

    run(test())


def test_closing_fails_pending_calls() -> None:
    async def silent(request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        arrived.set()

    arrived = asyncio.Event()

    async def test() -> None:
        async with linked(silent) as link:
            calls = [asyncio.ensure_future(ask(link)) for _ in range(3)]
            await arrived.wait()
            await link.close()
            errors = await asyncio.gather(*calls, return_exceptions=True)
            assert [type(error) for error in errors] == [ConnectionLost] * 3
            assert "closed by this client" in str(errors[0])
            with pytest.raises(ConnectionLost):
                await ask(link)

    run(test())


def refusing(port: int) -> str:
    return rf"^Cannot connect to http://127\.0\.0\.1:{port}/mcp: "


def test_an_unreachable_url_is_reported() -> None:
    async def test() -> None:
        server = await asyncio.start_server(lambda r, w: None, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        server.close()
        await server.wait_closed()
        link = HttpLink(f"http://user:hunter2@127.0.0.1:{port}/mcp?key=hunter2", LIMITS)
        with pytest.raises(ConnectionFailed, match=refusing(port)) as caught:
            await ask(link)
        assert "hunter2" not in str(caught.value)
        await link.close()

    run(test())


@pytest.mark.parametrize("url", ["http://", "ftp://host/mcp", "/mcp", "http://host:99999999/mcp", "http://[::1/mcp"])
def test_an_invalid_url_is_reported_at_once(url: str) -> None:
    async def test() -> None:
        with pytest.raises(ConnectionFailed, match="is not a URL"):
            HttpLink(url, LIMITS)

    run(test())


FORBIDDEN = b'{"jsonrpc":"2.0","error":{"code":-32600,"message":"bad Host"}}'


@pytest.mark.parametrize(
    ("status", "kind", "body", "error", "words"),
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
        ("303 See Other", "text/plain", b"", NotMCP, "303 See Other"),
    ],
)  # fmt: skip
def test_a_response_that_is_not_an_answer_is_reported(
    status: str, kind: str, body: bytes, error: type[Exception], words: str
) -> None:
    """Security C28: the error is prompt and typed, and contains the URL and the response."""

    async def serve(request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        answer(writer, body, kind, status)

    async def test() -> None:
        async with linked(serve) as link:
            with pytest.raises(error) as caught:
                await ask(link)
            assert type(caught.value) is error
            assert words in str(caught.value)
            assert "http://127.0.0.1" in str(caught.value)

    run(test())


def test_an_error_object_is_used_with_any_status() -> None:
    """Spec §2.7: the body is read first. An error without an id answers the request of its POST."""

    async def serve(request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        body = b'{"jsonrpc":"2.0","id":null,"error":{"code":-32020,"message":"x"}}'
        answer(writer, body, status="400 Bad Request")

    async def test() -> None:
        async with linked(serve) as link:
            for message in await asyncio.gather(ask(link), ask(link)):
                assert json.loads(refused(message))["code"] == HeaderMismatch.code

    run(test())


def test_an_error_event_without_an_id_is_not_an_answer() -> None:
    """An event may belong to any request. The body of a POST belongs to its request."""

    async def serve(request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        stream(writer)
        writer.write(event(error={"code": -32603, "message": "astray"}))
        if request.message["method"] != "x/ended":
            await writer.drain()
            await asyncio.sleep(0.1)
            writer.write(event(id=request.message["id"], result={"late": 1}))
        writer.close()

    async def test() -> None:
        for rules in (HANDSHAKE, STATELESS):
            async with linked(serve, rules=rules) as link:
                assert got(await ask(link)) == b'{"late": 1}'
                with pytest.raises(ConnectionLost, match="It sent an error: astray"):
                    await ask(link, "x/ended")

    run(test())


def test_the_end_of_the_session_is_reported_for_each_later_request() -> None:
    """Security C30: the server answers 404 within a session."""

    async def serve(request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        if request.message["method"] == "initialize":
            answer(writer, result(request), more="Mcp-Session-Id: s1\r\n")
        else:
            answer(writer, b'{"jsonrpc":"2.0","error":{"code":-32600,"message":"no session"}}', status="404 Not Found")

    async def test() -> None:
        lost: list[WharfingerError] = []
        async with linked(serve, rules=HANDSHAKE) as link:
            link.events.on_lost = lambda _, error: lost.append(error)
            await ask(link, "initialize")
            for _ in range(2):
                with pytest.raises(ConnectionLost, match="has ended the session") as caught:
                    await ask(link)
                assert caught.value.unsent  # the request had no effect
        assert [type(error) for error in lost] == [ConnectionLost]

    run(test())


@pytest.mark.parametrize(
    "part", [b"", b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 50\r\n\r\n{"]
)
def test_a_broken_connection_is_reported_at_once(part: bytes) -> None:
    """Security C29: the connection is reset before or within an answer."""

    async def serve(request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        writer.write(part)
        writer.close()

    async def test() -> None:
        async with linked(serve) as link:
            with pytest.raises(ConnectionLost, match=r"http://127\.0\.0\.1:\d+/mcp closed the connection"):
                await ask(link)

    run(test())


def test_a_server_without_http_is_reported() -> None:
    async def serve(request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        writer.write(b"SSH-2.0-OpenSSH_9\r\n\r\n")
        writer.close()

    async def test() -> None:
        async with linked(serve) as link:
            with pytest.raises(NotMCP):
                await ask(link)

    run(test())


def test_a_stream_that_ends_without_an_answer_is_reported() -> None:
    async def serve(request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        stream(writer)
        writer.write(b": nothing\n\n")
        writer.close()

    async def test() -> None:
        async with linked(serve) as link:
            with pytest.raises(ConnectionLost, match="before it was complete"):
                await ask(link)

    run(test())


@pytest.mark.parametrize("declared", [True, False])
def test_a_body_over_the_limit_is_refused(declared: bool) -> None:
    """Security C27: the size is declared or counted."""
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
        async with linked(serve) as link:
            with pytest.raises(InvalidResponse, match="limit of 100000 bytes"):
                await ask(link)
        assert sent < 30_000_000

    run(test())


def test_an_endless_event_is_refused() -> None:
    """Security C26."""

    async def serve(request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        stream(writer)
        writer.write(b"data: ")
        for _ in range(1000):
            writer.write(b"x" * 10_000)
            await writer.drain()

    async def test() -> None:
        async with linked(serve) as link:
            with pytest.raises(InvalidResponse, match="event over the limit"):
                await ask(link)

    run(test())


def test_a_redirect_within_the_origin_is_followed_and_remembered() -> None:
    paths: list[str] = []

    async def serve(request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        paths.append(request.path)
        if request.path == "/mcp":
            answer(writer, b"", "text/plain", "307 Temporary Redirect", "Location: /mcp/\r\n")
        else:
            answer(writer, result(request))

    async def test() -> None:
        async with linked(serve) as link:
            await ask(link)
            await ask(link)
        assert paths == ["/mcp", "/mcp/", "/mcp/"]

    run(test())


def test_a_redirect_to_another_origin_is_not_followed() -> None:
    """Security C25: another origin must not get the credentials."""
    reached: list[ReceivedRequest] = []

    async def other(request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        reached.append(request)
        answer(writer, result(request))

    async def test() -> None:
        async with serving(other) as elsewhere:
            for location in (
                f"{elsewhere}/mcp",
                elsewhere.replace("http:", "https:"),
                "//127.0.0.1:1/x",
                "http://[",
                "",
            ):

                async def serve(request: ReceivedRequest, writer: asyncio.StreamWriter, to: str = location) -> None:
                    answer(writer, b"", "text/plain", "307 Temporary Redirect", f"Location: {to}\r\n")

                async with linked(serve) as link:
                    with pytest.raises(ConnectionFailed, match="redirects to another server"):
                        await ask(link)
        assert reached == []

    run(test())


def test_circular_redirects_are_refused() -> None:
    async def serve(request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        answer(writer, b"", "text/plain", "308 Permanent Redirect", "Location: /mcp\r\n")

    async def test() -> None:
        async with linked(serve) as link:
            with pytest.raises(ConnectionFailed, match="more than 3 times"):
                await ask(link)

    run(test())


def test_a_session_stream_reports_notifications_and_is_reopened() -> None:
    """Handshake era: the client sends a GET, with the id of the last event after a break."""
    seen: list[str | None] = []
    got: asyncio.Queue[Any] = asyncio.Queue()

    async def serve(request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        seen.append(request.headers.get("last-event-id"))
        assert (request.verb, request.headers["accept"]) == ("GET", "text/event-stream")
        stream(writer)
        number = len(seen)
        writer.write(b"retry: 1\nid: e%d\n" % number + event(method=f"notifications/x{number}"))
        await writer.drain()
        if number < 3:
            writer.close()
        else:
            await asyncio.sleep(30)

    async def test() -> None:
        async with linked(serve, rules=HANDSHAKE) as link:
            link.events.on_notification = lambda _, message: got.put_nowait(message.method)
            await asyncio.gather(link.open_session_stream(5), link.open_session_stream(5))
            assert [await got.get() for _ in range(3)] == [f"notifications/x{n}" for n in (1, 2, 3)]
            assert seen == [None, "e1", "e2"]

    run(test())


def test_a_server_without_a_session_stream_is_reported() -> None:
    async def serve(request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        answer(writer, b"", "text/plain", "405 Method Not Allowed")

    async def test() -> None:
        async with linked(serve, rules=HANDSHAKE) as link:
            with pytest.raises(ConnectionFailed, match=r"cannot report changes: .*GET: 405"):
                await link.open_session_stream(5)

    run(test())


def test_the_stateless_era_has_no_session_stream() -> None:
    async def test() -> None:
        async with linked(ok) as link:
            await link.open_session_stream(5)
            assert got(await ask(link)) == b'{"verb": "POST"}'

    run(test())
