"""Converts the choice of rows in a URI (`RowChoice`) to DuckDB's SQL, for all formats. Does no I/O.

A value may not fit the type of its column. Values that fit are compared as values of this type, and others as text. A
text in a column of numbers meets no condition with a number except `neq`. Integers are compared as decimals, because a
DOUBLE has only 53 bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from wharfinger.errors import InvalidArgument
from wharfinger.sources.sql_database.row_choice import SIGNS, RowChoice, RowFilter, like_pattern

__all__ = ["SqlColumn", "conditions_of", "sort_terms_of"]

_DECIMAL = "DECIMAL(38, 10)"
_INTEGERS = frozenset(
    ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "UHUGEINT")
)
_FLOATS = frozenset(("FLOAT", "DOUBLE"))


class SqlColumn(NamedTuple):
    """A column of a file: its name, DuckDB's name of its type, and the SQL of its value.

    `parsed` is the SQL of the value in a form that can be cast to the type, or empty if `expression` itself can be.
    """

    name: str
    type: str
    expression: str
    parsed: str = ""

    @property
    def castable(self) -> str:
        """The SQL that is cast to the type."""
        return self.parsed or self.expression

    @property
    def text(self) -> str:
        """The SQL of its value as text."""
        return f"CAST({self.expression} AS VARCHAR)"

    @property
    def comparison_types(self) -> tuple[str, ...]:
        """The types to which values are cast for a comparison, the most exact first; none if texts are compared."""
        if self.type in _INTEGERS or self.type.startswith("DECIMAL"):
            return _DECIMAL, "DOUBLE"
        if self.type in _FLOATS:
            return ("DOUBLE",)
        if self.type == "DATE" or self.type.startswith("TIMESTAMP"):
            return ("TIMESTAMP",)
        return ()


def conditions_of(columns: Sequence[SqlColumn], choice: RowChoice) -> tuple[str, list[str]]:
    """Return the condition for WHERE, and its parameters.

    Raises:
        InvalidArgument: a condition such as `gt` compares a column of numbers with a text.
    """
    columns_by_name = {column.name: column for column in columns}
    parts: list[str] = []
    values: list[str] = []
    for row_filter in choice.filters:
        condition, parameters = _condition(columns_by_name[row_filter.column], row_filter)
        parts.append(f"({condition})")
        values += parameters
    return " AND ".join(parts) or "true", values


def _condition(column: SqlColumn, row_filter: RowFilter) -> tuple[str, list[str]]:
    if row_filter.operator == "is":
        return f"{column.expression} IS {'NOT ' if row_filter.value == 'notnull' else ''}NULL", []
    if row_filter.operator == "like":
        return f"{column.text} ILIKE ? ESCAPE '!'", [like_pattern(row_filter.value)]
    sign, value = SIGNS[row_filter.operator], row_filter.value
    if column.type == "BOOLEAN":
        return f"lower({column.text}) {sign} lower(?)", [value]
    kinds = column.comparison_types
    comparisons = [f"TRY_CAST({column.castable} AS {kind}) {sign} TRY_CAST(? AS {kind})" for kind in kinds]
    if "DOUBLE" in kinds and not _is_number(value):
        if sign not in ("=", "<>"):
            raise InvalidArgument(f"{column.name} has numbers ({column.type}): {value[:40]} is not a number.")
        comparisons = []
    elif "DOUBLE" in kinds:  # a text in a column of numbers matches only `neq`
        numbers = f"coalesce({', '.join(comparisons)}, {'true' if sign == '<>' else 'false'})"
        return f"{numbers} AND {column.expression} IS NOT NULL", [value] * len(comparisons)
    as_text = f"{column.text} {sign} ?"
    return (f"coalesce({', '.join([*comparisons, as_text])})" if comparisons else as_text), [value] * (
        len(comparisons) + 1
    )


def _is_number(value: str) -> bool:
    try:
        float(value)
    except ValueError:
        return False
    return len(value) < 400 and "_" not in value  # Python also accepts 1_000


def sort_terms_of(columns: Sequence[SqlColumn], choice: RowChoice) -> str:
    """Return the terms for ORDER BY. NULL comes last, and so does text in a column of numbers."""
    columns_by_name = {column.name: column for column in columns}
    terms: list[str] = []
    for term in choice.order:
        column = columns_by_name[term.column]
        keys = [f"TRY_CAST({column.castable} AS {kind})" for kind in column.comparison_types]
        terms += [f"{key}{' DESC' * term.descending} NULLS LAST" for key in [*keys, column.text]]
    return ", ".join(terms)
