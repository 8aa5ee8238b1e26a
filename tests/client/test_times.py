"""The timeouts of a client and of its calls, and the events that extend or pause them."""

from __future__ import annotations

import asyncio
import json
import math
from functools import partial
from typing import Any

import pytest

from tests.client.scripted import HANDSHAKE, SILENCE, STATELESS, TASKS_ERA, Script, now, run, settle, text
from wharfinger import types as t
from wharfinger.client import Client
from wharfinger.errors import ConnectionFailed, RequestTimeout

EACH_ERA = pytest.mark.parametrize("revision", [HANDSHAKE, STATELESS])


async def seconds_to_failure(pending: Any, error: type[Exception] = RequestTimeout, words: str = ".") -> float:
    """Await a call that fails with this error, and return the seconds it took."""
    begun = now()
    with pytest.raises(error, match=words):
        await pending
    return now() - begun


@EACH_ERA
def test_a_call_without_a_timeout_fails_after_a_minute(revision: str) -> None:
    async def test() -> None:
        async with (
            Script(revision, tools__call=SILENCE, resources__read=SILENCE) as server,
            server.client() as client,
        ):
            assert await seconds_to_failure(
                client.call_tool("x"), words=r"tools/call: .* within 60 s"
            ) == pytest.approx(60)
            assert await seconds_to_failure(client.read_resource("a:b"), words="resources/read") == pytest.approx(60)

    run(test())


@pytest.mark.parametrize("handled", [False, True])
@EACH_ERA
def test_the_timeout_of_a_client_applies_unless_a_call_has_its_own(revision: str, handled: bool) -> None:
    async def test() -> None:
        settings: dict[str, Any] = {"timeout": 7, "roots": [] if handled else None}
        async with Script(revision, tools__call=SILENCE) as server, server.client(**settings) as client:
            assert await seconds_to_failure(client.call_tool("x"), words="within 7 s") == pytest.approx(7)
            assert await seconds_to_failure(client.call_tool("x", timeout=2), words="within 2 s") == pytest.approx(2)
            assert await seconds_to_failure(client.call_tool("x", max_timeout=3), words="within 3 s") == pytest.approx(
                3
            )
            assert await seconds_to_failure(client.call_tool("x", timeout=0.0)) == 0

    run(test())


@pytest.mark.parametrize("handled", [False, True])
@EACH_ERA
def test_a_call_with_an_infinite_timeout_waits_up_to_max_timeout(revision: str, handled: bool) -> None:
    async def test() -> None:
        async def late(_: Any) -> Any:
            await asyncio.sleep(100_000)
            return text("late")

        settings: dict[str, Any] = {"roots": [] if handled else None}
        async with Script(revision, tools__call=late) as server, server.client(**settings) as client:
            assert (await client.call_tool("x", timeout=math.inf)).text == "late"
            assert await seconds_to_failure(client.call_tool("x", timeout=50_000)) == pytest.approx(
                3600
            )  # the default max_timeout
            assert await seconds_to_failure(client.call_tool("x", timeout=math.inf, max_timeout=5000)) == pytest.approx(
                5000
            )

    run(test())


@pytest.mark.parametrize("handled", [False, True])
@EACH_ERA
def test_progress_restarts_the_timeout_up_to_max_timeout(revision: str, handled: bool) -> None:
    async def test() -> None:
        async def run_steps(message: Any) -> Any:
            for step in range(message["params"]["arguments"]["steps"]):
                await asyncio.sleep(9)
                token = message["params"]["_meta"]["progressToken"]
                server.notify("notifications/progress", progressToken=token, progress=step)
            await asyncio.sleep(message["params"]["arguments"]["last"])
            return text("done")

        settings: dict[str, Any] = {"roots": [] if handled else None, "timeout": 10}
        async with Script(revision, tools__call=run_steps) as server, server.client(**settings) as client:

            def call(steps: int, last: float, **options: Any) -> Any:
                return client.call_tool("x", {"steps": steps, "last": last}, reset_on_progress=True, **options)

            assert (await call(5, 9.9)).text == "done"
            assert await seconds_to_failure(call(2, 11), words="within 10 s") == pytest.approx(28)
            assert await seconds_to_failure(call(9, 0, max_timeout=40), words="within 40 s") == pytest.approx(40)
            assert await seconds_to_failure(call(1000, 0), words="within 3600 s") == pytest.approx(3600)
            reported: list[float] = []
            assert (await call(3, 1, progress=lambda done, *_: reported.append(done))).text == "done"
            assert reported == [0, 1, 2]
            reported.clear()
            late = client.call_tool("x", {"steps": 3, "last": 0}, progress=lambda done, *_: reported.append(done))
            assert await seconds_to_failure(late) == pytest.approx(10)  # reported, but the deadline is not extended
            assert reported == [0]

    run(test())


