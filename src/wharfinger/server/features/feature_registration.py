"""What registering a tool, a prompt, a resource or a method has in common: options, names and functions."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, cast

__all__ = ["check_options", "feature_name", "refuse_generator", "unwrapped"]


def unwrapped(function: Any) -> Callable[..., Any]:
    """The function in a static method that is decorated while its class is being made."""
    return cast("Callable[..., Any]", function.__func__ if isinstance(function, staticmethod) else function)


def check_options(word: str, function: object, options: Mapping[str, Any], known: type) -> None:
    """Refuse what `@server.tool` and its like cannot take.

    Raises:
        TypeError: there is no such option, or a name stands where the function belongs.
    """
    if isinstance(function, str):
        raise TypeError(f"A {word}'s name is given by name=: @server.{word}(name={function!r})")
    names = known.__annotations__
    unknown = next((name for name in options if name not in names), None)
    if unknown is not None:
        import difflib  # for whoever mistyped

        near = difflib.get_close_matches(unknown, names, 1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(sorted(names))}."
        raise TypeError(f"A {word} has no option {unknown!r}: {hint}")


def refuse_generator(function: Callable[..., Any]) -> None:
    """Raise TypeError where a tool or a prompt would give many results one by one."""
    while isinstance(function, functools.partial):
        function = function.func
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise TypeError(
            f"{function.__name__}() is a generator, but there is one result: return a list, "
            "and report how far it is by ctx.report_progress()."
        )


def feature_name(function: Callable[..., Any], name: str | None) -> str:
    """The name given, else the function's."""
    if name is not None:
        return name
    while isinstance(function, functools.partial):
        function = function.func
    return str(getattr(function, "__name__", type(function).__name__))
