"""A folder, a database and an upstream that disappear and return, beside a healthy folder.

Their watchers are notified of both. Meanwhile, lists and searches name them, and reads fail at once with the reason.
They are never reported as empty.
"""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec import UNSET

from tests.sources.sql_database.conftest import SHOP, PostgresServer
from tests.sources.sql_database.mariadb_server import MariaDBServer
from tests.sources.stalling_proxy import StallingProxy
from wharfinger import Client, Server
from wharfinger.client.subscriptions import Watch
from wharfinger.errors import RemoteError, WharfingerError
from wharfinger.server.source_calls import MISSING_META_KEY
from wharfinger.source import Source
from wharfinger.sources import files, resource_tools, sql, upstream

MINUTE = 60


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "harbour.md").write_text("# Harbour\n\nThe lantern is lit.\n")
    return folder


def serving(docs: Path, *sources: Source) -> Client:
    server = Server("all")
    server.include(files(docs, label="docs"))
    for source in sources:
        server.include(source)
    server.include(resource_tools())
    return Client(server, cache=False)


async def missing(client: Client) -> list[str]:
    """Return what the list reports about missing sources. The healthy folder is always listed, searched and read."""
    page = await client.request("resources/list")
    assert "file:///docs/harbour.md" in [each.uri for each in page.resources]
    found = (await client.call_tool("search", {"query": "lantern"})).data
    assert "file:///docs/harbour.md" in [hit["id"] for hit in found["results"]]
    assert "lit" in (await client.read_resource("file:///docs/harbour.md")).text
    named: list[dict[str, str]] = [] if page.meta is UNSET else page.meta.get(MISSING_META_KEY, [])
    messages = [each["message"] for each in named]
    if messages:
        assert "Not searched" in found["note"]
    return messages


async def until_read(client: Client, uri: str, changes: Watch, wanted: Callable[[str], bool]) -> None:
    """Read after each notice, as a client that shows the resource does, until it has the wanted text."""
    while True:
        assert (await asyncio.wait_for(anext(changes), MINUTE)).uri == uri
        try:
            if wanted((await client.read_resource(uri)).text):
                return
        except RemoteError:  # a notice about the outage
            continue


async def until_gone(client: Client, uri: str, changes: Watch, reason: str) -> None:
    """Read after each notice, until the read fails for this reason. What it returns before that is never empty."""
    while True:
        await asyncio.wait_for(anext(changes), MINUTE)
        try:
            assert (await client.read_resource(uri)).text
        except RemoteError as error:
            assert reason in str(error)
            return


@pytest.mark.parametrize("above", [False, True])
def test_a_renamed_folder_is_unavailable_with_the_reason_until_it_returns(
    tmp_path: Path, docs: Path, above: bool
) -> None:
    """Also when a folder above it is renamed, which the system does not report."""
    root = tmp_path / "disk" / "charts"
    root.mkdir(parents=True)
    (root / "hull.csv").write_text("port,high\nHull,6.1\n")
    here = root.parent if above else root
    away = here.with_name("away")
    uri = "file:///charts/hull.csv"

    async def test() -> None:
        async with (
            serving(docs, files(root, label="charts")) as client,
            client.watch(uri) as changes,
            client.watch_lists() as lists,
        ):
            assert await missing(client) == []
            here.rename(away)
            await until_gone(client, uri, changes, "The folder 'charts' was moved or removed")
            (message,) = await missing(client)
            assert message.startswith("folder 'file:///charts' has been unavailable for ")
            assert message.endswith("its resources are missing from this list.")
            with pytest.raises(RemoteError, match="was moved or removed"):
                await client.read_resource("file:///charts")
            await asyncio.wait_for(anext(lists), MINUTE)
            away.rename(here)
            await until_read(client, uri, changes, lambda text: "Hull,6.1" in text)
            while await missing(client):
                await asyncio.wait_for(anext(lists), MINUTE)

    asyncio.run(test())


def test_a_stopped_database_is_unavailable_with_the_reason_until_it_returns(docs: Path) -> None:
    folder = tempfile.mkdtemp(prefix="wharfinger-pg-")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        postgres = PostgresServer(folder)
    postgres.run(SHOP)
    source = sql(postgres.url(), label="shop")
    uri = f"{source.uri}/public/orders/rows"

    async def test() -> None:
        nonlocal postgres
        async with serving(docs, source) as client, client.watch(uri) as changes, client.watch_lists() as lists:
            assert await missing(client) == []
            await asyncio.to_thread(postgres.server.cleanup)
            await until_gone(client, uri, changes, "cannot be reached")
            (message,) = await missing(client)
            assert message.startswith("database 'postgres://shop'")
            assert "cannot be reached" in message
            await asyncio.wait_for(anext(lists), MINUTE)
            postgres = await asyncio.to_thread(PostgresServer, folder)
            await until_read(client, uri, changes, lambda text: text.count("\n") == 3)
            while await missing(client):
                await asyncio.wait_for(anext(lists), MINUTE)

    try:
        asyncio.run(test())
    finally:
        postgres.server.cleanup()
        shutil.rmtree(folder, ignore_errors=True)


def test_a_killed_mariadb_is_unavailable_with_the_reason_until_it_returns(docs: Path) -> None:
    mariadb = MariaDBServer()
    source = sql(mariadb.url(mariadb.database(SHOP)), label="shop")
    uri = f"{source.uri}/orders/rows"

    async def test() -> None:
        async with serving(docs, source) as client, client.watch(uri) as changes, client.watch_lists() as lists:
            assert await missing(client) == []
            await asyncio.to_thread(mariadb.kill)
            await until_gone(client, uri, changes, "cannot be reached")
            (message,) = await missing(client)
            assert message.startswith("database 'mysql://shop'")
            assert "cannot be reached" in message
            await asyncio.wait_for(anext(lists), MINUTE)
            await asyncio.to_thread(mariadb.start)
            await until_read(client, uri, changes, lambda text: text.count("\n") == 3)
            while await missing(client):
                await asyncio.wait_for(anext(lists), MINUTE)

    try:
        asyncio.run(test())
    finally:
        mariadb.close()


