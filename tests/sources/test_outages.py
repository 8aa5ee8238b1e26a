"""A folder, a database and an upstream that disappear and return, beside a healthy folder.

Their watchers are notified of both. During the outage, lists and searches report the source as unavailable, and reads
fail at once with the reason. No list or read returns an empty result instead.
"""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec import UNSET

from tests.conftest import free_port
from tests.sources.sql_database.conftest import SHOP, PostgresServer
from tests.sources.sql_database.mariadb_server import MariaDBServer
from tests.sources.stalling_proxy import StallingProxy
from tests.waiting import wait_until_async
from wharfinger import Client, Server
from wharfinger import types as t
from wharfinger.client.subscriptions import Watch
from wharfinger.errors import RemoteError, WharfingerError
from wharfinger.server.source_calls import MISSING_META_KEY
from wharfinger.source import Source
from wharfinger.sources import files, resource_tools, sql, upstream

TIMEOUT_SECONDS = 60


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "harbour.md").write_text("# Harbour\n\nThe lantern is lit.\n")
    return folder


def connect(docs: Path, *sources: Source) -> Client:
    server = Server("all")
    server.include(files(docs, label="docs"))
    for source in sources:
        server.include(source)
    server.include(resource_tools())
    return Client(server, cache=False)


async def unavailable_messages(client: Client) -> list[str]:
    """Return the messages of the list about unavailable sources, and check that the healthy folder is available."""
    page = await client.request("resources/list")
    assert "file:///docs/harbour.md" in [each.uri for each in page.resources]
    found = (await client.call_tool("search", {"query": "lantern"})).data
    assert "file:///docs/harbour.md" in [hit["id"] for hit in found["results"]]
    assert "lit" in (await client.read_resource("file:///docs/harbour.md")).text
    unavailable: list[dict[str, str]] = [] if page.meta is UNSET else page.meta.get(MISSING_META_KEY, [])
    messages = [each["message"] for each in unavailable]
    if messages:
        assert "Not searched" in found["note"]
    return messages


async def wait_until_readable(client: Client, uri: str, changes: Watch, condition: Callable[[str], bool]) -> None:
    """Read after each notification, like a client that shows the resource, until the text meets the condition."""
    while True:
        assert (await asyncio.wait_for(anext(changes), TIMEOUT_SECONDS)).uri == uri
        try:
            if condition((await client.read_resource(uri)).text):
                return
        except RemoteError:  # a notification of the outage
            continue


async def wait_until_unavailable(client: Client, uri: str, changes: Watch, reason: str) -> None:
    """Read after each notification until the read fails for this reason, and check that no earlier read is empty."""
    while True:
        await asyncio.wait_for(anext(changes), TIMEOUT_SECONDS)
        try:
            assert (await client.read_resource(uri)).text
        except RemoteError as error:
            assert reason in str(error)
            return


@pytest.mark.parametrize("rename_parent", [False, True])
def test_a_renamed_folder_is_unavailable_with_the_reason_until_it_returns(
    tmp_path: Path, docs: Path, rename_parent: bool
) -> None:
    """The system reports the renaming of the folder, but not of its parent."""
    root = tmp_path / "disk" / "charts"
    root.mkdir(parents=True)
    (root / "hull.csv").write_text("port,high\nHull,6.1\n")
    renamed = root.parent if rename_parent else root
    new_path = renamed.with_name("away")
    uri = "file:///charts/hull.csv"

    async def test() -> None:
        async with (
            connect(docs, files(root, label="charts")) as client,
            client.watch(uri) as changes,
            client.watch_lists() as lists,
        ):
            assert await unavailable_messages(client) == []
            renamed.rename(new_path)
            await wait_until_unavailable(client, uri, changes, "The folder 'charts' was moved or removed")
            (message,) = await unavailable_messages(client)
            assert message.startswith("folder 'file:///charts' has been unavailable for ")
            assert message.endswith("its resources are missing from this list.")
            with pytest.raises(RemoteError, match="was moved or removed"):
                await client.read_resource("file:///charts")
            await asyncio.wait_for(anext(lists), TIMEOUT_SECONDS)
            new_path.rename(renamed)
            await wait_until_readable(client, uri, changes, lambda text: "Hull,6.1" in text)
            while await unavailable_messages(client):
                await asyncio.wait_for(anext(lists), TIMEOUT_SECONDS)

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
        async with connect(docs, source) as client, client.watch(uri) as changes, client.watch_lists() as lists:
            assert await unavailable_messages(client) == []
            await asyncio.to_thread(postgres.server.cleanup)
            await wait_until_unavailable(client, uri, changes, "cannot be reached")
            (message,) = await unavailable_messages(client)
            assert message.startswith("database 'postgres://shop'")
            assert "cannot be reached" in message
            await asyncio.wait_for(anext(lists), TIMEOUT_SECONDS)
            postgres = await asyncio.to_thread(PostgresServer, folder)
            await wait_until_readable(client, uri, changes, lambda text: text.count("\n") == 3)
            while await unavailable_messages(client):
                await asyncio.wait_for(anext(lists), TIMEOUT_SECONDS)

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
        async with connect(docs, source) as client, client.watch(uri) as changes, client.watch_lists() as lists:
            assert await unavailable_messages(client) == []
            await asyncio.to_thread(mariadb.kill)
            await wait_until_unavailable(client, uri, changes, "cannot be reached")
            (message,) = await unavailable_messages(client)
            assert message.startswith("database 'mysql://shop'")
            assert "cannot be reached" in message
            await asyncio.wait_for(anext(lists), TIMEOUT_SECONDS)
            await asyncio.to_thread(mariadb.start)
            await wait_until_readable(client, uri, changes, lambda text: text.count("\n") == 3)
            while await unavailable_messages(client):
                await asyncio.wait_for(anext(lists), TIMEOUT_SECONDS)

    try:
        asyncio.run(test())
    finally:
        mariadb.close()


