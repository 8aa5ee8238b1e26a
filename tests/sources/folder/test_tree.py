"""Walking a folder: its order, pages and limits."""

from __future__ import annotations

import errno
import gc
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.conftest import CI, examples
from tests.sources.conftest import create_files, without_privileges
from wharfinger.content.mime import DIRECTORY
from wharfinger.errors import InvalidArgument, ResourceNotFound
from wharfinger.source import SourceUnavailable
from wharfinger.sources.folder import tree as trees
from wharfinger.sources.folder.ignore import PublishChoice
from wharfinger.sources.folder.safe_open import NotServed, open_root
from wharfinger.sources.folder.source import Folder, files
from wharfinger.sources.folder.tree import (
    MAX_DEPTH,
    MAX_SHARED_DIRECTORIES,
    FileTree,
    Names,
    TreePosition,
    read_key,
    write_key,
)
from wharfinger.types import Resource


def paths(tree: FileTree, after: TreePosition | None = None) -> list[str]:
    return ["/".join(entry.parts) + "/" * entry.is_directory for entry in tree.walk(after)]


def test_a_directory_is_followed_by_its_files_and_then_its_directories(charts: Path) -> None:
    assert paths(FileTree(str(charts), PublishChoice())) == [
        "/", "README.md", "empty.txt", "tides.csv", "harbours/", "harbours/hull.ts", "harbours/north/",
        "harbours/north/buoy.png",
    ]  # fmt: skip


def test_a_walk_continues_after_any_position(charts: Path) -> None:
    tree = FileTree(str(charts), PublishChoice())
    entries = list(tree.walk())
    for index, entry in enumerate(entries):
        after = read_key(write_key(TreePosition(entry.is_directory, entry.parts)))
        assert paths(tree, after) == paths(tree)[index + 1 :]


def test_a_walk_continues_after_a_position_whose_entry_was_deleted(charts: Path) -> None:
    tree = FileTree(str(charts), PublishChoice())
    before = paths(tree)
    (charts / "empty.txt").unlink()
    assert paths(tree, TreePosition(False, ("empty.txt",))) == before[3:]
    shutil.rmtree(charts / "harbours")
    assert paths(tree, TreePosition(False, ("harbours", "hull.ts"))) == []
    (charts / "zones").mkdir()
    assert paths(tree, TreePosition(True, ("harbours", "north"))) == ["zones/"]
    (charts / "zones").rmdir()
    (charts / "zones").write_text("a file now")
    assert paths(tree, TreePosition(True, ("zones",))) == []


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="/\0"), min_size=1), max_size=4), st.booleans())
def test_a_position_is_written_as_a_key_and_read_back(parts: list[str], directory: bool) -> None:
    position = TreePosition(directory, tuple(parts))
    key = write_key(position)
    assert read_key(key) == position
    assert key.encode()


def test_a_key_encodes_names_that_are_not_utf8() -> None:
    position = TreePosition(False, (os.fsdecode(b"\xff%41"), "a"))
    assert write_key(position) == "f:%FF%2541/a"
    assert read_key(write_key(position)) == position


@pytest.mark.parametrize("key", ["", "x", "e:a", "fa"])
def test_an_invalid_key_is_refused(key: str) -> None:
    with pytest.raises(InvalidArgument, match="list again without one"):
        read_key(key)


NAMES = st.sampled_from([b"a", b"b", b"B.txt", b"c d", b"\xff", "é".encode(), b"%41", b"z", b"\n"])
PATHS = st.lists(NAMES, min_size=1, max_size=3).map(lambda parts: b"/".join(parts))
CHANGES = st.lists(st.tuples(st.sampled_from(["add", "remove"]), PATHS), max_size=6)


def apply(root: bytes, change: tuple[str, bytes]) -> None:
    kind, path = change
    target = os.path.join(root, path)
    try:
        if kind == "remove":
            shutil.rmtree(target) if os.path.isdir(target) else os.unlink(target)
        else:
            os.makedirs(os.path.dirname(target), exist_ok=True)
            with open(target, "w"):
                pass
    except OSError:
        pass  # a file in place of a directory, or a directory in place of a file


def identity(resource: Resource) -> tuple[str, bool]:
    """Return the identity of a resource. A file that replaces a directory is another resource."""
    return resource.uri, resource.mime_type == DIRECTORY


