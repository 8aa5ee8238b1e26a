"""What keeps somebody's statement from doing more than reading in PostgreSQL.

In this order, each by the database's own means where it has some:

1. the role: a superuser, or one that may read or run what is outside the database, is refused;
2. every connection has `default_transaction_read_only` and deadlines, and the statement runs in a transaction that is
   `READ ONLY` and always rolled back;
3. the extended protocol takes one statement, and the statement must be able to stand in parentheses behind `FROM`:
   PostgreSQL's own grammar lets only SELECT, VALUES, TABLE and WITH stand there, without INTO or a writable CTE;
4. functions that PostgreSQL itself holds for able to change something (`VOLATILE`) are refused by name, wherever the
   name stands in the text: files, large objects, sequences, advisory locks, signals, settings, `dblink`,
   `query_to_xml`, and volatile functions of users; and so are the relations that keep passwords.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

from wharfinger.sources.sql_database.database_engine import Parameters, QueryRefused
from wharfinger.sources.sql_database.row_text import is_several

__all__ = ["check_names", "check_role", "parameters_for", "settings", "wrapped"]

_WORD = re.compile(r"[^\W\d][\w$]*")
_WORDS = 2_000

_HARMLESS = [
    "array_sample", "array_shuffle", "bernoulli", "clock_timestamp", "current_query", "gen_random_uuid",
    "pg_database_size", "pg_indexes_size", "pg_is_in_recovery", "pg_relation_size", "pg_table_size",
    "pg_total_relation_size", "random", "random_normal", "system", "timeofday", "uuidv4", "uuidv7",
]  # fmt: skip
"""Functions of PostgreSQL that are volatile only because each call gives something else."""
_DENIED = [
    "current_setting", "database_to_xml", "database_to_xml_and_xmlschema", "database_to_xmlschema", "dblink",
    "pg_hba_file_rules", "pg_sleep", "pg_stat_get_activity", "query_to_xml", "schema_to_xml",
    "pg_current_xact_id", "schema_to_xml_and_xmlschema", "schema_to_xmlschema", "set_config", "table_to_xml",
    "txid_current", "xpath_table",
]  # fmt: skip
"""Functions that are refused whatever they are declared as: they run other statements, or tell of the server."""

_SECRET = frozenset(
    {"pg_authid", "pg_shadow", "pg_subscription", "pg_user_mapping", "pg_user_mappings", "user_mapping_options"}
)
"""Relations with passwords or their hashes, which a member of `pg_read_all_data` may read."""

_FUNCTIONS = """
SELECT DISTINCT p.proname::text FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
WHERE p.proname::text = ANY ($1::text[])
  AND (p.proname::text = ANY ($3::text[])
       OR p.provolatile = 'v' AND NOT (n.nspname = 'pg_catalog' AND p.proname::text = ANY ($2::text[])))
ORDER BY 1 LIMIT 1
"""

ROLE = """
SELECT current_user::text AS name, r.rolsuper AS super, r.rolreplication AS replication,
       pg_has_role(current_user, 'pg_read_server_files', 'MEMBER') OR
       pg_has_role(current_user, 'pg_write_server_files', 'MEMBER') OR
       pg_has_role(current_user, 'pg_execute_server_program', 'MEMBER') AS outside,
       has_database_privilege(current_database(), 'CREATE') OR EXISTS (
           SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
           WHERE c.relkind IN ('r', 'p') AND n.nspname !~ '^pg_' AND n.nspname <> 'information_schema'
             AND has_table_privilege(c.oid, 'INSERT, UPDATE, DELETE, TRUNCATE')) AS writes
