"""The server behind a URL as HTTP sees it: one pool, its credentials, redirects, proxies, errors; knows no message."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from wharfinger.content.redaction import redacted, redacted_text
from wharfinger.errors import ConnectionFailed, ConnectionLost, InvalidResponse, NotMCP, WharfingerError
from wharfinger.net import is_address, join_headers, make_resolver, proxy_for, read_limited
from wharfinger.protocol.interfaces import MAX_AUTH_RETRIES
from wharfinger.protocol.jsonrpc import Message
from wharfinger.protocol.limits import Limits
from wharfinger.protocol.negotiation import read_error
from wharfinger.transports.timeouts import PausableTimeout, paused

if TYPE_CHECKING:
    from aiohttp import ClientResponse, ClientSession
    from yarl import URL

    from wharfinger.protocol.interfaces import Authorize

__all__ = ["ACCEPT", "EVENTS", "NoMessage", "Origin", "content_type", "excerpt"]

ACCEPT = "application/json, text/event-stream"
EVENTS = "text/event-stream"
KEEP_ALIVE = 4.0
"""Seconds that an idle connection is kept: less than the 5 s after which many servers close theirs under a request."""
POOL = 256
"""Connections at once; each open listen stream takes one."""
REDIRECTS = 3
LONGEST_TYPE = 100
"""Characters of a media type; error messages repeat it."""
BUFFER = 512 * 1024
"""Bytes read ahead of who takes them."""
REFUSAL = 64 * 1024
"""Bytes of a refusal that are read."""
NOT_REACHED = "it is in a private network or on this machine, where it may not lead"


class NoMessage(ConnectionFailed):
    """An HTTP answer without a JSON-RPC message in it; `status` decides how an opening goes on."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class Origin:
    """Where a client sends its requests, and from whom it takes answers: nobody else (security: C25)."""

    def __init__(
        self,
        url: str,
        limits: Limits,
        headers: Mapping[str, str] | None = None,
        auth: Authorize | None = None,
        reaches: Callable[[str], bool] | None = None,
    ) -> None:
        """`headers` go with each request; `auth` adds its own, and is asked what to do when they are refused.

        `reaches` says of an IP address whether it may be connected to; a proxy is the user's own choice, and looks
        names up itself.

        Raises:
            ConnectionFailed: it is no URL of a server.
        """
        import aiohttp  # imported on use: 60 ms and 10 MiB
        from yarl import URL

        self.http = aiohttp
        try:
            self.url = URL(url)
            self.name = str(self.url.with_user(None).with_query(None).with_fragment(None))
        except ValueError as error:
            reason = "" if "@" in url else f": {error}"  # which may repeat the user and the password
            raise ConnectionFailed(f"{redacted(url)!r} is no URL{reason}.") from None
        if self.url.scheme not in ("http", "https") or not self.url.host:
            raise ConnectionFailed(f"{redacted(url)!r} is no URL of a server: it should look like https://host/mcp.")
        self.limits = limits
        self.headers = {
            "Accept": ACCEPT,
            "Content-Type": "application/json",
            "Accept-Encoding": "identity",
            **(headers or {}),
        }
        self.proxy = proxy_for(self.url.scheme, self.url.host)
        self._auth = auth
        self._reaches = reaches
        if reaches is not None and is_address(self.url.host) and not reaches(self.url.host):
            raise ConnectionFailed(f"{self.name} is not connected to: {NOT_REACHED}.")
        self._session: ClientSession | None = None

    async def send(
        self,
        verb: str,
        headers: dict[str, str],
        data: bytes | None,
        *,
        url: URL | None = None,
        timeout: PausableTimeout | None = None,
    ) -> ClientResponse:
        """One exchange, up to the head of the answer, which the caller must release or close.

        Where the credentials are refused (401, 403), `auth` may get others, and the request is sent again; `deadline`
        stands still meanwhile, since a person may be asked.
        """
        auth, place = self._auth, url or self.url
        if auth is None:
            return await self._follow(verb, headers, data, place)
        for _ in range(MAX_AUTH_RETRIES):
            with paused(timeout):
                given = await auth.headers(str(self.url))
            response = await self._follow(verb, {**headers, **given}, data, place)
            if response.status not in (401, 403):
                return response
            told = join_headers(response.headers.items())
            try:
                with paused(timeout):
                    again = await auth.refused(str(self.url), response.status, told, given)
            except BaseException:
                response.close()
                raise
            if not again:
                return response
            response.close()
        return await self._follow(verb, {**headers, **await auth.headers(str(self.url))}, data, place)

    async def _follow(self, verb: str, headers: dict[str, str], data: bytes | None, place: URL) -> ClientResponse:
        """Redirects are followed within the origin only, and only those that keep the method and the body."""
        session, url = self._session or self._open(), place
        for _ in range(REDIRECTS + 1):
            response = await session.request(verb, url, data=data, headers=headers, allow_redirects=False)
            status = response.status
            if status not in (301, 302, 307, 308):
                if url is not place and place is self.url and status < 400:
                    self.url = url
                return response
            location = response.headers.get("Location", "")
            response.close()
            url = self.within(location, url, "redirects to")
            if status < 303:
                raise ConnectionFailed(
                    f"{self.name} has moved ({status}): use {url.with_user(None).with_query(None)} instead."
                )
        raise ConnectionFailed(f"{self.name} redirects more than {REDIRECTS} times.")

    def within(self, location: str, base: URL, does: str) -> URL:
        """A place that the server names, absolute or relative to `base`.

        Raises:
            ConnectionFailed: it is not of this origin.
        """
        from yarl import URL

        try:
            # As it is written, where it may be sent so: a session's id is not to be written otherwise.
            target = base.join(URL(location, encoded=location.isascii() and " " not in location))
            same = bool(location) and target.origin() == self.url.origin()
        except ValueError:
            target, same = base, False
        if not same:
            raise ConnectionFailed(
                f"{self.name} {does} another server, which is not followed: {redacted(location[:200])!r}."
            )
        # What the URL was given with, and the server does not repeat.
        return target.with_user(self.url.user).with_password(self.url.password) if self.url.user else target

    def _open(self) -> ClientSession:
        http, allow = self.http, self._reaches
        # Only addresses that may be connected to are resolved, so that no name leads to others, not even later.
        resolver = None
        if allow is not None and self.proxy is None:
            resolver = make_resolver(lambda _, address: allow(address), NOT_REACHED)
        self._session = http.ClientSession(
            connector=http.TCPConnector(limit=POOL, keepalive_timeout=KEEP_ALIVE, resolver=resolver),
            timeout=http.ClientTimeout(total=None, sock_connect=None, sock_read=None),
            # Nothing compressed was asked for, and unpacking it would be work without a bound.
            auto_decompress=False,
            read_bufsize=BUFFER,
            proxy=self.proxy,
        )
        return self._session

    async def body(self, response: ClientResponse) -> bytes:
        """The whole body, within the bound, joined once.

        Raises:
            InvalidResponse: it is larger.
        """
        limit = self.limits.message
        announced = response.content_length or 0
        body = None if announced > limit else await read_limited(response.content.iter_any(), limit)
        if body is None:
            raise InvalidResponse(f"{self.name} sent an answer over the limit of {limit} bytes; set a larger limit.")
        return body

    async def refusal(self, response: ClientResponse) -> str:
        """What the server said when it refused: its status and the beginning of its body."""
        body = b""
        with suppress(self.http.ClientError, OSError):
            body = await response.content.read(REFUSAL)
        return f"{self.name} answered {response.status} {response.reason or ''}{excerpt(body)}"

    def told(self, error: BaseException) -> WharfingerError:
        """One of our errors for one of the HTTP library's."""
        if isinstance(error, WharfingerError):
            return error
        http = self.http
        through = _without_password(self.proxy)
        if isinstance(error, http.ClientProxyConnectionError):
            reason = error.os_error.strerror or error.os_error
            return ConnectionFailed(f"Cannot connect to {self.name}: its proxy {through} does not answer ({reason}).")
        if isinstance(error, http.ClientHttpProxyError):
            return ConnectionFailed(
                f"Cannot connect to {self.name}: its proxy {through} answered {error.status} {error.message}."
            )
        if isinstance(error, http.ClientConnectorCertificateError | http.ClientSSLError):
            return ConnectionFailed(f"Cannot connect to {self.name}: TLS failed ({_tls_reason(error)}).")
        if isinstance(error, http.ClientConnectorError):
            return ConnectionFailed(f"Cannot connect to {self.name}: {error.os_error.strerror or error.os_error}.")
        if isinstance(error, http.ClientResponseError):
            return NotMCP(f"{self.name} is not MCP over HTTP: {error.message}.")
        if isinstance(error, http.InvalidURL):
            return ConnectionFailed(f"{self.name} is no URL that can be reached.")
        reason = redacted_text(str(error)) or type(error).__name__
        return ConnectionLost(f"{self.name} broke the connection off before its answer: {reason}.")

    async def close(self) -> None:
        """Close every connection."""
        if self._session is not None:
            await self._session.close()


