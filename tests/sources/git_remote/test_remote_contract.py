"""A clone fulfils the contract of a source and follows policies, also through the command line."""

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
from tests.sources.git_remote.conftest import clone, read_text, serving, wait_for_text, wait_until_complete
from tests.sources.git_remote.git_host import TOKEN, GitHost
from tests.sources.git_repository.conftest import GitRepository
from tests.waiting import wait_until_async
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
    def source(self, host: GitHost, history: GitRepository, cache: Path) -> RemoteGitSource:
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


async def test_a_policy_applies_to_a_clone(host: GitHost, history: GitRepository, permit: Permit) -> None:
    source = clone(host.add(history))
    await source.start()
    try:
        await wait_until_complete(source)
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


async def test_a_clone_is_served_before_old_contents_are_fetched(
    host: GitHost, history: GitRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until then, reads that need old contents fail; they never return partial results."""
    may_fetch = asyncio.Event()
    fetch_history = mirror.Mirror._fetch_history

    async def delayed_fetch(self: mirror.Mirror, lock: int) -> None:
        await may_fetch.wait()
        await fetch_history(self, lock)

    monkeypatch.setattr(mirror.Mirror, "_fetch_history", delayed_fetch)
    source = clone(host.add(history))
    old = ["tree/v1/old.txt", "diff/v1..HEAD", "blame/v1/old.txt", "grep/v1?text=old", "log/HEAD?pickaxe=old"]
    async with serving(source) as client:
        assert await read_text(client, HULL) == "five\nfathoms\n"
        assert "High at six" in await read_text(client, "git://harbour/grep/HEAD?text=high")
        assert "Begin" in await read_text(client, "git://harbour/log/HEAD")
        assert "of old revisions still to be fetched" in source.describe()
        for path in old:
            with pytest.raises(RemoteError, match="still being fetched from http"):
                await read_text(client, f"git://harbour/{path}")
        with pytest.raises(RemoteError, match="not found"):
            await read_text(client, "git://harbour/tree/HEAD/none")
        may_fetch.set()
        await wait_until_complete(source)
        for path in old:
            assert "old" in await read_text(client, f"git://harbour/{path}")


async def test_old_contents_that_exceed_the_size_limit_are_left_out(
    host: GitHost, work: GitRepository, caplog: pytest.LogCaptureFixture
) -> None:
    work.commit("Begin", old__bin=os.urandom(2_000_000), hull__txt="four\n")
    (work.path / "old.bin").unlink()
    work.commit("Without it", hull__txt="five\n")
    url = host.add(work)
    source = clone(url, max_clone_size=1_000_000)
    async with serving(source) as client:
        await wait_until_async(lambda: source.mirror.state.cut, "old revisions are left out")
        assert await read_text(client, HULL) == "five\n"
        with pytest.raises(RemoteError, match=r"would be larger than 977 KiB .* raise max_clone_size"):
            await read_text(client, "git://harbour/tree/HEAD~1/old.bin")
        assert "exceed the bound" in source.describe() and "old revisions are left out" in caplog.text
        assert source.mirror.folder.size() <= 1_000_000
        work.commit("More", hull__txt="six\n")
        work.git("push", "-q", "origin", "main")
        await wait_for_text(client, HULL, "six\n")
    source = clone(url)  # with a larger limit, they are fetched
    async with serving(source) as client:
        await wait_until_async(
            lambda: not source.mirror.state.cut and not source.mirror.state.missing, "old revisions are fetched"
        )
        assert (await client.read_resource("git://harbour/tree/HEAD~2/old.bin")).contents


async def test_a_clone_is_complete_after_the_contents_that_exceed_the_size_limit_are_removed(
    host: GitHost, work: GitRepository
) -> None:
    work.commit("Begin", old__bin=os.urandom(2_000_000), hull__txt="four\n")
    (work.path / "old.bin").unlink()
    work.commit("Without it", hull__txt="five\n")
    source = clone(host.add(work), max_clone_size=1_000_000)
    async with serving(source) as client:
        await wait_until_async(lambda: source.mirror.state.cut, "old revisions are left out")
        work.git("checkout", "-q", "--orphan", "rewritten")
        work.commit("Begin again", hull__txt="six\n")
        work.git("push", "-q", "--force", "origin", "rewritten:main")
        await wait_for_text(client, HULL, "six\n")
        await wait_until_complete(source)
        assert source.mirror.why_incomplete == ""
        assert "exceed the bound" not in source.describe()


# The command line


def test_serve_publishes_a_clone_and_notifies_of_pushes(host: GitHost, history: GitRepository, cache: Path) -> None:
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
            await check_push(client)

    async def over_stdio(revision: str) -> None:
        target = [*command, "--stdio", f"git:{url}"]
        async with Client(target, revision=revision, env=environment, cache=False) as client:
            await check_push(client)

    async def check_push(client: Client) -> None:
        assert "git://harbour/tree/HEAD/docs/tides.md" in [each.uri async for each in client.list_resources()]
        async with client.watch(HULL) as changes:
            await asyncio.to_thread(history.commit, "Deepen", hull__txt=f"{time.monotonic()}\n")
            await asyncio.to_thread(history.git, "push", "-q", "origin", "main")
            await asyncio.wait_for(anext(changes), 50)
        assert await read_text(client, HULL) == (history.path / "hull.txt").read_text()
        answer = (await client.call_tool("search", {"query": "tides"})).data
        assert answer["results"][0]["id"] == "git://harbour/tree/HEAD/docs/tides.md"

    try:
        served = address(process)
        asyncio.run(asyncio.wait_for(over_http(), 55))
        for revision in ("2025-11-25", "2026-07-28"):
            asyncio.run(asyncio.wait_for(over_stdio(revision), 55))
    finally:
        process.terminate()
        output, _ = process.communicate(timeout=20)
    assert TOKEN not in output
    assert re.search(r"WHARFINGER_GIT_TOKEN", output) or "add --env" not in output


def test_ctrl_c_stops_a_server_that_is_cloning(cache: Path) -> None:
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
        output, _ = process.communicate(timeout=40)
        assert time.monotonic() - began < 30
        assert "Traceback" not in output
        connection.settimeout(20)
        while connection.recv(65_536):  # until git closes the connection, because it was ended too
            pass
        connection.close()


def test_doctor_reports_an_outdated_clone_and_a_missing_one(host: GitHost, history: GitRepository) -> None:
    url = host.add(history)

    async def fill_cache() -> None:
        source = clone(url)
        async with serving(source):
            await wait_until_complete(source)

    async def wait_for(served: str, top: str, problem: str) -> None:
        async with Client(served, cache=False) as client:

            async def is_reported() -> bool:
                try:
                    return problem in await read_text(client, top)
                except RemoteError as error:
                    return problem in str(error)

            await wait_until_async(is_reported, problem)

    asyncio.run(fill_cache())
    host.stop()
    command = [sys.executable, "-m", "wharfinger"]
    for word, top, problem in (
        (f"git:{url}", "git://harbour", "has not been fetched since then"),
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
