"""A database publishes definitions, directories, completions, documents and a description."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import time
import tracemalloc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from wharfinger.content.mime import DIRECTORY
from wharfinger.errors import InternalError, InvalidArgument, ResourceNotFound
from wharfinger.server.document_search import search_documents
from wharfinger.source import SourceUnavailable, UnusableSource
from wharfinger.sources.sql_database import Database, sql, sql_documents, table_descriptions
from wharfinger.sources.sql_database import source as database_source
from wharfinger.sources.sql_database.database_catalogue import DatabaseTable
from wharfinger.sources.sql_database.sql_uris import SqlUris

from .conftest import SHOP, PostgresServer, Shop


def test_a_definition_has_columns_keys_and_referenced_tables(shop: Shop) -> None:
    """It is JSON with one line for each column, and with the URIs of other tables."""
    text = str(shop.source.read(f"{shop.top}/orders").contents[0].text)
    definition = json.loads(text)
    assert [column["name"] for column in definition["columns"]] == ["id", "customer", "pieces"]
    assert definition["primary_key"] == ["id"]
    assert definition["foreign_keys"] == [
        {"columns": ["customer"], "table": f"{shop.top}/customers", "references": ["id"]}
    ]
    assert definition["rows"] == f"{shop.top}/orders/rows"
    assert '\n    {"name":"pieces","type":"' in text
    view = json.loads(str(shop.source.read(f"{shop.top}/busy").contents[0].text))
    assert "GROUP BY" in view["definition"].upper()


@pytest.mark.parametrize("database", ["sqlite", "duckdb"])
def test_the_uri_of_a_referenced_table_can_be_read_if_its_name_is_written_in_another_case(
    database: str, request: pytest.FixtureRequest
) -> None:
    """A bug: the URI had the name as the foreign key writes it. These databases ignore the case of names."""
    shop: Shop = request.getfixturevalue(f"{database}_shop")
    shop.run(
        "CREATE TABLE Towns (id INTEGER PRIMARY KEY); "
        "CREATE TABLE streets (id INTEGER PRIMARY KEY, town INTEGER REFERENCES tOWNS (id))"
    )
    definition = json.loads(str(shop.source.read(f"{shop.top}/streets").contents[0].text))
    uri = definition["foreign_keys"][0]["table"]
    assert uri == f"{shop.top}/Towns"
    assert shop.source.read(uri).contents[0].text


def test_tables_and_views_are_listed_and_rows_are_not(shop: Shop) -> None:
    """They follow the database itself, in pages of any size."""
    expected = [shop.source.uri, *(f"{shop.top}/{name}" for name in ("busy", "customers", "orders"))]
    listed, key = shop.source.page(None, 100)
    assert [item.uri for item in listed] == expected
    assert key is None
    found: list[str] = []
    while True:
        listed, key = shop.source.page(key, 1)
        found += [item.uri for item in listed]
        if key is None:
            break
    assert found == expected


def test_only_the_tables_of_a_page_are_described(sqlite_shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages of a database with thousands of tables took time for all of them, and so did each change of its list."""
    described: list[str] = []

    def definition_text(table: DatabaseTable, uris: SqlUris) -> str:
        described.append(table.name)
        return table_descriptions.definition_text(table, uris)

    monkeypatch.setattr(database_source, "definition_text", definition_text)
    _, key = sqlite_shop.source.page(None, 2)
    assert described == ["busy"]
    sqlite_shop.source.page(key, 1)
    sqlite_shop.source.children(sqlite_shop.source.uri, limit=1)
    sqlite_shop.source._version_of(None)
    assert described == ["busy", "customers", "busy"]


def test_rows_are_read_one_by_one_and_in_linked_windows(shop: Shop) -> None:
    """A window is lines of JSON, and a row is one line."""
    first = shop.source.read(f"{shop.top}/orders/rows?limit=2")
    assert first.contents[0].mime_type == "application/x-ndjson"
    assert first.contents[0].text == '{"id":1,"customer":1,"pieces":2}\n{"id":2,"customer":1,"pieces":1}\n'
    assert (first.contents[0].meta or {})["wharfinger/next"] == f"{shop.top}/orders/rows?after=2&limit=2"
    assert shop.source.read(f"{shop.top}/orders/rows/3").contents[0].text == '{"id":3,"customer":3,"pieces":7}\n'
    for missing in (
        "orders/rows/4",
        "orders/rows/x",
        "orders/rows/1,2",
        "busy/rows/1",
        "none/rows",
        "orders/x",
        "orders/rows/1/2",
    ):
        with pytest.raises(ResourceNotFound):
            shop.source.read(f"{shop.top}/{missing}")
    with pytest.raises(InvalidArgument):
        shop.source.read(f"{shop.top}/orders?limit=2")


