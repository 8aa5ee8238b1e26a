"""CSV files with many encodings, separators, ragged rows and broken quotes, compared with Python's csv module."""

from __future__ import annotations

import codecs
import csv
import io
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from wharfinger.errors import InvalidArgument
from wharfinger.source import UnusableSource
from wharfinger.sources.table_files import Tables, UnreadableTable, csv_encoding, open_tables, tables
from wharfinger.sources.table_files.converted_files import ConvertedFiles
from wharfinger.testing.source_suite.driver import ChangeRecorder

TEXT = "name,n\nHavn på Fyn,1\nkostede 5 € – “billigt”,2\n"
EXPECTED_ROWS = [{"name": "Havn på Fyn", "n": 1}, {"name": "kostede 5 € – “billigt”", "n": 2}]


@contextmanager
def publish(path: Path, **options: Any) -> Iterator[Tables]:
    source = tables(path, label="t", **options)
    try:
        yield source
    finally:
        source._watches.close()
        source._watches.join()
        source._opener.close()


def rows_of(source: Tables, name: str, query: str = "?rows=1-") -> list[dict[str, Any]]:
    text = str(source.read(f"table://t/{name}{query}").contents[0].text)
    return [json.loads(line) for line in text.splitlines()]


def read(path: Path, content: bytes | str, query: str = "?rows=1-", **options: Any) -> list[dict[str, Any]]:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with publish(path, **options) as source:
        return rows_of(source, path.name, query)


@pytest.mark.parametrize(
    ("encoding", "reported"),
    [
        ("utf-8", "utf-8"),
        ("utf-8-sig", "utf-8"),
        ("windows-1252", "windows-1252"),
        ("utf-16", "utf-16-le"),
        ("utf-32", "utf-32-le"),
    ],
)
def test_the_encoding_is_detected_and_reported(tmp_path: Path, encoding: str, reported: str) -> None:
    path = tmp_path / "x.csv"
    path.write_bytes(TEXT.encode(encoding))
    with publish(path) as source:
        assert rows_of(source, "x.csv") == EXPECTED_ROWS
        assert json.loads(str(source.read("table://t/x.csv/schema").contents[0].text))["encoding"] == reported
        overview = str(source.read("table://t/x.csv").contents[0].text)
        assert (f"The encoding is {reported}." in overview) is (reported != "utf-8")
        assert "på Fyn" in "".join(source.text("table://t/x.csv"))
        assert rows_of(source, "x.csv", "?name=like.*€*&columns=n") == [{"n": 2}]
        assert source.query("SELECT max(name) FROM x").rows == [["kostede 5 € – “billigt”"]]
        assert not list(Path(source.root).glob("*[!v]"))  # converted copies are in another folder


@pytest.mark.parametrize("text", ["a\npå\n", "Preis;n\n" + "1,50 €;3\n" * 100, "nom,n\nà,1\n"])
def test_a_table_with_few_letters_is_read_as_windows_1252(tmp_path: Path, text: str) -> None:
    assert read(tmp_path / "x.csv", text.encode("cp1252")) == read(tmp_path / "y.csv", text)


@pytest.mark.parametrize("encoding", ["koi8-r", "cp1251", "iso8859-5", "shift-jis", "gbk", "euc-kr"])
def test_text_in_an_unknown_encoding_of_another_script_is_refused(tmp_path: Path, encoding: str) -> None:
    word = {"shift-jis": "こんにちは", "gbk": "你好世界", "euc-kr": "안녕하세요"}.get(encoding, "привет")
    with pytest.raises(UnreadableTable, match="does not show its encoding"):
        read(tmp_path / "x.csv", f"a,b\n{word},1\n".encode(encoding))


def test_utf_16_with_the_high_byte_first_is_read(tmp_path: Path) -> None:
    assert read(tmp_path / "x.csv", b"\xfe\xff" + TEXT.encode("utf-16-be")) == EXPECTED_ROWS


def test_the_encoding_is_detected_by_a_byte_at_the_end_of_a_large_file(tmp_path: Path) -> None:
    lines = b"a,b\n" + b"1,2\n" * 400_000 + "på €,2\n".encode("cp1252")
    assert read(tmp_path / "x.csv", lines, "?tail=1") == [{"a": "på €", "b": 2}]


