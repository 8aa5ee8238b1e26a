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
    decode_result,
    encode_result,
    open_link,
    run,
    send_request,
    stub_server,
    write_response,
)
from wharfinger.errors import ConnectionFailed, NotAuthorized, RequestTimeout
from wharfinger.transports.http_client.http_link import HttpLink
from wharfinger.transports.http_client.origin import MAX_EXCERPT_CHARACTERS, excerpt


class TokenList:
    """Authentication that tries one token after the other until one is accepted."""

    def __init__(self, *tokens: str, sign_in_seconds: float = 0.0) -> None:
        self.tokens = list(tokens)
        self.sign_in_seconds = sign_in_seconds
        self.last_token_seconds = 0.0
        self.reported: list[tuple[int, str, Mapping[str, str]]] = []

    async def headers(self, url: str) -> Mapping[str, str]:
        if len(self.tokens) == 1:
            await asyncio.sleep(self.last_token_seconds)
        return {"Authorization": f"Bearer {self.tokens[0]}"} if self.tokens else {}

    async def refused(self, url: str, status: int, headers: Mapping[str, str], sent: Mapping[str, str]) -> bool:
        self.reported.append((status, headers.get("www-authenticate", ""), sent))
        await asyncio.sleep(self.sign_in_seconds)
        if self.tokens:
            del self.tokens[0]
        return bool(self.tokens)


