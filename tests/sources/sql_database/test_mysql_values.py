"""Values of every MariaDB type equal those that the `mariadb` client reads."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from wharfinger.sources.sql_database import Database

from .mariadb_server import MariaDBServer

COLUMNS = {
    "tiny": "TINYINT(1)", "big": "BIGINT", "huge": "BIGINT UNSIGNED", "padded": "INT(8) ZEROFILL", "year": "YEAR",
    "decimal": "DECIMAL(65, 30)", "single": "FLOAT", "twice": "DOUBLE", "day": "DATE", "time": "TIME(6)",
    "at": "DATETIME(6)", "stamp": "TIMESTAMP NULL", "short": "VARCHAR(200)", "fixed": "CHAR(5)", "body": "LONGTEXT",
    "latin": "TEXT CHARACTER SET latin1", "kana": "TEXT CHARACTER SET sjis", "wide": "TEXT CHARACTER SET utf16",
    "mood": "ENUM('good', 'it''s', 'a\\\\b', 'x,y', 'tab\\t')", "days": "SET('mon', 'tue')",
    "uuid": "UUID", "ip": "INET6",
}  # fmt: skip
BINARY_COLUMNS = {"bytes": "VARBINARY(40)", "blob": "LONGBLOB", "exact": "BINARY(4)"}
UNUSUAL_VALUES = [
    {"tiny": -128, "big": -(2**63), "huge": 2**64 - 1, "padded": 7, "year": 0, "decimal": f"-0.{'0' * 29}1"},
    {"big": 2**53, "huge": 2**53 - 1, "decimal": "9" * 35 + "." + "9" * 30, "single": 16777216, "twice": 1e-308},
    {"day": "0000-00-00", "at": "0000-00-00 00:00:00", "time": "-838:59:59", "stamp": "0000-00-00 00:00:00"},
    {"day": "2026-02-00", "at": "9999-12-31 23:59:59.999999", "time": "838:59:58.999999"},
    {"stamp": "2038-01-19 03:14:07"},
    {"short": "😀 é\\ '\"`%s\t\n\r\x1a", "fixed": "a ", "body": "", "latin": "naïve £", "kana": "テスト", "wide": "𝄞"},
    {"mood": "it's", "days": "mon,tue", "uuid": "123E4567-E89B-12D3-A456-426655440000", "ip": "::ffff:1.2.3.4"},
    {"mood": "a\\b", "days": ""}, {"mood": "x,y", "days": "tue"}, {"mood": "tab\t"}, {"short": "\0\0", "body": "\0"},
    {"bytes": b"", "blob": b"\0\xff'", "exact": b"a"}, {"bytes": bytes(40), "blob": bytes(33), "exact": b"\xff" * 4},
]  # fmt: skip


@pytest.fixture(scope="module")
def values_table(mariadb: MariaDBServer) -> Iterator[tuple[str, Callable[[dict[str, Any]], int]]]:
    """Create a table with a column of each type. Yield the name of its database, and a function that adds a row."""
    import pymysql

    declared = ", ".join(f"`{name}` {kind} NULL" for name, kind in {**COLUMNS, **BINARY_COLUMNS}.items())
    name = mariadb.database(f"CREATE TABLE t (id INT PRIMARY KEY AUTO_INCREMENT, {declared})")
    with pymysql.connect(
        unix_socket=str(mariadb.socket), user="root", database=name, charset="utf8mb4", autocommit=True
    ) as connection, connection.cursor() as cursor:  # fmt: skip
        cursor.execute("SET sql_mode = '', time_zone = '+00:00'")

        def add(values: dict[str, Any]) -> int:
            names = ", ".join(f"`{column}`" for column in values)
            marks = ", ".join(["%s"] * len(values))
            cursor.execute(f"INSERT INTO t ({names}) VALUES ({marks})", list(values.values()))
            return int(cursor.lastrowid)

        yield name, add


def read_with_client(mariadb: MariaDBServer, database: str, row: int) -> dict[str, bytes | None]:
    """Return the bytes of each value of a row, read with the `mariadb` client."""
    texts = [f"HEX(CAST(CONVERT(`{name}` USING utf8mb4) AS BINARY))" for name in COLUMNS]
    expressions = [*texts, *[f"HEX(`{name}`)" for name in BINARY_COLUMNS]]
    selected = ", ".join([f"IFNULL({expression}, 'NULL')" for expression in expressions])
    line = mariadb.run(f"SET time_zone = '+00:00'; SELECT {selected} FROM t WHERE id = {row}", database).rstrip("\n")
    values = [None if value == "NULL" else bytes.fromhex(value) for value in line.split("\t")]
    return dict(zip([*COLUMNS, *BINARY_COLUMNS], values, strict=True))


def check(source: Database, mariadb: MariaDBServer, row: int) -> None:
    """Compare a row in a window, the row alone, its cells and the answer of a statement with the client's bytes."""
    expected = read_with_client(mariadb, source.engine.database, row)
    rows = f"{source.uri}/t/rows"
    row_values = json.loads(str(source.read(f"{rows}/{row}").contents[0].text), parse_constant=pytest.fail)
    assert json.loads(str(source.read(f"{rows}?id={row}").contents[0].text)) == row_values
    answer = source.query("SELECT * FROM t WHERE id = ?", [row])
    for value in row_values.values():
        if isinstance(value, dict):
            value.pop("read", None)  # the answer of a statement has no URIs
    assert dict(zip(answer.columns, answer.rows[0], strict=True)) == row_values
    for name, data in expected.items():
        value = row_values[name]
        cell = source.read(f"{rows}/{row}/{name}").contents[0]
        if data is None:
            assert (value, cell.text) == (None, "NULL\n"), name
        elif name in BINARY_COLUMNS:
            assert value["bytes"] == len(data), name
            assert "hex" not in value or value["hex"] == data.hex(), name
        else:
            text = data.decode()
            if isinstance(value, (int, float)):
                assert value == float(text), name
                assert not isinstance(value, int) or value == int(text), name
            else:
                assert value == (str(int(text)) if name in ("big", "huge", "padded") else text), name
            assert cell.text in (text, None) or cell.blob is not None, name
        if data is not None and name not in ("single", "twice", "body", "kana", "latin", "wide"):
            query = quote(data.hex() if name in BINARY_COLUMNS else data.decode(), safe="")
            if "%00" in query:
                continue
            found = source.read(f"{rows}?{name}=eq.{query}&limit=10000&columns=id").contents[0]
            assert row in [json.loads(line)["id"] for line in str(found.text).splitlines()], name


