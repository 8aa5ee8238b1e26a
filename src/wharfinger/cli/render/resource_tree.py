"""The lists of a server as one tree: resources by the segments of their URIs, everything else in rows."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any

from wharfinger.cli.render.formatting import columns
from wharfinger.cli.render.item_rows import ROWS
from wharfinger.content.text import escape_controls, many, size_text
from wharfinger.errors import MethodNotFound

if TYPE_CHECKING:
    from wharfinger.client import Client

__all__ = ["print_tree", "uri_tree"]

TREE_ITEMS = 1000
"""Maximum number of items of each kind in a tree, unless `--limit` sets another. Only complete trees are printed."""
MAX_DEPTH = 100
"""Maximum number of slashes at which a URI is split. A server may list a URI with millions of them."""


class UriNode(dict[str, "UriNode"]):
    """A node: its children by segment, and the details of the resource with this URI, or None."""

    details: str | None = None


async def print_tree(client: Client, target: str, lists: Mapping[str, AsyncIterator[Any]], limit: int | None) -> None:
    """Print the lists as one tree, below the server's name or, if it has none, `target`."""
    info, capabilities = client.server_info, client.capabilities
    lines = [f"{info.name} {info.version}" if info else target]
    declared: dict[str, object] = {
        "resources": capabilities.resources,
        "templates": capabilities.resources,
        "tools": capabilities.tools,
        "prompts": capabilities.prompts,
    }
    for kind, items in lists.items():
        if not declared[kind]:
            continue
        try:
            listed, more = await take(items, TREE_ITEMS if limit is None else limit)
        except MethodNotFound:  # a server with resources need not have templates
            continue
        if listed:
            lines.append(f"{kind} ({len(listed)}{'+' if more else ''})")
        if kind == "resources":
            lines += columns(tree_rows(uri_tree(listed)))
        else:
            lines += [f"  {line}" for line in columns([ROWS[kind](item) for item in listed])]
        if more and limit is None:
            lines.append(f"  … more than {many(TREE_ITEMS, 'item')}: `ls --{kind}` lists them all")
    sys.stdout.write("".join(escape_controls(line) + "\n" for line in lines))
    sys.stdout.flush()


async def take(items: AsyncIterator[Any], limit: int) -> tuple[list[Any], bool]:
    """Return the first items, and whether there are more."""
    taken: list[Any] = []
    async for item in items:
        if len(taken) == limit:
            return taken, True
        taken.append(item)
    return taken, False


def uri_tree(items: list[Any]) -> UriNode:
    """Arrange resources in a tree by the segments of their URIs."""
    root = UriNode()
    for item in items:
        node = root
        for segment in split_uri(item.uri):
            node = node.setdefault(segment, UriNode())
        node.details = details_of(item)
    return root


def split_uri(uri: str) -> list[str]:
    """Split a URI after each slash of its path; the first segment also has scheme and authority.

    Joined, the segments are the URI again. The last one has all that is more than `MAX_DEPTH` slashes deep.
    """
    scheme, mark, rest = uri.partition("://")
    if not mark:
        scheme, mark, rest = uri.partition(":")
    body, question, query = rest.partition("?")
    *directories, name = body.split("/", MAX_DEPTH)
    first, *others = [part for part in (*(f"{directory}/" for directory in directories), name) if part] or [""]
    segments = [scheme + mark + first, *others]
    segments[-1] += question + query
    return segments


def details_of(item: Any) -> str:
    """Return size, MIME type and title of a resource."""
    title = item.title if isinstance(item.title, str) else item.name
    amount = size_text(item.size) if isinstance(item.size, int) else ""
    kind = item.mime_type if isinstance(item.mime_type, str) else ""
    parts = [amount, kind, "" if item.uri.endswith(title) else title]
    return "  ".join(part for part in parts if part)


def tree_rows(root: UriNode) -> list[tuple[str, ...]]:
    """Return a row for each node. A node that is no resource shares the row of its only child.

    It is not recursive, because a URI may have any depth.
    """
    rows: list[tuple[str, ...]] = []
    waiting = [(1, name, child) for name, child in reversed(root.items())]
    while waiting:
        level, name, child = waiting.pop()
        while child.details is None and len(child) == 1:
            ((below, child),) = child.items()
            name += below
        rows.append(("  " * level + name, child.details or ""))
        waiting += [(level + 1, below, deeper) for below, deeper in reversed(child.items())]
    return rows
