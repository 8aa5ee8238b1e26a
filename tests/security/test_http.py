"""The HTTP interface of a server process (H, X and A rows)."""

from __future__ import annotations

import json
import shutil
import socket
import ssl
import subprocess
import time
from pathlib import Path

import pytest

from tests.conftest import absent
from tests.security.server_processes import (
    FIXTURE,
    META,
    MIB,
    HttpProcess,
    ServerProcess,
    call_tool,
    heavy,
    read_over_http,
    start_call,
)
from tests.transports.http_support import RawClient
from tests.waiting import wait_until
from wharfinger.cli import main

A = "file:///charts/a.txt"
TOKEN = "0123456789abcdef0123"


@pytest.mark.parametrize(
    "kind",
    [
        "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "application/jsonp",
        "application/json-seq", "application/json; charset=utf-16", "", None,
    ],
)  # fmt: skip
def test_content_types_that_a_page_can_send_without_preflight_are_refused(http: HttpProcess, kind: str | None) -> None:
    """H08, H09, H11."""
    with http.connect() as client:
        assert client.call("tools/list", content_type=kind).status == 415


def test_text_with_line_ends_stays_in_one_event(http: HttpProcess) -> None:
    """H31: line ends of both kinds, and text that looks like a field."""
    with http.connect() as client:
        params = {"name": "chatter", "arguments": {"events": 3}, "_meta": {**META, "progressToken": "a\n\nb"}}
        client.post(
            {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params},
            mcp_protocol_version="2026-07-28",
            mcp_method="tools/call",
            mcp_name="chatter",
        )
        events = client.reply().events
    assert [event.get("method") for event in events] == ["notifications/progress"] * 3 + [None]
    assert events[0]["params"]["message"] == "a\r\n\r\nevent: fake\ndata: {}\u2028"
    assert events[0]["params"]["progressToken"] == "a\n\nb"


@pytest.mark.parametrize("value", [b'{"a":1e400}', b'{"a":-1e999}', b'{"a":"\\ud800"}', b'{"a":1e308}'])
def test_extreme_numbers_and_invalid_text_are_answered_with_valid_json(http: HttpProcess, value: bytes) -> None:
    """H44, H45, J06."""
    params = b'{"name":"object_of","_meta":%b,"arguments":{"value":%b}}' % (json.dumps(META).encode(), value)
    with http.connect() as client:
        client.post(
            b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":%b}' % params,
            mcp_protocol_version="2026-07-28",
            mcp_method="tools/call",
            mcp_name="object_of",
        )
        assert client.reply().json["jsonrpc"] == "2.0"


def test_blocked_calls_of_one_client_leave_threads_for_another_address() -> None:
    """H52, H53: without sign-in, the share belongs to the address."""
    with HttpProcess("run", FIXTURE) as server:
        with server.connect() as client:
            start_call(client, "block")
            began = time.monotonic()
            assert server.call_tool("quick")["content"][0]["text"] == "quick"
            assert time.monotonic() - began < 15
        # With the first call these are 31. An address with 32 blocked threads is refused, and a waiting call may start
        # before its closed connection is noticed.
        clients = [server.connect() for _ in range(30)]
        for client in clients:
            start_call(client, "block")
        other = RawClient(server.port)
        other.close()
        other.socket = socket.create_connection(("127.0.0.1", server.port), 10, source_address=("127.0.0.2", 0))
        began = time.monotonic()
        assert call_tool(other, "quick")["content"][0]["text"] == "quick"
        assert time.monotonic() - began < 15
        for client in clients:
            client.close()
        wait_until(lambda: server.call_tool("quick")["content"][0]["text"] == "quick", "calls are answered again")


def test_blocked_calls_of_one_application_leave_threads_for_another_on_the_same_host() -> None:
    """The applications have separate sessions, or different client names without a session."""
    with HttpProcess("run", FIXTURE) as server, server.connect() as client:
        session, other = client.initialize(), client.initialize()
        blocked = [server.connect() for _ in range(60)]
        for number, busy in enumerate(blocked):
            busy.send_in_session(session, "tools/call", {"name": "block"}, number)
        wait_until(lambda: server.status("Threads") >= 16, "the calls have threads")
        began = time.monotonic()
        assert (
            client.call_in_session(other, "tools/call", {"name": "quick"}).json["result"]["content"][0]["text"]
            == "quick"
        )
        assert server.call_tool("quick")["content"][0]["text"] == "quick"
        assert time.monotonic() - began < 15
        reply = client.call_in_session(session, "tools/call", {"name": "quick"}, "late")
        assert reply.json["error"]["code"] == -32603  # the share of this session is used up
        assert server.call_tool("release")["content"][0]["text"] == "ok"
        for busy in blocked:
            busy.close()


