"""A host as one MCP server, for agent frameworks and other hosts that would otherwise connect to each server.

Middleware answers requests for tools and prompts, since their definitions are those of other servers and may change at
any time: nothing is registered here, and no schema is compiled twice. The resources and templates come from a `Source`.
Changes that a server reports are passed on: changes of a list at once, changes of a resource while a client watches it.
"""

from __future__ import annotations

import asyncio
import bisect
import logging
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET, Raw, UnsetType

from wharfinger import types as t
from wharfinger.errors import InvalidArgument, ProtocolError, ResourceNotFound, ToolError, WharfingerError
from wharfinger.host.function_calls import error_for_clients
from wharfinger.server import Server
from wharfinger.server.features.tool_results import wrap_schema
from wharfinger.server.middleware.chain import Call, Next, Result
from wharfinger.source import Changed, Document, Source, document_of
from wharfinger.upstreams import UpstreamChange, UpstreamTool

if TYPE_CHECKING:
    from wharfinger.host.function_calling import FunctionCalling

__all__ = ["host_server"]

log = logging.getLogger("wharfinger.host")

LIST_SECONDS = 1.0
"""Time for which a list of resources is used again: for its next pages, and for other clients."""
MAX_WATCHED = 1_000
"""Maximum number of resources that are watched at the servers at the same time."""
WATCH_AGAIN_SECONDS = 2.0
"""Time after which a watch that ended, or could not begin, is tried again."""
CONNECTION_META = "io.modelcontextprotocol/"
"""Prefix of the members of a result's `_meta` that are about one connection, and are not passed on."""


def host_server(host: FunctionCalling, name: str) -> Server:
    """Return the server of a host; see `Host.as_server`."""
    upstreams = host.upstreams

    def changed(change: UpstreamChange) -> None:
        resources.forget()
        for kind in ("tools", "prompts", "resources") if change.kind == "status" else (change.kind,):
            server.list_changed(kind)

    @asynccontextmanager
    async def follow_changes(server: Server) -> AsyncGenerator[None]:
        stop = upstreams.on_change(changed)
        try:
            yield
        finally:
            stop()

    server = Server(name, title=name, lifespan=follow_changes)
    resources = _HostResources(host)
    server.include(resources)
    server.serve("tools")
    server.serve("prompts")

    @server.middleware("tools/list")
    async def list_tools(call: Call, next: Next) -> Result:
        listed = _decoded(await next(call), t.ListToolsResult)
        if _has_cursor(call):
            return listed
        only_objects = not call.caller.rules.any_structured_content
        tools = [_definition(offered, only_objects) for offered in await upstreams.tools()]
        return msgspec.structs.replace(listed, tools=[*tools, *listed.tools])

    @server.middleware("tools/call")
    async def call_tool(call: Call, following: Next) -> Result:
        params: t.CallToolRequestParams = call.params
        tool = next((offered.tool for offered in await upstreams.tools() if offered.name == params.name), None)
        if tool is None:
            return await following(call)
        call.wraps = _wraps(tool)
        arguments = params.arguments
        decoded_arguments: Any = {} if isinstance(arguments, UnsetType) else msgspec.json.decode(arguments)
        try:
            result = (await host.call_tool(params.name, decoded_arguments)).result
        except ToolError as error:
            if not isinstance(error.result, t.CallToolResult):
                raise
            result = error.result
        except ProtocolError as error:
            if not error.remote:
                raise
            return _failed(error)
        except WharfingerError as error:
            return _failed(error)
        return msgspec.structs.replace(result, meta=_passed_on(result.meta))

    @server.middleware("resources/templates/list")
    async def list_templates(call: Call, next: Next) -> Result:
        if not _has_cursor(call):
            await resources.refresh_templates()
        return await next(call)

    @server.middleware("prompts/list")
    async def list_prompts(call: Call, next: Next) -> Result:
        listed = _decoded(await next(call), t.ListPromptsResult)
        if _has_cursor(call):
            return listed
        prompts = [
            msgspec.structs.replace(offered.prompt, name=offered.name, meta=_passed_on(offered.prompt.meta))
            for offered in await upstreams.prompts()
        ]
        return msgspec.structs.replace(listed, prompts=[*prompts, *listed.prompts])

    @server.middleware("prompts/get")
    async def get_prompt(call: Call, next: Next) -> Result:
        params: t.GetPromptRequestParams = call.params
        if all(offered.name != params.name for offered in await upstreams.prompts()):
            return await next(call)
        arguments = None if isinstance(params.arguments, UnsetType) else params.arguments
        try:
            result = await host.prompt(params.name, arguments)
        except WharfingerError as error:
            raise InvalidArgument(error_for_clients(error)) from None
        return msgspec.structs.replace(result, meta=_passed_on(result.meta))

    return server


