"""The client with a Wharfinger server, in every revision, in memory, over stdio and over HTTP."""

from __future__ import annotations

import asyncio
import gc
import math
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypedDict

import msgspec
import pytest

from tests.client.example_server import Berth, example_server
from wharfinger import Client, Server, ToolError
from wharfinger import types as t
from wharfinger.client import Change
from wharfinger.client.results import ReadResult
from wharfinger.client.retry import NEVER
from wharfinger.errors import (
    ConnectionLost,
    InvalidResponse,
    RemoteError,
    RemoteMethodNotFound,
    RequestTimeout,
    ResourceNotFound,
)
from wharfinger.protocol.revisions import SUPPORTED


class Ship(TypedDict):
    name: str
    length: float


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 20))


async def check_every_feature(client: Client, revision: str) -> None:
    """Check lists, reads, calls, prompts, watches and errors."""
    assert client.revision == revision
    assert client.server_info == t.Implementation(name="harbour", version="3")
    assert client.instructions == "Ships and tides."
    assert client.capabilities.resources is not t.UNSET
    await client.ping()

    listed = [resource.uri async for resource in client.list_resources()]
    assert listed == [resource.uri for resource in await client.list_resources()]
    assert len(listed) == 11
    assert [template.uri_template for template in await client.list_resource_templates()] == ["log://{vessel}/today"]
    assert {tool.name for tool in await client.list_tools()} >= {"berth", "add", "sink"}
    assert [prompt.name for prompt in await client.list_prompts()] == ["greet"]

    note = await client.read_resource("notes://today")
    assert (note.text, note.bytes, note.mime_type) == ("high tide ✓", "high tide ✓".encode(), "text/plain")
    assert (await client.read_resource("notes://picture")).bytes == bytes(range(256)) * 1000
    assert (await client.read_resource("notes://data")).json() == {"a": 1}
    assert (await client.read_resource("notes://data")).json(dict[str, int]) == {"a": 1}
    assert (await client.read_resource("log://mary/today")).text == "log of mary"
    with pytest.raises(ResourceNotFound) as missing:
        await client.read_resource("notes://none")
    assert missing.value.uri == "notes://none"
    assert isinstance(missing.value, RemoteError)

    berth = await client.call_tool("berth", {"quay": 7}, returns=Berth)
    assert berth.data == Berth(7, "Mary")
    assert berth.structured == ({"quay": 7, "name": "Mary"} if revision >= "2025-06-18" else berth.structured)
    assert (await client.call_tool("add", {"a": 2, "b": 3}, returns=int)).data == 5
    with pytest.raises(ToolError, match="it leaks") as sunk:
        await client.call_tool("sink")
    assert sunk.value.result.is_error is True
    prompt = await client.get_prompt("greet", {"name": "Mary"})
    assert [message.content for message in prompt.messages] == [t.TextContent(text="Hello, Mary!")]

    async with client.watch("notes://today") as changes:
        await client.call_tool("change", {"uri": "notes://picture"})
        await client.call_tool("change", {"uri": "notes://today"})
        assert await anext(changes) == Change("resource", "notes://today")
    with pytest.raises(ResourceNotFound, match="notes://none"):
        await client.watch("notes://none")
    async with client.watch_lists() as lists:
        await client.call_tool("grow")
        assert await anext(lists) == Change("resources")


@pytest.mark.parametrize("revision", SUPPORTED)
def test_every_feature_works_in_memory_in_every_revision(revision: str) -> None:
    async def test() -> None:
        async with Client(example_server(), revision=revision) as client:
            await check_every_feature(client, revision)

    run(test())


PROGRAM = Path(__file__).with_name("example_server.py")


@pytest.mark.parametrize("revision", ["2026-07-28", "2025-03-26"])
def test_every_feature_works_over_stdio(revision: str) -> None:
    async def test() -> None:
        async with Client(PROGRAM, revision=revision) as client:
            await check_every_feature(client, revision)

    run(test())


