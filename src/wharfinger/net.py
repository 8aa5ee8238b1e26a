"""Addresses, proxies, size limits and times of HTTP requests, for everything that sends them."""

from __future__ import annotations

import asyncio
import ipaddress
import os
import re
import socket
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, urljoin, urlsplit

from wharfinger.errors import ConnectionFailed

if TYPE_CHECKING:
    from aiohttp.abc import AbstractResolver

__all__ = [
    "AddressRefused",
    "connection_failure",
    "has_control",
    "is_address",
    "is_http_url",
    "is_loopback",
    "is_public",
    "join_headers",
    "join_url",
    "make_resolver",
    "origin_of",
    "page_host",
    "proxy_for",
    "read_limited",
    "seconds_to_wait",
    "split_url",
    "unix_time",
]

MAX_DATE_CHARACTERS = 60
MAX_SECONDS_CHARACTERS = 9
"""The maximum number of characters of a `Retry-After` that is a number of seconds."""

has_control = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]").search
"""Finds a line break or another control character, which a header cannot have."""


def is_loopback(host: str) -> bool:
    """Return whether a host, by name or address, is this machine (RFC 6761 §6.3 for names below `localhost`)."""
    name = host.strip("[]").lower()
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return False
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback


def is_address(host: str) -> bool:
    """Return whether a host is an IP address rather than a name, also in a short notation such as `127.1`.

    aiohttp resolves no host of digits and dots, and before 3.14 it connected to `2130706433`, which is 127.0.0.1.
    """
    if host.isascii() and host.replace(".", "").isdigit():
        return True
    with suppress(ValueError):
        return bool(ipaddress.ip_address(host.partition("%")[0]))
    return False


def is_http_url(text: str) -> bool:
    """Return whether a text is a URL with the scheme `http` or `https`."""
    return text.startswith(("http://", "https://"))


_NOT_PUBLIC = [
    ipaddress.ip_network(text)
    for text in (
        "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24",
        "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24",
        "224.0.0.0/3", "2001::/23", "2001:db8::/32", "3fff::/20",
    )
]  # fmt: skip
"""Networks that the IANA special-purpose registries (RFC 6890) list as deprecated or not globally reachable, and
multicast. For IPv6, only networks within `_UNICAST`. The table in `ipaddress` differs between Python versions."""
_PUBLIC = [
    ipaddress.ip_network(text)
    for text in ("192.0.0.9", "192.0.0.10", "2001:1::1", "2001:1::2", "2001:1::3", "2001:3::/32", "2001:4:112::/48")
]
"""Exceptions within `_NOT_PUBLIC`, from the same registries."""
_UNICAST = ipaddress.ip_network("2000::/3")
"""All global unicast addresses of IPv6 (RFC 4291, §2.4)."""
_IPV4_PREFIXES = {ipaddress.IPv6Address(text) for text in ("::", "::ffff:0:0", "::ffff:0:0:0", "64:ff9b::")}
"""IPv6 prefixes before an embedded IPv4 address: compatible, mapped, translated, and NAT64's well-known prefix."""


def is_public(address: str) -> bool:
    """Return whether an IP address is on the public internet, rather than in a private network or on this machine.

    An IPv6 address that contains IPv4 addresses is public if all of these are: a gateway may forward to them.
    """
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if isinstance(parsed, ipaddress.IPv6Address):
        if embedded := _embedded_ipv4(parsed):
            return all(is_public(str(ipv4)) for ipv4 in embedded)
        if parsed not in _UNICAST:
            return False
    return not any(parsed in network for network in _NOT_PUBLIC) or any(parsed in network for network in _PUBLIC)


def _embedded_ipv4(address: ipaddress.IPv6Address) -> list[ipaddress.IPv4Address]:
    """Return the IPv4 addresses that an IPv6 address contains."""
    number = int(address)
    if ipaddress.IPv6Address(number >> 32 << 32) in _IPV4_PREFIXES:
        return [ipaddress.IPv4Address(number & 0xFFFFFFFF)]
    if address.sixtofour is not None:
        return [address.sixtofour]
    return list(address.teredo or ())


_PORTS = {"http": 80, "https": 443}
MAX_URL_CHARACTERS = 8 * 1024


def split_url(url: str) -> SplitResult | None:
    """Return the parts of an absolute http(s) URL.

    Returns None for any other text, and for a URL with credentials, with port 0, with characters that must be escaped,
    or with more than `MAX_URL_CHARACTERS`.
    """
    if len(url) > MAX_URL_CHARACTERS or not url.isascii() or not url.isprintable() or set(url) & set(' "<>\\^`{|}'):
        return None
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return None
    usable = parts.scheme in _PORTS and parts.hostname and parts.username is None and parts.password is None
    return parts if usable and port != 0 else None


def join_url(base: str, link: str) -> str:
    """Return the URL of a link in a document at `base`; an empty string if it is not a URL, such as `http://[`."""
    try:
        return urljoin(base, link)
    except ValueError:
        return ""


