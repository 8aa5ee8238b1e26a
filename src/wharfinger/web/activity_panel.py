"""The activity of a server of this process: its watchers, and the last reads and calls."""

from __future__ import annotations

import time
from collections.abc import Sequence

from wharfinger.protocol.inspection import Inspection
from wharfinger.protocol.principal import Principal
from wharfinger.web.html_elements import HtmlElement, name_text, node

__all__ = ["show_activity"]


def show_activity(container: HtmlElement, inspection: Inspection, viewer: Principal) -> None:
    """Show the watchers and the last requests that this principal may see."""
    container.clear()
    watched, recent = inspection.watchers(viewer), inspection.recent(viewer)
    with container:
        node("h2", "Activity")
        node("h3", "Watched now")
        _table(
            ("Resource", "Watched by"),
            [(request.uri, ", ".join(request.principals) or "anonymous") for request in watched],
        )
        node("h3", "Last requests")
        rows = [
            (
                time.strftime("%H:%M:%S", time.localtime(request.time)),
                request.method,
                request.target,
                request.principal or "anonymous",
                request.app,
                request.outcome,
                f"{request.seconds * 1000:.1f} ms",
                f"{request.size:,}",
            )
            for request in recent
        ]
        _table(("Time", "Method", "Target", "Principal", "Application", "Outcome", "Took", "Bytes"), rows)


def _table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    if not rows:
        node("p", "Nothing yet.")
        return
    with node("div", classes="table", tabindex="0", role="region", aria_label=titles[0]), node("table"):
        with node("thead"), node("tr"):
            for title in titles:
                node("th", title, scope="col")
        with node("tbody"):
            for row in rows:
                with node("tr"):
                    for text in row:
                        node("td", name_text(text))
