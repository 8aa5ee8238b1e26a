"""The middleware of the package: the log of calls, times, and limits of rate and size."""

from __future__ import annotations

import asyncio
import logging
import math
from contextlib import suppress
from typing import Any, cast

import pytest

from tests.clock import FakeClock
from tests.server.driving import ERAS, Wire, ask, make_request
from tests.transports.http_support import ServerThread
from wharfinger import types as t
from wharfinger.errors import InvalidParams, RemoteInvalidParams, ToolError
from wharfinger.protocol.request import InputNeeded
from wharfinger.server.app import Server
from wharfinger.server.middleware.guards import Times, Timing, limit_rate, limit_size, log_calls, outcome_of


def make_server(clock: FakeClock | None = None) -> Server:
    """Return a server whose tool moves the clock by its argument."""
    server = Server("s")

    @server.tool
    async def tool(seconds: float = 0, fails: bool = False) -> str:
        if clock is not None:
            clock.now += seconds
        if fails:
            raise ToolError("a secret")
        return "x" * 100

    @server.resource("a:{x}")
    async def resource(x: str) -> str:
        if x == "broken":
            raise RuntimeError("a secret")
        return x * 100

    return server


async def call(server: Server, principal: str = "mary", **arguments: Any) -> Any:
    return await ask(server, "tools/call", {"name": "tool", "arguments": arguments}, principal=principal)


# -- log of calls


async def test_the_log_of_a_call_contains_no_arguments_or_results(caplog: pytest.LogCaptureFixture) -> None:
    clock = FakeClock(100.0)
    server = make_server(clock)
    server.add_middleware(log_calls(clock=clock))
    caplog.set_level(logging.INFO, "wharfinger.calls")
    await call(server, seconds=0.25)
    await call(server, fails=True)
    await call(server, "", seconds="no number")
    await ask(server, "resources/read", {"uri": "a:broken"})
    await ask(server, "resources/read", {"uri": "a:b\n\x1b[2J"})
    await ask(server, "tools/list")
    lines = [record.getMessage() for record in caplog.records]
    assert lines == [
        "tools/call tool by mary in 250.0 ms: ok",
        "tools/call tool by mary in 0.0 ms: tool error",
        "tools/call tool by - in 0.0 ms: tool error",
        "resources/read a:broken by - in 0.0 ms: failed",
        "resources/read a:b??[2J by - in 0.0 ms: refused (-32602)",
        "tools/list - by - in 0.0 ms: ok",
    ]
    record: Any = caplog.records[0]
    assert (record.mcp_method, record.mcp_name, record.mcp_principal) == ("tools/call", "tool", "mary")
    assert (record.mcp_seconds, record.mcp_outcome) == (0.25, "ok")


async def test_calls_are_logged_at_the_level_of_the_middleware(caplog: pytest.LogCaptureFixture) -> None:
    server = make_server()
    log = logging.getLogger("tests.calls")
    server.add_middleware(log_calls(log, level=logging.DEBUG))
    caplog.set_level(logging.INFO, "tests.calls")
    await call(server)
    assert not caplog.records
    caplog.set_level(logging.DEBUG, "tests.calls")
    await call(server)
    assert [record.name for record in caplog.records] == ["tests.calls"]


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (t.EmptyResult(), "ok"),
        (t.CallToolResult(content=[], is_error=True), "tool error"),
        (t.EmptyResult(result_type="task"), "task"),
        (InputNeeded(None), "input required"),
        (BaseExceptionGroup("", [InputNeeded(None)]), "input required"),
        (InvalidParams("x"), "refused (-32602)"),
        (RemoteInvalidParams(-32602, "x"), "failed"),
        (asyncio.CancelledError(), "cancelled"),
        (SystemExit(), "failed"),
    ],
)
def test_outcome_of_names_each_result_and_error(answer: Any, outcome: str) -> None:
    assert outcome_of(answer) == outcome


# -- times


async def test_times_are_recorded_and_reported_by_method() -> None:
    clock = FakeClock(100.0)
    server = make_server(clock)
    reports: list[Any] = []
    timing = Timing(lambda call, seconds, outcome: reports.append((call.method, seconds, outcome)), clock=clock)
    server.add_middleware(timing)
    await call(server, seconds=1)
    await call(server, seconds=3, fails=True)
    await ask(server, "resources/read", {"uri": "a:broken"})
    times = timing.by_method["tools/call"]
    assert (times.count, times.failed, times.total, times.mean, times.longest) == (2, 1, 4, 2, 3)
    assert timing.by_method["resources/read"].failed == 1
    assert reports == [("tools/call", 1, "ok"), ("tools/call", 3, "tool error"), ("resources/read", 0, "failed")]


