"""One web site over HTTP: its robots.txt, the list of its pages, and the pages as text.

Only the host of the operator's URL is contacted, at any IP address; redirects of pages must stay below that URL. A page
is requested again at most once a second (or once in `every` seconds, if that is less), with a conditional request, and
not while its `Cache-Control` says that it is fresh (for `MAX_FRESH_SECONDS` at most).

The list is the first of these that has pages below the operator's URL that robots.txt allows: `llms.txt` below that
URL, or at the root of the site (llmstxt.org); `sitemap.xml` below the URL, the sitemaps that robots.txt names, or
`sitemap.xml` at the root (sitemaps.org).

Methods block. Requests run in an event loop of their own, so that all threads share its connections.
"""

from __future__ import annotations

import asyncio
import math
import re
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

import msgspec

from wharfinger.content import mime
from wharfinger.content.encodings import declared_encoding
from wharfinger.content.text import many, printable
from wharfinger.errors import ConnectionFailed, InternalError, MissingExtra, ResourceNotFound
from wharfinger.fetching import USER_AGENT, Fetcher, Gunzip, NoAnswerInTime, NotAllowed, UnusableAnswer, same_origin
from wharfinger.net import seconds_to_wait, unix_time
from wharfinger.protocol.interfaces import HttpResponse
from wharfinger.source import SourceUnavailable
from wharfinger.sources.bounded_cache import BoundedCache
from wharfinger.sources.child_process import ChildBounds, ChildProcesses, ChildRefused, ChildStopped
from wharfinger.sources.etag import digest
from wharfinger.sources.html_reader import PageText
from wharfinger.sources.http_caching import conditional_headers, dated_validator, fresh_seconds
from wharfinger.sources.loop_thread import LoopThread
from wharfinger.sources.ttl import IMMUTABLE_TTL_MS
from wharfinger.sources.web_pages.page_lists import (
    MAX_PAGES,
    ListedPage,
    SiteList,
    UnusableList,
    is_llms_text,
    read_llms_text,
    read_sitemap,
)
from wharfinger.sources.web_pages.page_urls import Scope, resolved

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from protego import Protego

__all__ = ["PageFailed", "SitePages", "SiteUnavailable", "WebPage", "WebSite", "listed_type"]

ROBOT = USER_AGENT.partition("/")[0]
"""The name of this client in robots.txt."""
ACCEPT = "text/markdown, text/html;q=0.9, text/plain;q=0.8, */*;q=0.5"
PAUSE_SECONDS, MAX_PAUSE_SECONDS = 30.0, 3600.0
"""Seconds that `pause` returns, for the crawler, after a 429 or 503: without `Retry-After`, and at most with it."""
REUSE_SECONDS = 1.0
"""Time for which an answer is reused without a request, so that a `stat` and a `read` make only one."""
MAX_FRESH_SECONDS = 300.0
"""Longest time for which an answer is reused because the site calls it fresh."""
ROBOTS_SECONDS = 3600.0
"""Time for which robots.txt is used; at most a day is allowed (RFC 9309 §2.4)."""
MAX_LINKS_IN_ROBOTS = 1_000
"""Maximum number of sitemaps in robots.txt that are considered, also on other hosts."""
ROBOTS_CHECK_SECONDS = 5.0
"""Longest time for checking the listed pages by robots.txt, whose rules may be many, or slow to match on purpose."""
REQUEST_SECONDS = 20.0
CONNECTIONS = 2
MAX_PAGE_BYTES = 8 << 20
MAX_ROBOTS_BYTES = 512 << 10
"""RFC 9309 §2.5 asks for at least 500 KiB."""
MAX_LIST_BYTES = 50 << 20
"""Largest file with a list of pages, also after decompression (sitemaps.org)."""
MAX_SITEMAPS = 100
"""Maximum number of sitemaps of one site that are read."""
MAX_KEPT_BYTES = 64 << 20
"""Maximum size of all pages that are kept."""
PAGE_OVERHEAD_BYTES = 1_000
CHILD_BOUNDS = ChildBounds(seconds=10.0, memory=1 << 30, output=32 << 20)
HTML_READER = "wharfinger.sources.html_reader"

