"""Finds the question that a plain function asks of its context, which only an async function could await."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import CodeType
from typing import Any

__all__ = ["refuse_questions"]


_ASKS = frozenset(("ask", "elicit", "elicit_url", "once", "roots", "sample"))
"""What only an async function can await of its context."""


def refuse_questions(function: Callable[..., Any], context: str) -> None:
    """Raise TypeError where a plain function asks by its context: it could not await the answer."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    asked = None if code is None else _question_in(code, context)
    if asked is not None:
        name = getattr(function, "__name__", repr(function))
        raise TypeError(
            f"{name}() calls {context}.{asked}(), for which it must be async: "
            f"async def {name}(…), and await {context}.{asked}(…)."
        )


def _question_in(code: CodeType, context: str) -> str | None:
    """The question that a code asks by this name, also in a comprehension or lambda, but not in an async function."""
    if _ASKS.intersection(code.co_names):
        import dis  # such a name may be of something else, such as random.sample: only bytecode tells

        earlier: Any = None
        for step in dis.get_instructions(code):
            if step.argval in _ASKS and step.opname in ("LOAD_ATTR", "LOAD_METHOD") and _loads(earlier, context):
                return str(step.argval)
            earlier = step
    inner = [part for part in code.co_consts if isinstance(part, CodeType) and context in part.co_freevars]
    found = (_question_in(part, context) for part in inner if not part.co_flags & inspect.CO_COROUTINE)
    return next((asked for asked in found if asked is not None), None)


def _loads(step: Any, name: str) -> bool:
    """Whether an instruction puts a local name on the stack, alone or after another one (3.13 joins some of them)."""
    if step is None or not ("LOAD_FAST" in step.opname or "LOAD_DEREF" in step.opname):
        return False
    return bool(step.argval == name or (isinstance(step.argval, tuple) and step.argval[-1:] == (name,)))