async def require_good_token(request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
    if request.headers.get("authorization") == "Bearer good":
        write_response(writer, encode_result(request, verb=request.verb))
    else:
        write_response(writer, b"who?", "text/plain", "401 Unauthorized", "WWW-Authenticate: Bearer realm=x\r\n")


def test_a_refused_request_is_repeated_with_the_next_token() -> None:
    async def test() -> None:
        tokens = TokenList("old", "good")
        async with open_link(require_good_token, auth=tokens) as link:
            assert decode_result(await send_request(link)) == {"verb": "POST"}
            assert decode_result(await send_request(link)) == {"verb": "POST"}
        assert tokens.reported == [(401, "Bearer realm=x", {"Authorization": "Bearer old"})]

    run(test())


def test_a_request_is_refused_after_three_rejected_tokens() -> None:
    async def test() -> None:
        tokens = TokenList(*(str(n) for n in range(100)))
        async with open_link(require_good_token, auth=tokens) as link:
            with pytest.raises(NotAuthorized, match="401 Unauthorized: who"):
                await send_request(link)
        assert len(tokens.reported) == 3

    run(test())


def test_a_refusal_that_arrives_in_parts_is_reported_whole() -> None:
    async def refuse(request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 401 Unauthorized\r\nContent-Type: text/plain\r\nContent-Length: 11\r\n\r\nwho ")
        for _ in range(50):  # turns in which the client reads the first part
            await asyncio.sleep(0)
        writer.write(b"are you")

    async def test() -> None:
        async with open_link(refuse) as link:
            with pytest.raises(NotAuthorized, match="401 Unauthorized: who are you"):
                await send_request(link)

    run(test())


def test_a_refusal_without_a_reason_phrase_is_one_sentence() -> None:
    async def refuse(request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        write_response(writer, b"", "text/plain", "401 ")

    async def test() -> None:
        async with open_link(refuse) as link:
            with pytest.raises(NotAuthorized, match=r"answered 401\.$"):
                await send_request(link)

    run(test())


@pytest.mark.parametrize("form", ["{}", '{{"error":{{"code":1,"message":"{}"}}}}'])
def test_a_token_at_the_cut_of_an_excerpt_is_hidden(form: str) -> None:
    """Regression: the text was cut first, and a token that is cut has no known form."""
    token = "ghp_" + "aB3" * 12
    for before in range(MAX_EXCERPT_CHARACTERS - len(token), MAX_EXCERPT_CHARACTERS):
        text = excerpt(form.format("x" * (before - 1) + " " + token + " end").encode())
        assert len(text) <= len(": ") + MAX_EXCERPT_CHARACTERS
        assert "ghp" not in text


@pytest.mark.parametrize(("length", "shown"), [(200, 200), (201, 200)])
def test_an_excerpt_is_cut_between_characters(length: int, shown: int) -> None:
    assert excerpt(("é" * length).encode()) == ": " + "é" * shown


def test_a_failed_sign_in_raises_the_error_of_the_server() -> None:
    async def test() -> None:
        async with open_link(require_good_token, auth=TokenList()) as link:
            with pytest.raises(NotAuthorized, match="401 Unauthorized: who"):
                await send_request(link)

    run(test())


def test_the_deadline_is_paused_while_a_user_signs_in() -> None:
    async def test() -> None:
        async with open_link(require_good_token, auth=TokenList("old", "good", sign_in_seconds=2)) as link:
            assert decode_result(await send_request(link, timeout=1.5)) == {"verb": "POST"}

        async def never_answer_good_token(request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
            if request.headers["authorization"] != "Bearer good":
                await require_good_token(request, writer)

        async with open_link(never_answer_good_token, auth=TokenList("old", "good", sign_in_seconds=0.3)) as link:
            with pytest.raises(RequestTimeout):
                await send_request(link, timeout=0.2)

    run(test())


def test_the_deadline_is_paused_before_the_last_repetition() -> None:
    async def test() -> None:
        tokens = TokenList("a", "b", "c", "good")
        tokens.last_token_seconds = 2
        async with open_link(require_good_token, auth=tokens) as link:
            assert decode_result(await send_request(link, timeout=1.5)) == {"verb": "POST"}

    run(test())


def test_credentials_are_not_sent_to_another_server() -> None:
    """Security C25: the token of a sign-in must not be sent to the target of a redirect."""
    requests: list[ReceivedRequest] = []

    async def record(request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        requests.append(request)
        write_response(writer, encode_result(request))

    async def test() -> None:
        async with stub_server(record) as other_server:

            async def redirect(request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
                write_response(writer, b"", "text/plain", "307 Temporary Redirect", f"Location: {other_server}/mcp\r\n")

            async with open_link(redirect, auth=TokenList("good")) as link:
                with pytest.raises(ConnectionFailed, match="redirects to another server"):
                    await send_request(link)
        assert requests == []

    run(test())


def test_a_redirect_that_may_change_the_method_is_refused_with_its_location() -> None:
    async def serve(request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        write_response(writer, b"", "text/plain", "301 Moved Permanently", "Location: /new\r\n")

    async def test() -> None:
        async with open_link(serve) as link:
            with pytest.raises(ConnectionFailed, match=r"has moved \(301\): use http://127.0.0.1:\d+/new instead"):
                await send_request(link)

    run(test())


def test_credentials_of_a_netrc_file_are_not_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    netrc = tmp_path / ".netrc"
    netrc.write_text("machine 127.0.0.1 login me password hunter2\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    received_headers: list[Mapping[str, str]] = []

    async def serve(request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        received_headers.append(request.headers)
        write_response(writer, encode_result(request))

    async def test() -> None:
        async with open_link(serve, rules=HANDSHAKE) as link:
            await send_request(link)
            await send_request(link)
        assert not any("authorization" in headers for headers in received_headers)

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
        write_response(writer, encode_result(request, through=True))

    async def test() -> None:
        async with stub_server(serve) as proxy:
            set_proxies(monkeypatch, http_proxy=proxy)
            link = HttpLink("http://harbour.test/mcp", LIMITS)
            assert decode_result(await send_request(link)) == {"through": True}
            await link.close()

    run(test())


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_the_error_for_an_unreachable_proxy_contains_its_url(scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        server = await asyncio.start_server(lambda r, w: None, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        server.close()
        await server.wait_closed()
        set_proxies(monkeypatch, **{f"{scheme}_proxy": f"http://me:hunter2@127.0.0.1:{port}"})
        link = HttpLink(f"{scheme}://harbour.test/mcp", LIMITS)
        with pytest.raises(ConnectionFailed, match=rf"its proxy http://127\.0\.0\.1:{port} does not answer") as caught:
            await send_request(link)
        assert "hunter2" not in str(caught.value)
        await link.close()

    run(test())


def test_the_error_for_a_refusing_proxy_contains_its_status(monkeypatch: pytest.MonkeyPatch) -> None:
    async def serve(request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        assert request.verb == "CONNECT"
        write_response(writer, b"", "text/plain", "407 Proxy Authentication Required")

    async def test() -> None:
        async with stub_server(serve) as proxy:
            set_proxies(monkeypatch, https_proxy=proxy)
            link = HttpLink("https://harbour.test/mcp", LIMITS)
            with pytest.raises(ConnectionFailed, match=r"its proxy .* answered 407"):
                await send_request(link)
            await link.close()

    run(test())


# TLS.


def self_signed_context(folder: Path) -> ssl.SSLContext:
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
    async def serve(request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        write_response(writer, encode_result(request))

    async def test() -> None:
        async with stub_server(serve, ssl=self_signed_context(tmp_path)) as base:
            link = HttpLink(f"{base}/mcp", LIMITS)
            with pytest.raises(ConnectionFailed, match=r"TLS failed \(self.signed certificate\)") as caught:
                await send_request(link)
            assert base in str(caught.value)
            await link.close()

    run(test())


def test_a_server_without_tls_is_reported() -> None:
    async def answer_without_tls(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    async def test() -> None:
        server = await asyncio.start_server(answer_without_tls, "127.0.0.1", 0)
        link = HttpLink(f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp", LIMITS)
        with pytest.raises(ConnectionFailed, match="TLS failed"):
            await send_request(link)
        await link.close()
        server.close()

    run(test())


# Allowed addresses.


def is_not_loopback(address: str) -> bool:
    return not address.startswith("127.")


def test_no_connection_to_a_forbidden_address_is_opened() -> None:
    with pytest.raises(ConnectionFailed, match="in a private network or on this machine"):
        asyncio.run(send_with_address_check("http://127.0.0.1:9/mcp"))


def test_the_address_of_a_host_name_is_checked_before_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        connections: list[object] = []

        async def record(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            connections.append(writer)
            writer.close()

        async with await asyncio.start_server(record, "127.0.0.1", 0) as listener:
            port = listener.sockets[0].getsockname()[1]

            async def getaddrinfo(name: str, port: int, **_: object) -> object:
                return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]

            monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", getaddrinfo, raising=False)
            for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
                monkeypatch.delenv(name, raising=False)
            with pytest.raises(ConnectionFailed, match="in a private network or on this machine"):
                await send_with_address_check(f"http://harbour.example:{port}/mcp")
        assert connections == []

    run(test())


async def send_with_address_check(url: str) -> None:
    link = HttpLink(url, LIMITS, allow_address=is_not_loopback)
    try:
        await send_request(link)
    finally:
        await link.close()
