"""The preview of a resource: shows each type of content as a person reads it. Nothing in the content runs.

Text, HTML and SVG go into the page as text, and Markdown as sanitised HTML (`markdown_html`). HTML of a server is never
rendered, because it could imitate this page. Images, sound, films and PDF are bytes on the shelf (`content_shelf`),
which players load under headers that let nothing in them run. Only bytes with the signature of their type are put
there.
"""

from __future__ import annotations

import asyncio
import csv
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from wharfinger import types as t
from wharfinger.content import mime
from wharfinger.content.mime_check import contradiction
from wharfinger.content.text import many, size_text
from wharfinger.web.content_shelf import ContentShelf
from wharfinger.web.content_windows import ContentWindows, TableWindows, indented_json
from wharfinger.web.html_elements import HtmlElement, name_text, node, table
from wharfinger.web.markdown_html import MAX_MARKDOWN_CHARACTERS, markdown_html
from wharfinger.web.vue_elements import MarkdownView

__all__ = ["ContentPreview", "show_blocks"]

IMAGES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp", "image/avif", "image/bmp", "image/x-icon"})
"""Types that browsers show in `<img>`, except SVG, which is markup."""
AUDIO = frozenset(
    {"audio/mpeg", "audio/mp4", "audio/ogg", "audio/wav", "audio/x-wav", "audio/flac", "audio/webm", "audio/aac"}
)
VIDEOS = frozenset({"video/mp4", "video/webm", "video/ogg"})
TABLES = {
    "text/csv": ",",
    "text/tab-separated-values": "\t",
    "application/jsonl": "jsonl",
    mime.JSON_LINES: "jsonl",
}
"""The `kind` for `TableWindows`, by MIME type."""
HEX_BYTES = 512
MAX_TABLE_CHARACTERS = 8 * 1024 * 1024
MAX_BLOCKS = 100
"""Maximum number of blocks of one result that are shown."""


class ContentPreview:
    """Shows one content in an element of the page, with a button for each way in which it can be shown."""

    def __init__(self, shelf: ContentShelf, visitor: str, *, name: str) -> None:
        self._shelf = shelf
        self._visitor = visitor
        self._name = name
        self._paths: list[str] = []
        self._way = ""
        """The way that the visitor chose, such as `Table`."""

    def close(self) -> None:
        """Forget the content: no tab shows it any more."""
        for path in self._paths:
            self._shelf.take_away(path)
        self._paths.clear()

    async def show(self, container: HtmlElement, content: t.ResourceContents) -> None:
        """Replace the content of an element with this one, shown in the way that was chosen before."""
        self.close()
        text = content.text if isinstance(content.text, str) else None
        blob = content.blob if text is None and isinstance(content.blob, bytes) else b""
        declared = content.mime_type if isinstance(content.mime_type, str) else ""
        kind = mime.essence_of(declared) or (mime.TEXT if text is not None else mime.sniff(blob))
        if text is None and mime.is_text(kind):
            decoded = mime.decode_text(blob)
            text = None if decoded is None else decoded[0]
        ways = self._ways(kind, text, blob)
        container.clear()
        chosen = self._way if self._way in ways else next(iter(ways))
        with container:
            if len(ways) > 1:
                self._show_choices(container, content, list(ways), chosen)
            with node("div", classes="preview", data_way=chosen) as inner:
                await ways[chosen](inner)

    def _show_choices(self, container: HtmlElement, content: Any, ways: Sequence[str], chosen: str) -> None:
        with node("div", classes="ways", role="group", aria_label="Show as"):
            for way in ways:

                async def choose(way: str = way) -> None:
                    self._way = way
                    await self.show(container, content)

                pressed = "true" if way == chosen else "false"
                node("button", way, type="button", aria_pressed=pressed).on("click", choose)

    def _ways(self, kind: str, text: str | None, blob: bytes) -> dict[str, Callable[[HtmlElement], Any]]:
        """Return the ways in which this content can be shown, the best first."""
        data = blob if text is None else text.encode("utf-8", "replace")
        ways: dict[str, Callable[[HtmlElement], Any]] = {}

        async def image(_: HtmlElement) -> None:
            node("img", src=self._put(kind, data), alt=f"Image: {name_text(self._name)}", classes="picture")

        async def sound(_: HtmlElement) -> None:
            node("audio", src=self._put(kind, data), controls=True, aria_label=f"Sound: {name_text(self._name)}")

        async def film(_: HtmlElement) -> None:
            node("video", src=self._put(kind, data), controls=True, aria_label=f"Film: {name_text(self._name)}")

        async def pdf(_: HtmlElement) -> None:
            path = self._put(mime.PDF, data)
            node("iframe", src=path, title=f"PDF: {name_text(self._name)}", classes="paper")
            node("a", "Open the PDF in a tab", href=path, target="_blank", rel="noopener")

        if data and (kind in IMAGES | AUDIO | VIDEOS) and not has_signature(kind, data):
            kind = mime.OCTETS
        if kind in IMAGES and data:
            ways["Image"] = image
        elif kind in AUDIO and data:
            ways["Sound"] = sound
        elif kind in VIDEOS and data:
            ways["Film"] = film
        elif kind == mime.PDF and data.startswith(b"%PDF-"):
            ways["PDF"] = pdf
        if text is not None:
            if kind in (mime.MARKDOWN, "text/x-markdown") and len(text) <= MAX_MARKDOWN_CHARACTERS:
                ways["Markdown"] = lambda inner: self._markdown(inner, text)
            if kind in TABLES and len(text) <= MAX_TABLE_CHARACTERS:
                ways["Table"] = lambda inner: self._table(inner, text, TABLES[kind])
            if kind == mime.JSON or kind.endswith("+json"):
                ways["JSON"] = lambda inner: self._text(inner, text, indented=True)
            ways["Text"] = lambda inner: self._text(inner, text)
        elif not ways:
            ways["Bytes"] = lambda inner: self._hex(kind, blob)
        return ways

    def _put(self, kind: str, data: bytes) -> str:
        path = self._shelf.put(self._visitor, kind, data)
        self._paths.append(path)
        return path

    # In the methods below, newer content may have replaced the element during an `await`.

    async def _markdown(self, container: HtmlElement, text: str) -> None:
        html = await asyncio.to_thread(markdown_html, text)
        if not container.is_deleted:
            MarkdownView(html)

    async def _text(self, container: HtmlElement, text: str, *, indented: bool = False) -> None:
        if indented:
            text = await asyncio.to_thread(indented_json, text)
        if container.is_deleted:
            return
        windows = ContentWindows(text)

        def show(number: int) -> str:
            part, first = windows.window(number)
            node("pre", part, classes="text", tabindex="0", dir="auto", role="region", aria_label="Text")
            if not text:
                return "No lines"
            last = first + part.count("\n") - part.endswith("\n")
            return f"Lines {first:,} to {max(first, last):,} of {windows.line_count:,}"

        _show_windows(container, len(windows), show)

    async def _table(self, container: HtmlElement, text: str, kind: str) -> None:
        try:
            windows = await asyncio.to_thread(TableWindows, text, kind)
        except (ValueError, csv.Error, RecursionError):
            await self._text(container, text)
            return
        if container.is_deleted:
            return

        def show(number: int) -> str:
            rows, first = windows.window(number)
            table("Table", windows.header, rows)
            shown_columns = len(windows.header)
            more = (
                f", {shown_columns} of {windows.column_count} columns" if windows.column_count > shown_columns else ""
            )
            return f"Rows {first:,} to {first + len(rows) - 1:,} of {windows.row_count:,}{more}" if rows else "No rows"

        _show_windows(container, len(windows), show)

    async def _hex(self, kind: str, blob: bytes) -> None:
        node("p", f"{size_text(len(blob))} of {name_text(kind)}, of which these are the first bytes.")
        lines = [
            f"{offset:08x}  {blob[offset : offset + 16].hex(' '):47}  "
            + "".join(chr(byte) if 32 <= byte < 127 else "." for byte in blob[offset : offset + 16])
            for offset in range(0, min(len(blob), HEX_BYTES), 16)
        ]
        node("pre", "\n".join(lines) or "(empty)", classes="text", tabindex="0", role="region", aria_label="Bytes")


