"""Workbooks: sheets as tables, exact values (compared with openpyxl), and files that are hostile or damaged."""

from __future__ import annotations

import asyncio
import datetime as dt
import importlib.util
import io
import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import openpyxl
import pytest
import xlsxwriter

from tests.sources.conftest import ChangeRecorder
from tests.sources.table_files.hostile_workbooks import hostile_workbooks, workbook
from wharfinger import Client
from wharfinger.errors import InvalidArgument, MissingExtra, ResourceNotFound
from wharfinger.server.document_search import search_documents
from wharfinger.sources.table_files import Tables, UnreadableTable, tables, workbooks
from wharfinger.sources.table_files.workbook_process import header_position
from wharfinger.testing import SourceContract

Permit = Callable[..., AbstractContextManager[None]]
TOP = "table://books"


def write(path: Path, sheets: dict[str, list[list[Any]]], **options: Any) -> None:
    """Write a workbook. Dates have formats of dates."""
    book = xlsxwriter.Workbook(str(path), {"default_date_format": "yyyy-mm-dd hh:mm:ss", **options})
    day, clock = book.add_format({"num_format": "yyyy-mm-dd"}), book.add_format({"num_format": "hh:mm:ss"})
    for name, rows in sheets.items():
        sheet = book.add_worksheet(name)
        for at, row in enumerate(rows):
            for column, cell in enumerate(row):
                kind = {dt.date: day, dt.time: clock}.get(type(cell))
                if cell is not None:
                    sheet.write(at, column, cell, kind)
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
def published(folder: Path) -> Iterator[Tables]:
    source = tables(folder, label="books")
    try:
        yield source
    finally:
        source._watch.close()
        source._watch.join()
        asyncio.run(source.close())


@pytest.fixture
def source(folder: Path) -> Iterator[Tables]:
    with published(folder) as made:
        yield made


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


def test_a_sheet_is_a_table(source: Tables) -> None:
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
    with pytest.raises(InvalidArgument, match="mbiguous"):
        source.query(statement)
    assert source.query(statement.replace("sum(amount)", "sum(s.amount)")).rows == [["Whitby", 7.0], ["Hull", 12.5]]
    assert source.query('SELECT max(day) FROM "shop/Sales 2026"').rows == [["2026-07-02"]]
    assert source.query("SELECT sum(pay) FROM Staff").rows == [[270]]


@pytest.mark.parametrize("path", ["shop.xlsx/None", "shop.xlsx/Staff/x", "shop.xlsx/Staff/", "none.xlsx/S", "a.csv/S"])
def test_there_is_nothing_else(source: Tables, path: str) -> None:
    for method in (source.read, source.stat, source.children):
        with pytest.raises(ResourceNotFound):
            method(f"{TOP}/{path}")


ODD = ["", "a/b", "..", "a/b", "schema", "Ünï ✓ <&>'\"", "x" * 255, "sheet-2", "100%", "a?b#c", "\u202egnp"]


def test_any_name_of_a_sheet_has_a_uri(folder: Path, source: Tables) -> None:
    sheet = '<sheetData><row r="1"><c r="A1"><v>1</v></c></row></sheetData>'
    (folder / "odd.xlsx").write_bytes(workbook(sheet, names=ODD))
    children, _ = source.children(f"{TOP}/odd.xlsx")
    assert len({child.uri for child in children}) == len(ODD)
    for child in children:
        assert source.matches(child.uri)
        assert rows(source, child.uri[len(TOP) + 1 :] + "?rows=1-") == [{"A": 1}]
        assert json.loads(text(source, child.uri[len(TOP) + 1 :] + "/schema"))["rows"] == 1
    overview = text(source, "odd.xlsx")
    assert all(child.uri in overview for child in children) and "\u202e" not in overview


# Values


