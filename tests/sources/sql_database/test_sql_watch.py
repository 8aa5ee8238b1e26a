"""Changes in a database are reported soon, by the cheapest means that the database offers."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.waiting import wait_until
from wharfinger.errors import Overloaded
from wharfinger.sources.sql_database import Database
from wharfinger.sources.sql_database.database_engine import DatabaseUnreachable
from wharfinger.sources.sql_database.postgres_notify import NotifyListener
from wharfinger.sources.sql_database.sql_watch import TOKEN_SECONDS, SqlWatch
from wharfinger.testing.source_suite.driver import ChangeRecorder

from .conftest import SHOP, PostgresServer, Shop, postgres_folder


def watch(source: Database, recorder: ChangeRecorder, *uris: str | None) -> None:
    for uri in uris:
        if uri is not None:
            source.stat(uri)
        source.watch(uri, recorder)


def test_a_change_is_reported_only_for_resources_whose_content_changed(shop: Shop, recorder: ChangeRecorder) -> None:
    rows = [f"{shop.top}/orders/rows", f"{shop.top}/customers/rows", f"{shop.top}/orders", f"{shop.top}/orders/rows/2"]
    watch(shop.source, recorder, *rows, None)
    for statement, expected in (
        ("UPDATE orders SET pieces = 50 WHERE id = 2", {rows[0], rows[3]}),
        ("UPDATE orders SET pieces = 51 WHERE id = 3", {rows[0]}),
        ("INSERT INTO customers VALUES (4, 'Di', 'York')", {rows[1]}),
        ("CREATE TABLE cargo (id INTEGER PRIMARY KEY)", {None}),
        ("ALTER TABLE orders ADD COLUMN note TEXT", {rows[0], rows[2], rows[3]}),
    ):
        shop.run(statement)
        recorder.wait_for(*expected)
        time.sleep(0.4)  # time for a wrong notification to arrive
        assert set(recorder.changes) <= expected, statement
        recorder.changes.clear()


def test_a_burst_of_changes_is_reported_a_few_times_and_after_the_last_change(
    shop: Shop, recorder: ChangeRecorder
) -> None:
    """A client that reads after the last notification sees the last of 1,000 changes."""
    uri = f"{shop.top}/orders/rows"
    texts: list[str] = []

    def read(changed: str | None) -> None:
        with suppress(DatabaseUnreachable, Overloaded):  # a writer has the DuckDB file open, or the SQLite file locked
            texts.append(str(shop.source.read(uri).contents[0].text))
        recorder(changed)

    shop.source.stat(uri)
    shop.source.watch(uri, read)
    updates = [f"UPDATE orders SET pieces = {number} WHERE id = 2;" for number in range(1_001, 2_001)]
    began = time.monotonic()
    if shop.source.engine.dialect == "SQLite":
        shop.run("PRAGMA synchronous = OFF")  # a thousand waits for a busy disk would take most of a minute
        for update in updates:
            shop.run(update)
    else:
        commit = "" if shop.source.engine.dialect == "DuckDB" else "COMMIT;"
        shop.run("".join(f"{update}{commit}" for update in updates))
    wait_until(lambda: texts and '"pieces":2000' in texts[-1], "the last change is read")
    assert len(texts) < max(100, 2 * (time.monotonic() - began) / TOKEN_SECONDS)  # a busy machine writes for longer


def test_writes_of_another_process_are_reported(
    tmp_path: Path, publish: Callable[..., Database], recorder: ChangeRecorder
) -> None:
    """This holds for both kinds of SQLite journals."""
    for journal in ("DELETE", "WAL"):
        path = tmp_path / f"{journal}.db"
        with sqlite3.connect(path) as writer:
            writer.execute(f"PRAGMA journal_mode = {journal}")
            writer.executescript(SHOP)
        writer.close()
        source = publish(f"sqlite:///{path}")
        uri = f"{source.uri}/orders/rows"
        watch(source, recorder, uri)
        script = f"import sqlite3; c = sqlite3.connect({str(path)!r}); c.execute('DELETE FROM orders'); c.commit()"
        subprocess.run([sys.executable, "-c", script], check=True)
        recorder.wait_for(uri)
        assert source.read(uri).contents[0].text == ""


def test_nothing_is_kept_of_a_uri_that_is_unwatched_while_it_is_read(sqlite_shop: Shop) -> None:
    """A bug: its version was kept, for each such URI."""
    began, unwatched, later = threading.Event(), threading.Event(), threading.Event()

    def version(uri: str | None) -> str:
        (began if uri == "first" else later).set()
        assert unwatched.wait(5)
        return "version"

    watches = SqlWatch("shop", sqlite_shop.source.engine, version)
    watches.watch("first", lambda _: None)
    assert began.wait(5)
    watches.watch("second", lambda _: None)
    watches.unwatch("first")
    unwatched.set()
    assert later.wait(10)
    assert "first" not in watches._versions
    watches.close()


def test_a_write_to_a_partition_changes_the_version(postgres: PostgresServer, publish: Callable[..., Database]) -> None:
    """The row is not in the first window. A bug: only writes to the partitioned table itself were counted."""
    name = postgres.database(
        "CREATE TABLE t (id int PRIMARY KEY, n int) PARTITION BY RANGE (id);"
        "CREATE TABLE part PARTITION OF t FOR VALUES FROM (0) TO (10000);"
        "INSERT INTO t SELECT n, n FROM generate_series(1, 3000) n"
    )
    source = publish(postgres.url(name, "reader"), label="t")
    uri = "postgres://t/public/t/rows"
    version = source.version(uri)
    postgres.run("UPDATE t SET n = 0 WHERE id = 2500", name)
    wait_until(lambda: source.version(uri) != version, "a new version of the window")


def test_a_replaced_file_is_reported(sqlite_shop: Shop, tmp_path: Path, recorder: ChangeRecorder) -> None:
    """Another file is moved over it. No connection may keep the old file open."""
    uri = f"{sqlite_shop.top}/orders/rows"
    watch(sqlite_shop.source, recorder, uri)
    other = tmp_path / "other.db"
    writer = sqlite3.connect(other)
    writer.executescript(SHOP + "DELETE FROM orders WHERE id < 3;")
    writer.close()
    other.rename(tmp_path / "shop.db")
    recorder.wait_for(uri)
    assert sqlite_shop.source.read(uri).contents[0].text == '{"id":3,"customer":3,"pieces":7}\n'


TRIGGERS = """
CREATE FUNCTION notify_shop() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN PERFORM pg_notify('shop', TG_TABLE_NAME); RETURN NULL; END $$;
CREATE TRIGGER notify_shop AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON orders
  FOR EACH STATEMENT EXECUTE FUNCTION notify_shop();
