"""Pages of a site over HTTP: which are published, how they are converted, and limits on hostile ones."""

from __future__ import annotations

import gzip
import queue
import re
import threading
import time
import urllib.robotparser
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import protego
import pytest
from bs4 import BeautifulSoup
from msgspec import UNSET

from tests.sources.web_pages.conftest import html
from tests.sources.web_pages.site_server import SiteServer
from tests.waiting import wait_until
from wharfinger.errors import InvalidArgument, ResourceNotFound
from wharfinger.server.document_search import search_documents
from wharfinger.source import SourceUnavailable, UnusableSource
from wharfinger.sources.html_reader import page_text
from wharfinger.sources.web_pages import PageFailed, SiteUnavailable, WebPages, crawl, page_lists, web, web_site
from wharfinger.sources.web_pages.crawl import Crawl
from wharfinger.sources.web_pages.web_site import SitePages
from wharfinger.testing.source_suite.driver import ChangeRecorder

NAMESPACE = 'xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"'


@pytest.fixture
def pages(site: SiteServer) -> Iterator[WebPages]:
    source = web(f"{site.origin}/docs/", every=0.05)
    yield source
    close(source)


def close(source: WebPages) -> None:
    """End the threads of a source that is used without a server."""
    source._watches.close()
    source._crawl.stop()
    source.site.close()


def listed_uris(source: WebPages) -> list[str]:
    return [each.uri for each in source.page(None, 1_000)[0][1:]]


def urlset(*urls: str) -> str:
    return f"<urlset {NAMESPACE}>" + "".join(f"<url><loc>{url}</loc></url>" for url in urls) + "</urlset>"


def sitemap_index(*urls: str) -> str:
    return (
        f"<sitemapindex {NAMESPACE}>"
        + "".join(f"<sitemap><loc>{url}</loc></sitemap>" for url in urls)
        + "</sitemapindex>"
    )


# Lists


def test_links_of_llms_text_below_the_url_are_published(site: SiteServer, pages: WebPages) -> None:
    docs = f"{site.origin}/docs"
    assert listed_uris(pages) == [f"{docs}/data/depths.json", f"{docs}/guide/", f"{docs}/guide/locks.md",
                             f"{docs}/guide/quays.html", f"{docs}/tides.html"]  # fmt: skip
    tides = pages.page(None, 1_000)[0][-1]
    assert (tides.name, tides.title, tides.description) == ("tides.html", "Tides", "When the water is high")
    types = {each.name: each.mime_type for each in pages.page(None, 1_000)[0][1:]}
    assert types == {"depths.json": "application/json", "guide": "text/markdown", "locks.md": "text/markdown",
                     "quays.html": "text/markdown", "tides.html": "text/markdown"}  # fmt: skip
    top = pages.read(pages.uri).contents[0].text
    assert "1 directory" not in str(top)  # data/ and guide/
    assert f"2 links left out: not below {docs}/." in str(top)
    for uri in (f"{site.origin}/private/x.html", f"{docs}/llms.txt", f"{docs}/../private/x.html"):
        with pytest.raises(ResourceNotFound):
            pages.read(uri)
    assert site.requests("/private/x.html") == []


def test_directories_contain_each_page_once(site: SiteServer, pages: WebPages) -> None:
    def descendants(uri: str) -> Iterator[str]:
        for child in pages.children(uri)[0]:
            if child.mime_type == "inode/directory":
                yield from descendants(child.uri)
            else:
                yield child.uri

    assert sorted(descendants(pages.uri)) == listed_uris(pages)
    top = [(each.name, each.mime_type) for each in pages.children(pages.uri)[0]]
    assert top == [("data", "inode/directory"), ("guide", "inode/directory"), ("tides.html", "text/markdown")]


def test_the_page_at_the_top_without_a_slash_is_an_entry_of_the_top(site: SiteServer, pages: WebPages) -> None:
    """A bug: the tree of directories lacked it."""
    urls = [f"{site.origin}/docs", f"{site.origin}/docs/tides.html", f"{site.origin}/docs?page=a/b"]
    site.put("docs/llms.txt", "".join(f"- [x]({url})\n" for url in urls))
    assert listed_uris(pages) == urls
    first, after = pages.children(pages.uri, None, 1)
    assert [each.uri for each in first + pages.children(pages.uri, after)[0]] == urls


def test_a_list_without_pages_below_the_url_does_not_hide_the_sitemap(site: SiteServer, pages: WebPages) -> None:
    """A bug: `llms.txt` at the root of a site often lists other parts of it."""
    site.remove("docs/llms.txt")
    site.put("llms.txt", f"- [Other]({site.origin}/other/x.html)\n")
    site.put("docs/sitemap.xml", urlset(f"{site.origin}/docs/tides.html"))
    assert listed_uris(pages) == [f"{site.origin}/docs/tides.html"]


