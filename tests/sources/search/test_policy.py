"""Searches with a policy: hits and messages do not depend on what the caller may not read."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from tests.server.driving import opened
from wharfinger import Server
from wharfinger import types as t
from wharfinger.errors import InvalidArgument
from wharfinger.protocol.jsonrpc import encode
from wharfinger.server.search import SearchRequest, search
from wharfinger.source import Document, Hit, Hits, Source
from wharfinger.sources import files, git
from wharfinger.sources.search.index_store import MAX_TEXT_CHARACTERS, Filters

pytestmark = pytest.mark.anyio

Permit = Callable[..., AbstractContextManager[None]]

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


def make(root: Path, contents: dict[str, str]) -> Path:
    for path, text in contents.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
        os.utime(root / path, (1_700_000_000, 1_700_000_000))
    return root


async def answers(searched: Any) -> list[Any]:
    found: list[Any] = []
    for query in QUERIES:
        for limit in (1, 3, 20):
            for filters in ({}, {"source": "d"}, {"path": "*.md"}, {"path": "private"}):
                hits = await searched.find(query, limit, **filters)
                found.append((query, limit, filters, encode(list(hits)), hits.truncated, hits.remark))
    return found


async def test_hits_of_an_index_equal_those_of_one_without_hidden_files(
    serving: Callable[..., Any], tmp_path: Path, permit: Permit
) -> None:
    whole, rest = make(tmp_path / "whole", SEEN | HIDDEN), make(tmp_path / "rest", SEEN)
    expected: list[list[Any]] = []
    for place in (whole, rest):
        async with serving(files(place, label="d"), folder=tmp_path / f"cache of {place.name}") as searched:
            await searched.complete()
            with permit("file:///d/**", deny=DENY):
                expected.append(await answers(searched))
            assert not any("300" in message for _, message in searched.progress_reports)
    for one, other in zip(*expected, strict=True):
        assert one == other
    assert any(found for _, _, _, found, _, _ in expected[0] if found != b"[]")


class Shelf(Source):
    """A source without a policy of its own, with thousands of hidden documents before the visible ones."""

    name = "shelf"

    def __init__(self, hidden: int, own: bool = False) -> None:
        self.names = [*(f"closed/{number}" for number in range(hidden)), *(f"open/{number}" for number in range(5))]
        self.own = own
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
        if not self.own:
            return None
        hits = Hits(Hit(uri=f"shelf://{name}", title=name, snippet="harbour") for name in self.names[:limit])
        hits.truncated = "There are more." if len(hits) == limit else ""
        hits.remark = "Did you mean hiddenword?"
        return hits


@pytest.mark.parametrize("own", [False, True])
async def test_thousands_of_hidden_documents_do_not_starve_the_visible_ones(permit: Permit, own: bool) -> None:
    server, shelf = Server("shelves"), Shelf(5_000, own)
    server.include(shelf)
    await server.start()
    try:
        with permit("shelf://open/**"):
            hits = await search(
                server.services,
                server.resources,
                opened(server, "resources/list"),
                SearchRequest(query="harbour", limit=5),
                lambda done, message: None,
            )
    finally:
        await server.close()
    assert sorted(hit.uri for hit in hits) == [f"shelf://open/{number}" for number in range(5)]
    assert not hits.remark and not hits.truncated
    assert all(uri.startswith("shelf://open/") for uri in shelf.read_uris)


async def test_sources_that_may_not_be_read_are_not_named(
    serving: Callable[..., Any], tmp_path: Path, permit: Permit
) -> None:
    one, other = make(tmp_path / "one", SEEN), make(tmp_path / "other", SEEN)
    async with serving(files(one, label="seen"), files(other, label="unseen")) as searched:
        with permit("file:///seen/**"):
            for name in ("unseen", "nowhere"):
                with pytest.raises(InvalidArgument, match=rf"no source '{name}': there are seen\.$"):
                    await searched.find("harbour", source=name)
            assert all(uri.startswith("file:///seen/") for uri in await searched.uris("harbour"))


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
async def test_commit_messages_are_found_only_by_callers_who_may_read_everything(
    serving: Callable[..., Any], tmp_path: Path, permit: Permit
) -> None:
    place = make(tmp_path / "repo", {"seen.md": "seen\n", "private/pay.md": "x\n"})
    for arguments in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "Quenchword of salaries"]):
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *arguments], cwd=place, check=True)
    async with serving(git(place, label="repo")) as searched:
        await searched.complete()
        with permit("git://repo/**"):
            assert await searched.uris("quenchword")
        with permit("git://repo/**", deny=["git://repo/tree/*/private/**"]):
            for query in ("quenchword", "quenchwort", "pay"):
                hits = await searched.find(query)
                assert not hits and "quenchword" not in hits.remark.replace(f"“{query}”", "").lower()
            assert await searched.uris("seen")


async def test_documents_that_are_indexed_in_part_are_counted_for_the_caller(
    serving: Callable[..., Any], tmp_path: Path, permit: Permit
) -> None:
    large = "words and words " * (MAX_TEXT_CHARACTERS // 16 + 1)
    place = make(tmp_path / "big", {"seen.md": "harbour\n", "private/big.txt": large})
    async with serving(files(place, label="d")) as searched:
        await searched.complete()
        assert "indexed only" in (await searched.find("harbour")).truncated
        with permit("file:///d/**", deny=DENY):
            assert (await searched.find("harbour")).truncated == ""
    assert Filters().shows is None