_HTML = (mime.HTML, "application/xhtml+xml")
_PLAIN = (mime.TEXT, mime.JSON, "application/yaml", "application/toml", "text/csv")
"""Types of text that keep their name; others, such as SVG and scripts, are shown as text/plain."""
_PAGE_ENDINGS = ("html", "htm", "xhtml", "shtml", "php", "asp", "aspx", "jsp")
_CHARSET = re.compile(r"charset\s*=\s*[\"']?([A-Za-z0-9_:.+-]{1,40})", re.IGNORECASE)

T = TypeVar("T")


class PageFailed(InternalError):
    """One page cannot be read now; `str()` says why."""


class SiteUnavailable(SourceUnavailable):
    """The site does not answer, lists no pages that may be read, or its rules for robots cannot be read."""


class WebPage(NamedTuple):
    """A page as it is shown."""

    url: str
    mime_type: str
    data: bytes
    """The content; text is in UTF-8."""
    version: str
    is_text: bool
    title: str = ""
    remarks: tuple[str, ...] = ()
    modified: float | None = None
    """The time of the last change, as the site reports it."""
    ttl_ms: int | None = None
    """Milliseconds for which the site calls it fresh; None if it does not say."""
    private: bool = False
    """Whether `Cache-Control` forbids shared caches."""


class SitePages(NamedTuple):
    """The pages of a site by their URLs, which `urls` has in order."""

    pages: Mapping[str, ListedPage]
    urls: Sequence[str]
    list_url: str
    """The URL of the file that lists them, or of the first of several."""
    remarks: tuple[str, ...]
    """What was left out, in sentences."""
    version: str


class _KeptPage(msgspec.Struct):
    """A page, and when the site last sent or confirmed it."""

    etag: str
    modified: str
    checked_at: float
    fresh_seconds: float
    page: WebPage


class _KeptFile(NamedTuple):
    etag: str
    modified: str
    listed: SiteList


def listed_type(url: str) -> str:
    """Return the MIME type under which a page is shown, as its URL suggests: HTML becomes Markdown."""
    name = url.partition("?")[0].rpartition("/")[2]
    ending = name.rpartition(".")[2].lower() if "." in name else ""
    type_by_name = "" if ending in _PAGE_ENDINGS else mime.by_name(name)
    return shown_type(type_by_name) if ending and type_by_name else mime.MARKDOWN


def shown_type(mime_type: str) -> str:
    """Return the type under which content is shown: for text, Markdown or a type that no program runs."""
    if mime_type == mime.MARKDOWN or mime_type == "text/x-markdown":
        return mime.MARKDOWN
    return mime.TEXT if mime.is_text(mime_type) and mime_type not in _PLAIN else mime_type


