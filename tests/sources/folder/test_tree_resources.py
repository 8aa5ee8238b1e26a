"""The resources of a file tree: adjustments, versions, encodings, and the cache of small files."""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec import UNSET

from wharfinger import types as t
from wharfinger.content.mime import DIRECTORY
from wharfinger.errors import ResourceNotFound
from wharfinger.source import VERSION, version_of
from wharfinger.sources.folder.ignore import PublishChoice
from wharfinger.sources.folder.tree import SETTLED_COARSE_NS, SETTLED_NS, FileTree, Parts, is_settled
from wharfinger.sources.folder.tree_resources import (
    KEPT_BYTES,
    KEPT_FILE_COST,
    MAX_KEPT_FILE_BYTES,
    TreeResources,
)
from wharfinger.sources.windows.window_budget import window_budget


def tree_resources(root: Path, *, gitignore: bool = True, **options: Any) -> TreeResources:
    return TreeResources(FileTree(str(root), PublishChoice(), gitignore=gitignore), "x://top", "top", **options)


def leave_out_csv_files(resource: t.Resource, parts: Parts) -> t.Resource | None:
    if resource.mime_type == DIRECTORY:
        return resource
    resource.description = "adjusted"
    return None if parts[-1].endswith(".csv") else resource


def test_adjust_applies_to_lists_directories_and_single_resources(charts: Path) -> None:
    files = tree_resources(charts, adjust=leave_out_csv_files)
    listed, _ = files.page(None, 100)
    assert "x://top/tides.csv" not in [resource.uri for resource in listed]
    children, _ = files.children("x://top")
    assert [child.name for child in children] == ["harbours", "README.md", "empty.txt"]
    assert files.stat("x://top/README.md").description == "adjusted"
    with pytest.raises(ResourceNotFound):
        files.stat("x://top/tides.csv")


def test_resources_have_versions_unless_versioned_is_false(charts: Path) -> None:
    assert version_of(tree_resources(charts).stat("x://top/README.md"))
    assert tree_resources(charts).read("x://top").contents[0].meta == {
        VERSION: version_of(tree_resources(charts).stat("x://top"))
    }
    unversioned = tree_resources(charts, versioned=False)
    for uri in ("x://top", "x://top/README.md"):
        assert version_of(unversioned.stat(uri)) == ""
        assert not unversioned.read(uri).contents[0].meta


def test_utf16_text_is_returned_as_bytes_if_utf8_only_is_set(tmp_path: Path) -> None:
    (tmp_path / "wide.txt").write_bytes("Fähre".encode("utf-16"))
    assert tree_resources(tmp_path).read("x://top/wide.txt").contents[0].text == "Fähre"
    content = tree_resources(tmp_path, utf8_only=True).read("x://top/wide.txt").contents[0]
    assert content.blob == "Fähre".encode("utf-16")
    window = tree_resources(tmp_path, utf8_only=True).read("x://top/wide.txt?bytes=2-5").contents[0]
    assert window.blob == "Fä".encode("utf-16-le")


def test_gitignore_is_followed_unless_the_tree_ignores_it(tmp_path: Path) -> None:
    (tmp_path / ".gitignore").write_text("*.log\n")
    (tmp_path / "app.log").write_text("x")
    with pytest.raises(ResourceNotFound):
        tree_resources(tmp_path).stat("x://top/app.log")
    assert tree_resources(tmp_path, gitignore=False).stat("x://top/app.log").size == 1


def test_a_folder_listing_counts_files_with_the_configured_noun(charts: Path) -> None:
    text = str(tree_resources(charts, noun="table").read("x://top").contents[0].text)
    assert text.startswith("top/ holds 1 folder and 3 tables.")


@pytest.mark.parametrize(("changed_ns", "tick_ns"), [(1_000_000_001, SETTLED_NS), (1_000_000_000, SETTLED_COARSE_NS)])
def test_a_file_time_is_settled_after_a_tick_of_its_clock(changed_ns: int, tick_ns: int) -> None:
    assert not is_settled(changed_ns, changed_ns + tick_ns)
    assert is_settled(changed_ns, changed_ns + tick_ns + 1)


