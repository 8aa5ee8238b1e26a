"""HTTP requests to one server: its connection pool, credentials, redirects, proxy and errors."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from wharfinger.content.redaction import redacted, redacted_text
from wharfinger.errors import ConnectionFailed, ConnectionLost, InvalidResponse, NotMCP, WharfingerError
from wharfinger.net import (
    connection_failure,
    is_address,
    join_headers,
    make_resolver,
    proxy_for,
    read_limited,
    seconds_to_wait,
)
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
KEEP_ALIVE_SECONDS = 4.0
"""Seconds that an idle connection is kept: many servers close theirs after 5 s, perhaps just as a request arrives."""
MAX_CONNECTIONS = 256
"""The maximum number of simultaneous connections; each open listen stream uses one."""
MAX_REDIRECTS = 3
MAX_TYPE_CHARACTERS = 100
"""The maximum number of characters of a media type, which error messages repeat."""
READ_BUFFER_BYTES = 512 * 1024
"""How much of a response may wait to be used: aiohttp stops reading from the connection at twice as much."""
MAX_REFUSAL_BYTES = 64 * 1024
"""The maximum number of bytes of a refusal's body that are read."""
MAX_EXCERPT_CHARACTERS = 200
"""The maximum number of characters that an error message quotes of a refusal."""
MAX_REDACTED_CHARACTERS = 4_000
"""The maximum number of characters of a refusal in which tokens are looked for."""
FORBIDDEN_REASON = "it is in a private network or on this machine, which is not allowed"


class NoMessage(ConnectionFailed):
    """An HTTP answer without a JSON-RPC message; `status` decides how negotiation continues."""

    def __init__(self, message: str, status: int, retry_after: str = "") -> None:
        """`retry_after` is the header of that name."""
        super().__init__(message)
        self.status = status
        seconds = seconds_to_wait(retry_after, time.time())
        self.retry_after = None if seconds is None else math.ceil(seconds)


