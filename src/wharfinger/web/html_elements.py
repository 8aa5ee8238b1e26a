"""Elements of the page made of plain HTML tags. Their text is text: nothing in it is ever read as HTML."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from nicegui.elements.mixins.text_element import TextElement

from wharfinger.content.text import shown

__all__ = ["MAX_NAME_CHARACTERS", "HtmlElement", "name_text", "node", "table"]

MAX_NAME_CHARACTERS = 300
"""Maximum length of a text from a server before it is escaped, unless another limit is given."""


class HtmlElement(TextElement):
    """An HTML element with a text, attributes, and other elements in it."""


def node(tag: str, text: str = "", *, classes: str = "", **attributes: object) -> HtmlElement:
    """Add an element to the page. In names of `attributes`, `_` becomes `-`, and a final `_` is removed.

    The attributes are set as values, and never parsed as HTML, so they may contain text from a server. Only a URL for
    `href` or `src` has to be checked first.
    """
    element = HtmlElement(tag=tag, text=text)
    if classes:
        element.classes(classes)
    for name, value in attributes.items():
        if value is not None and value is not False:
            element.props[name.rstrip("_").replace("_", "-")] = value
    return element


def table(label: str, titles: Iterable[str], rows: Iterable[Sequence[str]]) -> None:
    """Add a table that can be scrolled, with a row of titles. `label` is its name for screen readers."""
    with node("div", classes="table", tabindex="0", role="region", aria_label=label), node("table"):
        with node("thead"), node("tr"):
            for title in titles:
                node("th", title, scope="col")
        with node("tbody"):
            for row in rows:
                with node("tr"):
                    for text in row:
                        node("td", text)


def name_text(text: str, limit: int = MAX_NAME_CHARACTERS) -> str:
    """Return text that came from a server, shortened, with unprintable characters and direction marks escaped."""
    return shown(text if len(text) <= limit else text[: limit - 1] + "…")
