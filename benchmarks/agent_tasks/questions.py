"""Thirty questions about the data, each with the facts of a right answer and the servers that have the data."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from typing import NamedTuple

from benchmarks.agent_tasks.dataset import Dataset, customers, orders, top_customers
from benchmarks.agent_tasks.transcript import OURS

__all__ = ["Question", "questions"]

_GIT = (OURS, "mcp-server-git")
_SQLITE = (OURS, "mcp-server-sqlite")
_FILES = (OURS, "server-filesystem")


class Question(NamedTuple):
    """A question. An answer is right if it contains at least one of the forms of each fact, in upper or lower case."""

    text: str
    facts: Sequence[Sequence[str]]
    servers: Sequence[str]

    def is_right(self, answer: str) -> bool:
        """Return whether an answer has all facts, ignoring thousands separators and emphasis."""
        said = answer.casefold().replace(",", "").replace("*", "").replace("`", "").replace("\\", "")
        return all(any(form.casefold().replace(",", "") in said for form in forms) for forms in self.facts)


def questions(data: Dataset, database: Sequence[str] = _SQLITE) -> list[Question]:
    """Return all questions. `database` has the servers for the questions about the database."""
    newest = ["git", "-C", str(data.repository), "log", "-1", "--format=%an"]
    author = subprocess.run(newest, check=True, capture_output=True, text=True).stdout.strip()
    last_line = (data.logs / "app.log").read_text().splitlines()[-1]
    rows = orders()
    names = {number: name for number, name, _, _ in customers()}
    best = top_customers()
    year = [row for row in rows if row[2].startswith("2025")]
    paid = [row for row in year if row[3] == "paid"]
    largest = max(rows, key=lambda row: row[4])
    hull = sum(town == "Hull" for _, _, town, _ in customers())
    asked: list[tuple[str, Sequence[Sequence[str]], Sequence[str]]] = [
        ("Which number is TIMEOUT_SECONDS in shop/payments.py at HEAD of the repository?", [["45"]], _GIT),
        ("Why was the timeout of payments raised in the last week?", [["twice"]], _GIT),
        ("Who wrote the newest commit of the repository? Give the name.", [[author]], _GIT),
        ("What does the newest commit of the repository do?", [["Goole"]], _GIT),
        ("How many commits were made since 2026-11-13?", [["6", "six"]], _GIT),
        ("Which issue number does the commit about reserved pieces name?", [["431"]], _GIT),
        ("Which module did the commit 'Show towns in the monthly report' change?", [["reports"]], _GIT),
        ("Which commit of the last week is about mail? Give its subject.", [["Send mail from the queue only"]], _GIT),
        ("Who paid most in 2025 (status paid)? Give the name of the customer.", [[best[0][0]]], database),
        ("How many cents did the best customer of 2025 pay (status paid)?", [[str(best[0][1])]], database),
        ("Name the second and the third best customers of 2025 (status paid).", [[best[1][0]], [best[2][0]]], database),
        ("How many orders were made in 2025, of any status?", [[str(len(year))]], database),
        ("How many orders of 2025 were cancelled?", [[str(len(year) - len(paid))]], database),
        ("How many customers live in Hull?", [[str(hull)]], database),
        ("Which columns does the table orders have?", [["customer_id"], ["ordered"], ["cents"], ["note"]], database),
        ("What are the cents of the order with id 77777?", [[str(rows[77_776][4])]], database),
        ("Who made the order with id 123456? Give the name.", [[names[rows[123_455][1]]]], database),
        ("What are the cents of the largest single order of all?", [[str(largest[4])]], database),
        ("Why did an order fail at 10:05 in the log?", [["certificate"]], _FILES),
        ("Which order failed at 10:05 in the log? Give its number.", [["48213"]], _FILES),
        ("In which file of the shop was the exception at 10:05 raised?", [["bank.py"]], _FILES),
        ("How many ms did the last request in the log take?", [[last_line.split()[-2]]], _FILES),
        ("In which file below code/ is iter_multi_items defined?", [["structures.py"]], _FILES),
        ("Which class follows iter_multi_items in its file?", [["ImmutableList"]], _FILES),
        ("Which attribute of a Flask application holds its URL rules?", [["url_map"]], _FILES),
        ("Which class attribute decides how a Flask application makes its rules?", [["url_rule_class"]], _FILES),
        ("Which method does Flask's decorator route() call?", [["add_url_rule"]], _FILES),
        ("What is the default of SESSION_COOKIE_NAME in Flask's default_config?", [["session"]], _FILES),
        ("Which exception does werkzeug raise for status 418?", [["ImATeapot"]], _FILES),
        ("In which file below code/ is secure_filename defined?", [["utils.py"]], _FILES),
    ]
    return [Question(*each) for each in asked]
