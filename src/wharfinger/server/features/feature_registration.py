"""Checks that are common to the registration of tools, prompts, resources and methods."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

__all__ = ["check_options", "check_scopes", "feature_name", "refuse_generator", "unwrapped"]


_SCOPE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+")
"""`scope-token` (RFC 6749 §3.3)."""


def unwrapped(function: Any) -> Callable[..., Any]:
    """Return the function; that of a static method if it is decorated inside its class."""
    return cast("Callable[..., Any]", function.__func__ if isinstance(function, staticmethod) else function)


def check_options(word: str, function: object, options: Mapping[str, Any], known: type) -> None:
    """Refuse unknown options of `@server.tool` and similar decorators.

    Raises:
        TypeError: an option is unknown, or a name was passed instead of the function.
    """
    if isinstance(function, str):
        raise TypeError(f"A {word}'s name is given by name=: @server.{word}(name={function!r})")
    names = known.__annotations__
    unknown = next((name for name in options if name not in names), None)
    if unknown is not None:
        import difflib  # imported on use: only to suggest a name

        near = difflib.get_close_matches(unknown, names, 1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(sorted(names))}."
        raise TypeError(f"A {word} has no option {unknown!r}: {hint}")


def check_scopes(scopes: str | Sequence[str] | None) -> tuple[str, ...]:
    """Return the scopes of a feature as a tuple; a text is one scope.

    Raises:
        ValueError: one of them is not a scope of RFC 6749.
    """
    several = () if scopes is None else (scopes,) if isinstance(scopes, str) else tuple(scopes)
    for scope in several:
        if not _SCOPE.fullmatch(str(scope)):
            raise ValueError(
                f'scopes={scope!r}: a scope is text without spaces, quotes and backslashes: ["orders:read"].'
            )
    return tuple(dict.fromkeys(several))


def refuse_generator(function: Callable[..., Any]) -> None:
    """Raise TypeError for a generator: a tool or a prompt returns one result."""
    while isinstance(function, functools.partial):
        function = function.func
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise TypeError(
            f"{function.__name__}() is a generator, but a call has one result: return a list, "
            "and report progress with ctx.report_progress()."
        )


def feature_name(function: Callable[..., Any], name: str | None) -> str:
    """Return the given name, else the function's."""
    if name is not None:
        return name
    while isinstance(function, functools.partial):
        function = function.func
    return str(getattr(function, "__name__", type(function).__name__))
