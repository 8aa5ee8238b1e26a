"""A user's function as something to call for a request: async or in a thread, with its context, within its time."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Awaitable, Callable, Mapping
from types import CodeType
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_origin

import msgspec

from wharfinger.errors import HandlerFailed, ResourceNotFound, URLElicitationRequired
from wharfinger.protocol.request import Request
from wharfinger.protocol.shares import name_owner
from wharfinger.server.context import Context
from wharfinger.server.signature.remembered import remembered
from wharfinger.server.threads import MEMBER

if TYPE_CHECKING:
    from wharfinger.server.app import Server
    from wharfinger.server.dependencies import Need
    from wharfinger.server.features.completion import Complete

__all__ = ["HandlerFunction", "is_async", "owner_of", "refuse_questions", "share_of"]

Finish = Callable[[Request, Any], Awaitable[Any]]
"""Takes the request and what the function returned; gives what is returned instead."""


def is_async(function: Callable[..., Any]) -> bool:
    """Whether calling it gives something to await: a coroutine function, also behind partial or as `__call__`."""
    while isinstance(function, functools.partial):
        function = function.func
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(type(function), "__call__", None)  # noqa: B004  # the class decides, not the attribute
    )


def share_of(request: Request) -> str:
    """Whose share a request uses: the principal's, else its address's, else that of its connection.

    All callers over HTTP without an address are one: each of their calls may have a connection of its own.
    """
    principal = request.caller.principal
    if principal or request.peer or request.headers is not None:
        return name_owner(principal, request.peer)
    return f"connection {id(request.session or request.channel)}"


def owner_of(request: Request) -> str:
    """Whose threads a request uses: `share_of`, and in that of a principal or an address one session.

    Requests without a session have their client's name in its place: HTTP/1.1 needs a connection for each call that is
    under way, so that connections say nothing of which application it is.
    """
    share = share_of(request)
    if share.startswith("connection"):
        return share
    client = request.caller.info
    if request.session is not None:
        member = f"session {id(request.session)}"
    else:
        member = client.name[:64].replace(MEMBER, " ") if client else ""
    return f"{share}{MEMBER}{member}"


class HandlerFunction:
    """A function with everything that can be decided at registration decided.

    `direct` says that `function(**values)` may be awaited as it is: async, with nothing to convert, no context, no
    dependencies and no time of its own.
    `variables` are the names that `values` may hold, as text (of a URI template); each goes to the parameter of that
    name, converted to its annotation.

    Raises:
        TypeError: a parameter has no variable, or a variable no parameter.
    """

    __slots__ = (
        "_context",
        "_converted",
        "_inline",
        "_needs",
        "_server",
        "_timeout",
        "completers",
        "direct",
        "finish",
        "function",
        "runs_async",
    )

    def __init__(
        self,
        server: Server,
        function: Callable[..., Any],
        *,
        variables: tuple[str, ...] = (),
        inline: bool = False,
        timeout: float | None = None,
        known: dict[Any, Any] | None = None,
    ) -> None:
        self.function = function
        self._server = server
        if timeout is not None and timeout <= 0:
            raise ValueError(f"timeout={timeout}: write more than 0 seconds, or None.")
        self._timeout = timeout
        self._converted: dict[str, Any] = {}
        self.completers: dict[str, Complete] = {}
        """What completes the variables that have something to complete them."""
        self.finish: Finish | None = None
        """What becomes of the result while dependencies are still open; without any it is not called."""
        self._needs: dict[str, Need] = {}
        if known is None:
            known = remembered(function)
        settled = known.get(variables)
        if settled is None:
            self._context = self._look_at(variables)
            settled = known[variables] = (
                self._context, self._converted, self.completers, self._needs,
                is_async(function), inspect.isasyncgenfunction(function),
            )  # fmt: skip
        self.runs_async: bool
        self._context, self._converted, self.completers, self._needs, self.runs_async, generates = settled
        self._inline = inline or generates  # calling one runs nothing of it
        self.direct = self.runs_async and not (self._context or self._needs or self._converted) and timeout is None
        if self._context is not None and not (self.runs_async or generates):
            refuse_questions(function, self._context)

    def _look_at(self, variables: tuple[str, ...]) -> str | None:
        """Settle what each parameter gets; the name of the one that takes the context, if there is one."""
        # Which know completers and dependencies, which need `owner_of`.
        from wharfinger.server.dependencies import depends_of, plan, refuse_default
        from wharfinger.server.signature.arguments import annotations_of, is_context

        context: str | None = None
        name = getattr(self.function, "__name__", repr(self.function))
        hints = annotations_of(self.function)
        taken: set[str] = set()
        takes_any = False
        for parameter in inspect.signature(self.function).parameters.values():
            refuse_default(self.function, parameter)
            annotation = hints.get(parameter.name, parameter.annotation)
            if (depends := depends_of(annotation)) is not None:
                self._needs[parameter.name] = plan(depends)
            elif is_context(annotation):
                context = parameter.name
            elif parameter.kind is parameter.VAR_KEYWORD:
                takes_any = True
            elif parameter.name in variables:
                taken.add(parameter.name)
                if parameter.kind is parameter.POSITIONAL_ONLY:
                    raise TypeError(f"{name}() must take {parameter.name!r} by name.")
                self._take(parameter.name, annotation)
            elif parameter.default is parameter.empty and parameter.kind is not parameter.VAR_POSITIONAL:
                raise TypeError(f"{name}() wants {parameter.name!r}, which the URI does not have as a variable.")
        missing = [variable for variable in variables if variable not in taken]
        if missing and not takes_any:
            raise TypeError(f"{name}() has no parameter for the URI's variable {missing[0]!r}.")
        return context

    def _take(self, name: str, annotation: Any) -> None:
        """Settle what a variable is converted to, and what completes it."""
        from wharfinger.server.signature.arguments import completer_of

        kind = get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation
        if kind not in (str, Any, inspect.Parameter.empty) or _is_bounded(annotation):
            self._converted[name] = annotation
        completer = completer_of(annotation)
        if completer is not None:
            self.completers[name] = completer

    @property
    def takes_context(self) -> bool:
        """Whether the function may look at its request, itself or by what it depends on."""
        return self._context is not None or bool(self._needs)

    async def __call__(self, request: Request, values: Mapping[str, Any]) -> Any:
        """Call the function for a request.

        Raises:
            ResourceNotFound: a variable's text is none of its parameter's type, so there is no such resource.
            HandlerFailed: it took longer than its own time.
        """
        arguments = dict(values)
        for name, annotation in self._converted.items():
            if name in arguments:
                try:
                    arguments[name] = msgspec.convert(arguments[name], annotation, strict=False, dec_hook=_made)
                except msgspec.ValidationError:
                    raise ResourceNotFound(request.params.uri) from None
                if isinstance(arguments[name], float) and not math.isfinite(arguments[name]):  # "inf", "nan"
                    raise ResourceNotFound(request.params.uri)
        return await self.invoke(request, arguments)

    async def invoke(self, request: Request, arguments: dict[str, Any]) -> Any:
        """Call the function with these arguments and its context, where it belongs, within its time."""
        if self._context is not None:
            arguments[self._context] = Context(self._server, request)
        try:
            if self._needs:
                running: Awaitable[Any] = self._with_needs(request, arguments)
            elif self.runs_async:
                running = self.function(**arguments)
            elif self._inline:
                return self.function(**arguments)
            else:
                running = self._server.pool.run(owner_of(request), functools.partial(self.function, **arguments))
            return await (running if self._timeout is None else self._timed(running, self._timeout))
        except URLElicitationRequired as error:
            raise self.needs_url(request, error) from None

    def needs_url(self, request: Request, error: URLElicitationRequired) -> BaseException:
        """What to raise where the function says that its user must open a URL first."""
        from wharfinger.server.input.round_trips import required_url  # few servers raise it

        return required_url(self._server, request, error)

    async def _timed(self, running: Awaitable[Any], seconds: float) -> Any:
        """The result within the function's own time, which stands still while a question waits for its answer."""
        from wharfinger.server.input.patience import Patience

        patience = Patience(seconds)
        try:
            async with patience:
                return await running
        except TimeoutError:
            if not patience.expired:  # the function's own, which says something else
                raise
            raise HandlerFailed(f"The handler took longer than {seconds:g} s.") from None

    async def _with_needs(self, request: Request, arguments: dict[str, Any]) -> Any:
        """Call the function with what it depends on, which stays open until its result has been read."""
        from wharfinger.server.dependencies import Opened

        async with Opened(self._server, request, arguments.get(self._context or "")) as opened:
            await opened.fill(self._needs, arguments)
            if self.runs_async:
                value = await self.function(**arguments)
            elif self._inline:
                value = self.function(**arguments)
            else:
                value = await self._server.pool.run(owner_of(request), functools.partial(self.function, **arguments))
            return value if self.finish is None else await self.finish(request, value)