def test_closed_sessions_and_calls_release_their_memory(http: HttpProcess) -> None:
    """X01, X02, X07, H49, on a smaller scale."""
    with http.connect() as client:

        def open_and_close_sessions(times: int) -> None:
            for _ in range(times):
                session = client.initialize()
                assert client.fetch("DELETE", mcp_session_id=session).status == 204
                assert call_tool(client, "quick")["content"][0]["text"] == "quick"

        open_and_close_sessions(50)
        base = http.rss
        open_and_close_sessions(100)
        assert http.rss - base < 2 * MIB
        base = http.rss
        sessions = {client.initialize() for _ in range(200)}
        assert len(sessions) == 200
        assert http.rss - base < 200 * 64 * 1024


@heavy
def test_thousands_of_sessions_and_calls_release_their_memory() -> None:
    """X01, X02, X05, X07 at full size except for the sessions: 2,000 of 10,000."""
    with HttpProcess("run", FIXTURE) as server, server.connect() as client:
        for _ in range(5_000):  # until the memory of the server is stable
            call_tool(client, "quick")
        base = server.rss
        for _ in range(5_000):
            call_tool(client, "quick")
        for _ in range(1_000):
            assert client.fetch("DELETE", mcp_session_id=client.initialize()).status == 204
        assert server.rss - base < 8 * MIB
        base, times = server.rss, []
        for _ in range(2_000):
            began = time.monotonic()
            client.initialize()
            times.append(time.monotonic() - began)
        assert server.rss - base < 2_000 * 64 * 1024
        assert sorted(times)[1_980] < 0.05


def test_a_server_without_free_descriptors_recovers(charts: Path) -> None:
    """X10: the answer reveals no path."""
    if shutil.which("prlimit") is None:
        absent("prlimit")
    with HttpProcess("serve", str(charts)) as server:
        assert read_over_http(server.connect(), A)[0] == 200
        limit = f"--nofile={server.descriptors() + 10}"
        subprocess.run(["prlimit", "--pid", str(server.process.pid), limit], check=True)
        clients = [server.connect() for _ in range(30)]
        _, result = read_over_http(clients[0], A)  # it may be served with the last descriptor
        assert isinstance(result, list) or "charts" not in str(result)
        for client in clients:
            client.close()

        def is_served() -> bool:
            try:
                with server.connect(1) as client:
                    return isinstance(read_over_http(client, A)[1], list)
            except (OSError, EOFError):
                return False

        wait_until(is_served, "a request is answered", details=lambda: server.errors)


@pytest.mark.parametrize("loop", ["uvloop", "asyncio", "asyncio on a Unix socket"])
def test_running_out_of_descriptors_is_logged_once_without_a_busy_loop(tmp_path: Path, loop: str) -> None:
    """X10: the message says what to change, and the service resumes."""
    if shutil.which("prlimit") is None:
        absent("prlimit")
    if loop == "uvloop":
        pytest.importorskip("uvloop")
    else:
        (tmp_path / "uvloop.py").write_text("raise ImportError")
    path = str(tmp_path / "s")
    unix = loop.endswith("socket")
    env = {} if loop == "uvloop" else {"PYTHONPATH": str(tmp_path)}
    server: ServerProcess = (
        ServerProcess("run", FIXTURE, "--unix", path, env=env) if unix else HttpProcess("run", FIXTURE, env=env)
    )

    def connect() -> socket.socket:
        if unix:
            connection = socket.socket(socket.AF_UNIX)
            connection.settimeout(2)
            connection.connect(path)
            return connection
        return socket.create_connection(("127.0.0.1", server.port), 2)  # type: ignore[attr-defined]

    def is_served() -> bool:
        try:
            with connect() as connection:
                message = {"jsonrpc": "2.0", "id": 1, "method": "server/discover", "params": {"_meta": META}}
                connection.sendall(
                    json.dumps(message).encode() + b"\n"
                    if unix
                    else b"GET /healthz HTTP/1.0\r\nHost: localhost\r\n\r\n"
                )
                return b"result" in connection.recv(9999) if unix else connection.recv(9999).startswith(b"HTTP/1.1 200")
        except OSError:
            return False

    with server:
        wait_until(is_served, "a request is answered", details=lambda: server.errors)
        subprocess.run(
            ["prlimit", "--pid", str(server.process.pid), f"--nofile={server.descriptors() + 5}"], check=True
        )
        connections = [connect() for _ in range(40)]
        wait_until(lambda: b"LimitNOFILE" in server.errors, "the failure is logged")
        before = server.processor_time
        time.sleep(3)  # three times the interval of retries
        assert server.processor_time - before < 0.5
        assert server.errors.count(b"Connections cannot be accepted (Too many open files)") == 1
        assert b"Traceback" not in server.errors
        for connection in connections:
            connection.close()
        wait_until(is_served, "requests are answered again", details=lambda: server.errors)