def test_accents_and_quotes_in_a_row_late_in_a_large_file_are_windows_1252(tmp_path: Path) -> None:
    lines = b"a,b\n" + b"1,2\n" * 400_000 + ("il a été cité,1\n" * 300 + "“cité”…,2\n").encode("cp1252")
    assert read(tmp_path / "x.csv", lines, "?tail=1") == [{"a": "“cité”…", "b": 2}]


def test_the_encoding_can_be_configured(tmp_path: Path) -> None:
    content = "имя;б\nпривет;1,5\n".encode("koi8-r")
    assert read(tmp_path / "x.csv", content, encoding="koi8-r") == [{"имя": "привет", "б": 1.5}]
    with publish(tmp_path / "x.csv", encoding="KOI8_R") as source:
        assert "привет" in "".join(source.text("table://t/x.csv"))
    with publish(tmp_path / "x.csv", encoding="utf-8") as source, pytest.raises(UnreadableTable, match="line 1"):
        rows_of(source, "x.csv")
    for name in ("klingon", "base64", "hex", "", "\0"):
        with pytest.raises(UnusableSource, match="is not an encoding"):
            tables(tmp_path / "x.csv", encoding=name)


@pytest.mark.parametrize("excess", [0, 1])
def test_the_size_of_a_converted_file_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, excess: int) -> None:
    content = TEXT.encode("cp1252")
    monkeypatch.setattr(csv_encoding, "MAX_COPIED_BYTES", len(content) - excess)
    if excess:
        with pytest.raises(UnreadableTable, match="must be in UTF-8"):
            read(tmp_path / "x.csv", content)
    else:
        assert read(tmp_path / "x.csv", content) == EXPECTED_ROWS


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty folder for temporary files."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_the_total_size_of_copies_is_limited_and_close_removes_them(temporary: Path) -> None:
    copies = ConvertedFiles(max_bytes=1_000)
    written: list[str] = []

    def writer_of(name: str) -> Callable[[Any], str]:
        def write(out: Any) -> str:
            written.append(name)
            out.write(name.encode() * 500)
            return name

        return write

    def read_copy(name: str, version: str = "1") -> bytes:
        with copies.open(name, version, writer_of(name)) as copy:
            assert copy.facts == name
            return os.pread(copy.descriptor, 1_000, 0)

    assert [read_copy(name) for name in "abab"] == [b"a" * 500, b"b" * 500] * 2
    (folder,) = temporary.iterdir()
    assert written == ["a", "b"] and len(os.listdir(folder)) == 2
    read_copy("c")  # 1,500 bytes: the least recently used copy is removed
    assert len(os.listdir(folder)) == 2
    read_copy("a")
    read_copy("a", "2")
    assert written == ["a", "b", "c", "a", "a"]
    with copies.open("a", "2", writer_of("a")) as still_open:
        for name in "bcd":
            read_copy(name)
        assert len(os.listdir(folder)) == 3
        assert os.path.exists(still_open.path)
    assert len(os.listdir(folder)) == 2
    with copies.open("d", "1", writer_of("d")) as still_open:
        copies.close()
        assert os.path.exists(still_open.path)  # DuckDB cannot open a file that was removed
    assert not any(temporary.iterdir())
    assert read_copy("a", "2") == b"a" * 500
    with pytest.raises(ZeroDivisionError), copies.open("d", "1", lambda out: 1 // 0):
        pass
    (folder,) = temporary.iterdir()
    assert len(os.listdir(folder)) == 1
    copies.close()


@pytest.mark.parametrize("fails", [False, True])
def test_a_copy_that_is_made_while_the_copies_are_closed_is_removed(fails: bool, temporary: Path) -> None:
    """A bug: the copy stayed behind, or could not be opened. Now the caller can read it, and nothing is left."""
    copies = ConvertedFiles()

    def write(out: Any) -> None:
        copies.close()
        out.write(b"a")
        if fails:
            raise ZeroDivisionError

    if fails:
        with pytest.raises(ZeroDivisionError), copies.open("key", "1", write):
            pass
    else:
        with copies.open("key", "1", write) as copy:
            assert Path(copy.path).read_bytes() == b"a"
            with copies.open("key", "1", lambda _: "made again") as other:
                assert other.facts == "made again"
                assert os.path.dirname(other.path) != os.path.dirname(copy.path)
            assert len(list(temporary.iterdir())) == 2
        assert [*temporary.iterdir()] == [Path(other.path).parent]
    copies.close()
    assert not any(temporary.iterdir())


def test_a_table_can_be_read_if_its_source_is_closed_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x.csv").write_bytes(TEXT.encode("cp1252"))
    with publish(tmp_path) as source:
        rows = rows_of(source, "x.csv")
        source._opener.close()
        copy_as_utf8 = open_tables.copy_as_utf8

        def close_and_copy(*arguments: Any) -> None:
            source._opener.close()
            copy_as_utf8(*arguments)

        monkeypatch.setattr(open_tables, "copy_as_utf8", close_and_copy)
        assert rows_of(source, "x.csv") == rows


@pytest.mark.parametrize(
    ("content", "encoding"),
    [(TEXT, "cp1252"), (";".join(f"c{n}" for n in range(2_100)) + "\n" + ";".join(["1"] * 2_100) + "\n", "utf-8")],
    ids=["encoding", "wide"],
)
def test_a_table_that_is_copied_can_be_read_after_its_source_was_closed(
    tmp_path: Path, content: str, encoding: str
) -> None:
    """The copies are in a new folder then."""
    (tmp_path / "x.csv").write_bytes(content.encode(encoding))
    with publish(tmp_path) as source:
        rows = rows_of(source, "x.csv")
        source._opener.close()
        assert rows_of(source, "x.csv") == rows
        assert source.query("SELECT count(*) FROM x").rows == [[len(rows)]]


def test_a_rewritten_file_is_copied_again(tmp_path: Path, recorder: ChangeRecorder) -> None:
    path = tmp_path / "x.csv"
    path.write_bytes("a\npå\n".encode("cp1252"))
    with publish(path) as source:
        assert rows_of(source, "x.csv") == [{"a": "på"}]
        source.watch("table://t/x.csv", recorder)
        path.write_bytes("a\ngår det\n".encode("cp1252"))
        recorder.wait_for("table://t/x.csv")
        assert rows_of(source, "x.csv") == [{"a": "går det"}]


def test_decimal_commas_are_numbers(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    found = read(path, "a;b;c\n1,5;2,25;x\n10,75;3;y\n-0,5;;z\n")
    assert found == [{"a": 1.5, "b": 2.25, "c": "x"}, {"a": 10.75, "b": 3, "c": "y"}, {"a": -0.5, "b": None, "c": "z"}]
    with publish(path) as source:
        assert rows_of(source, "x.csv", "?a=gt.1.5&columns=c") == [{"c": "y"}]
        assert [row["c"] for row in rows_of(source, "x.csv", "?order=-a")] == ["y", "x", "z"]
        assert source.query("SELECT sum(a), max(b) FROM x").rows == [[11.75, 3.0]]
        assert "Numbers have decimal commas in a, b." in str(source.read("table://t/x.csv").contents[0].text)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("1,234", "1,234"),  # it may mean 1234
        ("1.234,56", "1.234,56"),
        ("5,00 €", "5,00 €"),
        ("01,5", "01,5"),
        ("1,23", 1.23),
        ("-7,1234", -7.1234),
    ],
)
def test_only_certain_decimal_numbers_are_read_as_numbers(tmp_path: Path, value: str, expected: object) -> None:
    assert read(tmp_path / "x.csv", f"a;b\n{value};x\n") == [{"a": expected, "b": "x"}]


