"""Resources: reads and lists them from registered functions, templates, catalogues and sources."""

from __future__ import annotations

import asyncio
import functools
import inspect
import os
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import msgspec
from msgspec import UNSET

from wharfinger import types as t
from wharfinger.content.mime import JSON, TEXT, is_text, sniff
from wharfinger.errors import (
    InvalidArgument,
    InvalidParams,
    PermissionDenied,
    ResourceNotFound,
    URLElicitationRequired,
)
from wharfinger.policy.current import may_read_below
from wharfinger.protocol.request import Request, take_hints
from wharfinger.protocol.uri.template import UriTemplate
from wharfinger.protocol.uri.template_index import TemplateIndex
from wharfinger.server.features.feature_registration import check_options
from wharfinger.server.features.feature_set import Features, MountedFeatures
from wharfinger.server.features.listing import PagedList
from wharfinger.server.features.pages import pages_of_catalogue, pages_of_source, templates_of_source
from wharfinger.server.features.resource import (
    MAX_RESOURCE_URI_CHARACTERS,
    ResourceFeature,
    ResourceOptions,
    check_uri,
    make_resource,
    make_unlisted_resource,
)
from wharfinger.server.features.result_errors import (
    UNAWAITED,
    UnusableResult,
    location_of,
    refuse_unawaited,
    unusable_result,
)
from wharfinger.server.features.tool_results import to_wire
from wharfinger.server.input.request_state import CannotAsk
from wharfinger.server.near_uris import add_near_uris
from wharfinger.server.nested_requests import read_request
from wharfinger.server.owners import owner_of
from wharfinger.server.search import Index, SearchRequest, search
from wharfinger.server.source_calls import MISSING_META_KEY, SourceCalls, missing_from_list
from wharfinger.source import Hits, Source
from wharfinger.types.base import or_unset

if TYPE_CHECKING:
    from typing import Unpack

    from wharfinger.protocol.interfaces import Handler
    from wharfinger.server.part import Part
    from wharfinger.server.services import Services

__all__ = ["Content", "Resources"]


