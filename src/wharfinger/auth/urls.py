"""Where things may be asked and found: origins, well-known addresses and what a resource covers; asks nobody."""

from __future__ import annotations

import ipaddress
from urllib.parse import SplitResult, urlsplit

from wharfinger.net import is_loopback, is_public

__all__ = [
    "covers",
    "forbidden_reason",
    "origin_of",
    "resource_metadata_urls",
    "server_metadata_urls",
]

_PORTS = {"http": 80, "https": 443}
MAX_URL_CHARACTERS = 8 * 1024
"""Characters of a URL."""


def split(url: str) -> SplitResult | None:
    """The parts of an absolute http(s) URL; None where it is none that may be used."""
    if len(url) > MAX_URL_CHARACTERS or not url.isascii() or not url.isprintable() or set(url) & set(' "<>\\^`{|}'):
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
