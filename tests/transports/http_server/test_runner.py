"""The runner: its addresses, its shutdown, and the application inside another server."""

from __future__ import annotations

import asyncio
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

import pytest

from tests.conftest import absent
from tests.transports.http_support import RawClient, SampleService, ServerThread
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


def test_a_port_in_use_is_reported() -> None:
    with ServerThread() as http, pytest.raises(AddressInUse, match=f"127.0.0.1:{http.port} already"):
        asyncio.run(serve_http(SampleService(), "127.0.0.1", http.port))


def test_an_address_of_another_machine_is_reported() -> None:
    with pytest.raises(CannotListen, match=r"Cannot listen on 192\.0\.2\.1:0"):
        asyncio.run(serve_http(SampleService(), "192.0.2.1", 0, insecure=True))


def test_a_missing_certificate_is_reported(tmp_path: Path) -> None:
    with pytest.raises(CannotListen, match="certificate"):
        asyncio.run(serve_http(SampleService(), "127.0.0.1", 0, tls_cert=str(tmp_path / "no.pem")))


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    openssl = shutil.which("openssl")
    if openssl is None:
        absent("openssl")
    made = tmp_path / "both.pem"
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    files = ["-keyout", str(tmp_path / "key.pem"), "-out", str(made)]
    subprocess.run([str(openssl), "req", "-x509", *curve, *subject, *files], check=True, capture_output=True)
    return made


def test_tls_is_served_with_the_given_certificate(certificate: Path) -> None:
    key = certificate.with_name("key.pem")
    with ServerThread(tls_cert=str(certificate), tls_key=str(key)) as http, http.wire() as wire:
        context = ssl.create_default_context(cafile=str(certificate))
        wire.socket = context.wrap_socket(wire.socket, server_hostname="127.0.0.1")
        assert wire.read("a").text == "test://a"
        assert len(wire.read("progress").events) == 4
        assert wire.read("a", origin=f"https://127.0.0.1:{http.port}").status == 200


def test_a_service_that_cannot_start_is_reported_at_once() -> None:
    class FailingService(SampleService):
        async def start(self, holder: object = None) -> None:
            raise LookupError("no database")

    with pytest.raises(LookupError, match="no database"):
        asyncio.run(serve_http(FailingService(), "127.0.0.1", 0))


