"""Dependencies: parameters that other functions fill, once per request (`Annotated[Db, Depends(database)]`).

`plan` inspects a dependency at registration; `OpenDependencies` calls it for a request and closes it afterwards.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import threading
from collections.abc import Callable, Generator, Iterator, Mapping, MutableMapping
from contextlib import AbstractContextManager, AsyncExitStack
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, get_args, get_origin

from wharfinger.errors import Overloaded
from wharfinger.protocol.request import Request
from wharfinger.server.owners import owner_of
from wharfinger.server.signature.annotations import RequestContext, annotations_of, body_of, is_context
from wharfinger.server.threads import is_async, run_in_own_thread

if TYPE_CHECKING:
    from wharfinger.server.services import Services

__all__ = [
    "Depends",
    "Needs",
    "OpenDependencies",
    "Overrides",
    "depends_of",
    "needs_of",
    "plan",
    "refuse_default",
    "refuse_positional_only",
]


class Depends:
    """Marks a parameter that another function fills: `db: Annotated[Database, Depends(database)]`.

    `function` may be async or plain. A plain one runs in a thread; with `inline` it runs on the event loop, and must
    not block. `function` may also be a generator or async generator that yields once, or a context manager made of one:
    the code after the `yield` runs after the request. An error or a cancellation of the request is raised at the
    `yield`, so put what must always run into `finally`. `function` may take the `Context` and its own dependencies.
    It is called once per request, and its value is shared; with `cache=False` it is called for each parameter.

    Raises:
        TypeError: `function` cannot be called, or has no hash.
    """

    __slots__ = ("cache", "function", "inline")

    def __init__(self, function: Callable[..., Any], *, cache: bool = True, inline: bool = False) -> None:
        if not callable(function):
            raise TypeError(f"Depends() takes a function, not {type(function).__name__}: Depends(database)")
        try:
            hash(function)
        except TypeError:
            raise TypeError(
                "Depends() takes a function with a hash, by which its value is found again: give the class "
                f"{type(function).__name__} a __hash__, or write @dataclass(eq=False)."
            ) from None
        self.function = function
        self.cache = cache
        self.inline = inline


class Need(NamedTuple):
    """A parameter that a dependency fills, as analysed at registration."""

    depends: Depends
    provider: Provider


Needs = Mapping[str, Need]
"""The dependency that fills each parameter, by its name."""


class Provider:
    """A dependency's function, and how it is called."""

    __slots__ = ("call", "context", "function", "kind", "may_ask", "needs")

    call: Callable[..., Any]
    function: Callable[..., Any]
    kind: str
    """`async`, `plain`, or `manager`, whose call makes a context manager."""
    context: str | None
    needs: dict[str, Need]
    may_ask: bool
    """Whether it is async, so that it can await methods of its context."""

    def __init__(self, function: Callable[..., Any], path: tuple[Callable[..., Any], ...] = ()) -> None:
        if function in path:
            circle = " → ".join(f"{_name(step)}()" for step in (*path[path.index(function) :], function))
            raise TypeError(f"Dependencies need each other in a circle: {circle}")
        self.function = function
        body = body_of(function)
        inner = inspect.unwrap(body)
        is_decorated = inner is not body and (inspect.isgeneratorfunction(inner) or inspect.isasyncgenfunction(inner))
        self.call = function
        if inspect.isasyncgenfunction(body):
            self.call = contextlib.asynccontextmanager(function)
        elif inspect.isgeneratorfunction(body):
            self.call = contextlib.contextmanager(function)
        elif is_decorated:
            self.call = functools.partial(_make_manager, function)
        if self.call is not function:
            self.kind = "manager"
        else:
            self.kind = "async" if is_async(function) else "plain"
        self.context, self.needs = _inspect(function, (*path, function))
        self.may_ask = is_async(function) or inspect.isasyncgenfunction(inner)


def _make_manager(function: Callable[..., Any], **arguments: Any) -> Any:
    """Call a decorated generator function, and return a context manager: its result, or one made of that generator."""
    result = function(**arguments)

    def return_result() -> Any:
        return result

    if inspect.isgenerator(result):
        return contextlib.contextmanager(return_result)()
    if inspect.isasyncgen(result):
        return contextlib.asynccontextmanager(return_result)()
    return result


def plan(depends: Depends) -> Need:
    """Decide how a dependency is called, and what it needs itself.

    Raises:
        TypeError: a parameter of its function cannot be filled, or dependencies form a circle.
    """
    return Need(depends, Provider(depends.function))


