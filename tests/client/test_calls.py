"""Calls of a client: deadlines, progress, logs, middleware, templates and cancellation, on each transport."""

from __future__ import annotations

import asyncio
import math
import sys
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest

from tests.client.example_server import example_server
from wharfinger import Client, Context, Server, ToolError
from wharfinger import types as t
from wharfinger.client.calls import Call, Next, check_middleware, compose
from wharfinger.client.concurrency import gather_limited
from wharfinger.errors import ConnectionLost, InvalidResponse, RequestTimeout, ResourceNotFound, WharfingerError
from wharfinger.protocol.methods import METHODS
from wharfinger.protocol.revisions import SUPPORTED
from wharfinger.server import Content

EACH = pytest.mark.parametrize("revision", SUPPORTED)


@asynccontextmanager
async def over_http(server: Server) -> AsyncGenerator[str]:
    """Serve over HTTP and yield the URL."""
    from wharfinger.transports.http_server.runner import serve_http

    ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    task = asyncio.ensure_future(serve_http(server, port=0, on_ready=ready.set_result))
    try:
        yield f"{await ready}/mcp"
    finally:
        task.cancel()
        await asyncio.wait((task,))


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 30))


class WaitingServer:
    """A server with tools that report progress, wait and log, and events for the steps of its calls."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.ended = asyncio.Event()
        self.go = asyncio.Event()
        self.server = server = Server("works")

        @server.tool
        async def steps(count: int, ctx: Context, pause: float = 0.0) -> int:
            for step in range(count):
                await ctx.report_progress(step + 1, count, f"step {step + 1}")
                await asyncio.sleep(pause)
            return count

        @server.tool
        async def wait() -> str:
            self.begun.set()
            try:
                await self.go.wait()
                return "went"
            finally:
                self.ended.set()

        @server.tool
        async def chat(ctx: Context) -> str:
            await ctx.info("hello")
            await ctx.debug("whisper")
            return "said"


# Deadlines and middleware of a call.


def test_the_deadline_of_a_call_starts_with_its_first_request_and_is_extended_by_input() -> None:
    call = Call(METHODS["tools/call"], None, 10, 30)
    assert (call.left(100), call.left(104)) == (10, 6)
    call.extend_deadline(3)
    assert call.left(104) == 9
    assert call.left(112.5) == 0.5
    with pytest.raises(RequestTimeout, match="within 10 s"):
        call.left(113)
    call.extend_deadline(100)
    assert call.left(129) == 1
    with pytest.raises(RequestTimeout, match="within 30 s"):
        call.left(130)


def test_max_timeout_bounds_the_deadline_and_infinity_means_no_deadline() -> None:
    assert Call(METHODS["tools/call"], None, 40, 30).left(0) == 30
    unbounded = Call(METHODS["tools/call"], None, math.inf, 30)
    unbounded.left(0)
    with pytest.raises(RequestTimeout, match="within 30 s"):
        unbounded.left(30)
    endless = Call(METHODS["tools/call"], None, math.inf, math.inf)
    endless.extend_deadline(5)
    assert (endless.left(0), endless.left(1e9)) == (None, None)


def test_a_follow_up_request_gets_the_remaining_time_of_its_call() -> None:
    async def test() -> None:
        now = asyncio.get_running_loop().time()
        call = Call(METHODS["tools/call"], None, 10, 30)
        call.left(now - 4)
        assert call.follow_up(METHODS["ping"], None, 2).timeout == 2
        assert 5.9 < call.follow_up(METHODS["ping"], None, 60).timeout <= 6
        endless = Call(METHODS["tools/call"], None, math.inf, math.inf)
        assert endless.follow_up(METHODS["ping"], None, 60).timeout == 60
        call.restart()
        assert 9.9 < call.follow_up(METHODS["ping"], None, 60).timeout <= 10

    run(test())


def test_middleware_is_composed_with_the_first_one_outermost() -> None:
    def step(name: str) -> Any:
        async def around(call: Call, next: Next) -> Any:
            return f"{name}({await next(call)})"

        return around

    async def last(call: Call) -> str:
        return call.method

    async def test() -> None:
        call = Call(METHODS["tools/call"], None, 1, 1)
        assert await compose([step("a"), step("b")], last)(call) == "a(b(tools/call))"
        assert await compose([], last)(call) == "tools/call"
        assert repr(call) == "<Call tools/call>"

    run(test())


def test_middleware_is_an_async_function_or_an_object_that_is_called_like_one() -> None:
    """A bug: a class was accepted, although calling it makes an object and awaits nothing."""

    class Around:
        async def __call__(self, call: Call, next: Next) -> Any:
            return await next(call)

    check_middleware(Around())
    check_middleware(Around().__call__)
    check_middleware(partial(Around.__call__, Around()))
    with pytest.raises(TypeError, match=r"Around\(\) must be an async function"):
        check_middleware(Around)


# Progress.


@EACH
def test_progress_is_reported_in_order_and_before_the_result(revision: str) -> None:
    async def test() -> None:
        reported: list[tuple[float, float | None]] = []
        later: list[float] = []

        async def slowly(done: float, total: float | None, message: str | None) -> None:
            await asyncio.sleep(0)
            later.append(done)

        async with Client(WaitingServer().server, revision=revision) as client:
            await client.call_tool(
                "steps", {"count": 3}, progress=lambda done, total, _: reported.append((done, total))
            )
            await client.call_tool("steps", {"count": 3}, progress=slowly)
        assert reported == [(1, 3), (2, 3), (3, 3)]
        assert later == [1, 2, 3]

    run(test())


def test_a_progress_function_that_fails_does_not_fail_the_call() -> None:
    def bad(*_: Any) -> None:
        raise ValueError

    async def test() -> None:
        async with Client(WaitingServer().server) as client:
            assert (await client.call_tool("steps", {"count": 3}, progress=bad)).text == "3"

    run(test())


@EACH
@pytest.mark.parametrize("reset", [False, True])
def test_middleware_and_the_caller_both_get_progress_once(revision: str, reset: bool) -> None:
    """A bug: `Call.on_notification` of the middleware was replaced if the call had `progress` or resets on it."""
    taken: list[str | None] = []
    reported: list[float] = []

    async def take(call: Call, next: Next) -> Any:
        if call.method == "tools/call":
            call.on_notification = lambda message: taken.append(message.method)
            await next(call)
        return await next(call)

    async def test() -> None:
        options: Any = {"reset_on_progress": True} if reset else {"progress": lambda done, *_: reported.append(done)}
        async with Client(WaitingServer().server, revision=revision, middleware=[take]) as client:
            await client.call_tool("steps", {"count": 2}, **options)
        assert taken == ["notifications/progress"] * 4
        assert reported == ([] if reset else [1, 2, 1, 2])

    run(test())


@EACH
@pytest.mark.parametrize("options", [{}, {"reset_on_progress": True}])
def test_middleware_and_the_log_function_both_get_the_messages_of_a_call(
    revision: str, options: dict[str, bool]
) -> None:
    """A bug: over stateless HTTP, the log function got them only if the call had `progress` or resets on it."""
    taken: list[str | None] = []
    logged: list[Any] = []

    async def take(call: Call, next: Next) -> Any:
        call.on_notification = lambda message: taken.append(message.method)
        return await next(call)

    async def test() -> None:
        async with (
            over_http(WaitingServer().server) as url,
            Client(
                url, revision=revision, middleware=[take], log=lambda m: logged.append(m.data), log_level="info"
            ) as client,
        ):
            await client.call_tool("chat", **options)
        assert logged == ["hello"]
        if revision == "2026-07-28":  # the stream of an answer has nothing of other requests
            assert taken == ["notifications/message"]

    run(test())


@EACH
def test_progress_resets_the_timeout_if_reset_on_progress_is_set(revision: str) -> None:
    async def test() -> None:
        async with Client(WaitingServer().server, revision=revision) as client:
            given = {"count": 5, "pause": 0.4}
            assert (await client.call_tool("steps", given, timeout=1.5, reset_on_progress=True)).text == "5"
            with pytest.raises(RequestTimeout):
                await client.call_tool("steps", given, timeout=1.5)
            with pytest.raises(RequestTimeout):
                await client.call_tool("steps", given, timeout=1.5, reset_on_progress=True, max_timeout=1.6)

    run(test())


# Deadlines and cancellation.


@EACH
def test_a_timeout_or_a_cancellation_cancels_the_call_at_the_server(revision: str) -> None:
    async def test() -> None:
        waiting = WaitingServer()
        async with Client(waiting.server, revision=revision) as client:
            with pytest.raises(RequestTimeout, match="tools/call"):
                await client.call_tool("wait", timeout=0.05)
            await waiting.ended.wait()
            waiting.ended.clear()
            waiting.begun.clear()
            call = asyncio.ensure_future(client.call_tool("wait", timeout=math.inf))
            await waiting.begun.wait()
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            await waiting.ended.wait()

    run(test())


@EACH
def test_a_cancellation_over_http_cancels_the_call_at_the_server(revision: str) -> None:
    async def test() -> None:
        waiting = WaitingServer()
        async with over_http(waiting.server) as url, Client(url, revision=revision) as client:
            call = asyncio.ensure_future(client.call_tool("wait", timeout=math.inf))
            await waiting.begun.wait()
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            await waiting.ended.wait()

    run(test())


@EACH
def test_closing_from_another_task_fails_pending_calls_with_connection_lost(revision: str) -> None:
    async def test() -> None:
        waiting = WaitingServer()
        client = await Client(waiting.server, revision=revision).open()
        call = asyncio.ensure_future(client.call_tool("wait"))
        await waiting.begun.wait()
        await asyncio.create_task(client.close())
        with pytest.raises(ConnectionLost):
            await call
        with pytest.raises(ConnectionLost):
            await client.list_tools()

    run(test())


def test_a_client_may_be_opened_and_closed_in_different_tasks() -> None:
    async def test() -> None:
        client = Client(example_server())
        await asyncio.create_task(client.__aenter__())
        assert (await client.read_resource("notes://data")).json() == {"a": 1}
        await asyncio.create_task(client.__aexit__(None, None, None))
        async with asyncio.TaskGroup() as group:
            client = await group.create_task(Client(example_server()).open())
            reads = [group.create_task(client.read_resource("notes://data")) for _ in range(20)]
        assert all(read.result().json() == {"a": 1} for read in reads)
        await client.close()

    run(test())


# Logs.


@EACH
def test_the_log_function_gets_messages_from_the_log_level_upwards(revision: str) -> None:
    async def test() -> None:
        for level, expected in (("info", ["hello"]), ("debug", ["hello", "whisper"])):
            reported: list[Any] = []
            async with (
                over_http(WaitingServer().server) as url,
                Client(url, revision=revision, log=lambda m: reported.append(m.data), log_level=level) as client,  # type: ignore[arg-type]  # noqa: B023
            ):
                if client.revision < "2026":
                    await client.set_log_level(level)  # type: ignore[arg-type]
                await client.call_tool("chat")
            assert reported == expected

    run(test())


# Middleware.


def test_middleware_wraps_every_call_with_the_first_one_outermost() -> None:
    async def test() -> None:
        seen: list[str] = []

        def middleware(name: str) -> Callable[[Call, Next], Coroutine[Any, Any, Any]]:
            async def around(call: Call, next: Next) -> Any:
                seen.append(f"{name} {call.method}")
                return await next(call)

            return around

        async def replace(call: Call, next: Next) -> Any:
            if call.method == "resources/read" and call.params.uri == "notes://made-up":
                contents = [t.ResourceContents(uri=call.params.uri, text="made up")]
                return t.ReadResourceResult(contents=contents)
            if call.method == "tools/call":
                call.params.name = "add"
            return await next(call)

        async with Client(example_server(), middleware=[middleware("a"), middleware("b"), replace]) as client:
            assert (await client.read_resource("notes://made-up")).text == "made up"
            assert (await client.call_tool("plus", {"a": 1, "b": 2})).data == 3
        assert seen == ["a resources/read", "b resources/read", "a tools/call", "b tools/call"]
        with pytest.raises(TypeError, match="async def"):
            Client(example_server(), middleware=[print])  # type: ignore[list-item]

    run(test())


# Concurrent calls.


@pytest.mark.parametrize("return_errors", [False, True])
def test_many_calls_of_which_one_is_cancelled_from_within_have_no_result(return_errors: bool) -> None:
    """Regression: the list of results had None in its place."""

    async def call(number: int) -> int:
        if number == 1:
            raise asyncio.CancelledError
        return number

    async def test() -> None:
        with pytest.raises(asyncio.CancelledError):
            await gather_limited(call, range(4), 2, return_errors=return_errors)

    asyncio.run(test())


def test_read_many_keeps_the_order_and_the_concurrency_limit() -> None:
    async def test() -> None:
        server, running, most_running = Server("many"), 0, 0

        @server.resource("n://{n}")
        async def read(n: str) -> str:
            nonlocal running, most_running
            running += 1
            most_running = max(most_running, running)
            await asyncio.sleep(0.001 * (7 - int(n) % 7))
            running -= 1
            return n

        async with Client(server) as client:
            results = await client.read_many((f"n://{n}" for n in range(50)), concurrency=5)
            assert [result.text for result in results] == [str(n) for n in range(50)]
            assert most_running == 5
            assert await client.read_many([]) == []
            with pytest.raises(ValueError, match="concurrency"):
                await client.read_many(["n://1"], concurrency=0)

    run(test())


def test_read_many_raises_one_error_or_returns_errors_in_order() -> None:
    async def test() -> None:
        uris = ["notes://data", "notes://none", "notes://today"]
        async with Client(example_server()) as client:
            with pytest.raises(ResourceNotFound, match="notes://none"):
                await client.read_many(uris)
            results = await client.read_many(uris, errors="return")
            assert [isinstance(result, WharfingerError) for result in results] == [False, True, False]

    run(test())


def test_call_many_keeps_the_order_and_the_concurrency_limit() -> None:
    async def test() -> None:
        server, running, most_running = Server("many"), 0, 0

        @server.tool
        async def double(n: int = 21) -> int:
            nonlocal running, most_running
            running += 1
            most_running = max(most_running, running)
            await asyncio.sleep(0.001 * (7 - n % 7))
            running -= 1
            return 2 * n

        async with Client(server) as client:
            results = await client.call_many((("double", {"n": n}) for n in range(50)), concurrency=5)
            assert [result.data for result in results] == [2 * n for n in range(50)]
            assert most_running == 5
            assert [result.data for result in await client.call_many(["double", ("double", None)])] == [42, 42]
            assert await client.call_many([]) == []
            with pytest.raises(ValueError, match="concurrency"):
                await client.call_many(["double"], concurrency=0)

    run(test())


def test_call_many_raises_one_error_or_returns_errors_in_order() -> None:
    async def test() -> None:
        server = Server("many")

        @server.tool
        async def even(n: int) -> int:
            if n % 2:
                raise ToolError(f"{n} is odd.")
            return n

        calls = [("even", {"n": n}) for n in range(3)]
        async with Client(server) as client:
            with pytest.raises(ToolError, match="1 is odd"):
                await client.call_many(calls)
            results = await client.call_many(calls, errors="return")
            assert [isinstance(result, WharfingerError) for result in results] == [False, True, False]

    run(test())


# Templates.


def test_a_template_is_read_by_its_uri_template_its_name_or_its_listed_object() -> None:
    async def test() -> None:
        async with Client(example_server()) as client:
            listed = (await client.list_resource_templates())[0]
            for template in ("log://{vessel}/today", listed, listed.name):
                assert (await client.template(template).read(vessel="Mary Ann")).text == "log of Mary Ann"
            assert await client.template(listed).uri(vessel="a/b") == "log://a%2Fb/today"
            with pytest.raises(ResourceNotFound, match="it has: log"):
                await client.template("logs").read(vessel="x")
            with pytest.raises(TypeError, match="needs a value for vessel"):
                await client.template(listed).read()
            with pytest.raises(TypeError, match="has no variable ship: its variables are vessel"):
                await client.template(listed).read(ship="x")

    run(test())


# Errors.


def test_text_of_several_contents_raises_an_error() -> None:
    server = Server("several")

    @server.resource("two://things")
    async def two() -> list[Content]:
        return [Content(str(n), uri=f"two://{n}") for n in range(2)]

    async def test() -> None:
        async with Client(server) as client:
            result = await client.read_resource("two://things")
            assert [content.text for content in result.contents] == ["0", "1"]
            with pytest.raises(ValueError, match=r"2 contents: use \.contents"):
                _ = result.text

    run(test())


# A server with scripted results.

SCRIPTED = """
import json, sys
META = {"resultType": "complete"}
def say(message): print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)
seen = []
for line in sys.stdin:
    message = json.loads(line)
    id, method, params = message.get("id"), message["method"], message.get("params", {})
    if method == "server/discover":
        result = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, **META}
        say({"id": id, "result": {**result, "ttlMs": 0, "cacheScope": "private"}})
    elif method == "tools/call":
        params.pop("_meta")
        seen.append([id, params])
        say({"id": id, "result": RESULTS[params["name"]](len(seen), params)})
