"""Workbooks: sheets as tables, exact values (compared with openpyxl), and hostile or damaged files."""

from __future__ import annotations

import asyncio
import datetime as dt
import importlib.util
import io
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import openpyxl
import pytest
import xlsxwriter

from tests.sources.table_files.hostile_workbooks import hostile_workbooks, workbook
from tests.waiting import wait_until
from wharfinger import Client
from wharfinger.errors import InvalidArgument, MissingExtra, ResourceNotFound
from wharfinger.server.document_search import SearchBounds, search_documents
from wharfinger.sources.table_files import Tables, UnreadableTable, tables, workbooks
from wharfinger.sources.table_files.table_format import OpenFile
from wharfinger.sources.table_files.workbook_process import header_position
from wharfinger.testing import SourceContract
from wharfinger.testing.source_suite.driver import ChangeRecorder

Permit = Callable[..., AbstractContextManager[None]]
TOP = "table://books"
BOUNDS = SearchBounds(seconds=40.0)  # on a busy machine a process takes seconds to start


def write(path: Path, sheets: dict[str, list[list[Any]]], **options: Any) -> None:
    """Write a workbook. Dates and times get a number format, because a workbook stores them as numbers."""
    book = xlsxwriter.Workbook(str(path), {"default_date_format": "yyyy-mm-dd hh:mm:ss", **options})
    date_format, time_format = (
        book.add_format({"num_format": "yyyy-mm-dd"}),
        book.add_format({"num_format": "hh:mm:ss"}),
    )
    for name, rows in sheets.items():
        sheet = book.add_worksheet(name)
        for row_index, row in enumerate(rows):
            for column, cell in enumerate(row):
                cell_format = {dt.date: date_format, dt.time: time_format}.get(type(cell))
                if cell is not None:
                    sheet.write(row_index, column, cell, cell_format)
    book.close()


