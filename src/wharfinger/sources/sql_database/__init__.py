"""A database as live resources: `server.include(sql("sqlite:///shop.db"))`.

Modules, each with one reason to be opened: `uris`, `catalogue`, `windows`, `describing`, `rendering`, `query`,
`finding`, `watching`, `source` know no database; `engine` is what a kind of database must be able to do; `sqlite`,
`postgres` and `others` do it; `sqlite_safety` and `postgres_safety` are why nothing can be written.
"""

from __future__ import annotations

from wharfinger.sources.sql_database.database_url import sql
from wharfinger.sources.sql_database.source import Database
from wharfinger.sources.sql_database.sql_query import QueryAnswer

__all__ = ["Database", "QueryAnswer", "sql"]
