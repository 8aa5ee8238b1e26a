"""Turns HTML into Markdown, in a child process (`child_process`), because strangers write the pages.

html-to-markdown was chosen over markdownify by measurement (CPython 3.11, one core): 1,000 sections of documentation
(260 KB) take 0.02 s instead of 0.4 s; 100,000 nested elements 0.05 s instead of a RecursionError; 500,000 unclosed
comments 0.02 s instead of more than 20 s. Its time was linear for every input that was tried. It skips what is nested
deeper than 1,024 elements, and says so.

If a page has a `<main>` element, only that is read; otherwise the body without navigation, sidebars and footers.
"""

from __future__ import annotations

import re

import msgspec

__all__ = ["PageText", "main"]

MAX_TITLE_CHARACTERS = 300
LEFT_OUT = [
    "aside", "footer", "svg", "iframe", "template", "dialog", "[role=navigation]", "[role=banner]", "[role=search]",
    "[role=contentinfo]", ".sphinxsidebar", ".headerlink", ".skip-link", ".visually-hidden",
]  # fmt: skip
"""CSS selectors of what is not content. The library itself leaves out scripts, styles, forms, `nav` and `header`."""
_MAIN_OR_OPAQUE = re.compile(r"<main[\s>]|<!--|<script[\s>]|<style[\s>]")
_CLOSINGS = {"<!--": "-->", "<scr": "</script", "<sty": "</style"}
"""The ends of comments, scripts and styles, in which `<main>` is text, by the first four characters of their starts."""


class PageText(msgspec.Struct):
    """The text of a page."""

    text: str
    """Markdown."""
    title: str = ""
    remark: str = ""
    """A sentence about what was left out; empty if nothing."""


def main(request: bytes) -> bytes:
    """Return the `PageText` of a page in JSON. The first line of `request` is the page's URL; HTML in UTF-8 follows."""
    url, _, data = request.partition(b"\n")
    return msgspec.json.encode(page_text(url.decode(), data.decode("utf-8", "replace")))


def page_text(url: str, html: str) -> PageText:
    """Return the main content of a page as Markdown, with absolute links."""
    from html_to_markdown import ConversionOptions, convert  # imported on use: an extra

    html = html.replace("\0", "\ufffd")
    whole = convert(html, ConversionOptions(base_url=url))
    document = whole.metadata.document
    base = document.base_href or url
    title = " ".join((document.title or "").split())
    options = ConversionOptions(
        base_url=base,
        extract_metadata=False,
        exclude_selectors=LEFT_OUT,
        inline_data_media="alt_text_only",
        autolinks=False,
        include_blockquote_citations=False,
        expand_abbreviations=False,
        compact_tables=True,
    )
    part = main_element(html)
    found = convert(part or html, options)
    if part and not (found.content or "").strip():
        found = convert(html, options)
    deep = any("depth" in str(warning.kind) for warning in found.warnings)
    remark = "What is nested deeper than 1,024 elements was left out." if deep else ""
    return PageText((found.content or "").strip() + "\n", title[:MAX_TITLE_CHARACTERS], remark)


def main_element(html: str) -> str:
    """Return the text of the `<main>` element, or an empty string if its tags do not show where it is."""
    lower = html.lower()
    begin, end = -1, lower.rfind("</main")
    at = 0
    while begin < 0 and (found := _MAIN_OR_OPAQUE.search(lower, at)) is not None:
        if found[0].startswith("<main"):
            begin = found.start()
            break
        closing = lower.find(_CLOSINGS[found[0][:4]], found.end())
        if closing < 0:
            break
        at = closing + 1
    return f"{html[begin:end]}</main>" if 0 <= begin < end and len(lower) == len(html) else ""
