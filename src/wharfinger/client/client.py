"""The client: typed calls to one server, in whatever era and over whatever transport; knows neither."""

from __future__ import annotations

import asyncio
import logging
import math
import os
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, overload

import msgspec
from msgspec import UNSET, Raw, UnsetType

from wharfinger import types as t
from wharfinger.client.cache import Cache, Shelf
from wharfinger.client.callbacks import Telling
from wharfinger.client.calls import Budget, Call, Deadline, Hook, Next, Progress, around, check_hook
from wharfinger.client.concurrency import in_order
from wharfinger.client.connect import Agreement, Settings, Target, check_target
from wharfinger.client.connection import NOT_OPEN, Living
from wharfinger.client.host_entry import read_entry
from wharfinger.client.input_handlers import Answering, Consent, Elicit, Roots, Sample
from wharfinger.client.multi_round import Arrivals, drive_task, open_any, perform, urls_wanted
from wharfinger.client.output_schemas import Outputs
from wharfinger.client.results import Listing, ReadResult, ToolResult, data_of, text_of
from wharfinger.client.retry import Retry
from wharfinger.client.subscriptions import Connection, Watch
from wharfinger.client.task_polling import CANCEL, TaskCalls, as_task, drive_task_call, started_in
from wharfinger.client.templates import SHOWN, Template, no_template
from wharfinger.errors import (
    ConnectionLost,
    HeaderMismatch,
    RemoteError,
    RemoteMethodNotFound,
    RequestTimeout,
    ToolError,
    WharfingerError,
)
from wharfinger.protocol.http.headers import InvalidHeaderAnnotation, find_header_params
from wharfinger.protocol.interfaces import Authorize
from wharfinger.protocol.jsonrpc import Message
from wharfinger.protocol.limits import Limits
from wharfinger.protocol.methods import METHODS, Method
from wharfinger.protocol.negotiation import told
from wharfinger.protocol.request import open_result
from wharfinger.types.task_extension import TASKS, TaskStarted
from wharfinger.version import __version__

if TYPE_CHECKING:
    from wharfinger.types.skills import GetSkillResult, ListSkillsResult, Skill

__all__ = ["Client"]

T = TypeVar("T")

logger = logging.getLogger("wharfinger.client")

LIMITS = Limits(message=128 * 1024 * 1024, depth=256)
"""What one answer may be; a server is trusted with more than a client is."""
NAME, VERSION = "wharfinger", "0"
"""What a client says of itself unless told otherwise."""
LONGEST = 3600.0
"""Seconds that a call may take with everything that puts its deadline off."""
AT_ONCE = 32
"""Resources that `read_many` asks for at once."""
MOST_MIRRORED = 10_000
"""Tools of which it is remembered which arguments headers repeat; their server refuses calls of any more."""
GOODBYE = 5.0
"""Seconds for telling a server that a task is not wanted any more."""

