"""Conditions, orders and columns in URIs choose the same rows as SQL, in all windows."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from wharfinger.errors import InvalidArgument, ResourceNotFound
from wharfinger.sources.sql_database import Database
from wharfinger.sources.sql_database import source as database_source
from wharfinger.sources.windows.window import NEXT, PREVIOUS, SUMMARY

from .conftest import PostgresServer, Shop, walk

ROW_COUNT = 40_000


def check_both_directions(source: Database, rows: str, query: str, expected: list[int], size: int) -> None:
    separator = "&" if query else ""
    assert walk(source, f"{rows}?limit={size}{separator}{query}") == expected
    assert walk(source, f"{rows}?tail={size}{separator}{query}", PREVIOUS) == expected


# The expected order comes from the database, with its collations, NULL and ties.
CASES = [
    ("", "", "id"),
    ("order=-id", "", "id DESC"),
    ("order=word", "", "word NULLS LAST, id"),
    ("order=-word", "", "word DESC NULLS LAST, id"),
    ("order=-amount,word", "", "amount DESC NULLS LAST, word NULLS LAST, id"),
    ("order=tie,-id", "", "tie, id DESC"),
    ("tie=gte.2&order=-tie,amount", "tie >= 2", "tie DESC, amount NULLS LAST, id"),
    ("word=is.null", "word IS NULL", "id"),
    ("word=is.notnull&amount=lt.500.25", "word IS NOT NULL AND amount < 500.25", "id"),
    ("word=w7", "word = 'w7'", "id"),
    (
        "word=neq.w7&tie=1&amount=gt.10&amount=lte.9000",
        "word <> 'w7' AND tie = 1 AND amount > 10 AND amount <= 9000",
        "id",
    ),
    ("word=like.*É1*&order=word", "word LIKE '%É1%'", "word, id"),
]
VALUES = """
n, CASE n % 11 WHEN 0 THEN NULL WHEN 1 THEN 'É' || (n % 500) WHEN 2 THEN 'a_b%' ELSE 'w' || (n % 97) END,
CASE n % 13 WHEN 0 THEN NULL ELSE (n * 7919 % 20011) / 2.0 END, n % 4
"""


@pytest.fixture(scope="module")
def large_sqlite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("large") / "t.db"
    writer = sqlite3.connect(path)
    writer.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, word TEXT COLLATE NOCASE, amount REAL, tie INT NOT NULL)")
    numbers = f"WITH RECURSIVE q (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM q LIMIT {ROW_COUNT})"
    writer.execute(f"INSERT INTO t {numbers} SELECT {VALUES} FROM q")
    writer.commit()
    writer.close()
    return path


@pytest.fixture(scope="module")
def large_postgres(postgres: PostgresServer) -> str:
    return postgres.database(
        "CREATE TABLE t (id int PRIMARY KEY, word text, amount float8, tie int NOT NULL);"
        f"INSERT INTO t SELECT {VALUES} FROM generate_series(1, {ROW_COUNT}) n; ANALYZE t"
    )


def check_case(source: Database, rows: str, query: str, expected: list[int]) -> None:
    assert expected
    query += "&columns=id" if query else "columns=id"
    assert walk(source, f"{rows}?limit=1999&{query}", column="id") == expected
    if "order=-" in query:
        assert walk(source, f"{rows}?tail=1999&{query}", PREVIOUS, column="id") == expected


@pytest.mark.parametrize(("query", "where", "order"), CASES)
def test_40_000_rows_of_sqlite_are_paged_in_the_order_of_sql(
    query: str, where: str, order: str, large_sqlite: Path, publish: Callable[..., Database]
) -> None:
    """The rows are read in both directions, and have NULL values and ties."""
    reader = sqlite3.connect(large_sqlite)
    expected = [row[0] for row in reader.execute(f"SELECT id FROM t WHERE {where or '1 = 1'} ORDER BY {order}")]
    reader.close()
    source = publish(f"sqlite:///{large_sqlite}")
    check_case(source, f"{source.uri}/t/rows", query, expected)


@pytest.mark.parametrize(("query", "where", "order"), CASES)
def test_40_000_rows_of_postgres_are_paged_in_the_order_of_sql(
    query: str, where: str, order: str, postgres: PostgresServer, large_postgres: str, publish: Callable[..., Database]
) -> None:
    """The rows are read in both directions, and have NULL values and ties. Text is sorted by the collation."""
    where = where.replace(" LIKE ", " ILIKE ") or "true"
    found = postgres.run(f"SELECT id FROM t WHERE {where} ORDER BY {order}", large_postgres)
    source = publish(postgres.url(large_postgres, "reader"), label="t")
    check_case(source, f"{source.uri}/public/t/rows", query, [row[0] for row in found])


NULLABLE_KEYS = {
    "text": "id TEXT PRIMARY KEY, b, n",
    "any case": "id TEXT COLLATE NOCASE PRIMARY KEY, b, n",
    "two columns": "id TEXT, b INT, n, PRIMARY KEY (id, b)",
    "one of two": "id TEXT NOT NULL, b INT, n, PRIMARY KEY (id, b)",
    "descending": "id TEXT, b INT, n, PRIMARY KEY (id DESC, b DESC)",
}


@pytest.mark.parametrize("nulls", [0, 1, 30])
@pytest.mark.parametrize("table", NULLABLE_KEYS)
def test_a_nullable_primary_key_identifies_every_row(
    table: str, nulls: int, tmp_path: Path, publish: Callable[..., Database]
) -> None:
    """Rows without NULL are read by their key, and the others by their key and rowid."""
    path = tmp_path / "t.db"
    writer = sqlite3.connect(path)
    writer.execute(f"CREATE TABLE t ({NULLABLE_KEYS[table]})")
    writer.executemany("INSERT INTO t VALUES (?, ?, ?)", [(f"k{n % 7}-{n}", n % 5, n) for n in range(200)])
    null = "" if table == "one of two" else None
    rows: list[tuple[object, ...]] = [(null, None if n % 2 else n, 200 + n) for n in range(nulls)]
    writer.executemany("INSERT INTO t VALUES (?, ?, ?)", rows)
    writer.commit()
    source = publish(f"sqlite:///{path}")
    top = f"{source.uri}/t"
    (stored,) = writer.execute("SELECT count(*) FROM t").fetchone()
    forwards = walk(source, f"{top}/rows?limit=7")
    assert sorted(forwards) == sorted(n for (n,) in writer.execute("SELECT n FROM t"))
    assert len(forwards) == stored
    assert walk(source, f"{top}/rows?tail=9", PREVIOUS) == forwards
    assert walk(source, f"{top}/rows?limit=8&order=-b", NEXT) == walk(source, f"{top}/rows?tail=5&order=-b", PREVIOUS)
    definition = json.loads(str(source.read(top).contents[0].text))
    assert definition["order"].startswith("id")
    key = "k3-3" if "b" not in definition["primary_key"] else "k3-3,3"
    assert json.loads(str(source.read(f"{top}/rows/{key}").contents[0].text))["n"] == 3
    if nulls and table == "text":
        rowid = writer.execute("SELECT rowid FROM t WHERE n = 200").fetchone()[0]
        assert json.loads(str(source.read(f"{top}/rows/~0,{rowid}").contents[0].text))["n"] == 200
        with pytest.raises(ResourceNotFound):
            source.read(f"{top}/rows/~0")
    writer.close()


cells = st.one_of(
    st.none(), st.integers(-3, 3), st.sampled_from([0.5, -0.0, 1e300]), st.binary(max_size=1),
    st.sampled_from(["", "a", "A", "b,~", "2", "\x00"]),
)  # fmt: skip
orders = st.lists(st.sampled_from(["a", "-a", "b", "-b", "n", "-n"]), max_size=3, unique_by=lambda name: name[-1])


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=st.lists(st.tuples(cells, cells), max_size=30), order=orders, size=st.integers(1, 9), data=st.data())
def test_rows_with_any_values_are_read_once_and_in_the_order_of_sql(
    rows: list[tuple[Any, Any]], order: list[str], size: int, data: st.DataObject, tmp_path: Path,
    publish: Callable[..., Database],
) -> None:  # fmt: skip
    """One column has values of several types. The rows are read with and without a condition."""
    path = tmp_path / f"{time.monotonic_ns()}.db"
    writer = sqlite3.connect(path)
    writer.execute("CREATE TABLE t (n INTEGER PRIMARY KEY, a, b TEXT)")
    writer.executemany("INSERT INTO t VALUES (?, ?, ?)", [(n, *pair) for n, pair in enumerate(rows)])
    writer.commit()
    terms = [f"{name[-1]} {'DESC ' * name.startswith('-')}NULLS LAST" for name in order] + ["n"]
    conditions: list[tuple[str, str]] = [("", "1 = 1"), ("b=is.notnull", "b IS NOT NULL"), ("b=gt.2", "b > '2'")]
    query, where = data.draw(st.sampled_from(conditions))
    parts = [f"order={','.join(order)}"] if order else []
    expected = [n for (n,) in writer.execute(f"SELECT n FROM t WHERE {where} ORDER BY {', '.join(terms)}")]
    writer.close()
    source = publish(f"sqlite:///{path}")
    check_both_directions(
        source, f"{source.uri}/t/rows", "&".join([*parts, *([query] if query else [])]), expected, size
    )


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(value=st.text(max_size=30), operator=st.sampled_from(["", "eq.", "neq.", "gt.", "gte.", "lt.", "lte."]))
def test_values_in_uris_are_bound_as_parameters(value: str, operator: str, sqlite_shop: Shop) -> None:
    """Quotes, comments and escapes have no special meaning."""
    if operator == "" and value.partition(".")[0] in ("eq", "neq", "gt", "gte", "lt", "lte", "like", "is"):
        return
    uri = f"{sqlite_shop.top}/customers/rows?name={operator}{quote(value, safe='', errors='replace')}"
    if "\0" in value:
        with pytest.raises(InvalidArgument):
            sqlite_shop.source.read(uri)
        return
    compare: dict[str, Callable[[str], bool]] = {
        "": lambda name: name == value, "eq.": lambda name: name == value, "neq.": lambda name: name != value,
        "gt.": lambda name: name > value, "gte.": lambda name: name >= value,
        "lt.": lambda name: name < value, "lte.": lambda name: name <= value,
    }  # fmt: skip
    expected = [name for name in ("Ada", "Bo", "Cy") if compare[operator](name)]
    assert walk(sqlite_shop.source, uri, column="name") == expected


def test_conditions_orders_and_columns_work_in_every_database(shop: Shop) -> None:
    def rows(query: str, table: str = "orders") -> list[Any]:
        text = str(shop.source.read(f"{shop.top}/{table}/rows?{query}").contents[0].text)
        return [list(json.loads(line).values()) for line in text.splitlines()]

    assert rows("customer=1&order=-pieces&columns=id,pieces") == [[1, 2], [2, 1]]
    assert rows("pieces=gte.2&pieces=lt.7") == [[1, 1, 2]]
    assert rows("town=is.null", "customers") == [[2, "Bo", None]]
    assert rows("name=like.*a*", "customers") == [[1, "Ada", "Hull"]]
    assert rows("name=like.a__", "customers") == []
    assert rows('"town"=Hull', "customers") == [[1, "Ada", "Hull"]]
    assert rows("tail=1&order=pieces") == [[3, 3, 7]]
    assert rows("orders=2", "busy") == [[1, 2]]
    assert rows("order=-orders", "busy") == [[1, 2], [3, 1]]


INVALID_QUERIES = {
    "staus=paid": r"orders has no column staus\..*Its columns: id, customer, pieces",
    "Pieces=2": r"Did you mean pieces\?",
    "order=prices": r"Did you mean pieces\?",
    "columns=id,piece": r"Did you mean pieces\?",
    "pieces=is.empty": "is.null or is.notnull",
    "order=": "order=-date,name",
    "order=id&order=pieces": "given twice",
    "pieces=like." + "x" * 91: "at most 90",
    "&".join(["id=1"] * 21): "At most 20 conditions",
}


@pytest.mark.parametrize("query", INVALID_QUERIES)
def test_the_error_for_an_invalid_choice_lists_the_valid_ones(query: str, shop: Shop) -> None:
    """The error lists the columns, and suggests a similar one."""
    with pytest.raises(InvalidArgument, match=INVALID_QUERIES[query]):
        shop.source.read(f"{shop.top}/orders/rows?{query}")


def test_sqlite_takes_a_pattern_of_200_bytes_and_refuses_one_of_201(sqlite_shop: Shop) -> None:
    """A bug: the longer one caused an internal error, although it has fewer than 90 characters."""
    sqlite_shop.run(f"INSERT INTO customers VALUES (4, 'Di', '{'€' * 66}')")
    uri = f"{sqlite_shop.top}/customers/rows?town=like.{'€' * 66}"
    assert walk(sqlite_shop.source, f"{uri}**", column="id") == [4]
    with pytest.raises(InvalidArgument, match=r"town=like\. takes at most 200 bytes in SQLite"):
        sqlite_shop.source.read(f"{uri}***")


def test_a_column_that_was_just_added_can_be_chosen(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bug: it was refused as unknown while the catalogue of the last read was used."""
    monkeypatch.setattr(database_source, "CATALOGUE_SECONDS", 3_600)
    rows = f"{shop.top}/orders/rows"
    assert walk(shop.source, rows, column="id") == [1, 2, 3]
    shop.run("ALTER TABLE orders ADD COLUMN note TEXT")
    assert walk(shop.source, f"{rows}?note=is.null&columns=note,id&order=-note", column="id") == [1, 2, 3]
    shop.run("ALTER TABLE orders ADD COLUMN more TEXT DEFAULT 'x'")
    assert shop.source.read(f"{rows}/1/more").contents[0].text == "x"


