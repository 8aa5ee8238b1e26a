"""Another MCP server's resources, published here: listed, read, completed and watched there when somebody asks here.

Refuses to know who asks: what goes to the other server is what its own headers and the URI say, and nothing of callers.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec
from msgspec import UNSET, UnsetType

from wharfinger import types as t
from wharfinger.client import Client, Retry
from wharfinger.content.mime import DIRECTORY, TEXT
from wharfinger.content.redaction import redacted_command
from wharfinger.errors import InternalError, InvalidArgument, ResourceNotFound, WharfingerError
from wharfinger.net import is_loopback, is_public
from wharfinger.protocol.limits import Limits
from wharfinger.protocol.uri.template import UriTemplate
from wharfinger.source import Changed, Document, Source, UnusableSource, version_of
from wharfinger.sources.commands import find_program, split_command
from wharfinger.sources.folder.file_uri import quote
from wharfinger.sources.upstream_server.discovery import LEARNED, Discovery
from wharfinger.sources.upstream_server.upstream_client import UpstreamClient, UpstreamUnreachable
from wharfinger.sources.upstream_server.upstream_lists import Cursor, Page, UpstreamLists
from wharfinger.sources.upstream_server.upstream_watch import UpstreamWatch
from wharfinger.sources.upstream_server.uri_index import UriIndex, is_uri

if TYPE_CHECKING:
    from wharfinger.server.app import Server

__all__ = ["Upstream", "upstream"]

log = logging.getLogger("wharfinger.sources.upstream_server")

ANSWER = 48 << 20
"""Bytes of one answer: contents of 32 MiB in base64."""
LISTED = 10.0
"""Seconds for a page of the list: who lists everything should not wait for one server that does not answer."""
SEARCHED = 2.0
"""Seconds of one search."""
OPENED = 10.0
"""Seconds for finding out what the server speaks."""
STARTED = 60.0
"""Seconds for starting a command, which may have to be downloaded before (`npx`, `uvx`)."""
SKILLS = "io.modelcontextprotocol/skills"
"""The extension whose `directoryRead` says that directories can be read."""
_RUNNERS = frozenset({"bun", "bunx", "deno", "node", "npx", "pipx", "python", "uv", "uvx"})
_NAME = re.compile(r"[\w.@-]{1,64}").fullmatch  # and no code, as after `python -c`
_WORDS_OF_RUNNERS = frozenset({"dlx", "exec", "run", "tool", "x"})
ITS_OWN = "io.modelcontextprotocol/"
"""Members of a result's `_meta` that speak of one connection: who answers, and for which request."""


def upstream(
    target: str | Sequence[str],
    *,
    label: str | None = None,
    allow_private: bool = False,
    headers: Mapping[str, str] | None = None,
    env: Mapping[str, str] | None = None,
    cwd: str | os.PathLike[str] | None = None,
    timeout: float = 30.0,
    revision: str | None = None,
) -> Upstream:
    """Publish another server's resources: `server.include(upstream("https://harbour.example/mcp"))`.

    A command is started when the server starts, spoken to over stdio, and started again after it ended.

    Args:
        target: Its address (Streamable HTTP, or HTTP+SSE of 2024-11-05); or the command that starts it, as a list:
            `["python", "server.py"]`.
        label: What it is called in errors and where a search is narrowed; its host or its program's name by default.
        allow_private: Also connect to this machine and to private networks (a URL).
        headers: Sent with each request to it (a URL). Nothing of who asks here is.
        env: Variables of a command, besides the few that every program needs; nothing else of this process's.
        cwd: The folder in which a command runs; the current one by default.
        timeout: Seconds that one of its answers may take.
        revision: The revision of the protocol to speak with it; found out by default.

    Raises:
        UnusableSource: it is no http(s) URL, or at a private address; there is no such program or folder; or an option
            is given that is not for this kind of target.
    """
    if isinstance(target, str):
        if env is not None or cwd is not None:
            raise UnusableSource("env= and cwd= are for a command, given as a list: a URL takes headers=.")
        name, place = _address(target, allow_private)
        options: dict[str, Any] = {"headers": headers, "open_timeout": min(OPENED, timeout)}
        options["allow_address"] = None if allow_private else is_public
        reached: str | list[str] = target
    else:
        if headers is not None or allow_private:
            raise UnusableSource("headers= and allow_private= are for a URL: a command takes env= and cwd=.")
        parts = split_command(target)
        program, folder = find_program(parts, cwd)
        name, place = _program_name(parts), redacted_command(parts)
        options = {"env": env, "cwd": folder, "open_timeout": STARTED}
        reached = [program, *parts[1:]]

    def client() -> Client:
        return Client(
            reached,
            revision=revision,
            timeout=timeout,
            retry=Retry(attempts=2),
            limits=Limits(message=ANSWER, depth=128),
            cache=False,
            validate=False,
            **options,
        )

    return Upstream(client, label or name, place, timeout)