SALES: list[list[Any]] = [
    ["port", "amount", "day"],
    ["Hull", 12.5, dt.date(2026, 7, 1)],
    ["Whitby", 7, dt.date(2026, 7, 2)],
]
STAFF: list[list[Any]] = [["name", "pay"], ["Ann", 100], ["Bob", 90], ["hiddenword", 80]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "books"
    root.mkdir()
    write(root / "shop.xlsx", {"Sales 2026": SALES, "Staff": STAFF})
    write(root / "one.xlsx", {"Only": SALES})
    (root / "a.csv").write_text("a\n1\n")
    return root


@contextmanager
def open_tables(folder: Path) -> Iterator[Tables]:
    source = tables(folder, label="books")
    try:
        yield source
    finally:
        source._watches.close()
        source._watches.join()
        asyncio.run(source.close())


@pytest.fixture
def source(folder: Path) -> Iterator[Tables]:
    with open_tables(folder) as source:
        yield source


def text(source: Tables, path: str) -> str:
    return str(source.read(f"{TOP}/{path}").contents[0].text)


def rows(source: Tables, path: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text(source, path).splitlines()]


def test_a_workbook_lists_its_sheets(source: Tables) -> None:
    overview = text(source, "shop.xlsx")
    assert "Excel workbook" in overview and "2 sheets" in overview
    assert f"| Sales 2026 | {TOP}/shop.xlsx/Sales%202026 |" in overview
    assert [child.uri for child in source.children(f"{TOP}/shop.xlsx")[0]] == [
        f"{TOP}/shop.xlsx/Sales%202026",
        f"{TOP}/shop.xlsx/Staff",
    ]
    first, key = source.children(f"{TOP}/shop.xlsx", None, 1)
    second, end = source.children(f"{TOP}/shop.xlsx", key, 1)
    assert [each.name for each in (*first, *second)] == ["Sales 2026", "Staff"] and end is None
    assert source.complete(source.template, "path", "shop.xlsx/S", {}) == ["shop.xlsx/Sales%202026", "shop.xlsx/Staff"]
    assert source.complete(source.rows_template, "columns", "po", {"path": "shop.xlsx/Sales%202026"}) == ["port"]


def test_a_sheet_is_read_and_filtered_like_a_table(source: Tables) -> None:
    overview = text(source, "shop.xlsx/Sales%202026")
    assert "| amount | DOUBLE |" in overview and "| day | DATE |" in overview and "2 rows" in overview
    assert rows(source, "shop.xlsx/Sales%202026?rows=1-") == [
        {"port": "Hull", "amount": 12.5, "day": "2026-07-01"},
        {"port": "Whitby", "amount": 7, "day": "2026-07-02"},
    ]
    assert rows(source, "shop.xlsx/Sales%202026?amount=lt.10&columns=port") == [{"port": "Whitby"}]
    assert rows(source, "shop.xlsx/Sales%202026?order=-day&limit=1")[0]["port"] == "Whitby"
    assert rows(source, "shop.xlsx/Staff?tail=1") == [{"name": "hiddenword", "pay": 80}]
    schema = json.loads(text(source, "shop.xlsx/Staff/schema"))
    assert (schema["headerRow"], schema["rows"]) == (1, 3)
    assert len(rows(source, "shop.xlsx/Staff/sample")) == 3
    assert source.stat(f"{TOP}/shop.xlsx/Staff").title == "shop.xlsx / Staff"


def test_the_only_sheet_needs_no_name(source: Tables) -> None:
    assert rows(source, "one.xlsx?limit=1") == rows(source, "one.xlsx/Only?limit=1")
    assert "| amount | DOUBLE |" in text(source, "one.xlsx")
    with pytest.raises(InvalidArgument, match="2 sheets: read one of"):
        source.read(f"{TOP}/shop.xlsx?limit=1")


def test_sheets_are_queried_with_other_tables(source: Tables) -> None:
    statement = 'SELECT s.port, sum(amount) FROM "shop.xlsx/Sales 2026" s JOIN one USING (port) GROUP BY 1 ORDER BY 2'
    with pytest.raises(InvalidArgument, match=r"(?i)ambiguous"):
        source.query(statement)
    assert source.query(statement.replace("sum(amount)", "sum(s.amount)")).rows == [["Whitby", 7.0], ["Hull", 12.5]]
    assert source.query('SELECT max(day) FROM "shop/Sales 2026"').rows == [["2026-07-02"]]
    assert source.query("SELECT sum(pay) FROM Staff").rows == [[270]]


@pytest.mark.parametrize("path", ["shop.xlsx/None", "shop.xlsx/Staff/x", "shop.xlsx/Staff/", "none.xlsx/S", "a.csv/S"])
def test_unknown_workbooks_sheets_and_paths_are_not_found(source: Tables, path: str) -> None:
    for method in (source.read, source.stat, source.children):
        with pytest.raises(ResourceNotFound):
            method(f"{TOP}/{path}")


ODD_SHEET_NAMES = ["", "a/b", "..", "a/b", "schema", "Ünï ✓ <&>'\"", "x" * 255, "sheet-2", "100%", "a?b#c", "\u202egnp"]


def test_every_sheet_name_gets_its_own_uri(folder: Path, source: Tables) -> None:
    sheet = '<sheetData><row r="1"><c r="A1"><v>1</v></c></row></sheetData>'
    (folder / "odd.xlsx").write_bytes(workbook(sheet, names=ODD_SHEET_NAMES))
    children, _ = source.children(f"{TOP}/odd.xlsx")
    assert len({child.uri for child in children}) == len(ODD_SHEET_NAMES)
    for child in children:
        assert source.matches(child.uri)
        assert rows(source, child.uri[len(TOP) + 1 :] + "?rows=1-") == [{"A": 1}]
        assert json.loads(text(source, child.uri[len(TOP) + 1 :] + "/schema"))["rows"] == 1
    overview = text(source, "odd.xlsx")
    assert all(child.uri in overview for child in children) and "\u202e" not in overview


# Values


def write_values(path: Path) -> None:
    book = xlsxwriter.Workbook(str(path))
    sheet = book.add_worksheet("V")
    formats = {
        name: book.add_format({"num_format": number_format})
        for name, number_format in {
            "day": "yyyy-mm-dd",
            "moment": "yyyy-mm-dd hh:mm:ss.000",
            "clock": "hh:mm:ss",
            "duration": "[h]:mm:ss",
            "percent": "0.00%",
        }.items()
    }
    sheet.write_row(0, 0, ["kind", "value"])
    cells: list[tuple[str, Callable[[int], object]]] = [
        ("whole", lambda row: sheet.write_number(row, 1, 42)),
        ("tenth", lambda row: sheet.write_number(row, 1, 0.1)),
        ("large", lambda row: sheet.write_number(row, 1, 1e15)),
        ("larger", lambda row: sheet.write_number(row, 1, 123456789012345678)),
        ("huge", lambda row: sheet.write_number(row, 1, 1e300)),
        ("tiny", lambda row: sheet.write_number(row, 1, -5e-300)),
        ("percent", lambda row: sheet.write_number(row, 1, 0.25, formats["percent"])),
        ("day", lambda row: sheet.write_datetime(row, 1, dt.date(2026, 1, 2), formats["day"])),
        ("leap", lambda row: sheet.write_number(row, 1, 61, formats["day"])),
        (
            "moment",
            lambda row: sheet.write_datetime(row, 1, dt.datetime(2026, 1, 2, 3, 4, 5, 678000), formats["moment"]),
        ),
        ("clock", lambda row: sheet.write_datetime(row, 1, dt.time(3, 4, 5), formats["clock"])),
        ("duration", lambda row: sheet.write_number(row, 1, 1.5, formats["duration"])),
        ("true", lambda row: sheet.write_boolean(row, 1, True)),
        ("text", lambda row: sheet.write_string(row, 1, "007")),
        ("long", lambda row: sheet.write_string(row, 1, "x" * 32_767)),
        ("lines", lambda row: sheet.write_string(row, 1, 'a\n"b",\tø 🚢 _x000A_')),
        ("spaces", lambda row: sheet.write_string(row, 1, "  x  ")),
        ("formula", lambda row: sheet.write_formula(row, 1, "=1+1", None, 2)),
        ("formula of text", lambda row: sheet.write_formula(row, 1, '="a"&"b"', None, "ab")),
        ("division", lambda row: sheet.write_formula(row, 1, "=1/0", None, "#DIV/0!")),
        ("missing", lambda row: sheet.write_formula(row, 1, "=NA()", None, "#N/A")),
        ("name", lambda row: sheet.write_formula(row, 1, "=x", None, "#NAME?")),
        ("link", lambda row: sheet.write_url(row, 1, "https://example.org/", string="here")),
        ("empty", lambda row: None),
        ("blank", lambda row: sheet.write_blank(row, 1, None, formats["day"])),
    ]
    for row, (name, write_cell) in enumerate(cells, 1):
        sheet.write_string(row, 0, name)
        write_cell(row)
    book.close()


def json_value(value: Any) -> object:
    """Return the JSON value for a cell value of openpyxl."""
    if isinstance(value, dt.datetime):
        return value.date().isoformat() if value.time() == dt.time() else value.isoformat()
    if isinstance(value, dt.timedelta):
        seconds = int(value.total_seconds())
        return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return value.isoformat() if isinstance(value, (dt.date, dt.time)) else value


def test_values_match_openpyxl(folder: Path, source: Tables) -> None:
    write_values(folder / "values.xlsx")
    found = {row["kind"]: row["value"] for row in rows(source, "values.xlsx/V?rows=1-100")}
    sheet = openpyxl.load_workbook(folder / "values.xlsx", data_only=True)["V"]
    expected = {str(kind): json_value(value) for kind, value in sheet.iter_rows(min_row=2, values_only=True)}
    expected["lines"] = 'a\n"b",\tø 🚢 _x000A_'  # openpyxl does not undo the escape
    assert found == expected
    assert (found["division"], found["missing"], found["name"]) == ("#DIV/0!", "#N/A", "#NAME?")
    assert (found["duration"], found["larger"]) == ("36:00:00", 1.234567890123457e17)
    assert '"value":42}' in text(source, "values.xlsx/V?rows=1-100")


@pytest.mark.parametrize("date_1904", [False, True])
def test_both_date_systems_of_excel_are_read(folder: Path, source: Tables, date_1904: bool) -> None:
    day = dt.date(1999, 12, 31)
    write(folder / "old.xlsx", {"S": [["day"], [day]]}, date_1904=date_1904)
    assert rows(source, "old.xlsx?rows=1-") == [{"day": day.isoformat()}]


@pytest.mark.parametrize(
    ("cells", "column_type"),
    [
        ([1, 2.0], "BIGINT"),
        ([1, 2.5], "DOUBLE"),
        ([1e16], "DOUBLE"),
        ([True, False, None], "BOOLEAN"),
        ([dt.date(2026, 1, 1)], "DATE"),
        ([dt.date(2026, 1, 1), dt.datetime(2026, 1, 1, 2)], "TIMESTAMP"),
        ([dt.time(1, 2)], "TIME"),
        ([1, "x"], "VARCHAR"),
        ([1, True], "VARCHAR"),
        (["007", "008"], "VARCHAR"),
        ([None], "VARCHAR"),
    ],
)
def test_the_type_of_a_column_fits_all_its_cells(
    folder: Path, source: Tables, cells: list[Any], column_type: str
) -> None:
    write(folder / "t.xlsx", {"S": [["n", "c"], *[["x", cell] for cell in cells]]})
    schema = json.loads(text(source, "t.xlsx/S/schema"))
    assert schema["columns"][1] == {"name": "c", "type": column_type}
    count, query_type = source.query("SELECT count(c), typeof(any_value(c)) FROM t").rows[0]
    assert count == sum(cell is not None for cell in cells)
    assert query_type in (column_type, '"NULL"')


@pytest.mark.parametrize(
    ("table", "header", "names"),
    [
        ([["a", "b"], [1, 2]], 1, ["a", "b"]),
        ([[None, None], ["Report 2026"], [None], ["a", "b", "c"], [1, 2, 3]], 4, ["a", "b", "c"]),
        ([["name", 2024, 2025], ["x", 1, 2]], 1, ["name", "2024", "2025"]),
        ([[None, "a", "b"], [0, 1, 2]], 1, ["A", "a", "b"]),
        ([["a", "a", None], [1, 2, 3]], 1, ["a", "a_2", "C"]),
        ([[1, 2], [3, 4]], None, ["A", "B"]),
        ([["x"], ["y"]], 1, ["x"]),
    ],
)
def test_the_header_row_is_detected(
    folder: Path, source: Tables, table: list[list[Any]], header: int, names: list[str]
) -> None:
    write(folder / "t.xlsx", {"S": table})
    schema = json.loads(text(source, "t.xlsx/S/schema"))
    assert schema["headerRow"] == header
    assert [column["name"] for column in schema["columns"]] == names
    above = schema.get("above", [])
    cells = sum(cell is not None for row in table for cell in row)
    data = sum(cell is not None for row in rows(source, "t.xlsx/S?rows=1-") for cell in row.values())
    titles = sum(name is not None for name in table[header - 1]) if header else 0
    assert data + titles + sum(map(len, above)) == cells  # every cell is in the header, above it or in a row


def test_rows_of_numbers_or_error_values_are_not_the_header() -> None:
    assert header_position([]) is None
    assert header_position([[1.0], ["a"]]) == 1
    assert header_position([["#N/A", "x"], ["a", "b"]]) == 1
    assert header_position([["#GETTING_DATA", "x"], ["a", "b"]]) == 1
    assert header_position([[2026.0, 2027.0]]) is None


def test_a_header_may_have_a_number_sign() -> None:
    """A bug: it was taken for a row with an error value."""
    assert header_position([["#", "name"], [1.0, "a"]]) == 0
    assert header_position([["# sold", "name"], [1.0, "a"]]) == 0


def test_a_table_in_the_middle_of_a_sheet_is_read_with_merged_cells_and_empty_rows(
    folder: Path, source: Tables
) -> None:
    book = xlsxwriter.Workbook(str(folder / "m.xlsx"))
    sheet = book.add_worksheet("S")
    sheet.write_row(4, 2, ["a", "b"])
    sheet.merge_range(5, 2, 6, 3, "both")
    sheet.write_row(9, 2, [1, 2])
    sheet.write_blank(100, 2, None, book.add_format({"bold": True}))
    book.close()
    empty = {"a": None, "b": None}
    assert rows(source, "m.xlsx?rows=1-") == [{"a": "both", "b": None}, empty, empty, empty, {"a": 1, "b": 2}]
    schema = json.loads(text(source, "m.xlsx/S/schema"))
    assert (schema["headerRow"], schema["firstRow"], schema["merged"]) == (5, 6, ["C6:D7"])


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="a pipe keeps the child waiting")
def test_a_workbook_whose_reader_was_ended_by_close_is_read_later(tmp_path: Path) -> None:
    """A bug: this version of the workbook stayed unreadable."""
    write(tmp_path / "a.xlsx", {"S": [["a"], [1]]})
    os.mkfifo(tmp_path / "b.xlsx")
    books, errors = workbooks.Workbooks(), list[UnreadableTable]()
    with open(tmp_path / "a.xlsx", "rb") as opened:

        def open_file(name: str) -> OpenFile:
            return OpenFile(name, opened.fileno(), str(tmp_path / name), *([None] * 2))  # type: ignore[arg-type]

        def read() -> None:
            try:
                books.sheets(open_file("b.xlsx"), "key")
            except UnreadableTable as error:
                errors.append(error)

        reader = threading.Thread(target=read)
        reader.start()
        wait_until(lambda: books._children._running, "the child runs")
        books.close()
        reader.join()
        assert "its source was closed" in str(errors[0])
        assert [sheet.name for sheet in books.sheets(open_file("a.xlsx"), "key")] == ["S"]