def content_type(response: ClientResponse) -> str:
    """The media type of an answer, without its parameters: aiohttp's takes time quadratic in the header's length."""
    return response.headers.get("Content-Type", "").partition(";")[0].strip()[:LONGEST_TYPE].lower()


def _without_password(proxy: str | None) -> str:
    if proxy is None:
        return ""
    scheme, _, rest = proxy.partition("://")
    return f"{scheme}://{rest.rpartition('@')[2]}"


def _tls_reason(error: Any) -> str:
    """The one line that says what is wrong with the certificate, without the library's own wrapping."""
    inner = getattr(error, "certificate_error", None) or getattr(error, "os_error", None) or error
    return str(getattr(inner, "verify_message", "") or getattr(inner, "reason", "") or inner)


def excerpt(body: bytes) -> str:
    """What a refusal says: the message of an error object, else the beginning of a short text."""
    text = body[:200].decode("utf-8", "replace").strip()
    if body[:1] == b"{":
        with suppress(msgspec.MsgspecError):
            message = msgspec.json.decode(body, type=_Refusal)
            error = read_error(Message(error=message.error))
            text = error.message[:200]
    elif text.startswith("<"):
        return ": a web page."
    return f": {redacted_text(' '.join(text.split()))}" if text else "."


class _Refusal(msgspec.Struct):
    error: msgspec.Raw
