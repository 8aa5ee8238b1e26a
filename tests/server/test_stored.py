"""Blobs that are read while they are sent: in pieces over HTTP, and loaded first elsewhere."""

from __future__ import annotations

import asyncio
import base64
import gc
import hashlib
import http.client
import json
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.security.places import Http
from tests.transports.http_support import META
from wharfinger import Client, Server
from wharfinger import types as t
from wharfinger.errors import RemoteError
from wharfinger.protocol.request import Base64, ChunkedMessage
from wharfinger.source import Source
from wharfinger.transports.http_server.asgi_response import ABORTABLE, ClientGone, send_json

MIB = 1 << 20
PATTERN = bytes(range(256)) * 4096  # a MiB


class Tiles:
    """Repeated bytes of any length; `breaks` is where reading fails."""

    def __init__(self, size: int, breaks: int | None = None) -> None:
        self.size = size
        self.breaks = size if breaks is None else breaks
        self.threads: set[str] = set()

    def read(self, offset: int, length: int) -> bytes:
        self.threads.add(threading.current_thread().name)
        end = min(offset + length, self.size)
        if end > self.breaks:
            raise OSError("the disk is gone")
        first = offset % MIB
        return (PATTERN * ((first + end - offset) // MIB + 1))[first : first + end - offset]


class Quarry(Source):
    """`quarry:///SIZE`, or `quarry:///SIZE/BREAKS`."""

    def __init__(self) -> None:
        self.given: list[Tiles] = []

    def matches(self, uri: str) -> bool:
        return uri.startswith("quarry:///")

    def read(self, uri: str) -> t.ReadResourceResult:
        numbers = [int(part) for part in uri.removeprefix("quarry:///").split("/")]
        self.given.append(Tiles(*numbers))
        blob = t.stored_blob(self.given[-1])
        return t.ReadResourceResult(contents=[t.ResourceContents(uri=uri, mime_type="application/x-stone", blob=blob)])


SCRIPT = f"""
import sys
sys.path.insert(0, {str(Path(__file__).resolve().parents[2])!r})
from tests.server.test_stored import Quarry
from wharfinger import Server
server = Server("quarry")
server.include(Quarry())
"""


@pytest.fixture
def quarry(tmp_path: Path) -> Iterator[Http]:
    """A process that serves it."""
    (tmp_path / "quarry.py").write_text(SCRIPT)
    with Http("run", str(tmp_path / "quarry.py")) as process:
        yield process


def post(port: int, uri: str, *, session: bool = False) -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    params: dict[str, Any] = {"uri": uri}
    if session:
        opening = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
        message = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": opening}
        connection.request("POST", "/mcp", json.dumps(message), headers)
        answer = connection.getresponse()
        answer.read()
        headers |= {"Mcp-Session-Id": answer.headers["Mcp-Session-Id"], "MCP-Protocol-Version": "2025-11-25"}
        notice = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        connection.request("POST", "/mcp", json.dumps(notice), headers)
        connection.getresponse().read()
    else:
        params["_meta"] = META
        headers |= {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "resources/read", "Mcp-Name": uri}
    message = {"jsonrpc": "2.0", "id": 1, "method": "resources/read", "params": params}
    connection.request("POST", "/mcp", json.dumps(message), headers)
    return connection.getresponse()


def digest_of_blob(answer: http.client.HTTPResponse) -> tuple[str, int]:
    """Return the SHA-256 and the size of the one blob of an answer, computed while it is received."""
    digest, size, held = hashlib.sha256(), 0, b""
    while b'"blob":"' not in held:
        data = answer.read(64)
        assert data, held
        held += data
    held = held.partition(b'"blob":"')[2]
    while True:
        data = answer.read(MIB)
        held += data
        whole = held.partition(b'"')[0]
        ready = whole if len(whole) < len(held) else whole[: len(whole) // 4 * 4]
        decoded = base64.b64decode(ready, validate=True)
        digest.update(decoded)
        size += len(decoded)
        held = held[len(ready) :]
        if not data:
            return digest.hexdigest(), size


def tiled(size: int) -> str:
    digest = hashlib.sha256()
    for _ in range(size // MIB):
        digest.update(PATTERN)
    digest.update(PATTERN[: size % MIB])
    return digest.hexdigest()


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc to measure the memory of a process")
@pytest.mark.parametrize("session", [False, True], ids=["stateless", "session"])
def test_a_gibibyte_over_http_takes_the_memory_of_a_few_pieces(quarry: Http, session: bool) -> None:
    size = 1024 * MIB + 1
    digest_of_blob(post(quarry.port, f"quarry:///{8 * MIB}", session=session))  # loaded on first use
    before = quarry.forget_peak()
    assert digest_of_blob(post(quarry.port, f"quarry:///{size}", session=session)) == (tiled(size), size)
    assert quarry.peak - before < 64 * MIB


def test_a_blob_that_fails_midway_ends_only_its_connection(quarry: Http) -> None:
    with pytest.raises(http.client.IncompleteRead):
        post(quarry.port, f"quarry:///{64 * MIB}/{32 * MIB}").read()
    assert digest_of_blob(post(quarry.port, f"quarry:///{MIB}")) == (tiled(MIB), MIB)


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
def test_a_stored_blob_is_loaded_before_its_line_is_sent(revision: str) -> None:
    async def main() -> None:
        server, quarry = Server("quarry"), Quarry()
        server.include(quarry)
        async with Client(server, revision=revision) as client:
            page = await client.read_resource(f"quarry:///{5 * MIB + 1}")
            assert page.bytes == (PATTERN * 6)[: 5 * MIB + 1]
            with pytest.raises(RemoteError):
                await client.read_resource(f"quarry:///{MIB}/10")
            assert (await client.read_resource("quarry:///3")).bytes == PATTERN[:3]
            with pytest.raises(RemoteError, match=r"limits\.content"):
                await client.read_resource(f"quarry:///{1 << 40}")
        assert not any("MainThread" in tiles.threads for tiles in quarry.given)

    asyncio.run(main())


def test_middleware_and_contexts_get_bytes() -> None:
    seen: list[Any] = []

    async def main() -> None:
        server = Server("quarry")
        server.include(Quarry())

        @server.tool
        async def weigh(ctx: Any) -> int:
            return 0

        @server.middleware("resources/read")
        async def look(call: Any, next: Any) -> Any:
            result = await next(call)
            seen.append(result.contents[0].blob)
            return result

        async with Client(server) as client:
            await client.read_resource(f"quarry:///{MIB}")

    asyncio.run(main())
    assert seen == [PATTERN]


def test_an_open_blob_is_closed_when_the_answer_is_dropped() -> None:
    closed = threading.Event()

    class Opened(Tiles):
        def __del__(self) -> None:
            closed.set()

    class One(Quarry):
        def read(self, uri: str) -> t.ReadResourceResult:
            blob = t.stored_blob(Opened(MIB))
            return t.ReadResourceResult(contents=[t.ResourceContents(uri=uri, blob=blob)])

    async def main() -> None:
        server = Server("quarry")
        server.include(One())
        async with Client(server) as client:
            await client.read_resource("quarry:///1")

    asyncio.run(main())
    gc.collect()
    assert closed.wait(5)


def test_a_disconnect_midway_ends_the_reading() -> None:
    """Nothing is read without a reader, and open blobs are closed."""
    read: list[int] = []

    class Watched(Tiles):
        def read(self, offset: int, length: int) -> bytes:
            read.append(offset)
            return super().read(offset, length)

    async def send(message: Any) -> None:
        if len(read) == 3 and ABORTABLE in message:
            raise ClientGone

    asyncio.run(send_json(send, 200, ChunkedMessage((b'{"blob":"', Base64(t.StoredBlob(Watched(64 * MIB))), b'"}'))))
    assert len(read) == 3


def test_an_open_blob_is_closed_when_reading_fails() -> None:
    """At once, and not only when the garbage collector runs."""
    closed = threading.Event()

    class Torn(Tiles):
        def read(self, offset: int, length: int) -> bytes:
            return b""

        def __del__(self) -> None:
            closed.set()

    async def main() -> None:
        server = Server("quarry")
        stored = t.StoredBlob(Torn(MIB))
        stored.run = partial(server.pool.run, "")
        body = ChunkedMessage((b'{"blob":"', Base64(stored), b'"}'))
        del stored
        with suppress(OSError):
            await send_json(_taken, 200, body)
        del body
        await server.pool.run("", time.sleep, 0)
        server.pool.close()

    async def _taken(message: Any) -> None:
        pass

    gc.disable()
    try:
        asyncio.run(main())
        assert closed.wait(5)
    finally:
        gc.enable()
