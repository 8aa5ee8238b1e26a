"""Statements of callers read table files by name, and can neither read nor do anything else."""

from __future__ import annotations

import asyncio
import csv
import sqlite3
import sys
import threading
import time
from pathlib import Path
from typing import Any

import duckdb
import pytest

from tests.sources.conftest import Permit
from tests.waiting import wait_until
from wharfinger import Client, Server
from wharfinger.errors import InternalError, InvalidArgument, Overloaded, ToolError
from wharfinger.sources import resource_tools
from wharfinger.sources.child_process import ChildProcesses
from wharfinger.sources.table_files import Tables, queried_tables, tables
from wharfinger.sources.table_files import source as source_module
from wharfinger.sources.table_files.query_tables import MAX_QUERIED_TABLES, named_tables


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "sales"
    (root / "old").mkdir(parents=True)
    (root / "tides.csv").write_text(
        'port,high,day,ok,code\nHull,6.1,2026-07-01,true,007\n"Grimsby, Docks",5.9,2026-07-02,false,12\n,,,,\n'
    )
    (root / "log.jsonl").write_text('{"a": 1, "b": [1], "c": "x"}\n{"a": 12345678901234567890, "c": null}\n')
    (root / "old" / "tides.csv").write_text("port\nold\n")
    (root / "late.csv").write_text("a,b\n" + "".join(f"{i},{i}\n" for i in range(30_000)) + "oops,1\n")
    duckdb.execute(
        "COPY (SELECT i AS id, 'port ' || i AS name, TIMESTAMPTZ '2026-01-01 00:00:00+00' AS at "
        f"FROM range(5000) t(i)) TO '{root}/ports.parquet'"
    )
    return root


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        (
            'SELECT * FROM "tides.csv"',
            [["Hull", 6.1, "2026-07-01", True, "007"], ["Grimsby, Docks", 5.9, "2026-07-02", False, "12"], [None] * 5],
        ),
        ("SELECT sum(high), max(day) FROM tides.csv", [[12.0, "2026-07-02"]]),
        ("SELECT count(*), sum(id) FROM ports", [[5000, 12497500]]),
        ('SELECT "at" FROM PORTS ORDER BY id LIMIT 1;', [["2026-01-01 00:00:00+00"]]),
        ("SELECT \"at\", 'é;' FROM ports WHERE id = 1 ; -- the end;", [["2026-01-01 00:00:00+00", "é;"]]),
        ('SELECT "at" FROM ports WHERE id = 1 /* ; */ ;; /* the end */', [["2026-01-01 00:00:00+00"]]),
        ("SELECT a, b, c FROM log -- the log", [[1, "[1]", "x"], ["12345678901234567890", None, None]]),
        ('SELECT port FROM "old/tides"', [["old"]]),
        ("SELECT max(a), avg(b) FROM late WHERE a <> 'oops'", [["9999", 14999.5]]),  # `a` is text, because one value is
        ("WITH one AS (FROM tides.csv) SELECT count(*) FROM one JOIN ports p ON p.id = 7", [[3]]),
        ("SELECT unnest([1, 2]) AS x UNION ALL SELECT * FROM range(2) ORDER BY 1", [[0], [1], [1], [2]]),
        (
            "SELECT x'00ff'::BLOB, 'NaN'::DOUBLE, 9007199254740993",
            [[{"hex": "00ff", "bytes": 2}, "NaN", "9007199254740993"]],
        ),
    ],
)
def test_a_statement_reads_published_tables(source: Tables, statement: str, expected: list[Any]) -> None:
    answer = source.query(statement)
    assert answer.rows == expected
    assert (answer.database, answer.dialect) == ("sales", "DuckDB")


def test_parameters_explain_describe_and_summarize_are_supported(source: Tables) -> None:
    assert source.query("SELECT port FROM tides.csv WHERE high > ?", [6]).rows == [["Hull"]]
    assert source.query("SELECT port FROM tides.csv WHERE high > $least", {"least": 6}).rows == [["Hull"]]
    plan = source.query("EXPLAIN SELECT port FROM tides.csv")
    assert plan.columns == ["plan"] and "Read Csv" in str(plan.rows)
    assert source.query("DESCRIBE ports").rows[0][:2] == ["id", "BIGINT"]
    assert len(source.query("SUMMARIZE tides.csv").rows) == 5


