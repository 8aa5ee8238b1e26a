"""The index finds every document with a word, stores no text, and drops removed documents."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from wharfinger.content.folding import fold
from wharfinger.content.search_query import Query, Word, query_of
from wharfinger.source import Document
from wharfinger.sources.search import index_store
from wharfinger.sources.search.index_store import (
    BEGINNING,
    NAME_ONLY,
    OVERLAP_CHARACTERS,
    PART_CHARACTERS,
    WHOLE,
    Filters,
    IndexStore,
)

NO_FILTERS = Filters()
LETTERS = "abcÅå \n\0\"'é漢ß"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[IndexStore]:
    opened = IndexStore(tmp_path / "index.sqlite")
    yield opened
    opened.close()


def put(
    store: IndexStore, uri: str, *pieces: str, version: str = "1", max_characters: int = 1 << 30, mime_type: str = ""
) -> int:
    id = store.put("docs", Document(uri=uri, title=uri, version=version, mime_type=mime_type), pieces, max_characters)
    store.commit()
    return id


def uris(store: IndexStore, query: str, filters: Filters = NO_FILTERS) -> list[str]:
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
    found = {row.uri for row in store.find(phrase, NO_FILTERS, 100).rows}
    assert {f"x:{number}" for number, text in enumerate(texts) if word in fold(text)} <= found


@pytest.mark.parametrize(
    "offset",
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
def test_a_word_across_the_parts_of_a_long_text_is_found(store: IndexStore, offset: int, word: str) -> None:
    text = "." * offset + word + "." * (3 * PART_CHARACTERS - offset)
    put(store, "x:1", *(text[begin : begin + 100_000] for begin in range(0, len(text), 100_000)))
    assert uris(store, word) == ["x:1"]


def test_a_query_matches_words_in_different_parts_of_a_text(store: IndexStore) -> None:
    put(store, "x:1", "alpha" + "." * 3 * PART_CHARACTERS + "omega")
    put(store, "x:2", "alpha")
    assert uris(store, "omega alpha") == ["x:1"]


def test_looking_for_words_of_one_letter_ends_in_time_and_misses_no_document(
    store: IndexStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bug: sixteen letters took ten seconds in an index of 48 MB."""
    put(store, "a:0", " ".join(f"e{number:x}" for number in range(20_000)))
    put(store, "a:1", "no such letter")
    put(store, "a:2", "abacus")
    assert uris(store, "e") == ["a:1", "a:0"]
    monkeypatch.setattr(index_store, "SHORT_WORDS_SECONDS", 0.0)
    assert uris(store, "e") == ["a:2", "a:1", "a:0"]
    assert uris(store, "e abacus") == ["a:2"]


def test_matching_names_rank_first_and_then_the_newest_documents(store: IndexStore) -> None:
    put(store, "x:1", "tide")
    put(store, "x:tide", "")
    put(store, "x:2", "tide")
    assert uris(store, "tide") == ["x:tide", "x:2", "x:1"]


def test_filters_narrow_the_hits(store: IndexStore) -> None:
    put(store, "x:1", "tide", mime_type="text/markdown")
    put(store, "x:2", "tide", mime_type="text/csv")
    put(store, "x:3", "tide", mime_type="image/svg+xml")
    assert uris(store, "tide", Filters(type="text/csv")) == ["x:2"]
    assert uris(store, "tide", Filters(type="text")) == uris(store, "tide", Filters(type="text/*")) == ["x:2", "x:1"]
    assert uris(store, "tide", Filters(path="x:[13]")) == ["x:3", "x:1"]
    assert uris(store, "tide", Filters(sources=["other"])) == []
    assert NO_FILTERS.shows is None


def test_a_search_asks_once_for_each_document_whether_the_caller_may_see_it(store: IndexStore) -> None:
    """A bug: it asked once more for each word, 6 seconds in all for 30,000 documents."""
    asked: list[str] = []

    def shows(source: str, uri: str) -> bool:
        asked.append(uri)
        return uri != "a:1"

    for number in range(3):
        put(store, f"a:{number}", "keel mast rope anchor")
    assert uris(store, "keel mast rope anchor", Filters(shows=shows)) == ["a:2", "a:0"]
    assert sorted(asked) == ["a:0", "a:1", "a:2"]


def test_a_new_text_replaces_the_old_one(store: IndexStore) -> None:
    first = put(store, "x:1", "alpha")
    assert put(store, "x:1", "omega", version="2") == first
    assert uris(store, "alpha") == []
    assert uris(store, "omega") == ["x:1"]
    assert store.known("docs", ["x:1", "x:2"])["x:1"].version == "2"


def test_unchanged_parts_are_not_indexed_again(store: IndexStore) -> None:
    """Indexing a log that grows costs only as much as its new lines."""
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


def test_a_very_long_text_is_indexed_in_part_and_counted_as_such(store: IndexStore) -> None:
    put(store, "x:1", "alpha omega", max_characters=5)
    put(store, "x:2", "alpha omega", max_characters=0)
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
    monkeypatch.setattr(index_store, "MAX_ORPHANS", 3)
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


KILLED = """
    import os, sys
    from pathlib import Path
    from wharfinger.sources.search import index_store

    class Killed(index_store.IndexStore):
        def _connect(self):
            connection = super()._connect()
            connection.create_function("exit", 0, lambda: os._exit(9))
            return connection

    index_store._TABLES = index_store._TABLES.replace(sys.argv[2], f"SELECT exit(); {sys.argv[2]}")
    Killed(Path(sys.argv[1]))
"""
STEPS = ["CREATE TABLE documents", "CREATE TABLE parts", "INSERT INTO", "CREATE VIRTUAL TABLE terms", "COMMIT"]


@pytest.mark.parametrize("step", STEPS)
def test_an_index_whose_process_was_killed_while_it_made_the_tables_is_usable(tmp_path: Path, step: str) -> None:
    """A bug: some tables were missing forever, and each search failed."""
    path = tmp_path / "index.sqlite"
    command = [sys.executable, "-c", textwrap.dedent(KILLED), str(path), step]
    assert subprocess.run(command, check=False).returncode == 9
    store = IndexStore(path)
    put(store, "x:1", "alpha")
    assert uris(store, "alpha") == ["x:1"]
    store.close()


def test_a_failure_while_the_tables_are_made_leaves_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "index.sqlite"
    broken = index_store._TABLES.replace("CREATE VIRTUAL TABLE terms", "CREATE VIRTUAL TABLE documents")
    monkeypatch.setattr(index_store, "_TABLES", broken)
    with pytest.raises(sqlite3.OperationalError, match="documents already exists"):
        IndexStore(path)
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT * FROM sqlite_master").fetchall() == []
        assert connection.execute("PRAGMA application_id").fetchone() == (0,)


@pytest.mark.parametrize("content", [b"not a database at all" * 500, b"SQLite format 3\0" + b"\xff" * 8000])
def test_an_invalid_index_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "index.sqlite"
    path.write_bytes(content)
    with pytest.raises(sqlite3.DatabaseError):
        IndexStore(path)


def test_a_database_of_another_program_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "index.sqlite"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE documents (id)")
    connection.close()
    with pytest.raises(sqlite3.DatabaseError, match="not a search index"):
        IndexStore(path)
