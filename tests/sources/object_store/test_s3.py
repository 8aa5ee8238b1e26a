"""Behaviour of S3 buckets only: keys, credentials, versions, outages, and many objects."""

from __future__ import annotations

import asyncio
import gc
import logging
import socket
import time
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest

from tests.conftest import free_port
from tests.sources.object_store.bucket_server import BucketServer
from tests.sources.object_store.conftest import Bucket, publish_bucket
from wharfinger import Client, Server
from wharfinger.errors import ResourceNotFound
from wharfinger.server.document_search import search_documents
from wharfinger.source import SourceUnavailable, UnusableSource
from wharfinger.sources.object_store import Objects, StoreFailed, objects
from wharfinger.sources.object_store.s3 import S3Store


@pytest.fixture
def bucket(client: Any) -> Bucket:
    return Bucket(client)


def put_raw(bucket: Bucket, *keys: str) -> None:
    for key in keys:
        bucket.client.put_object(Bucket=bucket.name, Key=key, Body=b"raw")


def test_nothing_outside_the_prefix_is_served(bucket: Bucket) -> None:
    put_raw(bucket, "prefix/in.txt", "prefix2/out.txt", "prefix.txt", "out.txt", "prefix/../up.txt", "prefix")
    source = bucket.publish()
    assert [r.uri for r in source.page(None, 100)[0]] == [source.uri, source.uri + "in.txt"]
    for path in ("../out.txt", "%2E%2E/out.txt", "..", "../up.txt", "%2e%2e/prefix2/out.txt"):
        with pytest.raises(ResourceNotFound):
            source.read(source.uri + path)
    for uri in (f"s3://{bucket.name}/out.txt", f"s3://{bucket.name}/prefix2/out.txt", "s3://other/prefix/in.txt"):
        assert not source.matches(uri)
        with pytest.raises(ResourceNotFound):
            source.read(uri)


def test_unsafe_keys_are_omitted_and_directory_markers_are_directories(aws: str) -> None:
    keys = ["", "../up", "a//b", "./c", "d/../e", "/f", "g/", "h/i", "ü\n\t", "j\\k"]
    with BucketServer({f"prefix/{key}": b"raw" for key in keys}) as server:
        source = publish_bucket("s3://charts/prefix", endpoint_url=server.url)
        found = [r.uri[len(source.uri) :] for r in source.page(None, 100)[0]]
        assert found == ["", "a/", "d/", "g/", "h/", "h/i", "j%5Ck", "%C3%BC%0A%09"]
        children = source.children(source.uri)[0]
        assert [r.uri[len(source.uri) :] for r in children] == ["a/", "d/", "g/", "h/", "j%5Ck", "%C3%BC%0A%09"]
        assert source.read(source.uri + "g/").contents[0].text
        assert source.read(source.uri + "%C3%BC%0A%09").contents[0].text == "raw"
        for path in ("../up", "%2e%2e/up", "a//b", "./c", "d/../e", "/f"):
            with pytest.raises(ResourceNotFound):
                source.read(source.uri + path)
        source.store.close()


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_the_marker_of_the_prefix_is_no_entry_of_a_page(aws: str, limit: int) -> None:
    """A bug: a list in pages of one resource did not end. The console of AWS writes such markers."""
    with BucketServer({f"prefix/{key}": b"raw" for key in ("", "a", "b/", "b/c")}) as server:
        source = publish_bucket("s3://charts/prefix", endpoint_url=server.url)
        found: list[str] = []
        after = None
        for _ in range(10):
            resources, after = source.page(after, limit)
            assert len(resources) <= limit
            found += [resource.uri[len(source.uri) :] for resource in resources]
            if after is None:
                break
        assert found == ["", "a", "b/", "b/c"]
        assert len(source.children(source.uri, None, limit)[0]) == min(limit, 2)
        assert [document.title for document in source.documents(None, 1)[0]] == ["a"]


def test_paging_continues_after_many_omitted_keys(bucket: Bucket) -> None:
    put_raw(bucket, *(f"prefix/a//{number:02}" for number in range(30)), "prefix/b")
    source = bucket.publish()
    found, after = source.page(None, 3)
    while after is not None:
        more, after = source.page(after, 3)
        found += more
    assert [r.uri[len(source.uri) :] for r in found] == ["", "a/", "b"]