def test_without_llms_text_the_sitemap_is_used(site: SiteServer, pages: WebPages) -> None:
    site.remove("docs/llms.txt")
    docs = f"{site.origin}/docs"
    site.put(
        "docs/sitemap.xml",
        f"<urlset {NAMESPACE}><url><loc>{docs}/tides.html</loc><lastmod>2026-11-20</lastmod></url>"
        f"<url><loc>{site.origin}/private/x.html</loc></url></urlset>",
    )
    assert listed_uris(pages) == [f"{docs}/tides.html"]
    annotations = pages.page(None, 9)[0][1].annotations
    assert annotations is not UNSET
    assert annotations.last_modified == "2026-11-20"


def test_nested_and_compressed_sitemaps_from_robots_text_are_each_read_once(site: SiteServer) -> None:
    site.remove("docs/llms.txt")
    site.put("robots.txt", f"Sitemap: {site.origin}/maps/index.xml\nSitemap: https://elsewhere.example/x.xml\n")
    loop = sitemap_index(
        "/maps/a.xml", "/maps/index.xml", "/maps/b.xml.gz", "/maps/deeper.xml", "https://elsewhere.example/y"
    )
    site.put("maps/index.xml", loop)
    site.put("maps/deeper.xml", sitemap_index("/maps/index.xml", "/maps/a.xml"))
    site.put("maps/a.xml", urlset("/docs/tides.html"))
    compressed = gzip.compress(urlset("/docs/guide/").encode())
    site.put("maps/b.xml.gz", compressed, headers={"Content-Type": "application/x-gzip"})
    source = web(f"{site.origin}/docs/")
    assert listed_uris(source) == [f"{site.origin}/docs/guide/", f"{site.origin}/docs/tides.html"]
    requested = [each["path"] for each in site.requests() if each["path"].startswith("/maps/")]
    assert sorted(requested) == ["/maps/a.xml", "/maps/b.xml.gz", "/maps/deeper.xml", "/maps/index.xml"]
    close(source)


def test_a_text_file_among_the_sitemaps_of_robots_text_does_not_hide_the_others(site: SiteServer) -> None:
    """A bug: of several files, only the first was read if its name ended with .txt."""
    site.remove("docs/llms.txt")
    site.put("robots.txt", f"Sitemap: {site.origin}/maps/a.txt\nSitemap: {site.origin}/maps/b.xml\n")
    site.put("maps/a.txt", f"{site.origin}/docs/guide/\n")
    site.put("maps/b.xml", urlset("/docs/tides.html"))
    source = web(f"{site.origin}/docs/")
    assert listed_uris(source) == [f"{site.origin}/docs/tides.html"]
    close(source)


