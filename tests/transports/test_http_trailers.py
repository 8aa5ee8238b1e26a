"""Trailers of a chunked body: they never become headers in any ASGI server, and use bounded memory."""

from __future__ import annotations

import asyncio
import inspect
import json
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from tests.security.server_processes import FIXTURE, MIB, HttpProcess
from tests.transports.http_support import META, RawClient, SampleService, ServerThread, UvicornThread
from wharfinger.protocol.http.rules import HttpLimits
from wharfinger.protocol.principal import Principal
from wharfinger.transports.http_server.app import HttpApp, HttpOptions

BODY = json.dumps(
    {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "resources/read",
        "params": {"uri": "test://principal", "_meta": META},
    }
).encode()
HEAD = (
    b"POST /mcp HTTP/1.1\r\nContent-Type: application/json\r\nMCP-Protocol-Version: 2026-07-28\r\n"
    b"Mcp-Method: resources/read\r\nMcp-Name: test://principal\r\n"
)
HOST = b"Host: localhost\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n"
CONTENT = b"%x\r\n%b\r\n0\r\n" % (len(BODY), BODY)
UPGRADE = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AA\r\n"
IDENTITY = b"X-Forwarded-User: admin\r\n"


def verify_forwarded_user(headers: Any) -> Principal:
    """Return the user that an authenticating proxy names in a header."""
    return Principal(subject=bytes(headers.get(b"x-forwarded-user", b"nobody")).decode())


@pytest.fixture(scope="module")
def http() -> Iterator[ServerThread]:
    with ServerThread(verify=verify_forwarded_user) as http:
        yield http


@pytest.fixture
def client(http: ServerThread) -> Iterator[RawClient]:
    with http.connect() as client:
        yield client


def send(client: RawClient, head: bytes, trailers: bytes, in_two_parts: bool) -> None:
    """Send a request in one write, or its trailers in a second one."""
    if in_two_parts:
        client.write(head + CONTENT)
    client.write(trailers if in_two_parts else head + CONTENT + trailers)


@pytest.mark.parametrize("in_two_parts", [False, True])
@pytest.mark.parametrize("upgrade", [b"", UPGRADE])
def test_a_trailer_never_becomes_a_header(client: RawClient, in_two_parts: bool, upgrade: bytes) -> None:
    for _ in range(2):  # the second request shows that the connection stays synchronized
        send(client, HEAD + HOST + CHUNKED + upgrade + b"\r\n", IDENTITY + b"\r\n", in_two_parts)
        assert client.reply().text == "nobody"


def test_a_host_in_a_trailer_is_ignored(client: RawClient) -> None:
    client.write(HEAD + CHUNKED + b"\r\n" + CONTENT + HOST + b"\r\n")
    assert client.reply().status == 400


def test_a_trailer_does_not_replace_a_header(client: RawClient) -> None:
    client.write(HEAD + HOST + CHUNKED + b"\r\n" + CONTENT + b"Host: evil.test\r\nMcp-Method: tools/call\r\n\r\n")
    assert client.reply().text == "nobody"


@pytest.mark.parametrize("count", [100, 101])
def test_trailers_are_bounded_in_number(client: RawClient, count: int) -> None:
    client.write(HEAD + HOST + CHUNKED + b"\r\n" + CONTENT + b"A: b\r\n" * count + b"\r\n")
    reply = client.reply()
    assert reply.status == (200 if count == 100 else 431)
    if count > 100:
        assert "trailers" in reply.json["error"]["message"]
        assert client.is_closed_by_server()


@pytest.mark.parametrize(
    ("endless_data", "path"),
    [
        (b"A: %b\r\n" % (b"b" * 1000), b"/healthz"),
        (b"A: b\r\n", b"/mcp"),
        (b"a" * 1000, b"/mcp"),
        (b"0;" + b"x" * 1000, b"/mcp"),
    ],
    ids=["long", "short", "one", "extension"],
)
def test_endless_trailers_close_the_connection(http: ServerThread, endless_data: bytes, path: bytes) -> None:
    with http.connect() as client:
        client.write(HEAD.replace(b"/mcp", path) + HOST + CHUNKED + b"\r\n" + CONTENT)
        flood(client, endless_data * 100)


def flood(client: RawClient, data: bytes) -> None:
    """Send until the server closes the connection."""
    deadline = time.monotonic() + 40
    with pytest.raises(OSError):  # a reset, or a broken pipe
        while time.monotonic() < deadline:
            client.write(data)
            time.sleep(0.001)  # lets the server run, which is a thread of this process


