"""The fetcher with real servers: redirects, credentials, allowed addresses, and limits of size and time."""

from __future__ import annotations

import asyncio
import gzip
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from wharfinger.errors import ConnectionFailed
from wharfinger.fetching import Fetcher, Gunzip, NotAllowed, TooLarge, same_origin
from wharfinger.net import is_loopback, is_public
from wharfinger.protocol.interfaces import HttpResponse

LIMIT_BYTES = 100_000


class Site:
    """A web site whose responses depend on the path. `ports` has the client's port of each connection."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str, dict[str, str]]] = []
        self.ports: set[int] = set()
        self.origin = self.other_origin = ""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.requests.append((request.method, request.path_qs, {k.lower(): v for k, v in request.headers.items()}))
        assert request.transport is not None
        self.ports.add(request.transport.get_extra_info("peername")[1])
        route, _, argument = request.path.lstrip("/").partition("/")
        match route:
            case "hops":
                raise web.HTTPFound(f"/hops/{int(argument) - 1}" if int(argument) > 1 else "/end")
            case "to":
                return web.Response(status=307, headers={"Location": request.query["url"]})
            case "away":
                raise web.HTTPFound(f"{self.other_origin}/end")
            case "size":
                return web.Response(body=b"x" * int(argument))
            case "stream":
                stream = web.StreamResponse()
                await stream.prepare(request)
                while True:
                    await stream.write(b"x" * 1000)
            case "gzip":
                return web.Response(body=gzip.compress(b"x" * int(argument)), headers={"Content-Encoding": "gzip"})
            case "half":
                body = gzip.compress(bytes(range(256)) * 4)[:-10]
                return web.Response(body=body, headers={"Content-Encoding": "gzip"})
            case "br":
                return web.Response(body=b"x", headers={"Content-Encoding": "br"})
            case "slow":
                await asyncio.Event().wait()
        return web.Response(text="end", headers={"Set-Cookie": "a=b", "ETag": '"1"'})


@asynccontextmanager
async def start_site() -> AsyncIterator[Site]:
    site = Site()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", site.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    try:
        for name in ("origin", "other_origin"):
            listener = web.TCPSite(runner, "127.0.0.1", 0)
            await listener.start()
            setattr(site, name, listener.name)
        yield site
    finally:
        await runner.cleanup()


def allow_all(_host: str, _address: str) -> bool:
    return True


async def test_connections_are_reused_and_cookies_are_not_stored() -> None:
    async with start_site() as site, Fetcher(allow=allow_all) as fetcher:
        for _ in range(3):
            answer = await fetcher.request("GET", f"{site.origin}/a?b=%2F%20c")
        assert answer == HttpResponse(200, answer.headers, b"end", f"{site.origin}/a?b=%2F%20c")
        assert answer.headers["etag"] == '"1"'
        assert len(site.ports) == 1
        assert {path for _, path, _ in site.requests} == {"/a?b=%2F%20c"}
        assert all("cookie" not in headers for *_, headers in site.requests)
        assert site.requests[0][2]["user-agent"].startswith("wharfinger/")


def test_a_fetcher_can_be_reopened_in_another_event_loop() -> None:
    fetcher = Fetcher(allow=allow_all)

    async def fetch() -> None:
        async with start_site() as site, fetcher:
            assert (await fetcher.request("GET", site.origin)).status == 200

    asyncio.run(fetch())
    asyncio.run(fetch())


async def test_redirects_within_the_origin_are_followed_up_to_the_limit() -> None:
    async with start_site() as site, Fetcher(allow=allow_all, max_redirects=3) as fetcher:
        answer = await fetcher.request("GET", f"{site.origin}/hops/3", headers={"X-Key": "secret"})
        assert (answer.status, answer.url) == (200, f"{site.origin}/end")
        assert [headers.get("x-key") for *_, headers in site.requests] == ["secret"] * 4
        with pytest.raises(ConnectionFailed, match="redirects more than 3 times"):
            await fetcher.request("GET", f"{site.origin}/hops/4")


async def test_a_redirect_to_another_origin_is_not_followed_by_default() -> None:
    async with start_site() as site, Fetcher(allow=allow_all) as fetcher:
        with pytest.raises(ConnectionFailed, match="redirects elsewhere"):
            await fetcher.request("GET", f"{site.origin}/away")
        assert [path for _, path, _ in site.requests] == ["/away"]


async def test_credentials_are_not_sent_to_another_origin() -> None:
    fetcher = Fetcher(allow=allow_all, follow=lambda _url, _target: True, headers={"Authorization": "Bearer x"})
    async with start_site() as site, fetcher:
        answer = await fetcher.request(
            "GET", f"{site.origin}/away", headers={"X-Api-Key": "secret", "Accept": "text/html"}
        )
        assert answer.url == f"{site.other_origin}/end"
        first, second = (headers for *_, headers in site.requests)
        assert (first["authorization"], first["x-api-key"]) == ("Bearer x", "secret")
        assert second.keys() <= {"host", "accept", "accept-encoding", "user-agent"}
        assert second["accept"] == "text/html"


@pytest.mark.parametrize("target", ["file:///etc/passwd", "http://user:pass@127.0.0.1/", "http://[::1"])
async def test_a_redirect_to_an_invalid_or_non_http_url_is_not_followed(target: str) -> None:
    async with start_site() as site, Fetcher(allow=allow_all, follow=lambda _url, _target: True) as fetcher:
        with pytest.raises(ConnectionFailed, match="redirects elsewhere") as caught:
            await fetcher.request("GET", f"{site.origin}/to?url={target}")
        assert "pass@" not in str(caught.value)


async def test_redirects_are_followed_for_head_and_not_for_post_requests() -> None:
    async with start_site() as site, Fetcher(allow=allow_all) as fetcher:
        assert (await fetcher.request("POST", f"{site.origin}/hops/1", body=b"x")).status == 302
        assert (await fetcher.request("HEAD", f"{site.origin}/hops/1")).status == 200


async def test_redirects_are_returned_if_following_is_disabled() -> None:
    async with start_site() as site, Fetcher(allow=allow_all, follow=None) as fetcher:
        assert (await fetcher.request("GET", f"{site.origin}/hops/1")).status == 302


async def test_each_redirect_target_may_be_refused() -> None:
    async with start_site() as site:
        fetcher = Fetcher(allow=allow_all, refuse=lambda url: "it is secret" if url.endswith("/end") else None)
        async with fetcher:
            with pytest.raises(ConnectionFailed, match="is not requested: it is secret"):
                await fetcher.request("GET", f"{site.origin}/hops/2")
        assert [path for _, path, _ in site.requests] == ["/hops/2", "/hops/1"]


@pytest.mark.parametrize("path", ["size", "gzip"])
async def test_the_body_limit_applies_after_decompression(path: str) -> None:
    async with start_site() as site, Fetcher(allow=allow_all, max_body_bytes=LIMIT_BYTES) as fetcher:
        assert len((await fetcher.request("GET", f"{site.origin}/{path}/{LIMIT_BYTES}")).body) == LIMIT_BYTES
        with pytest.raises(TooLarge, match=f"more than {LIMIT_BYTES} bytes"):
            await fetcher.request("GET", f"{site.origin}/{path}/{LIMIT_BYTES + 1}")
        with pytest.raises(TooLarge):
            await fetcher.request("GET", f"{site.origin}/{path}/{LIMIT_BYTES}", max_body_bytes=LIMIT_BYTES - 1)
        with pytest.raises(TooLarge):
            await fetcher.request("GET", f"{site.origin}/stream")


def test_a_gzip_bomb_is_decompressed_only_up_to_the_limit() -> None:
    size = 64 * 1024 * 1024
    bomb = gzip.compress(bytes(size))
    inflater = Gunzip(LIMIT_BYTES)
    with pytest.raises(OverflowError):
        inflater.feed(bomb)
    inflater = Gunzip(size)
    assert sum(len(inflater.feed(bomb[offset : offset + 1000])) for offset in range(0, len(bomb), 1000)) == size
    assert inflater.complete


@pytest.mark.parametrize(("path", "message"), [("half", "ends too early"), ("br", "only gzip is read")])
async def test_a_body_that_cannot_be_decompressed_is_an_error(path: str, message: str) -> None:
    async with start_site() as site, Fetcher(allow=allow_all) as fetcher:
        with pytest.raises(ConnectionFailed, match=message):
            await fetcher.request("GET", f"{site.origin}/{path}")


@pytest.mark.parametrize(
    "damaged",
    [b"no gzip at all", gzip.compress(b"x") + b"more", b"\x1f\x8b\x08\xff" + b"x" * 99],
    ids=["no gzip", "more data", "unknown flags"],
)
def test_damaged_gzip_is_an_error(damaged: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        Gunzip(LIMIT_BYTES).feed(damaged)


async def test_a_request_without_a_response_times_out() -> None:
    async with start_site() as site, Fetcher(allow=allow_all, timeout=0.2) as fetcher:
        with pytest.raises(ConnectionFailed, match=r"within 0\.2 s"):
            await fetcher.request("GET", f"{site.origin}/slow")


@pytest.mark.parametrize(
    "url",
    ["http://127.0.0.1:{port}/", "http://[::1]:{port}/", "http://[::ffff:127.0.0.1]:{port}/", "http://localhost:{port}/",
     "http://10.0.0.1/", "http://169.254.169.254/latest/meta-data/"],
)  # fmt: skip
async def test_only_public_addresses_are_requested_by_default(url: str) -> None:
    async with start_site() as site, Fetcher() as fetcher:
        with pytest.raises(NotAllowed, match="is in a private network or on this machine"):
            await fetcher.request("GET", url.format(port=site.origin.rpartition(":")[2]))
        assert site.requests == []


@pytest.mark.parametrize("host", ["2130706433", "0x7f000001", "127.1", "0"])
async def test_this_machine_is_not_requested_in_another_notation_of_its_address(host: str) -> None:
    """Some are refused as addresses, others once they are resolved. A bug: aiohttp 3.13 connected to some."""
    async with start_site() as site, Fetcher() as fetcher:
        with pytest.raises(NotAllowed, match="is in a private network or on this machine"):
            await fetcher.request("GET", f"http://{host}:{site.origin.rpartition(':')[2]}/")
        assert site.requests == []


@pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://a.example/", "http://u:secret@a.example/", "http://", ""])
async def test_an_invalid_or_non_http_url_is_not_requested(url: str) -> None:
    async with Fetcher() as fetcher:
        with pytest.raises(ConnectionFailed, match="is not requested") as caught:
            await fetcher.request("GET", url)
        assert "secret" not in str(caught.value)


async def test_a_name_that_changes_its_address_is_checked_at_each_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """In DNS rebinding, a name resolves to a public address first, and to a loopback address later."""
    async with start_site() as site:
        port = int(site.origin.rpartition(":")[2])
        answers = iter(["192.0.0.9", "127.0.0.1"])
        checked: list[tuple[str, str]] = []

        async def getaddrinfo(*_: Any, **__: Any) -> list[Any]:
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (next(answers), port))]

        def allow(host: str, address: str) -> bool:
            checked.append((host, address))
            return is_public(address)

        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", getaddrinfo)
        async with Fetcher(allow=allow, timeout=0.3) as fetcher:
            with pytest.raises(ConnectionFailed):  # no server has this address
                await fetcher.request("GET", f"http://pages.example:{port}/")
            await fetcher.close()
            with pytest.raises(NotAllowed, match=r"is not requested: pages\.example is in a private network"):
                await fetcher.request("GET", f"http://pages.example:{port}/")
        assert checked == [("pages.example", "192.0.0.9"), ("pages.example", "127.0.0.1")]
        assert site.requests == []


async def test_hosts_with_private_addresses_are_not_requested_through_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    async with start_site() as site:
        monkeypatch.setenv("http_proxy", site.other_origin)
        loop, port = asyncio.get_running_loop(), int(site.other_origin.rpartition(":")[2])

        async def getaddrinfo(host: str, *_: Any, **__: Any) -> list[Any]:
            if is_loopback(host):
                return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, port))]
            if host == "intranet.example":
                return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("10.0.0.1", 80))]
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

        monkeypatch.setattr(loop, "getaddrinfo", getaddrinfo)
        async with Fetcher() as fetcher:
            assert (await fetcher.request("GET", "http://pages.example/end")).status == 200
            for url in ("http://intranet.example/end", "http://10.0.0.1/end"):
                with pytest.raises(ConnectionFailed, match="private network"):
                    await fetcher.request("GET", url)
        assert len(site.requests) == 1


@pytest.mark.parametrize("host", ["a..b", f"{'a' * 64}.example"])
async def test_a_host_that_is_no_valid_name_is_left_to_the_proxy(monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    """Regression: the codec `idna` raised a bare UnicodeError."""
    async with start_site() as site, Fetcher() as fetcher:
        monkeypatch.setenv("http_proxy", site.other_origin)
        assert (await fetcher.request("GET", f"http://{host}/end")).status == 200
        assert len(site.requests) == 1


@pytest.mark.parametrize(
    ("url", "target", "same"),
    [
        ("https://a.example/x", "https://a.example:443/y", True),
        ("https://a.example/x", "http://a.example/x", False),
        ("https://a.example/x", "https://b.example/x", False),
        ("https://a.example/x", "https://a.example:444/x", False),
        ("nonsense", "nonsense", False),
    ],
)
def test_origins_are_compared_by_scheme_host_and_port(url: str, target: str, same: bool) -> None:
    assert same_origin(url, target) is same
