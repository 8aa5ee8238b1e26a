"""Builds a context: resolves the choices, reads the resources, leaves out duplicates, and divides the budget.

The budget is divided by the weights of the choices. A resource that is smaller than its share takes only its size, and
the rest is divided among the others again, so that short resources leave their share to a long one. Of a resource that
is larger than its share, the windows that fit the question best are taken (`text_windows`). If the share is too small
for a useful window, the resource is left out; of several such resources, the one with the lowest weight first.
"""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, cast

import msgspec
from msgspec import UNSET

from wharfinger import types as t
from wharfinger.content.search_query import MAX_QUERY_CHARACTERS, Query, query_of
from wharfinger.content.text import many, printable, size_text
from wharfinger.errors import InvalidArgument, ResourceNotFound, WharfingerError
from wharfinger.host.catalogue import Catalogue
from wharfinger.host.catalogue_lists import CatalogueEntry
from wharfinger.host.context.choices import Choice, ContextRequest, Select
from wharfinger.host.context.context_blocks import Block, ContextBlocks, LeftOut, block_text, lines_text
from wharfinger.host.context.mentions import ResourceNames, UnknownMention, choice_of, find_mentions
from wharfinger.host.context.selection_rules import rules
from wharfinger.host.context.text_windows import Segment, cut_windows, whole_text
from wharfinger.host.context.token_counts import CountTokens, estimate_tokens, file_tokens
from wharfinger.source import VERSION
from wharfinger.sources.windows.window import NEXT, SUMMARY, WINDOW, is_continuation

__all__ = ["DEFAULT_BUDGET", "build_context"]

DEFAULT_BUDGET = 8_000
"""The default number of tokens of a context."""
MAX_BUDGET = 10_000_000
MAX_CHOICES = 200
"""Maximum number of resources that are read for one context. Further choices are left out."""
CONCURRENT_READS = 16
READ_SECONDS = 15.0
"""Longest time for reading one resource."""
MAX_TEXT_CHARACTERS = 512 << 10
"""No further window of a resource is read after this many characters, and a longer window is cut. Of a resource with
more bytes than this, only the windows that a search found are read, if there are any."""
MAX_FILE_BYTES = 3_750_000
"""Maximum bytes of an image or document: 5 MB in base64, which all APIs take."""
MAX_WINDOWS = 3
"""Maximum number of windows of one large resource that are read."""
MIN_WEIGHT = 1e-6
"""The weight of a choice of weight 0, which gets what the others leave."""
MAX_FITTING_ATTEMPTS = 6
"""Maximum number of times that windows are cut for one block: its header depends on them, and takes tokens, too."""
MIN_TOKENS = 80
"""Minimum number of tokens of a window. A resource that gets fewer is left out, unless it is shorter than that."""
_FILES = ("image/", "audio/", "video/", "application/pdf")
_LINES = re.compile(r"[?&]lines=(\d{1,9})-")


class _Reading(NamedTuple):
    """The content that was read for a choice."""

    choice: Choice
    title: str
    mime_type: str
    version: str
    segments: tuple[Segment, ...]
    data: bytes
    digest: str
    remark: str
    """A sentence about the part that was not read; empty if there is no such part."""


class _Unread(NamedTuple):
    """Why a choice has no content for the context."""

    reason: str
    gone: bool = False
    """Whether the resource does not exist, or may not be read."""
    temporary: bool = False
    """Whether the server could not be asked, so that another attempt may succeed."""


async def build_context(
    catalogue: Catalogue,
    question: str,
    *,
    budget: int = DEFAULT_BUDGET,
    select: Sequence[str] | Select | None = None,
    count_tokens: CountTokens | None = None,
) -> ContextBlocks:
    """Return the context for a question, with at most `budget` tokens.

    Args:
        catalogue: The resources to choose from.
        question: The question for the model. Without `select`, the resources that it mentions (`@name`) are chosen or,
            if it mentions none, those that the rules choose.
        budget: Maximum number of tokens of all blocks together, with their headers.
        select: URIs or mentions, or a function such as `rules()` and `select_with(model)`.
        count_tokens: Counts the tokens of a text; by default, they are estimated.

    Raises:
        InvalidArgument: the budget is out of bounds, or a mention fits no resource, or several.
    """
    if not MIN_TOKENS <= budget <= MAX_BUDGET:
        raise InvalidArgument(f"budget is {budget}: give a number of tokens from {MIN_TOKENS} to {MAX_BUDGET:,}.")
    building = _Building(catalogue, question, budget, count_tokens or estimate_tokens)
    choices = await building.choose(select)
    readings = await building.read(choices)
    blocks = building.make_blocks(readings)
    kept = {(block.server, block.uri) for block in blocks}
    readings_by_key = {
        key: reading for reading in readings if (key := (reading.choice.server, reading.choice.uri)) in kept
    }
    context = ContextBlocks(
        question,
        blocks,
        budget=budget,
        left_out=building.left_out,
        notes=building.notes,
        estimated=count_tokens is None,
        refresh=lambda: building.refresh(context, readings_by_key),
    )
    return context