def test_a_long_plan_is_complete(source: Tables) -> None:
    """A bug: a plan was a single value, which was cut after 2,000 characters."""
    joins = " ".join([f"JOIN tides t{number} USING (port)" for number in range(20)])
    answer = source.query(f"SELECT count(*) FROM tides {joins}", explain=True)
    assert str(answer.rows).count("Read Csv") == 21
    assert not answer.truncated and not answer.shortened
    answer = source.query(f"SELECT count(*) FROM tides {joins}", limit=3, explain=True)
    assert len(answer.rows) == 3 and answer.truncated


def test_results_equal_those_of_sqlite(source: Tables, folder: Path) -> None:
    with (folder / "late.csv").open(newline="") as file:
        lines = list(csv.reader(file))[1:]
    other = sqlite3.connect(":memory:")
    other.execute("CREATE TABLE late (a TEXT, b INTEGER)")
    other.executemany("INSERT INTO late VALUES (?, ?)", lines)
    for statement in (
        "SELECT b % 7 AS d, count(*), sum(b), min(a) FROM late GROUP BY d ORDER BY d",
        "SELECT a, b FROM late WHERE b BETWEEN 100 AND 120 ORDER BY b DESC",
        "SELECT count(DISTINCT length(a)) FROM late",
    ):
        assert source.query(statement).rows == [list(row) for row in other.execute(statement)]


REFUSED_STATEMENTS = {
    "SELECT * FROM read_csv('/etc/passwd')": "read_csv() is not allowed",
    "SELECT (SELECT count(*) FROM read_text('/etc/passwd'))": "read_text() is not allowed",
    "SELECT * FROM tides.csv, LATERAL (SELECT * FROM read_blob('/etc/passwd'))": "read_blob() is not allowed",
    "FROM read_csv('/proc/self/fd/3')": "read_csv() is not allowed",
    "FROM parquet_metadata('/proc/self/fd/3')": "not allowed",
    "SELECT * FROM '/etc/passwd'": "there is no table /etc/passwd",
    "SELECT * FROM 'https://example.org/x.csv'": "there is no table",
    "SELECT * FROM glob('/*')": "glob() is not allowed",
    "FROM sniff_csv('/etc/passwd')": "sniff_csv() is not allowed",
    "SELECT * FROM query('SELECT 1')": "query() is not allowed",
    "FROM query_table('tides.csv')": "query_table() is not allowed",
    "FROM duckdb_settings()": "duckdb_settings() is not allowed",
    "FROM duckdb_settings": "there is no table duckdb_settings",
    "FROM information_schema.tables": "there is no table information_schema.tables",
    "FROM system.main.duckdb_views": "there is no table",
    "FROM pragma_version()": "not allowed",
    "SELECT getenv('HOME')": "getenv() is not allowed",
    "SELECT current_setting('home_directory')": "current_setting() is not allowed",
    "COPY (SELECT 1) TO 'x.csv'": "only a SELECT",
    "COPY tides TO '/tmp/x.csv'": "only a SELECT",
    "EXPLAIN ANALYZE COPY (SELECT 1) TO 'x.csv'": "only a SELECT",
    "ATTACH '/tmp/x.db'": "only a SELECT",
    "INSTALL httpfs": "only a SELECT",
    "LOAD httpfs": "only a SELECT",
    "PRAGMA version": "only a SELECT",
    "CALL pragma_version()": "only a SELECT",
    "SET threads = 1": "only a SELECT",
    "RESET lock_configuration": "only a SELECT",
    "CREATE TABLE a (b int)": "only a SELECT",
    "PREPARE x AS SELECT 1": "only a SELECT",
    "SHOW TABLES": "read the source's URI",
    "SELECT 1; SELECT 2": "exactly one statement",
    "SELECT 1; COPY (SELECT 1) TO 'x.csv'": "only a SELECT",
    "": "exactly one statement",
    "SELEC 1": "syntax error",
    "SELECT hihg FROM tides.csv": 'Candidate bindings: "high"',
    "SELECT 1 FROM tids": 'no table tids. Did you mean "tides.csv"? Tables: ',
    "SELECT 1 FROM nothing": 'Tables: "late.csv", "log.jsonl", "ports.parquet", "tides.csv", "old/tides.csv".',
    "SELECT repeat('x', 2000000000)": "more than 256MB of memory",
    "SELECT list(range) FROM range(100000000)": "more than 256MB of memory",
    "SELECT " + "(" * 30_000: "memory",
    "SELECT 'é" + "x" * 100_000: "at most 100,000",
}