def test_rows_after_very_many_empty_ones_are_read(folder: Path, source: Tables) -> None:
    """If the cost grew with the square of the empty rows, the child process would reach its time limit."""
    book = xlsxwriter.Workbook(str(folder / "far.xlsx"))
    sheet = book.add_worksheet("S")
    sheet.write_row(0, 0, ["a"])
    sheet.write_row(300_000, 0, [1])
    book.close()
    assert json.loads(text(source, "far.xlsx/S/schema"))["rows"] == 300_000
    assert rows(source, "far.xlsx?rows=300000-") == [{"a": 1}]


def test_empty_and_hidden_sheets_are_listed_and_chart_sheets_are_not(folder: Path, source: Tables) -> None:
    book = xlsxwriter.Workbook(str(folder / "h.xlsx"))
    book.add_worksheet("Empty")
    hidden = book.add_worksheet("Hidden")
    hidden.write_row(0, 0, ["a"])
    hidden.hide()
    chart = book.add_chart({"type": "line"})
    chart.add_series({"values": "=Hidden!$A$1:$A$2"})
    book.add_chartsheet("Chart").set_chart(chart)
    book.close()
    overview = text(source, "h.xlsx")
    assert "| Hidden (hidden) |" in overview and "Chart" not in overview
    assert text(source, "h.xlsx/Empty?rows=1-") == ""
    assert "0 columns, 0 rows" in text(source, "h.xlsx/Empty")


