"""Dependencies of functions: created once per request, closed after it, and checked at registration."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextlib import suppress as suppress_errors
from dataclasses import dataclass
from typing import Annotated, Any

import pytest

from tests.server.driving import ALL, Wire, ask, make_request, read
from wharfinger.errors import MissingClientCapability, PermissionDenied, ResourceNotFound, ToolError
from wharfinger.protocol.request import InputNeeded
from wharfinger.server.app import Server
from wharfinger.server.context import Context
from wharfinger.server.dependencies import Depends
from wharfinger.server.input.request_state import CannotAsk
from wharfinger.server.signature.complete import Complete
from wharfinger.server.threads import Pool

EVENTS: list[str] = []


@pytest.fixture(autouse=True)
def _clear_events() -> None:
    EVENTS.clear()


def plain() -> str:
    return "plain"


async def coroutine() -> str:
    return "coroutine"


def generator() -> Iterator[str]:
    EVENTS.append("open")
    try:
        yield "generator"
    except BaseException as error:
        EVENTS.append(type(error).__name__)
        raise
    finally:
        EVENTS.append("close")


async def async_generator() -> AsyncIterator[str]:
    EVENTS.append("open")
    try:
        yield "async_generator"
    except BaseException as error:
        EVENTS.append(type(error).__name__)
        raise
    finally:
        EVENTS.append("close")


manager = contextmanager(generator)
async_manager = asynccontextmanager(async_generator)


def decorated(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def decorate(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return decorate


def decorated_async(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    async def decorate(*args: Any, **kwargs: Any) -> Any:
        return await function(*args, **kwargs)

    return decorate


GENERATORS = [generator, async_generator, manager, async_manager, decorated(generator), decorated(async_generator)]


class Settings:
    def __init__(self, name: str = "settings") -> None:
        self.name = name


class CallableObject:
    async def __call__(self) -> str:
        return "called"

    def method(self) -> str:
        return "method"


async def call(server: Server, name: str = "tool", revision: str = "2026-07-28", **arguments: Any) -> Any:
    """Return the text of a tool's result, or the error."""
    answer = await ask(server, "tools/call", {"name": name, "arguments": arguments}, revision)
    return answer["result"]["content"][0]["text"] if "result" in answer else answer["error"]


# -- kinds of dependencies


@pytest.mark.parametrize("revision", ALL)
@pytest.mark.parametrize(
    ("function", "value"),
    [
        (plain, "plain"),
        (coroutine, "coroutine"),
        (generator, "generator"),
        (async_generator, "async_generator"),
        (manager, "generator"),
        (async_manager, "async_generator"),
        (decorated(plain), "plain"),
        (decorated(generator), "generator"),
        (decorated(async_generator), "async_generator"),
        (decorated(manager), "generator"),
        (decorated_async(coroutine), "coroutine"),
        (CallableObject(), "called"),
        (CallableObject().method, "method"),
        (functools.partial(Settings, "given"), "given"),
        (Settings, "settings"),
    ],
)
async def test_every_kind_of_callable_can_be_a_dependency(function: Any, value: str, revision: str) -> None:
    server = Server("s")

    @server.tool
    async def tool(it: Annotated[Any, Depends(function)]) -> str:
        return getattr(it, "name", it)  # type: ignore[no-any-return]

    @server.resource("a:b")
    def resource(it: Annotated[Any, Depends(function)]) -> str:
        return getattr(it, "name", it)  # type: ignore[no-any-return]

    assert await call(server, revision=revision) == value
    assert (await read(server, "a:b", revision))[0]["text"] == value


