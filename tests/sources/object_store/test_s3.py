"""S3 only: names, credentials, versions, silent stores, and many objects."""

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

from tests.sources.object_store.bucket_server import BucketServer
from tests.sources.object_store.conftest import Bucket
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


def test_odd_names_are_left_out_and_markers_are_directories(aws: str) -> None:
    odd = ["", "../up", "a//b", "./c", "d/../e", "/f", "g/", "h/i", "ü\n\t", "j\\k"]
    with BucketServer({f"prefix/{key}": b"raw" for key in odd}) as server:
        source = objects("s3://charts/prefix", endpoint_url=server.url)
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


def test_a_page_continues_after_many_names_that_are_left_out(bucket: Bucket) -> None:
    put_raw(bucket, *(f"prefix/a//{number:02}" for number in range(30)), "prefix/b")
    source = bucket.publish()
    found, after = source.page(None, 3)
    while after is not None:
        more, after = source.page(after, 3)
        found += more
    assert [r.uri[len(source.uri) :] for r in found] == ["", "a/", "b"]


def test_a_read_is_of_one_version(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    bucket.put("log.txt", b"a" * 400_000)
    source = bucket.publish()
    real, calls = S3Store.range, []

    def range_(store: S3Store, info: Any, offset: int, length: int) -> bytes:
        calls.append(offset)
        if len(calls) == 2:
            bucket.put("log.txt", b"b" * 400_000)  # between the first range and the second
        return real(store, info, offset, length)

    monkeypatch.setattr(S3Store, "range", range_)
    content = source.read(source.uri + "log.txt").contents[0]
    assert set(str(content.text)) in ({"a"}, {"b"})
    assert len(str(content.text)) == 400_000
    content = source.read(source.uri + "log.txt?bytes=0-399999").contents[0]
    assert content.text == "b" * 400_000


def test_only_the_window_is_fetched(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    bucket.put("large.txt", b"0123456789abcde\n" * (8 << 16))
    source = bucket.publish()
    real, fetched = S3Store.range, []

    def range_(store: S3Store, info: Any, offset: int, length: int) -> bytes:
        fetched.append(length)
        return real(store, info, offset, length)

    monkeypatch.setattr(S3Store, "range", range_)
    assert source.read(source.uri + "large.txt?bytes=4194304-4194319").contents[0].text == "0123456789abcde\n"
    assert sum(fetched) < 1 << 20


def test_credentials_are_never_shown(bucket: Bucket, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "wharfinger")
    put_raw(bucket, "prefix/in.txt")
    source = bucket.publish(key="harbourmaster", secret="secretfathoms")
    message = [source.location, source.uri, source.name, source.describe(), repr(source), str(source.templates)]
    message += [str(source.read(source.uri)), str(source.page(None, 10)), caplog.text]
    assert not any("secretfathoms" in text or "harbourmaster" in text for text in message)
    with pytest.raises(UnusableSource) as caught:
        objects(f"s3://harbourmaster:secretfathoms@{bucket.name}/prefix")
    assert "secretfathoms" not in str(caught.value)
    assert "AWS_PROFILE" in str(caught.value)


def test_a_bucket_that_is_not_there_is_refused(bucket: Bucket) -> None:
    bucket.publish()  # the first answer of moto's server takes seconds, and would not be waited for
    with pytest.raises(UnusableSource, match=r"There is no bucket no-such-bucket at http://127"):
        objects("s3://no-such-bucket/x")


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


def test_a_store_that_is_down_is_named_and_used_again_when_it_is_back(aws: str) -> None:
    port = free_port()
    began = time.monotonic()
    source = objects("s3://charts/prefix", endpoint_url=f"http://127.0.0.1:{port}")
    for ask in (
        lambda: source.page(None, 10),
        lambda: source.read(source.uri + "a"),
        lambda: search_documents(source, "a", 1),
    ):
        with pytest.raises(
            (StoreFailed, SourceUnavailable),
            match=rf"http://127\.0\.0\.1:{port} (does not answer|cannot be called)|has not answered",
        ):
            ask()
    assert time.monotonic() - began < 30
    with BucketServer({"prefix/a": b"back"}, port):
        assert source.read(source.uri + "a").contents[0].text == "back"
        assert len(source.page(None, 10)[0]) == 2
    source.store.close()


def test_a_store_that_never_answers_holds_a_thread_for_a_bounded_time(aws: str) -> None:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        began = time.monotonic()
        source = objects("s3://charts", endpoint_url=url, config_kwargs={"read_timeout": 0.3})
        with pytest.raises(StoreFailed, match="does not answer"):
            source.page(None, 10)
        assert time.monotonic() - began < 20
        source.store.close()


def test_a_server_closes_it_on_its_own_loop_and_opens_it_again(aws: str, caplog: pytest.LogCaptureFixture) -> None:
    with BucketServer({"prefix/a": b"here"}) as store:
        source = objects("s3://charts/prefix", endpoint_url=store.url)

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
def many(aws: str) -> Iterator[Objects]:
    keys = {f"prefix/d{number % 50:02}/k{number:06}.txt": b"x" for number in range(50_000)}
    with BucketServer(keys) as server:
        source = objects("s3://charts/prefix", endpoint_url=server.url)
        yield source
        source.store.close()


def test_fifty_thousand_objects_are_listed_in_pages_that_cost_little(many: Objects) -> None:
    many.page(None, 100)
    tracemalloc.start()
    took = []
    after, count = None, 0
    for _ in range(40):
        began = time.perf_counter()
        found, after = many.page(after, 100)
        took.append(time.perf_counter() - began)
        count += len(found)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == 4_000
    assert sorted(took)[20] < 5  # traced, which is slow
    assert peak < 16 << 20
    assert len(many.children(many.uri + "d07/", None, 1_000)[0]) == 1_000
    assert len(many.children(many.uri, None, 1_000)[0]) == 50


def test_the_first_page_of_fifty_thousand_objects_is_quick(many: Objects) -> None:
    many.page(None, 100)
    took = []
    for _ in range(5):
        began = time.perf_counter()
        many.page(None, 100)
        took.append(time.perf_counter() - began)
    assert min(took) < 2.0  # how quick is what benchmarks/scale measures
