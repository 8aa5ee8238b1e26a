"""`Certificate`: the certificate of an HTTPS server, which is read again when its files change.

The listening context stays the same, since asyncio takes only one. For each TLS handshake its SNI callback, which is
also called without a name, replaces it by the context of the newest certificate. Open connections are not affected.
"""

from __future__ import annotations

import logging
import os
import ssl
from typing import Any

from wharfinger.transports.accepting import CannotListen

__all__ = ["Certificate", "UnusableCertificate"]

log = logging.getLogger("wharfinger.transports.http")

_REASONS = {
    "KEY_VALUES_MISMATCH": "the key {key} does not belong to the certificate {cert}",
    "KEY_TYPE_MISMATCH": "the key {key} does not belong to the certificate {cert}",
    "EE_KEY_TOO_SMALL": "the key of {cert} is too short: make one of 2048 bits or more, or with an elliptic curve",
    "CA_MD_TOO_WEAK": "{cert} is signed with a weak digest: have it signed with SHA-256",
}

Version = tuple[tuple[int, int, int, int], ...]
"""Of each file: inode, size, and the times at which its content and its owner or permissions changed."""


class UnusableCertificate(CannotListen):
    """A certificate or its key cannot be used; the message says which file, and why."""


class Certificate:
    """A certificate chain in PEM with its private key, which is in the same file if `key` is empty.

    Raises:
        UnusableCertificate: a file cannot be read, or is not usable for HTTPS, or the two do not belong together.
    """

    def __init__(self, cert: str, key: str = "") -> None:
        self._cert, self._key = cert, key
        self._loaded_version = self._version()
        self._newest = self._load()
        self.context = self._load()
        self.context.sni_callback = self._choose

    def has_changed(self) -> bool:
        """Return whether a file has changed since the certificate was last read."""
        return self._version() != self._loaded_version

    def reload(self) -> None:
        """Read the files again. If they cannot be used, the error is logged and the old certificate stays."""
        self._loaded_version = self._version()
        try:
            self._newest = self._load()
        except UnusableCertificate as error:
            log.error("The old certificate stays, since the new one cannot be used. %s", error)
        else:
            log.warning("The certificate was read again from %s.", self._cert)

    def _choose(self, connection: Any, name: str | None, context: ssl.SSLContext) -> None:
        connection.context = self._newest

    def _version(self) -> Version:
        versions: list[tuple[int, int, int, int]] = []
        for path in (self._cert, self._key or self._cert):
            try:
                status = os.stat(path)
            except OSError:
                return ()
            versions.append((status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns))
        return tuple(versions)

    def _load(self) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        cert, key = self._cert, self._key or self._cert
        for path in (cert, key):
            try:
                with open(path, "rb"):
                    pass
            except OSError as error:
                raise UnusableCertificate(
                    f"The certificate or key {path} cannot be read: {error.strerror or error}."
                ) from None
        encrypted = False

        def password() -> str:
            """Return a wrong password. Without this function, OpenSSL would ask for it at the terminal and wait."""
            nonlocal encrypted
            encrypted = True
            return ""

        try:
            context.load_cert_chain(cert, key, password)
        except ssl.SSLError as error:
            reason = _REASONS.get(error.reason or "")
            if encrypted:
                reason = "the key {key} is encrypted: decrypt it with `openssl pkey -in {key} -out NEW`"
            elif reason is None:
                reason = "{cert} must contain a certificate and {key} its private key, both in PEM (-----BEGIN …)"
            raise UnusableCertificate(f"HTTPS is not possible: {reason.format(cert=cert, key=key)}.") from None
        except OSError as error:  # a file has gone since it was opened above
            raise UnusableCertificate(
                f"The certificate {cert} or its key {key} cannot be read: {error.strerror or error}."
            ) from None
        return context
