"""The server's resources once more as tools, for hosts that know only tools; reads nothing but through the context.

`search` and `fetch` have the shapes that ChatGPT's connectors expect: first a text block of JSON, and the same as
structured content.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from wharfinger import types as t
from wharfinger.sources.mirror_tools.list_tool import list_resources, read_directory
from wharfinger.sources.mirror_tools.read_tool import fetch, read_resource
from wharfinger.sources.mirror_tools.search_tool import queried, query, search

if TYPE_CHECKING:
    from wharfinger.server.app import Server

__all__ = ["Mirrors", "mirrors"]

_TOOLS: tuple[tuple[Callable[..., Any], str], ...] = (
    (list_resources, "List resources"),
    (read_resource, "Read a resource"),
    (read_directory, "List a folder"),
    (search, "Search"),
    (fetch, "Fetch"),
)


def mirrors(*, allow_query: bool = False) -> Mirrors:
    """The tools `list_resources`, `read_resource`, `read_directory`, `search` and `fetch`: `server.include(mirrors())`.

    With `allow_query` there is `query` as well, as soon as a source is included that takes statements, such as a
    database. A tool of the same name that the server's author registers, before or after, wins.
    """
    return Mirrors(allow_query)


class Mirrors:
    """What `mirrors()` makes: the tools that show a server's own resources."""

    def __init__(self, allow_query: bool) -> None:
        self._allow_query = allow_query

    def include_into(self, server: Server) -> None:
        """Register the tools; `server.include(mirrors())` calls it."""
        for function, title in _TOOLS:
            _register(server, function, title)
        if self._allow_query:
            waiting = _UntilQueried(server)
            server.watching.observers.append(waiting)
            waiting.list_changed("resources")


def _register(server: Server, function: Callable[..., Any], title: str) -> None:
    server.tools.add(
        function,
        title=title,
        annotations=t.ToolAnnotations(
            read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False
        ),
        fallback=True,
    )


class _UntilQueried:
    """Registers `query` when the first source that takes statements is included, which changes the list."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._found = False

    def updated(self, uri: str) -> None:
        """A watched resource changed."""

    def list_changed(self, name: str) -> None:
        """A list changed, perhaps since there is one more source."""
        if name == "resources" and not self._found and queried(self._server.resources.every_source()):
            self._found = True
            _register(self._server, query, "Query a database")
