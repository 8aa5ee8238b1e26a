"""What a server offers, as one tree: URIs by their segments, the rest by name; it asks for nothing itself."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from wharfinger.client import Client

__all__ = ["branches", "show_tree"]

MOST = 1000
"""Items of each kind in a tree, which must be whole before it is printed; --limit sets another number."""


class Branch(dict[str, "Branch"]):
    """A node: its children by name, and what stands beside it (None: nothing of that URI is listed)."""

    beside: str | None = None


async def show_tree(client: Client, target: str, lists: Mapping[str, AsyncIterator[Any]], limit: int | None) -> None:
    """Print the lists as one tree, under the server's name."""
    from wharfinger.cli.words import count
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
            found, more = await first(items, MOST if limit is None else limit)
        except MethodNotFound:  # a server with resources need not have templates
            continue
        if found:
            lines.append(f"{kind} ({len(found)}{'+' if more else ''})")
            lines += resource_lines(found) if kind == "resources" else row_lines(kind, found)
        if more and limit is None:
            lines.append(f"  … more than {count(MOST, 'item')}: `ls --{kind}` lists them all")
    print_lines(lines)


async def first(items: AsyncIterator[Any], most: int) -> tuple[list[Any], bool]:
    """Take the first items, and tell whether there are more."""
    found: list[Any] = []
    async for item in items:
        if len(found) == most:
            return found, True
        found.append(item)
    return found, False


def row_lines(kind: str, items: list[Any]) -> list[str]:
    """Write templates, tools and prompts as lines in columns."""
    from wharfinger.cli.ls import LISTS
    from wharfinger.cli.words import columns

    return ["  " + line for line in columns([LISTS[kind][1](item) for item in items])]


def resource_lines(items: list[Any]) -> list[str]:
    """Write resources as the tree of their URIs."""
    from wharfinger.cli.words import columns

    rows: list[tuple[str, ...]] = []
    walk(branches(items), "", 1, rows)
    return columns(rows)


def branches(items: list[Any]) -> Branch:
    """Put each resource at the place that its URI has among the others."""
    root = Branch()
    for item in items:
        node = root
        for segment in segments(item.uri):
            node = node.setdefault(segment, Branch())
        node.beside = details(item)
    return root


def segments(uri: str) -> list[str]:
    """Cut a URI after each slash; what comes before the path is one segment. Joined they are the URI again."""
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


def details(item: Any) -> str:
    """Write what stands beside a resource: size, MIME type, title."""
    from wharfinger.cli.words import size

    title = item.title if isinstance(item.title, str) else item.name
    amount = size(item.size) if isinstance(item.size, int) else ""
    kind = item.mime_type if isinstance(item.mime_type, str) else ""
    told = [amount, kind, "" if item.uri.endswith(title) else title]
    return "  ".join(part for part in told if part)


def walk(branch: Branch, prefix: str, depth: int, rows: list[tuple[str, ...]]) -> None:
    """Write a branch; a chain without a fork is one line. Loops instead of recursion: a URI may have any depth."""
    waiting = [(prefix, depth, name, child) for name, child in reversed(branch.items())]
    while waiting:
        head, level, name, child = waiting.pop()
        while child.beside is None and len(child) == 1:
            ((below, child),) = child.items()
            name += below
        rows.append(("  " * level + head + name, child.beside or ""))
        waiting += [("", level + 1, below, deeper) for below, deeper in reversed(child.items())]


def print_lines(lines: list[str]) -> None:
    """Print lines, harmless at a terminal."""
    from wharfinger.cli.words import printable

    for line in lines:
        sys.stdout.write(printable(line) + "\n")
    sys.stdout.flush()
