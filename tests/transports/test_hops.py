"""The number of functions that one `resources/read` or `tools/call` over a pipe enters."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import wharfinger
from wharfinger.server.app import Server
from wharfinger.transports import stdio_server
from wharfinger.transports import stream_server as stream_module
from wharfinger.transports.stream_server import StreamServer

PACKAGE = str(Path(wharfinger.__file__).parent)
META = (
    b'"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",'
    b'"io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}'
)
INITIALIZE = (
    b'{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},'
    b'"clientInfo":{"name":"t","version":"1"}}}\n{"jsonrpc":"2.0","method":"notifications/initialized"}\n'
)


async def count_functions(handshake: bytes, message: bytes) -> dict[str, Any]:
    """Serve on two real pipes, warm up, then count the functions that one message enters."""
    server = Server("hops")

    @server.resource("notes://today")
    async def today() -> str:
        return "calm"

    @server.tool
    async def today_plus(a: int, b: int) -> int:
        return a + b

    await server.start()
    loop = asyncio.get_running_loop()
    to_server, from_client = os.pipe()
    to_client, from_server = os.pipe()
    os.set_blocking(to_client, False)
    stream = StreamServer(server)
    await stdio_server._connect(loop, stream, to_server, from_server)

    async def exchange(data: bytes) -> bytes:
        received: asyncio.Future[bytes] = loop.create_future()
        loop.add_reader(to_client, lambda: received.done() or received.set_result(os.read(to_client, 65536)))
        os.write(from_client, data)
        reply = await received
        loop.remove_reader(to_client)
        return reply

    if handshake:
        await exchange(handshake)
    for _ in range(3):
        await exchange(message)

    stream.sweeper.cancel()  # its check of deadlines, once a second, belongs to no message
    frames: list[FrameType] = []
    tasks: list[Any] = []
    threads = threading.active_count()
    new_task = stream_module.new_task
    stream_module.new_task = lambda *args, **options: tasks.append(1) or new_task(*args, **options)
    received: asyncio.Future[bytes] = loop.create_future()
    loop.add_reader(to_client, lambda: received.done() or received.set_result(os.read(to_client, 65536)))
    os.write(from_client, message)
    sys.setprofile(lambda frame, event, _: frames.append(frame) if event == "call" else None)
    reply = await received
    sys.setprofile(None)
    stream_module.new_task = new_task
    loop.remove_reader(to_client)
    new_threads = threading.active_count() - threads
    os.close(from_client)
    await stream.ended
    await server.close()
    os.close(to_client)
    # The frames after the write belong to the test, which reads the answer.
    written = next(n for n, f in enumerate(frames) if f.f_code.co_qualname.endswith("WritePipeTransport.write"))
    frames = frames[: written + 1]
    own = {(f.f_code.co_filename, f.f_code.co_qualname) for f in frames if f.f_code.co_filename.startswith(PACKAGE)}
    handler_files = {
        f.f_code.co_filename for f in frames if f.f_code.co_filename == __file__ and "today" in f.f_code.co_qualname
    }
    return {
        "reply": reply,
        "functions": sorted(f"{Path(file).name}:{name}" for file, name in own) + ["today"] * len(handler_files),
        "files": sorted({Path(file).name for file, _ in own}),
        "calls": len([f for f in frames if f.f_code.co_filename != __file__ or "today" in f.f_code.co_qualname]),
        "tasks": len(tasks),
        "threads": new_threads,
    }


def check_bounds(counts: dict[str, Any]) -> None:
    """Check the bounds that `docs/design.md` states."""
    assert len(counts["functions"]) <= 12, counts["functions"]
    assert len(counts["files"]) <= 5, counts["files"]
    assert counts["calls"] <= 60, counts["calls"]
    assert counts["tasks"] == 1
    assert counts["threads"] == 0


@pytest.mark.parametrize("era", ["handshake", "stateless"])
def test_one_read_enters_few_functions_and_files(era: str) -> None:
    meta = b"," + META if era == "stateless" else b""
    message = b'{"jsonrpc":"2.0","id":7,"method":"resources/read","params":{"uri":"notes://today"' + meta + b"}}\n"
    counts = asyncio.run(count_functions(INITIALIZE if era == "handshake" else b"", message))
    assert b'"text":"calm"' in counts["reply"]
    check_bounds(counts)


@pytest.mark.parametrize("era", ["handshake", "stateless"])
def test_one_tool_call_enters_few_functions_and_files(era: str) -> None:
    meta = b"," + META if era == "stateless" else b""
    params = b'{"name":"today_plus","arguments":{"a":1,"b":2}' + meta + b"}"
    message = b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":' + params + b"}\n"
    counts = asyncio.run(count_functions(INITIALIZE if era == "handshake" else b"", message))
    assert b'"text":"3"' in counts["reply"]
    check_bounds(counts)
