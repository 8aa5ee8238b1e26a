"""Opens connections to MySQL and MariaDB with PyMySQL: the address, the account, TLS, and a bound on memory."""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any
from urllib.parse import quote

import msgspec

from wharfinger.errors import MissingExtra
from wharfinger.source import UnusableSource

__all__ = ["MAX_ROW_BYTES", "MySQLAddress", "RowTooLarge", "connect", "drain", "driver", "read_address", "rows_of"]

CONNECTION_SECONDS = 5.0
"""Longest wait for the server to accept a connection."""
MAX_ROW_BYTES = 32 << 20
"""Bytes of the largest row that is received. A statement that returns a larger one fails."""
DRAINED_BYTES = 1 << 20
"""Bytes of unwanted rows that are received so that a connection can be used again. If there are more, it is closed."""
SSL_MODES = ("DISABLED", "PREFERRED", "REQUIRED", "VERIFY_CA", "VERIFY_IDENTITY")
"""The values of MySQL's own clients for --ssl-mode."""
_OPTIONS = ("unix_socket", "ssl_mode", "ssl_ca", "ssl_cert", "ssl_key")
_SCHEMES = ("mysql", "mariadb", "mysql+pymysql", "mariadb+pymysql")
_FORM = "mysql://user@host:3306/database"
_SERVER_HAS_TLS = 1 << 11
"""The flag `CLIENT_SSL` of the server's capabilities."""


class RowTooLarge(Exception):
    """A row has more bytes than the connection may receive. The connection is closed."""


class MySQLAddress(msgspec.Struct, frozen=True, kw_only=True):
    """The address of a database, and the account. If `unix_socket` is set, `host` and `port` are not used."""

    user: str
    password: str
    host: str
    port: int
    database: str
    unix_socket: str = ""
    ssl_mode: str = "PREFERRED"
    ssl_ca: str = ""
    ssl_cert: str = ""
    ssl_key: str = ""

    def __repr__(self) -> str:
        return f"MySQLAddress({self.shown!r})"  # without the password

    @property
    def shown(self) -> str:
        """The host and the port, as in URIs."""
        host = "localhost" if self.unix_socket or not self.host else f"[{self.host}]" if ":" in self.host else self.host
        return quote(host, safe="[]:") + ("" if self.unix_socket or self.port == 3306 else f":{self.port}")


def driver() -> Any:
    """Import `pymysql`.

    Raises:
        MissingExtra: it is not installed.
    """
    try:
        return import_module("pymysql")
    except ImportError:
        raise MissingExtra("sql", "Publishing a MySQL or MariaDB database") from None


def read_address(url: str) -> MySQLAddress:
    """Parse a URL such as `mysql://user:password@host/database?ssl_mode=REQUIRED`.

    If the URL has no password, the value of the environment variable `MYSQL_PWD` is used.

    Raises:
        UnusableSource: the URL is not valid. The message says how to write it.
        MissingExtra: SQLAlchemy is not installed.
    """
    try:
        sqlalchemy: Any = import_module("sqlalchemy")
    except ImportError:
        raise MissingExtra("sql", "Publishing a MySQL or MariaDB database") from None
    try:
        parsed = sqlalchemy.engine.make_url(url)
    except (sqlalchemy.exc.ArgumentError, ValueError):
        raise UnusableSource(f"This is not the URL of a database: write {_FORM}.") from None
    if parsed.drivername.lower() not in _SCHEMES:
        raise UnusableSource(f"MySQL and MariaDB are read with PyMySQL: write {_FORM} instead of {parsed.drivername}:.")
    if not parsed.database:
        raise UnusableSource(f"Name a database after the host: {_FORM}.")
    options = {str(name).replace("-", "_").lower(): value for name, value in parsed.query.items()}
    unknown = [name for name in options if name not in _OPTIONS]
    if unknown:
        raise UnusableSource(f"{unknown[0]}= is not an option of this URL. The options are {', '.join(_OPTIONS)}.")
    repeated = [name for name, value in options.items() if not isinstance(value, str)]
    if repeated:
        raise UnusableSource(f"{repeated[0]}= is given more than once.")
    if options.get("ssl_key") and not options.get("ssl_cert"):
        raise UnusableSource("ssl_key= needs ssl_cert=, the certificate of this client.")
    mode = options.pop("ssl_mode", "VERIFY_CA" if options.get("ssl_ca") else "PREFERRED").upper()
    if mode not in SSL_MODES:
        raise UnusableSource(f"ssl_mode={mode[:40]} is not known: write one of {', '.join(SSL_MODES)}.")
    return MySQLAddress(
        user=parsed.username or "",
        password=str(parsed.password) if parsed.password is not None else os.environ.get("MYSQL_PWD", ""),
        host=parsed.host or "localhost",
        port=parsed.port or 3306,
        database=parsed.database,
        ssl_mode=mode,
        **options,
    )