class Content:
    """Content that a resource function returns, alone or in a list; `data` is text, bytes, or a JSON value.

    By default `uri` and `mime_type` are those of the resource; if it has no `mime_type`, the type is detected.
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


class Resources:
    """The resources of one server."""

    def __init__(self, services: Services, page_size: int | None) -> None:
        self._services = services
        self._parts: list[tuple[Part, Resources]] = []
        """Mounted servers and their resources."""
        self._parents: list[tuple[Part, Resources]] = []
        """Servers in which this one is mounted: the `Part` that represents it there, and that server's resources."""
        changed = functools.partial(services.watching.list_changed, "resources")
        self.static: Features[ResourceFeature] = Features("resource", changed)
        self.templates: Features[ResourceFeature] = Features("resource template", changed)
        self.unlisted: Features[ResourceFeature] = Features("resource template", lambda: None)
        """Templates that can be read and are not listed."""
        self.sources: list[Source] = []
        self.catalogues: list[Callable[..., AsyncIterator[t.Resource]]] = []
        """The async generators that were registered with `Server.list_resources`."""
        self.calls = SourceCalls(services.pool, services.watching)
        """Calls the sources, and knows which of them are left out of lists and searches for now, and why."""
        self.search_index: Index | None = None
        """Answers searches of the sources that it covers; None if there is no index."""
        self.near_uri_searches = 0
        """The number of requests that are looking for URIs to suggest (see `near_uris`)."""
        self._template_index: TemplateIndex[tuple[ResourceFeature, Part | None]] = TemplateIndex()
        """All enabled templates, also of mounted servers, but not those of sources. The most specific one wins."""
        self.listing = PagedList("resources", self.static, services, page_size, _resources_result)
        self.templates_listing = PagedList("templates", self.templates, services, page_size, _templates_result)
        self.listing.definition_of = self.templates_listing.definition_of = ResourceFeature.current_definition

    # -- registering

    def add(self, uri: str, function: Callable[..., Any], **options: Unpack[ResourceOptions]) -> None:
        """Register a function as a resource, or as a template if `uri` has variables; report that the list has changed.

        `{name}` is one segment of a path: it never contains "/", "\\" or a control character, escaped or not, and is
        never "." or "..". `{+name}` and `{#name}` may contain "/", but are never an absolute path and contain no "." or
        ".." segment. With `allow_traversal` these two may contain anything: check the path before you open it.

        Raises:
            InvalidTemplate: `uri` is not a template that can be parsed.
            ValueError: `uri` is taken, is not a URI, does not say where a variable ends, or is ambiguous with another
                template (the message names both); or an option has a value that is not valid, such as
                `allow_traversal` without `{+name}` and `{#name}`.
            TypeError: the function's parameters are not the template's variables, the function is a plain generator, or
                an option is unknown.
        """
        check_options("resource", None, options, ResourceOptions)
        self.put(make_resource(self._services, uri, function, options))

    def add_unlisted(
        self,
        template: str,
        function: Callable[..., Any],
        *,
        allow_traversal: bool = False,
        scopes: Sequence[str] | str | None = None,
    ) -> None:
        """Register a function that reads every URI that `template` matches. The template is not listed.

        `allow_traversal` is as for `add`, and `scopes` as in `ResourceOptions`.

        Raises:
            InvalidTemplate, ValueError, TypeError: as for `add`.
        """
        feature = make_unlisted_resource(self._services, template, function, allow_traversal, scopes)
        self.put(feature, listed=False)

    def put(self, feature: ResourceFeature, *, listed: bool = True) -> None:
        """Add a resource or template that is already made.

        Raises:
            ValueError: the URI is taken, or the template is ambiguous with another.
        """
        definition = feature.definition
        feature.call.finish = functools.partial(self._finish, definition.mime_type, feature.call.function)
        if isinstance(definition, t.Resource):
            self.static.add(definition.uri, feature)
        else:
            text = definition.uri_template
            if self._template_index.get(text) is not None or self.templates.has(text) or self.unlisted.has(text):
                raise ValueError(f"The resource template {text!r} is registered already.")
            self._index_template(feature, None)
            try:
                (self.templates if listed else self.unlisted).add(text, feature)
            except ValueError:
                self._unindex_template(text, feature)
                raise
        if feature.scopes:
            self._services.enforce_scopes()
        if feature.annotate is not None:
            self.listing.computed = self.templates_listing.computed = True
        self._services.serve("resources")

    def remove(self, uri: str) -> None:
        """Remove a resource by its URI, or a template by its text, and report that the list has changed.

        Raises:
            KeyError: there is no such resource or template.
        """
        features = self._features_with(uri)
        if features is not self.static:
            self._unindex(uri)
        features.remove(uri)

    def disable(self, uri: str) -> None:
        """Disable a resource, or a template by its text, until `enable`. It is not listed and cannot be read.

        Raises:
            KeyError: there is no such resource or template.
        """
        features = self._features_with(uri)
        if features is not self.static:
            self._unindex(uri)
        features.disable(uri)

    def enable(self, uri: str) -> None:
        """Enable a disabled resource or template again, at its old position, and report that the list has changed.

        Raises:
            KeyError: there is no such resource or template.
            ValueError: another template has become ambiguous with it.
        """
        features = self._features_with(uri)
        if not features.is_disabled(uri):
            return
        features.enable(uri)
        if features is not self.static and (found := features.find(uri)) is not None:
            try:
                self._index_template(found.feature, found.part)
            except ValueError:
                features.disable(uri)
                raise

    def _features_with(self, uri: str) -> Features[ResourceFeature]:
        for features in (self.static, self.templates, self.unlisted):
            if features.has(uri):
                return features
        raise KeyError(f"There is no resource {uri!r}.")

    def handlers(self) -> dict[str, Handler]:
        """Return the handlers of the methods of resources, except subscriptions."""
        return {
            "resources/list": self.serve_list,
            "resources/templates/list": self.templates_listing.serve,
            "resources/read": self.read,
        }

    def uris(self) -> list[str]:
        """Return the URIs of all enabled, registered resources in the list's order, with those of mounted servers."""
        return [uri for uri, _ in self.static.items()]

    def mount(self, part: Part, resources: Resources) -> None:
        """Show the resources of a mounted server.

        Raises:
            ValueError: a URI is taken, or a template is ambiguous with another.
        """
        pairs = (
            (resources.static, self.static), (resources.templates, self.templates),
            (resources.unlisted, self.unlisted),
        )  # fmt: skip
        mounted = [MountedFeatures(part, theirs, ours, self._services.name) for theirs, ours in pairs]
        indexed: list[ResourceFeature] = []
        try:
            for _, (feature, _) in resources._template_index:
                self._index_template(feature, part)
                indexed.append(feature)
        except ValueError as error:
            for feature in indexed:
                self._unindex_template(feature.text, feature)
            raise ValueError(f"{self._services.name!r} and {part.name!r}: {error}") from None
        for features in mounted:
            features.show()
        self._parts.append((part, resources))
        resources._parents.append((part, self))
        self.listing.add_part(resources.listing)
        self.templates_listing.add_part(resources.templates_listing)

    def _index_template(self, feature: ResourceFeature, part: Part | None) -> None:
        """Let reads find an enabled template, here and in every server that shows it.

        Raises:
            ValueError: it is ambiguous with another template.
        """
        if part is not None and (self.templates.hides(feature.text) or self.unlisted.hides(feature.text)):
            return
        self._template_index.add(feature.template or UriTemplate(feature.text), (feature, part))
        try:
            for as_part, parent in self._parents:
                try:
                    parent._index_template(feature, as_part)
                except ValueError as error:
                    raise ValueError(f"{parent._services.name!r} and {self._services.name!r}: {error}") from None
        except ValueError:
            self._unindex_template(feature.text, feature)
            raise

    def _unindex(self, text: str) -> None:
        """Let no read find the template with this text, here and in every server that shows it."""
        if (found := self._template_index.get(text)) is not None:
            self._unindex_template(text, found[0])

    def _unindex_template(self, text: str, feature: ResourceFeature) -> None:
        """Let no read find `feature`, a template with this text. If another feature has the text by now, it stays."""
        found = self._template_index.get(text)
        if found is not None and found[0] is feature:
            self._template_index.remove(text)
            for _, parent in self._parents:
                parent._unindex_template(text, feature)

    def add_source(self, source: Source) -> None:
        """Add a source. Its resources are listed after the registered ones, and after those of earlier sources."""
        self.sources.append(source)
        self.calls.add(source)
        pages = pages_of_source(
            source,
            self.calls,
            arrived=lambda: self._services.watching.list_changed("resources"),
            alone=lambda: len(self.sources) == 1,
        )
        self.listing.add_provider(pages)
        self.templates_listing.add_provider(templates_of_source(source, self.calls))
        self._services.watching.list_changed("resources")
        self._services.serve("resources")

    def add_catalogue(self, function: Callable[..., AsyncIterator[t.Resource]]) -> None:
        """List the resources that an async generator yields, after those that were added before.

        Raises:
            TypeError: the function is a coroutine function or a plain generator.
        """
        if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
            raise TypeError(f"{location_of(function)} must be an async generator: async def with yield.")
        self.catalogues.append(function)
        self.listing.add_provider(pages_of_catalogue(function))
        self._services.watching.list_changed("resources")
        self._services.serve("resources")

    # -- reading

    async def read(self, request: Request) -> t.ReadResourceResult:
        """Serve `resources/read`.

        Raises:
            ResourceNotFound: there is no resource at this URI.
            InvalidParams: it is not a URI.
        """
        uri = request.params.uri
        values: dict[str, Any] = {}
        part: Part | None = None
        feature = self.static.by_key.get(uri)
        if feature is None and self._parts and (found := self.static.find(uri)) is not None:
            feature, part = found.feature, found.part
        if feature is None:
            check_uri(uri)
            match = self._template_index.find(uri)
            if match is None:
                try:
                    return await self.read_source(request, uri)
                except (ResourceNotFound, PermissionDenied) as error:
                    missing = error if isinstance(error, ResourceNotFound) else ResourceNotFound(uri)
                    await add_near_uris(self._services, self, request, missing)
                    raise missing from None
            (feature, part), values = match
        if part is not None and not part.direct["resources/read"]:
            return await part.serve(request)  # type: ignore[no-any-return]
        request.ttl_ms, request.cache_scope = feature.ttl_ms, feature.cache_scope
        call = feature.call
        try:
            value = await call.function(**values) if call.is_plain_async else await call(request, values)
        except URLElicitationRequired as error:
            raise call.url_exception(request, error) from None
        if type(value) is str:
            mime_type = TEXT if feature.mime_type is UNSET else feature.mime_type
            if value.startswith(UNAWAITED):
                refuse_unawaited(feature.call.function, value)
            result = t.ReadResourceResult(contents=[t.ResourceContents(uri=uri, mime_type=mime_type, text=value)])
        else:
            result = await self._make_result(request, uri, value, feature.mime_type, feature.call.function)
        if not feature.type_checked:
            feature.check_type(result)
        return result

    def feature_of(self, uri: str) -> ResourceFeature | None:
        """Return the registered resource or template that serves a URI, here or in a mounted server, or None."""
        found = self.static.find(uri)
        if found is not None:
            return found.feature
        match = self._template_index.find(uri) if len(uri) <= MAX_RESOURCE_URI_CHARACTERS else None
        return None if match is None else match[0][0]

    async def read_source(self, request: Request, uri: str) -> t.ReadResourceResult:
        """Read a resource from a source of this server or of a mounted one.

        Raises:
            ResourceNotFound: no source has it.
        """
        request.ttl_ms, request.cache_scope = self._services.ttl_ms, self._services.cache_scope
        source = await self._find_own_source(uri)
        if source is None:
            for part, resources in self._parts:
                if resources.source_of(uri) is not None:
                    found: t.ReadResourceResult = await (
                        resources.read_source(request, uri) if part.direct["resources/read"] else part.serve(request)
                    )
                    self._set_cache_scope(request)
                    return found
            raise ResourceNotFound(uri)
        result: t.ReadResourceResult = await self.calls.call(source, source.read, owner_of(request), uri)
        for content in result.contents:
            if content.blob is not UNSET and (stored := t.find_stored_blob(content)) is not None:
                await self._prepare_stored_blob(request, content, stored)
        result = take_hints(request, result)
        self._set_cache_scope(request)
        return result

    def _set_cache_scope(self, request: Request) -> None:
        """Make a result private if another caller may be refused, or get a different result."""
        # `access` is set if there is a policy. It sets the scope itself, by its rules.
        identified = request.caller.principal.key and request.access is None
        if identified or self._services.methods.may_differ("resources/read"):
            request.cache_scope = "private"

    async def _prepare_stored_blob(self, request: Request, content: t.ResourceContents, stored: t.StoredBlob) -> None:
        """Arrange for a stored blob to be read while it is sent, or load it now if it is needed as a whole.

        Middleware needs it as a whole. So does stdio: a line that has begun cannot be taken back if reading fails.
        """
        pool, owner = self._services.pool, owner_of(request)
        if request.accepts_lazy_blobs:
            stored.run = functools.partial(pool.run, owner)
        elif len(stored) <= self._services.limits.content:
            content.blob = await pool.run(owner, stored.read, 0, len(stored))
        else:
            raise _over_content_limit()

    async def _make_result(
        self, request: Request, uri: str, value: Any, mime_type: Any, function: Callable[..., Any]
    ) -> t.ReadResourceResult:
        """Convert a function's return value to contents.

        Raises:
            UnusableResult: it cannot be converted.
        """
        if isinstance(value, t.ReadResourceResult):
            for content in value.contents:
                t.check_contents(content)
            return take_hints(request, value)
        values = cast("list[object]", value if isinstance(value, list) else [])
        items = values if values and all(isinstance(v, Content) for v in values) else [cast("object", value)]
        try:
            contents = [await self._make_contents(request, uri, v, mime_type) for v in items]
        except (TypeError, ValueError, RecursionError) as error:
            raise unusable_result(function, value, error) from error
        return t.ReadResourceResult(contents=contents)

    async def _finish(
        self, mime_type: Any, function: Callable[..., Any], request: Request, value: Any
    ) -> t.ReadResourceResult:
        """Convert a function's return value while its dependencies, which an iterator may need, are still open."""
        return await self._make_result(request, request.params.uri, value, mime_type, function)

    async def _make_contents(self, request: Request, uri: str, value: Any, mime_type: Any) -> t.ResourceContents:
        meta: Any = UNSET
        if isinstance(value, Content):
            uri, mime_type = value.uri or uri, value.mime_type or mime_type
            meta, value = value.meta or UNSET, value.data
        if isinstance(value, t.ResourceContents):
            t.check_contents(value)
            return value
        if isinstance(value, Path):
            try:
                value = await self._services.pool.run(
                    owner_of(request), _read_file, value, self._services.limits.content
                )
            except FileNotFoundError:
                raise ResourceNotFound(uri) from None
        elif hasattr(value, "__aiter__"):
            value = await _join(value, self._services.limits.content)
        text, data, mime_type = _text_or_bytes(value, mime_type)
        return t.ResourceContents(uri=uri, mime_type=mime_type, text=text, blob=data, meta=meta)

    async def exists(self, request: Request, uri: str) -> bool:
        """Return whether the caller can read this URI, and so may watch it.

        This may run the author's code: the function of a template, the function of a resource if it or a dependency
        uses the request, or middleware around `resources/read` that may answer callers differently.
        """
        methods = self._services.methods
        try:
            if methods.may_differ("resources/read"):
                await methods.handlers["resources/read"](read_request(request, uri))
                source = self.source_of(uri)
                if source is not None:  # called for its effect: the source notes the state at which a watch begins
                    with suppress(ResourceNotFound):
                        await self.calls.call(source, source.stat, owner_of(request), uri)
                return True
            feature: ResourceFeature | None = None
            part: Part | None = None
            values: dict[str, Any] = {}
            found = self.static.find(uri)
            if found is not None:
                feature, part = found.feature, found.part
            else:
                check_uri(uri)
                if (match := self._template_index.find(uri)) is not None:
                    (feature, part), values = match
            if feature is not None:
                if part is not None and not part.direct["resources/read"]:
                    await part.serve(read_request(request, uri))
                elif found is None or feature.call.takes_context:
                    await feature.call(read_request(request, uri), values)
                return True
            source = await self._find_own_source(uri)
            if source is not None:
                await self.calls.call(source, source.stat, owner_of(request), uri)
                return True
            for _, resources in self._parts:
                if resources.source_of(uri) is not None:
                    return await resources.exists(request, uri)
        except (ResourceNotFound, InvalidParams, PermissionDenied, PermissionError):
            return False
        except CannotAsk:  # the handler asks its user before it returns anything, so the resource exists
            return True
        return False

    async def _find_own_source(self, uri: str) -> Source | None:
        """Return this server's source that a URI belongs to, or None.

        If none has it, waits for those that are starting; if no mounted server has it either, for theirs too.
        """
        source = self._own_source(uri)
        if source is None and await self.calls.wait_for_starts():
            source = self._own_source(uri)
        if source is None and self._parts and self.source_of(uri) is None:
            await asyncio.gather(*[resources.wait_for_starts() for _, resources in self._parts])
        return source

    async def wait_for_starts(self) -> None:
        """Wait for the starting sources of this server and of mounted ones, at most for their patience."""
        if self._parts:
            waits = [self.calls.wait_for_starts(), *[resources.wait_for_starts() for _, resources in self._parts]]
            await asyncio.gather(*waits)
        else:
            await self.calls.wait_for_starts()

    def _own_source(self, uri: str) -> Source | None:
        """Return this server's source that a URI belongs to, or None. A starting source may not know its URIs yet."""
        for source in self.sources:
            if source.matches(uri):
                return source
        return None

    def source_of(self, uri: str) -> Source | None:
        """Return the source that serves a URI, here or in a mounted server. Returns None if no source does."""
        return next((source for source in self.every_source() if source.matches(uri)), None)

    def every_source(self) -> Iterator[Source]:
        """Yield the sources of this server, then those of mounted servers."""
        yield from self.sources
        for _, resources in self._parts:
            yield from resources.every_source()

    def may_differ(self) -> bool:
        """Return whether middleware, here or in a part, may let one caller read what another may not."""
        return self._services.methods.may_differ("resources/read") or any(
            resources.may_differ() for _, resources in self._parts
        )

    def part_of(self, uri: str) -> Part | None:
        """Return the mounted server that has a URI; None if this server has it itself, or no server does."""
        found = self.static.find(uri)
        if found is not None:
            return found.part
        match = self._template_index.find(uri) if len(uri) <= MAX_RESOURCE_URI_CHARACTERS else None
        if match is not None:
            return match[0][1]
        if self._own_source(uri) is not None:
            return None
        return next((part for part, resources in self._parts if resources.source_of(uri) is not None), None)

    def part_of_any_template(self, text: str) -> Part | None:
        """Return the mounted server that registered a template, or has a source with it; None as for `part_of`."""
        found = self.templates.find(text) or self.unlisted.find(text)
        return self.part_of_template(text) if found is None else found.part

    def part_of_template(self, text: str) -> Part | None:
        """Return the mounted server that has a source with this template. Returns None if no server has one."""
        return next((part for part, resources in self._parts if resources.has_source_template(text)), None)

    def has_source_template(self, text: str) -> bool:
        """Return whether a source shows this template."""
        return any(shown.uri_template == text for source in self.every_source() for shown in source.templates)

    # -- listing

    async def serve_list(self, request: Request) -> t.ListResourcesResult | msgspec.Raw:
        """Serve `resources/list`. If it leaves out sources for now, `_meta` and log messages name them."""
        result: t.ListResourcesResult | msgspec.Raw = await self.listing.serve(request)
        if isinstance(result, t.ListResourcesResult):
            context: Any = self._services.context(request)
            for missing in self._add_missing(result):
                context.log("warning", missing["message"], logger="wharfinger")
        return result

    async def page(self, request: Request, cursor: str | None = None) -> t.ListResourcesResult:
        """Return one page of the list as a struct.

        Raises:
            InvalidParams: as for `PagedList.page_for`.
        """
        page: t.ListResourcesResult | msgspec.Raw = await self.listing.page_for(request, or_unset(cursor))
        if isinstance(page, msgspec.Raw):
            return msgspec.json.decode(page, type=t.ListResourcesResult)
        self._add_missing(page)
        return page

    def _add_missing(self, page: t.ListResourcesResult) -> list[dict[str, str]]:
        """Name the sources that a list leaves out for now in its `_meta`."""
        missing = [
            {"source": source.name, "uri": source.uri, "message": missing_from_list(why)}
            for source, why in self.missing()
            if may_read_below(f"{source.uri.rstrip('/')}/" if source.uri else "")
        ]
        if missing:
            page.meta = {**(page.meta or {}), MISSING_META_KEY: missing}
        return missing

    def missing(self) -> Iterator[tuple[Source, str]]:
        """Yield the sources that lists and searches leave out for now, also of mounted servers, and the reasons."""
        for source in self.sources:
            if why := self.calls.why_missing(source):
                yield source, why
        for _, resources in self._parts:
            yield from resources.missing()

    async def search(self, request: Request, query: str, limit: int) -> Hits:
        """Search everything, as `Context.search` does, without reporting progress."""
        return await search(
            self._services, self, request, SearchRequest(query=query, limit=limit), lambda documents, message: None
        )


