"""A tree as resources, for all sources over files: adjusted, with or without versions, and as bytes."""

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


def over(root: Path, *, gitignore: bool = True, **options: Any) -> TreeResources:
    return TreeResources(FileTree(str(root), PublishChoice(), gitignore=gitignore), "x://top", "top", **options)


def without_csv(resource: t.Resource, parts: Parts) -> t.Resource | None:
    if resource.mime_type == DIRECTORY:
        return resource
    resource.description = "adjusted"
    return None if parts[-1].endswith(".csv") else resource


def test_a_resource_is_adjusted_or_left_out_everywhere(charts: Path) -> None:
    files = over(charts, adjust=without_csv)
    listed, _ = files.page(None, 100)
    assert "x://top/tides.csv" not in [resource.uri for resource in listed]
    children, _ = files.children("x://top")
    assert [child.name for child in children] == ["harbours", "README.md", "empty.txt"]
    assert files.stat("x://top/README.md").description == "adjusted"
    with pytest.raises(ResourceNotFound):
        files.stat("x://top/tides.csv")


def test_resources_have_versions_unless_the_source_has_other_marks(charts: Path) -> None:
    assert version_of(over(charts).stat("x://top/README.md"))
    assert over(charts).read("x://top").contents[0].meta == {VERSION: version_of(over(charts).stat("x://top"))}
    bare = over(charts, versioned=False)
    for uri in ("x://top", "x://top/README.md"):
        assert version_of(bare.stat(uri)) == ""
        assert not bare.read(uri).contents[0].meta


def test_a_text_in_another_encoding_is_bytes_if_only_utf8_is_text(tmp_path: Path) -> None:
    (tmp_path / "wide.txt").write_bytes("Fähre".encode("utf-16"))
    assert over(tmp_path).read("x://top/wide.txt").contents[0].text == "Fähre"
    content = over(tmp_path, utf8_only=True).read("x://top/wide.txt").contents[0]
    assert content.blob == "Fähre".encode("utf-16")
    window = over(tmp_path, utf8_only=True).read("x://top/wide.txt?bytes=2-5").contents[0]
    assert window.blob == "Fä".encode("utf-16-le")


def test_gitignore_is_followed_unless_the_tree_ignores_it(tmp_path: Path) -> None:
    (tmp_path / ".gitignore").write_text("*.log\n")
    (tmp_path / "app.log").write_text("x")
    with pytest.raises(ResourceNotFound):
        over(tmp_path).stat("x://top/app.log")
    assert over(tmp_path, gitignore=False).stat("x://top/app.log").size == 1


def test_a_listing_counts_with_the_noun_of_the_source(charts: Path) -> None:
    text = str(over(charts, noun="table").read("x://top").contents[0].text)
    assert text.startswith("top/ holds 1 folder and 3 tables.")


@pytest.mark.parametrize(("changed", "tick"), [(1_000_000_001, SETTLED_NS), (1_000_000_000, SETTLED_COARSE_NS)])
def test_a_time_is_settled_after_a_tick_of_its_clock(changed: int, tick: int) -> None:
    assert not is_settled(changed, changed + tick)
    assert is_settled(changed, changed + tick + 1)


def text_of(resources: TreeResources, uri: str) -> str:
    (contents,) = resources.read(uri).contents
    assert contents.text is not UNSET
    return contents.text


def test_changes_of_a_result_by_its_caller_do_not_reach_the_next_read(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one")
    resources = over(tmp_path)
    uri = "x://top/a.txt"
    version = version_of(resources.read(uri).contents[0])
    for _ in range(3):  # the first is read from the file, the second is kept
        (contents,) = resources.read(uri).contents
        assert (contents.text, version_of(contents)) == ("one", version)
        contents.text = "changed"
        assert contents.meta
        contents.meta.clear()


@pytest.mark.skipif(os.name == "nt", reason="Windows refuses to change a mapped file that is open elsewhere")
def test_a_change_that_leaves_the_times_as_they_are_is_read(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_text("one")
    resources = over(tmp_path)
    with file.open("r+b") as opened, mmap.mmap(opened.fileno(), 0) as mapped:
        mapped[:] = b"two"
        assert text_of(resources, "x://top/a.txt") == "two"
        before = file.stat()
        mapped[:] = b"six"  # the page is dirty already, so the kernel does not notice
        after = file.stat()
        assert (before.st_mtime_ns, before.st_ctime_ns) == (after.st_mtime_ns, after.st_ctime_ns)
        assert text_of(resources, "x://top/a.txt") == "six"


def test_a_file_that_was_read_is_not_found_once_it_is_ignored_or_removed(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one")
    (tmp_path / "b.txt").write_text("two")
    resources = over(tmp_path)
    assert text_of(resources, "x://top/a.txt") == text_of(resources, "x://top/a.txt") == "one"
    assert text_of(resources, "x://top/b.txt") == "two"
    (tmp_path / ".gitignore").write_text("a.txt\n")
    (tmp_path / "b.txt").unlink()
    for name in "ab":
        with pytest.raises(ResourceNotFound):
            resources.read(f"x://top/{name}.txt")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs FIFOs and links")
@pytest.mark.parametrize("replace", [os.mkfifo, lambda path: os.symlink("/etc/hostname", path), os.mkdir])
def test_a_file_that_was_replaced_by_something_else_after_a_read_is_not_served(
    tmp_path: Path, replace: Callable[[str], None]
) -> None:
    file = tmp_path / "a.txt"
    file.write_text("one")
    resources = over(tmp_path)
    text_of(resources, "x://top/a.txt")
    file.unlink()
    replace(str(file))
    if file.is_dir() and not file.is_symlink():
        assert "a.txt" in text_of(resources, "x://top/a.txt")
    else:
        with pytest.raises(ResourceNotFound):
            resources.read("x://top/a.txt")


@pytest.mark.parametrize("size", [MAX_KEPT_FILE_BYTES, MAX_KEPT_FILE_BYTES + 1])
def test_each_read_returns_the_present_content_and_version(tmp_path: Path, size: int) -> None:
    file = tmp_path / "a.txt"
    resources = over(tmp_path)
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


def test_a_budget_also_holds_for_a_file_that_was_read_whole(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("line\n" * 1_000)
    resources = over(tmp_path)
    text_of(resources, "x://top/a.txt")
    for budget, contents in ((5_000, 1), (4_999, 2)):  # with a remark that names the next window
        with window_budget(budget):
            assert len(resources.read("x://top/a.txt").contents) == contents


def test_kept_files_are_bounded(tmp_path: Path) -> None:
    resources = over(tmp_path)
    most = KEPT_BYTES // (KEPT_FILE_COST + 1)
    for number in range(most + 1):
        (tmp_path / f"{number}.txt").write_text("x")
        assert text_of(resources, f"x://top/{number}.txt") == "x"
        assert len(resources._small_files._kept) == min(number + 1, most)