async def test_a_sync_dependency_runs_in_a_thread_unless_it_is_inline() -> None:
    server = Server("s")

    def thread_id() -> int:
        return threading.get_ident()

    def yield_thread_id() -> Iterator[int]:
        yield threading.get_ident()

    @server.tool
    async def tool(
        in_thread: Annotated[int, Depends(thread_id)],
        inline_value: Annotated[int, Depends(thread_id, cache=False, inline=True)],
        yielded_in_thread: Annotated[int, Depends(yield_thread_id)],
        yielded_inline: Annotated[int, Depends(yield_thread_id, cache=False, inline=True)],
    ) -> list[bool]:
        return [
            value == threading.get_ident() for value in (in_thread, inline_value, yielded_in_thread, yielded_inline)
        ]

    assert await call(server) == "[false,true,false,true]"


async def test_dependencies_may_take_the_context_and_other_dependencies() -> None:
    server = Server("s")

    def principal(ctx: Context[Any]) -> str:
        return ctx.principal.subject or "nobody"

    async def greeting(who: Annotated[str, Depends(principal)], ctx: Context[Any] | None = None) -> str:
        assert ctx is not None
        return f"{ctx.server.info.name}: hello {who}"

    @server.tool
    def tool(text: Annotated[str, Depends(greeting)], times: int = 1) -> str:
        return text * times

    assert await call(server) == "s: hello nobody"
    assert await call(server, times=2) == "s: hello nobody" * 2


async def test_all_dependencies_of_a_request_share_one_context() -> None:
    server = Server("s")

    async def step(ctx: Context[Any]) -> Context[Any]:
        ctx.report_progress(2)
        return ctx

    @server.tool
    async def tool(stepped: Annotated[Context[Any], Depends(step)], ctx: Context[Any]) -> bool:
        ctx.report_progress(1)
        return stepped is ctx

    request = make_request(server, "tools/call", {"name": "tool", "_meta": {"progressToken": 1}})
    result = await server.handlers["tools/call"](request)
    assert result.content[0].text == "true"
    assert [sent["params"]["progress"] for sent in request.channel.sent] == [2]  # type: ignore[attr-defined]


async def test_a_dependency_is_called_once_per_request_unless_cache_is_false() -> None:
    server = Server("s")
    numbers: list[int] = []

    def number() -> int:
        numbers.append(len(numbers))
        return numbers[-1]

    def doubled(value: Annotated[int, Depends(number)]) -> int:
        return value * 2

    @server.tool
    async def tool(
        a: Annotated[int, Depends(number)],
        b: Annotated[int, Depends(doubled)],
        c: Annotated[int, Depends(number)],
        d: Annotated[int, Depends(number, cache=False)],
    ) -> list[int]:
        return [a, b, c, d]

    assert await call(server) == "[0,0,0,1]"
    assert await call(server) == "[2,4,2,3]"


async def test_prompts_templates_and_completion_functions_may_have_dependencies() -> None:
    server = Server("s")
    names = ["mary", "anna"]

    async def table() -> AsyncIterator[list[str]]:
        EVENTS.append("open")
        yield list(names)
        EVENTS.append("close")

    Table = Annotated[list[str], Depends(table)]

    def complete(typed: str, rows: Table, ctx: Context[Any]) -> Iterator[str]:
        return (f"{ctx.server.info.name}.{row}" for row in rows if row.startswith(typed))

    def complete_with_others(typed: str, others: dict[str, str], rows: Table) -> list[str]:
        return [*others, *rows]

    @server.prompt
    def prompt(ship: Annotated[str, Complete(complete)], rows: Table, other: str = "") -> str:
        return f"{ship} of {rows}"

    @server.resource("log://{ship}")
    def template(ship: Annotated[str, Complete(complete_with_others)], rows: Table) -> str:
        return f"{ship} of {len(rows)}"

    prompts = (await ask(server, "prompts/list"))["result"]["prompts"]
    assert [argument["name"] for argument in prompts[0]["arguments"]] == ["ship", "other"]
    answer = await ask(server, "prompts/get", {"name": "prompt", "arguments": {"ship": "mary"}})
    assert answer["result"]["messages"][0]["content"]["text"] == "mary of ['mary', 'anna']"
    assert (await read(server, "log://mary"))[0]["text"] == "mary of 2"
    params: dict[str, Any] = {
        "ref": {"type": "ref/prompt", "name": "prompt"},
        "argument": {"name": "ship", "value": "m"},
    }
    assert (await ask(server, "completion/complete", params))["result"]["completion"]["values"] == ["s.mary"]
    params["ref"] = {"type": "ref/resource", "uri": "log://{ship}"}
    params["context"] = {"arguments": {"x": "y"}}
    assert (await ask(server, "completion/complete", params))["result"]["completion"]["values"] == ["x", *names]
    assert EVENTS == ["open", "close"] * 4