def test_the_declared_dimension_of_a_sheet_is_ignored(folder: Path, source: Tables) -> None:
    sheet = '<dimension ref="A1:XFD1048576"/><sheetData><row r="1"><c r="A1"><v>1</v></c></row></sheetData>'
    (folder / "d.xlsx").write_bytes(workbook(sheet))
    assert rows(source, "d.xlsx?rows=1-") == [{"A": 1}]


def test_cells_without_references_and_infinite_numbers_are_read(folder: Path, source: Tables) -> None:
    cells = '<c><v>1</v></c><c t="e"><v>#REF!</v></c><c><v>1e999</v></c><c t="str"><v>x</v></c>'
    sheet = f"<sheetData><row>{cells}</row><row><c t='e'><v>#N/A</v></c></row></sheetData>"
    (folder / "r.xlsx").write_bytes(workbook(sheet))
    found = rows(source, "r.xlsx?rows=1-")
    assert list(found[0].values()) == [1, "#REF!", "Infinity", "x"]
    assert found[1]["A"] == "#N/A"


def test_all_rows_of_a_large_sheet_are_read_in_windows(folder: Path, source: Tables) -> None:
    count = 30_000
    write(folder / "big.xlsx", {"S": [["id", "name"], *[[n, f"port {n}"] for n in range(count)]]}, constant_memory=True)
    started = time.monotonic()
    found, uri = 0, f"{TOP}/big.xlsx/S?rows=1-9999"
    while uri:
        content = source.read(uri).contents[0]
        for line in str(content.text).splitlines():
            assert json.loads(line) == {"id": found, "name": f"port {found}"}
            found += 1
        assert isinstance(content.meta, dict)
        uri = content.meta.get("wharfinger/next", "")
    assert found == count
    assert time.monotonic() - started < 30
    assert source.query("SELECT count(*), sum(id) FROM big").rows == [[count, count * (count - 1) // 2]]


# Hostile files


HOSTILE = hostile_workbooks()


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_or_damaged_workbook_is_refused_and_others_are_read(
    folder: Path, source: Tables, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    content, message = HOSTILE[name]
    (folder / "bad.xlsx").write_bytes(content)
    with monkeypatch.context() as patch:
        if message == "longer than":
            patch.setattr(workbooks, "READ_SECONDS", 2.0)
        for _ in range(2):  # the second failure is remembered
            with pytest.raises(UnreadableTable) as caught:
                source.read(f"{TOP}/bad.xlsx/S?rows=1-")
            assert message in str(caught.value) and "bad.xlsx" in str(caught.value)
            assert "/proc" not in str(caught.value) and len(str(caught.value)) < 500
        assert "".join(source.text(f"{TOP}/bad.xlsx")) in ("", "S\n")  # the name of the sheet may be readable
    assert rows(source, "one.xlsx?limit=1")


@pytest.mark.parametrize("excess_bytes", [0, 1])
def test_a_sheet_larger_than_the_copy_limit_is_refused(
    folder: Path, source: Tables, monkeypatch: pytest.MonkeyPatch, excess_bytes: int
) -> None:
    write(folder / "c.xlsx", {"S": [["a"], *[["x" * 32_000]] * 64]})
    size = 64 * len('{"a":"' + "x" * 32_000 + '"}\n')
    monkeypatch.setattr(workbooks, "MAX_COPY_BYTES", size - excess_bytes)
    if excess_bytes:
        with pytest.raises(UnreadableTable, match=r"c\.xlsx cannot be read: its content takes more than 1 MiB"):
            rows(source, "c.xlsx?rows=1-")
    else:
        assert len(rows(source, "c.xlsx?tail=9")) == 9


def test_a_password_protected_workbook_is_refused_with_advice(folder: Path, source: Tables) -> None:
    (folder / "p.xlsx").write_bytes(HOSTILE["encrypted"][0])
    with pytest.raises(UnreadableTable, match="save a copy without a password"):
        source.read(f"{TOP}/p.xlsx")


def test_a_missing_library_is_reported_with_its_extra(
    folder: Path, source: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"wharfinger\[tables\]"):
        source.read(f"{TOP}/one.xlsx")
    assert rows(source, "a.csv?rows=1-") == [{"a": 1}]


def test_without_the_library_other_tables_are_queried_and_searched(
    folder: Path, source: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bug: every statement and search failed."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert source.query("SELECT * FROM a").rows == [[1]]
    assert list(source.text(f"{TOP}/one.xlsx")) == []


# Changes, search and policy


def test_watchers_of_a_rewritten_workbook_are_notified(folder: Path, source: Tables, recorder: ChangeRecorder) -> None:
    uri = f"{TOP}/one.xlsx/Only?rows=1-10"
    before = source.version(uri)
    assert len(rows(source, "one.xlsx/Only?rows=1-10")) == 2
    source.watch(uri, recorder)
    write(folder / "one.xlsx", {"Only": [*SALES, ["York", 1, dt.date(2026, 7, 3)]], "Two": SALES})
    recorder.wait_for(uri)
    assert source.version(uri) != before
    assert len(rows(source, "one.xlsx/Only?rows=1-10")) == 3
    assert len(source.children(f"{TOP}/one.xlsx")[0]) == 2


def test_the_text_of_all_sheets_is_searched(source: Tables) -> None:
    assert "Sales 2026\n" in "".join(source.text(f"{TOP}/shop.xlsx"))
    assert [hit.uri for hit in search_documents(source, "hiddenword", 5, bounds=BOUNDS)] == [f"{TOP}/shop.xlsx"]
    assert "Ann" not in "".join(source.text(f"{TOP}/shop.xlsx/Sales%202026"))


def test_a_sheet_denied_by_the_policy_is_hidden_everywhere(source: Tables, permit: Permit) -> None:
    with permit(f"{TOP}/**", deny=[f"{TOP}/shop.xlsx/Staff/**"], query=[TOP]):
        assert "Staff" not in text(source, "shop.xlsx") and "1 sheet" in text(source, "shop.xlsx")
        assert [child.name for child in source.children(f"{TOP}/shop.xlsx")[0]] == ["Sales 2026"]
        assert source.complete(source.template, "path", "shop.xlsx/", {}) == ["shop.xlsx/Sales%202026"]
        assert source.complete(source.rows_template, "columns", "", {"path": "shop.xlsx/Staff"}) == []
        for path in ("shop.xlsx/Staff", "shop.xlsx/Staff?rows=1-", "shop.xlsx/Staff/schema"):
            with pytest.raises(ResourceNotFound):
                source.read(f"{TOP}/{path}")
        with pytest.raises(InvalidArgument) as caught:
            source.query('FROM "shop.xlsx/Staff"')
        assert "no table" in str(caught.value) and "Staff" not in str(caught.value).partition("Tables:")[2]
        is_shown = source.shown_documents()
        assert is_shown is not None
        assert (is_shown(f"{TOP}/shop.xlsx"), is_shown(f"{TOP}/one.xlsx"), is_shown(f"{TOP}/a.csv")) == (
            False,
            True,
            True,
        )
        assert not search_documents(source, "hiddenword", 5, bounds=BOUNDS)
    with permit(f"{TOP}/**", deny=[f"{TOP}/one.xlsx/Only"]), pytest.raises(ResourceNotFound):
        source.read(f"{TOP}/one.xlsx?rows=1-")


def test_workbooks_are_served_by_the_command_line(folder: Path) -> None:
    async def test() -> None:
        command = [sys.executable, "-m", "wharfinger", "serve", "--allow-query", f"table:{folder}/*.xlsx"]
        async with Client(command) as client:
            found = await client.read_resource(f"{TOP}/one.xlsx/Only?port=Hull")
            assert json.loads(str(found.contents[0].text))["amount"] == 12.5
            answer = await client.call_tool("query", {"statement": 'SELECT sum(pay) AS pay FROM "shop.xlsx/Staff"'})
            assert "270" in str(answer.content[0])
            overview = await client.call_tool("read_resource", {"uri": f"{TOP}/shop.xlsx"})
            assert "Sales%202026" in str(overview.content[0])

    asyncio.run(test())


class TestWorkbooks(SourceContract):
    missing = f"{TOP}/one.xlsx/None"
    windowed = f"{TOP}/big.xlsx/S?rows=1-"

    folder: Path

    @pytest.fixture
    def source(self, folder: Path) -> Iterator[Tables]:
        type(self).folder = folder
        write(folder / "big.xlsx", {"S": [["id"], *[[n] for n in range(1_000)]]})
        with open_tables(folder) as source:
            yield source

    def change(self, source: Any) -> str:
        written = io.BytesIO()
        book = openpyxl.Workbook()
        book.active.append(["a", time.monotonic_ns()])
        book.save(written)
        (self.folder / "one.xlsx").write_bytes(written.getvalue())
        return f"{TOP}/one.xlsx"

    def add(self, source: Any) -> str:
        write(self.folder / "new.xlsx", {"S": STAFF})
        return f"{TOP}/new.xlsx"

    def whole(self, source: Any) -> str:
        return "".join(f'{{"id":{number}}}\n' for number in range(1_000))