def test_a_long_index_of_sitemaps_is_not_reported_as_pages(site: SiteServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bug: an index of more than 1,000 sitemaps was said to list more than 50,000 pages."""
    monkeypatch.setattr(page_lists, "MAX_SITEMAPS", 2)
    monkeypatch.setattr(web_site, "MAX_SITEMAPS", 2)
    site.remove("docs/llms.txt")
    site.put("docs/sitemap.xml", sitemap_index(*(f"/docs/{number}.xml" for number in range(3))))
    site.put("docs/0.xml", urlset("/docs/tides.html"))
    source = web(f"{site.origin}/docs/")
    assert source.site.listing().remarks == ("Only the first 2 sitemaps are read.",)
    close(source)


def test_the_number_of_sitemaps_is_limited(site: SiteServer, monkeypatch: pytest.MonkeyPatch) -> None:
    site.remove("docs/llms.txt")
    for number in range(4):
        site.put(f"docs/{number}.xml", urlset(f"/docs/{number}.html"))
    site.put("docs/sitemap.xml", sitemap_index(*(f"/docs/{number}.xml" for number in range(4))))
    for limit, page_count in ((5, 4), (4, 3)):
        monkeypatch.setattr(web_site, "MAX_SITEMAPS", limit)
        source = web(f"{site.origin}/docs/")
        assert len(listed_uris(source)) == page_count
        assert ("Only the first 4 sitemaps are read." in source.site.listing().remarks) is (limit == 4)
        close(source)


def test_sitemaps_that_name_very_many_others_are_read_quickly(site: SiteServer) -> None:
    """Security: a bug: for each of 100,000 links, all earlier ones were compared, which took two minutes."""
    site.remove("docs/llms.txt")
    for number in range(100):
        urls = [f"/docs/{other}.xml" for other in range(1000 * number, 1000 * (number + 1))]
        site.put("docs/sitemap.xml" if not number else f"docs/{number}.xml", sitemap_index(*urls))
    source = web(f"{site.origin}/docs/")
    began = time.monotonic()
    with pytest.raises(SiteUnavailable, match="Only the first 100 sitemaps are read"):
        source.site.listing()
    assert time.monotonic() - began < 20
    close(source)


@pytest.mark.parametrize(("limit", "left_out"), [(4, False), (3, True)])
def test_the_number_of_pages_in_all_sitemaps_is_limited(
    site: SiteServer, monkeypatch: pytest.MonkeyPatch, limit: int, left_out: bool
) -> None:
    monkeypatch.setattr(web_site, "MAX_PAGES", limit)
    site.remove("docs/llms.txt")
    site.put("docs/sitemap.xml", sitemap_index("/docs/1.xml", "/docs/2.xml"))
    for number in (1, 2):
        site.put(f"docs/{number}.xml", urlset(f"/docs/{number}.html", f"/docs/{number}x.html"))
    source = web(f"{site.origin}/docs/")
    assert len(listed_uris(source)) == limit
    assert ("Only the first 3 pages are listed." in source.site.listing().remarks) is left_out
    close(source)


def test_the_remark_about_a_long_list_stays_while_the_list_does_not_change(
    site: SiteServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bug: after the first answer of 304, the list was cut without a word."""
    monkeypatch.setattr(page_lists, "MAX_PAGES", 1)
    monkeypatch.setattr(web_site, "MAX_PAGES", 1)
    site.remove("docs/llms.txt")
    site.put("docs/sitemap.xml", urlset("/docs/tides.html", "/docs/guide/"))
    source = web(f"{site.origin}/docs/", every=0.05)
    (before,) = source.site.listing().remarks
    wait_until(
        lambda: source.site.listing() and len(site.requests("/docs/sitemap.xml")) > 1, "the list is requested again"
    )
    (after,) = source.site.listing().remarks
    assert before == after == f"{site.origin}/docs/sitemap.xml lists more than 1 pages: the others are left out."
    close(source)


def test_sitemaps_on_other_hosts_do_not_count_towards_the_limit(
    site: SiteServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(web_site, "MAX_SITEMAPS", 1)
    site.remove("docs/llms.txt")
    site.put("robots.txt", f"Sitemap: https://other.example/a.xml\nSitemap: {site.origin}/maps/b.xml\n")
    site.put("maps/b.xml", urlset("/docs/tides.html"))
    source = web(f"{site.origin}/docs/")
    assert listed_uris(source) == [f"{site.origin}/docs/tides.html"]
    close(source)


def test_a_listed_page_that_newer_rules_of_the_site_forbid_is_not_requested(
    site: SiteServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = web(f"{site.origin}/docs/", every=3600)
    assert f"{site.origin}/docs/tides.html" in listed_uris(source)
    monkeypatch.setattr(web_site, "ROBOTS_SECONDS", 0)
    site.put("robots.txt", "User-agent: *\nDisallow: /docs/tides.html\n")
    with pytest.raises(ResourceNotFound):
        source.read(f"{site.origin}/docs/tides.html")
    assert site.requests("/docs/tides.html") == []
    close(source)


def test_the_url_of_the_source_may_be_a_list(site: SiteServer) -> None:
    site.put("docs/api/pages.xml", urlset("/docs/api/a.html", "/docs/tides.html"))
    source = web(f"{site.origin}/docs/api/pages.xml")
    assert listed_uris(source) == [f"{site.origin}/docs/api/a.html"]
    assert source.uri == f"{site.origin}/docs/api/?list=pages"
    close(source)


BILLION_LAUGHS = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 10))


@pytest.mark.parametrize(
    ("sitemap", "reason"),
    [
        (
            f'<!DOCTYPE x [<!ENTITY l0 "ha">{BILLION_LAUGHS}]><urlset><url><loc>&l9;</loc></url></urlset>',
            "document type",
        ),
        ("<html>nothing here", "is not XML|lists no pages"),
        ("<urlset/>", "lists no pages"),
        (urlset("https://elsewhere.example/"), "none that may be read below"),
    ],
)
def test_a_site_without_a_usable_list_is_unavailable_with_the_reason(
    site: SiteServer, pages: WebPages, sitemap: str, reason: str
) -> None:
    site.remove("docs/llms.txt")
    site.put("docs/sitemap.xml", sitemap)
    with pytest.raises(SourceUnavailable, match=reason):
        pages.page(None, 10)


def test_the_decompressed_size_of_a_sitemap_is_limited(
    site: SiteServer, pages: WebPages, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.remove("docs/llms.txt")
    data = urlset("/docs/tides.html").encode()
    site.put("docs/sitemap.xml", gzip.compress(data))
    monkeypatch.setattr(web_site, "MAX_LIST_BYTES", len(data) - 1)
    with pytest.raises(SourceUnavailable, match="inflates to more than"):
        pages.page(None, 10)
    monkeypatch.setattr(web_site, "MAX_LIST_BYTES", len(data))
    assert len(listed_uris(pages)) == 1


# robots.txt

ROBOTS = """User-agent: *
Disallow: /docs/
Allow: /docs/guide/
Disallow: /docs/*.html$

User-agent: other
Disallow: /
"""


def test_pages_that_robots_text_disallows_are_not_published(site: SiteServer, pages: WebPages) -> None:
    site.put("robots.txt", ROBOTS)
    site.put("docs/llms.txt", (site.root / "docs/llms.txt").read_text(), headers={"Content-Type": "text/plain"})
    assert listed_uris(pages) == [f"{site.origin}/docs/guide/", f"{site.origin}/docs/guide/locks.md"]
    assert "3 links left out: not allowed by robots.txt." in pages.site.listing().remarks
    with pytest.raises(ResourceNotFound):
        pages.read(f"{site.origin}/docs/tides.html")
    assert site.requests("/docs/tides.html") == []


def test_robots_text_may_begin_with_a_byte_order_mark(site: SiteServer, pages: WebPages) -> None:
    """A bug: the first group of rules was ignored."""
    site.put("robots.txt", "\ufeffUser-agent: *\nDisallow: /docs/tides.html\n")
    assert f"{site.origin}/docs/tides.html" not in listed_uris(pages)


@pytest.mark.parametrize(
    ("path", "allowed"),
    [("/docs/tides.html", False), ("/docs/guide/locks.md", True), ("/docs/data/depths.json", False), ("/", True)],
)
def test_robots_text_is_interpreted_by_rfc_9309_and_not_like_the_standard_library(path: str, allowed: bool) -> None:
    """The longest matching rule applies, and `*` matches any characters (§2.2.2, §2.2.3).

    urllib.robotparser applies the first matching rule.
    """
    url = f"https://docs.example{path}"
    assert protego.Protego.parse(ROBOTS).can_fetch(url, "wharfinger") is allowed
    standard = urllib.robotparser.RobotFileParser()
    standard.parse(ROBOTS.splitlines())
    assert (standard.can_fetch("wharfinger", url) is allowed) is (path != "/docs/guide/locks.md")


def test_rules_for_this_client_take_precedence_over_rules_for_all(site: SiteServer, pages: WebPages) -> None:
    site.put("robots.txt", "User-agent: *\nDisallow: /\n\nUser-agent: Wharfinger\nDisallow: /docs/tides.html\n")
    assert f"{site.origin}/docs/tides.html" not in listed_uris(pages)
    assert len(listed_uris(pages)) == 4


@pytest.mark.parametrize("status", [500, 503, 429])
def test_no_page_is_requested_while_robots_text_is_unavailable(site: SiteServer, pages: WebPages, status: int) -> None:
    site.put("robots.txt", "", status=status)
    with pytest.raises(SourceUnavailable, match=f"robots.txt answered {status}"):
        pages.page(None, 10)
    assert {each["path"] for each in site.requests()} == {"/robots.txt"}


@pytest.mark.parametrize("rules", ["Disallow: /*" + "a*" * 250_000, "Disallow: /docs/a*b*c*$\n" * 20_000])
def test_hostile_robots_text_takes_bounded_time(site: SiteServer, pages: WebPages, rules: str) -> None:
    site.put("robots.txt", f"User-agent: *\n{rules}\n")
    started = time.monotonic()
    assert listed_uris(pages)
    assert time.monotonic() - started < 30


# Contents


def words(text: str) -> list[str]:
    return re.findall(r"\w+", text)


BOOK = html(
    "Harbour &amp; <em>quays</em>",
    "".join(
        f"<h2 id='s{n}'>Section {n}</h2><p>Some <b>bold {n}</b>, <i>text</i> &eacute;t&eacute; and <code>f({n})</code>."
        f"<ul><li>one {n}<li>two<ol><li>deep {n}</ol></ul><table><tr><th>name<th>high<tr><td>Hull {n}<td>6.1</table>"
        f"<pre><code>for x in range({n}):\n    print(x)</code></pre><dl><dt>term {n}<dd>meaning</dl>"
        for n in range(50)
    ),
)


def test_a_page_has_the_words_of_its_main_content_in_order(site: SiteServer, pages: WebPages) -> None:
    """BeautifulSoup finds the same words, except for the numbers that Markdown adds to ordered lists."""
    site.put("docs/tides.html", BOOK)
    found = pages.read(f"{site.origin}/docs/tides.html").contents[0]
    main = BeautifulSoup(BOOK, "lxml").main
    assert main is not None
    text = re.sub(r"(?m)^\s*1\. ", "", str(found.text))
    assert words(text.replace("](", " ").partition("[the other")[0]) == words(
        main.get_text(" ").partition("See")[0] + "See"
    )
    assert found.mime_type == "text/markdown"
    for unwanted in ("navigationword", "footerword", "scriptword", "<b>"):
        assert unwanted not in str(found.text)


def test_links_are_absolute(site: SiteServer, pages: WebPages) -> None:
    text = str(pages.read(f"{site.origin}/docs/guide/quays.html").contents[0].text)
    assert f"[the other]({site.origin}/docs/tides.html#high)" in text
    assert pages.read(f"{site.origin}/docs/tides.html").contents  # the link without its fragment is a URI


@pytest.mark.parametrize(
    ("path", "content", "declared_type", "mime_type", "text"),
    [
        ("guide/locks.md", "# Locks <script>x</script>\n", "text/markdown; charset=utf-8", "text/markdown", None),
        ("guide/locks.md", "# Locks\n", "text/plain", "text/markdown", None),
        ("tides.html", "<p>caf\xe9".encode("latin-1"), "text/html; charset=ISO-8859-1", "text/markdown", "café\n"),
        ("tides.html", "<meta charset=windows-1252><p>caf\xe9 \x93".encode("latin-1"), "text/html", "text/markdown",
         "café “\n"),
        ("tides.html", "<p>x\0y", "text/html", "text/markdown", "x\ufffdy\n"),
        ("tides.html", "<p>x", "text/html; charset=hex", "text/markdown", "x\n"),
        ("tides.html", "<p>x-y", "text/html; charset=punycode", "text/markdown", "x-y\n"),
        ("tides.html", "<svg onload=alert(1)>", "image/svg+xml", "text/plain", None),
        ("tides.html", "alert(1)", "text/javascript", "text/plain", None),
        ("tides.html", "<x/>", "application/xml", "text/plain", None),
        ("data/depths.json", "{}", "application/json", "application/json", None),
    ],
)  # fmt: skip
def test_text_is_returned_as_markdown_plain_text_or_json(
    site: SiteServer, pages: WebPages, path: str, content: Any, declared_type: str, mime_type: str, text: str | None
) -> None:
    url = site.put(f"docs/{path}", content, headers={"Content-Type": declared_type})
    found = pages.read(url).contents[0]
    assert (found.mime_type, found.text) == (mime_type, content if text is None else text)
    assert pages.stat(url).mime_type == mime_type


def test_a_type_that_contradicts_the_content_is_reported(site: SiteServer, pages: WebPages) -> None:
    picture = b"\x89PNG\r\n\x1a\n" + bytes(99)
    url = site.put("docs/tides.html", picture, headers={"Content-Type": "text/html"})
    first, remark = pages.read(url).contents
    assert (first.mime_type, first.blob) == ("image/png", picture)
    assert "The site calls this text/html, but it is image/png." in str(remark.text)
    assert pages.stat(url).mime_type == "image/png"


DEEP = "<div>" * 100_000 + "deepword" + "</div>" * 100_000


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (f"<p>aboveword</p>{DEEP}", "aboveword\n"),
        ("<blockquote>" * 100_000 + "x", "\n"),
        ("<b><p>" * 50_000 + "x", "\n"),
        ("<p title='" + "x" * 5_000_000 + "'>word", "word\n"),
        ("<a " + " ".join(f"a{n}=1" for n in range(200_000)) + ">word</a>", "word\n"),
        ("<!--" * 500_000, "\n"),
        ("<table><td colspan=999999999>word", "word"),
    ],
)
def test_hostile_html_is_read_within_bounds(site: SiteServer, pages: WebPages, content: str, text: str) -> None:
    url = site.put("docs/tides.html", content)
    started = time.monotonic()
    found = pages.read(url).contents
    assert time.monotonic() - started < 30
    assert text in str(found[0].text)
    deep = [str(each.text) for each in found[1:]]
    assert not deep or "nested deeper" in deep[0]


