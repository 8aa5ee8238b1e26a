"""An HTTP API as live resources: the answers of its operations, watched by conditional requests.

The OpenAPI document is loaded when the server starts, unless it is given as a value or a file. After that, everything
except answers comes from the `ApiCatalogue` made from it. The catalogue is replaced as a whole if the document changes.
The document is checked for changes when the list is requested, and while the list is watched.

All requests are made on the event loop of the server. The thread that looks for changes uses this loop too.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from bisect import bisect_right
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import parse_qsl, urlsplit

import msgspec
from msgspec import UNSET

from wharfinger import types as t
from wharfinger.content import mime
from wharfinger.content.encodings import declared_encoding
from wharfinger.content.text import many, printable
from wharfinger.errors import HandlerFailed, InvalidArgument, ProtocolError, ResourceNotFound, ToolError
from wharfinger.net import origin_of, split_url
from wharfinger.source import VERSION, Document, Source, SourceUnavailable, UnusableSource, version_of
from wharfinger.sources.bounded_cache import BoundedCache
from wharfinger.sources.directories import modified_annotations, summaries
from wharfinger.sources.http_api.api_catalogue import ApiCatalogue, list_order
from wharfinger.sources.http_api.api_client import ApiClient, KeptAnswer
from wharfinger.sources.http_api.api_credentials import ApiCredentials, joined_headers
from wharfinger.sources.http_api.api_document import JsonObject, parse_document
from wharfinger.sources.http_api.api_operations import ApiDocument, ApiOperation, read_document
from wharfinger.sources.http_api.api_paging import page_links
from wharfinger.sources.http_api.api_tools import (
    ApiRequest,
    UnusableOperation,
    allowed_operations,
    make_tool,
    result_of,
)
from wharfinger.sources.http_api.api_uris import ApiTarget, ApiUris, query_text
from wharfinger.sources.page_keys import bad_cursor
from wharfinger.sources.polling import Polling
from wharfinger.sources.watched import Watched
from wharfinger.sources.windows.window import (
    NEXT,
    PREVIOUS,
    BytesContent,
    continuation,
    is_continuation,
    read_content,
    remark,
)

if TYPE_CHECKING:
    from wharfinger.server.app import Server

__all__ = ["ApiSettings", "HttpApi"]

log = logging.getLogger("wharfinger.sources.http_api")

MAX_WHOLE_BYTES = 1 << 20
"""Largest answer that is read at once; a larger one has windows."""
LOOK_SECONDS = 45.0
"""Time that the thread that looks for changes waits for the result of one look."""
DOCUMENT_ROUNDS = 12
"""The document is checked at most once in this number of polling intervals."""
MAX_SEEN_URIS = 10_000
ACCEPT = "application/json, text/*;q=0.9, */*;q=0.5"
_KEY_PREFIX = "> "
"""Begins the keys of pages."""


class ApiSettings(NamedTuple):
    """The operator's settings for an API."""

    label: str
    location: str
    """The location of the document, for messages."""
    base_url: str
    """The URL of the API; empty if the document states it."""
    document_url: str
    """The URL of the document; empty if its content was given."""
    headers: Mapping[str, str]
    allow_operations: Sequence[str]
    environment: Mapping[str, str]
    choose_base_url: Callable[[ApiDocument], str]
    """Returns the base URL for a document, or raises UnusableSource."""


class _LoadedDocument(NamedTuple):
    """A document, and everything that is made from it."""

    catalogue: ApiCatalogue
    credentials: ApiCredentials
    base_url: str
    version: str


