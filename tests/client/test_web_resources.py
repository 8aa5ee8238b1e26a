"""Resources with `https://` URIs that a client reads from the web: which ones, and what its requests contain.

The web is an HTTPS server on this machine for `docs.example`, which only a proxy of the environment can resolve. So
requests go through real TLS, and addresses of this machine stay forbidden.
"""

from __future__ import annotations

import asyncio
import ssl
import subprocess
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp.connector
import pytest
from aiohttp import web
from msgspec import UNSET

from wharfinger import Client, Host, Server
from wharfinger import types as t
from wharfinger.client import web_resources
from wharfinger.client.web_resources import WEB_URL

PAGE = "https://docs.example/tides.md"
HTML = "https://docs.example/page.html"


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 30))


class Web:
    """A web site with answers by path, and a proxy to it. `requests` contains the path and headers of each request."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, dict[str, str]]] = []
        self.port = 0

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.requests.append((request.path, {name.lower(): text for name, text in request.headers.items()}))
        match request.path:
            case "/tides.md":
                headers = {"Set-Cookie": "a=b", "Content-Type": "text/markdown; charset=utf-8"}
                return web.Response(text="from the web", headers=headers)
            case "/page.html":
                return web.Response(text="<script>x</script>", content_type="text/html")
            case "/picture":
                return web.Response(body=b"\x89PNG", content_type="image/png")
            case "/encoded":
                return web.Response(
                    body=bytes.fromhex(request.query["body"]), headers={"Content-Type": request.query["type"]}
                )
            case "/moved":
                raise web.HTTPFound("/tides.md")
            case "/private":
                raise web.HTTPFound(f"https://127.0.0.1:{self.port}/tides.md")
            case "/plain":
                raise web.HTTPFound("http://docs.example/tides.md")
            case "/large":
                return web.Response(body=b"x" * 1_001, content_type="text/plain")
            case "/slow":
                await asyncio.Event().wait()
        return web.Response(status=404)

    async def connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one tunnel (RFC 9110 §9.3.6), whatever host it is for."""
        await reader.readuntil(b"\r\n\r\n")
        web_reader, web_writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")

        async def copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
            with suppress(ConnectionError):
                while data := await source.read(65_536):
                    target.write(data)
                    await target.drain()
            target.close()

        await asyncio.gather(copy(reader, web_writer), copy(web_reader, writer))


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The certificate of `docs.example`, with its key, which the tests of this file trust."""
    path = tmp_path_factory.mktemp("tls") / "both.pem"
    names = "subjectAltName=DNS:docs.example"
    command = ["openssl", "req", "-x509", "-nodes", "-days", "2", "-subj", "/CN=docs.example"]
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]
    subprocess.run(
        [*command, *curve, "-addext", names, "-keyout", str(path.with_suffix(".key")), "-out", str(path)],
        check=True,
        capture_output=True,
    )
    aiohttp.connector._SSL_CONTEXT_VERIFIED.load_verify_locations(path)
    return path


@asynccontextmanager
async def serve_web(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Web]:
    site = Web()
    app = web.Application()
    app.router.add_get("/{path:.*}", site.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, certificate.with_suffix(".key"))
    listening = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
    await listening.start()
    site.port = runner.addresses[0][1]
    proxy = await asyncio.start_server(site.connect, "127.0.0.1", 0)
    monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{proxy.sockets[0].getsockname()[1]}")
    try:
        yield site
    finally:
        proxy.close()
        await runner.cleanup()


def naming_server(*resources: tuple[str, str]) -> Server:
    """Return a server that lists these resources, by URI and type, and has a text of its own for each."""
    server = Server("names")

    def add(uri: str, kind: str) -> None:
        options: Any = {"mime_type": kind} if kind else {}

        @server.resource(uri, name=uri.rpartition("/")[2], **options)
        async def read() -> str:
            return "from the server"

    for uri, kind in resources:
        add(uri, kind)

    @server.tool
    def link() -> t.ResourceLink:
        return t.ResourceLink(uri=HTML, name="page")

    return server


async def read(client: Client, uri: str) -> tuple[str, t.ResourceContents]:
    result = await client.read_resource(uri)
    return str(result.contents[0].text), result.contents[0]


def test_a_listed_resource_is_read_from_the_web(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with (
            serve_web(certificate, monkeypatch) as site,
            Client(
                naming_server((PAGE, "text/markdown")), fetch_web_resources=True, headers={"X-Key": "secret"}
            ) as client,
        ):
            assert (await read(client, PAGE))[0] == "from the server"  # the server has not named it yet
            await client.list_resources()
            for _ in range(2):
                text, content = await read(client, PAGE)
                assert (text, content.uri, content.mime_type) == ("from the web", PAGE, "text/markdown")
                assert content.meta == {WEB_URL: PAGE}
            for _, headers in site.requests:
                assert headers.keys() <= {"host", "accept", "accept-encoding", "user-agent"}

    run(test())


def test_by_default_resources_are_read_from_the_server(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with (
            serve_web(certificate, monkeypatch) as site,
            Client(naming_server((PAGE, "text/markdown"))) as client,
        ):
            await client.list_resources()
            assert (await read(client, PAGE))[0] == "from the server"
            assert site.requests == []

    run(test())


def test_a_resource_that_a_tool_links_to_is_read_from_the_web(
    certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        async with (
            serve_web(certificate, monkeypatch),
            Client(naming_server((HTML, "")), fetch_web_resources=True) as client,
        ):
            await client.call_tool("link")
            text, content = await read(client, HTML)
            assert (text, content.mime_type) == ("<script>x</script>", "text/html")

    run(test())


def test_a_resource_that_the_server_has_not_named_is_not_fetched(
    certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model could write what it knows into such a URI."""

    async def test() -> None:
        async with (
            serve_web(certificate, monkeypatch) as site,
            Client(naming_server((PAGE, "")), fetch_web_resources=True) as client,
        ):
            await client.list_resources()
            for uri in ("https://docs.example/tides.md?secret=1", "https://other.example/"):
                with pytest.raises(Exception, match="not found"):
                    await client.read_resource(uri)
            assert site.requests == []

    run(test())


