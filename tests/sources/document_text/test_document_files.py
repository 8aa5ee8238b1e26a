"""Documents in a folder: the file itself, its text and pages, lists, completion, search, changes and rules."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.sources.conftest import Permit
from tests.sources.document_text.conftest import text_of
from tests.sources.document_text.document_builders import docx_of, encrypted_pdf, epub_of, pdf_of, pptx_of
from tests.waiting import wait_until
from wharfinger import Client, Server
from wharfinger import types as t
from wharfinger.errors import InvalidArgument, Overloaded, ResourceNotFound
from wharfinger.server.document_search import SearchBounds, search_documents
from wharfinger.source import VERSION
from wharfinger.sources import resource_tools, search_index
from wharfinger.sources.document_text import document_files, document_pages
from wharfinger.sources.document_text.document_pages import FORMATS
from wharfinger.sources.document_text.parser_pool import ParserPool
from wharfinger.sources.folder.source import Folder, files
from wharfinger.sources.search.index import _identity
from wharfinger.sources.windows.window import NEXT, PREVIOUS, WINDOW, BytesContent
from wharfinger.testing import SourceContract
from wharfinger.testing.source_suite.driver import ChangeRecorder

T = TypeVar("T")


BOUNDS = SearchBounds(seconds=40.0)  # on a busy machine a process takes seconds to start

TIDES = ["Almanac", "High water at Tromsø: 14:20.\nSpring tides follow the full moon.", "Neaps", "Index: harbourmaster"]
ALMANAC = pdf_of(TIDES)


class TestFolderWithDocuments(SourceContract):
    """A folder of documents fulfils the contract of sources."""

    missing = "file:///papers/none.pdf"
    windowed = "file:///papers/long.docx?text&lines=1-"
    secret = "hunter2"

    @pytest.fixture
    def source(self, papers: Path, published: Folder) -> Folder:
        (papers / "almanac.pdf").write_bytes(ALMANAC)
        (papers / "plan.pptx").write_bytes(pptx_of(("Plan", "one\ntwo")))
        (papers / "book.epub").write_bytes(epub_of("<p>one</p>", "<p>two</p>"))
        (papers / "long.docx").write_bytes(docx_of(*[f"line {number}" for number in range(1_500)]))
        (papers / "locked.pdf").write_bytes(encrypted_pdf())
        (papers / ".env").write_text("PASSWORD=hunter2")
        return published

    def whole(self, source: Folder) -> str:
        return "[section 1 of 1]\n" + "\n\n".join([f"line {number}" for number in range(1_500)]) + "\n\n"

    def change(self, source: Folder) -> str:
        path = Path(source.root, "almanac.pdf")
        path.write_bytes(pdf_of([*TIDES, f"{path.stat().st_size} more"]))
        return f"{source.uri}/almanac.pdf?text"

    def add(self, source: Folder) -> str:
        path = Path(source.root, f"new-{len(os.listdir(source.root))}.pdf")
        path.write_bytes(ALMANAC)
        return f"{source.uri}/{path.name}"


# Reading


def test_a_document_without_a_query_is_read_as_bytes(published: Folder, papers: Path) -> None:
    (papers / "a.pdf").write_bytes(ALMANAC)
    found = published.read(f"{published.uri}/a.pdf").contents
    assert [(content.blob, content.mime_type) for content in found] == [(ALMANAC, "application/pdf")]
    part = published.read(f"{published.uri}/a.pdf?bytes=0-7").contents[0]
    assert part.blob == b"%PDF-1.7"


def test_pages_link_to_the_previous_and_next_pages(published: Folder, papers: Path) -> None:
    (papers / "a.pdf").write_bytes(pdf_of([f"p{number}" for number in range(1, 11)]))
    uri = f"{published.uri}/a.pdf"
    links: list[str] = []
    next_uri: Any = f"{uri}?pages=1-4"
    while next_uri:
        content = published.read(next_uri).contents[0]
        assert isinstance(content.meta, dict)
        links.append(f"{next_uri.rpartition('=')[2]} after {str(content.meta.get(PREVIOUS)).rpartition('=')[2]}")
        next_uri = content.meta.get(NEXT)
    assert links == ["1-4 after None", "5-8 after 1-4", "9-10 after 7-8"]
    assert text_of(published, "a.pdf?pages=9-") == text_of(published, "a.pdf?pages=9-99")


def test_joined_windows_equal_the_whole_text(published: Folder, papers: Path) -> None:
    (papers / "a.pdf").write_bytes(pdf_of(["\n".join([f"{page} {line}" for line in range(50)]) for page in range(9)]))
    for query, size in (("text", 9), ("pages=2-4", 3)):
        whole, parts = text_of(published, f"a.pdf?{query}"), list[str]()
        next_uri: Any = f"{published.uri}/a.pdf?{query}&lines=1-40"
        while next_uri:
            content = published.read(next_uri).contents[0]
            assert isinstance(content.meta, dict)
            assert content.meta[WINDOW]["size"] == len(whole.encode())
            parts.append(str(content.text))
            next_uri = content.meta.get(NEXT)
        assert "".join(parts) == whole
        assert whole.count("[page") == size


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("a.pdf?pages=5", "has 4 pages, and no page 5"),
        ("a.pdf?text&lines=99-", "no line 99"),
        ("a.pdf?pages=two", "write pages=3, pages=3-5"),
        ("a.txt?text", "only for PDF, DOCX, PPTX and EPUB files: read file://.* without a query"),
        ("?text", "only for PDF, DOCX, PPTX and EPUB files: read file://.* without a query"),
        ("0.pdf?text", "it is empty: it has 0 bytes"),
    ],
)
def test_the_error_for_a_text_that_cannot_be_read_names_the_reason(
    published: Folder, papers: Path, path: str, message: str
) -> None:
    (papers / "a.pdf").write_bytes(ALMANAC)
    (papers / "a.txt").write_text("text")
    (papers / "0.pdf").write_bytes(b"")
    with pytest.raises(InvalidArgument, match=message):
        published.read(f"{published.uri}{'' if path == '?text' else '/'}{path}")


@pytest.mark.parametrize("path", ["none.pdf?text", ".hidden.pdf?pages=1", "link.pdf?text", "../a.pdf?text", "d/x?text"])
def test_unpublished_documents_look_missing(published: Folder, papers: Path, tmp_path: Path, path: str) -> None:
    for name in (papers / ".hidden.pdf", tmp_path / "a.pdf"):
        name.write_bytes(ALMANAC)
    (papers / "link.pdf").symlink_to(tmp_path / "a.pdf")
    with pytest.raises(ResourceNotFound):
        published.read(f"{published.uri}/{path}")
    with pytest.raises(ResourceNotFound):
        published.stat(f"{published.uri}/{path}")


def test_an_encoded_question_mark_is_part_of_the_name(published: Folder, papers: Path) -> None:
    (papers / "a.pdf").write_bytes(ALMANAC)
    (papers / "a.pdf?text").write_text("a file of this name")
    (papers / "what?.pdf").write_bytes(pdf_of(["asked"]))
    assert text_of(published, "a.pdf%3Ftext") == "a file of this name"
    assert text_of(published, "a.pdf?text").startswith("[page 1 of 4]\nAlmanac")
    assert text_of(published, "what%3F.pdf?pages=1") == "[page 1 of 1]\nasked\n\n"
    uris = {resource.uri for resource in published.page(None, 100)[0]}
    assert {f"{published.uri}/{name}" for name in ("a.pdf", "a.pdf%3Ftext", "what%3F.pdf")} <= uris


def test_a_document_without_a_suffix_is_detected_by_its_first_bytes(published: Folder, papers: Path) -> None:
    (papers / "scan").write_bytes(ALMANAC)
    assert text_of(published, "scan?pages=3") == "[page 3 of 4]\nNeaps\n\n"


@pytest.mark.parametrize("extra_bytes", [0, 1])
def test_the_size_of_a_document_is_bounded(
    published: Folder, papers: Path, monkeypatch: pytest.MonkeyPatch, extra_bytes: int
) -> None:
    monkeypatch.setattr(document_files, "MAX_DOCUMENT_BYTES", len(ALMANAC))
    (papers / "a.pdf").write_bytes(ALMANAC + b"\n" * extra_bytes)
    if not extra_bytes:
        assert text_of(published, "a.pdf?pages=1") == "[page 1 of 4]\nAlmanac\n\n"
        return
    with pytest.raises(InvalidArgument, match=r"at most .* are parsed: split it"):
        published.read(f"{published.uri}/a.pdf?text")


def test_a_document_is_parsed_once_for_all_its_readers(
    published: Folder, papers: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed_uris: list[str] = []
    original = document_files.DocumentFiles._parse

    def counting_parse(self: Any, key: Any, uri: str, *arguments: Any) -> Any:
        parsed_uris.append(uri)
        return original(self, key, uri, *arguments)

    monkeypatch.setattr(document_files.DocumentFiles, "_parse", counting_parse)
    (papers / "a.pdf").write_bytes(ALMANAC)
    (papers / "locked.pdf").write_bytes(encrypted_pdf())
    barrier = threading.Barrier(8)

    def read(number: int) -> str:
        barrier.wait()
        return text_of(published, f"a.pdf?pages={number % 4 + 1}")

    with ThreadPoolExecutor(8) as threads:
        assert [text.split("\n")[1] for text in threads.map(read, range(8))] == [
            page.split("\n")[0] for page in [*TIDES, *TIDES]
        ]
    assert len(search_documents(published, "neaps", 5, bounds=BOUNDS)) == 1
    for _ in range(3):
        with pytest.raises(InvalidArgument, match="encrypted"):
            published.read(f"{published.uri}/locked.pdf?text")
    assert sorted(parsed_uris) == [f"{published.uri}/a.pdf", f"{published.uri}/locked.pdf"]
    (papers / "a.pdf").write_bytes(pdf_of(["new"]))
    assert text_of(published, "a.pdf?text") == "[page 1 of 1]\nnew\n\n"
    assert len(parsed_uris) == 3


@pytest.mark.skipif(sys.platform == "win32", reason="a process is paused by a signal")
def test_a_read_waits_longer_for_a_process_than_the_search_that_wanted_the_document_first(
    published: Folder, papers: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bug: the read was refused together with the search."""
    pool = ParserPool(max_processes=1)
    monkeypatch.setattr(document_files, "shared_pool", lambda: pool)
    monkeypatch.setattr(document_files, "SEARCH_PATIENCE_SECONDS", 0.5)
    (papers / "a.pdf").write_bytes(ALMANAC)
    (papers / "slow.pdf").write_bytes(pdf_of(["slow"]))
    pool.extract("pdf", BytesContent(ALMANAC), pool, 20)
    (process_id,) = pool.process_ids
    os.kill(process_id, signal.SIGSTOP)
    uri = f"{published.uri}/a.pdf"
    try:
        with ThreadPoolExecutor(3) as threads:
            slow = threads.submit(text_of, published, "slow.pdf?text")
            wait_until(lambda: len(pool._busy) == 1, "a document is parsed")
            search = threads.submit(lambda: list(published._documents.text(uri, "application/pdf")))
            wait_until(lambda: pool._waiting == 1, "a document waits")
            read = threads.submit(text_of, published, "a.pdf?pages=1")
            assert isinstance(search.exception(30), Overloaded)
            os.kill(process_id, signal.SIGCONT)
            assert read.result(30) == "[page 1 of 4]\nAlmanac\n\n"
            assert "slow" in slow.result(30)
    finally:
        pool.close()


