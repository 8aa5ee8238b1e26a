"""The index finds every document with a word, stores no text, and forgets removed documents."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from wharfinger.content.folding import fold
from wharfinger.content.search_query import Query, Word, query_of
from wharfinger.source import Document
from wharfinger.sources.search import index_store as module
from wharfinger.sources.search.index_store import (
    BEGINNING,
    NAME_ONLY,
    OVERLAP_CHARACTERS,
    PART_CHARACTERS,
    WHOLE,
    Filters,
    IndexStore,
)

EVERYWHERE = Filters()
LETTERS = "abcÅå \n\0\"'é漢ß"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[IndexStore]:
    made = IndexStore(tmp_path / "index.sqlite")
    yield made
    made.close()


def put(store: IndexStore, uri: str, *pieces: str, version: str = "1", most: int = 1 << 30, kind: str = "") -> int:
    id = store.put("docs", Document(uri=uri, title=uri, version=version, mime_type=kind), pieces, most)
    store.commit()
    return id


def uris(store: IndexStore, query: str, filters: Filters = EVERYWHERE) -> list[str]:
    return [row.uri for row in store.find(query_of(query), filters, 1_000).rows]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.text(alphabet=LETTERS, max_size=40), min_size=1, max_size=6),
    st.text(alphabet=LETTERS, min_size=1, max_size=8),
)
def test_every_document_with_a_word_is_found(store: IndexStore, texts: list[str], word: str) -> None:
    store.clear()
    for number, text in enumerate(texts):
        put(store, f"x:{number}", text)
    word = fold(word)
    phrase = Query((Word(word, word, (word,), (word,), phrase=True),))
    found = {row.uri for row in store.find(phrase, EVERYWHERE, 100).rows}
    assert {f"x:{number}" for number, text in enumerate(texts) if word in fold(text)} <= found


@pytest.mark.parametrize(
    "at",
    [
        0,
        PART_CHARACTERS - 3,
        PART_CHARACTERS,
        PART_CHARACTERS + OVERLAP_CHARACTERS - 2,
        2 * PART_CHARACTERS - 5,
        3 * PART_CHARACTERS,
    ],
)
@pytest.mark.parametrize("word", ["q", "qz", "qzv", "harbour" * 10, "w" * 2_000])
def test_a_word_across_the_parts_of_a_long_text_is_found(store: IndexStore, at: int, word: str) -> None:
    text = "." * at + word + "." * (3 * PART_CHARACTERS - at)
    put(store, "x:1", *(text[begin : begin + 100_000] for begin in range(0, len(text), 100_000)))
    assert uris(store, word) == ["x:1"]


def test_words_may_be_in_different_parts(store: IndexStore) -> None:
    put(store, "x:1", "alpha" + "." * 3 * PART_CHARACTERS + "omega")
    put(store, "x:2", "alpha")
    assert uris(store, "omega alpha") == ["x:1"]


def test_matching_names_come_first_then_the_newest(store: IndexStore) -> None:
    put(store, "x:1", "tide")
    put(store, "x:tide", "")
    put(store, "x:2", "tide")
    assert uris(store, "tide") == ["x:tide", "x:2", "x:1"]


def test_filters_narrow_the_hits(store: IndexStore) -> None:
    put(store, "x:1", "tide", kind="text/markdown")
    put(store, "x:2", "tide", kind="text/csv")
    put(store, "x:3", "tide", kind="image/svg+xml")
    assert uris(store, "tide", Filters(type="text/csv")) == ["x:2"]
    assert uris(store, "tide", Filters(type="text")) == uris(store, "tide", Filters(type="text/*")) == ["x:2", "x:1"]
    assert uris(store, "tide", Filters(path="x:[13]")) == ["x:3", "x:1"]
    assert uris(store, "tide", Filters(sources=["other"])) == []


def test_a_new_text_replaces_the_old_one(store: IndexStore) -> None:
    first = put(store, "x:1", "alpha")
    assert put(store, "x:1", "omega", version="2") == first
    assert uris(store, "alpha") == []
    assert uris(store, "omega") == ["x:1"]
    assert store.known("docs", ["x:1", "x:2"])["x:1"].version == "2"


def test_parts_that_are_the_same_are_not_indexed_again(store: IndexStore) -> None:
    """The cost of a growing log depends only on its growth."""
    begin = "".join(f"line {number}\n" for number in range(60_000))
    put(store, "x:log", begin)
    before = store._parts_made
    put(store, "x:log", begin, "and one more\n", version="2")
    assert store._parts_made - before == 1
    assert uris(store, '"one more"') == ["x:log"]


def test_removed_documents_are_not_found(store: IndexStore) -> None:
    kept = put(store, "x:1", "tide")
    put(store, "x:2", "tide")
    assert store.remove_missing("docs", {kept}) == 1
    store.commit()
    assert uris(store, "tide") == ["x:1"]
    store.remove_other_sources(["other"])
    store.commit()
    assert uris(store, "tide") == []


def test_a_very_long_text_is_indexed_in_part_and_that_is_reported(store: IndexStore) -> None:
    put(store, "x:1", "alpha omega", most=5)
    put(store, "x:2", "alpha omega", most=0)
    put(store, "x:3", "")
    known = store.known("docs", ["x:1", "x:2", "x:3"])
    assert [known[uri].extent for uri in ("x:1", "x:2", "x:3")] == [BEGINNING, NAME_ONLY, WHOLE]
    assert uris(store, "alpha") == ["x:1"]
    assert uris(store, "omega") == []
    assert store.count() == (3, 2)


def test_no_text_is_stored(store: IndexStore, tmp_path: Path) -> None:
    put(store, "x:1", "the pilot's secret harbour")
    store.close()
    assert b"secret" not in (tmp_path / "index.sqlite").read_bytes()


def test_a_stale_index_is_reported(store: IndexStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_ORPHANS", 3)
    for number in range(5):
        assert not store.is_stale(False)
        put(store, "x:1", f"text {number}")
    assert store.is_stale(False)
    store.clear()
    assert not store.is_stale(True)
    assert uris(store, "text") == []


def test_a_stored_index_is_reused(tmp_path: Path) -> None:
    path = tmp_path / "index.sqlite"
    first = IndexStore(path)
    put(first, "x:1", "alpha")
    first.close()
    second = IndexStore(path)
    put(second, "x:2", "alpha")
    assert uris(second, "alpha") == ["x:2", "x:1"]
    second.close()


@pytest.mark.parametrize("content", [b"not a database at all" * 500, b"SQLite format 3\0" + b"\xff" * 8000])
def test_an_invalid_index_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "index.sqlite"
    path.write_bytes(content)
    with pytest.raises(sqlite3.DatabaseError):
        IndexStore(path)


def test_a_database_of_another_program_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "index.sqlite"
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE documents (id)")
    other.close()
    with pytest.raises(sqlite3.DatabaseError, match="not an index"):
        IndexStore(path)
