"""The panel of one resource: its facts, its content, and reading it again when it changes."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from wharfinger import types as t
from wharfinger.content.text import size_text
from wharfinger.errors import WharfingerError
from wharfinger.web.content_shelf import ContentShelf
from wharfinger.web.html_elements import HtmlElement, name_text, node
from wharfinger.web.preview import ContentPreview
from wharfinger.web.server_connections import ServerConnections
from wharfinger.web.token_costs import estimate_tokens

__all__ = ["ResourcePanel"]

MAX_WHOLE_BYTES = 16 * 1024 * 1024
"""A larger resource is read in a window, if its server has windows."""
MAX_CONTENTS = 20
"""Maximum number of contents of one resource that are shown, such as the files of a directory."""


class ResourcePanel:
    """Shows one resource of one server in an element of the page."""

    def __init__(
        self,
        container: HtmlElement,
        connections: ServerConnections,
        shelf: ContentShelf,
        visitor: str,
        server: str,
        uri: str,
    ) -> None:
        self._container = container
        self._connections = connections
        self._shelf = shelf
        self._visitor = visitor
        self.server = server
        self.uri = uri
        self._previews: list[ContentPreview] = []
        self._containers: list[HtmlElement] = []
        """The element of each preview."""
        self._is_reading = False
        self._read_wanted = False
        self._closed = False
        self._changes = 0
        self._shown: list[t.ResourceContents] | None = None
        self._window = ""
        """The URI of the window to which the visitor has turned; empty until then."""

    async def show(self) -> None:
        """Read the resource, and show it."""
        self._container.clear()
        with self._container:
            node("h2", name_text(self.uri.rstrip("/").rpartition("/")[2] or self.uri), dir="auto")
            node("p", name_text(self.uri, 2000), classes="uri")
            with node("p", classes="facts"):
                self._facts = node("span", "Reading …", role="status")
                node("button", "Read again", type="button").on("click", self.read, args=[])
            self._pager = node("div", classes="pages")
            self._body = node("div", classes="content")
        await self.read()

    async def changed(self) -> None:
        """Read the resource again after a change."""
        self._changes += 1
        await self.read()

    async def read(self, uri: str = "") -> None:
        """Read the shown window again, or the one at `uri`. If a read is running, one more follows it."""
        self._window = uri or self._window
        self._read_wanted = True
        if self._is_reading:
            return
        self._is_reading = True
        try:
            while self._read_wanted and not self._closed:
                self._read_wanted = False
                await self._read()
        finally:
            self._is_reading = False

    async def _read(self) -> None:
        upstream = self._connections.server(self.server)
        if upstream is None:
            self._facts.text = "This server is no longer there."
            return
        began = time.perf_counter()
        try:
            target = self._window or await self._first_window(upstream.client)
            result = await upstream.client.read_resource(target, bypass_cache=True)
        except WharfingerError as error:
            if not self._closed:
                self._facts.text = f"This cannot be read: {name_text(str(error), 1000)}"
            return
        if self._closed:
            return
        self._facts.text = _facts_of(result.contents, time.perf_counter() - began, self._changes)
        contents = result.contents[:MAX_CONTENTS]
        if contents == self._shown:  # keep the part of the text or table to which the visitor has turned
            return
        self._shown = contents
        self._show_window_buttons(contents[0] if contents else None)
        if len(self._previews) != len(contents):
            self._close_previews()
            self._body.clear()
            with self._body:
                self._containers = [node("section", classes="block") for _ in contents]
            self._previews = [ContentPreview(self._shelf, self._visitor, name=content.uri) for content in contents]
        await self._show_contents(contents)

    async def _show_contents(self, contents: Sequence[t.ResourceContents]) -> None:
        """Show the contents, unless the panel is closed meanwhile."""
        for preview, container, content in zip(tuple(self._previews), self._containers, contents, strict=True):
            if self._closed:
                return
            await preview.show(container, content)

    async def _first_window(self, client: Any) -> str:
        """Return the URI to read: a window of the resource if it is large and its server has windows."""
        for entry in await self._connections.catalogue.find(self.uri, server=self.server):
            size = entry.resource.size if isinstance(entry.resource, t.Resource) else None
            if isinstance(size, int) and size > MAX_WHOLE_BYTES and "?" not in self.uri:
                templates = await client.list_resource_templates()
                if any("{?lines" in template.uri_template for template in templates):
                    return f"{self.uri}?lines=1-"
        return self.uri

    def _show_window_buttons(self, content: t.ResourceContents | None) -> None:
        """Show buttons for the windows before and after this one, if the server names them."""
        self._pager.clear()
        meta = content.meta if content is not None and isinstance(content.meta, dict) else {}
        with self._pager:
            for key, label in (("wharfinger/previous", "Window before"), ("wharfinger/next", "Window after")):
                uri = meta.get(key)
                if isinstance(uri, str):

                    async def turn(uri: str = uri) -> None:
                        await self.read(uri)

                    node("button", label, type="button").on("click", turn, args=[])

    def close(self) -> None:
        """Forget the contents that are shown, and drop the result of a running read."""
        self._closed = True
        self._close_previews()

    def _close_previews(self) -> None:
        for preview in self._previews:
            preview.close()
        self._previews.clear()


def _facts_of(contents: Sequence[t.ResourceContents], seconds: float, changes: int) -> str:
    size, tokens, kinds = 0, 0, dict[str, None]()
    for content in contents:
        kinds[content.mime_type if isinstance(content.mime_type, str) else "no type"] = None
        if isinstance(content.text, str):
            size += len(content.text.encode("utf-8", "replace"))
            tokens += estimate_tokens(content.text)
        elif isinstance(content.blob, bytes):
            size += len(content.blob)
    facts = [", ".join(name_text(kind, 100) for kind in list(kinds)[:5]) or "no content", size_text(size)]
    if tokens:
        facts.append(f"about {tokens:,} tokens")
    if len(contents) > MAX_CONTENTS:
        facts.append(f"the first {MAX_CONTENTS} of {len(contents):,} contents are shown")
    facts.append(f"read in {seconds * 1000:.0f} ms at {time.strftime('%H:%M:%S')}")
    if changes:
        facts.append(f"changed {changes} times since it was opened" if changes > 1 else "changed since it was opened")
    return " · ".join(facts)
