"""Statements of callers can only read, within limits (security.md, group Q)."""

from __future__ import annotations

import json
import re
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from wharfinger.errors import InvalidArgument
from wharfinger.sources.sql_database import Database
from wharfinger.sources.sql_database.database_engine import QueryRefused

from .conftest import PostgresServer, Shop

# Statements by the rows of group Q in security.md. `{new}` is a file that must not be created.
COMMON = {
    "Q01 second statements": [
        "SELECT 1; DROP TABLE orders",
        "SELECT ';'; DROP TABLE orders",
        "SELECT 1 /* ; */ ; DELETE FROM orders",
        "SELECT 1 -- ;\n; DELETE FROM orders",
        'SELECT 1 AS ";" ; DELETE FROM orders',
        "SELECT 1;;DELETE FROM orders",
        "; DELETE FROM orders",
        "SELECT 1) AS q(c0); DELETE FROM orders; SELECT * FROM (SELECT 1",
        "SELECT 1) AS q (c0) LIMIT 1; --",
    ],
    "Q02 leaving the transaction": [
        "COMMIT",
        "ROLLBACK",
        "END",
        "COMMIT; DROP TABLE orders",
        "BEGIN",
        "SAVEPOINT a",
    ],
    "Q03 writing in disguise": [
        "WITH gone AS (DELETE FROM orders RETURNING *) SELECT * FROM gone",
        "WITH a AS (SELECT 1) DELETE FROM orders",
        "WITH a AS (SELECT 1) INSERT INTO orders SELECT 9, 1, 1",
        "INSERT INTO orders VALUES (9, 1, 1) RETURNING *",
        "UPDATE orders SET pieces = 0 RETURNING *",
        "EXPLAIN ANALYZE DELETE FROM orders",
        "SELECT * INTO copied FROM orders",
        "SELECT * FROM orders FOR UPDATE",
        "CREATE TABLE copied AS SELECT * FROM orders",
        "CREATE VIEW copied AS SELECT 1",
        "DROP TABLE orders",
        "ALTER TABLE orders ADD COLUMN x INTEGER",
        "CREATE TEMP TABLE scratch (id INTEGER)",
        "CREATE TEMPORARY VIEW scratch AS SELECT 1",
        "REINDEX",
        "ANALYZE",
        "VACUUM",
    ],
    "Q10 odd writings": [
        "SELECT 'a\0b'",
        "SELECT 1\0; DROP TABLE orders",
        "SELECT '\ud800'",
        "",
        " ",
        "--",
        "/*",
        "SELECT '",
    ],
}
SQLITE = {
    "Q05 other files": [
        "ATTACH '{new}' AS other",
        "ATTACH 'file:{new}?mode=rwc' AS other",
        "VACUUM INTO '{new}'",
        "VACUUM main INTO 'file:{new}?mode=rwc'",
        "DETACH main",
        "SELECT writefile('{new}', 'x')",
        "SELECT readfile('/etc/passwd')",
    ],
    "Q06 switches": [
        "PRAGMA query_only = OFF",
        "PRAGMA writable_schema = ON",
        "PRAGMA journal_mode = DELETE",
        "SELECT * FROM pragma_query_only",
        "SELECT * FROM pragma_database_list",
        "SELECT load_extension('/tmp/evil.so')",
        "SELECT fts3_tokenizer('simple')",
        "BEGIN IMMEDIATE",
        "BEGIN EXCLUSIVE",
        "CREATE VIRTUAL TABLE v USING fts5 (body)",
        "SELECT sqlite_log(1, 'x')",
    ],
    "Q07 endless": [
        "WITH RECURSIVE q (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM q) SELECT count(*) FROM q",
        "WITH RECURSIVE q (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM q) SELECT n FROM q WHERE n < 0",
        f"SELECT sum(1) FROM orders{', json_each(json_array(1,2,3,4,5,6,7,8,9))' * 12}",
    ],
    "Q08 too large": [
        "SELECT hex(zeroblob(900000000))",
        "SELECT zeroblob(900000000)",
        f"SELECT {', '.join(['zeroblob(8000000)'] * 101)}",
        "SELECT replace(hex(zeroblob(10000000)), '0', 'xxxxxxxxxxxxxxxx')",
    ],
}
POSTGRES = {
    "Q02 settings": [
        "SET transaction_read_only = off",
        "SET SESSION CHARACTERISTICS AS TRANSACTION READ WRITE",
        "SET ROLE postgres",
        "RESET ALL",
        "SHOW server_version",
        "DISCARD ALL",
        "DO $$ BEGIN DELETE FROM orders; END $$",
        "PREPARE p AS DELETE FROM orders",
        "EXECUTE p",
        "LISTEN x",
        "NOTIFY x",
        "LOCK TABLE orders",
        "CALL anything()",
    ],
    "Q04 functions": [
        "SELECT pg_read_file('/etc/passwd')",
        "SELECT PG_READ_FILE('/etc/passwd')",
        "SELECT \"pg_read_file\"('/etc/passwd')",
        "SELECT pg_catalog.pg_read_file/**/('/etc/passwd')",
        "SELECT pg_catalog . pg_read_file /* /* */ */ ('/etc/passwd')",
        "SELECT U&\"pg\\005fread\\005ffile\"('/etc/passwd')",
        "SELECT u& \"pg!005fread_file\" UESCAPE '!' ('/etc/passwd')",
        "SELECT pg_read_binary_file('/etc/passwd')",
        "SELECT pg_ls_dir('/')",
        "SELECT rolpassword FROM pg_authid",
        'SELECT passwd FROM "pg_shadow"',
        "TABLE pg_catalog.pg_user_mapping",
        "SELECT pg_stat_file('/')",
        "COPY orders TO PROGRAM 'touch {new}'",
        "COPY orders FROM PROGRAM 'echo 1'",
        "COPY orders TO '{new}'",
        "SELECT lo_import('/etc/passwd')",
        "SELECT lo_export(1, '{new}')",
        "SELECT lo_create(0)",
        "SELECT lo_from_bytea(0, 'x')",
        "SELECT * FROM dblink('dbname=postgres', 'DROP TABLE orders') AS t (x int)",
        "SELECT set_config('transaction_read_only', 'off', false)",
        "SELECT query_to_xml('DELETE FROM orders', true, true, '')",
        "SELECT table_to_xml('orders', true, true, '')",
        "SELECT ts_stat('SELECT 1')",
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity",
        "SELECT pg_cancel_backend(1)",
        "SELECT nextval('numbers')",
        "SELECT setval('numbers', 100)",
        "SELECT pg_advisory_lock(1)",
        "SELECT pg_try_advisory_lock(1)",
        "SELECT pg_notify('x', 'y')",
        "SELECT pg_reload_conf()",
        "SELECT pg_logical_emit_message(false, 'a', 'b')",
        "SELECT pg_sleep(20)",
        "SELECT empties()",
        "SELECT o.empties_by_row FROM orders o",
    ],
    "Q07 endless": [
        "WITH RECURSIVE q (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM q) SELECT count(*) FROM q",
        "SELECT count(*) FROM generate_series(1, 100000) a, generate_series(1, 100000) b",
        "SELECT count(*) FROM generate_series(1, 100000000000)",
    ],
}
EXTRAS = """
CREATE SEQUENCE numbers;
CREATE FUNCTION empties() RETURNS int LANGUAGE plpgsql AS $$ BEGIN DELETE FROM orders; RETURN 1; END $$;
CREATE FUNCTION empties_by_row(orders) RETURNS int LANGUAGE plpgsql AS $$ BEGIN DELETE FROM orders; RETURN 1; END $$;
"""


