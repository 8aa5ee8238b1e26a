"""`TreeRows`: the open rows of the tree and their texts. It makes no elements of the page.

The rows are those of the catalogue's tree, which answers for one folder at a time. A folder shows `PAGE_ROWS` rows, and
as many more each time the visitor asks. The number of rows of the whole tree is bounded, so each change of the page
costs the same, whatever the size of a server.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from wharfinger import types as t
from wharfinger.content.mime import DIRECTORY
from wharfinger.content.text import size_text
from wharfinger.errors import InvalidArgument, WharfingerError
from wharfinger.host.catalogue import CatalogueChange
from wharfinger.host.catalogue_lists import CatalogueEntry, TreeNode
from wharfinger.web.html_elements import name_text
from wharfinger.web.server_connections import ServerConnections

__all__ = ["MAX_ROWS", "PAGE_ROWS", "RowKey", "TreeRows", "row_of_entry"]

PAGE_ROWS = 200
"""Number of rows of a folder that are loaded at a time."""
MAX_ROWS = 2_000
"""With this many rows in the whole tree, no more folders and resources are shown. A search finds the others."""
MAX_FEATURES = 1_000
"""Maximum number of tools, or of prompts, of one server that are shown."""
MAX_OPENED_AT_ONCE = 20
"""If the only row of a folder is another folder, that opens too, unless this many folders are open."""
MAX_BADGES = 1_000

Row = dict[str, Any]
RowKey = tuple[str, str, str]
"""The kind of a row, its server, and the URI, path or name of its item at this server."""

_BADGES = {"added": "new", "changed": "changed"}


def encode_key(key: RowKey) -> str:
    """Return a key as the browser gets it."""
    return "\n".join(key)


def decode_key(text: str) -> RowKey | None:
    """Return the key that a browser sent, or None if the text is not a key."""
    parts = text.split("\n", 2)
    return (parts[0], parts[1], parts[2]) if len(parts) == 3 else None


class _OpenFolder:
    """The loaded rows of an open folder."""

    def __init__(self) -> None:
        self.nodes: list[TreeNode] = []
        self.after = ""
        """Passed to the catalogue to load the next rows; empty if there are no more."""


class TreeRows:
    """The tree of one tab."""

    def __init__(self, connections: ServerConnections) -> None:
        self._connections = connections
        self._open: dict[RowKey, _OpenFolder] = {}
        self._features: dict[RowKey, list[Any]] = {}
        self.badges: dict[tuple[str, str], str] = {}
        """The badge of each resource that is new or has changed since it was opened, by server and URI."""
        self._has_room = True
        """Whether more rows of a folder can be loaded."""

    async def begin(self) -> None:
        """Open the row of the server, if there is only one."""
        names = list(self._connections.upstreams)
        if len(names) == 1:
            await self.toggle(("server", names[0], ""))

    async def toggle(self, key: RowKey) -> None:
        """Open a row or close it, or load more rows of a folder."""
        kind, server, _ = key
        if server not in self._connections.upstreams:
            return
        if kind == "more":
            folder = self._open.get(("server" if not key[2] else "folder", server, key[2]))
            if folder is not None and folder.after and self._has_room:
                await self._load(key, folder, folder.after)
        elif self._open.pop(key, None) is None:
            self._open[key] = _OpenFolder()
            await self._fill(key)

    async def _fill(self, key: RowKey) -> None:
        """Load the rows below an open row."""
        kind, server, _ = key
        upstream = self._connections.upstreams[server]
        try:
            if kind in ("tools", "prompts"):
                self._features[key] = (await getattr(upstream, kind)())[:MAX_FEATURES]
                return
            if kind == "server":
                for features in ("tools", "prompts"):
                    self._features[features, server, ""] = (await getattr(upstream, features)())[:MAX_FEATURES]
        except WharfingerError:
            pass  # the row of the server says why
        folder = self._open.get(key)
        if kind not in ("server", "folder") or folder is None:  # None if it was closed meanwhile
            return
        await self._load(key, folder, "")
        only_row = folder.nodes[0] if len(folder.nodes) == 1 else None
        if only_row is not None and only_row.below and len(self._open) < MAX_OPENED_AT_ONCE:
            subfolder = ("folder", server, only_row.path)
            if subfolder not in self._open:
                self._open[subfolder] = _OpenFolder()
                await self._fill(subfolder)

    async def _load(self, key: RowKey, folder: _OpenFolder, after: str) -> None:
        """Load the first rows of a folder or, with `after` (see `TreePage`), the next ones."""
        try:
            page = await self._connections.catalogue.tree(key[1], key[2], after=after, limit=PAGE_ROWS)
        except InvalidArgument:
            return
        if not after:
            folder.nodes.clear()
        folder.nodes += page.nodes
        folder.after = page.after

    async def refresh(self, server: str, *, features: bool = False) -> None:
        """Load the open rows of a server again, because its lists have changed."""
        for key, folder in list(self._open.items()):
            if key[1] != server:
                continue
            if features or not folder.nodes or key[0] in ("tools", "prompts"):
                await self._fill(key)
            elif key[0] in ("server", "folder"):
                number = max(PAGE_ROWS, len(folder.nodes))
                try:
                    page = await self._connections.catalogue.tree(server, key[2], limit=min(number, MAX_ROWS))
                except InvalidArgument:
                    continue
                folder.nodes, folder.after = page.nodes, page.after

    def badge_changes(self, change: CatalogueChange) -> None:
        """Give badges to the resources that are new or have changed."""
        for word, badge in _BADGES.items():
            for uri in getattr(change, word):
                self.set_badge(change.server, uri, badge)

    def set_badge(self, server: str, uri: str, badge: str) -> None:
        """Give a badge to a resource, or remove its badge if `badge` is empty."""
        if not badge:
            self.badges.pop((server, uri), None)
            return
        self.badges[server, uri] = badge
        while len(self.badges) > MAX_BADGES:
            del self.badges[next(iter(self.badges))]

    def visible_uris(self, limit: int) -> dict[str, list[str]]:
        """Return the URIs of the resources that the open folders show, by server; at most `limit` for each server."""
        uris_by_server: dict[str, list[str]] = {}
        for (_, server, _), folder in self._open.items():
            uris = uris_by_server.setdefault(server, [])
            for node in folder.nodes[: limit - len(uris)]:
                uris += [entry.uri for entry in node.entries if not entry.is_template]
        return {server: uris[:limit] for server, uris in uris_by_server.items() if uris}

    def rows(self) -> list[Row]:
        """Return all visible rows: at most `MAX_ROWS` and, for tools and prompts, `MAX_FEATURES` more."""
        rows: list[Row] = []
        for upstream in self._connections.upstreams.values():
            key = ("server", upstream.name, "")
            row = _row(key, 1, name_text(upstream.name), expanded=key in self._open)
            row["detail"] = upstream.status if upstream.status != "ready" else ""
            row["title"] = name_text(upstream.error) if upstream.error else ""
            rows.append(row)
            if key in self._open:
                self._add_below(rows, key, 2)
                for kind in ("tools", "prompts"):
                    self._add_features(rows, (kind, upstream.name, ""), 2)
        del rows[MAX_ROWS + MAX_FEATURES :]
        self._has_room = len(rows) + PAGE_ROWS <= MAX_ROWS
        for row in rows:
            if row["kind"] == "more":
                row["label"] = f"Show {PAGE_ROWS} more" if self._has_room else "Search for the others"
        return rows

    def _add_below(self, rows: list[Row], key: RowKey, level: int) -> None:
        folder, server = self._open[key], key[1]
        for position, node in enumerate(folder.nodes, 1):
            if len(rows) >= MAX_ROWS:
                break
            entries = [entry for entry in node.entries if node.below == 0 or entry.resource.mime_type != DIRECTORY]
            if node.below:
                subfolder = ("folder", server, node.path)
                row = _row(subfolder, level, name_text(node.name.removesuffix("/")), expanded=subfolder in self._open)
                row["detail"] = f"{node.below:,}"
                row["position"] = position
                rows.append(row)
                if subfolder in self._open:
                    self._add_below(rows, subfolder, level + 1)
            rows += [
                row_of_entry(entry, level, node.name, self.badges.get((server, entry.uri), "")) for entry in entries
            ]
        if folder.after:
            rows.append(_row(("more", server, key[2]), level, ""))

    def _add_features(self, rows: list[Row], key: RowKey, level: int) -> None:
        features = self._features.get(key, [])
        if not features:
            return
        row = _row(key, level, key[0].capitalize(), expanded=key in self._open)
        row["detail"] = str(len(features))
        row["kind"] = "folder"
        rows.append(row)
        if key in self._open:
            for feature in features:
                label = feature.title if isinstance(feature.title, str) and feature.title else feature.name
                rows.append(_row((key[0].removesuffix("s"), key[1], feature.name), level + 1, name_text(label)))

    def feature(self, key: RowKey) -> t.Tool | t.Prompt | None:
        """Return the tool or prompt of a row, or None if the server no longer has it."""
        features: Iterable[Any] = self._features.get((f"{key[0]}s", key[1], ""), ())
        return next((feature for feature in features if feature.name == key[2]), None)


def row_of_entry(entry: CatalogueEntry, level: int, name: str, badge: str = "") -> Row:
    """Return the row of a resource or template."""
    kind = "template" if entry.is_template else "resource"
    row = _row((kind, entry.server, entry.uri), level, name_text(name or entry.title))
    row["title"] = name_text(entry.uri, 1000)
    size = entry.resource.size if isinstance(entry.resource, t.Resource) else None
    row["detail"] = size_text(size) if isinstance(size, int) else ""
    row["badge"] = badge
    return row


def _row(key: RowKey, level: int, label: str, *, expanded: bool | None = None) -> Row:
    row: Row = {"key": encode_key(key), "kind": key[0], "level": level, "label": label}
    if expanded is not None:
        row["expanded"] = expanded
    return row