@pytest.mark.parametrize(
    ("uri", "kind"),
    [
        ("https://docs.example/missing", ""),
        ("https://docs.example/private", ""),
        ("https://docs.example/plain", ""),
        ("https://docs.example/large", ""),
        ("https://docs.example/slow", ""),
        ("https://127.0.0.1/tides.md", ""),
        ("https://10.0.0.1/tides.md", ""),
        ("https://localhost/tides.md", ""),
        ("https://user:pass@docs.example/tides.md", ""),
        ("http://docs.example/tides.md", ""),
        (HTML, "text/markdown"),
    ],
)
def test_a_resource_that_the_web_does_not_serve_is_read_from_the_server(
    certificate: Path, monkeypatch: pytest.MonkeyPatch, uri: str, kind: str
) -> None:
    monkeypatch.setattr(web_resources, "MAX_BODY_BYTES", 1_000)
    monkeypatch.setattr(web_resources, "FETCH_SECONDS", 0.5)

    async def test() -> None:
        async with (
            serve_web(certificate, monkeypatch) as site,
            Client(naming_server((uri, kind)), fetch_web_resources=True) as client,
        ):
            await client.list_resources()
            assert (await read(client, uri))[0] == "from the server"
            assert "/tides.md" not in [path for path, _ in site.requests]

    run(test())


