"""Uncommitted changes, compared with `git status`, `git diff` and `git apply`."""

from __future__ import annotations

import os
import shutil
import sys
import time
from pathlib import Path

import pytest

from tests.sources.conftest import ChangeRecorder
from tests.sources.git_repository.conftest import Work
from tests.sources.git_repository.histories import CHANGES, History, Published, bytes_of, windows
from wharfinger.errors import InvalidArgument, ResourceNotFound

URI = "git://repo/changes"


def applied(history: Work, patch: bytes, index: Path) -> str:
    """Return the tree that results from a patch on HEAD."""
    git = History(history.path)
    index.unlink(missing_ok=True)
    git.output("read-tree", "HEAD", GIT_INDEX_FILE=str(index))
    git.output("apply", "--cached", "--whitespace=nowarn", "-", data=patch, GIT_INDEX_FILE=str(index))
    return git.output("write-tree", GIT_INDEX_FILE=str(index)).decode().strip()


def committed(history: Work, index: Path) -> str:
    """The tree that a commit of all tracked files would have, without touching the repository's index."""
    git = History(history.path)
    shutil.copy2(history.path / ".git/index", index)  # with its time, by which git knows what to compare
    git.output("add", "-u", GIT_INDEX_FILE=str(index))
    return git.output("write-tree", GIT_INDEX_FILE=str(index)).decode().strip()


def test_nothing_is_changed_at_first(history: Work) -> None:
    """Also if the times of files differ."""
    with Published(history.path) as source:
        assert source.first_text(URI).startswith(f"Nothing is changed since main ({history.head[:12]})")
        os.utime(history.path / "hull.txt", ns=(1, 1))
        assert source.first_text(URI).startswith("Nothing is changed")
        assert source.first_text(f"{URI}/docs").startswith("Nothing of docs is changed")


def test_changes_are_listed_as_git_status_does(history: Work) -> None:
    """Modified, added, deleted, renamed, staged or not, untracked or ignored."""
    history.write("hull.txt", "six\nfathoms\n")
    history.git("mv", "docs/tides.md", "docs/ebb.md")
    (history.path / "README.md").unlink()
    (history.path / "bin/run.sh").chmod(0o755)
    history.write("new.txt", "new\n")
    history.git("add", "new.txt")
    history.write(".gitignore", "*.log\n").write("x.log", "x\n").write("loose/one.txt", "1\n").write(
        "loose/two.txt", "2\n"
    )
    with Published(history.path) as source:
        text = source.first_text(URI)
        status = text.split("\n\n")[0].split("\n")[1:]
        assert status == [
            "  D README.md", "  M bin/run.sh", "  R docs/tides.md -> docs/ebb.md  (staged)", "  M hull.txt",
            "  A new.txt  (staged)", "  ? .gitignore  (untracked)", "  ? loose/  (untracked)",
        ]  # fmt: skip
        printed = history.git("status", "--porcelain", "--untracked-files=normal")
        assert len(printed.split("\n")) == len(status)
        assert "-five\n+six\n" in text
        assert "old mode 100644\nnew mode 100755" in text
        assert "six" not in source.first_text(f"{URI}/docs")
        assert "ebb.md" in source.first_text(f"{URI}/docs")
        assert "-five\n+six\n" in source.first_text(f"{URI}/hull.txt")


def test_changes_are_a_patch_that_git_applies(work: Work, tmp_path: Path) -> None:
    """For every kind of content, without writing to the repository."""
    for number, (old, _) in enumerate(CHANGES):
        work.write(f"texts/{number:02}.txt", old)
    work.write("gone.txt", "gone\n").write('odd \t"na\nme".txt', "odd\n").write("caf\udce9.txt", "odd\n")
    work.commit("Begin")
    for number, (_, new) in enumerate(CHANGES):
        work.write(f"texts/{number:02}.txt", new)
    (work.path / "gone.txt").unlink()
    work.write('odd \t"na\nme".txt', "changed\n").write("caf\udce9.txt", "changed\n")
    index = work.path / ".git/index"
    before = index.read_bytes(), index.stat().st_mtime_ns, sorted(os.listdir(work.path / ".git"))
    with Published(work.path) as source:
        patch = b"".join(map(bytes_of, windows(source, URI)))
        assert (index.read_bytes(), index.stat().st_mtime_ns, sorted(os.listdir(work.path / ".git"))) == before
        assert applied(work, patch, tmp_path / "one") == committed(work, tmp_path / "two")


def test_many_changes_are_read_in_windows(work: Work, tmp_path: Path) -> None:
    """Each path once."""
    for number in range(40):
        work.write(f"part{number % 4}/{number:02}.txt", f"line {number}\n" * 3_000)
    work.commit("Begin")
    for number in range(40):
        work.write(f"part{number % 4}/{number:02}.txt", f"other {number}\n" * 3_000)
    with Published(work.path) as source:
        pieces = [bytes_of(contents) for contents in windows(source, URI)]
        assert len(pieces) > 1
        assert b"".join(pieces).count(b"diff --git") == 40
        assert applied(work, b"".join(pieces), tmp_path / "one") == committed(work, tmp_path / "two")


