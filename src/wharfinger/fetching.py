"""HTTP requests to URLs that other people or servers choose: web pages, HTTP APIs, the documents of a sign-in.

Such a URL may lead to a host that only this machine can reach: directly, by a redirect, or by a name that resolves to a
private address. Its answer may never end. So a `Fetcher` checks

- the URL of every hop (`refuse`), and which redirects are followed (`follow`);
- every address, after the name is resolved and before it is connected to (`allow`), so that a name whose address
  changes between a check and a connection gains nothing, except through a proxy, which resolves the name again;
- the size of the body, as it arrives and as it is after decompression, and the time of the whole exchange.

It has no cookies and reads no `.netrc`. After a redirect to another origin, it sends only headers that cannot be
credentials. It decompresses bodies itself, piece by piece, because aiohttp inflates a whole piece before its size can
be checked (64 KiB of gzip become up to 64 MiB).
"""

from __future__ import annotations

import asyncio
import socket
import zlib
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from types import TracebackType
from typing import TYPE_CHECKING, Self

from wharfinger.content.redaction import redacted, redacted_text
from wharfinger.errors import ConnectionFailed
from wharfinger.net import (
    AddressRefused,
    connection_failure,
    is_address,
    is_public,
    join_headers,
    make_resolver,
    origin_of,
    proxy_for,
    split_url,
)
from wharfinger.protocol.interfaces import HttpResponse
from wharfinger.version import __version__

if TYPE_CHECKING:
    from aiohttp import ClientResponse, ClientSession

__all__ = [
    "USER_AGENT",
    "Fetcher",
    "Gunzip",
    "NoAnswerInTime",
    "NotAllowed",
    "TooLarge",
    "UnusableAnswer",
    "same_origin",
]

EXCHANGE_SECONDS = 30.0
"""The maximum seconds of one exchange with all its redirects, from the first look-up of a name to the last byte."""
MAX_BODY_BYTES = 8 * 1024 * 1024
MAX_REDIRECTS = 5
MAX_CONNECTIONS = 8
"""The maximum number of connections of one fetcher at a time. Further requests wait; their `timeout` runs meanwhile."""
KEEP_ALIVE_SECONDS = 4.0
"""Seconds that an idle connection is kept: many servers close theirs after 5 s, perhaps just as a request arrives."""
USER_AGENT = f"wharfinger/{__version__}"
REDIRECTS = frozenset((301, 302, 303, 307, 308))
KEPT_HEADERS = frozenset(("accept", "accept-language", "range", "user-agent"))
"""Headers that are sent to another origin after a redirect. Any other one may be a credential (`X-Api-Key`)."""


class NotAllowed(ConnectionFailed):
    """The rules of the fetcher do not allow a URL, its address, or what it redirects to."""


class NoAnswerInTime(ConnectionFailed):
    """The whole answer did not arrive in time."""


class UnusableAnswer(ConnectionFailed):
    """There is an answer, but it redirects too often, or its body is damaged or in an unknown coding."""


class TooLarge(UnusableAnswer):
    """The body of an answer is larger than the fetcher accepts."""


def public_only(_host: str, address: str) -> bool:
    """Return whether an address is on the public internet."""
    return is_public(address)


def same_origin(url: str, target: str) -> bool:
    """Return whether two URLs have the same origin: scheme, host and port. False if one of them has no origin."""
    return origin_of(url) is not None and origin_of(url) == origin_of(target)


