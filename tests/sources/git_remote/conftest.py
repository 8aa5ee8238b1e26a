"""A git host, a history that is pushed to it, and the cache of the clones."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.conftest import absent
from tests.sources.git_remote.git_host import GitHost
from tests.sources.git_repository.conftest import GitRepository
from tests.waiting import wait_until_async
from wharfinger import Client, Server
from wharfinger.source import Source
from wharfinger.sources.git_remote import remote_address
from wharfinger.sources.git_remote.remote_source import RemoteGitSource
from wharfinger.sources.git_repository import git

TIMEOUT_SECONDS = 50.0  # long enough for a busy machine

if sys.platform == "win32":
    collect_ignore_glob = ["test_*"]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the cache folder of the user. The environment has no tokens."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    for name in ("WHARFINGER_GIT_TOKEN", "WHARFINGER_GIT_USERNAME", "GIT_SSL_CAINFO"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(remote_address, "_token_hosts", {})
    return folder


@pytest.fixture
def work(tmp_path: Path) -> GitRepository:
    """Return an empty repository, which tests push to the host."""
    return GitRepository(tmp_path / "work").init()


@pytest.fixture
def history(work: GitRepository) -> GitRepository:
    """Return a repository with commits, branches and tags. Only an old revision has `old.txt`."""
    work.commit("Begin", README__md="# Harbour\n", hull__txt="four\nfathoms\n", old__txt="old contents\n")
    work.git("tag", "v1")
    (work.path / "old.txt").unlink()
    work.write("docs/tides.md", "# Tides\n\nHigh at six.\n")
    work.commit("Tell of tides")
    work.git("tag", "-a", "v2", "-m", "The second release")
    work.git("branch", "feature/lights")
    work.commit("Add a buoy", hull__txt="five\nfathoms\n")
    return work


@pytest.fixture
def host(tmp_path: Path) -> Iterator[GitHost]:
    host = GitHost(tmp_path / "host")
    yield host
    host.close()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return the paths of a self-signed certificate for localhost and of its key."""
    if not shutil.which("openssl"):
        absent("openssl (on Debian: apt-get install openssl)")
    folder = tmp_path_factory.mktemp("tls")
    certificate, key = folder / "host.pem", folder / "host.key"
    subprocess.run(
        "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext subjectAltName=DNS:localhost "
        f"-keyout {key} -out {certificate}".split(),
        check=True, capture_output=True,
    )  # fmt: skip
    return certificate, key


def clone(url: str, **options: object) -> RemoteGitSource:
    """Return the source of a remote repository, which it fetches every second."""
    source = git(url, **{"every": 1.0, **options})  # type: ignore[arg-type]
    assert isinstance(source, RemoteGitSource)
    return source


@asynccontextmanager
async def serving(*sources: Source) -> AsyncGenerator[Client]:
    """Yield a client of a server with these sources."""
    server = Server("harbour")
    for source in sources:
        server.include(source)
    async with Client(server, cache=False, timeout=TIMEOUT_SECONDS) as client:
        yield client


async def wait_until_complete(source: RemoteGitSource) -> None:
    """Wait until the clone has all objects of its repository."""
    await wait_until_async(lambda: source.mirror.cloned and not source.mirror.state.missing, "the clone is complete")


async def wait_for_text(client: Client, uri: str, expected: str) -> None:
    """Read a resource until it has this text."""

    async def has_text() -> bool:
        return await read_text(client, uri) == expected

    await wait_until_async(has_text, f"{uri} has the text {expected!r}")


async def read_text(client: Client, uri: str) -> str:
    """Return the text of the first content of a resource."""
    return str((await client.read_resource(uri)).contents[0].text)
