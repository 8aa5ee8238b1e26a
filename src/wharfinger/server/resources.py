"""Resources: from a URI to what is read, by registered functions, templates, catalogues and sources."""

from __future__ import annotations

import inspect
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET

from wharfinger import types as t
from wharfinger.errors import InvalidParams, ResourceNotFound
from wharfinger.protocol.exchange import Request
from wharfinger.protocol.template_index import TemplateIndex
from wharfinger.protocol.uri_template import UriTemplate
from wharfinger.server.features import Features
from wharfinger.server.functions import Call, owner_of
from wharfinger.server.lists import Listing
from wharfinger.server.mime import is_text, sniff
from wharfinger.server.source import Hit, Source

if TYPE_CHECKING:
    from wharfinger.server.app import Server

__all__ = ["Content", "ResourceFeature", "Resources"]

_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[^\x00-\x20\x7f]*\Z")
"""RFC 3986, §3: a scheme and something; the rest is opaque and compared as given."""
LONGEST_URI = 8192


class Content:
    """One of several contents that a resource function returns; `data` is text, bytes, or anything with a JSON form.

    `uri` is that of the resource where it is left out; `mime_type` is found out.
    """

    __slots__ = ("data", "meta", "mime_type", "uri")

    def __init__(
        self,
        data: Any,
        *,
        uri: str | None = None,
        mime_type: str | None = None,
        meta: dict[str, Any] | None = None,
    ) -> None:
        self.data = data
        self.uri = uri
        self.mime_type = mime_type
        self.meta = meta


class ResourceFeature:
    """A registered resource or template: what lists show, and how it is read."""

    __slots__ = ("annotate", "cache_scope", "call", "completers", "definition", "mime_type", "template", "ttl_ms")

    def __init__(
        self,
        definition: t.Resource | t.ResourceTemplate,
        call: Call,
        *,
        template: UriTemplate | None = None,
        annotate: Callable[[], t.Annotations] | None = None,
        ttl_ms: int = 0,
        cache_scope: str = "private",
    ) -> None:
        self.definition = definition
        self.call = call
        self.template = template
        self.annotate = annotate
        self.ttl_ms = ttl_ms
        self.cache_scope = cache_scope
        self.mime_type = definition.mime_type
        self.completers: Mapping[str, Any] = call.completers

    def shown(self) -> t.Resource | t.ResourceTemplate:
        """The definition with its annotations computed now."""
        if self.annotate is None:
            return self.definition
        return msgspec.structs.replace(self.definition, annotations=self.annotate())


