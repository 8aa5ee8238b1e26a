"""Tools that list, read and search a server's resources, for hosts that only support tools.

They read through the context, so that hooks and per-user rules apply as they do to the client's own requests.

`search` and `fetch` have the shapes that ChatGPT's connectors expect: first a text block of JSON, and the same as
structured content.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from wharfinger import types as t
from wharfinger.sources.resource_tool_set.list_tool import list_resources, read_directory
from wharfinger.sources.resource_tool_set.read_tool import fetch, read_resource
from wharfinger.sources.resource_tool_set.search_tool import query, search, sources_with_query

if TYPE_CHECKING:
    from wharfinger.server.app import Server

__all__ = ["ResourceTools", "resource_tools"]

_TOOLS: tuple[tuple[Callable[..., Any], str], ...] = (
    (list_resources, "List resources"),
    (read_resource, "Read a resource"),
    (read_directory, "List a folder"),
    (search, "Search"),
    (fetch, "Fetch"),
)


def resource_tools(*, allow_query: bool = False) -> ResourceTools:
    """Offer the resources as tools too, for hosts that only support tools: `server.include(resource_tools())`.

    The tools are `list_resources`, `read_resource`, `read_directory`, `search` and `fetch`. With `allow_query` there is
    also `query`, as soon as a source is included that takes statements, such as a database. A tool of your own with the
    same name takes precedence, whether it is registered before or after.
    """
    return ResourceTools(allow_query)


class ResourceTools:
    """The tools that `resource_tools()` returns."""

    def __init__(self, allow_query: bool) -> None:
        self._allow_query = allow_query

    def include_into(self, server: Server) -> None:
        """Register the tools; `server.include(resource_tools())` calls it."""
        for function, title in _TOOLS:
            _register(server, function, title)
        if self._allow_query:
            waiting = _QueryRegistration(server)
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


class _QueryRegistration:
    """Registers `query` once a source is included that takes statements. Observes changes of the list of resources."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._registered = False

    def updated(self, uri: str) -> None:
        """Do nothing: only the list of resources matters."""

    def list_changed(self, name: str) -> None:
        """Register `query` if the list of resources changed because a source that takes statements was included."""
        if name == "resources" and not self._registered and sources_with_query(self._server.resources.every_source()):
            self._registered = True
            _register(self._server, query, "Query a database")
