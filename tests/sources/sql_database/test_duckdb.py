"""DuckDB files: exact values, hostile files, and writers in other processes."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from wharfinger import Client
from wharfinger.errors import InternalError, InvalidArgument
from wharfinger.source import UnusableSource
from wharfinger.sources.sql_database import Database, sql
from wharfinger.sources.sql_database.database_engine import DatabaseUnreachable, QueryRefused
from wharfinger.sources.windows.window import NEXT, PREVIOUS

from .conftest import SHOP, walk, write_duckdb

READER = """
import duckdb, json, sys
with duckdb.connect(sys.argv[1], read_only=True) as reader:
    print(json.dumps(reader.execute(sys.stdin.read()).fetchall(), default=str))
"""
WRITER = """
import duckdb, sys
writer = duckdb.connect(sys.argv[1])
print("open", flush=True)
for line in sys.stdin:
    writer.execute(line)
    print("done", flush=True)
"""
Publish = Callable[..., Database]


def read_duckdb(path: Path, statement: str) -> list[list[Any]]:
    """Run a statement in another process, and return its rows."""
    process = subprocess.run(
        [sys.executable, "-c", READER, str(path)],
        input=statement,
        text=True,
        check=True,
        capture_output=True,
        timeout=60,
    )
    rows: list[list[Any]] = json.loads(process.stdout)
    return rows


@contextmanager
def open_for_writing(path: Path) -> Iterator[Callable[[str], None]]:
    """Open the file for writing in another process. Yield a function that runs a statement there."""
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    stdin, stdout = process.stdin, process.stdout
    assert stdout.readline() == "open\n"

    def run(statement: str) -> None:
        stdin.write(statement + "\n")
        stdin.flush()
        assert stdout.readline() == "done\n"

    try:
        yield run
    finally:
        process.kill()
        process.communicate()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "shop.duckdb"


def wait_until_closed(path: Path) -> None:
    """Wait until another process can write. The source keeps the file open for a moment after a request."""
    write_duckdb(path, "SELECT 1")


VALUES_BY_TYPE = {
    "yes": ("BOOLEAN", ["true"]), "tiny": ("UTINYINT", ["255"]), "big": ("BIGINT", ["-9223372036854775808"]),
    "huge": ("HUGEINT", ["170141183460469231731687303715884105727"]), "uhuge": ("UHUGEINT", ["9007199254740993"]),
    "decimal": ("DECIMAL(38, 20)", ["0.00000000000000000001", "-123456789012345678.5"]),
    "single": ("FLOAT", ["0.1", "'inf'", "'nan'", "16777216"]), "twice": ("DOUBLE", ["0.1", "1e-308", "'-inf'"]),
    "day": ("DATE", ["'0044-03-15 (BC)'", "'infinity'", "'9999-12-31'"]), "time": ("TIME", ["'23:59:59.999999'"]),
    "at": ("TIMESTAMP", ["'2026-02-03 04:05:06.000007'"]), "zone": ("TIMESTAMPTZ", ["'2026-02-03 04:05:06+02'"]),
    "nano": ("TIMESTAMP_NS", ["'2026-02-03 04:05:06.123456789'"]), "span": ("INTERVAL", ["'1 month 2 days'"]),
    "body": ("VARCHAR", ["'😀 é''\"%s\n'", "''"]), "uuid": ("UUID", ["'123e4567-e89b-12d3-a456-426655440000'"]),
    "mood": ("ENUM('b', 'a', 'it''s')", ["'a'", "'it''s'"]), "bits": ("BIT", ["'0101'"]),
}  # fmt: skip


@pytest.mark.parametrize("column", VALUES_BY_TYPE)
def test_values_of_every_type_equal_the_text_of_duckdb(column: str, path: Path, publish: Publish) -> None:
    """The values are read in rows and in cells, and conditions find them."""
    kind, values = VALUES_BY_TYPE[column]
    rows = ", ".join([f"({number}, {value})" for number, value in enumerate([*values, "NULL"])])
    write_duckdb(path, f"CREATE TABLE t (id INT PRIMARY KEY, v {kind}); INSERT INTO t VALUES {rows}")
    expected = read_duckdb(path, "SET TimeZone = 'UTC'; SELECT v::VARCHAR FROM t ORDER BY id")
    source = publish(f"duckdb:///{path}")
    uri = f"{source.uri}/main/t/rows"
    for number, (text,) in enumerate(expected):
        value = json.loads(str(source.read(f"{uri}/{number}").contents[0].text), parse_constant=pytest.fail)["v"]
        if text is None:
            assert value is None
            continue
        if isinstance(value, bool):
            assert text == str(value).lower()
        elif isinstance(value, (int, float)):
            assert (value, isinstance(value, int)) == (
                (int if kind.endswith("INT") else float)(text),
                kind.endswith("INT"),
            )
        else:
            assert value == {"inf": "Infinity", "-inf": "-Infinity", "nan": "NaN"}.get(text, text)
        assert source.read(f"{uri}/{number}/v").contents[0].text == text
        found = source.read(f"{uri}?v=eq.{quote(text, safe='')}").contents[0]
        assert number in [json.loads(line)["id"] for line in str(found.text).splitlines()]


def test_a_list_of_an_enum_is_not_an_enum(path: Path, publish: Publish) -> None:
    write_duckdb(path, "CREATE TABLE t (id INT PRIMARY KEY, one ENUM('a', 'b'), many ENUM('a', 'b')[])")
    source = publish(f"duckdb:///{path}")
    text = str(source.read(f"{source.uri}/main/t").contents[0].text)
    assert "ENUM('a', 'b')[]" in text


def test_the_columns_of_an_index_are_listed_one_by_one(tmp_path: Path, publish: Publish) -> None:
    """A bug: they were one text."""
    write_duckdb(
        tmp_path / "shop.duckdb",
        'CREATE TABLE t (a INT, "b ""c, d" INT); CREATE INDEX plain ON t (a, "b ""c, d");'
        "CREATE UNIQUE INDEX sums ON t ((concat(a, ', ')), a);",
    )
    source = publish(f"duckdb:///{tmp_path}/shop.duckdb")
    definition = json.loads(str(source.read("duckdb://shop/main/t").contents[0].text))
    assert definition["indexes"] == [
        {"name": "plain", "columns": ["a", 'b "c, d'], "unique": False},
        {"name": "sums", "columns": ["(concat(a, ', '))", "a"], "unique": True},
    ]


def test_nested_values_are_json_and_bytes_are_described(path: Path, publish: Publish) -> None:
    write_duckdb(
        path,
        "CREATE TABLE t (id INT PRIMARY KEY, l INT[], s STRUCT(a INT, b VARCHAR), m MAP(VARCHAR, INT), j JSON, "
        "b BLOB, deep STRUCT(x DOUBLE[])[]); INSERT INTO t VALUES (1, [1, NULL], {'a': 1, 'b': 'x'}, MAP {'k': 2}, "
        """'{"y": [9007199254740993, 1e400]}', '\\x00\\xFF', [{'x': [0.5]}])""",
    )
    source = publish(f"duckdb:///{path}")
    row = json.loads(str(source.read(f"{source.uri}/main/t/rows").contents[0].text), parse_constant=pytest.fail)
    assert row == {
        "id": 1, "l": [1, None], "s": {"a": 1, "b": "x"}, "m": {"k": 2}, "j": {"y": ["9007199254740993", "1e400"]},
        "b": {"hex": "00ff", "bytes": 2}, "deep": [{"x": [0.5]}],
    }  # fmt: skip
    assert source.read(f"{source.uri}/main/t/rows/1/b").contents[0].blob == b"\x00\xff"


def test_rows_are_paged_in_the_order_of_duckdb(path: Path, publish: Publish) -> None:
    """The rows have NULL, NaN, ties and unusual text."""
    words = ["", "a", "A", "é", "😀", "it's", "x\ny", "%", "a,b", "~", '"']
    singles = ["NULL", "'nan'", "'inf'", "'-inf'", "0.1", "-0.0", "1e30"]
    values = ", ".join(
        f"({n}, '{words[n * 7 % 11].replace(chr(39), chr(39) * 2)}', {singles[n * 5 % 7]}, {n * 7919 % 13 - 2**63})"
        for n in range(60)
    )
    write_duckdb(
        path, f"CREATE TABLE t (n INT PRIMARY KEY, w VARCHAR, f FLOAT, b BIGINT); INSERT INTO t VALUES {values}"
    )
    source = publish(f"duckdb:///{path}")
    for query, order in (
        ("order=w,-b", "w, b DESC, n"),
        ("order=-f", "f DESC NULLS LAST, n"),
        ("order=f,w", "f NULLS LAST, w, n"),
        ("f=gt.0.1&order=-w", "w DESC, n"),
    ):
        where = "WHERE f > 0.1::FLOAT" if "gt" in query else ""
        expected = [n for (n,) in read_duckdb(path, f"SELECT n FROM t {where} ORDER BY {order}")]
        assert walk(source, f"{source.uri}/main/t/rows?limit=7&{query}", NEXT) == expected
        assert walk(source, f"{source.uri}/main/t/rows?tail=9&{query}", PREVIOUS) == expected


def test_tables_without_a_key_are_read_by_rowid_and_names_may_have_any_characters(path: Path, publish: Publish) -> None:
    """The tables are in two schemas, and one of them has a column with the name rowid."""
    names = ["with space", 'dou"ble', "per%cent", "ünïcode", "a/b", "rows", "select", "semi;colon", "quote'd"]
    statements = 'CREATE SCHEMA "odd \'schema"; CREATE TABLE many AS SELECT n FROM range(5000) AS r (n); '
    statements += "CREATE TABLE own (rowid INT, x INT); INSERT INTO own VALUES (2, 1), (1, 1); "
    for number, name in enumerate(names):
        quoted = name.replace('"', '""')
        statements += f'CREATE TABLE "odd \'schema"."{quoted}" ("{quoted}" INT PRIMARY KEY, v INT); '
        statements += f'INSERT INTO "odd \'schema"."{quoted}" VALUES ({number}, NULL); '
    write_duckdb(path, statements)
    source = publish(f"duckdb:///{path}")
    listed = {resource.name: resource.uri for resource in source.page(None, 100)[0][1:]}
    assert sorted(listed) == sorted([*names, "many", "own"])
    for number, name in enumerate(names):
        assert json.loads(str(source.read(f"{listed[name]}/rows/{number}").contents[0].text)) == {
            name: number,
            "v": None,
        }
        assert source.read(f"{listed[name]}/rows/{number}/{quote(name, safe='')}").contents[0].text == str(number)
    assert walk(source, f"{listed['many']}/rows?limit=700") == list(range(5000))
    assert walk(source, f"{listed['many']}/rows?tail=700", PREVIOUS) == list(range(5000))
    assert walk(source, f"{listed['own']}/rows?rows=1-1", column="rowid") == [1, 2]
    text = str(source.read(source.uri).contents[0].text)
    assert "main.many (table, about 5,000 rows)" in text


HOSTILE_QUERIES = [
    "SELECT * FROM read_csv('{outside}')", "SELECT * FROM '{outside}'", "SELECT * FROM read_text('{outside}')",
    "SELECT * FROM read_blob('{outside}')", "SELECT * FROM glob('{folder}/*')", "SELECT * FROM secretly()",
    "SELECT * FROM read_json_auto('{outside}')", "SELECT * FROM read_parquet('http://127.0.0.1:9/x.parquet')",
    "SELECT * FROM query('SELECT * FROM read_text(''{outside}'')')", "SELECT content FROM read_text(['{outside}'])",
]  # fmt: skip


def test_a_hostile_database_reads_and_writes_no_other_file(tmp_path: Path, path: Path, publish: Publish) -> None:
    """Its views are read by URI, by search and by statements. Other tables are read as usual."""
    outside = tmp_path / "outside.csv"
    outside.write_text('{"word": "x"}\n{"word": "hiddenword"}\n')  # valid as CSV and as JSON
    views = [view.format(outside=outside, folder=tmp_path) for view in HOSTILE_QUERIES if "http" not in view]
    write_duckdb(
        path,
        f"{SHOP} CREATE MACRO secretly() AS TABLE SELECT * FROM read_text('{outside}'); "
        + "".join([f"CREATE VIEW v{number} AS {view}; " for number, view in enumerate(views)]),
    )
    before = sorted(os.listdir(tmp_path))
    source = publish(f"duckdb:///{path}")
    for number in range(len(views)):
        with pytest.raises(InternalError, match="may not be read"):
            source.read(f"{source.uri}/main/v{number}/rows")
        with pytest.raises(QueryRefused):
            source.query(f"SELECT * FROM v{number}")
    for view in HOSTILE_QUERIES:
        with pytest.raises(QueryRefused):
            source.query(view.format(outside=outside, folder=tmp_path))
    for statement in (
        f"COPY customers TO '{tmp_path}/out.csv'", f"ATTACH '{tmp_path}/other.db'", "INSTALL httpfs", "LOAD httpfs",
        "SET enable_external_access = true", "PRAGMA database_list", "CREATE TABLE x (i INT)", "DELETE FROM orders",
        f"EXPORT DATABASE '{tmp_path}/all'", "SELECT * FROM duckdb_settings()", "SELECT getenv('HOME')", "CHECKPOINT",
        "SELECT 1; SELECT 2", "SELECT * FROM duckdb_secrets()", "CALL pragma_version()",
    ):  # fmt: skip
        with pytest.raises(QueryRefused):
            source.query(statement)
    documents, _ = source.documents(None, 1_000)
    assert not any("hiddenword" in str(source.read(document.uri).contents[0].text) for document in documents)
    assert '"Ada"' in str(source.read(f"{source.uri}/main/customers/rows").contents[0].text)
    source.engine.close()
    assert sorted(os.listdir(tmp_path)) == before


def test_a_file_is_unavailable_while_another_process_has_it_open_for_writing(path: Path, publish: Publish) -> None:
    """After that, all committed rows are read, also those that are only in the write-ahead log."""
    write_duckdb(path, SHOP)
    source = publish(f"duckdb:///{path}")
    uri = f"{source.uri}/main/customers/rows"
    before = source.engine.token()
    with open_for_writing(path) as run:
        run("INSERT INTO customers VALUES (4, 'Di', NULL)")
        assert source.engine._identity() != before
        for read in (lambda: source.read(uri), lambda: source.page(None, 10), lambda: source.query("SELECT 1")):
            with pytest.raises(DatabaseUnreachable, match=r"shop\.duckdb is open for writing in another process"):
                read()
        with pytest.raises(DatabaseUnreachable):
            source.engine.token()
        assert "open for writing" in source.describe()
    assert source.engine.token() != before
    assert '"Di"' in str(source.read(uri).contents[0].text)
    wait_until_closed(path)


def test_a_statement_on_a_locked_file_says_so_without_the_path(path: Path, publish: Publish) -> None:
    """A bug: the caller got DuckDB's message, with the paths of the file and of the other program."""
    write_duckdb(path, SHOP)
    source = publish(f"duckdb:///{path}")
    source.query("SELECT 1")
    with open_for_writing(path), pytest.raises(QueryRefused, match="is open for writing in another process") as caught:
        source.query("SELECT 1")
    assert "/" not in str(caught.value)
    wait_until_closed(path)


