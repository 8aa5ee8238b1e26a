"""Faulty servers, proxies and certificates, with real processes and sockets: each raises one typed error in time."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import resource
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT, free_port
from tests.transports.client_servers import ReceivedRequest, stub_server
from tests.waiting import wait_until_listening
from wharfinger import Client, Server
from wharfinger.client import Retry
from wharfinger.errors import (
    ConnectionFailed,
    ConnectionLost,
    InvalidResponse,
    NotAuthorized,
    RemoteError,
    RequestTimeout,
    WharfingerError,
)
from wharfinger.protocol.limits import Limits
from wharfinger.protocol.revisions import SUPPORTED
from wharfinger.transports import stream_client

PROGRAM = str(Path(__file__).with_name("faulty_server.py"))
QUICK = Retry(initial_delay=0.01)
MIB = 1024 * 1024


def run(test: Coroutine[Any, Any, None], seconds: float = 60) -> None:
    asyncio.run(asyncio.wait_for(test, seconds))


def faulty(**settings: Any) -> Client:
    command = [sys.executable, "-I", "-S", PROGRAM]
    return Client(command, **{"revision": "2025-11-25", "retry": QUICK, **settings})


# Output of a child.


@pytest.mark.parametrize("fault", ["print", "latin", "halves", "slow", "rubbish", "rubbish_lines"])
def test_an_answer_is_found_among_other_output(fault: str) -> None:
    async def test() -> None:
        async with faulty() as client:
            assert (await client.call_tool(fault)).text == "calm"
            assert (await client.call_tool("calm")).text == "calm"

    run(test())


@pytest.mark.parametrize("fault", ["latin_answer", "deep"])
def test_an_invalid_answer_fails_its_own_call_only(fault: str) -> None:
    async def test() -> None:
        async with faulty() as client:
            with pytest.raises(InvalidResponse):
                await client.call_tool(fault, timeout=20)
            assert (await client.call_tool("calm")).text == "calm"

    run(test())


def test_an_exit_in_the_middle_of_a_line_is_a_lost_connection_and_the_next_call_succeeds() -> None:
    async def test() -> None:
        async with faulty() as client:
            with pytest.raises(ConnectionLost, match="3"):
                await client.call_tool("half")
            assert (await client.call_tool("calm")).text == "calm"

    run(test())


def test_an_answer_of_50_mib_is_read() -> None:
    async def test() -> None:
        async with faulty() as client:
            assert len((await client.call_tool("large")).text) == 50 * MIB

    run(test())


def test_a_line_over_the_limit_fails_its_call() -> None:
    async def test() -> None:
        async with faulty(limits=Limits(message=MIB, depth=64)) as client:
            with pytest.raises(InvalidResponse, match="over the limit"):
                await client.call_tool("endless")
            assert (await client.call_tool("calm")).text == "calm"

    run(test())


def test_a_request_over_the_limit_of_the_server_fails_before_its_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server does not read the id, so its error has none."""
    monkeypatch.setattr(stream_client, "TENTATIVE_ERROR_SECONDS", 0.2)
    server = Server("narrow", limits=Limits(message=10_000))

    @server.tool
    async def weigh(text: str) -> int:
        return len(text)

    async def test() -> None:
        for revision in SUPPORTED:
            async with Client(server, revision=revision) as client:
                await client.list_tools()
                with pytest.raises(RemoteError, match="the limit is 10000"):
                    await client.call_tool("weigh", {"text": "x" * 20_000})
                assert (await client.call_tool("weigh", {"text": "x" * 200}, returns=int)).data == 200

    run(test())


def test_an_unanswered_call_times_out_and_delays_no_other_call() -> None:
    async def test() -> None:
        async with faulty() as client:
            silent = asyncio.create_task(client.call_tool("silent", timeout=0.5))
            assert (await client.call_tool("calm")).text == "calm"
            with pytest.raises(RequestTimeout, match=r"0\.5 s"):
                await silent

    run(test())


def test_a_hostile_pattern_delays_no_other_call() -> None:
    """A hostile server chooses both the output schema and the text that it is applied to."""

    async def test() -> None:
        async with faulty() as client:
            await client.list_tools()
            began = time.monotonic()
            with contextlib.suppress(InvalidResponse):
                await client.call_tool("hostile_pattern")
            assert time.monotonic() - began < 10
            assert (await client.call_tool("calm")).text == "calm"

    run(test())


# Secrets, proxies and certificates.


