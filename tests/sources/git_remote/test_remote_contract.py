"""A clone keeps the contract of a source and the rules of a policy, also through the command line."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tests.cli.commands.test_serve import address
from tests.sources.git_remote.conftest import clone, complete, serving, text, until
from tests.sources.git_remote.git_host import TOKEN, GitHost
from tests.sources.git_repository.conftest import Work
from wharfinger import Client
from wharfinger.errors import RemoteError, ResourceNotFound
from wharfinger.source import Source
from wharfinger.sources.git_remote import mirror
from wharfinger.sources.git_remote.remote_source import RemoteGitSource
from wharfinger.testing.contract import SourceContract

pytestmark = pytest.mark.usefixtures("cache")

HULL = "git://harbour/tree/HEAD/hull.txt"
Permit = Callable[..., AbstractContextManager[None]]


class TestRemoteGit(SourceContract):
    missing = "git://harbour/tree/main/none"
    windowed = "git://harbour/tree/main/large.txt"

    @pytest.fixture
    def source(self, host: GitHost, history: Work, cache: Path) -> RemoteGitSource:
        history.commit("Measure depths", large__txt="".join(f"{number} fathoms\n" for number in range(40_000)))
        self.work = history
        self.number = 0
        return clone(host.add(history, partial=False), max_size=300_000)

    def change(self, source: Source) -> str | None:
        self.number += 1
        self.work.commit(f"Deepen {self.number}", hull__txt=f"{self.number} fathoms\n")
        self.work.git("push", "-q", "origin", "main")
        return "git://harbour/tree/main/hull.txt"

    def add(self, source: Source) -> str | None:
        self.number += 1
        self.work.write(f"new/berth{self.number}.txt", "here\n")
        self.work.commit(f"Add a berth {self.number}")
        self.work.git("push", "-q", "origin", "main")
        return f"git://harbour/tree/HEAD/new/berth{self.number}.txt"


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_policy_holds_for_a_clone(host: GitHost, history: Work, permit: Permit, anyio_backend: str) -> None:
    source = clone(host.add(history))
    await source.start()
    try:
        await complete(source)
        with permit("git://harbour/**", deny=["git://harbour/tree/*/docs/**"]):
            listed = [resource.uri for resource in (await source.page(None, 1_000))[0]]
            assert HULL in listed and not any("docs" in uri for uri in listed)
            for uri in ("git://harbour/tree/HEAD/docs/tides.md", "git://harbour/tree/v2/docs"):
                with pytest.raises(ResourceNotFound):
                    await source.read(uri)
            assert "tides" not in str(await source.read("git://harbour/log/HEAD"))
            assert not any("tides" in each.uri for each in (await source.documents(None, 1_000))[0])
        assert await source.read("git://harbour/tree/HEAD/docs/tides.md")
    finally:
        await source.close()


# Old contents


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_clone_is_used_before_old_contents_arrive(
    host: GitHost, history: Work, monkeypatch: pytest.MonkeyPatch, anyio_backend: str
) -> None:
    """Until then a read of them says so, and never shows less than there is."""
    go = asyncio.Event()
    fetch = mirror.Mirror._fetch_history

    async def wait(self: mirror.Mirror, lock: int) -> None:
        await go.wait()
        await fetch(self, lock)

    monkeypatch.setattr(mirror.Mirror, "_fetch_history", wait)
    source = clone(host.add(history))
    old = ["tree/v1/old.txt", "diff/v1..HEAD", "blame/v1/old.txt", "grep/v1?text=old", "log/HEAD?pickaxe=old"]
    async with serving(source) as client:
        assert await text(client, HULL) == "five\nfathoms\n"
        assert "High at six" in await text(client, "git://harbour/grep/HEAD?text=high")
        assert "Begin" in await text(client, "git://harbour/log/HEAD")
        assert "of old revisions still to be fetched" in source.describe()
        for path in old:
            with pytest.raises(RemoteError, match="still being fetched from http"):
                await text(client, f"git://harbour/{path}")
        with pytest.raises(RemoteError, match="not found"):
            await text(client, "git://harbour/tree/HEAD/none")
        go.set()
        await complete(source)
        for path in old:
            assert "old" in await text(client, f"git://harbour/{path}")


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_old_contents_beyond_the_bound_stay_missing(
    host: GitHost, work: Work, caplog: pytest.LogCaptureFixture, anyio_backend: str
) -> None:
    work.commit("Begin", old__bin=os.urandom(2_000_000), hull__txt="four\n")
    (work.path / "old.bin").unlink()
    work.commit("Without it", hull__txt="five\n")
    url = host.add(work)
    source = clone(url, max_clone_size=1_000_000)
    async with serving(source) as client:
        await until(lambda: source.mirror.state.cut)
        assert await text(client, HULL) == "five\n"
        with pytest.raises(RemoteError, match=r"would be larger than 977 KiB .* raise max_clone_size"):
            await text(client, "git://harbour/tree/HEAD~1/old.bin")
        assert "exceed the bound" in source.describe() and "old revisions are left out" in caplog.text
        assert source.mirror.folder.size() <= 1_000_000
        work.commit("More", hull__txt="six\n")
        work.git("push", "-q", "origin", "main")
        async with asyncio.timeout(50):
            while await text(client, HULL) != "six\n":
                await asyncio.sleep(0.05)
    source = clone(url)  # with a larger bound, they are fetched
    async with serving(source) as client:
        await until(lambda: not source.mirror.state.cut and not source.mirror.state.missing)
        assert (await client.read_resource("git://harbour/tree/HEAD~2/old.bin")).contents


# The command line


def test_serve_publishes_a_clone_and_a_push_is_noticed(host: GitHost, history: Work, cache: Path) -> None:
    host.add(history)
    url = f"{host.origin}/private/harbour.git"
    command = [sys.executable, "-m", "wharfinger", "serve", "--every", "1", "--max-clone-size", "100MiB"]
    environment = {**os.environ, "WHARFINGER_GIT_TOKEN": TOKEN}
    process = subprocess.Popen(
        [*command, "--http", "127.0.0.1:0", f"git:{url}"],
        env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip

    async def over_http() -> None:
        async with Client(served, cache=False) as client:
            await noticed(client)

    async def over_stdio(revision: str) -> None:
        target = [*command, "--stdio", f"git:{url}"]
        async with Client(target, revision=revision, env=environment, cache=False) as client:
            await noticed(client)

    async def noticed(client: Client) -> None:
        assert "git://harbour/tree/HEAD/docs/tides.md" in [each.uri async for each in client.list_resources()]
        async with client.watch(HULL) as changes:
            await asyncio.to_thread(history.commit, "Deepen", hull__txt=f"{time.monotonic()}\n")
            await asyncio.to_thread(history.git, "push", "-q", "origin", "main")
            await asyncio.wait_for(anext(changes), 50)
        assert await text(client, HULL) == (history.path / "hull.txt").read_text()
        found = (await client.call_tool("search", {"query": "tides"})).data
        assert found["results"][0]["id"] == "git://harbour/tree/HEAD/docs/tides.md"

    try:
        served = address(process)
        asyncio.run(asyncio.wait_for(over_http(), 55))
        for revision in ("2025-11-25", "2026-07-28"):
            asyncio.run(asyncio.wait_for(over_stdio(revision), 55))
    finally:
        process.terminate()
        said, _ = process.communicate(timeout=20)
    assert TOKEN not in said
    assert re.search(r"WHARFINGER_GIT_TOKEN", said) or "add --env" not in said


def test_ctrl_c_ends_a_server_that_clones(cache: Path) -> None:
    import signal
    import socket

    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/harbour.git"
        process = subprocess.Popen(
            [sys.executable, "-m", "wharfinger", "serve", "--http", "127.0.0.1:0", f"git:{url}"],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
        )  # fmt: skip
        silent.settimeout(50)
        connection, _ = silent.accept()
        began = time.monotonic()
        os.kill(process.pid, signal.SIGINT)
        said, _ = process.communicate(timeout=20)
        assert time.monotonic() - began < 10
        assert "Traceback" not in said
        connection.settimeout(20)
        while connection.recv(65_536):  # until the client's end is closed, since git was ended too
            pass
        connection.close()


def test_doctor_reports_a_clone_that_is_not_renewed_and_one_that_is_missing(host: GitHost, history: Work) -> None:
    url = host.add(history)

    async def fill() -> None:
        source = clone(url)
        async with serving(source):
            await complete(source)

    async def wait_for(served: str, top: str, problem: str) -> None:
        async with Client(served, cache=False) as client, asyncio.timeout(50):
            while True:
                try:
                    found = await text(client, top)
                except RemoteError as error:
                    found = str(error)
                if problem in found:
                    return
                await asyncio.sleep(0.1)

    asyncio.run(fill())
    host.stop()
    command = [sys.executable, "-m", "wharfinger"]
    for word, top, problem in (
        (f"git:{url}", "git://harbour", "could not be fetched since"),
        (f"a=git:{url}x", "git://a", "could not be cloned"),
    ):
        process = subprocess.Popen(
            [*command, "serve", "--http", "127.0.0.1:0", word],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        try:
            served = address(process)
            asyncio.run(wait_for(served, top, problem))
            ran = subprocess.run([*command, "doctor", served], capture_output=True, text=True, timeout=55, check=False)
        finally:
            process.terminate()
            process.communicate(timeout=20)
        assert f"Data is missing or could not be renewed: {top}" in ran.stdout
        assert problem in ran.stdout and "does not answer" in ran.stdout
