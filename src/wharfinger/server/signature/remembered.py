"""What derives from a function alone, kept for the next function like it: registering thousands must cost little."""

from __future__ import annotations

import re
from collections.abc import Callable
from types import FunctionType, MethodType
from typing import Any, NamedTuple, cast

__all__ = ["remembered"]

MOST = 256
"""Kinds of functions that are remembered; the oldest goes."""

_NOTHING = object()
_NAME = r"(?<![\w.])[A-Za-z_]\w*"
_PLAIN = (str, int, float, bool, bytes, type(None))


class _Known(NamedTuple):
    """One function, as far as anything may derive from it, and what did."""

    code: Any
    annotations: tuple[Any, ...]
    defaults: tuple[Any, ...]
    text: str | None
    names: tuple[tuple[str, Any], ...]
    """Global names in annotations that are text, with what they meant."""
    derived: dict[Any, Any]


_known: dict[tuple[int, int, bool], _Known] = {}


def remembered(function: Callable[..., Any]) -> dict[Any, Any]:
    """A dict shared with every function of the same code, annotations, defaults and docstring, to keep things in.

    Functions made by a loop share one; anything else than a plain function or bound method, and what is wrapped or
    carries attributes, gets a new one. What is kept must not refer to the function itself.
    """
    bound = type(function) is MethodType
    plain: Any = function.__func__ if bound else function  # type: ignore[attr-defined]
    if type(plain) is not FunctionType or plain.__dict__:
        return {}
    key = (id(plain.__code__), id(plain.__globals__), bound)
    known = _known.get(key)
    if known is not None and known.code is plain.__code__ and _same(known, plain):
        return known.derived
    annotations = plain.__annotations__
    names = _names(annotations, plain.__globals__)
    if names is None:
        return {}
    if len(_known) >= MOST and key not in _known:
        del _known[next(iter(_known))]
    known = _Known(plain.__code__, (*annotations, *annotations.values()), _defaults(plain), plain.__doc__, names, {})
    _known[key] = known
    return known.derived


def _defaults(function: FunctionType) -> tuple[Any, ...]:
    by_name = function.__kwdefaults__
    return (*(function.__defaults__ or ()), _NOTHING, *((*by_name, *by_name.values()) if by_name else ()))


def _names(annotations: dict[str, Any], scope: dict[str, Any]) -> tuple[tuple[str, Any], ...] | None:
    """What the names in textual annotations mean now; None where one is no global: it may mean something else again."""
    found: dict[str, Any] = {}
    given: Any = scope.get("__builtins__") or {}
    builtins = cast("dict[str, object]", given if type(given) is dict else vars(given))
    for text in annotations.values():
        if isinstance(text, str):
            bare = re.sub(r"'[^']*'|\"[^\"]*\"", "", text)  # what is quoted may be a name as well, or just a text
            if any(name not in scope and name not in builtins for name in re.findall(_NAME, bare)):
                return None
            found |= {name: scope.get(name, _NOTHING) for name in re.findall(_NAME, text)}
    return tuple(found.items())


def _same(known: _Known, function: FunctionType) -> bool:
    annotations = function.__annotations__
    try:
        if function.__doc__ != known.text or known.annotations != (*annotations, *annotations.values()):
            return False
    except Exception:  # an annotation that refuses to be compared
        return False
    has_any = len(known.defaults) > 1 or function.__defaults__ or function.__kwdefaults__
    if has_any and not _same_defaults(known.defaults, _defaults(function)):
        return False
    scope = function.__globals__
    for name, meaning in known.names:  # noqa: SIM110  # no generator: this runs for each of thousands
        if scope.get(name, _NOTHING) is not meaning:
            return False
    return True


def _same_defaults(ours: tuple[Any, ...], theirs: tuple[Any, ...]) -> bool:
    """Whether they are the same objects, or equal and of one plain type: True is not 1."""
    return len(ours) == len(theirs) and all(
        one is other or (type(one) in _PLAIN and type(one) is type(other) and one == other)
        for one, other in zip(ours, theirs, strict=True)
    )