async def test_dependencies_are_not_in_the_input_schema() -> None:
    server = Server("s")

    @server.tool
    async def tool(x: int, it: Annotated[object, Depends(plain)]) -> str:
        return f"{x} {it}"

    tools = (await ask(server, "tools/list"))["result"]["tools"]
    assert list(tools[0]["inputSchema"]["properties"]) == ["x"]
    assert await call(server, x=1) == "1 plain"
    refused = await ask(server, "tools/call", {"name": "tool", "arguments": {"x": 1, "it": "mine"}})
    assert refused["result"]["isError"]


async def test_functions_created_in_a_for_loop_keep_their_own_dependencies() -> None:
    server = Server("s")

    def add_tool(number: int) -> None:
        def own_number() -> int:
            return number

        async def tool(it: Annotated[int, Depends(own_number)]) -> int:
            return it

        server.tools.add(tool, name=f"tool{number}")

    for number in range(3):
        add_tool(number)
    assert [await call(server, f"tool{number}") for number in range(3)] == ["0", "1", "2"]


# -- closing


@pytest.mark.parametrize("function", GENERATORS)
async def test_dependencies_are_closed_after_the_function(function: Callable[[], Any]) -> None:
    server = Server("s")

    @server.tool
    async def tool(it: Annotated[str, Depends(function)]) -> str:
        EVENTS.append("run")
        return it

    await call(server)
    assert EVENTS == ["open", "run", "close"]


@pytest.mark.parametrize("function", GENERATORS)
@pytest.mark.parametrize("error", [ValueError, ToolError, SystemExit, InputNeeded])
async def test_an_error_of_the_function_is_raised_in_its_dependencies_before_they_are_closed(
    function: Any, error: Any
) -> None:
    server = Server("s")

    @server.resource("a:b")
    async def resource(it: Annotated[str, Depends(function)]) -> str:
        raise error("x")

    request = make_request(server, "resources/read", {"uri": "a:b"})
    with pytest.raises(error):
        await server.handlers["resources/read"](request)
    assert list(EVENTS) == ["open", error.__name__, "close"]


@pytest.mark.parametrize("function", GENERATORS)
async def test_dependencies_are_closed_after_a_cancellation(function: Any) -> None:
    server = Server("s")
    begun = asyncio.Event()

    @server.tool
    async def tool(it: Annotated[str, Depends(function)]) -> None:
        begun.set()
        await asyncio.Event().wait()

    async with Wire(server, "2025-11-25") as wire:
        id = wire.send_request("tools/call", {"name": "tool"})
        await begun.wait()
        task = wire.stream.peer.in_flight[id].task
        wire.notify("notifications/cancelled", {"requestId": id})
        await asyncio.wait([task])
        assert EVENTS == ["open", "CancelledError", "close"]


async def test_a_dependency_opened_in_a_thread_is_closed_after_a_cancellation() -> None:
    server = Server("s")
    opening, go, closed = threading.Event(), threading.Event(), threading.Event()

    def slow() -> Iterator[None]:
        opening.set()
        go.wait(10)
        try:
            yield
        finally:
            closed.set()

    @server.tool
    async def tool(it: Annotated[None, Depends(slow)]) -> None: ...

    running = asyncio.create_task(call(server))
    await asyncio.to_thread(opening.wait, 10)
    running.cancel()
    await asyncio.wait([running])
    go.set()
    assert await asyncio.to_thread(closed.wait, 10)


