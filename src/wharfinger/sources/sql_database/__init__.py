"""A database as live resources: `server.include(sql("sqlite:///shop.db"))`.

`database_engine` is the interface that a kind of database implements: `sqlite`, `postgres` and `others` do. The modules
that start with their names belong to them; `sqlite_safety` and `postgres_safety` explain why nothing can be written.
The other modules are the same for every database.
"""

from __future__ import annotations

from wharfinger.sources.sql_database.database_url import sql
from wharfinger.sources.sql_database.source import Database
from wharfinger.sources.sql_database.sql_query import QueryAnswer

__all__ = ["Database", "QueryAnswer", "sql"]
