"""How many bytes a window has: 256 KiB if its end is open, and fewer for a reader with a budget, such as a tool.

A source knows best where its content can be cut, and only it can name the next window. So a reader with a budget does
not cut what it gets: it sets the budget around its read, and each source ends its window there. The budget is a context
variable, because it belongs to one read, and reaches threads with the context that `Pool.run` gives them.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar

__all__ = ["WINDOW_BYTES", "cell_bytes", "has_budget", "limited", "window_budget", "window_bytes"]

WINDOW_BYTES = 256 << 10
"""Bytes of a window with an open end, if its reader has no budget."""
CELLS = 16
"""Parts of a budget of which one value of a row may have one."""

_BUDGET: ContextVar[int | None] = ContextVar("window_budget", default=None)


@contextmanager
def window_budget(size: int) -> Generator[None, None, None]:
    """Limit the windows that are read inside to this number of bytes."""
    token = _BUDGET.set(size)
    try:
        yield
    finally:
        _BUDGET.reset(token)


def has_budget() -> bool:
    """Return whether the present read has a budget."""
    return _BUDGET.get() is not None


def window_bytes() -> int:
    """Return bytes of a window with an open end."""
    return _BUDGET.get() or WINDOW_BYTES


def limited(most: int) -> int:
    """`most`, or the budget if that is less: the bytes of a window with both ends."""
    return min(most, _BUDGET.get() or most)


def cell_bytes(most: int) -> int:
    """`most`, or a sixteenth of the budget if that is less: the bytes of one value in a window of rows."""
    budget = _BUDGET.get()
    return most if budget is None else min(most, max(1, budget // CELLS))
