"""Uncommitted changes, compared with `git status`, `git diff` and `git apply`."""

from __future__ import annotations

import os
import re
import shutil
import sys
import time
from pathlib import Path
from typing import cast

import pytest

from tests.sources.git_repository.conftest import GitRepository
from tests.sources.git_repository.histories import CHANGES, History, PublishedRepository, bytes_of, read_windows
from tests.waiting import wait_until
from wharfinger.errors import InvalidArgument, ResourceNotFound
from wharfinger.sources.git_repository import GitSource, private_directory
from wharfinger.testing.source_suite.driver import ChangeRecorder

URI = "git://repo/changes"


def tree_after_patch(history: GitRepository, patch: bytes, index: Path) -> str:
    """Return the tree that git makes of HEAD and a patch."""
    git = History(history.path)
    index.unlink(missing_ok=True)
    git.output("read-tree", "HEAD", GIT_INDEX_FILE=str(index))
    git.output("apply", "--cached", "--whitespace=nowarn", "-", data=patch, GIT_INDEX_FILE=str(index))
    return git.output("write-tree", GIT_INDEX_FILE=str(index)).decode().strip()


def tree_of_tracked_files(history: GitRepository, index: Path) -> str:
    """Return the tree that a commit of all tracked files would have. The index of the repository is not changed."""
    git = History(history.path)
    shutil.copy2(history.path / ".git/index", index)  # with its mtime, from which git knows which files to compare
    git.output("add", "-u", GIT_INDEX_FILE=str(index))
    return git.output("write-tree", GIT_INDEX_FILE=str(index)).decode().strip()


def test_a_clean_working_tree_has_no_changes(history: GitRepository) -> None:
    """A new mtime alone is not a change."""
    with PublishedRepository(history.path) as source:
        assert source.read_text(URI).startswith(f"Nothing is changed since main ({history.head[:12]})")
        os.utime(history.path / "hull.txt", ns=(1, 1))
        assert source.read_text(URI).startswith("Nothing is changed")
        assert source.read_text(f"{URI}/docs").startswith("Nothing of docs is changed")


def test_changes_are_listed_as_by_git_status(history: GitRepository) -> None:
    """Files are modified, added, deleted, renamed, staged, untracked and ignored."""
    history.write("hull.txt", "six\nfathoms\n")
    history.git("mv", "docs/tides.md", "docs/ebb.md")
    (history.path / "README.md").unlink()
    (history.path / "bin/run.sh").chmod(0o755)
    history.write("new.txt", "new\n")
    history.git("add", "new.txt")
    history.write(".gitignore", "*.log\n").write("x.log", "x\n").write("loose/one.txt", "1\n").write(
        "loose/two.txt", "2\n"
    )
    with PublishedRepository(history.path) as source:
        text = source.read_text(URI)
        status = text.split("\n\n")[0].split("\n")[1:]
        assert status == [
            "  D README.md", "  M bin/run.sh", "  R docs/tides.md -> docs/ebb.md  (staged)", "  M hull.txt",
            "  A new.txt  (staged)", "  ? .gitignore  (untracked)", "  ? loose/  (untracked)",
        ]  # fmt: skip
        printed = history.git("status", "--porcelain", "--untracked-files=normal")
        assert len(printed.split("\n")) == len(status)
        assert "-five\n+six\n" in text
        assert "old mode 100644\nnew mode 100755" in text
        assert "six" not in source.read_text(f"{URI}/docs")
        assert "ebb.md" in source.read_text(f"{URI}/docs")
        assert "-five\n+six\n" in source.read_text(f"{URI}/hull.txt")


def test_changes_are_a_patch_that_git_applies(work: GitRepository, tmp_path: Path) -> None:
    """The files have every kind of content. Reading the patch does not write to the repository."""
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
    with PublishedRepository(work.path) as source:
        patch = b"".join(map(bytes_of, read_windows(source, URI)))
        assert (index.read_bytes(), index.stat().st_mtime_ns, sorted(os.listdir(work.path / ".git"))) == before
        assert tree_after_patch(work, patch, tmp_path / "one") == tree_of_tracked_files(work, tmp_path / "two")


def test_many_changes_are_read_in_windows(work: GitRepository, tmp_path: Path) -> None:
    """Each path is in one window only."""
    for number in range(40):
        work.write(f"part{number % 4}/{number:02}.txt", f"line {number}\n" * 3_000)
    work.commit("Begin")
    for number in range(40):
        work.write(f"part{number % 4}/{number:02}.txt", f"other {number}\n" * 3_000)
    with PublishedRepository(work.path) as source:
        parts = [bytes_of(contents) for contents in read_windows(source, URI)]
        assert len(parts) > 1
        assert b"".join(parts).count(b"diff --git") == 40
        assert tree_after_patch(work, b"".join(parts), tmp_path / "one") == tree_of_tracked_files(
            work, tmp_path / "two"
        )


