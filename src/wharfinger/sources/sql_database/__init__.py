"""A database as live resources: `server.include(sql("sqlite:///shop.db"))`.

`database_engine` is the interface to a database. `sqlite`, `postgres`, `mysql`, `duckdb_database` and
`sqlalchemy_database` implement it, with the modules whose names start like theirs. `sqlite_safety`, `postgres_safety`
and `mysql_safety` explain why nothing can be written. The other modules serve every database.
"""

from __future__ import annotations

from wharfinger.sources.sql_database.database_url import sql
from wharfinger.sources.sql_database.source import Database
from wharfinger.sources.sql_database.sql_query import QueryAnswer

__all__ = ["Database", "QueryAnswer", "sql"]
