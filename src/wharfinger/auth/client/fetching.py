"""HTTP requests of a sign-in: bounded in time and size, without redirects, only to addresses a server may name."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from wharfinger.auth.urls import forbidden_reason, is_loopback, is_public
from wharfinger.errors import ConnectionFailed
from wharfinger.protocol.interfaces import Fetch, Fetched

if TYPE_CHECKING:
    from aiohttp.abc import AbstractResolver

__all__ = ["fetch_for"]

TIME = 15.0
"""Seconds for one exchange, from the look-up of the name to the last byte."""
BODY = 256 * 1024
"""Bytes of one answer."""


def fetch_for(server: str, *, allow_private_networks: bool = False, time: float = TIME) -> Fetch:
    """Return a fetch function for the sign-in of one server.

    It requests URLs that `urls.forbidden_reason` allows, at public addresses only. Exceptions are the server's own host
    and, for a server on this machine, this machine. `allow_private_networks` also allows names that resolve to private
    addresses, for a server and an authorization server in the same private network.
    """

    async def fetch(verb: str, url: str, headers: Mapping[str, str], body: bytes | None) -> Fetched:
        import aiohttp  # imported on use, as all of HTTP is
        from yarl import URL

        if (fault := forbidden_reason(url, server)) is not None:
            raise ConnectionFailed(f"{url} is not requested: {fault}.")
        proxy = _proxy(url)
        try:
            async with (
                asyncio.timeout(time),
                aiohttp.ClientSession(
                    connector=aiohttp.TCPConnector(
                        resolver=_resolver(server, allow_private_networks, proxy), force_close=True
                    ),
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
                chunks: list[bytes] = []
                size = 0
                async for chunk in response.content.iter_any():
                    size += len(chunk)
                    if size > BODY:
                        raise ConnectionFailed(f"{url} sent more than {BODY} bytes.")
                    chunks.append(chunk)
                return Fetched(response.status, _headers(response.headers.items()), b"".join(chunks))
        except TimeoutError:
            raise ConnectionFailed(f"{url} did not answer within {time:g} s.") from None
        except aiohttp.ClientSSLError as error:
            raise ConnectionFailed(f"{url} cannot be reached: TLS failed ({error}).") from None
        except aiohttp.ClientConnectorError as error:
            raise ConnectionFailed(f"{url} cannot be reached: {error.os_error.strerror or error.os_error}.") from None
        except (aiohttp.ClientError, ValueError) as error:
            raise ConnectionFailed(f"The request to {url} failed: {str(error) or type(error).__name__}.") from None

    return fetch


def _headers(items: Iterable[tuple[str, str]]) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in items:
        key = name.lower()
        found[key] = f"{found[key]}, {value}" if key in found else value
    return found


def _proxy(url: str) -> str | None:
    """Return the HTTP proxy of the environment for a URL; None for this machine."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if is_loopback(host):
        return None
    proxies = getproxies()
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    if not proxy or proxy_bypass(host):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


def _resolver(server: str, allow_private_networks: bool, proxy: str | None) -> AbstractResolver:
    """Return a resolver that drops private addresses, so that no host name leads into a private network.

    The proxy is the user's own choice and may be anywhere.
    """
    from aiohttp.abc import AbstractResolver, ResolveResult

    home = urlsplit(server).hostname or ""
    own = {home, urlsplit(proxy or "").hostname}

    class Resolver(AbstractResolver):
        async def resolve(
            self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
        ) -> list[ResolveResult]:
            loop = asyncio.get_running_loop()
            found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, family=family)
            trusted = allow_private_networks or host in own or (is_loopback(host) and is_loopback(home))
            addresses = [row for row in found if trusted or is_public(str(row[4][0]))]
            if found and not addresses:
                raise OSError(None, f"{host} is in a private network, and {home} is not")
            return [
                ResolveResult(
                    hostname=host, host=str(row[4][0]), port=int(row[4][1]), family=row[0], proto=row[2], flags=0
                )
                for row in addresses
            ]

        async def close(self) -> None:
            pass

    return Resolver()
