"""Another MCP server's resources, published here: each request here becomes a request there.

This source remembers about the other server:

- its URIs (`UriIndex`): the latest 50,000 that it listed, the prefixes that they share, and its templates. They decide,
  without a request, whether a URI belongs to it (`matches`). `Discovery` fills them at the start and after each loss of
  the connection, and every list that a client reads adds to them.
- the pages of its list (`UpstreamLists`): the last four, for one second, to divide them into pages of our own size.
- the last result of `stat` for a URI, to find out whether the resource changed before its watch began.
- the reason why it cannot be reached (`UpstreamClient`), so that clients do not wait for a server that is down.

Contents are never kept. Requests to the other server carry the headers configured for it, and none of the caller.
"""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec
from msgspec import UNSET, UnsetType

from wharfinger import types as t
from wharfinger.client import Client, Retry
from wharfinger.content.mime import DIRECTORY, TEXT
from wharfinger.content.redaction import redacted_command
from wharfinger.errors import InternalError, InvalidArgument, ResourceNotFound, WharfingerError
from wharfinger.net import has_control, is_address, is_loopback, is_public
from wharfinger.policy.current import may_read
from wharfinger.protocol.breaker import Breaker
from wharfinger.protocol.limits import Limits
from wharfinger.protocol.uri.template import UriTemplate
from wharfinger.source import PROBLEM, Changed, Document, Source, UnusableSource, document_of, version_of
from wharfinger.sources.commands import find_program, split_command
from wharfinger.sources.directories import MAX_CHILDREN
from wharfinger.sources.folder.file_uri import quote
from wharfinger.sources.upstream_server.upstream_client import UpstreamClient
from wharfinger.sources.upstream_server.upstream_discovery import Discovery
from wharfinger.sources.upstream_server.upstream_lists import Cursor, Page, UpstreamLists
from wharfinger.sources.upstream_server.upstream_watch import UpstreamWatch
from wharfinger.upstreams.public_names import program_name
from wharfinger.upstreams.uri_index import UriIndex, is_uri

if TYPE_CHECKING:
    from wharfinger.server.app import Server

__all__ = ["UpstreamSource", "upstream"]

log = logging.getLogger("wharfinger.sources.upstream_server")

MAX_MESSAGE_BYTES = 48 << 20
"""Maximum size of one result: enough for contents of 32 MiB in base64."""
PATIENCE_SECONDS = 3.0
"""Time that a list of several sources waits for this server."""
LIST_SECONDS = 10.0
"""Timeout for a page of the list: the list of all sources should not wait for one server that does not answer."""
OPEN_SECONDS = 10.0
"""Timeout for connecting to a URL."""
START_SECONDS = 60.0
"""Timeout for starting a command, which may have to be downloaded first (`npx`, `uvx`)."""
SKILLS = "io.modelcontextprotocol/skills"
"""The extension whose `directoryRead` says that directories can be read."""
MAX_STATS = 5_000
"""Maximum number of URIs whose last `stat` is remembered."""
CONNECTION_META = "io.modelcontextprotocol/"
"""Prefix of the members of a result's `_meta` that are about one connection, and are not passed on."""


def upstream(
    target: str | Sequence[str],
    *,
    label: str | None = None,
    allow_private_networks: bool = False,
    headers: Mapping[str, str] | None = None,
    env: Mapping[str, str] | None = None,
    cwd: str | os.PathLike[str] | None = None,
    timeout: float = 30.0,
    revision: str | None = None,
) -> UpstreamSource:
    """Publish another server's resources: `server.include(upstream("https://harbour.example/mcp"))`.

    A command is started when this server starts, connected over stdio, and restarted if it ends.

    Args:
        target: The server's URL (Streamable HTTP, or HTTP+SSE of 2024-11-05), or the command that starts it, as a list:
            `["python", "server.py"]`.
        label: The name in errors, and for narrowing a search; by default the host, or the program's name.
        allow_private_networks: Also connect to this machine and to private networks (URLs only).
        headers: Sent with each request to the other server (URLs only). No headers of the caller are sent.
        env: Environment variables of the command, added to the few that every program needs. No others are inherited.
        cwd: The folder in which the command runs; by default the current folder.
        timeout: Seconds that one request may take.
        revision: The revision of the protocol. By default, it is negotiated.

    Raises:
        UnusableSource: the target is not an http(s) URL or is at a private address; the command is empty, or there is
            no such program or folder; or an option does not apply to this kind of target, or cannot be used.
    """
    if isinstance(target, str):
        if env is not None or cwd is not None:
            raise UnusableSource("env= and cwd= are for a command, given as a list: a URL takes headers=.")
        if bad := next((name for name, value in (headers or {}).items() if has_control(name + value)), None):
            raise UnusableSource(f"The header {bad!r} has a line break or another control character.")
        name, location = _address(target, allow_private_networks)
        options: dict[str, Any] = {"headers": headers, "open_timeout": min(OPEN_SECONDS, timeout)}
        options["allow_address"] = None if allow_private_networks else is_public
        connect_to: str | list[str] = target
    else:
        if headers is not None or allow_private_networks:
            raise UnusableSource("headers= and allow_private_networks= are for a URL: a command takes env= and cwd=.")
        parts = split_command(target)
        program, folder = find_program(parts, cwd)
        name, location = program_name(parts), redacted_command(parts)
        options = {"env": env, "cwd": folder, "open_timeout": START_SECONDS}
        connect_to = [program, *parts[1:]]

    def make_client() -> Client:
        return Client(
            connect_to,
            revision=revision,
            timeout=timeout,
            retry=Retry(attempts=2),
            limits=Limits(message=MAX_MESSAGE_BYTES, depth=128),
            cache=False,
            validate=False,
            **options,
        )

    return UpstreamSource(make_client, label or name, location, timeout)


