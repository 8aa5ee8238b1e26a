"""Middleware: order, methods, features registered later, and errors at registration."""

from __future__ import annotations

import asyncio
import functools
from typing import Any

import msgspec
import pytest

from tests.server.driving import ALL, ERAS, Wire, ask, initialize_params, make_request
from wharfinger import types as t
from wharfinger.errors import InvalidArgument, PermissionDenied, ToolError
from wharfinger.server.app import Server
from wharfinger.server.context import Context
from wharfinger.server.middleware.chain import Call, Next, Result, transparent


def record_calls(server: Server, *methods: str, name: str = "hook") -> list[str]:
    """Add middleware that records its calls in the returned list."""
    seen: list[str] = []

    async def hook(call: Call, next: Next) -> Result:
        seen.append(f"{call.method} {name}")
        return await next(call)

    server.add_middleware(hook, *methods)
    return seen


def make_server() -> Server:
    server = Server("s")

    @server.tool
    async def shout(text: str) -> str:
        return text.upper()

    @server.resource("a:b")
    async def resource() -> str:
        return "text"

    @server.prompt
    def prompt() -> str:
        return "say"

    return server


@pytest.mark.parametrize("revision", ALL)
async def test_middleware_wraps_every_request(revision: str) -> None:
    server = make_server()
    seen = record_calls(server)
    stateless = revision == ALL[-1]
    async with Wire(server, revision) as wire:
        for method, params in {
            "server/discover" if stateless else "ping": {},
            "tools/list": {},
            "tools/call": {"name": "shout", "arguments": {"text": "ahoy"}},
            "resources/list": {},
            "resources/read": {"uri": "a:b"},
            "prompts/get": {"name": "prompt"},
        }.items():
            assert "result" in await wire.ask(method, params)
            assert seen[-1] == f"{method} hook"
        assert len(seen) == (6 if stateless else 7)
        assert stateless or seen[0] == "initialize hook"


async def test_the_first_middleware_is_outermost() -> None:
    server = make_server()
    order: list[str] = []

    def recording_middleware(name: str) -> Any:
        async def hook(call: Call, next: Next) -> Result:
            order.append(f"> {name}")
            result = await next(call)
            order.append(f"< {name}")
            return result

        return hook

    for name in "abc":
        server.add_middleware(recording_middleware(name), *(["tools/call"] if name == "b" else []))
    await ask(server, "tools/call", {"name": "shout", "arguments": {"text": ""}})
    assert order == ["> a", "> b", "> c", "< c", "< b", "< a"]
    order.clear()
    await ask(server, "tools/list")
    assert order == ["> a", "> c", "< c", "< a"]


async def test_middleware_for_some_methods_does_not_affect_others() -> None:
    server = make_server()
    before = dict(server.handlers)
    seen = record_calls(server, "tools/call", "resources/read")
    assert {method for method in before if server.handlers[method] is not before[method]} == {
        "resources/read",
        "tools/call",
    }
    await ask(server, "resources/read", {"uri": "a:b"})
    await ask(server, "prompts/list")
    assert seen == ["resources/read hook"]
    assert server.methods.is_wrapped("tools/call")
    assert not server.methods.is_wrapped("prompts/list")


async def test_middleware_also_applies_to_features_registered_later() -> None:
    server = Server("s")
    seen = record_calls(server)
    server.resources.add("a:b", lambda: "text")
    await ask(server, "resources/read", {"uri": "a:b"})
    assert seen == ["resources/read hook"]


def test_without_middleware_handlers_are_not_wrapped() -> None:
    server = make_server()
    assert server.handlers["resources/read"] == server.resources.read
    assert server.handlers["tools/call"] == server.tools.call


@pytest.mark.parametrize("revision", ERAS)
async def test_middleware_may_change_the_request_and_the_result(revision: str) -> None:
    server = make_server()

    @server.middleware("tools/call")
    async def hook(call: Call, next: Next) -> Result:
        call.params = msgspec.structs.replace(call.params, arguments=msgspec.Raw(b'{"text":"changed"}'))
        result = await next(call)
        return t.CallToolResult(content=[*result.content, t.TextContent(text="added")])

    answer = await ask(server, "tools/call", {"name": "shout", "arguments": {"text": "asked"}}, revision)
    assert [block["text"] for block in answer["result"]["content"]] == ["CHANGED", "added"]


