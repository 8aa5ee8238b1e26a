"""The runner: its addresses, its shutdown, and the application inside another server."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.conftest import absent
from tests.transports.http_support import RawClient, SampleService, ServerThread, UvicornThread
from wharfinger.auth import static_token
from wharfinger.protocol.http.rules import HttpLimits
from wharfinger.transports.accepting import AddressInUse, CannotListen
from wharfinger.transports.http_server.app import HttpApp
from wharfinger.transports.http_server.runner import UnsafeBind, serve_http

TOKEN = "0123456789abcdef"


@pytest.mark.parametrize("host", ["0.0.0.0", "", "::", "192.0.2.1"])
def test_a_bind_beyond_loopback_needs_a_token_or_an_explicit_option(host: str) -> None:
    with pytest.raises(UnsafeBind, match=r"--token-env NAME.*--insecure"):
        asyncio.run(serve_http(SampleService(), host, 0))


def test_without_a_host_the_url_has_an_address_that_accepts_connections() -> None:
    """A bug: the URL was `http://:8000`."""

    async def serve() -> str:
        urls: list[str] = []

        def ready(url: str) -> None:
            urls.append(url)
            parts = urlsplit(url)
            socket.create_connection((parts.hostname, parts.port), timeout=20).close()
            serving.cancel()

        serving = asyncio.ensure_future(serve_http(SampleService(), "", 0, insecure=True, on_ready=ready))
        with contextlib.suppress(asyncio.CancelledError):
            await serving
        return urls[0]

    assert urlsplit(asyncio.run(serve())).hostname in ("127.0.0.1", "::1")


def test_a_port_in_use_is_reported() -> None:
    with ServerThread() as http, pytest.raises(AddressInUse, match=f"127.0.0.1:{http.port} already"):
        asyncio.run(serve_http(SampleService(), "127.0.0.1", http.port))


def test_an_address_of_another_machine_is_reported() -> None:
    with pytest.raises(CannotListen, match=r"Cannot listen on 192\.0\.2\.1:0"):
        asyncio.run(serve_http(SampleService(), "192.0.2.1", 0, insecure=True))


def test_a_missing_certificate_is_reported(tmp_path: Path) -> None:
    with pytest.raises(CannotListen, match="certificate"):
        asyncio.run(serve_http(SampleService(), "127.0.0.1", 0, tls_cert=str(tmp_path / "missing.pem")))


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    openssl = shutil.which("openssl")
    if openssl is None:
        absent("openssl")
    file = tmp_path / "certificate.pem"
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    files = ["-keyout", str(tmp_path / "key.pem"), "-out", str(file)]
    subprocess.run([str(openssl), "req", "-x509", *curve, *subject, *files], check=True, capture_output=True)
    return file


def test_a_client_that_begins_no_tls_handshake_is_disconnected(certificate: Path) -> None:
    """A bug: it stayed for a minute, whatever `header_time` was."""
    key, limits = certificate.with_name("key.pem"), HttpLimits(header_time=0.1)
    with ServerThread(tls_cert=str(certificate), tls_key=str(key), limits=limits) as http, http.connect() as client:
        assert client.is_closed_by_server()


def test_tls_is_served_with_the_given_certificate(certificate: Path) -> None:
    key = certificate.with_name("key.pem")
    with ServerThread(tls_cert=str(certificate), tls_key=str(key)) as http, http.connect() as client:
        context = ssl.create_default_context(cafile=str(certificate))
        client.socket = context.wrap_socket(client.socket, server_hostname="127.0.0.1")
        assert client.read("a").text == "test://a"
        assert len(client.read("progress").events) == 4
        assert client.read("a", origin=f"https://127.0.0.1:{http.port}").status == 200


def test_a_service_that_cannot_start_is_reported_at_once() -> None:
    class FailingService(SampleService):
        async def start(self, holder: object = None) -> None:
            raise LookupError("no database")

    with pytest.raises(LookupError, match="no database"):
        asyncio.run(serve_http(FailingService(), "127.0.0.1", 0))


SLOW_START_SERVER = """
import asyncio
from contextlib import asynccontextmanager
from wharfinger import Server

