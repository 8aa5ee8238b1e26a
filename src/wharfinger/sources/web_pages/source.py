"""The pages of a web site as live resources: listed, read in windows, completed, searched and watched.

A page has its own `https://` URL as URI, so that links in texts are URIs that can be read, and an answer can cite them.
A directory is not a page: its URI is that of its path with `?list=pages`, unless a listed page has that URL.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left, bisect_right
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import suppress

from msgspec import UNSET

from wharfinger import types as t
from wharfinger.content import mime
from wharfinger.content.text import many, shown
from wharfinger.errors import ResourceNotFound
from wharfinger.policy.current import is_restricted, may_read, readable_uris, reads_all_below
from wharfinger.source import VERSION, Document, Source
from wharfinger.sources.directories import MAX_CHILDREN, listing_text, summaries
from wharfinger.sources.etag import digest
from wharfinger.sources.name_completion import MAX_COMPLETIONS
from wharfinger.sources.page_keys import bad_cursor
from wharfinger.sources.polling import Polling
from wharfinger.sources.ttl import ttl_ms
from wharfinger.sources.watched import Watched
from wharfinger.sources.web_pages.crawl import Crawl
from wharfinger.sources.web_pages.page_lists import ListedPage
from wharfinger.sources.web_pages.page_urls import normalized
from wharfinger.sources.web_pages.web_site import PageFailed, SitePages, WebSite
from wharfinger.sources.windows.text_pieces import text_pieces
from wharfinger.sources.windows.window import (
    PARAMETERS,
    BytesContent,
    LineIndexes,
    Window,
    parse_window,
    read_content,
    remark,
    split_query,
)

__all__ = ["WebPages"]

DIRECTORY_QUERY = "?list=pages"
"""`PATH?list=pages` is the URI of the directory of the pages below a path."""
PATIENCE_SECONDS = 10.0
"""Longest time that a list waits for the site: the first list takes several requests."""
LAST_CHARACTER = "\U0010ffff"
"""`prefix + LAST_CHARACTER` sorts after everything that begins with the prefix."""
PAGE_KEY, CHILD_KEY = "p:", "c:"
"""Prefixes of the keys at which a list continues: the list of all pages, and that of a directory."""
MAX_KEY_CHARACTERS = 4_096
_FILE_NAMES = {mime.MARKDOWN: "page.md", mime.TEXT: "page.txt"}
"""Names by which windows recognize the types of pages."""


class WebPages(Watched[Polling], Source):
    """The source that `web()` returns. Its methods block, and may be called from several threads."""

    noun = "web site"
    parameters = PARAMETERS

    def __init__(self, site: WebSite, name: str, every: float, max_crawled_pages: int) -> None:
        self.site = site
        self.name = name
        self.top = site.scope.url
        self.uri = f"{self.top}{DIRECTORY_QUERY}"
        self.location = self.top
        self.patience = PATIENCE_SECONDS
        self.template = f"{self.top}{{+path}}{{?lines,tail,bytes}}"
        self.templates = [
            t.ResourceTemplate(
                uri_template=self.template,
                name=name,
                title=f"Any listed page of {name}",
                description="A page as Markdown, by its path. With ?list=pages instead: the pages below it.",
            )
        ]
        self._crawl = Crawl(site, max_crawled_pages)
        self._lines = LineIndexes()
        self._watches = Polling(f"web {name}", self._look, every=every, sleep_ratio=1)

    # -- URIs

    def matches(self, uri: str) -> bool:
        """Return whether a URI is below the operator's URL."""
        base, mark, query = uri.partition("?")
        is_below = f"{base}/".startswith(self.top) and "#" not in uri and not query.startswith("/")
        return is_below and (not query.startswith("list=") or mark + query == DIRECTORY_QUERY)

    def pattern_of(self, *names: str, between: Sequence[str] = ()) -> str:
        """Return the pattern for all pages."""
        return f"{self.top.replace('*', '%2A')}**"

    def _page_of(self, uri: str, listing: SitePages) -> tuple[str, Window | None]:
        """Return the URL of the listed page that a URI names, and the window of it.

        Raises:
            ResourceNotFound: no such page is listed.
            InvalidArgument: there is no such window.
        """
        if uri in listing.pages:
            return uri, None
        base = uri.partition("?")[0]
        for url in (uri[: max(uri.rfind("?"), uri.rfind("&"), 0)], base):  # the page's own URL may have a query
            if url in listing.pages:
                return url, parse_window(split_query(f"{base}?{uri[len(url) + 1 :]}")[1])
        raise ResourceNotFound(uri)

    def _directory_of(self, uri: str) -> str | None:
        """Return the URL of a directory, with a slash at its end; None if this is not the URI of one."""
        url = uri.removesuffix(DIRECTORY_QUERY)
        if url == uri or not url.endswith("/") or "?" in url or not url.startswith(self.top) or normalized(url) != url:
            return None
        return url

    # -- lists

    def page(self, after: str | None, limit: int) -> tuple[list[t.Resource], str | None]:
        """List the top directory and the pages, in the order of their URLs."""
        position = _position(after, PAGE_KEY)
        listing = self.site.listing()
        reads = readable_uris()
        resources = [self._directory_resource(self.top)] if after is None and may_read(self.uri) else []
        last = position
        for url in listing.urls[bisect_right(listing.urls, position) :]:
            if reads(url):
                if len(resources) >= limit:
                    return resources, PAGE_KEY + last
                resources.append(self._page_resource(url, listing.pages[url]))
                last = url
        return resources, None

    def children(
        self, uri: str, after: str | None = None, limit: int = MAX_CHILDREN
    ) -> tuple[list[t.Resource], str | None]:
        """List the pages and directories in a directory.

        Raises:
            ResourceNotFound: there is no such directory.
        """
        position = _position(after, CHILD_KEY)
        directory = self._directory_of(uri)
        if directory is None:
            raise ResourceNotFound(uri)
        listing = self.site.listing()
        entries = self._entries(directory, listing)
        remaining = [entry for entry in entries if _without_directory_query(entry) > position]
        resources = [self._entry_resource(directory, entry, listing) for entry in remaining[:limit]]
        if len(remaining) <= limit:
            return resources, None
        return resources, CHILD_KEY + _without_directory_query(remaining[limit - 1])

    def _entries(self, directory: str, listing: SitePages) -> list[str]:
        """Return the readable entries of a directory, as URLs in order.

        An entry is a page, or a directory if there are pages below it. A page may have the URL of a subdirectory. It is
        then an entry of the subdirectory. If it is the only readable page there, it replaces the subdirectory here. The
        page at the URL of the top without its slash is an entry of the top, which has no parent.

        Raises:
            ResourceNotFound: it has no entries, and is not the top.
        """
        reads = readable_uris()
        entries: dict[str, str] = {}
        if directory == self.top:
            page = self.top.removesuffix("/")
            urls = [page] * (page in listing.pages) + _beginning_with(f"{page}?", listing)
            entries |= {url: url for url in urls if reads(url)}
        for url in _beginning_with(directory, listing):
            if not reads(url):
                continue
            path, _, query = url[len(directory) :].partition("?")
            first, slash, rest = path.partition("/")
            if not slash:
                entries[url] = url
                continue
            subdirectory = f"{directory}{first}/"
            entries[subdirectory] = (
                url if subdirectory not in entries and not rest and not query else subdirectory + DIRECTORY_QUERY
            )
        if not entries and directory != self.top:
            raise ResourceNotFound(directory + DIRECTORY_QUERY)
        return sorted(entries.values(), key=_without_directory_query)

    def _entry_resource(self, directory: str, entry: str, listing: SitePages) -> t.Resource:
        if entry.endswith(DIRECTORY_QUERY) and entry not in listing.pages:
            return self._directory_resource(entry.removesuffix(DIRECTORY_QUERY))
        return self._page_resource(entry, listing.pages[entry])

    def _directory_resource(self, directory: str, version: str = "") -> t.Resource:
        name = self.name if directory == self.top else directory.rstrip("/").rpartition("/")[2]
        return t.Resource(
            uri=f"{directory}{DIRECTORY_QUERY}",
            name=shown(name),
            title=f"Pages of {self.name}" if directory == self.top else UNSET,
            mime_type=mime.DIRECTORY,
            meta={VERSION: version} if version else UNSET,
        )

    def _page_resource(self, url: str, listed: ListedPage, uri: str = "", version: str = "") -> t.Resource:
        path = url.partition("?")[0].rstrip("/")
        name = path.rpartition("/")[2] if len(path) > len(self.site.scope.origin) else self.name
        return t.Resource(
            uri=uri or url,
            name=shown(name),
            title=listed.title or UNSET,
            description=listed.description or UNSET,
            mime_type=self.site.type_of(url),
            annotations=t.Annotations(last_modified=listed.modified) if listed.modified else UNSET,
            meta={VERSION: version} if version else UNSET,
        )

    # -- contents

    def stat(self, uri: str) -> t.Resource:
        """Describe a page or a directory.

        Raises:
            ResourceNotFound: it is not listed, or the site does not have it.
            InvalidArgument: there is no such window.
            PageFailed: it cannot be read now.
            SiteUnavailable: the site does not answer.
        """
        listing = self.site.listing()
        directory = self._directory_of(uri)
        if directory is not None and uri not in listing.pages:
            version = digest(*self._entries(directory, listing))
            if reads_all_below(self.top):  # a watch compares unfiltered versions
                self._watches.record(uri, version)
            return self._directory_resource(directory, version)
        url, _ = self._page_of(uri, listing)
        page = self.site.page(url)
        self._watches.record(uri, page.version)
        return self._page_resource(url, listing.pages[url], uri, page.version)

    def read(self, uri: str) -> t.ReadResourceResult:
        """Read a page as Markdown, completely or in windows, or list a directory.

        Raises:
            ResourceNotFound: it is not listed, or the site does not have it.
            InvalidArgument: there is no such window.
            PageFailed: it cannot be read now.
            SiteUnavailable: the site does not answer.
        """
        listing = self.site.listing()
        directory = self._directory_of(uri)
        if directory is not None and uri not in listing.pages:
            return self._read_directory(directory, listing)
        url, window = self._page_of(uri, listing)
        page = self.site.page(url)
        content = BytesContent(page.data)
        lines = self._lines.of(url, page.version, content)
        name = _FILE_NAMES.get(page.mime_type, "page.txt" if page.is_text else "page")
        contents = read_content(uri, url, name, content, window, meta={VERSION: page.version}, lines=lines)
        contents[0].mime_type = page.mime_type
        contents += [remark(url, text) for text in page.remarks]
        scope: t.CacheScope = "private" if page.private else self.cache_scope
        ttl = ttl_ms(page.modified) if page.ttl_ms is None else page.ttl_ms
        return t.ReadResourceResult(contents=contents, ttl_ms=ttl, cache_scope=scope)

    def _read_directory(self, directory: str, listing: SitePages) -> t.ReadResourceResult:
        entries = self._entries(directory, listing)
        children = [self._entry_resource(directory, entry, listing) for entry in entries[:MAX_CHILDREN]]
        folders = sum(entry.endswith(DIRECTORY_QUERY) for entry in entries)
        counts = f"{many(folders, 'directory')} and {many(len(entries) - folders, 'page')}"
        template = self.template if len(entries) > len(children) else ""
        text = listing_text(shown(directory), counts, children, template, describe=_title_or_type)
        if directory == self.top and not is_restricted():
            text += "".join(f"\n{sentence}" for sentence in listing.remarks)
        meta: dict[str, object] = {VERSION: digest(*entries)}
        first = t.ResourceContents(uri=directory + DIRECTORY_QUERY, mime_type=mime.TEXT, text=text, meta=meta)
        return t.ReadResourceResult(contents=[first, *summaries(children)], ttl_ms=0, cache_scope=self.cache_scope)

    # -- finding

    def complete(self, template: str, argument: str, value: str, context: Mapping[str, str]) -> list[str]:
        """Complete a path: the entries of its directory, then other pages whose path contains the typed text."""
        if argument != "path" or template != self.template:
            return []
        head, slash, _ = value.rpartition("/")
        directory = self.top + head + slash
        listing = self.site.listing()
        entries: list[str] = []
        if normalized(directory) == directory:
            with suppress(ResourceNotFound):
                entries = self._entries(directory, listing)
        paths = (entry.removesuffix(DIRECTORY_QUERY)[len(self.top) :] for entry in entries)
        typed = value.casefold()
        matching = dict.fromkeys(path for path in paths if path and path.casefold().startswith(typed))
        if typed and len(matching) < MAX_COMPLETIONS:
            reads = readable_uris()
            for url in listing.urls:
                path = url[len(self.top) :]
                if path and typed in path.casefold() and reads(url):
                    matching[path] = None
                    if len(matching) >= MAX_COMPLETIONS:
                        break
        return list(matching)[:MAX_COMPLETIONS]

    def documents(self, after: str | None, limit: int) -> tuple[list[Document], str | None]:
        """Return the pages. Those that were not read yet have no version, so that an index takes their text later."""
        position = _position(after, PAGE_KEY)
        listing = self.site.known_listing() or self.site.listing()
        begin = bisect_right(listing.urls, position)
        urls = listing.urls[begin : begin + limit]
        more = begin + limit < len(listing.urls)
        return [self._document(url, listing.pages[url]) for url in urls], PAGE_KEY + urls[-1] if more else None

    def _document(self, url: str, listed: ListedPage) -> Document:
        page = self.site.kept_page(url)
        path = url.removeprefix(self.site.scope.origin)
        title = listed.title or (page.title if page is not None else "")
        return Document(
            uri=url,
            title=f"{title} ({path})" if title else path,
            version=page.version if page is not None else "",
            mime_type=self.site.type_of(url),
        )

    def text(self, uri: str) -> Iterator[str]:
        """Yield the text of a page, as it was last read; nothing if it was not read.

        Raises:
            ResourceNotFound: it is not listed.
        """
        url, _ = self._page_of(uri, self.site.known_listing() or self.site.listing())
        page = self.site.kept_page(url)
        return text_pieces(BytesContent(page.data)) if page is not None and page.is_text else iter(())

    def unsearched(self) -> str:
        """Start the crawl with the first search, and return a sentence about the pages that were not read yet."""
        self._crawl.start()
        listing = self.site.known_listing()
        return "" if listing is None else self._crawl.unread_remark(listing)

    # -- watching

    def describe(self) -> str:
        """Return a summary of the list, and how changes are found."""
        listing = self.site.known_listing()
        page_count = "" if listing is None else f"{many(len(listing.urls), 'page')} of {shown(listing.list_url)}, "
        return f"{page_count}watched by {self._watches.means}"[:200]

    def _look(self, uri: str | None) -> Hashable:
        listing = self.site.listing()
        if uri is None:
            return listing.version
        directory = self._directory_of(uri)
        if directory is not None and uri not in listing.pages:
            return digest(*self._entries(directory, listing))
        try:
            return self.site.page(self._page_of(uri, listing)[0]).version
        except PageFailed:
            # A state like any other: watchers are notified when the page fails, and when it can be read again.
            return "failed"

    async def close(self) -> None:
        """End all watches and close connections."""
        await super().close()
        self._crawl.stop()
        await asyncio.to_thread(self.site.close)


def _position(after: str | None, prefix: str) -> str:
    """Return the URL after which a list continues.

    Raises:
        InvalidArgument: this is not a key of such a list.
    """
    if after is None:
        return ""
    if not after.startswith(prefix) or len(after) > MAX_KEY_CHARACTERS or not after.isascii():
        raise bad_cursor()
    return after[len(prefix) :]


def _beginning_with(prefix: str, listing: SitePages) -> list[str]:
    """Return the URLs of the listed pages that begin with a prefix."""
    begin = bisect_left(listing.urls, prefix)
    return list(listing.urls[begin : bisect_left(listing.urls, prefix + LAST_CHARACTER)])


def _without_directory_query(entry: str) -> str:
    return entry.removesuffix(DIRECTORY_QUERY)


def _title_or_type(child: t.Resource) -> str:
    """Describe a page in the listing of its directory."""
    return str(child.title or child.mime_type)
