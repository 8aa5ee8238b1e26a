"""`Complete`: marks a parameter with its completions."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Sequence
from typing import Any

from wharfinger.server.dependencies import Needs, needs_of

__all__ = ["Complete"]


Completer = Callable[..., Any]


class Complete:
    """Marks a parameter with its completions: `vessel: Annotated[str, Complete(vessels)]`.

    `values` is a sequence of strings, from which those that begin with the typed text are offered; or a function of the
    text typed so far, `(typed)` or `(typed, others)`, where `others` maps the names of the arguments that are known
    already to their text. The function returns strings, best first, may be async, and may take the `Context` and
    dependencies.
    """

    __slots__ = ("context", "names", "needs", "takes_others", "values")

    context: str | None
    """The name of the parameter that takes the `Context`."""
    needs: Needs
    """The parameters that dependencies fill."""
    names: tuple[str, ...]
    """The parameters of the typed text and the other arguments, unless they are taken by position only."""

    def __init__(self, values: Completer | Sequence[str]) -> None:
        if isinstance(values, str) or not (callable(values) or isinstance(values, Sequence)):
            raise TypeError("Complete() takes a function or a list of strings, such as Complete(vessels).")
        self.values = values
        self.context, self.needs = needs_of(values) if callable(values) else (None, {})
        filled = {self.context, *self.needs}
        self.takes_others = callable(values) and _takes_two(values, filled)
        self.names = _names_of(values, filled) if callable(values) else ()


def _names_of(function: Completer, filled: Collection[str | None]) -> tuple[str, ...]:
    parameters = [p for p in inspect.signature(function).parameters.values() if p.name not in filled]
    if any(p.kind is p.POSITIONAL_ONLY for p in parameters):
        return ()
    return tuple(p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD)


def _takes_two(function: Completer, filled: Collection[str | None]) -> bool:
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = [p for p in inspect.signature(function).parameters.values() if p.name not in filled]
    required = [p for p in parameters if p.kind in positional and p.default is p.empty]
    if len(required) > 2 or not any(p.kind in (*positional, p.VAR_POSITIONAL) for p in parameters):
        name = getattr(function, "__name__", repr(function))
        raise TypeError(f"{name}() cannot complete: it must take (typed) or (typed, others).")
    return len([p for p in parameters if p.kind in positional]) > 1
