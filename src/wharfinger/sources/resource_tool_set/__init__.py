"""Tools that list, read and search a server's resources, for hosts that only support tools.

They read through the context, so that hooks and per-user rules apply to them as to the client's own requests.

`search` and `fetch` return the shapes that ChatGPT's connectors expect: a text block of JSON, and the same
JSON as structured content.

The description of `read_resource` lists the queries of the sources' URIs, and that of the tool `query` lists the
databases. So these descriptions change when a source is included.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from wharfinger import types as t
from wharfinger.policy.current import unrestricted
from wharfinger.source import Source
from wharfinger.sources.resource_tool_set.list_tool import list_resources, read_directory
from wharfinger.sources.resource_tool_set.read_tool import fetch, read_resource
from wharfinger.sources.resource_tool_set.search_tool import query, search, sources_with_query, with_databases
from wharfinger.sources.resource_tool_set.uri_queries import with_queries

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
    also `query`, once a source that takes statements, such as a database, is included. A tool of your own with the same
    name takes precedence, whether it is registered before or after.
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
        descriptions = _Descriptions(server, self._allow_query)
        server.watching.observers.append(descriptions)
        descriptions.list_changed("resources")


def _register(server: Server, function: Callable[..., Any], title: str) -> None:
    server.tools.add(
        function,
        title=title,
        annotations=t.ToolAnnotations(
            read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False
        ),
        fallback=True,
    )


class _Descriptions:
    """Keeps the descriptions of the tools up to date, and registers `query` once a source takes statements.

    It observes the list of resources, which changes when a source is included, or learns its templates. Changes come
    from any thread, and often.
    """

    def __init__(self, server: Server, allow_query: bool) -> None:
        self._server = server
        self._allow_query = allow_query
        self._registered = False
        self._described: list[tuple[Source, object, object]] = []
        """The sources, each with its templates and parameters, which it may learn while it starts."""

    def updated(self, uri: str) -> None:
        """Do nothing: only the list of resources matters."""

    def list_changed(self, name: str) -> None:
        """Update the descriptions if a source was included, or has other queries."""
        sources = list(self._server.resources.every_source()) if name == "resources" else []
        described: list[tuple[Source, object, object]] = [(each, each.templates, each.parameters) for each in sources]
        if described == self._described or not sources:
            return
        self._described = described
        about_reading = _docstring_before_args(read_resource)
        self._describe(read_resource, lambda: with_queries(about_reading, sources))
        if self._allow_query and (databases := sources_with_query(sources)):
            if not self._registered:
                self._registered = True
                _register(self._server, query, "Query a database")
            about_queries = _docstring_before_args(query)
            self._describe(query, lambda: with_databases(about_queries, databases))

    def _describe(self, function: Callable[..., Any], describe: Callable[[], str]) -> None:
        """Set a tool's description, unless the server's author has removed or replaced the tool.

        Under a policy, each caller's description has only the sources of which the caller may read something.
        """
        tools = self._server.tools
        tool = tools.features.by_key.get(function.__name__)
        if tool is None or tool.function is not function:
            return
        text = unrestricted(describe)
        if tool.definition.description != text:
            tools.describe(function.__name__, text)
        tools.describe_to_callers(function.__name__, describe)


def _docstring_before_args(function: Callable[..., Any]) -> str:
    """Return the docstring of a tool up to its arguments."""
    return inspect.cleandoc(function.__doc__ or "").partition("\n\nArgs:")[0]
