"""Repositories elsewhere, and the cache for their clones."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.conftest import absent
from tests.sources.git_remote.git_host import GitHost
from tests.sources.git_repository.conftest import GIT, Work
from wharfinger import Client, Server
from wharfinger.source import Source
from wharfinger.sources.git_remote import remote_address
from wharfinger.sources.git_remote.remote_source import RemoteGitSource
from wharfinger.sources.git_repository import git

TIME = 50.0
"""Seconds until something must have happened, on a busy machine."""

if sys.platform == "win32":
    collect_ignore_glob = ["test_*"]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache of the user, and an environment without tokens."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    for name in ("WHARFINGER_GIT_TOKEN", "WHARFINGER_GIT_USERNAME", "GIT_SSL_CAINFO"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(remote_address, "_token_hosts", {})
    return folder


@pytest.fixture
def work(tmp_path: Path) -> Work:
    """An empty repository, whose owner pushes to the host."""
    if GIT is None:
        absent("git, which these tests make repositories with (apt-get install git)")
    return Work(tmp_path / "work").init()


@pytest.fixture
def history(work: Work) -> Work:
    """Commits, branches and tags. Only an old revision has `old.txt`."""
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
    made = GitHost(tmp_path / "host")
    yield made
    made.close()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate for localhost that signs itself, and its key."""
    if not shutil.which("openssl"):
        absent("openssl (on Debian: apt-get install openssl)")
    folder = tmp_path_factory.mktemp("tls")
    made, key = folder / "host.pem", folder / "host.key"
    subprocess.run(
        "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext subjectAltName=DNS:localhost "
        f"-keyout {key} -out {made}".split(),
        check=True, capture_output=True,
    )  # fmt: skip
    return made, key


def clone(url: str, **options: object) -> RemoteGitSource:
    """The source of a repository elsewhere, which is fetched every second."""
    source = git(url, **{"every": 1.0, **options})  # type: ignore[arg-type]
    assert isinstance(source, RemoteGitSource)
    return source


@asynccontextmanager
async def serving(*sources: Source) -> AsyncGenerator[Client]:
    """A client of a server with these sources."""
    server = Server("harbour")
    for source in sources:
        server.include(source)
    async with Client(server, cache=False, timeout=TIME) as client:
        yield client


async def until(condition: Callable[[], object], what: str = "") -> None:
    """Wait until a condition is true."""
    async with asyncio.timeout(TIME):
        while not condition():
            await asyncio.sleep(0.02)


async def complete(source: RemoteGitSource) -> None:
    """Wait until a source has all of its repository."""
    await until(lambda: source.mirror.cloned and not source.mirror.state.missing)


async def text(client: Client, uri: str) -> str:
    """The text of the first content."""
    return str((await client.read_resource(uri)).contents[0].text)