def written_values(path: Path) -> None:
    book = xlsxwriter.Workbook(str(path))
    sheet = book.add_worksheet("V")
    formats = {
        name: book.add_format({"num_format": shown})
        for name, shown in {
            "day": "yyyy-mm-dd",
            "moment": "yyyy-mm-dd hh:mm:ss.000",
            "clock": "hh:mm:ss",
            "duration": "[h]:mm:ss",
            "percent": "0.00%",
        }.items()
    }
    sheet.write_row(0, 0, ["kind", "value"])
    cells: list[tuple[str, Callable[[int], object]]] = [
        ("whole", lambda at: sheet.write_number(at, 1, 42)),
        ("tenth", lambda at: sheet.write_number(at, 1, 0.1)),
        ("large", lambda at: sheet.write_number(at, 1, 1e15)),
        ("larger", lambda at: sheet.write_number(at, 1, 123456789012345678)),
        ("huge", lambda at: sheet.write_number(at, 1, 1e300)),
        ("tiny", lambda at: sheet.write_number(at, 1, -5e-300)),
        ("percent", lambda at: sheet.write_number(at, 1, 0.25, formats["percent"])),
        ("day", lambda at: sheet.write_datetime(at, 1, dt.date(2026, 1, 2), formats["day"])),
        ("leap", lambda at: sheet.write_number(at, 1, 61, formats["day"])),
        ("moment", lambda at: sheet.write_datetime(at, 1, dt.datetime(2026, 1, 2, 3, 4, 5, 678000), formats["moment"])),
        ("clock", lambda at: sheet.write_datetime(at, 1, dt.time(3, 4, 5), formats["clock"])),
        ("duration", lambda at: sheet.write_number(at, 1, 1.5, formats["duration"])),
        ("true", lambda at: sheet.write_boolean(at, 1, True)),
        ("text", lambda at: sheet.write_string(at, 1, "007")),
        ("long", lambda at: sheet.write_string(at, 1, "x" * 32_767)),
        ("lines", lambda at: sheet.write_string(at, 1, 'a\n"b",\tø 🚢 _x000A_')),
        ("spaces", lambda at: sheet.write_string(at, 1, "  x  ")),
        ("formula", lambda at: sheet.write_formula(at, 1, "=1+1", None, 2)),
        ("formula of text", lambda at: sheet.write_formula(at, 1, '="a"&"b"', None, "ab")),
        ("division", lambda at: sheet.write_formula(at, 1, "=1/0", None, "#DIV/0!")),
        ("missing", lambda at: sheet.write_formula(at, 1, "=NA()", None, "#N/A")),
        ("name", lambda at: sheet.write_formula(at, 1, "=x", None, "#NAME?")),
        ("link", lambda at: sheet.write_url(at, 1, "https://example.org/", string="here")),
        ("empty", lambda at: None),
        ("blank", lambda at: sheet.write_blank(at, 1, None, formats["day"])),
    ]
    for at, (kind, write_cell) in enumerate(cells, 1):
        sheet.write_string(at, 0, kind)
        write_cell(at)
    book.close()


def expected(value: Any) -> object:
    """Return the JSON of a value that openpyxl reads."""
    if isinstance(value, dt.datetime):
        return value.date().isoformat() if value.time() == dt.time() else value.isoformat()
    if isinstance(value, dt.timedelta):
        seconds = int(value.total_seconds())
        return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return value.isoformat() if isinstance(value, (dt.date, dt.time)) else value


def test_values_are_those_that_openpyxl_reads(folder: Path, source: Tables) -> None:
    written_values(folder / "values.xlsx")
    found = {row["kind"]: row["value"] for row in rows(source, "values.xlsx/V?rows=1-100")}
    sheet = openpyxl.load_workbook(folder / "values.xlsx", data_only=True)["V"]
    wanted = {str(kind): expected(value) for kind, value in sheet.iter_rows(min_row=2, values_only=True)}
    wanted["lines"] = 'a\n"b",\tø 🚢 _x000A_'  # openpyxl does not undo the escape
    assert found == wanted
    assert (found["division"], found["missing"], found["name"]) == ("#DIV/0!", "#N/A", "#NAME?")
    assert (found["duration"], found["larger"]) == ("36:00:00", 1.234567890123457e17)
    assert '"value":42}' in text(source, "values.xlsx/V?rows=1-100")