@asynccontextmanager
async def http_server() -> AsyncIterator[str]:
    """Serve the example server over HTTP and yield its URL."""
    from wharfinger.transports.http_server.runner import serve_http

    ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    task = asyncio.ensure_future(serve_http(example_server(), port=0, on_ready=ready.set_result))
    try:
        yield f"{await ready}/mcp"
    finally:
        task.cancel()
        await asyncio.wait((task,))


@pytest.mark.parametrize("revision", ["2026-07-28", "2025-11-25"])
def test_every_feature_works_over_http(revision: str) -> None:
    async def test() -> None:
        async with http_server() as url, Client(url, revision=revision) as client:
            await check_every_feature(client, revision)

    run(test())


# Tasks and timeouts


def test_a_client_may_be_opened_and_closed_in_different_tasks() -> None:
    """A connection belongs to the event loop: a fixture may open it in one task and close it in another."""

    async def test() -> None:
        client = Client(example_server())
        await asyncio.create_task(client.open())
        assert (await asyncio.create_task(_note(client))) == "high tide ✓"
        call = asyncio.create_task(client.call_tool("wait"))
        await asyncio.sleep(0)
        await asyncio.create_task(client.close())
        with pytest.raises(ConnectionLost):
            await call
        await client.close()

    run(test())


async def _note(client: Client) -> str:
    return (await client.read_resource("notes://today")).text


def test_a_closed_client_raises_connection_lost_and_can_be_opened_again() -> None:
    async def test() -> None:
        client = Client(example_server())
        for _ in range(2):
            with pytest.raises(ConnectionLost, match="not open"):
                await client.ping()
            async with client:
                await asyncio.gather(client.open(), client.open())
                assert (await client.read_resource("notes://data")).json() == {"a": 1}

    run(test())