def test_a_late_value_that_is_not_a_decimal_number_is_read_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    content = "a;b\n" + "1,5;x\n" * 30_000 + "1.234,5;y\n"
    assert read(path, content, "?tail=1") == [{"a": "1.234,5", "b": "y"}]
    with publish(path) as source:
        assert source.query("SELECT a FROM x WHERE b = 'y'").rows == [["1.234,5"]]


@pytest.mark.parametrize("cell", ["1e999", "-1e999", "1٢", "1.٢", "007"])
@pytest.mark.parametrize("number", ["1", "1.5"])
def test_a_late_value_that_is_no_number_of_json_or_too_large_is_read_unchanged(
    tmp_path: Path, cell: str, number: str
) -> None:
    """A bug: 1e999 became "Infinity", and digits of other scripts became numbers."""
    content = "a,b\n" + f"{number},x\n" * 30_000 + f"{cell},y\n"
    assert read(tmp_path / "x.csv", content, "?tail=2") == [{"a": json.loads(number), "b": "x"}, {"a": cell, "b": "y"}]


@pytest.mark.parametrize("cell", ["01,5", "1,5e999", "1,٢"])
def test_a_late_value_with_a_decimal_comma_that_is_no_number_keeps_its_comma(tmp_path: Path, cell: str) -> None:
    """A bug: its comma became a point, or it became "Infinity"."""
    content = "a;b\n" + "1,5;x\n" * 30_000 + f"{cell};y\n"
    assert read(tmp_path / "x.csv", content, "?tail=1") == [{"a": cell, "b": "y"}]


