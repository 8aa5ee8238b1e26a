"""MySQL and MariaDB, tested with a MariaDB server: rights of accounts, orders of rows, large tables and faults."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.waiting import wait_until
from wharfinger.errors import InternalError, InvalidArgument, ResourceNotFound
from wharfinger.sources.sql_database import Database
from wharfinger.sources.sql_database.database_engine import DatabaseUnreachable, QueryRefused, Span
from wharfinger.sources.sql_database.mysql_catalogue import read_catalogue
from wharfinger.sources.windows.window import NEXT, PREVIOUS

from .conftest import SHOP, walk
from .mariadb_server import PASSWORD, MariaDBServer

ORDERS = """
CREATE TABLE orders (id INT PRIMARY KEY, status ENUM('paid', 'new', 'Lost', '') NOT NULL, amount DECIMAL(30, 10),
  word VARCHAR(20), rate FLOAT, flags BIT(40), days SET('mon', 'tue', 'wed'), at DATETIME(6), code VARBINARY(8),
  CHECK (amount >= 0)) COMMENT = 'what was ordered';
INSERT INTO orders SELECT seq, ELT(1 + seq % 4, 'new', 'paid', 'Lost', ''),
  IF(seq % 7, 90071992547409930000 + (seq % 50) / 10000, NULL), CONCAT('W', seq % 11), seq / 7,
  IF(seq % 3, 1 << (seq % 40), NULL), IF(seq % 5, seq % 8, NULL),
  '2026-01-01' + INTERVAL (seq * 7919 % 503) MICROSECOND,
  UNHEX(LPAD(HEX(seq * 7919 % 65521), 4, '0')) FROM seq_1_to_500;
