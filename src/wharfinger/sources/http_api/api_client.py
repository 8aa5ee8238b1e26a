"""Requests to an HTTP API: conditional requests for answers that are kept, and errors for statuses.

An answer to GET is kept, within a bound, with its validators: the next request asks whether it has changed
(`If-None-Match`, `If-Modified-Since`; RFC 9110 §13), and an answer of 304 has no body. While `Cache-Control: max-age`
lasts, there is no request (RFC 9111 §4.2), except to look for changes.

The version of an answer is its ETag. `Last-Modified` counts whole seconds, in which a resource may change twice, so a
digest of the content is added to it. If there is neither, the version is this digest.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any, NamedTuple, Protocol

import msgspec

from wharfinger.content.decoded_json import as_object
from wharfinger.content.redaction import redacted_text
from wharfinger.content.text import printable
from wharfinger.errors import ConnectionFailed, HandlerFailed, InvalidArgument, ResourceNotFound
from wharfinger.fetching import TooLarge
from wharfinger.net import seconds_to_wait, unix_time
from wharfinger.protocol.interfaces import HttpResponse
from wharfinger.source import SourceUnavailable
from wharfinger.sources.bounded_cache import BoundedCache
from wharfinger.sources.etag import digest
from wharfinger.sources.http_caching import conditional_headers, dated_validator, fresh_seconds
from wharfinger.sources.ttl import IMMUTABLE_TTL_MS, ttl_ms

__all__ = ["MAX_ANSWER_BYTES", "ApiClient", "ApiTransport", "KeptAnswer", "error_text"]

MAX_ANSWER_BYTES = 32 << 20
"""Largest answer, and largest document."""
MAX_KEPT_BYTES = 64 << 20
"""Maximum size of all kept answers."""
KEPT_OVERHEAD_BYTES = 2_000
"""Approximate bytes that a kept answer takes besides its content."""
MAX_WAIT_SECONDS = 300.0
"""Longest time for which `Retry-After` is obeyed."""
MAX_ERROR_CHARACTERS = 300
"""Maximum length of an API's own words in an error."""
_REASONS = ("detail", "message", "error_description", "error", "title", "errors", "reason")
"""Members of an answer with the reason of an error (RFC 9457, and other forms), the best first."""
GATEWAY_STATUSES = (502, 503, 504)
"""Statuses that may mean that the whole API cannot be reached."""


class ApiTransport(Protocol):
    """Sends one request: `fetching.Fetcher`, or `AsgiTransport`."""

    async def request(
        self, method: str, url: str, *, headers: Mapping[str, str] | None = None, body: bytes | None = None
    ) -> HttpResponse:
        """Return the answer, of any status.

        Raises:
            ConnectionFailed: there was none within the bounds.
        """
        ...

    async def close(self) -> None:
        """Close the connections."""
        ...


class KeptAnswer(NamedTuple):
    """An answer to GET."""

    version: str
    mime_type: str
    """From `Content-Type`, without parameters; empty if the API did not say."""
    charset: str
    body: bytes
    link: str
    """The `Link` header."""
    modified: float | None
    """`Last-Modified`, as Unix time."""
    private: bool
    etag: str
    last_modified: str
    """`Last-Modified` if the next request can use it to ask for changes; otherwise empty."""
    fresh_until: float
    """By the monotonic clock; 0 if it must be requested each time."""
    has_no_cache_control: bool
    """Whether the API says nothing about caching."""

    @property
    def ttl_ms(self) -> int:
        """Milliseconds for which a client may use it: the rest of `max-age`.

        Without `Cache-Control`, a share of the time since `Last-Modified` (`ttl.ttl_ms`); otherwise 0.
        """
        if self.fresh_until:
            return max(0, min(round((self.fresh_until - time.monotonic()) * 1000), IMMUTABLE_TTL_MS))
        return ttl_ms(self.modified) if self.has_no_cache_control else 0