def test_dates_in_other_formats_are_compared_as_dates(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("day,n\n31/12/2025,1\n01/02/2026,2\n15/03/2026,3\n")
    with publish(path) as source:
        assert [row["n"] for row in rows_of(source, "x.csv", "?day=gte.2026-01-15")] == [2, 3]
        assert [row["day"] for row in rows_of(source, "x.csv", "?order=day")] == [
            "31/12/2025",
            "01/02/2026",
            "15/03/2026",
        ]
        assert source.query("SELECT max(day) FROM x").rows == [["2026-03-15"]]
        assert "The format of dates is %d/%m/%Y" in str(source.read("table://t/x.csv").contents[0].text)


RAGGED = {
    "long": "a,b\n1,2\n3,4,5\n6,7\n",
    "longer": "a,b\n1,2\n3,4,5,6\n8,9\n",
    "short": "a,b,c\n1,2,3\n4\n5,6\n",
    "mixed ends": "a,b\r\n1,2\n3,4\r\n5,6\n",
    "mixed ends and long": "a,b\r\n1,2\n3,4,5\r\n6,7\n",
    "quoted newlines": 'a,b\r\n"x\r\ny",2\r\n"z\nw",4\r\n',
    "late quoted newline": "a,b\n" + "1,2\n" * 25_000 + '"x\ny",3\n4,5\n',
    "trailing commas": "a,b,\n1,2,\n3,4,\n",
    "late short": "a,b,c\n" + "1,2,3\n" * 25_000 + "4\n5,6,7\n",
    "quotes in a value": 'a,b\n1,"he said ""hi"""\n2,"x\\"\n',
    "odd quotes": "a,b\n" + "1,2\n" * 25_000 + '3,5" pipe\n4,x\n',
    "late NUL": "a,b\n" + "1,2\n" * 600_000 + "1,x\0y\n2,3\n",
    "no end": "a,b\n1,2\n3,4",
    "one column": "a\nx\ny\n",
}


@pytest.mark.parametrize("name", RAGGED)
def test_ragged_rows_lose_no_cells(tmp_path: Path, name: str) -> None:
    """Rows have the cells that Python's csv module finds, and null for missing cells."""
    path = tmp_path / "x.csv"
    path.write_text(RAGGED[name], newline="")
    with path.open(newline="") as file:
        expected = list(csv.reader(file))[1:]
    with publish(path) as source:
        found: list[list[Any]] = []
        uri: Any = "table://t/x.csv?rows=1-9000"
        while uri:
            content = source.read(uri).contents[0]
            found += [list(json.loads(line).values()) for line in str(content.text).splitlines()]
            assert isinstance(content.meta, dict)
            uri = content.meta.get("wharfinger/next")
    assert len(found) == len(expected)
    for row, cells in zip(found, expected, strict=True):
        padded = [cell or None for cell in cells] + [None] * (len(row) - len(cells))
        assert [cell if cell is None else str(cell) for cell in row] == padded


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a,b\n" + "1,2\n" * 25_000 + "3,4,5\n", "line 25002: Expected Number of Columns: 2 Found: 3"),
        ("a,b\n" + "1,2\n" * 25_000 + '1,"x"y\n2,3\n', "line 25002"),
        ("a,b\n" + "1,2\n" * 25_000 + '1,"x\n2,3\n4,5\n', "line 25,002: the quote is not closed"),
        ('a,b\n"","x""\n2,3\n4,5\n', "line 2: the quote is not closed"),
        ("a;b\n" + "1;2\n" * 3 + '"', "its rows do not fit together: is a quote not closed"),
    ],
)
def test_the_error_for_a_row_that_cannot_be_read_has_its_line(tmp_path: Path, content: str, message: str) -> None:
    with pytest.raises(UnreadableTable) as caught:
        read(tmp_path / "x.csv", content, "?tail=10")
    assert message in str(caught.value)


