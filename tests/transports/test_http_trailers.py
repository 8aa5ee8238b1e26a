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

from tests.security.places import FIXTURE, MIB, Http
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


def name_user(headers: Any) -> Principal:
    """Verify as a server behind a proxy that authenticates users: by the user's name in a header."""
    return Principal(subject=bytes(headers.get(b"x-forwarded-user", b"nobody")).decode())


@pytest.fixture(scope="module")
def http() -> Iterator[ServerThread]:
    with ServerThread(verify=name_user) as http:
        yield http


@pytest.fixture
def wire(http: ServerThread) -> Iterator[RawClient]:
    with http.wire() as wire:
        yield wire


def send(wire: RawClient, head: bytes, rest: bytes, apart: bool) -> None:
    """Send a request in one write, or its trailers after the rest has been read."""
    if apart:
        wire.write(head + CONTENT)
    wire.write(rest if apart else head + CONTENT + rest)


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("upgrade", [b"", UPGRADE])
def test_a_trailer_never_becomes_a_header(wire: RawClient, apart: bool, upgrade: bytes) -> None:
    for _ in range(2):  # the connection stays synchronized
        send(wire, HEAD + HOST + CHUNKED + upgrade + b"\r\n", IDENTITY + b"\r\n", apart)
        assert wire.reply().text == "nobody"


def test_a_host_in_a_trailer_is_ignored(wire: RawClient) -> None:
    wire.write(HEAD + CHUNKED + b"\r\n" + CONTENT + HOST + b"\r\n")
    assert wire.reply().status == 400


def test_a_trailer_does_not_repeat_a_header(wire: RawClient) -> None:
    wire.write(HEAD + HOST + CHUNKED + b"\r\n" + CONTENT + b"Host: evil.test\r\nMcp-Method: tools/call\r\n\r\n")
    assert wire.reply().text == "nobody"


@pytest.mark.parametrize("count", [100, 101])
def test_trailers_are_bounded_in_number(wire: RawClient, count: int) -> None:
    wire.write(HEAD + HOST + CHUNKED + b"\r\n" + CONTENT + b"A: b\r\n" * count + b"\r\n")
    reply = wire.reply()
    assert reply.status == (200 if count == 100 else 431)
    if count > 100:
        assert "trailers" in reply.json["error"]["message"]
        assert wire.closed()


@pytest.mark.parametrize(
    ("endless", "path"),
    [
        (b"A: %b\r\n" % (b"b" * 1000), b"/healthz"),
        (b"A: b\r\n", b"/mcp"),
        (b"a" * 1000, b"/mcp"),
        (b"0;" + b"x" * 1000, b"/mcp"),
    ],
    ids=["long", "short", "one", "extension"],
)
def test_endless_trailers_close_the_connection(http: ServerThread, endless: bytes, path: bytes) -> None:
    with http.wire() as wire:
        wire.write(HEAD.replace(b"/mcp", path) + HOST + CHUNKED + b"\r\n" + CONTENT)
        flood(wire, endless * 100)


def flood(wire: RawClient, data: bytes) -> None:
    """Send until the server closes the connection, after the client had time to read the reason."""
    end = time.monotonic() + 10
    with pytest.raises(OSError):  # a reset, or a broken pipe
        while time.monotonic() < end:
            wire.write(data)
            time.sleep(0.001)  # leaves time to the loop in this process


