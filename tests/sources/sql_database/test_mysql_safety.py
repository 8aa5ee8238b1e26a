"""Statements of callers on MariaDB: they can only read, within limits, and not with a dangerous account."""

from __future__ import annotations

import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.waiting import wait_until
from wharfinger.sources.sql_database import Database
from wharfinger.sources.sql_database.database_engine import DatabaseUnreachable, QueryRefused
from wharfinger.sources.sql_database.mysql import _Statement
from wharfinger.sources.sql_database.mysql_safety import AccountRefused, check_account, check_statement, writes

from .conftest import SHOP
from .mariadb_server import PASSWORD, MariaDBServer

FUNCTIONS = """
DELIMITER //
CREATE FUNCTION note() RETURNS INT MODIFIES SQL DATA BEGIN INSERT INTO customers VALUES (9, 'Eve', ''); RETURN 1; END//
DELIMITER ;
CREATE TABLE `odd (x)` (`a b` INT);
"""


@pytest.fixture
def shop(mariadb: MariaDBServer, publish: Callable[..., Database]) -> Database:
    return publish(mariadb.url(mariadb.database(SHOP + FUNCTIONS)), label="shop", seconds=5)


ALLOWED_STATEMENTS = [
    "SELECT 1",
    " ( SELECT 1 ) ; ",
    "SELECT 1 ; ; -- a ; 'b\n; /* ; */",
    "select id, count(*) over (partition by town) from customers where id in (1, 2) and not (id = 3) order by (id)",
    "WITH q (a, b) AS (SELECT id, name FROM customers), r AS (SELECT 2) SELECT * FROM q, r",
    "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL (SELECT i + 1 FROM n WHERE i < 5)) SELECT * FROM n",
    "VALUES (1, 2), (3, 4)",
    "SELECT 'INTO; sleep(1)', \"DELETE\", `a b` FROM `odd (x)`",
    "SELECT 1 -- INTO sleep(1)\n, 2 # DELETE\n /* ; UPDATE */",
    "SELECT CAST('1.5' AS DECIMAL(10, 2)), CONVERT('x' USING utf8mb4), DATE_ADD(NOW(), INTERVAL (1) DAY), IF(1, 2, 3)",
    "SELECT JSON_EXTRACT('{\"a\": 1}', '$.a'), GROUP_CONCAT(id SEPARATOR ';'), TRIM(BOTH 'x' FROM ('x')) FROM orders",
    'SELECT "a\\", SLEEP(1), "',
    "SELECT '\\', SLEEP(1) -- '",
    "SELECT CASE WHEN (id = 1) THEN (2) ELSE (3) END FROM customers JOIN orders USING (id) WHERE EXISTS (SELECT 1)",
    "SELECT * FROM (SELECT 1 AS a) AS q WHERE a BETWEEN (0) AND (2) UNION ALL (SELECT 2) EXCEPT (SELECT 3)",
    "SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE()",
    "SELECT `id` FROM customers WHERE name LIKE ('%a') OR id = 5 MOD (3)",
    "SELECT _utf8mb4'x', x'41', b'1', 0x41, 1e3, .5, N'n'",
    "SELECT REPLACE('a', 'a', 'b'), INSERT('abc', 1, 1, 'x'), TRUNCATE(1.5, 0), LEFT('abc', 2)",
]
REFUSED_STATEMENTS = [
    "", ";", "DELETE FROM customers", "INSERT INTO customers VALUES (9, 'x', '')", "SET @a = 1", "CALL p()",
    "UPDATE customers SET id = 1", "REPLACE INTO customers VALUES (1, 'x', '')", "TRUNCATE customers",
    "DROP TABLE customers", "CREATE TABLE x (i INT)", "ALTER TABLE customers ADD x INT", "GRANT ALL ON *.* TO reader",
    "LOAD DATA LOCAL INFILE '/etc/passwd' INTO TABLE customers", "LOAD DATA INFILE '/etc/passwd' INTO TABLE customers",
    "HANDLER customers OPEN", "DO SLEEP(1)", "KILL 1", "SHUTDOWN", "FLUSH TABLES", "LOCK TABLES customers WRITE",
    "SHOW GRANTS", "SHOW PROCESSLIST", "EXECUTE IMMEDIATE 'DELETE FROM customers'", "PREPARE x FROM 'SELECT 1'",
    "SET STATEMENT max_statement_time=0 FOR SELECT 1", "BEGIN NOT ATOMIC SELECT 1; END", "USE mysql", "COMMIT",
    "WITH q AS (SELECT 1) DELETE FROM customers", "WITH q AS (SELECT 1) UPDATE customers SET id = 1",
    "SELECT 1; DELETE FROM customers", "SELECT 1; SELECT 2", "SELECT 1 INTO OUTFILE '/tmp/x'",
    "SELECT 1 INTO DUMPFILE '/tmp/x'", "SELECT 1 INTO @a", "SELECT * FROM customers FOR UPDATE",
    "SELECT * FROM customers LOCK IN SHARE MODE", "SELECT * FROM customers FOR SHARE", "SELECT @a := 1",
    "SELECT @@datadir",
    "SELECT * FROM customers PROCEDURE ANALYSE()", "SELECT SLEEP(1)", "SELECT sLeEp /* */ (1)", "SELECT sleep\n(1)",
    "SELECT BENCHMARK(1, 1)", "SELECT GET_LOCK('a', 1)", "SELECT RELEASE_ALL_LOCKS()",
    "SELECT LOAD_FILE('/etc/passwd')",
    "SELECT MASTER_POS_WAIT('a', 1)", "SELECT note()", "SELECT `note`()", "SELECT sys_exec('id')", "SELECT `sleep`(1)",
    "SELECT shop.note()", "SELECT `mysql`.note()", "SELECT (note())", "SELECT q(a), note() AS (b)", "SELECT NEXTVAL(s)",
    "SELECT NEXT VALUE FOR s", "SELECT SETVAL(s, 1)", "SELECT /*! SLEEP(1) */", "SELECT /*!50000 1 INTO @a */",
    "SELECT /*M! 1 */", "SELECT /*+ SET_VAR(max_execution_time=0) */ 1", "SELECT * FROM mysql.global_priv",
    "SELECT * FROM `MySQL` . `user`", "SELECT * FROM performance_schema.threads", "SELECT * FROM sys.session",
    "SELECT * FROM information_schema.PROCESSLIST", "SELECT 1 -- \nINTO @a", "SELECT 1 --\u00a0, SLEEP(1)", "SELECT '",
    "SELECT 1 --\x01\n, SLEEP(1)", "SELECT `a", "SELECT /* ", "SELECT 1 \0", "ſELECT 1",
    "SELECT _gbk'\\'' , SLEEP(1) -- '", "SELECT 'a''', SLEEP(1), '", "EXPLAIN SELECT SLEEP(1)",
    "SELECT 1e1note()", "SELECT x.note (1)", "SELECT $note(1)", "SELECT 1.note()", "FORMAT=JSON SELECT 1",
]  # fmt: skip


