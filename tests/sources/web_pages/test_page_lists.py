"""The page lists of a site, `llms.txt` and sitemaps: how they are parsed, and limits on hostile ones."""

from __future__ import annotations

import time
from xml.etree import ElementTree
from xml.sax.saxutils import escape

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wharfinger.sources.web_pages import page_lists
from wharfinger.sources.web_pages.page_lists import (
    ListedPage,
    UnusableList,
    is_llms_text,
    read_llms_text,
    read_sitemap,
)

NAMESPACE = 'xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"'


def test_the_links_of_llms_text_are_read_with_title_and_notes() -> None:
    """The example of llmstxt.org, shortened."""
    text = """# FastHTML

> FastHTML is a python library.

Important notes with [a link](https://notes.example/) in a sentence.

## Docs

- [FastHTML quick start](https://docs.example/quickstart.html.md): A brief overview of many features
* [Parens](/wiki/Tide_(disambiguation)) : spaces  in   notes
- [Titled](relative.md "a title")
- no link
- [](empty.md)

## Optional

- [Starlette full documentation](<https://docs.example/starlette.md>)
"""
    assert read_llms_text(text).pages == (
        ListedPage(
            "https://docs.example/quickstart.html.md", "FastHTML quick start", "A brief overview of many features"
        ),
        ListedPage("/wiki/Tide_(disambiguation)", "Parens", "spaces in notes"),
        ListedPage("relative.md", "Titled"),
        ListedPage("empty.md"),
        ListedPage("https://docs.example/starlette.md", "Starlette full documentation"),
    )


@pytest.mark.parametrize(("text", "expected"), [("# Site\n", True), ("\ufeff\n <!doctype html>", False), ("", True)])
def test_an_html_page_is_not_accepted_as_llms_text(text: str, expected: bool) -> None:
    assert is_llms_text(text) is expected


@given(st.text(max_size=300))
def test_any_text_can_be_read_as_llms_text(text: str) -> None:
    assert not read_llms_text(text).truncated


@pytest.mark.parametrize(
    "line",
    [
        "- [" * 2_500,
        "- [a](" + "(" * 7_900,
        "- [a](" + "()" * 3_900,
        "- [a](x" + " " * 7_900,
        " " * 8_000,
        "- [a](" + "x" * 7_900,
        "- [a](" + " " * 7_900,
        "- [a](" + " " * 2_500 + "x" * 2_500 + "(" + "x" * 2_500,
    ],
)
def test_a_hostile_line_takes_linear_time(line: str) -> None:
    """A bug: some took time in proportion to the square of their length: 8 s for 2.4 MB."""
    started = time.thread_time()
    read_llms_text("\n".join([line] * 300))
    assert time.thread_time() - started < 2


def test_long_lines_are_ignored_and_long_lists_truncated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_lists, "MAX_LINE_CHARACTERS", 20)
    assert len(read_llms_text("- [a](" + "x" * 13 + ")").pages) == 1
    assert len(read_llms_text("- [a](" + "x" * 14 + ")").pages) == 0
    monkeypatch.setattr(page_lists, "MAX_PAGES", 3)
    assert (len(read_llms_text("- [a](b)\n" * 3).pages), read_llms_text("- [a](b)\n" * 3).truncated) == (3, False)
    assert (len(read_llms_text("- [a](b)\n" * 4).pages), read_llms_text("- [a](b)\n" * 4).truncated) == (3, True)


def test_the_pages_of_a_sitemap_are_read_with_their_modification_times() -> None:
    data = f"""<?xml version="1.0" encoding="UTF-8"?>
<urlset {NAMESPACE} xmlns:image="http://www.google.com/schemas/sitemap-image/1.1">
  <url><loc> https://docs.example/a?x=1&amp;y=2 </loc><lastmod>2026-11-20</lastmod><priority>0.5</priority></url>
  <url><loc>https://docs.example/b</loc><lastmod>yesterday</lastmod>
    <image:image><image:loc>https://docs.example/b.png</image:loc></image:image></url>
  <url><loc><![CDATA[https://docs.example/c]]></loc><lastmod>2026-11-20T10:00:00+01:00</lastmod></url>
  <url><lastmod>2026-11-20</lastmod></url>
</urlset>""".encode()
    assert read_sitemap(data).pages == (
        ListedPage("https://docs.example/a?x=1&y=2", modified="2026-11-20"),
        ListedPage("https://docs.example/b"),
        ListedPage("https://docs.example/c", modified="2026-11-20T10:00:00+01:00"),
    )


