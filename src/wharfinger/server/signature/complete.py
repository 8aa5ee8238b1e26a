"""`Complete`: marks a parameter with its completions."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from wharfinger.server.dependencies import Needs, needs_of

__all__ = ["Complete"]


class Complete:
    """Marks a parameter with its completions: `vessel: Annotated[str, Complete(vessels)]`.

    `values` is a sequence of strings, from which those that begin with the typed text are offered; or a function of the
    text typed so far, `(typed)` or `(typed, others)`. Its second parameter, whatever it is called, has the texts of
    the other known arguments, by their names. The function returns strings, best first, may be async, and may take
    the `Context` and dependencies.

    Raises:
        TypeError: `values` is neither, or is a function that does not take `(typed)` or `(typed, others)`.
    """

    __slots__ = ("context", "names", "needs", "takes_others", "values")

    context: str | None
    """The name of the parameter that takes the `Context`."""
    needs: Needs
    """The parameters that dependencies fill."""
    names: tuple[str, ...]
    """The parameters of the typed text and the other arguments, unless they are taken by position only."""
    takes_others: bool
    """Whether the function takes the other arguments too."""

    def __init__(self, values: Callable[..., Any] | Sequence[str]) -> None:
        if isinstance(values, str) or not (callable(values) or isinstance(values, Sequence)):
            raise TypeError("Complete() takes a function or a list of strings, such as Complete(vessels).")
        self.values = values
        if not callable(values):
            self.context, self.needs, self.names, self.takes_others = None, {}, (), False
            return
        name = getattr(values, "__name__", repr(values))
        cannot_complete = TypeError(f"{name}() cannot complete: it must take (typed) or (typed, others).")
        try:
            signature = inspect.signature(values)
        except ValueError:  # a type such as dict
            raise cannot_complete from None
        self.context, self.needs = needs_of(values)
        filled = {self.context, *self.needs}
        parameters = [p for p in signature.parameters.values() if p.name not in filled]
        positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        required = [p for p in positional if p.default is p.empty]
        requires_keyword = any(p.kind is p.KEYWORD_ONLY and p.default is p.empty for p in parameters)
        takes_any = any(p.kind is p.VAR_POSITIONAL for p in parameters)
        if len(required) > 2 or requires_keyword or not (positional or takes_any):
            raise cannot_complete
        self.takes_others = len(positional) > 1
        by_position = any(p.kind is p.POSITIONAL_ONLY for p in positional)
        self.names = () if by_position else tuple(p.name for p in positional)