def test_progress_in_every_round_restarts_the_timeout() -> None:
    """Bug: after the second round, the deadline was again that of the first, and so was the encoded result."""

    async def test() -> None:
        async def ask_twice(message: Any) -> Any:
            for _ in range(2):
                await asyncio.sleep(9)
                token = message["params"]["_meta"]["progressToken"]
                server.notify("notifications/progress", progressToken=token, progress=1)
            rounds = server.count("tools/call")
            return {"resultType": "input_required", "requestState": "s"} if rounds < 3 else text("done")

        calls: list[Any] = []

        async def keep(call: Any, next: Any) -> Any:
            calls.append(call)
            return await next(call)

        async with Script(tools__call=ask_twice) as server, server.client(timeout=10, middleware=[keep]) as client:
            assert (await client.call_tool("x", reset_on_progress=True)).text == "done"
        (raw,) = [json.loads(bytes(call.raw)) for call in calls if call.method == "tools/call"]
        assert raw["content"] == text("done")["content"]

    run(test())


def test_invalid_progress_extends_the_deadline_and_is_not_reported() -> None:
    async def test() -> None:
        async def run_steps(message: Any) -> Any:
            token = message["params"]["_meta"]["progressToken"]
            await asyncio.sleep(9)
            server.notify("notifications/progress", progressToken=token, progress="half")
            await asyncio.sleep(9)
            server.notify("notifications/progress", progressToken=token, progress=2.5, total=5, message="half")
            server.notify("notifications/progress", progressToken=token, progress=3)
            return text("done")

        reported: list[Any] = []
        async with Script(tools__call=run_steps) as server, server.client(timeout=10) as client:
            await client.call_tool("x", reset_on_progress=True, progress=lambda *given: reported.append(given))
        assert reported == [(2.5, 5, "half"), (3, None, None)]

    run(test())


@pytest.mark.parametrize("seconds", [None, 4])
def test_a_silent_server_fails_after_the_open_timeout(seconds: int | None) -> None:
    async def test() -> None:
        settings = {} if seconds is None else {"open_timeout": seconds}
        async with Script(HANDSHAKE, initialize=SILENCE) as server:
            client = server.client(**settings)
            words = f"gave no answer within {seconds or 60} s"
            assert await seconds_to_failure(client.open(), ConnectionFailed, words) == pytest.approx(seconds or 60)

    run(test())


@pytest.mark.parametrize("seconds", [None, 8])
def test_a_silent_server_gets_initialize_after_the_probe_timeout(seconds: int | None) -> None:
    async def test() -> None:
        settings = {} if seconds is None else {"probe_timeout": seconds}
        async with Script(HANDSHAKE, server__discover=SILENCE) as server:
            async with Client(f"unix:{server.path}", **settings) as client:
                assert client.revision == HANDSHAKE
            assert server.when("server/discover") == [0]
            assert server.when("initialize") == [pytest.approx(seconds or 3)]

    run(test())


def test_the_time_of_an_elicitation_counts_for_max_timeout_only() -> None:
    """2025-06-18: the server sends the elicitation as a request while the call is pending."""

    async def test() -> None:
        async def elicit(message: Any) -> Any:
            await asyncio.sleep(6)
            answered = asyncio.get_running_loop().create_future()
            form = {"message": "?", "requestedSchema": {"type": "object", "properties": {}}}
            server.say(id="q", method="elicitation/create", params=form)
            while not any(each.get("id") == "q" for each in server.received):
                await asyncio.sleep(1)
            answered.cancel()
            await asyncio.sleep(message["params"]["arguments"]["last"])
            server.received.clear()
            server.times.clear()
            return text("done")

        async def answer_slowly(_: Any) -> Any:
            await asyncio.sleep(1000)
            return {}

        async with (
            Script(HANDSHAKE, tools__call=elicit) as server,
            server.client(timeout=10, elicitation=answer_slowly) as it,
        ):
            assert (await it.call_tool("x", {"last": 2})).text == "done"
            begun = now()
            with pytest.raises(RequestTimeout, match="within 10 s"):
                await it.call_tool("x", {"last": 60})
            assert now() - begun == pytest.approx(1010, abs=1.1)
            await asyncio.sleep(100)
            server.received.clear()
            server.times.clear()
            assert await seconds_to_failure(it.call_tool("x", {"last": 2}, max_timeout=500)) == pytest.approx(500)

    run(test())


def test_the_time_of_input_requests_in_a_result_counts_for_max_timeout_only() -> None:
    async def test() -> None:
        form = {"message": "?", "requestedSchema": {"type": "object", "properties": {}}}
        input_requests = {"q": {"method": "elicitation/create", "params": form}}

        async def run_steps(message: Any) -> Any:
            if "inputResponses" not in message["params"]:
                await asyncio.sleep(6)
                return {"resultType": "input_required", "inputRequests": input_requests}
            await asyncio.sleep(message["params"]["arguments"]["last"])
            return text("done")

        async def answer_slowly(_: Any) -> Any:
            await asyncio.sleep(1000)
            return {}

        async with (
            Script(tools__call=run_steps) as server,
            server.client(timeout=10, elicitation=answer_slowly) as client,
        ):
            assert (await client.call_tool("x", {"last": 3.9})).text == "done"
            assert await seconds_to_failure(client.call_tool("x", {"last": 4.1})) == pytest.approx(1010)
            late = client.call_tool("x", {"last": 0}, max_timeout=500)
            assert await seconds_to_failure(late, words=r"URLs were not visited, within 500 s\.") == pytest.approx(500)

    run(test())