class Resources:
    """Everything of one server that can be read by URI."""

    def __init__(self, server: Server, size: int) -> None:
        self._server = server
        self.static: Features[ResourceFeature] = Features("resource", lambda: server.list_changed("resources"))
        self.templates: Features[ResourceFeature] = Features(
            "resource template", lambda: server.list_changed("resources")
        )
        self.sources: list[Source] = []
        self._index: TemplateIndex[ResourceFeature] = TemplateIndex()
        self.listing = Listing("resources", self.static, server.keys, size, _resources_result)
        self.templates_listing = Listing("templates", self.templates, server.keys, size, _templates_result)
        for listing in (self.listing, self.templates_listing):
            listing.shown = ResourceFeature.shown

    # -- registering

    def add(self, feature: ResourceFeature, *, listed: bool = True) -> None:
        """Add a resource, or a template.

        Raises:
            ValueError: the URI is taken, or the template is ambiguous with another (both are named).
        """
        definition = feature.definition
        if isinstance(definition, t.Resource):
            self.static.add(definition.uri, feature)
        else:
            self._index.add(feature.template or UriTemplate(definition.uri_template), feature)
            if listed:
                self.templates.add(definition.uri_template, feature)
        if feature.annotate is not None:
            self.listing.computed = self.templates_listing.computed = True

    def remove(self, uri: str) -> None:
        """Remove a resource by its URI, or a template by its text.

        Raises:
            KeyError: there is none.
        """
        if uri in self.static.by_key:
            self.static.remove(uri)
        else:
            self.templates.remove(uri)
            self._index.remove(uri)

    def add_source(self, source: Source) -> None:
        """Add a source behind everything that is there."""
        self.sources.append(source)
        page = self._server.adapt(source.page)
        self.listing.providers.append(lambda key, limit: page("", key, limit))
        if source.templates:
            self.templates_listing.providers.append(_all_at_once(source.templates))

    def add_catalogue(self, function: Callable[..., AsyncIterator[t.Resource]]) -> None:
        """List what an async generator yields behind everything that is there."""
        self.listing.providers.append(_catalogue(function))

    # -- reading

    async def read(self, request: Request) -> t.ReadResourceResult:
        """The handler of `resources/read`.

        Raises:
            ResourceNotFound: nothing here has this URI.
            InvalidParams: it is no URI.
        """
        uri = request.params.uri
        feature = self.static.by_key.get(uri)
        if feature is not None:
            call = feature.call
            value = await call.function() if call.plain else await call(request, {})
        else:
            found = self._index.find(uri) if len(uri) <= LONGEST_URI else None
            if found is None:
                return await self._read_source(request, uri)
            feature, values = found
            value = await feature.call(request, values)
        request.ttl_ms, request.cache_scope = feature.ttl_ms, feature.cache_scope
        if type(value) is str:
            mime_type = "text/plain" if feature.mime_type is UNSET else feature.mime_type
            return t.ReadResourceResult(contents=[t.ResourceContents(uri=uri, mime_type=mime_type, text=value)])
        return await self._result(request, uri, value, feature.mime_type)

    async def _read_source(self, request: Request, uri: str) -> t.ReadResourceResult:
        check_uri(uri)
        for source in self.sources:
            if source.claims(uri):
                result = await self._server.adapt(source.read)(owner_of(request), uri)
                return _era_free(request, result)
        raise ResourceNotFound(uri)

    async def _result(self, request: Request, uri: str, value: Any, mime_type: Any) -> t.ReadResourceResult:
        if isinstance(value, t.ReadResourceResult):
            return _era_free(request, value)
        several = value if isinstance(value, list) and value and all(isinstance(v, Content) for v in value) else [value]
        return t.ReadResourceResult(contents=[await self._contents(request, uri, v, mime_type) for v in several])

    async def _contents(self, request: Request, uri: str, value: Any, mime_type: Any) -> t.ResourceContents:
        meta: Any = UNSET
        if isinstance(value, Content):
            uri, mime_type = value.uri or uri, value.mime_type or mime_type
            meta, value = value.meta or UNSET, value.data
        if isinstance(value, t.ResourceContents):
            return value
        if isinstance(value, Path):
            value = await self._server.pool.run(owner_of(request), value.read_bytes)
        elif hasattr(value, "__aiter__"):
            value = await _joined(value)
        text, data, mime_type = _text_or_bytes(value, mime_type)
        return t.ResourceContents(uri=uri, mime_type=mime_type, text=text, blob=data, meta=meta)

    async def exists(self, request: Request, uri: str) -> bool:
        """Whether the caller could read this URI, so that it may be watched."""
        if uri in self.static.by_key:
            return True
        try:
            check_uri(uri)
            found = self._index.find(uri)
            if found is not None:
                await found[0].call(request, found[1])
                return True
            for source in self.sources:
                if source.claims(uri):
                    await self._server.adapt(source.stat)(owner_of(request), uri)
                    return True
        except (ResourceNotFound, InvalidParams, PermissionError):
            return False
        return False

    def source_of(self, uri: str) -> Source | None:
        """The source that a URI belongs to."""
        return next((source for source in self.sources if source.claims(uri)), None)

    # -- listing and searching

    async def page(self, cursor: str | None = None) -> t.ListResourcesResult:
        """One page of the list as a struct."""
        page = await self.listing.page(UNSET if cursor is None else cursor)
        return msgspec.json.decode(page, type=t.ListResourcesResult) if isinstance(page, msgspec.Raw) else page

    async def search(self, request: Request, query: str, limit: int) -> list[Hit]:
        """Registered resources whose name, title, description or URI holds the words, then each source's hits."""
        words = query.casefold().split()
        hits: list[Hit] = []
        for feature in self.static:
            shown: Any = feature.definition
            text = " ".join(
                filter(None, (shown.name, shown.title or "", shown.description or "", shown.uri))
            ).casefold()
            if words and all(word in text for word in words):
                hits.append(Hit(uri=shown.uri, title=shown.title or shown.name, resource=shown))
        for source in self.sources:
            if len(hits) < limit:
                hits += await self._server.adapt(source.search)(owner_of(request), query, limit - len(hits))
        return hits[:limit]


