"""Repositories that move, shrink and are repacked during reads; git that hangs, crashes, is old or is missing."""

from __future__ import annotations

import asyncio
import inspect
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.sources.git_repository.conftest import GIT, GitRepository
from tests.sources.git_repository.git_processes import command_of, git_processes
from tests.sources.git_repository.histories import History, PublishedRepository, bytes_of, close_all, fill_with_deltas
from tests.waiting import wait_until
from wharfinger import Client
from wharfinger.errors import InvalidArgument, ResourceNotFound, WharfingerError
from wharfinger.source import UnusableSource
from wharfinger.sources.git_repository import git
from wharfinger.sources.ttl import IMMUTABLE_TTL_MS
from wharfinger.testing.source_suite.driver import ChangeRecorder

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are counted in /proc")

HULL = "git://repo/tree/main/hull.txt"
TOP = "git://repo"
MAX_PERSISTENT_PROCESSES = 16


# Processes


def reads_as(source: PublishedRepository, uri: str, text: str) -> bool:
    """Return whether a resource can be read and has this text."""
    try:
        return source.read_text(uri) == text
    except WharfingerError:
        return False


@pytest.fixture(autouse=True)
def _no_processes_are_left() -> Iterator[None]:
    """Check that no git process is left after the sources are closed."""
    yield
    close_all()
    wait_until(lambda: not git_processes(), "all processes of git have ended")


@pytest.fixture
def source(history: GitRepository) -> Iterator[PublishedRepository]:
    """Return the source of the repository `history`."""
    with PublishedRepository(history.path, every=0.05) as source:
        yield source


# Repositories that disappear and return


def test_a_moved_repository_is_reported_and_read_again_after_its_return(
    history: GitRepository, source: PublishedRepository, tmp_path: Path
) -> None:
    """No error says that the repository is damaged or has no commits."""
    assert source.read_text(HULL) == "five\nfathoms\n"
    history.path.rename(tmp_path / "elsewhere")
    wait_until(lambda: not reads_as(source, HULL, "five\nfathoms\n"), "the file is gone")
    for uri in (TOP, HULL, "git://repo/log/HEAD", "git://repo/commit/main", "git://repo/diff/HEAD"):
        with pytest.raises(WharfingerError) as raised:
            source.read(uri)
        assert "without commits" not in str(raised.value)
        assert "damaged" not in str(raised.value)
    assert "without commits" not in source.source.describe()
    (tmp_path / "elsewhere").rename(history.path)
    wait_until(lambda: reads_as(source, HULL, "five\nfathoms\n"), "the file is back")
    assert "main at" in source.read_text(TOP)


def test_watchers_are_notified_when_a_repository_disappears_and_returns(
    history: GitRepository, source: PublishedRepository, tmp_path: Path
) -> None:
    recorder = ChangeRecorder()
    for uri in (HULL, TOP):
        source.stat(uri)
        source.watch(uri, recorder)
    history.path.rename(tmp_path / "elsewhere")
    recorder.wait_for(HULL, TOP)
    (tmp_path / "elsewhere").rename(history.path)
    recorder.wait_for(HULL, TOP)
    history.commit("Deepen", hull__txt="six\n")
    recorder.wait_for(HULL, TOP)


def test_a_recreated_repository_is_read(history: GitRepository, source: PublishedRepository, tmp_path: Path) -> None:
    """A new repository at the same path has other objects. The old ones are not found."""
    old = history.head
    assert source.read_text(HULL) == "five\nfathoms\n"
    shutil.rmtree(history.path)
    wait_until(lambda: not reads_as(source, f"git://repo/tree/{old}/hull.txt", "five\nfathoms\n"), "it is gone")
    GitRepository(history.path).init().commit("Begin again", hull__txt="new\n")
    wait_until(lambda: reads_as(source, HULL, "new\n"), "the new file")
    with pytest.raises(ResourceNotFound):
        source.read(f"git://repo/commit/{old}")