def test_a_read_never_mixes_two_versions_of_an_object(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    bucket.put("log.txt", b"a" * 400_000)
    source = bucket.publish()
    original, offsets = S3Store.range, []

    def range_(store: S3Store, info: Any, offset: int, length: int) -> bytes:
        offsets.append(offset)
        if len(offsets) == 2:
            bucket.put("log.txt", b"b" * 400_000)  # between the first and the second range request
        return original(store, info, offset, length)

    monkeypatch.setattr(S3Store, "range", range_)
    content = source.read(source.uri + "log.txt").contents[0]
    assert set(str(content.text)) in ({"a"}, {"b"})
    assert len(str(content.text)) == 400_000
    content = source.read(source.uri + "log.txt?bytes=0-399999").contents[0]
    assert content.text == "b" * 400_000


def test_a_read_of_a_window_downloads_only_that_window(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    bucket.put("large.txt", b"0123456789abcde\n" * (8 << 16))
    source = bucket.publish()
    original, lengths = S3Store.range, []

    def range_(store: S3Store, info: Any, offset: int, length: int) -> bytes:
        lengths.append(length)
        return original(store, info, offset, length)

    monkeypatch.setattr(S3Store, "range", range_)
    assert source.read(source.uri + "large.txt?bytes=4194304-4194319").contents[0].text == "0123456789abcde\n"
    assert sum(lengths) < 1 << 20


def test_credentials_are_never_shown(bucket: Bucket, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "wharfinger")
    put_raw(bucket, "prefix/in.txt")
    source = bucket.publish(key="harbourmaster", secret="secretfathoms")
    texts = [source.location, source.uri, source.name, source.describe(), repr(source), str(source.templates)]
    texts += [str(source.read(source.uri)), str(source.page(None, 10)), caplog.text]
    assert not any("secretfathoms" in text or "harbourmaster" in text for text in texts)
    with pytest.raises(UnusableSource) as caught:
        objects(f"s3://harbourmaster:secretfathoms@{bucket.name}/prefix")
    assert "secretfathoms" not in str(caught.value)
    assert "AWS_PROFILE" in str(caught.value)


def test_a_missing_bucket_is_refused(bucket: Bucket) -> None:
    bucket.publish()  # moto's first answer takes seconds, longer than `objects()` waits
    with pytest.raises(UnusableSource, match=r"There is no bucket no-such-bucket at http://127"):
        objects("s3://no-such-bucket/x")


def test_an_error_names_the_store_that_is_down_and_calls_succeed_after_it_starts(aws: str) -> None:
    port = free_port()
    began = time.monotonic()
    source = objects("s3://charts/prefix", endpoint_url=f"http://127.0.0.1:{port}")
    for call in (
        lambda: source.page(None, 10),
        lambda: source.read(source.uri + "a"),
        lambda: search_documents(source, "a", 1),
    ):
        with pytest.raises(
            (StoreFailed, SourceUnavailable),
            match=rf"http://127\.0\.0\.1:{port} (does not answer|cannot be called)|has not answered",
        ):
            call()
    assert time.monotonic() - began < 30
    with BucketServer({"prefix/a": b"back"}, port):
        assert source.read(source.uri + "a").contents[0].text == "back"
        assert len(source.page(None, 10)[0]) == 2
    source.store.close()


def test_a_request_to_a_store_that_never_answers_times_out(aws: str) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        began = time.monotonic()
        source = objects("s3://charts", endpoint_url=url, config_kwargs={"read_timeout": 0.3})
        with pytest.raises(StoreFailed, match="does not answer"):
            source.page(None, 10)
        assert time.monotonic() - began < 20
        source.store.close()


def test_a_source_is_used_by_two_servers_in_turn_and_without_a_server(
    aws: str, caplog: pytest.LogCaptureFixture
) -> None:
    with BucketServer({"prefix/a": b"here"}) as store:
        source = publish_bucket("s3://charts/prefix", endpoint_url=store.url)

        async def serve() -> None:
            server = Server("charts")
            server.include(source)
            async with Client(server) as client:
                assert (await client.read_resource(source.uri + "a")).contents[0].text == "here"

        for _ in range(2):
            asyncio.run(serve())
            gc.collect()
        assert source.read(source.uri + "a").contents[0].text == "here"
        source.store.close()
        gc.collect()
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.fixture
def large_bucket(aws: str) -> Iterator[Objects]:
    keys = {f"prefix/d{number % 50:02}/k{number:06}.txt": b"x" for number in range(50_000)}
    with BucketServer(keys) as server:
        source = publish_bucket("s3://charts/prefix", endpoint_url=server.url)
        yield source
        source.store.close()


def test_pages_of_fifty_thousand_objects_take_little_time_and_memory(large_bucket: Objects) -> None:
    large_bucket.page(None, 100)
    tracemalloc.start()
    durations = []
    after, count = None, 0
    for _ in range(40):
        began = time.perf_counter()
        found, after = large_bucket.page(after, 100)
        durations.append(time.perf_counter() - began)
        count += len(found)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == 4_000
    assert sorted(durations)[20] < 5  # tracemalloc slows it down
    assert peak < 16 << 20
    assert len(large_bucket.children(large_bucket.uri + "d07/", None, 1_000)[0]) == 1_000
    assert len(large_bucket.children(large_bucket.uri, None, 1_000)[0]) == 50


def test_the_first_page_of_fifty_thousand_objects_is_quick(large_bucket: Objects) -> None:
    large_bucket.page(None, 100)
    durations = []
    for _ in range(5):
        began = time.perf_counter()
        large_bucket.page(None, 100)
        durations.append(time.perf_counter() - began)
    assert min(durations) < 2.0  # benchmarks/scale measures the time