class Fetcher:
    """Sends HTTP requests, with bounds, to allowed addresses only. Use it with `async with`, or call `close()`.

    It belongs to one event loop at a time.
    """

    def __init__(
        self,
        *,
        allow: Callable[[str, str], bool] = public_only,
        refuse: Callable[[str], str | None] | None = None,
        follow: Callable[[str, str], bool] | None = same_origin,
        address_refusal: str = "{host} is in a private network or on this machine, which is not allowed",
        headers: Mapping[str, str] | None = None,
        max_body_bytes: int = MAX_BODY_BYTES,
        max_redirects: int = MAX_REDIRECTS,
        max_connections: int = MAX_CONNECTIONS,
        timeout: float = EXCHANGE_SECONDS,
        keep_alive: float = KEEP_ALIVE_SECONDS,
    ) -> None:
        """Set the rules for all requests.

        Args:
            allow: takes a host and one of its IP addresses, and returns whether to connect to that address. Through a
                proxy, all addresses of a host must be allowed. The default allows public addresses.
            refuse: takes a URL, and returns why it is not requested, or None. Called for each redirect, too.
            follow: takes a URL and the URL that it redirects to, and returns whether to request it. If None, a redirect
                is returned as the answer. Only GET and HEAD are redirected.
            address_refusal: the reason in the error for a host that `allow` refuses; `{host}` is replaced.
            headers: sent with every request. After a redirect to another origin, those that may be credentials are
                left out.
            max_body_bytes: the maximum size of a body, also after decompression.
            max_redirects: the maximum number of redirects that one request follows.
            max_connections: the maximum number of connections at a time; further requests wait.
            timeout: seconds for a whole exchange.
            keep_alive: seconds that an idle connection is kept; with 0, it is closed after the answer.
        """
        self._allow = allow
        self._refuse = refuse
        self._follow = follow
        self._address_refusal = address_refusal
        self._headers = {"user-agent": USER_AGENT, **{name.lower(): text for name, text in (headers or {}).items()}}
        self._max_body_bytes = max_body_bytes
        self._max_redirects = max_redirects
        self._max_connections = max_connections
        self._timeout = timeout
        self._keep_alive = keep_alive
        self._sessions: dict[bool, ClientSession] = {}
        self._loop: asyncio.AbstractEventLoop | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections. A later request opens new ones."""
        sessions, self._sessions = self._sessions, {}
        for session in sessions.values():
            await session.close()

    async def request(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        max_body_bytes: int | None = None,
    ) -> HttpResponse:
        """Send a request, follow the redirects that the rules allow, and return the answer, of any status.

        `max_body_bytes` replaces the fetcher's own limit.

        Raises:
            NotAllowed: the rules do not allow the URL, its address, or what it redirects to.
            TooLarge: the body is larger than `max_body_bytes`.
            UnusableAnswer: the answer redirects too often, or its body is damaged or in an unknown coding.
            NoAnswerInTime: the whole exchange takes longer than `timeout`.
            ConnectionFailed: the server cannot be reached.
        """
        limit = self._max_body_bytes if max_body_bytes is None else max_body_bytes
        request_headers = self._headers | {name.lower(): text for name, text in (headers or {}).items()}
        try:
            async with asyncio.timeout(self._timeout):
                for _ in range(self._max_redirects + 1):
                    async with self._exchange(method, url, request_headers, body) as response:
                        target = self._redirect_target(method, url, response)
                        if target is None:
                            response_headers = join_headers(response.headers.items())
                            response_body = await self._read_body(url, response, limit)
                            return HttpResponse(response.status, response_headers, response_body, url)
                    if not same_origin(url, target):
                        request_headers = {name: text for name, text in request_headers.items() if name in KEPT_HEADERS}
                    url = target
        except TimeoutError:
            raise NoAnswerInTime(f"{redacted(url)} did not answer within {self._timeout:g} s.") from None
        raise UnusableAnswer(f"{redacted(url)} redirects more than {self._max_redirects} times.")

    @asynccontextmanager
    async def _exchange(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | None
    ) -> AsyncGenerator[ClientResponse]:
        """Check a URL, send one request, and yield the answer before its body is read."""
        import aiohttp  # imported on use: 60 ms and 10 MiB
        from yarl import URL

        parts, shown = split_url(url), redacted(url)
        if parts is None:
            raise NotAllowed(f"{shown[:200]} is not requested: it is not an http(s) URL that can be used.")
        if self._refuse is not None and (reason := self._refuse(url)) is not None:
            raise NotAllowed(f"{shown} is not requested: {reason}.")
        host = str(parts.hostname)
        proxy = proxy_for(parts.scheme, host)
        # The addresses that no resolver of ours checks: a host that is an address, and those of a name for a proxy.
        unchecked = [host] if is_address(host) else []
        if proxy is not None and not unchecked:
            # If only the proxy can resolve the name, there is nothing to check.
            with suppress(OSError, UnicodeError):  # a UnicodeError if a label is empty or has more than 63 characters
                rows = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
                unchecked = [str(row[4][0]) for row in rows]
        if not all(self._allow(host, address) for address in unchecked):
            raise NotAllowed(f"{shown} is not requested: {self._address_refusal.format(host=host)}.")
        try:
            async with self._session(proxied=proxy is not None).request(
                method,
                URL(url, encoded=True),
                headers={"accept-encoding": "gzip", **headers},
                data=body,
                allow_redirects=False,
                proxy=proxy,
            ) as response:
                yield response
        except aiohttp.ClientSSLError as error:
            raise ConnectionFailed(f"{shown} cannot be reached: TLS failed ({error}).") from None
        except aiohttp.ClientConnectorError as error:
            if isinstance(error.os_error, AddressRefused):
                raise NotAllowed(f"{shown} is not requested: {error.os_error.strerror}.") from None
            raise ConnectionFailed(f"{shown} cannot be reached: {connection_failure(error.os_error)}.") from None
        except (aiohttp.ClientError, ValueError) as error:
            reason = redacted_text(str(error))[:500] or type(error).__name__
            raise ConnectionFailed(f"The request to {shown} failed: {reason}.") from None

    def _session(self, *, proxied: bool) -> ClientSession:
        """Return the session for direct requests, or for those through a proxy, which resolves names itself."""
        import aiohttp

        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._loop, self._sessions = loop, {}
        if proxied not in self._sessions:
            self._sessions[proxied] = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(
                    limit=self._max_connections,
                    resolver=None if proxied else make_resolver(self._allow, self._address_refusal),
                    force_close=not self._keep_alive,
                    keepalive_timeout=self._keep_alive or None,
                ),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=None, sock_read=None),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
            )
        return self._sessions[proxied]

    def _redirect_target(self, method: str, url: str, response: ClientResponse) -> str | None:
        """Return the URL that an answer redirects to; None if the answer is not a redirect to follow."""
        location = response.headers.get("Location", "")
        if self._follow is None or response.status not in REDIRECTS or not location or method not in ("GET", "HEAD"):
            return None
        from yarl import URL

        try:
            # Do not normalise an encoded location: what it names must not change.
            target = URL(url, encoded=True).join(URL(location, encoded=location.isascii() and " " not in location))
            redirected = str(target.with_fragment(None))
        except ValueError:
            redirected = ""
        if not redirected or split_url(redirected) is None or not self._follow(url, redirected):
            raise NotAllowed(
                f"{redacted(url)} redirects elsewhere, which is not followed: {redacted(location[:200])!r}."
            )
        return redirected

    async def _read_body(self, url: str, response: ClientResponse, limit: int) -> bytes:
        """Read and decompress a body of at most `limit` bytes."""
        too_large = TooLarge(f"{redacted(url)} sent more than {limit} bytes.")
        coding = response.headers.get("Content-Encoding", "").strip().lower()
        if coding not in ("", "identity", "gzip", "x-gzip"):
            raise UnusableAnswer(f"{redacted(url)} sent a body in {coding[:50]!r} coding: only gzip is read.")
        gunzip = Gunzip(limit) if "gzip" in coding else None
        pieces: list[bytes] = []
        received = 0
        async for piece in response.content.iter_any():
            received += len(piece)
            if received > limit:
                raise too_large
            if gunzip is not None:
                try:
                    piece = gunzip.feed(piece)
                except OverflowError:
                    raise too_large from None
                except ValueError as error:
                    raise UnusableAnswer(f"{redacted(url)} sent a damaged body: {error}.") from None
            pieces.append(piece)
        if gunzip is not None and received and not gunzip.complete:
            raise UnusableAnswer(f"{redacted(url)} sent a damaged body: its gzip data ends too early.")
        return b"".join(pieces)


class Gunzip:
    """Decompresses gzip data of one member, piece by piece, up to `limit` bytes in all."""

    def __init__(self, limit: int) -> None:
        self._remaining = limit
        self._inflater = zlib.decompressobj(wbits=31)

    @property
    def complete(self) -> bool:
        """Whether the end of the data has been read."""
        return self._inflater.eof

    def feed(self, piece: bytes) -> bytes:
        """Return the decompressed data of a piece.

        Raises:
            OverflowError: the data exceeds the limit.
            ValueError: it is not gzip data, or data follows its end.
        """
        if not piece:
            return b""
        try:
            data = self._inflater.decompress(piece, self._remaining + 1)
        except zlib.error as error:
            raise ValueError(str(error)) from None
        self._remaining -= len(data)
        if self._remaining < 0 or self._inflater.unconsumed_tail:
            raise OverflowError
        if self._inflater.unused_data:
            raise ValueError("data follows the end of its gzip data")
        return data