def _tls(address: MySQLAddress) -> Mapping[str, Any]:
    """Return the driver's arguments for TLS.

    Raises:
        UnusableSource: a file with a certificate or a key cannot be read.
    """
    if address.ssl_mode == "DISABLED":
        return {"ssl_disabled": True}
    if address.ssl_mode == "PREFERRED" and not address.ssl_cert:
        return {}  # the driver's own default since 1.2: encrypted if the server can, without checking its certificate
    try:
        context = ssl.create_default_context(cafile=address.ssl_ca or None)
        if address.ssl_cert:
            context.load_cert_chain(address.ssl_cert, address.ssl_key or None)
    except (OSError, ssl.SSLError) as error:
        files = " or ".join([path for path in (address.ssl_ca, address.ssl_cert, address.ssl_key) if path])
        raise UnusableSource(f"{files} cannot be read as PEM: {error.strerror or type(error).__name__}.") from None
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # the certificates that MySQL creates have no key identifiers
    context.check_hostname = address.ssl_mode == "VERIFY_IDENTITY"
    if address.ssl_mode in ("PREFERRED", "REQUIRED"):
        context.verify_mode = ssl.CERT_NONE
    return {"ssl": context}


def connect(address: MySQLAddress, seconds: float, read_seconds: float) -> Any:
    """Open a connection whose values arrive as texts or bytes, and whose rows are bounded.

    Args:
        address: The server, the database and the account.
        seconds: How long to wait for the server to accept the connection.
        read_seconds: How long to wait for each part of an answer.

    Raises:
        pymysql.err.Error: the server does not accept the connection.
        UnusableSource: a file with a certificate or a key cannot be read.
    """
    pymysql = driver()
    # Without `ssl_ca`, VERIFY_CA accepts every server that has a certificate of a public authority.
    verified = address.ssl_mode == "VERIFY_IDENTITY" or (address.ssl_mode == "VERIFY_CA" and address.ssl_ca)
    auth_plugins: Mapping[str, type] = {} if address.unix_socket or verified else _CLEAR_TEXT
    tls = _tls(address)
    endpoint = {"unix_socket": address.unix_socket} if address.unix_socket else {"host": address.host}
    connection = pymysql.connections.Connection(
        **endpoint,
        port=address.port,
        user=address.user,
        password=address.password.encode(),
        database=address.database,
        charset="utf8mb4",
        conv=pymysql.converters.encoders,
        connect_timeout=seconds,
        read_timeout=read_seconds,
        write_timeout=read_seconds,
        autocommit=True,
        local_infile=False,
        auth_plugin_map=auth_plugins,
        program_name="wharfinger",
        defer_connect=True,
        **tls,
    )
    _bound_rows(connection)
    if "ssl" in tls:
        _require_tls(connection)
    connection.connect()
    return connection


class _ClearTextRefusal:
    """Refuses the plugins that send the password in clear text to a server whose identity is not verified.

    `sha256_password` and `caching_sha2_password` send it too, but within TLS. A server that is not verified could read
    it. They are allowed nevertheless, because the second is the default of MySQL 8.
    """

    def __init__(self, connection: Any) -> None:
        pass

    def authenticate(self, _packet: Any) -> Any:
        raise driver().err.OperationalError(
            2059, "the server asks for the password in clear text, which needs ssl_mode=VERIFY_IDENTITY and ssl_ca"
        )


_CLEAR_TEXT: Mapping[str, type] = {"mysql_clear_password": _ClearTextRefusal, "dialog": _ClearTextRefusal}


def _require_tls(connection: Any) -> None:
    """Send nothing to a server that does not offer TLS. Old versions of PyMySQL would send the password without it."""
    authenticate = connection._request_authentication

    def authenticate_over_tls() -> None:
        if not connection.server_capabilities & _SERVER_HAS_TLS:
            raise driver().err.OperationalError(2026, "SSL is required but the server doesn't support it")
        authenticate()

    connection._request_authentication = authenticate_over_tls


def _bound_rows(connection: Any) -> None:
    """Bound the bytes that the driver receives until `bytes_left` is set again. The driver itself has no bound."""
    read = connection._read_bytes
    connection.bytes_left = MAX_ROW_BYTES

    def read_bounded(size: int) -> Any:
        connection.bytes_left -= size
        if connection.bytes_left < 0:
            connection._force_close()
            raise RowTooLarge
        return read(size)

    connection._read_bytes = read_bounded


def rows_of(connection: Any, cursor: Any) -> Iterator[Any]:
    """Yield the rows of an unbuffered cursor, each of at most `MAX_ROW_BYTES`.

    Raises:
        RowTooLarge: a row is larger.
    """
    while True:
        connection.bytes_left = MAX_ROW_BYTES
        row = cursor.fetchone()
        if row is None:
            return
        yield row


def drain(connection: Any, cursor: Any) -> None:
    """Receive the rest of an unbuffered result, so that the connection can be used again. Close it if much is left."""
    connection.bytes_left = DRAINED_BYTES
    result = connection._result
    try:
        if connection.open:
            cursor.close()
    except (RowTooLarge, driver().err.Error):
        connection.unusable = True
    finally:
        connection.bytes_left = MAX_ROW_BYTES
        if result is not None and result.unbuffered_active:  # otherwise its __del__ would read from the closed socket
            result.unbuffered_active = False
            connection.unusable = True