def text_of(resources: TreeResources, uri: str) -> str:
    (contents,) = resources.read(uri).contents
    assert contents.text is not UNSET
    return contents.text


def test_a_caller_that_modifies_a_result_does_not_affect_later_reads(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one")
    resources = tree_resources(tmp_path)
    uri = "x://top/a.txt"
    version = version_of(resources.read(uri).contents[0])
    for _ in range(3):  # the first result is read from the file, the others come from the cache
        (contents,) = resources.read(uri).contents
        assert (contents.text, version_of(contents)) == ("one", version)
        contents.text = "changed"
        assert contents.meta
        contents.meta.clear()


@pytest.mark.skipif(os.name == "nt", reason="Windows refuses to change a mapped file that is open elsewhere")
def test_a_change_that_does_not_update_the_file_times_is_read(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_text("one")
    resources = tree_resources(tmp_path)
    with file.open("r+b") as opened, mmap.mmap(opened.fileno(), 0) as mapped:
        mapped[:] = b"two"
        assert text_of(resources, "x://top/a.txt") == "two"
        before = file.stat()
        mapped[:] = b"six"  # the page is dirty already, so the kernel does not notice
        after = file.stat()
        assert (before.st_mtime_ns, before.st_ctime_ns) == (after.st_mtime_ns, after.st_ctime_ns)
        assert text_of(resources, "x://top/a.txt") == "six"


def test_a_cached_file_is_not_found_after_it_is_ignored_or_removed(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one")
    (tmp_path / "b.txt").write_text("two")
    resources = tree_resources(tmp_path)
    assert text_of(resources, "x://top/a.txt") == text_of(resources, "x://top/a.txt") == "one"
    assert text_of(resources, "x://top/b.txt") == "two"
    (tmp_path / ".gitignore").write_text("a.txt\n")
    (tmp_path / "b.txt").unlink()
    for name in "ab":
        with pytest.raises(ResourceNotFound):
            resources.read(f"x://top/{name}.txt")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs FIFOs and links")
@pytest.mark.parametrize("replace", [os.mkfifo, lambda path: os.symlink("/etc/hostname", path), os.mkdir])
def test_a_cached_file_is_not_served_after_a_fifo_link_or_folder_replaces_it(
    tmp_path: Path, replace: Callable[[str], None]
) -> None:
    file = tmp_path / "a.txt"
    file.write_text("one")
    resources = tree_resources(tmp_path)
    text_of(resources, "x://top/a.txt")
    file.unlink()
    replace(str(file))
    if file.is_dir() and not file.is_symlink():
        assert "a.txt" in text_of(resources, "x://top/a.txt")
    else:
        with pytest.raises(ResourceNotFound):
            resources.read("x://top/a.txt")


@pytest.mark.parametrize("size", [MAX_KEPT_FILE_BYTES, MAX_KEPT_FILE_BYTES + 1])
def test_each_read_returns_the_current_content_and_version(tmp_path: Path, size: int) -> None:
    file = tmp_path / "a.txt"
    resources = tree_resources(tmp_path)
    versions: set[str] = set()
    for letter in "abc":
        file.write_text(letter * size)
        for _ in range(2):
            (contents,) = resources.read("x://top/a.txt").contents
            assert contents.text == letter * size
            versions.add(version_of(contents))
        file.unlink()  # another inode, whatever the tick of the clock
        (tmp_path / letter).touch()
    assert len(versions) == 3


def test_a_window_budget_also_cuts_a_cached_file(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("line\n" * 1_000)
    resources = tree_resources(tmp_path)
    text_of(resources, "x://top/a.txt")
    for budget, contents in ((5_000, 1), (4_999, 2)):  # the second content is a remark that names the next window
        with window_budget(budget):
            assert len(resources.read("x://top/a.txt").contents) == contents


def test_the_cache_of_small_files_is_bounded(tmp_path: Path) -> None:
    resources = tree_resources(tmp_path)
    max_files = KEPT_BYTES // (KEPT_FILE_COST + 1)
    for number in range(max_files + 1):
        (tmp_path / f"{number}.txt").write_text("x")
        assert text_of(resources, f"x://top/{number}.txt") == "x"
        assert len(resources._small_files._kept) == min(number + 1, max_files)
