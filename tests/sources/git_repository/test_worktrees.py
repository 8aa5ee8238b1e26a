"""Linked worktrees and submodules, whose `.git` is a file that names another directory, and reftables."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.sources.git_repository.conftest import GIT, GitRepository
from tests.sources.git_repository.histories import PublishedRepository
from wharfinger import Client
from wharfinger.errors import ResourceNotFound
from wharfinger.source import UnusableSource
from wharfinger.sources.git_repository import git, git_directory
from wharfinger.testing.source_suite.driver import ChangeRecorder

SECRET = "the combination of the safe"


@pytest.fixture
def worktree(history: GitRepository, tmp_path: Path) -> GitRepository:
    """Return a worktree of the repository on a separate branch, with one more commit."""
    worktree = GitRepository(tmp_path / "linked")
    history.git("worktree", "add", "-q", "-b", "other", str(worktree.path), "v1")
    worktree.seconds = history.seconds
    worktree.commit("In the worktree", only__txt="only here\n")
    return worktree


def own_directory(worktree: GitRepository) -> Path:
    """Return the git directory of a worktree."""
    return Path(worktree.git("rev-parse", "--absolute-git-dir"))


# Linked worktrees


def test_a_worktree_is_refused_until_its_directory_is_named(history: GitRepository, worktree: GitRepository) -> None:
    """Security G05: a `.git` file could publish any repository of this machine."""
    with pytest.raises(UnusableSource) as raised:
        git(worktree.path)
    assert str(own_directory(worktree)) in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("argument", ["its directory", "the repository", "git_dir"])
def test_a_worktree_with_a_named_git_directory_is_published(
    history: GitRepository, worktree: GitRepository, argument: str
) -> None:
    """It has its own HEAD, and the branches, tags and objects of the repository."""
    own = own_directory(worktree)
    path, options = {
        "its directory": (own, {}),
        "the repository": (worktree.path, {"git_dir": history.path / ".git"}),
        "git_dir": (worktree.path, {"git_dir": own}),
    }[argument]
    with PublishedRepository(path, **options) as source:
        assert source.version("git://repo/log/HEAD") == worktree.head != history.head
        assert source.version("git://repo/log/main") == history.head
        assert source.read_text("git://repo/tree/HEAD/only.txt") == "only here\n"
        assert source.read_text("git://repo/tree/main/hull.txt") == "five\nfathoms\n"
        assert source.read_text("git://repo/tree/v1/hull.txt") == "four\nfathoms\n"
        assert "other at" in source.read_text("git://repo")
        with pytest.raises(ResourceNotFound):
            source.read("git://repo/tree/HEAD/buoy.png")
        recorder = ChangeRecorder()
        for uri in ("git://repo/log/HEAD", "git://repo/log/main"):
            source.stat(uri)
            source.watch(uri, recorder)
        worktree.commit("Again", only__txt="again\n")
        recorder.wait_for("git://repo/log/HEAD")
        history.commit("In the repository")
        recorder.wait_for("git://repo/log/main")
        history.git("gc", "-q", "--prune=now")
        assert source.read_text("git://repo/tree/HEAD/only.txt") == "again\n"


def test_a_repository_with_worktrees_is_published_with_its_own_head(
    history: GitRepository, worktree: GitRepository
) -> None:
    """The branch of a worktree is published like any other branch."""
    with PublishedRepository(history.path) as source:
        assert source.version("git://repo/log/HEAD") == history.head
        assert source.read_text("git://repo/tree/other/only.txt") == "only here\n"
        recorder = ChangeRecorder()
        source.stat("git://repo/log/other")
        source.watch("git://repo/log/other", recorder)
        worktree.commit("Again", only__txt="again\n")
        recorder.wait_for("git://repo/log/other")
        assert source.read_text("git://repo/tree/other/only.txt") == "again\n"


def test_a_detached_worktree_is_described(history: GitRepository, tmp_path: Path) -> None:
    """Its HEAD is a commit instead of a branch."""
    detached = GitRepository(tmp_path / "detached")
    history.git("worktree", "add", "-q", "--detach", str(detached.path), "v1")
    with PublishedRepository(own_directory(detached)) as source:
        assert source.source.describe().startswith(f"detached at {history.git('rev-parse', 'v1')[:7]}")


def test_a_served_worktree_is_read_by_a_client(history: GitRepository, worktree: GitRepository) -> None:
    """`wharfinger serve git:DIRECTORY`. Serving the worktree itself is refused without a traceback."""
    wharfinger = [sys.executable, "-m", "wharfinger", "serve", "--stdio"]

    async def read() -> object:
        async with Client([*wharfinger, f"repo=git:{own_directory(worktree)}"]) as client:
            return (await client.read_resource("git://repo/tree/HEAD/only.txt")).contents[0].text

    assert asyncio.run(asyncio.wait_for(read(), 50)) == "only here\n"
    refused = subprocess.run(
        [*wharfinger, f"git:{worktree.path}"], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30,
        check=False,
    )  # fmt: skip
    assert refused.returncode == 2
    assert "leads to" in refused.stderr
    assert "Traceback" not in refused.stderr


# `.git` files that point to another repository


def _secret_repository(tmp_path: Path) -> GitRepository:
    other = GitRepository(tmp_path / "other").init()
    other.commit("Secret", secret__txt=SECRET)
    return other


def test_a_planted_git_file_is_refused(tmp_path: Path) -> None:
    """Security G05: it is refused even with `git_dir`, because that repository does not point back."""
    other = _secret_repository(tmp_path)
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / ".git").write_text(f"gitdir: {other.path}/.git\n")
    for options in ({}, {"git_dir": other.path}, {"git_dir": other.path / ".git"}):
        with pytest.raises(UnusableSource, match="leads to"):
            git(folder, **options)  # type: ignore[arg-type]


def test_a_copied_worktree_is_refused(history: GitRepository, worktree: GitRepository, tmp_path: Path) -> None:
    """Its git directory points back to the original worktree."""
    shutil.copytree(worktree.path, tmp_path / "copy")
    with pytest.raises(UnusableSource, match="leads to"):
        git(tmp_path / "copy", git_dir=history.path / ".git")
    with PublishedRepository(worktree.path, git_dir=history.path / ".git") as source:
        assert source.read_text("git://repo/tree/HEAD/only.txt") == "only here\n"


def test_a_worktree_that_was_moved_is_refused_until_it_is_repaired(
    history: GitRepository, worktree: GitRepository, tmp_path: Path
) -> None:
    """`git worktree repair` updates the pointer."""
    own = own_directory(worktree)
    worktree.path.rename(tmp_path / "moved")
    with pytest.raises(UnusableSource, match="worktree repair"):
        git(own)
    with pytest.raises(UnusableSource):
        git(tmp_path / "moved", git_dir=own)
    history.git("worktree", "repair", str(tmp_path / "moved"))
    with PublishedRepository(own) as source:
        assert source.read_text("git://repo/tree/HEAD/only.txt") == "only here\n"


def test_a_commondir_of_another_repository_is_refused(
    history: GitRepository, worktree: GitRepository, tmp_path: Path
) -> None:
    """Security G05: `commondir` must be the directory above that of the worktree."""
    other = _secret_repository(tmp_path)
    (own_directory(worktree) / "commondir").write_text(f"{other.path}/.git\n")
    for path, options in (
        (worktree.path, {"git_dir": history.path / ".git"}),
        (history.path / ".git/worktrees/linked", {}),
    ):
        with pytest.raises(UnusableSource):
            git(path, **options)  # type: ignore[arg-type]


def test_a_git_directory_inside_the_published_folder_is_followed(work: GitRepository) -> None:
    """`git init --separate-git-dir` creates such a repository."""
    folder = GitRepository(work.path.parent / "separate")
    folder.path.mkdir()
    folder.git("init", "-q", "-b", "main", f"--separate-git-dir={folder.path / 'store'}")
    folder.write(".gitignore", "store\n")
    folder.commit("Begin", a__txt="a\n")
    assert (folder.path / ".git").is_file()
    with PublishedRepository(folder.path) as source:
        assert source.read_text("git://repo/tree/HEAD/a.txt") == "a\n"


def test_a_link_to_a_git_directory_outside_of_the_folder_is_refused(tmp_path: Path) -> None:
    """Security G05: the real location of the directory counts."""
    other = _secret_repository(tmp_path)
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "store").symlink_to(other.path / ".git")
    (folder / ".git").write_text("gitdir: store\n")
    with pytest.raises(UnusableSource):
        git(folder)
    (folder / ".git").write_text("gitdir: store/../../other/.git\n")
    with pytest.raises(UnusableSource):
        git(folder)


@pytest.mark.parametrize(
    "content",
    [
        b"", b"gitdir:", b"gitdir: \n", b"gitdir: none\n", b"gitdir: .\n", b"gitdir: .git\n", b"gitdir: /\n",
        b"gitdir: /dev/null\n", b"gitdir: /etc\n", b"gitdir: a\0b\n", b"ref: refs/heads/main\n", b"\xff\xfe\n",
        b"gitdir: " + b"x/" * 100_000, b"x" * (2 << 20), b"gitdir: ../harbour/.git\n", b"[core]\n",
    ],
)  # fmt: skip
def test_invalid_git_files_are_refused(history: GitRepository, tmp_path: Path, content: bytes) -> None:
    """The error is one printable line."""
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / ".git").write_bytes(content)
    began = time.monotonic()
    with pytest.raises(UnusableSource) as raised:
        git(folder)
    assert str(raised.value).isprintable()
    assert len(str(raised.value)) < 5_000
    assert time.monotonic() - began < 20


@pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX links and FIFOs")
@pytest.mark.parametrize("kind", ["pipe", "link to a directory", "link to a file", "link to nothing"])
def test_a_path_that_is_neither_file_nor_folder_is_refused(history: GitRepository, tmp_path: Path, kind: str) -> None:
    """Opening a FIFO does not block."""
    folder = tmp_path / "folder"
    folder.mkdir()
    (tmp_path / "file").write_text(f"gitdir: {history.path}/.git\n")
    makers: dict[str, Callable[[], object]] = {
        "pipe": lambda: os.mkfifo(folder / ".git"),
        "link to a directory": lambda: (folder / ".git").symlink_to(history.path / ".git"),
        "link to a file": lambda: (folder / ".git").symlink_to(tmp_path / "file"),
        "link to nothing": lambda: (folder / ".git").symlink_to("none"),
    }
    makers[kind]()
    with pytest.raises(UnusableSource):
        git(folder)


# Submodules


def test_a_submodule_with_a_named_git_directory_is_published(history: GitRepository, tmp_path: Path) -> None:
    """Its git directory is in `.git/modules` and points back with `core.worktree`."""
    inner = GitRepository(tmp_path / "inner").init()
    inner.commit("Inside", inside__txt="inside\n")
    history.git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(inner.path), "lib")
    history.commit("Add a submodule")
    checkout = GitRepository(history.path / "lib")
    assert (checkout.path / ".git").is_file()
    with pytest.raises(UnusableSource, match="leads to"):
        git(checkout.path)
    modules = history.path / ".git/modules/lib"
    for path, options in ((checkout.path, {"git_dir": history.path / ".git"}), (modules, {})):
        with PublishedRepository(path, **options) as source:
            assert source.read_text("git://repo/tree/HEAD/inside.txt") == "inside\n"
            assert source.version("git://repo/log/HEAD") == inner.head
    with PublishedRepository(history.path) as source:
        assert inner.head in source.read_text("git://repo/tree/HEAD/lib")
        with pytest.raises(ResourceNotFound):
            source.read("git://repo/tree/HEAD/lib/inside.txt")


@pytest.mark.parametrize("name", ["c#lib", "c;lib"])
def test_the_name_of_a_submodule_may_contain_a_comment_sign(history: GitRepository, tmp_path: Path, name: str) -> None:
    """Bug: its configuration was cut at a `#` or `;` in quotes, so that it did not lead back to the submodule."""
    inner = GitRepository(tmp_path / "inner").init()
    inner.commit("Inside", inside__txt="inside\n")
    add = ("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", "--name", "lib", "--")
    history.git(*add, str(inner.path), name)
    for path in (history.path / name, history.path / ".git/modules/lib"):
        with PublishedRepository(path, git_dir=history.path / ".git") as source:
            assert source.read_text("git://repo/tree/HEAD/inside.txt") == "inside\n"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("[a]\nkey = x # y", "x"),
        ("[a]\nkey = x ; y\n", "x"),
        ("[a] key = x\n", "x"),
        ("[a]\nkey = one \\\n two\n", "one  two"),
        ('[a]\nkey = "one \\\n# two" # three\n', "one # two"),
        ('[a]\nkey = one "; two" three ; four\n', "one ; two three"),
        ('[a]\nkey = one \\"; two\n', 'one "'),
        ('[a]\nkey = "C:\\\\" # two\n', "C:\\"),
        ('# "one \\\n[a]\nkey = x\n', "x"),
        ('[b "c # \\" d"]\nkey = y\n[a]\nkey = x\n', "x"),
        ("\ufeff[a]\nkey = x\n", "x"),
    ],
)
def test_a_configuration_is_read_as_git_reads_it(text: str, value: str, tmp_path: Path) -> None:
    """git-config(1): what is quoted contains no comment, and a comment does not continue on the next line."""
    file = tmp_path / "config"
    file.write_text(text, encoding="utf-8", newline="\n")
    printed = subprocess.run(
        [GIT or "git", "config", "-f", file, "a.key"], capture_output=True, text=True, check=True
    ).stdout
    assert git_directory._configured(git_directory.GitDirectory(str(tmp_path)), "a") == {"key": value}
    assert printed == f"{value}\n"


def test_a_submodule_whose_directory_names_another_folder_is_refused(history: GitRepository, tmp_path: Path) -> None:
    """Only the key `core.worktree` of its configuration is read, and it must match."""
    inner = GitRepository(tmp_path / "inner").init()
    inner.commit("Inside", inside__txt="inside\n")
    history.git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(inner.path), "lib")
    history.git("config", "-f", str(history.path / ".git/modules/lib/config"), "core.worktree", "/")
    with pytest.raises(UnusableSource):
        git(history.path / "lib", git_dir=history.path / ".git")


# Reftables


def _git_version() -> tuple[int, ...]:
    printed = subprocess.run([GIT or "git", "version"], capture_output=True, text=True, check=True).stdout
    return tuple(int(part) for part in printed.split()[2].split(".")[:2])


def test_a_reftable_is_refused_by_an_old_git(history: GitRepository) -> None:
    """gitformat-reftable(5): git 2.45 and later read them."""
    if _git_version() >= (2, 45):
        pytest.skip("this git reads reftables")
    head = history.head
    directory = history.path / ".git"
    (directory / "config").write_text("[core]\n\trepositoryformatversion = 1\n[extensions]\n\trefStorage = reftable\n")
    shutil.rmtree(directory / "refs")
    (directory / "refs").mkdir()
    (directory / "refs/heads").write_text("this repository uses the reftable format\n")
    (directory / "HEAD").write_text("ref: refs/heads/.invalid\n")
    (directory / "reftable").mkdir()
    name = "0x000000000001-0x000000000002-1a2b3c4d.ref"
    (directory / "reftable/tables.list").write_text(name + "\n")
    (directory / "reftable" / name).write_bytes(b"REFT\1\0\20\0" + bytes(16) + bytes.fromhex(head))
    with pytest.raises(UnusableSource, match=r"reftable.*2\.45"):
        git(history.path)


def test_a_reftable_is_read(tmp_path: Path) -> None:
    """Its references are read like those in files."""
    if _git_version() < (2, 45):
        pytest.skip("this git cannot write reftables")
    work = GitRepository(tmp_path / "tables").init("--ref-format=reftable")
    work.commit("Begin", a__txt="a\n")
    work.git("tag", "v1")
    with PublishedRepository(work.path) as source:
        assert source.read_text("git://repo/tree/main/a.txt") == "a\n"
        assert source.version("git://repo/commit/v1") == work.head
        assert "main at" in source.read_text("git://repo")
        work.commit("More", a__txt="b\n")
        assert source.read_text("git://repo/tree/HEAD/a.txt") == "b\n"
