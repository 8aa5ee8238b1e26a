"""The interface of a format of tables, and the parts that several formats share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

from wharfinger.sources.folder.file_content import FileContent
from wharfinger.sources.sql_database.row_choice import RowChoice
from wharfinger.sources.sql_database.row_text import render
from wharfinger.sources.table_files.choice_sql import SqlColumn, conditions_of, sort_terms_of
from wharfinger.sources.table_files.duckdb_engine import DuckDBEngine, pattern_of
from wharfinger.sources.windows.line_index import LineIndex

__all__ = [
    "INTEGER_TYPES",
    "MAX_CELL_LENGTH",
    "MAX_COUNTED_BYTES",
    "MAX_LINE_BYTES",
    "OpenFile",
    "TableColumn",
    "TableFile",
    "clean_cell",
    "count_rows",
    "positions_of",
    "select",
]

MAX_CELL_LENGTH = 2_000
"""Maximum number of characters of one value. A longer value is cut and marked."""
MAX_LINE_BYTES = 4 << 20
"""Maximum bytes of one row of a file."""
MAX_COUNTED_BYTES = 8 << 20
"""Size of the largest CSV or JSON Lines file whose rows are counted for its overview."""
INTEGER_TYPES = frozenset(("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "UBIGINT", "UHUGEINT"))
"""The types of whole numbers that DuckDB detects in text files."""


class TableColumn(NamedTuple):
    """A column, and DuckDB's name of its type."""

    name: str
    type: str


class OpenFile(NamedTuple):
    """An open file. DuckDB opens it a second time, by `pattern`."""

    name: str
    descriptor: int
    path: str
    content: FileContent
    lines: LineIndex

    @property
    def pattern(self) -> str:
        """The pattern that matches only `path`."""
        return pattern_of(self.path)


class TableFile(Protocol):
    """The table in one version of a file. It may be used again with another `OpenFile` of this version."""

    columns: list[TableColumn]
    details: dict[str, Any]
    """Facts that only this format has, such as `delimiter`. The schema shows them."""
    source: str
    """The function of DuckDB that reads the file, with `?` for its path."""
    is_typed: bool
    """Whether values of `source` have the types of their columns. Otherwise they are texts, which are cast."""
    all_values_fit: bool
    """Whether each value fits the type of its column. Otherwise the type is a guess from the first rows."""

    def sql_columns(self) -> list[SqlColumn]:
        """Return the columns with the SQL of their values in rows of `source`."""
        ...

    def count(self, engine: DuckDBEngine, file: OpenFile) -> int | None:
        """Return the number of rows, or None if counting them would take long."""
        ...

    def rows(
        self, engine: DuckDBEngine, file: OpenFile, first: int, number: int, columns: Sequence[str]
    ) -> Iterator[str]:
        """Yield at most `number` rows as lines of JSON, beginning with row `first`, counted from 1."""
        ...

    def select_rows(
        self, engine: DuckDBEngine, file: OpenFile, first: int, number: int, choice: RowChoice
    ) -> Iterator[str]:
        """Yield the rows that meet the conditions of a choice, in its order, in the form of `rows`."""
        ...

    def count_matching(self, engine: DuckDBEngine, file: OpenFile, choice: RowChoice) -> int:
        """Count the rows that meet the conditions of a choice. This may read the whole file."""
        ...


def positions_of(columns: Sequence[TableColumn], names: Sequence[str]) -> list[int]:
    """Return the positions of the columns with these names, or of all columns if there are no names."""
    chosen_names = frozenset(names)
    return [position for position, column in enumerate(columns) if not names or column.name in chosen_names]


def count_rows(
    engine: DuckDBEngine, file: OpenFile, source: str, columns: Sequence[SqlColumn], choice: RowChoice
) -> int:
    """Count the rows of a source that meet the conditions of a choice."""
    where, values = conditions_of(columns, choice)
    statement = f"SELECT count(*) FROM {source} WHERE {where}"  # noqa: S608 - our own names and literals
    return int(engine.fetch_all(file.name, statement, [file.pattern, *values])[0][0])


def select(
    engine: DuckDBEngine,
    file: OpenFile,
    source: str,
    expressions: Sequence[str],
    columns: Sequence[SqlColumn],
    choice: RowChoice,
    first: int,
    number: int,
) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of a source that a choice selects, in its order. Rows with equal values keep the file's order."""
    where, values = conditions_of(columns, choice)
    terms = sort_terms_of(columns, choice)
    numbered_source = f"(SELECT *, row_number() OVER () AS {_ROW_NUMBER} FROM {source})" if terms else source  # noqa: S608
    order = f" ORDER BY {terms}, {_ROW_NUMBER}" if terms else ""
    statement = f"SELECT {', '.join(expressions)} FROM {numbered_source} WHERE {where}{order} LIMIT ? OFFSET ?"  # noqa: S608
    yield from engine.rows(file.name, statement, [file.pattern, *values, number, first - 1])


_ROW_NUMBER = '"place of the row in its file"'
"""A name that hardly any column of a file has."""


def clean_cell(value: object) -> object:
    """Convert a value to JSON. A text longer than `MAX_CELL_LENGTH` is cut."""
    return render(value, MAX_CELL_LENGTH)
