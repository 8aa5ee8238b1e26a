"""Tools with which a model lists, searches and reads resources, if the application does not choose them.

Four tools list the resources of all servers, search them, read one, and return the rest of a result that was cut. They
only read published resources, so they need no approval.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

import msgspec
from msgspec import UNSET

from wharfinger import types as t
from wharfinger.client import ReadResult
from wharfinger.client.results import text_of
from wharfinger.content.text import printable, size_text
from wharfinger.errors import InvalidArgument
from wharfinger.host.catalogue import Catalogue
from wharfinger.host.catalogue_lists import CatalogueEntry
from wharfinger.host.model_apis.definitions import OfferedTool

__all__ = ["LIST_RESOURCES", "READ_RESOURCE", "READ_RESULT", "SEARCH_RESOURCES", "HostResourceTools"]

LIST_RESOURCES, SEARCH_RESOURCES = "list_resources", "search_resources"
READ_RESOURCE, READ_RESULT = "read_resource", "read_result"

ROWS_PER_PAGE = 100
FOUND_ROWS = 20
MAX_TEXT_CHARACTERS = 300
"""Maximum length of a description, a passage or a note in a row."""
MAX_NOTES = 10
"""Maximum number of notes about servers that could not be listed or searched."""
MAX_KEPT_RESULTS = 32
MAX_KEPT_CHARACTERS = 16_000_000
"""Maximum number of characters of all results that are kept for `read_result`; the oldest are forgotten."""

_SERVER = {"type": "string", "description": "Name of a server; only needed if several have the URI."}
_START = {"type": "integer", "minimum": 0, "description": "Character at which to begin; 0 if it is left out."}


def _tool(name: str, description: str, properties: dict[str, Any], required: Sequence[str] = ()) -> t.Tool:
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    if required:
        schema["required"] = list(required)
    return t.Tool(
        name=name, description=description, input_schema=schema, annotations=t.ToolAnnotations(read_only_hint=True)
    )


_TOOLS = (
    _tool(
        LIST_RESOURCES,
        "List the resources (files, records, documents) that can be read, with their URIs.",
        {
            "server": {"type": "string", "description": "Only those of this server."},
            "under": {"type": "string", "description": "Only URIs that begin with this."},
            "page": {"type": "integer", "minimum": 1, "description": f"Page of {ROWS_PER_PAGE} resources; 1 is first."},
        },
    ),
    _tool(
        SEARCH_RESOURCES,
        "Find resources by words in their names and contents. The best come first.",
        {"query": {"type": "string", "description": "Words to look for."}},
        ["query"],
    ),
    _tool(
        READ_RESOURCE,
        "Read a resource by its URI.",
        {"uri": {"type": "string"}, "server": _SERVER, "start": _START},
        ["uri"],
    ),
    _tool(
        READ_RESULT,
        "Read the rest of a result that was cut.",
        {"id": {"type": "string", "description": "As the cut result says."}, "start": _START},
        ["id"],
    ),
)


Read = Callable[[str, str | None, float | None], Awaitable[ReadResult]]


class HostResourceTools:
    """The tools for resources, and the cut results of which they return the rest.

    `catalogue` is listed and searched; `read` is called with a URI, the name of a server or None, and the seconds
    that it may take, or None.
    """

    def __init__(self, catalogue: Catalogue, read: Read) -> None:
        self._catalogue = catalogue
        self._read = read
        self._kept: OrderedDict[str, str] = OrderedDict()
        self._number = 0

    @staticmethod
    def names(taken: Iterable[str]) -> dict[str, str]:
        """Return, by each tool's own name, the name under which to offer it. A name that is taken gets a prefix."""
        taken_names = frozenset(taken)
        names: dict[str, str] = {}
        for tool in _TOOLS:
            name = tool.name
            while name in taken_names:
                name = f"host_{name}"
            names[tool.name] = name
        return names

    def offered(self, names: dict[str, str]) -> list[OfferedTool]:
        """Return the tools under the names that `names` returned."""
        return [OfferedTool(names[tool.name], tool) for tool in _TOOLS]

    def keep(self, text: str) -> str:
        """Keep a result that was cut. Returns its identifier."""
        self._number += 1
        identifier = f"result-{self._number}"
        self._kept[identifier] = text
        while len(self._kept) > MAX_KEPT_RESULTS or sum(map(len, self._kept.values())) > MAX_KEPT_CHARACTERS:
            self._kept.popitem(last=False)
        return identifier

    async def call(self, name: str, arguments: dict[str, Any], *, timeout: float | None = None) -> t.CallToolResult:
        """Call one of the tools, by its own name. `timeout` is for reads; the catalogue has bounds of its own.

        Raises:
            InvalidArgument: an argument is missing or wrong.
            WharfingerError: the resource cannot be read.
        """
        if name == LIST_RESOURCES:
            return _text_result(await self._list(_parse_arguments(arguments, _ListArguments)))
        if name == SEARCH_RESOURCES:
            return _text_result(await self._search(_parse_arguments(arguments, _SearchArguments).query))
        if name == READ_RESOURCE:
            request = _parse_arguments(arguments, _ReadArguments)
            result = await self._read(request.uri, request.server or None, timeout)
            return _text_from(_contents_result(result), request.start)
        rest = _parse_arguments(arguments, _RestArguments)
        if rest.id not in self._kept:
            raise InvalidArgument(f"There is no result {rest.id[:100]!r} any more: call its tool again.")
        return _text_from(_text_result(self._kept[rest.id]), rest.start)

    async def _list(self, request: _ListArguments) -> str:
        listed = await self._catalogue.entries(server=request.server)
        entries = [entry for entry in listed if entry.uri.startswith(request.under)]
        first = (request.page - 1) * ROWS_PER_PAGE
        rows = [self._row(entry, entry.uri) for entry in entries[first : first + ROWS_PER_PAGE]]
        if not rows:
            rows = ["There are no such resources." if not entries else f"There are only {len(entries)} resources."]
        elif first + len(rows) < len(entries):
            rows.append(
                f"[{first + 1} to {first + len(rows)} of {len(entries):,}. Continue with page {request.page + 1}.]"
            )
        return "\n".join([*rows, *_remarks(listed.notes)])

    async def _search(self, words: str) -> str:
        hits = await self._catalogue.search(words, limit=FOUND_ROWS)
        rows: list[str] = []
        for hit in hits:
            listed = await self._catalogue.find(hit.base, server=hit.server)
            entry = listed[0] if listed else CatalogueEntry(hit.server, t.Resource(uri=hit.uri, name=hit.title))
            rows.append(self._row(entry, hit.uri, hit.snippet))
        if not rows:
            rows.append(f"Nothing was found for {words[:200]!r}. Try other words, or list the resources.")
        return "\n".join([*rows, *_remarks(hits.notes)])

    def _row(self, entry: CatalogueEntry, uri: str, snippet: str = "") -> str:
        """Describe an entry in one line, which begins with the URI to read."""
        size = entry.resource.size if isinstance(entry.resource, t.Resource) else UNSET
        facts = [entry.mime_type, size_text(size) if isinstance(size, int) else ""]
        if len(self._catalogue.servers) > 1:
            facts.append(f"server {entry.server}")
        about = ", ".join(filter(None, facts))
        text = " ".join((snippet or entry.resource.description or "").split())
        line = f"{printable(uri, 2_000)} {printable(entry.title, 200)}" + (
            f" ({printable(about, 200)})" if about else ""
        )
        return f"{line}: {printable(text, MAX_TEXT_CHARACTERS)}" if text else line


