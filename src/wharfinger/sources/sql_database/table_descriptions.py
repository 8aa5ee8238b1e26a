"""The definition of a table as JSON: columns, keys, indexes, and the URIs of its rows and related tables."""

from __future__ import annotations

from typing import Any

import msgspec

from wharfinger.content.text import many
from wharfinger.sources.sql_database.catalogue import DatabaseColumn, DatabaseTable, ForeignKey
from wharfinger.sources.sql_database.row_text import clean, is_named, is_several
from wharfinger.sources.sql_database.sql_uris import SqlUris

__all__ = ["brief", "describe"]


def brief(table: DatabaseTable) -> str:
    """A few words about a table."""
    words = f"{table.kind}, {many(len(table.columns), 'column')}"
    return f"{words}: {clean(table.comment)}" if table.comment else words


def describe(table: DatabaseTable, uris: SqlUris) -> str:
    """The definition of a table. It does not contain the number of rows, so it changes only with the definition."""
    said: dict[str, Any] = {
        "table": table.name,
        "schema": table.schema,
        "kind": table.kind,
        "comment": table.comment,
        "rows": uris.of_rows(table.schema, table.name),
        "order": _order(table),
        "columns": [_column(column) for column in table.columns],
        "primary_key": list(table.primary_key),
        "foreign_keys": [_foreign_key(key, uris) for key in table.foreign_keys],
        "indexes": [
            {"name": index.name, "columns": list(index.columns), "unique": index.unique} for index in table.indexes
        ],
        "definition": table.definition,
    }
    kept = {name: value for name, value in said.items() if value not in (None, [])}
    lines = [f"  {_json(name)}: {_lines(_cleaned(value))}" for name, value in kept.items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _lines(value: Any) -> str:
    """Encode a value. Each object of a list of objects is on a line of its own."""
    several = list(value) if is_several(value) else []
    if not several or not is_named(several[0]):
        return _json(value)
    return "[\n" + ",\n".join([f"    {_json(one)}" for one in several]) + "\n  ]"


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _order(table: DatabaseTable) -> str:
    key = table.key
    if key is None:
        return "none: only the first rows can be read"
    names = clean(", ".join(key.columns))
    return f"{names}, the place of a row in storage, which may later belong to another row" if key.physical else names


def _column(column: DatabaseColumn) -> dict[str, Any]:
    said: dict[str, Any] = {"name": column.name, "type": column.type}
    said |= {} if column.nullable else {"nullable": False}
    said |= {} if column.default is None else {"default": column.default}
    said |= {"generated": True} if column.generated else {}
    return said | ({} if column.comment is None else {"comment": column.comment})


def _foreign_key(key: ForeignKey, uris: SqlUris) -> dict[str, Any]:
    said: dict[str, Any] = {"columns": list(key.columns), "table": uris.of_table(key.schema, key.table)}
    return said | ({"references": list(key.references)} if key.references else {})


def _cleaned(value: Any) -> Any:
    if isinstance(value, str):
        return clean(value)
    if is_several(value):
        return [_cleaned(one) for one in value]
    if is_named(value):
        return {clean(name): _cleaned(one) for name, one in value.items()}
    return value
