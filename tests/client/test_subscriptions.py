"""Watches with a scripted server: which watch gets which change, and how a watch ends."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from wharfinger import types as t
from wharfinger.client import Change, Client
from wharfinger.client.retry import NEVER, Retry
from wharfinger.client.subscriptions import MAX_PENDING_CHANGES, _OpenWatch
from wharfinger.errors import (
    ConnectionLost,
    InvalidResponse,
    RemoteMethodNotFound,
    RequestTimeout,
    ResourceNotFound,
)
from wharfinger.protocol.handshake import Session
from wharfinger.protocol.jsonrpc import encode_notification
from wharfinger.protocol.request import Request, notify
from wharfinger.server import Server

ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
UPDATED = "notifications/resources/updated"


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 10))


class FakeServer(Server):
    """A server whose notifications a test sends. `received` contains its requests in order."""

    def __init__(self) -> None:
        super().__init__("puppet")
        self.received: list[tuple[str, Any]] = []
        self.session: Session | None = None
        self.request: Request | None = None
        self.grants = True
        self.over: asyncio.Future[None] | None = None
        self.handlers |= {
            "subscriptions/listen": self.listen,
            "resources/subscribe": self.record,
            "resources/unsubscribe": self.record,
        }

    async def record(self, request: Request) -> t.EmptyResult:
        self.received.append((request.method.partition("/")[2], request.params.uri))
        self.session = request.session
        if request.params.uri == "x:bad":
            raise ResourceNotFound("x:bad")
        return t.EmptyResult()

    async def listen(self, request: Request) -> t.SubscriptionsListenResult:
        self.received.append(("listen", request.params.notifications))
        self.request, self.over = request, asyncio.get_running_loop().create_future()
        if self.grants:
            self.notify(ACKNOWLEDGED, {"notifications": request.params.notifications})
        await self.over
        return t.SubscriptionsListenResult()

    def notify(self, method: str, params: dict[str, Any]) -> None:
        """Send a notification in the form of the era."""
        if self.request is not None:
            tag = {"io.modelcontextprotocol/subscriptionId": self.request.id}
            notify(self.request, method, {**params, "_meta": tag})
        else:
            assert self.session is not None
            self.session.send(encode_notification(method, params))


def test_a_change_of_a_sub_resource_is_reported_to_watches_of_its_parents() -> None:
    """Spec §2.11: the reported URI may be a sub-resource of the watched one."""

    async def test() -> None:
        server = FakeServer()
        async with (
            Client(server, revision="2025-11-25") as client,
            client.watch("file:///a/b") as changes,
            client.watch("file:///a/") as above,
        ):
            for uri in ("file:///a/b/c", "file:///a/bc", "file:///a/b#x", "file:///a", "other"):
                server.notify(UPDATED, {"uri": uri})
            await client.ping()
            assert [(await anext(changes)).uri for _ in range(2)] == ["file:///a/b/c", "file:///a/b#x"]
            assert [(await anext(above)).uri for _ in range(3)] == ["file:///a/b/c", "file:///a/bc", "file:///a/b#x"]

    run(test())


def test_a_uri_is_subscribed_once_and_unsubscribed_after_its_last_watch() -> None:
    async def test() -> None:
        server = FakeServer()
        async with Client(server, revision="2025-11-25") as client:
            one, two = await asyncio.gather(client.watch("a:b").start(), client.watch("a:b").start())
            await one.close()
            await two.close()
            with pytest.raises(ResourceNotFound, match="x:bad"):
                await client.watch("a:c", "x:bad")
            while len(server.received) < 5:
                await client.ping()
        assert server.received == [
            ("subscribe", "a:b"),
            ("unsubscribe", "a:b"),
            ("subscribe", "a:c"),
            ("subscribe", "x:bad"),
            ("unsubscribe", "a:c"),
        ]

    run(test())


def test_too_many_pending_changes_are_merged_into_one() -> None:
    """Security C14: a flood of different URIs is bounded too."""

    async def test() -> None:
        server = FakeServer()
        async with Client(server) as client, client.watch("a:root") as changes:
            for number in range(MAX_PENDING_CHANGES + 1):
                server.notify(UPDATED, {"uri": f"a:root/{number}"})
            await client.ping()
            assert [await anext(changes) for _ in range(2)] == [
                Change("resource", "a:root"),
                Change("resource", f"a:root/{MAX_PENDING_CHANGES}"),
            ]

    run(test())


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
def test_changes_of_lists_are_reported_by_kind(revision: str) -> None:
    async def test() -> None:
        server = FakeServer()
        async with Client(server, revision=revision) as client:
            if revision < "2026":
                await client.watch("a:b")
            async with client.watch_lists() as changes:
                for name in ("tools", "resources", "prompts", "unheard_of"):
                    server.notify(f"notifications/{name}/list_changed", {})
                server.notify(UPDATED, {"uri": "a:b"})
                await client.ping()
                assert [(await anext(changes)).kind for _ in range(3)] == ["tools", "resources", "prompts"]

    run(test())


def test_a_watch_starts_only_after_a_valid_acknowledgement() -> None:
    async def test() -> None:
        server = FakeServer()
        server.grants = False
        async with Client(server, timeout=0.05) as client:
            with pytest.raises(RequestTimeout, match="did not acknowledge"):
                await client.watch("a:b")
            beginning = asyncio.ensure_future(client.watch("a:b").start())
            while len(server.received) < 2:
                await asyncio.sleep(0)
            server.notify(ACKNOWLEDGED, {"notifications": {"resourceSubscriptions": ["a:other"]}})
            with pytest.raises(ResourceNotFound, match="a:b"):
                await beginning
            lists = asyncio.ensure_future(client.watch_lists().start())
            while len(server.received) < 3:
                await asyncio.sleep(0)
            server.notify(ACKNOWLEDGED, {"notifications": {}})
            with pytest.raises(RemoteMethodNotFound):
                await lists
            odd = asyncio.ensure_future(client.watch("a:b").start())
            while len(server.received) < 4:
                await asyncio.sleep(0)
            server.notify(ACKNOWLEDGED, {"notifications": 3})
            with pytest.raises(InvalidResponse, match="acknowledgement"):
                await odd

    run(test())


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
def test_a_watch_that_is_closed_while_it_begins_ends(revision: str) -> None:
    """A bug: it went on after its start, and nobody could end it."""

    async def main() -> None:
        server = FakeServer()
        server.grants = False
        subscribing, subscribed = asyncio.Event(), asyncio.Event()
        record = server.record

        async def subscribe(request: Request) -> t.EmptyResult:
            subscribing.set()
            await subscribed.wait()
            return await record(request)

        server.handlers["resources/subscribe"] = subscribe
        async with Client(server, revision=revision) as client:
            watch = client.watch("x:a")
            starts = [asyncio.create_task(watch.start()) for _ in range(2)]
            while not (server.received or subscribing.is_set()):
                await asyncio.sleep(0)
            await watch.close()
            subscribed.set()
            assert await asyncio.gather(*starts) == [watch, watch]
            assert client._session.watches.count == 0
            with pytest.raises(StopAsyncIteration):
                await anext(watch)

    run(main())


@pytest.mark.parametrize("how", ["result", "cancelled"])
def test_a_watch_that_the_server_ends_is_restarted_and_reports_the_gap(how: str) -> None:
    """Spec §2.12: a server ends a watch with a result or with notifications/cancelled, such as before a restart."""

    async def test() -> None:
        server = FakeServer()
        async with Client(server, retry=Retry(initial_delay=0.001)) as client, client.watch("a:b", "a:c") as changes:
            server.notify(UPDATED, {"uri": "a:b"})
            end(server, how)
            assert await anext(changes) == Change("resource", "a:b")
            assert [await anext(changes), await anext(changes)] == [
                Change("resource", "a:b", missed=True),
                Change("resource", "a:c", missed=True),
            ]
            server.notify(UPDATED, {"uri": "a:c"})
            assert await anext(changes) == Change("resource", "a:c")
        assert [method for method, _ in server.received] == ["listen", "listen"]

    run(test())


@pytest.mark.parametrize("how", ["result", "cancelled"])
def test_a_watch_that_the_server_ends_each_time_fails_after_watch_attempts(how: str) -> None:
    """Security C14: the number of restarts is bounded, and zero with `NEVER`."""

    async def test() -> None:
        for settings, times in ((NEVER, 1), (Retry(initial_delay=0.001, watch_attempts=2), 3)):
            server = FakeServer()
            async with Client(server, retry=settings) as client, client.watch_lists() as changes:
                for time in range(times):
                    while len(server.received) <= time:
                        await client.ping()
                    end(server, how)
                with pytest.raises(ConnectionLost, match="has ended the watch"):
                    while True:
                        await anext(changes)

    run(test())


def end(server: FakeServer, how: str) -> None:
    """End the watch as a server does: with a result or with notifications/cancelled."""
    assert server.over is not None
    assert server.request is not None
    if how == "result":
        server.over.set_result(None)
    else:
        server.notify("notifications/cancelled", {"requestId": server.request.id})


def test_a_watch_fails_if_its_resource_is_gone_after_a_restart() -> None:
    async def test() -> None:
        server = FakeServer()
        async with Client(server, retry=Retry(initial_delay=0.001)) as client, client.watch("a:b") as changes:
            server.grants = False
            end(server, "result")
            while len(server.received) < 2:
                await client.ping()
            server.notify(ACKNOWLEDGED, {"notifications": {}})
            with pytest.raises(ResourceNotFound, match="a:b"):
                await anext(changes)

    run(test())


def test_a_gap_and_a_change_are_merged_into_one_change_with_the_gap() -> None:
    begun: Any = None
    subscription = _OpenWatch(("a:b",), True, begun)
    subscription.put("resource", "a:b")
    subscription.report_missed()
    subscription.put("resource", "a:b")
    assert subscription.pending == {
        ("resource", "a:b"): True,
        ("resources", ""): True,
        ("tools", ""): True,
        ("prompts", ""): True,
    }
