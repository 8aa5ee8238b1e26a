"""The types of a selection, which is a function that chooses resources for a question."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import NamedTuple

from wharfinger.host.catalogue import Catalogue

__all__ = ["Choice", "Choices", "ContextRequest", "Select"]


class Choice(NamedTuple):
    """A resource that was chosen for a context."""

    uri: str
    server: str = ""
    """The server; needed only if several servers have the URI."""
    reason: str = ""
    weight: float = 1.0
    """Its share of the budget, relative to the other choices, if not all fit."""
    windows: tuple[str, ...] = ()
    """URIs of the windows that a search found in it. If the resource is large, only these are read."""
    found_lines: tuple[int, ...] = ()
    """The numbers of the lines that a search found in it."""


class Choices(list[Choice | str]):
    """Choices, with notes about how they were made. A selection may also return a plain list."""

    notes: Sequence[str] = ()


class ContextRequest(NamedTuple):
    """The parameter of a selection: the question, the catalogue and the budget."""

    question: str
    catalogue: Catalogue
    budget: int
    """Maximum number of tokens of the whole context."""


Selected = Iterable[Choice | str]
Select = Callable[[ContextRequest], Selected | Awaitable[Selected]]
"""A selection. It returns the choices, the most useful first; each is a `Choice` or a URI."""