def test_a_page_whose_markdown_is_too_large_is_refused(
    site: SiteServer, pages: WebPages, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(web_site, "CHILD_BOUNDS", web_site.CHILD_BOUNDS._replace(output=10_000))
    assert pages.read(site.put("docs/tides.html", "x" * 9_000)).contents[0].text == "x" * 9_000 + "\n"
    with pytest.raises(PageFailed, match="cannot be turned into Markdown"):
        pages.read(site.put("docs/guide/quays.html", "x" * 10_001))


@pytest.mark.parametrize(
    "start",
    [
        "<title>The <main> element</title>",
        "<textarea><main></textarea>",
        "<!-- <main> -->",
        "<script>'<main>'</script>",
        "<p title='<main>'>",
        '<p title = "a > <main>" hidden>',
        "<p title=it's>",
    ],
)
def test_the_main_element_is_not_taken_from_text_or_attributes(start: str) -> None:
    html = f"<body>{start}<p>before</p><main id=x><p>word</p></main><p>after</p></body>"
    assert page_text("https://docs.example/", html).text == "word\n"


def test_omitted_content_is_reported() -> None:
    assert page_text("https://docs.example/", "<div>" * 1_000 + "word").text == "word\n"
    converted = page_text("https://docs.example/", "<div>" * 1_030 + "word")
    remark = "Elements that are nested deeper than 1,024 levels were left out."
    assert (converted.text, converted.remark) == ("\n", remark)


# Requests


def test_a_known_page_is_requested_conditionally(site: SiteServer, pages: WebPages) -> None:
    url = f"{site.origin}/docs/tides.html"
    before = pages.version(url)
    time.sleep(0.1)
    assert pages.version(url) == before
    first, second = (each["headers"] for each in site.requests("/docs/tides.html"))
    assert "if-none-match" not in first
    assert second["if-none-match"]
    assert first["user-agent"].startswith("wharfinger/")
    site.put("docs/tides.html", html("Tides", "another text"))
    time.sleep(0.1)
    assert pages.version(url) != before
    assert "another text" in str(pages.read(url).contents[0].text)


@pytest.mark.parametrize(
    ("control", "ttl_ms", "scope"),
    [("max-age=120", 120_000, "public"), ("private, max-age=9", 9_000, "private"), ("no-cache, max-age=9", 0, "public"),
     ("no-store", 0, "public"), ("s-maxage=5, max-age=1", 1_000, "public"),
     ("max-age=" + "9" * 9, 24 * 3600 * 1000, "public")],
)  # fmt: skip
def test_cache_control_is_passed_on(site: SiteServer, pages: WebPages, control: str, ttl_ms: int, scope: str) -> None:
    url = site.put("docs/tides.html", html("Tides", "text"), headers={"Cache-Control": control})
    result = pages.read(url)
    assert (result.ttl_ms, result.cache_scope) == (ttl_ms, scope)


def test_a_private_page_stays_private_after_an_answer_without_cache_control(site: SiteServer, pages: WebPages) -> None:
    """A bug: an answer of 304 without `Cache-Control` allowed shared caches to keep the page."""
    text = html("Tides", "text")
    url = site.put("docs/tides.html", text, headers={"Cache-Control": "private, max-age=0"})
    assert pages.read(url).cache_scope == "private"
    site.put("docs/tides.html", text, headers={"X-Other": "1"})

    def is_confirmed() -> bool:
        assert pages.read(url).cache_scope == "private"
        return len(site.requests("/docs/tides.html")) == 2

    wait_until(is_confirmed, "the page is requested again")
    assert "if-none-match" in site.requests("/docs/tides.html")[1]["headers"]


def test_a_fresh_page_is_not_requested_again(site: SiteServer, pages: WebPages) -> None:
    url = site.put("docs/tides.html", html("Tides", "text"), headers={"Cache-Control": "max-age=60"})
    ttls: list[Any] = []
    for _ in range(3):
        ttls.append(pages.read(url).ttl_ms)
        time.sleep(0.06)
    assert len(site.requests("/docs/tides.html")) == 1
    assert 60_000 == ttls[0] > ttls[1] > ttls[2] > 30_000


def test_many_readers_of_a_page_make_one_request_at_a_time(site: SiteServer, pages: WebPages) -> None:
    """A bug: a reader that came when one had just finished did not wait for the next one's request."""
    url = site.put("docs/tides.html", html("Tides", "text"), status=500, delay=0.05)
    pages.site.listing()

    def read(_: int) -> None:
        for _ in range(10):
            with suppress(PageFailed):
                pages.site.page(url)

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(read, range(8)))
    assert [each["others"] for each in site.requests("/docs/tides.html") if each["others"]] == []


