"""The index file, an SQLite database: which documents there are, and which of them may have a word.

Each document is cut into parts of 256 Ki characters. Each part is one row of an FTS5 table that keeps only its
trigrams, without text and positions: an eighth to a half of the text's size. A query finds every part that has all
trigrams of a word, so it may return too many documents but never misses one; the caller then checks their current text.
A part that did not change keeps its row. FTS5 cannot delete a row without its text, so the rows of changed parts stay,
belong to no document, and are dropped when the index is rebuilt (`is_stale`).
"""

from __future__ import annotations

import hashlib
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import msgspec

from wharfinger.content.folding import fold
from wharfinger.content.globs import compile_glob
from wharfinger.content.search_query import Query
from wharfinger.server.search_ranking import MIN_BASE, MIN_SHARE, name_of, rarity
from wharfinger.source import Document

__all__ = [
    "MAX_TEXT_CHARACTERS",
    "NAME_ONLY",
    "Filters",
    "IndexRow",
    "IndexRows",
    "IndexStore",
    "IndexedVersion",
    "OtherLayout",
]

APPLICATION_ID = 0x57686173
"""`PRAGMA application_id` of an index file."""
LAYOUT_VERSION = 2
"""`PRAGMA user_version`: the layout of its tables."""
PART_CHARACTERS = 1 << 18
"""Characters of one part of a document."""
MAX_TEXT_CHARACTERS = 64 << 20
"""Maximum number of characters of one document that are indexed."""
OVERLAP_CHARACTERS = 256
"""Characters at the end of a part that the next part repeats, so that no word is cut."""
GRAM_CHARACTERS = 3
"""Characters of a trigram."""
MAX_ORPHANS = 20_000
"""The index is rebuilt if it has more rows of changed parts than this, and more of them than of other parts."""
BATCH_CHARACTERS = 4 << 20
"""Maximum number of characters that wait to be indexed."""
CHECK_BYTES = 1 << 26
"""A smaller file is checked when it is opened; damage in a larger one shows when it is used."""
END = "\n" * (GRAM_CHARACTERS - 1)
"""Appended to each part, so that a trigram begins at each of its characters, even at the last."""
LAST_CHARACTER = "\U0010ffff"
"""Appended to a text of one or two characters, it ends the range of the trigrams that begin with this text."""
SHORT_WORDS_SECONDS = 1.0
"""Maximum time for which a search looks for words of one or two characters, which are in most parts. After that, each
document may have them."""
FEW_DOCUMENTS = 200
"""If no word is in more documents than this, all of them can be read, so likely definitions are not looked for."""
KEYWORDS = ("class", "def", "function", "func", "fn", "struct", "interface", "type", "enum", "#")
"""Words before a name in its definition."""
NAME_ONLY, WHOLE, BEGINNING = range(3)
"""How much of a document's text is indexed: nothing (the index is full, or the text cannot be read), all, or the
beginning."""

# In one transaction: a process that is killed here would otherwise leave some of the tables, which look like an index.
_TABLES = f"""
BEGIN IMMEDIATE;
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {LAYOUT_VERSION};
CREATE TABLE documents (
    id INTEGER PRIMARY KEY AUTOINCREMENT, source TEXT NOT NULL, uri TEXT NOT NULL, title TEXT NOT NULL,
    kind TEXT NOT NULL, name TEXT NOT NULL, version TEXT NOT NULL, extent INTEGER NOT NULL, changed INTEGER NOT NULL,
    UNIQUE (source, uri)
);
CREATE TABLE parts (
    id INTEGER PRIMARY KEY, document INTEGER NOT NULL, number INTEGER NOT NULL, digest BLOB NOT NULL,
    UNIQUE (document, number)
);
CREATE TABLE counters (parts_made INTEGER NOT NULL);
INSERT INTO counters VALUES (0);
CREATE VIRTUAL TABLE grams USING fts5 (
    text, content='', detail='none', columnsize=0, tokenize='trigram case_sensitive 1'
);
CREATE VIRTUAL TABLE terms USING fts5vocab (grams, 'instance');
COMMIT;
"""  # noqa: S608
_KNOWN = """
SELECT uri, id, version, extent, title, kind FROM documents
WHERE source = ? AND uri IN (SELECT value FROM json_each(?))
"""
_PUT = """
INSERT INTO documents (source, uri, title, kind, name, version, extent, changed)
VALUES (:source, :uri, :title, :kind, :name, :version, :extent, :changed)
ON CONFLICT (source, uri) DO UPDATE SET title = excluded.title, kind = excluded.kind, name = excluded.name,
    version = excluded.version, extent = excluded.extent, changed = excluded.changed
RETURNING id
"""
_DOCUMENTS_WITH = "SELECT document FROM parts WHERE id IN (SELECT rowid FROM grams WHERE grams MATCH ?)"
_DOCUMENTS_WITH_SHORT = "SELECT document FROM parts WHERE id IN (SELECT doc FROM terms WHERE term >= ? AND term < ?)"


