"""Searches with a policy: hits and messages do not depend on what the caller may not read."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.server.driving import make_request
from tests.sources.conftest import Permit
from wharfinger import Server
from wharfinger import types as t
from wharfinger.errors import InvalidArgument
from wharfinger.protocol.jsonrpc import encode
from wharfinger.server.search import SearchRequest, search
from wharfinger.source import Document, Hit, Hits, Source
from wharfinger.sources import files, git
from wharfinger.sources.search.index_store import MAX_TEXT_CHARACTERS

SEEN = {
    "notes.md": "# Notes\nthe harbour opens at prudence\n",
    "docs/guide.md": "# Guide\nharbour harbour guide\n",
    "docs/other.md": "# Other\nnothing of it\n",
}
HIDDEN = {
    **{f"private/{number}.md": "harbour hiddenword prudense salaries\n" for number in range(300)},
    "docs/private.md": "harbour hiddenword\n",
}
DENY = ["file:///d/private/**", "file:///d/docs/private.md"]
QUERIES = (
    "harbour", "hiddenword", "prudence", "prudense", "salaries", "salarjes", "private", "guide harbour",
    "hiddenword harbour", "harbur", '"harbour opens"', "nothing",
)  # fmt: skip


def write_files(root: Path, contents: dict[str, str]) -> Path:
    for path, text in contents.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
        os.utime(root / path, (1_700_000_000, 1_700_000_000))
    return root


async def search_all(indexed_server: Any) -> list[Any]:
    found: list[Any] = []
    for query in QUERIES:
        for limit in (1, 3, 20):
            for filters in ({}, {"source": "d"}, {"path": "*.md"}, {"path": "private"}):
                hits = await indexed_server.find(query, limit, **filters)
                found.append((query, limit, filters, encode(list(hits)), hits.truncated, hits.remark))
    return found


async def test_hits_of_an_index_equal_those_of_one_without_hidden_files(
    start_server: Callable[..., Any], tmp_path: Path, permit: Permit
) -> None:
    all_files, visible_files = write_files(tmp_path / "whole", SEEN | HIDDEN), write_files(tmp_path / "rest", SEEN)
    answers: list[list[Any]] = []
    for folder in (all_files, visible_files):
        async with start_server(
            files(folder, label="d"), folder=tmp_path / f"cache of {folder.name}"
        ) as indexed_server:
            await indexed_server.wait_until_indexed()
            with permit("file:///d/**", deny=DENY):
                answers.append(await search_all(indexed_server))
            assert not any("300" in message for _, message in indexed_server.progress_reports)
    for with_hidden, without_hidden in zip(*answers, strict=True):
        assert with_hidden == without_hidden
    assert any(hits != b"[]" for _, _, _, hits, _, _ in answers[0])


class Shelf(Source):
    """A source that lists its hidden documents before five visible ones, and does not check policies itself."""

    name = "shelf"

    def __init__(self, hidden: int, own_search: bool = False) -> None:
        self.names = [*(f"closed/{number}" for number in range(hidden)), *(f"open/{number}" for number in range(5))]
        self.own_search = own_search
        self.read_uris: list[str] = []

    def matches(self, uri: str) -> bool:
        return uri.startswith("shelf://")

    def documents(self, after: str | None, limit: int) -> tuple[list[Document], str | None]:
        begin = int(after or 0)
        names = self.names[begin : begin + limit]
        found = [Document(uri=f"shelf://{name}", title=name, version="1", mime_type="text/plain") for name in names]
        return found, str(begin + limit) if begin + limit < len(self.names) else None

    def stat(self, uri: str) -> t.Resource:
        return t.Resource(uri=uri, name=uri, mime_type="text/plain")

    def text(self, uri: str) -> list[str]:
        self.read_uris.append(uri)
        return ["harbour"]

    def search(self, query: str, limit: int) -> Sequence[Hit] | None:
        if not self.own_search:
            return None
        hits = Hits(Hit(uri=f"shelf://{name}", title=name, snippet="harbour") for name in self.names[:limit])
        hits.truncated = "There are more." if len(hits) == limit else ""
        hits.remark = "Did you mean hiddenword?"
        return hits


@pytest.mark.parametrize("own_search", [False, True])
async def test_visible_documents_are_found_after_thousands_of_hidden_ones(permit: Permit, own_search: bool) -> None:
    server, shelf = Server("shelves"), Shelf(5_000, own_search)
    server.include(shelf)
    await server.start()
    try:
        with permit("shelf://open/**"):
            hits = await search(
                server.services,
                server.resources,
                make_request(server, "resources/list"),
                SearchRequest(query="harbour", limit=5),
                lambda done, message: None,
            )
    finally:
        await server.close()
    assert sorted(hit.uri for hit in hits) == [f"shelf://open/{number}" for number in range(5)]
    assert not hits.remark and not hits.truncated
    assert all(uri.startswith("shelf://open/") for uri in shelf.read_uris)


async def test_sources_that_may_not_be_read_are_not_named(
    start_server: Callable[..., Any], tmp_path: Path, permit: Permit
) -> None:
    seen, unseen = write_files(tmp_path / "one", SEEN), write_files(tmp_path / "other", SEEN)
    async with start_server(files(seen, label="seen"), files(unseen, label="unseen")) as indexed_server:
        with permit("file:///seen/**"):
            for name in ("unseen", "nowhere"):
                with pytest.raises(InvalidArgument, match=rf"no source '{name}': there are seen\.$"):
                    await indexed_server.find("harbour", source=name)
            assert all(uri.startswith("file:///seen/") for uri in await indexed_server.uris("harbour"))


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
async def test_commit_messages_are_found_only_by_callers_who_may_read_everything(
    start_server: Callable[..., Any], tmp_path: Path, permit: Permit
) -> None:
    folder = write_files(tmp_path / "repo", {"seen.md": "seen\n", "private/pay.md": "x\n"})
    for arguments in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "Quenchword of salaries"]):
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *arguments], cwd=folder, check=True)
    async with start_server(git(folder, label="repo")) as indexed_server:
        await indexed_server.wait_until_indexed()
        with permit("git://repo/**"):
            assert await indexed_server.uris("quenchword")
        with permit("git://repo/**", deny=["git://repo/tree/*/private/**"]):
            for query in ("quenchword", "quenchwort", "pay"):
                hits = await indexed_server.find(query)
                assert not hits and "quenchword" not in hits.remark.replace(f"“{query}”", "").lower()
            assert await indexed_server.uris("seen")


async def test_a_partly_indexed_document_is_reported_only_to_callers_who_may_read_it(
    start_server: Callable[..., Any], tmp_path: Path, permit: Permit
) -> None:
    large = "words and words " * (MAX_TEXT_CHARACTERS // 16 + 1)
    folder = write_files(tmp_path / "big", {"seen.md": "harbour\n", "private/big.txt": large})
    async with start_server(files(folder, label="d")) as indexed_server:
        await indexed_server.wait_until_indexed()
        assert "indexed only" in (await indexed_server.find("harbour")).truncated
        with permit("file:///d/**", deny=DENY):
            assert (await indexed_server.find("harbour")).truncated == ""