def list_all(source: Folder) -> list[tuple[str, bool]]:
    return [identity(resource) for resource in source.page(None, 1_000)[0]]


@settings(max_examples=examples(25), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(PATHS, max_size=12), st.lists(CHANGES, max_size=5), st.integers(1, 4))
# A file that replaces a directory is a new entry.
@example([b"a/a", b"B.txt/a"], [[("remove", b"a"), ("add", b"a")]], 2)
def test_pages_list_each_remaining_entry_once_and_in_order(
    start: list[bytes], changes: list[list[tuple[str, bytes]]], limit: int
) -> None:
    """Entries are added and removed between two pages."""
    with tempfile.TemporaryDirectory() as temporary:
        root = os.fsencode(temporary) + b"/root"
        os.mkdir(root)
        for path in start:
            apply(root, ("add", path))
        source = files(os.fsdecode(root))
        remaining = set(list_all(source))
        order: list[tuple[str, bool]] = []
        key: str | None = None
        steps = iter(changes)
        while True:
            page, key = source.page(key, limit)
            assert len(page) <= limit
            order += [identity(resource) for resource in page]
            if key is None:
                break
            for change in next(steps, ()):
                apply(root, change)
            remaining &= set(list_all(source))
        assert len(order) == len(set(order))
        assert remaining <= set(order)
        assert [entry for entry in order if entry in remaining] == [
            entry for entry in list_all(source) if entry in remaining
        ]


def test_a_listing_is_cached_until_the_directory_or_its_rules_change(
    charts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trees, "SETTLED_NS", -(1 << 62))
    monkeypatch.setattr(trees, "SETTLED_COARSE_NS", -(1 << 62))
    tree = FileTree(str(charts), PublishChoice())

    def listing() -> trees.DirectoryListing:
        with tree.directory(()) as place:
            return tree.listing(place)

    first = listing()
    assert listing() is first
    (charts / ".gitignore").write_text("*.csv\n")
    second = listing()
    assert "tides.csv" in first.files
    assert "tides.csv" not in second.files
    assert listing() is second
    (charts / ".gitignore").write_text("*.csx\n")
    assert "tides.csv" in listing().files


def test_the_listing_of_a_directory_that_just_changed_is_not_cached(charts: Path) -> None:
    tree = FileTree(str(charts), PublishChoice())
    for number in range(20):
        (charts / f"new{number}.txt").write_text("")
        with tree.directory(()) as place:
            assert f"new{number}.txt" in tree.listing(place).files


def test_the_cache_of_listings_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trees, "SETTLED_NS", -(1 << 62))
    for number in range(50):
        directory = tmp_path / f"d{number}"
        directory.mkdir()
        create_files(directory, [f"{name}" * 20 for name in range(20)])
    tree = FileTree(str(tmp_path), PublishChoice(), cache_bytes=20_000)
    assert len(paths(tree)) == 50 * 21 + 1
    assert 0 < tree._kept_bytes <= 20_000
    assert tree._kept_bytes == sum(kept.listing.cost for kept in tree._kept.values())


def test_a_directory_is_listed_and_opened_up_to_the_same_depth(tmp_path: Path) -> None:
    """A bug: a walk ended one level above the deepest directory that could be read."""
    directory = os.open(tmp_path, os.O_RDONLY)
    for _ in range(MAX_DEPTH + 2):
        os.close(os.open("f", os.O_CREAT, dir_fd=directory))
        os.mkdir("d", dir_fd=directory)
        inner = os.open("d", os.O_RDONLY, dir_fd=directory)
        os.close(directory)
        directory = inner
    os.close(directory)
    tree = FileTree(str(tmp_path), PublishChoice())
    deepest = ("d",) * MAX_DEPTH
    assert [entry.parts for entry in tree.walk()][-2:] == [deepest, (*deepest, "f")]
    with tree.directory(deepest), tree.file((*deepest, "f")):
        pass
    with pytest.raises(NotServed), tree.directory((*deepest, "d")):
        pass
    with pytest.raises(NotServed), tree.file((*deepest, "d", "f")):
        pass