async def test_dependencies_are_closed_in_reverse_order() -> None:
    server = Server("s")

    def make_dependency(name: str) -> Callable[..., Any]:
        async def dependency() -> AsyncIterator[str]:
            EVENTS.append(f"open {name}")
            yield name
            EVENTS.append(f"close {name}")

        return dependency

    first, second = make_dependency("first"), make_dependency("second")

    def third(needs: Annotated[str, Depends(first)]) -> Iterator[str]:
        EVENTS.append("open third")
        yield needs
        EVENTS.append("close third")

    @server.tool
    async def tool(c: Annotated[str, Depends(third)], b: Annotated[str, Depends(second)]) -> None: ...

    await ask(server, "tools/call", {"name": "tool"})
    assert EVENTS == ["open first", "open third", "open second", "close second", "close third", "close first"]


async def test_a_failing_dependency_closes_those_opened_before_it() -> None:
    server = Server("s")

    def failing(before: Annotated[str, Depends(generator)]) -> str:
        raise ToolError("no database")

    @server.tool
    async def tool(it: Annotated[str, Depends(failing)]) -> None: ...

    assert await call(server) == "no database"
    assert EVENTS == ["open", "ToolError", "close"]


async def test_errors_of_dependencies_are_sent_like_errors_of_the_function() -> None:
    server = Server("s")

    def failing_dependency(error: Exception) -> Any:
        async def fail() -> None:
            raise error

        return Depends(fail)

    @server.tool
    async def reported(it: Annotated[None, failing_dependency(ToolError("told"))]) -> None: ...

    @server.tool
    async def hidden(it: Annotated[None, failing_dependency(ValueError("secret"))]) -> None: ...

    @server.resource("a:missing")
    async def missing(it: Annotated[None, failing_dependency(ResourceNotFound("a:missing"))]) -> str:
        return ""

    @server.resource("a:forbidden")
    async def forbidden(it: Annotated[None, failing_dependency(PermissionDenied("no"))]) -> str:
        return ""

    assert await call(server, "reported") == "told"
    assert "Internal error (reference " in await call(server, "hidden")
    assert (await read(server, "a:missing"))["code"] == -32602
    assert (await read(server, "a:forbidden"))["message"].replace("forbidden", "missing") == (
        await read(server, "a:missing")
    )["message"]


async def test_a_dependency_may_replace_an_error_but_not_suppress_it() -> None:
    server = Server("s")

    async def replace_error() -> AsyncIterator[None]:
        try:
            yield
        except KeyError:
            raise ToolError("no such key") from None

    async def suppress_error() -> AsyncIterator[None]:
        try:
            yield
        except KeyError:
            EVENTS.append("suppressed")

    @server.tool
    async def turned(it: Annotated[None, Depends(replace_error)]) -> None:
        raise KeyError

    @server.tool
    async def hidden(it: Annotated[None, Depends(suppress_error)]) -> None:
        raise KeyError

    assert await call(server, "turned") == "no such key"
    assert "Internal error (reference " in await call(server, "hidden")
    assert EVENTS == ["suppressed"]


@pytest.mark.parametrize("inline", [False, True])
@pytest.mark.parametrize("function", GENERATORS)
async def test_a_dependency_sees_the_error_that_one_opened_after_it_suppresses(function: Any, inline: bool) -> None:
    """A bug: it was closed as if the function had succeeded, so that a transaction was committed."""
    server = Server("s")

    def suppress() -> Iterator[None]:
        with suppress_errors(ValueError):
            yield

    async def suppress_async() -> AsyncIterator[None]:
        with suppress_errors(ValueError):
            yield

    for suppressing in (suppress, suppress_async):

        async def tool(
            first: Annotated[str, Depends(function, inline=inline)],
            second: Annotated[None, Depends(suppressing, inline=inline)],
        ) -> None:
            raise ValueError

        server.tools.add(tool, name=suppressing.__name__)
        assert "Internal error (reference " in await call(server, suppressing.__name__)
    assert EVENTS == ["open", "ValueError", "close"] * 2