@pytest.mark.parametrize("statement", REFUSED_STATEMENTS)
def test_anything_but_a_select_over_the_tables_is_refused(source: Tables, statement: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        source.query(statement)
    assert REFUSED_STATEMENTS[statement] in str(caught.value)
    assert "/proc/self" not in str(caught.value).replace("FROM read_csv", "") or "fd" in statement
    assert len(str(caught.value)) < 1_000


@pytest.mark.parametrize(
    "statement",
    [
        "WITH pragma_database_list AS (FROM pragma_database_list) FROM pragma_database_list",
        "WITH pg_settings AS MATERIALIZED (SELECT * FROM pg_settings) SELECT * FROM pg_settings",
        "WITH a AS (FROM pg_settings), pg_settings AS (SELECT 1) FROM a",
        "WITH RECURSIVE pg_settings AS (SELECT 1 UNION SELECT name FROM pg_settings UNION SELECT 1) FROM pg_settings",
        "SELECT * FROM (WITH sqlite_master AS (SELECT 1) FROM sqlite_master), sqlite_master",
        "(WITH pg_settings AS (SELECT 1) FROM pg_settings) UNION ALL SELECT 1 FROM pg_settings",
        'WITH "duc\N{KELVIN SIGN}db_views" AS (SELECT 1) FROM duckdb_views',
    ],
)
def test_a_table_of_duckdb_is_refused_where_a_common_table_expression_of_its_name_is_not_seen(
    source: Tables, statement: str
) -> None:
    """Regression: the names of common table expressions counted in the whole statement."""
    with pytest.raises(InvalidArgument, match=r"there is no table (pragma_|pg_|sqlite_|duckdb_)"):
        source.query(statement)


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("WITH a AS (SELECT 1 AS x), B AS (FROM A) FROM b", [[1]]),
        ("WITH a AS MATERIALIZED (SELECT 1 AS x) SELECT (SELECT max(x) FROM (FROM a UNION ALL FROM a))", [[1]]),
        ("WITH a AS (SELECT 1 AS x) SELECT i FROM range(3) t(i), LATERAL (FROM a WHERE x = i)", [[1]]),
        ("WITH a AS (SELECT 1 AS x), b AS (WITH a AS (FROM a) FROM a) FROM b", [[1]]),
        (
            "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r WHERE n < 3), s AS (FROM r) FROM s",
            [[1], [2], [3]],
        ),
        ("WITH pg_settings AS (SELECT 1 AS x) FROM pg_settings", [[1]]),
        ("WITH ports AS (FROM ports) SELECT count(*) FROM ports", [[5000]]),
    ],
)
def test_common_table_expressions_are_seen_in_their_scope(source: Tables, statement: str, expected: list[Any]) -> None:
    assert source.query(statement).rows == expected


@pytest.mark.parametrize(
    "statement",
    ["SELECT count(*) FROM read_text('{}')", "SELECT count(*) FROM read_csv('{}')", "FROM glob('{}')"],
)
def test_duckdb_itself_opens_no_other_file(
    source: Tables, tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, statement: str
) -> None:
    """The statement is in the SELECT of a table, which is not checked, so only the settings of DuckDB refuse it."""
    (tmp_path / "out.csv").write_text("secret\n1\n")
    for path in ("/etc/passwd", str(tmp_path / "out.csv"), str(folder / "ports.parquet"), "/proc/self/environ"):
        inner = statement.format(path)
        select = f"SELECT 1 AS x WHERE ({inner}) IS NULL"
        monkeypatch.setattr(queried_tables, "select_of", lambda *_, select=select: select)
        with pytest.raises(InvalidArgument):
            source.query("SELECT * FROM tides.csv")


