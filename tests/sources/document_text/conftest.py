"""A folder of documents, read as a server reads it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from wharfinger.sources.folder.source import Folder, files

ReadText = Callable[..., str]


@pytest.fixture
def papers(tmp_path: Path) -> Path:
    folder = tmp_path / "papers"
    folder.mkdir()
    return folder


@pytest.fixture
def published(papers: Path) -> Iterator[Folder]:
    source = files(papers)
    yield source
    source._documents.close()


@pytest.fixture
def pages_of(papers: Path, published: Folder) -> Callable[[str, bytes], list[str]]:
    """Write a document, and read its pages: all of them, and then each by its own URI, which must be the same."""

    def read(name: str, data: bytes) -> list[str]:
        (papers / name).write_bytes(data)
        whole = text_of(published, f"{name}?text")
        pages: list[str] = []
        while sum(map(len, pages)) < len(whole):
            pages.append(text_of(published, f"{name}?pages={len(pages) + 1}"))
        assert "".join(pages) == whole
        return [page.partition("]\n")[2].strip("\n") for page in pages]

    return read


def text_of(source: Folder, path: str) -> str:
    """Return the text of the first content at a path in the folder."""
    text = source.read(f"{source.uri}/{path}").contents[0].text
    assert isinstance(text, str)
    return text
