"""HTTPS with certificates of a test CA: errors that name the file, and renewal while the server runs."""

from __future__ import annotations

import logging
import os
import shutil
import socket
import ssl
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import absent
from tests.transports.http_support import ServerThread
from wharfinger.transports.http_server.certificate import Certificate, UnusableCertificate

USAGE = "keyUsage=critical,keyCertSign"
"""Python 3.13 refuses an authority without it, and a certificate that does not name its key (VERIFY_X509_STRICT)."""


class Authority:
    """A certificate authority in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ca = folder / "ca.pem"
        self.openssl("req", "-x509", *self.new("ca.key"), "-subj", "/CN=test CA", "-addext", USAGE, "-out", "ca.pem")

    def openssl(self, *words: str) -> None:
        program = shutil.which("openssl")
        if program is None:
            absent("openssl")
        subprocess.run([str(program), *words], check=True, capture_output=True, cwd=self.folder)

    def new(self, key: str) -> list[str]:
        return ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", key, "-days", "2"]

    def issue(self, name: str) -> tuple[Path, Path]:
        """Return the paths of a new certificate for 127.0.0.1 and of its key."""
        (self.folder / "names").write_text("subjectAltName=IP:127.0.0.1\nauthorityKeyIdentifier=keyid\n")
        self.openssl("req", *self.new(f"{name}.key"), "-subj", f"/CN={name}", "-out", f"{name}.csr")
        signed = ["-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-extfile", "names", "-days", "2"]
        self.openssl("x509", "-req", "-in", f"{name}.csr", *signed, "-out", f"{name}.pem")
        return self.folder / f"{name}.pem", self.folder / f"{name}.key"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ca"))


def connect(authority: Authority, port: int, **versions: ssl.TLSVersion) -> str:
    """Return the name in the certificate of a server."""
    context = ssl.create_default_context(cafile=str(authority.ca))
    for name, version in versions.items():
        setattr(context, name, version)
    with (
        socket.create_connection(("127.0.0.1", port), 10) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1") as secure,
    ):
        found: Any = secure.getpeercert()
        return str(dict(pair for (pair,) in found["subject"])["commonName"])


def until(done: Callable[[], object]) -> None:
    end = time.monotonic() + 10
    while not done():
        assert time.monotonic() < end
        time.sleep(0.05)


def install(files: tuple[Path, Path], names: tuple[Path, Path]) -> None:
    """Copy a certificate and its key to the paths of the server, one after the other, as renewal programs do."""
    for file, name in zip(files, names, strict=True):
        new = name.with_suffix(".new")
        shutil.copy(file, new)
        os.replace(new, name)


def test_a_renewed_certificate_is_used_by_new_connections_and_open_ones_continue(
    authority: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    used = tmp_path / "cert.pem", tmp_path / "key.pem"
    install(authority.issue("old"), used)
    with ServerThread(tls_cert=str(used[0]), tls_key=str(used[1])) as http, http.wire() as wire:
        context = ssl.create_default_context(cafile=str(authority.ca))
        wire.socket = context.wrap_socket(wire.socket, server_hostname="127.0.0.1")
        assert connect(authority, http.port) == "old"
        install(authority.issue("new"), used)
        until(lambda: connect(authority, http.port) == "new")
        assert wire.read("a").text == "test://a"
        used[1].write_text("nonsense")
        until(lambda: "The old certificate stays" in caplog.text)
        assert connect(authority, http.port) == "new"
        used[0].unlink()
        until(lambda: "cert.pem cannot be read: No such file" in caplog.text)
        assert connect(authority, http.port) == "new"
    assert all(record.levelno >= logging.WARNING for record in caplog.records)


def test_tls_1_2_is_the_oldest_version(authority: Authority) -> None:
    cert, key = authority.issue("versions")
    with ServerThread(tls_cert=str(cert), tls_key=str(key)) as http:
        oldest = ssl.TLSVersion.TLSv1_2
        assert connect(authority, http.port, minimum_version=oldest, maximum_version=oldest) == "versions"
        with pytest.warns(DeprecationWarning), pytest.raises((ssl.SSLError, ConnectionError)):
            connect(authority, http.port, minimum_version=ssl.TLSVersion.TLSv1, maximum_version=ssl.TLSVersion.TLSv1_1)


def test_errors_name_the_invalid_file_and_the_reason(authority: Authority, tmp_path: Path) -> None:
    cert, key = map(str, authority.issue("one"))
    other = str(authority.issue("other")[1])
    authority.openssl("ec", "-in", "one.key", "-aes128", "-passout", "pass:secret", "-out", "locked.key")
    locked, missing = str(authority.folder / "locked.key"), str(tmp_path / "none.pem")
    for files, message in (
        ((cert, other), f"the key {other} does not belong to the certificate {cert}"),
        ((cert, locked), f"the key {locked} is encrypted: decrypt it with `openssl pkey -in {locked} -out NEW`"),
        ((missing, key), f"{missing} cannot be read: No such file"),
        ((cert, missing), f"{missing} cannot be read: No such file"),
        ((key, cert), "must contain a certificate"),
        ((cert,), f"{cert} must contain a certificate and {cert} its private key"),
    ):
        with pytest.raises(UnusableCertificate) as raised:
            Certificate(*files)
        assert message in str(raised.value)