class HttpApi(Watched[Polling], Source):
    """The source that `openapi()` returns. Its coroutines run on the server's event loop."""

    noun = "API"

    def __init__(self, settings: ApiSettings, client: ApiClient, root: JsonObject | None, every: float) -> None:
        self._settings = settings
        self._client = client
        self.name = settings.label
        self.location = settings.location
        uris = ApiUris(settings.label)
        self.uri, self._matches = uris.top, uris.matches
        self._loaded: _LoadedDocument | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._loading_lock: asyncio.Lock | None = None
        self._servers: list[Server] = []
        self._tools: dict[int, set[str]] = {}
        """The names of the tools that this source registered, by the identity of the server."""
        self._seen: BoundedCache[str, str] = BoundedCache(MAX_SEEN_URIS)
        """The last version of each resource that is or may be watched."""
        self._document_checked_at = 0.0
        self._watches = Polling(f"wharfinger-api-{settings.label}", self._look_from_thread, every=every, sleep_ratio=1)
        if root is not None:
            self._use(self._loaded_from(root, ""))

    def __repr__(self) -> str:
        return f"openapi({self.location!r}, label={self.name!r})"

    def include_into(self, server: Server) -> None:
        """Add this source to a server, and its tools as soon as the document is loaded."""
        self._servers.append(server)
        server.add_source(self)
        if self._settings.allow_operations:
            server.serve("tools")  # clients that connect before the document is loaded must learn that there are tools
        if self._loaded is not None:
            self._register(server, self._loaded)

    # The document

    async def _load(self) -> _LoadedDocument:
        """Return the loaded document. The first call loads it.

        Raises:
            SourceUnavailable: it cannot be fetched, or cannot be used.
            MissingExtra: a library that reads it is not installed.
        """
        loop = asyncio.get_running_loop()
        if self._loop is not loop:  # the thread that looks for changes hands its requests to this loop
            self._loop, self._loading_lock = loop, None
        if self._loaded is None:
            if self._loading_lock is None:
                self._loading_lock = asyncio.Lock()
            async with self._loading_lock:
                if self._loaded is None:
                    await self._fetch_document()
        assert self._loaded is not None
        return self._loaded

    async def _fetch_document(self) -> bool:
        """Fetch the document, and use it if it has changed. Returns whether it has changed."""
        settings = self._settings
        headers = {**settings.headers, "accept": "application/json, application/yaml;q=0.9, */*;q=0.5"}
        self._document_checked_at = time.monotonic()
        if not self._client.probe_url:
            self._client.probe_url = settings.document_url
        try:
            answer = await self._client.get(settings.document_url, settings.document_url, headers, revalidate=True)
            if self._loaded is not None and self._loaded.version == answer.version:
                return False
            self._use(await asyncio.to_thread(self._loaded_from, answer.body, answer.version))
        except SourceUnavailable:
            raise
        except (ProtocolError, UnusableSource) as error:
            reason = (
                f"There is no document at {settings.location}." if isinstance(error, ResourceNotFound) else str(error)
            )
            raise SourceUnavailable(reason) from None
        return True

    def _loaded_from(self, document: bytes | JsonObject, version: str) -> _LoadedDocument:
        """Parse a document, and make all that depends on it. A large one takes a second, so this may run in a thread.

        Raises:
            UnusableSource: it or a variable with credentials cannot be used, it names a host that the operator did not
                name, or it lacks an operation that was allowed.
            MissingExtra: a library that reads it is not installed.
        """
        settings = self._settings
        root = parse_document(document, settings.location) if isinstance(document, bytes) else document
        api = read_document(root, settings.location)
        base_url = settings.base_url or settings.choose_base_url(api)
        credentials = ApiCredentials(api.schemes, settings.label, settings.environment, settings.headers)
        try:
            tools = allowed_operations(api, settings.allow_operations)
        except UnusableOperation as error:
            raise UnusableSource(f"{settings.location}: {error}") from None
        header_names = {name.lower() for name in settings.headers}
        header_names |= {name for scheme in api.schemes.values() for name in _header_names(scheme)}
        uris = ApiUris(settings.label, credentials.query_names)
        catalogue = ApiCatalogue(api, uris, tools, frozenset(header_names))
        if not catalogue.operations and not tools:
            raise UnusableSource(
                f"{settings.location} has no operation that can be read. {' '.join(catalogue.remarks[:2])}".rstrip()
            )
        return _LoadedDocument(catalogue, credentials, base_url, version)

    def _use(self, loaded: _LoadedDocument) -> None:
        """Use a document from now on. Once the server runs, this is called only on the event loop."""
        self._loaded = loaded
        catalogue, credentials = loaded.catalogue, loaded.credentials
        self._client.hide, self._client.hide_bytes = credentials.hidden, credentials.hidden_bytes
        self._client.probe_url = self._settings.document_url or f"{loaded.base_url}/"
        self.templates, self.parameters = catalogue.templates, catalogue.parameters
        if catalogue.remarks:
            log.info(
                "%s: %s left out, such as %s",
                self.name,
                many(catalogue.left_out_count, "operation"),
                catalogue.remarks[0],
            )
        for server in self._servers:
            self._register(server, loaded)
            server.list_changed("resources")

    def _register(self, server: Server, loaded: _LoadedDocument) -> None:
        """Register the tools, and remove those of an earlier document."""
        for name in self._tools.get(id(server), ()):
            if server.tools.features.has(name):
                server.tools.remove(name)
        registered: set[str] = set()
        for name, operation in loaded.catalogue.tools.items():
            tool = make_tool(loaded.catalogue.document, operation, self._call, loaded.credentials.query_names)
            try:
                server.tools.add(
                    _with_named_arguments(tool.call, name),
                    name=name,
                    description=tool.description,
                    input_schema=tool.input_schema,
                    annotations=tool.annotations,
                )
                registered.add(name)
            except ValueError as error:
                log.warning("%s: the operation %s is not offered: %s", self.name, operation.id, error)
        self._tools[id(server)] = registered

    # Requests

    def _url_and_headers(
        self, loaded: _LoadedDocument, operation: ApiOperation, path: str, query: str
    ) -> tuple[str, dict[str, str]]:
        """Return the URL and the headers of a request, with its credentials in them."""
        sent = loaded.credentials.of(operation)
        parts = [part for part in (query, query_text(sent.query)) if part]
        url = f"{loaded.base_url}{path}{'?' if parts else ''}{'&'.join(parts)}"
        headers = {name.lower(): value for name, value in self._settings.headers.items()}
        return url, joined_headers(sent.headers, headers)

    async def _get(
        self, uri: str, loaded: _LoadedDocument, target: ApiTarget, *, revalidate: bool = False
    ) -> KeptAnswer:
        assert target.operation is not None
        url, headers = self._url_and_headers(loaded, target.operation, target.path, query_text(target.pairs))
        try:
            return await self._client.get(uri, url, {"accept": ACCEPT, **headers}, revalidate=revalidate)
        except HandlerFailed as error:
            raise type(error)(str(error) + _credentials_hint(error, loaded, target.operation)) from None

    async def _call(self, operation: ApiOperation, request: ApiRequest) -> t.CallToolResult:
        """Call an operation for a tool."""
        loaded = await self._load()
        url, headers = self._url_and_headers(loaded, operation, request.path, request.query)
        response = await self._client.send(
            operation.method, url, joined_headers(request.headers, headers), request.body
        )
        try:
            return result_of(response, self.name)
        except ToolError as error:
            raise ToolError(str(error) + _credentials_hint(error, loaded, operation)) from None

    # Listing

    def matches(self, uri: str) -> bool:
        """Return whether this URI belongs to this API, whether or not it exists."""
        return self._matches(uri)

    async def _reachable(self) -> _LoadedDocument:
        """Return the loaded document, unless the last request failed and the API still cannot be reached.

        Raises:
            SourceUnavailable: it cannot be reached.
        """
        loaded = await self._load()
        if self._client.down_reason:
            await self._client.probe()
        return loaded

    async def _refresh(self, loaded: _LoadedDocument) -> _LoadedDocument:
        """Fetch the document if it was not checked recently. Returns the document that is loaded then.

        Raises:
            SourceUnavailable: the API cannot be reached.
        """
        age = time.monotonic() - self._document_checked_at
        if not self._settings.document_url or age < self._watches.every * DOCUMENT_ROUNDS:
            return loaded
        try:
            await self._fetch_document()
        except SourceUnavailable as error:
            if self._client.down_reason:
                raise
            log.warning("%s cannot be loaded again, and the earlier document stays: %s", self.location, error)
        return self._loaded or loaded

    async def probe(self) -> None:
        """Check whether the API answers.

        Raises:
            SourceUnavailable: it does not.
        """
        await self._load()
        await self._client.probe()

    async def page(self, after: str | None, limit: int) -> tuple[list[t.Resource], str | None]:
        """List the API, the groups of its operations if there are many, and the answers that need no parameters.

        Raises:
            InvalidArgument: the key is not one of this list.
            SourceUnavailable: the API cannot be reached.
        """
        loaded = await self._reachable()
        if after is None:
            loaded = await self._refresh(loaded)
        catalogue = loaded.catalogue
        return _page(catalogue.listed(), self._read_key(after), limit)

    def _read_key(self, after: str | None) -> str | None:
        """Return the URI in the key of a page.

        Raises:
            InvalidArgument: it is not such a key.
        """
        if after is None:
            return None
        uri = after.removeprefix(_KEY_PREFIX)
        if uri == after or not self.matches(uri):
            raise bad_cursor()
        return uri

    async def children(
        self, uri: str, after: str | None = None, limit: int = 1_000
    ) -> tuple[list[t.Resource], str | None]:
        """List the groups of the API (if it has few operations: the operations), or the operations of a group.

        Raises:
            ResourceNotFound: there is no such group.
            InvalidArgument: the key is not one of this list.
            SourceUnavailable: the API cannot be reached.
        """
        loaded = await self._reachable()
        target = loaded.catalogue.uris.read(uri)
        if target.kind not in ("top", "group") or (target.tag and target.tag not in loaded.catalogue.groups):
            raise ResourceNotFound(uri)
        listed = sorted(loaded.catalogue.children(target.tag), key=lambda resource: list_order(resource.uri))
        return _page(listed, self._read_key(after), limit)

    # One resource

    async def _read_target(self, uri: str) -> tuple[_LoadedDocument, ApiTarget]:
        loaded = await self._load()
        target = loaded.catalogue.uris.read(uri)
        if target.kind == "group" and target.tag not in loaded.catalogue.groups:
            raise ResourceNotFound(uri)
        return loaded, target

    async def stat(self, uri: str) -> t.Resource:
        """Describe a URI as a resource. For an answer, this asks the API for its version.

        Raises:
            ResourceNotFound: there is no such operation, or the API has no such resource.
            InvalidArgument: the query does not fit the operation.
            HandlerFailed: the API failed, or asks for credentials or to wait.
            SourceUnavailable: it cannot be reached.
        """
        loaded, target = await self._read_target(uri)
        resource = await self._stat(uri, loaded, target)
        self._watches.record(uri, self._seen.put(uri, version_of(resource)))
        return resource

    async def _stat(self, uri: str, loaded: _LoadedDocument, target: ApiTarget) -> t.Resource:
        catalogue = loaded.catalogue
        if target.kind in ("top", "group"):
            base = catalogue.uris.group(target.tag) if target.tag else catalogue.uris.top
            return msgspec.structs.replace(catalogue.resource(base), uri=uri)
        assert target.operation is not None
        if target.kind == "about":
            return catalogue.about(target.operation)
        answer = await self._get(uri, loaded, target)
        resource = catalogue.answer(target.operation, uri)
        resource.annotations = modified_annotations(answer.modified)
        resource.meta = {VERSION: answer.version}
        return resource

    async def version(self, uri: str) -> str:
        """Return the version of a resource: the ETag of an answer, or else a text that contains a digest.

        Raises:
            ResourceNotFound, InvalidArgument, HandlerFailed, SourceUnavailable: as for `stat`.
        """
        loaded, target = await self._read_target(uri)
        return version_of(await self._stat(uri, loaded, target))

    async def read(self, uri: str) -> t.ReadResourceResult:
        """Read the answer of an operation, its description, or the list of the operations.

        Raises:
            ResourceNotFound, InvalidArgument, HandlerFailed, SourceUnavailable: as for `stat`.
        """
        loaded, target = await self._read_target(uri)
        catalogue = loaded.catalogue
        if target.kind == "answer":
            return await self._read_answer(uri, loaded, target)
        if target.kind == "about":
            assert target.operation is not None
            text, mime_type = catalogue.about_text(target.operation), mime.MARKDOWN
            children: list[t.Resource] = []
        else:
            base = catalogue.uris.group(target.tag) if target.tag else catalogue.uris.top
            text, mime_type = catalogue.directory_text(base), mime.TEXT
            children = catalogue.children(target.tag)
        version = version_of(await self._stat(uri, loaded, target))
        content = t.ResourceContents(uri=uri, mime_type=mime_type, text=text, meta={VERSION: version})
        described = summaries(children, describe=lambda child: child.title or child.name)
        return t.ReadResourceResult(contents=[content, *described], ttl_ms=0, cache_scope=self.cache_scope)

    async def _read_answer(self, uri: str, loaded: _LoadedDocument, target: ApiTarget) -> t.ReadResourceResult:
        assert target.operation is not None
        answer = await self._get(uri, loaded, target)
        uris = loaded.catalogue.uris
        base = uris.answer(target.path, target.pairs)
        body, declared = _utf8(answer), answer.mime_type
        name = f"answer{_SUFFIXES.get(declared, '')}"
        contents = read_content(
            uri,
            base,
            name,
            BytesContent(body),
            target.window,
            max_bytes=MAX_WHOLE_BYTES,
            meta={VERSION: answer.version},
        )
        first = contents[0]
        is_text = first.text is not UNSET
        if declared and body and is_text != bool(mime.is_text(declared) or _is_json_or_xml(declared)):
            note = f"The API calls this {declared}, but it is {'text' if is_text else 'not text'}."
            contents.append(remark(base, note))
        elif declared:
            first.mime_type = declared
        self._link_pages(base, loaded, target, answer, contents)
        scope: t.CacheScope = "private" if answer.private else self.cache_scope
        return t.ReadResourceResult(contents=contents, ttl_ms=answer.ttl_ms, cache_scope=scope)

    def _link_pages(
        self,
        base: str,
        loaded: _LoadedDocument,
        target: ApiTarget,
        answer: KeptAnswer,
        contents: list[t.ResourceContents],
    ) -> None:
        """Link the next and previous page that the API names. Links to other windows of this answer take precedence."""
        operation = target.operation
        assert operation is not None
        first_meta: dict[str, Any] = contents[0].meta if contents[0].meta is not UNSET else {}
        url = f"{loaded.base_url}{target.path}?{query_text(target.pairs)}"
        links = page_links(operation, target.pairs, answer.link, answer.body, answer.mime_type, url)
        uris = loaded.catalogue.uris
        next_uri = _uri_of(links.next_url, loaded, target) if links.next_url else ""
        if links.next_pairs:
            kept_pairs = [(name, value) for name, value in target.pairs if name not in links.next_pairs]
            next_uri = uris.answer(target.path, [*kept_pairs, *links.next_pairs.items()])
        if next_uri and next_uri != base and NEXT not in first_meta:
            first_meta[NEXT] = next_uri
            if not any(map(is_continuation, contents)):
                contents.append(continuation(next_uri, "The API has a next page."))
        elif links.next_url and not next_uri:
            contents.append(remark(base, "The API has a next page, at a place that its document does not describe."))
        previous_uri = _uri_of(links.previous_url, loaded, target) if links.previous_url else ""
        if previous_uri and PREVIOUS not in first_meta:
            first_meta[PREVIOUS] = previous_uri

    # Completion and search

    async def complete(self, template: str, argument: str, value: str, context: Mapping[str, str]) -> list[str]:
        """Return the values of a variable that the document lists."""
        try:
            loaded = await self._load()
        except SourceUnavailable:
            return []
        return loaded.catalogue.complete(template, argument, value)

    async def documents(self, after: str | None, limit: int) -> tuple[list[Document], str | None]:
        """Return a page of the descriptions of operations, which a search finds. A search sends no requests to the API.

        Raises:
            InvalidArgument: the key is not one of this list.
            SourceUnavailable: the document cannot be loaded.
        """
        catalogue = (await self._load()).catalogue
        resources, key = _page(catalogue.descriptions(), self._read_key(after), limit)
        documents = [
            Document(
                uri=resource.uri,
                title=f"{resource.title} ({resource.name})",
                version=version_of(resource),
                mime_type=mime.MARKDOWN,
            )
            for resource in resources
        ]
        return documents, key

    async def text(self, uri: str) -> tuple[str, ...]:
        """Return the description of an operation, or nothing for other URIs.

        Raises:
            ResourceNotFound: there is no such operation.
        """
        loaded, target = await self._read_target(uri)
        if target.kind != "about" or target.operation is None:
            return ()
        return (loaded.catalogue.about_text(target.operation),)

    def describe(self) -> str:
        """Return a summary of the API, as in `12 operations, 1 tool, OpenAPI 3.1, polling every 5 s`."""
        if self._client.down_reason:
            return printable(self._client.down_reason, 190)
        if self._loaded is None:
            return "its document is being loaded"
        catalogue = self._loaded.catalogue
        parts = [many(len(catalogue.operations), "operation")]
        parts += [many(len(catalogue.tools), "tool")] * bool(catalogue.tools)
        return ", ".join([*parts, f"OpenAPI {catalogue.document.dialect}", self._watches.means])

    # Watching

    def _look_from_thread(self, uri: str | None) -> str:
        """Run `_look` on the event loop of the server, and return its result."""
        loop = self._loop
        if loop is None or loop.is_closed():
            return ""
        future = asyncio.run_coroutine_threadsafe(self._look(uri), loop)
        try:
            return future.result(LOOK_SECONDS)
        except TimeoutError:
            future.cancel()
            raise SourceUnavailable(f"{self.name} did not answer within {LOOK_SECONDS:g} s.") from None

    async def _look(self, uri: str | None) -> str:
        loaded = await self._reachable()
        if uri is None:
            return (await self._refresh(loaded)).version
        loaded, target = await self._read_target(uri)
        if target.kind != "answer":
            return version_of(await self._stat(uri, loaded, target))
        try:
            version = (await self._get(uri, loaded, target, revalidate=True)).version
        except SourceUnavailable:
            raise
        except InvalidArgument as error:
            version = f"refused: {error}"
        except HandlerFailed:  # temporary, as after too many requests, so not a change
            return self._seen.get(uri) or "failed"
        return self._seen.put(uri, version)

    # Start and close

    async def start(self) -> None:
        """Load the document. If it cannot be used now, lists show the reason, and the server tries again."""
        try:
            await self._load()
        except SourceUnavailable as error:
            log.error("%s: %s", self.name, error)
            self.breaker.failed(str(error))

    async def close(self) -> None:
        """End all watches and close the connections."""
        await super().close()
        await self._client.close()