@pytest.mark.parametrize("status", [401, 403, 404, 410])
def test_a_page_that_the_site_lacks_or_refuses_is_not_found(site: SiteServer, pages: WebPages, status: int) -> None:
    url = site.put("docs/tides.html", html("Tides", "text"), status=status)
    with pytest.raises(ResourceNotFound):
        pages.read(url)


@pytest.mark.parametrize(
    ("meta", "reason"),
    [
        ({"status": 500}, "answered 500"),
        ({"status": 302, "headers": {"Location": "https://elsewhere.example/"}}, "redirects elsewhere"),
        ({"status": 302, "headers": {"Location": "/private/x.html"}}, "redirects elsewhere"),
        ({"status": 302, "headers": {"Location": "http://169.254.169.254/"}}, "redirects elsewhere"),
        ({"status": 302, "headers": {"Location": "/docs/tides.html"}}, "redirects more than 5 times"),
        ({"endless": True}, "sent more than"),
        ({"gzip": 64 << 20}, "sent more than"),
        ({"headers": {"Content-Encoding": "br"}}, "only gzip is read"),
    ],
)
def test_a_failing_page_is_reported_and_other_pages_are_read(
    site: SiteServer, pages: WebPages, meta: dict[str, Any], reason: str
) -> None:
    url = site.put("docs/tides.html", html("Tides", "text"), **meta)
    with pytest.raises(PageFailed, match=reason):
        pages.read(url)
    assert pages.read(f"{site.origin}/docs/guide/quays.html").contents
    assert site.requests("/private/x.html") == []