def test_a_writer_can_open_a_file_that_is_read_constantly(path: Path, publish: Publish) -> None:
    write_duckdb(path, SHOP)
    source = publish(f"duckdb:///{path}")
    uri = f"{source.uri}/main/orders/rows"
    began = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-c", RETRYING_WRITER, str(path)], stdout=subprocess.PIPE, text=True
    )  # fmt: skip
    while process.poll() is None:
        try:
            source.read(uri)
        except DatabaseUnreachable:
            continue
        assert time.monotonic() - began < 45
    assert '"pieces":99' in str(source.read(uri).contents[0].text)


RETRYING_WRITER = """
import duckdb, sys, time
while True:
    try:
        with duckdb.connect(sys.argv[1]) as writer:
            writer.execute("UPDATE orders SET pieces = 99 WHERE id = 2")
        break
    except duckdb.IOException:
        time.sleep(0.002)
"""


def test_a_replaced_removed_or_damaged_file_is_noticed(path: Path, tmp_path: Path, publish: Publish) -> None:
    write_duckdb(path, SHOP)
    source = publish(f"duckdb:///{path}")
    uri = f"{source.uri}/main/customers/rows"
    assert "Ada" in str(source.read(uri).contents[0].text)
    other = tmp_path / "other.duckdb"
    write_duckdb(other, SHOP.replace("'Ada'", "'Zoe'"))
    other.rename(path)
    assert "Zoe" in str(source.read(uri).contents[0].text)
    source.engine.close()
    data = path.read_bytes()
    path.write_bytes(data[:5_000] + bytes(100))
    with pytest.raises(DatabaseUnreachable, match="cannot be read"):
        source.page(None, 10)
    path.unlink()
    with pytest.raises(DatabaseUnreachable, match="no longer exists"):
        source.read(uri)
    path.write_bytes(data)
    assert "Zoe" in str(source.read(uri).contents[0].text)


