"""A user's function as something to call for a request: async or in a thread, with its context, within its time."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_origin

import msgspec

from wharfinger.errors import InternalError, ResourceNotFound
from wharfinger.protocol.exchange import Request
from wharfinger.server.context import Context

if TYPE_CHECKING:
    from wharfinger.server.app import Server

__all__ = ["Call", "is_async", "owner_of"]


def is_async(function: Callable[..., Any]) -> bool:
    """Whether calling it gives something to await: a coroutine function, also behind partial or as `__call__`."""
    while isinstance(function, functools.partial):
        function = function.func
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(type(function), "__call__", None)  # noqa: B004  # the class decides, not the attribute
    )


def owner_of(request: Request) -> str:
    """Whose share of the thread pool a request uses: the principal's, else the peer address's."""
    return request.caller.principal or request.peer


class Call:
    """A function with everything that can be decided at registration decided.

    `plain` says that `function()` may be awaited as it is: async, no arguments, no context, no time of its own.
    `variables` are the names that `values` may hold, as text (of a URI template); each goes to the parameter of that
    name, converted to its annotation.

    Raises:
        TypeError: a parameter has no variable, or a variable no parameter.
    """

    __slots__ = (
        "_context",
        "_converted",
        "_inline",
        "_server",
        "_timeout",
        "completers",
        "function",
        "plain",
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
    ) -> None:
        self.function = function
        self._server = server
        self._timeout = timeout
        self.runs_async = is_async(function)
        self._inline = inline or inspect.isasyncgenfunction(function)  # calling one runs nothing of it
        self._converted: dict[str, Any] = {}
        self.completers: dict[str, Any] = {}
        self._context = self._look_at(variables)
        self.plain = self.runs_async and not variables and self._context is None and timeout is None

    def _look_at(self, variables: tuple[str, ...]) -> str | None:
        """Settle what each parameter gets; the name of the one that takes the context, if there is one."""
        context: str | None = None
        name = getattr(self.function, "__name__", repr(self.function))
        hints = _hints(self.function)
        taken: set[str] = set()
        takes_any = False
        for parameter in inspect.signature(self.function).parameters.values():
            whole = hints.get(parameter.name, parameter.annotation)
            annotation, completer = _unwrap(whole)
            if (get_origin(annotation) or annotation) is Context:
                context = parameter.name
            elif parameter.kind is parameter.VAR_KEYWORD:
                takes_any = True
            elif parameter.name in variables:
                taken.add(parameter.name)
                if parameter.kind is parameter.POSITIONAL_ONLY:
                    raise TypeError(f"{name}() must take {parameter.name!r} by name.")
                if annotation not in (str, Any, inspect.Parameter.empty) or _is_bounded(whole):
                    self._converted[parameter.name] = whole
                if completer is not None:
                    self.completers[parameter.name] = completer
            elif parameter.default is parameter.empty and parameter.kind is not parameter.VAR_POSITIONAL:
                raise TypeError(f"{name}() wants {parameter.name!r}, which the URI does not have as a variable.")
        missing = [variable for variable in variables if variable not in taken]
        if missing and not takes_any:
            raise TypeError(f"{name}() has no parameter for the URI's variable {missing[0]!r}.")
        return context

    @property
    def takes_context(self) -> bool:
        """Whether the function may look at its request."""
        return self._context is not None

    async def __call__(self, request: Request, values: Mapping[str, Any]) -> Any:
        """Call the function for a request.

        Raises:
            ResourceNotFound: a variable's text is none of its parameter's type, so there is no such resource.
            InternalError: it took longer than its own time.
        """
        arguments = dict(values)
        for name, annotation in self._converted.items():
            if name in arguments:
                try:
                    arguments[name] = msgspec.convert(arguments[name], annotation, strict=False, dec_hook=_made)
                except msgspec.ValidationError:
                    raise ResourceNotFound(request.params.uri) from None
        return await self.invoke(request, arguments)

    async def invoke(self, request: Request, arguments: dict[str, Any]) -> Any:
        """Call the function with these arguments and its context, where it belongs, within its time."""
        if self._context is not None:
            arguments[self._context] = Context(self._server, request)
        if self.runs_async:
            running: Awaitable[Any] = self.function(**arguments)
        elif self._inline:
            return self.function(**arguments)
        else:
            running = self._server.pool.run(owner_of(request), functools.partial(self.function, **arguments))
        if self._timeout is None:
            return await running
        scope = asyncio.timeout(self._timeout)
        try:
            async with scope:
                return await running
        except TimeoutError:
            if not scope.expired():  # the function's own, which says something else
                raise
            raise InternalError(f"The handler took longer than {self._timeout:g} s.") from None


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    from wharfinger.server.signature import annotations_of  # which needs completers, which need `owner_of`

    return annotations_of(function)


def _is_bounded(annotation: Any) -> bool:
    extras = get_args(annotation) if get_origin(annotation) is Annotated else ()
    return any(isinstance(extra, msgspec.Meta) for extra in extras)


def _made(kind: Any, text: Any) -> Any:
    """What msgspec does not know is made from the text, such as a `Path`; a refusal means that there is none."""
    return kind(text)


def _unwrap(annotation: Any) -> tuple[Any, Any]:
    """`(type, Complete marker or None)` of an annotation that may be `Annotated`."""
    if get_origin(annotation) is not Annotated:
        return annotation, None
    kind, *extras = get_args(annotation)
    return kind, next((extra for extra in extras if type(extra).__name__ == "Complete"), None)
