"""Conditions, orders and tails choose the same rows of table files as Python."""

from __future__ import annotations

import csv
import json
import tracemalloc
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from wharfinger.errors import InvalidArgument
from wharfinger.sources.sql_database.row_choice import RowChoice
from wharfinger.sources.table_files import Tables, tables
from wharfinger.sources.table_files.table_query import with_column_names
from wharfinger.sources.windows.window import NEXT, PREVIOUS

Row = dict[str, Any]
SALES: list[Row] = [
    {
        "n": n,
        "town": None if n % 9 == 0 else ("Hull", "hull", "Goole", "Bø_%")[n % 4],
        "amount": None if n % 13 == 0 else n * 7919 % 997 / 4,
        "big": 9007199254740992 + n % 5,
        "day": f"2026-{n % 12 + 1:02}-{n % 28 + 1:02}",
    }
    for n in range(1, 2_001)
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the same rows in a file of each format."""
    root = tmp_path_factory.mktemp("files") / "sales"
    root.mkdir()
    with (root / "sales.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(SALES[0]))
        writer.writeheader()
        writer.writerows(SALES)
    (root / "sales.jsonl").write_text("".join([json.dumps(row, ensure_ascii=False) + "\n" for row in SALES]))
    duckdb.execute(f"COPY (FROM '{root}/sales.csv') TO '{root}/sales.parquet' (ROW_GROUP_SIZE 2048)")
    return root


def walk(source: Tables, uri: str, direction: str = NEXT) -> list[int]:
    """Return column n of all rows, read window by window."""
    found: list[int] = []
    following: object = source.uri + uri
    while following:
        content = source.read(str(following)).contents[0]
        part = [json.loads(line)["n"] for line in str(content.text).splitlines()]
        found = found + part if direction == NEXT else part + found
        following = dict(content.meta or {}).get(direction)
    return found


def nulls_last(key: Callable[[Row], Any], *, reverse: bool = False) -> Callable[[list[Row]], list[Row]]:
    """Return a function that sorts by a key. Rows without a key are last, and rows with equal keys keep their order."""
    return lambda rows: [
        *sorted([row for row in rows if key(row) is not None], key=key, reverse=reverse),
        *[row for row in rows if key(row) is None],
    ]


def descending(key: Callable[[Row], Any]) -> Callable[[list[Row]], list[Row]]:
    """Return a function that sorts in descending order, which also keeps the order of rows with equal keys."""
    return nulls_last(key, reverse=True)


CASES: dict[str, tuple[Callable[[Row], bool], Callable[[list[Row]], list[Row]]]] = {
    "town=Hull": (lambda row: row["town"] == "Hull", list),
    "town=is.null&order=-n": (lambda row: row["town"] is None, descending(lambda row: row["n"])),
    "town=like.h*": (lambda row: str(row["town"]).lower() == "hull", list),
    "town=like.*_%25": (lambda row: str(row["town"]).endswith("_%"), list),
    "amount=gte.100.25&amount=lt.200": (lambda row: row["amount"] is not None and 100.25 <= row["amount"] < 200, list),
    "big=9007199254740993": (lambda row: row["big"] == 9007199254740993, list),
    "big=gt.9007199254740994&columns=n": (lambda row: row["big"] > 9007199254740994, list),
    "day=lt.2026-02-01": (lambda row: row["day"] < "2026-02-01", list),
    "order=amount": (lambda row: True, nulls_last(lambda row: row["amount"])),
    "order=-big,n": (lambda row: True, descending(lambda row: row["big"])),
    "order=-day": (lambda row: True, descending(lambda row: row["day"])),
    "order=town&amount=neq.2": (lambda row: row["amount"] not in (None, 2), nulls_last(lambda row: row["town"])),
}


@pytest.mark.parametrize("name", ["sales.csv", "sales.jsonl", "sales.parquet"])
@pytest.mark.parametrize("query", CASES)
def test_joined_windows_are_the_chosen_rows(query: str, name: str, source: Tables) -> None:
    """The rows are in the requested order, and are read in both directions."""
    condition, order = CASES[query]
    expected = [row["n"] for row in order([row for row in SALES if condition(row)])]
    assert expected
    assert walk(source, f"/{name}?rows=1-300&{query}") == expected
    assert walk(source, f"/{name}?tail=300&{query}", PREVIOUS) == expected


@pytest.mark.parametrize("name", ["sales.csv", "sales.jsonl", "sales.parquet"])
def test_rows_are_read_from_the_end_and_from_the_beginning(name: str, source: Tables) -> None:
    assert walk(source, f"/{name}?tail=150", PREVIOUS) == [row["n"] for row in SALES]
    assert walk(source, f"/{name}?limit=150") == [row["n"] for row in SALES]
    content = source.read(f"{source.uri}/{name}?tail=3").contents[0]
    assert [json.loads(line)["n"] for line in str(content.text).splitlines()] == [1998, 1999, 2000]
    assert walk(source, f"/{name}?tail=5000") == [row["n"] for row in SALES]


def test_empty_lines_are_no_rows_of_an_ordered_tail(tmp_path: Path) -> None:
    """A bug: they were counted, so the tail began too late."""
    (tmp_path / "a.jsonl").write_text('{"n": 1}\n{"n": 2}\n{"n": 3}\n\n\n')
    source = tables(tmp_path, label="x")
    assert source.read("table://x/a.jsonl?order=-n&tail=2").contents[0].text == '{"n": 2}\n{"n": 1}\n'


def test_the_last_line_needs_no_line_end(tmp_path: Path) -> None:
    """An empty file has no rows."""
    (tmp_path / "a.jsonl").write_text('{"n": 1}\n{"n": 2}')
    (tmp_path / "empty.jsonl").write_text("")
    source = tables(tmp_path, label="x")
    assert source.read("table://x/a.jsonl?tail=1").contents[0].text == '{"n": 2}\n'
    assert "No rows" in str(source.read("table://x/empty.jsonl?tail=1").contents[1].text)


values = st.one_of(st.none(), st.integers(-5, 5).map(str), st.sampled_from(["x", "1.5", "-0", "007", "1e3", "é,\"'"]))


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    cells=st.lists(values, min_size=1, max_size=25),
    value=st.sampled_from(["1", "x", "1.5", "-3"]),
    operator=st.sampled_from(["eq", "neq"]),
)
def test_values_of_a_csv_are_compared_as_text_or_as_numbers(
    cells: list[str | None], value: str, operator: str, tmp_path: Path
) -> None:
    """Equal values are found with any type of the column."""
    path = tmp_path / "a.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["n", "value"])
        writer.writerows([(n, cell) for n, cell in enumerate(cells)])
    source = tables(path, label="x")
    found = set(walk(source, f"/a.csv?value={operator}.{value}"))
    numeric = {
        column["type"]
        for column in json.loads(str(source.read("table://x/a.csv/schema").contents[0].text))["columns"][1:]
    }

    def equal(cell: str) -> bool:
        if numeric & {"BIGINT", "DOUBLE"} and value != "x":
            try:
                return Decimal(cell) == Decimal(value)
            except ArithmeticError:
                return False
        return cell == value

    known = {n: equal(cell) for n, cell in enumerate(cells) if cell is not None}
    assert found == {n for n, same in known.items() if same is (operator == "eq")}


INVALID_QUERIES = {
    "twon=Hull": r"sales.csv has no column twon\. Did you mean town\?",
    "order=-amonut": r"Did you mean amount\?",
    "amount=gt.much": "amount has numbers",
    "rows=1-2&tail=3": "Ask for one of",
    "tail=0": "tail=20",
    "limit=x": "limit=20",
}


@pytest.mark.parametrize("query", INVALID_QUERIES)
def test_the_error_for_an_invalid_choice_suggests_a_valid_one(query: str, source: Tables) -> None:
    """The error contains a similar column or an example."""
    with pytest.raises(InvalidArgument, match=INVALID_QUERIES[query]):
        source.read(f"{source.uri}/sales.csv?{query}")


def test_overviews_and_answers_without_rows_have_a_hint(source: Tables) -> None:
    assert "?tail=20" in str(source.read(f"{source.uri}/sales.csv").contents[0].text)
    empty, hint = source.read(f"{source.uri}/sales.csv?town=Leeds").contents
    assert empty.text == ""
    assert "No rows of sales.csv match" in str(hint.text)


def test_overlapping_ranges_of_columns_take_little_memory() -> None:
    names = [f"column{number}" for number in range(20_000)]
    ranges = tuple(f"{first}-20000" for first in range(1, 501))
    tracemalloc.start()
    try:
        chosen = with_column_names(RowChoice(columns=("column5", *ranges)), names)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert chosen.columns == ("column5", *(name for name in names if name != "column5"))
    assert peak < 16 << 20


def test_a_line_that_is_not_an_object_is_the_value_of_one_column(tmp_path: Path) -> None:
    """A bug: its value was null in statements, conditions and orders."""
    (tmp_path / "numbers.jsonl").write_text("3\n1\n2\n")
    (tmp_path / "mixed.jsonl").write_text('[1]\n"s"\n{"a":3}\n')
    (tmp_path / "objects.jsonl").write_text('{"json":3}\n{"json":1}\n')
    source = tables(tmp_path, label="x")

    def lines(query: str) -> list[str]:
        return str(source.read(f"table://x/{query}").contents[0].text).splitlines()

    assert lines("numbers.jsonl?order=-json") == ["3", "2", "1"]
    assert lines("numbers.jsonl?json=gt.1&columns=json") == ["3", "2"]
    assert lines("mixed.jsonl?json=like.*s*&columns=json") == ['"s"']
    assert lines("objects.jsonl?json=gt.1") == ['{"json":3}']
    assert source.query("SELECT sum(json) FROM numbers").rows == [[6]]
    assert source.query("SELECT * FROM mixed").rows == [["[1]"], ["s"], ['{"a":3}']]
    assert source.query("SELECT * FROM objects").rows == [[3], [1]]


def test_a_chosen_line_that_has_no_members_is_an_error_with_its_place(tmp_path: Path) -> None:
    """DuckDB finds the columns in the first 2,048 lines."""
    lines = [f'{{"a":{n},"b":{n}}}\n' for n in range(3_000)]
    (tmp_path / "late.jsonl").write_text("".join([*lines, "[1]\n"]))
    source = tables(tmp_path, label="x")
    with pytest.raises(InvalidArgument, match=r"late\.jsonl cannot be read: line 3001: Expected `object`"):
        source.read("table://x/late.jsonl?columns=a&rows=3000-3001")
    with pytest.raises(InvalidArgument, match=r"late\.jsonl cannot be read: row 1 of the result: Expected `object`"):
        source.read("table://x/late.jsonl?columns=a&a=is.null")