def test_a_damaged_file_with_lock_in_its_name_is_not_reported_as_locked(tmp_path: Path, publish: Publish) -> None:
    path = tmp_path / "clock.duckdb"
    path.write_bytes(bytes(8) + b"DUCK" + b"\1" * 9_000)
    with pytest.raises(DatabaseUnreachable, match=r"The DuckDB file clock\.duckdb cannot be read") as caught:
        publish(f"duckdb:///{path}").page(None, 10)
    assert "another process" not in str(caught.value)
    assert str(tmp_path) not in str(caught.value)


def test_closing_the_source_cancels_a_read_of_a_slow_view(path: Path, publish: Publish) -> None:
    view = "CREATE VIEW slow AS SELECT sum(a.range * b.range) AS n FROM range(1000000) a, range(1000000) b;"
    write_duckdb(path, SHOP + view)
    source = publish(f"duckdb:///{path}", seconds=60)
    source.page(None, 10)
    ended = threading.Event()

    def close_until_ended() -> None:
        while not ended.wait(0.5):  # the statement may begin late on a busy machine
            source.engine.close()

    closing = threading.Thread(target=close_until_ended)
    closing.start()
    began = time.monotonic()
    try:
        with pytest.raises(InternalError, match="was stopped: the source was closed"):
            source.read(f"{source.uri}/main/slow/rows")
    finally:
        ended.set()
    assert time.monotonic() - began < 30
    closing.join()


