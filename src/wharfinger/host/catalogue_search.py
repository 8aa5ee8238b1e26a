"""Searches a catalogue: the names of all entries, and the contents through each server's own search or ours.

- Names: titles and URIs are searched for the words, and ranked as in every search (`server.search_ranking`).
- A server's own search: its tool `search`, if it only reads and takes a `query`. It may return results in the form of
  ChatGPT's connectors, or resource links.
- Our search: the documents whose names fit best are read, within bounds. With `index=True` all documents are read
  once, into an index in a temporary folder.

Each search gives a list of hits, the best first. They are merged, and each list keeps its order: of the first remaining
hits of all lists, the one with the highest score is next. A hit of a server's own search is scored by its name and the
text that it shows.
"""

from __future__ import annotations

import asyncio
import heapq
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec
from msgspec import UNSET

from wharfinger import types as t
from wharfinger.client import Client
from wharfinger.content.decoded_json import as_list, as_object, is_object
from wharfinger.content.folding import fold
from wharfinger.content.match_lines import match_text
from wharfinger.content.mime import DIRECTORY
from wharfinger.content.search_query import Query
from wharfinger.content.text import printable
from wharfinger.errors import ResourceNotFound, WharfingerError
from wharfinger.host.catalogue_lists import CatalogueEntry, ServerList
from wharfinger.server.document_search import SearchBounds, SourceReader, search_documents
from wharfinger.server.search_ranking import FoundDocument, FoundHit, Ranking, is_prose, name_text, rarity
from wharfinger.source import Document, DocumentPage, Hit, Source, SourceUnavailable, version_of

__all__ = [
    "CatalogueHit",
    "CatalogueHits",
    "ListedDocuments",
    "RelatedEntry",
    "call_search_tool",
    "find_related",
    "hits_of_server",
    "merged",
    "search_documents_of",
    "search_names",
    "search_tool",
]

MAX_TOOL_RESULTS = 50
"""Maximum number of results of a server's search that are used."""
MAX_SNIPPET_CHARACTERS = 4_000
MAX_TITLE_CHARACTERS = 500
MAX_DESCRIPTION_CHARACTERS = 2_000
RANKED_FACTOR = 10
"""For each requested hit, this many entries are ranked by all rules."""
BOUNDS = SearchBounds(seconds=2.0, texts=200, characters=16 << 20)
"""Bounds for searching one server by reading it. Each text takes a request, so they are lower than in a server."""
_LINE_NUMBERS = re.compile(r"(?m)^\d{1,9}[:-] ?")
"""The numbers before the lines of a snippet."""
_WINDOW = re.compile(r"[?&](?:lines|bytes|tail)=")
"""The beginning of the part of a URI that names a window."""


class CatalogueHit(Hit, frozen=True, kw_only=True):
    """One result of a search of the catalogue."""

    server: str
    score: float = 0.0
    """A higher score is a better fit. Only the scores of one call of `search` can be compared."""

    @property
    def base(self) -> str:
        """The URI without the window that the search found."""
        match = _WINDOW.search(self.uri)
        return self.uri if match is None else self.uri[: match.start()]


class CatalogueHits(list[CatalogueHit]):
    """The results of a search, the best first."""

    notes: Sequence[str] = ()
    """Sentences about servers and contents that were not searched, and about words without hits."""


class RelatedEntry(NamedTuple):
    """An entry that shares words with a question."""

    share: float
    """The share of the question's words that its title, URI and description have, by their weight, from 0 to 1."""
    entry: CatalogueEntry


def find_related(
    lists: Sequence[ServerList], query: Query, limit: int, test: Callable[[CatalogueEntry], bool]
) -> tuple[list[RelatedEntry], Query]:
    """Return the entries that share most words with a query, and the query with a weight for each word.

    Words are looked up in the title, URI and description. A word that few entries have counts more. This may take long:
    call it in a thread.
    """
    counts, total = [0] * len(query.words), 0
    matches: list[tuple[CatalogueEntry, tuple[float, ...]]] = []
    for server_list in lists:
        total += len(server_list.keys)
        for entry in server_list.entries():
            text = name_text(entry.title, entry.uri)
            if entry.resource.description:
                text = f"{text}\n{entry.resource.description[:MAX_DESCRIPTION_CHARACTERS]}"
            folded = fold(text)
            has = [any(probe in folded for probe in word.probes) for word in query.words]
            if any(has):
                counts = [count + occurs for count, occurs in zip(counts, has, strict=True)]
                if test(entry):
                    matches.append((entry, query.match_name(text, folded)))
    weighted = query.weighted(rarity(count, total) for count in counts)
    # A word that no entry has gets weight 0, but counts in the total: else entries would seem to have all words.
    total_weight = (
        sum(word.weight or base.weight for word, base in zip(weighted.words, query.words, strict=True)) or 1.0
    )
    shares = (
        RelatedEntry(
            sum(word.weight * fit for word, fit in zip(weighted.words, fits, strict=True)) / total_weight, entry
        )
        for entry, fits in matches
    )
    return heapq.nlargest(limit, shares, key=lambda related: related.share), weighted