class Origin:
    """The only server that a client sends its requests to and accepts answers from."""

    def __init__(
        self,
        url: str,
        limits: Limits,
        headers: Mapping[str, str] | None = None,
        auth: Authorize | None = None,
        allow_address: Callable[[str], bool] | None = None,
    ) -> None:
        """`headers` are added to `self.headers`. `auth` adds its own, and may get new ones if they are refused.

        `allow_address` says whether an IP address may be connected to. With a proxy, which resolves names itself, it is
        called only if the host of the URL is an IP address. It is not called for the proxy, which the user has chosen.

        Raises:
            ConnectionFailed: it is not a URL of a server, or its host is an IP address that is not allowed.
        """
        import aiohttp  # imported on use: 60 ms and 10 MiB
        from yarl import URL

        self.http = aiohttp
        try:
            self.url = URL(url)
            self.name = str(self.url.with_user(None).with_query(None).with_fragment(None))
        except ValueError as error:
            reason = "" if "@" in url else f": {error}"  # the error may quote the user and the password
            raise ConnectionFailed(f"{redacted(url)!r} is not a URL{reason}.") from None
        if self.url.scheme not in ("http", "https") or not self.url.host:
            raise ConnectionFailed(f"{redacted(url)!r} is not a URL of a server: it should be like https://host/mcp.")
        self.limits = limits
        self.headers = {
            "Accept": ACCEPT,
            "Content-Type": "application/json",
            "Accept-Encoding": "identity",
            **(headers or {}),
        }
        self.proxy = proxy_for(self.url.scheme, self.url.host)
        self._auth = auth
        self._allow_address = allow_address
        if allow_address is not None and is_address(self.url.host) and not allow_address(self.url.host):
            raise ConnectionFailed(f"{self.name} is not connected to: {FORBIDDEN_REASON}.")
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
        """Send a request and return the answer when its headers have arrived. The caller must release or close it.

        If the credentials are refused (401, 403), `auth` may get new ones, and the request is sent again. `timeout` is
        paused in the meantime, since `auth` may ask a person.
        """
        auth, target_url = self._auth, url or self.url
        if auth is None:
            return await self._follow(verb, headers, data, target_url)
        retries = 0
        while True:
            with paused(timeout):
                auth_headers = await auth.headers(str(self.url))
            response = await self._follow(verb, {**headers, **auth_headers}, data, target_url)
            if response.status not in (401, 403) or retries == MAX_AUTH_RETRIES:
                return response
            response_headers = join_headers(response.headers.items())
            try:
                with paused(timeout):
                    again = await auth.refused(str(self.url), response.status, response_headers, auth_headers)
            except BaseException:
                response.close()
                raise
            if not again:
                return response
            response.close()
            retries += 1

    async def _follow(self, verb: str, headers: dict[str, str], data: bytes | None, target_url: URL) -> ClientResponse:
        """Send a request, and follow redirects within the origin that keep the method and the body."""
        session, url = self._session or self._open(), target_url
        for _ in range(MAX_REDIRECTS + 1):
            response = await session.request(verb, url, data=data, headers=headers, allow_redirects=False)
            status = response.status
            if status not in (301, 302, 307, 308):
                if url is not target_url and target_url is self.url and status < 400:
                    # Later requests of this connection are sent there at once, although a 307 is temporary: Starlette
                    # answers it to each request without the slash at the end.
                    self.url = url
                return response
            location = response.headers.get("Location", "")
            response.close()
            url = self.resolve(location, url, "redirects to")
            if status < 303:
                raise ConnectionFailed(
                    f"{self.name} has moved ({status}): use {url.with_user(None).with_query(None)} instead."
                )
        raise ConnectionFailed(f"{self.name} redirects more than {MAX_REDIRECTS} times.")

    def resolve(self, location: str, base: URL, action: str) -> URL:
        """Return the URL of a location that the server names, absolute or relative to `base`.

        Raises:
            ConnectionFailed: it is not of this origin. The message contains `action`, such as "redirects to".
        """
        from yarl import URL

        try:
            # Do not normalise an encoded location: a session id in it must not change.
            target = base.join(URL(location, encoded=location.isascii() and " " not in location))
            same = bool(location) and target.origin() == self.url.origin()
        except ValueError:
            target, same = base, False
        if not same:
            raise ConnectionFailed(
                f"{self.name} {action} another server, which is not followed: {redacted(location[:200])!r}."
            )
        # A location does not repeat the user and password of the client's URL.
        return target.with_user(self.url.user).with_password(self.url.password) if self.url.user else target

    def _open(self) -> ClientSession:
        http, allow = self.http, self._allow_address
        # The resolver checks every address, also those that a name resolves to later.
        resolver = None
        if allow is not None and self.proxy is None:
            resolver = make_resolver(lambda _, address: allow(address), FORBIDDEN_REASON)
        session: ClientSession = http.ClientSession(
            connector=http.TCPConnector(limit=MAX_CONNECTIONS, keepalive_timeout=KEEP_ALIVE_SECONDS, resolver=resolver),
            timeout=http.ClientTimeout(total=None, sock_connect=None, sock_read=None),
            # Requests accept no compressed answers: decompressing would be unbounded work.
            auto_decompress=False,
            read_bufsize=READ_BUFFER_BYTES,
            proxy=self.proxy,
        )
        self._session = session
        return session

    async def body(self, response: ClientResponse) -> bytes:
        """Return the whole body.

        Raises:
            InvalidResponse: it is larger than `Limits.message`.
        """
        limit = self.limits.message
        announced = response.content_length or 0
        body = None if announced > limit else await read_limited(response.content.iter_any(), limit)
        if body is None:
            raise InvalidResponse(f"{self.name} sent an answer over the limit of {limit} bytes; set a larger limit.")
        return body

    async def refusal(self, response: ClientResponse) -> str:
        """Return a refusal as text for an error message: the status, and an excerpt of the body."""
        body = b""
        with suppress(self.http.ClientError, OSError):
            while part := await response.content.read(MAX_REFUSAL_BYTES - len(body)):
                body += part
        status = f"{response.status} {response.reason or ''}".rstrip()
        return f"{self.name} answered {status}{excerpt(body)}"

    def translate(self, error: BaseException) -> WharfingerError:
        """Return a WharfingerError for an error of the HTTP library."""
        if isinstance(error, WharfingerError):
            return error
        http = self.http
        proxy = _without_password(self.proxy)
        if isinstance(error, http.ClientProxyConnectionError):
            reason = connection_failure(error.os_error)
            return ConnectionFailed(f"Cannot connect to {self.name}: its proxy {proxy} does not answer ({reason}).")
        if isinstance(error, http.ClientHttpProxyError):
            return ConnectionFailed(
                f"Cannot connect to {self.name}: its proxy {proxy} answered {error.status} {error.message}."
            )
        if isinstance(error, http.ClientConnectorCertificateError | http.ClientSSLError):
            return ConnectionFailed(f"Cannot connect to {self.name}: TLS failed ({_tls_reason(error)}).")
        if isinstance(error, http.ClientConnectorError):
            return ConnectionFailed(f"Cannot connect to {self.name}: {connection_failure(error.os_error)}.")
        if isinstance(error, http.ClientResponseError):
            return NotMCP(f"{self.name} is not MCP over HTTP: {error.message}.")
        if isinstance(error, http.InvalidURL):
            return ConnectionFailed(f"{self.name} is not a URL that can be reached.")
        if isinstance(error, TimeoutError) and not str(error):  # raised by `read_events`
            return ConnectionLost(f"{self.name} has fallen silent: its regular comments no longer arrive.")
        reason = redacted_text(str(error)) or type(error).__name__
        return ConnectionLost(f"{self.name} closed the connection before its answer: {reason}.")

    async def close(self) -> None:
        """Close every connection."""
        if self._session is not None:
            await self._session.close()


def content_type(response: ClientResponse) -> str:
    """Return the media type without parameters; aiohttp's own takes time quadratic in the header's length."""
    return response.headers.get("Content-Type", "").partition(";")[0].strip()[:MAX_TYPE_CHARACTERS].lower()


def _without_password(proxy: str | None) -> str:
    if proxy is None:
        return ""
    scheme, _, rest = proxy.partition("://")
    return f"{scheme}://{rest.rpartition('@')[2]}"


def _tls_reason(error: Any) -> str:
    """Return one line that says why TLS failed."""
    inner = getattr(error, "certificate_error", None) or getattr(error, "os_error", None) or error
    return str(getattr(inner, "verify_message", "") or getattr(inner, "reason", "") or inner).rstrip(".")


def excerpt(body: bytes) -> str:
    """Return the end of an error message about a refusal, such as `: no such session`, or a period for an empty body.

    It quotes the message of a JSON-RPC error, or else the beginning of the body. A web page is not quoted.
    """
    text = body[:MAX_REDACTED_CHARACTERS].decode("utf-8", "replace").strip()
    if body[:1] == b"{":
        with suppress(ValueError, RecursionError):  # not JSON, or not UTF-8
            message = msgspec.json.decode(body, type=_Refusal)
            error = read_error(Message(error=message.error))
            text = error.message[:MAX_REDACTED_CHARACTERS]
    elif text.startswith("<"):
        return ": a web page."
    # The cut follows the redaction, which does not recognise a token that is cut.
    return f": {redacted_text(' '.join(text.split()))[:MAX_EXCERPT_CHARACTERS]}" if text else "."


class _Refusal(msgspec.Struct):
    error: msgspec.Raw
