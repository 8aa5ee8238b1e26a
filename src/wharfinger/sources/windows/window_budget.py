"""The size of a window: 256 KiB if its end is open, or the budget of the caller, such as a tool.

Only the source knows where its content can be cut, and how the next window is named. So a caller with a budget does not
cut the result: it sets the budget around the read, and the source keeps to it. The budget is a context
variable, because it belongs to one read, and reaches threads with the context that `Pool.run` passes on.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from contextlib import contextmanager
from contextvars import ContextVar

__all__ = [
    "WINDOW_BYTES",
    "cell_bytes",
    "first_that_fit",
    "has_budget",
    "window_budget",
    "window_bytes",
    "within_budget",
]

WINDOW_BYTES = 256 << 10
"""Maximum number of bytes of a window with an open end, without a budget."""
CELLS_PER_BUDGET = 16
"""One value of a row may take the budget divided by this number."""

_BUDGET: ContextVar[int | None] = ContextVar("window_budget", default=None)


@contextmanager
def window_budget(size: int) -> Generator[None, None, None]:
    """Limit the windows that are read in this block to `size` bytes."""
    token = _BUDGET.set(size)
    try:
        yield
    finally:
        _BUDGET.reset(token)


def has_budget() -> bool:
    """Return whether the current read has a budget."""
    return _BUDGET.get() is not None


def window_bytes() -> int:
    """Return the maximum bytes of a window with an open end."""
    return _BUDGET.get() or WINDOW_BYTES


def within_budget(maximum: int) -> int:
    """Return the maximum bytes of a window with both ends: `maximum`, or the budget if that is less."""
    return min(maximum, _BUDGET.get() or maximum)


def first_that_fit(texts: Iterable[str], room: int) -> list[str]:
    """Return the first of these texts that together have at most `room` characters; at least one, if there is one."""
    fitting: list[str] = []
    for text in texts:
        room -= len(text)
        if fitting and room < 0:
            break
        fitting.append(text)
    return fitting


def cell_bytes(maximum: int) -> int:
    """Return the maximum bytes of one value in a row: `maximum`, or a sixteenth of the budget if that is less."""
    budget = _BUDGET.get()
    return maximum if budget is None else min(maximum, max(1, budget // CELLS_PER_BUDGET))