async def test_middleware_may_return_its_own_result_or_raise_an_error() -> None:
    server = make_server()

    @server.middleware("resources/read")
    async def answers(call: Call, next: Next) -> Result:
        if call.params.uri == "a:none":
            raise InvalidArgument("not that one")
        call.ttl_ms = 7000
        return t.ReadResourceResult(contents=[t.ResourceContents(uri="a:b", text="by the hook")])

    answer = (await ask(server, "resources/read", {"uri": "a:b"}))["result"]
    assert (answer["contents"][0]["text"], answer["ttlMs"]) == ("by the hook", 7000)
    assert (await ask(server, "resources/read", {"uri": "a:none"}))["error"]["message"] == "not that one"


@pytest.mark.parametrize("revision", ALL)
async def test_a_tool_error_raised_in_middleware_is_a_result_with_is_error(revision: str) -> None:
    server = make_server()

    @server.middleware("tools/call")
    async def closed(call: Call, next: Next) -> Result:
        raise ToolError("The office is closed.")

    async with Wire(server, revision) as wire:
        answer = await wire.ask("tools/call", {"name": "shout", "arguments": {"text": "ahoy"}})
    assert answer["result"]["isError"] is True
    assert answer["result"]["content"][0]["text"] == "The office is closed."


async def test_middleware_receives_the_caller_and_the_encoded_page_of_a_list() -> None:
    server = make_server()
    seen: list[Any] = []

    @server.middleware
    async def hook(call: Call, next: Next) -> Result:
        result = await next(call)
        seen.append((call.caller.principal.subject, type(result)))
        return result

    await ask(server, "tools/list", principal="mary")
    assert seen == [("mary", msgspec.Raw)]


async def test_a_resource_that_middleware_forbids_cannot_be_read_by_a_tool_or_subscribed_to() -> None:
    server = make_server()

    @server.tool
    async def through(ctx: Context[Any]) -> str:
        return str((await ctx.read_resource("a:b")).contents[0].text)

    assert (await ask(server, "tools/call", {"name": "through"}))["result"]["content"][0]["text"] == "text"

    @server.middleware("resources/read")
    async def forbids(call: Call, next: Next) -> Result:
        raise PermissionDenied("no")

    assert (await ask(server, "tools/call", {"name": "through"}))["result"]["isError"]
    await server.start()
    async with Wire(server, "2025-11-25") as wire:
        missing = (await wire.ask("resources/subscribe", {"uri": "a:none"}))["error"]
        (forbidden,) = await wire.watch("a:b")
        assert forbidden["error"] == missing | {
            "message": missing["message"].replace("a:none", "a:b"),
            "data": {"uri": "a:b"},
        }
    await server.close()


async def test_middleware_sees_the_params_of_a_read_that_a_handler_makes() -> None:
    server = make_server()
    seen: list[Any] = []

    @server.tool
    async def through(ctx: Context[Any]) -> str:
        return str((await ctx.read_resource("a:b")).contents[0].text)

    @server.middleware("resources/read")
    async def hook(call: Call, next: Next) -> Result:
        seen.append((call.params.uri, msgspec.json.decode(call.raw_params)["uri"]))
        return await next(call)

    await ask(server, "tools/call", {"name": "through"})
    assert seen == [("a:b", "a:b")]


def test_a_function_and_methods_may_be_given_together() -> None:
    server = Server("s")
    server.tools.add(lambda: "x", name="x")

    async def around(call: Call, next: Next) -> Any:
        return await next(call)

    assert server.middleware(around, "tools/call") is around  # type: ignore[call-overload]
    assert server.methods.is_wrapped("tools/call")
    assert not server.methods.is_wrapped("tools/list")


async def test_notifications_do_not_pass_through_middleware() -> None:
    server = make_server()
    seen = record_calls(server)
    async with Wire(server, "2025-11-25") as wire:
        await wire.ask("ping")
    assert seen == ["initialize hook", "ping hook"]


async def test_an_error_raised_in_middleware_fails_initialize() -> None:
    server = make_server()

    @server.middleware("initialize")
    async def hook(call: Call, next: Next) -> Result:
        raise InvalidArgument("closed on Sundays")

    wire = Wire(server, "2025-11-25")
    answer = await wire.ask("initialize", initialize_params("2025-11-25"))
    assert answer["error"]["message"] == "closed on Sundays"
    wire.stream.connection_lost(None)


