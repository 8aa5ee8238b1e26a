"""Searching names and text, within bounds that are told."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sources.conftest import many_names
from wharfinger.sources.folder.file_search import SearchBounds, search_tree
from wharfinger.sources.folder.ignore import PublishChoice
from wharfinger.sources.folder.source import Folder
from wharfinger.sources.folder.tree import FileTree


@pytest.fixture
def tree(charts: Path) -> FileTree:
    return FileTree(str(charts), PublishChoice())


def found(tree: FileTree, query: str, limit: int = 10, bounds: SearchBounds | None = None) -> list[str]:
    return ["/".join(hit.parts) for hit in search_tree(tree, query, limit, bounds).found]


def test_names_come_before_texts_and_better_names_before_worse(tree: FileTree, charts: Path) -> None:
    (charts / "hull").mkdir()
    (charts / "hulls.txt").write_text("x")
    assert found(tree, "Hull") == ["hull", "harbours/hull.ts", "hulls.txt", "tides.csv"]


def test_every_word_must_occur(tree: FileTree) -> None:
    assert found(tree, "harbours BUOY") == ["harbours/north/buoy.png"]
    assert found(tree, "soundings fathoms") == ["README.md"]
    assert found(tree, "soundings depth") == []
    assert found(tree, "  ") == []


def test_a_text_is_shown_by_its_line(tree: FileTree, charts: Path) -> None:
    (charts / "long.txt").write_text("x" * 500 + "needle" + "y" * 500)
    hits = search_tree(tree, "needle", 5).found
    assert len(hits[0].snippet) < 250
    assert "needle" in hits[0].snippet
    assert search_tree(tree, "soundings", 5).found[0].snippet == "3: Soundings in fathoms."


def test_what_is_not_published_is_not_found(tree: FileTree, charts: Path) -> None:
    (charts / "server.pem").write_text("needle")
    (charts / ".hidden").write_text("needle")
    (charts / "link.txt").symlink_to("/etc/hostname")
    assert found(tree, "needle") == []
    assert found(tree, "link") == []


def test_other_encodings_and_binary_content_do_no_harm(tree: FileTree, charts: Path) -> None:
    (charts / "wide.txt").write_bytes("a wide needle".encode("utf-16"))
    (charts / "latin.txt").write_bytes("Fähre needle".encode("latin-1"))
    (charts / "data.bin").write_bytes(b"needle\0\xff")
    assert found(tree, "needle") == ["latin.txt", "wide.txt"]


@pytest.mark.parametrize(
    ("bounds", "cut"),
    [
        (SearchBounds(seconds=-1, files=1 << 30), "after -1 s"),
        (SearchBounds(files=256), "after 256 files"),
        (SearchBounds(bytes=1 << 20), "after 1 MiB of text"),
    ],
)
def test_a_bound_that_is_reached_is_told(tmp_path: Path, bounds: SearchBounds, cut: str) -> None:
    many_names(tmp_path, [f"{number}.txt" for number in range(300)], b"x" * 5_000)
    results = search_tree(FileTree(str(tmp_path), PublishChoice()), "needle", 5, bounds)
    assert (results.found, results.cut) == ([], cut)


def test_a_source_tells_hits_with_their_resource(source: Folder) -> None:
    hits = source.search("depth", 5)
    assert [(hit.uri, hit.title, hit.snippet) for hit in hits] == [
        (f"{source.uri}/harbours/hull.ts", "harbours/hull.ts", "1: export const depth = 4;")
    ]
    assert hits[0].resource == source.stat(hits[0].uri)
    assert hits.truncated == ""
