"""The contract of a source, for each kind of store."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.sources.object_store.conftest import CONTENT, Archive, Bucket, MemoryStore, TarArchive, WritableStore
from wharfinger.sources.object_store import Objects
from wharfinger.testing import SourceContract

LARGE = b"".join(b"%015d\n" % number for number in range(3 << 16))


class ObjectStoreContract(SourceContract):
    """The contract with a store that a test can change: `publish` keeps it in `store`."""

    store: WritableStore

    def publish(self, store: WritableStore) -> Objects:
        for key, data in CONTENT.items():
            store.put(key, data)
        store.put("large.txt", LARGE)
        type(self).store = store
        source = store.publish()
        type(self).windowed = source.uri + "large.txt?bytes=0-"
        type(self).missing = source.uri + "none"
        return source

    def change(self, source: Any) -> str:
        self.store.put("README.md", os.urandom(9).hex().encode())
        return str(source.uri + "README.md")

    def add(self, source: Any) -> str:
        name = os.urandom(4).hex()
        self.store.put(f"harbours/{name}", b"new")
        return str(source.uri + "harbours/" + name)

    def whole(self, source: Any) -> str:
        return LARGE.decode()


class TestBucket(ObjectStoreContract):
    secret = "secretfathoms"

    @pytest.fixture
    def source(self, client: Any) -> Iterator[Objects]:
        yield self.publish(Bucket(client))

    def hide(self, source: Any) -> Callable[[], object]:
        client, bucket = self.store.client, self.store.name  # type: ignore[union-attr]
        for page in client.get_paginator("list_objects_v2").paginate(Bucket=bucket):
            for entry in page["Contents"]:
                client.delete_object(Bucket=bucket, Key=entry["Key"])
        client.delete_bucket(Bucket=bucket)

        def restore() -> None:
            client.create_bucket(Bucket=bucket)
            for key, data in CONTENT.items():
                self.store.put(key, data)

        return restore


class TestMemory(ObjectStoreContract):
    @pytest.fixture
    def source(self) -> Iterator[Objects]:
        store = MemoryStore()
        yield self.publish(store)
        store.fs.rm(f"/{store.name}", recursive=True)


class TestArchive(ObjectStoreContract):
    @pytest.fixture
    def source(self, tmp_path: Path) -> Iterator[Objects]:
        yield self.publish(Archive(tmp_path / "charts.zip"))

    def hide(self, source: Any) -> Callable[[], object]:
        path = Path(source.store.path)
        moved = path.rename(path.with_name("away.zip"))
        return lambda: moved.rename(path)


class TestTarArchive(TestArchive):
    @pytest.fixture
    def source(self, tmp_path: Path) -> Iterator[Objects]:
        yield self.publish(TarArchive(tmp_path / "charts.tar.gz"))
