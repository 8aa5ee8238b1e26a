"""The client's cache in both eras: lifetimes, principals, bounds and invalidation."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from collections import OrderedDict
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.clock import FakeClock
from wharfinger import Client, Context, InvalidArgument, Server
from wharfinger import types as t
from wharfinger.client import NEVER, Cache, Retry
from wharfinger.client.cache import ENTRY_OVERHEAD_BYTES, CacheStep, Key
from wharfinger.client.calls import Call
from wharfinger.errors import (
    ConnectionLost,
    NotAuthorized,
    RemoteError,
    RequestTimeout,
    ResourceNotFound,
    WharfingerError,
)
from wharfinger.protocol.interfaces import LinkEvents
from wharfinger.protocol.limits import Limits
from wharfinger.protocol.methods import METHODS
from wharfinger.protocol.request import Request
from wharfinger.protocol.revisions import REVISIONS
from wharfinger.transports.http_server.runner import serve_http
from wharfinger.transports.memory import MemoryLink

HANDSHAKE = "2025-11-25"


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 20))


class CountingServer(Server):
    """A server that records its requests and answers reads while `open` is set."""

    def __init__(self, ttl: float = 60.0, scope: t.CacheScope = "private") -> None:
        super().__init__("counting", ttl=ttl, cache_scope=scope, page_size=2)
        self.requested: list[str] = []
        self.open = asyncio.Event()
        self.open.set()
        for number in range(3):
            self.resources.add(f"notes://n{number}", self.note(number), name=f"n{number}")
        self.resources.add("notes://folder", self.note(7))
        self.resources.add("notes://folder/a", self.note(8))
        self.tools.add(self.nothing)
        self.add_middleware(self.count)

    async def nothing(self) -> str:
        return "nothing"

    def note(self, number: int) -> Any:
        async def note() -> str:
            await self.open.wait()
            return f"note {number}, question {len(self.requested)}"

        return note

    async def count(self, call: Any, next: Any) -> Any:
        self.requested.append(call.method)
        return await next(call)

    def times(self, method: str) -> int:
        return self.requested.count(method)


READ, LIST = "resources/read", "resources/list"


async def text(client: Client, uri: str = "notes://n0", **options: Any) -> str:
    return (await client.read_resource(uri, **options)).text


async def settle() -> None:
    """Run everything that is ready."""
    for _ in range(50):
        await asyncio.sleep(0)


@asynccontextmanager
async def over_http(server: Server, port: int = 0, authenticate: Any = None) -> AsyncIterator[str]:
    ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    options = {} if authenticate is None else {"authenticate": authenticate}
    task = asyncio.ensure_future(serve_http(server, port=port, on_ready=ready.set_result, **options))
    try:
        await asyncio.wait((ready, task), return_when=asyncio.FIRST_COMPLETED)
        yield f"{await ready}/mcp"
    finally:
        task.cancel()
        await asyncio.wait((task,))


# Lifetimes


def test_a_result_is_cached_until_it_expires() -> None:
    async def test() -> None:
        server, clock = CountingServer(ttl=60), FakeClock(1000.0)
        async with Client(server, cache=Cache(clock=clock)) as client:
            first = await text(client)
            clock.now += 59.9
            assert await text(client) == first
            assert server.times(READ) == 1
            clock.now += 0.2
            assert await text(client) != first
            assert server.times(READ) == 2

    run(test())


def test_a_result_without_a_ttl_is_not_cached() -> None:
    async def test() -> None:
        server, cache = CountingServer(ttl=0), Cache()
        async with Client(server, cache=cache) as client:
            assert await text(client) != await text(client)
            await client.list_tools()
            await client.list_tools()
            assert server.times("tools/list") == 2
            assert len(cache) == cache.size == 0

    run(test())


RAW = """
import json, sys

times = 0
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    if asked["method"] == "server/discover":
        result = {"supportedVersions": ["2026-07-28"], "capabilities": {"resources": {}}, "ttlMs": 0}
        result["cacheScope"] = "private"
    else:
        times += 1
        result = {"contents": [{"uri": "x:y", "text": str(times)}], **json.loads(sys.argv[1])}
    answer = {"jsonrpc": "2.0", "id": asked["id"], "result": {"resultType": "complete", **result}}
    sys.stdout.write(json.dumps(answer) + "\\n")
    sys.stdout.flush()