@pytest.mark.parametrize("statement", ALLOWED_STATEMENTS)
def test_a_statement_that_only_reads_is_run(statement: str, shop: Database) -> None:
    check_statement(statement)
    assert shop.query(statement).columns
    assert shop.query(statement, explain=True).columns == ["plan"]


@pytest.mark.parametrize("statement", REFUSED_STATEMENTS)
def test_a_statement_that_may_do_more_is_refused_before_it_is_sent(statement: str, shop: Database) -> None:
    for explain in (False, True):
        with pytest.raises(QueryRefused) as caught:
            shop.query(statement, explain=explain)
        assert "cannot run it" not in str(caught.value)
    if not statement.upper().startswith("EXPLAIN"):
        with pytest.raises(QueryRefused):
            check_statement(statement)


@pytest.mark.parametrize("number", ["1.5", ".5", "1.", "1e5", "1.e5", "1.5E5", "1e+5"])
@pytest.mark.parametrize(
    "clause", ["INTO OUTFILE '/tmp/x'", "into dumpfile '/tmp/x'", "FOR SHARE", "LOCK IN SHARE MODE"]
)
def test_a_refused_word_directly_after_a_number_is_refused(number: str, clause: str) -> None:
    """MariaDB ends the number before the word, so no space is needed."""
    with pytest.raises(QueryRefused):
        check_statement(f"SELECT {number}{clause}")
    check_statement(f"SELECT {number}, {number}AS x")


