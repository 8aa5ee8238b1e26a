"""The client: typed calls to one server, in whatever era and over whatever transport; knows neither."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self, TypeVar, overload

import msgspec
from msgspec import UNSET, Raw, UnsetType

from wharfinger import types as t
from wharfinger.client.opening import Agreement, Settings, Target, check_target, connect
from wharfinger.client.results import Listing, ReadResult, ToolResult, data_of, text_of
from wharfinger.client.watching import Connection, Watch, Watches, _Feed
from wharfinger.errors import ConnectionLost, HeaderMismatch, InvalidResponse, RemoteError, ToolError
from wharfinger.protocol.era import told
from wharfinger.protocol.exchange import open_result
from wharfinger.protocol.header_values import InvalidHeaderAnnotation, find_mirrors
from wharfinger.protocol.limits import Limits
from wharfinger.protocol.methods import METHODS, Method
from wharfinger.version import __version__

__all__ = ["Client"]

T = TypeVar("T")

LIMITS = Limits(message=128 * 1024 * 1024, depth=256)
"""What one answer may be; a server is trusted with more than a client is."""
NAME, VERSION = "wharfinger", "0"
"""What a client says of itself unless told otherwise."""

_READ, _CALL, _PROMPT = METHODS["resources/read"], METHODS["tools/call"], METHODS["prompts/get"]
_ENCODE = msgspec.json.Encoder().encode

Ref = t.PromptReference | t.ResourceTemplateReference | t.Prompt | t.ResourceTemplate | str
"""Whose argument is completed: a prompt or a template; a string with a scheme is a template, else a prompt's name."""


