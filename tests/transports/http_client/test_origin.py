"""Credentials, proxies, TLS and redirects: where a client sends its requests, and the errors."""

from __future__ import annotations

import asyncio
import shutil
import socket
import ssl
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.conftest import absent
from tests.transports.client_servers import (
    HANDSHAKE,
    LIMITS,
    ReceivedRequest,
    answer,
    ask,
    got,
    linked,
    result,
    run,
    serving,
)
from wharfinger.errors import ConnectionFailed, NotAuthorized, RequestTimeout
from wharfinger.transports.http_client.http_link import HttpLink


class TokenList:
    """Authentication that tries tokens until one is accepted."""

    def __init__(self, *tokens: str, seconds: float = 0.0) -> None:
        self.tokens = list(tokens)
        self.seconds = seconds
        self.reported: list[tuple[int, str, Mapping[str, str]]] = []

    async def headers(self, url: str) -> Mapping[str, str]:
        return {"Authorization": f"Bearer {self.tokens[0]}"} if self.tokens else {}

    async def refused(self, url: str, status: int, headers: Mapping[str, str], sent: Mapping[str, str]) -> bool:
        self.reported.append((status, headers.get("www-authenticate", ""), sent))
        await asyncio.sleep(self.seconds)
        if self.tokens:
            del self.tokens[0]
        return bool(self.tokens)


