"""What a page hears of changes, also of those before its watch began."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.client.scripted import HANDSHAKE, Refusal, Script, run
from wharfinger import Server
from wharfinger.client import ClientOptions, Retry
from wharfinger.sources import files
from wharfinger.upstreams.config import ServerConfig
from wharfinger.web import live_changes
from wharfinger.web.live_changes import LiveChanges
from wharfinger.web.server_connections import ServerConnections


def test_each_begin_of_a_watch_is_reported_so_that_earlier_changes_can_be_read(tmp_path: Path) -> None:
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text("one")
    server = Server("harbour")
    server.include(files(tmp_path, label="quay"))
    first, second = "file:///quay/a.txt", "file:///quay/b.txt"

    async def test() -> None:
        events: asyncio.Queue[tuple[str, ...]] = asyncio.Queue()

        async def changed(server: str, uri: str) -> None:
            await events.put(("changed", server, uri))

        async def began(server: str) -> None:
            await events.put(("began", server))

        async def until(*event: str) -> None:
            while await events.get() != event:  # one write may be reported twice
                pass

        async with ServerConnections([ServerConfig(name="harbour", target=server)]) as connections, asyncio.timeout(20):
            await connections.upstreams.ready(10)
            live = LiveChanges(connections, changed, began)
            live.watch({}, ("harbour", first))
            await until("began", "harbour")
            (tmp_path / "a.txt").write_text("two")
            await until("changed", "harbour", first)
            live.watch({"harbour": [second]}, ("harbour", first))  # another watch, and a gap before it
            await until("began", "harbour")
            (tmp_path / "b.txt").write_text("two")
            await until("changed", "harbour", second)
            await live.close()

    asyncio.run(test())


def test_after_a_lost_connection_all_resources_are_watched_again() -> None:
    """A bug: only the first was."""

    async def test() -> None:
        async with following(Script(HANDSHAKE, resources__subscribe={}), ["log://a", "log://b"]) as (script, begun):
            await begun.get()
            script.received.clear()
            script.hang_up()
            await begun.get()
            assert subscribed(script) == ["log://a", "log://b"]

    run(test())


def test_of_resources_that_a_server_refuses_to_watch_the_first_is_watched() -> None:
    async def test() -> None:
        def subscribe(message: Any) -> Any:
            return {} if message["params"]["uri"] == "log://a" else Refusal(-32602)

        async with following(Script(HANDSHAKE, resources__subscribe=subscribe), ["log://a", "log://b"]) as (
            script,
            begun,
        ):
            await begun.get()
            assert subscribed(script) == ["log://a", "log://b", "log://a"]

    run(test())


def test_resources_that_a_server_refuses_to_watch_by_name_are_left_out() -> None:
    """A bug: only the first was watched, and nothing at all if that one was deleted."""

    async def test() -> None:
        def subscribe(message: Any) -> Any:
            uri = message["params"]["uri"]
            return {} if uri in ("log://b", "log://d") else Refusal(-32002, data={"uri": uri})

        uris = ["log://a", "log://b", "log://c", "log://d"]
        async with following(Script(HANDSHAKE, resources__subscribe=subscribe), uris) as (script, begun):
            await begun.get()
            assert subscribed(script)[-2:] == ["log://b", "log://d"]

    run(test())


def test_after_errors_that_name_no_resource_all_are_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bug: only the first was tried again."""
    monkeypatch.setattr(live_changes, "RETRY_SECONDS", 0.01)

    async def test() -> None:
        failures = [Refusal(), Refusal()]

        def subscribe(message: Any) -> Any:
            return failures.pop() if failures else {}

        async with following(Script(HANDSHAKE, resources__subscribe=subscribe), ["log://a", "log://b"]) as (
            script,
            begun,
        ):
            await begun.get()
            assert subscribed(script) == ["log://a", "log://a", "log://a", "log://b"]

    run(test())


def test_no_watch_begins_after_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bug: a tab that was closed while its tree was read left a watch behind."""
    monkeypatch.setattr(live_changes, "SETTLE_SECONDS", 0)

    async def test() -> None:
        async with ServerConnections([ServerConfig(name="harbour", target=Server("harbour"))]) as connections:
            live = LiveChanges(connections, nothing, nothing)
            await live.close()
            live.watch({"harbour": ["log://a"]}, None)
            for _ in range(2):  # the timer ends, and its task would be there
                await asyncio.sleep(0)
            assert "_follow" not in {getattr(task.get_coro(), "__name__", "") for task in asyncio.all_tasks()}

    asyncio.run(test())


def test_the_end_of_the_watches_can_be_cancelled(tmp_path: Path) -> None:
    """A bug: the cancellation was lost, so the caller went on."""
    (tmp_path / "a.txt").write_text("one")
    server = Server("harbour")
    server.include(files(tmp_path, label="quay"))
    begun, ending = asyncio.Event(), asyncio.Event()

    async def began(server: str) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ending.set()
            await asyncio.Event().wait()

    async def test() -> None:
        async with ServerConnections([ServerConfig(name="harbour", target=server)]) as connections, asyncio.timeout(20):
            await connections.upstreams.ready(10)
            live = LiveChanges(connections, nothing, began)
            live.watch({}, ("harbour", "file:///quay/a.txt"))
            await begun.wait()
            closing = asyncio.create_task(live.close())
            await ending.wait()
            closing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await closing

    asyncio.run(test())


async def nothing(*_: str) -> None:
    pass


@asynccontextmanager
async def following(server: Script, uris: list[str]) -> AsyncGenerator[tuple[Script, asyncio.Queue[str]]]:
    """Watch resources of a server; the queue gets its name whenever a watch has begun."""
    server.answers["initialize"]["capabilities"] = {"resources": {"subscribe": True}}
    begun: asyncio.Queue[str] = asyncio.Queue()

    async def changed(server: str, uri: str) -> None:
        pass

    async with server as script:
        config = ServerConfig(name="harbour", target=f"unix:{script.path}")
        options = ClientOptions(revision=HANDSHAKE, retry=Retry(watch_attempts=0))
        async with ServerConnections([config], options=options) as connections:
            await connections.upstreams.ready(30)
            live = LiveChanges(connections, changed, begun.put)
            live.watch({"harbour": uris}, None)
            yield script, begun
            await live.close()


def subscribed(script: Script) -> list[str]:
    return [params["uri"] for params in script.params("resources/subscribe")]
