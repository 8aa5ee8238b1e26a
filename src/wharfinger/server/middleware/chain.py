"""Hooks: functions around the handlers of methods, put together when they are added; knows no method's meaning."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from wharfinger.protocol.interfaces import Handler
from wharfinger.protocol.methods import METHODS
from wharfinger.protocol.request import Request
from wharfinger.server.threads import is_async

__all__ = ["Call", "Handlers", "Hook", "Next", "Result", "is_transparent", "transparent"]

Call = Request
"""What a hook is given: one request that is about to be served.

`method`, `params` (a struct of `types`, decoded; assign another to change what is served), `raw_params` (as they came),
`caller` (`principal`, `info`, `capabilities`, `rules`), `headers` (of HTTP, names in lower case, else None), `session`
(None in the stateless era), `peer` (address, where there is one), `id`, and `ttl_ms` and `cache_scope`, which the
handler sets and a hook may change behind it.
"""

Result = Any
"""A struct of `types` for the method, or `msgspec.Raw` where the answer is kept encoded, as pages of lists are."""

Next = Callable[[Call], Awaitable[Result]]
"""What a hook is around: the next hook, and at the end the handler. Give it the call that came."""

Hook = Callable[[Call, Next], Awaitable[Result]]
"""`async def hook(call, next)`: returns what `await next(call)` returned, or an answer of its own, or raises."""


class Handlers(dict[str, Handler]):
    """Handlers by method, each with its hooks around it. Without hooks they are what was put in, and nothing is added.

    `plain` has them without hooks.
    """

    def __init__(self, handlers: Mapping[str, Handler]) -> None:
        super().__init__(handlers)
        self.plain: dict[str, Handler] = dict(handlers)
        self.onlookers: list[Callable[[], None]] = []
        """Called when a handler, or what is around it, has changed."""
        self.around: dict[str, Callable[[Handler], Handler]] = {}
        """What is put around a method's hooks, where it has any: what its handler sees to, hooks know nothing of."""
        self._hooks: list[tuple[Hook, frozenset[str]]] = []

    def may_differ(self, method: str) -> bool:
        """Whether a hook is around this method that may answer one caller otherwise than another."""
        return any(not is_transparent(hook) and (not methods or method in methods) for hook, methods in self._hooks)

    def add_hook(self, hook: Hook, methods: tuple[str, ...] = (), *, outermost: bool = False) -> None:
        """Put a hook inside those that are there, around these methods, or around all, also those still to come.

        Raises:
            TypeError: it is not an async function of two parameters.
            ValueError: there is no such method, or it is a notification.
        """
        _check(hook, methods)
        self._hooks.insert(0 if outermost else len(self._hooks), (hook, frozenset(methods)))
        for method in methods or tuple(self):
            if method in self.plain:
                self[method] = self.plain[method]

    def hooked(self, method: str) -> bool:
        """Whether anything is around this method's handler."""
        return bool(self._hooks) and self.get(method) is not self.plain.get(method)

    def __setitem__(self, method: str, handler: Handler) -> None:
        self.plain[method] = handler
        for hook, methods in reversed(self._hooks):
            if not methods or method in methods:
                handler = _around(handler, hook)
        if handler is not self.plain[method] and method in self.around:
            handler = self.around[method](handler)
        super().__setitem__(method, handler)
        for onlooker in self.onlookers:
            onlooker()

    def __delitem__(self, method: str) -> None:
        super().__delitem__(method)
        del self.plain[method]

    def setdefault(self, method: str, default: Handler) -> Handler:
        """Add a handler unless the method has one."""
        if method not in self:
            self[method] = default
        return self[method]


AnyHook = TypeVar("AnyHook", bound=Hook)


def transparent(hook: AnyHook) -> AnyHook:
    """Declare that a hook hands on what it gets, or raises, for every caller alike, and never looks into blobs.

    Large blobs need not be loaded for it then, and what a source says is public stays so.
    """
    hook.transparent = True  # type: ignore[attr-defined]
    return hook


def is_transparent(hook: Hook) -> bool:
    """Whether a hook was declared so."""
    return getattr(hook, "transparent", False) is True


def _around(handler: Handler, hook: Hook) -> Handler:
    looks = not is_transparent(hook)

    def serve(call: Call) -> Awaitable[Result]:
        if looks:
            call.accepts_lazy_blobs = False
        return hook(call, handler)

    return serve


def _check(hook: Hook, methods: tuple[str, ...]) -> None:
    name = getattr(hook, "__name__", type(hook).__name__)
    if not is_async(hook):
        raise TypeError(f"{name}() must be an async function: async def {name}(call, next)")
    try:
        inspect.signature(hook).bind(None, None)
    except TypeError:
        raise TypeError(f"{name}() must take two parameters: async def {name}(call, next)") from None
    for method in methods:
        row = METHODS.get(method)
        if row is None:
            import difflib  # for whoever mistyped

            near = difflib.get_close_matches(method, METHODS, 1)
            hint = f"did you mean {near[0]!r}?" if near else "add an extension's method before its hooks."
            raise ValueError(f"There is no method {method!r}: {hint}")
        if row.notification or row.sender == "server":
            raise ValueError(f"{method} is no request of a client: only these have hooks.")