"""


@pytest.mark.parametrize(
    ("hints", "second"),
    [
        ({}, "2"),
        ({"ttlMs": 60_000}, "1"),  # without a scope it is private
        ({"cacheScope": "public"}, "2"),
        ({"ttlMs": -1, "cacheScope": "public"}, "2"),
        ({"ttlMs": 10**15, "cacheScope": "public"}, "1"),
    ],
)
def test_a_result_is_cached_only_with_a_positive_ttl(hints: dict[str, Any], second: str, tmp_path: Path) -> None:
    async def test() -> None:
        program = tmp_path / "raw.py"
        program.write_text(RAW)
        async with Client([sys.executable, str(program), json.dumps(hints)]) as client:
            assert [await text(client, "x:y"), await text(client, "x:y")] == ["1", second]

    run(test())


def test_max_ttl_of_the_client_bounds_the_ttl_of_the_server() -> None:
    async def test() -> None:
        server, clock = CountingServer(ttl=1e9), FakeClock(1000.0)
        async with Client(server, cache=Cache(clock=clock, max_ttl=10)) as client:
            await text(client)
            clock.now += 11
            await text(client)
            assert server.times(READ) == 2

    run(test())


def test_pages_of_lists_and_resources_are_cached_separately() -> None:
    async def test() -> None:
        server = CountingServer()
        async with Client(server) as client:
            listed = [resource.uri for resource in await client.list_resources()]
            assert listed == [resource.uri async for resource in client.list_resources()]
            assert server.times(LIST) == 3
            assert (await text(client, "notes://n1")).startswith("note 1")
            assert (await text(client, "notes://n2")).startswith("note 2")
            assert [len(await client.list_tools()), len(await client.list_tools())] == [1, 1]
            assert server.times("tools/list") == 1

    run(test())


def test_each_caller_gets_its_own_objects() -> None:
    async def test() -> None:
        async with Client(CountingServer()) as client:
            (await client.list_resources())[0].name = "spoiled"
            again = await client.list_resources()
            again[0].name = "spoiled, too"
            assert (await client.list_resources())[0].name == "n0"

    run(test())


def test_ping_and_tools_always_reach_the_server() -> None:
    async def test() -> None:
        server = CountingServer()

        @server.tool
        async def now() -> int:
            return len(server.requested)

        async with Client(server, revision="2026-07-28") as client:
            before = server.times("server/discover")
            await client.ping()
            await client.ping()
            assert server.times("server/discover") == before + 2
            assert (await client.call_tool("now")).data != (await client.call_tool("now")).data

    run(test())


def test_bypass_cache_requests_a_new_result_and_caches_it() -> None:
    async def test() -> None:
        server = CountingServer()
        async with Client(server) as client:
            first = await text(client)
            second = await text(client, bypass_cache=True)
            assert first != second == await text(client)
            await client.list_resources()
            await client.list_resources(bypass_cache=True)
            assert server.times(LIST) == 6
            await client.read_many(["notes://n0", "notes://n1"], bypass_cache=True)
            assert server.times(READ) == 4

    run(test())


@pytest.mark.parametrize("off", [False, Cache(max_entries=0), Cache(max_bytes=0)])
def test_a_disabled_cache_stores_nothing(off: Any) -> None:
    async def test() -> None:
        server = CountingServer()
        async with Client(server, cache=off) as client:
            assert await text(client) != await text(client)

    run(test())


def test_middleware_sees_cached_calls_and_may_bypass_the_cache() -> None:
    async def test() -> None:
        server, seen = CountingServer(), []

        async def bypass(call: Any, next: Any) -> Any:
            seen.append(call.method)
            call.bypass_cache = len(seen) > 2
            return await next(call)

        async with Client(server, middleware=[bypass]) as client:
            for _ in range(3):
                await text(client)
            assert (len(seen), server.times(READ)) == (3, 2)

    run(test())


def test_a_closed_client_returns_no_cached_result() -> None:
    async def test() -> None:
        client = Client(CountingServer())
        async with client:
            await text(client)
        with pytest.raises(ConnectionLost, match="not open"):
            await text(client)

    run(test())


# Principals


def test_private_results_are_shared_within_an_authorization_and_public_ones_with_all() -> None:
    async def test() -> None:
        server, cache = CountingServer(), Cache()
        server.resources.add("notes://board", server.note(9), cache_scope="public")
        async with over_http(server) as url:
            alice, also_alice, bob = (
                Client(url, cache=cache, headers={name: value})
                for name, value in (("X-Who", "alice"), ("x-who", "alice"), ("X-Who", "bob"))
            )
            async with alice, also_alice, bob:
                private = await text(alice)
                assert await text(also_alice) == private
                assert await text(bob) != private
                assert await text(alice) == private
                board = await text(alice, "notes://board")
                assert await text(bob, "notes://board") == board
                assert server.times(READ) == 3

    run(test())


class RotatingAuth:
    """Authentication with a token that the test sets and a new proof for each request."""

    def __init__(self) -> None:
        self.token = "one"
        self.proofs = 0

    async def headers(self, url: str) -> Mapping[str, str]:
        self.proofs += 1
        return {"Authorization": f"DPoP {self.token}", "DPoP": str(self.proofs)}

    async def refused(self, url: str, status: int, headers: Mapping[str, str], sent: Mapping[str, str]) -> bool:
        return False


def test_another_credential_is_another_principal() -> None:
    async def test() -> None:
        server, auth, cache = CountingServer(), RotatingAuth(), Cache()
        async with over_http(server) as url, Client(url, auth=auth, cache=cache) as client:
            mine = await text(client)
            await text(client, "notes://n1", bypass_cache=True)
            assert await text(client) == mine
            auth.token = "two"
            await client.ping()
            theirs = await text(client)
            assert theirs != mine
            auth.token = "one"
            await client.ping()
            assert await text(client) == mine
            auth.token = "three"  # known only when the request is sent: the answer belongs to no known principal
            await text(client, bypass_cache=True)
            assert await text(client) not in (mine, theirs)

    run(test())


def test_servers_and_capabilities_do_not_share_results() -> None:
    async def test() -> None:
        cache, one, other = Cache(), CountingServer(scope="public"), CountingServer(scope="public")

        async def sample(question: Any) -> str:
            return "no"

        async with Client(one, cache=cache) as a, Client(one, cache=cache) as b, Client(other, cache=cache) as c:
            for client in (a, b, c):
                await text(client)
            assert (one.times(READ), other.times(READ)) == (1, 1)
            async with Client(one, cache=cache, sampling=sample) as able:
                await text(able)
                assert one.times(READ) == 2

    run(test())


def test_a_result_that_became_private_is_no_longer_shared() -> None:
    cache, clock = Cache(), FakeClock(1000.0)
    mine, yours = (Key("s", READ, "x:y", who, "v") for who in ("me", "you"))
    cache = Cache(clock=clock)
    cache.put(mine, b"{}", 60, public=True)
    assert cache.get(yours) == b"{}"
    cache.put(mine, b"{1}", 60, public=False)
    assert (cache.get(mine), cache.get(yours)) == (b"{1}", None)


def test_results_of_calls_with_input_responses_are_not_cached() -> None:
    """The result of a request that carried answers or a state belongs to that exchange (2026-07-28, caching)."""

    async def test() -> None:
        server, names = CountingServer(), iter(("Mary", "Anne"))

        @server.resource("notes://whose")
        async def whose(ctx: Context) -> str:
            answer = await ctx.elicit("Who?", {"type": "object", "properties": {"name": {"type": "string"}}})
            return str(answer)

        async def elicit(question: Any) -> dict[str, str]:
            return {"name": next(names)}

        cache = Cache()
        async with Client(server, cache=cache, elicitation=elicit, revision="2026-07-28") as client:
            assert "Mary" in await text(client, "notes://whose")
            assert "Anne" in await text(client, "notes://whose")
            assert len(cache) == 0

    run(test())


def test_concurrent_readers_each_answer_their_own_input_request() -> None:
    async def test() -> None:
        server, asked = CountingServer(), []

        @server.resource("notes://whose")
        async def whose(ctx: Context) -> str:
            answer = await ctx.elicit("Who?", {"type": "object", "properties": {"name": {"type": "string"}}})
            return str(answer)

        async def elicit(question: Any) -> dict[str, str]:
            asked.append(question)
            return {"name": f"ship {len(asked)}"}

        async with Client(server, elicitation=elicit, revision="2026-07-28") as client:
            texts = await asyncio.gather(*(text(client, "notes://whose") for _ in range(3)))
            assert len(set(texts)) == len(asked) == 3

    run(test())


# Shared requests


def test_concurrent_equal_reads_share_one_request() -> None:
    async def test() -> None:
        server = CountingServer()
        server.open.clear()
        async with Client(server) as client:
            reads = [asyncio.ensure_future(text(client)) for _ in range(20)]
            other = asyncio.ensure_future(text(client, "notes://n1"))
            await settle()
            server.open.set()
            assert len(set(await asyncio.gather(*reads))) == 1
            assert (await other).startswith("note 1")
            assert server.times(READ) == 2

    run(test())


@pytest.mark.parametrize("who", [0, 1])
def test_cancelling_one_reader_does_not_cancel_the_others(who: int) -> None:
    async def test() -> None:
        server = CountingServer()
        server.open.clear()
        async with Client(server) as client:
            reads = [asyncio.ensure_future(text(client)) for _ in range(5)]
            await settle()
            reads[who].cancel()
            await settle()
            server.open.set()
            results = await asyncio.gather(*reads, return_exceptions=True)
            assert isinstance(results.pop(who), asyncio.CancelledError)
            assert len(set(results)) == 1
            assert server.times(READ) == (
                2 if who == 0 else 1
            )  # cancelling the first reader cancels the shared request

    run(test())


def test_each_reader_of_a_shared_request_has_its_own_timeout() -> None:
    async def test() -> None:
        server = CountingServer()
        server.open.clear()
        async with Client(server) as client:
            short = asyncio.ensure_future(text(client, timeout=0.02))
            long = asyncio.ensure_future(text(client))
            also_short = asyncio.ensure_future(text(client, timeout=0.02))
            for each in (short, also_short):
                with pytest.raises(RequestTimeout):
                    await each
            server.open.set()
            assert (await long).startswith("note 0")

    run(test())


def test_concurrent_readers_of_an_uncacheable_resource_send_their_own_requests() -> None:
    """A result that expires at once may be older than an action of the second reader before its request."""

    async def test() -> None:
        server = CountingServer(ttl=0)
        async with Client(server) as client:
            texts = await asyncio.gather(*(text(client) for _ in range(4)))
            assert server.times(READ) == 4
            server.open.clear()
            reads = [asyncio.ensure_future(text(client)) for _ in range(4)]
            await settle()
            assert server.times(READ) == 8  # the resource is known as uncacheable, so no reader waits for another
            server.open.set()
            assert len(await asyncio.gather(*reads)) == len(texts)

    run(test())


def test_a_resource_that_becomes_cacheable_is_cached_again() -> None:
    async def test() -> None:
        server, ttl = CountingServer(), [0]

        @server.middleware(READ)
        async def lasting(call: Any, next: Any) -> Any:
            result = await next(call)
            call.ttl_ms = ttl[0]
            return result

        async with Client(server) as client:
            await text(client)
            await text(client)
            ttl[0] = 60_000
            for _ in range(5):
                await text(client)
            assert server.times(READ) == 4

    run(test())


def test_each_caller_gets_its_own_error() -> None:
    async def test() -> None:
        server = CountingServer()
        async with Client(server) as client:
            results = await asyncio.gather(*(text(client, "notes://none") for _ in range(3)), return_exceptions=True)
            assert all(isinstance(result, ResourceNotFound) for result in results)
            assert len({id(result) for result in results}) == 3
            assert server.times(READ) == 3

    run(test())


# Invalidation


@pytest.mark.parametrize("link", ["memory", "http"])
def test_a_change_of_a_resource_invalidates_it_and_its_parents(link: str) -> None:
    async def check(server: CountingServer, client: Client) -> None:
        uris = ["notes://n0", "notes://folder", "notes://folder/a"]
        async with client.watch("notes://folder/a") as changes, client.watch("notes://n1"):
            before = [await text(client, uri) for uri in uris]
            assert [await text(client, uri) for uri in uris] == before
            server.resource_updated("notes://folder/a")
            assert (await anext(changes)).uri == "notes://folder/a"
            after = [await text(client, uri) for uri in uris]
            assert [old == new for old, new in zip(before, after, strict=True)] == [True, False, False]

    async def test() -> None:
        server = CountingServer()
        if link == "memory":
            async with Client(server, revision="2026-07-28") as client:
                await check(server, client)
        else:
            async with over_http(server) as url, Client(url) as client:
                await check(server, client)

    run(test())


def test_a_change_of_a_list_invalidates_all_its_pages_and_no_other_list() -> None:
    async def test() -> None:
        server = CountingServer()
        async with Client(server, revision="2026-07-28") as client, client.watch_lists() as changes:
            await client.list_resources()
            await client.list_tools()
            server.resources.add("notes://later", server.note(5))
            assert (await anext(changes)).kind == "resources"
            assert "notes://later" in [resource.uri for resource in await client.list_resources()]
            await client.list_tools()
            assert (server.times(LIST), server.times("tools/list")) == (6, 1)

    run(test())


def test_a_result_is_not_cached_if_its_resource_changes_during_the_read() -> None:
    async def test() -> None:
        server = CountingServer()
        async with Client(server, revision="2026-07-28") as client, client.watch("notes://n0") as changes:
            server.open.clear()
            server.requested.clear()
            early = asyncio.ensure_future(text(client))
            await settle()
            server.resource_updated("notes://n0")
            await anext(changes)
            late = asyncio.ensure_future(text(client))
            await settle()
            assert server.times(READ) == 2
            server.open.set()
            await early
            newest = await late
            assert await text(client) == newest
            assert server.times(READ) == 2

    run(test())


def test_a_result_is_not_cached_if_another_thread_reports_a_change_when_it_arrives() -> None:
    """A bug: the change was lost between the check for changes and the moment in which the result was cached."""

    class MeasuredURI(str):
        """A URI of which the cache takes the length before it stores a result."""

        arrived = False

        def __len__(self) -> int:
            if self.arrived:
                other = threading.Thread(target=cache.clear)
                other.start()
                other.join()
            return super().__len__()

    async def answer(call: Call) -> Any:
        call.raw = msgspec.Raw(b"{}")
        uri.arrived = True
        return t.ReadResourceResult(contents=[], ttl_ms=60_000)

    async def test() -> None:
        step = CacheStep(cache, "http://server", {}, t.ClientCapabilities())
        step.connection_made(REVISIONS["2026-07-28"], t.ServerCapabilities())
        await step(Call(METHODS[READ], t.ReadResourceRequestParams(uri=uri), 10, 10), answer)
        assert len(cache) == 0

    cache, uri = Cache(), MeasuredURI("notes://n0")
    run(test())


def test_a_refused_cursor_invalidates_all_pages_and_restarts_the_list() -> None:
    async def test() -> None:
        server, clock, valid = CountingServer(), FakeClock(1000.0), ["a"]

        async def listed(request: Request) -> Any:
            server.requested.append("page")
            cursor = request.params.cursor
            if cursor is not t.UNSET and cursor != valid[0]:
                raise InvalidArgument("This cursor is of no use any more.")
            result = t.ListResourcesResult(resources=[])
            first = cursor is t.UNSET
            result.resources = [t.Resource(uri=f"x:{'first' if first else valid[0]}", name="x")]
            result.next_cursor = valid[0] if first else t.UNSET
            request.ttl_ms = 60_000 if first else 1000
            return result

        server.handlers[LIST] = listed
        cache = Cache(clock=clock)
        async with Client(server, cache=cache, revision="2026-07-28") as client:
            assert [each.uri for each in await client.list_resources()] == ["x:first", "x:a"]
            clock.now += 2  # the second page has expired, the first one has not
            valid[0] = "b"
            assert [each.uri for each in await client.list_resources()] == ["x:first", "x:b"]
            assert server.times("page") == 5
            clock.now += 2
            valid[0] = "c"
            with pytest.raises(RemoteError, match="of no use"):
                [each async for each in client.list_resources()]  # an item is not yielded twice
            assert len(cache) == 0

    run(test())


def test_a_missing_resource_is_removed_from_the_cache() -> None:
    async def test() -> None:
        server, cache = CountingServer(), Cache()
        async with Client(server, cache=cache) as client:
            await text(client)
            server.resources.remove("notes://n0")
            with pytest.raises(ResourceNotFound):
                await text(client, bypass_cache=True)
            assert len(cache) == 0

    run(test())


PROGRAM = """
import os
from wharfinger import Server