def cases(*tables: dict[str, list[str]]) -> list[object]:
    return [
        pytest.param(statement, id=f"{row}: {statement[:40]!a}")
        for table in tables
        for row in table
        for statement in table[row]
    ]


def read_all_rows(source: Database, top: str) -> list[str]:
    """Return every row of every table."""
    return [str(source.read(f"{top}/{table}/rows").contents[0].text) for table in ("orders", "customers")]


def check_refused(source: Database, top: str, statement: str, new: Path) -> None:
    before = read_all_rows(source, top), [item.uri for item in source.page(None, 100)[0]]
    began = time.monotonic()
    with pytest.raises(QueryRefused) as caught:
        source.query(statement.replace("{new}", str(new)))
    assert time.monotonic() - began < 20
    assert len(str(caught.value)) > 10
    assert not new.exists()
    assert (read_all_rows(source, top), [item.uri for item in source.page(None, 100)[0]]) == before
    assert source.query("SELECT count(*) FROM orders").rows == [[3]], "the next statement fails"


@pytest.fixture(scope="module")
def postgres_canary(postgres: PostgresServer) -> str:
    from .conftest import SHOP

    return postgres.database(SHOP + EXTRAS)


@pytest.mark.parametrize("statement", cases(COMMON, SQLITE))
def test_sqlite_refuses_statements_that_do_more_than_read(statement: str, sqlite_shop: Shop, tmp_path: Path) -> None:
    sqlite_shop.source.bounds = msgspec.structs.replace(sqlite_shop.source.bounds, seconds=2)
    check_refused(sqlite_shop.source, sqlite_shop.top, statement, tmp_path / "new")


