"""The client: typed calls to one MCP server, of any revision and over any transport."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, Unpack, cast, overload

import msgspec
from msgspec import UNSET, Raw, UnsetType

from wharfinger import types as t
from wharfinger.client.calls import (
    Call,
    CallManyOptions,
    CallOptions,
    Progress,
    ReadManyOptions,
)
from wharfinger.client.concurrency import gather_limited
from wharfinger.client.connect import Target, check_target
from wharfinger.client.host_entry import read_entry
from wharfinger.client.results import Listing, ReadResult, ToolResult, data_of, text_of
from wharfinger.client.session import ClientSession
from wharfinger.client.settings import ClientOptions, settings_of
from wharfinger.client.subscriptions import Watch
from wharfinger.client.task_polling import CALL_AS_TASK
from wharfinger.client.templates import Template
from wharfinger.errors import InvalidResponse, RemoteError, ToolError, WharfingerError
from wharfinger.protocol.methods import METHODS, Method

if TYPE_CHECKING:
    from wharfinger.types.skills import GetSkillResult, Skill

__all__ = ["Client"]

T = TypeVar("T")

CONCURRENT_READS = 32
"""Resources that `read_many` reads at the same time."""
CONCURRENT_CALLS = 16
"""Calls that `call_many` makes at the same time."""

_READ, _CALL = METHODS["resources/read"], METHODS["tools/call"]

ManyCall = str | tuple[str, Any]
"""A call of `call_many`: the name of a tool, alone or with its arguments."""

Ref = t.PromptReference | t.ResourceTemplateReference | t.Prompt | t.ResourceTemplate | str
"""The prompt or template whose argument to complete. A string with "://" or "{" is a template, else a prompt's name."""


