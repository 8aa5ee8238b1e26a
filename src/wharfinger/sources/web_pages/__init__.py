"""Web pages as live resources, in Markdown: `web("https://docs.example.org/")`."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

from wharfinger.content.redaction import redacted
from wharfinger.source import UnusableSource
from wharfinger.sources.labels import usable_label
from wharfinger.sources.web_pages.page_urls import Scope, normalized
from wharfinger.sources.web_pages.source import WebPages
from wharfinger.sources.web_pages.web_site import PageFailed, SiteUnavailable, WebSite

__all__ = ["PageFailed", "SiteUnavailable", "WebPages", "web"]

EVERY_SECONDS = 60.0
MAX_CRAWLED_PAGES = 1_000


def web(
    url: str,
    *,
    label: str | None = None,
    every: float = EVERY_SECONDS,
    headers: Mapping[str, str] | None = None,
    max_crawled_pages: int = MAX_CRAWLED_PAGES,
) -> WebPages:
    """Publish the pages of a site: `server.include(web("https://docs.example.org/"))`.

    Its `llms.txt` or, if it has none, its `sitemap.xml` lists the pages. Only pages below `url` that robots.txt allows
    are read, and no other host is contacted.

    Args:
        url: The URL below which pages are published. If it is that of an `llms.txt` or a sitemap, the pages below the
            directory of that file are published.
        label: The name that is shown to people. Default: the host.
        every: Seconds between two requests for the list, and for each watched page.
        headers: Sent with each request, such as `{"Authorization": …}`.
        max_crawled_pages: Maximum number of pages whose text is searched; others are found by title.

    Raises:
        UnusableSource: the URL cannot be published, or another argument cannot be used.
        MissingExtra: the extra `web` is not installed.
    """
    if "@" in url.partition("://")[2].partition("/")[0]:
        raise UnusableSource(
            f"{redacted(url)} contains a user or password: pass headers={{'Authorization': …}} instead."
        )
    if "://" not in url:
        raise UnusableSource(f"{url[:200]!r} is not a URL: write web:https://docs.example.org/.")
    top = normalized(url)
    if top is None or urlsplit(url).fragment or urlsplit(url).query:
        raise UnusableSource(
            f"{redacted(url)[:200]!r} is not the URL of a site: write it like https://docs.example.org/guide/."
        )
    if not every > 0:
        raise UnusableSource(f"every={every:g} is not a time in seconds: give a number above 0.")
    if max_crawled_pages < 0:
        raise UnusableSource(f"max_crawled_pages={max_crawled_pages} is negative: give 0 to read no page for searches.")
    parts = urlsplit(top)
    list_url, path = "", parts.path
    if path.endswith((".txt", ".xml", ".xml.gz")):
        list_url, path = top, path.rpartition("/")[0]
    scope = Scope(f"{parts.scheme}://{parts.netloc}", path if path.endswith("/") else f"{path}/")
    name = usable_label(label) if label is not None else parts.netloc
    return WebPages(WebSite(scope, list_url=list_url, every=every, headers=headers), name, every, max_crawled_pages)
