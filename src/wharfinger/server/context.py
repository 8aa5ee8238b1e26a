"""`Context`: gives a handler its request, and ways to report, to ask for input and to read for the same caller.

Each call whose handler takes a `Context` gets an object of its own.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, cast, overload

from msgspec import UNSET

from wharfinger import types as t
from wharfinger.errors import PermissionDenied, ResourceNotFound
from wharfinger.protocol.jsonrpc import Id, encode_notification
from wharfinger.protocol.principal import Principal
from wharfinger.protocol.request import Caller, Request
from wharfinger.server.input.request_state import CannotAsk, state_of
from wharfinger.server.nested_requests import read_request
from wharfinger.server.observers import observed_read
from wharfinger.server.signature.annotations import RequestContext
from wharfinger.types.base import or_unset

if TYPE_CHECKING:
    from typing_extensions import TypeVar as TypeVarWithDefault

    from wharfinger.server.app import Server
    from wharfinger.server.input.input_requests import InputQuery, Messages
    from wharfinger.source import Hits

    State = TypeVarWithDefault("State", default=Any)
else:
    State = TypeVar("State")

T = TypeVar("T")

__all__ = ["Context"]

LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
"""Syslog severities, least severe first (RFC 5424)."""


class _Done:
    """A finished awaitable, returned by methods that need no `await` but allow it."""

    __slots__ = ()

    def __await__(self) -> Generator[None, None, None]:
        yield from ()


DONE = _Done()


class Context(RequestContext, Generic[State]):
    """The request being served. Annotate a parameter with `Context` or `Context[YourState]` to get it.

    `Context[S]` types `state`, the value that the server's `lifespan` yielded.
    """

    __slots__ = ("_loop", "_services", "_thread_id", "request", "server")

    def __init__(self, server: Server, request: Request) -> None:
        self.server = server
        self._services = server.services
        self.request = request
        if getattr(request.params, "request_state", UNSET) is not UNSET:
            state_of(server.services, request)  # refuses a forged state before the handler runs
        self._loop = asyncio.get_running_loop()
        self._thread_id = threading.get_ident()

    @property
    def state(self) -> State:
        """The value that the server's `lifespan` yielded; None if the server has no lifespan."""
        return cast("State", self.server.state)

    @property
    def caller(self) -> Caller:
        """The caller: its `principal`, revision, name and capabilities."""
        return self.request.caller

    @property
    def principal(self) -> Principal:
        """The caller that the request's credentials identify; `ANONYMOUS` without credentials, `LOCAL` without HTTP."""
        return self.request.caller.principal

    @property
    def request_id(self) -> Id:
        """The JSON-RPC id of the request."""
        return self.request.id

    @property
    def headers(self) -> Mapping[bytes, bytes]:
        """The HTTP headers of the request, names in lower case; empty over other transports."""
        return self.request.headers or {}

    # -- log messages and progress

    def debug(self, data: Any, *, logger: str | None = None) -> Awaitable[None]:
        """Send a log message of level `debug`; see `log`."""
        return self.log("debug", data, logger=logger)

    def info(self, data: Any, *, logger: str | None = None) -> Awaitable[None]:
        """Send a log message of level `info`; see `log`."""
        return self.log("info", data, logger=logger)

    def warning(self, data: Any, *, logger: str | None = None) -> Awaitable[None]:
        """Send a log message of level `warning`; see `log`."""
        return self.log("warning", data, logger=logger)

    def error(self, data: Any, *, logger: str | None = None) -> Awaitable[None]:
        """Send a log message of level `error`; see `log`."""
        return self.log("error", data, logger=logger)

    def log(self, level: t.LoggingLevel, data: Any, *, logger: str | None = None) -> Awaitable[None]:
        """Send a log message on the request's stream, if the client wants this level (`notifications/message`).

        A client of the stateless era gets messages if the request asked for them; a session gets all messages until it
        sets a level. The message is sent even without `await`. Awaiting the result does nothing; it is allowed
        because code for other frameworks does it.

        Raises:
            ValueError: there is no such level.
        """
        if level not in LEVELS:
            raise ValueError(f"There is no log level {level!r}: write {', '.join(LEVELS[:-1])} or {LEVELS[-1]}.")
        request = self.request
        if request.caller.rules.logs_by_request:
            meta = request.params.meta
            threshold = None if meta is UNSET or meta.log_level is UNSET else meta.log_level
        else:
            threshold = (request.session and request.session.log_level) or LEVELS[0]
        if threshold is None or LEVELS.index(level) < LEVELS.index(threshold):
            return DONE
        if not state_of(self._services, request).count_log():
            return DONE
        params = t.LoggingMessageNotificationParams(level=level, data=data, logger=or_unset(logger))
        self._notify("notifications/message", params)
        return DONE

    def report_progress(self, done: float, total: float | None = None, message: str | None = None) -> Awaitable[None]:
        """Report the progress of the request, if the caller asked for it (`notifications/progress`).

        A report is sent only if `done` is higher than in all earlier reports of this call, including those of earlier
        runs of the handler. The notification is sent even without `await`; awaiting the result is allowed and does
        nothing.
        """
        meta = self.request.params.meta
        if meta is UNSET or meta.progress_token is UNSET:
            return DONE
        if not state_of(self._services, self.request).advance(done):
            return DONE
        params = t.ProgressNotificationParams(
            progress_token=meta.progress_token,
            progress=done,
            total=or_unset(total),
            message=message if message is not None and self.request.caller.rules.progress_message else UNSET,
        )
        self._notify("notifications/progress", params)
        return DONE

    def _notify(self, method: str, params: Any) -> None:
        self._call_on_loop(self.request.channel.send, self.request, encode_notification(method, params))

    def _call_on_loop(self, function: Callable[..., Any], *args: Any) -> None:
        """Call `function` on the event loop, since a plain handler runs in a thread."""
        if threading.get_ident() == self._thread_id:
            function(*args)
            return
        with suppress(RuntimeError):  # the loop is closed: the server has ended, and the thread continues
            self._loop.call_soon_threadsafe(function, *args)

    # -- long calls

    def close_stream(self, retry_ms: int = 1000) -> bool:
        """Close the HTTP connection of this call; the call continues, and the client reconnects after `retry_ms`.

        Returns False if it did nothing: the client has no session of 2025-11-25 over HTTP, or the connection is closed
        already. Call it from an async function only.
        """
        return self.request.channel.detach(self.request, retry_ms)

    async def start_task(self) -> bool:
        """Answer the call with a task, and continue as that task; for tools registered with `task="later"`.

        Returns False if the client does not know tasks: the call then stays open until the function returns. Questions
        asked before belong to the call, and later ones to the task. In a task this does nothing and returns True.

        Raises:
            Overloaded: there are too many tasks, or the server is stopping.
            StoreUnusable: the task cannot be stored.
            RuntimeError: the tool is not registered with `task=`.
        """
        tasks = self.server.tasks
        if tasks is None:
            raise RuntimeError('Register the tool with task="later" to start tasks in it.')
        return await tasks.start_deferred(self.request)

    def task_status(self, message: str) -> None:
        """Set what clients see as the task's `statusMessage`. Does nothing outside a task."""
        if self.server.tasks is not None:
            self._call_on_loop(self.server.tasks.set_message, self.request, message)

    # -- asking for input

    @overload
    async def elicit(self, message: str, schema: type[T], *, key: str | None = None) -> T: ...
    @overload
    async def elicit(self, message: str, schema: type[T], *, or_none: Literal[False], key: str | None = None) -> T: ...
    @overload
    async def elicit(self, message: str, schema: type[T], *, or_none: bool, key: str | None = None) -> T | None: ...
    @overload
    async def elicit(self, message: str, schema: Any, *, or_none: bool = False, key: str | None = None) -> Any: ...
    async def elicit(self, message: str, schema: Any, *, or_none: bool = False, key: str | None = None) -> Any:
        """Ask the user to fill in a form, and return the validated answer (`elicitation/create`).

        `schema` is a struct, dataclass, TypedDict or pydantic model with flat fields; the type of a single value, such
        as `str`, `bool`, an enum or a `Literal`; or a `requestedSchema` as a dict, which is answered by a dict. Never
        ask for secrets. `key` is the question's key in `inputRequests`; by default questions are numbered.

        In the stateless era the function runs again from its first line with the answer: see `once`.

        Raises:
            Declined, Cancelled: the user refused; with `or_none` the result is None instead.
            NoAnswer: the client sent no valid answer, or none in time.
            MissingClientCapability: the client does not offer forms.
            CannotAsk: the client's request is not for a tool, a prompt or a resource.
            TypeError: `schema` has a field that a form cannot have.
        """
        from wharfinger.server.input.input_requests import Elicit

        return await self._ask(key, Elicit(message, schema, or_none=or_none))

    @overload
    async def elicit_url(
        self,
        message: str,
        url: str,
        *,
        or_none: Literal[False] = False,
        key: str | None = None,
        elicitation_id: str | None = None,
    ) -> bool: ...
    @overload
    async def elicit_url(
        self, message: str, url: str, *, or_none: bool, key: str | None = None, elicitation_id: str | None = None
    ) -> bool | None: ...
    async def elicit_url(
        self,
        message: str,
        url: str,
        *,
        or_none: bool = False,
        key: str | None = None,
        elicitation_id: str | None = None,
    ) -> bool | None:
        """Ask the user to open a URL, for example to sign in. True only means that the user agreed to open it.

        The page at the URL knows when the user is done. Call `Server.elicitation_complete` with the `elicitation_id`
        then. Raises the same errors as `elicit`, and ValueError if `url` is not a URL.
        """
        from wharfinger.server.input.input_requests import ElicitUrl
        from wharfinger.server.input.round_trips import remember_url

        question = ElicitUrl(message, url, elicitation_id=elicitation_id, or_none=or_none)
        if self.request.caller.rules.url_required:
            remember_url(self._services, self.request, elicitation_id)
        agreed: bool | None = await self._ask(key, question)
        return agreed

    async def sample(
        self,
        messages: Messages,
        *,
        max_tokens: int = 1024,
        system: str | None = None,
        temperature: float | None = None,
        stop_sequences: Sequence[str] | None = None,
        tools: Sequence[t.Tool] | None = None,
        tool_choice: Literal["auto", "required", "none"] | t.ToolChoice | None = None,
        model_preferences: t.ModelPreferences | str | Sequence[str] | None = None,
        include_context: Literal["none", "thisServer", "allServers"] | None = None,
        metadata: dict[str, Any] | None = None,
        key: str | None = None,
    ) -> t.CreateMessageResult:
        """Ask the client's model (`sampling/createMessage`); the `text` of the result is its answer.

        `messages` is the user's text or content, a `SamplingMessage`, or a list of these. `model_preferences` may be
        names of models. `tools` need the client's capability `sampling.tools`.

        Raises:
            Declined: the client, or its user, refused.
            NoAnswer: the client sent no valid answer, or none in time.
            MissingClientCapability: the client offers no model, or not with the tools or context that this needs.
            CannotAsk: the client's request is not for a tool, a prompt or a resource.
            ValueError: there is no message, tool uses and tool results do not match, or `max_tokens` is below 1.
        """
        from wharfinger.server.input.input_requests import Sample

        question = Sample(
            messages,
            max_tokens=max_tokens,
            system=system,
            temperature=temperature,
            stop_sequences=stop_sequences,
            tools=tools,
            tool_choice=tool_choice,
            model_preferences=model_preferences,
            include_context=include_context,
            metadata=metadata,
        )
        result: t.CreateMessageResult = await self._ask(key, question)
        return result

    async def roots(self, *, key: str | None = None) -> list[t.Root]:
        """Return the client's roots, the folders in which its user works (`roots/list`). They grant no permission.

        Raises:
            NoAnswer: the client sent no valid answer, or none in time.
            MissingClientCapability: the client does not offer roots.
            CannotAsk: the client's request is not for a tool, a prompt or a resource.
        """
        from wharfinger.server.input.input_requests import Roots

        roots: list[t.Root] = await self._ask(key, Roots())
        return roots

    async def ask(self, **questions: InputQuery) -> dict[str, Any]:
        """Ask several questions at once: `await ctx.ask(name=Elicit("Who?", str), folders=Roots())`.

        A question is an `Elicit`, `ElicitUrl`, `Sample` or `Roots`; the answers have the same keys. If a question
        fails, its error is raised; if several fail, the error of the first.
        """
        from wharfinger.server.input.round_trips import ask

        answers = await ask(self._services, self.request, list(questions.items()))
        return dict(zip(questions, answers, strict=True))

    async def _ask(self, key: str | None, question: InputQuery) -> Any:
        from wharfinger.server.input.round_trips import ask

        (answer,) = await ask(self._services, self.request, [(key, question)])
        return answer

    @overload
    async def once(self, key: str, function: Callable[[], Any], *, kind: type[T]) -> T: ...
    @overload
    async def once(self, key: str, function: Callable[[], Awaitable[T]], *, kind: None = None) -> T: ...
    @overload
    async def once(self, key: str, function: Callable[[], T], *, kind: None = None) -> T: ...
    async def once(self, key: str, function: Callable[[], Any], *, kind: Any = None) -> Any:
        """Call `function` once per call of the client, however often the handler runs again, and return its result.

        The result must be encodable as JSON: in the stateless era, it goes to the client and back. The client cannot
        change it, but can read it unless the server has a policy. In every run, also in the first, it is converted
        to `kind` or, without `kind`, to the return annotation of `function`. A result that cannot be converted is
        returned as plain JSON values. `function` may be async; a plain one runs on the event loop and must not block.
        Exceptions are not kept. `key` must be unique within the handler.
        """
        from wharfinger.server.input.round_trips import once

        return await once(self._services, self.request, key, function, kind)

    # -- the server's own features, as this caller

    async def read_resource(self, uri: str) -> t.ReadResourceResult:
        """Read a resource of this server, with the permissions of the caller.

        Raises:
            ResourceNotFound: it does not exist, or the caller may not read it.
            InsufficientScope: the caller's token lacks scopes that it needs.
            InvalidParams: `uri` is not a URI.
        """
        try:
            handler = self.server.handlers.get("resources/read") or self.server.resources.read
            result: t.ReadResourceResult = await observed_read(self.request, read_request(self.request, uri), handler)
            return result
        except PermissionDenied:
            raise ResourceNotFound(uri) from None

    async def list_resources(self, cursor: str | None = None) -> t.ListResourcesResult:
        """Return one page of this server's resources, as this caller sees it.

        Raises:
            InvalidParams: `cursor` does not belong to this list, or under a policy is another caller's.
        """
        return await self.server.resources.page(self.request, cursor)

    async def search(self, query: str, limit: int = 20, *, source: str = "", type: str = "", path: str = "") -> Hits:
        """Search every source and the registered resources. Best hits first; `truncated` says why there may be more.

        The query is a question, words or identifiers; a phrase in double quotes must occur as it is. `source` is the
        name of a source, `type` a MIME type or its family such as `image`, and `path` the beginning of a path or URI,
        or a pattern such as `*.md`. While an index is not complete, its progress is reported to the caller.

        Raises:
            InvalidArgument: there is no such source, or the query or a filter is too long.
            Overloaded: no thread became free in time.
        """
        from wharfinger.server.search import SearchRequest, search

        search_request = SearchRequest(query=query, limit=limit, source=source, type=type, path=path)

        def report_indexing(documents: float, message: str) -> None:
            self.report_progress(documents, message=message)

        hits = await search(self._services, self.server.resources, self.request, search_request, report_indexing)
        for observers in self.request.observers:
            observers.searched(self.request, query, len(hits))
        return hits

    def for_plain_function(self) -> Context[State]:
        """Return the context for a plain function: its methods that ask for input or start a task raise CannotAsk."""
        return _PlainContext(self.server, self.request)


def _needs_async(name: str) -> Any:
    def refuse(self: Context[Any], *args: Any, **kwargs: Any) -> Any:
        raise CannotAsk(
            f"Context.{name}() must be awaited, which only an async function can do: "
            f"declare the handler with `async def`, and write `await ctx.{name}(…)`."
        )

    return refuse


class _PlainContext(Context[State]):
    """The context of a plain function, which cannot await the coroutines that these methods would return."""

    __slots__ = ()

    ask = _needs_async("ask")
    elicit = _needs_async("elicit")
    elicit_url = _needs_async("elicit_url")
    once = _needs_async("once")
    roots = _needs_async("roots")
    sample = _needs_async("sample")
    start_task = _needs_async("start_task")