def search_names(
    lists: Sequence[ServerList], query: Query, limit: int, test: Callable[[CatalogueEntry], bool]
) -> list[list[CatalogueHit]]:
    """Return the entries of each server whose title or URI has words of the query, best first. Call it in a thread."""
    related, weighted = find_related(lists, query, RANKED_FACTOR * limit, test)
    rankings = {server_list.server: Ranking(weighted, limit) for server_list in lists}
    source = Source()
    for _, entry in related:
        name = name_text(entry.title, entry.uri)
        matches = query.match_name(name, fold(name))
        rankings[entry.server].add(FoundDocument(source, entry.uri, entry.title, entry.mime_type, matches, None))
    return [hits_of_server(server, ranking.hits(SourceReader(), 0.0)) for server, ranking in rankings.items()]


def hits_of_server(server: str, hits: Iterable[Hit]) -> list[CatalogueHit]:
    """Return the hits of a search as hits of this server."""
    return [
        CatalogueHit(
            server=server,
            uri=hit.uri,
            title=hit.title,
            snippet=hit.snippet,
            resource=hit.resource,
            score=hit.score if isinstance(hit, FoundHit) else 0.0,
        )
        for hit in hits
    ]


def merged(lists: Iterable[Sequence[CatalogueHit]], limit: int) -> list[CatalogueHit]:
    """Merge lists of hits that are ordered best first. Of several hits with the same server and URI, the first is kept.

    If a hit has no text, but another hit for the same resource has one, the text and the URI of the other hit are used.
    """
    waiting = [list(reversed(hits)) for hits in lists if hits]
    texts = {(hit.server, hit.base): hit for hits in waiting for hit in hits if hit.snippet}
    best_hits: dict[tuple[str, str], CatalogueHit] = {}
    while waiting and len(best_hits) < limit:
        best_list = max(waiting, key=lambda hits: hits[-1].score)
        hit = best_list.pop()
        if not best_list:
            waiting.remove(best_list)
        key = (hit.server, hit.uri if hit.snippet else hit.base)
        if not hit.snippet and (same := texts.get(key)) is not None:
            key, hit = (hit.server, same.uri), msgspec.structs.replace(same, score=max(hit.score, same.score))
        best_hits.setdefault(key, hit)
    return list(best_hits.values())


# A server's own search


def search_tool(tools: Iterable[t.Tool], name: str | None) -> t.Tool | None:
    """Return the tool with which a server is searched, or None if it has no such tool.

    Without a `name`, it is the tool `search`, if it is marked as one that only reads, and requires no argument but
    `query`. The mark is no guarantee, but it excludes tools that say that they change something.
    """
    for tool in tools:
        if name is not None:
            if tool.name == name:
                return tool
            continue
        schema: dict[str, Any] = tool.input_schema
        if (
            tool.name == "search"
            and tool.annotations is not UNSET
            and tool.annotations.read_only_hint is True
            and "query" in as_object(schema.get("properties"))
            and all(argument == "query" for argument in as_list(schema.get("required")))
        ):
            return tool
    return None


