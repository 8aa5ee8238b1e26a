"""No credentials are sent to a MySQL server before its identity is known. The server is a socket of the test."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

pymysql = pytest.importorskip("pymysql")

from wharfinger.source import UnusableSource  # noqa: E402
from wharfinger.sources.sql_database import mysql_connection  # noqa: E402
from wharfinger.sources.sql_database.mysql_connection import connect, read_address  # noqa: E402

CAPABILITIES = 0x00A8_A200
"""Protocol 4.1, secure connections, authentication plugins and multiple results, but not TLS."""


def greeting(capabilities: int) -> bytes:
    """Return the first packet of a server."""
    low, high = capabilities & 0xFFFF, capabilities >> 16
    body = b"\x0a8.0.0\0" + struct.pack("<I8sxHBHHB10x", 1, b"12345678", low, 45, 2, high, 21)
    body += b"123456789012\0mysql_native_password\0"
    return struct.pack("<I", len(body)) + body


def bytes_sent(capabilities: int, connect_to: Callable[[int], None]) -> bytes:
    """Greet the client that `connect_to` connects to a port, and return the bytes that it sends."""
    data = bytearray()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            client, _ = server.accept()
            with client:
                client.settimeout(20)
                client.sendall(greeting(capabilities))
                try:
                    data.extend(client.recv(4_096))
                except OSError:
                    return

        thread = threading.Thread(target=serve)
        thread.start()
        connect_to(server.getsockname()[1])
        thread.join()
    return bytes(data)


@pytest.mark.parametrize("mode", ["REQUIRED", "VERIFY_CA", "VERIFY_IDENTITY"])
def test_nothing_is_sent_to_a_server_without_tls(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def connect_to(port: int) -> None:
        address = read_address(f"mysql://reader:hunter2@127.0.0.1:{port}/shop?ssl_mode={mode}")
        with pytest.raises(pymysql.err.OperationalError, match="SSL is required"):
            connect(address, 20, 20)

    def authenticate_early(self: object) -> None:
        """Authenticate as old versions of PyMySQL do, without checking the capabilities of the server."""
        self._write_bytes(b"reader hunter2")  # type: ignore[attr-defined]

    monkeypatch.setattr(pymysql.connections.Connection, "_request_authentication", authenticate_early)
    assert bytes_sent(CAPABILITIES, connect_to) == b""


@pytest.mark.parametrize(
    ("options", "allowed"),
    [
        ("", False),
        ("?ssl_mode=REQUIRED", False),
        ("?ssl_mode=VERIFY_CA", False),
        ("?ssl_mode=VERIFY_IDENTITY", True),
        ("?ssl_ca={ca}", True),
        ("?unix_socket=/run/mysqld.sock", True),
    ],
)
def test_a_password_is_sent_in_clear_text_only_to_a_verified_server(
    options: str, allowed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class ConnectionAttempted(Exception):
        pass

    def fake_connection(**arguments: object) -> None:
        assert (arguments["auth_plugin_map"] == {}) is allowed
        raise ConnectionAttempted

    monkeypatch.setattr(mysql_connection, "_tls", lambda address: {})
    monkeypatch.setattr(pymysql.connections, "Connection", fake_connection)
    with pytest.raises(ConnectionAttempted):
        connect(read_address("mysql://reader@db.example/shop" + options.format(ca=tmp_path / "ca.pem")), 1, 1)


def test_the_repr_of_an_address_omits_the_password() -> None:
    address = read_address("mysql://reader:hunter2@db.example/shop")
    assert (repr(address), address.password) == ("MySQLAddress('db.example')", "hunter2")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("ssl_ca=a&ssl_ca=b", "ssl_ca= is given more than once"),
        ("ssl_key=k.pem", "ssl_key= needs ssl_cert="),
        ("compress=1", "compress= is not an option of this URL"),
    ],
)
def test_the_error_for_options_that_cannot_be_used_names_the_reason(options: str, message: str) -> None:
    with pytest.raises(UnusableSource, match=message):
        read_address(f"mysql://reader@db.example/shop?{options}")
