"""The contract of a source, for each kind of store."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.sources.object_store.conftest import CONTENT, Archive, Bucket, Memory, Place, TarArchive
from wharfinger.sources.object_store import Objects
from wharfinger.testing import SourceContract

LARGE = b"".join(b"%015d\n" % number for number in range(3 << 16))


class Objectively(SourceContract):
    """The clauses with a store that a test can change; `place` is kept beside the source."""

    place: Place

    def publish(self, place: Place) -> Objects:
        for key, data in CONTENT.items():
            place.put(key, data)
        place.put("large.txt", LARGE)
        type(self).place = place
        source = place.publish()
        type(self).windowed = source.uri + "large.txt?bytes=0-"
        type(self).missing = source.uri + "none"
        return source

    def change(self, source: Any) -> str:
        self.place.put("README.md", os.urandom(9).hex().encode())
        return str(source.uri + "README.md")

    def add(self, source: Any) -> str:
        name = os.urandom(4).hex()
        self.place.put(f"harbours/{name}", b"new")
        return str(source.uri + "harbours/" + name)

    def whole(self, source: Any) -> str:
        return LARGE.decode()


class TestBucket(Objectively):
    secret = "secretfathoms"

    @pytest.fixture
    def source(self, client: Any) -> Iterator[Objects]:
        yield self.publish(Bucket(client))

    def hide(self, source: Any) -> Callable[[], object]:
        client, bucket = self.place.client, self.place.name  # type: ignore[union-attr]
        for page in client.get_paginator("list_objects_v2").paginate(Bucket=bucket):
            for found in page["Contents"]:
                client.delete_object(Bucket=bucket, Key=found["Key"])
        client.delete_bucket(Bucket=bucket)

        def bring_back() -> None:
            client.create_bucket(Bucket=bucket)
            for key, data in CONTENT.items():
                self.place.put(key, data)

        return bring_back


class TestMemory(Objectively):
    @pytest.fixture
    def source(self) -> Iterator[Objects]:
        place = Memory()
        yield self.publish(place)
        place.fs.rm(f"/{place.name}", recursive=True)


class TestArchive(Objectively):
    @pytest.fixture
    def source(self, tmp_path: Path) -> Iterator[Objects]:
        yield self.publish(Archive(tmp_path / "charts.zip"))

    def hide(self, source: Any) -> Callable[[], object]:
        path = Path(source.store.path)
        away = path.rename(path.with_name("away.zip"))
        return lambda: away.rename(path)


class TestTarArchive(TestArchive):
    @pytest.fixture
    def source(self, tmp_path: Path) -> Iterator[Objects]:
        yield self.publish(TarArchive(tmp_path / "charts.tar.gz"))
