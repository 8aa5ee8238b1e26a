"""The server's cost grows no faster than hostile messages, at 1, 10 and 100 times their size, over every transport."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.security.growth.measuring import Cost, check_growth, cost_of
from tests.security.growth.messages import LINES, REQUESTS
from tests.security.server_processes import (
    DEADLINE_SECONDS,
    INITIALIZE_PARAMS,
    HttpProcess,
    ServerProcess,
    StdioProcess,
    handshake_request,
    notification,
)
from tests.transports.http_support import HANDSHAKE, STATELESS, RawClient
from tests.waiting import connect_when_listening

SERVER = str(Path(__file__).with_name("server.py"))
PATIENCE_SECONDS = 40.0
"""The time for one answer. A busy machine may need a few seconds for 4 MiB."""


class UnixProcess(ServerProcess):
    """The server on a Unix socket, line by line."""

    def __init__(self, path: Path) -> None:
        super().__init__("run", SERVER, "--unix", str(path))
        self.socket = connect_when_listening(path, lambda: self.errors)
        self.socket.settimeout(PATIENCE_SECONDS)
        self.lines = self.socket.makefile("rb")

    def write(self, data: bytes) -> None:
        self.socket.sendall(data)

    def receive(self, seconds: float = DEADLINE_SECONDS) -> Any:
        return json.loads(self.lines.readline())

    def __exit__(self, *_: object) -> None:
        self.lines.close()
        self.socket.close()
        super().__exit__()


StreamProcess = StdioProcess | UnixProcess


@pytest.fixture(scope="module", params=["stdio", "unix"])
def stream(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StreamProcess]:
    path = tmp_path_factory.mktemp("growth") / "socket"
    with StdioProcess("run", SERVER, "--stdio") if request.param == "stdio" else UnixProcess(path) as server:
        send_lines(server, b"", 0)
        yield server


@pytest.fixture(scope="module")
def http_server() -> Iterator[HttpProcess]:
    with HttpProcess("run", SERVER) as server:
        yield server


def send_lines(server: StreamProcess, data: bytes, answers: int) -> None:
    """Send lines, and wait for this many answers and for the answer to a last request."""
    server.write(data + b"\n" + json.dumps(handshake_request("last", "server/discover", {})).encode() + b"\n")
    last = False
    while answers > 0 or not last:
        answer = server.receive(PATIENCE_SECONDS)
        if answer.get("id") == "last":
            last = True
        elif "method" not in answer:
            answers -= 1


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", REQUESTS)
def test_cost_grows_no_faster_than_the_request_on_a_stream(stream: StreamProcess, name: str) -> None:
    size, build = REQUESTS[name]

    def measure(n: int) -> Cost:
        data = build(n)
        return cost_of(stream, lambda: send_lines(stream, data, 1))

    check_growth(measure, size)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", LINES)
def test_cost_grows_no_faster_than_the_number_of_lines(stream: StreamProcess, name: str) -> None:
    size, build = LINES[name]

    def measure(n: int) -> Cost:
        data = build(n)
        return cost_of(stream, lambda: send_lines(stream, data, 0))

    check_growth(measure, size)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", ["members, each twice, one of them escaped", "nested arrays", "wrong items of a list"])
def test_cost_grows_no_faster_than_the_batch(name: str) -> None:
    """A batch of 2025-03-26 has ten hostile entries, each of a tenth of the size."""
    size, build = REQUESTS[name]
    with StdioProcess("run", SERVER, "--stdio") as server:
        server.send(handshake_request("open", "initialize", {**INITIALIZE_PARAMS, "protocolVersion": "2025-03-26"}))
        server.send(notification("notifications/initialized"))
        assert server.receive()["result"]["protocolVersion"] == "2025-03-26"

        def measure(n: int) -> Cost:
            entries = [build(n // 10).replace(b'"hostile"', b"%d" % i) for i in range(10)]
            data = b"[" + b",".join(entries) + b"]\n"

            def send() -> None:
                server.write(data)
                answers = server.receive(PATIENCE_SECONDS)
                assert isinstance(answers, dict) or len(answers) == 10

            return cost_of(server, send)

        check_growth(measure, size)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("era", ["stateless", "session"])
@pytest.mark.parametrize("name", REQUESTS)
def test_cost_grows_no_faster_than_the_request_over_http(http_server: HttpProcess, name: str, era: str) -> None:
    size, build = REQUESTS[name]
    headers: dict[str, str | None] = {"mcp_protocol_version": STATELESS}
    if era == "session":
        with http_server.connect() as client:
            client.post(handshake_request(0, "initialize", INITIALIZE_PARAMS))
            headers = {"mcp_session_id": client.reply().headers["mcp-session-id"], "mcp_protocol_version": HANDSHAKE}
            client.post(notification("notifications/initialized"), **headers)
            assert client.reply().status == 202

    def post(data: bytes) -> None:
        with closing(RawClient(http_server.port, PATIENCE_SECONDS)) as client:
            with suppress(OSError):  # refused by its length, and closed before all of it was sent
                client.post(data, **headers, **mirrors(data))
            assert client.reply().status < 500

    def measure(n: int) -> Cost:
        data = build(n)
        return cost_of(http_server, lambda: post(data))

    check_growth(measure, size)


def mirrors(data: bytes) -> dict[str, str | None]:
    """Return the headers that repeat parts of a message, cut to 1,000 characters, or none if it cannot be parsed."""
    try:
        body = json.loads(data)
        method, params = body["method"], body["params"]
    except (ValueError, TypeError, RecursionError, KeyError):
        return {}
    name = params.get("name", params.get("uri"))
    return {"mcp_method": method[:1000], "mcp_name": name[:1000] if isinstance(name, str) else None}