async def call_search_tool(
    server: str, client: Client, tool: str, query: Query, words: str
) -> tuple[list[CatalogueHit], str]:
    """Search a server with its own tool. Returns the hits in the tool's order, and its note, or an empty string.

    Raises:
        WharfingerError: the tool failed.
    """
    result = await client.call_tool(tool, {"query": words})
    hits: list[CatalogueHit] = []
    results = list(_listed_results(result.result)) or list(_linked_results(result.result))
    for uri, title, text in results[:MAX_TOOL_RESULTS]:
        if ":" not in uri:  # an identifier that is not a URI, so it cannot be read
            continue
        title, text = title[:MAX_TITLE_CHARACTERS] or uri, text[:MAX_SNIPPET_CHARACTERS]
        name = name_text(title, uri)
        matches = query.match_name(name, fold(name))
        ranking = Ranking(query, 1)
        match = match_text([_LINE_NUMBERS.sub("", text)], query, matches, prose=is_prose(title)) if text else None
        ranking.add(FoundDocument(Source(), uri, title, "", matches, match))
        score = max((hit.score for hit in ranking.hits(SourceReader(), 0.0) if isinstance(hit, FoundHit)), default=0.0)
        if hits:  # the server knows more than the text that it shows, so its order is kept
            score = min(score, hits[-1].score)
        hits.append(CatalogueHit(server=server, uri=uri, title=title, snippet=text, score=score))
    note = as_object(result.data).get("note")
    return hits, printable(note, 300) if isinstance(note, str) else ""


def _listed_results(result: t.CallToolResult) -> Iterator[tuple[str, str, str]]:
    """Yield the URI, title and text of each result in the form of ChatGPT's connectors."""
    data: Any = result.structured_content
    if not isinstance(data, dict):
        text = next((block.text for block in result.content if isinstance(block, t.TextContent)), "")
        try:
            data = msgspec.json.decode(text)
        except (msgspec.MsgspecError, RecursionError):
            return
    for each in as_list(as_object(data).get("results")):
        if is_object(each):
            texts = {key: value for key, value in each.items() if isinstance(value, str)}
            if uri := texts.get("uri") or texts.get("id") or texts.get("url") or "":
                yield uri, texts.get("title", ""), texts.get("text", "")


def _linked_results(result: t.CallToolResult) -> Iterator[tuple[str, str, str]]:
    """Yield the URI, title and description of each resource link."""
    for block in result.content:
        if isinstance(block, t.ResourceLink):
            yield block.uri, block.title or block.name, block.description or ""


# Our own search


class ListedDocuments(Source):
    """The listed resources of one server as a source, whose texts are read with a client."""

    def __init__(
        self, server_list: ServerList, read: Callable[[str], Awaitable[t.ReadResourceResult]], changes: int
    ) -> None:
        """`changes` counts the changes of the list: after one, documents without a version are read again."""
        self.name = self.uri = server_list.server
        self.list = server_list
        self.changes = changes
        self._read = read

    def matches(self, uri: str) -> bool:
        return False

    def documents(self, after: str | None, limit: int) -> DocumentPage:
        documents: list[Document] = []
        last = after or ""
        for entry in self.list.entries(last):
            if len(documents) == limit:
                return documents, last
            last = entry.uri
            if isinstance(resource := entry.resource, t.Resource) and resource.mime_type != DIRECTORY:
                documents.append(
                    Document(
                        uri=resource.uri,
                        title=entry.title,
                        version=_document_version(resource) or f"change {self.changes}",
                        mime_type=entry.mime_type,
                    )
                )
        return documents, None

    def stat(self, uri: str) -> t.Resource:
        resource = self.list.resources.get(uri)
        if resource is None:
            raise ResourceNotFound(uri)
        return resource

    async def text(self, uri: str) -> Sequence[str]:
        try:
            result = await self._read(uri)
        except ConnectionError as error:
            raise SourceUnavailable(str(error)) from error
        except WharfingerError:  # one resource that cannot be read does not end the search
            return ()
        return [content.text for content in result.contents if content.text is not UNSET]


def _document_version(resource: t.Resource) -> str:
    if version := version_of(resource):
        return version
    annotations = resource.annotations
    modified = UNSET if annotations is UNSET else annotations.last_modified
    return f"{modified} {resource.size}" if modified else ""


async def search_documents_of(source: ListedDocuments, words: str, limit: int) -> tuple[list[CatalogueHit], str]:
    """Search a server by reading its resources, within `BOUNDS`."""
    reader = SourceReader(asyncio.get_running_loop(), BOUNDS.seconds)
    try:
        hits = await asyncio.to_thread(search_documents, source, words, limit, reader, BOUNDS)
    finally:
        reader.stop()
    return hits_of_server(source.name, hits), " ".join(filter(None, (hits.remark, hits.truncated)))