class Client:
    """A connection to one MCP server, of any of the five revisions.

    `target` is a URL; a command and its arguments as a list; the path of a Python file, which is run; `unix:/path`; an
    entry of a host's configuration; or a `Server` of this process. `async with` or `open()` connects. Any task of the
    event loop may use the client, and close it.

        async with Client(["wharfinger", "serve", "charts"]) as client:
            for resource in await client.list_resources():
                print(resource.uri)

    Calls take a `timeout` in seconds (by default the client's own; `math.inf` for no limit), and may raise
    `RequestTimeout`, `ConnectionLost`, `InvalidResponse`, and `RemoteError` if the server refuses the call.
    `max_timeout` also bounds calls whose deadline is extended by progress, a question, or a task.
    """

    def __init__(self, target: Target, **options: Unpack[ClientOptions]) -> None:
        """Prepare a client. `open()` connects it.

        `ClientOptions` describes the options. Connecting: `revision`, `open_timeout`, `probe_timeout`, `info`,
        `headers`, `env`, `cwd`, `stderr`, `auth`, `allow_address`, `limits`. Calls: `timeout`, `max_timeout`, `retry`,
        `cache`, `max_pages`, `validate`, `tasks`, `middleware`, `fetch_web_resources`. Requests and messages of the
        server: `elicitation`, `consent`, `sampling`, `sampling_tools`, `roots`, `log`, `log_level`.

        Raises:
            TypeError, ValueError: the target cannot be a server, a handler is not a function, or an option is unknown.
        """
        settings = settings_of(options)
        if isinstance(target, Mapping):
            entry = read_entry(target)
            target = entry.target
            settings = msgspec.structs.replace(
                settings,
                headers={**entry.headers, **settings.headers},
                env={**entry.env, **settings.env},
                cwd=settings.cwd or entry.cwd,
            )
        self._timeout, self._max_timeout, self._max_pages = settings.timeout, settings.max_timeout, settings.max_pages
        self._session = ClientSession(check_target(target), settings)
        self._tools, self._chains = self._session.tools, self._session.chains

    # Opening and closing.

    async def open(self) -> Self:
        """Connect, and find out which revision to speak. Does nothing if the client is open.

        Raises:
            ConnectionFailed: there is no server, or it exited or did not respond; `.stderr` has the last lines of a
                command's stderr.
            NotAuthorized: the server requires credentials.
            NotMCP: the server does not speak the protocol.
            UnsupportedRevision: client and server have no revision in common, or the server does not support the
                pinned one.
            RemoteError, InvalidResponse: the server refuses to negotiate, or its answer breaks the protocol.
        """
        await self._session.open()
        return self

    async def close(self) -> None:
        """Close the connection, from any task. Waiting calls raise ConnectionLost, and iterations over watches end."""
        await self._session.close()

    async def reconnect(self) -> None:
        """Open a lost connection again, in one attempt.

        Usually you need not call this. A client with an open watch reconnects at once, and any other client at its next
        call.

        Raises:
            ConnectionLost: the client is not open, or the new connection was lost at once.
            WharfingerError: it cannot be opened; see `open`.
        """
        await self._session.connections.get(1)

    def observe_connection(self, changed: Callable[[WharfingerError | None], object]) -> None:
        """Call `changed(None)` whenever a connection is made, and `changed(error)` whenever it is lost."""
        self._session.connection_observers.append(changed)

    @property
    def is_open(self) -> bool:
        """Whether the client was opened and not closed. This stays True if its connection is lost."""
        return self._session.connections.is_open

    @property
    def watch_count(self) -> int:
        """The number of open watches."""
        return self._session.watches.count

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def transport(self) -> str:
        """The transport: `stdio`, `streamable http`, `http+sse`, `unix socket` or `memory`; empty if not connected."""
        return getattr(self._session.connections.link, "transport", "")

    # The server. These raise ConnectionLost before the client is opened.

    @property
    def server_info(self) -> t.Implementation | None:
        """The server's name and version; None if it does not give them."""
        return self._session.agreed.server_info

    @property
    def capabilities(self) -> t.ServerCapabilities:
        """The capabilities that the server declares."""
        return self._session.agreed.capabilities

    @property
    def revision(self) -> str:
        """The negotiated revision of the protocol, such as `2026-07-28`."""
        return self._session.agreed.rules.name

    @property
    def instructions(self) -> str | None:
        """The server's instructions for its use; None if it gives none."""
        return self._session.agreed.instructions

    # Resources.

    def list_resources(self, *, timeout: float | None = None, bypass_cache: bool = False) -> Listing[t.Resource]:
        """Return every resource: `await` it for a list, or iterate over it with `async for`, page by page.

        With `bypass_cache` the request is sent even if a result is cached.
        """
        return self._list(METHODS["resources/list"], "resources", timeout, bypass_cache)

    def list_resource_templates(
        self, *, timeout: float | None = None, bypass_cache: bool = False
    ) -> Listing[t.ResourceTemplate]:
        """Return every resource template; see `list_resources`."""
        return self._list(METHODS["resources/templates/list"], "resource_templates", timeout, bypass_cache)

    async def read_resource(self, uri: str, *, timeout: float | None = None, bypass_cache: bool = False) -> ReadResult:
        """Read a resource. With `bypass_cache` the request is sent even if a result is cached.

        Raises:
            ResourceNotFound: there is no such resource, or it may not be read.
        """
        params = t.ReadResourceRequestParams(uri=uri)
        return ReadResult(uri, await self._call(_READ, params, timeout, bypass_cache=bypass_cache))

    @overload
    async def read_many(
        self, uris: Iterable[str], *, errors: Literal["raise"] = "raise", **options: Unpack[ReadManyOptions]
    ) -> list[ReadResult]: ...
    @overload
    async def read_many(
        self, uris: Iterable[str], *, errors: Literal["return"], **options: Unpack[ReadManyOptions]
    ) -> list[ReadResult | WharfingerError]: ...
    async def read_many(
        self,
        uris: Iterable[str],
        *,
        concurrency: int = CONCURRENT_READS,
        errors: Literal["raise", "return"] = "raise",
        timeout: float | None = None,
        bypass_cache: bool = False,
    ) -> Any:
        """Read several resources, at most `concurrency` at a time. Returns the results in the order of `uris`.

        The first failure cancels the other reads and is raised; with `errors="return"` errors are put into the list
        instead. `timeout` is for each read.

        Raises:
            ResourceNotFound: See `read_resource`.
            ValueError: `concurrency` is not positive.
        """

        async def read(uri: str) -> ReadResult:
            return await self.read_resource(uri, timeout=timeout, bypass_cache=bypass_cache)

        return await gather_limited(read, uris, concurrency, return_errors=errors == "return")

    def template(self, name: str | t.ResourceTemplate, *, timeout: float | None = None) -> Template:
        """Return a family of resources: `await client.template("log://{vessel}/today").read(vessel="mary")`.

        `name` is a URI template (RFC 6570), an entry of `list_resource_templates`, or the name of such an entry, which
        is looked up on first use.

        Raises:
            InvalidTemplate: it is not a URI template.
        """
        return Template(self, name, timeout)

    async def complete(
        self,
        ref: Ref,
        argument: str,
        value: str = "",
        context: Mapping[str, str] | None = None,
        *,
        timeout: float | None = None,
    ) -> t.Completion:
        """Return suggestions for a prompt's argument or a template's variable; `value` is what was typed so far.

        `context` has the known values of other arguments (2025-06-18 and later).
        """
        params = t.CompleteRequestParams(
            ref=_reference(ref),
            argument=t.CompletionArgument(name=argument, value=value),
            context=UNSET if context is None else t.CompletionContext(arguments=dict(context)),
        )
        result: t.CompleteResult = await self._call(METHODS["completion/complete"], params, timeout)
        return result.completion

    def watch(self, uri: str, *more: str) -> Watch:
        """Watch resources: `async with client.watch(uri) as changes: async for change in changes: …`.

        Raises when the watch begins:
            ResourceNotFound: the server does not allow a watch of one of the resources.
        """
        return Watch(lambda: self._session.watches.begin((uri, *more), lists=False))

    def watch_lists(self) -> Watch:
        """Watch the lists of resources, tools and prompts; see `watch`."""
        return Watch(lambda: self._session.watches.begin((), lists=True))

    # Tools and prompts.

    def list_tools(self, *, timeout: float | None = None, bypass_cache: bool = False) -> Listing[t.Tool]:
        """Return every tool that the client can call; see `list_resources`."""
        return self._list(METHODS["tools/list"], "tools", timeout, bypass_cache, self._session.learn_tools)

    @overload
    async def call_tool(self, name: str, arguments: Any = None, **options: Unpack[CallOptions]) -> ToolResult[Any]: ...
    @overload
    async def call_tool(
        self, name: str, arguments: Any = None, *, returns: type[T], **options: Unpack[CallOptions]
    ) -> ToolResult[T]: ...
    async def call_tool(
        self, name: str, arguments: Any = None, *, returns: Any = UNSET, **options: Unpack[CallOptions]
    ) -> ToolResult[Any]:
        """Call a tool. `arguments` may be any value that encodes to a JSON object; with `returns=T` the `data` is a T.

        Raises:
            InvalidResponse: the result is not a T, or does not match the tool's output schema.
            ToolError: the tool failed; its text says why, and `.result` is the whole result.
        """
        encoded = UNSET if arguments is None else Raw(msgspec.json.encode(arguments))
        params = t.CallToolRequestParams(name=name, arguments=encoded)

        call = self._tool_call(name, params, **options)
        try:
            result = await self._chains[call.row](call)
        except RemoteError as error:
            if not await self._was_called_wrongly(call, error, options.get("timeout")):
                raise
            call = self._tool_call(call.params.name, params, **options)
            result = await self._chains[call.row](call)
        if result.is_error is True:
            if await self._was_called_wrongly(call, result, options.get("timeout")):
                call = self._tool_call(call.params.name, params, **options)
                result = await self._chains[call.row](call)
            if result.is_error is True:
                raise ToolError(text_of(result) or "The tool failed, without a reason.", result=result)
        name, schemas = call.params.name, self._tools.schemas  # middleware may have called another tool
        if schemas is not None and name in schemas.by_tool:
            try:
                schemas.check(name, result)
            except InvalidResponse:
                await self._tools.check_again(name, result, self._list_again(options.get("timeout")))
        return ToolResult(data_of(result, returns), result)

    @overload
    async def call_many(
        self, calls: Iterable[ManyCall], *, errors: Literal["raise"] = "raise", **options: Unpack[CallManyOptions]
    ) -> list[ToolResult[Any]]: ...
    @overload
    async def call_many(
        self, calls: Iterable[ManyCall], *, errors: Literal["return"], **options: Unpack[CallManyOptions]
    ) -> list[ToolResult[Any] | WharfingerError]: ...
    async def call_many(
        self,
        calls: Iterable[ManyCall],
        *,
        concurrency: int = CONCURRENT_CALLS,
        errors: Literal["raise", "return"] = "raise",
        timeout: float | None = None,
    ) -> Any:
        """Make several calls of tools, at most `concurrency` at a time. Returns the results in the order of `calls`.

        A call is a tool's name, or the name with arguments: `[("tide", {"hour": 7}), ("tide", {"hour": 8})]`. The first
        failure cancels the other calls and is raised; tools that were called may have run nevertheless. With
        `errors="return"` errors are put into the list instead. `timeout` is for each call.

        Raises:
            ToolError: See `call_tool`.
            ValueError: `concurrency` is not positive.
        """

        async def call(one: ManyCall) -> ToolResult[Any]:
            name, arguments = (one, None) if isinstance(one, str) else one
            return await self.call_tool(name, arguments, timeout=timeout)

        return await gather_limited(call, calls, concurrency, return_errors=errors == "return")

    def list_prompts(self, *, timeout: float | None = None, bypass_cache: bool = False) -> Listing[t.Prompt]:
        """Return every prompt; see `list_resources`."""
        return self._list(METHODS["prompts/list"], "prompts", timeout, bypass_cache)

    async def get_prompt(
        self, name: str, arguments: Mapping[str, str] | None = None, *, timeout: float | None = None
    ) -> t.GetPromptResult:
        """Get a prompt, filled in with these arguments."""
        params = t.GetPromptRequestParams(name=name, arguments=UNSET if arguments is None else dict(arguments))
        return cast("t.GetPromptResult", await self._call(METHODS["prompts/get"], params, timeout))

    # Skills (extension `io.modelcontextprotocol/skills`).

    def list_skills(self, *, timeout: float | None = None, bypass_cache: bool = False) -> Listing[Skill]:
        """Return every skill, with its files, their sizes and digests, without reading them; see `list_resources`."""
        from wharfinger.client import skills

        return self._list(skills.LIST, "skills", timeout, bypass_cache)

    async def get_skill(self, uri: str, *, timeout: float | None = None, bypass_cache: bool = False) -> Skill:
        """Return one skill, by the URI of its SKILL.md. No file is read."""
        from wharfinger.client import skills

        params = skills.GET.params(uri=uri)
        result: GetSkillResult = await self._call(skills.GET, params, timeout, bypass_cache=bypass_cache)
        return result.skill

    def read_directory(self, uri: str, *, timeout: float | None = None) -> Listing[t.Resource]:
        """Return the direct entries of a directory, if the server declares `directoryRead`; see `list_resources`."""
        from wharfinger.client import skills

        return self._list(skills.DIRECTORY, "resources", timeout, uri=uri)

    async def read_skill_file(self, skill: Skill, uri: str = "", *, timeout: float | None = None) -> ReadResult:
        """Read a file of a skill, its SKILL.md unless `uri` names another, and check it against the manifest.

        Raises:
            NotVerified: the file is not in the manifest, or differs from it. Do not use any file of the skill.
            MissingExtra: reading a SKILL.md needs the extra `skills`.
        """
        from wharfinger.client import skills

        uri = uri or skill.uri
        entry = skills.check_entry(skill, uri)
        return skills.check_file(skill, entry, await self.read_resource(uri, timeout=timeout, bypass_cache=True))

    # The connection.

    async def request(
        self,
        method: str,
        params: t.RequestParams | None = None,
        *,
        timeout: float | None = None,
        bypass_cache: bool = False,
    ) -> Any:
        """Send a request of any registered method, and return its decoded result.

        Use it for methods of extensions (`add_method`). For the protocol's own methods, prefer the methods above.

        Raises:
            KeyError: there is no such method.
        """
        row = METHODS[method]
        return await self._call(row, params or row.params(), timeout, bypass_cache=bypass_cache)

    async def ping(self, *, timeout: float | None = None) -> None:
        """Return when the server has responded. Sends `server/discover` in the stateless era, which has no `ping`."""
        method = "ping" if self._session.agreed.rules.era == "handshake" else "server/discover"
        await self._call(METHODS[method], t.RequestParams(), timeout)

    async def set_log_level(self, level: t.LoggingLevel) -> None:
        """Ask the server for log messages of this level and above; the function `log=` receives them."""
        if self._session.set_log_level(level):
            await self._call(METHODS["logging/setLevel"], t.SetLevelRequestParams(level=level), None)

    def roots_changed(self) -> None:
        """Notify the server that the roots have changed. Does nothing in the stateless era: servers ask each time."""
        if self._session.agreed.rules.era == "handshake":
            self._session.link.notify("notifications/roots/list_changed", UNSET)

    # Private: every call is a `Call` that goes through the chain of its method.

    def _call(
        self, row: Method, params: Any, timeout: float | None = None, bypass_cache: bool = False
    ) -> Awaitable[Any]:
        max_timeout = math.inf if timeout == math.inf else self._max_timeout
        seconds = self._timeout if timeout is None else timeout
        call = Call(row, params, seconds, max_timeout, bypass_cache=bypass_cache, timeout_given=timeout is not None)
        chain = self._chains.get(row) or self._session.compose(row)
        return chain(call)

    def _tool_call(
        self,
        name: str,
        params: t.CallToolRequestParams,
        timeout: float | None = None,
        max_timeout: float | None = None,
        progress: Progress | None = None,
        reset_on_progress: bool = False,
        retry: bool | None = None,
    ) -> Call:
        row = CALL_AS_TASK if name in self._tools.as_tasks else _CALL
        if max_timeout is None:
            max_timeout = math.inf if timeout == math.inf else self._max_timeout
        seconds = self._timeout if timeout is None else timeout
        return Call(
            row, params, seconds, max_timeout, progress, reset_on_progress, retry, timeout_given=timeout is not None
        )

    def _list(
        self,
        row: Method,
        member: str,
        timeout: float | None,
        bypass_cache: bool = False,
        learn: Callable[[Any], list[Any]] = list,
        **params: Any,
    ) -> Listing[Any]:
        async def page(cursor: str | UnsetType) -> tuple[list[Any], str | UnsetType]:
            result = await self._call(row, row.params(cursor=cursor, **params), timeout, bypass_cache=bypass_cache)
            following: str | UnsetType = result.next_cursor
            # The empty string is a cursor only in the stateless era; in the handshake era it means the end of the list.
            if following == "" and self._session.agreed.rules.era == "handshake":
                following = UNSET
            return learn(getattr(result, member)), following

        return Listing(page, self._max_pages)

    async def _was_called_wrongly(
        self, call: Call, failure: RemoteError | t.CallToolResult, timeout: float | None
    ) -> bool:
        """Return whether the tool must be called in another way; lists the tools again to find out."""
        return await self._tools.was_called_wrongly(call, failure, self._session.agreed, self._list_again(timeout))

    def _list_again(self, timeout: float | None) -> Callable[[], Listing[t.Tool]]:
        return lambda: self.list_tools(timeout=timeout, bypass_cache=True)


def _reference(ref: Ref) -> t.CompletionReference:
    if isinstance(ref, t.PromptReference | t.ResourceTemplateReference):
        return ref
    if isinstance(ref, t.ResourceTemplate):
        return t.ResourceTemplateReference(uri=ref.uri_template)
    if isinstance(ref, t.Prompt):
        return t.PromptReference(name=ref.name)
    return t.ResourceTemplateReference(uri=ref) if "://" in ref or "{" in ref else t.PromptReference(name=ref)