@pytest.mark.parametrize("statement", cases(COMMON, POSTGRES))
def test_postgres_refuses_statements_that_do_more_than_read(
    statement: str, postgres: PostgresServer, postgres_canary: str, publish: Callable[..., Database], tmp_path: Path
) -> None:
    """The database is unchanged. This role may write, so only the transaction and the checks protect it."""
    role = postgres.run("SELECT 1 FROM pg_roles WHERE rolname = 'clerk'")
    if not role:
        postgres.run("CREATE ROLE clerk LOGIN")
    postgres.run("GRANT ALL ON ALL TABLES IN SCHEMA public TO clerk", postgres_canary)
    source = publish(postgres.url(postgres_canary, "clerk"), label="shop", seconds=2)
    check_refused(source, f"{source.uri}/public", statement, tmp_path / "new")


@pytest.mark.parametrize(
    ("created", "called"),
    [
        ("plain", "public . PLAIN"),
        ('"do-it"', '"do-it"'),
        ('"a""b"', '"a""b"'),
        ("ÉCRIRE", "ÉCRIRE"),
        ("ÉCRIRE", '"Écrire"'),
        ("é" * 31, "é" * 40),
        (f'"{"a " * 31}a"', f'"{"a " * 40}"'),
    ],
)
def test_volatile_functions_are_refused_in_every_writing_of_their_name(
    created: str, called: str, postgres: PostgresServer, publish: Callable[..., Database]
) -> None:
    """A bug: some names were not recognised. PostgreSQL folds only ASCII letters, and cuts names after 63 bytes."""
    write = f"CREATE FUNCTION {created}() RETURNS int VOLATILE LANGUAGE sql AS 'SELECT 1'"
    name = postgres.database(write)
    source = publish(postgres.url(name, "reader"), label="shop")
    with pytest.raises(QueryRefused, match="may do more than read"):
        source.query(f"SELECT {called}()")
    postgres.run(write.replace("FUNCTION", "OR REPLACE FUNCTION").replace("VOLATILE", "STABLE"), name)
    assert source.query(f"SELECT {called}()").rows == [[1]]


