"""A bucket that is silent, slow, dead or deleted does not affect a healthy folder of the same server.

These tests measure no durations. An answer did not wait for the bucket if the bucket still holds the request that
it received before.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.sources.object_store.bucket_server import BucketServer
from tests.sources.object_store.conftest import Bucket, publish_bucket
from tests.sources.stalling_proxy import StallingProxy
from tests.waiting import wait_until, wait_until_async
from wharfinger import Client, Server
from wharfinger.errors import RemoteError
from wharfinger.sources import files, resource_tools, search_index
from wharfinger.sources.object_store import Objects, objects
from wharfinger.testing.source_suite.driver import ChangeRecorder

PATIENCE_SECONDS = 1.0


@pytest.fixture
def proxy(endpoint: str) -> Iterator[StallingProxy]:
    with StallingProxy(endpoint, delay=2.5 * PATIENCE_SECONDS) as started:
        yield started


@pytest.fixture
def bucket(client: Any) -> Bucket:
    created = Bucket(client)
    created.put("a.txt", b"high tide")
    return created


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    (tmp_path / "harbour.md").write_text("# Harbour\n\nThe lantern is lit.\n")
    return tmp_path


def proxied_source(bucket: Bucket, proxy: StallingProxy) -> Objects:
    return publish_bucket(f"s3://{bucket.name}/prefix", PATIENCE_SECONDS, endpoint_url=proxy.url)


def list_ignoring_errors(source: Objects) -> None:
    with suppress(Exception):
        source.page(None, 10)


@asynccontextmanager
async def client_of(source: Objects, docs: Path) -> AsyncGenerator[Client]:
    server = Server("all")
    server.include(files(docs, label="docs"))
    server.include(source)
    server.include(resource_tools())
    async with Client(server, cache=False) as client:
        yield client


async def check_the_folder_is_served(client: Client) -> str:
    """List, search and read the folder. Return what the list reports as missing."""
    result: dict[str, Any] = (await client.call_tool("list_resources")).data
    uris = [resource["uri"] for resource in result["resources"]]
    assert "file:///docs/harbour.md" in uris
    found: dict[str, Any] = (await client.call_tool("search", {"query": "lantern"})).data
    assert [hit["id"] for hit in found["results"]] == ["file:///docs/harbour.md"]
    assert "Not searched: bucket" in found["note"]
    assert "lit" in (await client.read_resource("file:///docs/harbour.md")).text
    return str(result["note"])


def test_a_bucket_that_never_answers_delays_no_other_source(bucket: Bucket, proxy: StallingProxy, docs: Path) -> None:
    proxy.set("silent")
    source = objects(f"s3://{bucket.name}/prefix", endpoint_url=proxy.url)
    source.patience = PATIENCE_SECONDS
    threading.Thread(target=list_ignoring_errors, args=(source,), daemon=True).start()
    proxy.wait_until_held()
    held = proxy.holds()

    async def main() -> None:
        async with client_of(source, docs) as client, client.watch_lists() as changes:
            note = await check_the_folder_is_served(client)
            assert f"bucket 's3://{bucket.name}/prefix'" in note
            assert note.endswith("its resources are missing from this list.")
            with pytest.raises(RemoteError, match="try again later"):
                await client.read_resource(f"s3://{bucket.name}/prefix/a.txt")
            assert held & proxy.holds()  # the bucket had not answered yet
            proxy.set("healthy")
            await asyncio.wait_for(anext(changes), 60)
            assert (await client.read_resource(f"s3://{bucket.name}/prefix/a.txt")).text == "high tide"
            assert "note" not in (await client.call_tool("list_resources")).data

    asyncio.run(main())


def test_pending_reads_of_a_bucket_that_stops_answering_fail_and_watchers_are_notified(
    bucket: Bucket, proxy: StallingProxy, docs: Path
) -> None:
    source, uri = proxied_source(bucket, proxy), f"s3://{bucket.name}/prefix/a.txt"

    async def main() -> None:
        async with (
            client_of(source, docs) as client,
            client.watch(uri) as changes,
            client.watch_lists() as lists,
        ):
            assert (await client.read_resource(uri)).text == "high tide"
            proxy.set("silent")
            reads = [asyncio.ensure_future(client.read_resource(uri)) for _ in range(8)]
            await asyncio.to_thread(proxy.wait_until_held, 8)
            held = proxy.holds()
            for read in reads:
                with pytest.raises(RemoteError, match="has not answered for"):
                    await read
            assert held & proxy.holds()  # the connections are still open
            assert (await anext(changes)).uri == uri
            assert (await anext(lists)).kind == "resources"
            for _ in range(20):  # each fails at once
                with pytest.raises(RemoteError, match="has not answered for"):
                    await client.read_resource(uri)
            assert "has not answered for" in await check_the_folder_is_served(client)
            assert held & proxy.holds()
            proxy.set("healthy")
            await asyncio.wait_for(anext(changes), 60)
            while True:
                try:
                    assert (await client.read_resource(uri)).text == "high tide"
                    break
                except RemoteError:  # the notification was still about the outage
                    await asyncio.wait_for(anext(changes), 60)

    asyncio.run(main())


def test_a_search_of_the_index_does_not_wait_for_a_silent_bucket(
    bucket: Bucket, proxy: StallingProxy, docs: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    bucket.put("b.txt", b"another lantern")
    source = proxied_source(bucket, proxy)
    server = Server("all")
    server.include(files(docs, label="docs"))
    server.include(source)
    server.include(resource_tools())
    index = search_index(tmp_path_factory.mktemp("index"))
    server.include(index)

    async def main() -> None:
        async with Client(server, cache=False) as client:

            async def search_ids() -> set[str]:
                hits = (await client.call_tool("search", {"query": "lantern"})).data["results"]
                return {hit["id"] for hit in hits}

            async def is_indexed() -> bool:
                return not index.pending and len(await search_ids()) >= 2

            await wait_until_async(is_indexed, "both files are found")
            proxy.set("silent")
            search_task = asyncio.ensure_future(search_ids())
            await asyncio.to_thread(proxy.wait_until_held)
            held = proxy.holds()
            assert await search_task == {"file:///docs/harbour.md"}
            await check_the_folder_is_served(client)
            assert held & proxy.holds()

    asyncio.run(main())


def test_a_bucket_that_answers_too_late_is_listed_after_its_answer(
    bucket: Bucket, proxy: StallingProxy, docs: Path
) -> None:
    source = proxied_source(bucket, proxy)

    async def main() -> None:
        async with client_of(source, docs) as client, client.watch_lists() as changes:
            proxy.set("slow")
            result = await client.list_resources()
            assert f"s3://{bucket.name}/prefix/a.txt" not in [resource.uri for resource in result]
            while f"s3://{bucket.name}/prefix/a.txt" not in [
                resource.uri for resource in await client.list_resources()
            ]:
                await asyncio.wait_for(anext(changes), 60)

    asyncio.run(main())


def test_a_dead_bucket_is_reported_with_the_reason_and_recovers(
    bucket: Bucket, proxy: StallingProxy, docs: Path
) -> None:
    source, uri = proxied_source(bucket, proxy), f"s3://{bucket.name}/prefix/a.txt"

    async def main() -> None:
        async with client_of(source, docs) as client, client.watch(uri) as changes:
            proxy.set("dead")
            assert (await asyncio.wait_for(anext(changes), 60)).uri == uri
            with pytest.raises(RemoteError, match=f"{proxy.url} does not answer"):
                await client.read_resource(uri)
            note = await check_the_folder_is_served(client)
            assert f"({proxy.url} does not answer" in note
            proxy.set("healthy")
            while True:
                await asyncio.wait_for(anext(changes), 60)
                try:
                    assert (await client.read_resource(uri)).text == "high tide"
                    break
                except RemoteError:
                    continue

    asyncio.run(main())


def test_a_deleted_bucket_is_reported_as_missing_and_never_as_empty(bucket: Bucket, docs: Path) -> None:
    source, uri = bucket.publish(), f"s3://{bucket.name}/prefix/a.txt"

    async def main() -> None:
        async with client_of(source, docs) as client, client.watch_lists() as lists, client.watch(uri) as changes:
            bucket.remove("a.txt")
            bucket.client.delete_bucket(Bucket=bucket.name)
            await asyncio.wait_for(anext(lists), 60)
            await asyncio.wait_for(anext(changes), 60)
            for missing in (uri, source.uri):
                with pytest.raises(RemoteError, match="it does not exist"):
                    await client.read_resource(missing)
            assert "it does not exist" in await check_the_folder_is_served(client)
            bucket.client.create_bucket(Bucket=bucket.name)
            bucket.put("a.txt", b"low tide")
            while True:
                await asyncio.wait_for(anext(changes), 60)
                try:
                    assert (await client.read_resource(uri)).text == "low tide"
                    break
                except RemoteError:
                    continue

    asyncio.run(main())


# Many objects


class CountingBucket(BucketServer):
    """Records its requests, and delays each list request."""

    def __init__(self, number: int, seconds: float) -> None:
        super().__init__({f"prefix/{index:05}.txt": b"x" for index in range(number)})
        self.seconds = seconds
        self.requests: list[str] = []

    def on_request(self, request: str) -> None:
        self.requests.append(request)
        if request == "list":
            threading.Event().wait(self.seconds)

    def put(self, key: str, data: bytes) -> None:
        self.objects[f"prefix/{key}"] = data
        self.keys = sorted(self.objects)


@pytest.mark.parametrize(("watched", "polled_by"), [(10, "head"), (11, "list")])
def test_more_than_ten_watched_objects_are_polled_by_listing(
    aws: str, recorder: ChangeRecorder, watched: int, polled_by: str
) -> None:
    with CountingBucket(2_500, 0.0) as server:
        source = publish_bucket("s3://charts/prefix", endpoint_url=server.url)
        source._watches.every = 0.05
        uris = [f"{source.uri}{number:05}.txt" for number in range(watched)]
        for uri in uris:
            source.stat(uri)
            source.watch(uri, recorder)
        while server.requests[-30:] != [polled_by] * 30:
            threading.Event().wait(0.01)
        assert recorder.changes == []  # both kinds of request return the same versions
        server.put("00007.txt", b"another")
        recorder.wait_for(uris[7])
        source._watches.close()
        source.store.close()


def test_changes_are_reported_soon_when_listing_takes_long(aws: str, recorder: ChangeRecorder) -> None:
    """A poll takes 1.5 s. Regression: the thread then slept twenty times as long, and reported nothing for 30 s."""
    with CountingBucket(2_500, 0.5) as server:
        source = publish_bucket("s3://charts/prefix", endpoint_url=server.url)
        source.stat(source.uri + "02400.txt")
        source.watch(source.uri + "02400.txt", recorder)
        source.watch(None, recorder)
        lists_before = server.requests.count("list")
        # the sleep after the second poll was long
        wait_until(lambda: server.requests.count("list") >= lists_before + 9, "three polls", seconds=25)
        server.put("02400.txt", b"another")
        server.put("99999.txt", b"new")
        recorder.wait_for(None, source.uri + "02400.txt", seconds=20)
        source._watches.close()
        source.store.close()