class _Building:
    """The state of building one context."""

    def __init__(self, catalogue: Catalogue, question: str, budget: int, count: CountTokens) -> None:
        self.catalogue = catalogue
        self.question = question
        self.query: Query = query_of(question[:MAX_QUERY_CHARACTERS])
        self.budget = budget
        self.count = count
        self.left_out: list[LeftOut] = []
        self.notes: list[str] = []
        self._limit = asyncio.Semaphore(CONCURRENT_READS)
        self._refreshing = asyncio.Lock()

    # Choosing

    async def choose(self, select: Sequence[str] | Select | None) -> list[Choice]:
        """Return the choices, each with its server, without duplicates."""
        names = ResourceNames(self.catalogue)
        chosen: Iterable[Choice | str] = await self._mentioned(names) if select is None else ()
        if select is None and not chosen:
            select = rules()
        if callable(select):
            request = ContextRequest(self.question[:MAX_QUERY_CHARACTERS], self.catalogue, self.budget)
            selected = select(request)
            chosen = await selected if inspect.isawaitable(selected) else selected
            self.notes += list(getattr(chosen, "notes", ()))
        elif select is not None:
            chosen = [select] if isinstance(select, str) else select
        servers = self.catalogue.servers
        choices: dict[tuple[str, str], Choice] = {}
        for each in chosen:
            choice = each if isinstance(each, Choice) else await choice_of(self.catalogue, each, servers, names)
            if not choice.server:
                found_choice = await choice_of(self.catalogue, choice.uri, servers, names)
                choice = choice._replace(server=found_choice.server, uri=found_choice.uri)
            key = (choice.server, choice.uri)
            if key not in choices and len(choices) == MAX_CHOICES:
                self._leave_out(choice, f"more than {MAX_CHOICES} resources were chosen")
            else:
                choices.setdefault(key, choice)
        return list(choices.values())

    async def _mentioned(self, names: ResourceNames) -> list[Choice]:
        """Return the resources that the question mentions. Other mentions, such as those of people, are only text."""
        choices: list[Choice] = []
        for mention in find_mentions(self.question):
            with suppress(UnknownMention):
                choices.append(await choice_of(self.catalogue, mention, self.catalogue.servers, names))
        return choices

    # Reading

    async def read(self, choices: Sequence[Choice]) -> list[_Reading]:
        """Read the choices side by side. Leaves out those that cannot be read, and those with equal contents."""
        results = await asyncio.gather(*(self._read(choice) for choice in choices))
        readings: list[_Reading] = []
        seen: dict[str, Choice] = {}
        for choice, reading in zip(choices, results, strict=True):
            if isinstance(reading, _Unread):
                self._leave_out(choice, reading.reason)
            elif (same := seen.setdefault(reading.digest, choice)) is not choice:
                self._leave_out(choice, f"it has the same content as {printable(same.uri, 200)}")
            else:
                readings.append(reading)
        return readings

    async def _read(self, choice: Choice, *, bypass_cache: bool = False) -> _Reading | _Unread:
        """Return the content of a choice."""
        try:
            async with self._limit, asyncio.timeout(READ_SECONDS):
                entries = await self.catalogue.find(choice.uri, server=choice.server)
                return await self._read_entry(choice, entries[0] if entries else None, bypass_cache)
        except ResourceNotFound:
            return _Unread("it does not exist, or may not be read", gone=True)
        except WharfingerError as error:  # also a RequestTimeout, which is a TimeoutError too
            return _Unread(f"it cannot be read: {printable(str(error), 200)}", temporary=True)
        except TimeoutError:
            return _Unread(f"it could not be read within {READ_SECONDS:g} s", temporary=True)

    async def _read_entry(self, choice: Choice, entry: CatalogueEntry | None, bypass_cache: bool) -> _Reading | _Unread:
        size = getattr(entry.resource, "size", None) if entry is not None else None
        large = isinstance(size, int) and size > MAX_TEXT_CHARACTERS
        uris = choice.windows[:MAX_WINDOWS] if large and choice.windows else (choice.uri,)
        segments: list[Segment] = []
        contents: list[t.ResourceContents] = []
        remark = ""
        for uri in uris:
            found, next_remark = await self._read_windows(uri, choice.server, bypass_cache)
            contents += found
            segments += _segments(uri, found)
            remark = remark or next_remark
        if not contents:
            return _Unread("it has no content")
        first = contents[0]
        kind = first.mime_type or (entry.mime_type if entry is not None else "")
        data = b""
        if not segments:
            data = bytes(first.blob or b"")
            stated_size = _window(first).get("size")
            whole_size = stated_size if isinstance(stated_size, int) else len(data)
            if not kind.startswith(_FILES):
                return _Unread(f"it is not text: {printable(kind) or 'data'}, {size_text(whole_size)}")
            if whole_size > MAX_FILE_BYTES:
                size_limit = f"at most {size_text(MAX_FILE_BYTES)} can be sent"
                return _Unread(f"it is a file of {size_text(whole_size)}, and {size_limit}")
            if remark or whole_size > len(data):
                return _Unread("it is a file, and only a part of it can be read at once")
        elif not any(segment.text.strip() for segment in segments):
            return _Unread("it is empty")
        digest = hashlib.sha256(data)
        for segment in segments:
            digest.update(f"\0{segment.first}\0{segment.text}".encode("utf-8", "surrogatepass"))
        version: object = _meta(first).get(VERSION)
        version = printable(version, 100) if isinstance(version, str) else ""
        version = version or (entry.version if entry is not None else "")
        title = entry.title if entry is not None else choice.uri.rpartition("/")[2]
        if uris != (choice.uri,):
            remark = "It is large, and only the windows that a search found were read."
        return _Reading(
            choice,
            title,
            kind,
            version or f"sha256:{digest.hexdigest()[:16]}",
            tuple(segments),
            data,
            digest.hexdigest(),
            remark,
        )

    async def _read_windows(self, uri: str, server: str, bypass_cache: bool) -> tuple[list[t.ResourceContents], str]:
        """Read a resource and, unless the URI has a query, the windows that follow, up to `MAX_TEXT_CHARACTERS`.

        Returns the contents, and a sentence about the part that was not read, or an empty string.
        """
        contents: list[t.ResourceContents] = []
        following: str = uri
        seen: set[str] = set()
        while following and following not in seen:
            seen.add(following)
            result = await self.catalogue.read(following, server, bypass_cache=bypass_cache)
            windows_read = [content for content in result.contents if not _meta(content).get(SUMMARY)]
            if sum(len(content.text or "") for content in windows_read) > MAX_TEXT_CHARACTERS:
                return contents + _beginning(windows_read), "It is too long, and only its beginning was read."
            contents += windows_read
            following = _next(result.contents)
            if "?" in uri:  # it names a window; those after it were not asked for
                continuations = [content for content in result.contents if is_continuation(content)]
                following = str(_meta(continuations[0])[NEXT]) if continuations else ""
                break
            is_file = bool(windows_read) and windows_read[0].text is UNSET  # it is used whole or not at all
            if is_file or sum(len(content.text or "") for content in contents) >= MAX_TEXT_CHARACTERS:
                break
        remark = f"It continues at {printable(following, 300)}." if following and following not in seen else ""
        return contents, remark

    def _leave_out(self, choice: Choice, reason: str) -> None:
        self.left_out.append(LeftOut(choice.uri, choice.server, reason))

    # The budget

    def make_blocks(self, readings: Sequence[_Reading]) -> list[Block]:
        """Return the blocks within the budget, the most useful first."""
        needs = {reading.digest: self._tokens_needed(reading) for reading in readings}
        headers = {reading.digest: self._header_tokens(reading) for reading in readings}
        chosen, shares = list(readings), list[float]()
        while chosen:
            shares = divide(
                self.budget, [(needs[reading.digest], max(MIN_WEIGHT, reading.choice.weight)) for reading in chosen]
            )
            small = [
                number
                for number, (reading, share) in enumerate(zip(chosen, shares, strict=True))
                if share < needs[reading.digest] and (reading.data or share < MIN_TOKENS + headers[reading.digest])
            ]
            if not small:
                break
            worst = min(small, key=lambda number: (chosen[number].choice.weight, -number))
            reason = f"its share of the budget of {many(self.budget, 'token')} is too small"
            self._leave_out(chosen[worst].choice, reason)
            del chosen[worst]
        blocks: list[Block] = []
        for reading, share in zip(chosen, shares if chosen else (), strict=True):
            block = self._make_block(reading, share)
            if block is None:
                self._leave_out(reading.choice, "no line of it fits into its share of the budget")
            else:
                blocks.append(block)
        return blocks

    def _tokens_needed(self, reading: _Reading) -> int:
        """Return the tokens of the whole resource with its header."""
        if reading.data:
            return self._header_tokens(reading) + file_tokens(reading.mime_type, len(reading.data))
        length = sum(len(segment.text) for segment in reading.segments)
        if length > 8 * self.budget:  # more than the budget in any usual text, and counting takes a while
            return self.budget + 1
        return self._header_tokens(reading) + self.count(whole_text(reading.segments))

    def _header_tokens(self, reading: _Reading) -> int:
        """Return the tokens of a block without its content."""
        lines = tuple((segment.first, _last_line(segment)) for segment in reading.segments)
        header = block_text(self._new_block(reading, data=reading.data, lines=lines, missing=reading.remark))
        return self.count(header) + 2  # header and content together may have a few tokens more than each alone

    def _new_block(self, reading: _Reading, **members: Any) -> Block:
        """Return a block with the origin of a reading, and the other members as given."""
        choice = reading.choice
        return Block(
            uri=choice.uri,
            server=choice.server,
            version=reading.version,
            reason=choice.reason or "chosen by the application",
            title=reading.title,
            mime_type=reading.mime_type,
            **members,
        )

    def _make_block(self, reading: _Reading, share: float) -> Block | None:
        """Return the block of a resource, with at most `share` tokens; None if nothing fits."""
        if reading.data:
            block = self._new_block(reading, data=reading.data, missing=reading.remark)
            block.tokens = self.count(block_text(block)) + file_tokens(reading.mime_type, len(reading.data))
            return block if block.tokens <= share else None
        room = int(share) - self._header_tokens(reading)
        for _ in range(MAX_FITTING_ATTEMPTS):
            windows = cut_windows(
                reading.segments, self.query, reading.title, room, self.count, reading.choice.found_lines
            )
            if not windows.text:
                return None
            missing = reading.remark
            if not windows.whole:
                total = max(_last_line(segment) for segment in reading.segments)
                of_total = f" of {total:,}" if not reading.remark and "?" not in reading.choice.uri else ""
                lines = f"Only lines {lines_text(windows.lines)}{of_total} are here." if windows.lines_missing else ""
                part = "Only a part of each long line is here." if windows.shortened else ""
                missing = " ".join(filter(None, (lines, part, reading.remark)))
            block = self._new_block(reading, text=windows.text, lines=windows.lines, missing=missing)
            block.tokens = self.count(block_text(block))
            if block.tokens <= int(share):
                return block
            room = min(room, self.count(windows.text)) - (block.tokens - int(share)) - 1
        return None

    # Changes

    def _make_empty_block(
        self, reading: _Reading, missing: str, old_block: Block, room: int, *, gone: bool = False
    ) -> Block:
        """Return a block without content in place of another. If it has more than `room` tokens, it says less."""
        block = self._new_block(reading, missing=missing, gone=gone)
        block.tokens = self.count(block_text(block))
        if not (old_block.text or old_block.data):
            room = old_block.tokens  # what the old block left out must not appear later, as if there were a change
        if block.tokens > room:
            block = msgspec.structs.replace(block, version="", reason="", missing="It is no longer here.")
            block.tokens = self.count(block_text(block))
        return block

    async def refresh(self, context: ContextBlocks, readings_by_key: dict[tuple[str, str], _Reading]) -> list[Block]:
        """Read the resources of a context again. Returns the new blocks, and puts them into the context.

        `readings_by_key` has the last content of each block, by server and URI, and is brought up to date.
        """
        changed: list[Block] = []
        async with self._refreshing:  # two calls at once would replace the same blocks
            readings = [readings_by_key[block.server, block.uri] for block in context.blocks]
            results = await asyncio.gather(*(self._read(reading.choice, bypass_cache=True) for reading in readings))
            for number, (block, old, new) in enumerate(zip(tuple(context.blocks), readings, results, strict=True)):
                room = max(block.tokens, self.budget - (context.tokens - block.tokens))
                if isinstance(new, _Unread):
                    if new.temporary:
                        continue
                    missing = "This resource no longer exists, or may no longer be read."
                    if not new.gone:
                        missing = f"This resource has changed, and is left out: {new.reason}."
                    new_block = self._make_empty_block(old, missing, block, room, gone=new.gone)
                elif new.digest == old.digest and (block.text or block.data):
                    continue
                else:
                    readings_by_key[block.server, block.uri] = new
                    share = min(self._tokens_needed(new), room)
                    too_large = "This resource has changed, and is left out: it does not fit into the budget."
                    new_block = self._make_block(new, share) or self._make_empty_block(new, too_large, block, room)
                if new_block != block:
                    context.blocks[number] = new_block
                    changed.append(new_block)
        return changed