@pytest.mark.parametrize("role", ["postgres", "filer"])
def test_queries_of_a_superuser_or_file_reader_role_are_refused(
    role: str, postgres: PostgresServer, publish: Callable[..., Database]
) -> None:
    """Even a harmless query is refused. The error contains the statement that creates a role for queries."""
    if role == "filer" and not postgres.run("SELECT 1 FROM pg_roles WHERE rolname = 'filer'"):
        postgres.run("CREATE ROLE filer LOGIN; GRANT pg_read_server_files TO filer")
    with pytest.raises(QueryRefused, match="CREATE ROLE reader"):
        publish(postgres.url(role=role)).query("SELECT 1")


def test_odd_but_harmless_statements_are_run(shop: Shop) -> None:
    """Comments, trailing semicolons, VALUES and CTEs are allowed. A statement is refused only for its effect."""
    query = shop.source.query
    for statement in (
        "SELECT 1;",
        "SELECT 1; -- end",
        "SELECT 1 /* ; */ ; /* end; */\n",
        "select 1 -- a comment",
        "/* ; DROP TABLE orders */ SELECT 1",
        "VALUES (1)",
        "WITH a AS (SELECT 1) SELECT * FROM a",
        "SELECT 1 FROM orders LIMIT 1",
        "SELECT 1 WHERE 'DELETE; DROP' <> ''",
        "(SELECT 1)" if shop.source.engine.dialect == "PostgreSQL" else "SELECT (1)",
    ):
        assert query(statement).rows == [[1]], statement


@pytest.mark.parametrize("end", ["", ";", " ; ; -- a ; 'b\n;\r\n", ';/* a /* ; */ " */', "-- a;", "--a\n;--"])
@pytest.mark.parametrize(
    ("statement", "value"),
    [
        ("SELECT ';--'", ";--"),
        ("SELECT e'\\';--'", "';--"),
        ("SELECT E'a'';\\\\'", "a';\\"),
        ("SELECT E'a'\n'b\\'' ; -- x", "ab'"),
        ("SELECT E'a' -- it's\n \t-- ;\r\n'b\\';--' ; -- x", "ab';--"),
        ("SELECT $$;'$$", ";'"),
        ("SELECT $a$ $$ ; -- $a$", " $$ ; -- "),
        ('SELECT 1 AS ";--"', 1),
        ("SELECT 1 AS a$b$", 1),
        ("SELECT 1/*;/*;*/;*/+1", 2),
        ("SELECT 1 AS \u00a0", 1),
    ],
)
def test_postgres_ignores_semicolons_and_comments_after_a_statement(
    statement: str, value: object, end: str, postgres_shop: Shop
) -> None:
    """A bug: a comment after the semicolon was a syntax error. The marks within a text or a name are kept."""
    assert postgres_shop.source.query(statement + end).rows == [[value]]
    assert postgres_shop.source.query(statement + end, explain=True).columns == ["plan"]


def test_an_answer_with_too_many_rows_or_bytes_is_cut_and_marked(shop: Shop) -> None:
    """`truncated` is empty if all rows are in the answer."""
    series = "WITH RECURSIVE q (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM q WHERE n < 50000000)"
    if shop.source.engine.dialect == "DuckDB":  # it computes a recursive table as a whole
        series = "WITH q AS (SELECT n FROM range(1, 50000001) AS r (n))"
    answer = shop.source.query(f"{series} SELECT n FROM q", limit=10)
    assert answer.rows == [[n] for n in range(1, 11)]
    assert "limit=10" in answer.truncated
    assert shop.source.query("SELECT id FROM orders ORDER BY id").truncated == ""
    wide = "hex(zeroblob(20000))" if shop.source.engine.dialect == "SQLite" else "repeat('x', 40000)"
    answer = shop.source.query(f"{series} SELECT {wide} FROM q", limit=10_000)
    assert 100 < len(answer.rows) < 1_000
    assert "1,024 KiB" in answer.truncated


