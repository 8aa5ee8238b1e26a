"""Pages of a real site: which are published, what they say, and what hostile ones can do."""

from __future__ import annotations

import gzip
import re
import time
import urllib.robotparser
from collections.abc import Iterator
from typing import Any

import protego
import pytest
from bs4 import BeautifulSoup
from msgspec import UNSET

from tests.sources.conftest import ChangeRecorder
from tests.sources.web_pages.conftest import html
from tests.sources.web_pages.site_server import SiteServer
from wharfinger.errors import InvalidArgument, ResourceNotFound
from wharfinger.server.document_search import search_documents
from wharfinger.source import SourceUnavailable, UnusableSource
from wharfinger.sources.html_reader import page_text
from wharfinger.sources.web_pages import PageFailed, WebPages, web, web_site

SITEMAP = 'xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"'


@pytest.fixture
def pages(site: SiteServer) -> Iterator[WebPages]:
    source = web(f"{site.origin}/docs/", every=0.05)
    yield source
    close(source)


def close(source: WebPages) -> None:
    """End the threads of a source that no server has started."""
    source._polling.close()
    source._crawl.stop()
    source.site.close()


def listed(source: WebPages) -> list[str]:
    return [each.uri for each in source.page(None, 1_000)[0][1:]]


def urlset(*urls: str) -> str:
    return f"<urlset {SITEMAP}>" + "".join(f"<url><loc>{url}</loc></url>" for url in urls) + "</urlset>"


def index(*urls: str) -> str:
    return f"<sitemapindex {SITEMAP}>" + "".join(f"<sitemap><loc>{u}</loc></sitemap>" for u in urls) + "</sitemapindex>"


# Lists


def test_the_list_is_what_llms_text_lists_below_the_url(site: SiteServer, pages: WebPages) -> None:
    docs = f"{site.origin}/docs"
    assert listed(pages) == [f"{docs}/data/depths.json", f"{docs}/guide/", f"{docs}/guide/locks.md",
                             f"{docs}/guide/quays.html", f"{docs}/tides.html"]  # fmt: skip
    tides = pages.page(None, 1_000)[0][-1]
    assert (tides.name, tides.title, tides.description) == ("tides.html", "Tides", "When the water is high")
    kinds = {each.name: each.mime_type for each in pages.page(None, 1_000)[0][1:]}
    assert kinds == {"depths.json": "application/json", "guide": "text/markdown", "locks.md": "text/markdown",
                     "quays.html": "text/markdown", "tides.html": "text/markdown"}  # fmt: skip
    top = pages.read(pages.uri).contents[0].text
    assert "1 directory" not in str(top)  # data/ and guide/
    assert f"2 links left out: not below {docs}/." in str(top)
    for uri in (f"{site.origin}/private/x.html", f"{docs}/llms.txt", f"{docs}/../private/x.html"):
        with pytest.raises(ResourceNotFound):
            pages.read(uri)
    assert site.asked("/private/x.html") == []


def test_a_tree_by_path_has_each_page_once(site: SiteServer, pages: WebPages) -> None:
    def below(uri: str) -> Iterator[str]:
        for child in pages.children(uri)[0]:
            if child.mime_type == "inode/directory":
                yield from below(child.uri)
            else:
                yield child.uri

    assert sorted(below(pages.uri)) == listed(pages)
    top = [(each.name, each.mime_type) for each in pages.children(pages.uri)[0]]
    assert top == [("data", "inode/directory"), ("guide", "inode/directory"), ("tides.html", "text/markdown")]


def test_without_llms_text_the_sitemap_is_used(site: SiteServer, pages: WebPages) -> None:
    site.remove("docs/llms.txt")
    docs = f"{site.origin}/docs"
    site.put(
        "docs/sitemap.xml",
        f"<urlset {SITEMAP}><url><loc>{docs}/tides.html</loc><lastmod>2026-11-20</lastmod></url>"
        f"<url><loc>{site.origin}/private/x.html</loc></url></urlset>",
    )
    assert listed(pages) == [f"{docs}/tides.html"]
    annotations = pages.page(None, 9)[0][1].annotations
    assert annotations is not UNSET
    assert annotations.last_modified == "2026-11-20"