class OtherLayout(sqlite3.DatabaseError):
    """The file is an index of another version of this program."""


class IndexedVersion(NamedTuple):
    """A document as it was indexed."""

    id: int
    version: str
    extent: int
    """`NAME_ONLY`, `WHOLE` or `BEGINNING`."""
    title: str
    kind: str


class IndexRow(NamedTuple):
    """A document that may match. The higher its `promise`, the more likely it is a good match.

    `name` is folded. The higher `changed`, the later the document was indexed.
    """

    source: str
    uri: str
    title: str
    kind: str
    name: str
    changed: int
    promise: float = 0.0


class IndexRows(NamedTuple):
    """Documents that may match, the query with the weights of its words, and how many documents may have each word."""

    rows: list[IndexRow]
    query: Query
    counts: list[int]


class Filters(NamedTuple):
    """Which documents to search: by default, all. `path` is a pattern with `*`, `?` and `[…]`.

    `shows` returns whether the caller may see a document, by its source and URI.
    """

    sources: Sequence[str] = ()
    type: str = ""
    path: str = ""
    shows: Callable[[str, str], bool] | None = None


class IndexStore:
    """An index file, written by one thread and read by any.

    Raises:
        sqlite3.DatabaseError: the file is not an index, is damaged, or has another layout.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._writer = self._connect()
        self._waiting: list[tuple[int, str]] = []
        self._waiting_characters = 0
        try:
            self._prepare()
        except BaseException:
            self._writer.close()
            raise

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, timeout=5.0, isolation_level=None, check_same_thread=False)
        connection.execute("PRAGMA temp_store = MEMORY")
        return connection

    def _prepare(self) -> None:
        execute = self._writer.execute
        with suppress(OSError):
            self.path.chmod(0o600)
        execute("PRAGMA journal_mode = WAL")
        execute("PRAGMA synchronous = NORMAL")
        execute("PRAGMA journal_size_limit = 16777216")  # bytes of the write-ahead log that stay after a checkpoint
        if not execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone():
            self._writer.executescript(_TABLES)
        application, layout = (execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version"))
        if application == APPLICATION_ID and layout != LAYOUT_VERSION:
            raise OtherLayout(f"it has layout {layout} of another version")
        if application != APPLICATION_ID:
            raise sqlite3.DatabaseError("it is not a search index")
        if self.path.stat().st_size < CHECK_BYTES and execute("PRAGMA quick_check(1)").fetchone()[0] != "ok":
            raise sqlite3.DatabaseError("it is damaged")
        self._parts_made: int = execute("SELECT parts_made FROM counters").fetchone()[0]
        self._size = self._measure()
        self._last_change: int = execute("SELECT coalesce(max(changed), 0) FROM documents").fetchone()[0]

    def close(self) -> None:
        """Commit the waiting documents, and close the file."""
        with suppress(sqlite3.Error):
            self.commit()
        self._writer.close()

    # -- writing

    def known(self, source: str, uris: Sequence[str]) -> dict[str, IndexedVersion]:
        """Return the indexed versions of these documents, by URI, without documents that are not indexed."""
        rows = self._writer.execute(_KNOWN, (source, _json(uris)))
        return {uri: IndexedVersion(id, version, extent, title, kind) for uri, id, version, extent, title, kind in rows}

    def put(self, source: str, document: Document, pieces: Iterable[str], max_characters: int) -> int:
        """Index a document up to `max_characters`, and return its id. Unchanged parts are not indexed again."""
        self._begin()
        text = _FoldedText(pieces, max_characters)
        old_parts = self._parts_of(source, document.uri)
        new_parts: list[tuple[int, bytes, int]] = []
        for number, part in enumerate(_parts(text)):
            digest = hashlib.blake2b(part.encode("utf-8", "replace"), digest_size=12).digest()
            part_id, old_digest = old_parts.get(number, (0, b""))
            new_parts.append((number, digest, part_id if old_digest == digest else self._add(part)))
        self._last_change += 1
        values = {
            "source": source,
            "uri": document.uri,
            "title": _clean(document.title),
            "kind": document.mime_type,
            "name": _clean(fold(name_of(document))),
            "version": document.version,
            "extent": (BEGINNING if max_characters else NAME_ONLY) if text.cut else WHOLE,
            "changed": self._last_change,
        }
        (id,) = self._writer.execute(_PUT, values).fetchone()
        if {number: (part_id, digest) for number, digest, part_id in new_parts} != old_parts:
            self._writer.execute("DELETE FROM parts WHERE document = ?", (id,))
            rows = [(part_id, id, number, digest) for number, digest, part_id in new_parts]
            self._writer.executemany("INSERT INTO parts VALUES (?, ?, ?, ?)", rows)
        return int(id)

    def _parts_of(self, source: str, uri: str) -> dict[int, tuple[int, bytes]]:
        rows = self._writer.execute(
            "SELECT number, parts.id, digest FROM parts JOIN documents ON documents.id = document "
            "WHERE source = ? AND uri = ?",
            (source, uri),
        )
        return {number: (id, digest) for number, id, digest in rows}

    def _add(self, part: str) -> int:
        """Index one part, and return its id. No id is used twice, so the rows of old parts belong to no document."""
        self._parts_made += 1
        self._waiting.append((self._parts_made, _clean(part) + END))
        self._waiting_characters += len(part)
        if self._waiting_characters > BATCH_CHARACTERS:
            self._flush()
        return self._parts_made

    def _flush(self) -> None:
        """Index all waiting parts at once. FTS5 would write a segment if another statement came between them."""
        self._writer.executemany("INSERT INTO grams (rowid, text) VALUES (?, ?)", self._waiting)
        self._waiting.clear()
        self._waiting_characters = 0
        self._size = self._measure()

    def remove(self, ids: Iterable[int]) -> None:
        """Remove documents."""
        self._begin()
        rows = [(id,) for id in ids]
        self._writer.executemany("DELETE FROM parts WHERE document = ?", rows)
        self._writer.executemany("DELETE FROM documents WHERE id = ?", rows)

    def remove_missing(self, source: str, seen: set[int]) -> int:
        """Remove the documents of a source whose ids are not in `seen`, and return their number."""
        ids = self._writer.execute("SELECT id FROM documents WHERE source = ?", (source,))
        removed = [id for (id,) in ids if id not in seen]
        self.remove(removed)
        return len(removed)

    def remove_other_sources(self, kept: Iterable[str]) -> None:
        """Remove the documents of all sources except those in `kept`."""
        names = _json(list(kept))
        query = "SELECT id FROM documents WHERE source NOT IN (SELECT value FROM json_each(?))"
        self.remove([id for (id,) in self._writer.execute(query, (names,))])

    def clear(self) -> None:
        """Remove everything."""
        self.commit()
        self._writer.executescript(
            "BEGIN; DELETE FROM parts; DELETE FROM documents; UPDATE counters SET parts_made = 0; "
            "INSERT INTO grams (grams) VALUES ('delete-all'); COMMIT;"
        )
        self._parts_made = 0
        self._size = self._measure()

    def _begin(self) -> None:
        if not self._writer.in_transaction:
            self._writer.execute("BEGIN IMMEDIATE")

    def commit(self) -> None:
        """Commit, so that searches find everything indexed so far."""
        if self._writer.in_transaction:
            self._flush()
            self._writer.execute("UPDATE counters SET parts_made = ?", (self._parts_made,))
            self._writer.execute("COMMIT")

    # -- sizes

    def size(self) -> int:
        """Return the bytes in use, plus one for each character that waits to be indexed."""
        return self._size + self._waiting_characters

    def _measure(self) -> int:
        names = ("page_count", "freelist_count", "page_size")
        pages, free, page_size = (self._writer.execute(f"PRAGMA {name}").fetchone()[0] for name in names)
        return int((pages - free) * page_size)

    def is_stale(self, full: bool) -> bool:
        """Return whether to rebuild the index because of rows of changed parts (see `MAX_ORPHANS`).

        If the index is `full`, a third of all rows suffices.
        """
        (live,) = self._writer.execute("SELECT count(*) FROM parts").fetchone()
        orphans: int = self._parts_made - live
        return orphans > max(MAX_ORPHANS, live) or (full and orphans > live // 2)

    # -- reading

    def count(self, filters: Filters | None = None) -> tuple[int, int]:
        """Return the number of documents, and how many of them are indexed only by name or in part."""
        with closing(self._connect()) as reader:
            where = self._where(reader, filters or Filters())
            row = reader.execute(
                f"SELECT count(*), coalesce(sum(extent != {WHOLE}), 0) FROM documents WHERE {where}"  # noqa: S608
            ).fetchone()
        return int(row[0]), int(row[1])

    def find(self, query: Query, filters: Filters, limit: int) -> IndexRows:
        """Return up to `limit` documents that may have the words in their name or text.

        Documents with most of the words come first; a rare word weighs more. A document is also promoted if its name
        has the words, or if its text may define a word or have two words side by side. Among equals, the newest come
        first. Documents with too few of the words (`search_ranking`), or without a phrase of the query, are left out.

        Raises:
            sqlite3.DatabaseError: the file is damaged.
        """
        with closing(self._connect()) as reader:
            self._gather(reader, query)
            where = self._where(reader, filters)
            total, counts = _count_documents(reader, len(query.words), where)
            if len(query.words) > 1:
                query = query.weighted(rarity(count, total) for count in counts)
            if not any(word.weight for word in query.words):
                return IndexRows([], query, counts)
            texts = _likely_texts(query) if max(counts) > FEW_DOCUMENTS else ()
            likely = " OR ".join(f"({_fts_query(text)})" for text in texts)
            numbers = range(len(query.words))
            joins = " ".join(f"LEFT JOIN word{number} ON word{number}.document = documents.id" for number in numbers)
            weight = " + ".join(
                f"{word.weight:.6f} * (word{number}.document IS NOT NULL)" for number, word in enumerate(query.words)
            )
            # `Word.base` is the weight regardless of rarity. The sums are compared with a margin for the six digits.
            base = " + ".join(
                f"{word.base:.6f} * (word{number}.document IS NOT NULL)"
                for number, word in enumerate(query.words)
                if word.weight
            )
            least = f"({weight} >= {MIN_SHARE * query.weight:.6f} - 1e-5 OR {base} >= ?)"
            named = " + ".join(f"coalesce(word{number}.named, 0)" for number in numbers)
            needed = "".join(
                f" AND word{number}.document IS NOT NULL" for number, word in enumerate(query.words) if word.phrase
            )
            is_likely = f"(documents.id IN ({_DOCUMENTS_WITH}))" if likely else "0"
            statement = f"""
                SELECT source, uri, title, kind, name, changed,
                    {weight} + 0.2 * ({named}) + 0.2 * {is_likely} AS promise
                FROM documents {joins} WHERE {where}{needed} AND {least}
                ORDER BY promise DESC, changed DESC LIMIT ?
                """  # noqa: S608
            base_weight = sum(word.base for word in query.words if word.weight)
            values = (*([likely] if likely else []), MIN_BASE * base_weight - 1e-5, limit)
            rows = [IndexRow(*row) for row in reader.execute(statement, values)]
            return IndexRows(rows, query, counts)

    def _gather(self, reader: sqlite3.Connection, query: Query) -> None:
        """Write the documents that may have each word to one temporary table per word: `word0`, `word1` and so on."""
        deadline = time.monotonic() + SHORT_WORDS_SECONDS
        for number, word in enumerate(query.words):
            table = f"word{number}"
            reader.execute(f"CREATE TEMP TABLE {table} (document INTEGER PRIMARY KEY, named INTEGER NOT NULL)")
            named = " OR ".join(["instr(name, ?)"] * len(word.probes))
            reader.execute(
                f"INSERT INTO {table} SELECT id, 1 FROM documents WHERE {named}",  # noqa: S608
                tuple(map(_clean, word.probes)),
            )
            for documents, arguments in map(_documents_with, word.probes):
                insert = f"INSERT OR IGNORE INTO {table} SELECT *, 0 FROM ({documents})"  # noqa: S608
                if documents is not _DOCUMENTS_WITH_SHORT:
                    reader.execute(insert, arguments)
                elif not _execute_until(deadline, reader, insert, arguments):
                    reader.execute(f"INSERT OR IGNORE INTO {table} SELECT id, 0 FROM documents")  # noqa: S608

    def _where(self, reader: sqlite3.Connection, filters: Filters) -> str:
        """Return the filters as a condition on `documents`. They are applied once: `shows` may take microseconds."""
        conditions = list(_conditions(filters))
        if not conditions:
            return "1"
        # SQLite's own GLOB backtracks for every `*`.
        reader.create_function("fits_path", 1, compile_glob(filters.path, path=False), deterministic=True)
        if filters.shows is not None:
            reader.create_function("shows", 2, filters.shows)
        where = " AND ".join(condition for condition, _ in conditions)
        reader.execute("CREATE TEMP TABLE shown (id INTEGER PRIMARY KEY)")
        reader.execute(
            f"INSERT INTO shown SELECT id FROM documents WHERE {where}",  # noqa: S608
            [value for _, values in conditions for value in values],
        )
        return "documents.id IN shown"

    def near(self, word: str, filters: Filters, limit: int) -> list[IndexRow]:
        """Return up to `limit` documents that may have a word like this one, with one or two adjacent letters changed.

        Raises:
            sqlite3.DatabaseError: the file is damaged.
        """
        text = _clean(word)[:OVERLAP_CHARACTERS]
        queries = [
            " AND ".join(map(_fts_query, halves))
            for position in range(len(text))
            if (halves := [part for part in (text[:position], text[position + 2 :]) if len(part) >= GRAM_CHARACTERS])
            and sum(map(len, halves)) >= len(text) // 2
        ]
        if not queries:
            return []
        with closing(self._connect()) as reader:
            where = self._where(reader, filters)
            rows = reader.execute(
                f"SELECT source, uri, title, kind, name, changed FROM documents WHERE {where} "  # noqa: S608
                f"AND documents.id IN ({_DOCUMENTS_WITH}) ORDER BY changed DESC LIMIT ?",
                (" OR ".join(f"({each})" for each in queries), limit),
            )
            return [IndexRow(*row) for row in rows]


def _execute_until(
    deadline: float, connection: sqlite3.Connection, statement: str, arguments: Sequence[object]
) -> bool:
    """Execute a statement that returns nothing, and return whether it ended before the deadline; else undo it."""
    connection.set_progress_handler(lambda: time.monotonic() > deadline, 1_000)
    try:
        connection.execute(statement, arguments)
    except sqlite3.OperationalError as error:
        if "interrupted" not in str(error):
            raise
        return False
    finally:
        connection.set_progress_handler(None, 0)
    return True


def _count_documents(reader: sqlite3.Connection, word_count: int, where: str) -> tuple[int, list[int]]:
    """Return the number of documents that pass the filters, and for each word the number that may have it."""
    columns = [f"(SELECT count(*) FROM documents WHERE {where})"]  # noqa: S608
    has_filters = where != "1"
    for number in range(word_count):
        joined = f"word{number} JOIN documents ON id = document" if has_filters else f"word{number}"
        columns.append(f"(SELECT count(*) FROM {joined} WHERE {where})")  # noqa: S608
    total, *counts = reader.execute(f"SELECT {', '.join(columns)}").fetchone()
    return total, counts


def _likely_texts(query: Query) -> Iterator[str]:
    """Yield texts that a good match may have: definitions of the two rarest words, and words side by side."""
    words = [word for word in query.words if not word.phrase]
    for word in sorted(words, key=lambda word: -word.weight)[:2]:
        for spelling in word.spellings[:2]:
            yield from (f"{keyword} {spelling}" for keyword in KEYWORDS)
    for one, other in pairwise(words[:6]):
        yield from (f"{one.probes[0]}{sign}{other.probes[0]}" for sign in ("_", " ", ""))


def _documents_with(probe: str) -> tuple[str, list[object]]:
    """Return an SQL query for the documents that may have a text, and its arguments."""
    probe = _clean(probe)[: OVERLAP_CHARACTERS + 1]
    if len(probe) < GRAM_CHARACTERS:
        return _DOCUMENTS_WITH_SHORT, [probe, probe + LAST_CHARACTER]
    return _DOCUMENTS_WITH, [_fts_query(probe)]


def _fts_query(text: str) -> str:
    """Return an FTS5 query for the first 64 trigrams of a text: the documents that it finds are read anyway."""
    text = _clean(text)[: OVERLAP_CHARACTERS + 1]
    grams = dict.fromkeys(
        text[begin : begin + GRAM_CHARACTERS] for begin in range(max(1, len(text) - GRAM_CHARACTERS + 1))
    )
    return " AND ".join('"' + gram.replace('"', '""') + '"' for gram in list(grams)[:64])


def _conditions(filters: Filters) -> Iterator[tuple[str, list[object]]]:
    if filters.sources:
        yield "source IN (SELECT value FROM json_each(?))", [_json(filters.sources)]
    if filters.type:
        family = filters.type.removesuffix("*").removesuffix("/")
        yield "(kind = ? OR substr(kind, 1, ?) = ?)", [filters.type, len(family) + 1, family + "/"]
    if filters.path:
        yield "(fits_path(title) OR fits_path(uri))", []
    if filters.shows is not None:  # the slowest condition is the last
        yield "shows(source, uri)", []


def _clean(text: str) -> str:
    """Replace characters that SQLite cannot store: NUL and surrogates."""
    text = text.replace("\0", "\x01")
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _json(values: Sequence[str]) -> str:
    return msgspec.json.encode(list(values)).decode()


class _FoldedText:
    """The pieces of a text, folded, up to a number of characters."""

    def __init__(self, pieces: Iterable[str], max_characters: int) -> None:
        self._pieces = pieces
        self._left = max_characters
        self.cut = False
        """Whether the text is longer; known after the iteration."""

    def __iter__(self) -> Iterator[str]:
        for piece in self._pieces:
            if len(piece) > self._left:
                self.cut = True
                yield fold(piece[: self._left])
                return
            self._left -= len(piece)
            yield fold(piece)


def _parts(pieces: Iterable[str]) -> Iterator[str]:
    """Split a text into parts of PART_CHARACTERS characters, each with the OVERLAP_CHARACTERS characters after it."""
    waiting: list[str] = []
    length = 0
    for piece in pieces:
        waiting.append(piece)
        length += len(piece)
        if length < PART_CHARACTERS + OVERLAP_CHARACTERS:
            continue
        text = "".join(waiting)
        begin = 0
        while length - begin >= PART_CHARACTERS + OVERLAP_CHARACTERS:
            yield text[begin : begin + PART_CHARACTERS + OVERLAP_CHARACTERS]
            begin += PART_CHARACTERS
        waiting, length = [text[begin:]], length - begin
    rest = "".join(waiting)
    if rest:
        yield rest