server = Server("mortal", ttl=3600)

@server.resource("notes://pid")
def pid() -> str:
    return str(os.getpid())

@server.tool
def die() -> str:
    os._exit(1)

server.run()
"""


def test_a_restarted_server_invalidates_the_cache(tmp_path: Path) -> None:
    async def test() -> None:
        program = tmp_path / "mortal.py"
        program.write_text(PROGRAM)
        async with Client(program, retry=Retry(initial_delay=0.01)) as client:
            first = await text(client, "notes://pid")
            assert await text(client, "notes://pid") == first
            with pytest.raises(ConnectionLost):
                await client.call_tool("die")
            await client.ping()
            assert await text(client, "notes://pid") != first

    run(test())


# The handshake era


def test_a_session_without_a_watch_of_lists_caches_nothing() -> None:
    async def test() -> None:
        server, cache = CountingServer(), Cache()
        async with Client(server, cache=cache, revision=HANDSHAKE) as client:
            await client.list_resources()
            await client.list_resources()
            assert await text(client) != await text(client)
            assert (server.times(LIST), len(cache)) == (6, 0)

    run(test())


@pytest.mark.parametrize("link", ["memory", "http"])
def test_a_session_caches_lists_while_it_watches_them(link: str) -> None:
    async def check(server: CountingServer, client: Client) -> None:
        async with client.watch_lists() as changes:
            await client.list_resources()
            await client.list_resources()
            assert server.times(LIST) == 3
            assert await text(client) != await text(client)  # a resource has no ttl in this era
            server.resources.add("notes://later", server.note(5))
            await anext(changes)
            assert len(await client.list_resources()) == 6
            assert server.times(LIST) == 6
        await client.list_resources()
        assert server.times(LIST) == 9
        async with client.watch_lists():
            await client.list_resources()
            assert server.times(LIST) == 12

    async def test() -> None:
        server = CountingServer()
        if link == "memory":
            async with Client(server, revision=HANDSHAKE) as client:
                await check(server, client)
        else:
            async with over_http(server) as url, Client(url, revision=HANDSHAKE) as client:
                await check(server, client)

    run(test())


def test_sessions_do_not_share_lists() -> None:
    async def test() -> None:
        server, cache = CountingServer(scope="public"), Cache()
        one, other = (Client(server, cache=cache, revision=HANDSHAKE) for _ in range(2))
        async with one, other, one.watch_lists(), other.watch_lists():
            await one.list_resources()
            await other.list_resources()
            assert server.times(LIST) == 6

    run(test())


# Stale results


def test_a_stale_result_is_returned_if_the_server_is_gone_and_stale_if_error_is_set() -> None:
    async def test() -> None:
        clock = FakeClock(1000.0)
        cache = Cache(clock=clock, stale_if_error=100)
        async with over_http(CountingServer(ttl=10)) as url:
            client = Client(url, cache=cache, retry=NEVER)
            await client.open()
            kept = await text(client)
        async with client:
            assert await text(client) == kept
            clock.now += 50
            assert await text(client) == kept
            with pytest.raises(WharfingerError):
                await text(client, bypass_cache=True)
            with pytest.raises(WharfingerError):
                await text(client, "notes://n1")
            clock.now += 61
            with pytest.raises(WharfingerError):
                await text(client)

    run(test())


def test_a_call_that_waits_for_an_equal_one_gets_the_stale_result_after_its_timeout() -> None:
    """A bug: it raised RequestTimeout, and only the call that had been sent got the result."""

    async def test() -> None:
        clock, server = FakeClock(1000.0), CountingServer(ttl=10)
        async with Client(server, cache=Cache(clock=clock, stale_if_error=100)) as client:
            kept = await text(client)
            clock.now += 50
            server.open.clear()
            sent = asyncio.ensure_future(text(client, timeout=5))
            await settle()
            assert await text(client, timeout=0.05) == kept
            server.open.set()
            assert await sent != kept

    run(test())


def test_a_refusal_of_credentials_drops_their_results_also_if_the_refused_call_was_uncacheable() -> None:
    """A bug: `_send_alone` only handled errors of the protocol."""

    async def test() -> None:
        cache = Cache()
        step = CacheStep(cache, "https://example.org/mcp", {}, t.ClientCapabilities())
        step.connection_made(REVISIONS["2026-07-28"], t.ServerCapabilities())

        def call(uri: str) -> Call:
            return Call(METHODS[READ], t.ReadResourceRequestParams(uri=uri), 60, 60)

        async def refuse(call: Call) -> Any:
            raise NotAuthorized("no")

        kept, _ = step.find_key(READ, call("a:kept").params)
        uncacheable, _ = step.find_key(READ, call("a:dynamic").params)
        assert kept is not None and uncacheable is not None
        cache.put(kept, b"{}", 60, public=False)
        cache.mark_uncacheable(uncacheable, True)
        with pytest.raises(NotAuthorized):
            await step(call("a:dynamic"), refuse)
        assert cache.get(kept) is None

    run(test())


def test_a_cached_list_of_tools_is_returned_after_the_connection_was_lost() -> None:
    """A bug: `list_tools` reported that the client was not open."""

    class Target:
        async def open_link(self, limits: Limits, events: LinkEvents) -> MemoryLink:
            self.events, self.link = events, MemoryLink(CountingServer(ttl=60), limits, events)
            await self.link.open()
            return self.link

    async def test() -> None:
        target = Target()
        async with Client(target) as client:
            listed = await client.list_tools()
            target.events.on_lost(target.link, ConnectionLost("gone"))
            assert await client.list_tools() == listed

    run(test())


# Bounds


def test_negative_bounds_are_refused() -> None:
    with pytest.raises(ValueError, match="negative"):
        Cache(max_entries=-1)


ops = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(0, 6), st.integers(0, 300), st.sampled_from([-1.0, 0.0, 1.0, 5.0, 1e9])),
        st.tuples(st.just("get"), st.integers(0, 6)),
        st.tuples(st.just("forget"), st.integers(0, 6)),
        st.tuples(st.just("drop"), st.integers(0, 6)),
        st.tuples(st.just("pass"), st.floats(0, 4)),
    ),
    max_size=60,
)


@given(ops, st.integers(0, 4), st.integers(0, 4 * ENTRY_OVERHEAD_BYTES))
def test_bounds_and_lifetimes_hold_for_any_sequence_of_operations(steps: list[Any], entries: int, size: int) -> None:
    clock = FakeClock(1000.0)
    cache = Cache(max_entries=entries, max_bytes=size, max_ttl=50, clock=clock)
    model: OrderedDict[int, tuple[bytes, float]] = OrderedDict()

    def key(number: int) -> Key:
        return Key("s", READ, f"x:{number}", "me", "v")

    def weight(data: bytes) -> int:
        return len(data) + ENTRY_OVERHEAD_BYTES + 3

    for step in steps:
        match step:
            case "put", number, length, seconds:
                data = b"x" * length
                cache.put(key(number), data, seconds, public=False)
                model.pop(number, None)
                if seconds > 0 and weight(data) <= size and entries:
                    model[number] = data, clock.now + min(seconds, 50)
                while len(model) > entries or sum(weight(data) for data, _ in model.values()) > size:
                    model.popitem(last=False)
            case "get", number:
                data, until = model.get(number, (None, 0.0))
                if data is not None and clock.now >= until:
                    del model[number]
                    data = None
                elif data is not None:
                    model.move_to_end(number)
                assert cache.get(key(number)) == data
            case "forget", number:
                cache.forget(key(number))
                model.pop(number, None)
            case "drop", number:
                name = f"x:{number}"
                cache.drop(lambda each: str(each.name) >= name)  # noqa: B023  # called before the name changes
                for other in [other for other in model if other >= number]:
                    del model[other]
            case "pass", seconds:
                clock.now += seconds
        assert len(cache) == len(model) <= entries
        assert cache.size == sum(weight(data) for data, _ in model.values()) <= size


@given(st.text("ab/?#", max_size=8), st.text("ab/?#", max_size=8))
def test_a_change_invalidates_exactly_its_ancestors_and_descendants(changed: str, kept: str) -> None:
    cache = Cache()
    step = CacheStep(cache, "http://server", {}, t.ClientCapabilities())
    cache.put(Key("http://server", READ, f"x:{kept}", "me", "v"), b"{}", 60, public=False)
    cache.put(Key("http://other", READ, f"x:{kept}", "me", "v"), b"{}", 60, public=False)
    step.changed("resource", f"x:{changed}")

    def related(uri: str) -> bool:
        """Return whether one URI is the other, or continues it after a separator."""
        one, other = sorted((f"x:{changed}", f"x:{kept}"), key=len)
        return one == other or any(
            other == one + rest and (one[-1] == "/" or rest[0] in "/?#") for rest in [other[len(one) :]] if rest
        )

    assert len(cache) == (1 if related(kept) else 2)


def test_the_repr_of_a_cache_contains_no_credential() -> None:
    cache = Cache()
    cache.put(Key("s", READ, "x:y", frozenset({("authorization", "secret")}), "v"), msgspec.Raw(b"{}"), 9, public=False)
    assert "secret" not in repr(cache)
    cache.clear()
    assert len(cache) == cache.size == 0
