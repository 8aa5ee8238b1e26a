"""Errors for results that cannot be sent; the messages name the file and line of the function."""

from __future__ import annotations

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
from wharfinger.server.signature.annotations import unwrap_partial
from wharfinger.server.signature.type_schemas import to_json

__all__ = ["UNAWAITED", "UnusableResult", "check_texts", "location_of", "refuse_unawaited", "unusable_result"]

UNAWAITED = "<coroutine object "
"""The beginning of `str()` of a coroutine."""
_UNAWAITED = re.compile(r"<coroutine object (?:\S*\.)?(\w+) at 0x[0-9a-fA-F]+>")
_MAX_VALUES = 100_000
"""The maximum number of values that are checked."""
_MAX_DEPTH = 100
"""The maximum number of levels that are checked."""


class UnusableResult(TypeError):
    """A function returned a value that cannot be sent; most messages name its file and line, and the value's path."""


def code_of(function: Any) -> Any:
    """Return the code of a function, partial, method or callable object; None if it is not written in Python."""
    function = inspect.unwrap(unwrap_partial(function))
    if not hasattr(function, "__code__"):
        function = getattr(function, "__func__", None) or getattr(cast("Any", type(function)), "__call__", None)  # noqa: B004
    return getattr(function, "__code__", None)


def location_of(function: Any) -> str:
    """Return the function's name, and the file and line where it is defined."""
    function = unwrap_partial(function)
    code = code_of(function)
    name = getattr(function, "__name__", type(function).__name__)
    return f"{name}()" if code is None else f"{name}() ({code.co_filename}:{code.co_firstlineno})"


def unusable_result(function: Callable[..., Any], value: Any, error: Exception) -> UnusableResult:
    """Return the error to raise for a result that cannot be sent because of `error`."""
    if isinstance(error, UnusableResult):
        return error
    problem = None if isinstance(error, OSError) else _find_problem(value)
    return UnusableResult(f"{location_of(function)} returned a value that cannot be sent: {problem or error}")


def refuse_unawaited(function: Callable[..., Any], text: str) -> None:
    """Raise UnusableResult if a text is the `str()` of a coroutine, as after a forgotten `await`.

    A longer text that contains one may quote a log, and is sent. Python itself warns of the coroutine.
    """
    match = _UNAWAITED.fullmatch(text)
    if match is not None:
        raise UnusableResult(
            f"{location_of(function)} returned the text of a coroutine instead of its result: await {match[1]}(…)."
        )


def check_texts(function: Callable[..., Any], blocks: Sequence[Any]) -> None:
    """Raise UnusableResult if the text of a text block is not a string, or is the `str()` of a coroutine."""
    for block in blocks:
        if isinstance(block, t.TextContent):
            text: object = block.text
            if not isinstance(text, str):
                raise UnusableResult(
                    f"{location_of(function)} returned a TextContent whose text is {type(text).__name__}."
                )
            if text.startswith(UNAWAITED):
                refuse_unawaited(function, text)


def _find_problem(value: Any) -> str | None:
    """Return the path of the first value that cannot be sent, and why; None if none was found."""
    stack: list[tuple[str, Any, tuple[int, ...]]] = [("the result", value, ())]
    for _ in range(_MAX_VALUES):
        if not stack:
            return None
        path, item, ancestors = stack.pop()
        problem = _problem(item)
        if problem:
            return f"{path} {problem}"
        if id(item) in ancestors:
            return f"{path} contains itself."
        if len(ancestors) == _MAX_DEPTH:
            return f"{path} is nested too deeply."
        parts = list(islice(_parts(path, item), _MAX_VALUES))
        stack.extend((part_path, part, (*ancestors, id(item))) for part_path, part in reversed(parts))
    return None


def _parts(path: str, item: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(item, Mapping):
        for key, part in cast("Mapping[object, object]", item).items():
            yield f"{path}[{key!r}]", part
    elif isinstance(item, (list, tuple, set, frozenset)):
        for index, part in enumerate(cast("list[object]", item)):
            yield f"{path}[{index}]", part
    else:
        names: Any = getattr(item, "__struct_fields__", None) or getattr(item, "__dataclass_fields__", ())
        for name in names:
            yield f"{path}.{name}", getattr(item, name, None)


def _problem(item: Any) -> str:
    """Return why one value cannot be sent, or an empty string if it can."""
    if inspect.iscoroutine(item):
        name = item.__name__
        item.close()  # it is reported here: without this, Python reports it as "never awaited" too
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
        return (
            "" if item.isascii() or _is_utf8(item) else "contains half of a surrogate pair, which UTF-8 cannot encode."
        )
    if isinstance(item, Mapping):
        for key in cast("Mapping[object, object]", item):
            if not isinstance(key, (str, int, float)) and _problem_of_type({key: None}):
                return f"has the key {key!r} of type {type(key).__name__}: keys must be strings."
        return ""
    if isinstance(item, (list, tuple, set, frozenset)):
        return ""
    has_fields = hasattr(item, "__struct_fields__") or hasattr(item, "__dataclass_fields__")
    return "" if has_fields and not isinstance(item, type) else _problem_of_type(item)


def _problem_of_type(item: Any) -> str:
    try:
        msgspec.json.encode(item, enc_hook=to_json)
    except (TypeError, ValueError):
        return f"is of type {type(item).__name__}, which JSON cannot express."
    return ""


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
