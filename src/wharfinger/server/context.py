"""What a handler may ask of the request that it serves; one object per call, made only for handlers that take it."""

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
from wharfinger.protocol.request import Caller, Request
from wharfinger.server.input.request_state import CannotAsk, state_of
from wharfinger.server.nested_requests import read_request
from wharfinger.server.signature.annotations import RequestContext

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
"""Syslog severities, least first (RFC 5424)."""


class _Done:
    """What telling something returns: there is nothing to wait for, and `await` finds that out."""

    __slots__ = ()

    def __await__(self) -> Generator[None, None, None]:
        yield from ()


DONE = _Done()


class Context(RequestContext, Generic[State]):
    """The request being served. Annotate a parameter with `Context` or `Context[YourState]` to get it.

    `Context[S]` types `state`, which is what the server's `lifespan` yielded.
    """

    __slots__ = ("_loop", "_services", "_thread", "request", "server")

    def __init__(self, server: Server, request: Request) -> None:
        self.server = server
        self._services = server.services
        self.request = request
        if getattr(request.params, "request_state", UNSET) is not UNSET:
            state_of(server.services, request)  # refuses what is not ours before anything runs
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()

    @property
    def state(self) -> State:
        """What the server's `lifespan` yielded; None without one."""
        return cast("State", self.server.state)

    @property
    def caller(self) -> Caller:
        """Who asks: `principal`, and what the client says of itself."""
        return self.request.caller

    @property
    def request_id(self) -> Id:
        """The JSON-RPC id of the request."""
        return self.request.id

    @property
    def headers(self) -> Mapping[bytes, bytes]:
        """The HTTP headers of the request, names in lower case; empty over other transports."""
        return self.request.headers or {}

    # -- telling the caller

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

        The stateless era sends none unless this request asked for them; a session gets all until it sets a level. It is
        sent when this returns; `await`, as other frameworks want it, changes nothing.
        """
        least = self._least_level()
        if least is None or LEVELS.index(level) < LEVELS.index(least):
            return DONE
        if not state_of(self._services, self.request).count_log():
            return DONE
        params = t.LoggingMessageNotificationParams(level=level, data=data, logger=UNSET if logger is None else logger)
        self._notify("notifications/message", params)
        return DONE

    def _least_level(self) -> str | None:
        if not self.request.caller.rules.logs_by_request:
            session = self.request.session
            return (session and session.log_level) or LEVELS[0]
        meta = self.request.params.meta
        return None if meta is UNSET or meta.log_level is UNSET else meta.log_level

    def close_stream(self, retry_ms: int = 1000) -> bool:
        """End the HTTP connection of this call, not the call: its client comes back after `retry_ms` for the rest.

        Only sessions of 2025-11-25 over HTTP can do so, for calls that take long; elsewhere this does nothing and
        gives False. Call it on the server's loop, not from a plain function.
        """
        return self.request.channel.detach(self.request, retry_ms)

    def report_progress(self, done: float, total: float | None = None, message: str | None = None) -> Awaitable[None]:
        """Tell how far the request has come, if its caller asked (`notifications/progress`).

        Values that do not grow are not sent: progress must increase with every notification, also where a call that
        asks runs again. It is sent when this returns; `await` changes nothing.
        """
        meta = self.request.params.meta
        if meta is UNSET or meta.progress_token is UNSET:
            return DONE
        if not state_of(self._services, self.request).advance(done):
            return DONE
        params = t.ProgressNotificationParams(
            progress_token=meta.progress_token,
            progress=done,
            total=UNSET if total is None else total,
            message=message if message is not None and self.request.caller.rules.progress_message else UNSET,
        )
        self._notify("notifications/progress", params)
        return DONE

    def _notify(self, method: str, params: Any) -> None:
        """Send on the request's stream, which is the loop's; a plain function runs in a thread."""
        request, message = self.request, encode_notification(method, params)
        if threading.get_ident() == self._thread:
            request.channel.send(request, message)
            return
        with suppress(RuntimeError):  # the server has ended, and the thread goes on
            self._loop.call_soon_threadsafe(request.channel.send, request, message)

    # -- being a task

    async def start_task(self) -> bool:
        """Answer the call with a task, and go on as one; for tools registered with `task="later"`.

        False where the client knows no tasks, so that the call stays open until the function is done. Questions that
        were asked before are part of the call; those asked from now on wait in the task. Does nothing in a task.

        Raises:
            Overloaded: there are too many tasks.
            RuntimeError: the tool is not registered with `task=`.
        """
        tasks = self.server.tasks
        if tasks is None:
            raise RuntimeError('Register the tool with task="later" to start tasks in it.')
        return await tasks.start(self.request)

    def task_status(self, message: str) -> None:
        """Say in words how the task stands, to who asks for it (`statusMessage`); nothing happens outside a task."""
        tasks = self.server.tasks
        if tasks is None:
            return
        if threading.get_ident() == self._thread:
            tasks.note(self.request, message)
            return
        with suppress(RuntimeError):  # the server has ended, and the thread goes on
            self._loop.call_soon_threadsafe(tasks.note, self.request, message)

    # -- asking the caller

    @overload
    async def elicit(self, message: str, schema: type[T], *, key: str | None = None) -> T: ...
    @overload
    async def elicit(self, message: str, schema: type[T], *, or_none: Literal[False], key: str | None = None) -> T: ...
    @overload
    async def elicit(self, message: str, schema: type[T], *, or_none: bool, key: str | None = None) -> T | None: ...
    @overload
    async def elicit(self, message: str, schema: Any, *, or_none: bool = False, key: str | None = None) -> Any: ...
    async def elicit(self, message: str, schema: Any, *, or_none: bool = False, key: str | None = None) -> Any:
        """Ask the user by a form, and return what they filled in, checked (`elicitation/create`).

        `schema` is a struct, dataclass, TypedDict or pydantic model of flat fields; a type of one value, such as `str`,
        `bool`, an enum or a `Literal`; or a `requestedSchema` written by hand, for a dict. Never ask for secrets.
        `key` is what the question is called in a stateless result; without one it is numbered.

        In the stateless era the function runs again from its first line with the answer: see `once`.

        Raises:
            Declined, Cancelled: the user did not answer; None instead with `or_none`.
            NoAnswer: the client gave no answer that fits, or none in time.
            MissingClientCapability: the client has no forms.
            TypeError: `schema` has a field that no form can have.
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
        """Ask the user to open a URL, such as to sign in; True says that they agreed to, not that they are done.

        Whether they are done is known where the URL leads. `elicitation_id` is what `Server.elicitation_complete` is
        called with then. Errors as of `elicit`.
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
        """Ask the client's model (`sampling/createMessage`); the result's `text` is what it says.

        `messages` is text or content that the user says, a `SamplingMessage`, or a list of these. `model_preferences`
        may be names of models that would do. Models that use tools need the client's capability `sampling.tools`.

        Raises:
            Declined: the client, or its user, wants no model to be asked.
            NoAnswer: the client gave no answer that fits, or none in time.
            MissingClientCapability: the client has no model for servers, or none that does this.
            ValueError: uses of tools and their results do not belong together.
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
        """The client's roots, where its user works: information, and no permission (`roots/list`).

        Raises:
            NoAnswer: the client gave no answer that fits, or none in time.
            MissingClientCapability: the client has no roots.
        """
        from wharfinger.server.input.input_requests import Roots

        found: list[t.Root] = await self._ask(key, Roots())
        return found

    async def ask(self, **questions: InputQuery) -> dict[str, Any]:
        """Ask several things at once: `await ctx.ask(name=Elicit("Who?", str), folders=Roots())`.

        Questions are `Elicit`, `ElicitUrl`, `Sample` and `Roots`; the answers have the same keys. Errors are those of
        the first that failed.
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
        """Call `function` once per call of the client, however often this function runs again; return its result.

        The result must have a form in JSON: it travels to the client and back, which can read but not change it. It
        comes back as `kind`, else as what `function` is annotated to return, else as plain JSON values; in the run that
        computes it too. `function` may be async; a plain one is called on the event loop and must not block. An
        exception is kept by nobody. `key` names it within the call.
        """
        from wharfinger.server.input.round_trips import once

        return await once(self._services, self.request, key, function, kind)

    # -- using the server's own features, as this caller

    async def read_resource(self, uri: str) -> t.ReadResourceResult:
        """Read a resource of this server, as if the caller had asked for it.

        Raises:
            ResourceNotFound: there is none, or the caller may not know of it.
        """
        try:
            handler = self.server.handlers.get("resources/read") or self.server.resources.read
            result: t.ReadResourceResult = await handler(read_request(self.request, uri))
            return result
        except PermissionDenied:
            raise ResourceNotFound(uri) from None

    async def list_resources(self, cursor: str | None = None) -> t.ListResourcesResult:
        """One page of this server's resources, as the caller would see it."""
        return await self.server.resources.page(self.request, cursor)

    async def search(self, query: str, limit: int = 20, *, source: str = "", type: str = "", path: str = "") -> Hits:
        """Search every source and the registered resources; best first, and `cut` says why there may be more.

        All words must occur, in any order and case; `"several words"` in double quotes are one. `source` narrows it to
        the source of this name, `type` to a MIME type or a family such as `image`, `path` to paths or URIs that begin
        so or fit a pattern such as `*.md`. The caller is told the progress where an index is not complete yet.

        Raises:
            InvalidArgument: there is no such source.
        """
        from wharfinger.server.search import Wanted, search

        wanted = Wanted(query=query, limit=limit, source=source, type=type, path=path)
        return await search(self._services, self.server.resources, self.request, wanted, self._indexed)

    def _indexed(self, documents: float, message: str) -> None:
        self.report_progress(documents, message=message)

    def for_plain_function(self) -> Context[State]:
        """The context for a function that is not async: its methods that wait for an answer raise CannotAsk."""
        return _PlainContext(self.server, self.request)


def _needs_async(name: str) -> Any:
    def refuse(self: Context[Any], *args: Any, **kwargs: Any) -> Any:
        raise CannotAsk(
            f"Context.{name}() waits for an answer, which only an async function can do: "
            f"declare the handler with `async def`, and write `await ctx.{name}(…)`."
        )

    return refuse


class _PlainContext(Context[State]):
    """The context of a plain function, which would get a coroutine from these methods and could not await it."""

    __slots__ = ()

    ask = _needs_async("ask")
    elicit = _needs_async("elicit")
    elicit_url = _needs_async("elicit_url")
    once = _needs_async("once")
    roots = _needs_async("roots")
    sample = _needs_async("sample")