@pytest.mark.parametrize("values", UNUSUAL_VALUES, ids=str)
def test_unusual_values_equal_those_that_the_client_reads(
    values: dict[str, Any], mariadb: MariaDBServer, values_table: Any, publish: Callable[..., Database]
) -> None:
    check(publish(mariadb.url(values_table[0]), label="t"), mariadb, values_table[1](values))


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "tiny": st.integers(-128, 127),
    "big": st.integers(-(2**63), 2**63 - 1),
    "huge": st.integers(0, 2**64 - 1),
    "decimal": st.decimals(-(10**30), 10**30, places=30),
    "single": st.floats(width=32, allow_nan=False, allow_infinity=False),
    "twice": st.floats(allow_nan=False, allow_infinity=False),
    "day": st.dates(),
    "time": st.timedeltas(),
    "at": st.datetimes(),
    "short": TEXT,
    "body": TEXT,
    "wide": TEXT,
    "bytes": st.binary(max_size=40),
    "blob": st.binary(max_size=80),
    "exact": st.binary(max_size=4),
}


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(values=st.fixed_dictionaries({}, optional=VALUES).filter(bool))
def test_random_values_equal_those_that_the_client_reads(
    values: dict[str, Any], mariadb: MariaDBServer, values_table: Any, publish: Callable[..., Database]
) -> None:
    check(publish(mariadb.url(values_table[0]), label="t"), mariadb, values_table[1](values))


