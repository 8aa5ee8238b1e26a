"""The questions, and scripts that answer them with the tools of each server.

A careful caller has read the descriptions of the tools, and requests parts of the data. A careless one searches or
lists, and reads the first hits whole. Both use only the descriptions and answers of the tools, and the path of the
repository, which `mcp-server-git` requires. If a server cannot search texts, its callers guess the right file at once,
which is the best case for that server.

Each script returns the text that it got from the tools; the facts of the question must be in it.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple

from benchmarks.agent_tasks.dataset import Dataset, top_customers
from benchmarks.agent_tasks.transcript import OURS, Transcript

__all__ = ["POSTGRES_TASK", "TASKS", "Script", "Task"]

Script = Callable[[Transcript, Dataset], Awaitable[str]]


class Task(NamedTuple):
    """A question, the facts of a right answer, and the script of each caller by `(server, careful or careless)`."""

    question: str
    facts: Callable[[], Sequence[str]]
    scripts: Mapping[tuple[str, str], Script]


CAREFUL, CARELESS = "careful", "careless"


# What changed last week and why

WEEK = "2026-11-13"
CHANGES = ("TIMEOUT_SECONDS = 45", "every twelfth payment was charged twice", "Count reserved pieces as sold")


async def ours_changes_careful(transcript: Transcript, data: Dataset) -> str:
    log = await transcript.call("read_resource", uri=f"git://shop/log/HEAD?since={WEEK}")
    number = len(re.findall(r"^\d{4}-\d\d-\d\dT", log, re.M)) or log.count("@example.org")
    return log + await transcript.call("read_resource", uri=f"git://shop/diff/HEAD~{number}..HEAD")


async def ours_changes_careless(transcript: Transcript, data: Dataset) -> str:
    log = await transcript.call("read_resource", uri="git://shop/log/HEAD?limit=10")
    return log + await transcript.call("read_resource", uri="git://shop/diff/HEAD~10..HEAD")


async def git_changes_careful(transcript: Transcript, data: Dataset) -> str:
    path = str(data.repository)
    log = await transcript.call("git_log", repo_path=path, start_timestamp=WEEK, max_count=50)
    number = len(re.findall(r"^Commit: ", log, re.M))
    return log + await transcript.call("git_diff", repo_path=path, target=f"HEAD~{number}")


async def git_changes_careless(transcript: Transcript, data: Dataset) -> str:
    path = str(data.repository)
    log = await transcript.call("git_log", repo_path=path)
    shown = [
        await transcript.call("git_show", repo_path=path, revision=f"HEAD~{number}" if number else "HEAD")
        for number in range(6)
    ]
    return "\n".join([log, *shown])


# Top customers of 2025

TOP = """
SELECT c.name, SUM(o.cents) AS cents FROM orders o JOIN customers c ON c.id = o.customer_id
WHERE o.ordered BETWEEN '2025-01-01' AND '2025-12-31' AND o.status = 'paid' GROUP BY c.name ORDER BY cents DESC LIMIT 5
"""


def top_facts() -> list[str]:
    return [name for name, _ in top_customers()] + [str(cents) for _, cents in top_customers()]


def ours_top(source: str, top: str) -> tuple[Script, Script]:
    """Return the careful and the careless caller for one of our databases."""

    async def careful(transcript: Transcript, data: Dataset) -> str:
        schema = await transcript.call("read_resource", uri=top)
        if "cents" not in schema:
            for table in ("orders", "customers"):
                assert f"{top}/{table}" in schema
                await transcript.call("read_resource", uri=f"{top}/{table}")
        return await transcript.call("query", statement=TOP, source=source)

    async def careless(transcript: Transcript, data: Dataset) -> str:
        rows = await transcript.call("query", statement="SELECT * FROM orders", source=source)
        assert "aggregate" in rows
        return await transcript.call("query", statement=TOP, source=source)

    return careful, careless


async def sqlite_top_careful(transcript: Transcript, data: Dataset) -> str:
    listed = await transcript.call("list_tables")
    for table in ("orders", "customers"):
        assert table in listed
        await transcript.call("describe_table", table_name=table)
    return await transcript.call("read_query", query=TOP)


async def sqlite_top_careless(transcript: Transcript, data: Dataset) -> str:
    await transcript.call("list_tables")
    customers = ast.literal_eval(await transcript.call("read_query", query="SELECT * FROM customers"))
    orders = ast.literal_eval(await transcript.call("read_query", query="SELECT * FROM orders"))
    return _top_customers_of(customers, orders)


COLUMNS = "SELECT table_name, column_name, data_type FROM information_schema.columns WHERE table_schema = 'public'"


async def postgres_top_careful(transcript: Transcript, data: Dataset) -> str:
    assert "customer_id" in await transcript.call("query", sql=COLUMNS)
    return await transcript.call("query", sql=TOP)


async def postgres_top_careless(transcript: Transcript, data: Dataset) -> str:
    customers = json.loads(await transcript.call("query", sql="SELECT * FROM customers"))
    orders = json.loads(await transcript.call("query", sql="SELECT * FROM orders"))
    return _top_customers_of(customers, orders)


def _top_customers_of(customers: list[dict[str, Any]], orders: list[dict[str, Any]]) -> str:
    """Return the top customers, computed from all rows."""
    names = {customer["id"]: customer["name"] for customer in customers}
    totals: dict[str, int] = {}
    for order in orders:
        if str(order["ordered"]).startswith("2025") and order["status"] == "paid":
            name = names[order["customer_id"]]
            totals[name] = totals.get(name, 0) + order["cents"]
    best = sorted(totals.items(), key=lambda total: -total[1])[:5]
    return "\n".join(f"{name}: {cents}" for name, cents in best)


# Why did it fail at 10:05

FAILED = ("order 48213 failed", "certificate of bank.example expired")


async def ours_failure_careful(transcript: Transcript, data: Dataset) -> str:
    assert "app.log" in await transcript.call("read_directory", uri="log://logs")
    asked = "since=2026-11-20T10:05:00Z&until=2026-11-20T10:06:00Z&level=error"
    return await transcript.call("read_resource", uri=f"log://logs/app.log?{asked}")


async def ours_failure_careless(transcript: Transcript, data: Dataset) -> str:
    found = await transcript.call("search", query="Why did it fail at 10:05?")
    return found + await transcript.call("fetch", id=_hit(found, "log://")["id"])


async def files_failure_careful(transcript: Transcript, data: Dataset) -> str:
    folder = _allowed(await transcript.call("list_allowed_directories"), "logs")
    assert "app.log" in await transcript.call("list_directory", path=folder)
    first = await transcript.call("read_text_file", path=f"{folder}/app.log", head=1)
    last = await transcript.call("read_text_file", path=f"{folder}/app.log", tail=2)
    assert "T08:00" in first
    assert "T11:59" in last
    return _at_failure(await transcript.call("read_text_file", path=f"{folder}/app.log", head=31_400))


async def files_failure_careless(transcript: Transcript, data: Dataset) -> str:
    folder = _allowed(await transcript.call("list_allowed_directories"), "logs")
    assert "app.log" in await transcript.call("list_directory", path=folder)
    return _at_failure(await transcript.call("read_text_file", path=f"{folder}/app.log"))


def _allowed(listed: str, name: str) -> str:
    return next(line.strip() for line in listed.splitlines() if line.strip().endswith(f"/{name}"))


def _at_failure(text: str) -> str:
    return text[text.index("T10:05:0") : text.index("T10:05:2")]


# Where is it defined, with its neighbours

SYMBOL = "iter_multi_items"
DEFINED = ("def iter_multi_items(", "class ImmutableList(", "datastructures/structures.py")


async def ours_symbol_careful(transcript: Transcript, data: Dataset) -> str:
    found = await transcript.call("search", query=SYMBOL, source="code")
    hit = _hit(found, "structures.py")
    return found + await transcript.call("read_resource", uri=_around(hit))


async def ours_symbol_careless(transcript: Transcript, data: Dataset) -> str:
    found = await transcript.call("search", query=f"Where is {SYMBOL} defined?")
    return found + await transcript.call("fetch", id=_hit(found, "structures.py")["id"])


async def files_symbol_careful(transcript: Transcript, data: Dataset) -> str:
    folder = _allowed(await transcript.call("list_allowed_directories"), "code")
    listed = await transcript.call("search_files", path=folder, pattern="**/datastructures/*.py")
    path = next(line for line in listed.splitlines() if line.endswith("/structures.py"))
    return path + await transcript.call("read_text_file", path=path)


async def files_symbol_careless(transcript: Transcript, data: Dataset) -> str:
    folder = _allowed(await transcript.call("list_allowed_directories"), "code")
    await transcript.call("directory_tree", path=folder)
    path = f"{folder}/werkzeug/datastructures/structures.py"
    return path + await transcript.call("read_text_file", path=path)


# How is routing configured

ROUTING = (
    "self.url_map = self.url_map_class(host_matching=host_matching)",
    "rule_obj = self.url_rule_class(rule, methods=methods, **options)",
)


async def ours_routing_careful(transcript: Transcript, data: Dataset) -> str:
    found = await transcript.call("search", query="url_map url_rule_class", source="code")
    hit = _hit(found, "sansio/app.py")
    base = hit["id"].partition("?")[0]
    setup = await transcript.call("search", query='"self.url_map ="', source="code", path="*sansio/app.py")
    add = await transcript.call("search", query='"self.url_rule_class("', source="code", path="*sansio/app.py")
    assert base in setup
    assert base in add
    return found + setup + add


async def ours_routing_careless(transcript: Transcript, data: Dataset) -> str:
    found = await transcript.call("search", query="How is routing configured?")
    return found + await transcript.call("fetch", id=_hit(found, "sansio/app.py")["id"].partition("?")[0])


async def files_routing_careful(transcript: Transcript, data: Dataset) -> str:
    folder = _allowed(await transcript.call("list_allowed_directories"), "code")
    await transcript.call("search_files", path=folder, pattern="flask/**/*.py")
    path = f"{folder}/flask/sansio/app.py"
    return await transcript.call("read_text_file", path=path)


async def files_routing_careless(transcript: Transcript, data: Dataset) -> str:
    folder = _allowed(await transcript.call("list_allowed_directories"), "code")
    await transcript.call("directory_tree", path=folder)
    paths = [f"{folder}/flask/app.py", f"{folder}/flask/sansio/app.py", f"{folder}/flask/sansio/scaffold.py"]
    return await transcript.call("read_multiple_files", paths=paths)


def _hit(found: str, path: str) -> dict[str, str]:
    """Return the first search result whose id contains this path."""
    results: list[dict[str, str]] = json.loads(found)["results"]
    return next(result for result in results if path in result["id"])


def _around(hit: dict[str, str]) -> str:
    """Return the URI of the lines around a hit. The text of a hit begins with the number of the matching line."""
    line = re.search(r"^(\d+): ", hit["text"], re.M)
    assert line is not None
    number = int(line[1])
    return f"{hit['id'].partition('?')[0]}?lines={max(1, number - 5)}-{number + 30}"


# All of them

SQLITE_TOP = ours_top("shopdb", "sqlite://shopdb")
TASKS: tuple[Task, ...] = (
    Task("What changed last week, and why?", lambda: CHANGES, {
        (OURS, CAREFUL): ours_changes_careful,
        (OURS, CARELESS): ours_changes_careless,
        ("mcp-server-git", CAREFUL): git_changes_careful,
        ("mcp-server-git", CARELESS): git_changes_careless,
    }),
    Task("Who are the top customers of 2025? (SQLite)", top_facts, {
        (OURS, CAREFUL): SQLITE_TOP[0],
        (OURS, CARELESS): SQLITE_TOP[1],
        ("mcp-server-sqlite", CAREFUL): sqlite_top_careful,
        ("mcp-server-sqlite", CARELESS): sqlite_top_careless,
    }),
    Task("Why did it fail at 10:05?", lambda: FAILED, {
        (OURS, CAREFUL): ours_failure_careful,
        (OURS, CARELESS): ours_failure_careless,
        ("server-filesystem", CAREFUL): files_failure_careful,
        ("server-filesystem", CARELESS): files_failure_careless,
    }),
    Task(f"Where is {SYMBOL} defined, and what is around it?", lambda: DEFINED, {
        (OURS, CAREFUL): ours_symbol_careful,
        (OURS, CARELESS): ours_symbol_careless,
        ("server-filesystem", CAREFUL): files_symbol_careful,
        ("server-filesystem", CARELESS): files_symbol_careless,
    }),
    Task("How is routing configured?", lambda: ROUTING, {
        (OURS, CAREFUL): ours_routing_careful,
        (OURS, CARELESS): ours_routing_careless,
        ("server-filesystem", CAREFUL): files_routing_careful,
        ("server-filesystem", CARELESS): files_routing_careless,
    }),
)  # fmt: skip
"""All questions except for that of PostgreSQL, which needs a server."""
POSTGRES_TOP = ours_top("pgshop", "postgres://pgshop/public")
POSTGRES_TASK = Task("Who are the top customers of 2025? (PostgreSQL)", top_facts, {
    (OURS, CAREFUL): POSTGRES_TOP[0],
    (OURS, CARELESS): POSTGRES_TOP[1],
    ("server-postgres", CAREFUL): postgres_top_careful,
    ("server-postgres", CARELESS): postgres_top_careless,
})  # fmt: skip