class Client:
    """A connection to one MCP server, of any of the five revisions.

    `target` is a URL; a command and its arguments as a list; the path of a Python file, which is run; or a `Server` of
    this process. It is opened by `async with` or by `open()`, and may be used, and closed, from any task of its loop.

        async with Client(["wharfinger", "serve", "charts"]) as client:
            for resource in await client.list_resources():
                print(resource.uri)

    Every call takes a `timeout` in seconds; without one the client's own counts, and `math.inf` is none at all. Every
    call may raise `RequestTimeout`, `ConnectionLost`, `InvalidResponse`, and `RemoteError` for what the server refuses.
    """

    def __init__(
        self,
        target: Target,
        *,
        revision: str | None = None,
        timeout: float = 60.0,
        open_timeout: float = 60.0,
        probe_timeout: float = 3.0,
        info: t.Implementation | None = None,
        headers: Mapping[str, str] | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        pages: int = 10_000,
        limits: Limits = LIMITS,
    ) -> None:
        """Nothing is opened yet.

        `revision` pins the protocol's revision, else both eras are tried: `probe_timeout` is how long a server of a
        command may be silent before it is also asked in the way of the handshake era. `headers` go with each HTTP
        request; a command runs in `cwd` with `env` in addition to what every program needs, and nothing else of this
        process's environment. `pages` bounds lists; `limits` bounds what the server sends.

        Raises:
            TypeError, ValueError: the target cannot be a server.
        """
        self._target = check_target(target)
        self._settings = Settings(
            revision=revision,
            info=info or t.Implementation(name=NAME, version=__version__),
            open_time=open_timeout,
            probe_time=probe_timeout,
            limits=limits,
            headers=dict(headers or {}),
            env=dict(env or {}),
            cwd=cwd,
        )
        self._timeout = timeout
        self._pages = pages
        self._opening = asyncio.Lock()
        self._link: Connection | None = None
        self._agreed: Agreement | None = None
        self._watches: Watches | None = None

    # Beginning and end.

    async def open(self) -> Self:
        """Connect, and find out which revision to speak. Does nothing while it is open.

        Raises:
            ConnectionFailed: there is no server, or it ended or said nothing; with a command's last lines of stderr.
            NotAuthorized: the server wants credentials.
            NotMCP: what answers does not speak the protocol.
            UnsupportedRevision: no revision in common, or not the pinned one.
        """
        async with self._opening:
            if self._link is None:
                link, agreed = await connect(self._target, self._settings)
                self._link, self._agreed = link, agreed
                self._watches = Watches(link, agreed.meta, self._timeout)
        return self

    async def close(self) -> None:
        """End the connection, from any task: calls that wait get ConnectionLost, watches come to their end."""
        async with self._opening:
            link, watches = self._link, self._watches
            self._link = self._watches = None
            if watches is not None:
                watches.close()
            if link is not None:
                await link.close()

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # What is known of the server.

    @property
    def server_info(self) -> t.Implementation | None:
        """Name and version of the server, as it says; None where it says nothing."""
        return self._agreement.server_info

    @property
    def capabilities(self) -> t.ServerCapabilities:
        """What the server declares."""
        return self._agreement.capabilities

    @property
    def revision(self) -> str:
        """The revision of the protocol that is spoken, such as `2026-07-28`."""
        return self._agreement.rules.name

    @property
    def instructions(self) -> str | None:
        """What the server tells about its use; None where it says nothing."""
        return self._agreement.instructions

    # Resources.

    def list_resources(self, *, timeout: float | None = None) -> Listing[t.Resource]:
        """Every resource: `await` it for a list, or go through it with `async for`, page by page."""

        async def page(cursor: str | UnsetType) -> tuple[list[t.Resource], str | UnsetType]:
            result: t.ListResourcesResult = await self._page("resources/list", cursor, timeout)
            return result.resources, self._following(result)

        return Listing(page, self._pages)

    def list_resource_templates(self, *, timeout: float | None = None) -> Listing[t.ResourceTemplate]:
        """Every template of resources; as `list_resources`."""

        async def page(cursor: str | UnsetType) -> tuple[list[t.ResourceTemplate], str | UnsetType]:
            result: t.ListResourceTemplatesResult = await self._page("resources/templates/list", cursor, timeout)
            return result.resource_templates, self._following(result)

        return Listing(page, self._pages)

    async def read_resource(self, uri: str, *, timeout: float | None = None) -> ReadResult:
        """What is in a resource.

        Raises:
            ResourceNotFound: there is none, or none that may be read.
        """
        params = t.ReadResourceRequestParams(uri=uri, meta=self._meta)
        return ReadResult(uri, await self._ask(_READ, params, timeout))

    async def complete(
        self,
        ref: Ref,
        argument: str,
        value: str = "",
        context: Mapping[str, str] | None = None,
        *,
        timeout: float | None = None,
    ) -> t.Completion:
        """What `value` may be the beginning of, for an argument of a prompt or a variable of a template.

        `context` holds the other arguments, as far as they are known (2025-06-18 and later).
        """
        params = t.CompleteRequestParams(
            ref=_reference(ref),
            argument=t.CompletionArgument(name=argument, value=value),
            context=UNSET if context is None else t.CompletionContext(arguments=dict(context)),
            meta=self._meta,
        )
        result: t.CompleteResult = await self._ask(METHODS["completion/complete"], params, timeout)
        return result.completion

    def watch(self, uri: str, *more: str) -> Watch:
        """Changes of one resource or several: `async with client.watch(uri) as changes: async for change in changes`.

        Raises, when it begins:
            ResourceNotFound: the server does not acknowledge a watch on it.
        """
        return Watch(lambda: self._watch((uri, *more), lists=False))

    def watch_lists(self) -> Watch:
        """Changes of the lists of resources, tools and prompts; as `watch`."""
        return Watch(lambda: self._watch((), lists=True))

    # Tools and prompts.

    def list_tools(self, *, timeout: float | None = None) -> Listing[t.Tool]:
        """Every tool; as `list_resources`."""

        async def page(cursor: str | UnsetType) -> tuple[list[t.Tool], str | UnsetType]:
            result: t.ListToolsResult = await self._page("tools/list", cursor, timeout)
            return self._usable(result.tools), self._following(result)

        return Listing(page, self._pages)

    @overload
    async def call_tool(self, name: str, arguments: Any = None, *, timeout: float | None = None) -> ToolResult[Any]: ...
    @overload
    async def call_tool(
        self, name: str, arguments: Any = None, *, returns: type[T], timeout: float | None = None
    ) -> ToolResult[T]: ...
    async def call_tool(
        self, name: str, arguments: Any = None, *, returns: Any = UNSET, timeout: float | None = None
    ) -> ToolResult[Any]:
        """Call a tool; `arguments` is what encodes to a JSON object. With `returns=T` the result's `data` is a T.

        Raises:
            InvalidResponse: the result is no T.
            ToolError: the tool failed; its text says why, and `.result` is the whole result.
        """
        given = UNSET if arguments is None else Raw(_ENCODE(arguments))
        params = t.CallToolRequestParams(name=name, arguments=given, meta=self._meta)
        try:
            result = await self._ask(_CALL, params, timeout)
        except RemoteError as error:
            if error.code != HeaderMismatch.code or self._connection.mirrors is None:
                raise
            # Nothing was done: the tool's schema says which arguments must be repeated in headers (spec: §2.8).
            await self.list_tools(timeout=timeout)
            result = await self._ask(_CALL, params, timeout)
        if result.is_error is True:
            raise ToolError(text_of(result) or "The tool failed and does not say why.", result=result)
        return ToolResult(data_of(result, returns), result)

    def list_prompts(self, *, timeout: float | None = None) -> Listing[t.Prompt]:
        """Every prompt; as `list_resources`."""

        async def page(cursor: str | UnsetType) -> tuple[list[t.Prompt], str | UnsetType]:
            result: t.ListPromptsResult = await self._page("prompts/list", cursor, timeout)
            return result.prompts, self._following(result)

        return Listing(page, self._pages)

    async def get_prompt(
        self, name: str, arguments: Mapping[str, str] | None = None, *, timeout: float | None = None
    ) -> t.GetPromptResult:
        """A prompt with its blanks filled in."""
        given = UNSET if arguments is None else dict(arguments)
        params = t.GetPromptRequestParams(name=name, arguments=given, meta=self._meta)
        result: t.GetPromptResult = await self._ask(_PROMPT, params, timeout)
        return result

    async def ping(self, *, timeout: float | None = None) -> None:
        """Return when the server has answered; the stateless era has no `ping`, so that it is asked what it is."""
        method = "ping" if self._agreement.rules.era == "handshake" else "server/discover"
        await self._ask(METHODS[method], t.RequestParams(meta=self._meta), timeout)

    # Inside.

    async def _ask(self, row: Method, params: Any, timeout: float | None) -> Any:
        link = self._link
        if link is None:
            raise ConnectionLost(_NOT_OPEN)
        answer = await link.request(row.name, params, timeout=self._timeout if timeout is None else timeout)
        if answer.error is not UNSET:
            raise told(answer)
        assert answer.result is not UNSET
        try:
            return open_result(row, answer.result)
        except InvalidResponse:
            decode = _WITH_UNKNOWN_CONTENT.get(row.name)
            if decode is None:
                raise
            try:
                return decode(answer.result)
            except msgspec.MsgspecError:
                pass
            raise

    async def _page(self, method: str, cursor: str | UnsetType, timeout: float | None) -> Any:
        return await self._ask(METHODS[method], t.PaginatedRequestParams(cursor=cursor, meta=self._meta), timeout)

    def _following(self, result: t.PaginatedResult) -> str | UnsetType:
        # The empty string is a cursor in the stateless era only; servers of the other one mean the end by it.
        cursor = result.next_cursor
        return UNSET if cursor == "" and self._agreement.rules.era == "handshake" else cursor

    def _usable(self, tools: list[t.Tool]) -> list[t.Tool]:
        """Over stateless HTTP a tool with a wrong `x-mcp-header` is left out (2026-07-28, tools)."""
        link = self._connection
        if link.mirrors is None or self._agreement.rules.era == "handshake":
            return tools
        usable: list[t.Tool] = []
        for tool in tools:
            try:
                mirrors = find_mirrors(tool.input_schema)
            except InvalidHeaderAnnotation:
                continue
            link.mirrors.pop(tool.name, None)
            if mirrors:
                link.mirrors[tool.name] = mirrors
            usable.append(tool)
        return usable

    async def _watch(self, uris: tuple[str, ...], *, lists: bool) -> tuple[Watches, _Feed]:
        if self._watches is None:
            raise ConnectionLost(_NOT_OPEN)
        return await self._watches.open(uris, lists)

    @property
    def _meta(self) -> t.RequestMeta | UnsetType:
        return UNSET if self._agreed is None else self._agreed.meta

    @property
    def _agreement(self) -> Agreement:
        if self._agreed is None:
            raise ConnectionLost(_NOT_OPEN)
        return self._agreed

    @property
    def _connection(self) -> Connection:
        if self._link is None:
            raise ConnectionLost(_NOT_OPEN)
        return self._link


_NOT_OPEN = "This client is not open: use it inside `async with`, or call open()."

_WITH_UNKNOWN_CONTENT = {
    _CALL.name: t.decode_call_tool_result,
    _PROMPT.name: t.decode_get_prompt_result,
}
"""How to read what strict decoding refuses: perhaps it is a block of a type that nobody knew when this was written."""


def _reference(ref: Ref) -> t.CompletionReference:
    if isinstance(ref, t.PromptReference | t.ResourceTemplateReference):
        return ref
    if isinstance(ref, t.ResourceTemplate):
        return t.ResourceTemplateReference(uri=ref.uri_template)
    if isinstance(ref, t.Prompt):
        return t.PromptReference(name=ref.name)
    return t.ResourceTemplateReference(uri=ref) if "://" in ref or "{" in ref else t.PromptReference(name=ref)
