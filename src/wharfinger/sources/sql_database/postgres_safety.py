"""Ensures that callers' statements only read from PostgreSQL.

Every client that can call `query` may send any SQL. The checks, in the order in which they apply:

1. The role: statements are refused if it is a superuser, or may read or run anything outside the database.
2. The text: the names of functions that PostgreSQL declares `VOLATILE`, which means that they may change something, are
   refused wherever they appear, except harmless ones such as `random`. They include functions for files, large objects,
   sequences, advisory locks, signals and settings, `dblink`, `query_to_xml`, and volatile functions of users. The names
   of the relations that contain passwords are refused too. Words of the text are compared with the names. A name with
   other characters than ASCII letters, digits, `_` and `$` is searched for in the whole text instead, because such a
   name may be quoted, and Python does not fold and cut it as PostgreSQL does.
3. The form: the extended protocol accepts a single statement, and it is run in parentheses after `FROM`. There,
   PostgreSQL's grammar allows only SELECT, VALUES, TABLE and WITH, without INTO or a CTE that writes.
4. The transaction: it is `READ ONLY` and always rolled back, and every connection has `default_transaction_read_only`
   and deadlines.

The first two are needed because a read-only transaction alone lets functions write files, send signals or sleep.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import msgspec

from wharfinger.sources.sql_database.database_engine import Parameters, QueryRefused
from wharfinger.sources.sql_database.row_text import becomes_array

__all__ = ["ROLE", "check_names", "check_role", "parameters_for", "settings", "wrapped"]

_WORD = re.compile(r"[^\W\d][\w$]*")
_MAX_WORDS = 2_000
_ESCAPED_STRING = r"'(?:[^'\\]|\\.|'')*'?"
_CONTINUATION = r"(?:[\x20\t\f\v]|--[^\r\n]*+)*+[\r\n](?:[\x20\t\n\r\f\v]++|--[^\r\n]*+[\r\n])*+(?=')"
"""Whitespace with a line end, and comments, between two parts of one string: `quotecontinue` in PostgreSQL's scan.l."""
_TOKEN = re.compile(
    rf"""(?P<space>[\x20\t\n\r\f\v;]+|--[^\r\n]*)
    | (?P<comment>/\*)
    | [eE]{_ESCAPED_STRING}(?:{_CONTINUATION}{_ESCAPED_STRING})*
    | '[^']*'?
    | "[^"]*"?
    | \$(?P<tag>(?:[A-Za-z_\x80-\U0010ffff][0-9A-Za-z_\x80-\U0010ffff]*)?)\$.*?(?:\$(?P=tag)\$|\Z)
    | [0-9A-Za-z_\x80-\U0010ffff][0-9A-Za-z_$\x80-\U0010ffff]*
    | .""",
    re.DOTALL | re.VERBOSE,
)
_COMMENT_MARK = re.compile(r"/\*|\*/")

_HARMLESS = [
    "array_sample", "array_shuffle", "bernoulli", "clock_timestamp", "current_query", "gen_random_uuid",
    "pg_database_size", "pg_indexes_size", "pg_is_in_recovery", "pg_relation_size", "pg_table_size",
    "pg_total_relation_size", "random", "random_normal", "system", "timeofday", "uuidv4", "uuidv7",
]  # fmt: skip
"""Functions that PostgreSQL declares `VOLATILE` only because each call returns a different value."""
_DENIED = [
    "current_setting", "database_to_xml", "database_to_xml_and_xmlschema", "database_to_xmlschema", "dblink",
    "pg_hba_file_rules", "pg_sleep", "pg_stat_get_activity", "query_to_xml", "schema_to_xml",
    "pg_current_xact_id", "schema_to_xml_and_xmlschema", "schema_to_xmlschema", "set_config", "table_to_xml",
    "txid_current", "xpath_table",
]  # fmt: skip
"""Functions that are refused even if not `VOLATILE`: they run other statements, or reveal facts about the server."""

_SECRET = frozenset(
    {"pg_authid", "pg_shadow", "pg_subscription", "pg_user_mapping", "pg_user_mappings", "user_mapping_options"}
)
"""Relations that contain passwords or their hashes, which a member of `pg_read_all_data` may read."""