def test_a_large_cell_is_cut_and_marked(shop: Shop) -> None:
    wide = "hex(zeroblob(3000000))" if shop.source.engine.dialect == "SQLite" else "repeat('0', 10000000)"
    (row,) = shop.source.query(f"SELECT {wide} AS wide").rows
    assert row[0]["cut"] is True
    assert row[0]["text"] == "0" * 2_000
    answer = shop.source.query(f"SELECT {wide} AS wide")
    assert "substr(column, 2001, 2000)" in answer.shortened
    assert answer.truncated == ""


def test_an_answer_names_its_database_and_dialect(shop: Shop) -> None:
    """A caller with several databases needs the dialect to write SQL."""
    answer = shop.source.query("SELECT 1")
    assert (answer.database, answer.dialect) == (shop.source.name, shop.source.engine.dialect)


@pytest.mark.parametrize("explain", ["EXPLAIN ", "explain query plan ", "EXPLAIN ANALYZE\n", ""])
def test_explain_returns_the_plan_and_runs_nothing(shop: Shop, explain: str) -> None:
    """EXPLAIN is in the statement, or the argument `explain` is true."""
    answer = shop.source.query(f"{explain}SELECT * FROM orders WHERE id = 2", explain=not explain)
    assert answer.columns == ["plan"]
    assert "orders" in str(answer.rows)
    with pytest.raises(QueryRefused):
        shop.source.query("EXPLAIN DELETE FROM orders")


def test_the_error_for_an_unknown_table_or_column_lists_existing_ones(shop: Shop) -> None:
    """The error also suggests a similar name."""
    with pytest.raises(QueryRefused, match=r"Did you mean orders\? Tables: busy, customers, orders\."):
        shop.source.query("SELECT * FROM oders")
    with pytest.raises(QueryRefused, match=r"customers has id, name, town\."):
        shop.source.query("SELECT city FROM customers")


def test_a_suggested_name_keeps_its_capital_letters(postgres_shop: Shop) -> None:
    """A bug: for orders, the table orders was suggested instead of Orders, which must be in double quotes."""
    postgres_shop.run('ALTER TABLE orders RENAME TO "Orders"')
    with pytest.raises(QueryRefused, match=r"Did you mean Orders\? Tables: "):
        postgres_shop.source.query("SELECT * FROM orders")


def test_values_are_valid_json(shop: Shop) -> None:
    """The values are infinity, bytes, a decimal and a large integer. Some columns have the same name."""
    postgres = shop.source.engine.dialect == "PostgreSQL"
    infinity = {"SQLite": "9e999", "PostgreSQL": "'infinity'::float8"}.get(shop.source.engine.dialect, "'Infinity'")
    data = "'\\x00ff'::bytea" if postgres else "x'00ff'"
    answer = shop.source.query(f"SELECT {infinity} AS a, {data} AS a, 9007199254740993 AS a, NULL AS b, 1.5 AS c")
    assert answer.columns == ["a", "a", "a", "b", "c"]
    text = msgspec.json.encode(answer).decode()
    (row,) = json.loads(text, parse_constant=pytest.fail)["rows"]
    assert row[:4] == ["Infinity", {"hex": "00ff", "bytes": 2}, "9007199254740993", None]
    assert row[4] in (1.5, "1.5")


def test_parameters_are_bound_as_values(shop: Shop) -> None:
    """Their number and types must match the placeholders."""
    mark = "$1" if shop.source.engine.dialect == "PostgreSQL" else "?"
    query = shop.source.query
    assert query(f"SELECT id FROM customers WHERE name = {mark}", ["Ada"]).rows == [[1]]
    assert query(f"SELECT id FROM customers WHERE id = {mark}", [2]).rows == [[2]]
    assert query(f"SELECT id FROM customers WHERE name = {mark}", ["' OR 1=1; --"]).rows == []
    for parameters in ([], [1, 2], {"a": 1}):
        with pytest.raises(QueryRefused):
            query(f"SELECT id FROM customers WHERE id = {mark}", parameters)