def test_a_token_is_neither_printed_nor_logged_nor_in_the_command_line(charts: Path) -> None:
    """A01, A17, A18: and a header with an injected line break is refused."""
    with HttpProcess("serve", "--token-env", "T", str(charts), env={"T": TOKEN}) as server:
        statuses = {"": 401, f"Bearer {TOKEN}": 200, "Bearer x": 401, TOKEN: 401, f"Basic {TOKEN}": 401}
        for value, status in statuses.items():
            assert read_over_http(server.connect(), A, authorization=value or None)[0] == status
        for cut in (b"Bearer x\rX: 1", b"Bearer x\nX: 1\r\n y", b"Bearer \0"):
            with server.connect() as client:
                client.write(b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: " + cut + b"\r\n\r\n")
                assert 400 <= client.reply().status < 500
        assert [server.connect().fetch("GET", path).status for path in ("/", "/mcp", "/none", "/healthz")] == [
            401,
            401,
            401,
            200,
        ]
        assert TOKEN not in "".join(server.output)
        assert TOKEN.encode() not in server.errors
        assert TOKEN not in Path(f"/proc/{server.process.pid}/cmdline").read_text()


def test_only_allowed_hosts_and_origins_are_served(charts: Path) -> None:
    """H01 to H06, A14."""
    with HttpProcess(
        "serve", "--allow-host", "charts.test", "--allow-origin", "https://app.test", str(charts)
    ) as server:
        hosts = {
            "charts.test": 200, "CHARTS.test:81": 200, "xcharts.test": 403, "charts.test.evil": 403,
            "127.0.0.1.evil": 403, "localhost:1@evil": 400, None: 400,
        }  # fmt: skip
        for host, status in hosts.items():
            assert read_over_http(server.connect(), A, host=host)[0] == status, host
        origins = {
            "https://app.test": 200, "https://app.test:444": 403, "http://app.test": 403, "null": 403, "": 403,
            f"http://127.0.0.1:{server.port}": 200, f"http://127.0.0.1:{server.port + 1}": 403,
        }  # fmt: skip
        for origin, status in origins.items():
            assert read_over_http(server.connect(), A, origin=origin)[0] == status, origin


def test_insecure_allows_a_public_address_and_still_checks_hosts(charts: Path) -> None:
    """A01, H03."""
    with HttpProcess("serve", "--insecure", str(charts), address="0.0.0.0:0") as server:
        assert read_over_http(server.connect(), A)[0] == 200
        assert read_over_http(server.connect(), A, host="evil.test")[0] == 403


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--http", "0:0"], "--token-env NAME"),
        (["--http", "[::]:0"], "--token-env NAME"),
        (["--http", "127.1:0"], "--token-env NAME"),
        (["--http", "127.0.0.1:99999"], "HOST:PORT"),
        (["--http", "127.0.0.1:0", "--tls-key", "/none"], "--tls-cert"),
        (["--http", "127.0.0.1:0", "--tls-cert", "/none"], "cannot be read"),
        (["--http", "127.0.0.1:0", "--tls-cert", FIXTURE], "both in PEM"),
    ],
)
def test_invalid_options_are_reported_in_one_line(
    charts: Path, options: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", *options, str(charts)]) in (2, 3)
    output = capsys.readouterr().err
    assert expected in output
    assert output.count("\n") == 1


@heavy
def test_a_tls_server_answers_reports_changes_and_stops_in_time(charts: Path, tmp_path: Path) -> None:
    """Some clients never answer the TLS shutdown, and others never begin a handshake."""
    if shutil.which("openssl") is None:
        absent("openssl")
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    subprocess.run(
        f"openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout {key} -out {certificate} "
        "-days 2 -subj /CN=localhost -addext subjectAltName=IP:127.0.0.1".split(),
        check=True,
        capture_output=True,
    )
    # The search index opens its files in the background, which would count as connections that stay open.
    command = ("serve", "--no-search", "--tls-cert", str(certificate), "--tls-key", str(key), str(charts))
    with HttpProcess(*command) as server:
        trust = ssl.create_default_context(cafile=str(certificate))
        client = server.connect()
        client.socket = trust.wrap_socket(client.socket, server_hostname="127.0.0.1")
        assert read_over_http(client, A)[0] == 200
        base = server.descriptors()
        for _ in range(50):
            server.connect().close()
        with server.connect() as plain:
            plain.write(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            assert plain.is_closed_by_server()
        wait_until(lambda: server.descriptors() <= base, "the connections are closed")
        client.listen(A)
        (charts / "a.txt").write_text("new")
        assert client.event()["params"]["uri"] == A
        began = time.monotonic()
        server.process.terminate()
        while client.event() is not None:
            pass
        assert server.wait_for_exit(20) == 0
        assert time.monotonic() - began < 15


def test_folders_with_the_same_name_get_distinct_labels_and_labels_are_not_paths(charts: Path) -> None:
    """A label that is a path is refused."""
    other = charts.parent / "old" / "charts"
    other.mkdir(parents=True)
    (other / "z.txt").write_text("z")
    with HttpProcess("serve", str(charts), str(other), f"charts-2={charts / 'sub'}") as server:
        assert [
            read_over_http(server.connect(), f"file:///{uri}")[1][0]["text"]
            for uri in ("charts/a.txt", "charts-2/b.txt", "old-charts/z.txt")
        ] == ["a", "inside", "z"]
    for name in ("..", "a/b", "%2e%2e", "", "."):
        assert main(["serve", "--stdio", f"{name}={charts}"]) == 2, name
