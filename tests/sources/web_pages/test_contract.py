"""The source contract for a site with an `llms.txt`, and for a site with a sitemap."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.sources.web_pages.conftest import html
from tests.sources.web_pages.site_server import SiteServer
from wharfinger.sources.web_pages import WebPages, web
from wharfinger.testing import SourceContract

LARGE_PAGE = "".join(f"Line {number:09} of the log book.\n\n" for number in range(20_000))


class SiteContract(SourceContract):
    """The source contract, for a site that the tests change."""

    site: SiteServer
    secret = "Bearer secretfathoms"

    def publish(self, site: SiteServer) -> WebPages:
        type(self).site = site
        site.put("docs/large.md", LARGE_PAGE)
        self.add_to_list("docs/large.md")
        source = web(f"{site.origin}/docs/", every=0.05, headers={"Authorization": self.secret})
        type(self).windowed = f"{site.origin}/docs/large.md?bytes=0-"
        type(self).missing = f"{site.origin}/docs/none.html"
        return source

    def add_to_list(self, path: str) -> None:
        raise NotImplementedError

    def change(self, source: Any) -> str:
        return self.site.put("docs/tides.html", html("Tides", os.urandom(9).hex()))

    def add(self, source: Any) -> str:
        path = f"docs/guide/{os.urandom(4).hex()}.html"
        uri = self.site.put(path, html("New", "new"))
        self.add_to_list(path)
        return uri

    def hide(self, source: Any) -> Callable[[], object]:
        self.site.stop()
        return self.site.start

    def whole(self, source: Any) -> str:
        return LARGE_PAGE


class TestLlmsText(SiteContract):
    @pytest.fixture
    def source(self, site: SiteServer) -> Iterator[WebPages]:
        yield self.publish(site)

    def add_to_list(self, path: str) -> None:
        text = (self.site.root / "docs/llms.txt").read_text()
        self.site.put("docs/llms.txt", f"{text}- [{path.rpartition('/')[2]}](/{path})\n")


class TestSitemap(SiteContract):
    @pytest.fixture
    def source(self, site: SiteServer) -> Iterator[WebPages]:
        site.remove("docs/llms.txt")
        self.paths = ["docs/tides.html", "docs/guide/", "docs/guide/quays.html"]
        yield self.publish(site)

    def add_to_list(self, path: str) -> None:
        self.paths.append(path)
        urls = "".join(f"<url><loc>{self.site.origin}/{each}</loc></url>" for each in self.paths)
        self.site.put("sitemap.xml", f'<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">{urls}</urlset>')
