"""Formats durations, names and columns for people; `content.text` has what other packages use too."""

from __future__ import annotations

__all__ = ["columns", "duration", "slug", "variables_of"]


def duration(seconds: float) -> str:
    """Write a duration: `0.4 ms`, `12 ms`, `1.2 s`."""
    if seconds >= 1:
        return f"{seconds:.1f} s"
    milliseconds = seconds * 1000
    return f"{milliseconds:.1f} ms" if milliseconds < 10 else f"{milliseconds:.0f} ms"


def slug(*labels: str, fallback: str = "files", limit: int = 40) -> str:
    """Return a server name that every host accepts: ASCII letters, digits, `_` and `-`.

    Hosts call a tool `mcp__NAME__TOOL`, and model APIs accept at most 64 characters for that.
    """
    import re

    parts = [re.sub(r"[^A-Za-z0-9_]+", "-", label).strip("-") for label in labels]
    return "-".join(part for part in parts if part)[:limit].strip("-") or fallback


def columns(rows: list[tuple[str, ...]]) -> list[str]:
    """Align rows of cells in columns, two spaces apart. Cells after one of more than 200 characters are not aligned."""
    if not rows:
        return []
    widths = [min(200, max(len(row[column]) for row in rows)) for column in range(len(rows[0]) - 1)]
    return [
        "  ".join([*(cell.ljust(w) for cell, w in zip(row, widths, strict=False)), row[-1]]).rstrip() for row in rows
    ]


def variables_of(template: str) -> tuple[str, ...]:
    """Return the names of the variables of a URI template; none for an invalid template."""
    from wharfinger.protocol.uri.template import InvalidTemplate, UriTemplate

    try:
        return UriTemplate(template).variables
    except InvalidTemplate:
        return ()
