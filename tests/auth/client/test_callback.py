"""The listener for the redirect of a sign-in: it accepts one valid redirect, and refuses unrelated requests."""

from __future__ import annotations

import asyncio
import contextlib
from urllib.parse import urlsplit

import pytest

from wharfinger.auth.client.callback import Callback
from wharfinger.errors import NotAuthorized


def read_redirect(query: str) -> str:
    if query == "no":
        raise NotAuthorized("they said no <b>")
    if query != "ours":
        raise LookupError
    return "the code"


async def send(callback: Callback, data: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", urlsplit(callback.url).port)
    writer.write(data)
    try:
        return await reader.read()
    finally:
        writer.close()


async def visit(callback: Callback, target: str, verb: str = "GET") -> bytes:
    return await send(callback, f"{verb} {target} HTTP/1.1\r\nHost: x\r\n\r\n".encode())


async def test_the_first_valid_redirect_is_accepted() -> None:
    async with Callback() as callback:
        assert callback.url.startswith("http://127.0.0.1:")
        assert (await visit(callback, "/callback?ours")).startswith(b"HTTP/1.1 410 ")  # wait() has not been called
        waiting = asyncio.ensure_future(callback.wait(read_redirect, 10))
        await asyncio.sleep(0)
        assert (await visit(callback, "/favicon.ico")).startswith(b"HTTP/1.1 404 ")
        assert (await visit(callback, "/callback?ours", "POST")).startswith(b"HTTP/1.1 404 ")
        assert (await visit(callback, "/callback?state=other")).startswith(b"HTTP/1.1 400 ")
        assert not waiting.done()
        page = await visit(callback, "/callback?ours")
        assert page.startswith(b"HTTP/1.1 200 ")
        assert b"Cache-Control: no-store" in page
        assert b"frame-ancestors 'none'" in page
        assert b"Go back to your program" in page
        assert await waiting == "the code"
        assert (await visit(callback, "/callback?ours")).startswith(b"HTTP/1.1 410 ")


async def test_the_error_of_a_refused_sign_in_is_raised_and_not_shown_on_the_page() -> None:
    async with Callback() as callback:
        waiting = asyncio.ensure_future(callback.wait(read_redirect, 10))
        await asyncio.sleep(0)
        page = await visit(callback, "/callback?no")
        assert page.startswith(b"HTTP/1.1 400 ")
        assert b"they said" not in page
        with pytest.raises(NotAuthorized, match="they said no"):
            await waiting


@pytest.mark.parametrize(
    "data", [b"\r\n\r\n", b"\xff\xfe\r\n\r\n", b"GET\r\n\r\n", b"GET " + b"/" * 100_000 + b"\r\n\r\n"]
)
async def test_an_invalid_request_does_not_end_the_sign_in(data: bytes) -> None:
    async with Callback() as callback:
        waiting = asyncio.ensure_future(callback.wait(read_redirect, 10))
        await asyncio.sleep(0)
        with contextlib.suppress(ConnectionError):  # the listener may close the connection early
            assert b"200 OK" not in await send(callback, data)
        await visit(callback, "/callback?ours")
        assert await waiting == "the code"


async def test_a_silent_connection_does_not_delay_the_next_one() -> None:
    async with Callback() as callback:
        waiting = asyncio.ensure_future(callback.wait(read_redirect, 10))
        port = urlsplit(callback.url).port
        silent_connections = [await asyncio.open_connection("127.0.0.1", port) for _ in range(5)]
        await visit(callback, "/callback?ours")
        assert await waiting == "the code"
        for _, writer in silent_connections:
            writer.close()


async def test_a_port_that_is_taken_is_reported() -> None:
    async with Callback() as callback:
        with pytest.raises(OSError, match="in use"):
            async with Callback(urlsplit(callback.url).port or 0):
                pass
