"""Middleware: functions around the handlers of methods, composed when they are added.

For each method, `handlers` has the handler itself, or the outermost middleware with the others inside it. A request
needs no loop and no further look-up, and methods without middleware are not slowed down.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from wharfinger.protocol.interfaces import Handler
from wharfinger.protocol.methods import METHODS
from wharfinger.protocol.request import Request
from wharfinger.server.threads import is_async

__all__ = ["Call", "MethodTable", "Middleware", "Next", "Result", "is_transparent", "transparent"]

Call = Request
"""The argument of middleware: the request to serve.

`method`, `params` (a decoded struct of `types`; assign another one to change the request), `raw_params` (encoded),
`caller` (`principal`, `info`, `capabilities`, `rules`), `headers` (of HTTP, names in lower case, else None), `session`
(None in the stateless era), `peer` (address, if there is one), `id`, and `ttl_ms` and `cache_scope`, which the handler
sets, and which middleware may change afterwards.
"""

Result = Any
"""A struct of `types` for the method, or `msgspec.Raw` for a cached, encoded result such as a page of a list."""

Next = Callable[[Call], Awaitable[Result]]
"""The rest of the chain: the next middleware, or the handler. Pass it the same call."""

Middleware = Callable[[Call, Next], Awaitable[Result]]
"""`async def middleware(call, next)`: returns the result of `await next(call)` or another result, or raises."""

AnyMiddleware = TypeVar("AnyMiddleware", bound=Middleware)


Wrapper = Callable[[str, Handler], Handler]
"""Takes a method and its handler, and returns another handler, which calls the first."""


class MethodTable:
    """Every method that a server has, each with the middleware around it."""

    def __init__(self, handlers: Mapping[str, Handler]) -> None:
        self.handlers: dict[str, Handler] = dict(handlers)
        """The handler of each method, with its middleware; change it only by the methods of this class."""
        self._bare: dict[str, Handler] = dict(handlers)
        self._outside: dict[str, Callable[[Handler], Handler]] = {}
        self._middleware: list[tuple[Middleware, frozenset[str]]] = []
        self._guard: Wrapper | None = None
        self._observer: Wrapper | None = None

    def set(self, method: str, handler: Handler, *, outside: Callable[[Handler], Handler] | None = None) -> None:
        """Serve a method. `outside` wraps its outermost middleware; without middleware, it is not used."""
        self._bare[method] = handler
        if outside is not None:
            self._outside[method] = outside
        self._compose(method)

    def add_middleware(self, middleware: Middleware, methods: tuple[str, ...] = (), *, outermost: bool = False) -> None:
        """Add middleware, inside earlier middleware, to these methods; without `methods`, to all, even later ones.

        With `outermost`, it is outside of all other middleware.

        Raises:
            TypeError: it is not an async function of two parameters.
            ValueError: there is no such method, or it is not a request from clients.
        """
        _check(middleware, methods)
        self._middleware.insert(0 if outermost else len(self._middleware), (middleware, frozenset(methods)))
        for method in methods or self._bare:
            if method in self._bare:
                self._compose(method)

    def set_guard(self, guard: Wrapper | None) -> None:
        """Check the requests of every method, even of later ones, outside of all middleware; None removes the guard."""
        self._guard = guard
        for method in self._bare:
            self._compose(method)

    def set_observer(self, observer: Wrapper | None) -> None:
        """Wrap every method, even later ones, in this observer, outside of the guard; None removes the observer."""
        self._observer = observer
        for method in self._bare:
            self._compose(method)

    def may_differ(self, method: str) -> bool:
        """Return whether the method has middleware that may answer callers differently."""
        return bool(self._middleware) and not all(map(is_transparent, self._middleware_of(method)))

    def is_wrapped(self, method: str) -> bool:
        """Return whether the method has any middleware, a guard or an observer."""
        return self._guard is not None or self._observer is not None or bool(self._middleware_of(method))

    def _middleware_of(self, method: str) -> list[Middleware]:
        return [middleware for middleware, methods in self._middleware if not methods or method in methods]

    def _compose(self, method: str) -> None:
        handler = self._bare[method]
        for middleware in reversed(self._middleware_of(method)):
            handler = _wrap(handler, middleware)
        if handler is not self._bare[method] and method in self._outside:
            handler = self._outside[method](handler)
        if self._guard is not None:
            handler = self._guard(method, handler)
        if self._observer is not None:
            handler = self._observer(method, handler)
        self.handlers[method] = handler


def transparent(middleware: AnyMiddleware) -> AnyMiddleware:
    """Declare that middleware passes on results unchanged or raises, hides nothing from some callers only, and reads no
    blobs.

    Then large blobs need not be loaded for it, and a source's public results stay public.
    """
    middleware.transparent = True  # type: ignore[attr-defined]
    return middleware


def is_transparent(middleware: Middleware) -> bool:
    """Return whether middleware was declared transparent."""
    return getattr(middleware, "transparent", False) is True


def _wrap(handler: Handler, middleware: Middleware) -> Handler:
    reads_results = not is_transparent(middleware)

    def serve(call: Call) -> Awaitable[Result]:
        if reads_results:
            call.accepts_lazy_blobs = False
        return middleware(call, handler)

    return serve


def _check(middleware: Middleware, methods: tuple[str, ...]) -> None:
    name = getattr(middleware, "__name__", type(middleware).__name__)
    if not is_async(middleware):
        raise TypeError(f"{name}() must be an async function: async def {name}(call, next)")
    try:
        inspect.signature(middleware).bind(None, None)
    except TypeError:
        raise TypeError(f"{name}() must take two parameters: async def {name}(call, next)") from None
    for method in methods:
        row = METHODS.get(method)
        if row is None:
            import difflib  # on use: only to suggest a name

            near = difflib.get_close_matches(method, METHODS, 1)
            hint = f"did you mean {near[0]!r}?" if near else "add the method of an extension before its middleware."
            raise ValueError(f"There is no method {method!r}: {hint}")
        if row.is_notification or row.sender == "server":
            raise ValueError(f"{method} is not a request from clients: middleware is only for these.")