def test_links_of_a_redirected_page_are_resolved_against_its_final_url(site: SiteServer, pages: WebPages) -> None:
    url = site.put("docs/tides.html", "", status=301, headers={"Location": "/docs/guide/quays.html"})
    text = str(pages.read(url).contents[0].text)
    assert "The lantern is lit." in text
    assert f"({site.origin}/docs/tides.html#high)" in text


def test_an_oversized_page_is_refused(site: SiteServer, pages: WebPages, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web_site, "MAX_PAGE_BYTES", 100)
    assert pages.read(site.put("docs/guide/locks.md", "x" * 100)).contents[0].text == "x" * 100
    with pytest.raises(PageFailed, match="more than 100 bytes"):
        pages.read(site.put("docs/guide/quays.html", "x" * 101))


def test_a_slow_page_is_reported_and_a_slow_site_is_unavailable(
    site: SiteServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(web_site, "REQUEST_SECONDS", 3)  # robots.txt must be answered within this time
    source = web(f"{site.origin}/docs/", every=0.05)
    url = site.put("docs/tides.html", html("Tides", "text"), delay=50)
    with pytest.raises(PageFailed, match=r"did not answer within 3 s"):
        source.read(url)
    site.put("docs/llms.txt", "", delay=50)
    with pytest.raises(SourceUnavailable, match=r"did not answer within 3 s"):
        source.page(None, 1)
    close(source)


def test_only_the_host_of_the_operator_is_contacted(site: SiteServer, pages: WebPages) -> None:
    """A list cannot add another host, not even another name of the loopback address."""
    other_origin = site.origin.replace("127.0.0.1", "localhost")
    site.put("docs/llms.txt", f"- [a]({other_origin}/docs/tides.html)\n- [b]({site.origin}/docs/tides.html)\n")
    assert listed_uris(pages) == [f"{site.origin}/docs/tides.html"]


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("docs.example.org", "is not a URL"),
        ("ftp://docs.example.org/", "is not the URL of a site"),
        ("https://user:secretfathoms@docs.example.org/", "contains a user"),
        ("https://docs.example.org/?x=1", "is not the URL of a site"),
        ("https://docs.example.org/#x", "is not the URL of a site"),
        ("https://docs.example.org//x", "is not the URL of a site"),
    ],
)
def test_a_url_that_cannot_be_published_is_refused(url: str, message: str) -> None:
    with pytest.raises(UnusableSource, match=message) as caught:
        web(url)
    assert "secretfathoms" not in str(caught.value)