@pytest.mark.parametrize("parameters", [["\ud800"], ["a", ["\udfff"]], {"a": {"b\ud800": 1}}])
def test_a_parameter_with_half_of_a_surrogate_pair_is_refused(shop: Shop, parameters: Any) -> None:
    """A bug: it was a UnicodeEncodeError of MariaDB and DuckDB."""
    with pytest.raises(QueryRefused, match=r"^A parameter is not valid Unicode\.$"):
        shop.source.query("SELECT ?", parameters)


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [("bool", "false", False), ("bool", "T", True), ("bool", 0, False), ("int4", 2.0, 2), ("int8", "7", 7),
     ("bool", "maybe", None), ("bool", {}, None), ("int4", 1.5, None), ("int8", "1.5", None),
     ("jsonb", {"a": [1]}, {"a": [1]}), ("json", [1, True], [1, True]), ("jsonb", True, True), ("jsonb", "[1]", [1]),
     ("date[]", ["2026-01-02", None], ["2026-01-02", None]), ("bool[]", [["f"], ["t"]], [[False], [True]]),
     ("timestamptz[]", ["2026-01-02T10:00"], ["2026-01-02T10:00:00+00:00"]), ("date[]", ["x"], None),
     ("jsonb[]", [{"a": [1]}, [2]], [{"a": [1]}, [2]]), ("int4[]", "{1}", None), ("date", ["2026-01-02"], None),
     ("timetz", "12:00+02:00", "12:00:00+02"), ("timetz", "12:00", "12:00:00+00"), ("int4range", [1, 2], "[1,3)"),
     ("text::interval", "1 month 2 days", "P1M2D")],
)  # fmt: skip
def test_postgres_parameters_keep_their_value(kind: str, value: object, expected: object, postgres_shop: Shop) -> None:
    """A bug: the text `false` became true, 1.5 became 1, and JSON was Python's `repr`. None: the value is refused."""
    statement = f"SELECT $1::{kind}"
    if expected is None:
        with pytest.raises(QueryRefused, match=re.escape(f"Parameter 1 cannot be converted to {kind}.")):
            postgres_shop.source.query(statement, [value])
    else:
        assert postgres_shop.source.query(statement, [value]).rows == [[expected]]


@pytest.mark.parametrize(
    ("kind", "value"),
    [("interval", "1 day"), ("bytea", "x"), ("point", "(1,2)"), ("int4", 1 << 40), ("int4[]", [1, [2]])],
)
def test_the_error_for_a_parameter_that_the_driver_refuses_says_what_to_do(
    kind: str, value: object, postgres_shop: Shop
) -> None:
    """A bug: it was `'str' object has no attribute 'days'`."""
    words = re.escape("Parameter 1 does not fit the type of $1: pass a text and cast it, as in $1::text::")
    with pytest.raises(QueryRefused, match=words):
        postgres_shop.source.query(f"SELECT $1::{kind}", [value])


