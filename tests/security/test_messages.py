"""Messages and the lifecycle of a connection, with a server process (J and L rows)."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from typing import Any

import pytest

from tests.security.server_processes import (
    COMMAND,
    FIXTURE,
    INITIALIZE_PARAMS,
    MIB,
    HttpProcess,
    StdioProcess,
    handshake_request,
    heavy,
    notification,
    stateless_request,
)
from wharfinger.protocol.methods import METHODS


def test_a_message_of_64_mib_is_refused_in_bounded_memory(stdio: StdioProcess) -> None:
    """J24, J25."""
    base = stdio.reset_peak()
    stdio.write(b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":"')
    for _ in range(64):
        stdio.write(b"x" * MIB)
    stdio.write(b'"}}\n')
    assert stdio.receive()["error"]["code"] == -32600
    assert stdio.peak - base < 16 * MIB
    assert "result" in stdio.request("server/discover")


LISTEN_METHOD = "subscriptions/listen"


def test_every_method_with_an_id_is_answered_by_a_process(stdio: StdioProcess, http: HttpProcess) -> None:
    """Regression: a request with the name of a notification and `_meta` lost the rest of its chunk."""
    names = [*METHODS, "nobody/knows"]
    messages: list[Any] = []
    for number, name in enumerate(names):
        messages += [
            b" \t",
            stateless_request(f"s{number}", name),
            handshake_request(f"h{number}", name),
            notification(name),
            b"\t",
        ]
    stdio.send(*messages, stateless_request("last", "server/discover"))
    pending = {
        f"{era}{number}" for number, name in enumerate(names) for era in "sh" if (era, name) != ("s", LISTEN_METHOD)
    }
    pending.add("last")
    while pending:
        answer = stdio.receive()
        assert answer.get("error", {}).get("code") not in (-32603, -32700), answer
        pending.discard(answer.get("id"))
    with http.connect() as client:
        for name in names:
            if name == LISTEN_METHOD:
                continue
            client.send_stateless(name, {"uri": "fix://none", "name": "none"}, "x", mcp_name="none")
            reply = client.reply()
            assert reply.status < 500, (name, reply.body)
            assert reply.json["id"] == "x", (name, reply.body)
            body = json.dumps(handshake_request("y", name)).encode()
            assert client.fetch("POST", "/mcp", body).status < 500


HOSTILE = {
    "duplicates": b'{"\\u0061":0,' + b",".join(b'"k%d":0' % (n % 20_000) for n in range(40_000)) + b"}",
    "members": b"{" + b",".join(b'"k%d":0' % n for n in range(250_000)) + b"}",
    "depth": b"[" * 100_000 + b"]" * 100_000,
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_request_over_a_limit_is_refused_quickly_with_its_id(
    stdio: StdioProcess, http: HttpProcess, kind: str
) -> None:
    """Regression: duplicates took seconds, members were not bounded, and a refusal for depth had no id."""
    line = b'{"jsonrpc":"2.0","id":"mine","method":"tools/call","params":{"arguments":' + HOSTILE[kind] + b"}}"
    started = time.monotonic()
    stdio.write(line + b"\n")
    answer = stdio.receive()
    assert (answer["id"], answer["error"]["code"]) == ("mine", -32600)
    with http.connect() as client:
        reply = client.fetch("POST", "/mcp", line, mcp_protocol_version="2026-07-28", mcp_method="tools/call")
    assert (reply.status, reply.json["id"], reply.json["error"]["code"]) == (400, "mine", -32600)
    assert time.monotonic() - started < 20
    assert "result" in stdio.request("server/discover")


@heavy
def test_the_process_ends_after_64_mib_without_a_line_end_and_the_end_of_input() -> None:
    """J25."""
    with StdioProcess("run", FIXTURE) as server:
        server.call_tool("quick")
        base = server.reset_peak()
        for _ in range(64):
            server.write(b"x" * MIB)
        assert server.receive()["error"]["code"] == -32600
        assert server.peak - base < 16 * MIB
        server.close_input()
        assert server.wait_for_exit() == 0


@heavy
def test_20_000_concurrent_calls_are_limited_and_each_is_answered_once(stdio: StdioProcess) -> None:
    """L21, L22, L24: the limit is reported, and memory stays bounded."""
    base = stdio.reset_peak()
    stdio.send(*[stateless_request(number, "resources/read", {"uri": "fix://slow"}) for number in range(20_000)])
    errors = [stdio.receive() for _ in range(20_000 - 4_096)]
    assert {answer["error"]["code"] for answer in errors} == {-32603}
    assert len({answer["id"] for answer in errors}) == len(errors)
    stdio.send(*[notification("notifications/cancelled", {"requestId": number}) for number in range(20_000)])
    stdio.send(*[notification("notifications/roots/list_changed") for _ in range(20_000)])
    assert "result" in stdio.call_tool("quick")
    assert stdio.peak - base < 64 * MIB


def test_both_eras_share_one_stream_and_its_ids() -> None:
    """J18, J19, L08, L10, L23: both eras use the id of a pending request, and each request gets its own answer."""
    with StdioProcess("run", FIXTURE) as server:
        server.initialize()
        server.send(handshake_request(7, "resources/read", {"uri": "fix://slow"}))
        server.send(stateless_request(7, "tools/call", {"name": "quick"}))
        assert server.receive()["error"]["code"] == -32600
        server.send(stateless_request("7", "tools/call", {"name": "quick"}))
        assert server.receive()["id"] == "7"
        server.send(
            notification("notifications/cancelled", {"requestId": 7}),
            stateless_request(7, "tools/call", {"name": "quick"}),
        )
        assert server.receive()["result"]["resultType"] == "complete"
        server.send(handshake_request(7, "tools/call", {"name": "quick"}))
        assert "resultType" not in server.receive()["result"]


def test_cancelled_work_stops(stdio: StdioProcess) -> None:
    """L11."""
    before = int(stdio.call_tool("cancelled")["result"]["content"][0]["text"])
    stdio.send(
        stateless_request("w", "tools/call", {"name": "wait"}),
        notification("notifications/cancelled", {"requestId": "w"}),
    )
    stdio.send(stateless_request("x", "tools/call", {"name": "wait"}))
    assert "result" in stdio.call_tool("quick")  # the call is running now
    stdio.send(notification("notifications/cancelled", {"requestId": "x"}))
    assert int(stdio.call_tool("cancelled")["result"]["content"][0]["text"]) > before


def test_an_unexpected_response_and_progress_are_ignored(stdio: StdioProcess) -> None:
    """J31, L09, L12."""
    stdio.send(
        {"jsonrpc": "2.0", "id": 5, "result": {}},
        notification("notifications/progress", {"progressToken": 1, "progress": 1}),
    )
    stdio.send(notification("notifications/cancelled", {"requestId": {}}), notification("notifications/cancelled"))
    stdio.send(stateless_request(5, "tools/call", {"name": "quick"}))
    assert stdio.receive()["id"] == 5


def test_initialize_with_stateless_meta_is_refused(stdio: StdioProcess) -> None:
    """L15."""
    error = stdio.request("initialize", INITIALIZE_PARAMS)["error"]
    assert error["code"] in (-32601, -32022)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
def test_a_signal_ends_a_process_that_listens_and_blocks(number: signal.Signals, code: int) -> None:
    """L19, L20: a blocked thread does not delay the end of the process."""
    with StdioProcess("run", FIXTURE) as server:
        server.send(stateless_request("b", "resources/read", {"uri": "fix://sleeps"}))
        server.send(
            stateless_request(
                "l", "subscriptions/listen", {"notifications": {"resourceSubscriptions": ["fix://counter"]}}
            )
        )
        assert server.receive()["method"] == "notifications/subscriptions/acknowledged"
        server.process.send_signal(number)
        assert server.wait_for_exit(20) == code
        assert b"Traceback" not in server.errors


def test_the_command_answers_every_malformed_line() -> None:
    """J01, J02, J10, S08: over stdio, to one process."""
    lines = [
        b"\x00\x01\xff",
        b'{"jsonrpc": "2.0"',
        b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":NaN}}',
        b"\x1b[31m",
    ]
    completed = subprocess.run(
        [*COMMAND, "run", FIXTURE], input=b"\n".join(lines) + b"\n", capture_output=True, timeout=10
    )
    assert completed.stdout.count(b"-32700") == len(lines)
    assert completed.returncode == 0
