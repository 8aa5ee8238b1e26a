"""A search of one source's documents finds names, then texts, within bounds that it reports."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.server.driving import looped
from tests.sources.conftest import charts, many_names
from wharfinger import types as t
from wharfinger.errors import ResourceNotFound
from wharfinger.server import search_ranking
from wharfinger.server.document_search import SearchBounds, SourceReader, Stopped, search_documents
from wharfinger.source import Document, DocumentPage, Hits, Source
from wharfinger.sources import files
from wharfinger.sources.folder.source import Folder


class Notes(Source):
    """Documents by title, in pages of the requested size; `read_texts` has the titles whose texts were read."""

    name = "notes"

    def __init__(self, **texts: str) -> None:
        self.texts = texts
        self.read_texts: list[str] = []

    def documents(self, after: str | None, limit: int) -> DocumentPage:
        begin = 0 if after is None else int(after)
        names = list(self.texts)[begin : begin + limit]
        more = begin + limit < len(self.texts)
        return [Document(uri=f"note:{name}", title=name, version="") for name in names], str(
            begin + limit
        ) if more else None

    def text(self, uri: str) -> Iterator[str]:
        self.read_texts.append(uri)
        yield from (self.texts[uri.removeprefix("note:")],)


__all__ = ["charts"]  # a fixture


@pytest.fixture
def source(charts: Path) -> Folder:
    return files(charts)


def titles(hits: Hits) -> list[str]:
    return [hit.title for hit in hits]


def found(source: Source, query: str, limit: int = 10, bounds: SearchBounds | None = None) -> list[str]:
    return titles(search_documents(source, query, limit, bounds=bounds))


# -- hits and their order


def test_names_come_before_texts_and_better_names_before_worse(source: Folder, charts: Path) -> None:
    (charts / "hulls.txt").write_text("x")
    (charts / "deeper").mkdir()
    (charts / "deeper" / "hulls.txt").write_text("x")
    assert found(source, "Hull") == ["harbours/hull.ts", "hulls.txt", "deeper/hulls.txt", "tides.csv"]


def test_words_may_occur_in_the_name_or_the_text(source: Folder) -> None:
    assert found(source, "harbours BUOY") == ["harbours/north/buoy.png"]
    assert found(source, "soundings fathoms") == ["README.md"]
    assert found(source, "readme fathoms") == ["README.md"]
    assert found(source, "  ") == []


def test_documents_with_only_some_of_the_words_come_last_and_are_marked(source: Folder, charts: Path) -> None:
    hits = search_documents(source, "soundings depth", 5)
    assert sorted(titles(hits)) == ["README.md", "harbours/hull.ts"]
    assert hits.remark == "No document has all the words; these have most of them."
    (charts / "both.txt").write_text("soundings and\n" + "nothing\n" * 50 + "depth")
    hits = search_documents(source, "soundings depth", 5)
    assert (titles(hits)[0], hits.remark) == ("both.txt", "")
    assert found(source, '"soundings depth"') == []
    assert "hull.ts" not in str(found(source, "soundings fathoms depth"))


def test_words_in_quotes_are_a_phrase() -> None:
    notes = Notes(a="high water", b="water is high")
    assert found(notes, '"high water"') == ["a"]
    assert found(notes, "high water") == ["a", "b"]


def test_a_text_is_shown_by_its_line(source: Folder, charts: Path) -> None:
    (charts / "long.txt").write_text("x" * 500 + "needle" + "y" * 500)
    hits = search_documents(source, "needle", 5)
    assert len(hits[0].snippet) < 250
    assert "needle" in hits[0].snippet
    assert search_documents(source, "soundings", 5)[0].snippet == "3: Soundings in fathoms."


def test_a_hit_has_the_resource(source: Folder) -> None:
    hits = search_documents(source, "depth", 5)
    assert [(hit.uri, hit.title, hit.snippet) for hit in hits] == [
        (f"{source.uri}/harbours/hull.ts", "harbours/hull.ts", "1: export const depth = 4;")
    ]
    known = source.stat(hits[0].uri)
    assert hits[0].resource == t.Resource(
        uri=hits[0].uri, name="hull.ts", title="harbours/hull.ts", mime_type=known.mime_type
    )
    assert hits.truncated == ""


def test_unpublished_files_are_not_found(source: Folder, charts: Path) -> None:
    (charts / "server.pem").write_text("needle")
    (charts / ".hidden").write_text("needle")
    (charts / "link.txt").symlink_to("/etc/hostname")
    assert found(source, "needle") == []
    assert found(source, "link") == []


def test_other_encodings_and_binary_content_are_handled(source: Folder, charts: Path) -> None:
    (charts / "wide.txt").write_bytes("a wide needle".encode("utf-16"))
    (charts / "latin.txt").write_bytes("Fähre needle".encode("latin-1"))
    (charts / "data.bin").write_bytes(b"needle\0\xff")
    assert found(source, "needle") == ["latin.txt", "wide.txt"]


def test_a_text_that_disappears_meanwhile_is_left_out() -> None:
    class Gone(Notes):
        def text(self, uri: str) -> Iterator[str]:
            if uri == "note:a":
                raise ResourceNotFound(uri)
            return super().text(uri)

    assert found(Gone(a="needle", b="needle"), "needle") == ["b"]


def test_a_definition_comes_before_mentions_whatever_the_order_of_the_list() -> None:
    notes = Notes(
        a="from z import load_chart\n",
        b="load_chart(1)\n",
        c="the chart is loaded\n",
        z="def load_chart(name):\n    pass\n",
    )
    hits = search_documents(notes, "where is LoadChart defined?", 5)
    assert (titles(hits)[0], hits[0].snippet) == ("z", "1: def load_chart(name):\n2-     pass")
    assert titles(hits)[1:3] == ["b", "a"]


def test_a_misspelled_word_is_replaced_by_the_nearest_one_and_reported() -> None:
    notes = Notes(a="nothing", b="a heartbeat", heartburn="no")
    hits = search_documents(notes, "heartbaet", 5)
    assert (titles(hits), hits.remark) == (["b"], "Nothing has “heartbaet”: searched for “heartbeat”.")
    hits = search_documents(notes, "quite unheard", 5)
    assert (titles(hits), hits.remark) == ([], "Nothing has “quite” or “unheard”.")


def test_a_long_text_is_linked_by_the_windows_of_its_passages(source: Folder, charts: Path) -> None:
    lines = ["nothing"] * 1_000
    lines[500] = lines[508] = lines[900] = "needle"
    (charts / "long.txt").write_text("\n".join(lines))
    hits = search_documents(source, "needle", 5)
    assert [hit.uri.partition("?")[2] for hit in hits] == ["lines=481-681", "lines=881-1081"]
    assert all(source.read(hit.uri).contents[0].text for hit in hits)


def test_the_number_of_documents_in_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_ranking, "MAX_RANKED_DOCUMENTS", 3)
    texts = {f"n{number}": "one of them" for number in range(40)} | {"z": "def one(): ..."}
    assert found(Notes(**texts), "one two", 1) == ["z"]


# -- bounds


def test_no_more_hits_are_found_and_no_more_texts_are_read_than_requested() -> None:
    notes = Notes(needle="", a="needle", b="needle", c="needle")
    assert found(notes, "needle", 0) == []
    assert found(notes, "needle", 1) == ["needle"]
    assert notes.read_texts == ["note:needle", "note:a", "note:b"]  # RANKED times as many as are wanted
    hits = search_documents(notes, "needle", 3)
    assert (titles(hits), hits.truncated) == (["needle", "a", "b"], "")


@pytest.mark.parametrize(
    ("bounds", "hits", "reached"),
    [
        (SearchBounds(documents=4), ["c needle", "d"], ""),
        (SearchBounds(documents=3), ["c needle"], "after 3 documents"),
        (SearchBounds(texts=4), ["c needle", "d"], ""),
        (SearchBounds(texts=2), ["c needle"], "after 2 texts"),
        (SearchBounds(characters=4 << 20), ["c needle", "d"], ""),
        (SearchBounds(characters=2 << 20), ["c needle"], "after 2 MiB of text"),
        (SearchBounds(seconds=-1), [], "after -1 s"),
    ],
)
def test_a_bound_that_is_reached_is_reported(bounds: SearchBounds, hits: list[str], reached: str) -> None:
    mebibyte = "x" * (1 << 20)
    notes = Notes(**{"a": mebibyte, "b": mebibyte, "c needle": "", "d": "needle"})
    result = search_documents(notes, "needle", 5, bounds=bounds)
    assert titles(result) == hits
    assert result.truncated == (f"The search of notes ended {reached}: there may be more." if reached else "")


def test_only_the_beginning_of_a_text_is_read() -> None:
    bounds = SearchBounds(text_characters=10)
    assert found(Notes(a="1234needle"), "needle", bounds=bounds) == ["a"]
    assert found(Notes(a="12345678needle"), "needle", bounds=bounds) == []


def test_many_pages_of_documents_are_searched(tmp_path: Path) -> None:
    many_names(tmp_path, [f"{number}.txt" for number in range(600)], b"x")
    (tmp_path / "needle.txt").write_text("y")
    assert found(files(tmp_path), "needle") == ["needle.txt"]


# -- coroutine functions


class Remote(Source):
    """The same with coroutine functions; `text` is a coroutine, or an async generator in `Streamed`."""

    async def page(self, after: str | None, limit: int) -> tuple[list[t.Resource], str | None]:
        return [t.Resource(uri="r:a", name="a"), t.Resource(uri="r:d", name="d", mime_type="inode/directory")], None

    async def read(self, uri: str) -> t.ReadResourceResult:
        return t.ReadResourceResult(contents=[t.ResourceContents(uri=uri, text="a needle")])


class Streamed(Remote):
    async def text(self, uri: str) -> AsyncIterator[str]:  # type: ignore[override]
        yield "a nee"
        yield "dle"


@pytest.mark.parametrize("source", [Remote(), Streamed()])
@looped
async def test_coroutine_functions_are_awaited_on_the_loop(source: Source) -> None:
    reader = SourceReader(asyncio.get_running_loop())
    hits = await asyncio.to_thread(search_documents, source, "needle", 5, reader)
    assert [hit.uri for hit in hits] == ["r:a"]


@looped
async def test_a_coroutine_that_takes_too_long_is_cancelled() -> None:
    cancelled = asyncio.Event()

    class Endless(Remote):
        async def page(self, after: str | None, limit: int) -> tuple[list[t.Resource], str | None]:
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.set()
            return [], None

    reader = SourceReader(asyncio.get_running_loop(), 0.01)
    with pytest.raises(TimeoutError):
        await asyncio.to_thread(search_documents, Endless(), "needle", 5, reader)
    await asyncio.wait_for(cancelled.wait(), 5)


@looped
async def test_a_stopped_reader_reads_nothing_more() -> None:
    reader = SourceReader(asyncio.get_running_loop())
    reader.stopped.set()
    with pytest.raises(Stopped):
        await asyncio.to_thread(search_documents, Remote(), "needle", 5, reader)
    with pytest.raises(Stopped):
        search_documents(Notes(a="needle"), "needle", 5, reader)