async def test_streamed_content_is_read_before_its_dependencies_are_closed() -> None:
    server = Server("s")
    state = {"open": False}

    async def database() -> AsyncIterator[dict[str, bool]]:
        state["open"] = True
        yield state
        state["open"] = False

    @server.resource("a:b", mime_type="text/plain")
    async def chunks(db: Annotated[dict[str, bool], Depends(database)]) -> AsyncIterator[bytes]:
        for _ in range(2):
            await asyncio.sleep(0)
            yield b"open " if db["open"] else b"closed "

    assert (await read(server, "a:b"))[0] == {"uri": "a:b", "mimeType": "text/plain", "text": "open open "}
    assert not state["open"]


async def test_the_timeout_of_a_function_includes_its_dependencies() -> None:
    server = Server("s")

    async def forever(before: Annotated[str, Depends(async_generator)]) -> None:
        await asyncio.Event().wait()

    @server.tool(timeout=0.01)
    async def tool(it: Annotated[None, Depends(forever)]) -> None: ...

    assert "longer than" in str(await call(server))
    assert EVENTS == ["open", "CancelledError", "close"]


async def test_dependencies_are_closed_even_if_no_thread_is_free() -> None:
    server = Server("s", pool=Pool(size=1, share=1, max_queued=0))
    release, busy = threading.Event(), threading.Event()

    @server.tool
    async def tool(it: Annotated[str, Depends(generator)]) -> str:
        def block() -> None:
            busy.set()
            release.wait(10)

        blocking = asyncio.create_task(server.pool.run("", block))
        await asyncio.sleep(0)
        await asyncio.to_thread(busy.wait, 10)
        blocking.add_done_callback(lambda _: None)
        return it

    assert await call(server) == "generator"
    assert EVENTS == ["open", "close"]
    release.set()


@pytest.mark.parametrize("cancelled_before", [False, True])
async def test_a_dependency_is_closed_if_its_request_is_cancelled_while_that_waits_for_a_thread(
    cancelled_before: bool,
) -> None:
    """A bug: it stayed open, because the closing was removed from the queue of the pool."""
    server = Server("s", pool=Pool(size=1, share=1))
    release, closed = threading.Event(), threading.Event()
    begun, ready = asyncio.Event(), asyncio.Event()

    def connection() -> Iterator[None]:
        try:
            yield
        finally:
            EVENTS.append("close")
            closed.set()

    @server.tool
    async def tool(it: Annotated[None, Depends(connection)]) -> None:
        begun.set()
        await ready.wait()

    running = asyncio.create_task(call(server))
    await begun.wait()
    blocking = asyncio.create_task(server.pool.run("", release.wait, 10))
    await asyncio.sleep(0)
    if cancelled_before:
        running.cancel()
    else:
        ready.set()
    while not server.pool._waiting:
        await asyncio.sleep(0)
    running.cancel()
    await asyncio.wait([running])
    assert running.cancelled()
    assert await asyncio.to_thread(closed.wait, 10)
    release.set()
    await blocking
    assert EVENTS == ["close"]


# -- errors at registration


def test_a_cycle_of_dependencies_is_refused_at_registration() -> None:
    def one(two: Any) -> str:
        return str(two)

    def two(one: Any) -> str:
        return str(one)

    one.__annotations__["two"] = Annotated[str, Depends(two)]
    two.__annotations__["one"] = Annotated[str, Depends(one)]

    def tool(it: Annotated[str, Depends(one)]) -> str:
        return it

    with pytest.raises(TypeError, match=r"one\(\) → two\(\) → one\(\)"):
        Server("s").tools.add(tool)


