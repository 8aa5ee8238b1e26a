"""HTTP requests of a sign-in: bounded in time and size, without redirects, and only to allowed addresses."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from urllib.parse import urlsplit

from wharfinger.auth.urls import forbidden_reason
from wharfinger.errors import ConnectionFailed
from wharfinger.net import is_loopback, is_public, join_headers, make_resolver, proxy_for, read_limited
from wharfinger.protocol.interfaces import Fetch, HttpResponse

__all__ = ["fetch_for"]

FETCH_SECONDS = 15.0
"""Seconds for one exchange, from the look-up of the name to the last byte."""
MAX_BODY_BYTES = 256 * 1024
"""Bytes of one answer."""


def fetch_for(server: str, *, allow_private_networks: bool = False, time: float = FETCH_SECONDS) -> Fetch:
    """Return a fetch function for the sign-in of one server.

    It requests URLs that `urls.forbidden_reason` allows, at public addresses only. It also allows the server's own host
    and, for a server on this machine, this machine. `allow_private_networks` also allows names that resolve to private
    addresses, for a server and an authorization server in the same private network.
    """

    server_host = urlsplit(server).hostname or ""

    async def fetch(verb: str, url: str, headers: Mapping[str, str], body: bytes | None) -> HttpResponse:
        import aiohttp  # imported on use, like all HTTP code
        from yarl import URL

        if (fault := forbidden_reason(url, server)) is not None:
            raise ConnectionFailed(f"{url} is not requested: {fault}.")
        parts = urlsplit(url)
        proxy = proxy_for(parts.scheme, parts.hostname or "")
        trusted = {server_host, urlsplit(proxy or "").hostname}  # the user chose the proxy

        def allow(host: str, address: str) -> bool:
            is_trusted = host in trusted or (is_loopback(host) and is_loopback(server_host))
            return allow_private_networks or is_trusted or is_public(address)

        refusal = f"{{host}} is in a private network, which {server_host} may not name"
        try:
            async with (
                asyncio.timeout(time),
                aiohttp.ClientSession(
                    connector=aiohttp.TCPConnector(resolver=make_resolver(allow, refusal), force_close=True),
                    cookie_jar=aiohttp.DummyCookieJar(),
                    auto_decompress=False,
                ) as session,
                session.request(
                    verb,
                    URL(url, encoded=True),
                    headers={"Accept-Encoding": "identity", **headers},
                    data=body,
                    allow_redirects=False,
                    proxy=proxy,
                ) as response,
            ):
                answer = await read_limited(response.content.iter_any(), MAX_BODY_BYTES)
                if answer is None:
                    raise ConnectionFailed(f"{url} sent more than {MAX_BODY_BYTES} bytes.")
                return HttpResponse(response.status, join_headers(response.headers.items()), answer)
        except TimeoutError:
            raise ConnectionFailed(f"{url} did not answer within {time:g} s.") from None
        except aiohttp.ClientSSLError as error:
            raise ConnectionFailed(f"{url} cannot be reached: TLS failed ({error}).") from None
        except aiohttp.ClientConnectorError as error:
            raise ConnectionFailed(f"{url} cannot be reached: {error.os_error.strerror or error.os_error}.") from None
        except (aiohttp.ClientError, ValueError) as error:
            raise ConnectionFailed(f"The request to {url} failed: {str(error) or type(error).__name__}.") from None

    return fetch