_SUFFIXES = {
    mime.JSON: ".json", mime.HTML: ".html", "text/csv": ".csv", mime.MARKDOWN: ".md", "application/xml": ".xml",
    mime.TEXT: ".txt",
}  # fmt: skip

_is_json_or_xml = re.compile(r"json|\bxml").search  # not openxmlformats or musicxml, whose files are ZIP archives


def _utf8(answer: KeptAnswer) -> bytes:
    """Return the body in UTF-8, converted from the encoding that the API states if that is another one."""
    encoding = declared_encoding(answer.charset)
    if encoding in ("", "utf-8", "ascii"):
        return answer.body
    try:
        return answer.body.decode(encoding).encode()
    except (LookupError, ValueError):  # not a codec of text, or other bytes than it allows
        return answer.body


def _header_names(scheme: JsonObject) -> Sequence[str]:
    """Return the header in which a security scheme sends credentials; empty if it uses a query or a cookie."""
    if scheme.get("type") == "apiKey":
        return (str(scheme.get("name")).lower(),) if scheme.get("in") == "header" else ()
    return ("authorization",)


def _with_named_arguments(call: Callable[[JsonObject], Awaitable[t.CallToolResult]], name: str) -> Callable[..., Any]:
    """Return a function that takes the arguments of a tool by name."""

    async def operation(**arguments: Any) -> t.CallToolResult:
        return await call(arguments)

    operation.__name__ = name
    return operation


