"""Turns HTML into Markdown, in a child process (`child_process`), because strangers write the pages.

html-to-markdown was chosen over markdownify by measurement (CPython 3.11, one core): 1,000 sections of documentation
(260 KB) take 0.02 s instead of 0.4 s; 100,000 nested elements 0.05 s instead of a RecursionError; 500,000 unclosed
comments 0.02 s instead of more than 20 s. The time that html-to-markdown took was linear for every input that was
tried. It leaves out elements that are nested deeper than 1,024 levels, and reports that.

If a page has a `<main>` element with text, only that is read, otherwise the whole body; in both cases without
navigation, sidebars and footers.
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
"""CSS selectors of elements to leave out. The library also leaves out scripts, styles, forms, `nav` and `header`."""
_COMMENT_OR_TAG = re.compile(r"""<!--|<([a-z][^\s/>]*+)(?:=\s*+(?:"[^"]*+"|'[^']*+')|[^>])*+(?:>|\Z)""")
"""The beginning of a comment, or a start tag with its attributes, whose quoted values may contain `<main>`.

It takes linear time: a tag that is not closed lasts until the end of the page."""
_CLOSINGS = {
    name: f"</{name}" for name in ("script", "style", "title", "textarea", "iframe", "noembed", "noframes", "xmp")
}
"""The ends of elements in which tags are text, by name."""


class PageText(msgspec.Struct):
    """The text of a page."""

    text: str
    """Markdown."""
    title: str = ""
    remark: str = ""
    """A sentence about omitted content, or an empty string."""


def main(request: bytes) -> bytes:
    """Return the `PageText` of a page in JSON. The first line of `request` is the page's URL; HTML in UTF-8 follows."""
    url, _, data = request.partition(b"\n")
    return msgspec.json.encode(page_text(url.decode(), data.decode("utf-8", "replace")))


def page_text(url: str, html: str) -> PageText:
    """Return the main content of a page as Markdown, with absolute links."""
    from html_to_markdown import ConversionOptions, convert  # imported on use: an extra

    html = html.replace("\0", "\ufffd")
    document = convert(html, ConversionOptions(base_url=url)).metadata.document
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
    main_html = main_element(html)
    converted = convert(main_html or html, options)
    if main_html and not (converted.content or "").strip():
        converted = convert(html, options)
    too_deep = any("depth" in str(warning.kind) for warning in converted.warnings)
    remark = "Elements that are nested deeper than 1,024 levels were left out." if too_deep else ""
    return PageText((converted.content or "").strip() + "\n", title[:MAX_TITLE_CHARACTERS], remark)


def main_element(html: str) -> str:
    """Return the HTML of the `<main>` element, or an empty string if its tags do not show where it is."""
    lower = html.lower()
    begin, end = -1, lower.rfind("</main")
    position = 0
    while (match := _COMMENT_OR_TAG.search(lower, position)) is not None:
        if match[1] == "main":
            begin = match.start()
            break
        position = match.end()
        closing = "-->" if match[1] is None else _CLOSINGS.get(match[1])
        if closing is not None and (position := lower.find(closing, position)) < 0:
            break
    # `lower()` makes some letters longer (`İ`), and then positions in `lower` are not those in `html`.
    return f"{html[begin:end]}</main>" if 0 <= begin < end and len(lower) == len(html) else ""