CREATE VIEW paid AS SELECT id, amount FROM orders WHERE status = 'paid';
"""


@pytest.fixture
def orders(mariadb: MariaDBServer, publish: Callable[..., Database]) -> tuple[Database, Callable[[str], str]]:
    name = mariadb.database(ORDERS)
    return publish(mariadb.url(name), label="shop"), lambda statement: mariadb.run(statement, name)


def test_a_view_is_read_without_the_right_to_its_definition(
    mariadb: MariaDBServer, publish: Callable[..., Database]
) -> None:
    """Its columns are known without the privilege SHOW VIEW."""
    source = publish(mariadb.url(mariadb.database(ORDERS), "plain"), label="shop")
    text = str(source.read(source.uri).contents[0].text)
    assert "paid (view)" in text
    assert "  amount decimal(30,10)" in text
    assert len(walk(source, f"{source.uri}/paid/rows?limit=20", column="id")) == 125


def test_the_schema_has_enumerations_checks_comments_and_estimates(orders: tuple[Database, object]) -> None:
    source, _ = orders
    text = str(source.read(source.uri).contents[0].text)
    for words in ("orders (table, about ", "-- what was ordered", "one of paid, new, Lost", "check (`amount` >= 0)"):
        assert words in text
    assert "as select" in text


ORDER_CASES = [
    ("", "", "id"),
    ("order=-amount", "", "amount IS NULL, amount DESC, id"),
    ("order=word,-amount", "", "word, amount IS NULL, amount DESC, id"),
    ("order=status,-id", "", "status, id DESC"),
    ("order=rate", "", "rate, id"),
    ("order=-flags,word", "", "flags IS NULL, flags DESC, word, id"),
    ("order=days", "", "days IS NULL, days, id"),
    ("order=-at", "", "at DESC, id"),
    ("order=code", "", "code, id"),
    ("status=paid&order=-id", "status = 'paid'", "id DESC"),
    ("status=lost", "status = 'Lost'", "id"),
    ("status=gt.new", "status > 2", "id"),
    ("days=mon,wed", "days = 'mon,wed'", "id"),
    ("flags=gte.1024", "flags >= 1024", "id"),
    ("amount=gt.90071992547409930000.0021", "amount > 90071992547409930000.0021", "id"),
    ("amount=90071992547409930000.0021", "amount = 90071992547409930000.0021", "id"),
    ("code=gt.7FFF", "code > x'7fff'", "id"),
    ("id=gt.400.5", "id > 400.5", "id"),
    ("at=lt.2026-01-01%2000:00:00.000100", "at < '2026-01-01 00:00:00.000100'", "id"),
    ("word=like.*w1*", "word LIKE '%w1%'", "id"),
    ("amount=is.null&word=neq.W3", "amount IS NULL AND word <> 'W3'", "id"),
]


@pytest.mark.parametrize(("query", "where", "order"), ORDER_CASES)
def test_rows_are_filtered_and_paged_in_the_order_of_sql(
    query: str, where: str, order: str, orders: tuple[Database, Callable[[str], str]]
) -> None:
    """The rows are read in both directions. They have NULL, ties, and numbers that a DOUBLE would round."""
    source, run = orders
    expected = [int(line) for line in run(f"SELECT id FROM orders WHERE {where or 'true'} ORDER BY {order}").split()]
    assert expected
    rows = f"{source.uri}/orders/rows"
    separator = "&" if query else ""
    assert walk(source, f"{rows}?limit=37{separator}{query}", NEXT, "id") == expected
    assert walk(source, f"{rows}?tail=41{separator}{query}", PREVIOUS, "id") == expected


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("status=sold", "status must be a value of the type enum"),
        ("id=paid", "id must be a value of the type int"),
        ("amount=NaN", "amount must be a value of the type decimal"),
        ("rate=inf", "rate must be a value of the type float"),
        ("code=gt.xyz", "code must be hex digits"),
        ("at=yesterday", "at must be a value of the type datetime"),
        ("after=x", "id must be a value of the type int"),
        ("after=1e3", "id must be a value of the type int"),
        ("after=1,2", "A key has 1 part"),
    ],
)
def test_a_condition_of_the_wrong_type_is_refused_with_its_reason(
    query: str, message: str, orders: tuple[Database, object]
) -> None:
    with pytest.raises(InvalidArgument, match=message):
        orders[0].read(f"{orders[0].uri}/orders/rows?{query}")


@pytest.mark.parametrize(
    ("declared", "rows", "expected"),
    [
        ("k VARBINARY(16) PRIMARY KEY", "(x'00ff'), (x''), (x'276025')", ["", "00ff", "276025"]),
        ("k BINARY(4) PRIMARY KEY", "(x'00ff0000'), (x'27')", ["00ff0000", "27000000"]),
        ("k BIGINT UNSIGNED PRIMARY KEY", "(0), (18446744073709551615), (9007199254740993)",
         ["0", "9007199254740993", "18446744073709551615"]),
        ("k DECIMAL(40, 20) PRIMARY KEY", "(0.00000000000000000001), (12345678901234567890.1)",
         ["0.00000000000000000001", "12345678901234567890.10000000000000000000"]),
        ("k FLOAT PRIMARY KEY", "(0.1), (1e30), (-3)", None),
        ("k DOUBLE PRIMARY KEY", "(0.1), (1e300), (0.30000000000000004)", None),
        ("k TIME(3) PRIMARY KEY", "('-838:59:59'), ('12:00:00.5')", ["-838:59:59.000", "12:00:00.500"]),
        ("k DATE PRIMARY KEY", "('0000-00-00'), ('2026-02-03')", ["0000-00-00", "2026-02-03"]),
        ("k YEAR PRIMARY KEY", "(0), (1999)", ["0000", "1999"]),
        ("k UUID PRIMARY KEY", "('123e4567-e89b-12d3-a456-426655440000')", ["123e4567-e89b-12d3-a456-426655440000"]),
        ("k INET6 PRIMARY KEY", "('::1'), ('2001:db8::')", ["::1", "2001:db8::"]),
        ("k ENUM('b', 'a', 'it''s, ok') PRIMARY KEY", "('a'), ('b'), ('it''s, ok')", ["b", "a", "it's, ok"]),
        ("k VARCHAR(40) COLLATE utf8mb4_general_ci PRIMARY KEY", "('B'), ('a'), ('é%s'), ('x\\'y\\\\')",
         ["a", "B", "é%s", "x'y\\"]),
        ("k VARCHAR(40) COLLATE utf8mb4_bin PRIMARY KEY", "('B'), ('a'), ('😀'), ('a,b')", ["B", "a", "a,b", "😀"]),
        ("k VARCHAR(40) CHARACTER SET latin1 PRIMARY KEY", "('æ'), ('z')", None),
        ("k TEXT, PRIMARY KEY (k(5))", "('long one'), ('short')", ["long one", "short"]),
        ("k BIT(64) PRIMARY KEY", "(b'1'), (18446744073709551615)", ["1", "18446744073709551615"]),
        ("k INT NOT NULL, m INT NULL, UNIQUE (m), UNIQUE (k)", "(2, NULL), (1, NULL)", ["1", "2"]),
    ],
)  # fmt: skip
def test_keys_of_every_type_identify_their_rows(
    declared: str, rows: str, expected: list[str] | None, mariadb: MariaDBServer, publish: Callable[..., Database]
) -> None:
    """A row, its cell and the rows after it are read by its key."""
    source = publish(mariadb.url(mariadb.database(f"SET sql_mode = ''; CREATE TABLE t ({declared})")), label="t")
    mariadb.run(f"SET sql_mode = ''; INSERT INTO t VALUES {rows}", f"{source.engine.database}")
    table = source.engine.catalogue().tables[source.engine.database, "t"]
    assert table.key is not None
    found = source.engine.rows(table, Span(), source.bounds).rows
    keys = [row.key[0] for row in found]
    assert len(keys) == rows.count("(")
    assert expected is None or keys == expected
    for number, row in enumerate(found):
        rows_at_key = source.engine.rows(table, Span(where="at", place=row.key, limit=1), source.bounds).rows
        assert [row_at_key.cells for row_at_key in rows_at_key] == [row.cells]
        rows_after = source.engine.rows(table, Span(where="after", place=row.place), source.bounds).rows
        assert [later.key for later in rows_after] == [later.key for later in found[number + 1 :]]
        assert source.read(source.uris.of_cell(table.schema, "t", row.key, "k")).contents


TABLE_NAMES = [
    "plain",
    "Plain",
    "with space",
    "tick`ed",
    "per%cent",
    "%s",
    "quote'd",
    'dou"ble',
    "ünïcode",
    "a/b",
    "rows",
    "select",
]


def test_names_of_tables_and_columns_may_have_any_characters(
    mariadb: MariaDBServer, publish: Callable[..., Database]
) -> None:
    """Names that differ in case are different tables."""
    statements = ""
    for number, name in enumerate(TABLE_NAMES):
        quoted = name.replace("`", "``")
        statements += f"CREATE TABLE `{quoted}` (`{quoted}` INT PRIMARY KEY, `x{quoted}` INT); "
        statements += f"INSERT INTO `{quoted}` VALUES ({number}, NULL); "
    source = publish(mariadb.url(mariadb.database(statements)), label="t")
    listed = {resource.name: resource.uri for resource in source.page(None, 100)[0][1:]}
    assert sorted(listed) == sorted(TABLE_NAMES)
    for number, name in enumerate(TABLE_NAMES):
        uri = listed[name]
        assert json.loads(str(source.read(f"{uri}/rows").contents[0].text)) == {name: number, f"x{name}": None}
        assert source.read(f"{uri}/rows/{number}/{quote(name, safe='')}").contents[0].text == f"{number}"
        chosen = f"{uri}/rows?{quote(chr(34) + name + chr(34), safe='')}=gte.{number}&order=-{quote(name, safe='')}"
        assert walk(source, chosen, column=name) == [number]


def test_a_database_whose_name_differs_only_in_case_is_not_shown(
    mariadb: MariaDBServer, publish: Callable[..., Database]
) -> None:
    """`information_schema` itself ignores case."""
    mariadb.run(
        "CREATE DATABASE `test_Ca-se`; CREATE TABLE `test_Ca-se`.seen (id INT PRIMARY KEY); "
        "CREATE DATABASE `test_ca-se`; CREATE TABLE `test_ca-se`.other (id INT PRIMARY KEY)"
    )
    source = publish(mariadb.url("test_Ca-se"))
    assert source.uri == "mysql://localhost/test_Ca-se"
    assert [resource.name for resource in source.page(None, 10)[0][1:]] == ["seen"]


def test_a_million_rows_are_paged_by_key(mariadb: MariaDBServer, publish: Callable[..., Database]) -> None:
    """The last window reads as few rows as the first one, also by a key of two columns."""
    name = mariadb.database(
        "CREATE TABLE many (region INT, id INT, word VARCHAR(10), PRIMARY KEY (region, id)); "
        "INSERT INTO many SELECT seq % 2, seq, CONCAT('w', seq) FROM seq_1_to_1000000"
    )
    source = publish(mariadb.url(name), label="many")
    rows = f"{source.uri}/many/rows"
    source.read(f"{rows}?limit=100")
    for query in ("limit=100", "after=0,999000&limit=100", "after=1,999701&limit=100", "tail=100", "before=1,500001"):
        before = count_rows_read(mariadb)
        content = source.read(f"{rows}?{query}").contents[0]
        assert len(str(content.text).splitlines()) >= 100
        assert count_rows_read(mariadb) - before < 3_000, query
    assert 500_000 < (source.read(rows).contents[0].meta or {})["wharfinger/rows"] < 2_000_000


def count_rows_read(mariadb: MariaDBServer) -> int:
    found = mariadb.run("SHOW GLOBAL STATUS WHERE Variable_name IN ('Handler_read_next', 'Handler_read_prev')")
    return sum(int(line.split()[1]) for line in found.splitlines())


def test_tables_without_a_key_partitions_and_invisible_columns_are_read(
    mariadb: MariaDBServer, publish: Callable[..., Database]
) -> None:
    """Sequences are not listed, and generated columns are marked."""
    name = mariadb.database(
        "CREATE TABLE loose (a INT, b VARCHAR(10)); "
        "INSERT INTO loose VALUES (2, 'x'), (1, NULL), (2, 'x'), (NULL, 'y');"
        "CREATE TABLE parts (id INT PRIMARY KEY, n INT) PARTITION BY HASH (id) PARTITIONS 4; "
        "INSERT INTO parts SELECT seq, seq FROM seq_1_to_100; CREATE SEQUENCE numbers; "
        "CREATE TABLE odd (id INT PRIMARY KEY, hid INT INVISIBLE DEFAULT 7, twice INT AS (id * 2) STORED, "
        "thrice INT AS (id * 3) VIRTUAL, at TIMESTAMP DEFAULT CURRENT_TIMESTAMP) WITH SYSTEM VERSIONING; "
        "INSERT INTO odd (id, at) VALUES (1, '2026-01-01 12:00:00')"
    )
    source = publish(mariadb.url(name), label="t")
    assert [resource.name for resource in source.page(None, 10)[0][1:]] == ["loose", "odd", "parts"]
    loose = source.read(f"{source.uri}/loose/rows?rows=1-3").contents[0]
    assert [json.loads(line)["a"] for line in str(loose.text).splitlines()] == [1, 2, 2]
    assert walk(source, f"{source.uri}/loose/rows?rows=1-3", column="a") == [1, 2, 2, None]
    assert walk(source, f"{source.uri}/parts/rows?limit=7", column="id") == list(range(1, 101))
    row = json.loads(str(source.read(f"{source.uri}/odd/rows/1").contents[0].text))
    assert (row["hid"], row["twice"], row["thrice"]) == (7, 2, 3)
    definition = json.loads(str(source.read(f"{source.uri}/odd").contents[0].text))
    columns = {column["name"]: column for column in definition["columns"]}
    assert columns["hid"]["type"] == "int(11) INVISIBLE"
    assert columns["twice"]["generated"] is columns["thrice"]["generated"] is True
    assert "generated" not in columns["at"]


def test_a_default_null_differs_from_the_text_null(mariadb: MariaDBServer, publish: Callable[..., Database]) -> None:
    name = mariadb.database("CREATE TABLE t (a TEXT, b TEXT DEFAULT NULL, c VARCHAR(9) DEFAULT 'NULL', d INT NOT NULL)")
    source = publish(mariadb.url(name), label="t")
    columns = json.loads(str(source.read(f"{source.uri}/t").contents[0].text))["columns"]
    assert [column.get("default") for column in columns] == [None, None, "'NULL'", None]


def test_the_text_null_is_a_default_in_mysql() -> None:
    """Bug: it was taken as no default, as in MariaDB. MySQL does not quote texts."""
    columns = [("a", None), ("b", "NULL"), ("c", "")]

    def fetch(statement: str) -> list[tuple[str | None, ...]]:
        if "information_schema.TABLES" in statement:
            return [("shop", "t", "BASE TABLE", "")]
        if "information_schema.COLUMNS" in statement:
            return [
                ("shop", "t", name, "varchar", "varchar(9)", "YES", default, "", "", "9", "select")
                for name, default in columns
            ]
        return []

    (table,) = read_catalogue(fetch, "shop", mariadb=False).tables.values()
    assert [(column.name, column.default) for column in table.columns] == columns


def test_an_account_sees_only_the_columns_that_it_may_read(
    mariadb: MariaDBServer, publish: Callable[..., Database]
) -> None:
    name = mariadb.database("CREATE TABLE people (id INT PRIMARY KEY, name TEXT, pay INT); CREATE TABLE hidden (x INT)")
    mariadb.run(
        f"INSERT INTO people VALUES (1, 'Ada', 9); CREATE USER some@localhost IDENTIFIED BY '{PASSWORD}'; "
        f"GRANT SELECT (id, name) ON {name}.people TO some@localhost", name,
    )  # fmt: skip
    source = publish(mariadb.url(name, "some"), label="t")
    assert [resource.name for resource in source.page(None, 10)[0][1:]] == ["people"]
    assert source.read(f"{source.uri}/people/rows").contents[0].text == '{"id":1,"name":"Ada"}\n'
    for path in ("hidden", "hidden/rows", "people/rows/1/pay"):
        with pytest.raises(ResourceNotFound):
            source.read(f"{source.uri}/{path}")


def test_a_table_that_an_account_may_only_write_is_not_shown(
    mariadb: MariaDBServer, publish: Callable[..., Database]
) -> None:
    """A bug: it was listed without columns, and its rows could not be read."""
    name = mariadb.database("CREATE TABLE notes (id INT PRIMARY KEY); CREATE TABLE inbox (id INT PRIMARY KEY)")
    mariadb.run(
        f"CREATE USER sender@localhost IDENTIFIED BY '{PASSWORD}'; GRANT SELECT ON {name}.notes TO sender@localhost; "
        f"GRANT INSERT ON {name}.inbox TO sender@localhost"
    )
    source = publish(mariadb.url(name, "sender"), label="t")
    assert [resource.name for resource in source.page(None, 10)[0][1:]] == ["notes"]
    for path in ("inbox", "inbox/rows"):
        with pytest.raises(ResourceNotFound):
            source.read(f"{source.uri}/{path}")


def test_a_table_that_is_dropped_or_altered_is_noticed(orders: tuple[Database, Callable[[str], str]]) -> None:
    source, run = orders
    assert source.read(f"{source.uri}/orders/rows/3").contents
    run("ALTER TABLE orders DROP COLUMN word, ADD COLUMN note TEXT")
    assert '"note":null' in str(source.read(f"{source.uri}/orders/rows?id=3").contents[0].text)
    run("DROP TABLE orders")
    with pytest.raises(ResourceNotFound):
        source.read(f"{source.uri}/orders/rows")
    with pytest.raises((InternalError, ResourceNotFound)):
        source.read(f"{source.uri}/paid/rows")


def test_a_view_that_would_write_is_not_shown(mariadb: MariaDBServer, publish: Callable[..., Database]) -> None:
    """The view has the rights of its owner, but it cannot be opened in a read-only transaction."""
    name = mariadb.database(
        "CREATE TABLE log (n INT);\nDELIMITER //\n"
        "CREATE FUNCTION note() RETURNS INT MODIFIES SQL DATA BEGIN INSERT INTO log VALUES (1); RETURN 1; END//\n"
        "DELIMITER ;\nCREATE VIEW noting AS SELECT note() AS n"
    )
    source = publish(mariadb.url(name), label="t")
    assert [resource.name for resource in source.page(None, 10)[0][1:]] == ["log"]
    with pytest.raises(ResourceNotFound):
        source.read(f"{source.uri}/noting/rows")
    with pytest.raises(QueryRefused, match="READ ONLY transaction"):
        source.query("SELECT * FROM noting")
    assert mariadb.run("SELECT count(*) FROM log", name) == "0\n"


def test_a_failed_connection_is_reported_with_its_reason_and_without_the_password(
    mariadb: MariaDBServer, publish: Callable[..., Database], monkeypatch: pytest.MonkeyPatch
) -> None:
    name = mariadb.database(SHOP)
    for url, message in (
        (mariadb.url(name, password="not-hush"), "Access denied"),
        (mariadb.url("test_none"), "Unknown database"),
        (mariadb.url("mysql"), "Access denied"),
        (f"mysql://reader:{PASSWORD}@127.0.0.1:9/shop", "cannot be reached"),
        (f"mysql://reader:{PASSWORD}@localhost/shop?unix_socket=/nowhere", "cannot be reached"),
    ):
        source = publish(url, label="shop")
        for read in (lambda: source.read(f"{source.uri}/orders/rows"), lambda: source.page(None, 10)):  # noqa: B023
            with pytest.raises(DatabaseUnreachable, match=message) as caught:
                read()
            assert "hush" not in str(caught.value)
        assert message in source.describe()
        assert "hush" not in f"{source!r} {source.describe()} {source.location}"
    monkeypatch.setenv("MYSQL_PWD", PASSWORD)
    assert publish(mariadb.url(name, password=""), label="shop").page(None, 10)[0]
    monkeypatch.setenv("MYSQL_PWD", "wrong")
    assert publish(mariadb.url(name), label="shop").page(None, 10)[0]


def test_a_read_from_a_suspended_server_times_out_and_later_reads_succeed(
    mariadb: MariaDBServer, publish: Callable[..., Database]
) -> None:
    source = publish(mariadb.url(mariadb.database(SHOP)), label="shop", seconds=2)
    uri = f"{source.uri}/customers/rows"
    source.read(uri)
    began = time.monotonic()
    try:
        mariadb.suspend()
        with pytest.raises(InternalError):
            source.read(uri)
    finally:
        mariadb.resume()
    assert time.monotonic() - began < 40
    assert "Ada" in str(source.read(uri).contents[0].text)


def test_connections_that_the_server_closed_are_replaced(
    mariadb: MariaDBServer, publish: Callable[..., Database]
) -> None:
    source = publish(mariadb.url(mariadb.database(SHOP)), label="shop")
    for _ in range(3):
        assert "Ada" in str(source.read(f"{source.uri}/customers/rows").contents[0].text)
        for thread in mariadb.run("SELECT id FROM information_schema.PROCESSLIST WHERE user = 'reader'").split():
            mariadb.run(f"KILL {thread}")


def test_the_number_of_open_connections_is_limited(mariadb: MariaDBServer, publish: Callable[..., Database]) -> None:
    from concurrent.futures import ThreadPoolExecutor

    source = publish(mariadb.url(mariadb.database(SHOP)), label="shop", connections=2)
    with ThreadPoolExecutor(12) as threads:
        list(threads.map(lambda _: source.read(f"{source.uri}/customers/rows"), range(60)))
    count = mariadb.run(
        "SELECT count(*) FROM information_schema.PROCESSLIST WHERE db = DATABASE()", source.engine.database
    )
    assert int(count) <= 2 + 1  # plus the connection of this test


def test_every_write_changes_the_version_of_a_table_in_any_storage_engine(
    mariadb: MariaDBServer, publish: Callable[..., Database]
) -> None:
    """UPDATE_TIME counts seconds: of two writes within one second, it shows only the first."""
    for engine in ("InnoDB", "MyISAM", "Aria"):
        name = mariadb.database(
            f"CREATE TABLE many (id INT PRIMARY KEY, n INT) ENGINE {engine}; CREATE TABLE other (id INT PRIMARY KEY); "
            "INSERT INTO many SELECT seq, 0 FROM seq_1_to_3000"
        )
        source = publish(mariadb.url(name), label="t")
        uri = f"{source.uri}/many/rows"
        versions = [source.version(uri)]
        for number in range(1, 4):
            mariadb.run(f"UPDATE many SET n = {number} WHERE id = 2500", name)
            versions.append(source.version(uri))
        assert len(set(versions)) == 4, engine
        is_old = "SELECT SLEEP(0.1), UPDATE_TIME < NOW() - INTERVAL 5 SECOND FROM information_schema.TABLES WHERE "
        is_old += f"TABLE_SCHEMA = '{name}' AND TABLE_NAME = 'many'"
        # a recent UPDATE_TIME is not trusted
        wait_until(lambda query=is_old: mariadb.run(query).split()[1] != "0", "the last write is old")  # type: ignore[misc]
        version = source.version(uri)
        mariadb.run("INSERT INTO other VALUES (1)", name)
        assert source.version(uri) == version, engine


def test_a_tcp_connection_is_encrypted_and_verified_as_ssl_mode_requires(
    tmp_path: Path, publish: Callable[..., Database], mariadb: MariaDBServer
) -> None:
    """The modes are those of MySQL's clients. A certificate of another authority or name is refused."""
    for name in ("good", "bad"):
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={name}.test",
             "-addext", "subjectAltName=DNS:localhost", "-keyout", f"{tmp_path}/{name}.key",
             "-out", f"{tmp_path}/{name}.pem"], check=True, capture_output=True,
        )  # fmt: skip
    server = MariaDBServer(f"--ssl-cert={tmp_path}/good.pem", f"--ssl-key={tmp_path}/good.key")
    try:
        database = server.database(SHOP)
        ciphers: dict[str, str] = {}
        for host, query in (
            ("127.0.0.1", "ssl_mode=DISABLED"), ("127.0.0.1", ""), ("127.0.0.1", "ssl_mode=required"),
            ("127.0.0.1", f"ssl_ca={tmp_path}/good.pem"),
            ("127.0.0.1", f"ssl-mode=VERIFY_CA&ssl-ca={tmp_path}/good.pem"),
            ("localhost", f"ssl_mode=VERIFY_IDENTITY&ssl_ca={tmp_path}/good.pem"),
        ):  # fmt: skip
            source = publish(f"mysql://reader:{PASSWORD}@{host}:{server.port}/{database}?{query}", label="shop")
            assert "Ada" in str(source.read(f"{source.uri}/customers/rows").contents[0].text), query
            connection = source.engine._pool.connect()
            with connection.dbapi_connection.cursor() as cursor:
                cursor.execute("SHOW STATUS LIKE 'Ssl_cipher'")
                ciphers[query] = cursor.fetchone()[1]
            connection.close()
        assert [bool(cipher) for cipher in ciphers.values()] == [False, True, True, True, True, True]
        for host, query in (
            ("127.0.0.1", f"ssl_ca={tmp_path}/bad.pem"),
            ("127.0.0.1", f"ssl_mode=VERIFY_IDENTITY&ssl_ca={tmp_path}/good.pem"),
            ("localhost", "ssl_mode=VERIFY_IDENTITY"),
        ):
            source = publish(f"mysql://reader:{PASSWORD}@{host}:{server.port}/{database}?{query}", label="shop")
            with pytest.raises(DatabaseUnreachable, match="certificate"):
                source.read(f"{source.uri}/customers/rows")
        source = publish(f"mysql://reader:x@localhost/{database}?ssl_ca=/nowhere.pem", label="shop")
        with pytest.raises(DatabaseUnreachable, match=r"/nowhere\.pem cannot be read as PEM"):
            source.read(f"{source.uri}/customers/rows")
    finally:
        server.close()
    plain = f"mysql://reader:{PASSWORD}@127.0.0.1:{mariadb.port}/{mariadb.database(SHOP)}?ssl_mode=REQUIRED"
    source = publish(plain, label="shop")
    with pytest.raises(DatabaseUnreachable, match="SSL is required"):
        source.read(f"{source.uri}/customers/rows")


def test_the_error_for_a_missing_driver_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    from wharfinger.errors import MissingExtra
    from wharfinger.sources import sql

    monkeypatch.setitem(sys.modules, "pymysql", None)
    with pytest.raises(MissingExtra, match=r"wharfinger\[sql\]"):
        sql("mysql://me@db/shop")