"""
STATE = 'say "é\\\\ \\u2028 {x}'


def scripted(results: str) -> Client:
    code = SCRIPTED.replace("seen = []", f"seen = []\nSTATE = {STATE!r}\nRESULTS = {results}", 1)
    return Client([sys.executable, "-c", code], elicitation=_accept)


async def _accept(_: t.ElicitRequestParams) -> dict[str, Any]:
    return {"a": 1}


def test_a_call_is_repeated_with_answers_and_the_same_state() -> None:
    results = (
        'lambda n, params: {"resultType": "input_required", "requestState": STATE, "inputRequests": {"k\\u00e9y": '
        '{"method": "elicitation/create", "params": {"message": "?", "requestedSchema": {"type": "object", '
        '"properties": {}}}}}} if n == 1 else {"resultType": "complete", "content": [], "structuredContent": seen}'
    )

    async def test() -> None:
        async with scripted(f'{{"x": {results}}}') as client:
            (first, params), (second, again) = (await client.call_tool("x", {"b": [1]})).data
        assert first != second
        answers = {"kéy": {"action": "accept", "content": {"a": 1}}}
        assert again == {**params, "inputResponses": answers, "requestState": STATE}

    run(test())


def test_a_request_state_without_input_requests_is_sent_back_at_once() -> None:
    results = (
        'lambda n, params: {"resultType": "input_required", "requestState": STATE} if n == 1 else '
        '{"resultType": "complete", "content": [], "structuredContent": seen}'
    )

    async def test() -> None:
        async with scripted(f'{{"x": {results}}}') as client:
            seen = (await client.call_tool("x")).data
            assert seen[1][1] == {"name": "x", "requestState": STATE}
            assert (await client.call_tool("x")).data[2][1] == {"name": "x"}

    run(test())


@pytest.mark.parametrize(
    ("result", "complaint"),
    [
        ('{"resultType": "input_required", "requestState": "s"}', "still asks after 8 rounds"),
        ('{"resultType": "input_required"}', "sends neither a question"),
        ('{"resultType": "input_required", "inputRequests": {"a": {"method": "roots/list"}}}', "roots/list"),
        (
            '{"resultType": "input_required", "inputRequests": {"a": {"method": "made/up"}}}',
            "not a valid 'input_required' result",
        ),
        ('{"resultType": "task", "taskId": "1"}', "resultType"),
        ('{"resultType": "surprise", "content": []}', "surprise"),
        ('{"resultType": "surprise"}', "surprise"),
        ('{"nothing": 1}', "content"),
    ],
)
def test_an_invalid_result_raises_invalid_response(result: str, complaint: str) -> None:
    async def test() -> None:
        async with scripted(f'{{"x": lambda n, params: {result}}}') as client:
            with pytest.raises(InvalidResponse, match=complaint):
                await client.call_tool("x")

    run(test())


def test_a_block_of_an_unknown_type_is_kept() -> None:
    async def test() -> None:
        result = '{"resultType": "complete", "content": [{"type": "hologram", "beams": 7}]}'
        async with scripted(f'{{"x": lambda n, params: {result}}}') as client:
            (block,) = (await client.call_tool("x")).content
        assert isinstance(block, t.UnknownContent)
        assert block == {"type": "hologram", "beams": 7}

    run(test())


def test_a_tool_error_holds_the_whole_result() -> None:
    async def test() -> None:
        result = '{"resultType": "complete", "isError": True, "content": [{"type": "text", "text": "no"}]}'
        async with scripted(f'{{"x": lambda n, params: {result}}}') as client:
            with pytest.raises(ToolError, match="no") as failed:
                await client.call_tool("x")
        assert failed.value.result.content == [t.TextContent(text="no")]

    run(test())