@pytest.mark.parametrize(
    "options", [{"every": 0}, {"every": float("nan")}, {"max_crawled_pages": -1}, {"label": "a/b"}]
)
def test_invalid_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(UnusableSource):
        web("https://docs.example.org/", **options)


# Searches and watches


def wait_until_crawled(source: WebPages) -> None:
    source._crawl._rest = 0.0
    source.documents(None, 1)
    wait_until(lambda: not source.unsearched(), "all pages are crawled")


def test_pages_are_searched_by_title_until_their_text_is_read(site: SiteServer, pages: WebPages) -> None:
    site.put("docs/tides.html", html("Tides", "High water is at 14:20."), delay=1)
    first = search_documents(pages, "quays", 10)
    assert [hit.uri for hit in first][:1] == [f"{site.origin}/docs/guide/quays.html"]
    wait_until_crawled(pages)
    found = search_documents(pages, "lantern", 10)
    assert [hit.uri for hit in found] == [f"{site.origin}/docs/guide/quays.html"]
    assert found.truncated == ""
    assert search_documents(pages, "hiddenword", 10) == []


def test_no_page_is_requested_before_the_first_search(site: SiteServer, pages: WebPages) -> None:
    """A search index requests documents and texts when the server starts, which must not crawl the site."""
    documents, _ = pages.documents(None, 10)
    assert [list(pages.text(document.uri)) for document in documents] == [[]] * 5
    time.sleep(0.2)
    assert site.requests("/docs/tides.html") == []
    assert " of 5 pages have been read so far" in search_documents(pages, "lantern", 10).truncated