def test_an_error_other_than_a_refusal_is_raised_although_a_file_changed(source: Tables, folder: Path) -> None:
    """A bug: the caller was told to run the statement again, whatever had failed."""
    for error, expected in ((Overloaded("busy"), Overloaded), (InvalidArgument("garbage"), InternalError)):
        with pytest.raises(expected), source._queried.open(["tides.csv"]):
            (folder / "tides.csv").write_text(f"port\n{error}\n")
            raise error


def test_a_statement_is_stopped_at_the_time_limit(source: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_module, "_BOUNDS", source_module._BOUNDS.__class__(seconds=1.5))
    for statement in (
        "SELECT sum(a.range * b.range) FROM range(1000000) a, range(1000000) b",
        "WITH a AS (" * 3_000,  # the parser takes exponential time for this
    ):
        began = time.monotonic()
        with pytest.raises(InvalidArgument, match=r"longer than 1\.5 s|memory"):
            source.query(statement)
        assert time.monotonic() - began < 25


def test_close_stops_a_running_statement(source: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_module, "_BOUNDS", source_module._BOUNDS.__class__(seconds=60))
    errors: list[str] = []

    def query() -> None:
        try:
            source.query("SELECT sum(a.range * b.range) FROM range(1000000) a, range(1000000) b")
        except InvalidArgument as error:
            errors.append(str(error))

    thread = threading.Thread(target=query)
    thread.start()
    wait_until(lambda: source._statements._children._running, "the statement runs")
    asyncio.run(source.close())
    thread.join(30)
    assert errors


def test_rows_and_bytes_are_limited_and_omitted_rows_are_reported(source: Tables) -> None:
    exact = source.query("FROM range(200)")
    assert (len(exact.rows), exact.truncated) == (200, "")
    more = source.query("FROM range(201)")
    assert (len(more.rows), "limit=200" in more.truncated) == (200, True)
    long = source.query("SELECT repeat('x', 50000) AS v FROM range(100)")
    assert long.rows[0][0] == {"text": "x" * 2_000, "cut": True, "characters": 50_000}
    assert "substr(column, 2001, 2000)" in long.shortened
    large = source.query("SELECT repeat('x', 1999) FROM range(10000)", limit=10_000)
    assert 400 < len(large.rows) < 600 and "1,024 KiB" in large.truncated


def test_tables_are_named_by_their_paths_or_shorter_forms() -> None:
    paths = ["tides.csv", "old/tides.csv", "old/rare.csv", "a b/c.d.csv", "Ünï.csv"]

    def paths_in(statement: str) -> list[str]:
        return [table.path for table in named_tables(statement, paths)]

    assert paths_in("FROM tides") == ["tides.csv"]  # a longer form takes precedence
    assert paths_in("FROM tides . csv") == ["tides.csv", "tides.csv"]
    assert paths_in('FROM "OLD/tides.csv" JOIN rare') == ["old/tides.csv", "old/rare.csv"]
    assert paths_in("FROM 'a b/c.d.csv'") == ["a b/c.d.csv"]
    assert paths_in('FROM "c.d"') == ["a b/c.d.csv"]
    assert paths_in('FROM "ünï"') == ["Ünï.csv"]
    many = [f"t{number}.csv" for number in range(MAX_QUERIED_TABLES + 1)]
    statement = " ".join(f"t{number}" for number in range(MAX_QUERIED_TABLES))
    assert len(named_tables(statement, many)) == MAX_QUERIED_TABLES
    with pytest.raises(InvalidArgument, match="names 17 tables, and at most 16"):
        named_tables(f"{statement} t{MAX_QUERIED_TABLES} t0.csv", many)


def test_a_name_of_several_tables_is_refused_only_as_the_name_of_a_table(source: Tables, folder: Path) -> None:
    """It may also be that of a column, of a common table expression, or a word of a text."""
    (folder / "new").mkdir()
    for directory in ("old", "new"):
        (folder / directory / "port.csv").write_text("n\n1\n")
    assert source.query("SELECT port FROM tides LIMIT 1").rows == [["Hull"]]
    assert source.query("SELECT high FROM tides AS port WHERE port.port <> 'port' LIMIT 1").rows == [[6.1]]
    assert source.query("WITH port AS (SELECT 7) FROM port").rows == [[7]]
    for statement in ("FROM port", "FROM tides, port.csv", "SELECT (SELECT n FROM PORT) FROM tides"):
        with pytest.raises(InvalidArgument, match=r'"new/port\.csv", "old/port\.csv": write one of these'):
            source.query(statement)