def test_a_change_of_the_same_size_in_the_same_moment_is_seen(work: Work) -> None:
    """As git does: a file that is not older than the index is compared by its content."""
    work.commit("Begin", a__txt="one\n")
    with Published(work.path) as source:
        for number in range(20):
            status = (work.path / "a.txt").stat()
            text = f"{number:03}\n"
            work.write("a.txt", text)
            work.git("add", "a.txt")
            work.write("a.txt", text.replace("0", "9"))
            os.utime(work.path / "a.txt", ns=(status.st_atime_ns, (work.path / ".git/index").stat().st_mtime_ns))
            assert f"+{text.replace('0', '9')}" in source.first_text(URI)
            assert f"+{text.replace('0', '9')}".strip() in work.git("diff", "HEAD")


def test_watchers_hear_of_changes_in_the_working_tree(history: Work) -> None:
    """Although no reference moves; and for each further change."""
    with Published(history.path, every=0.05) as source:
        recorder = ChangeRecorder()
        source.stat(URI)
        source.watch(URI, recorder)
        for text in ("six\n", "seven\n"):
            history.write("hull.txt", text)
            recorder.wait_for(URI)
            first = source.first(URI)
            assert f"+{text}" in str(first.text)
        history.git("add", "hull.txt")
        recorder.wait_for(URI)
        history.git("commit", "-q", "-m", "Deepen")
        recorder.wait_for(URI)
        deadline = time.monotonic() + 5
        while not source.first_text(URI).startswith("Nothing is changed"):
            assert time.monotonic() < deadline
        version = source.version(URI)
        assert version == source.version(URI)


def test_a_conflict_does_not_hide_other_changes(history: Work) -> None:
    """During a merge that stopped."""
    history.git("checkout", "-q", "-b", "side", "HEAD~1")
    history.commit("Side", hull__txt="side\n")
    history.git("checkout", "-q", "main")
    with pytest.raises(AssertionError):
        history.git("merge", "-q", "side")
    history.write("README.md", "# Changed\n")
    with Published(history.path) as source:
        text = source.first_text(URI)
        assert "+# Changed" in text
        assert "M README.md" in text


@pytest.mark.skipif(sys.platform == "win32", reason="links and pipes are POSIX's")
def test_nothing_outside_of_the_working_tree_is_read(history: Work, tmp_path: Path) -> None:
    """A folder that became a link, and a file that became a link or a pipe: as in git, which does not follow them."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "tides.md").write_text("secret\n")
    (history.path / "docs").rename(tmp_path / "docs")
    (history.path / "docs").symlink_to(outside)
    (history.path / "hull.txt").unlink()
    (history.path / "hull.txt").symlink_to(outside / "tides.md")
    (history.path / "README.md").unlink()
    os.mkfifo(history.path / "README.md")
    with Published(history.path) as source:
        began = time.monotonic()
        for uri in (URI, f"{URI}/docs", f"{URI}/docs/tides.md", f"{URI}/hull.txt"):
            assert "secret" not in source.first_text(uri)
        assert "new file mode 120000" in source.first_text(f"{URI}/hull.txt")
        assert time.monotonic() - began < 20


def test_a_repository_without_a_working_tree_says_so(history: Work, tmp_path: Path) -> None:
    """In a bare repository, or without commits; and invalid paths."""
    history.git("clone", "-q", "--bare", str(history.path), str(tmp_path / "bare.git"))
    with Published(tmp_path / "bare.git") as source, pytest.raises(InvalidArgument, match="bare"):
        source.read(URI)
    empty = Work(tmp_path / "empty").init()
    with Published(empty.path) as source, pytest.raises(InvalidArgument, match="no commits"):
        source.read(URI)
    with Published(history.path) as source:
        for bad in ("?after=../x", "?lines=1-2", "/hull.txt?path=x"):
            with pytest.raises(InvalidArgument):
                source.read(URI + bad)
        with pytest.raises(ResourceNotFound):
            source.read(f"{URI}/../x")


def test_a_worktree_has_its_own_changes(history: Work, tmp_path: Path) -> None:
    """Its own index and folder."""
    history.git("worktree", "add", "-q", "-b", "other", str(tmp_path / "linked"))
    (tmp_path / "linked/hull.txt").write_text("linked\n")
    history.write("hull.txt", "main\n")
    with Published(tmp_path / "linked", git_dir=history.path / ".git") as source:
        assert "+linked\n" in source.first_text(URI)
        assert "+main\n" not in source.first_text(URI)
    with Published(history.path) as source:
        assert "+main\n" in source.first_text(URI)