def test_the_sitemaps_of_an_index_are_read() -> None:
    data = f"<sitemapindex {NAMESPACE}><sitemap><loc>/a.xml</loc></sitemap></sitemapindex>".encode()
    assert read_sitemap(data).sitemaps == ("/a.xml",)


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs", "Cn"]), min_size=1), max_size=8))
def test_a_sitemap_is_parsed_like_elementtree_parses_it(links: list[str]) -> None:
    data = f"<urlset {NAMESPACE}>" + "".join(f"<url><loc>{escape(link)}</loc></url>" for link in links) + "</urlset>"
    found = [(each.text or "").strip() for each in ElementTree.fromstring(data).findall(".//{*}loc")]
    assert [page.link for page in read_sitemap(data.encode()).pages] == [link for link in found if link]


BILLION_LAUGHS = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 10))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (
            f'<!DOCTYPE x [<!ENTITY l0 "ha">{BILLION_LAUGHS}]><urlset><url><loc>&l9;</loc></url></urlset>',
            "document type",
        ),
        (
            '<!DOCTYPE x [<!ENTITY e SYSTEM "file:///etc/passwd">]><urlset><url>&e;</url></urlset>',
            "document",
        ),
        ('<!DOCTYPE x SYSTEM "http://127.0.0.1/x.dtd"><urlset/>', "document type"),
        ("<html><body/></html>", "begins with <html>"),
        ("<urlset><url>", "is not XML"),
        ("", "is not XML"),
        ("<urlset>" + "<url>" * 100_000, "too deeply"),
        ("<urlset><url><loc>&undefined;</loc></url></urlset>", "is not XML"),
        ("\0" * 1000, "is not XML"),
        ('<?xml version="1.0" encoding="unheard-of"?><urlset/>', "is not XML"),
        ('<?xml version="1.0" encoding="big5"?><urlset/>', "is not XML"),
    ],
)
def test_a_hostile_sitemap_is_refused(data: str, message: str) -> None:
    started = time.thread_time()
    with pytest.raises(UnusableList, match=message):
        read_sitemap(data.encode())
    assert time.thread_time() - started < 1


def test_sitemaps_are_limited_in_entries_depth_and_location_length(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_lists, "MAX_PAGES", 3)
    monkeypatch.setattr(page_lists, "MAX_SITEMAPS", 3)
    monkeypatch.setattr(page_lists, "MAX_DEPTH", 5)
    for number, truncated in ((3, False), (4, True)):
        pages = read_sitemap(b"<urlset>" + b"<url><loc>/a</loc></url>" * number + b"</urlset>")
        assert (len(pages.pages), pages.truncated) == (3, truncated)
        index = b"<sitemapindex>" + b"<sitemap><loc>/a</loc></sitemap>" * number + b"</sitemapindex>"
        assert (len(read_sitemap(index).sitemaps), read_sitemap(index).truncated) == (3, truncated)
    read_sitemap(b"<urlset><url><a><b><c/></b></a></url></urlset>")
    with pytest.raises(UnusableList, match="too deeply"):
        read_sitemap(b"<urlset><url><a><b><c><d/></c></b></a></url></urlset>")
    limit = page_lists.MAX_LOCATION_CHARACTERS
    for length, expected_count in ((limit, 1), (limit + 1, 0)):
        assert (
            len(read_sitemap(b"<urlset><url><loc>" + b"x" * length + b"</loc></url></urlset>").pages) == expected_count
        )