def test_a_change_that_keeps_size_and_mtime_is_reported(work: GitRepository) -> None:
    """As in git, a file that is not older than the index is compared by its content."""
    work.commit("Begin", a__txt="one\n")
    with PublishedRepository(work.path) as source:
        for number in range(20):
            status = (work.path / "a.txt").stat()
            text = f"{number:03}\n"
            work.write("a.txt", text)
            work.git("add", "a.txt")
            work.write("a.txt", text.replace("0", "9"))
            os.utime(work.path / "a.txt", ns=(status.st_atime_ns, (work.path / ".git/index").stat().st_mtime_ns))
            assert f"+{text.replace('0', '9')}" in source.read_text(URI)
            assert f"+{text.replace('0', '9')}".strip() in work.git("diff", "HEAD")


def test_watchers_are_notified_of_changes_in_the_working_tree(history: GitRepository) -> None:
    """They are notified of each change, although no reference moves."""
    with PublishedRepository(history.path, every=0.05) as source:
        recorder = ChangeRecorder()
        source.stat(URI)
        source.watch(URI, recorder)
        for text in ("six\n", "seven\n"):
            history.write("hull.txt", text)
            recorder.wait_for(URI)
            first = source.read_first(URI)
            assert f"+{text}" in str(first.text)
        history.git("add", "hull.txt")
        recorder.wait_for(URI)
        history.git("commit", "-q", "-m", "Deepen")
        recorder.wait_for(URI)
        wait_until(lambda: source.read_text(URI).startswith("Nothing is changed"), "no change is left")
        version = source.version(URI)
        assert version == source.version(URI)


def test_a_conflict_does_not_hide_other_changes(history: GitRepository) -> None:
    history.git("checkout", "-q", "-b", "side", "HEAD~1")
    history.commit("Side", hull__txt="side\n")
    history.git("checkout", "-q", "main")
    with pytest.raises(AssertionError):
        history.git("merge", "-q", "side")
    history.write("README.md", "# Changed\n")
    with PublishedRepository(history.path) as source:
        text = source.read_text(URI)
        assert "+# Changed" in text
        assert "M README.md" in text


@pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX links and FIFOs")
def test_nothing_outside_of_the_working_tree_is_read(history: GitRepository, tmp_path: Path) -> None:
    """Links and FIFOs that replace a folder or a file are not followed, as in git."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "tides.md").write_text("secret\n")
    (history.path / "docs").rename(tmp_path / "docs")
    (history.path / "docs").symlink_to(outside)
    (history.path / "hull.txt").unlink()
    (history.path / "hull.txt").symlink_to(outside / "tides.md")
    (history.path / "README.md").unlink()
    os.mkfifo(history.path / "README.md")
    with PublishedRepository(history.path) as source:
        began = time.monotonic()
        for uri in (URI, f"{URI}/docs", f"{URI}/docs/tides.md", f"{URI}/hull.txt"):
            assert "secret" not in source.read_text(uri)
        assert "new file mode 120000" in source.read_text(f"{URI}/hull.txt")
        assert time.monotonic() - began < 40


def test_changes_are_refused_without_a_working_tree_or_commits(history: GitRepository, tmp_path: Path) -> None:
    """Invalid paths and parameters are refused too."""
    history.git("clone", "-q", "--bare", str(history.path), str(tmp_path / "bare.git"))
    with PublishedRepository(tmp_path / "bare.git") as source, pytest.raises(InvalidArgument, match="bare"):
        source.read(URI)
    empty = GitRepository(tmp_path / "empty").init()
    with PublishedRepository(empty.path) as source, pytest.raises(InvalidArgument, match="no commits"):
        source.read(URI)
    with PublishedRepository(history.path) as source:
        for bad in ("?after=../x", "?lines=1-2", "/hull.txt?path=x"):
            with pytest.raises(InvalidArgument):
                source.read(URI + bad)
        with pytest.raises(ResourceNotFound):
            source.read(f"{URI}/../x")


def test_a_worktree_has_its_own_changes(history: GitRepository, tmp_path: Path) -> None:
    history.git("worktree", "add", "-q", "-b", "other", str(tmp_path / "linked"))
    (tmp_path / "linked/hull.txt").write_text("linked\n")
    history.write("hull.txt", "main\n")
    with PublishedRepository(tmp_path / "linked", git_dir=history.path / ".git") as source:
        assert "+linked\n" in source.read_text(URI)
        assert "+main\n" not in source.read_text(URI)
    with PublishedRepository(history.path) as source:
        assert "+main\n" in source.read_text(URI)


def test_modes_and_links_that_the_file_system_cannot_store_are_not_compared(work: GitRepository) -> None:
    """`git init` and `git clone` write these settings on such a file system."""
    work.write("hull.txt", "four\n")
    (work.path / "link").symlink_to("hull.txt")
    work.commit("Begin")
    (work.path / "hull.txt").chmod(0o755)
    (work.path / "link").unlink()
    work.write("link", "hull.txt")
    work.git("config", "core.fileMode", "false")
    work.git("config", "core.symlinks", "false")
    assert work.git("status", "--porcelain") == ""
    with PublishedRepository(work.path) as source:
        assert source.read_text(URI).startswith("Nothing is changed")


@pytest.mark.parametrize("line", ["fileMode", "fileMode =", 'fileMode = ""', "fileMode = off", "fileMode = yes", ""])
def test_a_setting_of_yes_or_no_is_read_as_by_git(work: GitRepository, line: str) -> None:
    work.commit("Begin", hull__txt="four\n")
    (work.path / "hull.txt").chmod(0o755)
    config = work.path / ".git" / "config"
    config.write_text(config.read_text().replace("filemode = true", line))
    with PublishedRepository(work.path) as source:
        assert source.read_text(URI).startswith("Nothing is changed") == (not work.git("status", "--porcelain"))


def test_changes_of_a_split_index_are_read(history: GitRepository, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bug: git did not find the shared part of the index."""
    monkeypatch.setattr(private_directory, "KEEP_SECONDS", -1.0)
    with PublishedRepository(history.path) as source:
        for number in range(3):
            history.write(f"{number}.txt", "new\n").git("add", f"{number}.txt")
            history.git("update-index", "--split-index")
            history.write("hull.txt", f"{number} fathoms\n").write("lights.txt", "red\n").git("add", "lights.txt")
            before = {file.name: file.read_bytes() for file in (history.path / ".git").iterdir() if file.is_file()}
            text = source.read_text(URI)
            assert (
                f"  A {number}.txt  (staged)\n" in text
                and "  A lights.txt  (staged)\n" in text
                and f"+{number} fathoms" in text
            )
            after = {file.name: file.read_bytes() for file in (history.path / ".git").iterdir() if file.is_file()}
            assert after == before
            folder = Path(cast("GitSource", source.source).repository.private_directory.path)
            assert len([*folder.glob("sharedindex.*")]) == 1