def _definition(offered: UpstreamTool, only_objects: bool) -> t.Tool:
    """Return the tool as it is listed here; older revisions allow only objects as structured content."""
    tool = offered.tool
    schema = tool.output_schema
    if only_objects and _wraps(tool) and not isinstance(schema, UnsetType):
        schema = wrap_schema(schema)
    return msgspec.structs.replace(
        tool, name=offered.name, output_schema=schema, execution=UNSET, meta=_passed_on(tool.meta)
    )


def _wraps(tool: t.Tool) -> bool:
    """Return whether older revisions get the structured content as `{"result": …}`."""
    return not isinstance(tool.output_schema, UnsetType) and tool.output_schema.get("type") != "object"


def _failed(error: WharfingerError) -> t.CallToolResult:
    return t.CallToolResult(content=[t.TextContent(text=error_for_clients(error))], is_error=True)


def _has_cursor(call: Call) -> bool:
    return not isinstance(call.params.cursor, UnsetType)


def _decoded(result: Any, kind: Any) -> Any:
    """Return the result of a list request, which may be encoded already, as an object."""
    return msgspec.json.decode(result, type=kind) if isinstance(result, Raw) else result


def _passed_on(meta: Any) -> Any:
    """Return the members of a `_meta` that are about the data, and not about a connection."""
    if isinstance(meta, UnsetType):
        return UNSET
    return {key: value for key, value in meta.items() if not key.startswith(CONNECTION_META)} or UNSET