_READ, _CALL, _PROMPT = METHODS["resources/read"], METHODS["tools/call"], METHODS["prompts/get"]
_SET_LEVEL, _CANCEL_TASK = METHODS["logging/setLevel"], METHODS["tasks/cancel"]
_PROGRESS, _LOG, _COMPLETE = (
    "notifications/progress",
    "notifications/message",
    "notifications/elicitation/complete",
)
_decode_progress = msgspec.json.Decoder(t.ProgressNotificationParams).decode
_decode_log = msgspec.json.Decoder(t.LoggingMessageNotificationParams).decode
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
    call may raise `RequestTimeout`, `ConnectionLost`, `InvalidResponse`, and `RemoteError` for what the server refuses;
    `max_timeout` bounds a call also where its deadline is put off: by progress, a question, or a task.
    """

    def __init__(
        self,
        target: Target,
        *,
        revision: str | None = None,
        timeout: float = 60.0,
        max_timeout: float = LONGEST,
        open_timeout: float = 60.0,
        probe_timeout: float = 3.0,
        info: t.Implementation | None = None,
        headers: Mapping[str, str] | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        stderr: Callable[[str], object] | None = None,
        auth: Authorize | None = None,
        reaches: Callable[[str], bool] | None = None,
        elicitation: Elicit | None = None,
        consent: Consent | None = None,
        sampling: Sample | None = None,
        sampling_tools: bool = False,
        roots: Roots | None = None,
        log: Callable[[t.LoggingMessageNotificationParams], Any] | None = None,
        log_level: t.LoggingLevel = "info",
        hooks: Sequence[Hook] = (),
        tasks: bool = False,
        validate: bool = True,
        retry: Retry | None = None,
        cache: Cache | bool = True,
        pages: int = 10_000,
        limits: Limits = LIMITS,
    ) -> None:
        """Nothing is opened yet.

        `revision` pins the protocol's revision, else both eras are tried: `probe_timeout` is how long a server of a
        command may be silent before it is also asked in the way of the handshake era. `headers` go with each HTTP
        request; a command runs in `cwd` with `env` in addition to what every program needs, and nothing else of this
        process's environment, and `stderr` takes each line that it writes on its standard error, such as `print`.
        `auth` gets in where a server behind a URL wants credentials, such as
        `wharfinger.auth.SignIn()`. `reaches` says of an IP address whether a URL may lead there, for one that is not
        your own choice: `wharfinger.auth.urls.is_public`. `pages` bounds lists; `limits` what the server sends.

        What the server may ask follows from the handlers: `elicitation` puts a form to the user, `consent` asks whether
        a URL may be opened, `sampling` asks a model (with `sampling_tools`: one that can use tools), `roots` are where
        the user works. `log` is told log messages of `log_level` and worse. `hooks` are put around every call, the
        first one outermost. With `tasks` a call may become a task, which is then waited for; a tool of 2025-11-25 that
        must be called as a task is in any case.
        `validate` checks results of tools by their output schema where the extra `schema` is installed. `retry` says
        what is tried again. `cache` keeps answers as long as the server allows: one for several clients, or False.

        Raises:
            TypeError, ValueError: the target cannot be a server, or a handler is none.
        """
        if isinstance(target, Mapping):
            entry = read_entry(target)
            target, cwd = entry.target, cwd or entry.cwd
            headers, env = {**entry.headers, **(headers or {})}, {**entry.env, **(env or {})}
        self._target = check_target(target)
        self._answering = Answering(
            elicitation=elicitation,
            consent=consent,
            sampling=sampling,
            sampling_tools=sampling_tools,
            roots=roots,
        )
        capabilities = self._answering.capabilities
        if tasks:
            capabilities.extensions = {TASKS: {}}
        self._shelf: Shelf | None = None
        if cache is not False:
            kept = Cache() if cache is True else cache
            self._shelf = Shelf(kept, self._target, headers or {}, capabilities)
            auth = None if auth is None else self._shelf.note(auth)
        self._settings = Settings(
            revision=revision,
            info=info or t.Implementation(name=NAME, version=__version__),
            open_time=open_timeout,
            probe_time=probe_timeout,
            limits=limits,
            headers=dict(headers or {}),
            env=dict(env or {}),
            cwd=cwd,
            stderr=stderr,
            capabilities=capabilities,
            asked=self._answering.answer if self._answering.any else None,
            auth=auth,
            reaches=reaches,
            log_level=UNSET if log is None else log_level,
            retry=retry or Retry(),
        )
        self._timeout = timeout
        self._max_timeout = max_timeout
        self._pages = pages
        self._tasks = tasks
        self._task_calls = TaskCalls(optional=tasks)
        self._log = None if log is None else Telling(log)
        self._log_level: t.LoggingLevel | UnsetType = self._settings.log_level
        self._arrivals = Arrivals()
        self._outputs = Outputs() if validate else None
        self._background: set[asyncio.Task[Any]] = set()
        self._living = Living(self._target, self._settings, timeout)
        self._living.noticed = self._noticed
        self._living.renewed = self._renewed
        if self._shelf is not None:
            self._living.watches.changed = self._shelf.changed
        self._perform: Next = self._fulfilled
        for hook in reversed(hooks):
            check_hook(hook)
            self._perform = around(hook, self._perform)

    # Beginning and end.

    async def open(self) -> Self:
        """Connect, and find out which revision to speak. Does nothing while it is open.

        Raises:
            ConnectionFailed: there is no server, or it ended or said nothing; with a command's last lines of stderr.
            NotAuthorized: the server wants credentials.
            NotMCP: what answers does not speak the protocol.
            UnsupportedRevision: no revision in common, or not the pinned one.
        """
        await self._living.open()
        return self

    async def close(self) -> None:
        """End the connection, from any task: calls that wait get ConnectionLost, watches come to their end."""
        if self._log is not None:
            self._log.stop()
        if self._shelf is not None:
            self._shelf.closed()
        await self._living.close()

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # What is known of the server.

    @property
    def transport(self) -> str:
        """How the server is reached: `stdio`, `streamable http`, `http+sse`, `unix socket` or `memory`."""
        return getattr(self._living.link, "transport", "")

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

    def list_resources(self, *, timeout: float | None = None, fresh: bool = False) -> Listing[t.Resource]:
        """Every resource: `await` it for a list, or go through it with `async for`, page by page.

        `fresh` asks the server also for what is kept.
        """

        async def page(cursor: str | UnsetType) -> tuple[list[t.Resource], str | UnsetType]:
            result: t.ListResourcesResult = await self._page("resources/list", cursor, timeout, fresh)
            return result.resources, self._following(result)

        return Listing(page, self._pages)

    def list_resource_templates(
        self, *, timeout: float | None = None, fresh: bool = False
    ) -> Listing[t.ResourceTemplate]:
        """Every template of resources; as `list_resources`."""

        async def page(cursor: str | UnsetType) -> tuple[list[t.ResourceTemplate], str | UnsetType]:
            method = "resources/templates/list"
            result: t.ListResourceTemplatesResult = await self._page(method, cursor, timeout, fresh)
            return result.resource_templates, self._following(result)

        return Listing(page, self._pages)

    async def read_resource(self, uri: str, *, timeout: float | None = None, fresh: bool = False) -> ReadResult:
        """What is in a resource; `fresh` asks the server also where its answer is kept.

        Raises:
            ResourceNotFound: there is none, or none that may be read.
        """
        return ReadResult(uri, await self._ask(_READ, t.ReadResourceRequestParams(uri=uri), timeout, fresh=fresh))

    @overload
    async def read_many(
        self,
        uris: Iterable[str],
        *,
        at_once: int = AT_ONCE,
        errors: Literal["raise"] = "raise",
        timeout: float | None = None,
        fresh: bool = False,
    ) -> list[ReadResult]: ...
    @overload
    async def read_many(
        self,
        uris: Iterable[str],
        *,
        at_once: int = AT_ONCE,
        errors: Literal["return"],
        timeout: float | None = None,
        fresh: bool = False,
    ) -> list[ReadResult | WharfingerError]: ...
    async def read_many(
        self,
        uris: Iterable[str],
        *,
        at_once: int = AT_ONCE,
        errors: Literal["raise", "return"] = "raise",
        timeout: float | None = None,
        fresh: bool = False,
    ) -> Any:
        """What is in several resources, in the order of `uris`; at most `at_once` are asked for at a time.

        The first one that cannot be read ends it, and its error is raised; with `errors="return"` errors stand in the
        list, at their places. `timeout` is that of each one.

        Raises:
            ResourceNotFound: as `read_resource`.
            ValueError: `at_once` is not positive.
        """
        return await in_order(
            lambda uri: self.read_resource(uri, timeout=timeout, fresh=fresh),
            uris,
            at_once,
            keep_errors=errors == "return",
        )

    def template(self, name: str | t.ResourceTemplate, *, timeout: float | None = None) -> Template:
        """A family of resources: `await client.template("log://{vessel}/today").read(vessel="mary")`.

        `name` is a URI template (RFC 6570), one from `list_resource_templates`, or the name of one of these, which is
        looked up when it is first used.

        Raises:
            InvalidTemplate: it is no URI template.
        """

        async def find(wanted: str) -> t.ResourceTemplate:
            names: list[str] = []
            async for template in self.list_resource_templates(timeout=timeout):
                if template.name == wanted:
                    return template
                if len(names) < SHOWN:
                    names.append(template.name)
            raise no_template(wanted, names)

        async def read(uri: str) -> ReadResult:
            return await self.read_resource(uri, timeout=timeout)

        async def complete(template: str, variable: str, value: str, others: dict[str, str]) -> t.Completion:
            ref = t.ResourceTemplateReference(uri=template)
            return await self.complete(ref, variable, value, others or None, timeout=timeout)

        return Template(name, find, read, complete)

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

    def list_tools(self, *, timeout: float | None = None, fresh: bool = False) -> Listing[t.Tool]:
        """Every tool; as `list_resources`."""

        async def page(cursor: str | UnsetType) -> tuple[list[t.Tool], str | UnsetType]:
            result: t.ListToolsResult = await self._page("tools/list", cursor, timeout, fresh)
            return self._known(result.tools), self._following(result)

        return Listing(page, self._pages)

    @overload
    async def call_tool(
        self,
        name: str,
        arguments: Any = None,
        *,
        timeout: float | None = None,
        max_timeout: float | None = None,
        progress: Progress | None = None,
        reset_on_progress: bool = False,
        retry: bool | None = None,
    ) -> ToolResult[Any]: ...
    @overload
    async def call_tool(
        self,
        name: str,
        arguments: Any = None,
        *,
        returns: type[T],
        timeout: float | None = None,
        max_timeout: float | None = None,
        progress: Progress | None = None,
        reset_on_progress: bool = False,
        retry: bool | None = None,
    ) -> ToolResult[T]: ...
    async def call_tool(
        self,
        name: str,
        arguments: Any = None,
        *,
        returns: Any = UNSET,
        timeout: float | None = None,
        max_timeout: float | None = None,
        progress: Progress | None = None,
        reset_on_progress: bool = False,
        retry: bool | None = None,
    ) -> ToolResult[Any]:
        """Call a tool; `arguments` is what encodes to a JSON object. With `returns=T` the result's `data` is a T.

        `progress(done, total, message)`, plain or async, is told how far it is; with `reset_on_progress` each time
        begins `timeout` anew, up to `max_timeout`. With `retry` it is sent once more if the connection is lost before
        its answer, so that the tool may run twice.

        Raises:
            InvalidResponse: the result is no T, or not what the tool's output schema says.
            ToolError: the tool failed; its text says why, and `.result` is the whole result.
        """
        given = UNSET if arguments is None else Raw(_ENCODE(arguments))
        params = t.CallToolRequestParams(name=name, arguments=given)
        try:
            result = await self._ask(_CALL, params, timeout, max_timeout, progress, reset_on_progress, retry)
        except RemoteError as error:
            # Nothing was done. The tool's listing says what was wrong.
            if not await self._called_wrongly(name, error, timeout):
                raise
            result = await self._ask(_CALL, params, timeout, max_timeout, progress, reset_on_progress, retry)
        if result.is_error is True and await self._wants_task(name, result, timeout):
            result = await self._ask(_CALL, params, timeout, max_timeout, progress, reset_on_progress, retry)
        if result.is_error is True:
            raise ToolError(text_of(result) or "The tool failed and does not say why.", result=result)
        if self._outputs is not None:
            self._outputs.check(name, result)
        return ToolResult(data_of(result, returns), result)

    async def _called_wrongly(self, name: str, error: RemoteError, timeout: float | None) -> bool:
        """Whether a tool was called in another way than its listing says, which is asked for now.

        Its arguments must be repeated in headers (2026-07-28, spec: §2.8), or it must be called as a task, or must not
        (2025-11-25, tasks: -32601).
        """
        link = self._living.link
        if error.code == HeaderMismatch.code and link is not None and link.mirrors is not None:
            await self.list_tools(timeout=timeout, fresh=True)
            return True
        if not isinstance(error, RemoteMethodNotFound) or not self._has_task_calls:
            return False
        return await self._wants_otherwise(name, timeout)

    async def _wants_task(self, name: str, result: t.CallToolResult, timeout: float | None) -> bool:
        """Whether a tool failed because it must be called as a task: some servers say -32601 in a result.

        The text only spares the question. What counts is the listing: a tool that must be called as a task does nothing
        when it is called otherwise (2025-11-25, tasks).
        """
        if self._task_calls.wants(name) or not self._has_task_calls or "task" not in text_of(result).lower():
            return False
        return await self._wants_otherwise(name, timeout)

    async def _wants_otherwise(self, name: str, timeout: float | None) -> bool:
        """Ask for the listing; whether it says something else than how the tool was called."""
        tools, was_task = self._task_calls, self._task_calls.wants(name)
        await self.list_tools(timeout=timeout, fresh=True)
        return not tools.wants(name) if was_task else tools.requires(name)

    def list_prompts(self, *, timeout: float | None = None, fresh: bool = False) -> Listing[t.Prompt]:
        """Every prompt; as `list_resources`."""

        async def page(cursor: str | UnsetType) -> tuple[list[t.Prompt], str | UnsetType]:
            result: t.ListPromptsResult = await self._page("prompts/list", cursor, timeout, fresh)
            return result.prompts, self._following(result)

        return Listing(page, self._pages)

    async def get_prompt(
        self, name: str, arguments: Mapping[str, str] | None = None, *, timeout: float | None = None
    ) -> t.GetPromptResult:
        """A prompt with its blanks filled in."""
        given = UNSET if arguments is None else dict(arguments)
        params = t.GetPromptRequestParams(name=name, arguments=given)
        result: t.GetPromptResult = await self._ask(_PROMPT, params, timeout)
        return result

    # Skills (extension `io.modelcontextprotocol/skills`).

    def list_skills(self, *, timeout: float | None = None, fresh: bool = False) -> Listing[Skill]:
        """Every skill: who it is, and its files with size and digest. No file is read; as `list_resources`."""
        from wharfinger.client import skills

        async def page(cursor: str | UnsetType) -> tuple[list[Skill], str | UnsetType]:
            params = t.PaginatedRequestParams(cursor=cursor)
            result: ListSkillsResult = await self._ask(skills.LIST, params, timeout, fresh=fresh)
            return result.skills, self._following(result)

        return Listing(page, self._pages)

    async def get_skill(self, uri: str, *, timeout: float | None = None, fresh: bool = False) -> Skill:
        """One skill, by the URI of its SKILL.md; no file is read."""
        from wharfinger.client import skills
        from wharfinger.types.skills import GetSkillRequestParams

        params = GetSkillRequestParams(uri=uri)
        result: GetSkillResult = await self._ask(skills.GET, params, timeout, fresh=fresh)
        return result.skill

    def read_directory(self, uri: str, *, timeout: float | None = None) -> Listing[t.Resource]:
        """What is directly in a directory, where the server declares `directoryRead`; as `list_resources`."""
        from wharfinger.client import skills
        from wharfinger.types.skills import ReadResourceDirectoryRequestParams, ReadResourceDirectoryResult

        async def page(cursor: str | UnsetType) -> tuple[list[t.Resource], str | UnsetType]:
            params = ReadResourceDirectoryRequestParams(uri=uri, cursor=cursor)
            result: ReadResourceDirectoryResult = await self._ask(skills.DIRECTORY, params, timeout)
            return result.resources, self._following(result)

        return Listing(page, self._pages)

    async def read_skill_file(self, skill: Skill, uri: str = "", *, timeout: float | None = None) -> ReadResult:
        """A file of a skill, its SKILL.md unless `uri` names another; read only now, and compared with the manifest.

        Raises:
            NotVerified: it is not in the manifest, or not what the manifest says: nothing of the skill may be used.
            MissingExtra: reading a SKILL.md needs the extra `skills`.
        """
        from wharfinger.client import skills

        uri = uri or skill.uri
        entry = skills.check_entry(skill, uri)
        return skills.check_file(skill, entry, await self.read_resource(uri, timeout=timeout, fresh=True))

    async def ping(self, *, timeout: float | None = None) -> None:
        """Return when the server has answered; the stateless era has no `ping`, so that it is asked what it is."""
        method = "ping" if self._agreement.rules.era == "handshake" else "server/discover"
        await self._ask(METHODS[method], t.RequestParams(), timeout)

    async def set_log_level(self, level: t.LoggingLevel) -> None:
        """From now on the server sends log messages of this level and worse; `log=` takes them."""
        agreed, self._log_level = self._agreement, level
        if agreed.rules.era == "handshake":
            await self._ask(_SET_LEVEL, t.SetLevelRequestParams(level=level), None)
        elif not isinstance(agreed.meta, UnsetType):
            agreed.meta.log_level = level

    def roots_changed(self) -> None:
        """Tell the server that there are other roots now; the stateless era asks each time, and is not told."""
        if self._agreement.rules.era == "handshake":
            self._connection.notify("notifications/roots/list_changed", UNSET)

    # Inside: every call goes through `_ask`, the hooks, and `_fulfilled`; every request of it through `_request`.

    async def _ask(
        self,
        row: Method,
        params: Any,
        timeout: float | None,
        max_timeout: float | None = None,
        progress: Progress | None = None,
        reset_on_progress: bool = False,
        retry: bool | None = None,
        *,
        fresh: bool = False,
    ) -> Any:
        if max_timeout is None:  # who wants no deadline for a call wants none
            max_timeout = math.inf if timeout == math.inf else self._max_timeout
        call = Call(
            row, params, self._timeout if timeout is None else timeout, max_timeout, progress, reset_on_progress
        )
        call.bounded, call.retry, call.fresh = timeout is not None, retry, fresh
        return await self._perform(call)

    async def _fulfilled(self, call: Call) -> Any:
        """From the call to the result of its method, whatever the server wants in between."""
        budget = Budget(call.timeout, call.max_timeout, self._now)
        telling = None if call.progress is None else Telling(call.progress)
        try:
            if call.row is _CALL and self._task_calls.wants(call.params.name):
                result: Any = await self._call_as_task(call, telling)
            elif self._is_plain(call):
                result = await self._plainly(call, budget)
            elif self._shelf is not None and call.row.kept:
                result = await self._kept(self._shelf, call, budget, telling)
            else:
                result = await self._admitted(call, budget, telling)
            if type(result) is t.InputRequiredResult:
                result = await perform(
                    call.row,
                    call.params,
                    result,
                    self._answering,
                    budget,
                    self._settings.limits.rounds,
                    partial(self._asked, call, budget, telling),
                )
            if type(result) is TaskStarted:
                result = await self._drive(call, result, budget)
        except BaseException:
            if telling is not None:
                telling.stop()
            raise
        if telling is not None:
            await telling.told()
        return result

    def _is_plain(self, call: Call) -> bool:
        """Whether there is nobody to tell of progress or to ask, no task to follow, and no answer to keep."""
        return (
            call.progress is None
            and not call.reset_on_progress
            and not self._answering.any
            and not self._tasks
            and (self._shelf is None or not call.row.kept)
        )

    async def _plainly(self, call: Call, budget: Budget) -> Any:
        """One request and its result: most calls, which cost a seventh less without the layers of the others."""
        if call.params.meta is UNSET:
            call.params.meta = self._meta
        answer = await self._living.request(call.row.name, call.params, timeout=budget.left(), retry=call.retry)
        stateless = self._agreement.rules.asks_by_result
        return open_any(call.row, _result_in(answer), stateless=stateless, tasks=False)

    async def _admitted(self, call: Call, budget: Budget, telling: Telling | None) -> Any:
        """The answer; where the user must open a URL first, then the answer to the second attempt."""
        try:
            _, result = await self._asked(call, budget, telling, call.params)
        except RemoteError as error:
            errands = urls_wanted(error)
            begun = self._now()
            if not await self._answering.sent_to(errands):
                raise
            await self._arrivals.wait((str(each.elicitation_id) for each in errands), call.timeout)
            budget.give_back(begun)
            _, result = await self._asked(call, budget, telling, call.params)
        return result

    async def _kept(self, shelf: Shelf, call: Call, budget: Budget, telling: Telling | None) -> Any:
        """What was kept of an earlier answer, or a new one."""
        ask = partial(self._asked, call, budget, telling, call.params)
        heard = self._living.watches.hear_lists()
        key = shelf.key(call.row.name, call.params, heard)
        if key is None:
            return await self._admitted(call, budget, telling)
        return await shelf.answer(
            key,
            ask,
            lambda raw: open_result(call.row, raw),
            left=budget.left,
            fresh=call.fresh,
            heard=heard,
        )

    async def _asked(self, call: Call, budget: Budget, telling: Telling | None, params: Any) -> tuple[Raw, Any]:
        """The answer as it came, and decoded."""
        raw = await self._request(call.row, params, budget, telling, reset=call.reset_on_progress, retry=call.retry)
        stateless = self._agreement.rules.asks_by_result
        return raw, open_any(call.row, raw, stateless=stateless, tasks=self._tasks)

    async def _request(
        self,
        row: Method,
        params: Any,
        budget: Budget,
        telling: Telling | None = None,
        *,
        reset: bool = False,
        retry: bool | None = None,
    ) -> Raw:
        """One request and its answer, in what is left of the call's time."""
        if params.meta is UNSET:
            params.meta = self._meta
        # Only where the server asks by requests of its own can a question be open while an answer is waited for.
        if not reset and (not self._answering.any or self._agreement.rules.asks_by_result):
            answer = await self._living.request(
                row.name,
                params,
                timeout=budget.left(),
                notified=None if telling is None else partial(self._told, telling, None),
                retry=retry,
            )
        else:
            answer = await self._request_put_off(row, params, budget, telling, reset=reset, retry=retry)
        return _result_in(answer)

    async def _request_put_off(
        self, row: Method, params: Any, budget: Budget, telling: Telling | None, *, reset: bool, retry: bool | None
    ) -> Message:
        """The same with a deadline that may be put off, by progress or while a question of the server is open."""
        deadline = Deadline(budget, asyncio.get_running_loop())
        renewed = deadline if reset else None
        notified = partial(self._told, telling, renewed) if telling is not None or reset else None
        try:
            async with deadline:
                self._answering.watch_over(deadline)
                return await self._living.request(row.name, params, timeout=None, notified=notified, retry=retry)
        except TimeoutError as error:
            if isinstance(error, RequestTimeout) or not deadline.expired:
                raise
            text = f"{row.name}: no answer from {self._name} within {deadline.waited:g} s."
            raise RequestTimeout(text) from None
        finally:
            self._answering.deadlines.discard(deadline)

    async def _drive(self, call: Call, task: TaskStarted, budget: Budget) -> Any:
        if not call.bounded:  # the client's own time is that of an answer; a task takes as long as it takes
            budget = Budget(math.inf, call.max_timeout, self._now)

        async def send(row: Method, params: Any) -> Raw:
            return await self._request(row, params, budget.part(call.timeout))

        try:
            return await drive_task(call.row, task, self._answering, budget, send)
        except (asyncio.CancelledError, RequestTimeout, ConnectionLost):
            self._in_background(self._cancel_task(task.task_id))
            raise

    async def _call_as_task(self, call: Call, telling: Telling | None) -> t.CallToolResult:
        """A call that becomes a task because this end says so (2025-11-25), and its result."""
        budget = Budget(call.timeout if call.bounded else math.inf, call.max_timeout, self._now)
        renewed = budget if call.reset_on_progress else None
        take = None if telling is None and renewed is None else partial(self._told, telling, renewed)

        async def send(row: Method, params: Any, long: bool) -> Raw:
            return await self._request(row, params, budget if long else budget.part(call.timeout))

        with self._task_calls.progress(take) as token:
            params = as_task(call.params, token, call.max_timeout)
            raw = await self._request(_CALL, params, budget.part(call.timeout), retry=call.retry)
            task = started_in(raw)
            if isinstance(task, t.CallToolResult):
                return task
            try:
                with self._task_calls.following(task.task_id) as changed:
                    return await drive_task_call(task, changed, budget, send)
            except (asyncio.CancelledError, RequestTimeout, ConnectionLost):
                self._in_background(self._cancel_task(task.task_id, CANCEL))
                raise

    @property
    def _has_task_calls(self) -> bool:
        """Whether the server takes calls of tools as tasks (2025-11-25)."""
        agreed = self._agreement
        declared = agreed.capabilities.tasks
        if not agreed.rules.task_calls or isinstance(declared, UnsetType) or isinstance(declared.requests, UnsetType):
            return False
        return not isinstance(declared.requests.tools, UnsetType) and declared.requests.tools.call is not UNSET

    async def _cancel_task(self, task_id: str, row: Method = _CANCEL_TASK) -> None:
        try:
            await self._request(row, row.params(task_id=task_id), Budget(GOODBYE, GOODBYE, self._now))
        except WharfingerError as error:
            logger.debug("a task could not be cancelled: %s", error)

    # Inside: what the server says without being asked.

    def _told(self, telling: Telling | None, deadline: Deadline | Budget | None, message: Message) -> None:
        """A notification that belongs to a call."""
        if message.method != _PROGRESS:
            self._noticed(message)
            return
        if deadline is not None:
            deadline.renew()
        if telling is None or isinstance(message.params, UnsetType):
            return
        try:
            progress = _decode_progress(message.params)
        except msgspec.MsgspecError:
            return
        telling.tell(
            progress.progress,
            None if isinstance(progress.total, UnsetType) else progress.total,
            None if isinstance(progress.message, UnsetType) else progress.message,
            size=len(memoryview(message.params)),
        )

    def _noticed(self, message: Message) -> None:
        """A notification that belongs to nothing, or to nothing that wants it."""
        if message.method == _COMPLETE:
            self._arrivals.tell(message)
        self._task_calls.take(message)
        if message.method != _LOG or self._log is None or isinstance(message.params, UnsetType):
            return
        try:
            self._log.tell(_decode_log(message.params), size=len(memoryview(message.params)))
        except msgspec.MsgspecError:
            logger.debug("skipped a log message that cannot be read: %.100r", bytes(message.params))

    def _renewed(self, link: Connection, agreed: Agreement) -> None:
        """There is a connection, perhaps not the first one."""
        self._task_calls.forget()
        if self._shelf is not None:
            self._shelf.renewed(agreed.rules, agreed.capabilities)
        level = self._log_level
        if isinstance(level, UnsetType):
            return
        if not isinstance(agreed.meta, UnsetType):
            agreed.meta.log_level = level
        elif agreed.capabilities.logging is not UNSET:
            params = t.SetLevelRequestParams(level=level)
            self._in_background(link.request(_SET_LEVEL.name, params, timeout=GOODBYE))

    def _in_background(self, work: Coroutine[Any, Any, Any]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        task.add_done_callback(_seen)

    # Inside: lists.

    async def _page(self, method: str, cursor: str | UnsetType, timeout: float | None, fresh: bool) -> Any:
        return await self._ask(METHODS[method], t.PaginatedRequestParams(cursor=cursor), timeout, fresh=fresh)

    def _following(self, result: t.PaginatedResult) -> str | UnsetType:
        # The empty string is a cursor in the stateless era only; servers of the other one mean the end by it.
        cursor = result.next_cursor
        return UNSET if cursor == "" and self._agreement.rules.era == "handshake" else cursor

    def _known(self, tools: list[t.Tool]) -> list[t.Tool]:
        """Remember what calls need to know of tools; those that must not be used are left out."""
        self._living.learn(tools)
        if self._has_task_calls:
            self._task_calls.learn(tools)
        usable = self._usable(tools)
        if self._outputs is not None:
            for tool in usable:
                self._outputs.remember(tool)
        return usable

    def _usable(self, tools: list[t.Tool]) -> list[t.Tool]:
        """Over stateless HTTP a tool with a wrong `x-mcp-header` is left out (2026-07-28, tools)."""
        link = self._connection
        if link.mirrors is None or self._agreement.rules.era == "handshake":
            return tools
        usable: list[t.Tool] = []
        for tool in tools:
            try:
                mirrors = find_header_params(tool.input_schema)
            except InvalidHeaderAnnotation as error:
                logger.warning("%s: left out the tool %.200r, which cannot be called: %s", link.name, tool.name, error)
                continue
            link.mirrors.pop(tool.name, None)
            if mirrors and len(link.mirrors) < MOST_MIRRORED:
                link.mirrors[tool.name] = mirrors
            usable.append(tool)
        return usable

    async def _watch(self, uris: tuple[str, ...], *, lists: bool) -> Any:
        return await self._living.watches.open(uris, lists)

    @property
    def _name(self) -> str:
        link = self._living.link
        return "the server" if link is None else link.name

    @property
    def _now(self) -> Callable[[], float]:
        return asyncio.get_running_loop().time

    @property
    def _meta(self) -> t.RequestMeta | UnsetType:
        agreed = self._living.agreed
        return UNSET if agreed is None else agreed.meta

    @property
    def _agreement(self) -> Agreement:
        if self._living.agreed is None:
            raise ConnectionLost(NOT_OPEN)
        return self._living.agreed

    @property
    def _connection(self) -> Connection:
        if self._living.link is None:
            raise ConnectionLost(NOT_OPEN)
        return self._living.link


def _result_in(answer: Message) -> Raw:
    """What an answer holds; raises what its error means."""
    if not isinstance(answer.error, UnsetType):
        raise told(answer)
    assert not isinstance(answer.result, UnsetType)
    return answer.result


def _seen(task: asyncio.Task[Any]) -> None:
    if not task.cancelled():
        task.exception()


def _reference(ref: Ref) -> t.CompletionReference:
    if isinstance(ref, t.PromptReference | t.ResourceTemplateReference):
        return ref
    if isinstance(ref, t.ResourceTemplate):
        return t.ResourceTemplateReference(uri=ref.uri_template)
    if isinstance(ref, t.Prompt):
        return t.PromptReference(name=ref.name)
    return t.ResourceTemplateReference(uri=ref) if "://" in ref or "{" in ref else t.PromptReference(name=ref)