def test_a_damaged_file_prevents_only_statements_that_read_it(source: Tables, folder: Path) -> None:
    """A statement may use its name for a column, or as a word of a text."""
    (folder / "high.parquet").write_text("This is no Parquet file.")
    assert source.query("SELECT port FROM tides WHERE high > 6 AND port <> 'high'").rows == [["Hull"]]
    with pytest.raises(InvalidArgument, match=r"high\.parquet cannot be read"):
        source.query("SELECT * FROM high")


@pytest.mark.parametrize(
    "text", ['"' * 99_999, "'" * 99_999, "a" + " " * 90_000, "a." * 50_000, '"a' * 50_000, "é" * 100_000]
)
def test_table_names_are_found_in_linear_time(text: str) -> None:
    began = time.thread_time()
    assert named_tables(text, ["x.csv"]) == []
    assert time.thread_time() - began < 2


def test_columns_that_differ_only_in_case_are_all_shown(source: Tables, folder: Path) -> None:
    (folder / "odd.csv").write_text('a,A,"b""c",\n1,2,3,4\n')
    answer = source.query("FROM odd")
    assert answer.rows == [[1, 2, 3, 4]]
    assert len({column.lower() for column in answer.columns}) == 4


def test_a_caller_queries_only_what_it_may_read(source: Tables, permit: Permit) -> None:
    top = "table://sales"
    with permit(f"{top}/**", deny=[f"{top}/old/**", f"{top}/ports.parquet/schema"], query=[top, f"{top}/**"]):
        assert source.may_query()
        # For this caller, `tides` is the name of only one table.
        assert source.query("SELECT port FROM tides LIMIT 1").rows == [["Hull"]]
        for statement in ('FROM "old/tides.csv"', "FROM ports", "FROM '" + str(source.root) + "/old/tides.csv'"):
            with pytest.raises(InvalidArgument) as caught:
                source.query(statement)
            assert 'Tables: "late.csv", "log.jsonl", "tides.csv".' in str(caught.value)
    with permit(f"{top}/**"):
        assert not source.may_query()
        with pytest.raises(InvalidArgument, match="take no statements"):
            source.query("FROM tides")


def test_a_file_that_changes_while_it_is_queried_is_reported(
    source: Tables, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = ChildProcesses.run

    def run_and_change_file(self: Any, *arguments: Any) -> bytes:
        output = original(self, *arguments)
        (folder / "tides.csv").write_text("port\nnew\n")
        return output

    monkeypatch.setattr(ChildProcesses, "run", run_and_change_file)
    with pytest.raises(InternalError, match="run the statement again"):
        source.query("FROM tides.csv")
    monkeypatch.undo()
    assert source.query("FROM tides.csv").rows == [["new"]]


def test_the_query_tool_runs_statements_on_table_files(folder: Path) -> None:
    server = Server("x")
    for part in (tables(folder), resource_tools(allow_query=True)):
        server.include(part)
    statement = "SELECT port FROM tides.csv ORDER BY high DESC LIMIT 1"

    async def main() -> None:
        async with Client(server) as client:
            answer = await client.call_tool("query", {"statement": statement})
            assert '"Hull"' in str(answer.content[0])
            (tool,) = [tool for tool in await client.list_tools() if tool.name == "query"]
            assert "sales (DuckDB)" in str(tool.description)
            with pytest.raises(ToolError, match="not allowed"):
                await client.call_tool("query", {"statement": "FROM read_text('/etc/passwd')"})

    asyncio.run(main())


def test_a_client_queries_tables_that_the_command_line_serves(folder: Path) -> None:
    command = [sys.executable, "-m", "wharfinger", "serve", "--allow-query", f"table:{folder}/*.csv"]

    async def main() -> None:
        async with Client(command) as client:
            answer = await client.call_tool("query", {"statement": "SELECT count(*) AS n FROM late"})
            assert "30001" in str(answer.content[0])

    asyncio.run(main())
