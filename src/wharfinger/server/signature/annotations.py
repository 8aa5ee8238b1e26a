"""The annotations of a function, resolved if they are text; and which parameter takes the `Context`."""

from __future__ import annotations

import builtins
import functools
import inspect
import re
import types
from collections.abc import Callable, Iterable
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from wharfinger.server.signature.argument_errors import union_members

__all__ = ["RequestContext", "annotations_of", "body_of", "is_context", "parameters_of", "unwrap_partial"]


class RequestContext:
    """The base of `Context`, by which a signature recognizes the parameter that takes it."""

    __slots__ = ()

    def for_plain_function(self) -> RequestContext:
        """Return the context for a function that is not async, so it cannot await. `Context` overrides this."""
        return self


_CONTEXT_TEXT = r"(?:\w+\.)*Context(?:\[.*\])?"


def unwrap_partial(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function of a `functools.partial`; for any other object, the object."""
    while isinstance(function, functools.partial):
        function = function.func
    return function


def body_of(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function that runs when an object is called: itself, that of a partial, or its class's `__call__`."""
    function = unwrap_partial(function)
    if inspect.isroutine(function) or inspect.isclass(function):
        return function
    return type(function).__call__


def parameters_of(function: Callable[..., Any]) -> Iterable[inspect.Parameter]:
    """Return the function's parameters. A function of Python without any is not inspected, because that is slow."""
    if isinstance(function, types.FunctionType) and not hasattr(function, "__wrapped__"):
        code = function.__code__
        variadic = code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS)
        if not (code.co_argcount or code.co_kwonlyargcount or variadic):
            return ()
    return inspect.signature(function).parameters.values()


def annotations_of(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the function's annotations, with `Annotated` kept. An unresolvable annotation remains text.

    Unresolvable text that is `Context` or `Context[…]` becomes `RequestContext`, because many import `Context` only for
    type checkers.
    """
    function = body_of(function)
    innermost = inspect.unwrap(function)  # its names are not those of a decorator
    local_names = _local_names(innermost)
    if (annotations := _class_annotations(function, innermost, local_names)) is not None:
        return annotations
    try:
        return get_type_hints(function, localns=local_names or None, include_extras=True)
    except (NameError, TypeError, AttributeError, SyntaxError):
        pass
    scope = getattr(innermost, "__globals__", {}) | local_names
    return {name: _resolve(value, scope) for name, value in getattr(innermost, "__annotations__", {}).items()}


def _class_annotations(function: Any, innermost: Any, local_names: dict[str, Any]) -> dict[str, Any] | None:
    """Return the annotations if each one is or names a class, which is usual; `typing` takes ten times as long."""
    scope = getattr(innermost, "__globals__", {})
    annotations: dict[str, Any] = {}
    for name, value in getattr(function, "__annotations__", {}).items():
        kind = value
        if isinstance(value, str):
            kind = local_names.get(value) or scope.get(value) or getattr(builtins, value, None)
        if type(kind) is not type:
            return None
        annotations[name] = kind
    return annotations


def _local_names(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the names outside a nested function that hide global ones, as far as they are still known."""
    if "<locals>" not in getattr(function, "__qualname__", ""):
        return {}
    names = _enclosing_locals(function)
    closure = getattr(function, "__closure__", None) or ()
    for name, cell in zip(getattr(getattr(function, "__code__", None), "co_freevars", ()), closure, strict=False):
        try:
            names[name] = cell.cell_contents
        except ValueError:  # not yet bound
            continue
    return names


def _enclosing_locals(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the local names of the function that defines this one, if it is still running."""
    outer = getattr(function, "__qualname__", "").rpartition(".<locals>")[0]
    frame = inspect.currentframe() if outer else None
    while frame is not None:
        if frame.f_code.co_qualname == outer:
            return dict(frame.f_locals)
        frame = frame.f_back
    return {}


def _resolve(annotation: Any, scope: dict[str, Any]) -> Any:
    if not isinstance(annotation, str):
        return annotation
    holder = types.SimpleNamespace(__annotations__={"it": annotation})
    try:
        return get_type_hints(holder, globalns=scope, include_extras=True)["it"]
    except (NameError, TypeError, AttributeError, SyntaxError):
        if re.fullmatch(_CONTEXT_TEXT, annotation):
            return RequestContext
        return annotation


def is_context(annotation: Any) -> bool:
    """Return whether an annotation is the `Context`, including `Context[State]` and `Context | None`."""
    if get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    kinds = (get_origin(kind) or kind for kind in union_members(annotation) or (annotation,))
    return any(isinstance(kind, type) and issubclass(kind, RequestContext) for kind in kinds)
