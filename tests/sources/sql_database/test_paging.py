"""Windows ordered by a key contain each row once, in both directions, even while rows change."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from wharfinger.errors import InternalError, InvalidArgument
from wharfinger.sources.sql_database import Database
from wharfinger.sources.sql_database.sql_uris import quote_part
from wharfinger.sources.sql_database.sqlite import SQLite
from wharfinger.sources.windows.window import PREVIOUS

from .conftest import PostgresServer, walk

NUMBERS = "WITH RECURSIVE q (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM q WHERE n < 1000)"

SQLITE_TABLES = {
    "integer key": "CREATE TABLE t (id INTEGER PRIMARY KEY, n)",
    "negative and large": "CREATE TABLE t (id INTEGER PRIMARY KEY, n)",
    "text key": "CREATE TABLE t (id TEXT PRIMARY KEY NOT NULL, n)",
    "any case": "CREATE TABLE t (id TEXT COLLATE NOCASE PRIMARY KEY NOT NULL, n)",
    "without rowid": "CREATE TABLE t (id TEXT PRIMARY KEY, n) WITHOUT ROWID",
    "two columns": "CREATE TABLE t (id TEXT NOT NULL, n INT NOT NULL, PRIMARY KEY (id, n)) WITHOUT ROWID",
    "descending": "CREATE TABLE t (id TEXT NOT NULL, n INT NOT NULL, PRIMARY KEY (id DESC, n DESC))",
    "mixed directions": "CREATE TABLE t (id TEXT NOT NULL, n INT NOT NULL, PRIMARY KEY (id DESC, n))",
    "unique index": "CREATE TABLE t (id TEXT NOT NULL, n); CREATE UNIQUE INDEX u ON t (id)",
    "partial index": "CREATE TABLE t (id TEXT NOT NULL, n); CREATE UNIQUE INDEX u ON t (id) WHERE n > 5",
    "null in the key": "CREATE TABLE t (id TEXT PRIMARY KEY, n)",
    "no key": "CREATE TABLE t (id, n)",
    "no key, rowid taken": "CREATE TABLE t (rowid, oid, id, n)",
    "real key": "CREATE TABLE t (id REAL NOT NULL UNIQUE, n)",
    "bytes": "CREATE TABLE t (id BLOB NOT NULL UNIQUE, n)",
}
SQLITE_VALUES = {
    "integer key": "n * 3",
    "negative and large": "(n - 500) * 9007199254740993",
    "real key": "n / 7.0",
    "bytes": "CAST('b' || n AS BLOB)",
    "null in the key": "NULLIF('t' || n, 't5')",
    "text key": "CASE n % 4 WHEN 0 THEN n WHEN 1 THEN '''q' || n WHEN 2 THEN '~,/?#&=%+' || n ELSE 'é' || n END",
}
POSTGRES_TABLES = {
    "bigint": ("id bigint PRIMARY KEY, n int", "n * 9007199254740"),
    "text": ("id text PRIMARY KEY, n int", "(n % 7) || '~,/?#&=%+ é' || n"),
    "char": ("id char(12) PRIMARY KEY, n int", "'c' || n"),
    "uuid": ("id uuid PRIMARY KEY, n int", "md5(n::text)::uuid"),
    "timestamptz": ("id timestamptz PRIMARY KEY, n int", "'2026-01-01'::timestamptz + n * interval '1.000001 s'"),
    "numeric": ("id numeric PRIMARY KEY, n int", "n / 7.0"),
    "float8": ("id float8 PRIMARY KEY, n int", "n / 7.0::float8"),
    "interval": ("id interval PRIMARY KEY, n int", "n * interval '1 hour'"),
    "bytea": ("id bytea PRIMARY KEY, n int", "('b' || n)::bytea"),
    "two columns": ("id text, n int, PRIMARY KEY (id, n)", "n % 3"),
    "unique, not null": ("id text NOT NULL UNIQUE, n int", "'t' || n"),
    "unique, null": ("id text UNIQUE, n int", "'t' || n"),
    "deferrable": ("id int NOT NULL UNIQUE DEFERRABLE, n int", "n"),
    "no key": ("id int, n int", "n"),
}


def check_both_directions(source: Database, uri: str) -> None:
    forwards = walk(source, f"{uri}?limit=37")
    assert sorted(forwards) == list(range(1, 1_001))
    assert walk(source, f"{uri}?tail=41", PREVIOUS) == forwards
    assert walk(source, uri) == forwards


@pytest.mark.parametrize("table", SQLITE_TABLES)
def test_joined_windows_are_the_whole_sqlite_table(
    table: str, tmp_path: Path, publish: Callable[..., Database]
) -> None:
    """The rows are read forwards, backwards, and without a limit."""
    path = tmp_path / "t.db"
    writer = sqlite3.connect(path)
    writer.executescript(SQLITE_TABLES[table])
    value = SQLITE_VALUES.get(table, "'t' || (n % 100) || '-' || n")
    writer.execute(f"INSERT INTO t (id, n) {NUMBERS} SELECT {value}, n FROM q ORDER BY (n * 7919) % 1009")
    writer.commit()
    writer.close()
    source = publish(f"sqlite:///{path}")
    check_both_directions(source, f"{source.uri}/t/rows")


def test_a_window_before_a_key_without_a_limit_continues_with_earlier_rows(
    tmp_path: Path, publish: Callable[..., Database]
) -> None:
    """A bug: the continuation was the window after this one, which was not requested."""
    path = tmp_path / "t.db"
    writer = sqlite3.connect(path)
    writer.executescript("CREATE TABLE t (id INTEGER PRIMARY KEY)")
    writer.execute(f"INSERT INTO t {NUMBERS} SELECT n FROM q UNION SELECT n + 1000 FROM q")
    writer.commit()
    writer.close()
    source = publish(f"sqlite:///{path}")
    content, remark = source.read("sqlite://t/t/rows?before=1500").contents
    assert str(content.text).startswith('{"id":500}')
    assert "To continue, read sqlite://t/t/rows?before=500]" in str(remark.text)
    assert len(source.read("sqlite://t/t/rows?before=500").contents) == 1


@pytest.mark.parametrize("table", POSTGRES_TABLES)
def test_joined_windows_are_the_whole_postgres_table(
    table: str, postgres: PostgresServer, publish: Callable[..., Database]
) -> None:
    """The rows are read forwards, backwards, and without a limit."""
    columns, value = POSTGRES_TABLES[table]
    rows = f"INSERT INTO t (id, n) SELECT {value}, n FROM generate_series(1, 1000) n ORDER BY (n * 7919) % 1009"
    name = postgres.database(f"CREATE TABLE t ({columns}); {rows}")
    source = publish(postgres.url(name, "reader"), label="t")
    check_both_directions(source, f"{source.uri}/public/t/rows")


steps = st.lists(
    st.tuples(st.sampled_from(["insert", "delete"]), st.integers(1, 3_000), st.integers(1, 40)), max_size=12
)


def test_the_rows_of_a_postgres_table_include_those_of_its_children(
    postgres: PostgresServer, publish: Callable[..., Database]
) -> None:
    """A bug: children by inheritance have the same ctids, and most of their rows were left out."""
    name = postgres.database(
        "CREATE TABLE t (id int, n int); CREATE TABLE child () INHERITS (t);"
        "INSERT INTO t SELECT n, n FROM generate_series(1, 10) n;"
        "INSERT INTO child SELECT n, n FROM generate_series(11, 1000) n; ANALYZE"
    )
    source = publish(postgres.url(name, "reader"), label="t")
    assert sorted(walk(source, "postgres://t/public/t/rows?limit=300")) == list(range(1, 1_001))
    assert "t (table, about 1,000 rows)" in str(source.read("postgres://t/public").contents[0].text)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=steps, size=st.integers(20, 300))
def test_kept_rows_are_read_once_while_others_are_inserted_and_deleted(
    changes: list[tuple[str, int, int]], size: int, tmp_path: Path, publish: Callable[..., Database]
) -> None:
    path = tmp_path / f"t{time.monotonic_ns()}.db"
    writer = sqlite3.connect(path, isolation_level=None)
    writer.execute("CREATE TABLE t (n INTEGER PRIMARY KEY)")
    writer.execute(f"INSERT INTO t {NUMBERS} SELECT n * 3 FROM q")
    before = {n for (n,) in writer.execute("SELECT n FROM t")}
    deleted: set[int] = set()
    remaining = list(changes)

    def change_rows() -> None:
        if remaining:
            action, begin, count = remaining.pop()
            rows = range(begin, begin + count)
            if action == "insert":
                writer.executemany("INSERT OR IGNORE INTO t VALUES (?)", [(n,) for n in rows])
            else:
                writer.executemany("DELETE FROM t WHERE n = ?", [(n,) for n in rows])
                deleted.update(rows)

    source = publish(f"sqlite:///{path}")
    found = walk(source, f"{source.uri}/t/rows?limit={size}", between_windows=change_rows)
    writer.close()
    assert found == sorted(set(found))
    assert before - deleted <= set(found)


def test_a_key_that_may_be_null_is_searched_for_nulls_once_after_each_write(
    tmp_path: Path, publish: Callable[..., Database]
) -> None:
    """A bug: each window, row and cell read the whole table for it."""
    path = tmp_path / "t.db"
    writer = sqlite3.connect(path, isolation_level=None)
    writer.executescript("CREATE TABLE t (a TEXT, b TEXT, PRIMARY KEY (a, b)); INSERT INTO t VALUES ('x', 'y')")
    source = publish(f"sqlite:///{path}")
    engine = source.engine
    assert isinstance(engine, SQLite)
    with engine._connection() as connection:
        statements: list[str] = []
        connection.set_trace_callback(statements.append)
    for path_of_row in ("rows/x,y", "rows/x,y/a", "rows", "rows?limit=1", "rows"):
        source.read(f"sqlite://t/t/{path_of_row}")
    searches = [statement for statement in statements if "EXISTS" in statement]
    assert len(searches) == 1
    writer.execute("INSERT INTO t VALUES ('x', NULL), ('x', NULL)")
    assert len(walk(source, "sqlite://t/t/rows?limit=1", column="a")) == 3
    writer.close()


def test_a_row_is_read_by_its_key(tmp_path: Path, publish: Callable[..., Database]) -> None:
    """Each key has two columns. Some values look like another type, and one is not valid UTF-8."""
    path = tmp_path / "t.db"
    writer = sqlite3.connect(path)
    writer.execute("CREATE TABLE t (a, b TEXT NOT NULL, n INTEGER, PRIMARY KEY (a, b)) WITHOUT ROWID")
    keys: list[tuple[Any, str]] = [
        (17, "x"),
        ("17", "x"),
        ("a,b", "~"),
        ("", ""),
        (b"\0\xff", "x'00"),
        (1.5, "'"),
        ("é", "0/"),
    ]
    writer.executemany("INSERT INTO t VALUES (?, ?, ?)", [(*key, number) for number, key in enumerate(keys)])
    writer.execute("INSERT INTO t VALUES (CAST(x'fffe' AS TEXT), 'bad', 7)")
    writer.commit()
    writer.close()
    source = publish(f"sqlite:///{path}")
    texts = source.complete("", "key", "", {"table": "t"})
    assert len(texts) == 8
    found = [
        json.loads(str(source.read(f"{source.uri}/t/rows/{quote_part(text)}").contents[0].text))["n"] for text in texts
    ]
    assert sorted(found) == list(range(8))


INVALID_QUERIES = (
    "rows=201-400", "rows=2", "limit=0", "limit=x", "limit=10001", "after=x", "after=1,2", "offset=5", "tail=0",
    "after=1&before=5", "tail=5&limit=5", "limit=5&limit=6", "after=", "lines=1-2", "after=~",
)  # fmt: skip


def test_an_invalid_window_is_refused(shop: Any) -> None:
    for query in INVALID_QUERIES:
        with pytest.raises(InvalidArgument):
            shop.source.read(f"{shop.top}/orders/rows?{query}")
    assert len(lines_of(shop, "rows=1-2")) == 2
    with pytest.raises(InvalidArgument, match="without a key"):
        shop.source.read(f"{shop.top}/busy/rows?after=1")
    assert len(lines_of(shop, "limit=1", "busy")) == 1


def lines_of(shop: Any, query: str, table: str = "orders") -> list[str]:
    return str(shop.source.read(f"{shop.top}/{table}/rows?{query}").contents[0].text).splitlines()


def test_a_cell_that_is_too_large_to_load_is_read_in_part(tmp_path: Path, publish: Callable[..., Database]) -> None:
    """The other rows are complete."""
    path = tmp_path / "t.db"
    writer = sqlite3.connect(path)
    writer.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, n INT, data BLOB, word TEXT)")
    writer.execute(
        "INSERT INTO t VALUES (1, 1, x'00', 'small'), (2, 2, zeroblob(100000000), 'beside'), (3, 3, NULL, 'last')"
    )
    writer.commit()
    writer.close()
    source = publish(f"sqlite:///{path}")
    lines = [json.loads(line) for line in str(source.read(f"{source.uri}/t/rows").contents[0].text).splitlines()]
    assert [(line["n"], line["word"]) for line in lines] == [(1, "small"), (2, "beside"), (3, "last")]
    assert lines[1]["data"]["bytes"] == 100_000_000
    whole = source.read(f"{source.uri}/t/rows/2/data").contents
    assert whole[0].blob == bytes(16 << 20)
    assert "16,777,216 bytes of 100,000,000" in str(whole[1].text)


@pytest.mark.parametrize("encoding", ["UTF-16le", "UTF-16be"])
def test_a_text_that_is_too_large_to_load_is_read_in_part_from_a_database_in_utf_16(
    encoding: str, tmp_path: Path, publish: Callable[..., Database]
) -> None:
    """A bug: the bytes of the file were read as UTF-8."""
    path = tmp_path / "t.db"
    writer = sqlite3.connect(path)
    writer.execute(f"PRAGMA encoding = '{encoding}'")
    writer.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, word TEXT)")
    writer.execute("INSERT INTO t VALUES (1, ?)", ("Zoë " * (5 << 20),))
    writer.commit()
    writer.close()
    source = publish(f"sqlite:///{path}")
    (line,) = str(source.read(f"{source.uri}/t/rows").contents[0].text).splitlines()
    assert json.loads(line)["word"]["text"].startswith("Zoë Zoë Zoë ")
    whole = str(source.read(f"{source.uri}/t/rows/1/word").contents[0].text)
    assert whole == ("Zoë " * len(whole))[: len(whole)]
    assert len(whole.encode()) in (16 << 20, (16 << 20) - 1)


def test_a_row_without_a_key_value_is_read_beside_a_cell_that_is_too_large_to_load(
    tmp_path: Path, publish: Callable[..., Database]
) -> None:
    """SQLite allows NULL in this key. Such rows are distinguished by the rowid."""
    path = tmp_path / "t.db"
    writer = sqlite3.connect(path)
    writer.execute("CREATE TABLE t (id TEXT PRIMARY KEY, n INT, data BLOB)")
    writer.execute("INSERT INTO t VALUES ('a', 1, x'00'), (NULL, 2, zeroblob(100000000)), (NULL, 3, x'01')")
    writer.commit()
    writer.close()
    source = publish(f"sqlite:///{path}")
    for query in ("", "?limit=1", "?order=-n&limit=2"):
        assert sorted(walk(source, f"{source.uri}/t/rows{query}")) == [1, 2, 3]


def test_an_order_by_a_column_with_a_value_that_is_too_large_to_load_is_refused(
    tmp_path: Path, publish: Callable[..., Database]
) -> None:
    path = tmp_path / "t.db"
    writer = sqlite3.connect(path)
    writer.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, data BLOB)")
    writer.execute("INSERT INTO t VALUES (1, x'00'), (2, zeroblob(100000000))")
    writer.commit()
    writer.close()
    source = publish(f"sqlite:///{path}")
    with pytest.raises(InternalError, match="larger than 32 MiB"):
        source.read(f"{source.uri}/t/rows?order=data")