def test_a_missing_part_of_the_index_is_reported_without_temporary_paths(history: GitRepository) -> None:
    history.git("update-index", "--split-index")
    for file in (history.path / ".git").glob("sharedindex.*"):
        file.unlink()
    with PublishedRepository(history.path) as source, pytest.raises(InvalidArgument, match="failed: sharedindex"):
        source.read_text(URI)


def test_a_file_that_is_only_intended_to_be_added_is_not_staged(history: GitRepository) -> None:
    history.write("lights.txt", "green\n").git("add", "--intent-to-add", "lights.txt")
    assert history.git("status", "--porcelain") == " A lights.txt"
    with PublishedRepository(history.path) as source:
        text = source.read_text(URI)
    assert "  A lights.txt\n" in text
    assert "+green\n" in text


def test_staged_changes_that_were_undone_have_no_patch(history: GitRepository) -> None:
    """The patch of another file took their place, and alone they could not be compared."""
    history.write("docs/tides.md", "# Ebb\n").write("hull.txt", "six\n")
    (history.path / "bin/run.sh").chmod(0o755)
    history.git("add", "-A")
    history.git("restore", "--source=HEAD", "--worktree", "docs/tides.md", "bin/run.sh")
    history.write("README.md", "# Port\n")
    with PublishedRepository(history.path) as source:
        contents = source.read(URI).contents
        assert len(contents) == 1
        text = contents[0].text
        assert isinstance(text, str)
        assert re.findall("^diff --git a/(.*) b/", text, re.MULTILINE) == ["README.md", "hull.txt"]
        assert re.findall("^  (M .*)", text, re.MULTILINE) == [
            "M README.md",
            "M bin/run.sh  (staged)",
            "M docs/tides.md  (staged)",
            "M hull.txt  (staged)",
        ]
        assert source.read_text(f"{URI}/docs") == text.partition("\n")[0] + "\n  M docs/tides.md  (staged)\n"


def test_both_paths_of_a_staged_rename_are_staged(history: GitRepository) -> None:
    """After the rename, another text was written into the file, so that compared with HEAD there is no rename."""
    history.git("mv", "hull.txt", "goole.txt")
    history.write("goole.txt", "quite another text\n")
    with PublishedRepository(history.path) as source:
        text = source.read_text(URI)
    assert "  D hull.txt  (staged)\n" in text
    assert "  A goole.txt  (staged)\n" in text