async def require_good_token(request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
    if request.headers.get("authorization") == "Bearer good":
        answer(writer, result(request, verb=request.verb))
    else:
        answer(writer, b"who?", "text/plain", "401 Unauthorized", "WWW-Authenticate: Bearer realm=x\r\n")


def test_a_refused_request_is_repeated_with_the_next_token() -> None:
    async def test() -> None:
        keys = TokenList("old", "good")
        async with linked(require_good_token, auth=keys) as link:
            assert got(await ask(link)) == {"verb": "POST"}
            assert got(await ask(link)) == {"verb": "POST"}
        assert keys.reported == [(401, "Bearer realm=x", {"Authorization": "Bearer old"})]

    run(test())


def test_the_retries_of_a_refused_request_are_bounded() -> None:
    async def test() -> None:
        keys = TokenList(*(str(n) for n in range(100)))
        async with linked(require_good_token, auth=keys) as link:
            with pytest.raises(NotAuthorized, match="401 Unauthorized: who"):
                await ask(link)
        assert len(keys.reported) == 3

    run(test())


def test_a_failed_sign_in_raises_the_error_of_the_server() -> None:
    async def test() -> None:
        async with linked(require_good_token, auth=TokenList()) as link:
            with pytest.raises(NotAuthorized, match="401 Unauthorized: who"):
                await ask(link)

    run(test())


def test_the_deadline_is_paused_while_a_user_signs_in() -> None:
    async def test() -> None:
        async with linked(require_good_token, auth=TokenList("old", "good", seconds=0.3)) as link:
            assert got(await ask(link, timeout=0.2)) == {"verb": "POST"}

        async def silent(request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
            if request.headers["authorization"] != "Bearer good":
                await require_good_token(request, writer)

        async with linked(silent, auth=TokenList("old", "good", seconds=0.3)) as link:
            with pytest.raises(RequestTimeout):
                await ask(link, timeout=0.2)

    run(test())


def test_credentials_are_not_sent_to_another_server() -> None:
    """Security C25: this holds for given headers and for those of a sign-in."""
    reached: list[ReceivedRequest] = []

    async def other(request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        reached.append(request)
        answer(writer, result(request))

    async def test() -> None:
        async with serving(other) as elsewhere:

            async def moved(request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
                answer(writer, b"", "text/plain", "307 Temporary Redirect", f"Location: {elsewhere}/mcp\r\n")

            async with linked(moved, auth=TokenList("good")) as link:
                with pytest.raises(ConnectionFailed, match="redirects to another server"):
                    await ask(link)
        assert reached == []

    run(test())


def test_a_redirect_that_may_change_the_method_is_reported_with_its_location() -> None:
    async def serve(request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        answer(writer, b"", "text/plain", "301 Moved Permanently", "Location: /new\r\n")

    async def test() -> None:
        async with linked(serve) as link:
            with pytest.raises(ConnectionFailed, match=r"has moved \(301\): use http://127.0.0.1:\d+/new instead"):
                await ask(link)

    run(test())


def test_credentials_of_a_file_are_not_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    netrc = tmp_path / ".netrc"
    netrc.write_text("machine 127.0.0.1 login me password hunter2\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    seen: list[Mapping[str, str]] = []

    async def serve(request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        seen.append(request.headers)
        answer(writer, result(request))

    async def test() -> None:
        async with linked(serve, rules=HANDSHAKE) as link:
            await ask(link)
            await ask(link)
        assert not any("authorization" in headers for headers in seen)

    run(test())


# Proxies.


def set_proxies(monkeypatch: pytest.MonkeyPatch, **variables: str) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)


def test_a_request_is_sent_through_the_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    async def serve(request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        assert request.path == "http://harbour.test/mcp"
        answer(writer, result(request, through=True))

    async def test() -> None:
        async with serving(serve) as proxy:
            set_proxies(monkeypatch, http_proxy=proxy)
            link = HttpLink("http://harbour.test/mcp", LIMITS)
            assert got(await ask(link)) == {"through": True}
            await link.close()

    run(test())


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_an_unreachable_proxy_is_named_in_the_error(scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        server = await asyncio.start_server(lambda r, w: None, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        server.close()
        await server.wait_closed()
        set_proxies(monkeypatch, **{f"{scheme}_proxy": f"http://me:hunter2@127.0.0.1:{port}"})
        link = HttpLink(f"{scheme}://harbour.test/mcp", LIMITS)
        with pytest.raises(ConnectionFailed, match=rf"its proxy http://127\.0\.0\.1:{port} does not answer") as caught:
            await ask(link)
        assert "hunter2" not in str(caught.value)
        await link.close()

    run(test())


def test_a_proxy_that_refuses_is_named_in_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    async def serve(request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        assert request.verb == "CONNECT"
        answer(writer, b"", "text/plain", "407 Proxy Authentication Required")

    async def test() -> None:
        async with serving(serve) as proxy:
            set_proxies(monkeypatch, https_proxy=proxy)
            link = HttpLink("https://harbour.test/mcp", LIMITS)
            with pytest.raises(ConnectionFailed, match=r"its proxy .* answered 407"):
                await ask(link)
            await link.close()

    run(test())


# TLS.


def certificate(folder: Path) -> ssl.SSLContext:
    openssl = shutil.which("openssl")
    if openssl is None:
        absent("openssl")
    key, cert = folder / "key.pem", folder / "cert.pem"
    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2")
    names = ("-subj", "/CN=harbour.test", "-keyout", str(key), "-out", str(cert))
    subprocess.run([str(openssl), "req", "-x509", *curve, *names], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    return context


def test_an_untrusted_certificate_is_reported(tmp_path: Path) -> None:
    async def ok(request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        answer(writer, result(request))

    async def test() -> None:
        async with serving(ok, ssl=certificate(tmp_path)) as base:
            link = HttpLink(f"{base}/mcp", LIMITS)
            with pytest.raises(ConnectionFailed, match=r"TLS failed \(self.signed certificate\)") as caught:
                await ask(link)
            assert base in str(caught.value)
            await link.close()

    run(test())


def test_a_server_without_tls_is_reported() -> None:
    async def plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    async def test() -> None:
        server = await asyncio.start_server(plain, "127.0.0.1", 0)
        link = HttpLink(f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp", LIMITS)
        with pytest.raises(ConnectionFailed, match="TLS failed"):
            await ask(link)
        await link.close()
        server.close()

    run(test())


# Allowed addresses.


def internet_only(address: str) -> bool:
    return not address.startswith("127.")


def test_no_connection_to_a_forbidden_address_is_opened() -> None:
    with pytest.raises(ConnectionFailed, match="in a private network or on this machine"):
        asyncio.run(one_request("http://127.0.0.1:9/mcp"))


def test_the_addresses_of_a_name_are_checked_when_it_is_connected(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        connected: list[object] = []

        async def record(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            connected.append(writer)
            writer.close()

        async with await asyncio.start_server(record, "127.0.0.1", 0) as listener:
            port = listener.sockets[0].getsockname()[1]

            async def getaddrinfo(name: str, port: int, **_: object) -> object:
                return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]

            monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", getaddrinfo, raising=False)
            for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
                monkeypatch.delenv(name, raising=False)
            with pytest.raises(ConnectionFailed, match="in a private network or on this machine"):
                await one_request(f"http://harbour.example:{port}/mcp")
        assert connected == []

    run(test())


async def one_request(url: str) -> None:
    link = HttpLink(url, LIMITS, allow_address=internet_only)
    try:
        await ask(link)
    finally:
        await link.close()