def test_the_session_is_read_only(shop: Database, mariadb: MariaDBServer) -> None:
    """The account of this test may write, and its statements are not checked."""
    database = shop.engine.database
    mariadb.run(
        f"CREATE OR REPLACE USER writer@'%' IDENTIFIED BY '{PASSWORD}'; GRANT ALL ON {database}.* TO writer@'%'"
    )
    import pymysql

    from wharfinger.sources.sql_database import sql

    source = sql(mariadb.url(database, "writer"), label="shop")
    assert "account writer@%, which may also write" in source.describe()
    connection = source.engine._pool.connect()
    cursor = connection.dbapi_connection.cursor()
    try:
        for statement in ("DELETE FROM customers", "DROP TABLE customers", "CREATE TABLE x (i INT)", "SELECT note()"):
            with pytest.raises(pymysql.err.Error, match="READ ONLY transaction"):
                cursor.execute(statement)
        with pytest.raises(pymysql.err.ProgrammingError):
            cursor.execute("SELECT 1; DELETE FROM customers")  # the connection allows only one statement per call
        with pytest.raises((pymysql.err.Error, RuntimeError)):
            cursor.execute("LOAD DATA LOCAL INFILE '/etc/passwd' INTO TABLE customers")
    finally:
        connection.invalidate()
        source.engine.close()
    assert mariadb.run("SELECT count(*) FROM customers", database) == "3\n"


@pytest.mark.parametrize(
    ("statement", "parameters", "rows"),
    [
        ("SELECT ?, '?', `a b`, /* ? */ ? -- ?\n FROM `odd (x)` RIGHT JOIN (SELECT 1) AS q ON TRUE", ["x'; --\\", 2],
         [["x'; --\\", "?", None, 2]]),
        ("SELECT ?, ?, ?, ?", [None, True, 1.5, 2**63], [[None, 1, 1.5, "9223372036854775808"]]),
        ("SELECT name FROM customers WHERE name = ? OR name LIKE '%o'", ["Ada"], [["Ada"], ["Bo"]]),
        ("SELECT LENGTH(?)", ["%s %(a)s 🦀\0"], [[14]]),
    ],
)  # fmt: skip
def test_question_marks_in_strings_names_and_comments_are_not_parameters(
    statement: str, parameters: list[object], rows: list[list[object]], shop: Database
) -> None:
    assert shop.query(statement, parameters).rows == rows


@pytest.mark.parametrize("parameters", [[], [1, 2], {"a": 1}, [[1]], [{"a": 1}], [float("inf")]])
def test_invalid_parameters_are_refused(parameters: object, shop: Database) -> None:
    with pytest.raises(QueryRefused):
        shop.query("SELECT ?", parameters)  # type: ignore[arg-type]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(value=st.text(max_size=40), noise=st.text(alphabet="'\"`\\/*-#? \nax", max_size=12))
def test_any_text_is_returned_unchanged_as_a_parameter(value: str, noise: str, shop: Database) -> None:
    """UTF-8 cannot encode surrogates. Quotes and comment marks before the parameter do not change it."""
    if any("\ud800" <= letter <= "\udfff" for letter in value):
        return
    assert shop.query("SELECT ?", [value]).rows == [[value]]
    quoted = noise.replace("\\", "\\\\").replace("'", "''")
    assert shop.query(f"SELECT '{quoted}', ?", [value]).rows == [[noise, value]]


# Limits

SLOW_STATEMENT = "SELECT count(*) FROM seq_1_to_1000000 AS a, seq_1_to_1000000 AS b WHERE a.seq + b.seq = 3"


def test_a_statement_that_runs_too_long_is_stopped_on_the_server(
    mariadb: MariaDBServer, publish: Callable[..., Database]
) -> None:
    source = publish(mariadb.url(mariadb.database(SHOP)), label="shop", seconds=1)
    began = time.monotonic()
    with pytest.raises(QueryRefused, match="stopped after 1 s"):
        source.query(SLOW_STATEMENT)
    assert time.monotonic() - began < 30
    assert count_running(mariadb, "seq_1_to_1000000") == 0
    assert source.query("SELECT 1").rows == [[1]]