def test_a_dependency_with_an_unknown_parameter_is_refused_at_registration() -> None:
    def database(url: str) -> str:
        return url

    async def function(db: Annotated[str, Depends(database)]) -> str:
        return db

    def complete(typed: str, db: Annotated[str, Depends(database)]) -> list[str]:
        return [db]

    registrations: list[Callable[[], Any]] = [
        lambda: Server("s").tools.add(function),
        lambda: Server("s").prompts.add(function),
        lambda: Server("s").resources.add("a:b", function),
        lambda: Complete(complete),
    ]
    for register in registrations:
        with pytest.raises(TypeError, match=r"database\(\) takes 'url', which nothing fills"):
            register()


def test_a_positional_only_context_or_dependency_is_refused_at_registration() -> None:
    """A bug: it was accepted, and then each call failed."""

    def with_context(ctx: Context[Any], /) -> str:
        return ""

    def with_dependency(it: Annotated[str, Depends(plain)], /) -> str:
        return it

    def with_either(it: Annotated[str, Depends(with_context)]) -> str:
        return it

    def complete(typed: str, ctx: Context[Any], /) -> list[str]:
        return []

    for function, name in ((with_context, "ctx"), (with_dependency, "it"), (with_either, "ctx")):
        registrations: list[Callable[..., Any]] = [
            Server("s").tools.add,
            functools.partial(Server("s").tools.add, input_schema={"type": "object", "properties": {}}),
            Server("s").prompts.add,
            functools.partial(Server("s").resources.add, "a:b"),
        ]
        for register in registrations:
            with pytest.raises(TypeError, match=rf"\(\) must take '{name}' by name"):
                register(function)
    with pytest.raises(TypeError, match=r"complete\(\) must take 'ctx' by name"):
        Complete(complete)


async def test_only_an_async_dependency_can_send_input_requests() -> None:
    def elicit_in_function(ctx: Context[Any]) -> Any:
        return ctx.elicit("Sure?", bool)

    def elicit_in_generator(ctx: Context[Any]) -> Iterator[Any]:
        yield ctx.elicit("Sure?", bool)

    async def elicit_in_async_generator(ctx: Context[Any]) -> AsyncIterator[Any]:
        yield await ctx.elicit("Sure?", bool)

    for function, error in (
        (elicit_in_function, CannotAsk),
        (elicit_in_generator, CannotAsk),
        (elicit_in_async_generator, MissingClientCapability),  # raised by elicit()
        (asynccontextmanager(elicit_in_async_generator), MissingClientCapability),
    ):

        def tool(it: Annotated[Any, Depends(function)], ctx: Context[Any]) -> None: ...

        server = Server("s")
        server.tools.add(tool)
        with pytest.raises(error):
            await server.handlers["tools/call"](make_request(server, "tools/call", {"name": "tool", "arguments": {}}))


async def test_dependencies_are_created_again_after_an_input_request() -> None:
    server = Server("s")

    async def sure(ctx: Context[Any]) -> bool:
        return await ctx.elicit("Sure?", bool, key="sure")

    @server.tool
    async def tool(before: Annotated[str, Depends(async_generator)], it: Annotated[bool, Depends(sure)]) -> bool:
        return it

    meta = {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}}}
    params: dict[str, Any] = {"name": "tool", "arguments": {}, "_meta": meta}
    request = make_request(server, "tools/call", params)
    with pytest.raises(InputNeeded) as stopped:
        await server.handlers["tools/call"](request)
    assert list(EVENTS) == ["open", "InputNeeded", "close"]
    params |= {
        "requestState": stopped.value.result.request_state,
        "inputResponses": {"sure": {"action": "accept", "content": {"value": True}}},
    }
    answer = await ask(server, "tools/call", params)
    assert answer["result"]["content"][0]["text"] == "true"
    assert list(EVENTS) == ["open", "InputNeeded", "close", "open", "close"]


