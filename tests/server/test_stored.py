"""Stored blobs are read while they are sent over HTTP, and loaded first on other transports."""

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

from tests.conftest import ROOT
from tests.security.server_processes import HttpProcess
from tests.transports.http_support import META
from wharfinger import Client, Context, Server
from wharfinger import types as t
from wharfinger.errors import RemoteError
from wharfinger.protocol.request import Base64, ChunkedMessage
from wharfinger.source import Source
from wharfinger.transports.http_server.asgi_response import (
    ABORTABLE,
    ClientGone,
    EventStream,
    FlushQueue,
    send_json,
)

MIB = 1 << 20
PATTERN = bytes(range(256)) * 4096  # 1 MiB


class Tiles:
    """Repeated bytes of any length; `fails_at` is the offset at which reading fails."""

    def __init__(self, size: int, fails_at: int | None = None) -> None:
        self.size = size
        self.fails_at = size if fails_at is None else fails_at
        self.threads: set[str] = set()

    def read(self, offset: int, length: int) -> bytes:
        self.threads.add(threading.current_thread().name)
        end = min(offset + length, self.size)
        if end > self.fails_at:
            raise OSError("the disk is gone")
        start = offset % MIB
        return (PATTERN * ((start + end - offset) // MIB + 1))[start : start + end - offset]


class Quarry(Source):
    """Blobs at `quarry:///SIZE`, or at `quarry:///SIZE/FAILS_AT` if their reading fails there."""

    def __init__(self) -> None:
        self.tiles: list[Tiles] = []

    def matches(self, uri: str) -> bool:
        return uri.startswith("quarry:///")

    def read(self, uri: str) -> t.ReadResourceResult:
        numbers = [int(part) for part in uri.removeprefix("quarry:///").split("/")]
        self.tiles.append(Tiles(*numbers))
        blob = t.stored_blob(self.tiles[-1])
        return t.ReadResourceResult(contents=[t.ResourceContents(uri=uri, mime_type="application/x-stone", blob=blob)])


SCRIPT = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
from tests.server.test_stored import Quarry
from wharfinger import Server
server = Server("quarry")
server.include(Quarry())
"""


@pytest.fixture
def quarry(tmp_path: Path) -> Iterator[HttpProcess]:
    """A process that serves a `Quarry`."""
    (tmp_path / "quarry.py").write_text(SCRIPT)
    with HttpProcess("run", str(tmp_path / "quarry.py")) as process:
        yield process


def request_blob(port: int, uri: str, *, session: bool = False) -> http.client.HTTPResponse:
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
        notification = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        connection.request("POST", "/mcp", json.dumps(notification), headers)
        connection.getresponse().read()
    else:
        params["_meta"] = META
        headers |= {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "resources/read", "Mcp-Name": uri}
    message = {"jsonrpc": "2.0", "id": 1, "method": "resources/read", "params": params}
    connection.request("POST", "/mcp", json.dumps(message), headers)
    return connection.getresponse()


def digest_of_blob(answer: http.client.HTTPResponse) -> tuple[str, int]:
    """Return the SHA-256 and the size of the one blob of an answer, computed while it is received."""
    digest, size, buffer = hashlib.sha256(), 0, b""
    while b'"blob":"' not in buffer:
        data = answer.read(64)
        assert data, buffer
        buffer += data
    buffer = buffer.partition(b'"blob":"')[2]
    while True:
        data = answer.read(MIB)
        buffer += data
        encoded = buffer.partition(b'"')[0]
        ready = encoded if len(encoded) < len(buffer) else encoded[: len(encoded) // 4 * 4]
        decoded = base64.b64decode(ready, validate=True)
        digest.update(decoded)
        size += len(decoded)
        buffer = buffer[len(ready) :]
        if not data:
            return digest.hexdigest(), size


def digest_of_tiles(size: int) -> str:
    digest = hashlib.sha256()
    for _ in range(size // MIB):
        digest.update(PATTERN)
    digest.update(PATTERN[: size % MIB])
    return digest.hexdigest()


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc to measure the memory of a process")
@pytest.mark.parametrize("session", [False, True], ids=["stateless", "session"])
def test_sending_a_gibibyte_over_http_needs_less_than_64_mebibytes_of_memory(
    quarry: HttpProcess, session: bool
) -> None:
    size = 1024 * MIB + 1
    # The first answer imports modules, which also take memory.
    digest_of_blob(request_blob(quarry.port, f"quarry:///{8 * MIB}", session=session))
    before = quarry.reset_peak()
    assert digest_of_blob(request_blob(quarry.port, f"quarry:///{size}", session=session)) == (
        digest_of_tiles(size),
        size,
    )
    assert quarry.peak - before < 64 * MIB


def test_a_read_error_in_the_middle_of_a_blob_ends_only_its_connection(quarry: HttpProcess) -> None:
    with pytest.raises(http.client.IncompleteRead):
        request_blob(quarry.port, f"quarry:///{64 * MIB}/{32 * MIB}").read()
    assert digest_of_blob(request_blob(quarry.port, f"quarry:///{MIB}")) == (digest_of_tiles(MIB), MIB)


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
def test_a_stored_blob_is_loaded_in_a_thread_and_sent_whole_without_http(revision: str) -> None:
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
        assert not any("MainThread" in tiles.threads for tiles in quarry.tiles)

    asyncio.run(main())


def test_middleware_and_contexts_receive_bytes() -> None:
    blobs: list[Any] = []

    async def main() -> None:
        server = Server("quarry")
        server.include(Quarry())

        @server.tool
        async def weigh(ctx: Context) -> int:
            blob = (await ctx.read_resource(f"quarry:///{MIB}")).contents[0].blob
            blobs.append(blob)
            return 0

        @server.middleware("resources/read")
        async def record_blob(call: Any, next: Any) -> Any:
            result = await next(call)
            blobs.append(result.contents[0].blob)
            return result

        async with Client(server) as client:
            await client.read_resource(f"quarry:///{MIB}")
            await client.call_tool("weigh")

    asyncio.run(main())
    assert blobs == [PATTERN] * 3


def test_an_open_blob_is_closed_after_its_answer() -> None:
    closed = threading.Event()

    class ClosingTiles(Tiles):
        def __del__(self) -> None:
            closed.set()

    class ClosingQuarry(Quarry):
        def read(self, uri: str) -> t.ReadResourceResult:
            blob = t.stored_blob(ClosingTiles(MIB))
            return t.ReadResourceResult(contents=[t.ResourceContents(uri=uri, blob=blob)])

    async def main() -> None:
        server = Server("quarry")
        server.include(ClosingQuarry())
        async with Client(server) as client:
            await client.read_resource("quarry:///1")

    asyncio.run(main())
    gc.collect()
    assert closed.wait(5)


@pytest.mark.parametrize("streams", [False, True])
def test_no_more_of_a_blob_is_read_after_a_disconnect(streams: bool) -> None:
    """Bug: the last event of a stream was read to its end."""
    read: list[int] = []

    class RecordingTiles(Tiles):
        def read(self, offset: int, length: int) -> bytes:
            read.append(offset)
            return super().read(offset, length)

    async def send(message: Any) -> None:
        if len(read) == 3 and ABORTABLE in message:
            raise ClientGone

    async def answer() -> None:
        body = ChunkedMessage((b'{"blob":"', Base64(t.StoredBlob(RecordingTiles(64 * MIB))), b'"}'))
        if streams:
            await EventStream(send, 1000, 0, FlushQueue()).finish(body)
        else:
            await send_json(send, 200, body)

    asyncio.run(answer())
    assert len(read) == 3


def test_an_open_blob_is_closed_at_once_when_reading_fails() -> None:
    """The garbage collector is off, so only the reference count can close it."""
    closed = threading.Event()

    class EmptyTiles(Tiles):
        def read(self, offset: int, length: int) -> bytes:
            return b""

        def __del__(self) -> None:
            closed.set()

    async def main() -> None:
        server = Server("quarry")
        stored = t.StoredBlob(EmptyTiles(MIB))
        stored.run = partial(server.pool.run, "")
        body = ChunkedMessage((b'{"blob":"', Base64(stored), b'"}'))
        del stored
        with suppress(OSError):
            await send_json(discard, 200, body)
        del body
        await server.pool.run("", time.sleep, 0)  # the thread keeps a reference to its last call
        server.pool.close()

    async def discard(message: Any) -> None:
        pass

    gc.disable()
    try:
        asyncio.run(main())
        assert closed.wait(5)
    finally:
        gc.enable()