@pytest.mark.skipif(not hasattr(time, "tzset"), reason="needs time.tzset")
def test_a_time_without_a_zone_is_in_utc_on_a_machine_in_any_zone(
    postgres_shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bug: the parameter was in the zone of this machine, unlike the same text in a statement or a condition."""
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    try:
        statement = "SELECT $1::timestamptz, '2026-07-01 12:00'::timestamptz"
        assert postgres_shop.source.query(statement, ["2026-07-01T12:00"]).rows == [["2026-07-01 12:00:00+00"] * 2]
    finally:
        monkeypatch.undo()
        time.tzset()


def test_names_in_uris_are_never_inserted_into_statements(shop: Shop) -> None:
    """Q09: a name that is not in the catalogue is not found."""
    from wharfinger.errors import ResourceNotFound

    for name in ("orders%22;DROP%20TABLE%20orders;--", "orders--", "orders%20WHERE%201=1", "sqlite_master", "pg_class"):
        for rest in ("", "/rows", "/rows/1"):
            with pytest.raises(ResourceNotFound):
                shop.source.read(f"{shop.top}/{name}{rest}")
    for key in ("1%20OR%201=1", "1;DROP%20TABLE%20orders", "1)--"):
        with pytest.raises((ResourceNotFound, InvalidArgument)):
            shop.source.read(f"{shop.top}/orders/rows/{key}")
        with pytest.raises(InvalidArgument):
            shop.source.read(f"{shop.top}/orders/rows?after={key}")
    assert shop.source.query("SELECT count(*) FROM orders").rows == [[3]]


def test_a_statement_that_spends_its_time_in_one_opcode_is_stopped(
    tmp_path: Path, publish: Callable[..., Database]
) -> None:
    """SQLite calls the progress handler only between opcodes, and counting a table is one opcode."""
    path = tmp_path / "long.db"
    writer = sqlite3.connect(path)
    writer.execute("CREATE TABLE t (a)")
    numbers = "WITH RECURSIVE q (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM q LIMIT 300000)"
    writer.execute(f"INSERT INTO t SELECT n FROM ({numbers} SELECT n FROM q)")
    writer.commit()
    writer.close()
    source = publish(f"sqlite:///{path}")
    source.bounds = msgspec.structs.replace(source.bounds, seconds=2)
    began = time.monotonic()
    with pytest.raises(QueryRefused, match="stopped after 2 s"):
        source.query("SELECT " + " + ".join(["(SELECT count(*) FROM t a JOIN t b WHERE b.a > 0)"] * 20))
    assert time.monotonic() - began < 30
    assert source.query("SELECT 1").rows == [[1]]


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT instr(hex(zeroblob(4000000)), hex(zeroblob(2000000)) || '1')",
        "SELECT replace(hex(zeroblob(4000000)), hex(zeroblob(2000000)) || '1', '')",
        "SELECT Trim(hex(zeroblob(4000000)), replace(hex(zeroblob(60000)), '0', '1') || '0')",
        "WITH t AS (SELECT ltrim(hex(zeroblob(100000)), hex(zeroblob(100000)))) SELECT * FROM t",
    ],
)
def test_a_slow_function_with_large_arguments_is_refused(statement: str, sqlite_shop: Shop) -> None:
    began = time.monotonic()
    with pytest.raises(QueryRefused, match=r"larger than 8 MiB, or than a slow function takes \(.*replace: 512 KiB\)"):
        sqlite_shop.source.query(statement)
    assert time.monotonic() - began < 20
    assert sqlite_shop.source.query("SELECT replace(trim(name), 'A', 'O') FROM customers WHERE id = 1").rows == [
        ["Oda"]
    ]


def test_a_column_of_anyarray_is_refused_with_a_message(
    postgres: PostgresServer, publish: Callable[..., Database]
) -> None:
    """Regression: the driver cannot describe `anyarray`, so this was an internal error."""
    source = publish(postgres.url(role="reader"))
    with pytest.raises(QueryRefused, match="cannot be run"):
        source.query("SELECT * FROM pg_stats")
    assert source.query("SELECT most_common_vals::text FROM pg_stats LIMIT 1").columns == ["most_common_vals"]


def test_password_hashes_are_refused_even_if_the_role_may_read_them(
    postgres: PostgresServer, publish: Callable[..., Database]
) -> None:
    """PostgreSQL lets members of `pg_read_all_data` read `pg_authid`."""
    assert postgres.run("SELECT count(*) FROM pg_authid", role="reader")[0][0] > 0
    source = publish(postgres.url(role="reader"))
    for statement in ("SELECT * FROM pg_authid", "SELECT * FROM PG_AUTHID", 'SELECT * FROM "pg_catalog"."pg_authid"'):
        with pytest.raises(QueryRefused, match="passwords"):
            source.query(statement)