def test_only_functions_are_dependencies() -> None:
    with pytest.raises(TypeError, match="takes a function, not str"):
        Depends("database")  # type: ignore[arg-type]


def test_a_dependency_without_a_hash_is_refused() -> None:
    """A bug: it was accepted, and each request failed."""

    @dataclass
    class Database:
        url: str

        def __call__(self) -> str:
            return self.url

    with pytest.raises(TypeError, match=r"give the class Database a __hash__, or write @dataclass\(eq=False\)"):
        Depends(Database("sqlite:"))


# -- overrides


async def test_override_replaces_a_dependency_within_its_block() -> None:
    server = Server("s")

    async def inner() -> str:
        return "real"

    def outer(it: Annotated[str, Depends(inner)]) -> str:
        return f"outer {it}"

    @server.tool
    async def tool(a: Annotated[str, Depends(inner)], b: Annotated[str, Depends(outer)]) -> str:
        return f"{a}, {b}"

    with server.override(inner, lambda: "fake"):
        assert await call(server) == "fake, outer fake"
        with server.override(inner, generator), server.override(outer, lambda: "none"):
            assert await call(server) == "generator, none"
        assert await call(server) == "fake, outer fake"
    assert await call(server) == "real, outer real"
    assert EVENTS == ["open", "close"]
    server.overrides[inner] = coroutine
    assert await call(server) == "coroutine, outer coroutine"
    assert dict(server.overrides) == {inner: coroutine}
    server.overrides.clear()
    assert await call(server) == "real, outer real"


def test_overrides_are_validated() -> None:
    server = Server("s")

    def fake(url: str) -> str:
        return url

    with pytest.raises(TypeError, match="nothing fills"), server.override(plain, fake):
        pass
    assert not server.overrides


async def test_an_override_that_needs_what_it_replaces_is_refused() -> None:
    """A bug: each request failed with a RecursionError."""
    server = Server("s")

    def outer(it: Annotated[str, Depends(plain)]) -> str:
        return it

    def fake(real: Annotated[str, Depends(plain)]) -> str:
        return real

    def fake_of_outer(it: Annotated[str, Depends(outer)]) -> str:
        return it

    @server.tool
    async def tool(it: Annotated[str, Depends(plain)]) -> str:
        return it

    with pytest.raises(TypeError, match=r"circle: plain\(\) → fake\(\) → plain\(\)"):
        server.overrides[plain] = fake
    with pytest.raises(TypeError, match=r"plain\(\) → fake_of_outer\(\) → outer\(\) → plain\(\)"):
        server.overrides[plain] = fake_of_outer
    server.overrides[plain] = plain
    assert await call(server) == "plain"


def test_overrides_that_need_each_other_s_dependency_are_refused() -> None:
    def first() -> str:
        return "first"

    def second() -> str:
        return "second"

    def fake_first(it: Annotated[str, Depends(second)]) -> str:
        return it

    def fake_second(it: Annotated[str, Depends(first)]) -> str:
        return it

    overrides = Server("s").overrides
    overrides[first] = fake_first
    with pytest.raises(TypeError, match=r"circle: second\(\) → fake_second\(\) → first\(\) → second\(\)"):
        overrides[second] = fake_second
    assert list(overrides) == [first]


def test_depends_as_a_default_value_is_refused() -> None:
    def database() -> int:
        return 1

    def handler(db: Any = Depends(database)) -> int:  # noqa: B008
        return 1

    def dependent(db: Annotated[int, Depends(handler)]) -> int:
        return 1

    server = Server("s")
    message = r"handler\(\): db = Depends\(database\) fills nothing: write db: Annotated\[…, Depends\(database\)\]"
    for register in (server.tools.add, server.prompts.add, functools.partial(server.resources.add, "a:b")):
        for function in (handler, dependent):
            with pytest.raises(TypeError, match=message):
                register(function)
