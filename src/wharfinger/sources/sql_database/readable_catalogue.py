"""The part of a database that the current caller may read by the policy (`policy.current`).

A table that may not be read is left out, with the foreign keys to it and the views that read it. A view shows the rows
of its tables, so it is only shown if all rows of all tables that its statement names may be read. Any word in the
statement counts as such a name, even if it is the name of a column: in doubt, a view is left out. The same holds for
virtual tables: a full-text table of SQLite may show the rows of another table (`content='orders'`).
"""

from __future__ import annotations

import re

import msgspec

from wharfinger.policy.current import may, may_read, reads_all_below
from wharfinger.sources.sql_database.database_catalogue import DatabaseCatalogue, DatabaseTable
from wharfinger.sources.sql_database.sql_uris import SqlUris

__all__ = ["may_query_all", "readable_catalogue", "reads_everything", "reads_rows"]

_WORDS = re.compile(r"\w+")


def reads_everything(uris: SqlUris) -> bool:
    """Return whether the caller may read all of the database."""
    return reads_all_below(f"{uris.top}/")


def reads_rows(uris: SqlUris, table: DatabaseTable) -> bool:
    """Return whether the caller may read all rows of a table, so that windows of them may be shown."""
    rows = uris.of_rows(table.schema, table.name)
    return may_read(rows) and reads_all_below(f"{rows}/")


def _reads_table(uris: SqlUris, table: DatabaseTable) -> bool:
    return may_read(uris.of_table(table.schema, table.name)) and reads_rows(uris, table)


def may_query_all(uris: SqlUris, catalogue: DatabaseCatalogue) -> bool:
    """Return whether the caller may run statements: all of the database must be readable."""
    if not may("query", uris.top):
        return False
    return reads_everything(uris) or all(_reads_table(uris, table) for table in catalogue.tables.values())


def readable_catalogue(catalogue: DatabaseCatalogue, uris: SqlUris) -> DatabaseCatalogue:
    """Return the tables and schemas that the caller may read."""
    if reads_everything(uris):
        return catalogue
    tables = dict(catalogue.tables)
    hidden = [table for table in tables.values() if not _reads_table(uris, table)]
    while hidden:  # a view may read another view
        names = {table.name.casefold() for table in hidden}
        hidden = [table for table in tables.values() if table.kind in _READING_OTHERS and _may_name_any(table, names)]
        for table in hidden:
            del tables[table.schema, table.name]
    readable_tables = {key: table for key, table in tables.items() if may_read(uris.of_table(*key))}
    kept_tables = [
        msgspec.structs.replace(
            table, foreign_keys=tuple(key for key in table.foreign_keys if (key.schema, key.table) in readable_tables)
        )
        for table in readable_tables.values()
    ]
    return DatabaseCatalogue(kept_tables, [schema for schema in catalogue.schemas if may_read(uris.of_schema(schema))])


_READING_OTHERS = ("view", "materialized view", "virtual table")


def _may_name_any(view: DatabaseTable, names: set[str]) -> bool:
    """Return whether the statement of a view or virtual table may name one of these tables."""
    if view.definition is None:
        return True
    statement = view.definition.casefold()
    words = set(_WORDS.findall(statement))
    return any(
        name in words
        if _WORDS.fullmatch(name)
        else any(spelling in statement for spelling in (name, name.replace('"', '""'), name.replace("`", "``")))
        for name in names
    )
