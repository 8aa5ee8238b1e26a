"""A handler function runs in the event loop or in a thread, with its annotated parameters and its timeout."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import random
import threading
from collections.abc import AsyncIterator, Callable
from typing import Annotated, Any, Literal, Optional

import msgspec
import pytest

from tests.server.driving import ERAS, Wire, ask, make_principal, make_request, read
from wharfinger import types as t
from wharfinger.server.app import Server
from wharfinger.server.context import Context
from wharfinger.server.features.handler_function import HandlerFunction
from wharfinger.server.owners import owner_of, share_owner_of
from wharfinger.server.signature.complete import Complete
from wharfinger.server.threads import MEMBER_SEPARATOR, Pool, group_of, is_async


async def coroutine() -> str:
    return "c"


def plain() -> str:
    return "p"


class Callables:
    async def method(self) -> str:
        return "m"

    async def __call__(self) -> str:
        return "i"


async def generator() -> AsyncIterator[bytes]:
    yield b"g"


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (coroutine, True),
        (functools.partial(functools.partial(coroutine)), True),
        (Callables().method, True),
        (Callables(), True),
        (functools.partial(Callables()), True),
        (plain, False),
        (Callables, False),
        (lambda: "", False),
        (generator, False),
        (functools.partial(plain), False),
    ],
)
def test_a_function_that_returns_an_awaitable_is_async(function: Callable[..., Any], expected: bool) -> None:
    assert is_async(function) is expected


async def test_every_kind_of_function_is_called() -> None:
    server = Server("s")
    kinds: dict[str, Callable[..., Any]] = {
        "c": coroutine,
        "p": plain,
        "m": Callables().method,
        "i": Callables(),
        "g": generator,
    }
    for name, function in kinds.items():
        server.resources.add(f"{name}:x", function)
        server.resources.add(f"{name}:inline", function, inline=True)
        server.resources.add(f"{name}:partial", functools.partial(function))
    for name in kinds:
        for uri in (f"{name}:x", f"{name}:inline", f"{name}:partial"):
            assert (uri, (await read(server, uri))[0]["text"]) == (uri, name)


async def test_a_plain_function_runs_in_a_thread_unless_it_is_inline() -> None:
    server = Server("s")
    name = contextvars.ContextVar("name", default="")
    name.set("ann")

    def where() -> list[Any]:
        return [threading.current_thread() is threading.main_thread(), name.get()]

    server.resources.add("a:thread", where)
    server.resources.add("a:inline", where, inline=True)
    assert (await read(server, "a:thread"))[0]["text"] == '[false,"ann"]'
    assert (await read(server, "a:inline"))[0]["text"] == '[true,"ann"]'


# -- context


@pytest.mark.parametrize("revision", ERAS)
async def test_context_is_injected_by_annotation_into_every_kind_of_function(revision: str) -> None:
    server = Server("s")

    @server.resource("a:static")
    async def static(ctx: Context) -> str:
        return str(ctx.request_id)

    @server.resource("a:sync")
    def sync(any_name: Context[dict[str, int]]) -> str:
        return str(any_name.request_id)

    @server.resource("a:inline", inline=True)
    def inline(ctx: Context[Any]) -> str:
        return str(ctx.request_id)

    @server.resource("t:{x}/{ctx}")
    async def template(x: str, ctx: str, context: Context) -> str:
        return f"{x}{ctx}{context.request_id}"

    @server.resource("k:{x}")
    def keywords(*, c: Context, **others: str) -> str:
        return f"{others['x']}{c.request_id}"

    for uri, expected in (("a:static", "7"), ("a:sync", "7"), ("a:inline", "7"), ("t:a/b", "ab7"), ("k:v", "v7")):
        assert (await read(server, uri, revision, id=7))[0]["text"] == expected


# -- invalid parameters are refused at registration


@pytest.mark.parametrize(
    ("uri", "function", "message"),
    [
        ("a:b", lambda x: x, "takes 'x'"),
        ("a:{x}", lambda x, y: x, "takes 'y'"),
        ("a:{x}", lambda: "", "no parameter for the URI's variable 'x'"),
        ("a:{x}/{y}", lambda x: x, "no parameter for the URI's variable 'y'"),
        ("a:{x}", eval("lambda x, /: x"), "must take 'x' by name"),
    ],
)
def test_parameters_that_differ_from_the_uri_variables_are_refused(
    uri: str, function: Callable[..., Any], message: str
) -> None:
    with pytest.raises(TypeError, match=message):
        Server("s").resources.add(uri, function)


def test_parameters_with_defaults_and_keyword_parameters_are_accepted() -> None:
    server = Server("s")
    server.resources.add("a:b", lambda x=1, *rest, **others: "")
    server.resources.add("a:{x}/{y}", lambda **variables: "")


# -- timeouts


async def test_a_function_over_its_timeout_is_cancelled_and_reported() -> None:
    server = Server("s")
    cancelled = asyncio.Event()

    async def wait_forever() -> str:
        try:
            return str(await asyncio.get_running_loop().create_future())
        finally:
            cancelled.set()

    server.resources.add("a:async", wait_forever, timeout=0.01)
    released = threading.Event()
    server.resources.add("a:sync", lambda: str(released.wait(20)), timeout=0.01)
    expected = {"code": -32603, "message": "The handler took longer than 0.01 s."}
    assert await read(server, "a:async") == expected
    assert cancelled.is_set()
    assert await read(server, "a:sync") == expected
    assert server.pool._lost.total == 1
    released.set()
    server.pool.close()


async def test_a_timeout_error_of_the_function_is_not_reported_as_the_servers_timeout() -> None:
    server = Server("s")

    async def fails() -> str:
        raise TimeoutError("the database's")

    server.resources.add("a:b", fails, timeout=20)
    error = await read(server, "a:b")
    assert error["code"] == -32603
    assert error["message"].startswith("Internal error (reference")


async def test_a_function_within_its_timeout_is_served() -> None:
    server = Server("s")
    server.resources.add("a:b", coroutine, timeout=20)
    assert (await read(server, "a:b"))[0]["text"] == "c"


# -- threads


async def test_a_caller_shares_threads_by_its_principal_or_its_address() -> None:
    server = Server("s")
    request = make_request(server, "server/discover")
    assert owner_of(request) == share_owner_of(request) != share_owner_of(make_request(server, "server/discover"))
    request.peer = "192.0.2.1"
    assert share_owner_of(request) == "address 192.0.2.1"
    assert owner_of(request).split(MEMBER_SEPARATOR) == ["address 192.0.2.1", ""]
    info = t.Implementation(name="sailor", version="1")
    request.caller = msgspec.structs.replace(request.caller, info=info)
    assert owner_of(request).split(MEMBER_SEPARATOR) == ["address 192.0.2.1", "sailor"]
    request = make_request(server, "server/discover", principal="ann")
    assert share_owner_of(request) == f"principal {make_principal('ann').key}"
    assert owner_of(request).split(MEMBER_SEPARATOR) == [f"principal {make_principal('ann').key}", ""]


def test_sessions_of_one_address_are_members_of_its_group() -> None:
    server = Server("s")
    first, second = (make_request(server, "tools/list", revision="2025-11-25") for _ in range(2))
    first.peer = second.peer = "192.0.2.1"
    assert share_owner_of(first) == share_owner_of(second)
    assert owner_of(first) == owner_of(first) != owner_of(second)


def test_http_callers_without_an_address_share_one_group() -> None:
    """For example, callers behind a proxy that connects to the ASGI server through a Unix socket."""
    server = Server("s")
    first, second = (make_request(server, "server/discover") for _ in range(2))
    first.headers = second.headers = {}
    assert share_owner_of(first) == share_owner_of(second)


@pytest.mark.parametrize("principal", ["ann", "ann\nbob", "ann\n"])
def test_the_client_name_cannot_put_a_caller_into_the_share_of_another(principal: str) -> None:
    request = make_request(Server("s"), "server/discover", principal=principal)
    for name in ("sailor", "sail\nor", "\n"):
        request.caller = msgspec.structs.replace(request.caller, info=t.Implementation(name=name, version="1"))
        assert group_of(owner_of(request)) == share_owner_of(request) == f"principal {make_principal(principal).key}"


async def test_a_blocking_function_delays_no_other_request() -> None:
    """Security F08."""
    server = Server("s")
    released = threading.Event()
    server.resources.add("a:blocks", lambda: str(released.wait(20)))
    server.resources.add("a:c", coroutine)
    async with Wire(server) as wire:
        id = wire.send_request("resources/read", {"uri": "a:blocks"})
        await wire.ask("resources/read", {"uri": "a:c"})
        released.set()
        assert (await wire.answer(id))["result"]["contents"][0]["text"] == "True"
    server.pool.close()


async def test_a_call_without_a_free_thread_gets_an_error() -> None:
    server = Server("s", pool=Pool(size=1, max_queued=0))
    released, blocked = threading.Event(), threading.Event()

    def blocks() -> str:
        blocked.set()
        return str(released.wait(20))

    server.resources.add("a:blocks", blocks)
    first = asyncio.create_task(read(server, "a:blocks"))
    assert await asyncio.to_thread(blocked.wait, 20)
    error = (await ask(server, "resources/read", {"uri": "a:blocks"}))["error"]
    assert error["code"] == -32603
    assert "try again later" in error["message"]
    released.set()
    assert (await first)[0]["text"] == "True"
    server.pool.close()


def test_only_an_async_function_without_a_timeout_is_called_directly() -> None:
    server = Server("s")
    assert HandlerFunction(server.services, coroutine).is_plain_async
    assert not HandlerFunction(server.services, plain).is_plain_async
    assert not HandlerFunction(server.services, coroutine, timeout=1).is_plain_async
    assert HandlerFunction(server.services, lambda ctx=None: "").takes_context is False


async def test_an_optional_context_is_passed() -> None:
    server = Server("s")

    @server.resource("a:either")
    async def either(ctx: Context[Any] | None = None) -> str:
        return "none" if ctx is None else ctx.server.info.name

    @server.resource("a:{x}")
    def optional(x: str, ctx: Optional[Context] = None) -> str:  # noqa: UP045  # a common spelling
        return "none" if ctx is None else ctx.server.info.name

    @server.tool
    async def tool(ctx: Context | None = None) -> str:
        return "none" if ctx is None else ctx.server.info.name

    assert (await read(server, "a:either"))[0]["text"] == "s"
    assert (await read(server, "a:other"))[0]["text"] == "s"
    called = await ask(server, "tools/call", {"name": "tool", "arguments": {}})
    assert called["result"]["content"][0]["text"] == "s"


def test_variables_are_completed_by_their_annotation_or_their_choices() -> None:
    class CustomComplete(Complete):
        """A completer of the author."""

    def function(
        a: Annotated[str, CustomComplete(["x"])], b: Literal["y", "z"], c: Annotated[str, "text"], d: int
    ) -> str:
        return a + b + c + str(d)

    completers = HandlerFunction(Server("s").services, function, variables=("a", "b", "c", "d")).completers
    assert {name: completer.values for name, completer in completers.items()} == {"a": ["x"], "b": ["y", "z"]}


@pytest.mark.parametrize("timeout", [0, -1.0])
def test_a_timeout_that_is_not_positive_is_refused_at_registration(timeout: float) -> None:
    async def handler() -> str:
        return ""

    server = Server("s")
    for register in (server.tools.add, server.prompts.add, functools.partial(server.resources.add, "a:b")):
        with pytest.raises(ValueError, match="write more than 0 seconds, or None"):
            register(handler, timeout=timeout)


@pytest.mark.parametrize(("length", "equal"), [(64, True), (63, False)])
def test_clients_of_one_address_are_distinguished_by_64_characters_of_their_names(length: int, equal: bool) -> None:
    owners = []
    for ending in ("one", "two"):
        request = make_request(Server("s"), "server/discover")
        request.peer = "192.0.2.1"
        info = t.Implementation(name="x" * length + ending, version="1")
        request.caller = msgspec.structs.replace(request.caller, info=info)
        owners.append(owner_of(request))
    assert (owners[0] == owners[1]) is equal


@pytest.mark.parametrize("method", ["elicit", "elicit_url", "sample", "roots", "ask", "once"])
@pytest.mark.parametrize("inline", [False, True])
async def test_the_error_of_a_plain_function_that_requests_input_advises_async(
    method: str, inline: bool, caplog: pytest.LogCaptureFixture
) -> None:
    def asks(ctx: Context) -> str:
        return str(getattr(ctx, method)("x"))

    server = Server("s")
    server.tools.add(asks, inline=inline)
    async with Wire(server) as wire:
        assert (await wire.ask("tools/call", {"name": "asks"}))["result"]["isError"] is True
    assert f"declare the handler with `async def`, and write `await ctx.{method}(…)`" in caplog.text


def test_a_plain_function_with_a_context_may_call_functions_named_like_its_methods() -> None:
    def other(ctx: Context) -> str:
        return str(random.sample([1], 1)) + ctx.server.info.name

    def inside(ctx: Context) -> str:
        async def later() -> Any:
            return await ctx.elicit("?", str)

        return later.__name__

    async def asks(ctx: Context) -> str:
        return str(await ctx.elicit("?", str))

    server = Server("s")
    for function in (other, inside, asks):
        server.tools.add(function)
    assert len(server.tools.features) == 3


async def test_constraints_in_the_annotation_of_a_variable_are_applied() -> None:
    server = Server("s")

    @server.resource("a:{number}")
    def bounded(number: Annotated[int, msgspec.Meta(ge=2)]) -> str:
        return f"{number!r}"

    @server.resource("b:{word}")
    def word(word: Annotated[str, msgspec.Meta(max_length=2)]) -> str:
        return f"{word!r}"

    @server.resource("c:{share}")
    def share(share: Annotated[float, "A share"]) -> str:
        return f"{share!r}"

    @server.resource("d:{path}")
    def path(path: Annotated[str, "Any"], size: int = 3) -> str:
        return f"{path!r} {size}"

    for uri, text in (("a:2", "2"), ("b:xy", "'xy'"), ("c:1.5", "1.5"), ("d:x", "'x' 3")):
        assert (await read(server, uri))[0]["text"] == text
    for uri in ("a:1", "a:x", "b:xyz", "c:inf", "c:nan", "c:x"):
        assert (await read(server, uri))["code"] == -32602


@pytest.mark.parametrize("timeout", [0, -1, -0.5])
def test_a_timeout_of_a_resource_must_be_positive(timeout: float) -> None:
    with pytest.raises(ValueError, match="write more than 0 seconds, or None"):
        Server("s").resources.add("a:b", coroutine, timeout=timeout)
    Server("s").resources.add("a:b", coroutine, timeout=0.001)