def test_a_repository_that_was_recreated_with_a_pipe_is_read_after_the_pipe_is_removed(
    history: GitRepository, source: PublishedRepository
) -> None:
    """A bug: objects of the old repository were still found."""
    old = history.head
    assert source.read_text(f"git://repo/tree/{old}/hull.txt") == "five\nfathoms\n"
    shutil.rmtree(history.path)
    GitRepository(history.path).init().commit("Begin again", hull__txt="new\n")
    pipe = history.path / ".git/refs/heads/pipe"
    os.mkfifo(pipe)
    with pytest.raises(InvalidArgument, match="refs/heads/pipe is neither a file nor a folder"):
        source.read(HULL)
    pipe.unlink()
    assert source.read_text(HULL) == "new\n"
    with pytest.raises(ResourceNotFound):
        source.read(f"git://repo/tree/{old}/hull.txt")


def test_a_force_pushed_branch_is_read_at_its_new_commit(work: GitRepository, tmp_path: Path) -> None:
    """Dropped commits can be read until they are pruned."""
    work.commit("Begin", hull__txt="one\n")
    work.git("clone", "-q", "--bare", str(work.path), str(tmp_path / "served.git"))
    served = GitRepository(tmp_path / "served.git")
    work.git("remote", "add", "served", str(served.path))
    dropped = work.commit("Mistake", hull__txt="secret\n")
    work.git("push", "-q", "served", "main")
    with PublishedRepository(served.path, every=0.05) as source:
        assert source.read_text(HULL) == "secret\n"
        recorder = ChangeRecorder()
        source.stat(HULL)
        source.watch(HULL, recorder)
        work.git("reset", "-q", "--hard", "HEAD~1")
        work.commit("Right", hull__txt="right\n")
        work.git("push", "-q", "--force", "served", "main")
        recorder.wait_for(HULL)
        assert source.read_text(HULL) == "right\n"
        assert source.read_text(f"git://repo/tree/{dropped}/hull.txt") == "secret\n"
        served.git("reflog", "expire", "--expire=now", "--all")
        served.git("gc", "-q", "--prune=now")
        wait_until(
            lambda: not reads_as(source, f"git://repo/tree/{dropped}/hull.txt", "secret\n"), "it is pruned", seconds=60
        )
        with pytest.raises(ResourceNotFound):
            source.read(f"git://repo/commit/{dropped}")
        assert source.read_text(HULL) == "right\n"


def test_a_diff_with_a_missing_blob_names_the_git_command_and_the_object(work: GitRepository) -> None:
    """An incomplete clone may miss blobs."""
    work.commit("Begin", hull__txt="one\n")
    head = work.commit("Repair", hull__txt="two\n")
    oid = work.git("rev-parse", f"{head}:hull.txt").strip()
    (work.path / ".git" / "objects" / oid[:2] / oid[2:]).unlink()
    with (
        PublishedRepository(work.path) as source,
        pytest.raises(WharfingerError, match=f"`git diff-tree` failed: .*{oid}"),
    ):
        source.read(f"git://repo/diff/{head}")


PACKING: dict[str, list[list[str]]] = {
    "gc": [["gc", "-q", "--prune=now"]],
    "repack": [["repack", "-a", "-d", "-f", "-q", "--window=2"], ["pack-refs", "--all"]],
    "unpack": [["repack", "-A", "-d", "-q", "--unpack-unreachable=now"], ["prune-packed"]],
    "multi-pack-index": [["repack", "-q"], ["multi-pack-index", "write"], ["multi-pack-index", "expire"]],
    "commit-graph": [["commit-graph", "write", "--reachable"], ["pack-refs", "--all"]],
}


@pytest.mark.parametrize("name", list(PACKING))
def test_reads_are_exact_while_git_packs_and_prunes(work: GitRepository, name: str) -> None:
    """Each read of a file that always exists succeeds while commits arrive."""
    contents = {f"part{number:02}.txt": (f"part {number}\n" * (number * 50 + 1)) for number in range(30)}
    for file, text in contents.items():
        work.write(file, text)
    first = work.commit("Begin")
    work.git("config", "gc.auto", "0")  # no background `git gc` after a commit
    stopped = threading.Event()
    wrong: list[str] = []
    counts: list[int] = []

    def read(source: PublishedRepository, seed: int) -> None:
        chance = random.Random(seed)
        count = 0
        while not stopped.is_set():
            file, rev = chance.choice(sorted(contents)), chance.choice(["main", first, "HEAD"])
            try:
                if source.read_text(f"git://repo/tree/{rev}/{file}") != contents[file]:
                    wrong.append(f"{rev}/{file} has other contents")
                if count % 10 == 0:
                    source.read("git://repo/log/main?limit=5")
                    source.read(f"git://repo/diff/{first}..main")
            except WharfingerError as error:
                wrong.append(f"{rev}/{file}: {type(error).__name__}: {error}")
            count += 1
        counts.append(count)

    with PublishedRepository(work.path, every=0.05) as source:
        readers = [threading.Thread(target=read, args=(source, seed)) for seed in range(3)]
        for reader in readers:
            reader.start()
        began, rounds = time.monotonic(), 0
        try:
            while time.monotonic() - began < 4 or rounds < 4:
                work.commit(f"Round {rounds}", new__txt=f"{rounds}\n")
                for arguments in PACKING[name]:
                    work.git(*arguments)
                rounds += 1
        finally:
            stopped.set()
            for reader in readers:
                reader.join()
    print(f"{rounds} rounds, {sum(counts)} reads")
    assert wrong == []
    assert sum(counts) > 30