def test_every_table_is_in_the_tree_of_directories(shop: Shop) -> None:
    """The root contains schemas or tables, and schemas contain tables."""
    found: list[str] = []
    remaining = [shop.source.uri]
    while remaining:
        children, _ = shop.source.children(remaining.pop())
        found += [child.uri for child in children if child.mime_type != DIRECTORY]
        remaining += [child.uri for child in children if child.mime_type == DIRECTORY]
    assert sorted(found) == [item.uri for item in shop.source.page(None, 100)[0][1:]]


def test_schemas_tables_and_keys_are_completed(shop: Shop) -> None:
    """Names that begin with the typed text come first."""
    complete = shop.source.complete
    schema = {"schema": "main" if shop.source.engine.dialect == "DuckDB" else "public"}
    assert complete("", "table", "", schema) == ["busy", "customers", "orders"]
    assert complete("", "table", "s", schema) == ["busy", "customers", "orders"]
    assert complete("", "table", "ORD", schema) == ["orders"]
    assert complete("", "key", "", {**schema, "table": "orders"}) == ["1", "2", "3"]
    assert complete("", "after", "2", {**schema, "table": "orders"}) == ["2"]
    assert complete("", "key", "", {**schema, "table": "busy"}) == []
    assert complete("", "limit", "1", {}) == ["100", "1000", "10000"]
    if shop.source.engine.dialect == "PostgreSQL":
        assert complete("", "schema", "p", {}) == ["public"]


def test_texts_in_rows_are_found_with_a_link_to_their_window(shop: Shop) -> None:
    """A row matches if it has all words, in any case. Names of columns are searched as well."""
    assert [hit.uri for hit in search_documents(shop.source, "goole CY", 10)] == [
        f"{shop.top}/customers/rows?limit=100"
    ]
    assert f"{shop.top}/orders" in [hit.uri for hit in search_documents(shop.source, "pieces", 10)]
    assert search_documents(shop.source, "nowhere", 10) == []