_ASKS = frozenset(("ask", "elicit", "elicit_url", "once", "roots", "sample"))
"""What only an async function can await of its context."""


def refuse_questions(function: Callable[..., Any], context: str) -> None:
    """Raise TypeError where a plain function asks by its context: it could not await the answer."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    asked = None if code is None else _question_in(code, context)
    if asked is not None:
        name = getattr(function, "__name__", repr(function))
        raise TypeError(
            f"{name}() calls {context}.{asked}(), for which it must be async: "
            f"async def {name}(…), and await {context}.{asked}(…)."
        )


def _question_in(code: CodeType, context: str) -> str | None:
    """The question that a code asks by this name, also in a comprehension or lambda, but not in an async function."""
    if _ASKS.intersection(code.co_names):
        import dis  # such a name may be of something else, such as random.sample: only bytecode tells

        earlier: Any = None
        for step in dis.get_instructions(code):
            if step.argval in _ASKS and step.opname in ("LOAD_ATTR", "LOAD_METHOD") and _loads(earlier, context):
                return str(step.argval)
            earlier = step
    inner = [part for part in code.co_consts if isinstance(part, CodeType) and context in part.co_freevars]
    found = (_question_in(part, context) for part in inner if not part.co_flags & inspect.CO_COROUTINE)
    return next((asked for asked in found if asked is not None), None)


def _loads(step: Any, name: str) -> bool:
    """Whether an instruction puts a local name on the stack, alone or after another one (3.13 joins some of them)."""
    if step is None or not ("LOAD_FAST" in step.opname or "LOAD_DEREF" in step.opname):
        return False
    return bool(step.argval == name or (isinstance(step.argval, tuple) and step.argval[-1:] == (name,)))


def _is_bounded(annotation: Any) -> bool:
    extras = get_args(annotation) if get_origin(annotation) is Annotated else ()
    return any(isinstance(extra, msgspec.Meta) for extra in extras)


def _made(kind: Any, text: Any) -> Any:
    """What msgspec does not know is made from the text, such as a `Path`; a refusal means that there is none."""
    return kind(text)