def has_signature(kind: str, data: bytes) -> bool:
    """Return whether bytes have the signature of an image, sound or film of this type."""
    # `contradiction` recognises more frames of MPEG audio than `by_signature` does.
    known = bool(mime.by_signature(data[: mime.SNIFFED_BYTES])) or kind == "audio/mpeg"
    return known and not contradiction(kind, data)


def _show_windows(container: HtmlElement, count: int, show: Callable[[int], str]) -> None:
    """Show the first of `count` windows, with buttons for others. `show` shows a window, and returns its summary."""
    with container:
        inner = node("div")

    def go(to: int) -> None:
        inner.clear()
        with inner:
            summary = show(to)
            with node("div", classes="pages"):
                node("span", summary, classes="detail", role="status")
                for label, target in (("First", 0), ("Previous", to - 1), ("Next", to + 1), ("Last", count - 1)):
                    if count > 1:
                        disabled = target == to or not 0 <= target < count
                        button = node("button", label, type="button", disabled=disabled)
                        button.on("click", partial(go, target), args=[])

    go(0)


async def show_blocks(shelf: ContentShelf, visitor: str, blocks: Sequence[Any], previews: list[ContentPreview]) -> None:
    """Show the content blocks of a tool's result or a prompt's message.

    Each preview is added to `previews` before it is shown. Close them later, also after a cancellation.
    """
    for block in blocks[:MAX_BLOCKS]:
        preview = ContentPreview(shelf, visitor, name=str(getattr(block, "uri", "") or type(block).__name__))
        previews.append(preview)
        with node("section", classes="block") as container:
            if isinstance(block, t.TextContent):
                await preview.show(container, t.ResourceContents(uri="", text=block.text))
            elif isinstance(block, t.ImageContent | t.AudioContent):
                await preview.show(container, t.ResourceContents(uri="", blob=block.data, mime_type=block.mime_type))
            elif isinstance(block, t.EmbeddedResource):
                node("p", name_text(block.resource.uri), classes="detail")
                with node("div") as inner:
                    await preview.show(inner, block.resource)
            elif isinstance(block, t.ResourceLink):
                node("p", f"Resource: {name_text(block.uri)}")
            else:
                node("p", f"A block of an unknown type: {name_text(type(block).__name__)}")
    if len(blocks) > MAX_BLOCKS:
        node("p", f"Not shown: {many(len(blocks) - MAX_BLOCKS, 'more block')}.")