def test_sitemaps_of_an_index_and_of_robots_are_read_once_and_packed_ones_too(site: SiteServer) -> None:
    site.remove("docs/llms.txt")
    site.put("robots.txt", f"Sitemap: {site.origin}/maps/index.xml\nSitemap: https://elsewhere.example/x.xml\n")
    loop = index("/maps/a.xml", "/maps/index.xml", "/maps/b.xml.gz", "/maps/deeper.xml", "https://elsewhere.example/y")
    site.put("maps/index.xml", loop)
    site.put("maps/deeper.xml", index("/maps/index.xml", "/maps/a.xml"))
    site.put("maps/a.xml", urlset("/docs/tides.html"))
    packed = gzip.compress(urlset("/docs/guide/").encode())
    site.put("maps/b.xml.gz", packed, headers={"Content-Type": "application/x-gzip"})
    source = web(f"{site.origin}/docs/")
    assert listed(source) == [f"{site.origin}/docs/guide/", f"{site.origin}/docs/tides.html"]
    asked = [each["path"] for each in site.asked() if each["path"].startswith("/maps/")]
    assert sorted(asked) == ["/maps/a.xml", "/maps/b.xml.gz", "/maps/deeper.xml", "/maps/index.xml"]
    close(source)


def test_sitemaps_are_bounded(site: SiteServer, monkeypatch: pytest.MonkeyPatch) -> None:
    site.remove("docs/llms.txt")
    for number in range(4):
        site.put(f"docs/{number}.xml", urlset(f"/docs/{number}.html"))
    site.put("docs/sitemap.xml", index(*(f"/docs/{number}.xml" for number in range(4))))
    for most, pages in ((5, 4), (4, 3)):
        monkeypatch.setattr(web_site, "MAX_SITEMAPS", most)
        source = web(f"{site.origin}/docs/")
        assert len(listed(source)) == pages
        assert ("Only the first 4 sitemaps are read." in source.site.listing().remarks) is (most == 4)
        close(source)


@pytest.mark.parametrize(("most", "left_out"), [(4, False), (3, True)])
def test_pages_of_several_sitemaps_are_bounded(
    site: SiteServer, monkeypatch: pytest.MonkeyPatch, most: int, left_out: bool
) -> None:
    monkeypatch.setattr(web_site, "MAX_PAGES", most)
    site.remove("docs/llms.txt")
    site.put("docs/sitemap.xml", index("/docs/1.xml", "/docs/2.xml"))
    for number in (1, 2):
        site.put(f"docs/{number}.xml", urlset(f"/docs/{number}.html", f"/docs/{number}x.html"))
    source = web(f"{site.origin}/docs/")
    assert len(listed(source)) == most
    assert ("Only the first 3 pages are listed." in source.site.listing().remarks) is left_out
    close(source)


def test_a_list_can_be_named(site: SiteServer) -> None:
    site.put("docs/api/pages.xml", urlset("/docs/api/a.html", "/docs/tides.html"))
    source = web(f"{site.origin}/docs/api/pages.xml")
    assert listed(source) == [f"{site.origin}/docs/api/a.html"]
    assert source.uri == f"{site.origin}/docs/api/?list=pages"
    close(source)


LAUGHS = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 10))


