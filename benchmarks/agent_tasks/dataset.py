"""The data that the questions are about, the same in every run: a repository, two databases, logs and a source tree.

| path | content |
|---|---|
| `shop/` | a git repository of 400 commits over two years; in its last week, six commits with their reasons |
| `shop.db`, a PostgreSQL database | 2,000 customers and 200,000 orders, some of them cancelled |
| `logs/app.log` | 60,000 entries of a morning, with one failure and its cause at 10:05 |
| `code/` | Flask and Werkzeug as they are installed |
"""

from __future__ import annotations

import importlib.util
import os
import random
import shutil
import sqlite3
import subprocess
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit, urlunsplit

__all__ = ["ORDERS", "SCHEMA", "Dataset", "customers", "load_postgres", "make", "orders", "top_customers"]

CUSTOMERS = 2_000
ORDERS = 200_000
ENTRIES = 60_000
COMMITS = 400
SEED = 11
TODAY = datetime(2026, 11, 20, 12, tzinfo=UTC)
"""The day on which the questions are asked."""
PACKAGES = ("flask", "werkzeug")

SCHEMA = """
CREATE TABLE customers (id INTEGER PRIMARY KEY, name TEXT NOT NULL, town TEXT NOT NULL, since DATE NOT NULL);
CREATE TABLE orders (
    id INTEGER PRIMARY KEY, customer_id INTEGER NOT NULL REFERENCES customers (id), ordered DATE NOT NULL,
    status TEXT NOT NULL, cents INTEGER NOT NULL, note TEXT
);
"""


class Dataset(NamedTuple):
    """The paths of the data. `postgres` is a URL, or empty if no server is available."""

    root: Path
    postgres: str

    @property
    def repository(self) -> Path:
        return self.root / "shop"

    @property
    def database(self) -> Path:
        return self.root / "shop.db"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def code(self) -> Path:
        return self.root / "code"


def make(root: Path, postgres: str = "") -> Dataset:
    """Make the data below a folder. Keeps data that exists."""
    root.mkdir(parents=True, exist_ok=True)
    dataset = Dataset(root, postgres)
    for path, function in (
        (dataset.repository, _make_repository),
        (dataset.database, _make_database),
        (dataset.logs, _make_logs),
        (dataset.code, _copy_code),
    ):
        if not path.exists():
            unfinished = path.with_name(f"{path.name}.unfinished")
            shutil.rmtree(unfinished, ignore_errors=True)
            if unfinished.is_file():
                unfinished.unlink()
            function(unfinished)
            unfinished.rename(path)
    return dataset


# The repository

_MODULES = ("orders", "payments", "stock", "shipping", "customers", "mail", "reports", "settings")


def _module_source(name: str, version: int) -> str:
    """Return the source of a module of the shop. Each version changes one number in it."""
    functions = [
        f'def {name}_step_{step}(amount: int) -> int:\n    """Step {step} of {name}."""\n'
        f"    return amount * {step + 1} + {version if step == version % 12 else 7}\n"
        for step in range(12)
    ]
    return f'"""The {name} of the shop."""\n\nTIMEOUT_SECONDS = 30\n\n\n' + "\n\n".join(functions)


LAST_WEEK = (
    (6, "orders", "Round totals of orders to whole cents", "Totals differed by a cent from the invoices (#412)."),
    (5, "payments", "Raise the timeout of payments to 45 seconds",
     "The bank answers within 40 seconds on Mondays. With 30 seconds every twelfth payment was charged twice."),
    (4, "mail", "Send mail from the queue only", "Mail was sent twice if the page was loaded again."),
    (3, "stock", "Count reserved pieces as sold", "Two customers could buy the last piece at the same time (#431)."),
    (2, "reports", "Show towns in the monthly report", "Asked for by accounting."),
    (1, "settings", "Name the warehouse in Goole", "It opens in December."),
)  # fmt: skip
"""Days ago, the module, the subject and the reason of the commits of the last week."""