def test_a_watch_without_an_acknowledgement_fails_after_the_timeout_of_the_client() -> None:
    async def test() -> None:
        async with Script(subscriptions__listen=SILENCE) as server, server.client(timeout=7) as client:
            words = "did not acknowledge a watch within 7 s"
            assert await seconds_to_failure(client.watch("a:b").start(), words=words) == pytest.approx(7)
            await settle()
            assert server.count("notifications/cancelled") == 1
        async with (
            Script(TASKS_ERA, resources__subscribe=SILENCE) as server,
            server.client(timeout=7) as client,
        ):
            assert await seconds_to_failure(client.watch("a:b").start(), words="resources/subscribe") == pytest.approx(
                7
            )

    run(test())


def test_timeouts_are_paused_until_the_last_elicitation_is_answered() -> None:
    """Calls that start during an elicitation are paused too. After it they have their remaining time."""

    async def test() -> None:
        form = {"message": "?", "requestedSchema": {"type": "object", "properties": {}}}

        async def run_steps(message: Any) -> Any:
            if message["params"]["name"] == "asks":
                await asyncio.sleep(6)
                for id, seconds in (("a", "20"), ("b", "50")):
                    server.say(id=id, method="elicitation/create", params={**form, "message": seconds})
            await asyncio.sleep(message["params"]["arguments"]["last"])
            return text("done")

        async def answer_slowly(question: Any) -> Any:
            await asyncio.sleep(float(question.message))
            return {}

        async with (
            Script(HANDSHAKE, tools__call=run_steps) as server,
            server.client(timeout=10, elicitation=answer_slowly) as it,
        ):
            for asks, other, in_time in ((53, 47, True), (55, 59, False)):
                first = asyncio.ensure_future(it.call_tool("asks", {"last": asks}))
                await asyncio.sleep(7)
                second = asyncio.ensure_future(it.call_tool("other", {"last": other}))
                if in_time:
                    assert [(await each).text for each in (first, second)] == ["done"] * 2
                else:
                    assert await seconds_to_failure(first) == pytest.approx(60 - 7)
                    assert await seconds_to_failure(second) == pytest.approx(59 - 53)
                await asyncio.sleep(100)

    run(test())


def test_the_time_of_an_answer_does_not_count_when_its_call_is_sent_again() -> None:
    """A bug: a call that was sent again had only the time that was left without the pauses of the first attempt."""

    async def test() -> None:
        form = {"message": "?", "requestedSchema": {"type": "object", "properties": {}}}

        async def run_steps(message: Any) -> Any:
            if server.count("tools/call") % 2:
                server.say(id="a", method="elicitation/create", params=form)
                await asyncio.sleep(56)
            else:
                await asyncio.sleep(message["params"]["arguments"]["last"])
            return text("done")

        async def answer_slowly(_: Any) -> Any:
            await asyncio.sleep(50)
            return {}

        async def send_twice(call: Any, next: Any) -> Any:
            await next(call)
            return await next(call)

        async with (
            Script(HANDSHAKE, tools__call=run_steps) as server,
            server.client(timeout=10, elicitation=answer_slowly, middleware=[send_twice]) as client,
        ):
            assert (await client.call_tool("x", {"last": 3.9})).text == "done"
            assert await seconds_to_failure(client.call_tool("x", {"last": 4.1})) == pytest.approx(60)

    run(test())


def test_middleware_may_change_the_timeout_of_a_call_or_return_a_result() -> None:
    async def test() -> None:
        seen: list[str] = []

        async def shorten_timeout(call: Any, next: Any) -> Any:
            seen.append(repr(call))
            assert call.method == "tools/call"
            call.timeout = 3
            return await next(call)

        class AnswerMiddleware:
            async def __call__(self, call: Any, next: Any) -> Any:
                return await next(call) if call.params.name == "x" else t.CallToolResult(content=[])

        async def record(number: int, call: Any, next: Any) -> Any:
            seen.append(str(number))
            return await next(call)

        middleware = [shorten_timeout, AnswerMiddleware(), partial(record, 5)]
        async with Script(tools__call=SILENCE) as server, server.client(middleware=middleware) as client:
            assert await seconds_to_failure(client.call_tool("x"), words="within 3 s") == pytest.approx(3)
            assert (await client.call_tool("y")).text == ""
            assert seen == ["<Call tools/call>", "5", "<Call tools/call>"]
            assert server.count("tools/call") == 1

    run(test())


def test_only_async_functions_are_accepted_as_middleware() -> None:
    class SyncMiddleware:
        def __call__(self, call: Any, next: Any) -> Any:
            return next(call)

    for function, name in (
        (SyncMiddleware(), "SyncMiddleware"),
        (print, "print"),
        (partial(print), "partial"),
        (3, "int"),
    ):
        with pytest.raises(TypeError, match=f"{name}.* must be an async function"):
            Client("unix:/x", middleware=[function])
