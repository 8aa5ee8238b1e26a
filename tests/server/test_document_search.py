"""The search in the documents of one source: first in names, then in texts, within bounds that it reports."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.sources.conftest import charts, create_files
from wharfinger import types as t
from wharfinger.errors import ResourceNotFound
from wharfinger.server import search_ranking
from wharfinger.server.document_search import SearchBounds, SourceReader, Stopped, search_documents
from wharfinger.source import Document, DocumentPage, Hits, Source
from wharfinger.sources import files
from wharfinger.sources.folder.source import Folder


class Notes(Source):
    """Documents by title, in pages of the requested size; `read_texts` records the URIs whose text was read."""

    name = "notes"

    def __init__(self, **texts: str) -> None:
        self.texts = texts
        self.read_texts: list[str] = []

    def documents(self, after: str | None, limit: int) -> DocumentPage:
        begin = 0 if after is None else int(after)
        names = list(self.texts)[begin : begin + limit]
        documents = [Document(uri=f"note:{name}", title=name, version="") for name in names]
        return documents, str(begin + limit) if begin + limit < len(self.texts) else None

    def text(self, uri: str) -> Iterator[str]:
        self.read_texts.append(uri)
        yield from (self.texts[uri.removeprefix("note:")],)


__all__ = ["charts"]  # imported as a fixture


@pytest.fixture
def source(charts: Path) -> Folder:
    return files(charts)


def titles(hits: Hits) -> list[str]:
    return [hit.title for hit in hits]


def search_titles(source: Source, query: str, limit: int = 10, bounds: SearchBounds | None = None) -> list[str]:
    return titles(search_documents(source, query, limit, bounds=bounds))


# -- hits and their order


def test_hits_in_names_rank_before_hits_in_texts_and_closer_names_first(source: Folder, charts: Path) -> None:
    (charts / "hulls.txt").write_text("x")
    (charts / "deeper").mkdir()
    (charts / "deeper" / "hulls.txt").write_text("x")
    assert search_titles(source, "Hull") == ["harbours/hull.ts", "hulls.txt", "deeper/hulls.txt", "tides.csv"]


def test_a_title_that_ends_with_a_slash_ranks_by_its_last_part() -> None:
    """Regression: its last part was searched without its first letter."""
    notes = Notes(**{"old/x/y/tide tables": "", "north/tide tables/": ""})
    assert search_titles(notes, "tide") == ["north/tide tables/", "old/x/y/tide tables"]


def test_words_may_occur_in_the_name_or_the_text(source: Folder) -> None:
    assert search_titles(source, "harbours BUOY") == ["harbours/north/buoy.png"]
    assert search_titles(source, "soundings fathoms") == ["README.md"]
    assert search_titles(source, "readme fathoms") == ["README.md"]
    assert search_titles(source, "  ") == []


def test_documents_with_only_some_of_the_words_rank_last_and_are_reported(source: Folder, charts: Path) -> None:
    hits = search_documents(source, "soundings depth", 5)
    assert sorted(titles(hits)) == ["README.md", "harbours/hull.ts"]
    assert hits.remark == "No document has all the words; these have most of them."
    (charts / "both.txt").write_text("soundings and\n" + "nothing\n" * 50 + "depth")
    hits = search_documents(source, "soundings depth", 5)
    assert (titles(hits)[0], hits.remark) == ("both.txt", "")
    assert search_titles(source, '"soundings depth"') == []
    assert "hull.ts" not in str(search_titles(source, "soundings fathoms depth"))


def test_words_in_quotes_are_searched_as_a_phrase() -> None:
    notes = Notes(a="high water", b="water is high")
    assert search_titles(notes, '"high water"') == ["a"]
    assert search_titles(notes, "high water") == ["a", "b"]


def test_the_snippet_is_the_matching_line(source: Folder, charts: Path) -> None:
    (charts / "long.txt").write_text("x" * 500 + "needle" + "y" * 500)
    hits = search_documents(source, "needle", 5)
    assert len(hits[0].snippet) < 250
    assert "needle" in hits[0].snippet
    assert search_documents(source, "soundings", 5)[0].snippet == "3: Soundings in fathoms."


def test_a_hit_has_its_resource(source: Folder) -> None:
    hits = search_documents(source, "depth", 5)
    assert [(hit.uri, hit.title, hit.snippet) for hit in hits] == [
        (f"{source.uri}/harbours/hull.ts", "harbours/hull.ts", "1: export const depth = 4;")
    ]
    resource = source.stat(hits[0].uri)
    assert hits[0].resource == t.Resource(
        uri=hits[0].uri, name="hull.ts", title="harbours/hull.ts", mime_type=resource.mime_type
    )
    assert hits.truncated == ""


def test_unpublished_files_are_not_found(source: Folder, charts: Path) -> None:
    (charts / "server.pem").write_text("needle")
    (charts / ".hidden").write_text("needle")
    (charts / "link.txt").symlink_to("/etc/hostname")
    assert search_titles(source, "needle") == []
    assert search_titles(source, "link") == []


def test_texts_in_other_encodings_are_found_and_binary_files_are_skipped(source: Folder, charts: Path) -> None:
    (charts / "wide.txt").write_bytes("a wide needle".encode("utf-16"))
    (charts / "latin.txt").write_bytes("Fähre needle".encode("latin-1"))
    (charts / "data.bin").write_bytes(b"needle\0\xff")
    assert search_titles(source, "needle") == ["latin.txt", "wide.txt"]


def test_a_document_deleted_during_the_search_is_skipped() -> None:
    class DeletedNote(Notes):
        def text(self, uri: str) -> Iterator[str]:
            if uri == "note:a":
                raise ResourceNotFound(uri)
            return super().text(uri)

    assert search_titles(DeletedNote(a="needle", b="needle"), "needle") == ["b"]


def test_a_definition_ranks_before_mentions_in_any_listing_order() -> None:
    notes = Notes(
        a="from z import load_chart\n",
        b="load_chart(1)\n",
        c="the chart is loaded\n",
        z="def load_chart(name):\n    pass\n",
    )
    hits = search_documents(notes, "where is LoadChart defined?", 5)
    assert (titles(hits)[0], hits[0].snippet) == ("z", "1: def load_chart(name):\n2-     pass")
    assert titles(hits)[1:3] == ["b", "a"]


def test_a_misspelled_word_is_replaced_by_the_nearest_word_and_reported() -> None:
    notes = Notes(a="nothing", b="a heartbeat", heartburn="no")
    hits = search_documents(notes, "heartbaet", 5)
    assert (titles(hits), hits.remark) == (["b"], "Nothing has “heartbaet”: searched for “heartbeat”.")
    hits = search_documents(notes, "quite unheard", 5)
    assert (titles(hits), hits.remark) == ([], "Nothing has “quite” or “unheard”.")


def test_hits_in_a_long_text_link_to_ranges_of_lines(source: Folder, charts: Path) -> None:
    lines = ["nothing"] * 1_000
    lines[500] = lines[508] = lines[900] = "needle"
    (charts / "long.txt").write_text("\n".join(lines))
    hits = search_documents(source, "needle", 5)
    assert [hit.uri.partition("?")[2] for hit in hits] == ["lines=481-681", "lines=881-1081"]
    assert all(source.read(hit.uri).contents[0].text for hit in hits)


def test_the_best_document_is_found_even_if_more_match_than_are_kept_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_ranking, "MAX_RANKED_DOCUMENTS", 3)
    texts = {f"n{number}": "one of them" for number in range(40)} | {"z": "def one(): ..."}
    assert search_titles(Notes(**texts), "one two", 1) == ["z"]


# -- bounds


def test_the_limit_bounds_the_number_of_hits_and_of_texts_read() -> None:
    notes = Notes(needle="", a="needle", b="needle", c="needle")
    assert search_titles(notes, "needle", 0) == []
    assert search_titles(notes, "needle", 1) == ["needle"]
    assert notes.read_texts == ["note:needle", "note:a", "note:b"]  # ENOUGH_FACTOR times the limit
    hits = search_documents(notes, "needle", 3)
    assert (titles(hits), hits.truncated) == (["needle", "a", "b"], "")


@pytest.mark.parametrize(
    ("bounds", "hits", "reason"),
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
def test_a_bound_that_is_reached_is_reported(bounds: SearchBounds, hits: list[str], reason: str) -> None:
    mebibyte = "x" * (1 << 20)
    notes = Notes(**{"a": mebibyte, "b": mebibyte, "c needle": "", "d": "needle"})
    result = search_documents(notes, "needle", 5, bounds=bounds)
    assert titles(result) == hits
    assert result.truncated == (f"The search of notes ended {reason}: there may be more." if reason else "")


def test_a_text_that_cannot_be_read_does_not_end_a_search() -> None:
    """A bug: the search of all sources failed."""

    class DamagedNotes(Notes):
        def text(self, uri: str) -> Iterator[str]:
            if uri == "note:damaged":
                raise ValueError("a damaged PDF")
            yield from super().text(uri)

    notes = DamagedNotes(damaged="heartbeat", whole="heartbeat")
    hits = search_documents(notes, "heartbeat", 10)
    assert titles(hits) == ["whole"]
    assert hits.truncated == "The search of notes ended before all texts were read: there may be more."
    assert search_titles(notes, "heartbaet") == []


def test_only_the_beginning_of_a_text_is_read() -> None:
    bounds = SearchBounds(text_characters=10)
    assert search_titles(Notes(a="1234needle"), "needle", bounds=bounds) == ["a"]
    assert search_titles(Notes(a="12345678needle"), "needle", bounds=bounds) == []


def test_all_pages_of_documents_are_searched(tmp_path: Path) -> None:
    create_files(tmp_path, [f"{number}.txt" for number in range(600)], b"x")
    (tmp_path / "needle.txt").write_text("y")
    assert search_titles(files(tmp_path), "needle") == ["needle.txt"]


# -- coroutine functions


class AsyncSource(Source):
    """A source of coroutine functions. Its text is that of `read`."""

    async def page(self, after: str | None, limit: int) -> tuple[list[t.Resource], str | None]:
        return [t.Resource(uri="r:a", name="a"), t.Resource(uri="r:d", name="d", mime_type="inode/directory")], None

    async def read(self, uri: str) -> t.ReadResourceResult:
        return t.ReadResourceResult(contents=[t.ResourceContents(uri=uri, text="a needle")])


class StreamingSource(AsyncSource):
    """The same, with an async generator of text."""

    async def text(self, uri: str) -> AsyncIterator[str]:  # type: ignore[override]
        yield "a nee"
        yield "dle"


@pytest.mark.parametrize("source", [AsyncSource(), StreamingSource()])
async def test_coroutine_functions_are_awaited_on_the_loop(source: Source) -> None:
    reader = SourceReader(asyncio.get_running_loop())
    hits = await asyncio.to_thread(search_documents, source, "needle", 5, reader)
    assert [hit.uri for hit in hits] == ["r:a"]


async def test_a_coroutine_that_takes_too_long_is_cancelled() -> None:
    cancelled = asyncio.Event()

    class EndlessSource(AsyncSource):
        async def page(self, after: str | None, limit: int) -> tuple[list[t.Resource], str | None]:
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.set()
            return [], None

    reader = SourceReader(asyncio.get_running_loop(), 0.01)
    with pytest.raises(TimeoutError):
        await asyncio.to_thread(search_documents, EndlessSource(), "needle", 5, reader)
    await asyncio.wait_for(cancelled.wait(), 5)


async def test_a_stopped_reader_reads_nothing_more() -> None:
    reader = SourceReader(asyncio.get_running_loop())
    reader.stopped.set()
    with pytest.raises(Stopped):
        await asyncio.to_thread(search_documents, AsyncSource(), "needle", 5, reader)
    with pytest.raises(Stopped):
        search_documents(Notes(a="needle"), "needle", 5, reader)


async def test_a_coroutine_in_progress_ends_when_its_reader_is_stopped() -> None:
    """A bug: a server with a search index took five seconds to close, and its next one could not use the file."""
    begun = asyncio.Event()

    class EndlessSource(AsyncSource):
        async def page(self, after: str | None, limit: int) -> tuple[list[t.Resource], str | None]:
            begun.set()
            await asyncio.Event().wait()
            return [], None

    reader = SourceReader(asyncio.get_running_loop())
    searching = asyncio.create_task(asyncio.to_thread(search_documents, EndlessSource(), "needle", 5, reader))
    await begun.wait()
    reader.stop()
    with pytest.raises(Stopped):
        await asyncio.wait_for(searching, 20)
