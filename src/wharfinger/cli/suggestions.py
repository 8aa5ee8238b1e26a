"""Suggestions for names that do not exist."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterable
from contextlib import asynccontextmanager
from itertools import islice
from typing import Any

__all__ = ["name_suggestion", "nearest", "suggest_names"]

LISTED_NAMES = 12
"""Maximum number of names that a suggestion lists if none is similar."""
COMPARED_NAMES = 1000
"""Maximum number of names that are compared."""
NAME_SIMILARITY = 0.6
URI_SIMILARITY = 0.85
"""Higher than for names, because the URIs of a server begin alike."""
LIST_SECONDS = 5.0
"""Seconds to wait for a server's names."""
NAME_CHARACTERS = 200
"""Characters of a name that are compared: servers choose names, and the cost grows with the square of the length."""


def nearest(name: str, names: Iterable[str], cutoff: float = NAME_SIMILARITY) -> str:
    """Return the name most similar to this one, or an empty string. `cutoff` is the minimum similarity, from 0 to 1."""
    from difflib import get_close_matches

    by_folded = {known[:NAME_CHARACTERS].casefold(): known for known in islice(names, COMPARED_NAMES)}
    matches = get_close_matches(name[:NAME_CHARACTERS].casefold(), by_folded, 1, cutoff)
    return by_folded[matches[0]] if matches else ""


def uri_ending_with(path: str, uris: Iterable[str]) -> str:
    """Return the first URI that ends with this path; an empty string if no URI does, or if the path is a URI itself."""
    end = "/" + path.removeprefix("./").lstrip("/")
    return next((uri for uri in uris if uri.endswith(end)), "") if ":" not in path else ""


def name_suggestion(name: str, names: Iterable[str], intro: str = "There is") -> str:
    """Return ` Did you mean 'x'?` or the names after `intro`, with a leading space. Without names, it is empty."""
    distinct = list(dict.fromkeys(names))
    suggestion = nearest(name, distinct)
    if suggestion:
        return f" Did you mean {suggestion!r}?"
    if not distinct:
        return ""
    more = f", and {len(distinct) - LISTED_NAMES:,} more" if len(distinct) > LISTED_NAMES else ""
    return f" {intro}: {', '.join(distinct[:LISTED_NAMES])}{more}."


@asynccontextmanager
async def suggest_names(
    name: str, *lists: tuple[Callable[[], AsyncIterable[Any]], str], list_all: bool = True
) -> AsyncGenerator[None]:
    """Add a suggestion to the error of a request whose name the server does not know.

    `lists` are pairs: a method of the client that lists items, and the attribute of an item that contains its name. If
    no name is similar, the first names are listed. Without `list_all`, the names are URIs, and none are listed. Names
    that do not arrive in time are not considered.
    """
    from wharfinger.errors import RemoteInvalidParams, RemoteMethodNotFound, RemoteResourceNotFound, ToolError

    try:
        yield
    except (RemoteInvalidParams, RemoteMethodNotFound, RemoteResourceNotFound, ToolError) as error:
        if "Did you mean" in str(error) or (isinstance(error, ToolError) and not UNKNOWN.search(str(error))):
            raise
        names = await list_names(lists)
        # A window of an existing resource is not an unknown name.
        if names and name not in names and name.partition("?")[0] not in names:
            if list_all:
                advice = name_suggestion(name, names).strip()
            else:
                uri = uri_ending_with(name, names) or nearest(name, names, URI_SIMILARITY)
                advice = f"Did you mean {uri!r}?" if uri else ""
            if advice:
                error.add_note(advice)
        raise


UNKNOWN = re.compile(r"\b(?:unknown|not found|no such|does not exist)\b", re.IGNORECASE)
"""Matches the messages of servers that report an unknown tool as a failure of the tool."""


async def list_names(lists: Iterable[tuple[Callable[[], AsyncIterable[Any]], str]]) -> list[str]:
    """Return the first names of some lists. Of a list that fails or takes too long, it returns those that arrived."""
    import asyncio

    from wharfinger.errors import WharfingerError

    names: list[str] = []
    for listing, attribute in lists:
        try:
            async with asyncio.timeout(LIST_SECONDS):
                async for item in listing():
                    names.append(getattr(item, attribute))
                    if len(names) >= COMPARED_NAMES:
                        break
        except (WharfingerError, TimeoutError):
            continue
    return names
