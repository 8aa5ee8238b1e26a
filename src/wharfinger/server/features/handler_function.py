"""Calls an author's function for a request: on the event loop or in a thread, with its context, within its timeout."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_origin

import msgspec

from wharfinger.errors import HandlerFailed, ResourceNotFound, URLElicitationRequired
from wharfinger.protocol.request import Request
from wharfinger.server.owners import owner_of
from wharfinger.server.threads import is_async

if TYPE_CHECKING:
    from wharfinger.server.dependencies import Need
    from wharfinger.server.services import Services
    from wharfinger.server.signature.arguments import Signature
    from wharfinger.server.signature.complete import Complete
    from wharfinger.server.signature.explicit_schema import SchemaSignature

__all__ = ["HandlerFunction"]

Finish = Callable[[Request, Any], Awaitable[Any]]
"""Takes the request and the function's result, and returns the result to use instead."""


class HandlerFunction:
    """A function whose parameters are analysed once, at registration.

    `is_plain_async` is True if `await function(**values)` may replace a call of this object: the function is async,
    with nothing to convert, no context, no dependencies and no timeout. Only `URLElicitationRequired` is then left to
    the caller.

    `variables` are the names of the variables of a URI template. A call takes their texts as `values`, and passes each
    to the parameter of the same name, converted to its annotation. A tool or prompt has a `signature` instead, which
    decodes its arguments. With `inline`, a function that is not async runs on the event loop, not in a thread.

    Raises:
        TypeError: a parameter without a default has no variable, or a variable has no parameter.
        ValueError: `timeout` is not positive.
    """

    __slots__ = (
        "_context",
        "_finishes",
        "_inline",
        "_may_ask",
        "_needs",
        "_runs_async",
        "_services",
        "_timeout",
        "_variable_types",
        "completers",
        "finish",
        "function",
        "is_plain_async",
    )

    def __init__(
        self,
        services: Services,
        function: Callable[..., Any],
        *,
        variables: tuple[str, ...] = (),
        inline: bool = False,
        timeout: float | None = None,
        signature: Signature | SchemaSignature | None = None,
    ) -> None:
        self.function = function
        self._services = services
        if timeout is not None and timeout <= 0:
            raise ValueError(f"timeout={timeout}: write more than 0 seconds, or None.")
        self._timeout = timeout
        self._variable_types: dict[str, Any] = {}
        self.completers: dict[str, Complete] = {}
        """The completers of variables, by name."""
        self.finish: Finish | None = None
        """Called with the result if `_finishes`."""
        self._needs: dict[str, Need] = {}
        if signature is None:
            self._context = self._plan_parameters(variables)
        else:
            self._context, self._needs = signature.context, signature.needs
        self._runs_async = is_async(function)
        generates = inspect.isasyncgenfunction(function)
        self._inline = inline or generates  # it needs no thread: calling it runs none of its body
        extras = self._context or self._needs or self._variable_types
        self.is_plain_async = self._runs_async and not extras and timeout is None
        self._finishes = bool(self._needs) or (generates and timeout is not None)
        """Whether `finish` runs within the call: while dependencies are open, and a generator within the timeout."""
        self._may_ask = self._runs_async or generates
        """Whether the function can wait for input of the client."""

    def _plan_parameters(self, variables: tuple[str, ...]) -> str | None:
        """Decide what each parameter receives. Returns the name of the parameter that takes the context, or None."""
        from wharfinger.server.dependencies import depends_of, plan, refuse_default, refuse_positional_only
        from wharfinger.server.signature.annotations import annotations_of, is_context, parameters_of

        context: str | None = None
        name = getattr(self.function, "__name__", repr(self.function))
        hints = annotations_of(self.function)
        taken: set[str] = set()
        takes_any = False
        for parameter in parameters_of(self.function):
            refuse_default(self.function, parameter)
            annotation = hints.get(parameter.name, parameter.annotation)
            if (depends := depends_of(annotation)) is not None:
                refuse_positional_only(self.function, parameter)
                self._needs[parameter.name] = plan(depends)
            elif is_context(annotation):
                refuse_positional_only(self.function, parameter)
                context = parameter.name
            elif parameter.kind is parameter.VAR_KEYWORD:
                takes_any = True
            elif parameter.name in variables:
                taken.add(parameter.name)
                refuse_positional_only(self.function, parameter)
                self._plan_variable(parameter.name, annotation)
            elif parameter.default is parameter.empty and parameter.kind is not parameter.VAR_POSITIONAL:
                raise TypeError(f"{name}() takes {parameter.name!r}, which is not a variable of the URI.")
        missing = [variable for variable in variables if variable not in taken]
        if missing and not takes_any:
            raise TypeError(f"{name}() has no parameter for the URI's variable {missing[0]!r}.")
        return context

    def _plan_variable(self, name: str, annotation: Any) -> None:
        """Find the type that a variable is converted to, and its completer."""
        from wharfinger.server.signature.arguments import completer_of
        from wharfinger.server.signature.type_schemas import to_msgspec

        kind = to_msgspec(annotation)
        plain, *extras = get_args(kind) if get_origin(kind) is Annotated else (kind,)
        is_bounded = any(isinstance(extra, msgspec.Meta) for extra in extras)
        if plain not in (str, Any, inspect.Parameter.empty) or is_bounded:
            self._variable_types[name] = kind
        completer = completer_of(annotation)
        if completer is not None:
            self.completers[name] = completer

    @property
    def takes_context(self) -> bool:
        """Whether the function, or one of its dependencies, may use the request."""
        return self._context is not None or bool(self._needs)

    async def __call__(self, request: Request, values: Mapping[str, Any]) -> Any:
        """Call the function for a request.

        Raises:
            ResourceNotFound: a variable cannot be converted to its parameter's type, so there is no such resource.
            HandlerFailed: the function exceeded its timeout.
        """
        arguments = dict(values)
        for name, annotation in self._variable_types.items():
            if name in arguments:
                try:
                    arguments[name] = msgspec.convert(arguments[name], annotation, strict=False, dec_hook=_convert_text)
                except msgspec.ValidationError:
                    raise ResourceNotFound(request.params.uri) from None
                if isinstance(arguments[name], float) and not math.isfinite(arguments[name]):  # "inf", "nan"
                    raise ResourceNotFound(request.params.uri)
        return await self.invoke(request, arguments)

    async def invoke(self, request: Request, arguments: dict[str, Any]) -> Any:
        """Call the function with `arguments` and its context, on the event loop or in a thread, within its timeout.

        A plain function on the event loop cannot be interrupted: for it the timeout does nothing.

        Raises:
            HandlerFailed: the function exceeded its timeout.
        """
        if self._context is not None:
            context = self._services.context(request)
            arguments[self._context] = context if self._may_ask else context.for_plain_function()
        try:
            if self._finishes:
                running: Awaitable[Any] = self._call_and_finish(request, arguments)
            elif self._runs_async:
                running = self.function(**arguments)
            elif self._inline:
                return self.function(**arguments)
            else:
                running = self._services.pool.run(owner_of(request), functools.partial(self.function, **arguments))
            return await (running if self._timeout is None else self._await_in_time(running, self._timeout))
        except URLElicitationRequired as error:
            raise self.url_exception(request, error) from None

    def url_exception(self, request: Request, error: URLElicitationRequired) -> BaseException:
        """Return the exception to raise if the function requires that the user opens a URL first."""
        from wharfinger.server.input.round_trips import url_exception  # on use: few servers need it

        return url_exception(self._services, request, error)

    async def _await_in_time(self, running: Awaitable[Any], seconds: float) -> Any:
        """Await the result within the function's timeout, which pauses while the client answers a request for input."""
        from wharfinger.transports.timeouts import PausableTimeout

        timeout = PausableTimeout(seconds, in_context=True)
        try:
            async with timeout:
                return await running
        except TimeoutError:
            if not timeout.expired:  # raised by the function itself
                raise
            raise HandlerFailed(f"The handler took longer than {seconds:g} s.") from None

    async def _call_and_finish(self, request: Request, arguments: dict[str, Any]) -> Any:
        """Call the function with its dependencies, which stay open until `finish` has processed the result."""
        from wharfinger.server.dependencies import OpenDependencies

        context = arguments.get(self._context or "") if self._may_ask else None
        async with OpenDependencies(self._services, request, context) as opened:
            await opened.fill(self._needs, arguments)
            if self._runs_async:
                value = await self.function(**arguments)
            elif self._inline:
                value = self.function(**arguments)
            else:
                value = await self._services.pool.run(owner_of(request), functools.partial(self.function, **arguments))
            return value if self.finish is None else await self.finish(request, value)


def _convert_text(kind: Any, text: Any) -> Any:
    """Convert text to a type that msgspec does not support, such as `Path`.

    A ValueError or TypeError means that there is no such resource.
    """
    return kind(text)
