"""Hostile tools and arguments (rows F01 to F15, and S and J rows for tools)."""

from __future__ import annotations

import json
import re
import time
from typing import Any

import pytest

from tests.security.server_processes import (
    FIXTURE,
    META,
    MIB,
    StdioProcess,
    handshake_request,
    heavy,
    notification,
    stateless_request,
)


def text(answer: Any) -> str:
    return str(answer["result"]["content"][0]["text"])


@pytest.mark.parametrize("value", ["1", True, " 7 ", 1.5, None, [1]])
def test_only_integers_are_accepted_for_an_integer(stdio: StdioProcess, value: Any) -> None:
    """F03, F13: the error repeats no value and names no library."""
    result = stdio.call_tool("double", number=value)["result"]
    assert result["isError"]
    assert result["content"][0]["text"].startswith("Invalid arguments:\nnumber: expected an integer")
    assert "msgspec" not in str(result)


def test_unknown_arguments_are_refused(stdio: StdioProcess) -> None:
    """F02, F04."""
    assert "x: no such argument" in text(stdio.call_tool("double", number=1, x=2))


def test_text_that_looks_like_json_stays_text(stdio: StdioProcess) -> None:
    """F12."""
    assert text(stdio.call_tool("echo", value='{"a": 1}')) == '{"a": 1}'


@pytest.mark.parametrize("name", ["__import__", "", "quick\0", "../quick", "QUICK", "q" * 10_000])
def test_unknown_tools_are_refused(stdio: StdioProcess, name: str) -> None:
    """F01."""
    error = stdio.request("tools/call", {"name": name, "arguments": {}})["error"]
    assert error["code"] == -32602
    assert len(error["message"]) < 400


@pytest.mark.parametrize("tool", ["exits", "recursion", "raises", "surrogate"])
def test_a_failing_tool_returns_an_error_without_details(stdio: StdioProcess, tool: str) -> None:
    """F05, F06, F07, S07: the server continues to serve."""
    result = stdio.call_tool(tool)["result"]
    assert result["isError"] is True
    message = result["content"][0]["text"]
    assert re.fullmatch(r"Internal error \(reference [0-9a-f]{8}\): the server's log has the details\.", message)
    assert text(stdio.call_tool("quick")) == "quick"


def test_arguments_of_3_mib_and_500_list_requests_are_served(stdio: StdioProcess) -> None:
    """F11, F14."""
    large = (
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","_meta":%b,"arguments":{"value":"%b"}}}'
    )
    stdio.send(large % (json.dumps(META).encode(), b"x" * 3 * MIB))
    assert len(text(stdio.read_until_answer(1)[0])) == 3 * MIB
    stdio.send(*[stateless_request(number, "tools/list") for number in range(500)])
    assert len(stdio.read_until_answer(499)[1]) == 499


def test_published_schemas_have_only_internal_references(stdio: StdioProcess) -> None:
    """F15."""
    tools = json.dumps(stdio.request("tools/list")["result"])
    references = re.findall(r'"\$ref": "([^"]*)"', tools)
    assert references
    assert all(reference.startswith("#/") for reference in references)
    assert "/home" not in tools
    assert FIXTURE not in tools


def test_a_flood_of_stderr_and_an_answer_of_16_mib_are_served(stdio: StdioProcess) -> None:
    """S11, S12."""
    assert text(stdio.call_tool("floods", lines=5_000)) == "done"
    assert len(text(stdio.call_tool("large", size=16 * MIB))) == 16 * MIB


def test_numbers_too_large_for_json_are_answered_with_valid_json(stdio: StdioProcess) -> None:
    """J11, H44, J06: a number that JSON cannot represent is refused."""
    for value in (b'{"a":1e400}', b'{"a":-1e999}', b'{"a":"\\ud800"}', b'{"a":1e308}'):
        params = b'{"name":"object_of","_meta":%b,"arguments":{"value":%b}}' % (json.dumps(META).encode(), value)
        stdio.send(b'{"jsonrpc":"2.0","id":2,"method":"tools/call","params":%b}' % params)
        answer = stdio.receive()
        assert "isError" in str(answer) or "error" in answer or "1e+308" in str(answer)
        assert answer.get("error", {}).get("code") != -32603, "regression: 1e400 was an internal error"
    assert text(stdio.call_tool("quick")) == "quick"


@heavy
def test_blocking_calls_delay_neither_ping_nor_other_calls_for_long() -> None:
    """F08, F09, F10: a call without a free thread is refused in time, and cancelled calls release their threads."""
    with StdioProcess("run", FIXTURE) as server:
        server.initialize()
        server.send(*[stateless_request(f"b{number}", "tools/call", {"name": "block"}) for number in range(60)])
        started = time.monotonic()
        server.send(handshake_request("p", "ping"))
        assert "result" in server.read_until_answer("p")[0]
        assert time.monotonic() - started < 15
        server.send(*[notification("notifications/cancelled", {"requestId": f"b{number}"}) for number in range(24)])
        answer = server.call_tool("quick")
        assert "result" in answer or answer["error"]["code"] == -32603
        assert time.monotonic() - started < 20


def test_progress_for_a_slow_reader_is_bounded() -> None:
    """S13."""
    with StdioProcess("run", FIXTURE) as server:
        server.call_tool("quick")
        base = server.reset_peak()
        params = {"name": "chatter", "arguments": {"events": 30_000}, "_meta": {**META, "progressToken": 1}}
        server.send(handshake_request("c", "tools/call", params))
        answer, before = server.read_until_answer("c", 30)
        assert text(answer) == "done"
        assert 0 < len(before) <= 30_000
        assert server.peak - base < 64 * MIB