def _text_or_bytes(value: Any, mime_type: Any) -> tuple[Any, Any, str]:
    """Return `(text, blob, MIME type)` of a function's return value; one of the first two is UNSET."""
    if value is None:
        raise TypeError("None: return text, bytes, or a value that JSON can express")
    if isinstance(value, str):
        return value, UNSET, TEXT if mime_type is UNSET else mime_type
    if isinstance(value, (bytes, bytearray, memoryview)):
        data = bytes(cast("bytes", value))
        mime_type = sniff(data) if mime_type is UNSET else mime_type
        if is_text(mime_type):
            with suppress(UnicodeDecodeError):
                return data.decode(), UNSET, mime_type
        return UNSET, data, mime_type
    return to_wire(value).decode(), UNSET, JSON if mime_type is UNSET else mime_type


def _read_file(path: Path, max_bytes: int) -> bytes:
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size or max_bytes  # a pipe and a file of /proc report 0 bytes
        data = file.read(min(size, max_bytes) + 1)  # allocates this much
    if len(data) > max_bytes:
        raise _over_content_limit()
    return data


def _over_content_limit() -> InvalidArgument:
    return InvalidArgument("This resource is over the server's limit for one content (limits.content).")


async def _join(chunks: AsyncIterator[bytes], max_bytes: int) -> bytes:
    parts: list[bytes] = []
    try:
        async for chunk in chunks:
            if not isinstance(chunk, (bytes, bytearray, memoryview)):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise UnusableResult(f"the iterator of a resource yielded {type(chunk).__name__}: yield bytes")
            data = bytes(chunk)  # the length of a memoryview may be in other units
            max_bytes -= len(data)
            if max_bytes < 0:
                raise _over_content_limit()
            parts.append(data)
    finally:
        if isinstance(chunks, AsyncGenerator):  # stopped early: end it while the function's dependencies are open
            await chunks.aclose()
    return b"".join(parts)


def _resources_result(shown: list[Any], next_cursor: Any) -> t.ListResourcesResult:
    return t.ListResourcesResult(resources=shown, next_cursor=next_cursor)


def _templates_result(shown: list[Any], next_cursor: Any) -> t.ListResourceTemplatesResult:
    return t.ListResourceTemplatesResult(resource_templates=shown, next_cursor=next_cursor)