def _remarks(notes: Sequence[str]) -> list[str]:
    """Return notes about missing entries as lines."""
    return [f"[{printable(note, MAX_TEXT_CHARACTERS)}]" for note in notes[:MAX_NOTES]]


class _ListArguments(msgspec.Struct):
    server: str = ""
    under: str = ""
    page: int = 1


class _SearchArguments(msgspec.Struct):
    query: str


class _ReadArguments(msgspec.Struct):
    uri: str
    server: str | None = None
    start: int = 0


class _RestArguments(msgspec.Struct):
    id: str
    start: int = 0


def _parse_arguments(arguments: dict[str, Any], kind: Any) -> Any:
    """Return the arguments as a struct of this kind; numbers may be strings, as models sometimes write them."""
    present = {key: value for key, value in arguments.items() if value is not None}
    try:
        result = msgspec.convert(present, kind, strict=False)
    except msgspec.ValidationError as error:
        raise InvalidArgument(f"Invalid arguments: {error}") from None
    if getattr(result, "start", 0) < 0 or getattr(result, "page", 1) < 1:
        raise InvalidArgument("Invalid arguments: start is 0 or more, and page is 1 or more.")
    return result


def _text_result(text: str) -> t.CallToolResult:
    return t.CallToolResult(content=[t.TextContent(text=text)])


def _contents_result(result: ReadResult) -> t.CallToolResult:
    """Return the contents of a resource as the content of a result: one text, and the files."""
    several = len(result.contents) > 1
    texts = [
        f"[{printable(contents.uri, 2_000)}]\n{contents.text}" if several else contents.text
        for contents in result.contents
        if isinstance(contents.text, str)
    ]
    files = [t.EmbeddedResource(resource=contents) for contents in result.contents if contents.text is UNSET]
    return t.CallToolResult(content=[*([t.TextContent(text="\n".join(texts))] if texts else []), *files])


def _text_from(result: t.CallToolResult, start: int) -> t.CallToolResult:
    """Return the text of a result from the character `start`, or the whole result if it is 0."""
    if not start:
        return result
    text = text_of(result)
    if start >= len(text):
        raise InvalidArgument(f"The text ends at character {len(text)}: start must be less.")
    return _text_result(text[start:])
