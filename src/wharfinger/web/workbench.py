"""The page of one browser tab: tree and search on the left, the chosen item on the right.

A tab has a tree, a panel and watches of its own; the connections to the servers belong to `ServerConnections`, which
tabs may share. The first HTML contains no data of the servers: all of it comes later, over socket.io, as values of
elements.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from nicegui import Client

from wharfinger import types as t
from wharfinger.errors import WharfingerError
from wharfinger.host.catalogue_search import CatalogueHits
from wharfinger.policy.policy import principal_of
from wharfinger.protocol.inspection import Inspection
from wharfinger.protocol.principal import Principal
from wharfinger.transports.background import BackgroundTasks
from wharfinger.upstreams.upstream import UpstreamChange
from wharfinger.web.activity_panel import show_activity
from wharfinger.web.call_panel import CallPanel
from wharfinger.web.content_shelf import ContentShelf
from wharfinger.web.html_elements import HtmlElement, name_text, node
from wharfinger.web.live_changes import MAX_WATCHED, LiveChanges
from wharfinger.web.resource_panel import ResourcePanel
from wharfinger.web.schema_fields import FormField, arguments_of
from wharfinger.web.server_connections import ServerConnections
from wharfinger.web.token_costs import find_costs, show_costs
from wharfinger.web.tree_rows import RowKey, TreeRows, decode_key, encode_key, row_of_entry
from wharfinger.web.visitors import Visitor
from wharfinger.web.vue_elements import CallForm, ResourceTree, SearchBox, TreeRow

__all__ = ["Workbench", "WorkbenchSite"]

log = logging.getLogger("wharfinger.web")

MAX_RESULTS = 200
"""Maximum number of results of a search that are shown."""
NOTES_SECONDS = 0.5
"""Time between two reads of the catalogue's notes: no event reports that a list could not be read."""
REFRESH_SECONDS = 0.1
"""Changes of one server within this time cause one refresh of its rows."""


class WorkbenchSite(Protocol):
    """The part of the site that a tab uses."""

    name: str
    shelf: ContentShelf
    inspection: Inspection | None

    async def view_as(self, viewer: Principal, principal: Principal) -> ServerConnections:
        """Open the view of another principal; raises PermissionDenied."""
        ...


