"""The default selection: rules about match, priority, recency and audience.

    score = match x (1 + 0.3 x (priority - 0.5) + 0.1 x recency)

*match* is the score of a resource, relative to the best score, when the names and contents of the catalogue are
searched for the question. A search leaves out resources that share few words with the question if others share more.
The match of such a resource is 0.8 times the share of the question's words that its title, URI and description have;
a rare word counts more. *priority* is given by the server's annotation, by default 0.5. *recency* is 1 for a resource
that changed now, and halves every 30 days. Resources for the user alone, directories, and resources that are not text
are left out. A resource of priority 1, which the specification calls required, is included even if it does not match,
if the budget has room.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import islice

from wharfinger import types as t
from wharfinger.content.mime import DIRECTORY
from wharfinger.content.text import many
from wharfinger.host.catalogue import Catalogue
from wharfinger.host.catalogue_lists import CatalogueEntry, modified_at
from wharfinger.host.catalogue_search import CatalogueHit
from wharfinger.host.context.choices import Choice, Choices, ContextRequest, Select
from wharfinger.server.document_search import MEDIA_TYPES

__all__ = ["rules"]

MAX_CHOICES = 24
"""Maximum number of resources that the rules choose by default, besides the required ones."""
HITS_PER_CHOICE = 2
"""Hits that a search requests for each choice: a long resource may have several."""
MAX_REQUIRED = 3
REQUIRED_WEIGHT = 0.05
"""The weight of a resource that is included only because its server marks it as required."""
WEIGHT_LOSS = 0.25
"""The weight of a choice is 1 / (1 + WEIGHT_LOSS x its rank): the fifth gets half as much as the first."""
RELATED_FACTOR = 0.8
"""Factor for the match of a resource that the search left out, but that shares words with the question."""
PRIORITY_WEIGHT, RECENCY_WEIGHT = 0.3, 0.1
USUAL_PRIORITY = 0.5
HALF_LIFE_DAYS = 30.0
MIN_MATCH = 0.1
"""A resource with less than this share of the best match is left out."""
_NOT_TEXT = (*MEDIA_TYPES, "application/zip", "application/gzip", "application/octet-stream", "application/pdf")
_LINE_NUMBER = re.compile(r"(?m)^(\d{1,9}):")


def rules(
    *,
    limit: int = MAX_CHOICES,
    priority: float = PRIORITY_WEIGHT,
    recency: float = RECENCY_WEIGHT,
    half_life_days: float = HALF_LIFE_DAYS,
    required: int = MAX_REQUIRED,
    contents: bool = True,
    adjust: Callable[[CatalogueEntry, float], float] | None = None,
) -> Select:
    """Return the default selection, or a changed one: `await host.context(question, select=rules(recency=1.0))`.

    Args:
        limit: Maximum number of resources to choose, 1 to 500, besides the required ones.
        priority: The weight of the priority beside the match; 0 ignores it.
        recency: The weight of the date; 0 ignores it.
        half_life_days: The recency of a resource halves in this time.
        required: Maximum number of resources of priority 1 that are included even if they do not match.
        contents: Whether contents are searched too. If False, no word of the question is sent to a server.
        adjust: Called with each entry and its score, and returns another score; 0 leaves the entry out.
    """

    async def select(request: ContextRequest) -> Choices:
        catalogue, question, now = request.catalogue, request.question, datetime.now(UTC)
        hits = await catalogue.search(question, limit=HITS_PER_CHOICE * limit, contents=contents)
        grouped: dict[tuple[str, str], list[CatalogueHit]] = {}
        for hit in hits:
            grouped.setdefault((hit.server, hit.base), []).append(hit)
        best = max((hit.score for hit in hits), default=0.0) or 1.0
        candidates: list[tuple[float, CatalogueEntry, list[CatalogueHit]]] = []
        for found in grouped.values():
            entry = await _entry(catalogue, found[0])
            candidates.append((max(hit.score for hit in found) / best, entry, found))
        for share, entry in await catalogue.related(question, limit=2 * limit):
            if (entry.server, entry.uri) not in grouped:
                candidates.append((RELATED_FACTOR * share, entry, []))
        scored: list[tuple[float, Choice]] = []
        for match, entry, found in candidates:
            if match < MIN_MATCH or not is_for_models(entry):
                continue
            modified = modified_at(entry)
            days = None if modified is None else max(0.0, (now - modified).total_seconds() / 86_400)
            recency_score = 0.5 ** (days / half_life_days) if days is not None else 0.0
            entry_priority = USUAL_PRIORITY if entry.priority is None else entry.priority
            score = match * (1 + priority * (entry_priority - USUAL_PRIORITY) + recency * recency_score)
            if adjust is not None and (score := adjust(entry, score)) <= 0:
                continue
            found_lines = tuple(int(number) for hit in found for number in _LINE_NUMBER.findall(hit.snippet))
            windows = tuple(hit.uri for hit in found if hit.uri != entry.uri)
            reason = _reason(match, entry, days, found, found_lines)
            scored.append((score, Choice(entry.uri, entry.server, reason, windows=windows, found_lines=found_lines)))
        scored.sort(key=lambda row: -row[0])
        ranked = enumerate(choice for _, choice in scored[:limit])
        choices = Choices(choice._replace(weight=1 / (1 + WEIGHT_LOSS * rank)) for rank, choice in ranked)
        choices.notes = hits.notes
        await _add_required(choices, catalogue, required)
        return choices

    return select


async def _add_required(choices: Choices, catalogue: Catalogue, limit: int) -> None:
    """Add the resources of priority 1 that were not chosen, at most `limit`."""
    if limit < 1:
        return
    chosen = {(choice.server, choice.uri) for choice in choices if isinstance(choice, Choice)}
    entries = await catalogue.entries(min_priority=1.0, audience="assistant", templates=False)
    missing = (entry for entry in entries if (entry.server, entry.uri) not in chosen and is_for_models(entry))
    for entry in islice(missing, limit):
        reason = "its server marks it as required (priority 1)"
        choices.append(Choice(entry.uri, entry.server, reason, weight=REQUIRED_WEIGHT))


async def _entry(catalogue: Catalogue, hit: CatalogueHit) -> CatalogueEntry:
    """Return the listed entry of a hit; if the server does not list it, an entry made from the hit."""
    for uri in (hit.base, hit.uri):
        if entries := await catalogue.find(uri, server=hit.server):
            return entries[0]
    return CatalogueEntry(hit.server, t.Resource(uri=hit.base, name=hit.title))


def is_for_models(entry: CatalogueEntry) -> bool:
    """Return whether an entry is a text that is not meant for the user alone."""
    if entry.is_template or entry.mime_type == DIRECTORY or (entry.audience and "assistant" not in entry.audience):
        return False
    return not entry.mime_type.startswith(_NOT_TEXT) or entry.mime_type == "image/svg+xml"


def _reason(
    match: float, entry: CatalogueEntry, days: float | None, found: list[CatalogueHit], found_lines: tuple[int, ...]
) -> str:
    """Return why an entry was chosen: `matches the question (82% of the best match) in line 12; priority 0.7`."""
    parts = [f"matches the question ({match:.0%} of the best match)"]
    if found_lines:
        parts[0] += f" in {'line' if len(found_lines) == 1 else 'lines'} {', '.join(map(str, sorted(found_lines)[:5]))}"
    elif not any(hit.snippet for hit in found):
        parts[0] += " in its title, URI or description"
    if entry.priority is not None:
        parts.append(f"priority {entry.priority:g}")
    if days is not None and days < 2:
        hours = round(days * 24)
        parts.append(f"changed {many(hours, 'hour')} ago" if hours else "changed less than an hour ago")
    elif days is not None:
        parts.append(f"changed {many(round(days), 'day')} ago")
    return "; ".join(parts)
