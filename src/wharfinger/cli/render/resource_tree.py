"""What a server offers as one tree: resources by the segments of their URIs, the rest by name."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from wharfinger.client import Client

__all__ = ["print_tree", "uri_tree"]

TREE_ITEMS = 1000
"""Items of each kind in a tree, which has to be complete before it is printed; --limit sets another number."""


class UriNode(dict[str, "UriNode"]):
    """A node: its children by segment, and the details of the resource with this URI, None if there is no such one."""

    details: str | None = None


async def print_tree(client: Client, target: str, lists: Mapping[str, AsyncIterator[Any]], limit: int | None) -> None:
    """Print the lists as one tree, below the server's name."""
    from wharfinger.cli.render.formatting import count
    from wharfinger.errors import MethodNotFound

    info = client.server_info
    lines = [f"{info.name} {info.version}" if info else target]
    declared: dict[str, object] = {
        "resources": client.capabilities.resources,
        "templates": client.capabilities.resources,
    }
    declared |= {"tools": client.capabilities.tools, "prompts": client.capabilities.prompts}
    for kind, items in lists.items():
        if not declared[kind]:
            continue
        try:
            found, more = await take(items, TREE_ITEMS if limit is None else limit)
        except MethodNotFound:  # a server with resources need not have templates
            continue
        if found:
            lines.append(f"{kind} ({len(found)}{'+' if more else ''})")
            lines += resource_lines(found) if kind == "resources" else row_lines(kind, found)
        if more and limit is None:
            lines.append(f"  … more than {count(TREE_ITEMS, 'item')}: `ls --{kind}` lists them all")
    print_lines(lines)


async def take(items: AsyncIterator[Any], limit: int) -> tuple[list[Any], bool]:
    """Return the first items, and whether there are more."""
    found: list[Any] = []
    async for item in items:
        if len(found) == limit:
            return found, True
        found.append(item)
    return found, False


def row_lines(kind: str, items: list[Any]) -> list[str]:
    """Write templates, tools or prompts as lines in columns."""
    from wharfinger.cli.render.formatting import columns
    from wharfinger.cli.render.item_rows import ROWS

    return ["  " + line for line in columns([ROWS[kind](item) for item in items])]


def resource_lines(items: list[Any]) -> list[str]:
    """Write resources as the tree of their URIs."""
    from wharfinger.cli.render.formatting import columns

    rows: list[tuple[str, ...]] = []
    append_rows(uri_tree(items), rows)
    return columns(rows)


def uri_tree(items: list[Any]) -> UriNode:
    """Put each resource at the place of its URI."""
    root = UriNode()
    for item in items:
        node = root
        for segment in segments(item.uri):
            node = node.setdefault(segment, UriNode())
        node.details = details_of(item)
    return root


def segments(uri: str) -> list[str]:
    """Split a URI after each slash; scheme and authority are one segment. Joined, the segments are the URI again."""
    scheme, mark, rest = uri.partition("://")
    if not mark:
        scheme, mark, rest = uri.partition(":")
    body, question, query = rest.partition("?")
    first, *others = [part for part in body.replace("/", "/\0").split("\0") if part] or [""]
    first = scheme + mark + first
    if others and first.endswith("://"):  # no host, as in file:///charts
        first += others.pop(0)
    whole = [first, *others]
    whole[-1] += question + query
    return whole


def details_of(item: Any) -> str:
    """Return size, MIME type and title of a resource."""
    from wharfinger.cli.render.formatting import size

    title = item.title if isinstance(item.title, str) else item.name
    amount = size(item.size) if isinstance(item.size, int) else ""
    kind = item.mime_type if isinstance(item.mime_type, str) else ""
    parts = [amount, kind, "" if item.uri.endswith(title) else title]
    return "  ".join(part for part in parts if part)


def append_rows(root: UriNode, rows: list[tuple[str, ...]]) -> None:
    """Append a row for each node; a chain without a fork is one row. Not recursive, since a URI may have any depth."""
    waiting = [(1, name, child) for name, child in reversed(root.items())]
    while waiting:
        level, name, child = waiting.pop()
        while child.details is None and len(child) == 1:
            ((below, child),) = child.items()
            name += below
        rows.append(("  " * level + name, child.details or ""))
        waiting += [(level + 1, below, deeper) for below, deeper in reversed(child.items())]


def print_lines(lines: list[str]) -> None:
    """Print lines with the control characters escaped."""
    from wharfinger.cli.render.formatting import printable

    for line in lines:
        sys.stdout.write(printable(line) + "\n")
    sys.stdout.flush()