@pytest.mark.parametrize("status", [403, 404, 410])
def test_a_page_that_the_site_lacks_is_requested_once_by_a_crawl(
    site: SiteServer, pages: WebPages, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    """A bug: it was requested again in each round. A page that fails is, since it may recover soon."""
    monkeypatch.setattr(crawl, "IDLE_SECONDS", 0.01)
    site.put("docs/tides.html", html("Tides", "text"), status=status)
    site.put("docs/guide/quays.html", html("Quays", "text"), status=500)
    wait_until_crawled(pages)
    wait_until(lambda: len(site.requests("/docs/guide/quays.html")) >= 4, "the failing page is requested four times")
    assert len(site.requests("/docs/tides.html")) == 1


def test_a_search_reports_how_many_pages_it_searched_by_text(site: SiteServer) -> None:
    source = web(f"{site.origin}/docs/", max_crawled_pages=2)
    source._crawl._rest = 0.0
    source.unsearched()
    wait_until(lambda: source._crawl.requested_count(source.site.listing()) == 2, "two pages are crawled")
    hits = search_documents(source, "lantern", 10)
    assert hits.truncated == "Only 2 of 5 pages are searched by text, the others by title."
    close(source)


def test_a_crawl_that_starts_again_waits_until_the_last_request_of_the_stopped_one_has_ended(site: SiteServer) -> None:
    """A bug: both threads read pages for the time of a request, and the new one could end with a KeyError."""
    rounds: queue.SimpleQueue[str] = queue.SimpleQueue()

    class ObservedCrawl(Crawl):
        def _read_all(self, listing: SitePages, stopped: threading.Event) -> None:
            rounds.put("begin")
            super()._read_all(listing, stopped)
            rounds.put("end")

    site.put("docs/data/depths.json", "{}", delay=1)  # the first page
    source = web(f"{site.origin}/docs/")
    observed = ObservedCrawl(source.site, 10)
    observed.start()
    assert rounds.get(timeout=40) == "begin"
    deadline = time.monotonic() + 40
    while not site.requests("/docs/data/depths.json"):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    observed.stop()
    observed.start()
    assert [rounds.get(timeout=40) for _ in range(2)] == ["end", "begin"]
    observed.stop()
    close(source)


def test_the_crawl_delay_of_robots_text_is_kept(site: SiteServer) -> None:
    site.put("robots.txt", "User-agent: *\nCrawl-delay: 0.4\n")
    source = web(f"{site.origin}/docs/")
    started = time.monotonic()
    wait_until_crawled(source)
    assert time.monotonic() - started > 4 * 0.4
    close(source)


def test_a_path_is_completed(site: SiteServer, pages: WebPages) -> None:
    def complete(value: str) -> list[str]:
        return pages.complete(pages.template, "path", value, {})

    assert complete("") == ["data/", "guide/", "tides.html"]
    assert complete("guide/") == ["guide/", "guide/locks.md", "guide/quays.html"]
    assert complete("QUAY") == ["guide/quays.html"]
    assert complete("none") == []


def test_changes_of_a_page_and_of_the_list_are_reported(site: SiteServer, pages: WebPages) -> None:
    changes = ChangeRecorder()
    url = f"{site.origin}/docs/tides.html"
    pages.stat(url)
    pages.watch(url, changes)
    pages.watch(None, changes)
    site.put("docs/tides.html", html("Tides", "changed"))
    changes.wait_for(url)
    time.sleep(0.2)
    site.put("docs/llms.txt", (site.root / "docs/llms.txt").read_text() + "- [New](new.html)\n")
    changes.wait_for(None)
    assert f"{site.origin}/docs/new.html" in listed_uris(pages)


def test_watchers_are_notified_when_a_page_fails_and_when_it_recovers(site: SiteServer, pages: WebPages) -> None:
    changes = ChangeRecorder()
    url = f"{site.origin}/docs/tides.html"
    text = html("Tides", "text")
    pages.stat(url)
    pages.watch(url, changes)
    site.put("docs/tides.html", text, status=500)
    changes.wait_for(url)
    site.put("docs/tides.html", text, status=200)
    changes.wait_for(url)


def test_long_pages_are_read_in_windows(site: SiteServer, pages: WebPages) -> None:
    lines = "".join(f"line {number}\n" for number in range(1, 1001))
    url = site.put("docs/guide/locks.md", lines)
    assert pages.read(f"{url}?lines=500-501").contents[0].text == "line 500\nline 501\n"
    assert pages.read(f"{url}?tail=1").contents[0].text == "line 1000\n"
    with pytest.raises(InvalidArgument, match="no line 5,000"):
        pages.read(f"{url}?lines=5000-")


def test_a_page_with_a_query_in_its_url_is_read_in_windows(site: SiteServer, pages: WebPages) -> None:
    site.put("docs/llms.txt", "- [a](guide/locks.md?version=2)\n")
    url = f"{site.origin}/docs/guide/locks.md?version=2"
    assert listed_uris(pages) == [url]
    assert "The lock opens" in str(pages.read(f"{url}&lines=3-3").contents[0].text)
    with pytest.raises(ResourceNotFound):
        pages.read(f"{site.origin}/docs/guide/locks.md?lines=1-1")