class Workbench:
    """One tab."""

    def __init__(self, client: Client, site: WorkbenchSite, visitor: Visitor, connections: ServerConnections) -> None:
        self._client = client
        self._site = site
        self._visitor = visitor
        self._own_connections = self._connections = connections
        self._chosen_row: RowKey | None = None
        self._panel: ResourcePanel | CallPanel | None = None
        self._closed_count = 0
        """How often the right side was closed. If this changes while the costs are loaded, they are not shown."""
        self._found_rows: list[TreeRow] | None = None
        self._searches = 0
        self._background = BackgroundTasks(report_failures=True)
        self._refreshing: dict[str, bool] = {}
        """For each server whose rows will soon be updated: whether its tools and prompts have changed too."""
        self._rows = TreeRows(connections)
        self._live = LiveChanges(connections, self._resource_changed, self._watch_began)
        self._following: list[asyncio.Task[Any]] = []
        self._view_lock = asyncio.Lock()
        """Held while another view is opened."""

    # -- the page

    def build(self) -> None:
        """Make the parts of the page, without data of the servers."""
        viewer = self._visitor.principal
        inspection = self._site.inspection
        with node("div", classes="bench"):
            with node("header", classes="top"):
                node("h1", name_text(self._site.name))
                self._whose = node("p", "", classes="whose", role="status")
                with node("nav", aria_label="Views"):
                    self._button("Costs", self._show_costs)
                    if inspection is not None and inspection.allows(viewer):
                        self._button("Activity", self._show_activity)
                        self._button("View as …", self._show_view_as)
            with node("div", classes="panes"):
                with node("section", classes="side", aria_label="Offer"):
                    self._search_box = SearchBox(self._search, contents=True)
                    self._tree = ResourceTree("Servers and resources", self._toggle, self._choose)
                    self._notes = node("p", "", classes="detail", role="status")
                self._main = node("section", classes="main", aria_label="Chosen", data_pane="chosen")
        self._welcome()

    def _button(self, label: str, act: Callable[[], Awaitable[None]]) -> HtmlElement:
        button = node("button", label, type="button")
        button.on("click", act, args=[])
        return button

    def _welcome(self) -> None:
        self._main.clear()
        with self._main:
            node("h2", "Choose something from the tree")
            node("p", "Arrow keys move in the tree, Enter opens, / leads to the search.")

    async def start(self) -> None:
        """Show the tree, and follow the servers."""
        await self._follow(self._own_connections)

    async def _follow(self, connections: ServerConnections) -> None:
        """Show the tree of the servers, and follow its changes."""
        await self._leave()
        self._connections = connections
        self._rows = TreeRows(connections)
        self._live = LiveChanges(connections, self._resource_changed, self._watch_began)
        connections.listeners.append(self._server_changed)
        loop = asyncio.get_running_loop()
        self._following = [
            loop.create_task(self._follow_lists(connections)),
            loop.create_task(self._follow_notes(connections)),
        ]
        await self._rows.begin()
        self._show_tree()

    async def _leave(self) -> None:
        """Stop following the servers, close the panel, and forget the choice and the results of the search."""
        for task in self._following:
            task.cancel()
        self._following = []
        if self._server_changed in self._connections.listeners:
            self._connections.listeners.remove(self._server_changed)
        await self._live.close()
        self._close_panel()
        self._chosen_row, self._found_rows = None, None
        self._searches += 1  # a search that still runs is of these servers

    async def close(self) -> None:
        """End all tasks and watches of this tab."""
        await self._leave()
        await self._background.cancel()
        if self._connections is not self._own_connections:
            await self._connections.__aexit__(None, None, None)

    def _run_in_tab(self, work: Callable[[], Awaitable[None]]) -> None:
        """Do something in the context of this tab, if it is still open."""

        async def run() -> None:
            if not self._client.is_deleted:
                with self._client:
                    await work()

        self._background.start(run())

    # -- tree

    def _show_tree(self) -> None:
        rows = self._rows.rows() if self._found_rows is None else self._found_rows
        self._tree.show(rows, "" if self._chosen_row is None else encode_key(self._chosen_row))
        self._show_notes(self._connections)
        visible = self._rows.visible_uris(MAX_WATCHED) if not self._connections.read_only else {}
        chosen = self._chosen_row
        selected = (chosen[1], chosen[2]) if chosen is not None and chosen[0] == "resource" else None
        self._live.watch(visible, None if self._connections.read_only else selected)

    async def _toggle(self, text: str) -> None:
        key = decode_key(text)
        if key is not None:
            await self._rows.toggle(key)
            self._show_tree()

    async def _choose(self, text: str) -> None:
        key = decode_key(text)
        if key is None or self._connections.server(key[1]) is None:
            return
        self._close_panel()
        self._chosen_row = key
        kind, server, item = key
        if kind == "resource":
            self._rows.set_badge(server, item, "")
            self._show_tree()
            self._panel = ResourcePanel(
                self._main, self._connections, self._site.shelf, self._visitor.key, server, item
            )
            await self._panel.show()
            return
        self._show_tree()
        panel = CallPanel(self._main, self._connections, self._site.shelf, self._visitor.key, server)
        if kind == "template":
            entries = await self._connections.catalogue.find(item, server=server)
            template = next(
                (entry.resource for entry in entries if isinstance(entry.resource, t.ResourceTemplate)), None
            )
            if template is not None and self._chosen_row is key:  # nothing else was chosen meanwhile
                self._panel = panel
                # In a task of its own: `_choose` closes the form, and thus cancels the task that calls this function.
                panel.show_template(
                    template, lambda uri: self._run_in_tab(lambda: self._choose(encode_key(("resource", server, uri))))
                )
            return
        feature = self._rows.feature(key)
        self._panel = panel
        if isinstance(feature, t.Tool):
            panel.show_tool(feature)
        elif isinstance(feature, t.Prompt):
            panel.show_prompt(feature)

    def _close_panel(self) -> None:
        self._closed_count += 1
        if self._panel is not None:
            self._panel.close()
            self._panel = None

    # -- changes

    async def _follow_lists(self, connections: ServerConnections) -> None:
        """Show changes of the lists of resources."""
        async for change in connections.catalogue.changes():
            self._rows.badge_changes(change)
            self._refresh(change.server, features=False)

    async def _follow_notes(self, connections: ServerConnections) -> None:
        """Show which lists are still being read, or could not be."""
        while True:
            self._show_notes(connections)
            await asyncio.sleep(NOTES_SECONDS)

    def _show_notes(self, connections: ServerConnections) -> None:
        text = " ".join(name_text(note) for note in connections.catalogue.notes()[:10])
        if text != self._notes.text:
            self._notes.text = text

    def _server_changed(self, change: UpstreamChange) -> None:
        self._refresh(change.server, features=change.kind in ("tools", "prompts", "status"))

    def _refresh(self, server: str, *, features: bool) -> None:
        """Update the rows of a server soon, once for all changes until then."""
        if server in self._refreshing:
            self._refreshing[server] = self._refreshing[server] or features
            return
        self._refreshing[server] = features

        async def work() -> None:
            await asyncio.sleep(REFRESH_SECONDS)
            await self._rows.refresh(server, features=self._refreshing.pop(server, False))
            self._show_tree()

        self._run_in_tab(work)

    async def _watch_began(self, server: str) -> None:
        """Read the shown resource again, because it may have changed before its watch began."""
        panel = self._panel
        if isinstance(panel, ResourcePanel) and panel.server == server:
            self._run_in_tab(panel.read)

    async def _resource_changed(self, server: str, uri: str) -> None:
        panel = self._panel
        if isinstance(panel, ResourcePanel) and (panel.server, panel.uri) == (server, uri):
            self._run_in_tab(panel.changed)
            return
        self._rows.set_badge(server, uri, "changed")
        self._refresh(server, features=False)

    # -- search

    async def _search(self, words: str, contents: bool) -> None:
        """In place of the tree, show the resources that fit the words. With `contents`, contents are searched too.

        The results by name are shown while contents are still searched, and then replaced by those of both. If a newer
        search has begun, the result is dropped.
        """
        self._searches += 1
        number = self._searches
        if not words.strip():
            self._found_rows = None
            self._search_box.say("")
            self._show_tree()
            return
        self._search_box.say("Searching …")
        for with_contents in (False, True) if contents else (False,):
            try:
                hits = await self._connections.catalogue.search(words, contents=with_contents, limit=MAX_RESULTS)
            except WharfingerError as error:
                if number == self._searches:
                    self._search_box.say(name_text(str(error)))
                return
            rows = await self._rows_of(hits)
            if number != self._searches:
                return
            self._found_rows = rows
            sentences = [f"{len(rows)}{' or more' if len(hits) >= MAX_RESULTS else ''} found."]
            if contents and not with_contents:
                sentences.append("Searching contents …")
            self._search_box.say(" ".join([*sentences, *(name_text(note) for note in hits.notes[:5])]))
            self._show_tree()

    async def _rows_of(self, hits: CatalogueHits) -> list[TreeRow]:
        """Return the rows of the resources that a search has found."""
        rows: dict[str, TreeRow] = {}
        for hit in hits:  # `hit.base` is its URI without a window
            entries = await self._connections.catalogue.find(hit.base, server=hit.server)
            badge = self._rows.badges.get((hit.server, hit.base), "")
            if entries:
                row = row_of_entry(entries[0], 1, hit.title, badge)
            else:
                row = {"kind": "resource", "level": 1, "label": name_text(hit.title or hit.uri), "badge": badge}
            if not entries or not entries[0].is_template:
                row["key"] = encode_key(("resource", hit.server, hit.uri))
            row["title"] = name_text(f"{hit.uri}\n{hit.snippet}", 1000)
            rows[str(row["key"])] = row
        return list(rows.values())

    # -- other views

    def _clear_choice(self) -> None:
        """Close the panel, and show no row as chosen."""
        self._close_panel()
        self._chosen_row = None
        self._show_tree()

    async def _show_costs(self) -> None:
        self._clear_choice()
        closed_count = self._closed_count
        costs, notes = await find_costs(self._connections)
        if closed_count == self._closed_count:
            show_costs(self._main, costs, notes)

    async def _show_activity(self) -> None:
        inspection = self._site.inspection
        if inspection is not None:
            self._clear_choice()
            show_activity(self._main, inspection, self._visitor.principal)
            with self._main:
                self._button("Refresh", self._show_activity)

    async def _show_view_as(self) -> None:
        """Ask for a principal, and show the servers as that principal sees them."""
        self._clear_choice()
        self._main.clear()
        fields = [
            FormField(
                "sub", "Subject", "The name in the token (sub). Empty: a caller without a token.", "text", False, ""
            ),
            FormField("iss", "Issuer", "", "text", False, ""),
            FormField("scope", "Scopes", "Separated by spaces.", "text", False, ""),
            FormField("groups", "Groups", "One in each line.", "lines", False, ""),
        ]

        async def submit(button: str, values: dict[str, Any]) -> None:
            if button == "My own view":
                await self._show_connections(self._own_connections, "")
                return
            claims, errors = arguments_of(fields, values)
            if not errors:
                await self._view_as(claims, state)
            form.show(errors=errors)

        with self._main:
            node("h2", "See the server as another principal")
            node(
                "p",
                "The audit log names you and the principal. Tools cannot be called in this view.",
            )
            form = CallForm([field.for_browser() for field in fields], ["Show", "My own view"], submit)
            state = node("p", "", role="status")

    async def _view_as(self, claims: dict[str, Any], state: HtmlElement) -> None:
        try:
            principal = principal_of(claims) if claims.get("sub") else principal_of("anyone")
            connections = await self._site.view_as(self._visitor.principal, principal)
        except WharfingerError as error:
            state.text = name_text(str(error), 1000)
            return
        await self._show_connections(connections, f"As {principal.subject or 'a caller without a token'}")

    async def _show_connections(self, connections: ServerConnections, whose: str) -> None:
        async with self._view_lock:
            previous = self._connections
            if self._client.is_deleted:  # the tab was closed meanwhile, and `close` did not know these connections
                if connections is not self._own_connections:
                    await connections.__aexit__(None, None, None)
                return
            try:
                await self._follow(connections)
            finally:  # also if the tab is closed meanwhile
                if previous not in (connections, self._own_connections):
                    await previous.__aexit__(None, None, None)
            self._whose.text = name_text(whose)
            self._welcome()
