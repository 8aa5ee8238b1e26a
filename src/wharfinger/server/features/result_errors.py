"""What is wrong with what an author's function returned, in words that lead to the line."""

from __future__ import annotations

import functools
import inspect
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, cast

import msgspec
from msgspec import UNSET

from wharfinger import types as t
from wharfinger.server.features.media import Media
from wharfinger.server.signature.type_schemas import to_json

__all__ = ["UNAWAITED", "UnusableResult", "check_texts", "place_of", "refuse_unawaited", "unusable"]

UNAWAITED = "<coroutine object "
"""How the text of a coroutine begins."""
_UNAWAITED = re.compile(r"<coroutine object (?:\S*\.)?(\w+) at 0x[0-9a-fA-F]+>")
_MOST = 100_000
"""Values that are looked at to find the one that cannot be sent."""
_DEEPEST = 100
"""Levels that are looked at."""


class UnusableResult(TypeError):
    """A function returned what cannot be sent; the message says where the function is and which value it was."""


def code_of(function: Any) -> Any:
    """The code of a function, also of a partial, a method or a callable object; None if it is not written in Python."""
    while isinstance(function, functools.partial):
        function = cast("Any", function).func
    function = inspect.unwrap(function)
    if not hasattr(function, "__code__"):
        function = getattr(function, "__func__", None) or getattr(cast("Any", type(function)), "__call__", None)  # noqa: B004
    return getattr(function, "__code__", None)


def place_of(function: Any) -> str:
    """The function's name, and the file and line where it is defined."""
    while isinstance(function, functools.partial):
        function = cast("Any", function).func
    code = code_of(function)
    name = getattr(function, "__name__", type(function).__name__)
    return f"{name}()" if code is None else f"{name}() ({code.co_filename}:{code.co_firstlineno})"


def unusable(function: Callable[..., Any], value: Any, error: Exception) -> UnusableResult:
    """The error to raise for a result that `error` says cannot be sent."""
    if isinstance(error, UnusableResult):
        return error
    found = None if isinstance(error, OSError) else next(_found(value), None)
    if found is None:
        return UnusableResult(f"{place_of(function)} returned what cannot be sent: {error}")
    path, problem = found
    return UnusableResult(f"{place_of(function)} returned what cannot be sent: {path} {problem}")


def refuse_unawaited(function: Callable[..., Any], text: str) -> None:
    """Raise UnusableResult if a text is that of a coroutine, as `str(fetch())` gives it.

    A longer text that contains one may quote a log, and is sent. Python warns of the coroutine that was not awaited.
    """
    found = _UNAWAITED.fullmatch(text)
    if found is not None:
        raise UnusableResult(
            f"{place_of(function)} returned the text of a coroutine instead of its result: await {found[1]}(…)."
        )


def check_texts(function: Callable[..., Any], blocks: Sequence[Any]) -> None:
    """Raise UnusableResult if a block of text has no text, or that of a coroutine."""
    for block in blocks:
        if isinstance(block, t.TextContent):
            text: object = block.text
            if not isinstance(text, str):
                raise UnusableResult(
                    f"{place_of(function)} returned a TextContent whose text is {type(text).__name__}."
                )
            if text.startswith(UNAWAITED):
                refuse_unawaited(function, text)


def _found(value: Any) -> Iterator[tuple[str, str]]:
    """The path of each value that cannot be sent, and why."""
    stack: list[tuple[str, Any, tuple[int, ...]]] = [("the result", value, ())]
    for _ in range(_MOST):
        if not stack:
            return
        path, item, above = stack.pop()
        problem = _problem(item)
        if problem:
            yield path, problem
        elif id(item) in above:
            yield path, "contains itself."
        elif len(above) == _DEEPEST:
            yield path, "is nested too deeply."
        else:
            parts = list(islice(_parts(path, item), _MOST))
            stack.extend((deeper, part, (*above, id(item))) for deeper, part in reversed(parts))


def _parts(path: str, item: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(item, Mapping):
        for key, part in cast("Mapping[object, object]", item).items():
            yield f"{path}[{key!r}]", part
    elif isinstance(item, (list, tuple, set, frozenset)):
        for place, part in enumerate(cast("list[object]", item)):
            yield f"{path}[{place}]", part
    else:
        names: Any = getattr(item, "__struct_fields__", None) or getattr(item, "__dataclass_fields__", ())
        for name in names:
            yield f"{path}.{name}", getattr(item, name, None)


def _problem(item: Any) -> str:
    """Why one value cannot be sent; empty if it can."""
    if inspect.iscoroutine(item):
        name = item.__name__
        item.close()  # it is reported here, and need not be as "never awaited" too
        return f"is a coroutine: await {name}(…)."
    if inspect.isasyncgen(item):
        return f"is an async generator: return a list, such as [item async for item in {item.__name__}(…)]."
    if inspect.isgenerator(item):
        return f"is a generator: return a list, such as list({item.__name__}(…))."
    if inspect.isawaitable(item):
        return f"is an awaitable ({type(item).__name__}): await it."
    if isinstance(item, float):
        return "" if math.isfinite(item) else f"is {item}, which JSON does not have: use None, or leave it out."
    if item is UNSET or isinstance(item, (Media, msgspec.Raw)):
        return ""
    if isinstance(item, str):
        return "" if item.isascii() or _is_utf8(item) else "has half of a surrogate pair, which UTF-8 does not have."
    if isinstance(item, Mapping):
        for key in cast("Mapping[object, object]", item):
            if not isinstance(key, (str, int, float)) and _problem_of_type(key):
                return f"has the key {key!r} of type {type(key).__name__}: keys are text."
        return ""
    if isinstance(item, (list, tuple, set, frozenset)) or hasattr(item, "__struct_fields__"):
        return ""
    return "" if hasattr(item, "__dataclass_fields__") and not isinstance(item, type) else _problem_of_type(item)


def _problem_of_type(item: Any) -> str:
    try:
        msgspec.json.encode(item, enc_hook=to_json)
    except (TypeError, ValueError):
        return f"is of type {type(item).__name__}, which has no form in JSON."
    return ""


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
