"""What sources over files share: a tree as resources, adjusted, with or without versions, and in bytes if need be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from wharfinger import types as t
from wharfinger.content.mime import DIRECTORY
from wharfinger.errors import ResourceNotFound
from wharfinger.source import VERSION, version_of
from wharfinger.sources.folder.ignore import PublishChoice
from wharfinger.sources.folder.tree import SETTLED_COARSE_NS, SETTLED_NS, FileTree, Parts, is_settled
from wharfinger.sources.folder.tree_resources import TreeResources


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


def test_gitignore_is_followed_unless_the_tree_is_told_not_to(tmp_path: Path) -> None:
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
