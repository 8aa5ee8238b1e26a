"""The order of a table's rows, and the condition for the rows after or before one of them. Does no I/O.

Rows are ordered by the requested columns, then by the key, so that no two rows have the same place. A window
starts after the last row of the one before it ("keyset pagination"). If the order is `a, b` and that row is (1, 2), the
condition is

    a > 1 OR (a = 1 AND b > 2)

Two rules keep this exact. NULL equals nothing in SQL, so it is compared with IS NULL, and in requested columns it comes
last in every database. A key that may be NULL (SQLite allows it in `TEXT PRIMARY KEY`) is followed by the rowid,
because several rows may then have the same key. If all columns go in one direction and none may be NULL, statements for
SQLite and PostgreSQL have row values such as `(a, b) > (1, 2)` instead, because both use an index for them.

A table without a key is ordered by all its columns. Rows that are equal in all of them cannot be distinguished, so such
a table is read by position (`rows=201-400`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from wharfinger.content.text import many
from wharfinger.sources.sql_database.database_catalogue import DatabaseTable, UniqueKey
from wharfinger.sources.sql_database.database_engine import BadKey, Span
from wharfinger.sources.sql_database.sql_uris import KeyTexts

__all__ = [
    "OrderColumn",
    "columns_of_cursor",
    "cursor_of",
    "key_of",
    "order_of",
    "rows_beyond",
    "sort_terms",
]


class OrderColumn(NamedTuple):
    """A column of the order. `nulls` is the position of NULL, or empty if the column is never NULL."""

    name: str
    descending: bool = False
    nulls: Literal["", "first", "last"] = ""
    collation: str = ""


def order_of(table: DatabaseTable, span: Span, *, ties: bool = False) -> list[OrderColumn]:
    """Return the columns that order the rows of a span. With `ties`, the rowid follows a key that may be NULL."""
    nullable = {column.name for column in table.columns if column.nullable}
    columns = [
        OrderColumn(term.column, term.descending, "last" if term.column in nullable else "")
        for term in span.choice.order
    ]
    names = {term.column for term in span.choice.order}
    if table.key is None:
        other_names = [column.name for column in table.columns if column.name not in names]
        return columns + [OrderColumn(name, nulls="last" if name in nullable else "") for name in other_names]
    key = table.key
    nulls: Literal["", "first", "last"] = "" if not ties else "last" if key.descending else "first"
    collations = key.collations or ("",) * len(key.columns)
    columns += [
        OrderColumn(name, key.descending, nulls, collation)
        for name, collation in zip(key.columns, collations, strict=True)
        if name not in names or collation  # two keys may be equal by the column's own collation
    ]
    return columns + ([OrderColumn(key.tie)] if ties else [])


def key_of(key: UniqueKey, order: Sequence[OrderColumn], texts: KeyTexts) -> KeyTexts:
    """Return the texts of the key, from the texts of the order. If a part of the key is NULL, the rowid is included."""
    text_of_column = {column.name: text for column, text in zip(order, texts, strict=False)}
    key_texts = tuple([text_of_column[name] for name in key.columns])
    return (*key_texts, text_of_column[key.tie]) if None in key_texts and key.tie in text_of_column else key_texts


def cursor_of(key: UniqueKey, order: Sequence[OrderColumn], texts: KeyTexts) -> KeyTexts:
    """Return the texts that a URI needs to continue after a row, without the rowid if no part of the key is NULL."""
    omits_rowid = order[-1].name == key.tie and None not in key_of(key, order, texts)
    return texts[:-1] if omits_rowid else texts


def columns_of_cursor(key: UniqueKey, order: Sequence[OrderColumn], cursor: KeyTexts) -> Sequence[OrderColumn]:
    """Return the columns of the order that a cursor has values for.

    Raises:
        BadKey: the cursor has a different number of values, or a NULL for a column that is never NULL.
    """
    omits_rowid = order[-1].name == key.tie and len(cursor) == len(order) - 1 and None not in key_of(key, order, cursor)
    if len(cursor) != len(order) - omits_rowid:
        raise BadKey(f"A key has {many(len(order), 'part')}: {', '.join(column.name for column in order)}.")
    for column, text in zip(order, cursor, strict=False):
        if text is None and not column.nulls:
            raise BadKey(f"{column.name} cannot be NULL.")
    return order[: len(cursor)]


def rows_beyond(
    order: Sequence[OrderColumn],
    expressions: Sequence[str],
    placeholders: Sequence[str | None],
    where: str,
    *,
    avoid_row_values: bool = False,
) -> str:
    """Return the condition for the rows `after`, `before` or `at` a place.

    Args:
        order: The columns of the place.
        expressions: The SQL of each.
        placeholders: The placeholder of the value of each, or None for NULL.
        where: `after`, `before` or `at`.
        avoid_row_values: Do not write `(a, b) > (1, 2)`, because the database uses no index for it.
    """
    columns = list(zip(order, expressions, placeholders, strict=True))
    if where == "at":
        return " AND ".join([_equal(expression, placeholder) for _, expression, placeholder in columns])
    backwards = where == "before"
    one_direction = len({column.descending for column in order}) == 1 and not any(column.nulls for column in order)
    if one_direction and not (avoid_row_values and len(order) > 1):
        sign = "<" if order[0].descending is not backwards else ">"
        names, markers = ", ".join(expressions), ", ".join([placeholder or "" for placeholder in placeholders])
        if len(order) == 1:
            return f"{names} {sign} {markers}"
        # SQLite uses no index for row values with collations, but one for the first column alone.
        return f"({names}) {sign} ({markers})" + (
            f" AND {expressions[0]} {sign}= {placeholders[0]}" if order[0].collation else ""
        )
    condition = ""
    for column, expression, placeholder in reversed(columns):
        beyond = _beyond(column, expression, placeholder, backwards)
        level = f"({_equal(expression, placeholder)} AND {condition})" if condition else ""
        parts = [part for part in (beyond, level) if part]
        condition = parts[0] if len(parts) == 1 else f"({' OR '.join(parts)})" if parts else ""
    first, expression, placeholder = columns[0]
    if condition and placeholder is not None and first.nulls != ("first" if backwards else "last"):
        sign = "<" if first.descending is not backwards else ">"
        condition += f" AND {expression} {sign}= {placeholder}"  # so that an index finds the first row
    return condition or "1 = 0"


def _equal(expression: str, placeholder: str | None) -> str:
    return f"{expression} IS NULL" if placeholder is None else f"{expression} = {placeholder}"


def _beyond(column: OrderColumn, expression: str, placeholder: str | None, backwards: bool) -> str:
    """Return the condition for values after this one in the direction of reading; empty if no value follows it."""
    nulls_follow = column.nulls == ("first" if backwards else "last")
    if placeholder is None:
        return "" if nulls_follow else f"{expression} IS NOT NULL"
    sign = "<" if column.descending is not backwards else ">"
    comparison = f"{expression} {sign} {placeholder}"
    return f"({comparison} OR {expression} IS NULL)" if nulls_follow else comparison


def sort_terms(order: Sequence[OrderColumn], expressions: Sequence[str], *, backwards: bool) -> str:
    """Return the terms of ORDER BY."""
    terms: list[str] = []
    for column, expression in zip(order, expressions, strict=True):
        down = column.descending is not backwards
        last = (column.nulls == "last") is not backwards
        terms.append(expression + " DESC" * down + (f" NULLS {'LAST' if last else 'FIRST'}" if column.nulls else ""))
    return ", ".join(terms)