def _make_repository(folder: Path) -> None:
    random_data = random.Random(SEED)
    lines: list[str] = []
    versions = dict.fromkeys(_MODULES, 0)
    mark = 0

    def commit(when: datetime, subject: str, body: str, changed: dict[str, str]) -> None:
        nonlocal mark
        mark += 1
        message = f"{subject}\n\n{body}\n" if body else f"{subject}\n"
        stamp = f"{int(when.timestamp())} +0000"
        who = random_data.choice(
            ("Ada Berth <ada@example.org>", "Bo Quay <bo@example.org>", "Cy Lock <cy@example.org>")
        )
        lines.append(f"commit refs/heads/main\nmark :{mark}\nauthor {who} {stamp}\ncommitter {who} {stamp}\n")
        lines.append(f"data {len(message.encode())}\n{message}")
        if mark > 1:
            lines.append(f"from :{mark - 1}\n")
        for path, text in changed.items():
            lines.append(f"M 100644 inline {path}\ndata {len(text.encode())}\n{text}\n")

    begin = TODAY - timedelta(days=730)
    first = {f"shop/{name}.py": _module_source(name, 0) for name in _MODULES}
    commit(begin, "Open the shop", "", first | {"README.md": "# Shop\n\nOrders, payments and stock of a shop.\n"})
    for number in range(1, COMMITS - len(LAST_WEEK)):
        name = random_data.choice(_MODULES)
        versions[name] += 1
        when = begin + timedelta(days=(730 - 8) * number / COMMITS)
        commit(
            when, f"Adjust step {versions[name] % 12} of {name}", "", {f"shop/{name}.py": _module_source(name, number)}
        )
    for days, name, subject, body in LAST_WEEK:
        text = _module_source(name, 900 + days)
        if name == "payments":
            text = text.replace("TIMEOUT_SECONDS = 30", "TIMEOUT_SECONDS = 45")
        commit(TODAY - timedelta(days=days), subject, body, {f"shop/{name}.py": text})
    environment = {
        "PATH": os.environ["PATH"],
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "HOME": str(folder.parent),
    }

    def git(*words: str, data: bytes | None = None) -> None:
        subprocess.run(["git", "-C", str(folder), *words], input=data, check=True, capture_output=True, env=environment)

    folder.mkdir()
    git("init", "-q", "-b", "main")
    git("fast-import", "--quiet", data="".join(lines).encode())
    git("checkout", "-q", "main")


# The databases

_FIRST = ("Ada", "Bo", "Cy", "Dora", "Emil", "Finn", "Greta", "Hugo", "Ida", "Jan", "Karl", "Lena", "Mia", "Nils")
_LAST = ("Berth", "Quay", "Lock", "Mole", "Pier", "Sluice", "Wharf", "Dock", "Haven", "Strand", "Fjord", "Beacon")
_TOWNS = ("Hull", "Goole", "Grimsby", "Whitby", "Boston", "Lynn")


def customers() -> Iterator[tuple[int, str, str, str]]:
    """Yield the rows of `customers`."""
    random_data = random.Random(SEED)
    for number in range(1, CUSTOMERS + 1):
        name = f"{random_data.choice(_FIRST)} {random_data.choice(_LAST)} {number}"
        yield (
            number,
            name,
            random_data.choice(_TOWNS),
            f"20{random_data.randint(10, 24)}-0{random_data.randint(1, 9)}-11",
        )


