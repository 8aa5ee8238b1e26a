"""The Host and Origin checks of an HTTP server, which are always on."""

from __future__ import annotations

from collections.abc import Iterable

from wharfinger.protocol.http.rules import CLOSE_HEADERS, Headers, HttpRefusal

__all__ = ["LOOPBACK", "HostOriginPolicy"]

LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]"})
"""Names of this machine in a Host header."""


class HostOriginPolicy:
    """Checks the Host and Origin headers, which protects a local server from web pages (DNS rebinding).

    By default the allowed hosts are the names of the loopback interface and the literal bind address, on any port,
    because ports may be forwarded. A page may call only the server that it comes from (the same name and port); the
    names of the loopback interface count as one name. `*` allows every host or origin.
    """

    __slots__ = ("_any_host", "_any_origin", "_hosts", "_known_hosts", "_known_pairs", "_origins")

    def __init__(
        self,
        bind: str = "",
        *,
        allow_hosts: Iterable[str] = (),
        allow_origins: Iterable[str] = (),
        public_url: str = "",
    ) -> None:
        """Raises ValueError if a setting is not a host, an origin or a URL."""
        hosts: set[tuple[str, int | None]] = {(name, None) for name in LOOPBACK}
        if bind:
            hosts.add(_parse_host_setting(f"[{bind}]" if ":" in bind and not bind.startswith("[") else bind))
        self._any_host = self._any_origin = False
        for text in allow_hosts:
            if text == "*":
                self._any_host = True
            else:
                hosts.add(_parse_host_setting(text))
        origins: set[tuple[str, str, int]] = set()
        for text in allow_origins:
            if text == "*":
                self._any_origin = True
            else:
                origins.add(_parse_origin_setting(text))
        if public_url:
            scheme, separator, rest = public_url.partition("://")
            origin = _parse_origin_setting(f"{scheme}{separator}{rest.partition('/')[0]}")
            origins.add(origin)
            hosts.add((origin[1], None))
        self._hosts = frozenset(hosts)
        self._origins = frozenset(origins)
        # A small cache of header values that were allowed.
        self._known_hosts: set[bytes] = set()
        self._known_pairs: set[tuple[bytes, bytes]] = set()

    def check(self, headers: Headers) -> None:
        """Raise HttpRefusal: 400 for a missing or malformed Host, 403 for a Host or Origin that is not allowed."""
        host = headers.get(b"host")
        if host not in self._known_hosts:
            self._check_host(host)
        origin = headers.get(b"origin")
        if origin is not None and (host, origin) not in self._known_pairs:
            self._check_origin(origin, host or b"")

    def allowed_origin(self, headers: Headers) -> bytes:
        """Return the value of Access-Control-Allow-Origin.

        It is `*` if every origin is allowed. It is the origin of the request if a setting allows this origin, or if the
        origin is this server under another name of the loopback interface. Otherwise it is empty: the server's own
        pages need no such header.
        """
        if self._any_origin:
            return b"*"
        origin = headers.get(b"origin", b"").strip(b" \t")
        parsed = _parse_origin(origin.decode("latin-1"))
        if parsed is None:
            return b""
        host = headers.get(b"host", b"").strip(b" \t").lower()
        is_other_name = not host.startswith(parsed[1].encode()) and _same_server(parsed, host)
        return origin if is_other_name or parsed in self._origins else b""

    def _check_host(self, value: bytes | None) -> None:
        parsed = None if value is None else _parse_host(value.decode("latin-1"))
        if value is None or parsed is None:
            raise HttpRefusal(400, "The request needs one well-formed Host header.", CLOSE_HEADERS)
        name, port = parsed
        # A Host without a port means the scheme's default port. Only a proxy may know the scheme, so both are tried.
        ports = (None, *_DEFAULT_PORTS.values()) if port is None else (None, port)
        if not self._any_host and not any((name, each) in self._hosts for each in ports):
            raise HttpRefusal(
                403,
                "This Host is not allowed. If it is a name of this server, allow it: --allow-host NAME "
                "or --public-url URL (allow_hosts=, public_url=).",
                CLOSE_HEADERS,
            )
        if len(self._known_hosts) < 64:
            self._known_hosts.add(value)

    def _check_origin(self, value: bytes, host: bytes) -> None:
        origin = _parse_origin(value.decode("latin-1"))
        allowed = self._any_origin or origin in self._origins or (origin is not None and _same_server(origin, host))
        if not allowed:
            raise HttpRefusal(
                403,
                "This Origin is not allowed. If the page is yours, allow it: --allow-origin ORIGIN (allow_origins=).",
                CLOSE_HEADERS,
            )
        if len(self._known_pairs) < 64:
            self._known_pairs.add((host, value))


_HOST_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789.-_")
_DEFAULT_PORTS = {"http": 80, "https": 443}


def _parse_host(text: str) -> tuple[str, int | None] | None:
    """Return (name, port or None) of a Host header; None if it is malformed."""
    text = text.strip(" \t").lower()
    if text.startswith("["):
        name, bracket, rest = text.partition("]")
        name += bracket
        if not bracket or not set(name[1:-1]) <= set("0123456789abcdef:.") or (rest and not rest.startswith(":")):
            return None
        port = rest[1:]
    else:
        name, _, port = text.partition(":")
        if not name or not _HOST_CHARACTERS.issuperset(name):
            return None
    if not port:
        return (name, None)
    return (name, int(port)) if port.isascii() and port.isdigit() and len(port) <= 5 else None


def _parse_origin(text: str) -> tuple[str, str, int] | None:
    """Return (scheme, host, port) of an Origin header (RFC 6454 §6.2); None for `null` or a malformed one."""
    scheme, separator, rest = text.strip(" \t").lower().partition("://")
    parsed = _parse_host(rest) if separator else None
    if parsed is None or not scheme.replace("-", "").replace("+", "").replace(".", "").isalnum():
        return None
    port = parsed[1] if parsed[1] is not None else _DEFAULT_PORTS.get(scheme, 0)
    return (scheme, parsed[0], port)


def _same_server(origin: tuple[str, str, int], host: bytes) -> bool:
    parsed = _parse_host(host.decode("latin-1"))
    if parsed is None or origin[0] not in _DEFAULT_PORTS:
        return False
    name, port = parsed
    same_name = origin[1] == name or (origin[1] in LOOPBACK and name in LOOPBACK)
    return same_name and origin[2] == (_DEFAULT_PORTS[origin[0]] if port is None else port)


def _parse_host_setting(text: str) -> tuple[str, int | None]:
    parsed = _parse_host(text)
    if parsed is None:
        raise ValueError(f"{text!r} is not a host: write a name or an address, with or without :PORT, or *.")
    return parsed


def _parse_origin_setting(text: str) -> tuple[str, str, int]:
    parsed = _parse_origin(text.rstrip("/"))
    if parsed is None:
        raise ValueError(f"{text!r} is not an origin: write SCHEME://HOST or SCHEME://HOST:PORT, or *.")
    return parsed
