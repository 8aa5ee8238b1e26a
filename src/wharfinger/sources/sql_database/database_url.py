"""Creates the source for a database URL."""

from __future__ import annotations

import os
from collections.abc import Iterable
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from wharfinger.source import UnusableSource
from wharfinger.sources.labels import usable_label
from wharfinger.sources.sql_database.database_engine import MIB, QueryBounds
from wharfinger.sources.sql_database.source import Database
from wharfinger.sources.sql_database.sqlite_catalogue import SCHEMA

__all__ = ["sql"]

_ENDINGS = (".db", ".sqlite", ".sqlite3", ".db3", ".duckdb", ".ddb")
_EXAMPLES = "sqlite:///shop.db, postgresql://user@host/db, mysql://user@host/db, or another URL of SQLAlchemy"


def sql(
    url: str,
    *,
    label: str | None = None,
    schemas: Iterable[str] = (),
    notify: str | None = None,
    seconds: float = 10.0,
    cell: int = 2_000,
    size: int = 4 * MIB,
    connections: int = 4,
    read_only_by_role: bool = False,
) -> Database:
    """Publish a database: `server.include(sql("sqlite:///shop.db"))`.

    The database itself ensures that it is only read. The password in the URL does not appear in URIs, messages or logs.

    Args:
        url: `sqlite:///relative.db`, `sqlite:////absolute.db`, `duckdb:///shop.duckdb`,
            `postgresql://user:password@host/database` (with `?host=/folder` for a Unix socket),
            `mysql://user:password@host/database` or `mariadb://…` (with `?unix_socket=/path` for a Unix socket), or
            another URL of SQLAlchemy.
        label: The name in URIs. Default: the name of the file, or the host and the name of the database.
        schemas: Publish only these schemas (PostgreSQL). Default: all that the role may read.
        notify: The channel on which triggers report changes (PostgreSQL, `LISTEN`), in addition to polling.
        seconds: Time after which a statement is stopped.
        cell: Maximum number of characters of one value in a window. A longer value is cut, and its URI is added.
        size: Maximum bytes of a window whose URI states a number of rows.
        connections: Maximum number of statements at the same time.
        read_only_by_role: Confirm that the role in the URL can only read. Required for databases other than SQLite,
            DuckDB, PostgreSQL, MySQL and MariaDB: Wharfinger itself can only prevent writes to these five.

    Raises:
        UnusableSource: the URL cannot be used, the file is missing, or a bound is not more than 0.
        MissingExtra: a library for this database is not installed.
    """
    for name, value in (("seconds", seconds), ("cell", cell), ("size", size), ("connections", connections)):
        if not value > 0:
            raise UnusableSource(f"sql({name}={value}): write more than 0.")
    bounds = QueryBounds(seconds=seconds, cell=cell, size=size, connections=connections)
    scheme = url.partition(":")[0].lower()
    if label is not None:
        usable_label(label)
    if scheme == "sqlite":
        from wharfinger.sources.sql_database.sqlite import SQLite

        path = _path(url, "SQLite", "sqlite:///shop.db, or sqlite:////var/lib/shop.db")
        name = label or _stem(path)
        top = f"sqlite://{_percent_encoded(name)}"
        return Database(SQLite(path, bounds), top=top, label=name, schema=SCHEMA, bounds=bounds)
    if scheme == "duckdb":
        from wharfinger.sources.sql_database.duckdb_database import DuckDBFile

        path = _path(url, "DuckDB", "duckdb:///shop.duckdb, or duckdb:////var/lib/shop.duckdb")
        name = label or _stem(path)
        top = f"duckdb://{_percent_encoded(name)}"
        return Database(DuckDBFile(path, bounds), top=top, label=name, schema=None, bounds=bounds)
    if scheme in ("postgres", "postgresql", "postgresql+asyncpg"):
        from wharfinger.sources.sql_database.postgres import open_postgres

        postgres = open_postgres(url, bounds, tuple(schemas), notify)
        host = quote(postgres.host, safe="[]:")
        top = f"postgres://{_percent_encoded(label) or f'{host}/{_percent_encoded(postgres.database)}'}"
        return Database(postgres, top=top, label=label or postgres.database, schema=None, bounds=bounds)
    if scheme.partition("+")[0] in ("mysql", "mariadb"):
        from wharfinger.sources.sql_database.mysql import open_mysql

        mysql = open_mysql(url, bounds)
        address = _percent_encoded(label) or f"{mysql.host}/{_percent_encoded(mysql.database)}"
        top = f"{scheme.partition('+')[0]}://{address}"
        return Database(mysql, top=top, label=label or mysql.database, schema=mysql.database, bounds=bounds)
    if "://" not in url:
        raise UnusableSource(f"This is not the URL of a database: give {_EXAMPLES}.")
    from wharfinger.sources.sql_database.sqlalchemy_database import open_sqlalchemy

    other = open_sqlalchemy(url, bounds, read_only_by_role)
    top = f"{scheme.partition('+')[0]}://{_percent_encoded(label) or other.name}"
    return Database(other, top=top, label=label or other.name, schema=None, bounds=bounds)


def _percent_encoded(label: str | None) -> str:
    return quote(label, safe="") if label else ""


def _path(url: str, kind: str, examples: str) -> str:
    """Return the path of a file in a URL.

    Raises:
        UnusableSource: the URL has no path, or has options.
    """
    wrong_path = UnusableSource(f"Give the path of a file of {kind}: {examples}.")
    try:
        parts = urlsplit(url)
    except ValueError:  # an unmatched bracket in the host
        raise wrong_path from None
    path = unquote(parts.path).removeprefix("/")
    if parts.netloc or not path or path == ":memory:":
        raise wrong_path
    if parts.fragment or parse_qsl(parts.query, keep_blank_values=True):
        raise UnusableSource(f"The URL of a file of {kind} takes no options: the file is always opened read-only.")
    return path


def _stem(path: str) -> str:
    """Return the name of a file, without its suffix if that is one of a database."""
    name = os.path.basename(path)
    stem, ending = os.path.splitext(name)
    return stem if stem and ending.lower() in _ENDINGS else name
