"""Commands of git that write to a clone: their output is bounded, and they can be cancelled at any time."""

from __future__ import annotations

import asyncio
from asyncio.subprocess import Process
from collections.abc import Iterator
from typing import Any

import pytest

from wharfinger.sources.git_remote.clone_folder import CloneFolder
from wharfinger.sources.git_remote.fetch_process import FetchFailed, GitNetwork
from wharfinger.sources.git_remote.remote_address import parse_remote
from wharfinger.sources.git_repository.git_process import find_git

pytestmark = pytest.mark.usefixtures("cache")


class LockedClone:
    """A new clone, which this process has locked."""

    def __init__(self, network: GitNetwork, lock: int) -> None:
        self.network = network
        self.lock = lock

    async def print_version(self, **options: Any) -> bytes:
        return await self.network.run("version", lock=self.lock, seconds=40, network=False, **options)


@pytest.fixture
def locked_clone(cache: object) -> Iterator[LockedClone]:
    address = parse_remote("https://git.example.org/harbour.git")
    folder = CloneFolder.of(address)
    with folder.lock() as lock:
        assert lock is not None
        yield LockedClone(GitNetwork(find_git().path, address, folder, 1 << 30, lambda _: None), lock)


async def test_an_output_that_is_too_long_is_refused_also_if_git_has_ended(locked_clone: LockedClone) -> None:
    """A bug: it was cut, and what was left counted as the whole output."""
    output = await locked_clone.print_version()
    assert output.startswith(b"git version")
    with pytest.raises(FetchFailed, match="too many references"):
        await locked_clone.print_version(max_output_bytes=len(output) - 1)


@pytest.mark.parametrize("turns", range(12))
async def test_a_command_that_is_cancelled_while_git_ends_is_cancelled(
    locked_clone: LockedClone, monkeypatch: pytest.MonkeyPatch, turns: int
) -> None:
    """A bug: on Python 3.11 `asyncio.wait_for` dropped a cancellation, and the server waited for the clone forever."""
    started: list[Process] = []
    start = asyncio.create_subprocess_exec

    async def start_and_record(*args: Any, **options: Any) -> Process:
        started.append(await start(*args, **options))
        return started[-1]

    monkeypatch.setattr(asyncio, "create_subprocess_exec", start_and_record)
    task = asyncio.create_task(locked_clone.print_version())
    while not started or started[0].returncode is None:
        await asyncio.sleep(0)
    for _ in range(turns):
        await asyncio.sleep(0)
    was_running = task.cancel()
    await asyncio.wait((task,))
    assert task.cancelled() is was_running
