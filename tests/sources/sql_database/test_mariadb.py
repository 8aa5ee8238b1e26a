"""MariaDB through SQLAlchemy: what a role without rights to definitions sees, and pages in every order."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.conftest import absent
from wharfinger.errors import InvalidArgument, ResourceNotFound
from wharfinger.sources.sql_database import Database, sql
from wharfinger.sources.sql_database.database_engine import DatabaseUnreachable

from .test_choosing_rows import walk

SCHEMA = """
CREATE DATABASE shop; USE shop;
CREATE TABLE orders (id INT PRIMARY KEY, status ENUM('new', 'paid') NOT NULL, amount DECIMAL(10, 2), word VARCHAR(20),
  rate FLOAT, CHECK (amount >= 0)) COMMENT = 'what was ordered';
INSERT INTO orders SELECT seq, IF(seq % 3, 'new', 'paid'), IF(seq % 7, seq % 50, NULL), CONCAT('W', seq % 11), seq / 7
  FROM seq_1_to_500;
CREATE VIEW paid AS SELECT id, amount FROM orders WHERE status = 'paid';
CREATE USER reader@localhost IDENTIFIED BY 'hush-hush';
GRANT SELECT ON shop.* TO reader@localhost;
"""


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[Path, Callable[[str], str]]]:
    """A MariaDB server on a socket, and a function that runs statements as its administrator."""
    program = shutil.which("mariadbd", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if program is None or find_spec("pymysql") is None or shutil.which("mariadb-install-db") is None:
        absent("MariaDB (Debian package mariadb-server) or PyMySQL")
    folder = Path(tempfile.mkdtemp(prefix="wharfinger-db-"))
    as_root = ["--user=root"] if os.geteuid() == 0 else []
    subprocess.run(
        ["mariadb-install-db", f"--datadir={folder}/data", "--auth-root-authentication-method=normal", *as_root],
        check=True, capture_output=True, timeout=120,
    )  # fmt: skip
    socket = folder / "socket"
    process = subprocess.Popen(
        [program, "--no-defaults", f"--datadir={folder}/data", f"--socket={socket}", "--skip-networking", *as_root],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip

    def run(statements: str) -> str:
        command = ["mariadb", "--no-defaults", f"--socket={socket}", "--user=root", "--batch", "--skip-column-names"]
        return subprocess.run(command, input=statements, check=True, capture_output=True, text=True, timeout=60).stdout

    deadline = time.monotonic() + 60
    while True:
        try:
            run("SELECT 1")
            break
        except subprocess.CalledProcessError:
            if time.monotonic() > deadline or process.poll() is not None:
                raise
            time.sleep(0.1)
    run(SCHEMA)
    yield socket, run
    process.terminate()
    process.wait(30)
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def shop(server: tuple[Path, Callable[[str], str]]) -> Iterator[Database]:
    url = f"mysql+pymysql://reader:hush-hush@localhost/shop?unix_socket={server[0]}"
    source = sql(url, label="shop", read_only_by_role=True)
    yield source
    source.engine.close()


def test_a_view_is_read_without_the_right_to_its_definition(shop: Database) -> None:
    """Without SHOW VIEW, its columns come from the information schema; the other tables are not affected."""
    text = str(shop.read(f"{shop.uri}/shop").contents[0].text)
    assert "paid (view)" in text
    assert "  amount decimal" in text
    assert walk(shop, f"{shop.uri}/shop/paid/rows?amount=gte.30&limit=20", column="id") == sorted(
        n for n in range(3, 501, 3) if n % 7 and n % 50 >= 30
    )


def test_the_schema_has_enumerations_checks_and_comments(shop: Database) -> None:
    text = str(shop.read(f"{shop.uri}/shop").contents[0].text)
    assert "orders (table, about " in text
    assert "-- what was ordered" in text
    assert "one of new, paid" in text
    assert "check (`amount` >= 0)" in text


@pytest.mark.parametrize(
    ("query", "order"),
    [
        ("", "id"),
        ("order=-amount", "amount IS NULL, amount DESC, id"),
        ("order=word,-amount", "word, amount IS NULL, amount DESC, id"),
        ("status=paid&order=-id", "id DESC"),
        ("word=like.*w1*", "id"),
    ],
)
def test_rows_are_paged_as_sql_orders_them(
    query: str, order: str, shop: Database, server: tuple[Path, Callable[[str], str]]
) -> None:
    """Forwards and backwards, with NULL and ties."""
    where = {"status": "status = 'paid'", "word": "word LIKE '%w1%'"}.get(query.partition("=")[0], "true")
    wanted = [int(line) for line in server[1](f"SELECT id FROM shop.orders WHERE {where} ORDER BY {order}").split()]
    rows = f"{shop.uri}/shop/orders/rows"
    mark = "&" if query else ""
    assert walk(shop, f"{rows}?limit=37{mark}{query}", column="id") == wanted
    assert walk(shop, f"{rows}?tail=41{mark}{query}", "wharfinger/previous", column="id") == wanted


def test_columns_that_cannot_be_compared_exactly_do_not_order(shop: Database) -> None:
    """A FLOAT does not equal its displayed text; an ENUM is ordered by numbers that are not displayed."""
    for column in ("rate", "status"):
        with pytest.raises(InvalidArgument, match=f"cannot be ordered by {column}"):
            shop.read(f"{shop.uri}/shop/orders/rows?order={column}")


def test_one_row_and_one_value(shop: Database) -> None:
    assert '"status":"paid"' in str(shop.read(f"{shop.uri}/shop/orders/rows/3").contents[0].text)
    assert shop.read(f"{shop.uri}/shop/orders/rows/3/word").contents[0].text == "W3"
    with pytest.raises(ResourceNotFound):
        shop.read(f"{shop.uri}/shop/orders/rows/x/word")


def test_a_stopped_server_is_unreachable_and_its_password_is_hidden() -> None:
    source = sql("mysql+pymysql://reader:hush-hush@127.0.0.1:9/shop", label="shop", read_only_by_role=True)
    with pytest.raises(DatabaseUnreachable) as caught:
        source.read(f"{source.uri}/shop/orders/rows")
    assert "hush" not in str(caught.value)
    source.engine.close()