FROM pg_roles r WHERE r.rolname = current_user
"""


def settings(seconds: float) -> dict[str, str]:
    """What each connection is opened with (milliseconds)."""
    deadline = str(max(1, int(seconds * 1000)))
    return {
        "application_name": "wharfinger",
        "default_transaction_read_only": "on",
        "statement_timeout": deadline,
        "lock_timeout": deadline,
        "idle_in_transaction_session_timeout": str(int(deadline) + 30_000),
        "standard_conforming_strings": "on",
        "timezone": "UTC",
        "datestyle": "ISO",
        "intervalstyle": "iso_8601",
        "extra_float_digits": "1",
        "bytea_output": "hex",
    }


async def check_role(connection: Any) -> None:
    """Refuse a role that can reach beyond the database.

    Raises:
        Refused: it can; the message holds the statements that make one that cannot.
    """
    role = await connection.fetchrow(ROLE)
    if role["super"] or role["replication"] or role["outside"]:
        raise QueryRefused(
            f"The role {role['name']} may do more than read this database, so that no statements are run as it. "
            "Make one that may not: CREATE ROLE reader LOGIN PASSWORD '…'; GRANT USAGE ON SCHEMA public TO reader; "
            "GRANT SELECT ON ALL TABLES IN SCHEMA public TO reader;"
        )


async def check_names(connection: Any, statement: str) -> None:
    """Refuse a statement whose text has the name of a function that may change something, wherever it stands.

    Raises:
        Refused: it has; or it writes names in escapes, in which they cannot be seen.
    """
    if "\0" in statement:
        raise QueryRefused("The statement contains a NUL character.")
    if re.search(r"u&\s*\"", statement, re.IGNORECASE):
        raise QueryRefused('Names in Unicode escapes (U&"…") are refused: write the name itself.')
    words = {word for found in _WORD.findall(statement) for word in (found, found.lower(), found.casefold())}
    words |= {word[:63] for word in words}  # as long as PostgreSQL's names are
    if len(words) > _WORDS:
        raise QueryRefused(f"The statement has more than {_WORDS:,} different words.")
    secret = min(words & _SECRET, default=None)
    if secret is not None:
        raise QueryRefused(f"The statement names {secret}, in which passwords are kept.")
    name = await connection.fetchval(_FUNCTIONS, sorted(words), _HARMLESS, _DENIED)
    if name is not None:
        raise QueryRefused(
            f"The statement names the function {name}, which may do more than read "
            "(PostgreSQL holds it for VOLATILE, or it runs other statements)."
        )


def wrapped(statement: str, shown: Sequence[str], limit: int) -> str:
    """The statement in parentheses, where only what reads can stand; `shown` are expressions over c0, c1, …"""
    names = ", ".join(f"c{number}" for number in range(len(shown)))
    inner = statement.rstrip().rstrip(";")
    return f"SELECT {', '.join(shown)} FROM (\n{inner}\n) AS q ({names}) LIMIT {limit}"  # noqa: S608 - that is the point


def _decimal(value: object) -> Decimal:
    return Decimal(str(value))


_CONVERSIONS: Mapping[str, Any] = {
    "int2": int, "int4": int, "int8": int, "oid": int, "float4": float, "float8": float, "bool": bool,
    "numeric": _decimal, "date": date.fromisoformat, "time": time.fromisoformat,
    "timestamp": datetime.fromisoformat, "timestamptz": datetime.fromisoformat,
}  # fmt: skip


def parameters_for(types: Sequence[Any], given: Parameters) -> list[object]:
    """Values of JSON as what PostgreSQL wants for `$1`, `$2`, ….

    Raises:
        Refused: there are too many or too few, or one does not fit.
    """
    if isinstance(given, Mapping):
        raise QueryRefused("Parameters are a list, for $1, $2, ….")
    if len(given) != len(types):
        raise QueryRefused(f"The statement has {len(types)} parameters, and {len(given)} were given.")
    values: list[object] = []
    for number, (kind, value) in enumerate(zip(types, given, strict=True), 1):
        try:
            convert = _CONVERSIONS.get(kind.name, str)
            values.append(value if value is None or is_several(value) else convert(value))
        except (ValueError, TypeError, ArithmeticError):
            raise QueryRefused(f"Parameter {number} is no {kind.name}.") from None
    return values
