"""Full errors for an author during development, only if enabled, and never for errors meant for the caller."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from tests.server.driving import ERAS, ask
from tests.waiting import wait_until
from wharfinger import PermissionDenied, Server, ToolError
from wharfinger.server.middleware.development import Watchdog, debug_errors


def failing() -> Server:
    server = Server("s")

    @server.tool
    def breaks(how: str) -> str:
        errors: dict[str, Exception] = {
            "value": ValueError("the reason is secret"),
            "tool": ToolError("no berth"),
            "denied": PermissionDenied("not you"),
        }
        raise errors[how]

    return server


async def call_breaks(server: Server, how: str, revision: str) -> Any:
    return await ask(server, "tools/call", {"name": "breaks", "arguments": {"how": how}}, revision)


@pytest.mark.parametrize("revision", ERAS)
async def test_without_the_middleware_only_a_reference_is_sent(revision: str) -> None:
    answer = await call_breaks(failing(), "value", revision)
    assert "secret" not in str(answer)
    assert "(reference " in answer["result"]["content"][0]["text"]


@pytest.mark.parametrize("revision", ERAS)
async def test_with_the_middleware_the_exception_is_sent(revision: str, caplog: pytest.LogCaptureFixture) -> None:
    server = failing()
    server.add_middleware(debug_errors)
    result = (await call_breaks(server, "value", revision))["result"]
    assert result["isError"] is True
    text = result["content"][0]["text"]
    assert text.endswith(": ValueError: the reason is secret")
    reference = text.partition("(reference ")[2].partition(")")[0]
    assert reference in caplog.text
    assert (await call_breaks(server, "tool", revision))["result"]["content"][0]["text"] == "no berth"
    assert (await call_breaks(server, "denied", revision))["result"]["content"][0]["text"] == "not you"
    missing = await ask(server, "tools/call", {"name": "gone"}, revision)
    assert missing["error"]["message"] == "Unknown tool: gone"


def test_each_loop_has_one_watchdog_however_its_calls_alternate_with_those_of_another() -> None:
    """A bug: each change of the loop started a thread. A server can run in two threads."""

    async def answer(call: Any) -> str:
        return "done"

    watchdog: Any = Watchdog()
    loops = [asyncio.new_event_loop() for _ in range(2)]
    before = set(threading.enumerate())
    started: set[threading.Thread] = set()
    for loop in loops * 3:
        assert loop.run_until_complete(watchdog(None, answer)) == "done"
        started |= {thread for thread in threading.enumerate() if thread.name == "wharfinger-watchdog"} - before
    assert len(started) == 2
    for loop in loops:
        loop.close()


def test_the_watchdog_ends_if_its_loop_is_closed_before_it_turns() -> None:
    """A bug: the thread waited forever for the loop."""
    watchdog: Any = Watchdog()
    loop: Any = asyncio.new_event_loop()
    watching = threading.Thread(target=watchdog._watch, args=(loop, threading.get_ident()), daemon=True)
    watching.start()
    wait_until(lambda: loop._ready, "the watchdog waits for the loop")
    loop.close()
    watching.join(20)
    assert not watching.is_alive()