def divide(budget: int, needs: Sequence[tuple[int, float]]) -> list[float]:
    """Divide a budget by weights. No share is more than its need, and the rest goes to the other shares."""
    shares = [0.0] * len(needs)
    waiting = sorted(range(len(needs)), key=lambda index: needs[index][0] / (needs[index][1] or 1e-9))
    remaining, weights = float(budget), sum(needs[index][1] for index in waiting)
    for index in waiting:
        need, weight = needs[index]
        shares[index] = min(float(need), remaining * weight / weights if weights > 0 else 0.0)
        remaining, weights = remaining - shares[index], weights - weight
    return shares


def _beginning(contents: Sequence[t.ResourceContents]) -> list[t.ResourceContents]:
    """Return the first `MAX_TEXT_CHARACTERS` characters of texts."""
    room = MAX_TEXT_CHARACTERS
    texts: list[t.ResourceContents] = []
    for content in contents:
        text = (content.text or "")[:room]
        if text:
            texts.append(msgspec.structs.replace(content, text=text))
            room -= len(text)
    return texts


def _segments(uri: str, contents: Iterable[t.ResourceContents]) -> list[Segment]:
    """Return the texts with the numbers of their first lines, as the server states them. Adjacent windows are joined.

    A line that is longer than a window continues in the next one.
    """
    joined: list[tuple[int, list[str]]] = []  # the stated number of the first line, or 0, and the texts
    end: object = None
    for content in contents:
        if content.text is UNSET:
            continue
        window = _window(content)
        if end is not None and window.get("begin") == end:
            joined[-1][1].append(content.text)
        else:
            first = window.get("firstLine")
            joined.append((first if isinstance(first, int) and first > 0 else 0, [content.text]))
        end = window.get("end")
    segments: list[Segment] = []
    lines = _LINES.search(uri)
    following = int(lines[1]) if lines is not None else 1
    for first, texts in joined:
        segments.append(Segment(first or following, "".join(texts)))
        following = _last_line(segments[-1]) + 1
    return segments


def _last_line(segment: Segment) -> int:
    return segment.first + segment.text.count("\n") - segment.text.endswith("\n")


def _meta(content: t.ResourceContents) -> dict[str, Any]:
    return {} if content.meta is UNSET else content.meta


def _window(content: t.ResourceContents) -> dict[str, Any]:
    window: Any = _meta(content).get(WINDOW)
    return cast("dict[str, Any]", window) if isinstance(window, dict) else {}


def _next(contents: Sequence[t.ResourceContents]) -> str:
    """Return the URI of the next window, or an empty string if the content ends before it."""
    if not contents:
        return ""
    meta = _meta(contents[0])
    window = _window(contents[0])
    following = meta.get(NEXT)
    end, size = window.get("end"), window.get("size")
    ended = isinstance(end, int) and isinstance(size, int) and end >= size
    return following if isinstance(following, str) and not ended else ""
