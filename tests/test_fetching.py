"""The fetcher with real servers: redirects, credentials, allowed addresses, and limits of size and time."""

from __future__ import annotations

import asyncio
import gzip
import socket
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from wharfinger.errors import ConnectionFailed
from wharfinger.fetching import Fetcher, Gunzip, TooLarge, same_origin
from wharfinger.net import is_loopback, is_public
from wharfinger.protocol.interfaces import HttpResponse

LIMIT = 100_000


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 30))


class Site:
    """A web site whose answers depend on the path. `ports` are the client's ports, one for each connection."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str, dict[str, str]]] = []
        self.ports: set[int] = set()
        self.origin = self.elsewhere = ""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.requests.append((request.method, request.path_qs, {k.lower(): v for k, v in request.headers.items()}))
        assert request.transport is not None
        self.ports.add(request.transport.get_extra_info("peername")[1])
        kind, _, rest = request.path.lstrip("/").partition("/")
        match kind:
            case "hops":
                raise web.HTTPFound(f"/hops/{int(rest) - 1}" if int(rest) > 1 else "/end")
            case "to":
                return web.Response(status=307, headers={"Location": request.query["url"]})
            case "away":
                raise web.HTTPFound(f"{self.elsewhere}/end")
            case "size":
                return web.Response(body=b"x" * int(rest))
            case "stream":
                stream = web.StreamResponse()
                await stream.prepare(request)
                while True:
                    await stream.write(b"x" * 1000)
            case "gzip":
                return web.Response(body=gzip.compress(b"x" * int(rest)), headers={"Content-Encoding": "gzip"})
            case "half":
                body = gzip.compress(bytes(range(256)) * 4)[:-10]
                return web.Response(body=body, headers={"Content-Encoding": "gzip"})
            case "br":
                return web.Response(body=b"x", headers={"Content-Encoding": "br"})
            case "slow":
                await asyncio.Event().wait()
        return web.Response(text="end", headers={"Set-Cookie": "a=b", "ETag": '"1"'})


@asynccontextmanager
async def site() -> AsyncIterator[Site]:
    there = Site()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", there.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    try:
        for name in ("origin", "elsewhere"):
            listening = web.TCPSite(runner, "127.0.0.1", 0)
            await listening.start()
            setattr(there, name, listening.name)
        yield there
    finally:
        await runner.cleanup()


def allow_all(_host: str, _address: str) -> bool:
    return True


def test_connections_are_kept_and_cookies_are_not() -> None:
    async def test() -> None:
        async with site() as there, Fetcher(allow=allow_all) as fetcher:
            for _ in range(3):
                answer = await fetcher.request("GET", f"{there.origin}/a?b=%2F%20c")
            assert answer == HttpResponse(200, answer.headers, b"end", f"{there.origin}/a?b=%2F%20c")
            assert answer.headers["etag"] == '"1"'
            assert len(there.ports) == 1
            assert {path for _, path, _ in there.requests} == {"/a?b=%2F%20c"}
            assert all("cookie" not in headers for *_, headers in there.requests)
            assert there.requests[0][2]["user-agent"].startswith("wharfinger/")

    run(test())


def test_a_fetcher_can_be_used_in_one_loop_after_another() -> None:
    fetcher = Fetcher(allow=allow_all)

    async def test() -> None:
        async with site() as there, fetcher:
            assert (await fetcher.request("GET", there.origin)).status == 200

    run(test())
    run(test())


def test_redirects_within_the_origin_are_followed_up_to_the_limit() -> None:
    async def test() -> None:
        async with site() as there, Fetcher(allow=allow_all, max_redirects=3) as fetcher:
            answer = await fetcher.request("GET", f"{there.origin}/hops/3", headers={"X-Key": "secret"})
            assert (answer.status, answer.url) == (200, f"{there.origin}/end")
            assert [headers.get("x-key") for *_, headers in there.requests] == ["secret"] * 4
            with pytest.raises(ConnectionFailed, match="redirects more than 3 times"):
                await fetcher.request("GET", f"{there.origin}/hops/4")

    run(test())


def test_a_redirect_to_another_origin_is_not_followed_by_default() -> None:
    async def test() -> None:
        async with site() as there, Fetcher(allow=allow_all) as fetcher:
            with pytest.raises(ConnectionFailed, match="redirects elsewhere"):
                await fetcher.request("GET", f"{there.origin}/away")
            assert [path for _, path, _ in there.requests] == ["/away"]

    run(test())


def test_another_origin_gets_no_credentials() -> None:
    async def test() -> None:
        rules = Fetcher(allow=allow_all, follow=lambda _url, _target: True, headers={"Authorization": "Bearer x"})
        async with site() as there, rules as fetcher:
            answer = await fetcher.request(
                "GET", f"{there.origin}/away", headers={"X-Api-Key": "secret", "Accept": "text/html"}
            )
            assert answer.url == f"{there.elsewhere}/end"
            first, second = (headers for *_, headers in there.requests)
            assert (first["authorization"], first["x-api-key"]) == ("Bearer x", "secret")
            assert second.keys() <= {"host", "accept", "accept-encoding", "user-agent"}
            assert second["accept"] == "text/html"

    run(test())


@pytest.mark.parametrize("target", ["file:///etc/passwd", "http://user:pass@127.0.0.1/", "http://[::1"])
def test_a_redirect_to_an_invalid_or_non_http_url_is_not_followed(target: str) -> None:
    async def test() -> None:
        async with site() as there, Fetcher(allow=allow_all, follow=lambda _url, _target: True) as fetcher:
            with pytest.raises(ConnectionFailed, match="redirects elsewhere") as failure:
                await fetcher.request("GET", f"{there.origin}/to?url={target}")
            assert "pass@" not in str(failure.value)

    run(test())


def test_requests_that_change_something_are_not_redirected() -> None:
    async def test() -> None:
        async with site() as there, Fetcher(allow=allow_all) as fetcher:
            assert (await fetcher.request("POST", f"{there.origin}/hops/1", body=b"x")).status == 302
            assert (await fetcher.request("HEAD", f"{there.origin}/hops/1")).status == 200

    run(test())


def test_a_redirect_is_returned_as_the_answer_without_a_rule_for_redirects() -> None:
    async def test() -> None:
        async with site() as there, Fetcher(allow=allow_all, follow=None) as fetcher:
            assert (await fetcher.request("GET", f"{there.origin}/hops/1")).status == 302

    run(test())


def test_each_hop_is_checked() -> None:
    async def test() -> None:
        async with site() as there:
            rules = Fetcher(allow=allow_all, refuse=lambda url: "it is secret" if url.endswith("/end") else None)
            async with rules as fetcher:
                with pytest.raises(ConnectionFailed, match="is not requested: it is secret"):
                    await fetcher.request("GET", f"{there.origin}/hops/2")
            assert [path for _, path, _ in there.requests] == ["/hops/2", "/hops/1"]

    run(test())


@pytest.mark.parametrize("path", ["size", "gzip"])
def test_the_limit_of_a_body_applies_after_decompression(path: str) -> None:
    async def test() -> None:
        async with site() as there, Fetcher(allow=allow_all, max_body_bytes=LIMIT) as fetcher:
            assert len((await fetcher.request("GET", f"{there.origin}/{path}/{LIMIT}")).body) == LIMIT
            with pytest.raises(TooLarge, match=f"more than {LIMIT} bytes"):
                await fetcher.request("GET", f"{there.origin}/{path}/{LIMIT + 1}")
            with pytest.raises(TooLarge):
                await fetcher.request("GET", f"{there.origin}/{path}/{LIMIT}", max_body_bytes=LIMIT - 1)
            with pytest.raises(TooLarge):
                await fetcher.request("GET", f"{there.origin}/stream")

    run(test())


def test_a_gzip_bomb_is_inflated_no_further_than_the_limit() -> None:
    bomb = gzip.compress(bytes(64 * 1024 * 1024))
    inflater = Gunzip(LIMIT)
    with pytest.raises(OverflowError):
        inflater.feed(bomb)
    inflater = Gunzip(64 * 1024 * 1024)
    assert sum(len(inflater.feed(bomb[at : at + 1000])) for at in range(0, len(bomb), 1000)) == 64 * 1024 * 1024
    assert inflater.complete


@pytest.mark.parametrize(("path", "fault"), [("half", "ends too early"), ("br", "only gzip is read")])
def test_a_body_that_cannot_be_decompressed_is_an_error(path: str, fault: str) -> None:
    async def test() -> None:
        async with site() as there, Fetcher(allow=allow_all) as fetcher:
            with pytest.raises(ConnectionFailed, match=fault):
                await fetcher.request("GET", f"{there.origin}/{path}")

    run(test())


@pytest.mark.parametrize(
    "damaged",
    [b"no gzip at all", gzip.compress(b"x") + b"more", b"\x1f\x8b\x08\xff" + b"x" * 99],
    ids=["no gzip", "more data", "unknown flags"],
)
def test_damaged_gzip_is_an_error(damaged: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        Gunzip(LIMIT).feed(damaged)


def test_the_time_of_all_hops_is_bounded() -> None:
    async def test() -> None:
        async with site() as there, Fetcher(allow=allow_all, timeout=0.2) as fetcher:
            with pytest.raises(ConnectionFailed, match=r"within 0\.2 s"):
                await fetcher.request("GET", f"{there.origin}/slow")

    run(test())


@pytest.mark.parametrize(
    "url",
    ["http://127.0.0.1:{port}/", "http://[::1]:{port}/", "http://[::ffff:127.0.0.1]:{port}/", "http://localhost:{port}/",
     "http://2130706433:{port}/", "http://0x7f000001:{port}/", "http://127.1:{port}/", "http://0:{port}/",
     "http://10.0.0.1/", "http://169.254.169.254/latest/meta-data/"],
)  # fmt: skip
def test_only_public_addresses_are_requested_by_default(url: str) -> None:
    async def test() -> None:
        async with site() as there, Fetcher() as fetcher:
            port = there.origin.rpartition(":")[2]
            with pytest.raises(ConnectionFailed, match=r"private network|not a canonical|failed|cannot be reached"):
                await fetcher.request("GET", url.format(port=port))
            assert there.requests == []

    run(test())


@pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://a.example/", "http://u:secret@a.example/", "http://", ""])
def test_an_invalid_or_non_http_url_is_not_requested(url: str) -> None:
    async def test() -> None:
        async with Fetcher() as fetcher:
            with pytest.raises(ConnectionFailed, match="is not requested") as failure:
                await fetcher.request("GET", url)
            assert "secret" not in str(failure.value)

    run(test())


def test_a_name_that_changes_its_address_is_checked_at_each_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """The resolver of the system answers as in DNS rebinding: first with a public address, then with this machine's."""

    async def test() -> None:
        async with site() as there:
            port = int(there.origin.rpartition(":")[2])
            answers = iter(["192.0.0.9", "127.0.0.1"])
            seen: list[tuple[str, str]] = []

            async def rebinding(*_: Any, **__: Any) -> list[Any]:
                return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (next(answers), port))]

            def allow(host: str, address: str) -> bool:
                seen.append((host, address))
                return is_public(address)

            monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", rebinding)
            async with Fetcher(allow=allow, timeout=0.3) as fetcher:
                with pytest.raises(ConnectionFailed):  # nothing answers there
                    await fetcher.request("GET", f"http://pages.example:{port}/")
                await fetcher.close()
                with pytest.raises(ConnectionFailed, match="private network"):
                    await fetcher.request("GET", f"http://pages.example:{port}/")
            assert seen == [("pages.example", "192.0.0.9"), ("pages.example", "127.0.0.1")]
            assert there.requests == []

    run(test())


def test_a_proxy_does_not_lead_to_hosts_that_this_machine_knows_as_private(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with site() as there:
            monkeypatch.setenv("http_proxy", there.elsewhere)
            loop, port = asyncio.get_running_loop(), int(there.elsewhere.rpartition(":")[2])

            async def resolves(host: str, *_: Any, **__: Any) -> list[Any]:
                if is_loopback(host):
                    return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, port))]
                if host == "intranet.example":
                    return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("10.0.0.1", 80))]
                raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

            monkeypatch.setattr(loop, "getaddrinfo", resolves)
            async with Fetcher() as fetcher:
                assert (await fetcher.request("GET", "http://pages.example/end")).status == 200
                for url in ("http://intranet.example/end", "http://10.0.0.1/end"):
                    with pytest.raises(ConnectionFailed, match="private network"):
                        await fetcher.request("GET", url)
            assert len(there.requests) == 1

    run(test())


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
def test_an_origin_is_scheme_host_and_port(url: str, target: str, same: bool) -> None:
    assert same_origin(url, target) is same
