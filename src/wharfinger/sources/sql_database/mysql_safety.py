"""Ensures that callers' statements only read from MySQL or MariaDB.

Every client that can call `query` may send any SQL. The checks:

1. The account: it is refused if it has FILE, because a read-only transaction does not prevent `INTO OUTFILE` and
   `LOAD_FILE()`, or SUPER, which administers the server. Other rights, such as CREATE USER, are of no use to a SELECT.
2. The text: it must begin with SELECT, WITH, VALUES, TABLE or a parenthesis. Only functions that are known to read may
   be called: `SLEEP`, `GET_LOCK`, `LOAD_FILE`, stored functions and loadable ones are not among them. INTO, locks,
   variables, executable comments and hints (`/*!`, `/*+`, which can change settings), the schemas `mysql`,
   `performance_schema` and `sys`, and the tables of `information_schema` that describe the running server are refused.
3. The protocol: multiple statements are off, and so is LOCAL INFILE, with which a server reads files of its clients.
4. The session: each transaction is READ ONLY.

The text is split into the same tokens that the server sees, except that a word directly after a number begins with the
last digits of that number (`_END_OF_NUMBER`). For this, `SQL_MODE` excludes the modes that change how quotes and spaces
are read, and the connection uses UTF-8, in which no byte of another character looks like a quote.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from wharfinger.sources.sql_database.database_engine import DatabaseUnreachable, Parameters, QueryRefused

__all__ = [
    "READING_FUNCTIONS",
    "AccountRefused",
    "check_account",
    "check_statement",
    "settings",
    "with_parameters",
    "writes",
]

SQL_MODE = "IF(FIND_IN_SET('ONLY_FULL_GROUP_BY', @@sql_mode), 'ONLY_FULL_GROUP_BY', '')"
"""Keeps only the mode that refuses ambiguous results."""
IDLE_SECONDS = 300
"""Time after which the server closes an unused connection. The next statement then connects again."""


class AccountRefused(DatabaseUnreachable):
    """The account has FILE or SUPER. The message contains the statement that revokes them."""


def settings(seconds: float, *, mariadb: bool) -> list[str]:
    """Return the statements that prepare a connection. `seconds` is the longest wait for a lock, but at least 1."""
    whole = max(1, int(seconds))
    values = {
        "sql_mode": SQL_MODE,
        "time_zone": "'+00:00'",
        "lock_wait_timeout": f"{whole}",
        "innodb_lock_wait_timeout": f"{whole}",
        "wait_timeout": f"{IDLE_SECONDS}",
    }
    assigned = ", ".join([f"{name} = {value}" for name, value in values.items()])
    # By default, MySQL 8 reports row counts and times of writes that are up to a day old.
    statistics_age = "" if mariadb else " /*!80000, information_schema_stats_expiry = 0 */"
    return [f"SET SESSION {assigned}{statistics_age}", "SET SESSION TRANSACTION READ ONLY"]


# The account

_GRANT = re.compile(r"GRANT (.+?) ON (.+?) TO (.+?)(?: IDENTIFIED | REQUIRE | WITH |\Z)", re.DOTALL).match
_PLACE = re.compile(r"(?P<database>`(?:[^`]|``)+`|[^`.]+)\.(?P<table>.+)", re.DOTALL).fullmatch
_HAS_WILDCARD = re.compile(r"`?(?:\\.|[^%_\\])*[%_].*\.\*", re.DOTALL).fullmatch
_TOO_POWERFUL = ("FILE", "SUPER")
_ONLY_READING = {
    "USAGE", "SELECT", "SHOW VIEW", "SHOW DATABASES", "EXECUTE", "PROCESS", "REPLICATION CLIENT", "BINLOG MONITOR",
    "SLAVE MONITOR", "REPLICA MONITOR", "SHOW_ROUTINE",
}  # fmt: skip
"""EXECUTE is among them although a routine may write: statements cannot call routines."""


class _Grant(NamedTuple):
    """A line of SHOW GRANTS: privileges, where they apply, such as `*.*`, and the account or role that has them."""

    privileges: set[str]
    place: str
    grantee: str


def _read_grants(lines: Iterable[str]) -> list[_Grant]:
    grants: list[_Grant] = []
    for match in filter(None, map(_GRANT, lines)):
        names = re.sub(r"\([^)]*\)", "", match[1]).split(",")
        grants.append(_Grant({name.strip().upper() for name in names}, match[2], match[3]))
    return grants


def _affects(place: str, database: str) -> bool:
    """Return whether a grant on `*.*`, `` `shop\\_%`.* ``, `` `shop`.`orders` `` or another place affects a database.

    In the name of a database, `%` and `_` are wildcards as in LIKE, unless the grant is for a single table.
    """
    found = _PLACE(place)
    if place == "*.*" or found is None:
        return place == "*.*"
    name = found["database"].removeprefix("`").removesuffix("`").replace("``", "`")
    if found["table"] != "*":
        return name == database
    wildcards = {"%": ".*", "_": "."}
    parts = [wildcards.get(part) or re.escape(part[-1]) for part in re.findall(r"\\.|.", name, re.DOTALL)]
    return re.fullmatch("".join(parts), database, re.DOTALL) is not None


def check_account(account: str, grants: Iterable[str], database: str) -> None:
    """Refuse an account that has FILE or SUPER, alone or by ALL. `grants` are the lines of SHOW GRANTS.

    Raises:
        AccountRefused: the account may read or write files of the server (FILE), or administers it (SUPER).
    """
    powers_by_grantee: dict[str, set[str]] = {}
    for grant in _read_grants(grants):
        has_all = grant.place == "*.*" and not grant.privileges.isdisjoint(("ALL", "ALL PRIVILEGES"))
        found = _TOO_POWERFUL if has_all else grant.privileges.intersection(_TOO_POWERFUL)
        if found and grant.place == "*.*":
            powers_by_grantee.setdefault(grant.grantee, set()).update(found)
    if not powers_by_grantee:
        return
    powers = sorted({name for names in powers_by_grantee.values() for name in names})
    revocations = " ".join(
        [f"REVOKE {', '.join(sorted(names))} ON *.* FROM {grantee};" for grantee, names in powers_by_grantee.items()]
    )
    raise AccountRefused(
        f"The account {account} has {' and '.join(powers)}: with FILE, a statement that only reads could read or write "
        f"files of the server, and SUPER administers the server. Revoke this ({revocations}), "
        "or use an account that can only read: CREATE USER 'reader'@'%' IDENTIFIED BY '…'; "
        f"GRANT SELECT, SHOW VIEW ON `{database.replace('`', '``')}`.* TO 'reader'@'%';"
    )


def writes(grants: Iterable[str], database: str) -> bool:
    """Return whether the account may write to the database without a routine, from the lines of SHOW GRANTS.

    If a grant names the database without wildcards, the server ignores the grants with wildcards of the same grantee.
    The order among grants with wildcards differs between MySQL and MariaDB, so all of them count.
    """
    relevant = [grant for grant in _read_grants(grants) if _affects(grant.place, database)]
    named = {
        grant.grantee
        for grant in relevant
        if grant.place.endswith(".*") and grant.place != "*.*" and not _HAS_WILDCARD(grant.place)
    }
    return not all(
        grant.privileges <= _ONLY_READING
        for grant in relevant
        if grant.grantee not in named or not _HAS_WILDCARD(grant.place)
    )


# The text of a statement

# Not \s and \w: they match characters that the server treats differently, such as a no-break space in a name.
_TOKEN = re.compile(
    r"""(?P<space>[\x00-\x20\x7f]+)
    | (?P<hint>/\*(?:!|M!|\+))
    | (?P<comment>/\*.*?\*/|\#[^\n]*|--(?=[\x00-\x20\x7f]|\Z)[^\n]*)
    | (?P<string>'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*")
    | (?P<quoted>`(?:[^`]|``)*`)
    | (?P<word>[0-9A-Za-z_$\u0080-\U0010ffff]+)
    | (?P<open>['"`]|/\*)
    | (?P<mark>:=|.)""",
    re.DOTALL | re.VERBOSE,
)


class _Token(NamedTuple):
    kind: str
    text: str
    start: int

    @property
    def word(self) -> str:
        """The word in upper case, or the mark. Empty for a string, a quoted name, or a name beyond ASCII."""
        return self.text.upper() if self.kind in ("word", "mark") and self.text.isascii() else ""

    @property
    def name(self) -> str:
        """The name in lower case, if this may be one."""
        if self.kind == "quoted":
            return self.text[1:-1].replace("``", "`").lower()
        return self.text.lower() if self.kind == "word" else ""


_END = _Token("mark", "", 0)


def _tokens(statement: str) -> list[_Token]:
    """Split a statement into tokens, without spaces and comments.

    Raises:
        QueryRefused: a quote or comment is not closed, or a comment would be executed.
    """
    tokens: list[_Token] = []
    for match in _TOKEN.finditer(statement):
        kind = match.lastgroup or ""
        if kind == "hint":
            raise QueryRefused(f"Executable comments and hints ({match[0]} … */) are refused: leave them out.")
        if kind == "open":
            raise QueryRefused(f"A {match[0]} in the statement is not closed.")
        if kind not in ("space", "comment"):
            tokens.append(_Token(kind, match[0], match.start()))
    return tokens


_FIRST = ("SELECT", "WITH", "VALUES", "TABLE", "(")
_REFUSED_WORDS = {"INTO", "DELETE", "UPDATE", "PROCEDURE"}
"""Reserved words: a name must be quoted, also after a period, where the server would accept it without quotes."""
_REFUSED_PAIRS = {("FOR", "SHARE"), ("FOR", "UPDATE"), ("LOCK", "IN"), ("NEXT", "VALUE"), ("PREVIOUS", "VALUE")}
_END_OF_NUMBER = re.compile(r"\A[0-9]*E?[0-9]+")
"""The end of a number. The server reads `1.5INTO` as `1.5` and `INTO`, but `_TOKEN` finds the word `5INTO`."""
_REFUSED_SCHEMAS = ("mysql", "performance_schema", "sys")
_INTRODUCERS = ("_UTF8MB4", "_UTF8MB3", "_UTF8", "_LATIN1", "_ASCII", "_BINARY")

_KEYWORDS = """
    ALL AND ANY AS BETWEEN BINARY BY CASE COLUMNS CROSS DISTINCT DIV DUAL ELSE ESCAPE EXCEPT EXISTS FROM GROUP HAVING IN
    INDEX INTERSECT INTERVAL IS JOIN KEY LATERAL LIKE LIMIT MINUS MOD NOT OF ON OR OVER PARTITION REGEXP RLIKE ROW
    SELECT SOME STRAIGHT_JOIN THEN UNION USING VALUE VALUES WHEN WHERE WITH XOR
    BIGINT BIT CHAR CHARACTER DATETIME DEC DECIMAL DOUBLE FLOAT INT INTEGER NCHAR NUMERIC REAL SIGNED TIME TIMESTAMP
    TINYINT UNSIGNED VARBINARY VARCHAR VECTOR YEAR
