"""The memory of unread answers is bounded over all connections."""

from __future__ import annotations

import json
import socket
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest

from tests.security.server_processes import (
    FIXTURE,
    MIB,
    HttpProcess,
    ServerProcess,
    call_tool,
    handshake_request,
    notification,
    start_call,
    stateless_request,
)
from tests.transports.http_support import BIG, INITIALIZE, SampleService, ServerThread, find_app
from tests.transports.test_http_shares import connect_from
from tests.waiting import connect_when_listening, wait_until
from wharfinger.protocol.limits import Limits

SIZE = 5 * MIB


@pytest.mark.parametrize("readers", [20, 100])
def test_large_unread_answers_are_bounded_in_total(readers: int) -> None:
    """Each answer contains its text twice, as text and as structured content."""
    with HttpProcess("run", FIXTURE, "--limit", f"unread_total={32 * MIB}") as server:
        assert len(server.call_tool("large", size=SIZE)["content"][0]["text"]) == SIZE
        rss_before = server.rss
        clients = [server.connect(60) for _ in range(readers)]
        for client in clients:
            start_call(client, "large", size=SIZE)
            assert client.socket.recv(1, socket.MSG_PEEK)
        assert (
            server.rss - rss_before < 32 * MIB + 6 * SIZE
        )  # the rest is an answer that is being encoded, and fragmentation
        statuses = []
        for client in clients:
            reply = client.reply()
            statuses.append(reply.status)
            assert reply.status == 200 or "try again later" in reply.json["error"]["message"]
            client.close()
        assert set(statuses) == {200, 503}
        assert statuses[:3] == [200] * 3
        assert call_tool(server.connect(), "large", size=SIZE)["content"][0]["text"] == "x" * SIZE


def test_unread_answers_in_sessions_and_streams_are_bounded() -> None:
    big = {"uri": "test://wait-progress-big"}
    with ServerThread(SampleService(Limits(unread_total=2 * MIB))) as http, http.connect() as client:
        session = client.initialize()
        clients = []
        for number in range(6):
            clients.append(http.connect())
            clients[-1].socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
            if number % 2:
                clients[-1].send_stateless("resources/read", big)
            else:
                clients[-1].send_in_session(session, "resources/read", big, id=number)
            assert http.service.arrived.acquire(timeout=40)
        http.open_gates()
        calls = find_app(http).calls
        wait_until(lambda: not http.call(lambda: find_app(http).sessions.running), "all requests are answered")
        assert http.call(lambda: calls.unread.total) <= 2 * MIB
        results = []
        for reader in clients:
            reply = reader.reply()
            results.append("result" in reply.events[-1])
            reader.close()
        assert 1 <= sum(results) < 6
        wait_until(lambda: not http.call(lambda: calls.unread.total), "no answer is unread")


@pytest.mark.parametrize("kind", ["array", "stream"])
def test_the_small_answers_of_a_batch_are_bounded_in_total(kind: str) -> None:
    """A batch counts as one answer."""
    uris = [f"test://{number}" + "x" * 100_000 for number in range(20)]
    with ServerThread(SampleService(Limits(unread_total=2 * MIB))) as http, http.connect() as client:
        calls = find_app(http).calls
        session = client.call_in_session("", "initialize", INITIALIZE | {"protocolVersion": "2025-03-26"}).headers[
            "mcp-session-id"
        ]
        progress_uris = ["test://progress"] if kind == "stream" else []
        client.post(
            [
                handshake_request(number, "resources/read", {"uri": uri})
                for number, uri in enumerate([*progress_uris, *uris])
            ],
            mcp_session_id=session,
        )
        reply = client.reply()
        answers = [event for event in reply.events if "id" in event] if progress_uris else reply.json
        assert len(answers) == len(progress_uris) + 20
        refusals = [answer["error"]["message"] for answer in answers if "error" in answer]
        assert 9 <= len(refusals) <= 11
        assert all("try again later" in message for message in refusals)
        wait_until(lambda: not http.call(lambda: calls.unread.total), "no answer is unread")


def test_one_answer_may_exceed_the_limit_and_another_owner_still_gets_its_share() -> None:
    with ServerThread(SampleService(Limits(unread_total=2 * MIB))) as http, connect_from(http.port) as other:
        clients = [http.connect() for _ in range(2)]
        for client in clients:
            client.send_stateless("resources/read", {"uri": "test://big"})
        calls = find_app(http).calls
        http.call(lambda: calls.unread.add("address 192.0.2.1", 2 * MIB))
        assert clients[0].reply().status == 200
        assert clients[1].reply().status in (200, 503)
        with http.connect() as client:
            assert client.read("big").status == 503  # the answer is larger than the share of this client
            assert client.read("a").status == 200
        http.call(lambda: calls.unread.add("address 192.0.2.1", -2 * MIB))
        assert other.read("big").json["result"]["contents"][0]["blob"].startswith("AAEC")
        for client in clients:
            client.close()
    assert len(BIG) == MIB


class UnixClient:
    """A connection to a server on a Unix socket."""

    def __init__(self, path: Path) -> None:
        self.socket = connect_when_listening(path)
        self.socket.settimeout(60)

    def send(self, message: Any) -> None:
        self.socket.sendall(json.dumps(message).encode() + b"\n")

    def receive(self) -> Any:
        line = bytearray()
        while not line.endswith(b"\n"):
            line += self.socket.recv(MIB)
        return json.loads(line)


def test_unread_answers_of_a_unix_socket_are_bounded_in_total() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "s")
        options = ("run", FIXTURE, "--unix", str(path), "--limit", f"unread_total={32 * MIB}")
        with ServerProcess(*options, stdin=subprocess.DEVNULL) as server:
            clients = [UnixClient(path) for _ in range(20)]
            large = stateless_request(1, "tools/call", {"name": "large", "arguments": {"size": SIZE}})
            clients[0].send(large)
            clients[0].receive()
            rss_before = server.rss
            for client in clients:
                client.send(large)
                client.socket.recv(1, socket.MSG_PEEK)
            assert server.rss - rss_before < 32 * MIB + 6 * SIZE
            answers = [client.receive() for client in clients]
            assert {"result" in answer for answer in answers} == {True, False}
            clients[0].send(large)
            assert "result" in clients[0].receive()
            for client in clients:
                client.send(notification("notifications/initialized"))
                client.socket.close()