def test_redirects_are_followed_and_bytes_are_kept(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    moved, picture = "https://docs.example/moved", "https://docs.example/picture"

    async def test() -> None:
        async with (
            serve_web(certificate, monkeypatch),
            Client(naming_server((moved, ""), (picture, "image/png")), fetch_web_resources=True) as client,
        ):
            await client.list_resources()
            text, content = await read(client, moved)
            assert (text, content.uri, content.meta) == ("from the web", moved, {WEB_URL: PAGE})
            _, content = await read(client, picture)
            assert (content.blob, content.mime_type) == (b"\x89PNG", "image/png")

    run(test())


@pytest.mark.parametrize(
    ("charset", "body", "text"),
    [
        ("windows-1251", "Прилив".encode("windows-1251"), "Прилив"),
        ('"shift_jis"', "満潮".encode("shift_jis"), "満潮"),
        ("utf-8", "flood tide".encode("utf-16"), "flood tide"),
        ("utf-8", "Café at the quay".encode("windows-1252"), "Café at the quay"),
        ("unknown", b"tide", "tide"),
        ("hex", b"74696465", "74696465"),
        ("utf-8", b"\0\1", None),
    ],
)
def test_text_is_decoded_as_the_web_declares_or_else_as_its_bytes_suggest(
    certificate: Path, monkeypatch: pytest.MonkeyPatch, charset: str, body: bytes, text: str | None
) -> None:
    """A bug: the declared charset was ignored. `hex` is a codec of Python, but not of text."""
    uri = f"https://docs.example/encoded?body={body.hex()}&type={quote(f'text/plain; charset={charset}')}"

    async def test() -> None:
        async with (
            serve_web(certificate, monkeypatch),
            Client(naming_server((uri, "text/plain")), fetch_web_resources=True) as client,
        ):
            await client.list_resources()
            content = (await client.read_resource(uri)).contents[0]
            assert content.mime_type == "text/plain"
            assert (content.text, content.blob) == ((text, UNSET) if text else (UNSET, body))

    run(test())


def test_the_number_of_remembered_uris_is_bounded(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web_resources, "MAX_NAMED_URIS", 1)

    async def test() -> None:
        async with (
            serve_web(certificate, monkeypatch) as site,
            Client(naming_server((PAGE, ""), (HTML, "")), fetch_web_resources=True) as client,
        ):
            await client.list_resources()
            assert (await read(client, PAGE))[0] == "from the server"
            assert "script" in (await read(client, HTML))[0]
            assert [path for path, _ in site.requests] == ["/page.html"]

    run(test())


@pytest.mark.parametrize(("length", "text"), [(255, "from the web"), (256, "from the server")])
def test_a_resource_with_a_long_mime_type_is_read_from_the_server(
    certificate: Path, monkeypatch: pytest.MonkeyPatch, length: int, text: str
) -> None:
    """A bug: types of any length were remembered, and sent in `Accept`."""
    kind = "text/markdown; note=".ljust(length, "x")

    async def test() -> None:
        async with (
            serve_web(certificate, monkeypatch),
            Client(naming_server((PAGE, kind)), fetch_web_resources=True) as client,
        ):
            await client.list_resources()
            assert (await read(client, PAGE))[0] == text

    run(test())


@pytest.mark.parametrize("note", ["\r\nX-Note: tide", "\n", "\0", "\x7f", "; note=é"])
def test_a_resource_whose_mime_type_is_not_printable_ascii_is_read_from_the_server(
    certificate: Path, monkeypatch: pytest.MonkeyPatch, note: str
) -> None:
    """A bug: such a type was put into `Accept`; only the HTTP library refused control characters."""

    async def test() -> None:
        async with (
            serve_web(certificate, monkeypatch) as site,
            Client(naming_server((PAGE, f"text/markdown{note}")), fetch_web_resources=True) as client,
        ):
            await client.list_resources()
            assert (await read(client, PAGE))[0] == "from the server"
            assert site.requests == []

    run(test())


def test_a_host_reads_from_the_web_with_fetch_web_resources(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with (
            serve_web(certificate, monkeypatch),
            Host({"docs": naming_server((PAGE, "text/markdown"))}, fetch_web_resources=True) as host,
        ):
            await host.ready(timeout=10)
            await host.servers["docs"].client.list_resources()
            assert (await host.read(PAGE)).text == "from the web"

    run(test())