def depends_of(annotation: Any) -> Depends | None:
    """Return the `Depends` in an annotation, if it has one."""
    if get_origin(annotation) is not Annotated:
        return None
    return next((extra for extra in get_args(annotation)[1:] if isinstance(extra, Depends)), None)


def refuse_default(function: Callable[..., Any], parameter: inspect.Parameter) -> None:
    """Raise TypeError for a `Depends` as a default value: the parameter would be an input that clients can set."""
    if isinstance(parameter.default, Depends):
        marker = f"Depends({_name(parameter.default.function)})"
        raise TypeError(
            f"{_name(function)}(): {parameter.name} = {marker} fills nothing: "
            f"write {parameter.name}: Annotated[…, {marker}]."
        )


def refuse_positional_only(function: Callable[..., Any], parameter: inspect.Parameter) -> None:
    """Raise TypeError for a parameter that is positional-only: the server passes it by name."""
    if parameter.kind is parameter.POSITIONAL_ONLY:
        raise TypeError(f"{_name(function)}() must take {parameter.name!r} by name.")


def needs_of(function: Callable[..., Any]) -> tuple[str | None, dict[str, Need]]:
    """Return the name of the parameter that takes the `Context`, and the parameters that dependencies fill.

    Other parameters are ignored.

    Raises:
        TypeError: as for `plan`.
    """
    return _inspect(function, (), strict=False)


def _inspect(
    function: Callable[..., Any], path: tuple[Callable[..., Any], ...], *, strict: bool = True
) -> tuple[str | None, dict[str, Need]]:
    """Return what `needs_of` does.

    `path` leads to this dependency: the functions that need it, and itself. It is empty for a handler. With `strict`,
    other parameters must have a default.
    """
    context: str | None = None
    needs: dict[str, Need] = {}
    hints = annotations_of(function)
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except ValueError:  # some functions written in C have no signature
        parameters = []
    for parameter in parameters:
        refuse_default(function, parameter)
        annotation = hints.get(parameter.name, parameter.annotation)
        if (depends := depends_of(annotation)) is not None:
            refuse_positional_only(function, parameter)
            needs[parameter.name] = Need(depends, Provider(depends.function, path))
        elif is_context(annotation):
            refuse_positional_only(function, parameter)
            context = parameter.name
        elif isinstance(annotation, str) and "Depends(" in annotation:
            raise TypeError(
                f"{_name(function)}(): the annotation {annotation!r} of {parameter.name!r} is unknown when the server "
                "runs; import its names outside of `if TYPE_CHECKING:`."
            )
        elif strict and parameter.default is parameter.empty and parameter.kind not in _VARIADIC:
            raise TypeError(
                f"The dependency {_name(function)}() takes {parameter.name!r}, which nothing fills: give it a default, "
                "or annotate it with Context or Annotated[…, Depends(…)]."
            )
    return context, needs


_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def _name(function: Callable[..., Any]) -> str:
    return str(getattr(function, "__name__", type(function).__name__))


class Overrides(MutableMapping[Callable[..., Any], Callable[..., Any]]):
    """Functions that replace dependencies in tests; each is inspected when it is added.

    Raises:
        TypeError: as for `plan`, or a function needs the dependency that it replaces, directly or indirectly.
    """

    def __init__(self) -> None:
        self.providers: dict[Callable[..., Any], Provider] = {}

    def __getitem__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return self.providers[function].function

    def __setitem__(self, function: Callable[..., Any], fake: Callable[..., Any]) -> None:
        provider = Provider(fake, () if fake == function else (function,))
        self._refuse_circle(provider, (function, fake))
        self.providers[function] = provider

    def __delitem__(self, function: Callable[..., Any]) -> None:
        del self.providers[function]

    def __iter__(self) -> Iterator[Callable[..., Any]]:
        return iter(self.providers)

    def __len__(self) -> int:
        return len(self.providers)

    def _refuse_circle(self, provider: Provider, path: tuple[Callable[..., Any], ...]) -> None:
        """Raise TypeError if the dependencies of a new function lead back to `path[0]` through other replacements."""
        for need in provider.needs.values():
            needed = need.depends.function
            if needed == path[0]:
                circle = " → ".join(f"{_name(step)}()" for step in (*path, needed))
                raise TypeError(f"Dependencies need each other in a circle: {circle}")
            self._refuse_circle(self.providers.get(needed, need.provider), (*path, needed))

    @contextlib.contextmanager
    def replaced(self, function: Callable[..., Any], fake: Callable[..., Any]) -> Generator[None]:
        """Replace `function` by `fake` in a `with` block."""
        before = self.providers.get(function)
        self[function] = fake
        try:
            yield
        finally:
            if before is None:
                del self[function]
            else:
                self.providers[function] = before