@pytest.mark.parametrize("size", [31 * 1024, 600 * 1024])
def test_extensions_of_a_chunk_are_bounded(client: RawClient, size: int) -> None:
    """The extension is sent after the head, since bytes that arrive with the head do not count."""
    client.write(HEAD + HOST + CHUNKED + b"\r\n%x;" % len(BODY))
    with suppress(OSError):  # the server may close before all is sent
        for _ in range(size // 1024):
            client.write(b"x" * 1024)
        client.write(b"\r\n" + CONTENT.partition(b"\r\n")[2] + b"\r\n")
    assert client.reply().status == (200 if size < 32 * 1024 else 431)


def test_a_body_of_many_tiny_chunks_is_served(client: RawClient) -> None:
    spaces = b" " * 100_000
    body = b"".join(b"1\r\n%c\r\n" % byte for byte in spaces + BODY)
    client.write(HEAD + HOST + CHUNKED + b"\r\n" + body + b"0\r\n\r\n")
    assert client.reply().text == "nobody"


def test_requests_that_offer_an_upgrade_are_pipelined_like_others(client: RawClient) -> None:
    for framing in (CHUNKED + b"\r\n" + CONTENT + b"\r\n", b"Content-Length: %d\r\n\r\n%b" % (len(BODY), BODY)):
        client.write((HEAD + HOST + UPGRADE + framing) * 3)
        assert [client.reply().text for _ in range(3)] == ["nobody"] * 3


def test_an_upgrade_does_not_hide_the_length_of_the_body(client: RawClient) -> None:
    """Two parsers of such a request could find its end at different positions."""
    client.write(HEAD + HOST + UPGRADE + b"Transfer-Encoding: gzip\r\n\r\n" + CONTENT + b"\r\n")
    assert client.reply().status == 400


def test_trailers_of_any_length_use_bounded_memory() -> None:
    with HttpProcess("run", FIXTURE) as server:
        with server.connect() as client:
            assert client.fetch("GET", "/healthz").status == 200
        rss_before = server.rss
        server.reset_peak()
        for path in (b"/healthz", b"/mcp"):
            with server.connect() as client:
                client.write(HEAD.replace(b"/mcp", path) + HOST + CHUNKED + b"\r\n0\r\n")
                flood(client, b"X-Filler: %b\r\n" % (b"x" * 52) * (MIB // 64))
        assert server.peak - rss_before < 16 * MIB
        with server.connect() as client:
            assert client.fetch("GET", "/healthz").status == 200


# --- in another server


@pytest.mark.parametrize("http", ["httptools", "h11"])
@pytest.mark.parametrize("path", [b"/mcp", b"/healthz", b"/sse"])
def test_a_chunked_body_is_refused_in_another_server(http: str, path: bytes) -> None:
    app = HttpApp(SampleService(), verify=verify_forwarded_user)
    with UvicornThread(app, http=http) as server, server.connect() as client:
        client.write(HEAD.replace(b"/mcp", path) + HOST + CHUNKED + b"\r\n" + CONTENT + IDENTITY + b"\r\n")
        reply = client.reply()
        assert (reply.status, reply.error) == (411, -32600)
        assert "separates_trailers=True" in reply.json["error"]["message"]
        assert client.is_closed_by_server()
        with server.connect() as other:
            other.write(HEAD + HOST + b"Content-Length: %d\r\n\r\n%b" % (len(BODY), BODY))
            assert other.reply().text == "nobody"


def test_separates_trailers_allows_chunked_bodies_in_another_server() -> None:
    """h11 separates them. With httptools the declaration would be false."""
    app = HttpApp(SampleService(), verify=verify_forwarded_user, separates_trailers=True)
    with UvicornThread(app, http="h11") as server, server.connect() as client:
        client.write(HEAD + HOST + CHUNKED + b"\r\n" + CONTENT + IDENTITY + b"\r\n")
        assert client.reply().text == "nobody"


def test_headers_are_copied_when_the_request_arrives() -> None:
    """A server may add to its list of headers while the body is read."""
    received: list[Any] = []

    class RecordingService(SampleService):
        async def read(self, request: Any) -> Any:
            received.append(dict(request.headers))
            return await super().read(request)

    async def run() -> None:
        headers = [(b"host", b"localhost")]
        headers += [
            (name.lower(), value)
            for name, _, value in (line.partition(b": ") for line in HEAD.splitlines()[1:] if line)
        ]

        async def receive() -> Any:
            headers.append((b"x-forwarded-user", b"admin"))
            return {"type": "http.request", "body": BODY, "more_body": False}

        async def send(_: Any) -> None:
            pass

        scope = {"type": "http", "method": "POST", "path": "/mcp", "headers": headers}
        await HttpApp(RecordingService())(scope, receive, send)

    asyncio.run(run())
    assert len(received) == 1
    assert b"x-forwarded-user" not in received[0]


def test_the_asgi_function_has_the_options_of_the_application() -> None:
    parameters = inspect.signature(HttpApp).parameters
    assert set(HttpOptions.__annotations__) == set(parameters) - {"service", "auth"}


def test_the_number_of_trailers_is_configurable() -> None:
    with (
        ServerThread(verify=verify_forwarded_user, limits=HttpLimits(header_count=10)) as http,
        http.connect() as client,
    ):
        client.write(HEAD + HOST + CHUNKED + b"\r\n" + CONTENT + b"A: b\r\n" * 11 + b"\r\n")
        assert client.reply().status == 431
