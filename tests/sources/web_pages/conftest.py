"""A site that is served by a process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sources.web_pages.site_server import SiteServer

PAGE = """<!doctype html><html><head><title>{title} — Harbour</title></head><body>
<nav><a href="/docs/">Contents</a> navigationword</nav>
<main><h1>{title}</h1><p>{text}</p><p>See <a href="{link}">the other</a>.</p></main>
<footer>footerword</footer><script>alert("scriptword")</script></body></html>"""


def html(title: str, text: str, link: str = "#") -> str:
    """Return a page."""
    return PAGE.format(title=title, text=text, link=link)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[SiteServer]:
    """A site with an `llms.txt`, which lists five pages below `/docs/` and others."""
    server = SiteServer(tmp_path)
    try:
        server.put(
            "docs/llms.txt",
            "# Harbour\n\n> A harbour.\n\n## Guide\n\n"
            "- [Tides](tides.html): When the water is high\n"
            "- [Locks](/docs/guide/locks.md)\n"
            "- [Quays](guide/quays.html): Where ships lie\n"
            "- [Guide](guide/)\n"
            "- [Depths](data/depths.json)\n"
            "- [Elsewhere](https://elsewhere.example/docs/x.html)\n"
            "- [Above](/private/x.html)\n",
        )
        server.put("docs/tides.html", html("Tides", "High water is at 14:20.", "guide/quays.html"))
        server.put("docs/guide/locks.md", "# Locks\n\nThe lock opens at dawn.\n")
        server.put("docs/guide/quays.html", html("Quays", "The lantern is lit.", "../tides.html#high"))
        server.put("docs/guide/index.html", html("Guide", "All of the guide."))
        server.put("docs/data/depths.json", '{"fairway": 6.1}')
        server.put("private/x.html", html("Private", "hiddenword"))
        yield server
    finally:
        server.stop()
