"""The server's cost grows no faster than hostile HTTP, at 1, 10 and 100 times its size."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from tests.security.growth.measuring import Cost, check_growth, cost_of
from tests.security.server_processes import INITIALIZE_PARAMS, MIB, HttpProcess, handshake_request
from tests.transports.http_support import META, STATELESS, RawClient

SERVER = str(Path(__file__).with_name("server.py"))
PATIENCE_SECONDS = 40.0
BODY = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "server/discover", "params": {"_meta": META}}).encode()
CHUNK = b"%x\r\n%b\r\n" % (len(BODY), BODY)


def post(*headers: bytes, body: bytes = BODY, path: bytes = b"/mcp", framing: bytes = b"") -> bytes:
    """Return a POST with further headers, as bytes."""
    return b"\r\n".join(
        [
            b"POST %b HTTP/1.1" % path,
            b"Host: 127.0.0.1",
            b"Content-Type: application/json",
            b"Accept: application/json, text/event-stream",
            b"MCP-Protocol-Version: " + STATELESS.encode(),
            b"Mcp-Method: server/discover",
            framing or b"Content-Length: %d" % len(body),
            *headers,
            b"",
            body,
        ]
    )


def chunked(body: bytes) -> bytes:
    return post(body=body, framing=b"Transfer-Encoding: chunked")


# The limit of a head is 32 KiB: 10 times the smallest size is below it, and 100 times is above it.
KINDS: dict[str, tuple[int, Callable[[int], bytes]]] = {
    "characters of a header": (2_500, lambda n: post(b"X-Long: " + b"x" * n)),
    "headers": (9, lambda n: post(*[b"X-%d: 1" % i for i in range(n)])),
    "headers of one name": (9, lambda n: post(*[b"X-Forwarded-For: 1"] * n)),
    "characters of a header's name": (2_500, lambda n: post(b"X" * n + b": 1")),
    "a header's value, folded": (1_000, lambda n: post(b"X-Long: 1" + b"\r\n 1" * n)),
    "spaces before a header's value": (2_500, lambda n: post(b"X-Long:" + b" " * n + b"x")),
    "types to accept": (600, lambda n: post(b"Accept: " + b"a/b," * n)),
    "parameters of a type to accept": (600, lambda n: post(b"Accept: a/b" + b";q=1" * n)),
    "parameters of a content type": (600, lambda n: post(b"Content-Type: application/json" + b";a=b" * n)),
    "quotes of a content type": (2_500, lambda n: post(b'Content-Type: application/json;a="' + b'\\"' * (n // 2))),
    "characters of a name in base64": (
        1_500,
        lambda n: post(b"Mcp-Name: =?base64?" + base64.b64encode(b"x" * n) + b"?="),
    ),
    "characters of an event id": (2_500, lambda n: post(b"Last-Event-ID: " + b"1" * n)),
    "characters of a session id": (2_500, lambda n: post(b"Mcp-Session-Id: " + b"1" * n)),
    "characters of a version": (2_500, lambda n: post(b"MCP-Protocol-Version: " + b"1" * n)),
    "cookies": (600, lambda n: post(b"Cookie: " + b"a=b;" * n)),
    "tokens": (600, lambda n: post(b"Authorization: Bearer " + b"a.b." * n)),
    "characters of an origin": (2_500, lambda n: post(b"Origin: http://" + b"a." * (n // 2))),
    "characters of a host": (2_500, lambda n: post(b"Host: " + b"a." * (n // 2))),
    "digits of a length": (2_500, lambda n: post(framing=b"Content-Length: " + b"1" * n)),
    "codings of a body": (600, lambda n: post(framing=b"Transfer-Encoding: " + b"gzip, " * n + b"chunked")),
    "members of a query": (600, lambda n: post(path=b"/mcp?" + b"a=1&" * n)),
    "escapes of a path": (800, lambda n: post(path=b"/" + b"%2F" * n)),
    "segments of a path": (800, lambda n: post(path=b"/.." * n)),
    "line ends before a request": (2_500, lambda n: b"\r\n" * n + post()),
    "chunks of one byte": (
        2_000,
        lambda n: chunked(b"".join(b"1\r\n%c\r\n" % byte for byte in BODY) + b"1\r\n \r\n" * n + b"0\r\n\r\n"),
    ),
    "characters of a chunk's extension": (20_000, lambda n: chunked(b"1;a=%b\r\n{\r\n0\r\n\r\n" % (b"x" * n))),
    "extensions of chunks": (1_000, lambda n: chunked((b"1;%b\r\n \r\n" % (b"x" * 1000)) * n + CHUNK + b"0\r\n\r\n")),
    "digits of a chunk's length": (20_000, lambda n: chunked(b"0" * n + b"1\r\n{\r\n0\r\n\r\n")),
    "trailers": (5_000, lambda n: chunked(CHUNK + b"0\r\n" + b"X-Trailer: 1\r\n" * n + b"\r\n")),
    "characters of a trailer": (100_000, lambda n: chunked(CHUNK + b"0\r\nX-Trailer: " + b"x" * n + b"\r\n\r\n")),
    "pipelined requests": (20, lambda n: b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" * n),
    "pipelined posts": (20, lambda n: post() * n),
    "bytes that are not HTTP": (50_000, lambda n: b"\x16\x03\x01" * n),
}


@pytest.fixture(scope="module")
def server() -> Iterator[HttpProcess]:
    with HttpProcess("run", SERVER) as server:
        server.connect().close()
        yield server


def send(server: HttpProcess, data: bytes) -> None:
    """Send bytes and read the answer to its end. The server may close before all of them are sent."""
    with closing(RawClient(server.port, PATIENCE_SECONDS)) as client, suppress(OSError, EOFError):
        # The last request closes the connection, so the end of the output follows all answers.
        client.write(data)
        client.write(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
        while client.socket.recv(MIB):
            pass


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", KINDS)
def test_cost_grows_no_faster_than_the_request(server: HttpProcess, name: str) -> None:
    size, build = KINDS[name]

    def measure(n: int) -> Cost:
        data = build(n)
        return cost_of(server, lambda: send(server, data))

    check_growth(measure, size, max_kept_bytes=0)
    with server.connect() as client:
        assert client.fetch("GET", "/healthz").status == 200


@pytest.mark.timeout(300)
def test_cost_grows_no_faster_than_the_number_of_sessions(server: HttpProcess) -> None:
    opening = json.dumps(handshake_request(0, "initialize", INITIALIZE_PARAMS)).encode()

    def open_sessions(n: int) -> None:
        with server.connect(PATIENCE_SECONDS) as client:
            for _ in range(n):
                assert client.fetch("POST", body=opening).status in (200, 429, 503)

    check_growth(lambda n: cost_of(server, lambda: open_sessions(n)), 20, max_kept_bytes=MIB)


@pytest.mark.timeout(300)
def test_cost_grows_no_faster_than_unfinished_bodies(server: HttpProcess) -> None:
    def leave_unfinished_bodies(n: int) -> None:
        clients = [server.connect(PATIENCE_SECONDS) for _ in range(20)]
        for client in clients:
            with suppress(OSError):
                client.write(post(framing=b"Content-Length: 4000000", body=b" " * n))
        for client in clients:
            client.close()

    check_growth(lambda n: cost_of(server, lambda: leave_unfinished_bodies(n)), 30_000, max_kept_bytes=4 * MIB)
