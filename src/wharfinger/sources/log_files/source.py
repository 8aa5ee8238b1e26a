"""Logs as a source: the files that match a pattern, read from the end, in windows, by time, level and text."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import tzinfo
from functools import partial
from typing import TypeVar
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from msgspec import UNSET

from wharfinger import types as t
from wharfinger.content import mime
from wharfinger.content.text import shown
from wharfinger.errors import InvalidArgument, ResourceNotFound
from wharfinger.source import VERSION, Document, Source, UnusableSource, version_of
from wharfinger.sources.directories import MAX_CHILDREN
from wharfinger.sources.folder.counts import count
from wharfinger.sources.folder.file_content import version_of_file
from wharfinger.sources.folder.file_uri import quote
from wharfinger.sources.folder.file_watch import TreeWatch
from wharfinger.sources.folder.safe_open import NotServed
from wharfinger.sources.folder.tree import FileTree, Parts, TreeEntry, TreePosition, read_key, write_key
from wharfinger.sources.folder.tree_resources import TreeResources
from wharfinger.sources.labels import UnusableFolder, default_label, usable_label
from wharfinger.sources.log_files.entries import line_times
from wharfinger.sources.log_files.log_links import PARAMETERS, VALUES, is_open, links_of, templates_of
from wharfinger.sources.log_files.log_query import LogQuery, read_query
from wharfinger.sources.log_files.log_remarks import HOW_TO_ASK, nothing_shown
from wharfinger.sources.log_files.log_text import render
from wharfinger.sources.log_files.log_windows import LOG_WINDOW_BYTES, LogReader, Selection, version_of_bytes
from wharfinger.sources.log_files.pattern import Pattern, read_pattern
from wharfinger.sources.log_files.positions import LogPosition
from wharfinger.sources.log_files.rotated_files import (
    MAX_INFLATED_BYTES,
    InflatedLogs,
    LogContent,
    LogFiles,
    LogMoved,
    open_log,
    with_log,
)
from wharfinger.sources.page_keys import bad_cursor
from wharfinger.sources.path_completion import complete_path
from wharfinger.sources.ttl import MAX_TTL_MS, ttl_ms
from wharfinger.sources.watched import Watched
from wharfinger.sources.windows import window
from wharfinger.sources.windows.window import NEXT, PREVIOUS, WINDOW, WINDOW_BYTES, continuation, remark, split_query
from wharfinger.sources.windows.window_budget import has_budget

__all__ = ["Logs", "logs"]

OPEN_TTL_MS = 1_000
"""Maximum `ttlMs` of a log that may grow at any time."""
COUNTING_SECONDS = 0.4
"""Time limit for counting logs in `describe`."""
MAX_SEARCHED_WINDOWS = 8_192
"""Maximum number of windows of one log that are searched, the newest first: 256 MiB."""
BOUNDARY_BYTES = 4_096
"""Bytes after the end of a window of 32 KiB that are searched for the next entry."""

T = TypeVar("T")


def logs(
    pattern: str | os.PathLike[str],
    *,
    label: str | None = None,
    redact: bool = True,
    timezone: str | None = None,
    poll: bool | float | None = None,
) -> Logs:
    """Publish logs: `server.include(logs("logs/*.log"))`.

    Symbolic links and special files are never published. `.gitignore` has no effect.

    Args:
        pattern: A file, or a pattern with `*`, `?`, `[…]` and `**`.
        label: The name in URIs, `log://<label>/…`. Default: the name of the folder before the first wildcard.
        redact: Leave out secrets: passwords and tokens by their names or forms, Authorization headers, private keys.
        timezone: The zone of times without one, such as `Europe/Copenhagen`. Default: the zone of this machine.
        poll: Poll for changes, with this many seconds between two polls (True: 1). By default, polls only if the system
            cannot watch.

    Raises:
        UnusableSource: the folder is missing or may not be read, the pattern or the label is not usable, or the zone is
            unknown.
    """
    try:
        zone = None if timezone is None else ZoneInfo(timezone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise UnusableSource(
            f"timezone={timezone!r} is not known here: give one such as UTC or Europe/Copenhagen."
        ) from None
    seconds = 1.0 if poll is True else poll or None
    return Logs(read_pattern(pattern), label=label, redact=redact, zone=zone, poll=seconds)


class Logs(Watched[TreeWatch], Source):
    """The source that `logs()` returns. Its methods may be called from several threads at once."""

    parameters = PARAMETERS

    def __init__(
        self, pattern: Pattern, *, label: str | None, redact: bool, zone: tzinfo | None, poll: float | None
    ) -> None:
        label = usable_label(default_label(pattern.root) if label is None else label, UnusableFolder)
        self.label = self.name = label
        self.location = os.path.join(pattern.root, pattern.rest)
        self.root = pattern.root
        self.uri = f"log://{quote(label)}"
        self.files = TreeResources(
            FileTree(pattern.root, pattern.choice, gitignore=False), self.uri, label, adjust=_as_log
        )
        self.template = self.files.template
        self._filtered_template = f"{self.template}{{?tail,since,until,level,text}}"
        self.templates = templates_of(label, self.template, self._filtered_template)
        self.redact = redact
        self.zone = zone
        self._reader = LogReader(zone, redact)
        self._inflated = InflatedLogs()
        self._filter_states: dict[str | None, tuple[LogPosition | None, int]] = {}
        """For each watched URI with a filter: the end of the examined entries, and how often new entries matched."""
        self._watches = TreeWatch(self.files.tree, self.files.locate_base, poll, self._window_digest)

    def __repr__(self) -> str:
        return f"logs({self.location!r}, label={self.label!r})"

    def patterns_below(self, names: Sequence[str]) -> Sequence[str]:
        """Return the pattern for the logs in a folder below the folder of these logs."""
        return (self.pattern_of(*names),)

    def matches(self, uri: str) -> bool:
        """Return whether this URI belongs to these logs, whether or not it exists."""
        return self.files.matches(uri) or uri.startswith(self.uri + "?")

    def page(self, after: str | None, limit: int) -> tuple[list[t.Resource], str | None]:
        """List at most `limit` logs and directories after a key. Returns them and the key of the next page."""
        return self.files.page(after, limit)

    def children(
        self, uri: str, after: str | None = None, limit: int = MAX_CHILDREN
    ) -> tuple[list[t.Resource], str | None]:
        """List the entries of a directory in pages: sub-directories by name, then logs by name.

        Raises:
            ResourceNotFound: there is no such directory.
        """
        return self.files.children(uri, after, limit)

    # One log

    def _file_check(self, parts: Parts) -> Callable[[str], bool] | None:
        """Return a function that tells from a file's name whether the caller may read it; None if all may be read."""
        view = self.files.view()
        return None if view is None else view.name_filter(parts[:-1])

    def _with_log(self, uri: str, parts: Parts, use: Callable[[LogFiles], T]) -> T:
        """Call `use` with the files of a log, and again if they changed during the call."""
        try:
            return with_log(self.files.tree, parts, self._inflated, use, self._file_check(parts))
        except NotServed:
            raise ResourceNotFound(uri) from None

    def _read_uri(self, uri: str) -> tuple[str, Parts, bool, LogQuery]:
        """Return the URI without its query, the path, whether it is that of a directory, and the parsed query."""
        base, written = split_query(uri)
        parts, is_directory = self.files.locate(base)
        if not is_directory:
            with suppress(NotServed), self.files.tree.directory(parts):
                is_directory = True
        if is_directory:
            window.refuse_window(window.parse_window(written))
        return base, parts, is_directory, read_query(written, self.zone)

    def stat(self, uri: str) -> t.Resource:
        """Describe a URI as a resource. The version of a window comes from its content, so the window is read.

        Raises:
            ResourceNotFound: it is missing or not published; the error does not say which.
            InvalidArgument: the window is not possible; the message says why.
        """
        base, parts, is_directory, query = self._read_uri(uri)
        if is_directory or query.plain:
            return self.files.stat(uri)
        if query.after is None and query.before is None:
            resource = self.files.stat(base)
        else:
            resource = t.Resource(uri=uri, name=parts[-1], mime_type=mime.TEXT)
        resource.uri, resource.size = uri, UNSET
        selection = self._with_log(uri, parts, lambda log: self._reader.select(log, query))
        resource.meta = {VERSION: selection.version}
        return resource

    def read(self, uri: str) -> t.ReadResourceResult:
        """Read the requested window of a log, by default the newest, or the listing of a directory.

        Raises:
            ResourceNotFound: it is missing or not published; the error does not say which.
            InvalidArgument: the window is not possible; the message says why.
        """
        base, parts, is_directory, query = self._read_uri(uri)
        if is_directory:
            listing = self.files.read(uri, cache_scope=self.cache_scope)
            listing.contents[0].text = f"{listing.contents[0].text}\nParts of a log: {HOW_TO_ASK}\n"
            return listing
        return self._with_log(uri, parts, lambda log: self._read_log(uri, base, log, query))

    def _read_log(self, uri: str, base: str, log: LogFiles, query: LogQuery) -> t.ReadResourceResult:
        selection = self._reader.select(log, query)
        exact = query.window is not None and query.window.kind == "bytes"
        text = "".join(
            [
                render(
                    piece.data,
                    piece.start,
                    log.content(log.files.index(piece.file)),
                    redact=self.redact,
                    cut=not exact,
                )
                for piece in selection.pieces
            ]
        )
        live = log.live
        modified = (live.modified if live else log.files[0].modified) / 1e9
        version = selection.version
        if query.plain:  # the version of the file when it was opened
            is_compressed = log.files[0].is_compressed
            version = version_of(self.stat(base)) if is_compressed else version_of_file(log.content(0).status)
        facts: dict[str, object] = {VERSION: version, **links_of(base, query, selection)}
        if selection.pieces:
            first, last = selection.pieces[0], selection.pieces[-1]
            window_facts = {"begin": first.start, "end": last.end}
            if first.file == last.file:
                window_facts["size"] = log.content(log.files.index(last.file)).size
            facts[WINDOW] = window_facts
        contents = [t.ResourceContents(uri=uri, mime_type=mime.TEXT, text=text, meta=facts)]
        contents += self._remarks(uri, log, query, selection, facts)
        # With `after=`, a client asks for what is new.
        open_ttl = 0 if query.after else min(OPEN_TTL_MS, ttl_ms(modified))
        ttl = MAX_TTL_MS if selection.closed else open_ttl
        return t.ReadResourceResult(contents=contents, ttl_ms=ttl, cache_scope=self.cache_scope)

    def _remarks(
        self, uri: str, log: LogFiles, query: LogQuery, selection: Selection, facts: Mapping[str, object]
    ) -> list[t.ResourceContents]:
        """Return remarks about the window: why it is empty, how to continue, and which entries are omitted."""
        notes = list(selection.notes)
        files = {piece.file for piece in selection.pieces}
        if not selection.closed and any(
            file.is_compressed and log.content(at).more for at, file in enumerate(log.files) if file in files
        ):
            notes.append(
                f"This log is compressed: what is after {MAX_INFLATED_BYTES >> 20} MiB, or damaged, is left out."
            )
        if not selection.pieces or not any(piece.data for piece in selection.pieces):
            notes.insert(0, nothing_shown(self._reader, log, query, selection, split_query(uri)[1]))
        next_uri, previous_uri = facts.get(NEXT), facts.get(PREVIOUS)
        if selection.more and next_uri:
            return [continuation(str(next_uri), " ".join([*notes, "More follows."]))]
        if not query.forward and not selection.full and selection.before and previous_uri:
            notes.append(f"For earlier lines, read {previous_uri}")
        if query.plain and not has_budget():  # a tool that reads within a budget gives this hint itself
            notes.append(f"Parts of it: {HOW_TO_ASK}")
        return [remark(str(next_uri or previous_uri or uri), " ".join(notes))] if notes else []

    # Completion and search

    def complete(self, template: str, argument: str, value: str, context: Mapping[str, str]) -> list[str]:
        """Suggest paths, and usual values of `level`, `since`, `until` and `tail`."""
        values = VALUES.get(argument, ())
        if values and template == self._filtered_template:
            return [choice for choice in values if choice.startswith(value.lower())]
        if argument != "path" or template not in (self.template, self._filtered_template):
            return []
        return complete_path(self.files.tree, value, self.files.view())

    def documents(self, after: str | None, limit: int) -> tuple[list[Document], str | None]:
        """Return a page of logs.

        A large log that is not compressed is divided into windows of about 32 KiB, of which only the last changes.
        The newest window of each log comes first, so that a search finds the latest entries.

        The text of a small log is the same as in a read of it, so that a hit leads to its line.
        """
        number, position = _document_key(after)
        documents: list[Document] = []
        entries = self.files.tree.walk(None, self.files.view())
        try:
            for entry in entries:
                if entry.is_directory or (position and not _is_from(entry, position)):
                    continue
                first = number if position and entry.parts == position.parts else None
                for chunk, document in self._chunks(entry, first):
                    if len(documents) == limit:
                        return documents, f"{chunk}:{write_key(TreePosition(False, entry.parts))}"
                    documents.append(document)
        finally:
            entries.close()
        return documents, None

    def _chunks(self, entry: TreeEntry, first: int | None) -> Iterator[tuple[int, Document]]:
        """Yield the windows of a log as documents, each with its number, the newest first.

        If `first` is a number, begin with the window of this number.
        """
        uri = self.files.uri_of(entry.parts)
        title = "/".join([shown(part) for part in entry.parts])
        try:
            with open_log(self.files.tree, entry.parts, self._inflated, self._file_check(entry.parts)) as log:
                content = None if entry.name.endswith(".gz") else log.content(0)
                if content is None or content.size <= LOG_WINDOW_BYTES:
                    if not first:
                        version = version_of(self.stat(uri))
                        yield 0, Document(uri=uri, title=title, version=version, mime_type=mime.TEXT)
                    return
                chunk_count = -(-content.size // LOG_WINDOW_BYTES)
                newest = chunk_count - 1 if first is None else min(first, chunk_count - 1)
                for chunk in range(newest, max(-1, chunk_count - 1 - MAX_SEARCHED_WINDOWS), -1):
                    begin = _boundary(content, chunk * LOG_WINDOW_BYTES)
                    last = _boundary(content, (chunk + 1) * LOG_WINDOW_BYTES)
                    end = min(last, content.size)
                    samples = content.read(begin, min(1_024, end - begin)) + content.read(
                        max(begin, end - 1_024), min(1_024, end - begin)
                    )
                    version = version_of_bytes(content.file, begin, end, samples)
                    window_query = f"bytes={begin}-{last - 1}"
                    yield (
                        chunk,
                        Document(
                            uri=f"{uri}?{window_query}",
                            title=f"{title} ({window_query})",
                            version=version,
                            mime_type=mime.TEXT,
                        ),
                    )
        except (NotServed, LogMoved, ResourceNotFound):
            return

    def text(self, uri: str) -> Iterator[str]:
        """Yield the text of one of `documents` in pieces, redacted like a read.

        The last line of a piece is completed with up to 4,096 bytes, which the next piece repeats.

        Raises:
            ResourceNotFound: it is missing or not published; the error does not say which.
        """
        _, parts, is_directory, query = self._read_uri(uri)
        if is_directory:
            raise ResourceNotFound(uri)
        searched = query.window
        begin, end = (searched.first, (searched.last or 0) + 1) if searched else (0, MAX_INFLATED_BYTES)
        while begin < end:
            size, text = self._with_log(uri, parts, partial(self._read_searched, begin=begin, end=end))
            if not size:
                return
            yield text
            begin += size

    def _read_searched(self, log: LogFiles, begin: int, end: int) -> tuple[int, str]:
        if log.live is None:
            raise NotServed
        content = log.content(0)
        length = min(WINDOW_BYTES, end - begin)
        data = content.read(begin, length)
        tail = b"" if data.endswith(b"\n") else content.read(begin + len(data), 4_096).partition(b"\n")[0]
        return len(data), render(data + tail, begin, content, redact=self.redact)

    def describe(self) -> str:
        """Return the number of logs, and how changes are noticed."""
        counts = count(self.files.tree, COUNTING_SECONDS)._replace(withheld={})
        return f"{counts}, watched by {self._watches.means}"

    # Watching

    def _window_digest(self, uri: str, watched_count: int) -> bytes | None:
        """Return a digest that changes with a window; None for a directory or a whole log, which need none."""
        try:
            _, parts, is_directory, query = self._read_uri(uri)
            if is_directory or query.plain:
                return None
            if query.filtered and query.until is None and query.before is None and is_open(query):
                return self._filter_state(uri, parts, query)
            selection = self._with_log(uri, parts, lambda log: self._reader.select(log, query))
        except (ResourceNotFound, InvalidArgument, OSError) as error:
            return type(error).__name__.encode()
        if query.since is not None and not selection.closed and selection.pieces:
            last = selection.pieces[-1]
            return f"{last.file.identity} {last.end}".encode()
        return selection.version.encode()

    def _filter_state(self, uri: str, parts: Parts, query: LogQuery) -> bytes:
        """Return a value that changes when new entries match the filter. Examines only new entries."""
        state = self._filter_states.get(uri)
        if state is None:
            end = self._with_log(uri, parts, lambda log: self._reader.select(log, LogQuery(window=_LAST)))
            state = (end.after, 0)
        position, number = state
        more = position is not None
        while more:
            later = LogQuery(after=position, level=query.level, text=query.text)
            new = self._with_log(uri, parts, partial(self._reader.select, query=later))
            number += bool(new.pieces or new.notes)
            position, more = new.after, new.more
        self._filter_states[uri] = position, number
        return str(number).encode()

    def unwatch(self, uri: str | None) -> None:
        """Stop watching a URI, or the list if `uri` is None."""
        super().unwatch(uri)
        self._filter_states.pop(uri, None)

    async def close(self) -> None:
        """Stop watching, and close the decompressed logs."""
        await super().close()
        self._inflated.close()


def _as_log(resource: t.Resource, parts: Parts) -> t.Resource:
    """Describe a log as text. The size of a compressed log is left out, because a read returns more."""
    if resource.mime_type != mime.DIRECTORY:
        resource.mime_type = mime.TEXT
        if parts[-1].endswith(".gz"):
            resource.size = UNSET
    return resource


_LAST = window.Window("tail", 1)


def _boundary(content: LogContent, offset: int) -> int:
    """Return the start of a window of `documents` from `offset`: an entry with a time, else a line, else `offset`."""
    if not 0 < offset < content.size:
        return offset
    data = content.read(offset - 1, BOUNDARY_BYTES)
    first = data.find(b"\n") + 1
    if not first:
        return offset
    first_time = next(line_times(data[first:], None, None), None)
    return offset - 1 + first + (first_time[0] if first_time else 0)


def _document_key(after: str | None) -> tuple[int, TreePosition | None]:
    if after is None:
        return 0, None
    number, _, key = after.partition(":")
    if not (number.isascii() and number.isdigit() and len(number) < 10):
        raise bad_cursor()
    return int(number), read_key(key)


def _is_from(entry: TreeEntry, position: TreePosition) -> bool:
    """Return whether a file is at or after a position in a walk, in which files come before directories."""
    own_parts, other_parts = entry.parts, position.parts
    for depth, (one, two) in enumerate(zip(own_parts, other_parts, strict=False)):
        leaf_one, leaf_two = depth == len(own_parts) - 1, depth == len(other_parts) - 1
        if leaf_one != leaf_two:
            return leaf_two
        if one != two:
            return one > two
    return True