def _address(url: str, allow_private: bool) -> tuple[str, str]:
    """What a server at a URL is called, and its address without what is secret."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        parts, host, port = urlsplit(""), "", None
    if parts.scheme not in ("http", "https") or not host:
        raise UnusableSource("An upstream is a URL such as https://host/mcp, or a command as a list.")
    if not allow_private and (is_loopback(host) or _is_private(host)):
        raise UnusableSource(
            f"{host} is this machine or in a private network, and is not connected to: "
            "allow it by --allow-private (allow_private=True) if you mean it."
        )
    return f"{host}:{port}" if port else host, f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def _program_name(parts: Sequence[str]) -> str:
    """What a command is called: its program, or what `npx`, `uvx` or an interpreter is to run."""
    names = [os.path.splitext(os.path.basename(part))[0] for part in parts if not part.startswith("-")]
    names = [name for name in names if name not in _WORDS_OF_RUNNERS]
    runs = len(names) > 1 and names[0].rstrip("0123456789.") in _RUNNERS and _NAME(names[1])
    return names[1] if runs else os.path.basename(parts[0])


class Upstream(Source):
    """The source that `upstream()` makes. Its methods are coroutine functions of the server's loop."""

    cache_scope = "private"

    def __init__(self, client: Callable[[], Client], label: str, place: str, timeout: float) -> None:
        self.name = label
        self.location = place
        self.status = f"upstream://{quote(label)}"
        """The URI that says how the connection is."""
        self._listing = min(LISTED, timeout)
        self._reach = UpstreamClient(label, client)
        self._known = UriIndex()
        self._lists = UpstreamLists(label, self._fetch)
        self._following = UpstreamWatch(self._reach, label, self._may_have_changed)
        self._learning = Discovery(label, self._reach, self._known, self._lists, self._tell_list)
        self._reach.turned = self._turned
        self._following.list_changed = self._learning.list_changed
        self._server: Server | None = None
        self._told_of_status: Changed | None = None
        self._stats: dict[str, bytes] = {}
        self._warned = False
        self.templates = self._known.templates

    def __repr__(self) -> str:
        return f"upstream({self.location!r}, label={self.name!r})"

    def include_into(self, server: Server) -> None:
        """Add this source to a server, whose other sources' URIs it then never claims."""
        self._server = server
        server.add_source(self)

    # Whose a URI is

    def matches(self, uri: str) -> bool:
        """Whether the other server has shown this URI, one beside it or a template of it, and no source here has it."""
        return uri == self.status or (self._known.covers(uri) and not self._anothers(uri))

    def _anothers(self, uri: str) -> bool:
        """Whether it is of another source: what is here always wins, and of two upstreams the one that listed it."""
        if self._server is None:
            return False
        resources, before = self._server.resources, True
        if uri in resources.static.by_key:
            return True
        for source in resources.every_source():
            if source is self:
                before = False
            elif not isinstance(source, Upstream):
                if source.matches(uri):
                    return True
            elif source._known.has(uri) and (before or not self._known.has(uri)):
                return True
        return False

    # Listing

    async def page(self, after: str | None, limit: int) -> tuple[list[t.Resource], str | None]:
        """The other server's list; while it cannot be reached one resource that says so, and hides no other source's.

        Raises:
            InvalidArgument: the list must be begun anew.
            InternalError: the list has no end, or broke off.
        """
        try:
            return await self._lists.page(after, limit)
        except UpstreamUnreachable:
            if after is not None:
                raise
            return [self._status()], None

    async def _fetch(self, cursor: Cursor) -> Page:
        try:
            resources, following = await self._reach.ask(
                lambda client: client.list_resources(timeout=self._listing).page(cursor)
            )
        except InvalidArgument:
            self._lists.forget()
            raise InvalidArgument(f"The list of {self.name} has begun anew: list again without a cursor.") from None
        usable = [resource for resource in resources if self._usable(resource)]
        if len(usable) < len(resources) and not self._warned:
            self._warned = True
            log.warning("%s lists URIs that are none, or another source's: they are left out", self.name)
        self._known.learn(usable, cursor)
        return usable, following

    def _usable(self, resource: t.Resource) -> bool:
        return bool(resource.name) and is_uri(resource.uri) and not self._anothers(resource.uri)

    async def stat(self, uri: str) -> t.Resource:
        """What the other server's list says of it, or else its content.

        Raises:
            ResourceNotFound: it has none of this URI.
        """
        if uri == self.status:
            return self._status()
        resource = await self._listed(uri) or await self._described(uri)
        self._stats[uri] = msgspec.json.encode(resource)
        if len(self._stats) > LEARNED:
            del self._stats[next(iter(self._stats))]
        return resource

    async def version(self, uri: str) -> str:
        """The version that the other server says; empty where it says none.

        Raises:
            ResourceNotFound: it has none of this URI.
        """
        return version_of(await self._listed(uri) or await self._described(uri))

    async def _listed(self, uri: str) -> t.Resource | None:
        """The resource as the list's page shows it now that it stood on."""
        if not self._known.has(uri) or self._anothers(uri):
            return None
        try:
            resources, _ = await self._lists.at(self._known.page_of(uri))
        except InvalidArgument:
            return None
        return next((resource for resource in resources if resource.uri == uri), None)

    async def _described(self, uri: str) -> t.Resource:
        content = (await self.read(uri)).contents[0]
        name = uri.rstrip("/").rpartition("/")[2] or uri
        return t.Resource(uri=uri, name=name, title=uri, mime_type=content.mime_type, meta=content.meta)

    async def children(
        self, uri: str, after: str | None = None, limit: int = 1_000
    ) -> tuple[list[t.Resource], str | None]:
        """What is directly in a directory, where the other server can tell.

        Raises:
            ResourceNotFound: there is no such directory, or it cannot tell.
            InvalidArgument: the listing must be begun anew.
        """
        if not is_uri(uri) or not self.matches(uri) or not await self._tells_directories():
            raise ResourceNotFound(uri)

        async def fetch(cursor: Cursor) -> Page:
            try:
                found, following = await self._reach.ask(lambda client: client.read_directory(uri).page(cursor), uri)
            except InvalidArgument:
                raise (
                    ResourceNotFound(uri) if cursor is UNSET else InvalidArgument("List again from the start.")
                ) from None
            usable = [resource for resource in found if self._usable(resource)]
            return usable, following

        return await UpstreamLists(self.name, fetch).page(after, limit)

    async def _tells_directories(self) -> bool:
        async def look(client: Client) -> bool:
            extensions = client.capabilities.extensions
            skills = None if isinstance(extensions, UnsetType) else extensions.get(SKILLS)
            return isinstance(skills, dict) and skills.get("directoryRead") is True

        return await self._reach.ask(look)

    # Reading

    async def read(self, uri: str) -> t.ReadResourceResult:
        """What the other server answers, with how long it is good and for whom.

        Raises:
            ResourceNotFound: it has none of this URI.
            InvalidArgument: it refuses what the URI asks for, in its words.
            Unreachable: it cannot be reached now.
        """
        if uri == self.status:
            return self._read_status()
        if not is_uri(uri) or not self.matches(uri):
            raise ResourceNotFound(uri)
        answer = (await self._reach.ask(lambda client: client.read_resource(uri), uri)).result
        contents = [content for content in answer.contents if content.uri == uri or not self._anothers(content.uri)]
        if not contents:
            raise InternalError(f"{self.name} gives nothing for this URI that is its own.")
        for content in contents:
            t.check_contents(content)
        given = {} if isinstance(answer.meta, UnsetType) else answer.meta
        meta = {key: value for key, value in given.items() if not key.startswith(ITS_OWN)}
        return t.ReadResourceResult(
            contents=contents,
            meta=meta or UNSET,
            ttl_ms=0 if answer.ttl_ms is UNSET else max(0, answer.ttl_ms),
            cache_scope="private" if answer.cache_scope is UNSET else answer.cache_scope,
        )

    def _status(self) -> t.Resource:
        title = f"{self.name} cannot be reached now" if self._reach.down else f"{self.name} is reached"
        return t.Resource(uri=self.status, name=self.name, title=title, mime_type=TEXT)

    def _read_status(self) -> t.ReadResourceResult:
        text = f"{self.location}: {self.describe()}\n"
        content = t.ResourceContents(uri=self.status, mime_type=TEXT, text=text)
        return t.ReadResourceResult(contents=[content], ttl_ms=0, cache_scope=self.cache_scope)

    # Finding

    async def complete(self, template: str, argument: str, value: str, context: Mapping[str, str]) -> list[str]:
        """What the other server suggests; nothing where it suggests nothing, or cannot be asked."""
        ours = next((one for one in self._known.templates if one.uri_template == template), None)
        if ours is None or argument not in UriTemplate(template).variables:
            return []
        try:
            found = await self._reach.ask(lambda client: client.complete(ours, argument, value, context or None))
        except (WharfingerError, UnicodeEncodeError):
            return []
        return list(found.values)[:100]

    async def documents(self, after: str | None, limit: int) -> tuple[list[Document], str | None]:
        """Every resource by its title: texts of another server are not copied here.

        Raises:
            InvalidArgument, InternalError: as `page`; Unreachable also at the beginning.
        """
        resources, key = await self._lists.page(after, limit)
        return [_document(resource) for resource in resources if resource.mime_type != DIRECTORY], key

    async def text(self, uri: str) -> tuple[str, ...]:
        """Nothing: see `documents`."""
        return ()

    def describe(self) -> str:
        """What it has, as far as it is known, such as `14 resources, 2 templates, 2025-11-25, subscribed`."""
        if self._reach.down:
            return f"cannot be reached: {self._reach.down}"[:200]
        return self._learning.describe()

    # Watching

    def watch(self, uri: str | None, changed: Changed) -> None:
        """Watch it at the other server, and tell `changed`."""
        if uri == self.status:
            self._told_of_status = changed
        else:
            self._following.watch(uri, changed)

    def unwatch(self, uri: str | None) -> None:
        """Watch it there no more."""
        if uri == self.status:
            self._told_of_status = None
        else:
            self._following.unwatch(uri)

    def _turned(self) -> None:
        """It went, or came back, perhaps as another one."""
        if not self._reach.down:
            self._learning.again()
        if self._told_of_status is not None:
            self._told_of_status(self.status)

    async def _may_have_changed(self, uri: str) -> bool:
        """Whether it may have changed since `stat`: also where the other server says nothing that could tell."""
        before = self._stats.pop(uri, None)
        self._lists.forget()
        try:
            now = await self._listed(uri)
        except WharfingerError:
            return True
        tells = now is not None and (version_of(now) or now.annotations is not UNSET)
        return before is None or not tells or msgspec.json.encode(now) != before

    # Life

    async def start(self) -> None:
        """Begin to learn what there is. It need not be there: it is tried again, more and more seldom."""
        self._reach.closed = False
        await self._learning.start()

    async def close(self) -> None:
        """Watch and ask no more."""
        await self._learning.close()
        await self._following.close()
        await self._reach.close()
        self._lists.forget()

    def _tell_list(self) -> None:
        if self._server is not None:
            self._server.list_changed("resources")


def _is_private(host: str) -> bool:
    import ipaddress

    try:
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False  # a name: the addresses behind it are judged when it is connected to
    return not is_public(host)


def _document(resource: t.Resource) -> Document:
    return Document(
        uri=resource.uri,
        title=resource.title or resource.name,
        version=version_of(resource),
        mime_type=resource.mime_type or "",
    )