def test_json_geometry_and_bits_are_shown_in_readable_form(
    mariadb: MariaDBServer, publish: Callable[..., Database]
) -> None:
    name = mariadb.database(
        "CREATE TABLE t (id INT PRIMARY KEY, j JSON, p POINT, b BIT(64), v LONGTEXT); "
        """INSERT INTO t VALUES (1, '{"x": 1e400, "y": [1, 9007199254740993]}', POINT(1, 2.5), ~0, '{"a": 1}')"""
    )
    source = publish(mariadb.url(name), label="t")
    row = json.loads(str(source.read(f"{source.uri}/t/rows").contents[0].text), parse_constant=pytest.fail)
    assert row == {
        "id": 1, "j": {"x": "1e400", "y": [1, "9007199254740993"]}, "p": "POINT(1 2.5)", "b": "18446744073709551615",
        "v": '{"a": 1}',
    }  # fmt: skip
    assert source.read(f"{source.uri}/t/rows/1/p").contents[0].text == "POINT(1 2.5)"
    assert source.read(f"{source.uri}/t/rows/1/b").contents[0].text == "18446744073709551615"


@pytest.mark.parametrize("length", [2_000, 2_001])
def test_a_text_of_more_than_2_000_characters_is_cut(
    length: int, mariadb: MariaDBServer, publish: Callable[..., Database]
) -> None:
    """Characters are counted in every character set. The reported size is that in UTF-8."""
    name = mariadb.database(
        "CREATE TABLE t (id INT PRIMARY KEY, a LONGTEXT, b TEXT CHARACTER SET latin1, c VARCHAR(3000), d JSON); "
        f"INSERT INTO t VALUES (1, REPEAT('😀', {length}), REPEAT('é', {length}), REPEAT('x', {length}), "
        f"JSON_QUOTE(REPEAT('y', {length - 2})))"
    )
    source = publish(mariadb.url(name), label="t")
    row = json.loads(str(source.read(f"{source.uri}/t/rows").contents[0].text))
    whole = {"a": "😀" * length, "b": "é" * length, "c": "x" * length, "d": "y" * (length - 2)}
    if length == 2_000:
        assert row == {"id": 1, **whole}
        return
    whole["d"] = f'"{whole["d"]}"'
    for column, text in whole.items():
        uri = f"{source.uri}/t/rows/1/{column}"
        assert row[column] == {"text": text[:2_000], "cut": True, "bytes": len(text.encode()), "read": uri}
        assert source.read(uri).contents[0].text == text


def test_a_value_of_many_megabytes_is_read_in_part(mariadb: MariaDBServer, publish: Callable[..., Database]) -> None:
    """At most 16 MiB of it are read. A window contains only its beginning."""
    name = mariadb.database("CREATE TABLE t (id INT PRIMARY KEY, body LONGTEXT, data LONGBLOB)")
    mariadb.run("SET GLOBAL max_allowed_packet = 64 << 20", options=("--max-allowed-packet=64M",))
    mariadb.run(
        "INSERT INTO t VALUES (1, REPEAT('é', 12 << 20), REPEAT('z', 20 << 20))", name,
        options=("--max-allowed-packet=64M",),
    )  # fmt: skip
    source = publish(mariadb.url(name), label="t")
    row = json.loads(str(source.read(f"{source.uri}/t/rows").contents[0].text))
    assert (row["body"]["bytes"], row["data"]["bytes"]) == (24 << 20, 20 << 20)
    for column in ("body", "data"):
        contents = source.read(f"{source.uri}/t/rows/1/{column}").contents
        assert "first 16,777,216 bytes of" in str(contents[-1].text)
