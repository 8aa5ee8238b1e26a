"""What happens on a server of this process: who watches what, and the last reads and calls."""

from __future__ import annotations

import time
from collections.abc import Sequence

from wharfinger.protocol.inspection import Inspection
from wharfinger.protocol.principal import Principal
from wharfinger.web.html_elements import HtmlElement, name_text, node

__all__ = ["show_activity"]


def show_activity(place: HtmlElement, inspection: Inspection, viewer: Principal) -> None:
    """Show the watchers and the last requests that this principal may see."""
    place.clear()
    watched, recent = inspection.watchers(viewer), inspection.recent(viewer)
    with place:
        node("h2", "Activity")
        node("h3", "Watched now")
        _table(("Resource", "Watched by"), [(one.uri, ", ".join(one.principals) or "anonymous") for one in watched])
        node("h3", "Last requests")
        rows = [
            (
                time.strftime("%H:%M:%S", time.localtime(one.time)),
                one.method,
                one.target,
                one.principal or "anyone",
                one.app,
                one.outcome,
                f"{one.seconds * 1000:.1f} ms",
                f"{one.size:,}",
            )
            for one in recent
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
