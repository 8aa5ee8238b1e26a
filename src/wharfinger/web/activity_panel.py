"""The activity of a server in this process: its watchers, and the last reads and calls."""

from __future__ import annotations

import time
from collections.abc import Sequence

from wharfinger.protocol.inspection import Inspection
from wharfinger.protocol.principal import Principal
from wharfinger.web.html_elements import HtmlElement, name_text, node, table

__all__ = ["show_activity"]


def show_activity(container: HtmlElement, inspection: Inspection, viewer: Principal) -> None:
    """Show the watchers and the last requests that this principal may see."""
    container.clear()
    watched, recent = inspection.watchers(viewer), inspection.recent(viewer)
    with container:
        node("h2", "Activity")
        node("h3", "Watched now")
        _show_table(
            ("Resource", "Watched by"),
            [(resource.uri, ", ".join(resource.principals) or "anonymous") for resource in watched],
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
        _show_table(("Time", "Method", "Target", "Principal", "Application", "Outcome", "Took", "Bytes"), rows)


def _show_table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    if rows:
        table(titles[0], titles, [[name_text(text) for text in row] for row in rows])
    else:
        node("p", "Nothing yet.")