class WebSite:
    """A site, as far as it is below `scope`. Its methods may be called from any thread."""

    def __init__(
        self, scope: Scope, *, list_url: str = "", every: float, headers: Mapping[str, str] | None = None
    ) -> None:
        """`list_url` is the file that lists the pages; by default it is found. A list is used for `every` seconds."""
        try:
            import html_to_markdown
            from protego import Protego
        except ImportError:
            raise MissingExtra("web", "Publishing a web site") from None
        del html_to_markdown
        self.scope = scope
        self._protego = Protego
        self._list_url = list_url
        self._every = every
        self._reuse_seconds = min(REUSE_SECONDS, every)
        self._robots: Protego | None = None
        self._robots_at = 0.0
        self._listing: SitePages | None = None
        self._listed_at = 0.0
        self._files: dict[str, _KeptFile] = {}
        self._seen_files: set[str] = set()
        """The list files that were requested for the latest list, also missing and unusable ones."""
        self._pages: BoundedCache[str, _KeptPage] = BoundedCache(MAX_KEPT_BYTES)
        self._mime_types: dict[str, str] = {}
        self._children = ChildProcesses()
        self._loop = LoopThread("wharfinger-web")
        self._running: dict[str, asyncio.Task[Any]] = {}
        """The requests that readers wait for, by URL; the key of the request for the list of pages is empty."""
        self._pause_until = 0.0
        self._fetcher = self._make_fetcher(headers, same_origin)
        self._page_fetcher = self._make_fetcher(
            headers, lambda _url, target: scope.covers(target) and self._allows(target)
        )

    def _make_fetcher(self, headers: Mapping[str, str] | None, follow: Callable[[str, str], bool]) -> Fetcher:
        own_host = urlsplit(self.scope.origin).hostname
        return Fetcher(
            allow=lambda host, _address: host == own_host,  # at any address, since the operator named it
            follow=follow,
            headers=headers,
            timeout=REQUEST_SECONDS,
            max_connections=CONNECTIONS,
        )

    # -- blocking calls

    def listing(self) -> SitePages:
        """Return the pages. If the list is older than `every`, the site is asked again.

        Raises:
            SiteUnavailable: the site does not answer, or lists nothing.
        """
        listing = self._listing
        if listing is not None and time.monotonic() < self._listed_at + self._every:
            return listing
        return self._loop.run(self._shared("", self._load_listing))

    def known_listing(self) -> SitePages | None:
        """Return the pages as they were last listed, without asking the site."""
        return self._listing

    def page(self, url: str) -> WebPage:
        """Return a page of the list: as it is now or, while it is still fresh, as it was last read.

        Raises:
            ResourceNotFound: the site does not have it, or does not show it.
            PageFailed: it cannot be read now.
            SiteUnavailable: the site does not answer.
        """
        kept, now = self._pages.get(url), time.monotonic()
        if kept is not None and now < kept.checked_at + kept.fresh_seconds:
            if not kept.page.ttl_ms:
                return kept.page
            return kept.page._replace(ttl_ms=max(0, kept.page.ttl_ms - int(1000 * (now - kept.checked_at))))
        return self._loop.run(self._shared(url, lambda: self._load_page(url)))

    def kept_page(self, url: str) -> WebPage | None:
        """Return a page as it was last read, without asking the site."""
        cached = self._pages.get(url)
        return None if cached is None else cached.page

    def type_of(self, url: str) -> str:
        """Return the MIME type of a page: that of its content if it was read, else what its URL suggests."""
        return self._mime_types.get(url) or listed_type(url)

    def crawl_delay(self) -> float:
        """Return the seconds between two requests that robots.txt asks for; 0 if it does not."""
        return float((self._robots and self._robots.crawl_delay(ROBOT)) or 0)

    def pause(self) -> float:
        """Return the seconds until the site accepts requests again after 429 or 503; 0 if it does."""
        return max(0.0, self._pause_until - time.monotonic())

    def close(self) -> None:
        """Close the connections, and end the child processes."""
        self._children.close()
        if self._loop.running:
            self._loop.run(self._close())
            self._loop.close()
        self._running.clear()

    async def _close(self) -> None:
        await self._fetcher.close()
        await self._page_fetcher.close()

    async def _shared(self, key: str, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Return the result of `work`, or of the same work that already runs for this key, so that readers share it."""
        task = self._running.get(key)
        if task is None:
            task = self._running[key] = asyncio.get_running_loop().create_task(work())
            task.add_done_callback(lambda _: self._running.pop(key, None))
        return await asyncio.shield(task)

    # -- requests

    async def _get(self, fetcher: Fetcher, url: str, max_bytes: int, headers: Mapping[str, str]) -> HttpResponse:
        try:
            answer = await fetcher.request("GET", url, headers=headers, max_body_bytes=max_bytes)
        except (UnusableAnswer, NotAllowed) as error:
            raise PageFailed(str(error)) from None
        except ConnectionFailed as error:
            if fetcher is self._page_fetcher and isinstance(error, NoAnswerInTime):  # the other pages may be quicker
                raise PageFailed(str(error)) from None
            self._listed_at = -math.inf  # so that the next call asks the site, and does not use what is known
            raise SiteUnavailable(str(error)) from None
        if answer.status in (429, 503):
            seconds = seconds_to_wait(answer.headers.get("retry-after", ""), time.time())
            seconds = PAUSE_SECONDS if seconds is None else min(seconds, MAX_PAUSE_SECONDS)
            self._pause_until = time.monotonic() + seconds
        return answer

    def _allows(self, url: str) -> bool:
        return self._robots is None or self._robots.can_fetch(url, ROBOT)

    async def _load_robots(self) -> Protego:
        """Return the rules of the site for this client (RFC 9309)."""
        now = time.monotonic()
        if self._robots is not None and now < self._robots_at + ROBOTS_SECONDS:
            return self._robots
        url = f"{self.scope.origin}/robots.txt"
        try:
            answer = await self._get(self._fetcher, url, MAX_ROBOTS_BYTES, {})
        except PageFailed as error:
            raise SiteUnavailable(f"Its rules for robots cannot be read, so nothing is: {error}") from None
        if answer.status >= 500 or answer.status == 429:  # §2.3.1.4: all is disallowed; any other 4xx allows all
            raise SiteUnavailable(f"{url} answered {answer.status}: without its rules for robots, nothing is read.")
        text = answer.body.decode("utf-8-sig", "replace") if answer.status == 200 else ""
        self._robots, self._robots_at = self._protego.parse(text), now
        return self._robots

    # -- the list

    async def _load_listing(self) -> SitePages:
        if self._listing is not None and time.monotonic() < self._listed_at + self._every:
            return self._listing  # it was loaded since the caller looked
        robots = await self._load_robots()
        pages_by_url, list_url, remarks = await self._find_pages(robots)
        self._files = {url: file for url, file in self._files.items() if url in self._seen_files}
        urls = sorted(pages_by_url)
        version = digest(*(part for url in urls for part in (url, *pages_by_url[url][1:])))  # all fields but the link
        self._listing = SitePages(pages_by_url, urls, list_url, tuple(remarks), version)
        self._listed_at = time.monotonic()
        return self._listing

    def _allowed_pages(self, found: Sequence[tuple[str, ListedPage]]) -> tuple[dict[str, ListedPage], list[str]]:
        """Return the pages below the operator's URL that robots.txt allows, by URL, and remarks about omitted ones."""
        deadline = time.monotonic() + ROBOTS_CHECK_SECONDS
        pages_by_url: dict[str, ListedPage] = {}
        outside = refused = unusable = 0
        for base, page in found:
            url = resolved(page.link, base)
            if url is None:
                unusable += 1
            elif not self.scope.covers(url):
                outside += 1
            elif url in pages_by_url:
                continue
            elif not self._allows(url):
                refused += 1
            else:
                pages_by_url[url] = page
            if time.monotonic() > deadline:
                raise SiteUnavailable(f"robots.txt of {self.scope.origin} has too many rules to compare pages with.")
        reasons = (
            (outside, f"not below {self.scope.url}"),
            (refused, "not allowed by robots.txt"),
            (unusable, "not valid URLs of pages"),
        )
        return pages_by_url, [f"{many(number, 'link')} left out: {why}." for number, why in reasons if number]

    async def _find_pages(self, robots: Protego) -> tuple[dict[str, ListedPage], str, list[str]]:
        """Return the pages by URL, the URL of the file that lists them (the first of several), and remarks."""
        self._seen_files.clear()
        top, root = self.scope.url, f"{self.scope.origin}/"
        links = islice(robots.sitemaps, MAX_LINKS_IN_ROBOTS)
        named = [url for link in links if (url := resolved(link, root)) and same_origin(url, root)]
        groups = [
            *([f"{place}llms.txt"] for place in dict.fromkeys((top, root))),
            [f"{top}sitemap.xml"],
            list(dict.fromkeys(named)),
            [f"{root}sitemap.xml"],
        ]
        if self._list_url:
            groups = [[self._list_url]]
        remarks: list[str] = []
        useless = ""
        for urls in groups:
            listed_pages = await self._pages_of_files(urls, remarks)
            if not listed_pages:
                continue
            pages_by_url, left_out = await asyncio.to_thread(self._allowed_pages, listed_pages[:MAX_PAGES])
            if pages_by_url:
                if len(listed_pages) > MAX_PAGES:
                    remarks.append(f"Only the first {MAX_PAGES:,} pages are listed.")
                return pages_by_url, urls[0], [*remarks, *left_out]
            number = min(len(listed_pages), MAX_PAGES)
            useless = useless or f"{urls[0]} lists {many(number, 'page')}, and none that may be read below {top}."
        if useless:
            raise SiteUnavailable(useless)
        tried = self._list_url or f"{top}llms.txt and {top}sitemap.xml"
        raise SiteUnavailable(" ".join([f"{top} lists no pages: none were found in {tried}.", *remarks]))

    def _is_sitemap(self, url: str) -> bool:
        return not url.partition("?")[0].endswith(".txt")

    async def _pages_of_files(self, urls: list[str], remarks: list[str]) -> list[tuple[str, ListedPage]]:
        """Return the pages that these files list, and those of the sitemaps that they name. Each file is read once."""
        sitemap_urls = list(dict.fromkeys(urls))
        listed_pages: list[tuple[str, ListedPage]] = []
        for number, url in enumerate(sitemap_urls):  # the list grows meanwhile
            if len(listed_pages) > MAX_PAGES:
                break
            if number == MAX_SITEMAPS:
                remarks.append(f"Only the first {MAX_SITEMAPS} sitemaps are read.")
                break
            listed = await self._list_file(url, remarks)
            if listed is None:
                continue
            listed_pages += [(url, page) for page in listed.pages]
            for link in listed.sitemaps:
                if len(sitemap_urls) > MAX_SITEMAPS:  # no more will be read: a site may name 100,000
                    break
                sitemap_url = resolved(link, url)
                if sitemap_url and sitemap_url not in sitemap_urls and same_origin(sitemap_url, url):
                    sitemap_urls.append(sitemap_url)
        return listed_pages

    async def _list_file(self, url: str, remarks: list[str]) -> SiteList | None:
        """Return the entries of a list file; None if it does not exist or cannot be used. Adds a remark on a fault."""
        self._seen_files.add(url)
        cached = self._files.get(url)
        headers = {} if cached is None else conditional_headers(cached.etag, cached.modified)
        try:
            answer = await self._get(self._fetcher, url, MAX_LIST_BYTES, headers)
            if answer.status == 304 and cached is not None:
                _remark_on_length(url, cached.listed, remarks)
                return cached.listed
            if answer.status >= 500 or answer.status == 429:
                raise SiteUnavailable(f"{url} answered {answer.status}.")
            if answer.status != 200:
                return None
            page_list = await asyncio.to_thread(_read_list, answer, self._is_sitemap(url))
        except (UnusableList, PageFailed) as error:
            remarks.append(f"{url} {error}." if isinstance(error, UnusableList) else str(error))
            return None
        if page_list is not None:
            _remark_on_length(url, page_list, remarks)
            headers = dict(answer.headers)
            self._files[url] = _KeptFile(headers.get("etag", ""), dated_validator(headers), page_list)
        return page_list

    # -- pages

    async def _load_page(self, url: str) -> WebPage:
        kept, now = self._pages.get(url), time.monotonic()
        if kept is not None and now < kept.checked_at + kept.fresh_seconds:
            return kept.page
        await self._load_robots()
        if not self._allows(url):  # it is in a list that was made with older rules
            raise ResourceNotFound(url)
        headers = {"Accept": ACCEPT} | ({} if kept is None else conditional_headers(kept.etag, kept.modified))
        answer = await self._get(self._page_fetcher, url, MAX_PAGE_BYTES, headers)
        if answer.status in (401, 403, 404, 410):
            self._pages.remove(url)
            raise ResourceNotFound(url)
        if kept is not None and answer.status == 304:
            page = kept.page
            if "cache-control" in answer.headers:  # it replaces the earlier one (RFC 9111 §3.2)
                freshness = _freshness(answer.headers)
                page = page._replace(ttl_ms=freshness["ttl_ms"], private=page.private or freshness["private"])
        elif answer.status == 200:
            page = await asyncio.to_thread(self._read_page, url, answer)
        else:
            raise PageFailed(f"{url} cannot be read now: the site answered {answer.status}.")
        if page.mime_type == listed_type(url):
            self._mime_types.pop(url, None)
        elif len(self._mime_types) < MAX_PAGES:
            self._mime_types[url] = page.mime_type
        fresh_seconds = max(self._reuse_seconds, min(MAX_FRESH_SECONDS, (page.ttl_ms or 0) / 1000))
        etag, modified = answer.headers.get("etag", ""), dated_validator(answer.headers)
        if kept is not None and answer.status == 304:
            etag, modified = etag or kept.etag, modified or kept.modified
        self._pages.put(
            url, _KeptPage(etag, modified, time.monotonic(), fresh_seconds, page), len(page.data) + PAGE_OVERHEAD_BYTES
        )
        return page

    def _read_page(self, url: str, answer: HttpResponse) -> WebPage:
        """Return the page of an answer: Markdown of HTML, text as it is, anything else as bytes. Blocks."""
        body = answer.body
        declared = answer.headers.get("content-type", "").partition(";")[0].strip().lower()
        signature = mime.by_signature(body[: mime.SNIFFED_BYTES])
        is_html = declared in _HTML or (not declared and body.lstrip()[:1] == b"<")
        title, remarks = "", list[str]()
        if signature and (is_html or mime.is_text(declared) or not declared):
            if declared:
                remarks.append(f"The site calls this {printable(declared)}, but it is {signature}.")
            mime_type, text = signature, None
        elif is_html:
            markdown = self._markdown(answer.url or url, _decoded(body, answer.headers, html=True))
            mime_type, text, title = mime.MARKDOWN, markdown.text, printable(markdown.title, 300)
            remarks += [markdown.remark] if markdown.remark else []
        elif not declared or declared == mime.OCTETS or mime.is_text(declared):
            text = None if b"\0" in body[:8192] else _decoded(body, answer.headers, html=False)
            mime_type = mime.OCTETS if text is None else shown_type(declared or mime.TEXT)
            file_name = url.partition("?")[0].rpartition("/")[2]
            if mime_type == mime.TEXT and text is not None and mime.by_name(file_name) == mime.MARKDOWN:
                mime_type = mime.MARKDOWN  # servers rarely know the type
        else:
            mime_type, text = signature or printable(declared, 100), None
        data = body if text is None else text.replace("\0", "\ufffd").encode("utf-8", "replace")
        return WebPage(
            url,
            mime_type,
            data,
            digest(mime_type, data),
            text is not None,
            title,
            tuple(remarks),
            unix_time(answer.headers.get("last-modified", "")),
            **_freshness(answer.headers),
        )

    def _markdown(self, url: str, html: str) -> PageText:
        try:
            reply = self._children.run(HTML_READER, f"{url}\n{html}".encode("utf-8", "replace"), CHILD_BOUNDS)
        except (ChildStopped, ChildRefused) as error:
            raise PageFailed(f"{url} cannot be turned into Markdown: {error}.") from None
        return msgspec.json.decode(reply, type=PageText)


def _freshness(headers: Mapping[str, str]) -> dict[str, Any]:
    """Return the `ttl_ms` and `private` of a page, from the `Cache-Control` of an answer (RFC 9111 §5.2.2)."""
    seconds = fresh_seconds(headers)
    directives = {word.partition("=")[0].strip() for word in headers.get("cache-control", "").lower().split(",")}
    return {
        "ttl_ms": None if seconds is None else min(IMMUTABLE_TTL_MS, seconds * 1000),
        "private": "private" in directives,
    }


def _decoded(body: bytes, headers: Mapping[str, str], *, html: bool) -> str:
    """Return the text of a body in UTF-8 if it has that byte order mark, or else in the encoding of its header, of its
    `meta` element, or that its bytes suggest.
    """
    declared = _CHARSET.search(headers.get("content-type", "")[:500])
    in_page = _CHARSET.search(body[:2048].decode("latin-1")) if html else None
    if body.startswith(b"\xef\xbb\xbf"):
        return body[3:].decode("utf-8", "replace")
    for found in (declared, in_page):
        if found is not None and (encoding := declared_encoding(found[1])):
            try:
                return body.decode(encoding, "replace")
            except (LookupError, ValueError):  # not a codec of text
                continue
    decoded = mime.decode_text(body)
    return decoded[0] if decoded is not None else body.decode("utf-8", "replace")


def _remark_on_length(url: str, listed: SiteList, remarks: list[str]) -> None:
    if listed.truncated and listed.pages:  # `_pages_of_files` remarks on an index of too many sitemaps
        remarks.append(f"{url} lists more than {MAX_PAGES:,} pages: the others are left out.")


def _read_list(answer: HttpResponse, is_sitemap: bool) -> SiteList | None:
    """Return the entries of a file, or None if it is not a list. Blocks.

    Raises:
        UnusableList: it is damaged or hostile.
    """
    body = answer.body
    if not is_sitemap:
        text = body.decode("utf-8", "replace")
        return read_llms_text(text) if is_llms_text(text) else None
    if body.startswith(b"\x1f\x8b"):
        inflater = Gunzip(MAX_LIST_BYTES)
        try:
            body = inflater.feed(body)
        except OverflowError:
            raise UnusableList(f"inflates to more than {MAX_LIST_BYTES >> 20} MiB") from None
        except ValueError as error:
            raise UnusableList(f"is not gzip data ({error})") from None
    elif answer.headers.get("content-type", "").lower().startswith(_HTML):
        return None  # an HTML page that the site returns for any path
    return read_sitemap(body)