# Processes that crash, hang or are numerous


def test_reads_succeed_when_git_processes_are_killed(history: GitRepository, source: PublishedRepository) -> None:
    """Pending requests are sent again to a new process."""
    blobs = {history.put("blob", b"%d\n" % number * 500): b"%d\n" % number * 500 for number in range(200)}
    source.read(HULL)
    for _ in range(5):
        with ThreadPoolExecutor(16) as pool:
            answers = [(data, pool.submit(source.read_first, f"git://repo/tree/{oid}")) for oid, data in blobs.items()]
            for pid in git_processes():
                os.kill(pid, signal.SIGKILL)
            for data, answer in answers:
                assert bytes_of(answer.result(timeout=30)) == data
    assert source.read_text(HULL) == "five\nfathoms\n"


def test_a_process_that_hangs_is_replaced(
    history: GitRepository, source: PublishedRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A read that exceeds its deadline is repeated with a new process."""
    from wharfinger.sources.git_repository import object_reader

    monkeypatch.setattr(object_reader, "OBJECT_SECONDS", 4)
    source.read(HULL)
    blobs = [history.put("blob", b"blob %d\n" % number) for number in range(20)]
    stopped = git_processes()
    assert stopped
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    began = time.monotonic()
    with ThreadPoolExecutor(20) as pool:
        answers = [pool.submit(source.read_first, f"git://repo/tree/{oid}") for oid in blobs]
        assert [bytes_of(answer.result(timeout=30)) for answer in answers] == [b"blob %d\n" % n for n in range(20)]
    assert time.monotonic() - began < 40
    wait_until(lambda: not any(command_of(pid) for pid in stopped), "the stopped processes have ended")


def _fake_git(folder: Path, script: str) -> Path:
    """Write a shell script called git. Its variable `$GIT` is the path of the real git."""
    folder.mkdir(exist_ok=True)
    program = folder / "git"
    program.write_text(f"#!/bin/sh\nGIT='{GIT}'\n{script}\n")
    program.chmod(0o755)
    return program


@pytest.mark.timeout(180)
def test_a_command_that_hangs_is_ended_and_other_reads_succeed(
    history: GitRepository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log ends with a notice after its time limit. Files can be read meanwhile."""
    script = 'case " $* " in *" log "*|*" rev-list "*) exec sleep 1000;; esac\nexec "$GIT" "$@"'
    _fake_git(tmp_path / "bin", script)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    with PublishedRepository(history.path) as source, ThreadPoolExecutor(1) as pool:
        log = pool.submit(source.read, "git://repo/log/HEAD")
        assert source.read_text(HULL) == "five\nfathoms\n"
        assert not log.done()
        assert "The search ended after" in str(log.result(timeout=60).contents[0].text)


@pytest.mark.parametrize(
    ("kind", "end"),
    [(kind, "exec sleep 1000") for kind in ("log", "grep", "commit")]
    + [(kind, "echo incomplete; exit 128") for kind in ("log", "grep", "commit", "diff")],
)
@pytest.mark.timeout(180)
def test_an_answer_of_a_git_that_was_ended_early_is_made_again_soon(
    history: GitRepository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, end: str
) -> None:
    """A bug: an incomplete log was kept as if it were whole, and clients could keep each such answer for a day."""
    from wharfinger.sources.git_repository import answer_commit, answer_grep
    from wharfinger.sources.git_repository import history as histories

    broken = tmp_path / "broken"
    broken.touch()
    script = f'[ -e "{broken}" ] && case " $* " in *" log "*|*" grep "*|*" diff-tree "*) {end};; esac\nexec "$GIT" "$@"'
    _fake_git(tmp_path / "bin", script)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    uri = f"git://repo/{kind}/{history.head}" + {"grep": "?text=fathoms"}.get(kind, "")
    with PublishedRepository(history.path) as source:
        with monkeypatch.context() as limits:
            limits.setattr(histories, "SEARCH_SECONDS", 0.2)
            limits.setattr(histories, "CUT_HISTORY_SECONDS", 0.0)
            limits.setattr(answer_grep, "SEARCH_SECONDS", 0.2)
            limits.setattr(answer_commit, "COMPARISON_SECONDS", 0.2)
            cut = source.read(uri)
        broken.unlink()
        whole = source.read(uri)
    assert cut.ttl_ms is not None
    assert cut.ttl_ms <= 10_000
    assert cut.contents[0].text != whole.contents[0].text
    if kind == "grep":
        words = "in the first 0.2 s" if "sleep" in end else "in the files that can be read (see `git fsck`)"
        assert f"has “fathoms” {words}. Try" in str(cut.contents[0].text)
    assert whole.ttl_ms == IMMUTABLE_TTL_MS


@pytest.mark.parametrize(
    ("listed_bytes", "count", "end"),
    [
        (216, "More than 1 path changed", "  A abcdefgh.txt\n"),  # ends within the second name
        (100, "An unknown number of paths changed", "\n"),
    ],
)
def test_a_path_whose_name_was_cut_is_left_out(
    work: GitRepository, monkeypatch: pytest.MonkeyPatch, listed_bytes: int, count: str, end: str
) -> None:
    """A bug: a list of changed paths that was too long ended with a part of a name."""
    from wharfinger.sources.git_repository import git_differences

    work.commit("Begin", abcdefgh__txt="1", ijklmnop__txt="2")
    monkeypatch.setattr(git_differences, "LISTED_BYTES", listed_bytes)
    with PublishedRepository(work.path) as source:
        text = source.read_text("git://repo/commit/HEAD")
    assert count in text
    assert text.endswith(end)


@pytest.mark.parametrize("command", ["diff-index", "ls-files"])
def test_uncommitted_changes_that_were_not_all_found_are_reported_as_incomplete(
    history: GitRepository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """A bug: if git was ended too early, nothing was reported as changed."""
    broken = tmp_path / "broken"
    script = f'[ -e "{broken}" ] && case " $* " in *" {command} "*) echo incomplete; exit 128;; esac\nexec "$GIT" "$@"'
    _fake_git(tmp_path / "bin", script)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    history.write("hull.txt" if command == "diff-index" else "new.txt", "six\n")
    with PublishedRepository(history.path) as source:
        whole = source.read("git://repo/changes")
        broken.touch()
        cut = source.read_first("git://repo/changes")
        (history.path / "new.txt").write_text("six\n")
        (history.path / "hull.txt").write_text("six\n")
        other = source.read_text("git://repo/changes")
    assert "Not all changes since main" not in str(whole.contents[0].text)
    assert str(cut.text).startswith("Not all changes since main")
    assert cut.meta != whole.contents[0].meta
    assert "six" in other if command == "ls-files" else "new.txt  (untracked)" in other
    assert "Not all changes since main" in other


@pytest.mark.timeout(180)
def test_a_diff_that_took_too_long_is_made_again_soon(
    history: GitRepository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bug: clients could keep it for a day, and it said that the contents are too large to compare."""
    from wharfinger.sources.git_repository import git_differences

    slow = tmp_path / "slow"
    slow.touch()
    script = f'[ -e "{slow}" ] && case " $* " in *" -p "*) exec sleep 1000;; esac\nexec "$GIT" "$@"'
    _fake_git(tmp_path / "bin", script)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    uri = f"git://repo/diff/{history.head}"
    with PublishedRepository(history.path) as source:
        with monkeypatch.context() as limits:
            limits.setattr(git_differences, "DIFF_SECONDS", 0.5)
            cut = source.read(uri)
        slow.unlink()
        whole = source.read(uri)
    assert cut.ttl_ms is not None
    assert cut.ttl_ms <= 10_000
    assert "The contents differ, and were not compared within 0.5 s." in str(cut.contents[0].text)
    assert whole.ttl_ms == IMMUTABLE_TTL_MS


def test_the_type_of_a_file_is_determined_again_if_git_failed(
    history: GitRepository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bug: bytes that git had printed before it failed were kept as the first bytes of the file."""
    history.commit("Add", large=bytes((1 << 20) + 1))
    broken = tmp_path / "broken"
    broken.touch()
    script = f'[ -e "{broken}" ] && case " $* " in *" cat-file blob "*) echo text; exit 128;; esac\nexec "$GIT" "$@"'
    _fake_git(tmp_path / "bin", script)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    with PublishedRepository(history.path) as source:
        source.stat("git://repo/tree/main/large")
        broken.unlink()
        assert source.stat("git://repo/tree/main/large").mime_type == "application/octet-stream"


@pytest.mark.timeout(180)
def test_persistent_processes_are_bounded(work: GitRepository, tmp_path: Path) -> None:
    """One server reads many repositories at once."""
    for number in range(20):
        work.write(f"file{number:02}.txt", f"{number}\n")
    work.commit("Begin")
    paths = [tmp_path / f"copy{number:02}" for number in range(24)]
    for path in paths:
        shutil.copytree(work.path, path)
    stopped = threading.Event()
    peak = 0

    def count() -> None:
        nonlocal peak
        while not stopped.is_set():
            peak = max(peak, sum("--batch" in command for command in git_processes().values()))
            time.sleep(0.002)

    async def result(value: Any) -> Any:
        return await value if inspect.isawaitable(value) else value

    async def main() -> None:
        sources = [git(path, label=path.name) for path in paths]
        for _ in range(3):
            reads = [
                result(source.read(f"{source.uri}/tree/main/file{number:02}.txt"))
                for source in sources
                for number in range(20)
            ]
            answers = await asyncio.gather(*reads)
            texts = [answer.contents[0].text for answer in answers]
            assert texts == [f"{number}\n" for _ in sources for number in range(20)]
        await asyncio.gather(*[source.close() for source in sources])

    counter = threading.Thread(target=count)
    counter.start()
    try:
        asyncio.run(main())
    finally:
        stopped.set()
        counter.join()
    print(f"{peak} processes")
    assert 1 <= peak <= MAX_PERSISTENT_PROCESSES


def test_deleted_temporary_files_are_recreated(
    history: GitRepository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many systems delete old files from /tmp while servers run for months."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    with PublishedRepository(history.path, every=0.05) as source:
        source.read(HULL)
        for entry in folder.iterdir():
            shutil.rmtree(entry)
        blob = history.put("blob", b"later\n")
        wait_until(lambda: reads_as(source, f"git://repo/tree/{blob}", "later\n"), "objects are read again")
        wait_until(lambda: reads_as(source, HULL, "five\nfathoms\n"), "the file is read again")
        assert "Add a buoy" in source.read_text("git://repo/log/HEAD")
    assert list(folder.iterdir()) == []


# Versions of git

VERSIONS = {
    "git version 2.39.5": True,
    "git version 2.39.5 (Apple Git-154)": True,
    "git version 2.45.1.windows.1": True,
    "git version 2.100.0": True,
    "git version 3.0.0": True,
    "git version 2.47.rc1": True,
    "git version 2.39.4": False,
    "git version 2.38.9": False,
    "git version 2.9.0": False,
    "git version 1.8.3.1": False,
    "hello": False,
    "": False,
}


@pytest.mark.parametrize("printed", list(VERSIONS))
def test_git_is_accepted_or_refused_by_its_version(
    history: GitRepository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, printed: str
) -> None:
    """The oldest supported version is that of Debian 12."""
    script = f"case $1 in version|--version) printf '%s\\n' '{printed}';; *) exec \"$GIT\" \"$@\";; esac"
    _fake_git(tmp_path / "bin", script)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    if VERSIONS[printed]:
        with PublishedRepository(history.path) as source:
            assert source.read_text(HULL) == "five\nfathoms\n"
        return
    with pytest.raises(UnusableSource) as raised:
        git(history.path)
    message = str(raised.value)
    assert "\n" not in message
    assert "git" in message
    if printed.startswith("git version"):
        assert "2.39.5" in message
        assert printed.split()[2].removesuffix(".1") in message


def test_a_missing_git_is_reported_in_one_line(
    history: GitRepository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error names the required version."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UnusableSource, match=r"needs git 2\.39\.5") as raised:
        git(history.path)
    assert "\n" not in str(raised.value)


def test_the_command_line_reports_a_missing_git_in_one_line(history: GitRepository, tmp_path: Path) -> None:
    """`wharfinger serve git:PATH` without git prints no traceback."""
    ran = subprocess.run(
        [sys.executable, "-m", "wharfinger", "serve", "--stdio", f"git:{history.path}"],
        env={"PATH": str(tmp_path), "HOME": str(tmp_path)}, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=30, check=False,
    )  # fmt: skip
    assert ran.returncode == 2
    assert "needs git 2.39.5" in ran.stderr
    assert "Traceback" not in ran.stderr
    assert len(ran.stderr.strip().splitlines()) <= 2, ran.stderr


def test_a_git_that_disappears_is_reported_and_used_again_after_its_return(
    history: GitRepository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This happens during an upgrade of the package of git."""
    program = _fake_git(tmp_path / "bin", 'exec "$GIT" "$@"')
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    with PublishedRepository(history.path) as source:
        source.read(HULL)
        program.rename(tmp_path / "away")
        for pid in git_processes():
            os.kill(pid, signal.SIGKILL)
        blob = history.put("blob", b"later\n")
        wait_until(lambda: not git_processes(), "the processes have ended")
        with pytest.raises(WharfingerError, match="git"):
            source.read(f"git://repo/tree/{blob}")
        (tmp_path / "away").rename(program)
        wait_until(lambda: reads_as(source, f"git://repo/tree/{blob}", "later\n"), "git is found again")


# The end of a server


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_server_that_ends_leaves_no_process(history: GitRepository, tmp_path: Path, signum: signal.Signals) -> None:
    (tmp_path / "tmp").mkdir()
    process = subprocess.Popen(
        [sys.executable, "-m", "wharfinger", "serve", "--http", "127.0.0.1:0", f"repo=git:{history.path}"],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        env={**os.environ, "TMPDIR": str(tmp_path / "tmp"), "PYTHONUNBUFFERED": "1", "NO_COLOR": "1"},
    )  # fmt: skip
    try:
        assert process.stdout is not None
        address = next(word for line in process.stdout for word in line.split() if word.startswith("http://127"))

        async def read() -> None:
            async with Client(address.rstrip(".,")) as client:
                for uri in (HULL, "git://repo/log/HEAD", "git://repo/diff/HEAD", TOP):
                    await client.read_resource(uri)

        asyncio.run(asyncio.wait_for(read(), 40))
        children = git_processes(process.pid)
        assert children
        process.send_signal(signum)
        process.stdout.read()
        process.wait(20)
        wait_until(lambda: not any(command_of(pid) == children[pid] for pid in children), f"{children} have ended")
        if signum != signal.SIGKILL:
            assert list((tmp_path / "tmp").iterdir()) == []
    finally:
        process.kill()
        process.wait(10)


def test_a_closed_source_can_be_used_again(history: GitRepository) -> None:
    """The next read starts new processes. A second source is not affected."""
    with PublishedRepository(history.path) as first, PublishedRepository(history.path) as second:
        for _ in range(3):
            assert first.read_text(HULL) == second.read_text(HULL) == "five\nfathoms\n"
            first._result(first.source.close())


def test_slow_logs_and_diffs_do_not_block_reads_of_files(tmp_path: Path) -> None:
    history = History(tmp_path / "deltas")
    history.init("--bare")
    fill_with_deltas(history)
    with PublishedRepository(history.path) as source, ThreadPoolExecutor(24) as pool:
        slow = [pool.submit(source.read, f"git://repo/diff/main~{number + 100}..main") for number in range(20)]
        slow += [pool.submit(source.read, f"git://repo/log/main?path=dir{number % 7}") for number in range(20)]
        began = time.monotonic()
        for number in range(20):
            source.read(f"git://repo/tree/main~{number}/dir0/file00.txt")
        seconds = time.monotonic() - began
        for answer in slow:
            assert answer.result(timeout=50).contents
    print(f"20 files in {seconds:.2f} s")
    assert seconds < 30