@pytest.mark.parametrize(
    "secret",
    [["--password", "hunter2"], ["--token=hunter2"], ["API_KEY=hunter2"], ["postgres://ann:hunter2@db/x"],
     ["http://x/?token=hunter2"], ["--header", "Authorization: Bearer hunter2hunter2"]],
)  # fmt: skip
def test_no_error_contains_a_secret_of_the_command(secret: list[str]) -> None:
    """The command does not exist, exits with a message, or does not answer."""
    end = "import sys; print('cannot use', *sys.argv[1:], file=sys.stderr); sys.exit(1)"
    noise = "import sys; print('token=hunter2', flush=True); sys.stdin.read()"
    commands = [["/no/such/command"], [sys.executable, "-c", end], [sys.executable, "-c", noise]]

    async def test() -> None:
        for command in commands:
            with pytest.raises(WharfingerError) as caught:
                await Client([*command, *secret], open_timeout=1, probe_timeout=0.2).open()
            assert "hunter2" not in str(caught.value)
        with pytest.raises(ValueError, match="is not a target of a known kind") as refused:
            Client(" ".join(["serve", *secret]))
        assert "hunter2" not in str(refused.value)

    run(test())


async def redirect(request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
    status = b"301 Moved Permanently" if request.path.startswith("/mcp") else b"302 Found"
    place = (
        b"/there?token=hunter2"
        if request.path.startswith("/mcp")
        else b"http://ann:hunter2@example.test/?token=hunter2"
    )
    writer.write(b"HTTP/1.1 %s\r\nLocation: %s\r\nContent-Length: 0\r\n\r\n" % (status, place))


async def echo(request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
    body = b"no such token=hunter2 in http://ann:hunter2@here/"
    writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))


@pytest.mark.parametrize("serve", [redirect, echo])
@pytest.mark.parametrize("path", ["/mcp", "/other"])
def test_no_error_contains_a_secret_of_the_url(serve: Any, path: str) -> None:
    async def test() -> None:
        async with stub_server(serve) as base:
            url = base.replace("http://", "http://ann:hunter2@") + f"{path}?token=hunter2"
            with pytest.raises(WharfingerError) as caught:
                await Client(url).open()
            assert "hunter2" not in str(caught.value)

    run(test())


@pytest.mark.parametrize(
    "url", ["http://ann:hunter2@[::1/mcp", "http://ann:hunter2@", "http://ann:hunter2@host:99999/"]
)
def test_no_error_contains_the_password_of_an_invalid_url(url: str) -> None:
    async def test() -> None:
        with pytest.raises(WharfingerError) as caught:
            await Client(url).open()
        assert "hunter2" not in str(caught.value)

    run(test())


def test_an_unreachable_port_is_reported_with_its_url() -> None:
    port = free_port()

    async def test() -> None:
        with pytest.raises(ConnectionFailed, match=f"127.0.0.1:{port}"):
            async with Client(f"http://127.0.0.1:{port}/mcp", open_timeout=20):
                raise AssertionError

    run(test())


def test_an_unreachable_proxy_is_named_in_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    dead = f"http://127.0.0.1:{free_port()}"
    for name in ("http_proxy", "HTTP_PROXY"):
        monkeypatch.setenv(name, dead)
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)

    async def test() -> None:
        with pytest.raises(ConnectionFailed, match=r"its proxy http://127\.0\.0\.1:\d+ does not answer"):
            async with Client("http://harbour.example/mcp", open_timeout=20):
                raise AssertionError

    run(test())


async def bad_gateway(request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 13\r\n\r\nupstream gone")


def test_an_error_of_a_proxy_is_reported_with_its_body() -> None:
    async def test() -> None:
        async with stub_server(bad_gateway) as url:
            with pytest.raises(ConnectionFailed, match=r"502 Bad Gateway.*upstream gone"):
                async with Client(f"{url}/mcp"):
                    raise AssertionError

    run(test())


async def swallow(request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
    """A proxy that accepts and never answers."""


def test_a_proxy_that_never_answers_fails_after_open_timeout() -> None:
    async def test() -> None:
        async with stub_server(swallow) as url:
            began = time.monotonic()
            with pytest.raises(WharfingerError) as caught:
                async with Client(f"{url}/mcp", open_timeout=1, probe_timeout=0.3):
                    raise AssertionError
            assert isinstance(caught.value, ConnectionFailed | RequestTimeout)
            assert time.monotonic() - began < 10

    run(test())


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> ssl.SSLContext:
    """Return a TLS context with an untrusted certificate."""
    folder = tmp_path_factory.mktemp("certificate")
    key, own = folder / "key.pem", folder / "own.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost", "-days", "1",
         "-keyout", str(key), "-out", str(own)],
        check=True, capture_output=True,
    )  # fmt: skip
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(own, key)
    return context


