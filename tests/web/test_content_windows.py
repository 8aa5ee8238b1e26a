"""Long texts and tables are split into windows."""

from __future__ import annotations

import csv
import io
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wharfinger.web.content_windows import (
    MAX_COLUMNS,
    WINDOW_CHARACTERS,
    WINDOW_LINES,
    ContentWindows,
    TableWindows,
    indented_json,
)


@given(st.text(alphabet=st.sampled_from("ab\n"), max_size=3000), st.integers(1, 300))
def test_the_windows_joined_are_the_text(text: str, times: int) -> None:
    windows = ContentWindows(text * times)
    parts = [windows.window(number) for number in range(len(windows))]
    assert "".join(part for part, _ in parts) == text * times
    for part, _ in parts:
        assert len(part) <= WINDOW_CHARACTERS
        assert part.count("\n") <= WINDOW_LINES
    for (part, line), (_, following) in itertools.pairwise(parts):
        assert following == line + part.count("\n")


@pytest.mark.parametrize(("lines", "expected"), [(WINDOW_LINES, 1), (WINDOW_LINES + 1, 2)])
def test_a_window_has_at_most_500_lines(lines: int, expected: int) -> None:
    assert len(ContentWindows("x\n" * lines)) == expected


@pytest.mark.parametrize(("size", "expected"), [(WINDOW_CHARACTERS, 1), (WINDOW_CHARACTERS + 1, 2)])
def test_a_window_has_at_most_65_536_characters(size: int, expected: int) -> None:
    assert len(ContentWindows("x" * size)) == expected


def test_a_table_of_csv_has_its_header_and_rows() -> None:
    rows = [["a", "b"], *([str(number), 'x, "y"\nz'] for number in range(401))]
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    table = TableWindows(text.getvalue(), ",")
    assert (table.header, table.row_count, len(table)) == (["a", "b"], 401, 3)
    assert [row for number in range(3) for row in table.window(number)[0]] == rows[1:]
    assert table.window(2) == ([["400", 'x, "y"\nz']], 401)


def test_json_lines_are_a_table_with_their_keys_as_header() -> None:
    table = TableWindows('{"a": 1}\n\n{"a": [2], "b": "x"}\n', "jsonl")
    assert (table.header, table.window(0)[0]) == (["a", "b"], [["1", ""], ["[2]", "x"]])
    with pytest.raises(ValueError):
        TableWindows("[1]\n", "jsonl")


def test_line_separators_of_unicode_do_not_end_json_lines() -> None:
    """A bug: such lines were shown as text, without a table."""
    table = TableWindows('{"a": "one\u2028two"}\r\n{"a": "three\x85"}\r\n', "jsonl")
    assert table.window(0)[0] == [["one\u2028two"], ["three\x85"]]


@pytest.mark.parametrize("columns", [MAX_COLUMNS, MAX_COLUMNS + 1])
def test_a_table_shows_at_most_50_columns_and_counts_all(columns: int) -> None:
    table = TableWindows(",".join(["x"] * columns), ",")
    assert (len(table.header), table.column_count) == (MAX_COLUMNS, columns)


def test_json_is_indented_and_other_text_is_unchanged() -> None:
    assert indented_json('{"a":[1]}') == '{\n  "a": [\n    1\n  ]\n}'
    for text in ("{", "[" * 100_000, ""):
        assert indented_json(text) == text