@asynccontextmanager
async def lifespan(server):
    try:
        print("entered", flush=True)
        await asyncio.sleep(600)
    finally:
        print("left", flush=True)
    yield

Server("slow", lifespan=lifespan).run(http="127.0.0.1:0")
"""


def test_a_signal_stops_a_service_that_is_still_starting() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", SLOW_START_SERVER], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "entered\n"
    process.terminate()
    assert process.communicate(timeout=40) == ("left\n", "")


# --- the token


@pytest.fixture(scope="module")
def server_with_token() -> Any:
    with ServerThread(verify=static_token(TOKEN)) as http:
        yield http


@pytest.mark.parametrize(
    ("value", "error"), [(None, ""), ("Basic x", ""), (TOKEN, ""), ("Bearer x", ', error="invalid_token"')]
)
def test_only_a_wrong_token_gets_an_error_code(server_with_token: ServerThread, value: str | None, error: str) -> None:
    """RFC 6750 §3.1: another scheme gets none."""
    with server_with_token.connect() as client:
        reply = client.fetch("POST", "/mcp", authorization=value)
        assert reply.headers["www-authenticate"] == f'Bearer realm="mcp"{error}'


@pytest.mark.parametrize(
    "value",
    [
        None,
        "",
        "Bearer",
        "Bearer ",
        f"Bearer {TOKEN}x",
        f"Bearer {TOKEN[:-1]}",
        f"Basic {TOKEN}",
        TOKEN,
        f"Bearer  x {TOKEN}",
    ],
)
@pytest.mark.parametrize(
    ("verb", "path"), [("POST", "/mcp"), ("GET", "/mcp"), ("DELETE", "/mcp"), ("GET", "/"), ("GET", "/nowhere")]
)
def test_nothing_but_health_is_served_without_the_token(
    server_with_token: ServerThread, verb: str, path: str, value: str | None
) -> None:
    """Security A01-A03, A15, A17: on every route, before anything else."""
    with server_with_token.connect() as client:
        reply = client.fetch(verb, path, authorization=value)
        assert (reply.status, reply.error) == (401, -32600)
        assert reply.headers["www-authenticate"].startswith("Bearer")
        assert TOKEN.encode() not in reply.body
    with server_with_token.connect() as client:
        assert client.fetch("GET", "/healthz").status == 200


def test_a_request_with_the_token_is_served(server_with_token: ServerThread) -> None:
    with server_with_token.connect() as client:
        assert client.read("principal", authorization=f"Bearer {TOKEN}").text == "token"
        assert client.read("principal", authorization=f"bearer {TOKEN}").text == "token"


def test_the_token_is_read_from_one_header_only(server_with_token: ServerThread) -> None:
    """Security A07, A08."""
    with server_with_token.connect() as client:
        assert client.fetch("POST", f"/mcp?access_token={TOKEN}", b"{}").status == 401
    with server_with_token.connect() as client:
        valid = f"Authorization: Bearer {TOKEN}\r\n".encode()
        client.write(b"POST /mcp HTTP/1.1\r\nHost: localhost\r\n" + valid + b"Authorization: Bearer x\r\n\r\n")
        assert client.reply().status == 400


def test_the_body_is_not_read_without_the_token(server_with_token: ServerThread) -> None:
    """Security A16."""
    with server_with_token.connect() as client:
        client.write(b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3000000\r\n\r\n")
        assert client.reply().status == 401


# --- pages


def test_pages_are_served_to_browsers_and_ok_to_health_checks() -> None:
    pages = {"/": lambda: ("text/html; charset=utf-8", "<p>⚓".encode()), "/card": lambda: ("text/plain", b"card")}
    with ServerThread(pages=pages) as http, http.connect() as client:
        for path in ("/", "/mcp"):
            reply = client.fetch("GET", path, accept="text/html,*/*;q=0.8")
            assert (reply.status, reply.body.decode()) == (200, "<p>⚓")
            assert reply.headers["content-type"] == "text/html; charset=utf-8"
            assert "default-src 'none'" in reply.headers["content-security-policy"]
        assert client.fetch("GET", "/card").body == b"card"
        assert client.fetch("GET", "/healthz").body == b"ok\n"
        assert client.fetch("GET", "/nowhere").status == 404
        assert client.fetch("POST", "/", b"{}").status == 405
    with ServerThread() as http, http.connect() as client:
        assert b"harbour" in client.fetch("GET", "/").body
        assert client.fetch("GET", "/", host="evil.test").status == 403


# --- shutdown

SERVER_PROGRAM = """
import sys
from tests.transports.http_support import SampleService
from wharfinger.protocol.http.rules import HttpLimits
from wharfinger.transports.http_server.runner import run_in_loop, serve_http
ready = lambda url: print(url, flush=True)
serving = serve_http(SampleService(), "127.0.0.1", 0, on_ready=ready, limits=HttpLimits(drain=float(sys.argv[1])))
stop_signal = run_in_loop(serving)
print(stop_signal.name)
"""


class ServerProcess:
    """A server in another process."""

    def __init__(self, root: Path, drain: float) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", SERVER_PROGRAM, str(drain)],
            cwd=root,
            env={**os.environ, "PYTHONPATH": f"{root}{os.pathsep}{root / 'src'}"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline().rpartition(":")[2])

    def wait(self) -> tuple[int, str, str]:
        """Return the exit code, stdout and stderr."""
        out, err = self.process.communicate(timeout=40)
        return self.process.returncode, out, err


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
@pytest.mark.parametrize("signal_number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_hundred_streams_with_their_result_in_time(root: Path, signal_number: signal.Signals) -> None:
    """Security L19, L20: no traceback, nothing on stderr, exit code 0 for either signal."""
    server = ServerProcess(root, drain=40.0)
    clients = [RawClient(server.port) for _ in range(100)]
    for client in clients:
        client.listen("test://a")
    started = time.monotonic()
    server.process.send_signal(signal_number)
    assert all(client.event()["result"]["resultType"] == "complete" for client in clients)
    assert all(client.event() is None for client in clients)
    assert server.wait() == (0, f"{signal_number.name}\n", "")
    assert time.monotonic() - started < 20


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_a_second_signal_stops_the_server_at_once(root: Path) -> None:
    server = ServerProcess(root, drain=60.0)
    with RawClient(server.port) as client:
        client.send_stateless("resources/read", {"uri": "test://wait-progress"})
        client.head()
        server.process.send_signal(signal.SIGINT)
        while accepts_connections(server.port):  # the first signal was handled
            pass
        server.process.send_signal(signal.SIGINT)
        assert server.wait() == (0, "SIGINT\n", "")


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_a_second_signal_ends_a_server_whose_service_does_not_close() -> None:
    """A bug: the signal was only noted, and a lifespan that hung at its end kept the process alive."""

    class SlowToClose(SampleService):
        async def close(self) -> None:
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.Event().wait()

    def ready(url: str) -> None:
        os.kill(os.getpid(), signal.SIGINT)

    async def serve() -> None:
        async with asyncio.timeout(20):
            assert await serve_http(SlowToClose(), "127.0.0.1", 0, on_ready=ready) is signal.SIGINT

    asyncio.run(serve())


def accepts_connections(port: int) -> bool:
    try:
        RawClient(port).close()
    except OSError:
        return False
    return True


def test_a_request_unfinished_after_the_drain_time_gets_an_error() -> None:
    with ServerThread(limits=HttpLimits(drain=0.2)) as http, http.connect() as client:
        client.send_stateless("resources/read", {"uri": "test://wait"})
        assert http.service.arrived.acquire(timeout=40)
        http.stop()
        reply = client.reply()
        assert (reply.status, reply.error) == (503, -32603)
        assert reply.headers["connection"] == "close"
    assert http.service.closes == 1


def test_no_connection_is_accepted_during_shutdown() -> None:
    with ServerThread(limits=HttpLimits(drain=5)) as http, http.connect() as client:
        client.send_stateless("resources/read", {"uri": "test://wait"})
        assert http.service.arrived.acquire(timeout=40)
        http.stop()
        with pytest.raises(OSError):
            for _ in range(10_000):
                with http.connect():
                    pass
        http.open_gates()
        assert client.reply().status == 200


# --- inside another application


def test_the_application_runs_in_uvicorn() -> None:
    service = SampleService()
    with UvicornThread(HttpApp(service)) as server:
        with server.connect() as client:
            assert client.read("a").text == "test://a"
            assert len(client.read("progress").events) == 4
            session = client.initialize()
            assert client.read_in_session(session, "a").text == "test://a"
        with server.connect() as client:
            client.listen("test://a")
        assert service.ended.acquire(timeout=40)
        server.stop()
        server.thread.join(20)
    assert (service.starts, service.closes) == (1, 1)


class AsgiClient:
    """A client that calls an application without a server."""

    def __init__(self, app: HttpApp) -> None:
        self.app = app

    async def request(self, verb: str, path: str, root: str = "", **headers: str) -> int:
        """Return the status of the answer to one request."""
        messages: list[Any] = []
        events = [{"type": "http.request", "body": b"{}", "more_body": False}]

        async def receive() -> Any:
            return events.pop() if events else await asyncio.Event().wait()

        async def send(message: Any) -> None:
            messages.append(message)

        pairs = {"host": "localhost", "content-type": "application/json", **headers}.items()
        scope = {
            "type": "http",
            "method": verb,
            "path": path,
            "root_path": root,
            "headers": [(name.encode(), value.encode()) for name, value in pairs],
        }
        await self.app(scope, receive, send)
        assert messages[-1].get("more_body", False) is False
        status: int = messages[0]["status"]
        return status


@pytest.mark.parametrize(
    ("verb", "path", "root", "status"),
    [
        ("POST", "/mcp", "", 400),  # the endpoint refuses the invalid message
        ("POST", "/mcp/", "", 400),
        ("POST", "/api/mcp", "/api", 400),
        ("POST", "/tools/", "/tools", 400),
        ("POST", "/tools", "/tools", 400),
        ("POST", "/tools/x", "/tools", 404),
        ("POST", "/", "", 405),
        ("GET", "/tools/", "/tools", 200),
        ("GET", "/tools/healthz", "/tools", 200),
    ],
)
def test_the_application_is_served_at_its_mount_path(verb: str, path: str, root: str, status: int) -> None:
    assert asyncio.run(AsgiClient(HttpApp(SampleService())).request(verb, path, root)) == status


def test_without_a_lifespan_the_application_starts_at_the_first_request_and_is_closed_by_aclose() -> None:
    async def run() -> SampleService:
        service = SampleService()
        app = HttpApp(service)
        client = AsgiClient(app)
        assert await client.request("POST", "/mcp") == 400
        await asyncio.create_task(app.aclose())
        await app.aclose()
        assert await client.request("POST", "/mcp") == 503
        return service

    service = asyncio.run(run())
    assert service.starts == 1


def test_a_failed_start_is_reported_without_its_reason_and_tried_again() -> None:
    async def run() -> SampleService:
        service = SampleService()
        client = AsgiClient(HttpApp(service))
        service.fail_start = True
        assert await client.request("POST", "/mcp") == 500
        service.fail_start = False
        assert await client.request("POST", "/mcp") == 400
        assert await client.request("POST", "/mcp") == 400
        return service

    assert asyncio.run(run()).starts == 1


def test_the_lifespan_starts_and_closes_the_service() -> None:
    async def run() -> tuple[SampleService, list[str]]:
        service, events_sent = SampleService(), []
        events = ["lifespan.shutdown", "lifespan.startup"]

        async def receive() -> Any:
            return {"type": events.pop()}

        async def send(message: Any) -> None:
            events_sent.append(message["type"])

        await HttpApp(service)({"type": "lifespan"}, receive, send)
        return service, events_sent

    service, events_sent = asyncio.run(run())
    assert events_sent == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
    assert (service.starts, service.closes) == (1, 1)


@pytest.mark.parametrize("token", ["", "short", "0123456789abcde ", "0123456789abcdeé", "0123456789abcde\n"])
def test_a_short_or_unprintable_static_token_raises_an_error(token: str) -> None:
    with pytest.raises(ValueError, match="at least 16"):
        static_token(token)
