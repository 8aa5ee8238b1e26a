"""Writes the rows of a table as Markdown. Runs in the child process."""

from __future__ import annotations

import re
from collections.abc import Sequence

__all__ = ["markdown_table"]

_SPACE = re.compile(r"\s+")


def markdown_table(rows: Sequence[Sequence[str]]) -> str:
    """Return a table whose first row is its header. A line end in a cell becomes a space."""
    width = max(map(len, rows), default=0)
    if not width:
        return ""
    lines: list[str] = []
    for row in rows:
        cells = [_SPACE.sub(" ", cell).strip().replace("|", "\\|") for cell in row]
        lines.append("| " + " | ".join([*cells, *[""] * (width - len(cells))]) + " |")
    return "\n".join([lines[0], "|" + " --- |" * width, *lines[1:]])