@cache
def orders() -> Sequence[tuple[int, int, str, str, int, str]]:
    """Return the rows of `orders`, from 2023 to 2026. Every eleventh is cancelled; some customers buy far more."""
    rows: list[tuple[int, int, str, str, int, str]] = []
    random_data = random.Random(SEED + 1)
    buyers = list(range(1, CUSTOMERS + 1))
    random_data.shuffle(buyers)
    notes = ("leave it at the door", "ring twice", "a present: no invoice in the parcel, please", "")
    for number in range(1, ORDERS + 1):
        customer = buyers[min(int(random_data.paretovariate(0.6)), CUSTOMERS) - 1]
        day = datetime(2023, 1, 1, tzinfo=UTC) + timedelta(days=number * 1_400 // ORDERS)
        status = "cancelled" if number % 11 == 0 else "paid"
        rows.append(
            (number, customer, f"{day:%Y-%m-%d}", status, random_data.randint(500, 90_000), random_data.choice(notes))
        )
    return rows


def _make_database(path: Path) -> None:
    with sqlite3.connect(path) as database:
        database.executescript(SCHEMA)
        database.executemany("INSERT INTO customers VALUES (?, ?, ?, ?)", customers())
        database.executemany("INSERT INTO orders VALUES (?, ?, ?, ?, ?, ?)", orders())
    database.close()


async def load_postgres(url: str) -> str:
    """Create a database with the rows on a PostgreSQL server. Returns a URL with a role that can only read."""
    import asyncpg

    connection = await asyncpg.connect(url)
    await connection.execute("CREATE DATABASE shop")
    await connection.execute("CREATE ROLE reader LOGIN")
    await connection.close()
    parts = urlsplit(url)
    shop = urlunsplit(parts._replace(path="/shop"))
    connection = await asyncpg.connect(shop)
    await connection.execute(SCHEMA)
    buyers = ((*row[:3], date.fromisoformat(row[3])) for row in customers())
    bought = ((*row[:2], date.fromisoformat(row[2]), *row[3:]) for row in orders())
    await connection.copy_records_to_table("customers", records=buyers)
    await connection.copy_records_to_table("orders", records=bought)
    await connection.execute("GRANT SELECT ON ALL TABLES IN SCHEMA public TO reader; ANALYZE")
    await connection.close()
    return urlunsplit(parts._replace(path="/shop", netloc=f"reader@{parts.netloc.rpartition('@')[2]}"))


def top_customers(number: int = 5) -> list[tuple[str, int]]:
    """Return the names and cents of the customers who paid most in 2025, computed from the rows without a database."""
    names = {key: name for key, name, _, _ in customers()}
    totals: dict[int, int] = {}
    for _, customer, day, status, cents, _ in orders():
        if day.startswith("2025") and status == "paid":
            totals[customer] = totals.get(customer, 0) + cents
    best = sorted(totals.items(), key=lambda total: -total[1])[:number]
    return [(names[customer], cents) for customer, cents in best]


# Logs and source code

FAILURE = (
    "ERROR [checkout] order 48213 failed: could not charge the card\n"
    "Traceback (most recent call last):\n"
    '  File "/srv/shop/payments.py", line 88, in charge\n'
    "    answer = bank.post(charge, timeout=TIMEOUT_SECONDS)\n"
    '  File "/srv/shop/bank.py", line 41, in post\n'
    "    raise BankUnavailable(reason)\n"
    "shop.bank.BankUnavailable: certificate of bank.example expired at 2026-11-20T10:05:00Z"
)
"""The entry of the log about the failure at 10:05."""


def _make_logs(folder: Path) -> None:
    folder.mkdir()
    random_data = random.Random(SEED + 2)
    begin = datetime(2026, 11, 20, 8, tzinfo=UTC)
    failed = False
    paths = ("/", "/cart", "/checkout", "/stock", "/orders/{}", "/customers/{}")
    with (folder / "app.log").open("w", encoding="utf-8") as log:
        for number in range(ENTRIES):
            when = begin + timedelta(seconds=number * 4 * 3_600 / ENTRIES)
            if not failed and when >= begin + timedelta(hours=2, minutes=5, seconds=7):
                failed = True
                log.write(f"{when:%Y-%m-%dT%H:%M:%S}Z {FAILURE}\n")
                continue
            path = random_data.choice(paths).format(random_data.randint(1, 99_999))
            level = "WARNING" if number % 997 == 0 else "INFO"
            took = random_data.randint(2, 240)
            log.write(f"{when:%Y-%m-%dT%H:%M:%S}Z {level} [web] GET {path} answered 200 in {took} ms\n")


def _copy_code(folder: Path) -> None:
    folder.mkdir()
    for name in PACKAGES:
        found = importlib.util.find_spec(name)
        if found is None or not found.submodule_search_locations:
            raise SystemExit(f"{name} is not installed: make its environment with `make test`, or pip install {name}.")
        source = Path(next(iter(found.submodule_search_locations)))
        shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__", "*.pyc"))
