"""One row of columns for each resource, template, tool or prompt."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from wharfinger.content.text import size_text

__all__ = ["ROWS", "text_or_empty"]


def resource_row(item: Any) -> tuple[str, ...]:
    """Return size, MIME type, URI, and the title or name, unless the URI ends with it."""
    amount = size_text(item.size) if isinstance(item.size, int) else "-"
    title = item.title or item.name
    return (
        amount.rjust(8),
        text_or_empty(item.mime_type) or "-",
        item.uri,
        "" if item.uri.endswith(str(title)) else str(title),
    )


def template_row(item: Any) -> tuple[str, ...]:
    """Return the URI template and its title or name."""
    return (item.uri_template, text_or_empty(item.title) or item.name)


def named_row(item: Any) -> tuple[str, ...]:
    """Return the name of a tool or prompt and the first line of its description or title."""
    return (item.name, (text_or_empty(item.description) or text_or_empty(item.title)).strip().split("\n")[0])


def text_or_empty(value: Any) -> str:
    """Return an optional text, or an empty string if it is absent."""
    return value if isinstance(value, str) else ""


ROWS: dict[str, Callable[[Any], tuple[str, ...]]] = {
    "resources": resource_row,
    "templates": template_row,
    "tools": named_row,
    "prompts": named_row,
}
"""The function that makes a row, for each kind of item."""