def test_a_statement_that_the_server_does_not_stop_is_killed(
    mariadb: MariaDBServer, publish: Callable[..., Database]
) -> None:
    """MySQL applies its time limit only to some SELECTs, so the source must kill the others."""
    source = publish(mariadb.url(mariadb.database(SHOP)), label="shop", seconds=1)
    source.query("SELECT 1")
    mariadb.run("SET GLOBAL max_statement_time = 0")
    engine = source.engine
    connection = engine._pool.connect()
    with connection.dbapi_connection.cursor() as cursor:
        cursor.execute("SET SESSION max_statement_time = 0")  # the engine does not know that its limit was removed
    connection.close()
    began = time.monotonic()
    with pytest.raises(QueryRefused, match="stopped after 1 s"):
        source.query(SLOW_STATEMENT)
    assert time.monotonic() - began < 30
    assert count_running(mariadb, "seq_1_to_1000000") == 0
    assert source.query("SELECT 1").rows == [[1]]


def count_running(mariadb: MariaDBServer, part: str) -> int:
    """Return the number of running statements that contain `part`."""
    return int(
        mariadb.run(
            f"SELECT count(*) FROM information_schema.PROCESSLIST WHERE info LIKE '%{part}%' AND user <> 'root'"
        )
    )


def test_a_statement_that_has_ended_is_not_killed() -> None:
    """A bug: its timer, or `close()`, could still kill the next statement of the same connection."""
    killed: list[int] = []
    statement = _Statement(7, 1_000, killed.append)
    assert not statement.end()
    statement.kill()
    assert not killed
    running = _Statement(8, 1_000, killed.append)
    running.kill()
    assert running.end()
    assert killed == [8]


@pytest.mark.parametrize("paused", [False, True])
def test_closing_the_source_stops_running_statements(
    paused: bool, mariadb: MariaDBServer, publish: Callable[..., Database]
) -> None:
    """Bugs: a busy server that accepted the connection only after a second did not stop it, and the error was that it
    took longer than its limit."""
    source = publish(mariadb.url(mariadb.database(SHOP)), label="shop", seconds=60)
    errors: list[Exception] = []

    def query() -> None:
        try:
            source.query(SLOW_STATEMENT)
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=query)
    thread.start()
    wait_until(lambda: count_running(mariadb, "seq_1_to_1000000"), "the statement runs")
    began = time.monotonic()
    closing = threading.Thread(target=source.engine.close)
    try:
        if paused:
            mariadb.suspend()
        closing.start()
        closing.join(1.5)
    finally:
        mariadb.resume()
    closing.join()
    thread.join(30)
    assert time.monotonic() - began < 30
    assert "was stopped: the source was closed" in str(errors)
    assert count_running(mariadb, "seq_1_to_1000000") == 0


