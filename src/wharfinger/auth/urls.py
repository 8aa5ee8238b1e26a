"""Where things may be asked and found: origins, well-known addresses and what a resource covers; asks nobody."""

from __future__ import annotations

import ipaddress
from urllib.parse import SplitResult, urlsplit

__all__ = [
    "covers",
    "forbidden_reason",
    "is_loopback",
    "is_public",
    "origin_of",
    "resource_metadata_urls",
    "server_metadata_urls",
]

_PORTS = {"http": 80, "https": 443}
LONGEST = 8 * 1024
"""Characters of a URL."""


def split(url: str) -> SplitResult | None:
    """The parts of an absolute http(s) URL; None where it is none that may be used."""
    if len(url) > LONGEST or not url.isascii() or not url.isprintable() or set(url) & set(' "<>\\^`{|}'):
        return None
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return None
    usable = parts.scheme in _PORTS and parts.hostname and parts.username is None and parts.password is None
    return parts if usable and port != 0 else None


def origin_of(url: str) -> str | None:
    """Scheme, host and port, in one spelling; None where the URL is none that may be used."""
    parts = split(url)
    if parts is None:
        return None
    host = str(parts.hostname)
    shown = f"[{host}]" if ":" in host else host
    port = parts.port
    return f"{parts.scheme}://{shown}" + ("" if port in (None, _PORTS[parts.scheme]) else f":{port}")


def is_loopback(host: str) -> bool:
    """Whether a host, by name or address, is this machine."""
    if host.lower() == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


_NOT_PUBLIC = [
    ipaddress.ip_network(text)
    for text in (
        "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24",
        "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24",
        "224.0.0.0/3", "2001::/23", "2001:db8::/32", "3fff::/20",
    )
]  # fmt: skip
"""What the IANA special-purpose registries name as not globally reachable, or as deprecated (RFC 6890), with multicast;
of IPv6 only within `_UNICAST`. Python's own table differs between its versions."""
_PUBLIC = [
    ipaddress.ip_network(text)
    for text in ("192.0.0.9", "192.0.0.10", "2001:1::1", "2001:1::2", "2001:1::3", "2001:3::/32", "2001:4:112::/48")
]
"""Exceptions of theirs within `_NOT_PUBLIC`."""
_UNICAST = ipaddress.ip_network("2000::/3")
"""All that IPv6 has of global addresses (RFC 4291, §2.4)."""
_BEFORE_IPV4 = {ipaddress.IPv6Address(text) for text in ("::", "::ffff:0:0", "::ffff:0:0:0", "64:ff9b::")}
"""An IPv4 address follows in the last 32 bits: compatible, mapped, translated, and the well-known prefix of NAT64."""


def is_public(address: str) -> bool:
    """Whether an IP address is one of the internet, and of no network at home.

    An IPv6 address that stands for an IPv4 address, by which a gateway may reach it, is judged by that one.
    """
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if isinstance(found, ipaddress.IPv6Address):
        if embedded := _embedded(found):
            return all(is_public(str(one)) for one in embedded)
        if found not in _UNICAST:
            return False
    return not any(found in network for network in _NOT_PUBLIC) or any(found in network for network in _PUBLIC)


def _embedded(address: ipaddress.IPv6Address) -> list[ipaddress.IPv4Address]:
    number = int(address)
    if ipaddress.IPv6Address(number >> 32 << 32) in _BEFORE_IPV4:
        return [ipaddress.IPv4Address(number & 0xFFFFFFFF)]
    if address.sixtofour is not None:
        return [address.sixtofour]
    return list(address.teredo or ())


def forbidden_reason(url: str, server: str) -> str | None:
    """Why a URL that a server's documents name is neither asked nor opened; None where nothing speaks against it.

    Tokens and codes travel by https; http is for this machine, and only where the server itself is on it.
    """
    parts, own = split(url), split(server)
    if parts is None or own is None:
        return "it is no http(s) address"
    host, home = str(parts.hostname), str(own.hostname)
    if parts.fragment:
        return "it has a fragment"
    if is_loopback(host):
        return None if is_loopback(home) else "it is on this machine, and the server is not"
    if parts.scheme != "https":
        return "it is not https"
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return None  # a name: the addresses behind it are looked at when it is asked
    return None if is_public(host) or host == home else "it is a private address"


def resource_metadata_urls(server: str, named: str | None) -> list[str]:
    """Where a server's metadata may be, in order (RFC 9728 §3, §5.1): the header's address, by path, at the root."""
    parts, origin = split(server), origin_of(server)
    if parts is None or origin is None:
        return []
    urls = [f"{origin}/.well-known/oauth-protected-resource"]
    if parts.path.strip("/"):
        urls.insert(0, f"{urls[0]}{parts.path}")
    # An address elsewhere is not asked: a server may name any, and this machine may reach more than the server does.
    if named is not None and origin_of(named) == origin:
        urls.insert(0, named)
    return list(dict.fromkeys(urls))


def server_metadata_urls(issuer: str) -> list[str]:
    """Where an authorization server's metadata may be, in order (RFC 8414 §3, OpenID Connect Discovery §4)."""
    parts, origin = split(issuer), origin_of(issuer)
    if parts is None or origin is None or parts.query:
        return []
    path = parts.path.rstrip("/")
    oauth, openid = "/.well-known/oauth-authorization-server", "/.well-known/openid-configuration"
    if not path:
        return [origin + oauth, origin + openid]
    return [origin + oauth + path, origin + openid + path, origin + path + openid]


def covers(resource: str, server: str) -> bool:
    """Whether a published resource covers a server: of one origin, and its path the same or above (RFC 9728 §3.3)."""
    parts, own = split(resource), split(server)
    if parts is None or own is None or parts.query or parts.fragment or origin_of(resource) != origin_of(server):
        return False
    above = parts.path.rstrip("/")
    return own.path.rstrip("/") == above or own.path.startswith(above + "/")
