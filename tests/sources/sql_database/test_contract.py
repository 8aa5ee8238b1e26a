"""The contract of a source, for SQLite with each of its journals, PostgreSQL, MariaDB and DuckDB."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from wharfinger.sources.sql_database import Database
from wharfinger.testing import SourceContract

from .conftest import SHOP, PostgresServer, write_duckdb
from .mariadb_server import PASSWORD, MariaDBServer

ROW_COUNT = 2_500


class ShopContract(SourceContract):
    """The contract with the shop and a table that is larger than a window."""

    top = ""
    run: Callable[[str], Any]

    @property
    def windowed(self) -> str:  # type: ignore[override]
        return f"{self.top}/many/rows"

    @property
    def missing(self) -> str:  # type: ignore[override]
        return f"{self.top}/nothing"

    def change(self, source: Database) -> str:
        self.number = getattr(self, "number", 0) + 1
        self.run(f"UPDATE orders SET pieces = pieces + {self.number} WHERE id = 2")
        return f"{self.top}/orders/rows"

    def add(self, source: Database) -> str:
        self.added = getattr(self, "added", 0) + 1
        self.run(f"CREATE TABLE cargo_{self.added} (id INTEGER PRIMARY KEY)")
        return f"{self.top}/cargo_{self.added}"

    def whole(self, source: Database) -> str:
        return "".join([f'{{"id":{number},"word":"w{number}"}}\n' for number in range(1, ROW_COUNT + 1)])


def shop_statements(values: str) -> str:
    return f"{SHOP} CREATE TABLE many (id INTEGER PRIMARY KEY, word TEXT); INSERT INTO many {values};"


class TestSQLite(ShopContract):
    journal = "DELETE"

    @pytest.fixture
    def source(self, tmp_path: Path, publish: Callable[..., Database]) -> Iterator[Database]:
        path = tmp_path / "shop.db"
        writer = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        writer.execute(f"PRAGMA journal_mode = {self.journal}")
        numbers = f"WITH RECURSIVE q (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM q LIMIT {ROW_COUNT})"
        writer.executescript(shop_statements(f"{numbers} SELECT n, 'w' || n FROM q"))
        self.run = writer.executescript
        source = publish(f"sqlite:///{path}")
        self.top = source.uri
        yield source
        writer.close()

    def hide(self, source: Database) -> Callable[[], object]:
        path = Path(source.location)
        moved = path.rename(path.with_name("away.db"))
        return lambda: moved.rename(path)


class TestSQLiteWithAWriteAheadLog(TestSQLite):
    journal = "WAL"


class TestPostgres(ShopContract):
    secret = "hush-hush"

    @pytest.fixture
    def source(self, postgres: PostgresServer, publish: Callable[..., Database]) -> Database:
        name = postgres.database(shop_statements(f"SELECT n, 'w' || n FROM generate_series(1, {ROW_COUNT}) n"))
        self.run = lambda statement: postgres.run(statement, name)
        source = publish(postgres.url(name, "reader", "hush-hush"), label="shop")
        self.top = f"{source.uri}/public"
        return source


class TestMariaDB(ShopContract):
    secret = PASSWORD

    @pytest.fixture
    def source(self, mariadb: MariaDBServer, publish: Callable[..., Database]) -> Database:
        name = mariadb.database(shop_statements(f"SELECT seq, CONCAT('w', seq) FROM seq_1_to_{ROW_COUNT}"))
        self.run = lambda statement: mariadb.run(statement, name)
        source = publish(mariadb.url(name), label="shop")
        self.top = source.uri
        return source


class TestDuckDB(ShopContract):
    @pytest.fixture
    def source(self, tmp_path: Path, publish: Callable[..., Database]) -> Database:
        path = tmp_path / "shop.duckdb"
        write_duckdb(path, shop_statements(f"SELECT n, 'w' || n FROM range(1, {ROW_COUNT + 1}) AS q (n)"))
        self.run = lambda statement: write_duckdb(path, statement)
        source = publish(f"duckdb:///{path}")
        self.top = f"{source.uri}/main"
        return source

    def hide(self, source: Database) -> Callable[[], object]:
        path = Path(source.location)
        moved = path.rename(path.with_name("away.duckdb"))
        return lambda: moved.rename(path)