@pytest.mark.parametrize(("size", "fits"), [(15 << 20, True), (33 << 20, False)])
def test_the_size_of_a_row_is_limited(
    size: int, fits: bool, mariadb: MariaDBServer, publish: Callable[..., Database]
) -> None:
    """Three values are together smaller or larger than the limit. The next statement succeeds."""
    source = publish(mariadb.url(mariadb.database(SHOP)), label="shop")
    statement = f"SELECT REPEAT('x', {size // 3}), REPEAT('y', {size // 3}), REPEAT('z', {size // 3})"
    if fits:
        assert [cell["characters"] for cell in source.query(statement).rows[0]] == [size // 3] * 3
    else:
        with pytest.raises(QueryRefused, match="larger than 32 MiB"):
            source.query(statement)
    assert source.query("SELECT 1").rows == [[1]]


def test_the_rows_and_bytes_of_a_result_are_limited(mariadb: MariaDBServer, publish: Callable[..., Database]) -> None:
    source = publish(mariadb.url(mariadb.database(SHOP)), label="shop")
    answer = source.query("SELECT seq FROM seq_1_to_1000000", limit=3)
    assert (answer.rows, bool(answer.truncated)) == ([[1], [2], [3]], True)
    assert source.query("SELECT seq FROM seq_1_to_3", limit=3).truncated == ""
    began = time.process_time()
    answer = source.query("SELECT REPEAT('x', 1000) FROM seq_1_to_1000000", limit=10_000)
    assert 900 < len(answer.rows) < 1_100
    assert "1,024 KiB" in answer.truncated
    assert time.process_time() - began < 5
    assert source.query("SELECT 1").rows == [[1]]


# The account


@pytest.fixture
def create_account(mariadb: MariaDBServer) -> Iterator[Callable[[str], str]]:
    """Return a function that creates an account with a privilege, and returns the URL of the database for it."""
    name = mariadb.database(SHOP)

    def create(privilege: str) -> str:
        mariadb.run(
            f"CREATE OR REPLACE USER `odd user`@localhost IDENTIFIED BY '{PASSWORD}'; "
            f"GRANT SELECT ON `{name}`.* TO `odd user`@localhost; GRANT {privilege} TO `odd user`@localhost"
        )
        return mariadb.url(name, "odd%20user")

    yield create
    mariadb.run("DROP USER IF EXISTS `odd user`@localhost; DROP ROLE IF EXISTS filer")


@pytest.mark.parametrize("privilege", ["FILE ON *.*", "SUPER ON *.*", "ALL ON *.*", "FILE, SUPER, PROCESS ON *.*"])
def test_an_account_with_access_to_files_is_refused_until_the_privilege_is_revoked(
    privilege: str, create_account: Callable[[str], str], mariadb: MariaDBServer, publish: Callable[..., Database]
) -> None:
    """The error contains the statement that revokes the privilege. The source needs no restart after it."""
    source = publish(create_account(privilege), label="shop")
    for read in (lambda: source.read(f"{source.uri}/customers/rows"), lambda: source.query("SELECT 1")):
        with pytest.raises(DatabaseUnreachable, match=r"odd user@localhost has .*GRANT SELECT, SHOW VIEW ON") as caught:
            read()
    assert "REVOKE" in source.describe()
    mariadb.run(str(caught.value).partition("(")[2].partition(";)")[0])
    assert "Ada" in str(source.read(f"{source.uri}/customers/rows").contents[0].text)


def test_an_account_with_access_to_files_by_a_role_is_refused(
    create_account: Callable[[str], str], mariadb: MariaDBServer, publish: Callable[..., Database]
) -> None:
    url = create_account("PROCESS ON *.*")
    mariadb.run(
        "CREATE ROLE filer; GRANT FILE ON *.* TO filer; GRANT filer TO `odd user`@localhost; "
        "SET DEFAULT ROLE filer FOR `odd user`@localhost"
    )
    source = publish(url, label="shop")
    with pytest.raises(AccountRefused, match="FILE") as caught:
        source.page(None, 10)
    mariadb.run(str(caught.value).partition("(")[2].partition(";)")[0])  # it was revoked from the account, not the role
    assert source.page(None, 10)[0]


@pytest.mark.parametrize(
    ("grants", "privileges"),
    [
        (["GRANT USAGE ON *.* TO `a`@`b` IDENTIFIED BY PASSWORD '*FILE'",
          "GRANT ALL PRIVILEGES ON `shop`.* TO `a`"], ""),
        (["GRANT SELECT, FILE ON *.* TO `a`@`b`"], "FILE"),
        (["GRANT ALL PRIVILEGES ON *.* TO `a`@`b` WITH GRANT OPTION"], "FILE and SUPER"),
        (["GRANT SUPER ON *.* TO 'a'@'b'", "GRANT FILE ON *.* TO 'a'@'b'"], "FILE and SUPER"),
        (["GRANT `file`@`%` TO `a`@`b`", "GRANT SELECT (`file`) ON `shop`.`t` TO `a`@`b`"], ""),
    ],
)  # fmt: skip
def test_dangerous_privileges_are_read_from_the_grants_of_mysql_and_mariadb(grants: list[str], privileges: str) -> None:
    if not privileges:
        check_account("a@b", grants, "shop")
        return
    with pytest.raises(AccountRefused, match=f"a@b has {privileges}:"):
        check_account("a@b", grants, "shop")


@pytest.mark.parametrize(
    ("grants", "expected"),
    [
        (["GRANT SELECT, SHOW VIEW ON `shop`.* TO `a`@`b`"], False),
        (["GRANT SELECT, INSERT ON `shop`.* TO `a`@`b`"], True),
        (["GRANT INSERT ON `other`.* TO `a`@`b`", "GRANT USAGE ON *.* TO `a`@`b`"], False),
        (["GRANT SELECT (`a`, `b`) ON `shop`.`t` TO `a`@`b`"], False),
        (["GRANT SELECT, UPDATE (`a`) ON `shop`.`t` TO `a`@`b`"], True),
        (["GRANT DELETE ON *.* TO `a`@`b`"], True),
        (["GRANT INSERT ON `sh%`.* TO `a`@`b`"], True),
        (["GRANT INSERT ON `sho_`.* TO `a`@`b`"], True),
        ([r"GRANT INSERT ON `sh\%`.* TO `a`@`b`"], False),
        ([r"GRANT INSERT ON `sho\_`.* TO `a`@`b`", "GRANT INSERT ON `sh%`.`orders` TO `a`@`b`"], False),
        (["GRANT INSERT ON `other`.`ON ``shop``.``t``` TO `a`@`b`"], False),
        (["GRANT SELECT ON `shop`.* TO `a`@`b`", "GRANT ALL PRIVILEGES ON `sh%`.* TO `a`@`b`"], False),
        (["GRANT ALL PRIVILEGES ON `shop`.* TO `a`@`b`", "GRANT SELECT ON `sh%`.* TO `a`@`b`"], True),
        (["GRANT SELECT ON `shop`.* TO `a`@`b` WITH GRANT OPTION", "GRANT ALL ON `sh%`.* TO `role`"], True),
        (["GRANT SELECT ON `shop`.* TO `a`@`b`", "GRANT INSERT ON *.* TO `a`@`b`"], True),
        (["GRANT SELECT ON `shop`.* TO `a`@`b`", "GRANT INSERT ON `shop`.`sh_p` TO `a`@`b`"], True),
        (["GRANT SELECT ON `sho_`.* TO `a`@`b`", "GRANT INSERT ON `sh%`.* TO `a`@`b`"], True),
    ],
)
def test_rights_to_write_are_read_from_the_grants(grants: list[str], expected: bool) -> None:
    assert writes(grants, "shop") is expected


def test_rights_to_write_by_a_wildcard_are_reported(
    create_account: Callable[[str], str], mariadb: MariaDBServer, publish: Callable[..., Database]
) -> None:
    url = create_account("SELECT, INSERT ON `test\\_%`.*")
    name = mariadb.run("SELECT max(Db) FROM mysql.db WHERE User = 'odd user' AND Db NOT LIKE '%\\%'").strip()
    mariadb.run(
        f"REVOKE SELECT ON `{name}`.* FROM `odd user`@localhost"
    )  # the most specific grant would be the only one
    assert "which may also write" in publish(url, label="shop").describe()


def test_an_account_is_read_only_if_only_an_overridden_wildcard_lets_it_write(
    create_account: Callable[[str], str], mariadb: MariaDBServer, publish: Callable[..., Database]
) -> None:
    """The server ignores a grant with wildcards if another one names the database."""
    url = create_account("INSERT ON `t%`.*")
    name = mariadb.run("SELECT max(Db) FROM mysql.db WHERE User = 'odd user' AND Db LIKE 'test%'").strip()
    escaped = name.replace("_", "\\_")
    mariadb.run(
        f"GRANT SELECT ON `{escaped}`.* TO `odd user`@localhost; REVOKE SELECT ON `{name}`.* FROM `odd user`@localhost"
    )
    assert "odd user@localhost, read-only" in publish(url, label="shop").describe()
    with pytest.raises(subprocess.CalledProcessError):
        mariadb.run(
            "INSERT INTO customers VALUES (9, 'x', 'y')", name, options=("--user=odd user", f"--password={PASSWORD}")
        )


def test_ctrl_c_stops_a_server_and_its_running_statement(mariadb: MariaDBServer, tmp_path: Path) -> None:
    import sys

    url = mariadb.url(mariadb.database(SHOP))
    script = tmp_path / "serve.py"
    script.write_text(
        "import asyncio\nfrom wharfinger import Client, Server\nfrom wharfinger.sources import resource_tools, sql\n"
        f"server = Server('shop')\nserver.include(sql({url!r}, label='shop', seconds=60))\n"
        "server.include(resource_tools(allow_query=True))\n"
        "async def main():\n    async with Client(server, timeout=60) as client:\n"
        f"        await client.call_tool('query', {{'statement': {SLOW_STATEMENT!r}}})\n"
        "asyncio.run(main())\n"
    )
    process = subprocess.Popen([sys.executable, str(script)], stderr=subprocess.PIPE, text=True)
    try:

        def is_running() -> bool:
            assert process.poll() is None, process.stderr and process.stderr.read()
            return count_running(mariadb, "seq_1_to_1000000") > 0

        wait_until(is_running, "the statement runs")
        process.send_signal(signal.SIGINT)
        process.wait(30)
        wait_until(lambda: not count_running(mariadb, "seq_1_to_1000000"), "the statement is stopped")
    finally:
        process.kill()
        process.communicate()
