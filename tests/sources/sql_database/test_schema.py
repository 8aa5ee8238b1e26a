"""The whole schema in one read, for a model that is about to write a query."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from wharfinger.errors import ResourceNotFound
from wharfinger.sources.sql_database import Database
from wharfinger.sources.sql_database.sqlite_catalogue import _checks
from wharfinger.sources.sql_database.table_descriptions import SCHEMA_LENGTH

from .conftest import PostgresServer, Shop

POSTGRES = """
CREATE TYPE mood AS ENUM ('good', 'so so');
CREATE DOMAIN pieces AS int CHECK (VALUE > 0);
CREATE TABLE customers (id int PRIMARY KEY, name text NOT NULL, mood mood DEFAULT 'good', moods mood[]);
COMMENT ON TABLE customers IS 'who buys';
COMMENT ON COLUMN customers.name IS 'as on the letter';
CREATE TABLE orders (a int, b int, customer int REFERENCES customers, amount numeric(10, 2) CHECK (amount >= 0),
  n pieces, PRIMARY KEY (a, b), UNIQUE (customer, n));
CREATE TABLE lines (a int, b int, FOREIGN KEY (a, b) REFERENCES orders);
CREATE VIEW names AS SELECT name FROM customers;
INSERT INTO customers SELECT n, 'c' || n FROM generate_series(1, 1234) n;
ANALYZE customers;
"""


def test_a_postgres_schema_has_everything_that_a_query_needs(
    postgres: PostgresServer, publish: Callable[..., Database]
) -> None:
    """It lists columns, types, enumerations, checks, keys, comments, numbers of rows and views."""
    source = publish(postgres.url(postgres.database(POSTGRES), "reader"), label="shop")
    text = str(source.read("postgres://shop").contents[0].text)
    for line in (
        "shop/ holds 4 tables. Dialect: PostgreSQL.",
        "public.customers (table, about 1,234 rows)  -- who buys",
        "  id integer, primary key",
        "  name text, not null  -- as on the letter",
        "  mood mood, one of good, so so, default 'good'::mood",
        "  moods mood[], one of good, so so",
        "  customer integer, -> public.customers (id)",
        "  primary key (a, b)",
        "  foreign key (a, b) -> public.orders (a, b)",
        "  check ((amount >= (0)::numeric))",
        "  check (n: (VALUE > 0))",
        "  unique (customer, n)",
        "public.names (view)",
        "  as SELECT name FROM customers;",
    ):
        assert line in text.splitlines(), line
    schema_text = str(source.read("postgres://shop/public").contents[0].text)
    assert "\ncustomers (table, about 1,234 rows)" in schema_text
    definition = json.loads(str(source.read("postgres://shop/public/customers").contents[0].text))
    assert definition["columns"][2]["values"] == ["good", "so so"]
    with pytest.raises(ResourceNotFound):
        source.read("postgres://shop/nowhere")


def test_an_sqlite_schema_lists_the_checks(tmp_path: Path, publish: Callable[..., Database]) -> None:
    """SQLite has no pragma that lists checks, so the statement of the table is parsed."""
    path = tmp_path / "shop.db"
    writer = sqlite3.connect(path)
    writer.executescript(
        "CREATE TABLE orders (id INTEGER PRIMARY KEY, status TEXT NOT NULL DEFAULT 'new' "
        "CHECK (status IN ('new', 'pa)id')), n INT, -- a check ( of a comment\n"
        " CONSTRAINT positive CHECK(n > 0 AND (n < 9)), UNIQUE (n, status));"
        "INSERT INTO orders VALUES (7, 'new', 1), (9, 'new', 2);"
    )
    writer.close()
    source = publish(f"sqlite:///{path}")
    lines = str(source.read("sqlite://shop").contents[0].text).splitlines()
    assert "orders (table, about 3 rows)" in lines
    assert "  check (status IN ('new', 'pa)id'))" in lines
    assert "  check (n > 0 AND (n < 9))" in lines
    assert "  unique (n, status)" in lines
    assert "  status TEXT, not null, default 'new'" in lines


def test_names_that_are_not_utf8_do_not_hide_other_tables(tmp_path: Path, publish: Callable[..., Database]) -> None:
    """They are left out. A bug: nothing of such a database could be read."""
    path = tmp_path / "shop.db"
    writer = sqlite3.connect(path)
    writer.executescript(
        "CREATE TABLE badtable (a); CREATE TABLE kept (id INTEGER PRIMARY KEY, badcolumn REFERENCES badtable (a));"
        "CREATE INDEX badindex ON kept (id, badcolumn); CREATE VIRTUAL TABLE badsearch USING fts5 (a);"
        "INSERT INTO kept VALUES (1, 2)"
    )
    writer.close()
    path.write_bytes(path.read_bytes().replace(b"bad", b"b\xff\xfe"))
    source = publish(f"sqlite:///{path}")
    assert [item.uri for item in source.page(None, 10)[0]] == ["sqlite://shop", "sqlite://shop/kept"]
    assert source.read("sqlite://shop/kept/rows").contents[0].text == '{"id":1}\n'


def test_the_row_count_is_not_that_of_a_partial_index(tmp_path: Path, publish: Callable[..., Database]) -> None:
    """ANALYZE counts the rows of each index. A bug: the count of the last index was taken."""
    path = tmp_path / "shop.db"
    writer = sqlite3.connect(path)
    writer.executescript(
        "CREATE TABLE t (a INT, b INT); CREATE INDEX part ON t (a) WHERE a = 1; CREATE INDEX whole ON t (b);"
        "INSERT INTO t VALUES (1, 1), (2, 2), (3, 3); ANALYZE;"
    )
    writer.close()
    assert "t (table, about 3 rows)" in str(publish(f"sqlite:///{path}").read("sqlite://shop").contents[0].text)


def test_the_uris_in_a_schema_have_no_double_slash(tmp_path: Path, publish: Callable[..., Database]) -> None:
    """A bug: they had one if the URI of the schema ended with a slash."""
    duckdb = pytest.importorskip("duckdb")
    path = tmp_path / "shop.duckdb"
    with duckdb.connect(str(path)) as writer:
        writer.execute("CREATE TABLE t (id INT)")
    source = publish(f"duckdb:///{path}")
    text = str(source.read("duckdb://shop/main").contents[0].text)
    assert "duckdb://shop/main/<table>/rows" in text
    assert source.read("duckdb://shop/main/").contents[0].text == text


@pytest.mark.parametrize(
    ("statement", "checks"),
    [
        ("CREATE TABLE t (a CHECK (a > 0))", ("a > 0",)),
        ('CREATE TABLE "check (x" (a, "check" (b))', ()),  # a quoted name is not a keyword
        ("CREATE TABLE t (a CHECK /* x ( */ (a = '(') , b)", ("a = '('",)),
        ("CREATE TABLE t (a DEFAULT 'check (b)')", ()),
        ("CREATE TABLE t (a CHECK (", ()),
    ],
)
def test_checks_are_found_in_the_statement_of_a_table(statement: str, checks: tuple[str, ...]) -> None:
    assert _checks(statement) == checks


@pytest.mark.parametrize(
    ("tables", "columns", "message"),
    [
        (20, 10, "t0 (table, about 0 rows)\n  c0 INT"),
        (111, 30, "definitions of views are left out"),
        (150, 30, "Only names of columns are shown"),
        (500, 60, "Columns are left out"),
        (7_000, 1, "Only the names of the first"),
    ],
)
def test_a_large_schema_omits_its_least_important_parts(
    tables: int, columns: int, message: str, tmp_path: Path, publish: Callable[..., Database]
) -> None:
    """It has at most about 10,000 tokens, and reports what is omitted."""
    path = tmp_path / "large.db"
    writer = sqlite3.connect(path)
    names = ", ".join(f"c{number} INT" for number in range(columns))
    statements = [f"CREATE TABLE t{n} ({names}); CREATE INDEX some_index_{n} ON t{n} (c0);" for n in range(tables)]
    writer.executescript(f"BEGIN; {''.join(statements)} COMMIT;")
    writer.close()
    source = publish(f"sqlite:///{path}")
    text = str(source.read("sqlite://large").contents[0].text)
    assert message in text
    assert len(text) < SCHEMA_LENGTH + 1_500


def test_the_version_of_the_database_changes_only_with_its_schema(shop: Shop) -> None:
    """Its version stays the same while only rows are inserted."""
    before = shop.source.version(shop.source.uri)
    assert shop.source.page(None, 1)[0][0].uri == shop.source.uri
    assert "whole schema" in str(shop.source.page(None, 1)[0][0].description)
    shop.run("INSERT INTO orders VALUES (4, 1, 1)")
    assert shop.source.version(shop.source.uri) == before
    assert (shop.source.read(shop.source.uri).contents[0].meta or {})["wharfinger/version"] == before
    shop.run("ALTER TABLE orders ADD COLUMN note TEXT")
    assert shop.source.version(shop.source.uri) != before
    assert "  note " in str(shop.source.read(shop.source.uri).contents[0].text)
