"""Untrusted Markdown is rendered as safe HTML."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import absent

try:
    from wharfinger.web.markdown_html import markdown_html
except ImportError:
    absent("markdown-it-py and nh3 (pip install wharfinger[browse])")

HOSTILE = [
    "<script>alert(1)</script>", "[a](javascript:alert(1))", "[a](JaVaScRiPt:alert(1))", "[a](data:text/html,x)",
    "![a](http://evil.test/x.png)", "![a](data:image/svg+xml,<svg onload=alert(1)>)", "<img src=x onerror=alert(1)>",
    "[a]: javascript:alert(1)\n[a]", "<javascript:alert(1)>", "[a](vbscript:x)", "```\n</code><script>x</script>\n```",
    '[a](http://x "onclick=alert(1)")', "[a](file:///etc/passwd)", "&#x3c;script&#x3e;",
]  # fmt: skip


class UnsafeMarkupFinder(HTMLParser):
    """A parser that collects unsafe tags, attributes and URLs."""

    def __init__(self) -> None:
        super().__init__()
        self.unsafe: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in ("script", "style", "iframe", "object", "embed", "form", "input", "svg", "base", "meta", "link"):
            self.unsafe.append(tag)
        for name, value in attrs:
            text = (value or "").strip().lower()
            if name.startswith("on") or name == "style":
                self.unsafe.append(name)
            if name == "href" and not text.startswith(("http:", "https:", "mailto:")):
                self.unsafe.append(text)
            if name == "src" and not text.startswith("data:image/"):
                self.unsafe.append(text)


def find_unsafe(text: str) -> list[str]:
    finder = UnsafeMarkupFinder()
    finder.feed(markdown_html(text))
    return finder.unsafe


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_markdown_cannot_run_scripts_or_send_requests(text: str) -> None:
    assert find_unsafe(text) == []


@given(
    st.lists(st.sampled_from([*HOSTILE, "`", "*", "\n", "> ", "|a|\n|-|\n", "\\", "<", ">", '"', "]("])).map("".join)
)
def test_no_combination_of_hostile_fragments_is_unsafe(text: str) -> None:
    assert find_unsafe(text) == []


def test_ordinary_markdown_is_rendered() -> None:
    html = markdown_html("# A\n\n| x |\n|---|\n| 1 |\n\n**b** `c` [d](https://example.test/)")
    for part in ("<h1>A</h1>", "<td>1</td>", "<strong>b</strong>", "<code>c</code>", 'href="https://example.test/"'):
        assert part in html