@pytest.mark.parametrize(
    ("sitemap", "reason"),
    [
        (f'<!DOCTYPE x [<!ENTITY l0 "ha">{LAUGHS}]><urlset><url><loc>&l9;</loc></url></urlset>', "document type"),
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


def test_an_unpacked_sitemap_is_bounded(site: SiteServer, pages: WebPages, monkeypatch: pytest.MonkeyPatch) -> None:
    site.remove("docs/llms.txt")
    data = urlset("/docs/tides.html").encode()
    site.put("docs/sitemap.xml", gzip.compress(data))
    monkeypatch.setattr(web_site, "MAX_LIST_BYTES", len(data) - 1)
    with pytest.raises(SourceUnavailable, match="inflates to more than"):
        pages.page(None, 10)
    monkeypatch.setattr(web_site, "MAX_LIST_BYTES", len(data))
    assert len(listed(pages)) == 1


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
    assert listed(pages) == [f"{site.origin}/docs/guide/", f"{site.origin}/docs/guide/locks.md"]
    assert "3 links left out: not allowed by robots.txt." in pages.site.listing().remarks
    with pytest.raises(ResourceNotFound):
        pages.read(f"{site.origin}/docs/tides.html")
    assert site.asked("/docs/tides.html") == []


@pytest.mark.parametrize(
    ("path", "allowed"),
    [("/docs/tides.html", False), ("/docs/guide/locks.md", True), ("/docs/data/depths.json", False), ("/", True)],
)
def test_the_standard_library_reads_robots_text_in_another_way_than_rfc_9309(path: str, allowed: bool) -> None:
    """The longest rule decides, and `*` stands for anything (§2.2.2, §2.2.3). urllib.robotparser takes the first."""
    url = f"https://docs.example{path}"
    assert protego.Protego.parse(ROBOTS).can_fetch(url, "wharfinger") is allowed
    standard = urllib.robotparser.RobotFileParser()
    standard.parse(ROBOTS.splitlines())
    assert (standard.can_fetch("wharfinger", url) is allowed) is (path != "/docs/guide/locks.md")


def test_rules_for_this_client_come_before_those_for_all(site: SiteServer, pages: WebPages) -> None:
    site.put("robots.txt", "User-agent: *\nDisallow: /\n\nUser-agent: Wharfinger\nDisallow: /docs/tides.html\n")
    assert f"{site.origin}/docs/tides.html" not in listed(pages)
    assert len(listed(pages)) == 4


@pytest.mark.parametrize("status", [500, 503, 429])
def test_nothing_is_read_while_robots_text_cannot_be(site: SiteServer, pages: WebPages, status: int) -> None:
    site.put("robots.txt", "", status=status)
    with pytest.raises(SourceUnavailable, match=f"robots.txt answered {status}"):
        pages.page(None, 10)
    assert {each["path"] for each in site.asked()} == {"/robots.txt"}


@pytest.mark.parametrize("rules", ["Disallow: /*" + "a*" * 250_000, "Disallow: /docs/a*b*c*$\n" * 20_000])
def test_hostile_rules_take_bounded_time(site: SiteServer, pages: WebPages, rules: str) -> None:
    site.put("robots.txt", f"User-agent: *\n{rules}\n")
    began = time.monotonic()
    assert listed(pages)
    assert time.monotonic() - began < 10


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
    """BeautifulSoup reads the same page. Only the numbers of ordered lists are added by Markdown."""
    site.put("docs/tides.html", BOOK)
    found = pages.read(f"{site.origin}/docs/tides.html").contents[0]
    main = BeautifulSoup(BOOK, "lxml").main
    assert main is not None
    text = re.sub(r"(?m)^\s*1\. ", "", str(found.text))
    assert words(text.replace("](", " ").partition("[the other")[0]) == words(
        main.get_text(" ").partition("See")[0] + "See"
    )
    assert found.mime_type == "text/markdown"
    for absent in ("navigationword", "footerword", "scriptword", "<b>"):
        assert absent not in str(found.text)


def test_links_are_absolute(site: SiteServer, pages: WebPages) -> None:
    text = str(pages.read(f"{site.origin}/docs/guide/quays.html").contents[0].text)
    assert f"[the other]({site.origin}/docs/tides.html#high)" in text
    assert pages.read(f"{site.origin}/docs/tides.html").contents  # the link without its fragment is a URI


@pytest.mark.parametrize(
    ("path", "content", "declared", "kind", "shown"),
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
def test_text_is_shown_as_text(
    site: SiteServer, pages: WebPages, path: str, content: Any, declared: str, kind: str, shown: str | None
) -> None:
    url = site.put(f"docs/{path}", content, headers={"Content-Type": declared})
    found = pages.read(url).contents[0]
    assert (found.mime_type, found.text) == (kind, content if shown is None else shown)
    assert pages.stat(url).mime_type == kind


def test_a_type_that_contradicts_the_content_is_reported(site: SiteServer, pages: WebPages) -> None:
    picture = b"\x89PNG\r\n\x1a\n" + bytes(99)
    url = site.put("docs/tides.html", picture, headers={"Content-Type": "text/html"})
    first, remark = pages.read(url).contents
    assert (first.mime_type, first.blob) == ("image/png", picture)
    assert "The site calls this text/html, but it is image/png." in str(remark.text)
    assert pages.stat(url).mime_type == "image/png"


DEEP = "<div>" * 100_000 + "deepword" + "</div>" * 100_000


@pytest.mark.parametrize(
    ("content", "shown"),
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
def test_hostile_html_is_read_within_bounds(site: SiteServer, pages: WebPages, content: str, shown: str) -> None:
    url = site.put("docs/tides.html", content)
    began = time.monotonic()
    found = pages.read(url).contents
    assert time.monotonic() - began < 8
    assert shown in str(found[0].text)
    deep = [str(each.text) for each in found[1:]]
    assert not deep or "nested deeper" in deep[0]


def test_a_page_that_becomes_too_large_is_an_error(
    site: SiteServer, pages: WebPages, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(web_site, "CHILD_BOUNDS", web_site.CHILD_BOUNDS._replace(output=10_000))
    assert pages.read(site.put("docs/tides.html", "x" * 9_000)).contents[0].text == "x" * 9_000 + "\n"
    with pytest.raises(PageFailed, match="cannot be turned into Markdown"):
        pages.read(site.put("docs/guide/quays.html", "x" * 10_001))


def test_the_reader_says_what_it_left_out() -> None:
    assert page_text("https://docs.example/", "<div>" * 1_000 + "word").text == "word\n"
    left_out = page_text("https://docs.example/", "<div>" * 1_030 + "word")
    assert (left_out.text, left_out.remark) == ("\n", "What is nested deeper than 1,024 elements was left out.")


# Requests


def test_a_page_is_requested_with_the_conditions_of_what_is_known(site: SiteServer, pages: WebPages) -> None:
    url = f"{site.origin}/docs/tides.html"
    before = pages.version(url)
    time.sleep(0.1)
    assert pages.version(url) == before
    first, second = (each["headers"] for each in site.asked("/docs/tides.html"))
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


def test_a_fresh_page_is_not_requested_again(site: SiteServer, pages: WebPages) -> None:
    url = site.put("docs/tides.html", html("Tides", "text"), headers={"Cache-Control": "max-age=60"})
    left: list[Any] = []
    for _ in range(3):
        left.append(pages.read(url).ttl_ms)
        time.sleep(0.06)
    assert len(site.asked("/docs/tides.html")) == 1
    assert 60_000 == left[0] > left[1] > left[2] > 30_000


@pytest.mark.parametrize("status", [401, 403, 404, 410])
def test_a_page_that_the_site_does_not_show_is_missing(site: SiteServer, pages: WebPages, status: int) -> None:
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
def test_what_is_wrong_with_one_page_is_said_of_that_page(
    site: SiteServer, pages: WebPages, meta: dict[str, Any], reason: str
) -> None:
    url = site.put("docs/tides.html", html("Tides", "text"), **meta)
    with pytest.raises(PageFailed, match=reason):
        pages.read(url)
    assert pages.read(f"{site.origin}/docs/guide/quays.html").contents
    assert site.asked("/private/x.html") == []


def test_a_redirect_within_the_site_is_followed_with_its_own_links(site: SiteServer, pages: WebPages) -> None:
    url = site.put("docs/tides.html", "", status=301, headers={"Location": "/docs/guide/quays.html"})
    text = str(pages.read(url).contents[0].text)
    assert "The lantern is lit." in text
    assert f"({site.origin}/docs/tides.html#high)" in text


def test_a_page_is_bounded(site: SiteServer, pages: WebPages, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web_site, "MAX_PAGE_BYTES", 100)
    assert pages.read(site.put("docs/guide/locks.md", "x" * 100)).contents[0].text == "x" * 100
    with pytest.raises(PageFailed, match="more than 100 bytes"):
        pages.read(site.put("docs/guide/quays.html", "x" * 101))


def test_a_slow_page_is_reported_and_a_slow_site_is_unavailable(
    site: SiteServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(web_site, "REQUEST_SECONDS", 0.5)
    source = web(f"{site.origin}/docs/", every=0.05)
    url = site.put("docs/tides.html", html("Tides", "text"), delay=5)
    with pytest.raises(PageFailed, match=r"did not answer within 0\.5 s"):
        source.read(url)
    site.put("docs/llms.txt", "", delay=5)
    with pytest.raises(SourceUnavailable, match=r"did not answer within 0\.5 s"):
        source.page(None, 1)
    close(source)


def test_only_the_host_of_the_operator_is_contacted(site: SiteServer, pages: WebPages) -> None:
    """Even a list that names another loopback host cannot lead there."""
    there = site.origin.replace("127.0.0.1", "localhost")
    site.put("docs/llms.txt", f"- [a]({there}/docs/tides.html)\n- [b]({site.origin}/docs/tides.html)\n")
    assert listed(pages) == [f"{site.origin}/docs/tides.html"]


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
    with pytest.raises(UnusableSource, match=message) as refusal:
        web(url)
    assert "secretfathoms" not in str(refusal.value)


@pytest.mark.parametrize(
    "options", [{"every": 0}, {"every": float("nan")}, {"max_crawled_pages": -1}, {"label": "a/b"}]
)
def test_options_are_checked(options: dict[str, Any]) -> None:
    with pytest.raises(UnusableSource):
        web("https://docs.example.org/", **options)


# Finding and watching


def read_for_searches(source: WebPages) -> None:
    source._crawl._rest = 0.0
    source.documents(None, 1)
    deadline = time.monotonic() + 20
    while source.unsearched():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_pages_are_searched_when_they_were_read_and_until_then_by_title(site: SiteServer, pages: WebPages) -> None:
    site.put("docs/tides.html", html("Tides", "High water is at 14:20."), delay=1)
    first = search_documents(pages, "quays", 10)
    assert [hit.uri for hit in first][:1] == [f"{site.origin}/docs/guide/quays.html"]
    read_for_searches(pages)
    found = search_documents(pages, "lantern", 10)
    assert [hit.uri for hit in found] == [f"{site.origin}/docs/guide/quays.html"]
    assert found.truncated == ""
    assert search_documents(pages, "hiddenword", 10) == []


def test_nothing_is_read_before_the_first_search(site: SiteServer, pages: WebPages) -> None:
    """An index asks for documents and texts when the server starts."""
    documents, _ = pages.documents(None, 10)
    assert [list(pages.text(document.uri)) for document in documents] == [[]] * 5
    time.sleep(0.2)
    assert site.asked("/docs/tides.html") == []
    assert "0 of 5 pages have been read so far" in search_documents(pages, "lantern", 10).truncated


def test_a_search_says_how_many_pages_were_read(site: SiteServer) -> None:
    source = web(f"{site.origin}/docs/", max_crawled_pages=2)
    source._crawl._rest = 0.0
    source.unsearched()
    deadline = time.monotonic() + 20
    while source._crawl.done(source.site.listing()) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    hits = search_documents(source, "lantern", 10)
    assert hits.truncated == "Only 2 of 5 pages are searched by text, the others by title."
    close(source)


def test_pages_are_read_one_at_a_time_with_the_delay_that_robots_text_asks_for(site: SiteServer) -> None:
    site.put("robots.txt", "User-agent: *\nCrawl-delay: 0.4\n")
    source = web(f"{site.origin}/docs/")
    began = time.monotonic()
    read_for_searches(source)
    assert time.monotonic() - began > 4 * 0.4
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
    assert f"{site.origin}/docs/new.html" in listed(pages)


def test_watchers_hear_of_a_page_that_fails_and_of_its_return(site: SiteServer, pages: WebPages) -> None:
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


def test_a_page_whose_url_has_a_query_has_windows_too(site: SiteServer, pages: WebPages) -> None:
    site.put("docs/llms.txt", "- [a](guide/locks.md?version=2)\n")
    url = f"{site.origin}/docs/guide/locks.md?version=2"
    assert listed(pages) == [url]
    assert "The lock opens" in str(pages.read(f"{url}&lines=3-3").contents[0].text)
    with pytest.raises(ResourceNotFound):
        pages.read(f"{site.origin}/docs/guide/locks.md?lines=1-1")
