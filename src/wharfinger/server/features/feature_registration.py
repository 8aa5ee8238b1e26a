"""Checks that are common to the registration of tools, prompts, resources and methods."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from wharfinger.option_names import check_option_names
from wharfinger.server.signature.annotations import unwrap_partial

__all__ = ["check_hints", "check_options", "check_scopes", "feature_name", "refuse_generator", "unwrap"]


MAX_TTL_SECONDS = 1e9
"""The maximum `ttl` of a result."""
_SCOPE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+")
"""`scope-token` (RFC 6749 §3.3)."""


def unwrap(function: Any) -> Callable[..., Any]:
    """Return the function itself, or the function of a static method that is decorated in the body of its class."""
    return cast("Callable[..., Any]", function.__func__ if isinstance(function, staticmethod) else function)


def check_options(kind: str, function: object, options: Mapping[str, Any], known: type) -> None:
    """Refuse unknown options of `@server.tool` and similar decorators.

    Raises:
        TypeError: an option is unknown, or a name was passed instead of the function.
    """
    if isinstance(function, str):
        raise TypeError(f"A {kind}'s name is given by name=: @server.{kind}(name={function!r})")
    check_option_names(f"A {kind}", options, known)


def check_hints(ttl: float, cache_scope: str) -> int:
    """Check caching hints, and return the `ttl` (seconds) in milliseconds.

    Raises:
        ValueError: one of them is not valid.
    """
    if not 0 <= ttl <= MAX_TTL_SECONDS:
        raise ValueError(f"ttl={ttl!r}: write 0 seconds or more, and at most {MAX_TTL_SECONDS:g}.")
    if cache_scope not in ("public", "private"):
        raise ValueError(f'cache_scope={cache_scope!r}: write "public" or "private".')
    return round(ttl * 1000)


def check_scopes(scopes: str | Sequence[str] | None) -> tuple[str, ...]:
    """Return the scopes of a feature as a tuple; a string is one scope.

    Raises:
        ValueError: one of them is not a scope of RFC 6749.
    """
    sequence = () if scopes is None else (scopes,) if isinstance(scopes, str) else tuple(scopes)
    for scope in sequence:
        if not _SCOPE.fullmatch(str(scope)):
            raise ValueError(
                f'scopes={scope!r}: a scope is text without spaces, quotes and backslashes: ["orders:read"].'
            )
    return tuple(dict.fromkeys(sequence))


def refuse_generator(function: Callable[..., Any]) -> None:
    """Raise TypeError for a generator: a tool or a prompt returns one result."""
    function = unwrap_partial(function)
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise TypeError(
            f"{function.__name__}() is a generator, but a call has one result: return a list, "
            "and report progress with ctx.report_progress()."
        )


def feature_name(function: Callable[..., Any], name: str | None) -> str:
    """Return the given name, else the function's."""
    if name is not None:
        return name
    function = unwrap_partial(function)
    return str(getattr(function, "__name__", type(function).__name__))