_FUNCTIONS = """
SELECT DISTINCT p.proname::text FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
WHERE (p.proname::text = ANY ($1::text[])
       OR p.proname::text !~ '^[A-Za-z_][A-Za-z0-9_$]*$'
       AND strpos(lower($4 COLLATE "C"), lower(replace(p.proname::text, '"', '""') COLLATE "C")) > 0)
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
    """Return the settings of each connection. `seconds` is the timeout of a statement."""
    milliseconds = max(1, int(seconds * 1000))
    return {
        "application_name": "wharfinger",
        "default_transaction_read_only": "on",
        "statement_timeout": f"{milliseconds}",
        "lock_timeout": f"{milliseconds}",
        "idle_in_transaction_session_timeout": f"{milliseconds + 30_000}",
        "standard_conforming_strings": "on",
        "timezone": "UTC",
        "datestyle": "ISO",
        "intervalstyle": "iso_8601",
        "extra_float_digits": "1",
        "bytea_output": "hex",
    }


async def check_role(connection: Any) -> None:
    """Refuse a role that may do more than use the database.

    Raises:
        QueryRefused: the role may do more; the message contains the statements that create a suitable one.
    """
    role = await connection.fetchrow(ROLE)
    if role["super"] or role["replication"] or role["outside"]:
        raise QueryRefused(
            f"No statements are run as the role {role['name']}, because it may do more than read this database. "
            "Create one that may not: CREATE ROLE reader LOGIN PASSWORD '…'; GRANT USAGE ON SCHEMA public TO reader; "
            "GRANT SELECT ON ALL TABLES IN SCHEMA public TO reader;"
        )


async def check_names(connection: Any, statement: str) -> None:
    """Refuse a statement that names a function that may do more than read, or a relation that contains passwords.

    Raises:
        QueryRefused: the statement names one, hides names in Unicode escapes, or has too many words.
    """
    if "\0" in statement:
        raise QueryRefused("The statement contains a NUL character.")
    if re.search(r"u&\s*\"", statement, re.IGNORECASE):
        raise QueryRefused('Names in Unicode escapes (U&"…") are refused: write the name itself.')
    words = {word for name in _WORD.findall(statement) for word in (name, name.lower(), name.casefold())}
    words |= {word[:63] for word in words}  # PostgreSQL cuts longer names
    if len(words) > _MAX_WORDS:
        raise QueryRefused(f"The statement has more than {_MAX_WORDS:,} different words.")
    secret = min(words & _SECRET, default=None)
    if secret is not None:
        raise QueryRefused(f"The statement names {secret}, which contains passwords.")
    name = await connection.fetchval(_FUNCTIONS, sorted(words), _HARMLESS, _DENIED, statement)
    if name is not None:
        raise QueryRefused(
            f"The statement names the function {name}, which may do more than read "
            "(PostgreSQL declares it VOLATILE, or it runs other statements)."
        )


def wrapped(statement: str, expressions: Sequence[str], limit: int) -> str:
    """Put the statement in parentheses after FROM, where it can only read. `expressions` read its columns c0, c1, …."""
    names = ", ".join(f"c{number}" for number in range(len(expressions)))
    return f"SELECT {', '.join(expressions)} FROM (\n{_without_end(statement)}\n) AS q ({names}) LIMIT {limit}"  # noqa: S608 - the statement itself is the input


def _without_end(statement: str) -> str:
    """Leave out the semicolons and comments at the end of a statement."""
    end = at = 0
    while match := _TOKEN.match(statement, at):
        at = match.end()
        if match.lastgroup == "comment":
            depth = 1
            for mark in _COMMENT_MARK.finditer(statement, at):
                depth += 1 if mark[0] == "/*" else -1
                at = mark.end()
                if not depth:
                    break
        elif match.lastgroup != "space":
            end = at
    return statement[:end]


def _decimal(value: object) -> Decimal:
    return Decimal(str(value))


def _integer(value: Any) -> int:
    if isinstance(value, float) and not value.is_integer():
        raise ValueError  # int() would drop the fraction
    return int(value)


def _boolean(value: object) -> bool:
    return bool(value) if isinstance(value, (int, float)) else _BOOLEANS[str(value).strip().lower()]


def _instant(text: str) -> datetime:
    instant = datetime.fromisoformat(text)
    return instant if instant.tzinfo else instant.replace(tzinfo=UTC)  # asyncpg would assume the zone of this machine


def _time_with_zone(text: str) -> time:
    moment = time.fromisoformat(text)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _json(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


_BOOLEANS = {**dict.fromkeys(("true", "t", "1"), True), **dict.fromkeys(("false", "f", "0"), False)}
_CONVERSIONS: Mapping[str, Any] = {
    "int2": _integer, "int4": _integer, "int8": _integer, "oid": _integer, "float4": float, "float8": float,
    "bool": _boolean, "numeric": _decimal, "json": _json, "jsonb": _json,
    "date": date.fromisoformat, "time": time.fromisoformat, "timetz": _time_with_zone,
    "timestamp": datetime.fromisoformat, "timestamptz": _instant,
}  # fmt: skip


def parameters_for(types: Sequence[Any], parameters: Parameters) -> list[object]:
    """Convert JSON values to the types that PostgreSQL expects for `$1`, `$2`, ….

    Raises:
        QueryRefused: there are too many or too few parameters, or one has the wrong type.
    """
    if isinstance(parameters, Mapping):
        raise QueryRefused("Give the parameters as a list, for $1, $2, ….")
    if len(parameters) != len(types):
        raise QueryRefused(f"The statement has {len(types)} parameters, but {len(parameters)} were given.")
    values: list[object] = []
    for number, (kind, value) in enumerate(zip(types, parameters, strict=True), 1):
        name = kind.name.removesuffix("[]")
        convert = _CONVERSIONS.get(name, str)
        try:
            if becomes_array(value) and name != kind.name:
                values.append([_element(item, convert) for item in value])
            elif value is None or (becomes_array(value) and convert is str):  # such as a range, which asyncpg converts
                values.append(value)
            else:
                values.append(convert(value))
        except (ValueError, TypeError, ArithmeticError, LookupError):
            raise QueryRefused(f"Parameter {number} cannot be converted to {kind.name}.") from None
    return values


def _element(value: object, convert: Any) -> object:
    """Convert an element of an array, which may be an array or None."""
    if value is None:
        return None
    if becomes_array(value) and convert is not _json:
        return [_element(item, convert) for item in value]
    return convert(value)
