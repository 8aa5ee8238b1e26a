"""The URLs of a sign-in: which are allowed, where metadata is published, and whether metadata is about a server."""

from __future__ import annotations

import ipaddress

from wharfinger.net import is_loopback, is_public, origin_of, split_url

__all__ = [
    "auth_server_metadata_urls",
    "covers",
    "forbidden_reason",
    "resource_metadata_urls",
]


def forbidden_reason(url: str, server: str) -> str | None:
    """Return why a URL in a server's documents must not be requested or opened; None if it is allowed.

    Tokens and codes are sent over https. http is allowed only on this machine, and only if the server is on it too.
    """
    parts, server_parts = split_url(url), split_url(server)
    if parts is None or server_parts is None:
        return "it is not an http(s) URL"
    host, server_host = str(parts.hostname), str(server_parts.hostname)
    if parts.fragment:
        return "it has a fragment"
    if is_loopback(host):
        return None if is_loopback(server_host) else "it is on this machine, and the server is not"
    if parts.scheme != "https":
        return "it is not https"
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return None  # a name: its addresses are checked when it is resolved
    return None if is_public(host) or host == server_host else "it is a private address"


def resource_metadata_urls(server: str, named: str | None) -> list[str]:
    """Return the URLs to try for a server's metadata (RFC 9728 §3, §5.1), best first.

    These are `named`, the URL in the server's challenge; the well-known URL with the server's path; and that without
    the path.
    """
    parts, origin = split_url(server), origin_of(server)
    if parts is None or origin is None:
        return []
    urls = [f"{origin}/.well-known/oauth-protected-resource"]
    if parts.path.strip("/"):
        urls.insert(0, f"{urls[0]}{parts.path}")
    # Ignore a URL of another origin: this machine may reach hosts that the server cannot.
    if named is not None and origin_of(named) == origin:
        urls.insert(0, named)
    return list(dict.fromkeys(urls))


def auth_server_metadata_urls(issuer: str) -> list[str]:
    """Return the URLs to try for an authorization server's metadata (RFC 8414 §3, OpenID Connect Discovery §4)."""
    parts, origin = split_url(issuer), origin_of(issuer)
    if parts is None or origin is None or parts.query:
        return []
    path = parts.path.rstrip("/")
    oauth, openid = "/.well-known/oauth-authorization-server", "/.well-known/openid-configuration"
    if not path:
        return [origin + oauth, origin + openid]
    return [origin + oauth + path, origin + openid + path, origin + path + openid]


def covers(resource: str, server: str) -> bool:
    """Return whether the `resource` in metadata covers a server: its origin, and its path or a parent of that.

    RFC 9728 §3.3 requires the same URL. Parents, and URLs without the server's query, are accepted because servers
    publish one document for an origin.
    """
    parts, server_parts = split_url(resource), split_url(server)
    if parts is None or server_parts is None or parts.query not in ("", server_parts.query) or parts.fragment:
        return False
    if origin_of(resource) != origin_of(server):
        return False
    path, server_path = parts.path.rstrip("/"), server_parts.path
    return server_path.rstrip("/") == path or server_path.startswith(path + "/")