def test_20_conditions_are_accepted(shop: Shop) -> None:
    uri = f"{shop.top}/orders/rows?" + "&".join(["id=1"] * 20)
    assert walk(shop.source, uri, column="id") == [1]


def test_a_condition_that_postgres_rejects_is_refused_with_its_reason(
    postgres: PostgresServer, publish: Callable[..., Database]
) -> None:
    """One query compares a number with text, and the other one orders by a type that has no order."""
    name = postgres.database("CREATE TABLE t (id int PRIMARY KEY, j json); INSERT INTO t VALUES (1, '{}')")
    source = publish(postgres.url(name, "reader"), label="t")
    with pytest.raises(InvalidArgument, match="invalid input syntax for type integer"):
        source.read("postgres://t/public/t/rows?id=paid")
    with pytest.raises(InvalidArgument, match="could not identify an ordering operator"):
        source.read("postgres://t/public/t/rows?order=j")


def test_a_view_without_a_key_is_read_whole_by_position(shop: Shop) -> None:
    """Some of its rows are equal in all columns."""
    shop.run(
        "CREATE TABLE many (id INTEGER PRIMARY KEY, n INTEGER); CREATE VIEW halves AS SELECT n % 500 AS half FROM many;"
    )
    numbers = "WITH RECURSIVE q (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM q WHERE n < 1003)"
    shop.run(f"INSERT INTO many {numbers} SELECT n, n * 7919 % 1009 FROM q;")
    rows = f"{shop.top}/halves/rows"
    expected = sorted(n * 7919 % 1009 % 500 for n in range(1, 1004))
    assert walk(shop.source, f"{rows}?limit=100", column="half") == expected
    assert walk(shop.source, rows, column="half") == expected
    assert walk(shop.source, f"{rows}?rows=1001-1100", PREVIOUS, column="half") == expected
    assert walk(shop.source, f"{rows}?order=-half&limit=33", column="half") == expected[::-1]
    first = shop.source.read(f"{rows}?rows=1-200").contents[0]
    assert (first.meta or {})["wharfinger/next"] == f"{rows}?rows=201-400"