def test_a_line_of_100_mb_is_refused_quickly(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    with path.open("wb") as file:
        file.write(b"a,b\n1,2\n")
        file.write(b"x" * 100_000_000)
    began = time.process_time()
    with publish(path) as source, pytest.raises(UnreadableTable, match=r"x\.csv: line 3 has more than 4 MiB"):
        rows_of(source, "x.csv")
    assert time.process_time() - began < 5


CELLS = st.text(st.sampled_from("ab1 ø\n\"';,|\t"), max_size=6)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    table=st.lists(st.lists(CELLS, min_size=2, max_size=4), min_size=1, max_size=12),
    delimiter=st.sampled_from(",;\t|"),
    end=st.sampled_from(["\n", "\r\n"]),
    quoting=st.sampled_from([csv.QUOTE_ALL, csv.QUOTE_MINIMAL]),
)
def test_any_table_is_refused_or_read_without_losing_characters(
    tmp_path: Path, table: list[list[str]], delimiter: str, end: str, quoting: Any
) -> None:
    text_file = io.StringIO()
    csv.writer(text_file, delimiter=delimiter, quoting=quoting, lineterminator=end).writerows(
        [["left", "right"], *table]
    )
    text = text_file.getvalue()
    try:
        found = read(tmp_path / "x.csv", text)
    except InvalidArgument:
        return
    cells = "".join(cell for row in table for cell in row)
    read_text = "".join(str(value) for row in found for pair in row.items() for value in pair if value is not None)
    for character in "abø":  # the delimiter of a small table may be guessed wrong
        assert read_text.count(character) >= cells.count(character)


# Thousands of columns


@pytest.mark.parametrize(("beginning", "line_end"), [("\n", "\n"), ("\n\n", "\r\n"), ("\ufeff\n", "\n")])
def test_the_header_may_follow_empty_lines(tmp_path: Path, beginning: str, line_end: str) -> None:
    """A bug: the header was returned as the first row too."""
    text = (beginning + "name,n\nHull,1\nOslo,2\n").replace("\n", line_end)
    assert read(tmp_path / "x.csv", text) == [{"name": "Hull", "n": 1}, {"name": "Oslo", "n": 2}]


def test_the_header_of_a_wide_file_may_follow_empty_lines(tmp_path: Path) -> None:
    """A bug: such a file was not recognized as wide."""
    rows = read(tmp_path / "x.csv", wide_csv(3_000))
    assert len(rows) == 3 and read(tmp_path / "y.csv", "\n" + wide_csv(3_000)) == rows


def wide_csv(count: int, rows: int = 3, delimiter: str = ",") -> str:
    lines = [delimiter.join(f"c{column}" for column in range(count))]
    return (
        "\n".join(lines + [delimiter.join(str(column + row) for column in range(count)) for row in range(rows)]) + "\n"
    )