def test_an_untrusted_certificate_is_refused(certificate: ssl.SSLContext) -> None:
    async def test() -> None:
        async with stub_server(bad_gateway, ssl=certificate) as url:
            with pytest.raises(ConnectionFailed, match=r"(?i)certificate"):
                async with Client(f"{url}/mcp"):
                    raise AssertionError

    run(test())


def test_https_to_a_plain_http_server_is_reported(example_url: str) -> None:
    async def test() -> None:
        with pytest.raises(ConnectionFailed, match=r"(?i)ssl|tls"):
            async with Client(example_url.replace("http:", "https:"), open_timeout=20):
                raise AssertionError

    run(test())


# Expired tokens.


class Tokens:
    """Authentication that replaces a refused token with the next one until none is left."""

    def __init__(self, number: int) -> None:
        self.left = [f"token-{each}" for each in range(1, number + 1)]

    async def headers(self, url: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.left[0]}"}

    async def refused(self, url: str, status: int, headers: Mapping[str, str], sent: Mapping[str, str]) -> bool:
        if len(self.left) > 1:
            self.left.pop(0)
            return True
        return False


class TokenServer:
    """A server of the stateless era that accepts one token at a time."""

    def __init__(self) -> None:
        self.valid = "token-1"

    async def __call__(self, request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        if request.headers.get("authorization") != f"Bearer {self.valid}":
            head = b"HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Bearer\r\nContent-Length: 7\r\n\r\n"
            writer.write(head + b"expired")
            return
        id, method = request.message["id"], request.message["method"]
        result: dict[str, Any] = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
        if method == "server/discover":
            result |= {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}
        else:
            result["content"] = [{"type": "text", "text": "calm"}]
        body = json.dumps({"jsonrpc": "2.0", "id": id, "result": result}).encode()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n")
        writer.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)


def test_an_expired_token_is_renewed_within_the_call_or_reported() -> None:
    async def test() -> None:
        gate = TokenServer()
        async with stub_server(gate) as url, Client(f"{url}/mcp", auth=Tokens(2)) as client:
            assert (await client.call_tool("calm")).text == "calm"
            gate.valid = "token-2"
            assert (await client.call_tool("calm")).text == "calm"
            gate.valid = "token-3"
            with pytest.raises(NotAuthorized, match=r"401 Unauthorized.*expired"):
                await client.call_tool("calm")

    run(test())


def test_an_expired_token_in_the_headers_is_reported() -> None:
    async def test() -> None:
        gate = TokenServer()
        headers = {"Authorization": "Bearer token-1"}
        async with stub_server(gate) as url, Client(f"{url}/mcp", headers=headers) as client:
            assert (await client.call_tool("calm")).text == "calm"
            gate.valid = "token-2"
            with pytest.raises(NotAuthorized, match=r"401 Unauthorized.*expired"):
                await client.call_tool("calm")

    run(test())


# Resource use.


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd" if os.path.isdir("/proc/self/fd") else "/dev/fd"))


def resident() -> float:
    """Return the memory in use in MiB, or the peak on systems without /proc."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except FileNotFoundError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / MIB
    return pages * os.sysconf("SC_PAGE_SIZE") / MIB


@pytest.fixture
def example_url(tmp_path: Path) -> Iterator[str]:
    """Serve the example server over HTTP in another process and yield its URL."""
    port = free_port()
    code = f"from tests.client.example_server import example_server; example_server().run(http='127.0.0.1:{port}')"
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=log, stderr=log)
    try:
        wait_until_listening(process, port, (tmp_path / "log").read_text)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.kill()
        process.wait()


CONCURRENCY = 4


async def cycles(number: int, make: Callable[[], Client], tool: str, arguments: Any = None) -> None:
    """Connect, call and close this many times, and check that descriptors and memory do not grow."""

    async def some(times: int) -> None:
        for _ in range(times):
            async with make() as client:
                await client.call_tool(tool, arguments)

    async def turn(times: int) -> None:
        await asyncio.gather(*(some(times // CONCURRENCY) for _ in range(CONCURRENCY)))
        gc.collect()

    await turn(60)
    open_before, held_before = descriptors(), resident()
    await turn(number)
    assert descriptors() <= open_before + 3
    assert resident() - held_before < 8
    assert len(asyncio.all_tasks()) <= 2


@pytest.mark.timeout(240)
@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
def test_five_hundred_connections_over_http_leak_nothing(example_url: str, revision: str) -> None:
    run(cycles(500, lambda: Client(example_url, revision=revision), "add", {"a": 1, "b": 2}), 240)


@pytest.mark.timeout(240)
def test_four_hundred_children_leak_nothing() -> None:
    run(cycles(400, faulty, "calm"), 240)
