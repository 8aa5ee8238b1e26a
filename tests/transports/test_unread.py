"""Unread answers: their memory is bounded over all connections."""

from __future__ import annotations

import json
import socket
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest

from tests.security.places import FIXTURE, MIB, Http, Process, call, message, notice, start_call, stateless, within
from tests.transports.http_support import BIG, INITIALIZE, SampleService, ServerThread, find_app
from tests.transports.test_http_shares import wire_from
from wharfinger.protocol.limits import Limits

SIZE = 5 * MIB


@pytest.mark.parametrize("readers", [20, 100])
def test_large_unread_answers_are_bounded_together(readers: int) -> None:
    """Each answer contains the text twice: as text and as structured content."""
    with Http("run", FIXTURE, "--limit", f"unread_total={32 * MIB}") as server:
        assert len(server.tool("large", size=SIZE)["content"][0]["text"]) == SIZE
        base = server.rss
        wires = [server.wire(60) for _ in range(readers)]
        for wire in wires:
            start_call(wire, "large", size=SIZE)
            assert within(60, lambda wire=wire: bool(wire.socket.recv(1, socket.MSG_PEEK)))  # type: ignore[misc]
        assert server.rss - base < 32 * MIB + 6 * SIZE  # one answer is being encoded and fragments memory
        statuses = []
        for wire in wires:
            reply = wire.reply()
            statuses.append(reply.status)
            assert reply.status == 200 or "try again later" in reply.json["error"]["message"]
            wire.close()
        assert set(statuses) == {200, 503}
        assert statuses[:3] == [200] * 3
        assert call(server.wire(), "large", size=SIZE)["content"][0]["text"] == "x" * SIZE


def test_unread_answers_in_sessions_and_streams_are_bounded() -> None:
    big = {"uri": "test://wait-progress-big"}
    with ServerThread(SampleService(Limits(unread_total=2 * MIB))) as http, http.wire() as wire:
        session = wire.initialize()
        wires = []
        for number in range(6):
            wires.append(http.wire())
            wires[-1].socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            if number % 2:
                wires[-1].stateless("resources/read", big)
            else:
                wires[-1].send_in_session(session, "resources/read", big, id=number)
            assert http.service.arrived.acquire(timeout=5)
        http.open_gates()
        calls = find_app(http).calls
        assert within(10, lambda: not http.call(lambda: find_app(http).sessions.running))
        assert http.call(lambda: calls.unread.total) <= 2 * MIB
        results = []
        for reader in wires:
            reply = reader.reply()
            results.append("result" in reply.events[-1])
            reader.close()
        assert 1 <= sum(results) < 6
        assert within(10, lambda: not http.call(lambda: calls.unread.total))


@pytest.mark.parametrize("kind", ["array", "stream"])
def test_the_small_answers_of_a_batch_are_bounded_together(kind: str) -> None:
    """A batch counts as one answer."""
    parts = [f"test://{number}" + "x" * 100_000 for number in range(20)]
    with ServerThread(SampleService(Limits(unread_total=2 * MIB))) as http, http.wire() as wire:
        calls = find_app(http).calls
        session = wire.in_session("", "initialize", INITIALIZE | {"protocolVersion": "2025-03-26"}).headers[
            "mcp-session-id"
        ]
        first = ["test://progress"] if kind == "stream" else []
        wire.post(
            [message(number, "resources/read", {"uri": uri}) for number, uri in enumerate([*first, *parts])],
            mcp_session_id=session,
        )
        reply = wire.reply()
        answers = [event for event in reply.events if "id" in event] if first else reply.json
        assert len(answers) == len(first) + 20
        refused = [answer["error"]["message"] for answer in answers if "error" in answer]
        assert 9 <= len(refused) <= 11
        assert all("try again later" in message for message in refused)
        assert within(10, lambda: not http.call(lambda: calls.unread.total))


def test_one_answer_may_exceed_the_limit_and_another_owner_still_gets_its_share() -> None:
    with ServerThread(SampleService(Limits(unread_total=2 * MIB))) as http, wire_from(http.port) as other:
        wires = [http.wire() for _ in range(2)]
        for wire in wires:
            wire.stateless("resources/read", {"uri": "test://big"})
        calls = find_app(http).calls
        http.call(lambda: calls.unread.add("address 192.0.2.1", 2 * MIB))
        assert wires[0].reply().status == 200
        assert wires[1].reply().status in (200, 503)
        with http.wire() as wire:
            assert wire.read("big").status == 503  # its share is not enough
            assert wire.read("a").status == 200
        http.call(lambda: calls.unread.add("address 192.0.2.1", -2 * MIB))
        assert other.read("big").json["result"]["contents"][0]["blob"].startswith("AAEC")
        for wire in wires:
            wire.close()
    assert len(BIG) == MIB


class Unix:
    """A connection to a server on a Unix socket."""

    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(60)
        self.socket.connect(str(path))

    def send(self, message: Any) -> None:
        self.socket.sendall(json.dumps(message).encode() + b"\n")

    def receive(self) -> Any:
        held = bytearray()
        while not held.endswith(b"\n"):
            held += self.socket.recv(MIB)
        return json.loads(held)


def test_unread_answers_of_a_unix_socket_are_bounded_together() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "s")
        options = ("run", FIXTURE, "--unix", str(path), "--limit", f"unread_total={32 * MIB}")
        with Process(*options, stdin=subprocess.DEVNULL) as server:
            assert within(20, path.exists)
            wires = [Unix(path) for _ in range(20)]
            large = stateless(1, "tools/call", {"name": "large", "arguments": {"size": SIZE}})
            wires[0].send(large)
            wires[0].receive()
            base = server.rss
            for wire in wires:
                wire.send(large)
                wire.socket.recv(1, socket.MSG_PEEK)
            assert server.rss - base < 32 * MIB + 6 * SIZE
            answers = [wire.receive() for wire in wires]
            assert {"result" in answer for answer in answers} == {True, False}
            wires[0].send(large)
            assert "result" in wires[0].receive()
            for wire in wires:
                wire.send(notice("notifications/initialized"))
                wire.socket.close()
