"""Divides a text, or the rows of a table, into windows that a browser can show."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

__all__ = ["ContentWindows", "TableWindows", "indented_json"]

WINDOW_LINES = 500
WINDOW_CHARACTERS = 64 * 1024
"""A window has at most this many characters; a longer line continues in the next window."""
WINDOW_ROWS = 200
MAX_COLUMNS = 50
MAX_CELL_CHARACTERS = 300
MAX_JSON_CHARACTERS = 4 * 1024 * 1024
"""Longer JSON is shown as it is: indenting takes several times its size."""


class ContentWindows:
    """Divides a text into windows of lines."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._starts = [(0, 1)]
        """The offset at which each window begins, and the number of its first line."""
        offset, line = 0, 1
        while True:
            end, lines = self._end(offset)
            if end >= len(text):
                break
            offset, line = end, line + lines
            self._starts.append((offset, line))
        self.line_count = text.count("\n") + (not text.endswith("\n") and bool(text))

    def __len__(self) -> int:
        return len(self._starts)

    def window(self, number: int) -> tuple[str, int]:
        """Return the text of a window, and the number of its first line (from 1)."""
        start, line = self._starts[number]
        return self.text[start : self._end(start)[0]], line

    def _end(self, start: int) -> tuple[int, int]:
        """Return the end of the window that begins at `start`, and the number of line ends in it."""
        offset, lines = start, 0
        bound = min(len(self.text), start + WINDOW_CHARACTERS)
        while lines < WINDOW_LINES:
            line_end = self.text.find("\n", offset, bound)
            if line_end < 0:
                return (bound if lines == 0 or bound == len(self.text) else offset), lines
            offset, lines = line_end + 1, lines + 1
        return offset, lines


class TableWindows:
    """Divides the rows of a table into windows. `kind` is the character between values, or `jsonl` for JSON Lines.

    Raises:
        ValueError, csv.Error, RecursionError: the text cannot be read as such a table.
    """

    def __init__(self, text: str, kind: str) -> None:
        rows = _json_rows(text) if kind == "jsonl" else list(csv.reader(io.StringIO(text), delimiter=kind))
        self.header = [_cell(each) for each in rows[0][:MAX_COLUMNS]] if rows else []
        self.column_count = max(map(len, rows), default=0)
        self._rows = rows[1:]

    def __len__(self) -> int:
        return max(1, -(-len(self._rows) // WINDOW_ROWS))

    @property
    def row_count(self) -> int:
        """The number of rows below the header."""
        return len(self._rows)

    def window(self, number: int) -> tuple[list[list[str]], int]:
        """Return the rows of a window, and the number of its first row (from 1)."""
        start = number * WINDOW_ROWS
        rows = self._rows[start : start + WINDOW_ROWS]
        return [[_cell(each) for each in row[:MAX_COLUMNS]] for row in rows], start + 1


def _json_rows(text: str) -> list[list[Any]]:
    """Return JSON Lines as rows. The header has the names of members of the first `WINDOW_ROWS` objects.

    Raises:
        ValueError: a line is not an object, or there are no lines.
    """
    # Not splitlines(): JSON text may contain U+2028, where that would split.
    objects = [json.loads(line) for line in text.split("\n") if line.strip()]
    if not objects or not all(isinstance(row, dict) for row in objects):
        raise ValueError("These are not objects.")
    names = list(dict.fromkeys(name for row in objects[:WINDOW_ROWS] for name in row))
    return [names, *([row.get(name, "") for name in names] for row in objects)]


def _cell(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= MAX_CELL_CHARACTERS else text[:MAX_CELL_CHARACTERS] + "…"


def indented_json(text: str) -> str:
    """Return JSON with indentation, or the unchanged text if it is not JSON or too long."""
    if len(text) > MAX_JSON_CHARACTERS:
        return text
    try:
        return json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return text