# -- limit of the rate


@pytest.mark.parametrize("revision", ERAS)
async def test_a_caller_above_the_rate_is_refused_with_retry_after(revision: str) -> None:
    clock = FakeClock(100.0)
    server = make_server()
    server.add_middleware(limit_rate(0.5, burst=2, clock=clock), "tools/call")

    async def succeeds(principal: str = "mary") -> bool:
        answer = await ask(server, "tools/call", {"name": "tool"}, revision, principal=principal)
        if "error" in answer:
            assert answer["error"]["code"] == -32603
            assert (
                answer["error"]["message"] == f"Too many calls: try again in {answer['error']['data']['retryAfter']} s."
            )
        return "result" in answer

    assert [await succeeds() for _ in range(3)] == [True, True, False]
    assert await succeeds("anna")
    clock.now += 1
    assert not await succeeds()
    clock.now += 1
    assert [await succeeds() for _ in range(2)] == [True, False]
    clock.now += 1000
    assert [await succeeds() for _ in range(3)] == [True, True, False]
    assert "result" in await ask(server, "tools/list", {}, revision, principal="mary")


def test_a_call_above_the_rate_has_status_429_over_http() -> None:
    server = make_server()
    server.add_middleware(limit_rate(0.1, burst=1, clock=FakeClock(100.0)), "tools/call")
    with ServerThread(cast("Any", server)) as http, http.connect() as client:
        replies = [client.call("tools/call", {"name": "tool"}, **{"mcp-name": "tool"}) for _ in range(2)]
    assert [reply.status for reply in replies] == [200, 429]
    assert replies[1].headers["retry-after"] == "10"
    assert replies[1].json["error"]["data"] == {"retryAfter": 10}


async def test_the_rate_of_anonymous_callers_is_limited_by_address() -> None:
    server = make_server()
    server.add_middleware(limit_rate(1, clock=FakeClock(100.0)))

    async def succeeds(peer: str, principal: str = "") -> bool:
        request = make_request(server, "tools/call", {"name": "tool"}, principal=principal)
        request.peer = peer
        try:
            await server.handlers["tools/call"](request)
        except Exception as error:
            assert getattr(error, "http_status", 0) == 429
            return False
        return True

    assert [await succeeds("192.0.2.1"), await succeeds("192.0.2.1"), await succeeds("192.0.2.2")] == [
        True,
        False,
        True,
    ]
    assert [await succeeds("192.0.2.1", "mary"), await succeeds("192.0.2.3", "mary")] == [True, False]
    assert await succeeds("", "192.0.2.1")


async def test_callers_above_max_callers_share_one_limit() -> None:
    server, clock = make_server(), FakeClock(100.0)
    server.add_middleware(limit_rate(1, max_callers=2, clock=clock))
    for principal in ("a", "b"):
        assert "result" in await call(server, principal)
    assert "result" in await call(server, "c")
    for principal in ("a", "b", "c", "d"):
        assert "error" in await call(server, principal)
    clock.now += 1
    for principal in ("d", "c"):
        assert "result" in await call(server, principal)


# -- limit of the size


async def test_a_result_above_the_size_is_refused() -> None:
    server = make_server()
    server.add_middleware(limit_size(120))
    result = (await call(server))["result"]
    assert result["isError"]
    assert "more than 120 bytes" in result["content"][0]["text"]
    assert "result" in await ask(server, "resources/read", {"uri": "a:x"})
    answer = await ask(server, "resources/read", {"uri": "a:xx"})
    assert answer["error"]["message"].startswith("The result has more than 120 bytes")
    assert "error" in await ask(server, "tools/list")


async def test_the_size_limit_counts_the_bytes_that_are_sent() -> None:
    server = Server("s")
    server.resources.add("a:fits", lambda: b"\xff" * 90)
    server.resources.add("a:over", lambda: b"\xff" * 91)
    server.resources.add("a:wide", lambda: "é" * 61)
    server.tools.add(lambda: "\ud800", name="broken")
    server.add_middleware(limit_size(120))
    answers = [await ask(server, "resources/read", {"uri": uri}) for uri in ("a:fits", "a:over", "a:wide")]
    assert ["result" in answer for answer in answers] == [True, False, False]
    assert (await ask(server, "tools/call", {"name": "broken"}))["result"]["isError"] is True


