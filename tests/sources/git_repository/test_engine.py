"""The git processes of a source: reads are exact, and a damaged object or killed process affects no other read."""

from __future__ import annotations

import asyncio
import errno
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.sources.git_repository.conftest import GitRepository, put_ambiguous_blobs
from wharfinger.errors import InvalidArgument
from wharfinger.source import UnusableSource
from wharfinger.sources.git_repository import git, git_objects, git_process
from wharfinger.sources.git_repository.git_directory import find_repository
from wharfinger.sources.git_repository.git_process import GitFailed, find_git, run_git
from wharfinger.sources.git_repository.object_reader import (
    AmbiguousName,
    DamagedObject,
    GitObject,
    MissingObject,
    ObjectReader,
)
from wharfinger.sources.git_repository.private_directory import INDEX_BYTES, PrivateDirectory

OpenDirectory = Callable[[GitRepository], PrivateDirectory]


@pytest.fixture
def open_directory() -> Iterator[OpenDirectory]:
    """Return a function that opens the private directory of a repository until the end of the test."""
    with ExitStack() as stack:

        def make(work: GitRepository) -> PrivateDirectory:
            directory = PrivateDirectory(find_repository(work.path))
            directory.open()
            stack.callback(directory.close)
            return directory

        yield make


def all_objects(work: GitRepository) -> list[GitObject]:
    printed = work.git("cat-file", "--batch-all-objects", "--batch-check")
    return [GitObject(oid, kind, int(size)) for oid, kind, size in map(str.split, printed.split("\n"))]


@pytest.mark.parametrize("packed", [False, True])
def test_every_object_is_read_as_git_reads_it(
    history: GitRepository, packed: bool, open_directory: OpenDirectory
) -> None:
    history.commit("Large", large__bin=os.urandom(300_000), empty__txt=b"", newline__txt=b"\n")
    if packed:
        history.git("gc", "-q")
    objects = all_objects(history)

    async def read() -> tuple[list[GitObject], list[bytes]]:
        reader = ObjectReader(open_directory(history))
        try:
            infos = await asyncio.gather(*[reader.info(each.oid) for each in objects])
            return infos, await asyncio.gather(*[reader.contents(each.oid) for each in objects])
        finally:
            await reader.close()

    infos, contents = asyncio.run(read())
    assert infos == objects
    for each, data in zip(objects, contents, strict=True):
        assert history.git("hash-object", "-t", each.kind, "--stdin", data=data) == each.oid


def test_short_ids_and_parents_are_resolved(history: GitRepository, open_directory: OpenDirectory) -> None:
    """gitrevisions(7)."""

    async def read() -> None:
        reader = ObjectReader(open_directory(history))
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


def test_a_damaged_object_affects_no_other_read(history: GitRepository, open_directory: OpenDirectory) -> None:
    """The objects are requested together. Each caller gets its own result."""
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
    requested = [*sound, damaged, *sound, unreadable, *sound]

    async def read() -> list[bytes | BaseException]:
        reader = ObjectReader(open_directory(history))
        try:
            return await asyncio.gather(*[reader.contents(oid) for oid in requested], return_exceptions=True)
        finally:
            await reader.close()

    found = asyncio.run(read())
    for oid, data in zip(requested, found, strict=True):
        assert isinstance(data, DamagedObject if oid in (damaged, unreadable) else bytes), oid


def test_a_process_that_is_killed_is_replaced(history: GitRepository, open_directory: OpenDirectory) -> None:
    """Idle processes and processes with requests are killed."""

    async def read() -> None:
        reader = ObjectReader(open_directory(history))
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
                assert [each.oid for each in await waiting] == oids
                reader._infos.clear()
                # otherwise, a request of the next round may lose two processes
                await asyncio.wait([process.lost for process in killed])
        finally:
            await reader.close()

    asyncio.run(read())