def check_uri(uri: str) -> None:
    """Accept an absolute URI of bounded length; the rest is opaque.

    Raises:
        InvalidParams: it is none.
    """
    if len(uri) > LONGEST_URI:
        raise InvalidParams(f"A URI may have {LONGEST_URI} characters.")
    if not _URI.match(uri):
        raise InvalidParams("uri must be an absolute URI (RFC 3986), such as file:///notes/today.md, without spaces.")


def _era_free(request: Request, result: t.ReadResourceResult) -> t.ReadResourceResult:
    """Move caching hints from a result to its request: only the stateless era may see them."""
    if result.ttl_ms is UNSET and result.cache_scope is UNSET:
        return result
    request.ttl_ms = result.ttl_ms or request.ttl_ms
    request.cache_scope = result.cache_scope or request.cache_scope
    return msgspec.structs.replace(result, ttl_ms=UNSET, cache_scope=UNSET)


def _text_or_bytes(value: Any, mime_type: Any) -> tuple[Any, Any, str]:
    """`(text, blob, MIME type)` of what a function returned; one of the first two is UNSET."""
    if value is None:
        raise TypeError("a resource function returned None: return text, bytes, or something with a JSON form")
    if isinstance(value, str):
        return value, UNSET, "text/plain" if mime_type is UNSET else mime_type
    if isinstance(value, (bytes, bytearray, memoryview)):
        data = bytes(value)
        mime_type = sniff(data) if mime_type is UNSET else mime_type
        text = _decoded(data) if is_text(mime_type) else None
        return (UNSET, data, mime_type) if text is None else (text, UNSET, mime_type)
    if hasattr(value, "model_dump_json"):  # pydantic, which is never imported here
        return value.model_dump_json(), UNSET, "application/json" if mime_type is UNSET else mime_type
    return msgspec.json.encode(value).decode(), UNSET, "application/json" if mime_type is UNSET else mime_type


def _decoded(data: bytes) -> str | None:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


async def _joined(chunks: AsyncIterator[bytes]) -> bytes:
    return b"".join([chunk async for chunk in chunks])


def _resources_result(shown: list[Any], next_cursor: Any) -> t.ListResourcesResult:
    return t.ListResourcesResult(resources=shown, next_cursor=next_cursor)


def _templates_result(shown: list[Any], next_cursor: Any) -> t.ListResourceTemplatesResult:
    return t.ListResourceTemplatesResult(resource_templates=shown, next_cursor=next_cursor)


def _all_at_once(definitions: Any) -> Callable[[Any, int], Awaitable[tuple[list[Any], Any]]]:
    async def page(key: Any, limit: int) -> tuple[list[Any], Any]:
        start = key or 0
        return list(definitions[start : start + limit]), start + limit if start + limit < len(definitions) else None

    return page


def _catalogue(
    function: Callable[..., AsyncIterator[t.Resource]],
) -> Callable[[Any, int], Awaitable[tuple[list[Any], Any]]]:
    """Pages of an async generator; the key of a page is the URI of its last resource, and how many came before."""
    by_key = "after" in inspect.signature(function).parameters

    async def page(key: Any, limit: int) -> tuple[list[Any], Any]:
        last, count = key or (None, 0)
        resources = function(after=last) if by_key else function()
        shown: list[t.Resource] = []
        behind = last is None or by_key
        seen: list[t.Resource] = []  # should the last one be gone, the count says where to go on
        async for resource in resources:
            if not behind:
                behind = resource.uri == last
                if len(seen) < limit + 1 and not behind and (count := count - 1) < 0:
                    seen.append(resource)
                continue
            shown.append(resource)
            if len(shown) > limit:
                break
        shown = shown if behind else seen
        more = len(shown) > limit
        shown = shown[:limit]
        return shown, (shown[-1].uri, (key or (None, 0))[1] + len(shown)) if more else None

    return page
