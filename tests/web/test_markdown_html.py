"""Markdown of strangers as HTML of ours."""

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


class Checker(HTMLParser):
    """Collects what must not be there."""

    def __init__(self) -> None:
        super().__init__()
        self.wrong: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in ("script", "style", "iframe", "object", "embed", "form", "input", "svg", "base", "meta", "link"):
            self.wrong.append(tag)
        for name, value in attrs:
            text = (value or "").strip().lower()
            if name.startswith("on") or name == "style":
                self.wrong.append(name)
            if name == "href" and not text.startswith(("http:", "https:", "mailto:")):
                self.wrong.append(text)
            if name == "src" and not text.startswith("data:image/"):
                self.wrong.append(text)


def wrong_in(text: str) -> list[str]:
    checker = Checker()
    checker.feed(markdown_html(text))
    return checker.wrong


@pytest.mark.parametrize("text", HOSTILE)
def test_nothing_can_run_or_send_a_request(text: str) -> None:
    assert wrong_in(text) == []


@given(
    st.lists(st.sampled_from([*HOSTILE, "`", "*", "\n", "> ", "|a|\n|-|\n", "\\", "<", ">", '"', "]("])).map("".join)
)
def test_no_combination_of_fragments_can_run(text: str) -> None:
    assert wrong_in(text) == []


def test_ordinary_markdown_is_rendered() -> None:
    html = markdown_html("# A\n\n| x |\n|---|\n| 1 |\n\n**b** `c` [d](https://example.test/)")
    for part in ("<h1>A</h1>", "<td>1</td>", "<strong>b</strong>", "<code>c</code>", 'href="https://example.test/"'):
        assert part in html
