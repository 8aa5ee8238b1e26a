"""The visitors of the page, by cookie, and the two ways to become one.

If the server requires no credentials, the terminal prints a URL with a token. The first request with it gets a cookie,
and the token is void: a URL stays in the history of the browser, and perhaps of a shell. If the server requires
credentials, a visitor types a token instead. It is kept in memory and checked again for each request, so that it opens
the page exactly as long as it opens the server.

The cookie has 256 random bits. Only its digest is kept.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections import OrderedDict
from contextlib import suppress
from pathlib import Path

from wharfinger.protocol.principal import ANONYMOUS, Principal

__all__ = ["Visitor", "Visitors", "cookie_name"]

MAX_VISITORS = 1000
"""Maximum number of visitors. A new one replaces the visitor with the longest absence."""
VISIT_SECONDS = 12 * 3600.0
"""Time for which a cookie is valid."""


class Visitor:
    """One browser that may open the page."""

    __slots__ = ("authorization", "expires", "key", "principal")

    def __init__(self, key: str, principal: Principal, authorization: bytes, expires: float) -> None:
        self.key = key
        """The digest of the cookie."""
        self.principal = principal
        self.authorization = authorization
        """The value of the Authorization header that this visitor would send; empty if none is needed."""
        self.expires = expires
        """When the cookie expires, in seconds since 1970."""


def cookie_name(host: str) -> str:
    """Return the name of the cookie for a Host header. It contains the port, which cookies do not distinguish."""
    port = host.rpartition(":")[2]
    return f"wharfinger_{port}" if port.isascii() and port.isdigit() else "wharfinger"


class Visitors:
    """The visitors of one page.

    The digests of cookies are kept in `directory`, which nobody else may read, so that visitors remain known when the
    process is restarted (`--reload`). Visitors with credentials are not kept there.
    """

    def __init__(self, directory: Path | None = None) -> None:
        self._visitors: OrderedDict[str, Visitor] = OrderedDict()
        self._file = None if directory is None else directory / "visitors"
        self.token = secrets.token_urlsafe(32)
        """The token of the URL; empty if it was used, or if visitors were loaded from `directory`."""
        if self._file is not None:
            with suppress(OSError):
                for line in self._file.read_text("ascii", "replace").splitlines()[-MAX_VISITORS:]:
                    key, _, text = line.partition(" ")
                    try:
                        expires = float(text)
                    except ValueError:  # a damaged line
                        continue
                    now = time.time()
                    if now < expires <= now + VISIT_SECONDS:
                        self._visitors[key] = Visitor(key, ANONYMOUS, b"", expires)
                        self.token = ""

    def redeem(self, token: str) -> str | None:
        """Void the token of the URL, and return a cookie for it; None if the token is not valid."""
        if not self.token or not hmac.compare_digest(token.encode("utf-8", "replace"), self.token.encode()):
            return None
        self.token = ""
        return self.admit(ANONYMOUS)

    def admit(self, principal: Principal, authorization: bytes = b"") -> str:
        """Add a visitor, and return the value of the cookie."""
        cookie = secrets.token_urlsafe(32)
        key = _digest(cookie)
        expires = time.time() + VISIT_SECONDS
        if len(self._visitors) >= MAX_VISITORS:
            self.forget(next(iter(self._visitors.values())))
        self._visitors[key] = Visitor(key, principal, authorization, expires)
        if self._file is not None and not authorization:
            with suppress(OSError), open(self._file, "a", encoding="ascii") as file:
                file.write(f"{key} {expires}\n")
        return cookie

    def find(self, cookie: str) -> Visitor | None:
        """Return the visitor with this cookie, or None if the cookie is unknown or has expired."""
        visitor = self._visitors.get(_digest(cookie))
        if visitor is None:
            return None
        if visitor.expires < time.time():
            self.forget(visitor)
            return None
        self._visitors.move_to_end(visitor.key)
        return visitor

    def forget(self, visitor: Visitor) -> None:
        """Sign a visitor out: the cookie is not accepted any more, also after a restart."""
        if self._visitors.pop(visitor.key, None) is not None and self._file is not None:
            kept = [each for each in self._visitors.values() if not each.authorization]
            with suppress(OSError):
                self._file.write_text("".join(f"{each.key} {each.expires}\n" for each in kept), "ascii")


def _digest(cookie: str) -> str:
    return hashlib.sha256(cookie.encode("utf-8", "replace")).hexdigest()