SLOW = """
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


def test_a_signal_ends_a_service_that_is_still_starting() -> None:
    process = subprocess.Popen([sys.executable, "-c", SLOW], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "entered\n"
    process.terminate()
    assert process.communicate(timeout=10) == ("left\n", "")


# --- the token


@pytest.fixture(scope="module")
def guarded() -> Any:
    with ServerThread(verify=static_token(TOKEN)) as http:
        yield http


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
    guarded: ServerThread, verb: str, path: str, value: str | None
) -> None:
    """Security A01-A03, A15, A17: on every route, before anything else."""
    with guarded.wire() as wire:
        reply = wire.ask(verb, path, authorization=value)
        assert (reply.status, reply.error) == (401, -32600)
        assert reply.headers["www-authenticate"].startswith("Bearer")
        assert TOKEN.encode() not in reply.body
    with guarded.wire() as wire:
        assert wire.ask("GET", "/healthz").status == 200


def test_a_request_with_the_token_is_served(guarded: ServerThread) -> None:
    with guarded.wire() as wire:
        assert wire.read("principal", authorization=f"Bearer {TOKEN}").text == "token"
        assert wire.read("principal", authorization=f"bearer {TOKEN}").text == "token"


def test_the_token_is_read_from_one_header_only(guarded: ServerThread) -> None:
    """Security A07, A08."""
    with guarded.wire() as wire:
        assert wire.ask("POST", f"/mcp?access_token={TOKEN}", b"{}").status == 401
    with guarded.wire() as wire:
        good = f"Authorization: Bearer {TOKEN}\r\n".encode()
        wire.write(b"POST /mcp HTTP/1.1\r\nHost: localhost\r\n" + good + b"Authorization: Bearer x\r\n\r\n")
        assert wire.reply().status == 400


def test_the_body_is_not_read_without_the_token(guarded: ServerThread) -> None:
    """Security A16."""
    with guarded.wire() as wire:
        wire.write(b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3000000\r\n\r\n")
        assert wire.reply().status == 401


# --- pages


def test_a_browser_gets_the_page_and_a_probe_gets_ok() -> None:
    pages = {"/": lambda: ("text/html; charset=utf-8", "<p>⚓".encode()), "/card": lambda: ("text/plain", b"card")}
    with ServerThread(pages=pages) as http, http.wire() as wire:
        for path in ("/", "/mcp"):
            reply = wire.ask("GET", path, accept="text/html,*/*;q=0.8")
            assert (reply.status, reply.body.decode()) == (200, "<p>⚓")
            assert reply.headers["content-type"] == "text/html; charset=utf-8"
            assert "default-src 'none'" in reply.headers["content-security-policy"]
        assert wire.ask("GET", "/card").body == b"card"
        assert wire.ask("GET", "/healthz").body == b"ok\n"
        assert wire.ask("GET", "/nowhere").status == 404
        assert wire.ask("POST", "/", b"{}").status == 405
    with ServerThread() as http, http.wire() as wire:
        assert b"harbour" in wire.ask("GET", "/").body
        assert wire.ask("GET", "/", host="evil.test").status == 403


# --- shutdown

PROGRAM = """
import sys
from tests.conftest import absent
from tests.transports.http_support import SampleService
from wharfinger.protocol.http.rules import HttpLimits
from wharfinger.transports.http_server.runner import run_http
ready = lambda url: print(url, flush=True)
number = run_http(SampleService(), "127.0.0.1", 0, on_ready=ready, limits=HttpLimits(drain=float(sys.argv[1])))
print(number.name)
"""


class Program:
    """A server in another process."""

    def __init__(self, root: Path, drain: float) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(drain)],
            cwd=root,
            env={**os.environ, "PYTHONPATH": f"{root}{os.pathsep}{root / 'src'}"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline().rpartition(":")[2])

    def end(self) -> tuple[int, str, str]:
        out, err = self.process.communicate(timeout=10)
        return self.process.returncode, out, err


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_hundred_streams_with_their_result_in_time(root: Path, number: signal.Signals) -> None:
    """Security L19, L20: no traceback, nothing on stderr, exit code 0 for either signal."""
    program = Program(root, drain=3.0)
    wires = [RawClient(program.port) for _ in range(100)]
    for wire in wires:
        wire.listen("test://a")
    begun = time.monotonic()
    program.process.send_signal(number)
    assert all(wire.event()["result"]["resultType"] == "complete" for wire in wires)
    assert all(wire.event() is None for wire in wires)
    assert program.end() == (0, f"{number.name}\n", "")
    assert time.monotonic() - begun < 3


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_a_second_signal_ends_the_server_at_once(root: Path) -> None:
    program = Program(root, drain=60.0)
    with RawClient(program.port) as wire:
        wire.stateless("resources/read", {"uri": "test://wait-progress"})
        wire.head()
        program.process.send_signal(signal.SIGINT)
        while listens(program.port):  # the first signal was handled
            pass
        program.process.send_signal(signal.SIGINT)
        assert program.end() == (0, "SIGINT\n", "")


def listens(port: int) -> bool:
    try:
        RawClient(port).close()
    except OSError:
        return False
    return True


def test_a_request_that_does_not_finish_is_reported_and_the_server_ends() -> None:
    with ServerThread(limits=HttpLimits(drain=0.2)) as http, http.wire() as wire:
        wire.stateless("resources/read", {"uri": "test://wait"})
        assert http.service.arrived.acquire(timeout=5)
        http.stop()
        reply = wire.reply()
        assert (reply.status, reply.error) == (503, -32603)
        assert reply.headers["connection"] == "close"
    assert http.service.closes == 1


def test_no_connection_is_accepted_during_shutdown() -> None:
    with ServerThread(limits=HttpLimits(drain=5)) as http, http.wire() as wire:
        wire.stateless("resources/read", {"uri": "test://wait"})
        assert http.service.arrived.acquire(timeout=5)
        http.stop()
        with pytest.raises(OSError):
            for _ in range(10_000):
                with http.wire():
                    pass
        http.open_gates()
        assert wire.reply().status == 200


# --- inside another application


def test_the_application_runs_in_uvicorn() -> None:
    import uvicorn

    service = SampleService()
    app = HttpApp(service)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
        server = uvicorn.Server(uvicorn.Config(app, log_config=None, http="httptools", ws="none"))

        async def serve() -> None:
            running = asyncio.create_task(server.serve([listener]))
            await asyncio.to_thread(talk, port, service)
            server.should_exit = True
            await running

        asyncio.run(serve())
    assert (service.starts, service.closes) == (1, 1)


def talk(port: int, service: SampleService) -> None:
    for _ in range(1000):
        try:
            wire = RawClient(port)
            break
        except ConnectionRefusedError:
            continue
    with wire:
        assert wire.read("a").text == "test://a"
        assert len(wire.read("progress").events) == 4
        session = wire.initialize()
        assert wire.read_in_session(session, "a").text == "test://a"
    with RawClient(port) as wire:
        wire.listen("test://a")
    assert service.left.acquire(timeout=5)


class Mounted:
    """An ASGI server in memory that makes one call and records the messages."""

    def __init__(self, app: HttpApp) -> None:
        self.app = app

    async def ask(self, verb: str, path: str, root: str = "", **headers: str) -> int:
        sent: list[Any] = []
        events = [{"type": "http.request", "body": b"{}", "more_body": False}]

        async def receive() -> Any:
            return events.pop() if events else await asyncio.Event().wait()

        async def send(message: Any) -> None:
            sent.append(message)

        pairs = {"host": "localhost", "content-type": "application/json", **headers}.items()
        scope = {
            "type": "http",
            "method": verb,
            "path": path,
            "root_path": root,
            "headers": [(n.encode(), v.encode()) for n, v in pairs],
        }
        await self.app(scope, receive, send)
        assert sent[-1].get("more_body", False) is False
        status: int = sent[0]["status"]
        return status


@pytest.mark.parametrize(
    ("verb", "path", "root", "status"),
    [
        ("POST", "/mcp", "", 400),  # an invalid message: the endpoint answered
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
    assert asyncio.run(Mounted(HttpApp(SampleService())).ask(verb, path, root)) == status


def test_the_application_starts_without_a_lifespan_and_is_closed_explicitly() -> None:
    async def run() -> SampleService:
        service = SampleService()
        app = HttpApp(service)
        mounted = Mounted(app)
        assert await mounted.ask("POST", "/mcp") == 400
        await asyncio.create_task(app.aclose())
        await app.aclose()
        assert await mounted.ask("POST", "/mcp") == 503
        return service

    service = asyncio.run(run())
    assert service.starts == 1


def test_a_failed_start_is_reported_without_its_text_and_tried_again() -> None:
    async def run() -> SampleService:
        service = SampleService()
        mounted = Mounted(HttpApp(service))
        service.fail_start = True
        assert await mounted.ask("POST", "/mcp") == 500
        service.fail_start = False
        assert await mounted.ask("POST", "/mcp") == 400
        assert await mounted.ask("POST", "/mcp") == 400
        return service

    assert asyncio.run(run()).starts == 1


def test_the_lifespan_starts_and_ends_the_service() -> None:
    async def run() -> tuple[SampleService, list[str]]:
        service, sent = SampleService(), []
        events = ["lifespan.shutdown", "lifespan.startup"]

        async def receive() -> Any:
            return {"type": events.pop()}

        async def send(message: Any) -> None:
            sent.append(message["type"])

        await HttpApp(service)({"type": "lifespan"}, receive, send)
        return service, sent

    service, sent = asyncio.run(run())
    assert sent == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
    assert (service.starts, service.closes) == (1, 1)


@pytest.mark.parametrize("token", ["", "short", "0123456789abcde ", "0123456789abcdeé", "0123456789abcde\n"])
def test_an_invalid_token_raises_an_error(token: str) -> None:
    with pytest.raises(ValueError, match="at least 16"):
        static_token(token)