def test_a_window_has_a_hint_about_its_parameters(shop: Shop) -> None:
    """A window without rows has a hint too, so that no answer is empty."""
    first, hint = shop.source.read(f"{shop.top}/orders/rows").contents
    assert "order=-<column>&columns=a,b&limit=20" in str(hint.text)
    assert (hint.meta or {})[SUMMARY] is True
    empty, hint = shop.source.read(f"{shop.top}/orders/rows?pieces=gt.100").contents
    assert empty.text == ""
    assert "No rows of orders match" in str(hint.text)
    assert first.text


def test_a_window_without_a_limit_is_about_10_000_tokens(shop: Shop) -> None:
    """There are no gaps between the windows."""
    shop.run("CREATE TABLE wide (id INTEGER PRIMARY KEY, word TEXT)")
    numbers = "WITH RECURSIVE q (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM q WHERE n < 900)"
    letters = "0123456789" * 10
    shop.run(f"INSERT INTO wide {numbers} SELECT n, n || '{letters}' FROM q;")
    content = shop.source.read(f"{shop.top}/wide/rows").contents[0]
    assert 20_000 < len(str(content.text)) < 40_000
    assert walk(shop.source, f"{shop.top}/wide/rows", column="id") == list(range(1, 901))


def test_a_long_value_is_cut_and_read_whole_at_its_own_uri(shop: Shop) -> None:
    """Binary data is described by its type and size. A text can be read in windows."""
    text = "".join([f"line {number} é\n" for number in range(1_000)])
    png = b"\x89PNG\r\n\x1a\n" + bytes(5_000)
    blob = "bytea" if shop.source.engine.dialect == "PostgreSQL" else "BLOB"
    data = f"x'{png.hex()}'" if blob == "BLOB" else f"'\\x{png.hex()}'"
    shop.run(f"CREATE TABLE notes (id INTEGER PRIMARY KEY, body TEXT, picture {blob}, none TEXT)")
    shop.run(f"INSERT INTO notes VALUES (1, '{text}', {data}, NULL)")
    row = json.loads(str(shop.source.read(f"{shop.top}/notes/rows").contents[0].text))
    cell = f"{shop.top}/notes/rows/1"
    assert row["picture"] == {"type": "image/png", "bytes": 5_008, "read": f"{cell}/picture"}
    assert row["body"]["text"] == text[:2_000]
    assert row["body"]["read"] == f"{cell}/body"
    assert row["body"].get("characters", len(text)) == len(text)
    assert row["body"].get("bytes", len(text.encode())) == len(text.encode())
    assert shop.source.read(f"{cell}/body").contents[0].text == text
    assert shop.source.read(f"{cell}/body?lines=3-4").contents[0].text == "line 2 é\nline 3 é\n"
    picture = shop.source.read(f"{cell}/picture").contents[0]
    assert (picture.blob, picture.mime_type) == (png, "image/png")
    assert shop.source.read(f"{cell}/none").contents[0].text == "NULL\n"
    assert shop.source.stat(f"{cell}/picture").mime_type == "image/png"
    for missing in ("rows/2/body", "rows/x/body", "rows/1/nothing", "rows/1,2/body"):
        with pytest.raises(ResourceNotFound):
            shop.source.read(f"{shop.top}/notes/{missing}")
