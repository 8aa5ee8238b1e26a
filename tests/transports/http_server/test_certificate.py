"""HTTPS with certificates of a test CA: errors that name the file, and renewal while the server runs."""

from __future__ import annotations

import logging
import os
import shutil
import socket
import ssl
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import absent
from tests.transports.http_support import ServerThread
from tests.waiting import wait_until
from wharfinger.transports.http_server.certificate import Certificate, UnusableCertificate

KEY_USAGE = "keyUsage=critical,keyCertSign"
"""Python 3.13 refuses a CA certificate without it (VERIFY_X509_STRICT)."""


class Authority:
    """A certificate authority in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ca = folder / "ca.pem"
        self.openssl(
            "req", "-x509", *self.key_options("ca.key"), "-subj", "/CN=test CA", "-addext", KEY_USAGE, "-out", "ca.pem"
        )

    def openssl(self, *arguments: str) -> None:
        program = shutil.which("openssl")
        if program is None:
            absent("openssl")
        subprocess.run([str(program), *arguments], check=True, capture_output=True, cwd=self.folder)

    def key_options(self, key: str) -> list[str]:
        return ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", key, "-days", "2"]

    def issue(self, name: str) -> tuple[Path, Path]:
        """Return the paths of a new certificate for 127.0.0.1 and of its key."""
        # Python 3.13 also refuses a certificate that does not name the key of its issuer.
        (self.folder / "extensions").write_text("subjectAltName=IP:127.0.0.1\nauthorityKeyIdentifier=keyid\n")
        self.openssl("req", *self.key_options(f"{name}.key"), "-subj", f"/CN={name}", "-out", f"{name}.csr")
        signing_options = [
            "-CA",
            "ca.pem",
            "-CAkey",
            "ca.key",
            "-CAcreateserial",
            "-extfile",
            "extensions",
            "-days",
            "2",
        ]
        self.openssl("x509", "-req", "-in", f"{name}.csr", *signing_options, "-out", f"{name}.pem")
        return self.folder / f"{name}.pem", self.folder / f"{name}.key"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ca"))


def connect(authority: Authority, port: int, **versions: ssl.TLSVersion) -> str:
    """Connect to a server and return the common name of its certificate."""
    context = ssl.create_default_context(cafile=str(authority.ca))
    for name, version in versions.items():
        setattr(context, name, version)
    with (
        socket.create_connection(("127.0.0.1", port), 10) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1") as secure,
    ):
        certificate: Any = secure.getpeercert()
        return str(dict(pair for (pair,) in certificate["subject"])["commonName"])


def install(sources: tuple[Path, Path], targets: tuple[Path, Path]) -> None:
    """Copy a certificate and its key to the paths of the server, one after the other, as renewal programs do."""
    for source, target in zip(sources, targets, strict=True):
        new = target.with_suffix(".new")
        shutil.copy(source, new)
        os.replace(new, target)


def test_new_connections_use_a_renewed_certificate_and_open_ones_continue(
    authority: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    install(authority.issue("old"), (cert, key))
    with ServerThread(tls_cert=str(cert), tls_key=str(key)) as http, http.connect() as client:
        context = ssl.create_default_context(cafile=str(authority.ca))
        client.socket = context.wrap_socket(client.socket, server_hostname="127.0.0.1")
        assert connect(authority, http.port) == "old"
        install(authority.issue("new"), (cert, key))
        wait_until(lambda: connect(authority, http.port) == "new", "the new certificate is used")
        assert client.read("a").text == "test://a"
        key.write_text("nonsense")
        wait_until(lambda: "The old certificate stays" in caplog.text, "the invalid key is reported")
        assert connect(authority, http.port) == "new"
        cert.unlink()
        wait_until(lambda: "cert.pem cannot be read: No such file" in caplog.text, "the missing file is reported")
        assert connect(authority, http.port) == "new"
    assert all(record.levelno >= logging.WARNING for record in caplog.records)


def test_a_key_whose_permissions_have_changed_is_read_again(authority: Authority) -> None:
    """A bug: a renewed key that became readable only later was never loaded."""
    cert, key = authority.issue("permissions")
    certificate = Certificate(str(cert), str(key))
    assert not certificate.has_changed()
    key.chmod(0o640)
    assert certificate.has_changed()
    certificate.reload()
    assert not certificate.has_changed()


def test_a_certificate_may_vanish_while_it_is_being_loaded(
    authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A bug: the server then read no certificate again, and closed no idle connection."""
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    install(authority.issue("old"), (cert, key))
    load = ssl.SSLContext.load_cert_chain

    def load_late(*arguments: Any) -> None:
        cert.unlink()
        load(*arguments)

    with ServerThread(tls_cert=str(cert), tls_key=str(key)) as http:
        with monkeypatch.context() as patched:
            patched.setattr(ssl.SSLContext, "load_cert_chain", load_late)
            cert.touch()
            wait_until(lambda: not cert.exists(), "the certificate is being loaded")
            wait_until(lambda: "The old certificate stays" in caplog.text, "the missing file is reported")
        install(authority.issue("new"), (cert, key))
        wait_until(lambda: connect(authority, http.port) == "new", "the new certificate is used")


def test_versions_older_than_tls_1_2_are_refused(authority: Authority) -> None:
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
