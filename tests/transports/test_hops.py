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
OPENING = (
    b'{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},'
    b'"clientInfo":{"name":"t","version":"1"}}}\n{"jsonrpc":"2.0","method":"notifications/initialized"}\n'
)


async def count_functions(first: bytes, message: bytes) -> dict[str, Any]:
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
    await stdio_server._connect_writer(loop, stream, from_server)
    await stdio_server._connect_reader(loop, stream, to_server)

    async def answer(data: bytes) -> bytes:
        got: asyncio.Future[bytes] = loop.create_future()
        loop.add_reader(to_client, lambda: got.done() or got.set_result(os.read(to_client, 65536)))
        os.write(from_client, data)
        reply = await got
        loop.remove_reader(to_client)
        return reply

    if first:
        await answer(first)
    for _ in range(3):
        await answer(message)

    calls: list[FrameType] = []
    tasks: list[Any] = []
    threads = threading.active_count()
    make = stream_module.new_task
    stream_module.new_task = lambda *a, **k: tasks.append(1) or make(*a, **k)
    got: asyncio.Future[bytes] = loop.create_future()
    loop.add_reader(to_client, lambda: got.done() or got.set_result(os.read(to_client, 65536)))
    os.write(from_client, message)
    sys.setprofile(lambda frame, event, _: calls.append(frame) if event == "call" else None)
    reply = await got
    sys.setprofile(None)
    stream_module.new_task = make
    loop.remove_reader(to_client)
    extra = threading.active_count() - threads
    os.close(from_client)
    await stream.ended
    await server.close()
    os.close(to_client)
    # After the write, the test reads the answer.
    written = next(n for n, f in enumerate(calls) if f.f_code.co_qualname.endswith("WritePipeTransport.write"))
    calls = calls[: written + 1]
    own = {(f.f_code.co_filename, f.f_code.co_qualname) for f in calls if f.f_code.co_filename.startswith(PACKAGE)}
    mine = {f.f_code.co_filename for f in calls if f.f_code.co_filename == __file__ and "today" in f.f_code.co_qualname}
    return {
        "reply": reply,
        "own": sorted(f"{Path(file).name}:{name}" for file, name in own) + ["today"] * len(mine),
        "files": sorted({Path(file).name for file, _ in own}),
        "calls": len([f for f in calls if f.f_code.co_filename != __file__ or "today" in f.f_code.co_qualname]),
        "tasks": len(tasks),
        "threads": extra,
    }


@pytest.mark.parametrize("era", ["handshake", "stateless"])
def test_one_read_enters_few_functions_and_files(era: str) -> None:
    """DESIGN §3: at most 12 functions of Wharfinger, 5 files, 60 Python calls, one task and no thread."""
    meta = b"," + META if era == "stateless" else b""
    message = b'{"jsonrpc":"2.0","id":7,"method":"resources/read","params":{"uri":"notes://today"' + meta + b"}}\n"
    counts = asyncio.run(count_functions(OPENING if era == "handshake" else b"", message))
    assert b'"text":"calm"' in counts["reply"]
    assert len(counts["own"]) <= 12, counts["own"]
    assert len(counts["files"]) <= 5, counts["files"]
    assert counts["calls"] <= 60, counts["calls"]
    assert counts["tasks"] == 1
    assert counts["threads"] == 0


@pytest.mark.parametrize("era", ["handshake", "stateless"])
def test_one_tool_call_enters_few_functions_and_files(era: str) -> None:
    """The same bounds for a tool of two integers."""
    meta = b"," + META if era == "stateless" else b""
    params = b'{"name":"today_plus","arguments":{"a":1,"b":2}' + meta + b"}"
    message = b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":' + params + b"}\n"
    counts = asyncio.run(count_functions(OPENING if era == "handshake" else b"", message))
    assert b'"text":"3"' in counts["reply"]
    assert len(counts["own"]) <= 12, counts["own"]
    assert len(counts["files"]) <= 5, counts["files"]
    assert counts["calls"] <= 60, counts["calls"]
    assert counts["tasks"] == 1
    assert counts["threads"] == 0
