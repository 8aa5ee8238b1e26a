"""Definitions of tables: one as JSON, with the URIs of its rows and related tables, or a whole schema as text.

The text of a schema is for a model that is about to write a query: each table with its columns, types, keys, checks and
comments, in about `SCHEMA_LENGTH` characters. If they do not fit, it leaves out comments and indexes, then types, then
columns, and says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from wharfinger.content.text import many
from wharfinger.sources.sql_database.database_catalogue import DatabaseColumn, DatabaseTable, ForeignKey
from wharfinger.sources.sql_database.row_text import becomes_array, becomes_object, clean, clean_all
from wharfinger.sources.sql_database.sql_uris import SqlUris

__all__ = ["brief", "definition_text", "schema_text"]

SCHEMA_LENGTH = 36_000
"""Approximate maximum number of characters of the text of a schema: about 9,000 tokens."""
MAX_DEFINITION_LENGTH = 1_000
"""Maximum number of characters of the statement of a view in the text of a schema."""
MAX_TEXT_LENGTH = 300
"""Maximum number of characters of a comment, default or condition in the text of a schema."""


def brief(table: DatabaseTable) -> str:
    """Return the kind of a table, the number of its columns, and its comment."""
    words = f"{table.kind}, {many(len(table.columns), 'column')}"
    return f"{words}: {clean(table.comment)}" if table.comment else words


def definition_text(table: DatabaseTable, uris: SqlUris) -> str:
    """Return the definition of a table as JSON. It omits the number of rows, so it changes only with the definition."""
    definition: dict[str, Any] = {
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
        "checks": list(table.checks),
        "definition": table.definition,
    }
    present = {name: value for name, value in definition.items() if value not in (None, [])}
    lines = [f"  {_json(name)}: {_lines(clean_all(value))}" for name, value in present.items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _lines(value: Any) -> str:
    """Encode a value as JSON. Each object in a list of objects has its own line."""
    several = list(value) if becomes_array(value) else []
    if not several or not becomes_object(several[0]):
        return _json(value)
    return "[\n" + ",\n".join([f"    {_json(item)}" for item in several]) + "\n  ]"


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _order(table: DatabaseTable) -> str:
    key = table.key
    if key is None:
        return "none: rows are ordered by all columns, and read by position (rows=201-400)"
    names = clean(", ".join(key.columns))
    return f"{names}, the place of a row in storage, which may later belong to another row" if key.physical else names


def _column(column: DatabaseColumn) -> dict[str, Any]:
    fields: dict[str, Any] = {"name": column.name, "type": column.type}
    fields |= {"values": list(column.values)} if column.values else {}
    fields |= {} if column.nullable else {"nullable": False}
    fields |= {} if column.default is None else {"default": column.default}
    fields |= {"generated": True} if column.generated else {}
    return fields | ({} if column.comment is None else {"comment": column.comment})


def _foreign_key(key: ForeignKey, uris: SqlUris) -> dict[str, Any]:
    fields: dict[str, Any] = {"columns": list(key.columns), "table": uris.of_table(key.schema, key.table)}
    return fields | ({"references": list(key.references)} if key.references else {})


# A whole schema


def schema_text(tables: Sequence[DatabaseTable], estimates: Sequence[int | None], *, schemas: bool) -> str:
    """Describe the tables of a database or schema as text.

    Args:
        tables: The tables.
        estimates: Their approximate numbers of rows.
        schemas: Write the schema before each name.
    """
    texts = [_TableText(table, estimate, schemas) for table, estimate in zip(tables, estimates, strict=True)]
    text = ""
    for write, note in _FORMS:
        text = "".join([write(table_text) for table_text in texts])
        if len(text) <= SCHEMA_LENGTH:
            return f"{note}{text}"
    end = text.rfind("\n", 0, SCHEMA_LENGTH) + 1
    count = text.count("\n", 0, end)
    return f"Only the names of the first {count:,} tables are shown; resources/list has the others.\n{text[:end]}"


class _TableText:
    """Writes one table as text, in more or less detail."""

    def __init__(self, table: DatabaseTable, estimate: int | None, schemas: bool) -> None:
        self.table = table
        self.schemas = schemas
        self.name = clean(f"{table.schema}.{table.name}" if schemas else table.name)
        about = "" if estimate is None else f", about {many(estimate, 'row')}"
        self.head = f"{self.name} ({table.kind}{about})"

    def whole(self) -> str:
        table = self.table
        lines = [self.head + _comment(table.comment)]
        lines += [f"  {self._column(column)}{_comment(column.comment)}" for column in table.columns]
        lines += self._constraints()
        lines += [
            f"  {'unique' if index.unique else 'index'} ({clean(', '.join(index.columns))})" for index in table.indexes
        ]
        if table.definition:
            lines.append(f"  as {_short(table.definition, MAX_DEFINITION_LENGTH)}")
        return "\n".join(lines) + "\n"

    def plain(self) -> str:
        lines = [self.head, *(f"  {self._column(column)}" for column in self.table.columns), *self._constraints()]
        return "\n".join(lines) + "\n"

    def names(self) -> str:
        return f"{self.head}: {clean(', '.join(column.name for column in self.table.columns))}\n"

    def title(self) -> str:
        return f"{self.head}, {many(len(self.table.columns), 'column')}\n"

    def name_only(self) -> str:
        return f"{self.name}\n"

    def _column(self, column: DatabaseColumn) -> str:
        table = self.table
        words = [clean(f"{column.name} {column.type}".rstrip())]
        if table.primary_key == (column.name,):
            words.append("primary key")
        elif not column.nullable:
            words.append("not null")
        if column.values:
            words.append(f"one of {_short(', '.join(column.values), MAX_TEXT_LENGTH)}")
        if column.default is not None:
            words.append(f"default {_short(column.default, MAX_TEXT_LENGTH)}")
        if column.generated:
            words.append("generated")
        words += [f"-> {self._referred(key)}" for key in table.foreign_keys if key.columns == (column.name,)]
        return ", ".join(words)

    def _constraints(self) -> list[str]:
        table = self.table
        constraints: list[str] = []
        if len(table.primary_key) > 1:
            constraints.append(f"  primary key ({clean(', '.join(table.primary_key))})")
        constraints += [
            f"  foreign key ({clean(', '.join(key.columns))}) -> {self._referred(key)}"
            for key in table.foreign_keys
            if len(key.columns) > 1
        ]
        return constraints + [f"  check ({_short(check, MAX_TEXT_LENGTH)})" for check in table.checks]

    def _referred(self, key: ForeignKey) -> str:
        name = f"{key.schema}.{key.table}" if self.schemas else key.table
        return clean(f"{name} ({', '.join(key.references)})" if key.references else name)


_FORMS = (
    (_TableText.whole, ""),
    (_TableText.plain, "Comments, indexes and definitions of views are left out: read a table's own URI for them.\n"),
    (_TableText.names, "Only names of columns are shown: read a table's own URI for their types.\n"),
    (_TableText.title, "Columns are left out: read a table's own URI for them.\n"),
    (_TableText.name_only, "Only names are shown: read a table's own URI for its columns.\n"),
)


def _comment(text: str | None) -> str:
    return f"  -- {_short(text, MAX_TEXT_LENGTH)}" if text else ""


def _short(text: str, limit: int) -> str:
    words = clean(" ".join(text.split()))
    return words if len(words) <= limit else words[:limit] + "…"