def test_documents_are_definitions_and_a_limited_number_of_windows(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages of any size have the same documents, with the versions of their windows."""
    shop.run("CREATE TABLE many (id INTEGER PRIMARY KEY, n INTEGER)")
    numbers = "WITH RECURSIVE q (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM q WHERE n < 3000)"
    shop.run(f"INSERT INTO many {numbers} SELECT n, n FROM q")
    monkeypatch.setattr(sql_documents, "MAX_ROWS", 400)

    def pages(size: int) -> list[str]:
        found: list[str] = []
        documents, key = shop.source.documents(None, size)
        while True:
            found += [f"{document.uri} {document.version}" for document in documents]
            if key is None:
                return found
            documents, key = shop.source.documents(key, size)

    whole = pages(1_000)
    assert pages(1) == pages(3) == whole
    many = [entry.split()[0] for entry in whole if "/many/rows" in entry]
    assert len(many) == 4
    text = "".join([piece for uri in many for piece in shop.source.text(uri)])
    assert text.count("\n") == 400
    assert {shop.source.version(uri) for uri in many} == {entry.split()[1] for entry in whole if "/many/rows" in entry}


def test_only_the_first_rows_of_a_table_without_a_key_become_a_document(
    tmp_path: Path, publish: Callable[..., Database]
) -> None:
    """A bug: the same window was a document a thousand times. By position, later windows would take ever longer."""
    path = tmp_path / "notes.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE notes (rowid TEXT, _rowid_ TEXT, oid TEXT)")
        connection.executemany("INSERT INTO notes VALUES (?, '', '')", [(f"n{number}",) for number in range(250)])
        connection.commit()
    source = publish(f"sqlite:///{path}")
    documents, key = source.documents(None, 1_000)
    assert [document.uri for document in documents] == ["sqlite://notes/notes", "sqlite://notes/notes/rows?limit=100"]
    assert key is None
    assert source.documents(source.documents(None, 1)[1], 1_000)[0] == documents[1:]


def test_describe_counts_tables_and_names_the_access(shop: Shop) -> None:
    """`wharfinger serve` prints it at its start."""
    facts = shop.source.describe()
    assert facts.startswith("3 tables, ")
    assert any(
        words in facts
        for words in ("opened read-only", "role reader, read-only, watched", "reader@%, read-only, watched")
    )


def test_describe_warns_of_a_role_that_may_write(postgres: PostgresServer, publish: Callable[..., Database]) -> None:
    """The transaction is read-only in any case."""
    assert "a superuser: use a role that can only read" in publish(postgres.url()).describe()


def test_a_role_sees_only_what_it_may_read(postgres: PostgresServer, publish: Callable[..., Database]) -> None:
    """Forbidden tables and columns look like missing ones."""
    name = postgres.database(SHOP)
    if not postgres.run("SELECT 1 FROM pg_roles WHERE rolname = 'guest'"):
        postgres.run("CREATE ROLE guest LOGIN")
    postgres.run("GRANT SELECT (id, name) ON customers TO guest", name)
    source = publish(postgres.url(name, "guest"), label="shop")
    assert [item.uri for item in source.page(None, 10)[0]] == ["postgres://shop", "postgres://shop/public/customers"]
    assert source.read("postgres://shop/public/customers/rows?limit=1").contents[0].text == '{"id":1,"name":"Ada"}\n'
    with pytest.raises(ResourceNotFound):
        source.read("postgres://shop/public/orders/rows")


def test_only_the_configured_schemas_are_published(postgres: PostgresServer, publish: Callable[..., Database]) -> None:
    """`schemas=` selects them. Partitions are not listed beside their table."""
    name = postgres.database(
        "CREATE SCHEMA one; CREATE SCHEMA two; CREATE TABLE two.a (id int PRIMARY KEY);"
        "CREATE TABLE one.t (id int PRIMARY KEY) PARTITION BY RANGE (id);"
        "CREATE TABLE one.low PARTITION OF one.t FOR VALUES FROM (0) TO (5);"
        "CREATE TABLE one.high PARTITION OF one.t FOR VALUES FROM (5) TO (10); INSERT INTO one.t VALUES (7), (1);"
    )
    source = publish(postgres.url(name, "reader"), label="shop", schemas=["one"])
    assert [item.uri for item in source.page(None, 10)[0]] == ["postgres://shop", "postgres://shop/one/t"]
    assert source.read("postgres://shop/one/t/rows").contents[0].text == '{"id":1}\n{"id":7}\n'


UNUSUAL_NAMES = [
    "a b",
    'quo"te',
    "per%cent",
    "sla/sh",
    ".",
    "..",
    "é😀",
    "q?u#e=r&y",
    "semi;colon",
    "rows",
    "Order",
    "a'b",
    "[x]",
]


def test_unusual_names_of_tables_and_columns_have_uris(tmp_path: Path, publish: Callable[..., Database]) -> None:
    path = tmp_path / "odd name.db"
    writer = sqlite3.connect(path)
    for name in UNUSUAL_NAMES:
        quoted = name.replace('"', '""')
        writer.execute(f'CREATE TABLE "{quoted}" ("{quoted}" INTEGER PRIMARY KEY)')
        writer.execute(f'INSERT INTO "{quoted}" VALUES (5)')
    writer.commit()
    writer.close()
    source = publish(f"sqlite:///{path}")
    assert source.uri == "sqlite://odd%20name"
    listed = source.page(None, 100)[0][1:]
    assert sorted(str(item.title) for item in listed) == sorted(UNUSUAL_NAMES)
    for item in listed:
        assert json.loads(str(source.read(f"{item.uri}/rows/5").contents[0].text)) == {item.title: 5}
        assert source.stat(item.uri).title == item.title


def test_values_of_every_kind_are_valid_json(tmp_path: Path, publish: Callable[..., Database]) -> None:
    """The row has infinity, bytes, invalid UTF-8, a large integer, a generated column and an empty column name."""
    path = tmp_path / "values.db"
    writer = sqlite3.connect(path)
    writer.execute('CREATE TABLE t (id INTEGER PRIMARY KEY, a, b, c, d, e AS (id * 2), "" TEXT)')
    writer.execute("INSERT INTO t (a, b, c, d) VALUES (9e999, x'00ff', CAST(x'61ff62' AS TEXT), 9223372036854775807)")
    writer.commit()
    writer.close()
    source = publish(f"sqlite:///{path}")
    line = str(source.read(f"{source.uri}/t/rows").contents[0].text)
    assert json.loads(line, parse_constant=pytest.fail) == {
        "id": 1, "a": "Infinity", "b": {"hex": "00ff", "bytes": 2}, "c": "a�b",
        "d": "9223372036854775807", "e": 2, "": None,
    }  # fmt: skip


@pytest.mark.parametrize("encoding", ["UTF8", "LATIN1"])
def test_the_size_of_a_text_is_that_of_its_utf_8(
    encoding: str, postgres: PostgresServer, publish: Callable[..., Database]
) -> None:
    """Bug: it was that in the encoding of the database, so a part of a text could look like the whole."""
    name = f"size_{encoding.lower()}"
    postgres.run(f"CREATE DATABASE {name} ENCODING '{encoding}' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'")
    characters = 12 << 20
    postgres.run(f"CREATE TABLE t AS SELECT 1 AS id, repeat('é', {characters}) AS body", name)
    postgres.run("ALTER TABLE t ADD PRIMARY KEY (id)", name)
    source = publish(postgres.url(name, "reader"), label="t")
    row = json.loads(str(source.read("postgres://t/public/t/rows").contents[0].text))
    assert row["body"]["bytes"] == 2 * characters
    contents = source.read("postgres://t/public/t/rows/1/body").contents
    assert "first 16,777,216 bytes of 25,165,824" in str(contents[-1].text)
    answer = source.query("SELECT body FROM t")
    assert answer.rows[0][0] == {"text": "é" * 2_000, "cut": True, "bytes": 2 * characters}


def test_postgres_values_are_valid_json(postgres: PostgresServer, publish: Callable[..., Database]) -> None:
    """Numbers that would lose digits in a JSON client are strings."""
    name = postgres.database(
        "CREATE TYPE mood AS ENUM ('good'); CREATE TABLE t (id int PRIMARY KEY, f float8, n numeric, d date, "
        "s timestamptz, b bytea, j jsonb, k json, a int[], m mood, big bigint, r int4range, z text[]);"
        "INSERT INTO t VALUES (1, 'nan', 12345678901234567890.5, '2026-02-03', '2026-02-03 04:05:06+02', '\\x00ff',"
        """'{"x": 1e400, "y": [1, 2.5]}', E'{"a":\n 1}', '{1,NULL}', 'good', 9007199254740993, '[1,3)', '{"a,b"}')"""
    )
    source = publish(postgres.url(name, "reader"), label="t")
    line = str(source.read("postgres://t/public/t/rows").contents[0].text)
    assert line.count("\n") == 1
    row = json.loads(line, parse_constant=pytest.fail)
    assert row.pop("j")["y"] == [1, 2.5]
    assert row == {
        "id": 1, "f": "NaN", "n": "12345678901234567890.5", "d": "2026-02-03", "s": "2026-02-03 02:05:06+00",
        "b": {"hex": "00ff", "bytes": 2}, "k": {"a": 1}, "a": [1, None], "m": "good", "big": "9007199254740993",
        "r": "[1,3)", "z": ["a,b"],
    }  # fmt: skip


def test_a_view_with_columns_of_types_that_have_no_order_is_read(
    postgres: PostgresServer, publish: Callable[..., Database]
) -> None:
    """A bug: arrays and some types had no operator to order them by. The types are those of this server."""
    found = postgres.run(
        "SELECT format_type(oid, -1) AS name, typarray FROM pg_type WHERE typtype = 'b' AND typcategory <> 'A' "
        "AND typnamespace = 'pg_catalog'::regnamespace AND typname NOT LIKE 'pg_brin_%' ORDER BY 1"
    )
    types = [str(row["name"]) for row in found] + [f"{row['name']}[]" for row in found if row["typarray"]]
    assert {"json", "json[]", "point[]", "jsonpath", "aclitem"} <= {*types}
    columns = ", ".join([f"NULL::{name} AS c{number}" for number, name in enumerate(types)])
    name = postgres.database(
        f"CREATE VIEW nulls AS SELECT {columns};"
        """CREATE VIEW v AS SELECT n, ARRAY['{"a": 1}'::json] AS j, ARRAY[point(n, 2)] AS p, '$.a'::jsonpath AS path,"""
        " 'reader=r/postgres'::aclitem AS acl FROM generate_series(1, 2) AS n"
    )
    source = publish(postgres.url(name, "reader"), label="t")
    (nulls,) = str(source.read("postgres://t/public/nulls/rows").contents[0].text).splitlines()
    assert list(json.loads(nulls).values()) == [None] * len(types)
    rows = [json.loads(line) for line in str(source.read("postgres://t/public/v/rows").contents[0].text).splitlines()]
    assert rows == [
        {"n": n, "j": [{"a": 1}], "p": [f"({n},2)"], "path": '$."a"', "acl": "reader=r/postgres"} for n in (1, 2)
    ]


def test_a_view_with_columns_of_types_made_of_others_without_an_order_is_read(
    postgres: PostgresServer, publish: Callable[..., Database]
) -> None:
    """A domain, a composite type, an array of one, and a domain over it. Others keep their own order."""
    name = postgres.database(
        "CREATE DOMAIN doc AS json; CREATE TYPE pair AS (n int, d doc); CREATE DOMAIN pairs AS pair[];"
        "CREATE DOMAIN amount AS int; CREATE TYPE plain AS (n int, a amount[]);"
        """CREATE VIEW v AS SELECT (12 - n)::amount AS amount, ROW(n, ARRAY[n])::plain AS plain, '{}'::doc AS doc,"""
        " ROW(n, '1')::pair AS pair, ARRAY[ROW(n, '[2]')]::pair[]::pairs AS pairs FROM generate_series(1, 10) AS n"
    )
    source = publish(postgres.url(name, "reader"), label="t")
    rows = [json.loads(line) for line in str(source.read("postgres://t/public/v/rows").contents[0].text).splitlines()]
    assert [row["amount"] for row in rows] == [str(n) for n in range(2, 12)]
    assert [row["plain"] for row in rows] == ["(10,{10})", *[f"({n},{{{n}}})" for n in range(9, 0, -1)]]


def test_postgres_json_with_half_of_a_surrogate_pair_is_read(
    postgres: PostgresServer, publish: Callable[..., Database]
) -> None:
    """A bug: the whole table could not be read."""
    name = postgres.database(
        "CREATE TABLE t (id int PRIMARY KEY, k json);"
        r"""INSERT INTO t VALUES (1, '{"a": "\ud83d"}'), (2, '{"a": "\ud83d\ude00"}')"""
    )
    source = publish(postgres.url(name, "reader"), label="t")
    lines = str(source.read("postgres://t/public/t/rows").contents[0].text).splitlines()
    assert [json.loads(line)["k"]["a"] for line in lines] == ["\ufffd", "\U0001f600"]


def test_documents_with_long_keys_in_any_language_are_listed(tmp_path: Path, publish: Callable[..., Database]) -> None:
    """A bug: the key of a page was refused if the key of a row was long when it was escaped."""
    path = tmp_path / "t.db"
    writer = sqlite3.connect(path)
    writer.execute("CREATE TABLE t (id TEXT NOT NULL PRIMARY KEY)")
    writer.executemany("INSERT INTO t VALUES (?)", [(f"{number:03}" + "\u7801" * 3_000,) for number in range(150)])
    writer.commit()
    writer.close()
    source = publish(f"sqlite:///{path}")
    page, key = source.documents(None, 2)
    assert [document.title for document in page] == ["t", "Rows of t"]
    assert [document.title for document in source.documents(key, 2)[0]] == ["Rows of t"]


def test_a_real_of_postgres_has_the_digits_that_postgres_writes(
    postgres: PostgresServer, publish: Callable[..., Database]
) -> None:
    """A bug: 0.1 became 0.10000000149011612."""
    name = postgres.database(
        "CREATE TABLE t (id int PRIMARY KEY, r real); INSERT INTO t VALUES (1, 0.1), (2, NULL), (3, 'NaN')"
    )
    source = publish(postgres.url(name, "reader"), label="t")
    lines = str(source.read("postgres://t/public/t/rows").contents[0].text).splitlines()
    assert lines == ['{"id":1,"r":0.1}', '{"id":2,"r":null}', '{"id":3,"r":"NaN"}']
    assert source.query("SELECT r FROM t WHERE id = 1").rows == [[0.1]]


def test_the_cell_of_a_postgres_array_is_the_json_of_which_a_window_has_the_beginning(
    postgres: PostgresServer, publish: Callable[..., Database]
) -> None:
    """A bug: it was {1,2}, the text of PostgreSQL."""
    name = postgres.database(
        "CREATE TABLE t (id int PRIMARY KEY, a int[]); INSERT INTO t SELECT 1, array(SELECT generate_series(1, 2000))"
    )
    source = publish(postgres.url(name, "reader"), label="t")
    cut = json.loads(str(source.read("postgres://t/public/t/rows").contents[0].text))["a"]
    assert cut["text"].startswith("[1,2,3,")
    text = "".join(str(content.text) for content in source.read(cut["read"]).contents if content.uri == cut["read"])
    assert text == json.dumps(list(range(1, 2_001)), separators=(",", ":"))
    assert cut["bytes"] == len(text)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("sqlite:///nowhere.db", "There is no SQLite file"),
        ("sqlite://", "Give the path"),
        ("sqlite://[shop.db", "Give the path"),
        ("sqlite:///:memory:", "Give the path"),
        ("sqlite:///shop.db?mode=rwc", "takes no options"),
        ("shop.db", "not the URL of a database"),
        ("oracle://user:hush-hush@host/db", "read_only_by_role=True"),
        ("mysql://user:hush-hush@host", "Name a database after the host"),
        ("mysql+mysqldb://user:hush-hush@host/db", "read with PyMySQL"),
        ("mysql://user:hush-hush@host/db?ssl_mode=sometimes", "DISABLED, PREFERRED, REQUIRED, VERIFY_CA"),
        ("mysql://user:hush-hush@host/db?local_infile=1", "local_infile= is not an option"),
        ("mysql://user:hush-hush@host:port/db", "write mysql://user@host:3306/database"),
        ("postgresql://user:hush-hush@host:port/db", "Give a URL such as postgresql:"),
    ],
)
def test_an_unusable_url_is_reported_without_the_password(url: str, message: str) -> None:
    """It is reported when the source is created, not when it is first read."""
    with pytest.raises(UnusableSource, match=message) as error:
        sql(url)
    assert "hush" not in str(error.value)


@pytest.mark.parametrize(
    ("url", "location"),
    [
        ("postgresql://bob@h:5432", "postgresql://h/bob"),
        ("postgresql://h?dbname=sales", "postgresql://h/sales"),
        ("postgresql://h?database=sales", "postgresql://h/sales"),
        ("postgresql://h?dbname=sales&port=6000", "postgresql://h/sales"),
        ("postgresql:///sales?host=db1&port=5433", "postgresql://db1:5433/sales"),
        ("postgresql://?host=db1&port=5432&dbname=sales&user=bob", "postgresql://db1/sales"),
        ("postgresql://?host=db1&user=bob", "postgresql://db1/bob"),
        ("postgresql://%2Fvar%2Frun/db", "postgresql://localhost/db"),
        ("postgresql://[::1]:77/db?host=other", "postgresql://[::1]:77/db"),
    ],
)
def test_the_uris_of_postgres_name_the_host_and_database_that_are_read(url: str, location: str) -> None:
    """A bug: options of the URL were not seen, so two databases of one host got the same URIs."""
    pytest.importorskip("asyncpg")
    source = sql(url)
    assert source.location == location
    assert source.uri == location.replace("postgresql:", "postgres:")


@pytest.mark.parametrize("bound", ["seconds", "cell", "size", "connections"])
def test_a_bound_that_is_not_positive_is_refused(bound: str, tmp_path: Path) -> None:
    """A bug: without connections, a read of a DuckDB file waited for ever."""
    for value in (0, -1, float("nan")):
        with pytest.raises(UnusableSource, match=rf"sql\({bound}={value}\): write more than 0"):
            sql(f"sqlite:///{tmp_path}/shop.db", **{bound: value})  # type: ignore[arg-type]


def test_a_file_that_is_not_a_database_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "text.db"
    path.write_text("This is no database, but long enough to be looked at as one. " * 20)
    with pytest.raises(UnusableSource, match="cannot be read as an SQLite file"):
        sql(f"sqlite:///{path}")


def test_another_database_is_read_by_sqlalchemy_with_read_only_by_role(tmp_path: Path) -> None:
    """The dialect of SQLite stands for another database. Tables and rows are read, and query() is refused."""
    from wharfinger.sources.sql_database.database_engine import QueryRefused

    path = tmp_path / "shop.db"
    writer = sqlite3.connect(path)
    writer.executescript(SHOP + "CREATE TABLE pairs (a TEXT, b INT, PRIMARY KEY (a, b)); ")
    writer.executemany("INSERT INTO pairs VALUES (?, ?)", [(f"k{n % 3}", n) for n in range(50)])
    writer.commit()
    writer.close()
    source = sql(f"sqlite+pysqlite:///{path}", label="shop", read_only_by_role=True)
    top = f"{source.uri}/main"
    assert source.uri == "sqlite://shop"
    assert [item.uri for item in source.page(None, 10)[0]] == [
        source.uri,
        *(f"{top}/{name}" for name in ("busy", "customers", "orders", "pairs")),
    ]
    assert source.read(f"{top}/orders/rows/3").contents[0].text == '{"id":3,"customer":3,"pieces":7}\n'
    found: list[str] = []
    following: object = f"{top}/pairs/rows?limit=7"
    while following:
        content = source.read(str(following)).contents[0]
        found += str(content.text).splitlines()
        following = (content.meta or {}).get("wharfinger/next")
    assert len(found) == len(set(found)) == 50
    with pytest.raises(QueryRefused):
        source.query("SELECT 1")
    with pytest.raises(ResourceNotFound):
        source.read(f"{top}/orders/rows/x")
    source.engine.close()


def test_a_window_of_another_database_is_not_read_beyond_its_bounds(
    tmp_path: Path, publish: Callable[..., Database]
) -> None:
    """A bug: all its rows were read before they were cut."""
    path = tmp_path / "shop.db"
    writer = sqlite3.connect(path)
    writer.executescript(
        "CREATE TABLE t (id INTEGER PRIMARY KEY, x TEXT);"
        "INSERT INTO t WITH n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000) "
        "SELECT i, printf('%.100000c', 'x') FROM n;"
    )
    writer.close()
    source = publish(f"sqlite+pysqlite:///{path}", label="shop", read_only_by_role=True)
    source.read(f"{source.uri}/main/t/rows?limit=1")
    tracemalloc.start()
    try:
        content = source.read(f"{source.uri}/main/t/rows?limit=1000").contents[0]
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert str(content.text).count("\n") == 1_000
    assert peak < 20_000_000


def test_an_error_of_a_statement_is_not_that_of_a_key_or_of_the_connection(
    tmp_path: Path, publish: Callable[..., Database]
) -> None:
    """A bug: a view that failed, or a filter, was reported as a key that is not one."""
    path = tmp_path / "shop.db"
    writer = sqlite3.connect(path)
    writer.executescript("CREATE VIEW big AS SELECT 1 AS n, length(zeroblob(2000000000)) AS z")
    writer.close()
    source = publish(f"sqlite+pysqlite:///{path}", label="shop", read_only_by_role=True)
    with pytest.raises(InternalError, match="sqlite cannot read big: string or blob too big") as error:
        source.read(f"{source.uri}/main/big/rows")
    assert not isinstance(error.value, SourceUnavailable)
    with pytest.raises(InvalidArgument, match="big cannot be read in this way: string or blob too big"):
        source.read(f"{source.uri}/main/big/rows?z=is.notnull")


def test_tables_are_read_by_position_if_a_dialect_does_not_report_keys(
    tmp_path: Path, publish: Callable[..., Database]
) -> None:
    """A bug: nothing of such a database could be read."""
    from sqlalchemy.dialects import registry, sqlite

    class KeylessDialect(sqlite.dialect):
        supports_statement_cache = True

        def get_pk_constraint(self, *_: object, **__: object) -> None:
            raise NotImplementedError

    registry.impls["sqlite.keyless"] = lambda: KeylessDialect
    path = tmp_path / "shop.db"
    writer = sqlite3.connect(path)
    writer.executescript(SHOP)
    writer.close()
    source = publish(f"sqlite+keyless:///{path}", label="shop", read_only_by_role=True)
    content = source.read(f"{source.uri}/main/customers/rows?rows=2-3").contents[0]
    assert content.text == '{"id":2,"name":"Bo","town":null}\n{"id":3,"name":"Cy","town":"Goole"}\n'


def test_a_statement_of_another_database_that_runs_too_long_is_stopped(
    tmp_path: Path, publish: Callable[..., Database]
) -> None:
    """The driver has a function for it. The connection is used again."""
    path = tmp_path / "shop.db"
    writer = sqlite3.connect(path)
    counting = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000000000) SELECT"
    writer.executescript(f"{SHOP} CREATE VIEW slow AS {counting} max(i) AS last FROM n;")
    writer.close()
    source = publish(f"sqlite+pysqlite:///{path}", label="shop", read_only_by_role=True, seconds=0.5, connections=1)
    with pytest.raises(InternalError, match=r"took longer than 0\.5 s"):
        source.read(f"{source.uri}/main/slow/rows")
    assert "Ada" in str(source.read(f"{source.uri}/main/customers/rows").contents[0].text)


def test_many_threads_read_at_once(shop: Shop) -> None:
    """There are more threads than connections to the database."""
    uris = [f"{shop.top}/{rest}" for rest in ("orders", "orders/rows", "orders/rows/2", "customers/rows?limit=2")] * 50
    expected = {uri: shop.source.read(uri).contents[0].text for uri in uris}
    with ThreadPoolExecutor(16) as threads:
        found = list(threads.map(lambda uri: shop.source.read(uri).contents[0].text, uris))
    assert found == [expected[uri] for uri in uris]


def test_a_locked_file_is_reported_and_read_again_later(sqlite_shop: Shop, tmp_path: Path) -> None:
    """The connection works after the lock is released."""
    writer = sqlite3.connect(tmp_path / "shop.db", isolation_level=None)
    writer.execute("BEGIN EXCLUSIVE")
    for uri in ("orders/rows", "orders", "orders/rows/1"):
        with pytest.raises(InternalError, match="locked"):
            sqlite_shop.source.read(f"{sqlite_shop.top}/{uri}")
    writer.execute("COMMIT")
    writer.close()
    assert sqlite_shop.source.read(f"{sqlite_shop.top}/orders/rows/1").contents[0].text


@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="needs a process that can be stopped")
def test_a_read_from_a_suspended_postgres_server_times_out(
    postgres: PostgresServer, publish: Callable[..., Database]
) -> None:
    """BEGIN and ROLLBACK time out as well. Reads succeed again after the server continues."""
    source = publish(postgres.url(postgres.database(SHOP), role="reader"), seconds=2)
    uri = f"{source.uri}/public/customers/rows"
    source.read(uri)
    backends = "SELECT pid FROM pg_stat_activity WHERE application_name = 'wharfinger' AND usename = 'reader'"
    pids = [record[0] for record in postgres.run(backends)]
    began = time.monotonic()
    try:
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        with pytest.raises(InternalError):
            source.read(uri)
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
    assert time.monotonic() - began < 40
    assert "Ada" in str(source.read(uri).contents[0].text)


def test_reading_a_view_that_writes_fails_with_the_reason(
    postgres: PostgresServer, publish: Callable[..., Database]
) -> None:
    """A view has the rights of its owner, but the transaction is read-only."""
    name = postgres.database(
        "CREATE TABLE log (n int); CREATE FUNCTION note() RETURNS int LANGUAGE sql SECURITY DEFINER "
        "AS 'INSERT INTO log VALUES (1) RETURNING n'; CREATE VIEW noting AS SELECT note() AS n"
    )
    source = publish(postgres.url(name, role="reader"))
    with pytest.raises(InternalError, match="PostgreSQL cannot read noting: cannot execute INSERT in a read-only"):
        source.read(f"{source.uri}/public/noting/rows")
    assert postgres.run("SELECT count(*) FROM log", name)[0][0] == 0
