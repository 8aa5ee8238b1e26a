"""Stores with the same few objects: a bucket of a local S3 server, an archive, and memory."""

from __future__ import annotations

import io
import logging
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import boto3
import fsspec
import pytest
from moto.server import ThreadedMotoServer

from wharfinger.sources.object_store import Objects, objects

CONTENT = {
    "README.md": b"# Charts\n\nSoundings in fathoms.\n",
    "a/b.txt": b"in a directory of the same name\n",
    "a.txt": b"between the two\n",
    "empty": b"",
    "harbours/hull.csv": b"port,high\nHull,6.1\n",
    "harbours/north/buoy.png": b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR",
    "harbours/æøå ?#%.txt": "Smørrebrød\n".encode(),
}


@pytest.fixture(scope="session")
def endpoint() -> Iterator[str]:
    """Start a local S3 server, and yield its URL."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch, endpoint: str) -> str:
    """Set the credentials and the endpoint in the environment, and return the endpoint."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "harbourmaster")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secretfathoms")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    return endpoint


@pytest.fixture
def client(aws: str) -> Any:
    """Return an S3 client, with which tests change a bucket."""
    return boto3.client("s3")


PATIENCE_SECONDS = 60.0
"""On a busy machine the first request of the library takes longer than the patience of a bucket."""


def publish_bucket(uri: str, patience: float = PATIENCE_SECONDS, **options: Any) -> Objects:
    """Return the source of a bucket that answers, however long its first answer takes on a busy machine."""
    source = objects(uri, **options)
    source.patience = patience
    if source.breaker.down:
        source.probe()
        source.breaker.succeeded()
    return source


class Bucket:
    """A new bucket of the S3 server."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self.name = f"charts-{uuid4().hex[:12]}"
        client.create_bucket(Bucket=self.name)

    def put(self, key: str, data: bytes) -> None:
        self.client.put_object(Bucket=self.name, Key=f"prefix/{key}", Body=data)

    def remove(self, key: str) -> None:
        self.client.delete_object(Bucket=self.name, Key=f"prefix/{key}")

    def publish(self, **options: Any) -> Objects:
        return publish_bucket(f"s3://{self.name}/prefix", **options)


class MemoryStore:
    """A new store in memory."""

    def __init__(self) -> None:
        self.fs = fsspec.filesystem("memory")
        self.name = f"charts-{uuid4().hex[:12]}"

    def put(self, key: str, data: bytes) -> None:
        self.fs.pipe_file(f"/{self.name}/prefix/{key}", data)

    def remove(self, key: str) -> None:
        self.fs.rm_file(f"/{self.name}/prefix/{key}")

    def publish(self, **options: Any) -> Objects:
        return objects(f"memory://{self.name}/prefix", **options)


class Archive:
    """A ZIP archive. Each change writes a new archive, which replaces the old one."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.content: dict[str, bytes] = {}

    def put(self, key: str, data: bytes) -> None:
        self.content[key] = data
        self.write()

    def remove(self, key: str) -> None:
        del self.content[key]
        self.write()

    def write(self) -> None:
        new = self.path.with_suffix(".new")
        with zipfile.ZipFile(new, "w", zipfile.ZIP_DEFLATED) as archive:
            for key, data in self.content.items():
                archive.writestr(key, data)
        new.replace(self.path)

    def publish(self, **options: Any) -> Objects:
        return objects(f"zip:{self.path}", **options)


class TarArchive(Archive):
    """A compressed tar archive. Each change writes a new archive, which replaces the old one."""

    def write(self) -> None:
        new = self.path.with_suffix(".new")
        with tarfile.open(new, "w:gz") as archive:
            for key, data in self.content.items():
                member = tarfile.TarInfo(key)
                member.size = len(data)
                archive.addfile(member, io.BytesIO(data))
        new.replace(self.path)

    def publish(self, **options: Any) -> Objects:
        return objects(f"tar:{self.path}", **options)


WritableStore = Bucket | MemoryStore | Archive


@pytest.fixture(params=["s3", "memory", "zip"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> WritableStore:
    """Return each kind of store in turn, with `CONTENT`."""
    factories: dict[str, Callable[[], WritableStore]] = {
        "s3": lambda: Bucket(request.getfixturevalue("client")),
        "memory": MemoryStore,
        "zip": lambda: Archive(tmp_path / "charts.zip"),
    }
    created = factories[request.param]()
    for key, data in CONTENT.items():
        created.put(key, data)
    return created


@pytest.fixture
def source(store: WritableStore) -> Iterator[Objects]:
    published = store.publish()
    yield published
    published._watches.close()
    published.store.close()
