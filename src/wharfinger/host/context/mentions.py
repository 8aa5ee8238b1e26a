"""Mentions of resources in a question: `@tides.csv`, `@docs:policy.md`, `@file:///docs/policy.md`, `@"my file.md"`.

A mention is the URI, title or name of a resource, or the end of one of these after a slash. The name of the server and
a colon may come before it. It must fit exactly one resource, or else the error names those that fit.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from urllib.parse import unquote

from wharfinger.content.folding import fold
from wharfinger.content.text import printable
from wharfinger.errors import InvalidArgument
from wharfinger.host.catalogue import Catalogue
from wharfinger.host.catalogue_lists import CatalogueEntry
from wharfinger.host.context.choices import Choice

__all__ = ["ResourceNames", "UnknownMention", "choice_of", "find_mentions", "mention_of", "mention_text"]

MAX_MENTIONS = 100
"""Maximum number of mentions in one question; the rest is ignored."""
MAX_NAMED = 5
"""Maximum number of resources that an error names."""

_MENTION = re.compile(r'(?<![\w@.])@(?:"([^"\n]{1,2000})"|([^\s@"]{1,2000}))')


class UnknownMention(InvalidArgument):
    """No resource fits a mention."""


def find_mentions(text: str) -> list[str]:
    """Return the mentions in a text, without the `@`, each once. A word with an `@` inside is not a mention.

    Punctuation after a mention belongs to the sentence.
    """
    mentions = (quoted or bare.rstrip(".,;:!?)]}'") for quoted, bare in _MENTION.findall(text))
    return list(dict.fromkeys(mention for mention in mentions if mention))[:MAX_MENTIONS]


def mention_of(entry: CatalogueEntry) -> str:
    """Return an unambiguous mention of an entry, with the `@`."""
    return _mention(entry.server, entry.uri)


def _mention(server: str, uri: str) -> str:
    return mention_text(f"{server}:{printable(uri, 2_000)}")


def mention_text(name: str) -> str:
    """Return a mention with the `@`, in quotes if it would otherwise end before the end of the name."""
    return f'@"{name}"' if re.search(r"[\s\"@]", name) or name[-1] in ".,;:!?)]}'" else f"@{name}"


class ResourceNames:
    """The names that mentions may use. They are collected once for all mentions in a question, in a thread."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._by_server: dict[str, list[tuple[CatalogueEntry, list[str]]]] = {}

    async def fitting(self, name: str, server: str) -> list[CatalogueEntry]:
        """Return the entries whose URI, title or name equals `name`, or else those that end with it."""
        if server not in self._by_server:
            entries = await self._catalogue.entries(server=server, templates=False)
            self._by_server[server] = await asyncio.to_thread(_folded_names, entries)
        return await asyncio.to_thread(_fitting, self._by_server[server], fold(name))


async def choice_of(
    catalogue: Catalogue, mention: str, servers: Sequence[str], names: ResourceNames | None = None
) -> Choice:
    """Return the resource that a URI or a mention names. Pass the same `names` for all mentions in a question.

    Raises:
        UnknownMention: nothing fits.
        InvalidArgument: several resources fit; the error names them.
    """
    text = mention.removeprefix("@").strip('"')
    server, rest = _split_server(text, servers)
    reason = "chosen by the user"
    uri, owners = rest, await catalogue.servers_of(rest, server=server) if ":" in rest else []
    if server and not rest:
        raise UnknownMention(f"@{server} names a server: add a resource, such as @{server}:name.")
    fitting = [] if owners else await (names or ResourceNames(catalogue)).fitting(rest, server)
    if len(fitting) == 1:
        return Choice(fitting[0].uri, fitting[0].server, reason)
    if server and not owners and not fitting:  # the name of a server may also be the scheme of a URI
        uri, owners = text, await catalogue.servers_of(text)
    if len(owners) > 1:
        suggestions = ", ".join(_mention(name, uri) for name in owners[:MAX_NAMED])
        raise InvalidArgument(f"Several servers have {printable(uri)!r}: write {suggestions}.")
    if owners:
        return Choice(uri, owners[0], reason)
    if not fitting:
        raise UnknownMention(f"No resource fits @{printable(text)}: use a URI, or the end of a path, as it is listed.")
    suggestions = ", ".join(mention_of(entry) for entry in fitting[:MAX_NAMED])
    more = f" and {len(fitting) - MAX_NAMED:,} more" if len(fitting) > MAX_NAMED else ""
    raise InvalidArgument(f"@{printable(text)} fits several resources: {suggestions}{more}. Write one of these.")


def _split_server(text: str, servers: Sequence[str]) -> tuple[str, str]:
    """Return the server that a mention begins with, or an empty string, and the rest."""
    for name in sorted(servers, key=len, reverse=True):  # a name may have a colon, too
        rest = text.removeprefix(f"{name}:")
        if rest != text and not rest.startswith("//"):
            return name, rest
    return (text, "") if text in servers else ("", text)


def _folded_names(entries: Sequence[CatalogueEntry]) -> list[tuple[CatalogueEntry, list[str]]]:
    return [
        (entry, [fold(text) for text in (entry.uri, unquote(entry.uri), entry.title, entry.resource.name)])
        for entry in entries
    ]


def _fitting(names: Sequence[tuple[CatalogueEntry, list[str]]], folded_name: str) -> list[CatalogueEntry]:
    """Return the entries with this name, or else those with a name that ends with it after a slash."""
    exact = [entry for entry, entry_names in names if folded_name in entry_names]
    ending = "/" + folded_name
    return exact or [
        entry for entry, entry_names in names if any(entry_name.endswith(ending) for entry_name in entry_names)
    ]