class _HostResources(Source):
    """The resources and templates of all servers of a host."""

    name = "host"
    noun = "host"
    cache_scope = "private"

    def __init__(self, host: FunctionCalling) -> None:
        self._host = host
        self._upstreams = host.upstreams
        self._listed: tuple[float, list[t.Resource]] = (-LIST_SECONDS, [])
        """When the list was read, by the monotonic clock, and the list."""
        self._watches: dict[str, asyncio.Task[None]] = {}
        self._waiting: dict[str, Changed] = {}
        """The watches beyond the limit, which begin when others end."""
        self._templates: list[t.ResourceTemplate] = []
        self.templates = self._templates

    async def start(self) -> None:
        """Read the templates. They are read again whenever they, or the resources, are listed."""
        await self.refresh_templates()

    async def close(self) -> None:
        """End every watch."""
        self._waiting.clear()
        for uri in list(self._watches):
            self.unwatch(uri)

    def matches(self, uri: str) -> bool:
        """Return whether a server may have this URI."""
        for upstream in self._upstreams.values():
            if upstream.status not in ("down", "disabled") and upstream.offers_uri(uri):
                # A single server is asked in any case. A server that has not listed its URIs yet may have this one.
                must_ask = len(self._upstreams) == 1 or not upstream.knows("uris")
                if must_ask or upstream.uris.covers(uri):
                    return True
        return False

    async def page(self, after: str | None, limit: int) -> tuple[list[t.Resource], str | None]:
        """Return a page of the resources of all servers, in the order of their URIs."""
        resources = await self._resources()
        first = 0 if after is None else bisect.bisect_right(resources, after, key=_uri)
        page = resources[first : first + limit]
        return page, page[-1].uri if page and first + limit < len(resources) else None

    async def _resources(self) -> list[t.Resource]:
        now, last = time.monotonic(), self._listed
        if now - last[0] < LIST_SECONDS:
            return last[1]
        await self.refresh_templates()
        by_uri: dict[str, t.Resource] = {}
        for offered in await self._upstreams.resources():
            resource = offered.resource
            by_uri.setdefault(resource.uri, msgspec.structs.replace(resource, meta=_passed_on(resource.meta)))
        resources = sorted(by_uri.values(), key=_uri)
        if self._listed is last:  # otherwise it changed while it was read, or another call has read it
            self._listed = (now, resources)
        return resources

    def forget(self) -> None:
        """Read the list again when it is next needed."""
        self._listed = (-LIST_SECONDS, [])

    async def refresh_templates(self) -> None:
        """Read the templates again, if they may have changed. Of equal ones, that of the first server counts."""
        templates: dict[str, t.ResourceTemplate] = {}
        for offered in await self._upstreams.templates():
            template = offered.template
            passed_on = msgspec.structs.replace(template, meta=_passed_on(template.meta))
            templates.setdefault(template.uri_template, passed_on)
        self._templates[:] = templates.values()

    async def stat(self, uri: str) -> t.Resource:
        """Return the resource as it is listed, or else as its content describes it.

        Raises:
            ResourceNotFound, InvalidArgument: it is not listed, and cannot be read (see `read`).
        """
        resources = await self._resources()
        index = bisect.bisect_left(resources, uri, key=_uri)
        if index < len(resources) and resources[index].uri == uri:
            return resources[index]
        contents = (await self.read(uri)).contents
        name = uri.rstrip("/").rpartition("/")[2] or uri
        return t.Resource(uri=uri, name=name, mime_type=contents[0].mime_type if contents else UNSET)

    async def read(self, uri: str) -> t.ReadResourceResult:
        """Read a resource of the server that has it.

        Raises:
            ResourceNotFound: no server has it.
            InvalidArgument: several servers have it, or its server cannot or may not read it.
        """
        try:
            result = (await self._host.read(uri)).result
        except ResourceNotFound:
            raise ResourceNotFound(uri) from None
        except InvalidArgument:
            raise
        except WharfingerError as error:
            raise InvalidArgument(error_for_clients(error)) from None
        return t.ReadResourceResult(
            contents=result.contents,
            meta=_passed_on(result.meta),
            ttl_ms=0 if isinstance(result.ttl_ms, UnsetType) else max(0, result.ttl_ms),
            cache_scope="private",
        )

    async def documents(self, after: str | None, limit: int) -> tuple[list[Document], str | None]:
        """Return a page of the resources with their titles. The texts are not searched here."""
        resources, key = await self.page(after, limit)
        return [document_of(resource) for resource in resources], key

    async def text(self, uri: str) -> tuple[str, ...]:
        """Return no text."""
        return ()

    async def complete(
        self, template: str, argument: str, value: str, context: Mapping[str, str]
    ) -> t.Completion | list[str]:
        """Return the suggestions of the server that has the template, or none if it cannot be asked."""
        for offered in await self._upstreams.templates():
            if offered.template.uri_template == template:
                try:
                    client = self._upstreams[offered.server].client
                    return await client.complete(offered.template, argument, value, context or None)
                except WharfingerError:
                    return []
        return []

    def watch(self, uri: str | None, changed: Changed) -> None:
        """Watch a resource at its server. The list needs no watch: servers' changes are always reported."""
        if uri is not None and uri not in self._watches:
            self._waiting[uri] = changed
            self._begin_watches()

    def unwatch(self, uri: str | None) -> None:
        """Stop watching a resource."""
        if uri is not None:
            self._waiting.pop(uri, None)
            if (task := self._watches.pop(uri, None)) is not None:
                task.cancel()
            self._begin_watches()

    def _begin_watches(self) -> None:
        """Begin the watches that wait, as many as the limit allows."""
        while self._waiting and len(self._watches) < MAX_WATCHED:
            uri = next(iter(self._waiting))
            follow = self._follow(uri, self._waiting.pop(uri))
            self._watches[uri] = asyncio.get_running_loop().create_task(follow)

    async def _follow(self, uri: str, changed: Changed) -> None:
        """Report the changes of a resource, also after its server could not be reached for a while."""
        while True:
            try:
                upstreams = await self._upstreams.servers_of(uri)
                if upstreams:
                    async with upstreams[0].client.watch(uri) as changes:
                        changed(uri)  # it may have changed since it was last read
                        async for change in changes:
                            changed(change.uri)
            except WharfingerError as error:
                log.debug("%s cannot be watched now: %s", uri, error)
            await asyncio.sleep(WATCH_AGAIN_SECONDS)


def _uri(resource: t.Resource) -> str:
    return resource.uri