def test_the_text_has_the_version_of_the_file(published: Folder, papers: Path) -> None:
    (papers / "a.docx").write_bytes(docx_of("one"))
    uri = f"{published.uri}/a.docx"
    before = published.stat(uri)
    assert isinstance(before.meta, dict)
    for query in ("?text", "?pages=1"):
        found, content = published.stat(uri + query), published.read(uri + query).contents[0]
        assert (found.uri, found.mime_type, found.meta) == (uri + query, "text/markdown", before.meta)
        assert (content.uri, content.mime_type) == (uri + query, "text/markdown")
        assert isinstance(content.meta, dict)
        assert content.meta[VERSION] == before.meta[VERSION]


def test_without_the_documents_extra_bytes_are_read_and_text_is_refused(
    papers: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(document_files, "can_read_documents", lambda: False)
    monkeypatch.setattr("wharfinger.sources.folder.source.can_read_documents", lambda: False)
    (papers / "a.pdf").write_bytes(ALMANAC)
    folder = files(papers)
    assert [template.uri_template for template in folder.templates] == ["file:///papers/{+path}"]
    assert set(folder.parameters) == {"lines", "tail", "bytes"}
    with pytest.raises(InvalidArgument, match=r"pip install 'wharfinger\[documents\]'"):
        folder.read("file:///papers/a.pdf?text")
    assert folder.read("file:///papers/a.pdf").contents[0].blob == ALMANAC
    assert list(folder.text("file:///papers/a.pdf")) == []
    assert not folder.page(None, 9)[0][1].description


def test_an_index_created_without_the_extra_is_not_used_with_it(papers: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files and their versions are the same, but their text is not in that index."""
    identities = [_identity(files(papers)), _identity(files(papers))]
    monkeypatch.setattr("wharfinger.sources.folder.source.can_read_documents", lambda: False)
    identities.append(_identity(files(papers)))
    assert identities[0] == identities[1] != identities[2]


def test_each_format_needs_a_library_of_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    for missing_module in [format.module for format in FORMATS.values()]:
        monkeypatch.setattr(
            document_pages, "find_spec", lambda name, missing=missing_module: None if name == missing else name
        )
        assert not document_pages.can_read_documents.__wrapped__()
    monkeypatch.undo()
    assert document_pages.can_read_documents()


# Lists and completion


def test_lists_name_the_uri_of_the_text_without_parsing(published: Folder, papers: Path) -> None:
    (papers / "a.pdf").write_bytes(ALMANAC)
    (papers / "a.txt").write_text("text")
    descriptions = {resource.name: resource.description for resource in published.page(None, 9)[0]}
    assert descriptions["a.pdf"] == f"Its text: {published.uri}/a.pdf?text"
    assert not descriptions["a.txt"]
    assert "_documents" not in published.__dict__
    assert published.stat(f"{published.uri}/a.pdf").description == descriptions["a.pdf"]


def test_paths_and_pages_of_documents_are_completed(published: Folder, papers: Path) -> None:
    (papers / "deep").mkdir()
    for name in ("almanac.pdf", "deep/alpha.docx"):
        (papers / name).write_bytes(ALMANAC)
    (papers / "algae.txt").write_text("")

    def complete(argument: str, value: str, **context: str) -> list[str]:
        return published.complete(published.pages_template, argument, value, context)

    assert complete("path", "al") == ["almanac.pdf", "deep/alpha.docx"]
    assert complete("path", "") == ["deep/", "almanac.pdf"]
    assert complete("pages", "", path="almanac.pdf") == ["1-4", "1", "2", "3", "4"]
    assert complete("pages", "3-", path="almanac.pdf") == ["3-3", "3-4"]
    for no_range in ("0", "0-", "00-1", "5-", "٣-"):
        assert complete("pages", no_range, path="almanac.pdf") == []
    (papers / "empty.pptx").write_bytes(pptx_of())
    assert complete("pages", "", path="empty.pptx") == []
    assert complete("pages", "x", path="almanac.pdf") == complete("pages", "", path="none.pdf") == []
    assert complete("pages", "", path="algae.txt") == complete("pages", "") == complete("other", "") == []
    assert published.complete(published.template, "path", "al", {}) == ["algae.txt", "almanac.pdf", "deep/alpha.docx"]


# Search


def test_a_hit_links_to_its_page(published: Folder, papers: Path) -> None:
    (papers / "almanac.pdf").write_bytes(ALMANAC)
    (papers / "plan.pptx").write_bytes(pptx_of(("Start", "nothing"), ("Harbour", "the dredger\nleaves")))
    (papers / "book.epub").write_bytes(epub_of("<p>one</p>", "<p>two</p>", "<p>the lighthouse</p>"))
    (papers / "rules.docx").write_bytes(docx_of("# One", "a", "# Two", "a pilot is compulsory"))
    for query, page, heading in (
        ("spring tides", "almanac.pdf?pages=2", "page 2\n"),
        ("harbourmaster", "almanac.pdf?pages=4", "page 4\n"),
        ("dredger", "plan.pptx?pages=2", "slide 2\n"),
        ("lighthouse", "book.epub?pages=3", "chapter 3\n"),
        ("compulsory", "rules.docx?pages=2", "section 2\n"),
    ):
        (hit,) = search_documents(published, query, 5, bounds=BOUNDS)
        assert hit.uri == f"{published.uri}/{page}"
        assert hit.snippet.startswith(heading)
        matching_line = next(line for line in hit.snippet.split("\n") if line.partition(" ")[0].endswith(":"))
        number, _, line = matching_line.partition(": ")
        assert text_of(published, page).split("\n")[int(number) - 1] == line
        assert query.split()[0] in line.lower()


def test_each_page_is_a_hit_and_a_long_page_is_linked_by_a_window(published: Folder, papers: Path) -> None:
    long = "<p>x</p>" * 300 + "<p>the beacon</p>" + "<p>x</p>" * 300
    (papers / "book.epub").write_bytes(epub_of("<p>a beacon</p>", "<p>none</p>", long))
    hits = search_documents(published, "beacon", 5, bounds=BOUNDS)
    assert {hit.uri.partition("?")[2].partition("&")[0] for hit in hits} == {"pages=1", "pages=3"}
    window_uri = next(hit.uri for hit in hits if "&lines=" in hit.uri)
    assert "the beacon" in str(published.read(window_uri).contents[0].text)


def test_a_document_that_cannot_be_parsed_does_not_stop_a_search(published: Folder, papers: Path) -> None:
    (papers / "a.pdf").write_bytes(encrypted_pdf())
    (papers / "b.pdf").write_bytes(b"%PDF- no")
    (papers / "c.pdf").write_bytes(pdf_of(["anchor"]))
    assert [hit.uri for hit in search_documents(published, "anchor", 5, bounds=BOUNDS)] == [
        f"{published.uri}/c.pdf?pages=1"
    ]


def run_with_client(folder: Folder, use: Callable[[Client], Awaitable[T]], *sources: Any) -> T:
    """Run a function with a client of a server that has this folder, the resource tools and these further sources."""

    async def main() -> T:
        server = Server("library")
        server.include(folder)
        server.include(resource_tools())
        for source in sources:
            server.include(source)
        async with Client(server) as client:
            return await use(client)

    return asyncio.run(main())


def test_an_index_finds_pages_and_filters_them_by_type_and_path(papers: Path, tmp_path: Path) -> None:
    (papers / "almanac.pdf").write_bytes(ALMANAC)
    (papers / "notes.txt").write_text("neaps")
    index = search_index(tmp_path / "cache")

    async def use(client: Client) -> list[list[str]]:
        while True:
            found = (await client.call_tool("search", {"query": "harbourmaster"})).structured
            if [hit["id"] for hit in found["results"]] == ["file:///papers/almanac.pdf?pages=4"]:
                break
        assert found["results"][0]["text"] == "page 4\n1- [page 4 of 4]\n2: Index: harbourmaster"
        filters: list[dict[str, str]] = [{"type": "application/pdf"}, {"path": "*.pdf"}, {"type": "text/plain"}]
        results = [await client.call_tool("search", {"query": "neaps", **fields}) for fields in filters]
        return [[hit["id"] for hit in result.structured["results"]] for result in results]

    page = "file:///papers/almanac.pdf?pages=3"
    assert run_with_client(files(papers), use, index) == [[page], [page], ["file:///papers/notes.txt"]]


# Tools


def test_tools_link_to_the_text_and_return_it_in_parts_within_max_tokens(papers: Path) -> None:
    page = "\n".join(["word " * 10] * 60)
    (papers / "long.pdf").write_bytes(pdf_of([page] * 40))
    uri = "file:///papers/long.pdf"

    async def use(client: Client) -> tuple[str, list[str]]:
        async def blocks(**arguments: Any) -> list[str]:
            found = await client.call_tool("read_resource", arguments)
            return [block.text for block in found.content if isinstance(block, t.TextContent)]

        note = "\n".join(await blocks(uri=uri))
        fetched = (await client.call_tool("fetch", {"id": uri})).structured
        assert "?text: the text of" in fetched["text"]
        parts: list[str] = []
        next_uri = f"{uri}?text"
        while next_uri:
            text, *notes = await blocks(uri=next_uri, max_tokens=5_000)
            assert len(text) <= 20_000
            parts.append(text)
            next_uri = notes[0].partition("read_resource with uri=")[2].rstrip("]").partition(" ")[0] if notes else ""
        return note, parts

    note, parts = run_with_client(files(papers), use)
    assert "[Read it as text by ?text: the text of" in note
    assert "?pages=3-5: the text of these pages" in note
    assert len(parts) > 5
    whole = text_of(files(papers), "long.pdf?text")
    assert "".join(parts) == whole


def test_read_directory_shows_the_template_with_its_parameters(papers: Path) -> None:
    async def use(client: Client) -> Any:
        return (await client.call_tool("read_directory", {})).structured

    assert "file:///papers/{+path}{?pages}" in str(run_with_client(files(papers), use))


# Changes and rules


def test_a_watch_on_the_text_reports_changes_of_the_file(
    published: Folder, papers: Path, recorder: ChangeRecorder
) -> None:
    (papers / "a.pdf").write_bytes(ALMANAC)
    uris = [f"{published.uri}/a.pdf{query}" for query in ("?text", "?pages=2", "?pages=1&lines=1-2")]
    for uri in uris:
        published.stat(uri)
        published.watch(uri, recorder)
    (papers / "a.pdf").write_bytes(pdf_of(["new"]))
    recorder.wait_for(*uris)
    for uri in uris:
        published.unwatch(uri)
    published._watches.join()


def test_policy_rules_apply_to_text_hits_and_completions(papers: Path, permit: Permit) -> None:
    for name in ("open", "closed"):
        (papers / name).mkdir()
        (papers / name / "a.pdf").write_bytes(pdf_of(["cover", f"anchor in the {name} part"]))
    source = files(papers)
    assert len(search_documents(source, "anchor", 9, bounds=BOUNDS)) == 2  # now the text of both is in memory
    with permit("file:///papers/open/**"):
        assert [hit.uri for hit in search_documents(source, "anchor", 9, bounds=BOUNDS)] == [
            "file:///papers/open/a.pdf?pages=2"
        ]
        assert text_of(source, "open/a.pdf?text").startswith("[page 1 of 2]")
        assert source.complete(source.pages_template, "path", "a", {}) == ["open/a.pdf"]
    source._documents.close()


RULES = """
[[allow]]
who = "anyone"
do = ["read"]
what = ["file:///papers/open/**"]

[[allow]]
who = "anyone"
do = ["call"]
what = ["tool:*"]
"""


@pytest.mark.parametrize("query", ["?text", "?pages=1", "?pages=2&lines=1-2", "?text&bytes=0-9", ""])
def test_a_server_with_a_policy_refuses_the_text_of_a_forbidden_document(
    papers: Path, tmp_path: Path, query: str
) -> None:
    """A forbidden document looks like a missing document, and has no hits."""
    for name in ("open", "closed"):
        (papers / name).mkdir()
        (papers / name / "a.pdf").write_bytes(pdf_of(["cover", f"anchor in the {name} part"]))
    (tmp_path / "rules.toml").write_text(RULES)

    async def main() -> None:
        server = Server("library", policy=str(tmp_path / "rules.toml"))
        server.include(files(papers))
        server.include(resource_tools())
        async with Client(server) as client:
            await client.read_resource(f"file:///papers/open/a.pdf{query}")
            errors: list[str] = []
            for name in ("closed/a.pdf", "absent/a.pdf"):
                with pytest.raises(Exception) as raised:
                    await client.read_resource(f"file:///papers/{name}{query}")
                errors.append(str(raised.value).replace(name, "NAME"))
            assert errors[0] == errors[1]
            found = (await client.call_tool("search", {"query": "anchor"})).structured
            assert [hit["id"] for hit in found["results"]] == ["file:///papers/open/a.pdf?pages=2"]
            uri = "file:///papers/{+path}{?pages}"
            for path, ranges in (("open/a.pdf", ["1-2", "1", "2"]), ("closed/a.pdf", [])):
                completion = await client.complete(uri, "pages", "", context={"path": path})
                assert list(completion.values) == ranges

    asyncio.run(main())