class ApiClient:
    """Sends requests to one API, and explains its errors."""

    def __init__(
        self,
        transport: ApiTransport,
        name: str,
        *,
        hide: Callable[[str], str] = str,
        hide_bytes: Callable[[bytes], bytes] = bytes,
    ) -> None:
        self._transport = transport
        self._name = name
        self.hide = hide
        """Removes credentials from a text of the API."""
        self.hide_bytes = hide_bytes
        """Removes credentials from the body of an answer."""
        self.probe_url = ""
        """Requested to find out whether the API can be reached."""
        self.down_reason = ""
        """Why the API could not be reached the last time; empty if it answered."""
        self._kept: BoundedCache[str, KeptAnswer] = BoundedCache(MAX_KEPT_BYTES)
        self._wait_until = 0.0

    async def close(self) -> None:
        """Close the connections, and forget all answers."""
        self._kept.clear()
        await self._transport.close()

    async def probe(self) -> None:
        """Check whether the API answers.

        Raises:
            SourceUnavailable: it does not, or a gateway says that it does not.
        """
        response = await self._exchange("GET", self.probe_url, {}, None)
        if response.status in GATEWAY_STATUSES:
            self.down_reason = f"{self._name} cannot be reached now: {_status_text(response.status)}."
            raise SourceUnavailable(self.down_reason)

    async def get(self, uri: str, url: str, headers: Mapping[str, str], *, revalidate: bool = False) -> KeptAnswer:
        """Return the answer to a GET. With `revalidate`, a kept answer is only returned if the API confirms it.

        Args:
            uri: The URI of the resource, for errors.
            url: The URL that is requested.
            headers: Sent with the request.
            revalidate: Whether to send a request although a kept answer may still be used.

        Raises:
            ResourceNotFound: the API has no such resource.
            InvalidArgument: the API refuses the request; the message has its reason.
            HandlerFailed: it fails, or asks for credentials or to wait.
            SourceUnavailable: it cannot be reached.
        """
        cached = self._kept.get(url)
        if cached is not None and not revalidate and time.monotonic() < cached.fresh_until:
            return cached
        conditions = {} if cached is None else conditional_headers(cached.etag, cached.last_modified)
        response = await self.send("GET", url, {**headers, **conditions}, None)
        if response.status == 304 and cached is not None:
            answer = cached
            if "cache-control" in response.headers:  # it replaces the earlier one (RFC 9111 §3.2)
                answer = cached._replace(
                    fresh_until=_fresh_until(response.headers),
                    private=cached.private or "private" in response.headers["cache-control"].lower(),
                    has_no_cache_control=False,
                )
        elif response.status // 100 == 2:
            answer = self._answer(response)
        else:
            if response.status in (404, 410):
                self._kept.remove(url)
            raise await self._error(uri, response)
        if "no-store" in response.headers.get("cache-control", "").lower():
            self._kept.remove(url)
            return answer
        return self._kept.put(url, answer, len(answer.body) + KEPT_OVERHEAD_BYTES)

    async def send(self, method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> HttpResponse:
        """Send a request and return the answer, of any status, without credentials in it.

        Raises:
            HandlerFailed: the API asked to wait until a later time, sent too large an answer, or answers other requests
                but not this one.
            SourceUnavailable: it cannot be reached.
        """
        remaining = self._wait_until - time.monotonic()
        if remaining > 0:
            raise HandlerFailed(f"{self._name} allows no further requests at present: try again in {remaining:.0f} s.")
        response = await self._exchange(method, url, headers, body)
        if method != "GET" and response.status < 400:
            self._kept.remove(url)  # the request may have changed it (RFC 9111 §4.4)
        if response.status in (429, 503):
            seconds = seconds_to_wait(response.headers.get("retry-after", ""), time.time()) or 0.0
            self._wait_until = max(self._wait_until, time.monotonic() + min(seconds, MAX_WAIT_SECONDS))
        hidden_headers = {name: self.hide(value) for name, value in response.headers.items()}
        return HttpResponse(response.status, hidden_headers, self.hide_bytes(response.body))

    async def _exchange(self, method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> HttpResponse:
        try:
            response = await self._transport.request(method, url, headers=headers, body=body)
        except TooLarge:
            self.down_reason = ""
            raise HandlerFailed(
                f"{self._name} sent more than {MAX_ANSWER_BYTES >> 20} MiB, which is not read: ask for less of it."
            ) from None
        except ConnectionFailed as error:
            reason = self.hide(" ".join(redacted_text(str(error)).split()))[:500]
            if url != self.probe_url and self.probe_url and not self.down_reason:
                await self.probe()  # raises if the whole API cannot be reached, not only this URL
                raise HandlerFailed(f"{self._name} did not answer this request: {reason}") from None
            self.down_reason = f"{self._name} cannot be reached now: {reason}"
            raise SourceUnavailable(self.down_reason) from None
        self.down_reason = ""
        return response

    def _answer(self, response: HttpResponse) -> KeptAnswer:
        headers = response.headers
        mime_type, _, parameters = headers.get("content-type", "").partition(";")
        mime_type = mime_type.strip().lower()
        if not re.fullmatch(r"[a-z0-9][a-z0-9.+_-]{0,80}/[a-z0-9][a-z0-9.+_-]{0,80}", mime_type):
            mime_type = ""
        charset = re.search(r"charset\s*=\s*\"?([A-Za-z0-9._:-]{1,40})", parameters)
        etag = headers.get("etag", "").strip()
        if not re.fullmatch(r'(?:W/)?"[\x21\x23-\x7e\x80-\xff]{0,500}"', etag):
            etag = ""
        last_modified = headers.get("last-modified", "").strip()
        modified = unix_time(last_modified)
        version = etag or digest(response.body)
        if modified is not None and not etag:
            version = f"{last_modified} {version}"
        return KeptAnswer(
            version=version,
            mime_type=mime_type,
            charset="" if charset is None else charset[1].lower(),
            body=response.body,
            link=headers.get("link", ""),
            modified=modified,
            private="private" in headers.get("cache-control", "").lower(),
            etag=etag,
            last_modified=dated_validator(headers),
            fresh_until=_fresh_until(headers),
            has_no_cache_control="cache-control" not in headers,
        )

    async def _error(self, uri: str, response: HttpResponse) -> Exception:
        """Return the error that a status means.

        Raises:
            SourceUnavailable: a gateway answered, and the whole API cannot be reached.
        """
        status = response.status
        if status in (404, 410):
            return ResourceNotFound(uri)
        text = f"{self._name} answered {error_text(response)}"
        if status in GATEWAY_STATUSES:
            await self.probe()
        if 400 <= status < 500 and status not in (401, 403, 407, 408, 425, 429):
            return InvalidArgument(text)
        return HandlerFailed(text)


def error_text(response: HttpResponse) -> str:
    """Return the status of an answer, and the reason that it states, in one line."""
    reason = _reason(response)
    return f"{_status_text(response.status)}{f': {reason}' if reason else ''}".rstrip(".") + "."


def _status_text(status: int) -> str:
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)


def _reason(response: HttpResponse) -> str:
    content_type = response.headers.get("content-type", "").lower()
    if len(response.body) > 100_000 or "html" in content_type:
        return ""  # data or a web page, rather than a reason
    if "json" in content_type:
        try:
            value: Any = msgspec.json.decode(response.body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return ""
        for _ in range(3):  # a reason may be nested, as in {"error": {"message": …}}
            if isinstance(value, dict):
                members = as_object(value)
                value = next((members[name] for name in _REASONS if members.get(name)), "")
        text = value if isinstance(value, str) else msgspec.json.encode(value).decode() if value else ""
    else:
        text = response.body[:2_000].decode("utf-8", "replace") if content_type.startswith("text/plain") else ""
    return printable(redacted_text(" ".join(text.split())), MAX_ERROR_CHARACTERS)


def _fresh_until(headers: Mapping[str, str]) -> float:
    """Return the monotonic time until which an answer is used without a request; 0 if it is requested each time."""
    seconds = fresh_seconds(headers)
    return time.monotonic() + min(seconds, IMMUTABLE_TTL_MS // 1000) if seconds else 0.0
