"""A link to a service in this process, which sends encoded messages without a pipe."""

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


def server(life: list[str]) -> Server:
    @asynccontextmanager
    async def lifespan(_: Any) -> AsyncIterator[None]:
        life.append("start")
        yield
        life.append("end")

    made = Server("here", lifespan=lifespan)

    @made.resource("a:large")
    async def large() -> bytes:
        return bytes(20 << 20)

    @made.tool
    async def wait() -> str:
        try:
            await asyncio.sleep(60)
        finally:
            life.append("cancelled")
        return ""

    return made


def ask(link: MemoryLink, timeout: float = 5) -> Coroutine[Any, Any, Any]:
    return link.request("server/discover", t.RequestParams(meta=META), timeout=timeout)


def call(link: MemoryLink, timeout: float = 5) -> Coroutine[Any, Any, Any]:
    return link.request("tools/call", t.CallToolRequestParams(name="wait", meta=META), timeout=timeout)


def got(message: Message) -> bytes:
    """Return the result of an answer."""
    assert isinstance(message.result, Raw)
    return bytes(message.result)


def test_a_service_runs_as_long_as_its_links() -> None:
    async def test() -> None:
        life: list[str] = []
        service = server(life)
        one, two = MemoryLink(service, LIMITS), MemoryLink(service, LIMITS)
        await asyncio.gather(one.open(), two.open())
        await ask(one)
        await one.close()
        await ask(two)
        assert life == ["start"]
        await asyncio.gather(two.close(), two.close())
        assert life == ["start", "end"]

    run(test())


def test_a_server_that_was_already_running_outlives_its_last_link() -> None:
    life: list[str] = []

    async def main() -> None:
        here = server(life)
        await here.start()  # as HTTP or stdio does
        link = MemoryLink(here, LIMITS)
        await link.open()
        await link.close()
        assert life == ["start"]
        await here.close()
        assert life == ["start", "end"]

    run(main())


def test_a_link_cancelled_during_the_start_does_not_keep_the_server_running() -> None:
    life: list[str] = []
    begun = asyncio.Event()

    @asynccontextmanager
    async def lifespan(_: Any) -> AsyncIterator[None]:
        life.append("start")
        begun.set()
        try:
            await asyncio.Event().wait()
            yield
        finally:
            life.append("end")

    async def main() -> None:
        opening = asyncio.create_task(MemoryLink(Server("here", lifespan=lifespan), LIMITS).open())
        await begun.wait()
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        assert life == ["start", "end"]

    run(main())


def test_large_content_is_received() -> None:
    async def test() -> None:
        link = MemoryLink(server([]), LIMITS)
        await link.open()
        params = t.ReadResourceRequestParams(uri="a:large", meta=META)
        message = await link.request("resources/read", params, timeout=9)
        assert len(got(message)) > 26 << 20
        await link.close()

    run(test())


def test_a_call_without_a_pending_caller_is_cancelled_at_the_server() -> None:
    async def test() -> None:
        life: list[str] = []
        link = MemoryLink(server(life), LIMITS)
        await link.open()
        with pytest.raises(RequestTimeout, match="server 'here'"):
            await call(link, timeout=0.02)
        task = asyncio.ensure_future(call(link))
        await ask(link)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        while life.count("cancelled") < 2:
            await ask(link)
        last = asyncio.ensure_future(call(link))
        await ask(link)
        await link.close()
        with pytest.raises(ConnectionLost):
            await last
        assert life == ["start", "cancelled", "cancelled", "cancelled", "end"]

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
            await ask(link)

    run(test())