@pytest.mark.parametrize("count", [csv_encoding.MAX_CSV_COLUMNS, csv_encoding.MAX_CSV_COLUMNS + 1, 12_000])
def test_thousands_of_columns_stay_within_the_budget(tmp_path: Path, count: int) -> None:
    path = tmp_path / "x.csv"
    path.write_text(wide_csv(count))
    with publish(path) as source:
        overview = str(source.read("table://t/x.csv").contents[0].text)
        assert len(overview) < 12_000
        assert f"{count - 100:,} more columns: table://t/x.csv/schema?columns=101-" in overview
        listed: list[str] = []
        uri = "table://t/x.csv/schema"
        while uri:
            content = source.read(uri).contents[0]
            assert len(str(content.text)) < 26_000
            schema = json.loads(str(content.text))
            listed += [column["name"] for column in schema["columns"]]
            uri = schema.get("next", "")
            assert schema.get("columnsLeftOut", 0) == count - len(listed)
        assert listed == [f"c{column}" for column in range(count)]
        rows, note = source.read("table://t/x.csv?rows=1-2").contents
        assert [len(json.loads(line)) for line in str(rows.text).splitlines()] == [100, 100]
        assert f"the first 100 of {count:,} columns. For others, add columns=101-200" in str(note.text)
        assert schema["encoding"] == "utf-8"
        assert rows_of(source, "x.csv", "?rows=2-2&columns=c7,101-102,c7") == [{"c7": 8, "c100": 101, "c101": 102}]
        assert len(rows_of(source, "x.csv", "?rows=1-1&columns=301-")[0]) == 100
        assert rows_of(source, "x.csv", f"?c{count - 1}={count}&columns=c0") == [{"c0": 1}]
        assert rows_of(source, "x.csv", "?order=-c5&columns=c0&limit=1") == [{"c0": 2}]
        assert len(str(source.read("table://t/x.csv/sample").contents[0].text)) < 40_000
        assert source.query(f"SELECT sum(c5), sum(c{count - 1}) FROM x").rows == [[18, 3 * count]]
        assert len(source.complete(source.rows_template, "columns", "c1", {"path": "x.csv"})) == 101
        assert f"c{count - 1}" in "".join(source.text("table://t/x.csv"))
        for query in ("columns=0-5", f"columns={count}-{count + 1}", f"columns={count + 1}-", "columns=9-5"):
            with pytest.raises(InvalidArgument, match="is not a range"):
                source.read(f"table://t/x.csv?{query}")
        with pytest.raises(InvalidArgument) as caught:
            source.read("table://t/x.csv?none=1")
        assert len(str(caught.value)) < 1_500
        with pytest.raises(InvalidArgument, match="takes only columns"):
            source.read("table://t/x.csv/schema?rows=1-2")


def test_damaged_utf_8_in_a_wide_file_is_reported(tmp_path: Path) -> None:
    """A bug: the error said that the process crashed."""
    (tmp_path / "x.csv").write_bytes(wide_csv(3_000).encode() + "é".encode() * 3 + b"\xff" + b"," * 2_999 + b"\n")
    with pytest.raises(UnreadableTable, match=r"after line \d, the byte ff is not valid UTF-8"):
        tables(tmp_path, label="t").read("table://t/x.csv")


@pytest.mark.parametrize(
    ("ending", "message"),
    [("1," * 3_000 + "2\n", "line 5 has 3,001 cells, and the first row 3,000"), ('"x', "line 5: unexpected end")],
)
def test_the_error_for_a_broken_row_of_a_wide_file_has_its_line(tmp_path: Path, ending: str, message: str) -> None:
    with pytest.raises(UnreadableTable) as caught:
        read(tmp_path / "x.csv", wide_csv(3_000) + ending)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("cell", "message"),
    [('"a"b', "line 1: ',' expected"), ('"' + "x" * (5 << 20) + '"', "line 1: field larger than field limit")],
    ids=["quote", "large"],
)
def test_the_error_for_a_broken_header_of_a_wide_file_has_its_line(tmp_path: Path, cell: str, message: str) -> None:
    """A cell may have 4 MiB."""
    header = wide_csv(3_000, 0).rstrip()
    with pytest.raises(UnreadableTable) as caught:
        read(tmp_path / "x.csv", f"{header},{cell}\n")
    assert message in str(caught.value)


@pytest.mark.parametrize("cell", ["1\N{ARABIC-INDIC DIGIT TWO}", "1e999"])
def test_a_cell_of_a_wide_file_that_is_no_number_of_json_stays_a_text(tmp_path: Path, cell: str) -> None:
    (tmp_path / "x.csv").write_text(wide_csv(3_000) + cell + ",1" * 2_999 + "\n", encoding="utf-8")
    with publish(tmp_path) as source:
        assert rows_of(source, "x.csv", "?rows=4-4&columns=c0,c1") == [{"c0": cell, "c1": 1}]