def origin_of(url: str) -> str | None:
    """Return scheme, host and port in a canonical form; None if `split_url` returns None."""
    parts = split_url(url)
    if parts is None:
        return None
    host = str(parts.hostname)
    bracketed = f"[{host}]" if ":" in host else host
    port = parts.port
    return f"{parts.scheme}://{bracketed}" + ("" if port in (None, _PORTS[parts.scheme]) else f":{port}")


def page_host(url: str) -> str:
    """Return the host that a browser goes to for an http(s) URL.

    Returns an empty string for any other URL, and if the host is in doubt: a browser takes `a` from `https://a\\@b`,
    and `urlsplit` takes `b`.
    """
    try:
        parts = urlsplit(url)
    except ValueError:
        return ""
    if parts.scheme not in ("http", "https") or "\\" in parts.netloc:
        return ""
    return parts.hostname or ""


def proxy_for(scheme: str, host: str) -> str | None:
    """Return the proxy that the environment names for a host (`HTTPS_PROXY`, `NO_PROXY`, …).

    Returns None if it names none, or if the host is this machine.

    Raises:
        ConnectionFailed: the proxy is not an HTTP proxy.
    """
    if is_loopback(host):
        return None
    from urllib.request import getproxies, proxy_bypass  # imported on use: it loads the HTTP client and email

    proxies = getproxies()
    proxy = proxies.get(scheme) or proxies.get("all")
    if not proxy or proxy_bypass(host):
        return None
    if "://" not in proxy:
        proxy = f"http://{proxy}"
    if not is_http_url(proxy):
        kind = proxy.partition(":")[0]
        raise ConnectionFailed(f"The environment names a {kind} proxy for {host}: only HTTP proxies can be used.")
    return proxy


class AddressRefused(OSError):
    """None of a host's addresses may be connected to. It is an OSError because aiohttp wraps no other exception."""


def connection_failure(error: OSError) -> str:
    """Return why a connection could not be opened, such as `Connection refused`."""
    reason = error.strerror or str(error)
    # asyncio's text is the address: "Connect call failed ('127.0.0.1', 9)".
    return os.strerror(error.errno) if error.errno and reason.startswith("Connect call failed") else reason


def make_resolver(allow: Callable[[str, str], bool], refusal: str) -> AbstractResolver:
    """Make a resolver for aiohttp that returns only allowed addresses, so that no name can lead into a private network.

    `allow` takes the host and one of its IP addresses. If it allows none of them, resolving raises AddressRefused with
    the message `refusal`, in which `{host}` is replaced by the host.
    """
    from aiohttp.abc import AbstractResolver, ResolveResult  # imported on use: 60 ms and 10 MiB

    class Resolver(AbstractResolver):
        async def resolve(
            self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
        ) -> list[ResolveResult]:
            loop = asyncio.get_running_loop()
            rows = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, family=family)
            allowed = [row for row in rows if allow(host, str(row[4][0]))]
            if rows and not allowed:
                raise AddressRefused(None, refusal.format(host=host))
            return [
                ResolveResult(
                    hostname=host, host=str(row[4][0]), port=int(row[4][1]), family=row[0], proto=row[2], flags=0
                )
                for row in allowed
            ]

        async def close(self) -> None:
            pass

    return Resolver()


def join_headers(items: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return headers by lower-case name; the values of a repeated one are joined by `, `."""
    joined: dict[str, str] = {}
    for name, value in items:
        key = name.lower()
        joined[key] = f"{joined[key]}, {value}" if key in joined else value
    return joined


async def read_limited(chunks: AsyncIterator[bytes], limit: int) -> bytes | None:
    """Return the whole body, or None, without reading the rest, if it is larger than `limit` bytes."""
    body: list[bytes] = []
    size = 0
    async for chunk in chunks:
        size += len(chunk)
        if size > limit:
            return None
        body.append(chunk)
    return body[0] if len(body) == 1 else b"".join(body)


def unix_time(date: str) -> float | None:
    """Return the time of a date in a header (RFC 9110 §5.6.7); None if it is not a date."""
    from datetime import UTC
    from email.utils import parsedate_to_datetime  # imported on use: it loads the packages of email

    if not date or len(date) > MAX_DATE_CHARACTERS:
        return None
    try:
        parsed = parsedate_to_datetime(date)
        # The obsolete form `Sun Nov  6 08:49:37 1994` names no zone, and is in UTC too.
        return (parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError, TypeError):
        return None


def seconds_to_wait(retry_after: str, now: float) -> float | None:
    """Return the seconds that a `Retry-After` header (RFC 9110 §10.2.3) asks to wait; None if it is not valid.

    `now` is the Unix time, with which a date is compared.
    """
    text = retry_after.strip()
    if text.isascii() and text.replace(".", "", 1).isdigit() and len(text) <= MAX_SECONDS_CHARACTERS:
        return float(text)
    date = unix_time(text)
    return None if date is None else max(0.0, date - now)