def test_only_the_listed_name_is_served_on_a_case_insensitive_file_system(
    charts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Security: R33. On a case-insensitive file system, the rules must see the real name."""
    monkeypatch.setattr(trees, "FOLDS_NAMES", True)
    tree = FileTree(str(charts), PublishChoice())
    if not (charts / "readme.md").exists():
        os.link(charts / "README.md", charts / "readme.md")
    listing = trees.DirectoryListing(["README.md"], ["harbours"], {})
    monkeypatch.setattr(tree, "listing", lambda directory: listing)
    with tree.file(("README.md",)), tree.directory(("harbours",)):
        pass
    with pytest.raises(NotServed), tree.file(("readme.md",)):
        pass


def test_a_gitignore_that_is_a_link_is_ignored(charts: Path, tmp_path: Path) -> None:
    (tmp_path / "rules").write_text("*.md\n")
    (charts / ".gitignore").symlink_to(tmp_path / "rules")
    assert "README.md" in paths(FileTree(str(charts), PublishChoice()))


def fail_to_open(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the system refuse to open this file, as if too many files were open."""
    open_any = os.open

    def open_or_fail(path: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if path == name:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return open_any(path, flags, mode, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", open_or_fail)


def test_nothing_is_published_while_a_gitignore_cannot_be_opened(charts: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bug: while too many files were open, a directory could be listed and read without its .gitignore."""
    (charts / ".gitignore").write_text("*.csv\n")
    tree = FileTree(str(charts), PublishChoice())
    with monkeypatch.context() as patched:
        fail_to_open(".gitignore", patched)
        with pytest.raises(OSError, match="Too many open files"):
            paths(tree)
        with pytest.raises(OSError, match="Too many open files"):
            tree.open_file(("tides.csv",))
    assert "tides.csv" not in paths(tree)


@pytest.mark.parametrize("directory", ["", "harbours"])
def test_nothing_is_published_while_a_gitignore_may_not_be_read(
    charts: Path, directory: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A bug: such a file counted as missing, so the files that it names were published."""
    for parent in (charts, *charts.parents):
        with suppress(PermissionError):
            parent.chmod(parent.stat().st_mode | 0o555)
    ignore_file = charts / directory / ".gitignore"
    ignore_file.write_text("*.ts\n*.csv\n")
    ignore_file.chmod(0)
    tree = FileTree(str(charts), PublishChoice())
    with without_privileges():
        assert paths(tree) == ([] if not directory else ["/", "README.md", "empty.txt", "tides.csv"])
        for parts in [("tides.csv",), ()] if not directory else [("harbours", "hull.ts"), ("harbours", "north")]:
            with pytest.raises(NotServed):
                tree.open_file(parts)
            with pytest.raises(NotServed):
                tree.open_directory(parts)
    assert caplog.messages == [f"{ignore_file} may not be read: nothing in this directory is published."]


def test_a_gitignore_that_changes_twice_within_one_tick_of_the_clock_is_read_twice(
    charts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bug: the rules of the first version applied from then on, if both had the same size."""
    stat_now = os.stat
    tick = time.time_ns()

    def stat_in_tick(path: Any, **options: Any) -> os.stat_result:
        status = stat_now(path, **options)
        times = {"st_mtime_ns": tick, "st_ctime_ns": tick}
        return os.stat_result(status[:10], times) if path == ".gitignore" else status

    monkeypatch.setattr(os, "stat", stat_in_tick)
    monkeypatch.setattr(trees, "SETTLED_NS", 3_600 * 10**9)
    tree = FileTree(str(charts), PublishChoice())
    (charts / ".gitignore").write_text("*.csv\n")
    assert "tides.csv" not in paths(tree)
    (charts / ".gitignore").write_text("*.csx\n")
    assert "tides.csv" in paths(tree)


def test_a_walk_that_cannot_list_a_directory_closes_it(charts: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bug: while too many files were open, each walk left one more open."""
    scan = os.scandir

    def scan_or_fail(handle: int) -> Iterator[os.DirEntry[str]]:
        if os.path.samestat(os.stat(handle), os.stat(charts / "harbours")):
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return scan(handle)

    monkeypatch.setattr(os, "scandir", scan_or_fail)
    tree = FileTree(str(charts), PublishChoice())
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(OSError, match="Too many open files"):
        paths(tree)
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_missing_root_is_empty(charts: Path) -> None:
    tree = FileTree(str(charts), PublishChoice())
    shutil.rmtree(charts)
    assert paths(tree) == []


@given(st.lists(st.text(st.characters(exclude_characters="/\0"), min_size=1), unique=True), st.text())
def test_names_are_a_sorted_sequence(names: list[str], other: str) -> None:
    packed = Names(list(names))
    assert list(packed) == sorted(names)
    assert packed[-3:] == sorted(names)[-3:]
    assert all(name in packed for name in names)
    assert (other in packed) == (other in names)
    assert packed.index_after(other) == sum(name <= other for name in names)


def create_tree(root: Path, directories: int, files_per_directory: int) -> None:
    """Create directories of empty files."""
    for number in range(directories):
        directory = root / f"d{number:04d}"
        directory.mkdir(parents=True)
        create_files(directory, [f"file-{name:06d}.txt" for name in range(files_per_directory)])


def resident_mebibytes() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE") / (1 << 20)


SIZES = [(1, 2_000), (20, 100)]
if CI:
    SIZES += [(1, 100_000), (1_000, 100)]


@pytest.mark.parametrize(("directories", "files_per_directory"), SIZES)
def test_a_large_tree_is_listed_quickly_and_in_little_memory(
    tmp_path: Path, directories: int, files_per_directory: int
) -> None:
    """The first page takes less than 1 s, and nine of ten later pages take less than 50 ms.

    Memory grows by less than 32 MiB. CI lists 100,000 files. CPU time is measured, and existing objects are frozen, so
    that neither other processes nor the collection of these objects count.
    """
    create_tree(tmp_path / "big", directories, files_per_directory)
    time.sleep(trees.SETTLED_NS / 1e9)
    source = files(tmp_path / "big")
    before = resident_mebibytes()
    gc.freeze()
    began = time.thread_time()
    page, key = source.page(None, 500)
    first_page_seconds = time.thread_time() - began
    number, page_seconds = len(page), []
    while key is not None:
        began = time.thread_time()
        page, key = source.page(key, 500)
        page_seconds.append(time.thread_time() - began)
        number += len(page)
    gc.unfreeze()
    assert number == directories * files_per_directory + directories + 1
    assert first_page_seconds < 1
    assert sorted(page_seconds)[len(page_seconds) * 9 // 10] < 0.05
    assert resident_mebibytes() - before < 32


# Reads of one batch


def test_each_batch_opens_the_root_once(charts: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr(trees, "open_root", lambda path: (opened.append(path), open_root(path))[1])
    source = files(charts)
    for number in range(1, 3):
        with source.batch():
            for _ in range(3):
                assert source.read(f"{source.uri}/README.md").contents[0].text
                assert source.read(f"{source.uri}/harbours/hull.ts").contents[0].text
                assert source.stat(f"{source.uri}/harbours").name == "harbours"
        assert opened == [str(charts)] * number
    source.read(f"{source.uri}/README.md")
    assert len(opened) == 3


def test_a_batch_reads_changes_since_the_previous_batch(charts: Path) -> None:
    source = files(charts)
    uri = f"{source.uri}/README.md"
    with source.batch():
        assert source.read(uri).contents[0].text
    charts.rename(charts.with_name("moved"))
    with source.batch(), pytest.raises(SourceUnavailable):
        source.read(uri)
    charts.mkdir()
    (charts / "README.md").write_text("new")
    with source.batch():
        assert source.read(uri).contents[0].text == "new"
    (charts / ".gitignore").write_text("*.md\n")
    with source.batch(), pytest.raises(ResourceNotFound):
        source.read(uri)


def test_the_number_of_directories_that_a_batch_keeps_open_is_bounded(tmp_path: Path) -> None:
    paths = [f"d{number}/inner" for number in range(MAX_SHARED_DIRECTORIES + 2)]
    for path in paths:
        (tmp_path / path).mkdir(parents=True)
        (tmp_path / path / "a.txt").write_text(path)
    source = files(tmp_path, label="x")
    before = len(os.listdir("/proc/self/fd"))
    with source.batch():
        for path in paths * 2:
            assert source.read(f"file:///x/{path}/a.txt").contents[0].text == path
        assert len(os.listdir("/proc/self/fd")) - before == MAX_SHARED_DIRECTORIES
    assert len(os.listdir("/proc/self/fd")) == before


def test_threads_do_not_share_the_directories_of_a_batch(charts: Path) -> None:
    source = files(charts)
    before = len(os.listdir("/proc/self/fd"))
    with source.batch():
        source.read(f"{source.uri}/README.md")
        thread = threading.Thread(target=lambda: source.read(f"{source.uri}/README.md"))
        thread.start()
        thread.join()
        source.read(f"{source.uri}/README.md")
    assert len(os.listdir("/proc/self/fd")) == before