def test_a_repository_is_read_on_one_event_loop_after_another(
    history: GitRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bug: a lock for which a read had waited on the first event loop failed on the second one."""
    monkeypatch.setattr(git_objects, "WHOLE_BYTES", 10)
    source = git(history.path, label="repo")

    async def read() -> None:
        reads: list[asyncio.Task[object]] = []
        for _ in range(10):
            reads.append(asyncio.create_task(source.read("git://repo/tree/main/hull.txt")))
            await asyncio.sleep(0)
        await asyncio.gather(*reads)
        await source.close()

    for _ in range(2):
        asyncio.run(read())
        source.repository.objects.forget()


def test_commands_are_ended_at_their_limits(history: GitRepository, open_directory: OpenDirectory) -> None:
    """The limits are the bytes of output and the time."""

    async def run() -> None:
        directory = open_directory(history)
        whole = (await run_git(directory, "cat-file", "commit", history.head)).data
        assert (await run_git(directory, "cat-file", "commit", history.head, max_output_bytes=len(whole))).data == whole
        with pytest.raises(GitFailed, match="bytes of output"):
            await run_git(directory, "cat-file", "commit", history.head, max_output_bytes=len(whole) - 1)
        cut = await run_git(
            directory, "cat-file", "commit", history.head, max_output_bytes=len(whole) - 1, partial=True
        )
        assert (cut.data, cut.cut) == (whole[:-1], "size")
        fifo = history.path / ".git/refs/heads/fifo"
        os.mkfifo(fifo)
        with pytest.raises(GitFailed, match=r"ended after 0\.2 s"):
            await run_git(directory, "for-each-ref", seconds=0.2)
        fifo.unlink()
        with pytest.raises(GitFailed, match=r"failed: Not a valid object name"):
            await run_git(directory, "cat-file", "commit", "0" * 40 + "x")

    asyncio.run(run())


@pytest.mark.skipif(sys.platform != "linux", reason="prlimit(2)")
def test_every_process_is_limited(history: GitRepository, open_directory: OpenDirectory) -> None:
    """The kernel reports the limits of memory, file size and processes."""

    async def read() -> str:
        reader = ObjectReader(open_directory(history))
        try:
            await reader.info(history.head)
            (process,) = reader._processes
            assert process._transport is not None
            return Path(f"/proc/{process._transport.get_pid()}/limits").read_text()
        finally:
            await reader.close()

    limits = asyncio.run(read())
    for name, limit in (("address space", git_process.MEMORY_BYTES), ("file size", 0), ("processes", 0)):
        assert re.search(rf"Max {name} +{limit} +{limit} ", limits), limits


@pytest.mark.skipif(sys.platform != "linux", reason="prlimit(2)")
def test_a_process_with_lower_hard_limits_gets_the_other_limits() -> None:
    """Regression: the first limit that could not be raised kept all others from being set."""
    code = (
        "import resource, time; resource.setrlimit(resource.RLIMIT_AS, (1 << 28, 1 << 28)); "
        "print(flush=True); time.sleep(50)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        git_process.set_limits(process.pid)
        limits = Path(f"/proc/{process.pid}/limits").read_text()
        process.kill()
    for name, limit in (("address space", 1 << 28), ("file size", 0), ("processes", 0)):
        assert re.search(rf"Max {name} +{limit} +{limit} ", limits), limits


def test_an_old_or_missing_git_is_refused_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest accepted version is git 2.39.5."""
    program = tmp_path / "git"
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UnusableSource, match="none is in PATH") as missing:
        find_git()
    for version, accepted in (("2.39.4", False), ("2.30.2", False), ("2.39.5", True), ("2.40.0.windows.1", True)):
        program.write_text(f"#!/bin/sh\necho git version {version}\n")
        program.chmod(0o755)
        git_process._program.cache_clear()
        if accepted:
            assert find_git().path == str(program)
        else:
            with pytest.raises(UnusableSource, match=version) as outdated:
                find_git()
            assert "\n" not in str(outdated.value)
    git_process._program.cache_clear()
    assert "\n" not in str(missing.value)