def _address(url: str, allow_private_networks: bool) -> tuple[str, str]:
    """Return the name of a server at a URL, and its address without credentials."""
    try:
        url.encode()  # half an emoji cannot be sent
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        parts, host, port = urlsplit(""), "", None
    if parts.scheme not in ("http", "https") or not host:
        raise UnusableSource("Give the URL of the server, such as https://host/mcp, or its command as a list.")
    # The addresses of a name are checked when the connection is made.
    if not allow_private_networks and (is_loopback(host) or (is_address(host) and not is_public(host))):
        raise UnusableSource(
            f"{host} is this machine or in a private network. "
            "Allow connections to it with --allow-private-networks (allow_private_networks=True)."
        )
    return f"{host}:{port}" if port else host, f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


class UpstreamSource(Source):
    """The source that `upstream()` returns. Its methods run on the server's event loop."""

    cache_scope = "private"
    noun = "server"
    patience = PATIENCE_SECONDS

    def __init__(self, make_client: Callable[[], Client], label: str, location: str, timeout: float) -> None:
        self.name = label
        self.location = location
        self.status_uri = f"upstream://{quote(label)}"
        """The URI of the resource that reports the state of the connection."""
        self._list_timeout = min(LIST_SECONDS, timeout)
        self._client = UpstreamClient(label, make_client, self._on_state)
        self._index = UriIndex()
        self._lists = UpstreamLists(label, self._fetch)
        self._discovery = Discovery(label, self._client, self._index, self._lists, self._list_changed)
        self._upstream_watch = UpstreamWatch(self._client, label, self._find_changed, self._discovery.list_changed)
        self._server: Server | None = None
        self._status_changed: Changed | None = None
        self._stats: dict[str, bytes] = {}
        self._warned = False
        self.templates = self._index.templates

    def __repr__(self) -> str:
        return f"upstream({self.location!r}, label={self.name!r})"

    def include_into(self, server: Server) -> None:
        """Add this source to a server. Then it matches no URI of the server's other sources."""
        self._server = server
        server.add_source(self)

    # Matching

    def matches(self, uri: str) -> bool:
        """Return whether the other server may have this URI, and no other source of this server has it."""
        return uri == self.status_uri or (self._index.covers(uri) and not self._belongs_elsewhere(uri))

    def _belongs_elsewhere(self, uri: str) -> bool:
        """Return whether a URI belongs to a static resource or another source of this server.

        If two upstreams listed it, it belongs to the one that was included first.
        """
        if self._server is None:
            return False
        resources, is_earlier = self._server.resources, True
        if uri in resources.static.by_key:
            return True
        for source in resources.every_source():
            if source is self:
                is_earlier = False
            elif not isinstance(source, UpstreamSource):
                if source.matches(uri):
                    return True
            elif source._index.has(uri) and (is_earlier or not self._index.has(uri)):
                return True
        return False

    # Listing

    async def page(self, after: str | None, limit: int) -> tuple[list[t.Resource], str | None]:
        """Return a page of the other server's list.

        Raises:
            InvalidArgument: the list must be read again from the start.
            UpstreamUnreachable: the other server cannot be reached now.
            InternalError: the list never ends, or a page of it failed.
        """
        return await self._lists.page(after, limit)

    @cached_property
    def breaker(self) -> Breaker:
        """Records whether the server can be reached. It blocks no call: `UpstreamClient` fails at once by itself."""
        return Breaker(time.monotonic, quick_below=math.inf)

    async def probe(self) -> None:
        """Check whether the other server answers.

        Raises:
            UpstreamUnreachable: it does not.
        """
        await self._client.call(lambda client: client.ping())

    def placeholder(self, reason: str) -> list[t.Resource]:
        """Return the resource that reports the state of the connection."""
        return [t.Resource(uri=self.status_uri, name=self.name, title=reason, mime_type=TEXT, meta={PROBLEM: reason})]

    async def _fetch(self, cursor: Cursor) -> Page:
        try:
            resources, next_cursor = await self._client.call(
                lambda client: client.list_resources(timeout=self._list_timeout).page(cursor)
            )
        except InvalidArgument as error:
            if cursor is UNSET:
                raise InternalError(str(error)) from None
            self._lists.forget()
            raise InvalidArgument(f"The list of {self.name} has changed: list again without a cursor.") from None
        usable = [resource for resource in resources if self._is_usable(resource)]
        if len(usable) < len(resources) and not self._warned:
            self._warned = True
            log.warning("%s lists URIs that are invalid or belong to other sources: they are left out", self.name)
        self._index.add(usable, cursor)
        return usable, next_cursor

    def _is_usable(self, resource: t.Resource) -> bool:
        return bool(resource.name) and is_uri(resource.uri) and not self._belongs_elsewhere(resource.uri)

    async def stat(self, uri: str) -> t.Resource:
        """Return the resource as the other server lists it, or else as its content describes it.

        Raises:
            ResourceNotFound, InvalidArgument, UpstreamUnreachable, InternalError: as for `read`.
        """
        if uri == self.status_uri:
            title = f"{self.name} cannot be reached now" if self._client.down_reason else f"{self.name} is reachable"
            return t.Resource(uri=self.status_uri, name=self.name, title=title, mime_type=TEXT)
        resource = await self._find_listed(uri) or await self._stat_by_reading(uri)
        self._stats[uri] = msgspec.json.encode(resource)
        if len(self._stats) > MAX_STATS:
            del self._stats[next(iter(self._stats))]
        return resource

    async def version(self, uri: str) -> str:
        """Return the version that the other server states, or an empty string if it states none.

        Raises:
            ResourceNotFound, InvalidArgument, UpstreamUnreachable, InternalError: as for `read`.
        """
        return version_of(await self._find_listed(uri) or await self._stat_by_reading(uri))

    async def _find_listed(self, uri: str) -> t.Resource | None:
        """Find the resource in the current list, on the page that last had it. Returns None if it is not there."""
        if not self._index.has(uri) or self._belongs_elsewhere(uri):
            return None
        try:
            resources, _ = await self._lists.page_at(self._index.cursor_of(uri))
        except InvalidArgument:
            return None
        return next((resource for resource in resources if resource.uri == uri), None)

    async def _stat_by_reading(self, uri: str) -> t.Resource:
        content = (await self.read(uri)).contents[0]
        name = uri.rstrip("/").rpartition("/")[2] or uri
        return t.Resource(uri=uri, name=name, title=uri, mime_type=content.mime_type, meta=content.meta)

    async def children(
        self, uri: str, after: str | None = None, limit: int = MAX_CHILDREN
    ) -> tuple[list[t.Resource], str | None]:
        """List the direct entries of a directory, if the other server can read directories.

        Raises:
            ResourceNotFound: there is no such directory, or the other server cannot read directories.
            InvalidArgument: the directory must be listed again from the start.
        """
        if not is_uri(uri) or not self.matches(uri) or not await self._client.call(_reads_directories):
            raise ResourceNotFound(uri)

        async def fetch(cursor: Cursor) -> Page:
            try:
                resources, next_cursor = await self._client.call(
                    lambda client: client.read_directory(uri).page(cursor), uri
                )
            except InvalidArgument:
                raise (
                    ResourceNotFound(uri) if cursor is UNSET else InvalidArgument("List again from the start.")
                ) from None
            usable = [resource for resource in resources if self._is_usable(resource) and may_read(resource.uri)]
            return usable, next_cursor

        return await UpstreamLists(self.name, fetch).page(after, limit)

    # Reading

    async def read(self, uri: str) -> t.ReadResourceResult:
        """Read the resource from the other server, with its `ttlMs` and `cacheScope`.

        Raises:
            ResourceNotFound: the other server has no resource with this URI.
            InvalidArgument: the other server refuses the request; the message is its own.
            UpstreamUnreachable: the other server cannot be reached now.
            InternalError: the request failed, or its result cannot be used.
        """
        if uri == self.status_uri:
            text = f"{self.location}: {self.describe()}\n"
            content = t.ResourceContents(uri=self.status_uri, mime_type=TEXT, text=text)
            return t.ReadResourceResult(contents=[content], ttl_ms=0, cache_scope=self.cache_scope)
        if not is_uri(uri) or not self.matches(uri):
            raise ResourceNotFound(uri)
        answer = (await self._client.call(lambda client: client.read_resource(uri), uri)).result
        contents = [
            content for content in answer.contents if content.uri == uri or not self._belongs_elsewhere(content.uri)
        ]
        if not contents:
            raise InternalError(f"{self.name} returned no content of its own for this URI.")
        try:
            for content in contents:
                t.check_contents(content)
        except ValueError as error:
            raise InternalError(f"{self.name} sent a result that cannot be used: {error}") from None
        answer_meta = {} if isinstance(answer.meta, UnsetType) else answer.meta
        meta = {key: value for key, value in answer_meta.items() if not key.startswith(CONNECTION_META)}
        return t.ReadResourceResult(
            contents=contents,
            meta=meta or UNSET,
            ttl_ms=0 if answer.ttl_ms is UNSET else max(0, answer.ttl_ms),
            cache_scope="private" if answer.cache_scope is UNSET else answer.cache_scope,
        )

    # Completion and search

    async def complete(
        self, template: str, argument: str, value: str, context: Mapping[str, str]
    ) -> t.Completion | list[str]:
        """Return the other server's suggestions, or none if it cannot be asked."""
        listed_template = next((known for known in self._index.templates if known.uri_template == template), None)
        if listed_template is None or argument not in UriTemplate(template).variables:
            return []
        try:
            return await self._client.call(
                lambda client: client.complete(listed_template, argument, value, context or None)
            )
        except (WharfingerError, UnicodeEncodeError):
            return []

    async def documents(self, after: str | None, limit: int) -> tuple[list[Document], str | None]:
        """Return every resource except directories, with its title. The texts of another server are not copied here.

        Raises:
            InvalidArgument, InternalError: as for `page`.
            UpstreamUnreachable: the other server cannot be reached now.
        """
        resources, key = await self._lists.page(after, limit)
        return [document_of(resource) for resource in resources if resource.mime_type != DIRECTORY], key

    async def text(self, uri: str) -> tuple[str, ...]:
        """Return no text (see `documents`)."""
        return ()

    def describe(self) -> str:
        """Return a summary of the connection, as in `14 resources, 2 templates, 2025-11-25, subscribed`."""
        if self._client.down_reason:
            return f"cannot be reached: {self._client.down_reason}"[:200]
        return self._discovery.describe()

    # Watching

    def watch(self, uri: str | None, changed: Changed) -> None:
        """Watch a resource, or the list if `uri` is None, at the other server, and call `changed` after each change."""
        if uri == self.status_uri:
            self._status_changed = changed
        else:
            self._upstream_watch.watch(uri, changed)

    def unwatch(self, uri: str | None) -> None:
        """Stop watching a resource, or the list if `uri` is None."""
        if uri == self.status_uri:
            self._status_changed = None
        else:
            self._upstream_watch.unwatch(uri)

    def _on_state(self) -> None:
        """Update the lists after the other server went away or came back, perhaps with other resources."""
        if self._client.down_reason:
            self._lists.forget()  # otherwise a cached page would look like an answer
            self.breaker.failed(self._client.down_reason, time.monotonic())
        else:
            self.breaker.succeeded()
            self._discovery.restart()
        if self._status_changed is not None:
            self._status_changed(self.status_uri)

    async def _find_changed(self, uris: Sequence[str]) -> list[str]:
        """Return the URIs whose resources may have changed since their last `stat`."""
        self._lists.forget()  # once, so that URIs on the same page take one request
        return [uri for uri in uris if await self._may_have_changed(uri)]

    async def _may_have_changed(self, uri: str) -> bool:
        """Return whether a resource may have changed since its last `stat`: always if it has no version and no date."""
        known_stat = self._stats.pop(uri, None)
        try:
            current = await self._find_listed(uri)
        except WharfingerError:
            return True
        if known_stat is None or current is None:
            return True
        dated = current.annotations is not UNSET and current.annotations.last_modified is not UNSET
        return not (version_of(current) or dated) or msgspec.json.encode(current) != known_stat

    # Start and close

    async def start(self) -> None:
        """Start discovery. The other server may start later: the connection is retried, less and less often."""
        self._client.closed = False
        await self._discovery.start()

    async def close(self) -> None:
        """End all watches and close the connection."""
        await self._discovery.close()
        await self._upstream_watch.close()
        await self._client.close()
        self._lists.forget()

    def _list_changed(self) -> None:
        if self._server is not None:
            self._server.list_changed("resources")


async def _reads_directories(client: Client) -> bool:
    """Return whether a server declares that it can list directories."""
    extensions = client.capabilities.extensions
    skills = None if isinstance(extensions, UnsetType) else extensions.get(SKILLS)
    return isinstance(skills, dict) and skills.get("directoryRead") is True
