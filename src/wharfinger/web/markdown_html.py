"""Markdown as HTML that may be shown in the page: no HTML of the author, no images of other servers, no scripts."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

__all__ = ["MAX_MARKDOWN_CHARACTERS", "markdown_html"]

MAX_MARKDOWN_CHARACTERS = 256 * 1024
"""Maximum length of a document; longer ones are shown as text."""

_TAGS = frozenset(
    {"a", "blockquote", "br", "code", "del", "em", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "img", "li", "ol", "p",
     "pre", "s", "strong", "table", "tbody", "td", "th", "thead", "tr", "ul"}
)  # fmt: skip
_ATTRIBUTES = {
    "a": {"href", "title"},
    "img": {"src", "alt", "title"},
    "ol": {"start"},
    "th": {"align"},
    "td": {"align"},
}
_SCHEMES = {"http", "https", "mailto", "data"}


def markdown_html(text: str) -> str:
    """Return a document of CommonMark with tables as HTML.

    HTML in it is shown as text. Links may use only `http`, `https` and `mailto`. Images may only be data in the
    document itself: an image on a server would tell that server who reads the document.
    """
    import nh3

    html: str = _parser().render(text[:MAX_MARKDOWN_CHARACTERS])
    return nh3.clean(
        html,
        tags=set(_TAGS),
        attributes={tag: set(names) for tag, names in _ATTRIBUTES.items()},
        url_schemes=set(_SCHEMES),
        attribute_filter=_filter_attribute,
        link_rel="noopener noreferrer nofollow",
        set_tag_attribute_values={"a": {"target": "_blank"}},
    )


def _filter_attribute(tag: str, name: str, value: str) -> str | None:
    """Return the value of an attribute, or None to drop the attribute."""
    if name == "src":
        return (
            value
            if value.startswith(("data:image/png", "data:image/jpeg", "data:image/gif", "data:image/webp"))
            else None
        )
    if name == "href" and not value.lower().startswith(("http:", "https:", "mailto:")):
        return None
    return value


@cache
def _parser() -> MarkdownIt:
    from markdown_it import MarkdownIt

    return MarkdownIt("commonmark", {"html": False, "maxNesting": 50}).enable(["table", "strikethrough"])