UPSTREAM = """
import sys
from wharfinger import Server
server = Server("tides")
@server.resource("tides://now")
def now() -> str:
    return "2.4 m"
server.run(http=f"127.0.0.1:{sys.argv[1]}")
"""


def test_a_killed_upstream_is_unavailable_with_the_reason_until_it_returns(tmp_path: Path, docs: Path) -> None:
    script = tmp_path / "tides.py"
    script.write_text(UPSTREAM)
    port = free_port()

    def start() -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, str(script), str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    process = start()
    source = upstream(f"http://127.0.0.1:{port}/mcp", label="tides", allow_private_networks=True)

    async def test() -> None:
        nonlocal process
        async with serving(docs, source) as client, client.watch_lists() as lists:
            await eventually(lambda: is_listed(client, "tides://now"))
            async with client.watch("tides://now") as changes:
                assert (await client.read_resource("tides://now")).text == "2.4 m"
                process.kill()
                process.wait()
                await until_gone(client, "tides://now", changes, "tides cannot be reached")
                (message,) = await missing(client)
                assert message.startswith("server 'tides' has been unavailable for ")
                while (await asyncio.wait_for(anext(lists), MINUTE)).kind != "resources":
                    pass
                process = start()
                await until_read(client, "tides://now", changes, lambda text: text == "2.4 m")
                while await missing(client):
                    await asyncio.wait_for(anext(lists), MINUTE)

    try:
        asyncio.run(test())
    finally:
        process.kill()
        process.wait()


def test_a_silent_upstream_delays_no_other_source_and_is_used_when_it_answers(tmp_path: Path, docs: Path) -> None:
    script = tmp_path / "tides.py"
    script.write_text(UPSTREAM)
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, str(script), str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )

    async def test(proxy: StallingProxy) -> None:
        source = upstream(f"{proxy.url}/mcp", label="tides", allow_private_networks=True)
        source.patience = 1.0
        async with serving(docs, source) as client, client.watch_lists() as lists:  # `initialize` was answered
            await asyncio.to_thread(proxy.wait_until_held)
            held = proxy.holds()
            await eventually(lambda: is_missing(client))
            with pytest.raises(RemoteError):
                await client.read_resource("tides://now")
            assert held & proxy.holds()
            proxy.set("healthy")
            while not await is_listed(client, "tides://now"):
                await asyncio.wait_for(anext(lists), MINUTE)
            assert (await client.read_resource("tides://now")).text == "2.4 m"
            assert await missing(client) == []

    async def is_missing(client: Client) -> bool:
        return any(message.startswith("server 'tides' ") for message in await missing(client))

    try:
        with StallingProxy(f"http://127.0.0.1:{port}") as proxy:
            proxy.set("silent")
            asyncio.run(test(proxy))
    finally:
        process.kill()
        process.wait()


async def is_listed(client: Client, uri: str) -> bool:
    return uri in [each.uri for each in await client.list_resources()]


async def eventually(holds: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(MINUTE):
        while True:
            try:
                if await holds():
                    return
            except WharfingerError:
                pass
            await asyncio.sleep(0.05)


def free_port() -> int:
    import socket

    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


# The start of a server


def test_a_server_starts_without_a_slow_source_and_reads_of_it_wait(docs: Path) -> None:
    class Slow(Source):
        name, uri, patience = "slow", "slow:", 30.0

        def __init__(self) -> None:
            self.go = asyncio.Event()
            self.started = False

        async def start(self) -> None:
            await self.go.wait()
            self.started = True

        def matches(self, uri: str) -> bool:
            return self.started and uri.startswith("slow:")  # as another server, whose URIs are not known yet

        def read(self, uri: str) -> Any:
            from wharfinger import types as t

            return t.ReadResourceResult(contents=[t.ResourceContents(uri=uri, text="here")])

    async def test() -> None:
        slow = Slow()
        async with serving(docs, slow) as client:
            assert not slow.started  # `initialize` was answered
            assert "lit" in (await client.read_resource("file:///docs/harbour.md")).text
            read = asyncio.ensure_future(client.read_resource("slow:1"))
            while not slow.started:
                await asyncio.sleep(0)
                slow.go.set()
            assert (await read).text == "here"

    asyncio.run(test())


def test_a_source_whose_start_fails_is_reported_and_started_again(docs: Path) -> None:
    class Broken(Source):
        name, uri, noun = "broken", "broken:", "instrument"
        starts = 0

        async def start(self) -> None:
            self.starts += 1
            if self.starts == 1:
                await asyncio.sleep(0.5)
                raise OSError("secret")

        def matches(self, uri: str) -> bool:
            return uri.startswith("broken:")

    async def test() -> None:
        broken = Broken()
        async with serving(docs, broken) as client, client.watch_lists() as lists:
            await eventually(lambda: is_named(client))
            while await missing(client):
                await asyncio.wait_for(anext(lists), MINUTE)
            assert broken.starts == 2

    async def is_named(client: Client) -> bool:
        messages = await missing(client)
        assert "secret" not in str(messages)
        return bool(messages) and "instrument 'broken:' has been unavailable" in messages[0]

    asyncio.run(test())