CREATE TABLE many (id int PRIMARY KEY, word text);
INSERT INTO many SELECT n, 'word' FROM generate_series(1, 5000) n;
CREATE TRIGGER notify_shop AFTER UPDATE ON many FOR EACH STATEMENT EXECUTE FUNCTION notify_shop();
ANALYZE;
"""


def test_a_channel_reports_a_change_in_the_middle_of_a_large_table(
    postgres: PostgresServer, publish: Callable[..., Database], recorder: ChangeRecorder
) -> None:
    """Nothing else would report it. The source listens again after the connection is lost."""
    name = postgres.database(SHOP + TRIGGERS)
    postgres.run(f"ALTER DATABASE {name} SET track_counts = off")  # the counters would report it some seconds later
    source = publish(postgres.url(name, "reader"), label="shop", notify="shop")
    assert "watched by LISTEN shop" in source.describe()
    uri = f"{source.uri}/public/many/rows"
    watch(source, recorder, uri)
    listeners = f"SELECT count(*) FROM pg_stat_activity WHERE datname = '{name}' AND query LIKE 'LISTEN%'"
    wait_until(lambda: postgres.run(listeners)[0][0] == 1, "the source listens")
    time.sleep(0.5)
    recorder.changes.clear()
    for _ in range(2):
        for number in range(3):
            postgres.run(f"UPDATE many SET word = 'other{number}' WHERE id = 4000", name)
            recorder.wait_for(uri)
        terminate = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'reader'"
        postgres.run(f"{terminate} AND datname = '{name}'")
        wait_until(lambda: postgres.run(listeners)[0][0] == 1, "the source listens again")
        time.sleep(0.5)
        recorder.changes.clear()
    source.unwatch(uri)
    wait_until(lambda: postgres.run(listeners)[0][0] == 0, "the source stops listening")


def test_a_channel_is_listened_to_although_the_first_connection_ends_before_listen(
    postgres: PostgresServer, caplog: pytest.LogCaptureFixture
) -> None:
    """The server may also refuse LISTEN itself, as a standby does. The failures are logged once."""
    connections = 0

    async def connect() -> Any:
        import asyncpg

        nonlocal connections
        connections += 1
        connection = await asyncpg.connect(postgres.url())
        if connections < 3:
            await connection.close()
        return connection

    async def listen() -> None:
        changed = asyncio.Event()
        listener = NotifyListener("shop", connect, "postgresql://shop")
        listening = asyncio.ensure_future(listener.run(changed.set))
        try:
            async with asyncio.timeout(40):
                await changed.wait()
        finally:
            listening.cancel()

    asyncio.run(listen())
    logged = [record.message for record in caplog.records if record.name == "wharfinger.sources"]
    assert logged == ["postgresql://shop sends no notifications now; retrying: InterfaceError"]


def test_rows_appended_to_a_large_table_are_reported_without_a_channel(
    postgres: PostgresServer, publish: Callable[..., Database], recorder: ChangeRecorder
) -> None:
    """New rows change the last key. Other changes are seen in counters, which PostgreSQL updates after some seconds."""
    name = postgres.database(SHOP + TRIGGERS)
    source = publish(postgres.url(name, "reader"), label="shop")
    uri = f"{source.uri}/public/many/rows"
    watch(source, recorder, uri)
    postgres.run("INSERT INTO many VALUES (6000, 'last')", name)
    recorder.wait_for(uri)
    postgres.run("UPDATE many SET word = 'other' WHERE id = 4000", name)
    recorder.wait_for(uri)


def test_a_stopped_server_is_named_and_changes_after_its_restart_are_reported(
    publish: Callable[..., Database], recorder: ChangeRecorder
) -> None:
    """The error contains the host, but not the password."""
    with postgres_folder() as folder:
        server = PostgresServer(folder)
        server.run(SHOP.replace("CREATE VIEW", "CREATE ROLE reader LOGIN PASSWORD 'hush-hush'; CREATE VIEW"))
        server.run("GRANT pg_read_all_data TO reader")
        source = publish(server.url("postgres", "reader", "hush-hush"), label="shop")
        uri = f"{source.uri}/public/orders/rows"
        watch(source, recorder, uri)
        server.server.cleanup()
        with pytest.raises(DatabaseUnreachable, match="localhost/postgres cannot be reached") as caught:
            source.read(uri)
        assert "hush" not in str(caught.value)
        assert "cannot be reached" in source.describe()
        restarted = PostgresServer(folder)
        try:
            assert str(source.read(uri).contents[0].text).count("\n") == 3
            server.run("DELETE FROM orders")
            recorder.wait_for(uri)
        finally:
            asyncio.run(source.close())
            restarted.server.cleanup()
