"""A link to a server in the same process, which passes encoded messages without a pipe."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest
from msgspec import Raw

from wharfinger import types as t
from wharfinger.errors import ConnectionLost, RequestTimeout
from wharfinger.protocol.jsonrpc import Message
from wharfinger.protocol.limits import Limits
from wharfinger.server import Server
from wharfinger.transports.memory import MemoryLink

META = t.RequestMeta(protocol_version="2026-07-28", client_capabilities=t.ClientCapabilities())
LIMITS = Limits(message=64 << 20)


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 10))


def make_server(events: list[str]) -> Server:
    """Return a server that records when it starts, when a call is cancelled, and when it ends."""

    @asynccontextmanager
    async def lifespan(_: Any) -> AsyncIterator[None]:
        events.append("start")
        yield
        events.append("end")

    server = Server("here", lifespan=lifespan)

    @server.resource("a:large")
    async def large() -> bytes:
        return bytes(20 << 20)

    @server.tool
    async def wait() -> str:
        try:
            await asyncio.sleep(60)
        finally:
            events.append("cancelled")
        return ""

    return server


def discover(link: MemoryLink, timeout: float = 5) -> Coroutine[Any, Any, Any]:
    return link.request("server/discover", t.RequestParams(meta=META), timeout=timeout)


def call_wait(link: MemoryLink, timeout: float = 5) -> Coroutine[Any, Any, Any]:
    return link.request("tools/call", t.CallToolRequestParams(name="wait", meta=META), timeout=timeout)


def read_result(message: Message) -> bytes:
    """Return the result of an answer."""
    assert isinstance(message.result, Raw)
    return bytes(message.result)


def test_a_server_starts_with_its_first_link_and_ends_with_its_last() -> None:
    async def test() -> None:
        events: list[str] = []
        server = make_server(events)
        first, second = MemoryLink(server, LIMITS), MemoryLink(server, LIMITS)
        await asyncio.gather(first.open(), second.open())
        await discover(first)
        await first.close()
        await discover(second)
        assert events == ["start"]
        await asyncio.gather(second.close(), second.close())
        assert events == ["start", "end"]

    run(test())


def test_a_server_that_was_already_running_outlives_its_last_link() -> None:
    events: list[str] = []

    async def main() -> None:
        server = make_server(events)
        await server.start()  # as HTTP or stdio does
        link = MemoryLink(server, LIMITS)
        await link.open()
        await link.close()
        assert events == ["start"]
        await server.close()
        assert events == ["start", "end"]

    run(main())


def test_a_link_cancelled_during_the_start_does_not_keep_the_server_running() -> None:
    events: list[str] = []
    started = asyncio.Event()

    @asynccontextmanager
    async def lifespan(_: Any) -> AsyncIterator[None]:
        events.append("start")
        started.set()
        try:
            await asyncio.Event().wait()
            yield
        finally:
            events.append("end")

    async def main() -> None:
        opening = asyncio.create_task(MemoryLink(Server("here", lifespan=lifespan), LIMITS).open())
        await started.wait()
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        assert events == ["start", "end"]

    run(main())


def test_large_content_is_received() -> None:
    async def test() -> None:
        link = MemoryLink(make_server([]), LIMITS)
        await link.open()
        params = t.ReadResourceRequestParams(uri="a:large", meta=META)
        message = await link.request("resources/read", params, timeout=40)
        assert len(read_result(message)) > 26 << 20
        await link.close()

    run(test())


def test_a_call_whose_caller_gives_up_is_cancelled_at_the_server() -> None:
    async def test() -> None:
        events: list[str] = []
        link = MemoryLink(make_server(events), LIMITS)
        await link.open()
        with pytest.raises(RequestTimeout, match="server 'here'"):
            await call_wait(link, timeout=0.02)
        task = asyncio.ensure_future(call_wait(link))
        await discover(link)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        while events.count("cancelled") < 2:
            await discover(link)
        last = asyncio.ensure_future(call_wait(link))
        await discover(link)
        await link.close()
        with pytest.raises(ConnectionLost):
            await last
        assert events == ["start", "cancelled", "cancelled", "cancelled", "end"]

    run(test())


def test_a_failed_start_raises_its_reason() -> None:
    @asynccontextmanager
    async def lifespan(service: Server) -> AsyncIterator[None]:
        if service.info.name == "broken":
            raise RuntimeError("no harbour")
        yield

    async def test() -> None:
        link = MemoryLink(Server("broken", lifespan=lifespan), LIMITS)
        with pytest.raises(RuntimeError, match="no harbour"):
            await link.open()
        await link.close()
        with pytest.raises(ConnectionLost):
            await discover(link)

    run(test())