def test_slow_statements_and_views_are_stopped_at_the_time_limit(path: Path, publish: Publish) -> None:
    write_duckdb(
        path,
        "CREATE VIEW slow AS SELECT count(*) AS n FROM range(1000000) AS a (x), range(1000000) AS b (y) "
        "WHERE a.x + b.y = 3; "
        "CREATE VIEW big AS SELECT array_agg(x) AS xs FROM range(1000000000) AS r (x)",
    )
    source = publish(f"duckdb:///{path}", seconds=4)
    for call in (lambda: source.read(f"{source.uri}/main/slow/rows"), lambda: source.query("SELECT * FROM slow")):
        began = time.monotonic()
        with pytest.raises((InternalError, QueryRefused), match="longer than 4 s"):
            call()
        assert time.monotonic() - began < 25
    with pytest.raises((InternalError, QueryRefused)):
        source.read(f"{source.uri}/main/big/rows")
    assert source.query("SELECT 1").rows == [[1]]


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("duckdb:///nowhere.duckdb", "There is no DuckDB file"),
        ("duckdb://", "Give the path of a file of DuckDB"),
        ("duckdb:///:memory:", "Give the path of a file of DuckDB"),
        ("duckdb:///x.duckdb?access_mode=automatic", "takes no options"),
        ("duckdb:////", "is not a file"),
        ("duckdb:///{here}/text.duckdb", "is not a DuckDB file"),
    ],
)
def test_an_unusable_file_is_reported(url: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "text.duckdb").write_text("This is no database at all.")
    with pytest.raises(UnusableSource, match=message):
        sql(url.format(here=tmp_path))


def test_a_condition_of_the_wrong_type_is_refused_with_its_reason(path: Path, publish: Publish) -> None:
    write_duckdb(path, SHOP)
    source = publish(f"duckdb:///{path}")
    with pytest.raises(InvalidArgument, match="cannot be read in this way: Could not convert string 'x' to INT32"):
        source.read(f"{source.uri}/main/orders/rows?id=x")


def test_a_served_file_is_read_and_queried_by_a_client(path: Path) -> None:
    """`wharfinger serve` serves the file in a process of its own."""
    write_duckdb(path, SHOP)
    command = [sys.executable, "-m", "wharfinger", "serve", "--stdio", "--allow-query", f"duckdb:///{path}"]

    async def main() -> None:
        async with Client(command, timeout=40) as client:
            uris = [resource.uri async for resource in client.list_resources()]
            assert "duckdb://shop/main/customers" in uris
            assert "Ada" in (await client.read_resource("duckdb://shop/main/customers/rows")).text
            answer = (await client.call_tool("query", {"statement": "SELECT count(*) AS n FROM orders"})).data
            assert (answer["columns"], answer["rows"]) == (["n"], [[3]])

    asyncio.run(main())