"""
"""Keywords and types that a parenthesis may follow."""

_FUNCTIONS = """
    ABS ACOS ADDDATE ADDTIME ADD_MONTHS AES_DECRYPT AES_ENCRYPT AGAINST ANY_VALUE ASCII ASIN ATAN ATAN2 AVG BIN
    BIN_TO_UUID BIT_AND BIT_COUNT BIT_LENGTH BIT_OR BIT_XOR CAST CEIL CEILING CHARACTER_LENGTH CHARSET CHAR_LENGTH CHR
    COALESCE COERCIBILITY COLLATION COLUMN_CHECK COLUMN_EXISTS COLUMN_GET COLUMN_JSON COLUMN_LIST COMPRESS CONCAT
    CONCAT_WS CONNECTION_ID CONV CONVERT CONVERT_TZ COS COT COUNT CRC32 CRC32C CUME_DIST CURDATE CURRENT_DATE
    CURRENT_ROLE CURRENT_TIME CURRENT_TIMESTAMP CURRENT_USER CURTIME DATABASE DATE DATEDIFF DATE_ADD DATE_FORMAT
    DATE_SUB DAY DAYNAME DAYOFMONTH DAYOFWEEK DAYOFYEAR DEFAULT DEGREES DENSE_RANK ELT EXP EXPORT_SET EXTRACT
    EXTRACTVALUE FIELD FIND_IN_SET FIRST_VALUE FLOOR FORMAT FORMAT_BYTES FROM_BASE64 FROM_DAYS FROM_UNIXTIME
    GEOMETRYCOLLECTION GET_FORMAT GREATEST GROUPING GROUP_CONCAT HEX HOUR IF IFNULL INET6_ATON INET6_NTOA INET_ATON
    INET_NTOA INSERT INSTR ISNULL IS_IPV4 IS_IPV4_COMPAT IS_IPV4_MAPPED IS_IPV6 IS_UUID JSON_ARRAY JSON_ARRAYAGG
    JSON_ARRAY_APPEND JSON_ARRAY_INSERT JSON_ARRAY_INTERSECT JSON_COMPACT JSON_CONTAINS JSON_CONTAINS_PATH JSON_DEPTH
    JSON_DETAILED JSON_EQUALS JSON_EXISTS JSON_EXTRACT JSON_INSERT JSON_KEYS JSON_LENGTH JSON_LOOSE JSON_MERGE
    JSON_MERGE_PATCH JSON_MERGE_PRESERVE JSON_NORMALIZE JSON_OBJECT JSON_OBJECTAGG JSON_OVERLAPS JSON_PRETTY JSON_QUERY
    JSON_QUOTE JSON_REMOVE JSON_REPLACE JSON_SCHEMA_VALID JSON_SEARCH JSON_SET JSON_STORAGE_SIZE JSON_TABLE JSON_TYPE
    JSON_UNQUOTE JSON_VALID JSON_VALUE LAG LAST_DAY LAST_VALUE LCASE LEAD LEAST LEFT LENGTH LENGTHB LINESTRING LN
    LOCALTIME LOCALTIMESTAMP LOCATE LOG LOG10 LOG2 LOWER LPAD LTRIM MAKEDATE MAKETIME MAKE_SET MATCH MAX MD5 MEDIAN
    MICROSECOND MID MIN MINUTE MONTH MONTHNAME MULTIPOINT NAME_CONST NATURAL_SORT_KEY NOW NTH_VALUE NTILE NULLIF NVL
    NVL2 OCT OCTET_LENGTH ORD PERCENTILE_CONT PERCENTILE_DISC PERCENT_RANK PERIOD_ADD PERIOD_DIFF PI POINT POLYGON
    POSITION POW POWER QUARTER QUOTE RADIANS RAND RANDOM_BYTES RANK REGEXP_INSTR REGEXP_LIKE REGEXP_REPLACE
    REGEXP_SUBSTR REPEAT REPLACE REVERSE RIGHT ROUND ROW_NUMBER RPAD RTRIM SCHEMA SECOND SEC_TO_TIME SESSION_USER
    SFORMAT SHA SHA1 SHA2 SIGN SIN SOUNDEX SPACE SQRT STD STDDEV STDDEV_POP STDDEV_SAMP STRCMP STR_TO_DATE SUBDATE
    SUBSTR SUBSTRING SUBSTRING_INDEX SUBTIME SUM SYSDATE SYSTEM_USER TAN TIMEDIFF TIMESTAMPADD TIMESTAMPDIFF
    TIME_FORMAT TIME_TO_SEC TO_BASE64 TO_CHAR TO_DAYS TO_SECONDS TRIM TRUNCATE UCASE UNCOMPRESS UNCOMPRESSED_LENGTH
    UNHEX UNIX_TIMESTAMP UPDATEXML UPPER USER UTC_DATE UTC_TIME UTC_TIMESTAMP UUID UUID_SHORT UUID_TO_BIN
    VALIDATE_PASSWORD_STRENGTH VARIANCE VAR_POP VAR_SAMP VEC_DISTANCE VEC_DISTANCE_COSINE VEC_DISTANCE_EUCLIDEAN
    VEC_FROMTEXT VEC_TOTEXT VERSION WEEK WEEKDAY WEEKOFYEAR WEIGHT_STRING YEARWEEK
    MBRCONTAINS MBRCOVEREDBY MBRCOVERS MBRDISJOINT MBREQUALS MBRINTERSECTS MBROVERLAPS MBRTOUCHES MBRWITHIN
    ST_AREA ST_ASBINARY ST_ASGEOJSON ST_ASTEXT ST_ASWKB ST_ASWKT ST_BUFFER ST_CENTROID ST_CONTAINS ST_CONVEXHULL
    ST_CROSSES ST_DIFFERENCE ST_DIMENSION ST_DISJOINT ST_DISTANCE ST_DISTANCE_SPHERE ST_ENDPOINT ST_ENVELOPE ST_EQUALS
    ST_EXTERIORRING ST_GEOHASH ST_GEOMETRYN ST_GEOMETRYTYPE ST_GEOMFROMGEOJSON ST_GEOMFROMTEXT ST_GEOMFROMWKB
    ST_INTERIORRINGN ST_INTERSECTION ST_INTERSECTS ST_ISCLOSED ST_ISEMPTY ST_ISSIMPLE ST_ISVALID ST_LATITUDE
    ST_LENGTH ST_LONGITUDE ST_NUMGEOMETRIES ST_NUMINTERIORRINGS ST_NUMPOINTS ST_OVERLAPS ST_POINTFROMTEXT ST_POINTN
    ST_SIMPLIFY ST_SRID ST_STARTPOINT ST_SWAPXY ST_SYMDIFFERENCE ST_TOUCHES ST_TRANSFORM ST_UNION ST_WITHIN ST_X ST_Y
