"""Reads `https://` resources from the web instead of through the server, as the specification intends.

"Servers SHOULD use this scheme only when the client is able to fetch and load the resource directly from the web on its
own" (resources, “Common URI schemes”). This client does so only on request, because the hosts that a server names see
the user's address, and the server's policy and record do not see the read.

Only URIs that the server itself has named are fetched: in a list, in a link, or in an embedded resource. Otherwise a
model could send what it knows to any host, in a URI that it makes up. No header of the server's connection is sent, no
cookie is kept, and every address must be public, also after redirects and after names are resolved.

The server is asked as usual if the web does not answer with the resource: if the status is not 200, the type is not
the one that the server declares (it may publish as Markdown a page that is HTML on the web), or the answer is too large
or too slow.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

from wharfinger import types as t
from wharfinger.client.calls import Call, Next
from wharfinger.content import mime
from wharfinger.content.encodings import declared_encoding
from wharfinger.content.redaction import redacted
from wharfinger.errors import ConnectionFailed
from wharfinger.fetching import Fetcher
from wharfinger.protocol.interfaces import HttpResponse
from wharfinger.protocol.methods import Method

__all__ = ["WEB_URL", "WebResourceStep"]

log = logging.getLogger("wharfinger.client")

WEB_URL = "wharfinger/web-url"
"""In `_meta` of contents that were fetched from the web: the URL that answered, after redirects."""
MAX_NAMED_URIS = 50_000
"""The maximum number of remembered URIs that the server has named; the oldest are forgotten."""
MAX_URI_CHARACTERS = 8_192
MAX_MIME_CHARACTERS = 255
"""A resource is read from the server if its URI or MIME type is longer, or if its type cannot be sent in a header."""
FETCH_SECONDS = 15.0
"""The maximum time for the web to answer; at most half of the call's own time, so that the server can still answer."""
MAX_BODY_BYTES = 16 << 20
READ = "resources/read"
NAMING = frozenset(("resources/list", "tools/call", "prompts/get"))
"""The methods whose results name resources."""


def _refuse(url: str) -> str | None:
    """Return why a URL is not fetched; None if it may be."""
    return None if url.startswith("https://") else "it is not https"


class WebResourceStep:
    """The step of a call that fetches `https://` resources which the server has named."""

    def __init__(self, fetcher: Fetcher | None = None) -> None:
        """`fetcher` sends the requests; by default to public addresses, over https, with bounds."""
        self._fetcher = fetcher or Fetcher(
            refuse=_refuse,
            follow=lambda _url, target: _refuse(target) is None,
            max_body_bytes=MAX_BODY_BYTES,
            timeout=FETCH_SECONDS,
        )
        self._named: dict[str, str] = {}
        """The MIME type that the server declares for each URI; empty if it declares none."""

    def applies_to(self, row: Method) -> bool:
        """Return whether the result may come from the web, or name resources."""
        return row.name == READ or row.name in NAMING

    async def __call__(self, call: Call, next: Next) -> Any:
        if call.method == READ and (declared := self._named.get(call.params.uri)) is not None:
            resource = await self._fetch(call, call.params.uri, declared)
            if resource is not None:
                return resource
        result = await next(call)
        if call.method in NAMING:
            self._remember(result)
        return result

    def _remember(self, result: Any) -> None:
        """Remember the URIs that a result names, and forget the oldest ones beyond `MAX_NAMED_URIS`."""
        for uri, kind in _named_in(result):
            if len(kind) > MAX_MIME_CHARACTERS or not (kind.isascii() and kind.isprintable()):
                continue
            if uri.startswith("https://") and len(uri) <= MAX_URI_CHARACTERS:
                self._named.pop(uri, None)
                self._named[uri] = kind
                if len(self._named) > MAX_NAMED_URIS:
                    del self._named[next(iter(self._named))]

    async def close(self) -> None:
        """Close the connections."""
        await self._fetcher.close()

    async def _fetch(self, call: Call, uri: str, declared: str) -> t.ReadResourceResult | None:
        """Return the resource from the web; None if the server must be asked."""
        remaining = call.left(asyncio.get_running_loop().time())
        accept = {"Accept": f"{declared}, */*;q=0.1" if declared else "*/*"}
        try:
            async with asyncio.timeout(None if remaining is None else remaining / 2):
                answer = await self._fetcher.request("GET", uri, headers=accept)
        except (ConnectionFailed, TimeoutError) as error:
            log.info("%s is read through its server: %s", redacted(uri), error)
            return None
        kind = mime.essence_of(answer.headers.get("content-type", ""))
        if answer.status != 200 or (declared and kind != mime.essence_of(declared)):
            log.info("%s is read through its server: the web has %s %s", redacted(uri), answer.status, kind)
            return None
        return t.ReadResourceResult(contents=[_content(uri, kind, answer)])


def _content(uri: str, kind: str, answer: HttpResponse) -> t.ResourceContents:
    """Return the content of an answer: text if it is declared as text, or has no type, and can be decoded."""
    meta = {WEB_URL: answer.url}
    text = _text_of(answer) if not kind or mime.is_text(kind) else None
    if text is not None:
        return t.ResourceContents(uri=uri, mime_type=kind or mime.TEXT, text=text, meta=meta)
    return t.ResourceContents(uri=uri, mime_type=kind or mime.sniff(answer.body), blob=answer.body, meta=meta)


def _text_of(answer: HttpResponse) -> str | None:
    """Decode a body in its declared encoding, or in the one that its bytes suggest. Returns None if it is not text."""
    encoding = declared_encoding(mime.charset_of(answer.headers.get("content-type", "")))
    with suppress(LookupError, ValueError):  # no known charset is declared, or the body is not in it
        text = answer.body.decode(encoding)
        if "\0" not in text:
            return text
    decoded = mime.decode_text(answer.body)
    return None if decoded is None else decoded[0]


def _named_in(result: Any) -> Iterator[tuple[str, str]]:
    """Yield the URIs that a result of the server names, each with its MIME type or an empty string."""
    if isinstance(result, t.ListResourcesResult):
        yield from ((each.uri, each.mime_type or "") for each in result.resources)
    elif isinstance(result, t.CallToolResult):
        yield from _named_in_blocks(result.content)
    elif isinstance(result, t.GetPromptResult):
        yield from _named_in_blocks([message.content for message in result.messages])


def _named_in_blocks(blocks: Sequence[Any]) -> Iterator[tuple[str, str]]:
    for block in blocks:
        if isinstance(block, t.ResourceLink):
            yield block.uri, block.mime_type or ""
        elif isinstance(block, t.EmbeddedResource):
            yield block.resource.uri, block.resource.mime_type or ""
