"""HTTP requests of a sign-in: bounded in time and size, without redirects, and only to allowed addresses."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

from wharfinger.auth.urls import forbidden_reason
from wharfinger.fetching import Fetcher
from wharfinger.net import is_loopback, is_public
from wharfinger.protocol.interfaces import Fetch, HttpResponse

__all__ = ["fetch_for"]

FETCH_SECONDS = 15.0
"""Seconds for one exchange, from the look-up of the name to the last byte."""
MAX_BODY_BYTES = 256 * 1024
"""The maximum number of bytes of a response."""


def fetch_for(server: str, *, allow_private_networks: bool = False, timeout: float = FETCH_SECONDS) -> Fetch:
    """Return a fetch function for the sign-in of one server.

    It requests only URLs that `urls.forbidden_reason` allows: at public addresses, at the server's own host and, if
    that is this machine, on this machine. `allow_private_networks` also allows names that resolve to private
    addresses, for a server and an authorization server in the same private network.
    """

    server_host = urlsplit(server).hostname or ""

    def allow(host: str, address: str) -> bool:
        is_trusted = host == server_host or (is_loopback(host) and is_loopback(server_host))
        return allow_private_networks or is_trusted or is_public(address)

    async def fetch(verb: str, url: str, headers: Mapping[str, str], body: bytes | None) -> HttpResponse:
        async with Fetcher(
            allow=allow,
            refuse=lambda target: forbidden_reason(target, server),
            follow=None,
            address_refusal=f"{{host}} is in a private network, to which {server_host} must not refer",
            max_body_bytes=MAX_BODY_BYTES,
            timeout=timeout,
            keep_alive=0,  # this fetcher sends only one request
        ) as fetcher:
            return await fetcher.request(verb, url, headers=headers, body=body)

    return fetch
