"""The HTTP requests of a sign-in: their size and time are bounded, and forbidden addresses are refused."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from tests.auth.authority import serve
from wharfinger.auth.client.sign_in_fetch import MAX_BODY_BYTES, fetch_for
from wharfinger.errors import ConnectionFailed


class Site:
    """A web site whose answers depend on the path."""

    def __init__(self) -> None:
        self.requests: list[str] = []

    def routes(self) -> list[web.RouteDef]:
        return [web.get("/{path:.*}", self.get)]

    async def get(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(request.path_qs)
        match request.match_info["path"]:
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
async def serve_site() -> AsyncIterator[tuple[Site, str]]:
    site = Site()
    async with serve(site) as origin:
        yield site, origin


async def test_a_response_is_returned_with_any_status_and_its_cookies_are_not_kept() -> None:
    async with serve_site() as (site, origin):
        fetch = fetch_for(f"{origin}/mcp")
        answer = await fetch("GET", f"{origin}/twice?a=%2F%20b", {}, None)
        assert (answer.status, answer.headers["www-authenticate"]) == (401, "Basic, Bearer")
        assert site.requests == ["/twice?a=%2F%20b"]
        await fetch("GET", f"{origin}/x", {}, None)
        assert (await fetch("GET", f"{origin}/x", {}, None)).body == b""  # no cookies


async def test_a_redirect_is_returned_and_not_followed() -> None:
    async with serve_site() as (site, origin):
        answer = await fetch_for(f"{origin}/mcp")("GET", f"{origin}/moved", {}, None)
        assert (answer.status, site.requests) == (302, ["/moved"])


async def test_large_and_slow_responses_are_refused() -> None:
    async with serve_site() as (_, origin):
        with pytest.raises(ConnectionFailed, match="more than"):
            await fetch_for(f"{origin}/mcp")("GET", f"{origin}/large", {}, None)
        with pytest.raises(ConnectionFailed, match=r"within 0\.2 s"):
            await fetch_for(f"{origin}/mcp", timeout=0.2)("GET", f"{origin}/slow", {}, None)


async def test_a_remote_server_cannot_cause_requests_to_private_addresses() -> None:
    async with serve_site() as (site, origin):
        fetch = fetch_for("https://harbour.example/mcp")
        for url in (origin, origin.replace("127.0.0.1", "localhost"), "https://10.0.0.1/"):
            with pytest.raises(ConnectionFailed, match="is not requested"):
                await fetch("GET", url, {}, None)
        assert site.requests == []


async def test_a_name_that_resolves_to_a_private_address_is_not_requested(monkeypatch: pytest.MonkeyPatch) -> None:
    """A malicious name server may map a public name to a loopback address."""

    async with serve_site() as (site, origin):
        port = int(origin.rpartition(":")[2])

        async def resolve(*_: Any, **__: Any) -> list[Any]:
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]

        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", resolve)
        with pytest.raises(ConnectionFailed, match="private network"):
            await fetch_for("https://harbour.example/mcp")("GET", f"https://as.example:{port}/", {}, None)
        assert site.requests == []


async def test_an_unreachable_server_is_reported() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/"
        with pytest.raises(ConnectionFailed, match="cannot be reached"):
            await fetch_for(url)("GET", url, {}, None)