def test_a_cancelled_call_does_not_affect_other_calls() -> None:
    async def test() -> None:
        async with Client(example_server()) as client:
            waiting = asyncio.create_task(client.call_tool("wait"))
            reading = asyncio.create_task(_note(client))
            await asyncio.sleep(0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            assert await reading == "high tide ✓"

    run(test())


def test_the_timeout_of_a_call_overrides_that_of_its_client() -> None:
    async def test() -> None:
        async with Client(example_server(), timeout=0.02) as client:
            with pytest.raises(RequestTimeout, match=r"tools/call: no answer from server 'harbour' within 0\.02 s"):
                await client.call_tool("wait")
            with pytest.raises(TimeoutError, match=r"within 0\.01 s"):
                await client.call_tool("wait", timeout=0.01)
            await client.call_tool("add", {"a": 1, "b": 2}, timeout=math.inf)

    run(test())


def test_many_calls_share_a_connection() -> None:
    async def test() -> None:
        async with Client(example_server()) as client:
            calls = (client.call_tool("add", {"a": n, "b": 1}, returns=int) for n in range(200))
            assert [result.data for result in await asyncio.gather(*calls)] == list(range(1, 201))

    run(test())


# Results


def test_tool_results_have_the_requested_type() -> None:
    class Seen(msgspec.Struct):
        structured: Any
        text: str

    server = Server("typed")
    given: list[t.CallToolResult] = []

    @server.tool
    async def give() -> t.CallToolResult:
        return given[0]

    def result(structured: Any, text: str = "") -> None:
        content = [t.TextContent(text=text)] if text else []
        given[:] = [t.CallToolResult(content=content, structured_content=structured)]

    async def test() -> None:
        async with Client(server) as client:
            result({"name": "Mary", "length": 3})
            assert (await client.call_tool("give", returns=Ship)).data == Ship(name="Mary", length=3.0)
            result({"result": [1, 2]})
            assert (await client.call_tool("give", returns=list[int])).data == [1, 2]
            result(t.UNSET, "[1, 2]")
            assert (await client.call_tool("give", returns=list[int])).data == [1, 2]
            result(t.UNSET, "plain")
            assert (await client.call_tool("give", returns=str)).data == "plain"
            assert (await client.call_tool("give")).data == "plain"
            result(None, "null")
            assert (await client.call_tool("give")).data is None
            result({"name": 3})
            with pytest.raises(InvalidResponse, match="not of type Ship"):
                await client.call_tool("give", returns=Ship)
            with pytest.raises(InvalidResponse, match=r"not of type list\[int\]"):
                await client.call_tool("give", returns=list[int])

    run(test())


def test_the_summary_of_a_partial_read_is_not_part_of_the_text() -> None:
    first = t.ResourceContents(uri="file:///a", text="one\n")
    ahead = t.ResourceContents(uri="file:///a?bytes=4-", text="[…]", meta={"wharfinger/summary": True})
    read = ReadResult("file:///a", t.ReadResourceResult(contents=[first, ahead]))
    assert read.text == "one\n"
    assert len(read.contents) == 2


def test_several_contents_have_no_single_text() -> None:
    server = Server("folder")

    @server.resource("dir://x")
    async def folder() -> t.ReadResourceResult:
        return t.ReadResourceResult(
            contents=[t.ResourceContents(uri="dir://x/a", text="a"), t.ResourceContents(uri="dir://x/b", blob=b"\xff")]
        )

    @server.resource("bin://x")
    async def binary() -> bytes:
        return b"\xff\x00"

    async def test() -> None:
        async with Client(server) as client:
            read = await client.read_resource("dir://x")
            assert [content.uri for content in read.contents] == ["dir://x/a", "dir://x/b"]
            for attribute in ("text", "bytes", "mime_type"):
                with pytest.raises(ValueError, match=r"dir://x has 2 contents: use \.contents"):
                    getattr(read, attribute)
            with pytest.raises(ValueError, match=r"not text in UTF-8: use \.bytes"):
                (await client.read_resource("bin://x")).text
            with pytest.raises(ValueError, match="not the JSON"):
                (await client.read_resource("bin://x")).json()

    run(test())


def test_an_endless_list_raises_an_error() -> None:
    """A hostile server must not block its client forever."""
    server = Server("endless")
    answers: list[t.ListResourcesResult] = []

    async def page(request: Any) -> t.ListResourcesResult:
        cursor = request.params.cursor
        return answers[0] if answers else t.ListResourcesResult(resources=[], next_cursor=f"{cursor}x")

    server.handlers["resources/list"] = page

    async def test() -> None:
        async with Client(server, max_pages=50) as client:
            with pytest.raises(InvalidResponse, match="more than 50 pages"):
                await client.list_resources()
            answers.append(t.ListResourcesResult(resources=[], next_cursor="same"))
            with pytest.raises(InvalidResponse, match="never ends"):
                await client.list_resources()

    run(test())


@pytest.mark.parametrize(("revision", "pages"), [("2025-11-25", 1), ("2026-07-28", 2)])
def test_an_empty_cursor_is_valid_in_the_stateless_era_only(revision: str, pages: int) -> None:
    server = Server("empty")

    async def page(request: Any) -> t.ListResourcesResult:
        following = "" if request.params.cursor is t.UNSET else t.UNSET
        return t.ListResourcesResult(resources=[t.Resource(uri="a:b", name="x")], next_cursor=following)

    server.handlers["resources/list"] = page

    async def test() -> None:
        async with Client(server, revision=revision) as client:
            assert len(await client.list_resources()) == pages

    run(test())


@pytest.mark.parametrize(
    "raw",
    [b"{}", b'{"contents":3}', b'{"contents":[{"uri":"a:b","blob":"***"}]}', b'{"contents":[],"resultType":"odd"}'],
)
def test_an_invalid_result_raises_invalid_response(raw: bytes) -> None:
    """Security C17."""
    server = Server("odd")

    async def read(request: Any) -> msgspec.Raw:
        return msgspec.Raw(raw)

    server.handlers["resources/read"] = read

    async def test() -> None:
        async with Client(server, revision="2025-11-25") as client:
            with pytest.raises(InvalidResponse, match="resources/read"):
                await client.read_resource("a:b")

    run(test())


def test_content_of_an_unknown_type_is_kept() -> None:
    server = Server("new")

    async def call(request: Any) -> msgspec.Raw:
        return msgspec.Raw(b'{"content":[{"type":"hologram","size":3},{"type":"text","text":"x"}]}')

    server.handlers["tools/call"] = call

    async def test() -> None:
        async with Client(server, revision="2025-11-25") as client:
            result = await client.call_tool("x")
            assert result.content[0] == {"type": "hologram", "size": 3}
            assert result.text == "x"

    run(test())


def test_a_missing_method_raises_remote_method_not_found() -> None:
    async def test() -> None:
        async with Client(Server("bare")) as client:
            with pytest.raises(RemoteMethodNotFound):
                await client.list_tools()
            with pytest.raises(RemoteMethodNotFound):
                await client.watch_lists()

    run(test())


# Watches


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
def test_equal_changes_are_reported_once(revision: str) -> None:
    """Security C14: messages that the application does not read do not accumulate."""

    async def test() -> None:
        server = example_server()
        async with (
            Client(server, revision=revision) as client,
            client.watch("notes://today", "notes://n1") as changes,
        ):
            for _ in range(3):
                for uri in ("notes://today", "notes://n1", "notes://n2"):
                    server.resource_updated(uri)
                await client.ping()
            first, second = await anext(changes), await anext(changes)
            assert {first.uri, second.uri} == {"notes://today", "notes://n1"}

    run(test())


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
def test_a_resource_is_unsubscribed_after_its_last_watch_ends(revision: str) -> None:
    """A watch ends when it is closed and when it is garbage-collected."""

    async def test() -> None:
        server = example_server()
        watched = server.watching._by_uri
        async with Client(server, revision=revision) as client:
            one, two = await client.watch("notes://today"), await client.watch("notes://today")
            assert list(watched) == ["notes://today"]
            await one.close()
            assert list(watched) == ["notes://today"]
            await two.close()
            while watched:
                await client.ping()
            forgotten = await client.watch("notes://n1")
            assert list(watched) == ["notes://n1"]
            del forgotten
            gc.collect()
            while watched:
                await client.ping()
            with pytest.raises(StopAsyncIteration):
                await anext(one)

    run(test())


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
def test_a_watch_ends_with_its_client(revision: str) -> None:
    async def test() -> None:
        client = Client(example_server(), revision=revision)
        await client.open()
        changes = await client.watch("notes://today")
        waiting = asyncio.ensure_future(anext(changes, None))
        await asyncio.sleep(0)
        await client.close()
        assert await waiting is None
        with pytest.raises(ConnectionLost):
            await client.watch("notes://today")

    run(test())


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
def test_a_watch_without_retries_fails_with_its_connection(revision: str) -> None:
    async def test() -> None:
        async with Client(PROGRAM, revision=revision, retry=NEVER) as client:
            changes = await client.watch("notes://today")
            waiting = asyncio.ensure_future(anext(changes))
            await asyncio.sleep(0)
            link: Any = client._session.connections.link
            link._child._transport.kill()
            with pytest.raises(ConnectionLost, match="SIGKILL"):
                await waiting

    run(test())


def test_a_draining_server_ends_its_watches() -> None:
    async def test() -> None:
        server = example_server()
        async with Client(server, retry=NEVER) as client:
            changes = await client.watch("notes://today")
            server.drain()
            with pytest.raises(ConnectionLost, match="has ended the watch"):
                await anext(changes)

    run(test())