async def test_a_cancellation_reaches_middleware_and_handler() -> None:
    server = Server("s")
    begun = asyncio.Event()
    seen: list[str] = []

    @server.tool
    async def forever() -> None:
        begun.set()
        await asyncio.Event().wait()

    @server.middleware
    async def hook(call: Call, next: Next) -> Result:
        try:
            return await next(call)
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    request = make_request(server, "tools/call", {"name": "forever"})
    task = asyncio.ensure_future(server.handlers["tools/call"](request))
    await begun.wait()
    task.cancel()
    await asyncio.wait([task])
    assert seen == ["cancelled"]


def test_callable_objects_and_partials_may_be_middleware_and_the_decorator_returns_the_function() -> None:
    server = Server("s")

    class Middleware:
        async def __call__(self, call: Call, next: Next) -> Result:
            return await next(call)

    async def with_word(word: str, call: Call, next: Next) -> Result:
        return await next(call)

    async def function(call: Call, next: Next) -> Result:
        return await next(call)

    server.add_middleware(Middleware())
    server.add_middleware(functools.partial(with_word, "word"))
    assert server.middleware(function) is function
    assert server.middleware("ping")(function) is function


@pytest.mark.parametrize(
    ("methods", "error"),
    [
        (("tool/call",), "did you mean 'tools/call'"),
        (("weather",), "add the method of an extension before its middleware"),
        (("notifications/cancelled",), "is not a request from clients"),
        (("sampling/createMessage",), "is not a request from clients"),
    ],
)
def test_middleware_that_would_never_run_is_refused(methods: tuple[str, ...], error: str) -> None:
    async def hook(call: Call, next: Next) -> Result: ...

    with pytest.raises(ValueError, match=error):
        Server("s").add_middleware(hook, *methods)


def test_a_plain_function_is_refused_as_middleware() -> None:
    with pytest.raises(TypeError, match=r"async def hook\(call, next\)"):

        @Server("s").middleware  # type: ignore[arg-type]
        def hook(call: Call, next: Next) -> Result: ...


def test_middleware_with_too_few_parameters_is_refused_at_registration() -> None:
    async def alone(call: Call) -> None: ...

    register: Any = Server("s").add_middleware
    with pytest.raises(TypeError, match=r"async def alone\(call, next\)"):
        register(alone)


async def test_outermost_middleware_runs_first_in_any_order_of_registration() -> None:
    server = make_server()
    seen: list[str] = []

    def recording_middleware(name: str) -> Any:
        async def hook(call: Call, next: Next) -> Result:
            seen.append(name)
            return await next(call)

        return hook

    for name in "ab":
        server.add_middleware(recording_middleware(name))
    server.methods.add_middleware(recording_middleware("first"), outermost=True)
    await ask(server, "tools/list")
    assert seen == ["first", "a", "b"]


async def test_stored_blobs_pass_only_transparent_middleware_without_being_loaded() -> None:
    async def hook(call: Call, next: Next) -> Result:
        return await next(call)

    for middleware, lazy in ((hook, False), (transparent(functools.partial(hook)), True)):
        server = make_server()
        server.add_middleware(middleware)
        assert server.methods.may_differ("tools/list") is not lazy
        request = make_request(server, "resources/read", {"uri": "a:b"})
        request.accepts_lazy_blobs = True
        await server.handlers["resources/read"](request)
        assert request.accepts_lazy_blobs is lazy


def test_a_method_without_middleware_has_no_wrapper() -> None:
    server = make_server()
    methods, handler = server.methods, server.handlers["tools/call"]
    assert not methods.is_wrapped("tools/call")
    record_calls(server, "tools/list")
    assert server.handlers["tools/call"] is handler
    assert methods.is_wrapped("tools/list") and not methods.is_wrapped("tools/call")
    assert methods.may_differ("tools/list") and not methods.may_differ("tools/call")
    record_calls(server, "tools/call")
    assert server.handlers["tools/call"] is not handler
    methods.set("tools/call", handler)
    assert server.handlers["tools/call"] is not handler