UPSTREAM_SCRIPT = """
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
    script.write_text(UPSTREAM_SCRIPT)
    port = free_port()

    def start() -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, str(script), str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    process = start()
    source = upstream(f"http://127.0.0.1:{port}/mcp", label="tides", allow_private_networks=True)

    async def test() -> None:
        nonlocal process
        async with connect(docs, source) as client, client.watch_lists() as lists:
            await wait_until_async(
                lambda: is_listed(client, "tides://now"), "the upstream is listed", ignore=WharfingerError
            )
            async with client.watch("tides://now") as changes:
                assert (await client.read_resource("tides://now")).text == "2.4 m"
                process.kill()
                process.wait()
                await wait_until_unavailable(client, "tides://now", changes, "tides cannot be reached")
                (message,) = await unavailable_messages(client)
                assert message.startswith("server 'tides' has been unavailable for ")
                while (await asyncio.wait_for(anext(lists), TIMEOUT_SECONDS)).kind != "resources":
                    pass
                process = start()
                await wait_until_readable(client, "tides://now", changes, lambda text: text == "2.4 m")
                while await unavailable_messages(client):
                    await asyncio.wait_for(anext(lists), TIMEOUT_SECONDS)

    try:
        asyncio.run(test())
    finally:
        process.kill()
        process.wait()


def test_a_silent_upstream_does_not_delay_other_sources_and_is_listed_once_it_answers(
    tmp_path: Path, docs: Path
) -> None:
    script = tmp_path / "tides.py"
    script.write_text(UPSTREAM_SCRIPT)
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, str(script), str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )

    async def test(proxy: StallingProxy) -> None:
        source = upstream(f"{proxy.url}/mcp", label="tides", allow_private_networks=True)
        source.patience = 1.0
        async with connect(docs, source) as client, client.watch_lists() as lists:  # `initialize` was answered
            await asyncio.to_thread(proxy.wait_until_held)
            held_requests = proxy.holds()
            await wait_until_async(lambda: is_unavailable(client), "it is unavailable", ignore=WharfingerError)
            with pytest.raises(RemoteError):
                await client.read_resource("tides://now")
            assert held_requests & proxy.holds()
            source.patience = 30.0
            proxy.set("healthy")
            while not await is_listed(client, "tides://now"):
                await asyncio.wait_for(anext(lists), TIMEOUT_SECONDS)
            assert (await client.read_resource("tides://now")).text == "2.4 m"
            assert await unavailable_messages(client) == []

    async def is_unavailable(client: Client) -> bool:
        return any(message.startswith("server 'tides' ") for message in await unavailable_messages(client))

    try:
        with StallingProxy(f"http://127.0.0.1:{port}") as proxy:
            proxy.set("silent")
            asyncio.run(test(proxy))
    finally:
        process.kill()
        process.wait()


async def is_listed(client: Client, uri: str) -> bool:
    return uri in [each.uri for each in await client.list_resources()]


# The start of a server


def test_a_server_starts_before_a_slow_source_and_reads_of_the_source_wait(docs: Path) -> None:
    class SlowSource(Source):
        name, uri, patience = "slow", "slow:", 30.0

        def __init__(self) -> None:
            self.start_allowed = asyncio.Event()
            self.started = False

        async def start(self) -> None:
            await self.start_allowed.wait()
            self.started = True

        def matches(self, uri: str) -> bool:
            return self.started and uri.startswith("slow:")  # the URIs of an upstream are unknown before its start

        def read(self, uri: str) -> Any:
            return t.ReadResourceResult(contents=[t.ResourceContents(uri=uri, text="here")])

    async def test() -> None:
        slow = SlowSource()
        async with connect(docs, slow) as client:
            assert not slow.started  # `initialize` was answered
            assert "lit" in (await client.read_resource("file:///docs/harbour.md")).text
            read = asyncio.ensure_future(client.read_resource("slow:1"))
            while not slow.started:
                await asyncio.sleep(0)
                slow.start_allowed.set()
            assert (await read).text == "here"

    asyncio.run(test())


def test_a_source_whose_start_fails_is_reported_and_started_again(docs: Path) -> None:
    class BrokenSource(Source):
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
        broken = BrokenSource()
        async with connect(docs, broken) as client, client.watch_lists() as lists:
            await wait_until_async(lambda: is_reported(client), "the failure is reported", ignore=WharfingerError)
            while await unavailable_messages(client):
                await asyncio.wait_for(anext(lists), TIMEOUT_SECONDS)
            assert broken.starts == 2

    async def is_reported(client: Client) -> bool:
        messages = await unavailable_messages(client)
        assert "secret" not in str(messages)
        return bool(messages) and "instrument 'broken:' has been unavailable" in messages[0]

    asyncio.run(test())
