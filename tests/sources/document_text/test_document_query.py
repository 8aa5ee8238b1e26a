"""The query of a document's URI selects pages and a window."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wharfinger.errors import InvalidArgument
from wharfinger.sources.document_text.document_query import is_document_uri, read_document_query
from wharfinger.sources.windows.window import Window

URI = "file:///papers/a.pdf"


@pytest.mark.parametrize(
    ("query", "pages", "window"),
    [
        ("text", (1, None, True), None),
        ("text=", (1, None, True), None),
        ("pages=3", (3, 3, False), None),
        ("pages=3-5", (3, 5, False), None),
        ("pages=3-", (3, None, False), None),
        ("text&lines=1-9", (1, None, True), Window("lines", 1, 9)),
        ("lines=2-&text", (1, None, True), Window("lines", 2)),
        ("pages=2&tail=9", (2, 2, False), Window("tail", 9)),
        ("text&pages=2", (2, 2, False), None),
    ],
)
def test_a_query_selects_pages_and_a_window(query: str, pages: tuple[object, ...], window: Window | None) -> None:
    document, selection = read_document_query(f"{URI}?{query}")
    assert is_document_uri(f"{URI}?{query}")
    assert document == URI
    assert ((selection.first, selection.last, selection.whole), selection.window) == (pages, window)


@pytest.mark.parametrize(
    "query",
    [
        "text=word", "text&text", "pages=", "pages", "pages=0", "pages=0-3", "pages=5-3", "pages=1,2", "pages=-3",
        "pages=one", "pages=1&pages=2", "pages=9999999999", "text&other=1", "text&", "pages=%33x",
        "text&lines=1-2&tail=3",
    ],
)  # fmt: skip
def test_an_invalid_query_is_refused(query: str) -> None:
    with pytest.raises(InvalidArgument):
        read_document_query(f"{URI}?{query}")


@pytest.mark.parametrize("uri", [URI, f"{URI}?lines=1-2", f"{URI}%3Ftext", f"{URI}?context=1", f"{URI}?texts=1", "?"])
def test_other_uris_are_not_document_uris(uri: str) -> None:
    assert not is_document_uri(uri)


@given(st.text(max_size=60))
def test_any_query_is_parsed_or_refused(query: str) -> None:
    try:
        document, selection = read_document_query(f"{URI}?{query}")
    except InvalidArgument:
        return
    assert document == URI
    assert selection.first >= 1
