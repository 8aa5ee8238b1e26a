"""The context of a handler: its caller, its notifications, and reads of the server's own resources."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from tests.server.driving import ALL, HANDSHAKE, META, STATELESS, RecordingChannel, Wire, ask, make_request
from wharfinger.errors import PermissionDenied, ResourceNotFound
from wharfinger.server.app import Server
from wharfinger.server.context import LEVELS, Context


async def notifications_of_read(
    server: Server, uri: str, revision: str, meta: dict[str, Any] | None = None, level: str | None = None
) -> list[Any]:
    """Read a resource, and return the notifications that were sent before the answer."""
    recorder = RecordingChannel()
    request = make_request(server, "resources/read", {"uri": uri, "_meta": meta or {}}, revision, channel=recorder)
    if request.session is not None:
        request.session.log_level = level
    await server.handlers["resources/read"](request)
    await asyncio.sleep(0)
    return [(sent["method"].removeprefix("notifications/"), sent["params"]) for sent in recorder.sent]


def notifying_server() -> Server:
    server = Server("s")

    @server.resource("log:async")
    async def in_loop(ctx: Context) -> str:
        ctx.debug("d")
        ctx.info({"i": 1}, logger="tides")
        ctx.warning(None)
        ctx.error("e")
        return ""

    @server.resource("log:all")
    async def all_levels(ctx: Context) -> str:
        for level in LEVELS:
            ctx.log(level, 1)  # type: ignore[arg-type]
        return ""

    @server.resource("progress:x")
    async def progress(ctx: Context) -> str:
        ctx.report_progress(1, 3, "one")
        ctx.report_progress(1)
        ctx.report_progress(0.5)
        ctx.report_progress(2.5)
        return ""

    return server


@pytest.mark.parametrize("revision", HANDSHAKE)
async def test_a_session_receives_all_log_messages_until_it_sets_a_level(revision: str) -> None:
    server = notifying_server()
    assert await notifications_of_read(server, "log:async", revision) == [
        ("message", {"level": "debug", "data": "d"}),
        ("message", {"level": "info", "data": {"i": 1}, "logger": "tides"}),
        ("message", {"level": "warning", "data": None}),
        ("message", {"level": "error", "data": "e"}),
    ]
    for index, level in enumerate(LEVELS):
        reported = await notifications_of_read(server, "log:all", revision, level=level)
        assert [params["level"] for _, params in reported] == list(LEVELS[index:])


async def test_a_stateless_request_receives_log_messages_only_from_its_level() -> None:
    server = notifying_server()
    assert await notifications_of_read(server, "log:all", STATELESS) == []
    reported = await notifications_of_read(server, "log:all", STATELESS, {f"{META}logLevel": "error"})
    assert [params["level"] for _, params in reported] == ["error", "critical", "alert", "emergency"]


@pytest.mark.parametrize("revision", ALL)
@pytest.mark.parametrize("token", [7, "seven"])
async def test_progress_only_increases_and_requires_a_progress_token(revision: str, token: Any) -> None:
    server = notifying_server()
    assert await notifications_of_read(server, "progress:x", revision) == []
    text = {} if revision == "2024-11-05" else {"message": "one"}
    assert await notifications_of_read(server, "progress:x", revision, {"progressToken": token}) == [
        ("progress", {"progressToken": token, "progress": 1, "total": 3, **text}),
        ("progress", {"progressToken": token, "progress": 2.5}),
    ]


async def test_notifications_are_sent_before_they_are_awaited() -> None:
    """In other frameworks these methods are coroutines, so authors may write `await ctx.info(…)`."""
    server = Server("s")

    @server.resource("log:awaited")
    async def awaited(ctx: Context) -> str:
        notifications = [ctx.debug("d"), ctx.log("notice", "n"), ctx.report_progress(1), ctx.report_progress(1)]
        for notification in notifications:
            await notification
        return ""

    reported = await notifications_of_read(server, "log:awaited", HANDSHAKE[0], {"progressToken": 1}, level="notice")
    assert reported == [
        ("message", {"level": "notice", "data": "n"}),
        ("progress", {"progressToken": 1, "progress": 1}),
    ]


async def test_notifications_from_a_thread_are_sent_before_the_answer() -> None:
    """The stream belongs to the loop, so a thread must pass its messages to the loop."""
    server = Server("s")
    on_main_thread: set[bool] = set()

    @server.resource("log:sync")
    def in_thread(ctx: Context) -> str:
        for number in range(200):
            ctx.report_progress(number)
            ctx.info(number)
        return "done"

    async with Wire(server, "2025-11-25") as wire:
        write = wire.stream.write

        def recording_write(data: Any) -> None:
            on_main_thread.add(threading.current_thread() is threading.main_thread())
            write(data)

        wire.stream.write = recording_write  # type: ignore[method-assign]
        answer = await wire.ask("resources/read", {"uri": "log:sync", "_meta": {"progressToken": 1}})
        assert answer["result"]["contents"][0]["text"] == "done"
        assert [notice["params"].get("progress", notice["params"].get("data")) for notice in wire.notifications] == [
            number for number in range(200) for _ in (1, 2)
        ]
        assert wire.chunks[-1].endswith(b'"done"}]}}\n')
    assert on_main_thread == {True}
    server.pool.close()


async def test_messages_after_the_answer_are_dropped() -> None:
    server = Server("s")
    contexts: list[Context] = []

    @server.resource("a:b")
    async def keep(ctx: Context) -> str:
        contexts.append(ctx)
        return ""

    async with Wire(server, "2025-11-25") as wire:
        await wire.ask("resources/read", {"uri": "a:b"})
        contexts[0].info("late")
        await asyncio.to_thread(contexts[0].info, "later")
        await wire.ask("resources/read", {"uri": "a:b"})
        assert wire.notifications == []


@pytest.mark.parametrize("revision", ALL)
async def test_a_context_has_the_principal_and_the_headers_of_its_request(revision: str) -> None:
    server = Server("s")
    attributes: list[Any] = []

    @server.resource("a:b")
    async def look(ctx: Context) -> str:
        attributes.extend([ctx.principal.subject, ctx.caller.rules.name, ctx.headers, ctx.state, ctx.server is server])
        return ""

    await ask(server, "resources/read", {"uri": "a:b"}, revision, principal="ann")
    assert attributes == ["ann", revision, {}, None, True]
    request = make_request(server, "resources/read", {"uri": "a:b"}, revision)
    request.headers = {b"x-who": b"bob"}
    await server.handlers["resources/read"](request)
    assert attributes[7] == {b"x-who": b"bob"}


# -- the server's own resources


@pytest.mark.parametrize("revision", ALL)
async def test_nested_reads_are_made_with_the_principal_of_the_request(revision: str) -> None:
    server = Server("s")

    @server.resource("in:{x}")
    def inner(x: str, ctx: Context) -> str:
        ctx.report_progress(99)
        ctx.error("inner")
        return f"{x} {ctx.principal.subject} {ctx.request.peer} {ctx.request.method}"

    @server.resource("secret:x")
    async def secret() -> str:
        raise PermissionDenied("not for you")

    @server.resource("out:x")
    async def outer(ctx: Context) -> str:
        ctx.report_progress(1)
        for uri in ("secret:x", "gone:x"):
            with pytest.raises(ResourceNotFound):
                await ctx.read_resource(uri)
        page = await ctx.list_resources()
        result = await ctx.read_resource("in:a")
        ctx.report_progress(2)
        return f"{result.contents[0].text} {[resource.uri for resource in page.resources]}"

    recorder = RecordingChannel()
    meta = {"progressToken": 1} | ({f"{META}logLevel": "info"} if revision == STATELESS else {})
    request = make_request(
        server, "resources/read", {"uri": "out:x", "_meta": meta}, revision, principal="ann", channel=recorder
    )
    request.peer = "192.0.2.1"
    result = await server.handlers["resources/read"](request)
    assert result.contents[0].text == "a ann 192.0.2.1 resources/read ['secret:x', 'out:x']"
    reported = [sent["params"].get("progress", sent["params"].get("data")) for sent in recorder.sent]
    assert reported == [1, "inner", 2]
    server.pool.close()


async def test_notifications_of_a_nested_read_reach_the_caller() -> None:
    server = Server("s")

    @server.resource("in:x")
    async def inner(ctx: Context) -> str:
        ctx.info("inner")
        return ""

    @server.tool
    async def look(ctx: Context) -> str:
        await ctx.read_resource("in:x")
        hits = await ctx.search("in")
        return hits[0].uri

    async with Wire(server, "2025-11-25") as wire:
        answer = await wire.ask("tools/call", {"name": "look", "arguments": {}})
        assert answer["result"]["content"] == [{"type": "text", "text": "in:x"}]
        assert [notice["params"]["data"] for notice in wire.notifications] == ["inner"]


async def test_a_context_lists_the_same_pages_as_a_client() -> None:
    server = Server("s", page_size=1)
    uris: list[str] = []
    for x in "abc":
        server.resources.add(f"{x}:x", lambda: "")

    @server.tool
    async def everything(ctx: Context) -> None:
        page = await ctx.list_resources()
        while page.next_cursor:
            uris.append(page.resources[0].uri)
            page = await ctx.list_resources(page.next_cursor)
        uris.append(page.resources[0].uri)

    await ask(server, "tools/call", {"name": "everything", "arguments": {}})
    assert uris == ["a:x", "b:x", "c:x"]


async def test_a_log_level_that_does_not_exist_is_refused_with_the_levels_that_do() -> None:
    """We demand this, also if the client wants no messages: `warn` is the name in other loggers."""
    server = Server("s")

    @server.resource("log:warn")
    async def warn(ctx: Context) -> str:
        with pytest.raises(
            ValueError, match=r"no log level 'warn': write debug, info, notice, warning, error, .* or em"
        ):
            ctx.log("warn", "fog")  # type: ignore[arg-type]
        return "refused"

    for revision in ALL:
        assert await notifications_of_read(server, "log:warn", revision) == []
