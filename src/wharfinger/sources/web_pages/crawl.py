"""Reads the listed pages one after another, so that their texts can be searched.

A thread reads a page, and then waits for the longest of three times: `REST_SECONDS`, the time that the request took,
and the `Crawl-delay` of robots.txt. It starts with the first search, because a site should not be read as a whole for a
client that only wants one page. Each page is requested again after `REFRESH_SECONDS`, even one that the site lacks.
This request is conditional, so most answers are empty. A page that failed, and was never read before, is requested
again in the next round.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import CancelledError
from contextlib import suppress

from wharfinger.errors import InternalError, ResourceNotFound
from wharfinger.policy.current import is_restricted
from wharfinger.source import SourceUnavailable
from wharfinger.sources.web_pages.web_site import SitePages, WebSite

__all__ = ["Crawl"]

REST_SECONDS = 0.25
MAX_DELAY_SECONDS = 30.0
"""Longest `Crawl-delay` that is obeyed: with a longer one, most pages would never be read."""
REFRESH_SECONDS = 3600.0
IDLE_SECONDS = 30.0
"""Time between two checks for pages that are new or due to be read again."""
MAX_BYTES = 48 << 20
"""Bytes of pages after which no further page is read: less than `WebSite` keeps, so that it drops none of them."""


class Crawl:
    """Reads at most `max_pages` pages of a site in a thread, from `start` to `stop`."""

    def __init__(self, site: WebSite, max_pages: int, rest: float = REST_SECONDS) -> None:
        self._site = site
        self._max_pages = max_pages
        self._rest = rest
        self._requested_at: dict[str, float] = {}
        """The time at which each page was last requested, whatever the answer."""
        self._missing: set[str] = set()
        """The pages that the site did not have, or refused, at the last request."""
        self._lock = threading.Lock()
        self._stopped: threading.Event | None = None
        self._thread: threading.Thread | None = None
        self._is_full = False

    def start(self) -> None:
        """Start the thread, if it does not run."""
        with self._lock:
            if self._stopped is None and self._max_pages > 0:
                self._stopped = threading.Event()
                arguments = (self._stopped, self._thread)
                self._thread = threading.Thread(
                    target=self._run, args=arguments, name="wharfinger-web-crawl", daemon=True
                )
                self._thread.start()

    def stop(self) -> None:
        """Stop the thread after its current request."""
        with self._lock:
            if self._stopped is not None:
                self._stopped.set()
                self._stopped = None

    def requested_count(self, listing: SitePages) -> int:
        """Return the number of listed pages that were requested, including those that could not be read."""
        return sum(url in self._requested_at for url in listing.urls)

    def unread_remark(self, listing: SitePages) -> str:
        """Return a sentence about the pages that were not read for searches; empty if all were."""
        requested, total = self.requested_count(listing), len(listing.urls)
        if requested >= total:
            return ""
        if is_restricted():  # the numbers include pages that the caller may not see
            return "Not all pages have been read for searches: the others are found by title."
        if self._is_full or requested >= self._max_pages:
            return f"Only {requested:,} of {total:,} pages are searched by text, the others by title."
        return f"{requested:,} of {total:,} pages have been read so far: search again for what is missing."

    def _run(self, stopped: threading.Event, previous: threading.Thread | None) -> None:
        if previous is not None:
            previous.join()  # its last request may still run
        while not stopped.is_set():
            with suppress(SourceUnavailable, CancelledError):  # an outage, which the server reports, or a closed site
                self._read_all(self._site.listing(), stopped)
            stopped.wait(IDLE_SECONDS)

    def _read_all(self, listing: SitePages, stopped: threading.Event) -> None:
        """Read the pages that are new or due.

        Raises:
            SourceUnavailable: the site does not answer.
        """
        for url in self._requested_at.keys() - listing.pages.keys():
            del self._requested_at[url]
            self._missing.discard(url)
        size = 0
        for url in listing.urls[: self._max_pages]:
            kept = self._site.kept_page(url)
            is_known = url in self._requested_at and (kept is not None or url in self._missing)
            if not is_known or time.monotonic() > self._requested_at[url] + REFRESH_SECONDS:
                stopped.wait(self._site.pause())
                if stopped.is_set():
                    return
                began = time.monotonic()
                self._missing.discard(url)
                try:
                    kept = self._site.page(url)
                except ResourceNotFound:
                    self._missing.add(url)
                except SourceUnavailable:
                    raise
                except InternalError:
                    pass
                self._requested_at[url] = time.monotonic()
                read_seconds = self._requested_at[url] - began
                stopped.wait(max(self._rest, read_seconds, min(MAX_DELAY_SECONDS, self._site.crawl_delay())))
            size += len(kept.data) if kept is not None else 0
            if size > MAX_BYTES:
                self._is_full = True
                return