@pytest.mark.parametrize("size", [31 * 1024, 600 * 1024])
def test_extensions_of_a_chunk_are_bounded(wire: RawClient, size: int) -> None:
    """The request is sent in parts, since bytes that arrive with the head do not count."""
    wire.write(HEAD + HOST + CHUNKED + b"\r\n%x;" % len(BODY))
    with suppress(OSError):  # the server may close before all is sent
        for _ in range(size // 1024):
            wire.write(b"x" * 1024)
        wire.write(b"\r\n" + CONTENT.partition(b"\r\n")[2] + b"\r\n")
    assert wire.reply().status == (200 if size < 32 * 1024 else 431)


def test_a_body_of_many_tiny_chunks_is_served(wire: RawClient) -> None:
    spaces = b" " * 100_000
    body = b"".join(b"1\r\n%c\r\n" % byte for byte in spaces + BODY)
    wire.write(HEAD + HOST + CHUNKED + b"\r\n" + body + b"0\r\n\r\n")
    assert wire.reply().text == "nobody"


def test_requests_that_offer_an_upgrade_are_pipelined_like_others(wire: RawClient) -> None:
    for framing in (CHUNKED + b"\r\n" + CONTENT + b"\r\n", b"Content-Length: %d\r\n\r\n%b" % (len(BODY), BODY)):
        wire.write((HEAD + HOST + UPGRADE + framing) * 3)
        assert [wire.reply().text for _ in range(3)] == ["nobody"] * 3


def test_an_upgrade_does_not_hide_the_length_of_the_body(wire: RawClient) -> None:
    """Two parsers of such a request could find its end at different positions."""
    wire.write(HEAD + HOST + UPGRADE + b"Transfer-Encoding: gzip\r\n\r\n" + CONTENT + b"\r\n")
    assert wire.reply().status == 400


def test_trailers_of_76_mib_are_not_kept() -> None:
    with Http("run", FIXTURE) as server:
        with server.wire() as wire:
            assert wire.ask("GET", "/healthz").status == 200
        before = server.rss
        server.forget_peak()
        for path in (b"/healthz", b"/mcp"):
            with server.wire() as wire:
                wire.write(HEAD.replace(b"/mcp", path) + HOST + CHUNKED + b"\r\n0\r\n")
                flood(wire, b"X-Filler: %b\r\n" % (b"x" * 52) * (MIB // 64))
        assert server.peak - before < 16 * MIB
        with server.wire() as wire:
            assert wire.ask("GET", "/healthz").status == 200


# --- in another server


@pytest.mark.parametrize("http", ["httptools", "h11"])
@pytest.mark.parametrize("path", [b"/mcp", b"/healthz", b"/sse"])
def test_a_chunked_body_is_refused_in_another_server(http: str, path: bytes) -> None:
    app = HttpApp(SampleService(), verify=name_user)
    with UvicornThread(app, http=http) as server, server.wire() as wire:
        wire.write(HEAD.replace(b"/mcp", path) + HOST + CHUNKED + b"\r\n" + CONTENT + IDENTITY + b"\r\n")
        reply = wire.reply()
        assert (reply.status, reply.error) == (411, -32600)
        assert "separates_trailers=True" in reply.json["error"]["message"]
        assert wire.closed()
        with server.wire() as other:
            other.write(HEAD + HOST + b"Content-Length: %d\r\n\r\n%b" % (len(BODY), BODY))
            assert other.reply().text == "nobody"


def test_a_server_that_separates_trailers_may_declare_it() -> None:
    """h11 separates them. With httptools the declaration would be false."""
    app = HttpApp(SampleService(), verify=name_user, separates_trailers=True)
    with UvicornThread(app, http="h11") as server, server.wire() as wire:
        wire.write(HEAD + HOST + CHUNKED + b"\r\n" + CONTENT + IDENTITY + b"\r\n")
        assert wire.reply().text == "nobody"


def test_headers_are_copied_when_the_request_arrives() -> None:
    """A server may add to its list of headers while the body is read."""
    seen: list[Any] = []

    class Looking(SampleService):
        async def read(self, request: Any) -> Any:
            seen.append(dict(request.headers))
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

        async def answer(_: Any) -> None:
            pass

        scope = {"type": "http", "method": "POST", "path": "/mcp", "headers": headers}
        await HttpApp(Looking())(scope, receive, answer)

    asyncio.run(run())
    assert len(seen) == 1
    assert b"x-forwarded-user" not in seen[0]


def test_the_asgi_function_has_the_options_of_the_application() -> None:
    parameters = inspect.signature(HttpApp).parameters
    assert set(HttpOptions.__annotations__) == set(parameters) - {"service", "auth"}


def test_the_bounds_are_configurable() -> None:
    with ServerThread(verify=name_user, limits=HttpLimits(header_count=10)) as http, http.wire() as wire:
        wire.write(HEAD + HOST + CHUNKED + b"\r\n" + CONTENT + b"A: b\r\n" * 11 + b"\r\n")
        assert wire.reply().status == 431
