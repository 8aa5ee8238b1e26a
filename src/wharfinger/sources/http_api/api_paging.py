"""Finds the next page of an answer: by its `Link` header (RFC 8288), or by the members and parameters that APIs use.

The tables below have one row for each convention. A row with parameters applies only if the document declares one of
them for the operation, so nothing is sent that the API does not know. A link of the API is followed only within the
API.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from wharfinger.content.decoded_json import as_list, as_object
from wharfinger.net import join_url
from wharfinger.sources.http_api.api_operations import ApiOperation

__all__ = ["PAGE_NAMES", "PageLinks", "page_links", "read_links"]

MAX_PAGED_BYTES = 4 << 20
"""Largest answer whose members are read to find the next page."""
MAX_LINK_CHARACTERS = 16_384

PAGE_NAMES = frozenset(
    (
        "page", "cursor", "after", "before", "offset", "start", "skip", "marker", "continue", "since", "until",
        "page_token", "pageToken", "next_token", "nextToken", "continuation", "continuationToken", "starting_after",
        "ending_before", "start_cursor", "per_page", "page_size", "pageSize", "limit", "$skip", "$skiptoken",
        "page[number]", "page[size]", "page[cursor]", "page[offset]", "page[limit]", "page[after]", "page[before]",
    )
)  # fmt: skip
"""Parameters of pages that a link of the API may have although the document does not declare them."""

_URLS: tuple[tuple[str, ...], ...] = (
    ("next",), ("next_url",), ("next_page_url",), ("next_page_uri",), ("nextPage",), ("nextLink",),
    ("@odata.nextLink",), ("links", "next"), ("links", "next", "href"), ("_links", "next"), ("_links", "next", "href"),
    ("paging", "next"), ("pagination", "next"), ("pagination", "next_url"), ("meta", "next"), ("next_page", "uri"),
    ("links", "pages", "next"),
)  # fmt: skip
"""Members with the URL of the next page."""
_CURSORS: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = (
    (("next_cursor",), ("cursor", "start_cursor", "next_cursor", "after")),
    (("nextCursor",), ("cursor", "nextCursor", "after")),
    (("cursor",), ("cursor",)),
    (("next_page_token",), ("page_token", "next_page_token")),
    (("nextPageToken",), ("pageToken", "nextPageToken")),
    (("next_token",), ("next_token", "pagination_token")),
    (("nextToken",), ("nextToken",)),
    (("continuationToken",), ("continuationToken", "continuation")),
    (("metadata", "continue"), ("continue",)),
    (("response_metadata", "next_cursor"), ("cursor",)),
    (("meta", "next_cursor"), ("cursor", "page[cursor]")),
    (("meta", "next_token"), ("pagination_token", "next_token")),
    (("pagination", "next_cursor"), ("cursor", "page[cursor]")),
    (("pagination", "cursor"), ("cursor", "after")),
    (("paging", "cursors", "after"), ("after",)),
    (("paging", "next", "after"), ("after",)),
    (("cursors", "after"), ("after",)),
    (("next_page", "offset"), ("offset",)),
    (("next_page",), ("page",)),
    (("meta", "next_page"), ("page", "page[number]")),
    (("pagination", "next_page"), ("page",)),
)
"""Members with the position of the next page, and the parameters that take it."""
_LISTS = ("items", "data", "results", "records", "entries", "values", "value", "content", "objects")
"""Members with the items of a page."""
_SIZES = ("per_page", "page_size", "pageSize", "limit", "count", "size", "$top", "top", "page[size]", "page[limit]")
"""Parameters with the number of items of a page."""
_NUMBERS = ("page", "page_number", "pageNumber", "page[number]")
"""Parameters with the number of a page."""
_OFFSETS = ("offset", "skip", "start", "$skip", "page[offset]")
"""Parameters with the number of items before a page."""
_LAST_ITEMS = ("starting_after",)
"""Parameters that take the `id` of the last item, for APIs whose answers have `has_more`."""

_PAGE_RELATIONS = frozenset(("first", "prev", "previous", "last"))
"""Relations that show that the API links its pages in the header, so that a page without `next` is the last one."""

Pairs = Sequence[tuple[str, str]]


class PageLinks(NamedTuple):
    """The places of the next and the previous page: a URL that the API sent, or parameters to replace in the query."""

    next_url: str = ""
    next_pairs: Mapping[str, str] = {}
    previous_url: str = ""


def page_links(operation: ApiOperation, pairs: Pairs, link: str, body: bytes, mime_type: str, url: str) -> PageLinks:
    """Return the places of the pages before and after this one.

    Args:
        operation: The operation that answered.
        pairs: The query of the request.
        link: The `Link` header of the answer.
        body: The answer.
        mime_type: The type of the answer.
        url: The URL of the request, to which links are relative.
    """
    relations = read_links(link)
    previous = relations.get("prev") or relations.get("previous") or ""
    links = PageLinks(previous_url=join_url(url, previous) if previous else "")
    if "next" in relations:
        return links._replace(next_url=join_url(url, relations["next"]))
    if relations.keys() & _PAGE_RELATIONS or "json" not in mime_type or not 2 < len(body) <= MAX_PAGED_BYTES:
        return links
    try:
        value: Any = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return links
    declared = {parameter.name for parameter in operation.parameters_in("query")}
    if isinstance(value, dict):
        for path in _URLS:
            target = _at(value, path)
            if isinstance(target, str) and target.startswith(("http://", "https://", "/", "?")):
                return links._replace(next_url=join_url(url, target))
        for path, parameters in _CURSORS:
            cursor = _at(value, path)
            name = next((each for each in parameters if each in declared), "")
            if name and isinstance(cursor, (str, int)) and not isinstance(cursor, bool) and cursor != "":
                if dict(pairs).get(name) == str(cursor):  # the position of this page, not of the next one
                    continue
                return links._replace(next_pairs={name: str(cursor)})
    return links._replace(next_pairs=_pairs_without_link(operation, pairs, value, declared))


def _pairs_without_link(operation: ApiOperation, pairs: Pairs, value: Any, declared: set[str]) -> dict[str, str]:
    """Return the parameters of the next page if `has_more` or a full page shows that there is one; otherwise none."""
    members = as_object(value)
    lists = [as_list(value), *(as_list(members.get(name)) for name in _LISTS)]
    items = max(lists, key=bool)  # the first list that is not empty
    if not items:
        return {}
    item_count = len(items)
    query = dict(pairs)
    if members.get("has_more") is False:
        return {}
    if members.get("has_more") is True:
        last = as_object(items[-1]).get("id")
        name = next((each for each in _LAST_ITEMS if each in declared), "")
        if name and isinstance(last, (str, int)):
            return {name: str(last)}
    defaults = {parameter.name: parameter.schema.get("default") for parameter in operation.parameters_in("query")}
    size_name = next((each for each in _SIZES if each in declared), "")
    size = _number(query.get(size_name, defaults.get(size_name)))
    if not size_name or size is None or item_count < size:
        return {}
    for name in _NUMBERS:
        first = 1 if defaults.get(name) is None else defaults[name]  # some APIs begin with page 0
        if name in declared and (current := _number(query.get(name, first))) is not None:
            return {name: str(current + 1)}
    for name in _OFFSETS:
        if name in declared and (current := _number(query.get(name, defaults.get(name) or 0))) is not None:
            return {name: str(current + item_count)}
    return {}


def _number(value: Any) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    return int(value) if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 16 else None


def _at(value: Any, path: Sequence[str]) -> Any:
    for name in path:
        value = as_object(value).get(name)
    return value


def read_links(header: str) -> dict[str, str]:
    """Return the targets in a `Link` header (RFC 8288 §3) by their relation, the first one for each relation."""
    links: dict[str, str] = {}
    text = header[:MAX_LINK_CHARACTERS]
    position = 0
    while (begin := text.find("<", position)) >= 0 and (end := text.find(">", begin)) >= 0:
        target = text[begin + 1 : end].strip()
        parameters, position = _parameters(text, end + 1)
        for relation in parameters.get("rel", "").lower().split():
            links.setdefault(relation, target)
    return links


def _parameters(text: str, position: int) -> tuple[dict[str, str], int]:
    """Read the parameters of one link. Returns them, and the position after the comma that ends it."""
    parameters: dict[str, str] = {}
    part: list[str] = []
    quoted = False
    while position < len(text):
        character = text[position]
        position += 1
        if character == '"':
            quoted = not quoted
        elif quoted or character not in ",;":
            part.append(character)
            continue
        if quoted or character == '"':
            continue
        _keep(parameters, "".join(part))
        part = []
        if character == ",":
            return parameters, position
    _keep(parameters, "".join(part))
    return parameters, position


def _keep(parameters: dict[str, str], part: str) -> None:
    name, equals, value = part.partition("=")
    if equals:
        parameters.setdefault(name.strip().lower(), value.strip())