def _credentials_hint(error: Exception, loaded: _LoadedDocument, operation: ApiOperation) -> str:
    """Return a sentence with the variables to set if the API answered 401; otherwise an empty string."""
    if " answered 401 " not in str(error):
        return ""
    return (
        f" It needs credentials: set {' and '.join(loaded.credentials.variables(operation))} where the server starts."
    )


def _page(listed: Sequence[t.Resource], after: str | None, limit: int) -> tuple[list[t.Resource], str | None]:
    """Return a page of a list in the order of `list_order`, and the key of the next page."""
    begin = (
        0 if after is None else bisect_right(listed, list_order(after), key=lambda resource: list_order(resource.uri))
    )
    resources = list(listed[begin : begin + limit])
    return resources, _KEY_PREFIX + resources[-1].uri if resources and begin + limit < len(listed) else None


def _uri_of(url: str, loaded: _LoadedDocument, target: ApiTarget) -> str:
    """Return the URI for the URL of a page, which the API sent; an empty string if no operation fits.

    If its path is not one of the document's (GitHub's links contain numbers instead of names), its query is used with
    the path of this page. No request goes to the URL itself.
    """
    parts = split_url(url)
    if parts is None:
        return ""
    uris, base = loaded.catalogue.uris, urlsplit(loaded.base_url).path
    hidden = loaded.credentials.query_names
    pairs = [(name, value) for name, value in parse_qsl(parts.query, keep_blank_values=True) if name not in hidden]
    paths = [target.path]
    if origin_of(url) == origin_of(loaded.base_url) and parts.path.startswith(f"{base}/"):
        paths.insert(0, parts.path[len(base) :])
    for path in paths:
        uri = uris.answer(path, pairs)
        try:
            if uris.read(uri).kind == "answer":
                return uri
        except (ResourceNotFound, InvalidArgument):
            continue
    return ""
