"""Changes in a database are reported within a second, by the cheapest means that it offers."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from tests.sources.conftest import ChangeRecorder
from wharfinger.sources.sql_database import Database
from wharfinger.sources.sql_database.database_engine import DatabaseUnreachable

from .conftest import SHOP, PostgresServer, Shop


def until(condition: Callable[[], bool], seconds: float = 5) -> bool:
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        if condition():
            return True
        time.sleep(0.01)
    return condition()


def watch(source: Database, recorder: ChangeRecorder, *uris: str | None) -> None:
    for uri in uris:
        if uri is not None:
            source.stat(uri)
        source.watch(uri, recorder)


def test_a_change_is_reported_within_a_second_and_only_for_its_table(shop: Shop, recorder: ChangeRecorder) -> None:
    """By the contents of the rows, and not by the written table."""
    rows = [f"{shop.top}/orders/rows", f"{shop.top}/customers/rows", f"{shop.top}/orders", f"{shop.top}/orders/rows/2"]
    watch(shop.source, recorder, *rows, None)
    for statement, wanted in (
        ("UPDATE orders SET pieces = 50 WHERE id = 2", {rows[0], rows[3]}),
        ("UPDATE orders SET pieces = 51 WHERE id = 3", {rows[0]}),
        ("INSERT INTO customers VALUES (4, 'Di', 'York')", {rows[1]}),
        ("CREATE TABLE cargo (id INTEGER PRIMARY KEY)", {None}),
        ("ALTER TABLE orders ADD COLUMN note TEXT", {rows[0], rows[2], rows[3]}),
    ):
        began = time.monotonic()
        shop.run(statement)
        assert until(lambda wanted=wanted: wanted <= set(recorder.changes)), (statement, recorder.changes)  # type: ignore[misc]
        assert time.monotonic() - began < 5
        time.sleep(0.4)  # no other watcher is notified
        assert set(recorder.changes) == wanted, statement
        recorder.changes.clear()


def test_a_burst_is_reported_a_few_times_and_its_last_state_always(shop: Shop, recorder: ChangeRecorder) -> None:
    """1,000 changes: a client that reads after the last notice sees the last of them."""
    uri = f"{shop.top}/orders/rows"
    seen: list[str] = []

    def read(changed: str | None) -> None:
        with suppress(DatabaseUnreachable):  # a writer has the DuckDB file open
            seen.append(str(shop.source.read(uri).contents[0].text))
        recorder(changed)

    shop.source.stat(uri)
    shop.source.watch(uri, read)
    updates = [f"UPDATE orders SET pieces = {number} WHERE id = 2;" for number in range(1_001, 2_001)]
    if shop.source.engine.dialect == "SQLite":
        for update in updates:
            shop.run(update)
    else:
        commit = "" if shop.source.engine.dialect == "DuckDB" else "COMMIT;"
        shop.run("".join(f"{update}{commit}" for update in updates))
    assert until(lambda: bool(seen) and '"pieces":2000' in seen[-1])
    assert len(seen) < 100


def test_another_process_writes(tmp_path: Path, publish: Callable[..., Database], recorder: ChangeRecorder) -> None:
    """In either journal of SQLite."""
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


def test_a_file_that_is_replaced_is_seen(sqlite_shop: Shop, tmp_path: Path, recorder: ChangeRecorder) -> None:
    """By moving a copy over it; no connection keeps the old file."""
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
CREATE FUNCTION tell() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN PERFORM pg_notify('shop', TG_TABLE_NAME); RETURN NULL; END $$;
CREATE TRIGGER tell AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON orders FOR EACH STATEMENT EXECUTE FUNCTION tell();
CREATE TABLE many (id int PRIMARY KEY, word text);
INSERT INTO many SELECT n, 'word' FROM generate_series(1, 5000) n;
CREATE TRIGGER tell AFTER UPDATE ON many FOR EACH STATEMENT EXECUTE FUNCTION tell();
ANALYZE;
"""


def test_a_channel_reports_a_change_in_the_middle_of_a_large_table(
    postgres: PostgresServer, publish: Callable[..., Database], recorder: ChangeRecorder
) -> None:
    """Nothing else would report it at once. It continues after the listening connection is lost."""
    name = postgres.database(SHOP + TRIGGERS)
    source = publish(postgres.url(name, "reader"), label="shop", notify="shop")
    assert "watched by LISTEN shop" in source.describe()
    uri = f"{source.uri}/public/many/rows"
    watch(source, recorder, uri)
    listens = f"SELECT count(*) FROM pg_stat_activity WHERE datname = '{name}' AND query LIKE 'LISTEN%'"
    assert until(lambda: postgres.run(listens)[0][0] == 1)
    time.sleep(0.5)
    recorder.changes.clear()
    for _ in range(2):
        for number in range(3):
            began = time.monotonic()
            postgres.run(f"UPDATE many SET word = 'other{number}' WHERE id = 4000", name)
            recorder.wait_for(uri, timeout=1)
            assert time.monotonic() - began < 5
        ends = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'reader'"
        postgres.run(f"{ends} AND datname = '{name}'")
        assert until(lambda: postgres.run(listens)[0][0] == 1)
        time.sleep(0.5)
        recorder.changes.clear()
    source.unwatch(uri)
    assert until(lambda: postgres.run(listens)[0][0] == 0), "nobody listens where nobody watches"


def test_rows_appended_to_a_large_table_are_reported_without_a_channel(
    postgres: PostgresServer, publish: Callable[..., Database], recorder: ChangeRecorder
) -> None:
    """By its last key. Changes in its middle are reported by counters, which PostgreSQL updates after some seconds."""
    name = postgres.database(SHOP + TRIGGERS)
    source = publish(postgres.url(name, "reader"), label="shop")
    uri = f"{source.uri}/public/many/rows"
    watch(source, recorder, uri)
    began = time.monotonic()
    postgres.run("INSERT INTO many VALUES (6000, 'last')", name)
    recorder.wait_for(uri)
    assert time.monotonic() - began < 5
    postgres.run("UPDATE many SET word = 'other' WHERE id = 4000", name)
    recorder.wait_for(uri, timeout=15)


def test_a_server_that_went_away_is_named_and_comes_back(
    tmp_path: Path, publish: Callable[..., Database], recorder: ChangeRecorder
) -> None:
    """The error has the host and never the password. Watched resources are reported once it is back."""
    server = PostgresServer(str(tmp_path / "pg"))
    server.run(SHOP.replace("CREATE VIEW", "CREATE ROLE reader LOGIN PASSWORD 'hush-hush'; CREATE VIEW"))
    server.run("GRANT pg_read_all_data TO reader")
    source = publish(server.url("postgres", "reader", "hush-hush"), label="shop")
    uri = f"{source.uri}/public/orders/rows"
    watch(source, recorder, uri)
    postmaster = server.server
    postmaster.cleanup()
    try:
        source.read(uri)
    except Exception as error:
        assert "localhost/postgres cannot be reached" in str(error)
        assert "hush" not in str(error)
    else:
        raise AssertionError("it reads from a server that is not there")
    assert "cannot be reached" in source.describe()
    again = PostgresServer(str(tmp_path / "pg"))
    try:
        assert str(source.read(uri).contents[0].text).count("\n") == 3
        server.run("DELETE FROM orders")
        recorder.wait_for(uri)
    finally:
        asyncio.run(source.close())
        again.server.cleanup()
