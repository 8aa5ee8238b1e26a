"""The requests of a sign-in against real servers: they are bounded, and never go to forbidden addresses."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from tests.auth.authority import serving
from wharfinger.auth.client.sign_in_fetch import MAX_BODY_BYTES, fetch_for
from wharfinger.errors import ConnectionFailed


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 20))


class Site:
    """A web site whose answers depend on the path."""

    def __init__(self) -> None:
        self.requests: list[str] = []

    def routes(self) -> list[web.RouteDef]:
        return [web.get("/{what:.*}", self.get)]

    async def get(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(request.path_qs)
        match request.match_info["what"]:
            case "moved":
                raise web.HTTPFound("/elsewhere")
            case "large":
                return web.Response(body=b"x" * (MAX_BODY_BYTES + 1))
            case "slow":
                await asyncio.Event().wait()
            case "twice":
                answer = web.Response(status=401)
                answer.headers.add("WWW-Authenticate", "Basic")
                answer.headers.add("WWW-Authenticate", "Bearer")
                return answer
        return web.Response(text=request.headers.get("Cookie", ""), headers={"Set-Cookie": "a=b"})


@asynccontextmanager
async def site() -> AsyncIterator[tuple[Site, str]]:
    there = Site()
    async with serving(there) as origin:
        yield there, origin


def test_an_answer_is_returned_whole_with_any_status() -> None:
    async def test() -> None:
        async with site() as (there, origin):
            fetch = fetch_for(f"{origin}/mcp")
            answer = await fetch("GET", f"{origin}/twice?a=%2F%20b", {}, None)
            assert (answer.status, answer.headers["www-authenticate"]) == (401, "Basic, Bearer")
            assert there.requests == ["/twice?a=%2F%20b"]
            await fetch("GET", f"{origin}/x", {}, None)
            assert (await fetch("GET", f"{origin}/x", {}, None)).body == b""  # no cookies

    run(test())


def test_a_redirect_is_returned_and_not_followed() -> None:
    async def test() -> None:
        async with site() as (there, origin):
            answer = await fetch_for(f"{origin}/mcp")("GET", f"{origin}/moved", {}, None)
            assert (answer.status, there.requests) == (302, ["/moved"])

    run(test())


def test_size_and_time_are_bounded() -> None:
    async def test() -> None:
        async with site() as (_, origin):
            with pytest.raises(ConnectionFailed, match="more than"):
                await fetch_for(f"{origin}/mcp")("GET", f"{origin}/large", {}, None)
            with pytest.raises(ConnectionFailed, match=r"within 0\.2 s"):
                await fetch_for(f"{origin}/mcp", time=0.2)("GET", f"{origin}/slow", {}, None)

    run(test())


def test_a_remote_server_cannot_redirect_requests_to_this_machine() -> None:
    async def test() -> None:
        async with site() as (there, origin):
            fetch = fetch_for("https://harbour.example/mcp")
            for url in (origin, origin.replace("127.0.0.1", "localhost"), "https://10.0.0.1/"):
                with pytest.raises(ConnectionFailed, match="is not requested"):
                    await fetch("GET", url, {}, None)
            assert there.requests == []

    run(test())


def test_a_name_that_resolves_to_a_private_address_is_not_requested(monkeypatch: pytest.MonkeyPatch) -> None:
    """The resolver of the system answers as a malicious name server would."""

    async def test() -> None:
        async with site() as (there, origin):
            port = int(origin.rpartition(":")[2])

            async def resolve(*_: Any, **__: Any) -> list[Any]:
                return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]

            monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", resolve)
            with pytest.raises(ConnectionFailed, match="private network"):
                await fetch_for("https://harbour.example/mcp")("GET", f"https://as.example:{port}/", {}, None)
            assert there.requests == []

    run(test())


def test_an_unreachable_server_is_reported() -> None:
    async def test() -> None:
        with socket.socket() as closed:
            closed.bind(("127.0.0.1", 0))
            url = f"http://127.0.0.1:{closed.getsockname()[1]}/"
            with pytest.raises(ConnectionFailed, match="cannot be reached"):
                await fetch_for(url)("GET", url, {}, None)

    run(test())
