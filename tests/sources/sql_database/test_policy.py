"""With a policy, a caller sees the same as in a database without the hidden tables."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.sources.conftest import Permit
from wharfinger.errors import InvalidArgument, ResourceNotFound
from wharfinger.protocol.jsonrpc import encode
from wharfinger.server.document_search import search_documents
from wharfinger.sources.sql_database import Database, sql

from .mariadb_server import MariaDBServer

SEEN = """
CREATE TABLE customers (id INTEGER PRIMARY KEY, name TEXT);
INSERT INTO customers VALUES (1, 'Ada'), (2, 'Bob prudence');
CREATE TABLE orders (id INTEGER PRIMARY KEY, customer INTEGER REFERENCES customers (id), note TEXT);
INSERT INTO orders VALUES (1, 1, 'prudence'), (2, 2, 'x');
CREATE VIEW names AS SELECT name FROM customers;
"""
HIDDEN = """
CREATE TABLE wages (id INTEGER PRIMARY KEY, customer INTEGER REFERENCES customers (id), pay TEXT);
INSERT INTO wages VALUES (1, 1, 'hiddenword prudence');
CREATE TABLE aaa (id INTEGER PRIMARY KEY);
CREATE VIEW paid AS SELECT name, pay FROM customers JOIN Wages ON customer = customers.id;
CREATE VIEW paid_names AS SELECT name FROM paid;
CREATE VIEW quoted AS SELECT * FROM "wages";
CREATE VIRTUAL TABLE found USING fts5 (pay, content='wages', content_rowid='id');
CREATE VIRTUAL TABLE terms USING fts5vocab (found, row);
INSERT INTO found (found) VALUES ('rebuild');
"""
TOP = "sqlite://shop"
DENY = [f"{TOP}/wages/**", f"{TOP}/aaa/**"]


def database(path: Path, statements: str) -> Database:
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(statements)
    return sql(f"sqlite:///{path}", label="shop")


@pytest.fixture
def databases(tmp_path: Path) -> Iterator[tuple[Database, Database]]:
    linked = "ALTER TABLE orders ADD COLUMN wage INTEGER"
    full = database(tmp_path / "full.db", f"{SEEN}{HIDDEN}{linked} REFERENCES wages (id);")
    visible = database(tmp_path / "visible.db", f"{SEEN}{linked};")
    yield full, visible
    for source in (full, visible):
        source.engine.close()


def call_all(source: Database) -> list[tuple[str, Any]]:
    """Call the methods of a database, and return each call with its answer."""
    found: list[tuple[str, Any]] = []
    for limit in (1, 2, 100):
        for name, page in (("page", source.page), ("documents", source.documents)):
            after: str | None = None
            for _ in range(50):
                entries, after = page(after, limit)
                found.append((f"{name} {limit} {after}", encode(entries)))
                if after is None:
                    break
    tables = ("customers", "orders", "names", "wages", "paid", "paid_names", "quoted", "found", "terms")
    uris = [TOP, *(f"{TOP}/{name}" for name in tables), f"{TOP}/found/rows", f"{TOP}/terms/rows"]
    uris += [f"{TOP}/orders/rows{query}" for query in ("", "?limit=1", "?order=-id", "/1", "/1/note", "?note=x")]
    uris += [f"{TOP}/{path}" for path in ("wages/rows", "paid/rows", "names/rows", "wages/rows/1", "paid/rows?limit=1")]
    for uri in uris:
        for method in (source.read, source.stat, source.version, source.children):
            try:
                answer = method(uri)
                found.append((f"{method.__name__} {uri}", answer if isinstance(answer, str) else encode(answer)))
            except (ResourceNotFound, InvalidArgument) as error:
                found.append((f"{method.__name__} {uri}", repr(error)))
    for argument, value, context in (
        ("table", "", {}), ("table", "w", {}), ("key", "", {"table": "wages"}), ("key", "", {"table": "orders"}),
        ("columns", "", {"table": "wages"}), ("columns", "", {"table": "orders"}), ("key", "", {"table": "paid"}),
    ):  # fmt: skip
        values = source.complete(source.templates[1].uri_template, argument, value, context)
        found.append((f"complete {argument} {value} {context}", values))
    for query in ("prudence", "hiddenword", "wages", "prudense", "paid"):
        hits = search_documents(source, query, 10)
        found.append((f"search {query}", (encode(list(hits)), hits.truncated, hits.remark)))
    return found


def test_all_answers_equal_those_of_a_database_without_the_hidden_tables(
    databases: tuple[Database, Database], permit: Permit
) -> None:
    full, visible = databases
    with permit(f"{TOP}/**", deny=DENY):
        for answer, expected in zip(call_all(full), call_all(visible), strict=True):
            assert answer == expected


def test_rules_that_allow_everything_change_no_answer(databases: tuple[Database, Database], permit: Permit) -> None:
    with permit(f"{TOP}/**"):
        with_policy = call_all(databases[0])
    for answer, expected in zip(with_policy, call_all(databases[0]), strict=True):
        assert re.sub(r'"ttlMs":\d+', "", str(answer)) == re.sub(r'"ttlMs":\d+', "", str(expected))


def test_versions_stay_the_same_while_only_hidden_tables_change(
    databases: tuple[Database, Database], permit: Permit, tmp_path: Path
) -> None:
    uris = [TOP, f"{TOP}/orders", f"{TOP}/orders/rows", f"{TOP}/orders/rows?limit=1"]
    with permit(f"{TOP}/**", deny=DENY):
        before = [databases[0].version(uri) for uri in uris]
        with closing(sqlite3.connect(tmp_path / "full.db")) as connection:
            connection.executescript("INSERT INTO wages VALUES (2, 1, 'x'); ALTER TABLE wages ADD COLUMN more;")
        assert [databases[0].version(uri) for uri in uris] == before


def test_statements_need_permission_to_query_and_to_read_all_tables(
    databases: tuple[Database, Database], permit: Permit
) -> None:
    full, visible = databases
    for explain in (False, True):
        with permit(f"{TOP}/**", query=[f"{TOP}/**"]):
            assert full.query("SELECT pay FROM wages", explain=explain).rows
            assert full.may_query()
        for rules in (
            {"deny": DENY, "query": [f"{TOP}/**"]},
            {"deny": [f"{TOP}/wages/rows/1"], "query": [f"{TOP}/**"]},
            {},
        ):
            with permit(f"{TOP}/**", **rules):
                assert not full.may_query()
                for statement in (
                    "SELECT 1",
                    "SELECT name FROM customers",
                    "SELECT pay FROM wages",
                    "EXPLAIN SELECT 1",
                ):
                    with pytest.raises(InvalidArgument, match="takes no statements"):
                        full.query(statement, explain=explain)
    with permit(f"{TOP}/**", deny=DENY, query=[TOP]):
        assert visible.query("SELECT 1").rows == [[1]]


def test_a_window_of_rows_is_not_shown_if_one_row_is_hidden(
    databases: tuple[Database, Database], permit: Permit
) -> None:
    full, _ = databases
    with permit(f"{TOP}/**", deny=[f"{TOP}/customers/rows/2", f"{TOP}/orders/rows/*/note"]):
        assert full.read(f"{TOP}/customers/rows/1").contents
        for path in ("customers/rows", "names/rows", "names", "orders/rows", "orders/rows/1", "orders/rows?limit=1"):
            with pytest.raises(ResourceNotFound):
                full.read(f"{TOP}/{path}")
        assert "row" not in (full.read(TOP).contents[0].text or "").partition("customers (")[2].partition("\n")[0]


@pytest.mark.parametrize("name", ["wages", "odd`wages", "Odd Wages"])
def test_a_view_of_a_hidden_table_is_hidden_in_mariadb(
    name: str, mariadb: MariaDBServer, publish: Callable[..., Database], permit: Permit
) -> None:
    """The definition of a view doubles a backtick in a name. Without SHOW VIEW, all views are hidden."""
    quoted = name.replace("`", "``")
    database = mariadb.database(
        f"CREATE TABLE `{quoted}` (id INT PRIMARY KEY); CREATE TABLE free (id INT PRIMARY KEY); "
        f"CREATE VIEW seen AS SELECT * FROM free; CREATE VIEW hides AS SELECT * FROM `{quoted}`"
    )
    denied = quote(name, safe="")
    for account, expected in (("reader", ["free", "seen"]), ("plain", ["free"])):
        source = publish(mariadb.url(database, account), label="shop")
        with permit(f"{source.uri}/**", deny=[f"{source.uri}/{denied}/**"], query=[f"{source.uri}/**"]):
            assert [resource.name for resource in source.page(None, 10)[0][1:]] == expected
            assert not source.may_query()
