"""git's processes: what they read is exact, and one bad object or process disturbs no other read."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from hashlib import sha1
from pathlib import Path

import pytest

from tests.sources.git_repository.conftest import Work
from wharfinger.source import UnusableSource
from wharfinger.sources.git_repository import git_process
from wharfinger.sources.git_repository.git_directory import find_repository
from wharfinger.sources.git_repository.git_process import GitFailed, find_git, run_git
from wharfinger.sources.git_repository.object_reader import (
    AmbiguousName,
    DamagedObject,
    GitObject,
    MissingObject,
    ObjectReader,
)
from wharfinger.sources.git_repository.private_directory import PrivateDirectory

Private = Callable[[Work], PrivateDirectory]


@pytest.fixture
def private() -> Iterator[Private]:
    """Opens the private directory of a repository until the end of the test."""
    with ExitStack() as opened:

        def make(work: Work) -> PrivateDirectory:
            directory = PrivateDirectory(find_repository(work.path))
            directory.open()
            opened.callback(directory.close)
            return directory

        yield make


def all_objects(work: Work) -> list[GitObject]:
    printed = work.git("cat-file", "--batch-all-objects", "--batch-check")
    return [GitObject(oid, kind, int(size)) for oid, kind, size in map(str.split, printed.split("\n"))]


@pytest.mark.parametrize("packed", [False, True])
def test_every_object_is_what_git_says(history: Work, packed: bool, private: Private) -> None:
    """git itself, on the repository's own directory."""
    history.commit("Large", large__bin=os.urandom(300_000), empty__txt=b"", newline__txt=b"\n")
    if packed:
        history.git("gc", "-q")
    objects = all_objects(history)

    async def read() -> tuple[list[GitObject], list[bytes]]:
        reader = ObjectReader(private(history))
        try:
            infos = await asyncio.gather(*[reader.info(each.oid) for each in objects])
            return infos, await asyncio.gather(*[reader.contents(each.oid) for each in objects])
        finally:
            await reader.close()

    infos, contents = asyncio.run(read())
    assert infos == objects
    for each, data in zip(objects, contents, strict=True):
        assert history.git("hash-object", "-t", each.kind, "--stdin", data=data) == each.oid


def test_names_are_resolved_or_refused(history: Work, private: Private) -> None:
    """gitrevisions(7): the beginning of a name, and steps to parents."""

    async def read() -> None:
        reader = ObjectReader(private(history))
        try:
            assert (await reader.info(f"{history.head}~2")).oid == history.git("rev-parse", "HEAD~2")
            assert (await reader.info(history.head[:9])).oid == history.head
            assert await reader.starting_with(history.head[:9], 5) == [history.head]
            for missing in ("0" * 40, "00000000", f"{history.head}^2", f"{history.head}~3"):
                with pytest.raises(MissingObject):
                    await reader.info(missing)
        finally:
            await reader.close()

    asyncio.run(read())


def test_a_damaged_object_disturbs_no_other_read(history: Work, private: Private) -> None:
    """If they are requested together, each caller gets its own result."""
    sound = [each.oid for each in all_objects(history)]
    damaged = history.put("blob", os.urandom(50_000))
    file = history.path / ".git/objects" / damaged[:2] / damaged[2:]
    content = bytearray(file.read_bytes())
    content[30_000:30_400] = bytes(400)
    file.chmod(0o644)
    file.write_bytes(content)
    unreadable = history.put("blob", b"unreadable")
    file = history.path / ".git/objects" / unreadable[:2] / unreadable[2:]
    file.chmod(0o644)
    file.write_bytes(b"rubbish")
    wanted = [*sound, damaged, *sound, unreadable, *sound]

    async def read() -> list[bytes | BaseException]:
        reader = ObjectReader(private(history))
        try:
            return await asyncio.gather(*[reader.contents(oid) for oid in wanted], return_exceptions=True)
        finally:
            await reader.close()

    found = asyncio.run(read())
    for oid, data in zip(wanted, found, strict=True):
        assert isinstance(data, DamagedObject if oid in (damaged, unreadable) else bytes), oid