# -- calls at a limit and above it


async def test_a_burst_is_refilled_at_the_rate() -> None:
    clock = FakeClock(100.0)
    server = make_server()
    server.add_middleware(limit_rate(2, burst=3, clock=clock))
    assert ["result" in await call(server) for _ in range(4)] == [True, True, True, False]
    answer = await call(server)
    assert answer["error"]["data"] == {"retryAfter": 1}
    clock.now += 0.49
    assert "error" in await call(server)
    clock.now += 0.01
    assert ["result" in await call(server) for _ in range(2)] == [True, False]
    clock.now += 60
    assert ["result" in await call(server) for _ in range(4)] == [True, True, True, False]


async def test_the_default_burst_is_the_calls_of_one_second_and_at_least_one() -> None:
    for rate, results in ((3.0, [True, True, True, False]), (0.1, [True, False, False, False])):
        clock = FakeClock(100.0)
        server = make_server()
        server.add_middleware(limit_rate(rate, clock=clock))
        assert ["result" in await call(server) for _ in range(4)] == results
    answer = await call(server)
    assert answer["error"]["data"] == {"retryAfter": 10}
    assert "try again in 10 s" in answer["error"]["message"]
    clock.now += 10
    assert ["result" in await call(server) for _ in range(2)] == [True, False]


@pytest.mark.parametrize(
    "options",
    [
        {"per_second": 0},
        {"burst": 0},
        {"max_callers": 0},
        {"per_second": -1},
        {"burst": -1},
        {"per_second": math.nan},
        {"per_second": math.inf},
    ],
)
def test_limits_of_the_rate_must_be_positive(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="positive"):
        limit_rate(**{"per_second": 1, **options})
    limit_rate(0.01, burst=1, max_callers=1)


def test_a_limit_of_the_size_must_be_positive() -> None:
    for size in (0, -1):
        with pytest.raises(ValueError, match="positive"):
            limit_size(size)
    limit_size(1)


async def test_a_size_at_the_limit_is_sent_and_one_byte_more_is_not() -> None:
    for limit, is_sent in ((100, True), (99, False)):
        server = make_server()
        server.add_middleware(limit_size(limit))
        assert ("result" in await ask(server, "resources/read", {"uri": "a:x"})) is is_sent
    server = make_server()
    server.add_middleware(limit_size(1))
    async with Wire(server) as wire:
        error = (await wire.ask("tools/list"))["error"]
        assert error["message"].startswith("The result has more than 1 bytes")


@pytest.mark.parametrize(
    ("name", "logged_name"), [("x" * 200, "x" * 200), ("x" * 201, "x" * 200 + "…"), ("ab\u202e", "ab?"), ("é", "é")]
)
async def test_a_name_in_the_log_is_truncated_and_has_no_control_characters(
    name: str, logged_name: str, caplog: pytest.LogCaptureFixture
) -> None:
    server = make_server()
    clock = FakeClock(100.0)
    server.add_middleware(log_calls(clock=clock))
    caplog.set_level(logging.INFO, "wharfinger.calls")
    await ask(server, "tools/call", {"name": name})
    assert caplog.records[-1].getMessage() == f"tools/call {logged_name} by - in 0.0 ms: refused (-32602)"
    record: Any = caplog.records[-1]
    assert record.mcp_name == logged_name


async def test_a_call_that_needs_input_or_becomes_a_task_is_not_counted_as_failed() -> None:
    async def count_failures(result: Any) -> int:
        server = Server("s")
        timing = Timing(clock=FakeClock(100.0))
        server.tools.add(lambda: "x", name="tool")
        server.add_middleware(timing)

        @server.middleware
        async def replace_result(call: Any, next: Any) -> Any:
            if isinstance(result, BaseException):
                raise result
            return result

        with suppress(InputNeeded):
            await call(server)
        return timing.by_method["tools/call"].failed

    assert await count_failures(t.CallToolResult(content=[])) == 0
    assert await count_failures(t.EmptyResult(result_type="task")) == 0
    assert await count_failures(InputNeeded(None)) == 0
    assert await count_failures(t.CallToolResult(content=[], is_error=True)) == 1
    assert await count_failures(InvalidParams("x")) == 1
    assert Timing().by_method == {}
    assert Times().mean == 0.0