@pytest.mark.parametrize("epoch", [False, True])
def test_both_calendars_of_excel_are_read(folder: Path, source: Tables, epoch: bool) -> None:
    day = dt.date(1999, 12, 31)
    write(folder / "old.xlsx", {"S": [["day"], [day]]}, date_1904=epoch)
    assert rows(source, "old.xlsx?rows=1-") == [{"day": day.isoformat()}]


@pytest.mark.parametrize(
    ("cells", "kind"),
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
def test_a_column_has_the_type_of_all_its_cells(folder: Path, source: Tables, cells: list[Any], kind: str) -> None:
    write(folder / "t.xlsx", {"S": [["n", "c"], *[["x", cell] for cell in cells]]})
    schema = json.loads(text(source, "t.xlsx/S/schema"))
    assert schema["columns"][1] == {"name": "c", "type": kind}
    count, of_type = source.query("SELECT count(c), typeof(any_value(c)) FROM t").rows[0]
    assert count == sum(cell is not None for cell in cells)
    assert of_type in (kind, '"NULL"')


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
def test_the_header_is_found(
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
    assert data + titles + sum(map(len, above)) == cells  # nothing is lost


def test_the_header_is_looked_for_in_the_first_rows() -> None:
    assert header_position([]) is None
    assert header_position([[1.0], ["a"]]) == 1
    assert header_position([["#N/A", "x"], ["a", "b"]]) == 1
    assert header_position([[2026.0, 2027.0]]) is None


def test_merged_cells_empty_rows_and_a_table_in_the_middle(folder: Path, source: Tables) -> None:
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


def test_a_sheet_without_cells_and_a_hidden_sheet(folder: Path, source: Tables) -> None:
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


def test_a_declared_size_is_not_believed(folder: Path, source: Tables) -> None:
    sheet = '<dimension ref="A1:XFD1048576"/><sheetData><row r="1"><c r="A1"><v>1</v></c></row></sheetData>'
    (folder / "d.xlsx").write_bytes(workbook(sheet))
    assert rows(source, "d.xlsx?rows=1-") == [{"A": 1}]


def test_cells_without_references_and_odd_numbers_are_read(folder: Path, source: Tables) -> None:
    cells = '<c><v>1</v></c><c t="e"><v>#REF!</v></c><c><v>1e999</v></c><c t="str"><v>x</v></c>'
    sheet = f"<sheetData><row>{cells}</row><row><c t='e'><v>#N/A</v></c></row></sheetData>"
    (folder / "r.xlsx").write_bytes(workbook(sheet))
    found = rows(source, "r.xlsx?rows=1-")
    assert list(found[0].values()) == [1, "#REF!", "Infinity", "x"]
    assert found[1]["A"] == "#N/A"


def test_many_rows_are_read_in_windows_and_all_are_there(folder: Path, source: Tables) -> None:
    count = 30_000
    write(folder / "big.xlsx", {"S": [["id", "name"], *[[n, f"port {n}"] for n in range(count)]]}, constant_memory=True)
    began = time.monotonic()
    found, uri = 0, f"{TOP}/big.xlsx/S?rows=1-9999"
    while uri:
        content = source.read(uri).contents[0]
        for line in str(content.text).splitlines():
            assert json.loads(line) == {"id": found, "name": f"port {found}"}
            found += 1
        assert isinstance(content.meta, dict)
        uri = content.meta.get("wharfinger/next", "")
    assert found == count
    assert time.monotonic() - began < 30
    assert source.query("SELECT count(*), sum(id) FROM big").rows == [[count, count * (count - 1) // 2]]


# Hostile files


HOSTILE = hostile_workbooks()


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_or_damaged_workbook_is_refused_and_others_are_read(
    folder: Path, source: Tables, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    content, words = HOSTILE[name]
    monkeypatch.setattr(workbooks, "SECONDS", 5.0)
    (folder / "bad.xlsx").write_bytes(content)
    began = time.monotonic()
    for _ in range(2):
        with pytest.raises(UnreadableTable) as caught:
            source.read(f"{TOP}/bad.xlsx/S?rows=1-")
        assert words in str(caught.value) and "bad.xlsx" in str(caught.value)
        assert "/proc" not in str(caught.value) and len(str(caught.value)) < 500
    assert time.monotonic() - began < 30
    assert "".join(source.text(f"{TOP}/bad.xlsx")) in ("", "S\n")
    assert rows(source, "one.xlsx?limit=1")


@pytest.mark.parametrize("beyond", [0, 1])
def test_the_copy_of_a_sheet_is_bounded(
    folder: Path, source: Tables, monkeypatch: pytest.MonkeyPatch, beyond: int
) -> None:
    write(folder / "c.xlsx", {"S": [["a"], *[["x" * 32_000]] * 64]})
    size = 64 * len('{"a":"' + "x" * 32_000 + '"}\n')
    monkeypatch.setattr(workbooks, "MAX_COPY_BYTES", size - beyond)
    if beyond:
        with pytest.raises(UnreadableTable, match=r"c\.xlsx cannot be read: its content takes more than 1 MiB"):
            rows(source, "c.xlsx?rows=1-")
    else:
        assert len(rows(source, "c.xlsx?tail=9")) == 9


def test_a_workbook_with_a_password_is_refused_in_its_own_words(folder: Path, source: Tables) -> None:
    (folder / "p.xlsx").write_bytes(HOSTILE["encrypted"][0])
    with pytest.raises(UnreadableTable, match="save a copy without a password"):
        source.read(f"{TOP}/p.xlsx")


def test_a_missing_library_is_named(folder: Path, source: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"wharfinger\[tables\]"):
        source.read(f"{TOP}/one.xlsx")
    assert rows(source, "a.csv?rows=1-") == [{"a": 1}]


# Changes, search and policy


def test_a_rewritten_workbook_is_noticed(folder: Path, source: Tables, recorder: ChangeRecorder) -> None:
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
    assert [hit.uri for hit in search_documents(source, "hiddenword", 5)] == [f"{TOP}/shop.xlsx"]
    assert "Ann" not in "".join(source.text(f"{TOP}/shop.xlsx/Sales%202026"))


def test_a_sheet_that_may_not_be_read_is_as_if_it_were_not_there(source: Tables, permit: Permit) -> None:
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
        shown = source.shown_documents()
        assert shown is not None
        assert (shown(f"{TOP}/shop.xlsx"), shown(f"{TOP}/one.xlsx"), shown(f"{TOP}/a.csv")) == (False, True, True)
        assert not search_documents(source, "hiddenword", 5)
    with permit(f"{TOP}/**", deny=[f"{TOP}/one.xlsx/Only"]), pytest.raises(ResourceNotFound):
        source.read(f"{TOP}/one.xlsx?rows=1-")


def test_workbooks_are_served_and_read_through_the_front_door(folder: Path) -> None:
    asyncio.run(read_through_front_door(folder))


async def read_through_front_door(folder: Path) -> None:
    command = [sys.executable, "-m", "wharfinger", "serve", "--allow-query", f"table:{folder}/*.xlsx"]
    async with Client(command) as client:
        found = await client.read_resource(f"{TOP}/one.xlsx/Only?port=Hull")
        assert json.loads(str(found.contents[0].text))["amount"] == 12.5
        answer = await client.call_tool("query", {"statement": 'SELECT sum(pay) AS pay FROM "shop.xlsx/Staff"'})
        assert "270" in str(answer.content[0])
        overview = await client.call_tool("read_resource", {"uri": f"{TOP}/shop.xlsx"})
        assert "Sales%202026" in str(overview.content[0])


class TestWorkbooks(SourceContract):
    missing = f"{TOP}/one.xlsx/None"
    windowed = f"{TOP}/big.xlsx/S?rows=1-"

    folder: Path

    @pytest.fixture
    def source(self, folder: Path) -> Iterator[Tables]:
        type(self).folder = folder
        write(folder / "big.xlsx", {"S": [["id"], *[[n] for n in range(1_000)]]})
        with published(folder) as made:
            yield made

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