"""
READING_FUNCTIONS = frozenset(_FUNCTIONS.split())
"""Functions of MySQL and MariaDB that only compute a value."""
_BEFORE_PARENTHESIS = READING_FUNCTIONS | frozenset(_KEYWORDS.split())


def check_statement(statement: str) -> None:
    """Refuse a statement that might do more than read.

    Raises:
        QueryRefused: the statement might do more. The message says what is refused.
    """
    if "\0" in statement:
        raise QueryRefused("The statement contains a NUL character.")
    tokens = _tokens(statement)
    while tokens and tokens[-1].text == ";":
        tokens.pop()
    if not tokens or tokens[0].word not in _FIRST:
        raise QueryRefused("Only one SELECT is allowed, which can only read.")
    for index, token in enumerate(tokens):
        previous = tokens[index - 1] if index else _END
        following = tokens[index + 1] if index + 1 < len(tokens) else _END
        if token.text == ";":
            raise QueryRefused("Only one statement can be run at a time.")
        word = _END_OF_NUMBER.sub("", token.word)
        if word in _REFUSED_WORDS or (word, following.word) in _REFUSED_PAIRS:
            refused = f"{word} {following.word}" if word not in _REFUSED_WORDS else word
            raise QueryRefused(f"Only one SELECT is allowed, which can only read: {refused} is refused.")
        if token.text in ("@", ":="):
            raise QueryRefused("Variables (@name, @@name) are refused.")
        if following.kind == "string" and token.word.startswith("_") and token.word not in _INTRODUCERS:
            raise QueryRefused(f"The character set {token.text} before a text is refused.")
        if following.text == ".":
            _check_schema(token, tokens[index + 2] if index + 2 < len(tokens) else _END)
        if following.text == "(" and token.name and not _may_precede_parenthesis(tokens, index, previous, token):
            raise QueryRefused(f"The function {token.name} is refused, because it is not known to only read.")


def _check_schema(schema: _Token, table: _Token) -> None:
    if schema.name in _REFUSED_SCHEMAS:
        raise QueryRefused(f"The schema {schema.name} is refused: it describes the server and its accounts.")
    if schema.name == "information_schema" and table.name.startswith(("processlist", "innodb_", "user_stat")):
        raise QueryRefused(f"{table.name} is refused: it describes the server.")


def _may_precede_parenthesis(tokens: Sequence[_Token], index: int, previous: _Token, token: _Token) -> bool:
    """Return whether `token`, a name before a parenthesis, is a keyword, a known function, or the name of a table."""
    if token.kind == "word" and previous.text != "." and token.word in _BEFORE_PARENTHESIS:
        return True
    if previous.word == "AS":  # the columns of a table: FROM (…) AS q (a, b)
        return True
    closing = next((end for end in range(index + 2, len(tokens)) if tokens[end].text == ")"), len(tokens))
    inside = tokens[index + 2 : closing]
    only_names = all(part.text == "," if position % 2 else bool(part.name) for position, part in enumerate(inside))
    next_words = [token.word for token in tokens[closing + 1 : closing + 3]]
    return only_names and next_words == ["AS", "("]  # the columns of a common table expression: WITH q (a, b) AS (…)


def with_parameters(statement: str, parameters: Parameters, escape: Callable[[object], str]) -> str:
    """Replace the question marks of a checked statement with values, and leave out semicolons and comments at its end.

    `escape` writes a value as a literal.

    Raises:
        QueryRefused: there are too many or too few parameters, or one cannot be written as a literal.
    """
    if isinstance(parameters, Mapping):
        raise QueryRefused("Give the parameters as a list, for the question marks of the statement.")
    tokens = _tokens(statement)
    marks = [token.start for token in tokens if token.text == "?"]
    if len(marks) != len(parameters):
        raise QueryRefused(f"The statement has {len(marks)} parameters, but {len(parameters)} were given.")
    parts: list[str] = []
    last = 0
    for number, (at, value) in enumerate(zip(marks, parameters, strict=True), 1):
        if value is not None and not isinstance(value, (str, int, float, bytes)):
            raise QueryRefused(f"Parameter {number} must be a text, a number, a boolean or null.")
        try:
            parts += [statement[last:at], escape(value)]
        except Exception:
            raise QueryRefused(f"Parameter {number} cannot be written in SQL.") from None
        last = at + 1
    end = max((token.start + len(token.text) for token in tokens if token.text != ";"), default=0)
    return "".join([*parts, statement[last:end]])