@pytest.mark.parametrize("count", [csv_encoding.MAX_CSV_COLUMNS, csv_encoding.MAX_CSV_COLUMNS + 1])
def test_values_of_files_with_many_columns_have_the_same_types(tmp_path: Path, count: int) -> None:
    cells = ["1", "007", "1.5", "", "x y", "-3", "12345678901234567", "é"]
    line = ";".join((cells * count)[:count])
    header = ";".join(f"c{column}" for column in range(count))
    (row,) = read(tmp_path / "x.csv", f"{header}\n{line}\n", "?columns=1-8&rows=1-1")
    assert list(row.values()) == [1, row["c1"], 1.5, None, "x y", -3, "12345678901234567", "é"]
    assert row["c1"] == "007"


def test_the_name_of_a_column_takes_precedence_over_a_range(tmp_path: Path) -> None:
    assert read(tmp_path / "x.csv", "1-2,b,c\n7,8,x\n", "?columns=1-2") == [{"1-2": 7}]
    assert read(tmp_path / "x.csv", "a,b,c\n7,8,x\n", "?columns=1-2") == [{"a": 7, "b": 8}]


@pytest.mark.parametrize("repeat", [5, 120_000], ids=["small", "large"])
@pytest.mark.parametrize("mark", ["", "\ufeff"], ids=["plain", "marked"])
@pytest.mark.parametrize("text", ["Zoé,Genève\n", "имя,город\n"])
def test_utf_8_with_a_damaged_byte_is_refused_with_its_line(tmp_path: Path, text: str, mark: str, repeat: int) -> None:
    """A bug: the whole file was read as windows-1252, or its first line was reported."""
    content = f"{mark}name,city\n{text * repeat}".encode() + b"x,\xff\n"
    with pytest.raises(UnreadableTable, match=f"line {repeat + 2}") as caught:
        read(tmp_path / "x.csv", content, "?tail=1")
    assert "1252" not in str(caught.value)


def test_a_file_with_a_mark_of_utf_8_is_never_read_as_windows_1252(tmp_path: Path) -> None:
    """A bug: if most of its bytes were windows-1252, it was, and the mark became a part of the first column's name."""
    content = codecs.BOM_UTF8 + "nom,café crème\n".encode("cp1252") * 400
    with pytest.raises(UnreadableTable, match="line 1") as caught:
        read(tmp_path / "x.csv", content, "?tail=1")
    assert "1252" not in str(caught.value)


def test_text_of_another_script_late_in_a_large_file_is_refused(tmp_path: Path) -> None:
    """A bug: it was read as windows-1252, which the same text near the beginning is not."""
    with pytest.raises(UnreadableTable, match="does not show its encoding"):
        read(tmp_path / "x.csv", b"a,b\n" * 300_000 + "Москва,Россия\n".encode("cp1251"), "?tail=1")


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32"])
def test_the_error_for_a_missing_byte_order_mark_suggests_encodings_without_one(tmp_path: Path, encoding: str) -> None:
    """A bug: it was a bare UnicodeError."""
    with pytest.raises(UnreadableTable, match=f"Try {encoding}-le or {encoding}-be"):
        read(tmp_path / "x.csv", TEXT.encode(f"{encoding}-le"), encoding=encoding)


@pytest.mark.parametrize("encoding", ["idna", "punycode", "unicode-escape", "raw-unicode-escape"])
def test_an_encoding_that_is_not_for_documents_is_refused(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "x.csv").write_text(TEXT)
    with pytest.raises(UnusableSource, match="is not an encoding"):
        tables(tmp_path / "x.csv", encoding=encoding)


def test_commas_in_quotes_are_not_counted_as_columns(tmp_path: Path) -> None:
    """A bug: a text of 600 commas in the first row made a table of 601 columns."""
    text = "lorem, " * 600
    rows = read(tmp_path / "x.csv", f'1;"{text}"\n2;x\n3;y\n')
    assert [list(row.values()) for row in rows][-2:] == [[2, "x"], [3, "y"]]


def test_a_file_with_cr_line_ends_is_not_taken_for_a_wide_one(tmp_path: Path, temporary: Path) -> None:
    """A bug: all its rows were counted as one line, and it was copied."""
    (tmp_path / "x.csv").write_bytes(b"id,name,city\r" + b"1,n,Rome\r" * 400)
    with publish(tmp_path / "x.csv") as source:
        assert rows_of(source, "x.csv", "?rows=400-") == [{"id": 1, "name": "n", "city": "Rome"}]
        assert not list(temporary.glob("*/*"))