def test_a_process_that_is_killed_is_replaced(history: Work, private: Private) -> None:
    """From outside, while it is idle and during a request."""

    async def read() -> None:
        reader = ObjectReader(private(history))
        try:
            oids = [each.oid for each in all_objects(history)]
            for _ in range(3):
                waiting = asyncio.gather(*[reader.info(oid) for oid in oids])
                while not reader._processes:
                    await asyncio.sleep(0)
                await asyncio.gather(*[process.starting for process in reader._processes if process.starting])
                killed = list(reader._processes)
                for process in killed:
                    assert process._transport is not None
                    os.kill(process._transport.get_pid() or 0, signal.SIGKILL)
                reader._infos.clear()
                assert [each.oid for each in await waiting] == oids
                await asyncio.wait([process.lost for process in killed])  # else the next round may kill a second one
        finally:
            await reader.close()

    asyncio.run(read())


def test_commands_end_at_their_bounds(history: Work, private: Private) -> None:
    """Bounds of output, at the value and one above; of time."""

    async def run() -> None:
        place = private(history)
        whole = (await run_git(place, "cat-file", "commit", history.head)).data
        assert (await run_git(place, "cat-file", "commit", history.head, most=len(whole))).data == whole
        with pytest.raises(GitFailed, match="bytes of output"):
            await run_git(place, "cat-file", "commit", history.head, most=len(whole) - 1)
        cut = await run_git(place, "cat-file", "commit", history.head, most=len(whole) - 1, partial=True)
        assert cut == (whole[:-1], "size")
        fifo = history.path / ".git/refs/heads/fifo"
        os.mkfifo(fifo)
        with pytest.raises(GitFailed, match=r"ended after 0\.2 s"):
            await run_git(place, "for-each-ref", seconds=0.2)
        fifo.unlink()
        with pytest.raises(GitFailed, match=r"failed: Not a valid object name"):
            await run_git(place, "cat-file", "commit", "0" * 40 + "x")

    asyncio.run(run())


@pytest.mark.skipif(sys.platform != "linux", reason="prlimit(2)")
def test_every_process_is_limited(history: Work, private: Private) -> None:
    """Memory, processor time, files and processes, as the kernel reports them."""

    async def read() -> str:
        reader = ObjectReader(private(history))
        try:
            await reader.info(history.head)
            (process,) = reader._processes
            assert process._transport is not None
            return Path(f"/proc/{process._transport.get_pid()}/limits").read_text()
        finally:
            await reader.close()

    limits = asyncio.run(read())
    for name, most in (("address space", git_process.MEMORY_BYTES), ("file size", 0), ("processes", 0)):
        assert re.search(rf"Max {name} +{most} +{most} ", limits), limits


def test_an_old_or_missing_git_is_refused_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest that is accepted is git 2.39.5."""
    program = tmp_path / "git"
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UnusableSource, match="none is in PATH") as none:
        find_git()
    for version, accepted in (("2.39.4", False), ("2.30.2", False), ("2.39.5", True), ("2.40.0.windows.1", True)):
        program.write_text(f"#!/bin/sh\necho git version {version}\n")
        program.chmod(0o755)
        git_process._program.cache_clear()
        if accepted:
            assert find_git().path == str(program)
        else:
            with pytest.raises(UnusableSource, match=version) as old:
                find_git()
            assert "\n" not in str(old.value)
    git_process._program.cache_clear()
    assert "\n" not in str(none.value)


def test_ambiguous_beginnings_are_refused(work: Work, private: Private) -> None:
    """Two blobs whose names begin with the same four digits (found by trying)."""
    starts: dict[str, list[int]] = {}
    for number in range(3_000):
        start = sha1(b"blob %d\0%d" % (len(str(number)), number)).hexdigest()[:4]
        starts.setdefault(start, []).append(number)
    start, numbers = next((start, numbers) for start, numbers in starts.items() if len(numbers) > 1)
    for number in numbers:
        work.put("blob", b"%d" % number)

    async def read() -> None:
        reader = ObjectReader(private(work))
        try:
            with pytest.raises(AmbiguousName):
                await reader.info(start)
            assert len(await reader.starting_with(start, 9)) == len(numbers)
        finally:
            await reader.close()

    asyncio.run(read())