def test_a_private_directory_that_could_not_be_completed_is_made_again(
    history: GitRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bug: the second call accepted the directory, in which most links to objects were missing."""
    directory, made = PrivateDirectory(find_repository(history.path)), 0
    symlink = os.symlink

    def fail(*arguments: object, **options: object) -> None:
        nonlocal made
        made += 1
        if made > 100:
            raise OSError(errno.ENOSPC, "No space left on device")
        symlink(*arguments, **options)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(os, "symlink", fail)
        with pytest.raises(UnusableSource, match="No space left on device"):
            directory.open()
    directory.open()
    assert len(os.listdir(os.path.join(directory.path, "objects"))) == 257
    directory.close()


def test_a_repository_with_a_link_among_its_objects_is_refused_at_every_call(history: GitRepository) -> None:
    """A bug: the second call returned, as if the directory had been checked."""
    (history.path / ".git/objects/pack/away").symlink_to(history.path)
    directory = PrivateDirectory(find_repository(history.path))
    for _ in range(2):
        with pytest.raises(UnusableSource, match="objects/pack/away is a symbolic link"):
            directory.open()
    directory.close()


@pytest.mark.parametrize("name", ["objects/a7", "objects/pack", "packed-refs", "attributes", "shallow"])
def test_a_private_directory_from_which_one_file_was_deleted_is_made_again(
    history: GitRepository, tmp_path: Path, name: str
) -> None:
    """A bug: systems delete old files one by one, and the objects in a deleted folder were missing until a restart."""
    history.git("clone", "-q", "--bare", "--depth=1", history.path.as_uri(), str(tmp_path / "shallow.git"))
    directory = PrivateDirectory(find_repository(tmp_path / "shallow.git"))
    directory.open()
    os.unlink(os.path.join(directory.path, name))
    directory.open()
    assert os.path.lexists(os.path.join(directory.path, name))
    directory.close()


def test_a_changed_boundary_is_noticed_after_the_private_directory_was_made_again(
    history: GitRepository, tmp_path: Path
) -> None:
    """A bug: commits of a clone that was no longer shallow had the note that their parents are missing."""
    history.git("clone", "-q", "--bare", "--depth=1", history.path.as_uri(), str(tmp_path / "shallow.git"))
    directory = PrivateDirectory(find_repository(tmp_path / "shallow.git"))
    directory.open()
    assert directory.shallow == {history.head}
    os.unlink(os.path.join(directory.path, "HEAD"))
    history.git("fetch", "-q", "--unshallow", cwd=tmp_path / "shallow.git")
    directory.open()
    assert directory.copy_shallow()
    assert not directory.shallow
    assert not os.path.lexists(os.path.join(directory.path, "shallow"))
    directory.close()


def test_a_repository_is_refused_in_one_line_if_there_is_no_folder_for_temporary_files(
    history: GitRepository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bug: an OSError was raised, and other errors named Windows on every system."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "missing"))
    directory = PrivateDirectory(find_repository(history.path))
    with pytest.raises(UnusableSource, match="No such file or directory") as refused:
        directory.open()
    assert ("Windows" in str(refused.value)) == (os.name == "nt")
    (tmp_path / "missing").mkdir()
    directory.open()
    directory.close()


def test_any_path_may_be_that_of_the_folder_for_temporary_files(
    history: GitRepository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bug: `#` or `;` began a comment in git's configuration, so the headings of hunks were missing."""
    folder = tmp_path / 'a #1; "b" \\c'
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    directory = PrivateDirectory(find_repository(history.path))
    directory.open()
    assert history.git("--git-dir", directory.path, "config", "core.attributesFile") == f"{directory.path}/attributes"
    directory.close()


def test_an_index_that_is_too_large_is_refused_with_its_size(history: GitRepository) -> None:
    """A bug: the error said that there is no index that can be read."""
    with (history.path / ".git/index").open("r+b") as file:
        file.truncate(INDEX_BYTES + 1)
    directory = PrivateDirectory(find_repository(history.path))
    directory.open()
    with pytest.raises(InvalidArgument, match="The index of this repository has 268,435,457 bytes, and at most"):
        directory.copy_index()
    directory.close()


def test_an_ambiguous_short_id_is_refused(work: GitRepository, open_directory: OpenDirectory) -> None:
    digits, oids = put_ambiguous_blobs(work)

    async def read() -> None:
        reader = ObjectReader(open_directory(work))
        try:
            with pytest.raises(AmbiguousName):
                await reader.info(digits)
            assert sorted(await reader.starting_with(digits, 9)) == sorted(oids)
        finally:
            await reader.close()

    asyncio.run(read())