class OpenDependencies:
    """The dependencies of one request, created in the order of the parameters and closed in reverse.

    A dependency cannot suppress the error with which it is closed; if it raises another error, this replaces the first.
    """

    __slots__ = ("_context", "_request", "_services", "_stack", "_values")

    def __init__(self, services: Services, request: Request, context: RequestContext | None = None) -> None:
        self._services = services
        self._request = request
        self._context = context
        self._values: dict[Callable[..., Any], Any] = {}
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> OpenDependencies:
        return self

    async def __aexit__(self, kind: Any, error: Any, trace: Any) -> None:
        await self._stack.__aexit__(kind, error, trace)

    async def fill(self, needs: Needs, arguments: dict[str, Any]) -> None:
        """Add the values of dependencies to the other arguments."""
        for name, need in needs.items():
            arguments[name] = await self._get(need)

    async def _get(self, need: Need) -> Any:
        function = need.depends.function
        if need.depends.cache and function in self._values:
            return self._values[function]
        overrides = self._services.overrides
        provider = overrides.providers.get(function, need.provider) if overrides else need.provider
        arguments: dict[str, Any] = {}
        if provider.context is not None:
            if self._context is None:
                self._context = self._services.context(self._request)
            context = self._context
            arguments[provider.context] = context if provider.may_ask else context.for_plain_function()
        await self.fill(provider.needs, arguments)
        value = await self._make(provider, arguments, need.depends.inline)
        if need.depends.cache:
            self._values[function] = value
        return value

    async def _make(self, provider: Provider, arguments: dict[str, Any], inline: bool) -> Any:
        if provider.kind == "async":
            return await provider.call(**arguments)
        if provider.kind == "manager":
            manager = provider.call(**arguments)
            if inline or hasattr(manager, "__aenter__"):
                return await self._enter(manager)
            return await self._stack.enter_async_context(_InThreads(self._services, self._request, manager))
        if inline:
            return provider.call(**arguments)
        return await self._services.pool.run(owner_of(self._request), functools.partial(provider.call, **arguments))

    async def _enter(self, manager: Any) -> Any:
        """Enter a context manager on the event loop. Other dependencies get an error even if this one suppresses it."""
        has_async_methods = hasattr(manager, "__aenter__")
        value = await manager.__aenter__() if has_async_methods else manager.__enter__()

        async def leave(*error_info: Any) -> None:
            if has_async_methods:
                await manager.__aexit__(*error_info)
            else:
                manager.__exit__(*error_info)

        self._stack.push_async_exit(leave)
        return value


class _InThreads:
    """A plain context manager that is entered and exited in threads.

    It cannot suppress an error. If its request is cancelled while it is being entered, it is exited at once.
    """

    __slots__ = ("_abandoned", "_entered", "_exiting", "_lock", "_manager", "_owner", "_pool")

    def __init__(self, services: Services, request: Request, manager: AbstractContextManager[Any]) -> None:
        self._pool = services.pool
        self._owner = owner_of(request)
        self._manager = manager
        self._lock = threading.Lock()
        self._entered = self._abandoned = self._exiting = False

    async def __aenter__(self) -> Any:
        try:
            return await self._pool.run(self._owner, self._enter)
        except BaseException as error:
            with self._lock:
                self._abandoned = True
                left_open = self._entered
            if left_open:
                await self.__aexit__(type(error), error, error.__traceback__)
            raise

    def _enter(self) -> Any:
        value = self._manager.__enter__()
        with self._lock:
            self._entered = not self._abandoned
        if not self._entered:
            self._manager.__exit__(None, None, None)
        return value

    async def __aexit__(self, kind: Any, error: Any, trace: Any) -> None:
        exit_manager = functools.partial(self._exit, kind, error, trace)
        try:
            await self._pool.run(self._owner, exit_manager)
        except (Overloaded, asyncio.CancelledError) as stopped:
            if self._exiting:
                raise
            # It must be closed even if the pool is busy, or if the request is cancelled while this waits for a thread.
            await run_in_own_thread(exit_manager, "wharfinger-closing")
            if isinstance(stopped, asyncio.CancelledError):
                raise

    def _exit(self, *error_info: Any) -> None:
        with self._lock:
            if self._exiting:  # a thread of the pool may still take the job of a cancelled request
                return
            self._exiting = True
        self._manager.__exit__(*error_info)
