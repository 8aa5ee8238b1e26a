"""What was probably meant where a name is unknown; it refuses to know what the names are of."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterable
from contextlib import asynccontextmanager
from itertools import islice
from typing import Any

__all__ = ["choices", "nearest", "suggesting"]

MOST = 12
"""Names that are listed."""
COMPARED = 1000
"""Names of a server that are compared."""
URIS = 0.85
"""How like URIs must be, which begin alike anyway."""
SECONDS = 5.0
"""How long a server is asked for its names."""
LONGEST = 200
"""Characters of a name that are compared: peers choose names, and comparing takes the square of their length."""


def nearest(name: str, names: Iterable[str], cutoff: float = 0.6) -> str:
    """Return the name that is most like this one, empty if none is; `cutoff` from 0 to 1 says how like it must be."""
    from difflib import get_close_matches

    by_folded = {one[:LONGEST].casefold(): one for one in islice(names, COMPARED)}
    found = get_close_matches(name[:LONGEST].casefold(), by_folded, 1, cutoff)
    return by_folded[found[0]] if found else ""


def ending(name: str, uris: Iterable[str]) -> str:
    """Return the URI that ends with what is a path and no URI, empty if none does."""
    end = "/" + name.removeprefix("./").lstrip("/")
    return next((uri for uri in uris if uri.endswith(end)), "") if ":" not in name else ""


def choices(name: str, names: Iterable[str], there: str = "There is") -> str:
    """Say ` Did you mean 'x'?`, or list the names after `there`; empty if there are none. It begins with a blank."""
    known = list(dict.fromkeys(names))
    meant = nearest(name, known)
    if meant:
        return f" Did you mean {meant!r}?"
    if not known:
        return ""
    more = f", and {len(known) - MOST:,} more" if len(known) > MOST else ""
    return f" {there}: {', '.join(known[:MOST])}{more}."


@asynccontextmanager
async def suggesting(
    name: str, *lists: tuple[Callable[[], AsyncIterable[Any]], str], all_of_them: bool = True
) -> AsyncGenerator[None]:
    """Add to a request's error that nothing has this name which name was probably meant, else (`all_of_them`) all.

    Each list is a method of the client and the attribute that is the name. A server that does not answer is left alone.
    """
    from wharfinger.errors import RemoteInvalidParams, RemoteMethodNotFound, RemoteResourceNotFound, ToolError

    try:
        yield
    except (RemoteInvalidParams, RemoteMethodNotFound, RemoteResourceNotFound, ToolError) as error:
        if isinstance(error, ToolError) and not _UNKNOWN.search(str(error)):
            raise
        names = await _names(lists)
        if names and name not in names and name.partition("?")[0] not in names:  # a window of what is there
            meant = "" if all_of_them else ending(name, names) or nearest(name, names, URIS)
            advice = choices(name, names).strip() if all_of_them else f"Did you mean {meant!r}?" if meant else ""
            if advice:
                error.add_note(advice)
        raise


_UNKNOWN = re.compile(r"\b(?:unknown|not found|no such|does not exist)\b", re.IGNORECASE)
"""What servers say that report an unknown tool as the failure of a tool."""


async def _names(lists: Iterable[tuple[Callable[[], AsyncIterable[Any]], str]]) -> list[str]:
    """The first names of some lists; empty if they cannot be had."""
    import asyncio

    from wharfinger.errors import WharfingerError

    names: list[str] = []
    for listing, attribute in lists:
        try:
            async with asyncio.timeout(SECONDS):
                async for item in listing():
                    names.append(getattr(item, attribute))
                    if len(names) >= COMPARED:
                        break
        except (WharfingerError, TimeoutError):
            continue
    return names
