"""The journal of systemd as a source: one log for each unit, one for the kernel, and one with all entries."""

from __future__ import annotations

import os
import re
import threading
import time
from bisect import bisect_right
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from urllib.parse import unquote

from wharfinger import types as t
from wharfinger.content import mime
from wharfinger.content.text import many, shown
from wharfinger.errors import InvalidArgument, Overloaded, ResourceNotFound
from wharfinger.policy.current import readable_uris, reads_all_below
from wharfinger.source import VERSION, Document, Source, SourceUnavailable, UnusableSource, UriParameter
from wharfinger.sources.directories import MAX_CHILDREN, listing_text, summaries
from wharfinger.sources.etag import digest
from wharfinger.sources.folder.file_uri import quote
from wharfinger.sources.labels import usable_label
from wharfinger.sources.log_files.log_links import PARAMETERS as LOG_PARAMETERS
from wharfinger.sources.log_files.log_links import VALUES, uri_before
from wharfinger.sources.name_completion import complete_name
from wharfinger.sources.page_keys import bad_cursor
from wharfinger.sources.polling import Polling
from wharfinger.sources.systemd_journal.entry_text import (
    KERNEL,
    LOG_FIELDS,
    all_fields,
    cursor_of,
    logs_of,
    unit_of,
)
from wharfinger.sources.systemd_journal.export_format import ExportedEntry
from wharfinger.sources.systemd_journal.journal_process import Journalctl
from wharfinger.sources.systemd_journal.journal_query import JournalQuery, position_of_cursor, read_journal_query
from wharfinger.sources.systemd_journal.journal_windows import ALL, EntryCheck, JournalReader, JournalSelection
from wharfinger.sources.ttl import MAX_TTL_MS
from wharfinger.sources.watched import Watched
from wharfinger.sources.windows.window import (
    NEXT,
    PREVIOUS,
    BytesContent,
    continuation,
    read_content,
    remark,
    split_query,
    with_query,
)
from wharfinger.sources.windows.window_budget import has_budget

__all__ = ["Journal", "journal"]

MAX_UNITS = 5_000
"""Maximum number of units that are published: first those with entries of their own, in the order of their names."""
MAX_FILES = 10_000
"""Maximum number of journal files whose times of change are compared."""
MAX_RECENT_ENTRIES = 20_000
"""Number of newest entries from which the versions of the searched logs are taken."""
MAX_RECENT_BYTES = 32 << 20
MAX_SEARCHED_WINDOWS = 10
"""Maximum number of windows of the newest entries of each log that are searched, usually about 300 KiB."""
MAX_KEPT_VERSIONS = 1_024
"""Maximum number of URIs whose versions are kept."""
KEY_PREFIX = "k:"
"""Start of the key of each page, before the name of the log after which the page begins."""
HOW_TO_ASK = "?tail=200, ?since=15m, ?until=2026-11-20T10:10:00Z, ?level=error, ?text=word, ?boot=-1"
"""The parameters of a journal, as people and models read them."""

_DIRECTORIES = ("/var/log/journal", "/run/log/journal")
_PLACES = ("tail", "after", "before")
_UNIT = re.compile(r"[A-Za-z0-9:_.\\@-]{1,251}").fullmatch
_TYPE = re.compile(r".\.(service|socket|device|mount|automount|swap|target|path|timer|slice|scope)$").search

_PARAMETERS: Mapping[str, UriParameter] = {
    **{name: meaning for name, meaning in LOG_PARAMETERS.items() if name != "lines"},
    "boot": UriParameter("-1", "entries of this boot: 0 is the last one, -1 the one before it"),
}


def journal(
    unit: str | None = None,
    *,
    directory: str | os.PathLike[str] | None = None,
    label: str | None = None,
    redact: bool = True,
    poll: float = 1.0,
) -> Journal:
    """Publish the journal of systemd: `server.include(journal("nginx.service"))`.

    Entries are read by journalctl, with the rights of this account.

    Args:
        unit: Publish only the entries of this unit. A name without a type, such as `nginx`, names a service.
        directory: Read the journal files in this directory instead of those of this machine.
        label: The name in URIs, `journal://<label>/…`. Default: the name of the unit, or `journal`.
        redact: Leave out secrets: passwords and tokens by their names or forms, Authorization headers, private keys.
        poll: Seconds between two checks for new entries.

    Raises:
        UnusableSource: journalctl is not installed, there is no journal, this account may not read it, or an argument
            is not valid.
    """
    if not poll > 0:
        raise UnusableSource("poll= must be positive: it is the number of seconds between two checks for new entries.")
    if unit is not None:
        name = unit if _TYPE(unit) else f"{unit}.service"
        if not unit or not _UNIT(name) or unit.startswith((".", "-")):
            raise UnusableSource(
                f"{shown(unit[:100])!r} is not the name of a unit: give one such as nginx.service, without wildcards."
            )
        unit = name
    path = "" if directory is None else os.path.realpath(os.path.expanduser(os.fsdecode(os.fspath(directory))))
    return Journal(unit, path, label, redact, poll)


class Journal(Watched[Polling], Source):
    """The source that `journal()` returns. Its methods may be called from several threads at once."""

    noun = "journal"
    parameters = _PARAMETERS

    def __init__(self, unit: str | None, directory: str, label: str | None, redact: bool, poll: float) -> None:
        if directory and not os.path.isdir(directory):
            raise UnusableSource(f"There is no directory {directory}.")
        self.unit = unit
        self.directory = directory
        self.name = usable_label(label or (unit.removesuffix(".service") if unit else "journal"))
        self.uri = f"journal://{quote(self.name)}"
        self.location = " of ".join(filter(None, (unit, directory or "this machine's journal")))
        self.root = directory
        self.redact = redact
        self._reader = JournalReader(Journalctl(directory), redact)
        self._lock = threading.Lock()
        self._known_logs: tuple[Hashable, list[str]] | None = None
        """The names of the logs, with the journal files in which they were found."""
        self._versions: dict[str | None, tuple[Hashable, Hashable]] = {}
        """The version of each watched URI, with the journal files in which it was found."""
        self._round_files: Hashable = None
        """The journal files in this round of checks for changes."""
        self._watches = Polling(f"journal {self.name}", self._look, every=poll, prepare=self._prepare)
        self.template = f"{self.uri}/{{log}}"
        self._filtered_template = f"{self.template}{{?{','.join(_PARAMETERS)}}}"
        self.templates = [
            t.ResourceTemplate(
                uri_template=self.template,
                name=self.name,
                title=f"Any log in {self.name}",
                description=f"The newest entries of a unit such as nginx.service, of the {KERNEL}, or of {ALL}.",
                mime_type=mime.TEXT,
            ),
            t.ResourceTemplate(
                uri_template=self._filtered_template,
                name=f"{self.name}-part",
                title=f"A part of a log in {self.name}",
                description=(
                    "The last lines (tail=200), or entries since= or until= a time (2026-11-20T10:00:00Z; 15m is 15 "
                    "minutes ago), of at least a level= (error), with a text=, or of one boot= (-1 is the one before "
                    "the last). Parameters can be combined."
                ),
                mime_type=mime.TEXT,
            ),
        ]
        try:
            self._hides_entries = self._reader.journalctl.hides_entries()
            if not self._files():
                raise UnusableSource(f"There are no journal files in {directory or ' or '.join(_DIRECTORIES)}.")
        except SourceUnavailable as error:
            raise UnusableSource(str(error)) from None

    def __repr__(self) -> str:
        return f"journal({self.location!r}, label={self.name!r})"

    def matches(self, uri: str) -> bool:
        """Return whether this URI belongs to this journal, whether or not it exists."""
        return uri == self.uri or uri.startswith((self.uri + "/", self.uri + "?"))

    def patterns_below(self, names: Sequence[str]) -> Sequence[str]:
        """Return the pattern for everything: journal files contain entries of all units."""
        return (self.pattern_of(),)

    # The logs

    def _files(self) -> list[tuple[str, int, int, int]]:
        """Return the journal files, with the time at which each last changed, its inode and its size.

        systemd changes the times of a file when it has written entries into it, so that readers notice them.

        Raises:
            SourceUnavailable: the directory no longer exists, or cannot be read.
        """
        files: list[tuple[str, int, int, int]] = []
        directories = (
            [self.directory]
            if self.directory
            else [directory for directory in _DIRECTORIES if os.path.isdir(directory)]
        )
        for directory in directories:
            try:
                files += islice(_journal_files(directory), MAX_FILES - len(files))
            except FileNotFoundError:
                if self.directory:
                    raise SourceUnavailable(f"The directory {self.directory} was moved or removed.") from None
            except OSError as error:
                raise SourceUnavailable(f"The journal cannot be read: {error.strerror}.") from None
        return sorted(files)

    def _logs(self) -> list[str]:
        """Return the names of all logs, sorted. If they cannot be found in time, those found before."""
        files = tuple(self._files())
        with self._lock:
            cached = self._known_logs
        if cached is not None and cached[0] == files:
            return cached[1]
        try:
            names = self._find_logs()
        except Overloaded:
            if cached is None:
                raise
            return cached[1]
        with self._lock:
            self._known_logs = files, names
        return names

    def _find_logs(self) -> list[str]:
        if self.unit is not None:
            return [self.unit]
        journalctl = self._reader.journalctl
        # Any program can write any number of values of UNIT. They must not displace those that systemd writes.
        values = [*journalctl.values("_SYSTEMD_UNIT"), *journalctl.values("UNIT")]
        units = list(dict.fromkeys(filter(_is_unit, values)))[:MAX_UNITS]
        kernel = [KERNEL] if "kernel" in journalctl.values("_TRANSPORT") else []
        return sorted([ALL, *kernel, *units])

    def _readable_logs(self) -> list[str]:
        """Return the names of the logs that the caller may read."""
        if reads_all_below(self.uri):
            return self._logs()
        reads = readable_uris()
        return [name for name in self._logs() if reads(self.uri_of(name))]

    def _entry_check(self) -> EntryCheck:
        """Return a function that says whether the caller may read an entry, by the log of the entry's unit."""
        if reads_all_below(self.uri):
            return lambda entry: True
        reads = readable_uris()
        known: dict[str, bool] = {"": True}

        def may_read(entry: ExportedEntry) -> bool:
            unit = unit_of(entry)
            if unit not in known:
                known[unit] = reads(self.uri_of(unit))
            return known[unit]

        return may_read

    def uri_of(self, log: str) -> str:
        """Return the URI of a log."""
        return f"{self.uri}/{quote(log)}"

    def _parse(self, uri: str) -> tuple[str, str, JournalQuery]:
        """Return a URI without its query, its log (an empty string for the directory), and the query.

        Raises:
            ResourceNotFound: there is no such log.
            InvalidArgument: the query is not valid.
        """
        base, written = split_query(uri)
        if base in (self.uri, self.uri + "/"):
            if written:
                raise InvalidArgument(f"A directory has no windows: read {self.uri}.")
            return base, "", JournalQuery()
        if len(base) > len(self.uri) + 1_000 or not base.startswith(self.uri + "/"):
            raise ResourceNotFound(uri)
        try:
            log = unquote(base[len(self.uri) + 1 :], errors="strict")
        except UnicodeDecodeError:
            raise ResourceNotFound(uri) from None
        if not _is_log(log) or log not in self._logs():
            raise ResourceNotFound(uri)
        return base, log, read_journal_query(written)

    # Listing

    def page(self, after: str | None, limit: int) -> tuple[list[t.Resource], str | None]:
        """List at most `limit` resources after a key: the directory, then the logs.

        Returns them and the key of the next page.
        """
        names = self._names_after(["", *self._readable_logs()], after)
        resources = [self._resource(name) for name in names[:limit]]
        return resources, KEY_PREFIX + names[limit - 1] if len(names) > limit else None

    def children(
        self, uri: str, after: str | None = None, limit: int = MAX_CHILDREN
    ) -> tuple[list[t.Resource], str | None]:
        """List at most `limit` logs after a key. Returns them and the key of the next page.

        Raises:
            ResourceNotFound: this is not the URI of the directory.
        """
        if uri not in (self.uri, self.uri + "/"):
            raise ResourceNotFound(uri)
        names = self._names_after(self._readable_logs(), after)
        resources = [self._resource(name) for name in names[:limit]]
        return resources, KEY_PREFIX + names[limit - 1] if len(names) > limit else None

    def _names_after(self, names: list[str], after: str | None) -> list[str]:
        if after is None:
            return names
        name = after.removeprefix(KEY_PREFIX)
        if name == after or (name and not _is_log(name)):
            raise bad_cursor()
        return names[bisect_right(names, name) :]

    def _resource(self, log: str, uri: str = "") -> t.Resource:
        if not log:
            return t.Resource(uri=self.uri, name=self.name, title=self.name, mime_type=mime.DIRECTORY)
        titles = {ALL: "All entries", KERNEL: "Messages of the kernel"}
        return t.Resource(uri=uri or self.uri_of(log), name=log, title=titles.get(log, log), mime_type=mime.TEXT)

    def stat(self, uri: str) -> t.Resource:
        """Describe a URI as a resource. The version of a window comes from its entries, so the window is read.

        Raises:
            ResourceNotFound: there is no such log.
            InvalidArgument: the window is not possible; the message says why.
        """
        files = tuple(self._files())
        _, log, query = self._parse(uri)
        resource = self._resource(log, uri)
        if uri == self.uri + "/":
            resource.uri = uri
        version = self._version(log, query)
        resource.meta = {VERSION: version}
        if reads_all_below(self.uri):
            self._remember(uri, files, version)
            self._watches.record(uri, version)
        return resource

    def _version(self, log: str, query: JournalQuery) -> str:
        if not log:
            return digest(*self._readable_logs())
        if query.plain:
            return digest(self._reader.newest(log, self._entry_check()))
        if query.entry:
            return digest(query.entry)
        return self._reader.select(log, query, self._entry_check()).version

    # Reading

    def read(self, uri: str) -> t.ReadResourceResult:
        """Read the requested window of a log, by default the newest entries, or list the logs.

        Raises:
            ResourceNotFound: there is no such log.
            InvalidArgument: the window is not possible; the message says why.
        """
        began = time.time()
        base, log, query = self._parse(uri)
        if not log:
            return self._read_directory(uri)
        if query.entry:
            return self._read_entry(uri, base, log, query)
        selection = self._reader.select(log, query, self._entry_check())
        newest = selection.cursors[-1] if selection.cursors else ""
        facts: dict[str, object] = {VERSION: digest(newest) if query.plain else selection.version}
        facts.update(_links(base, query, selection, began))
        text = self._reader.text(log, selection)
        contents = [t.ResourceContents(uri=uri, mime_type=mime.TEXT, text=text, meta=facts)]
        contents += _remarks(uri, log, query, selection, facts)
        # Entries are written with the current time, so a window in the past no longer changes.
        is_past = query.until is not None and query.until < began - 60
        ttl = MAX_TTL_MS if is_past else 0 if query.after else 1_000
        return t.ReadResourceResult(contents=contents, ttl_ms=ttl, cache_scope=self.cache_scope)

    def _read_entry(self, uri: str, base: str, log: str, query: JournalQuery) -> t.ReadResourceResult:
        entry = self._reader.entry(log, query.entry, self._entry_check())
        data = BytesContent(all_fields(entry, self.redact))
        base = with_query(base, f"entry={position_of_cursor(query.entry)}")
        contents = read_content(uri, base, "entry.txt", data, query.window, meta={VERSION: digest(query.entry)})
        return t.ReadResourceResult(contents=contents, ttl_ms=MAX_TTL_MS, cache_scope=self.cache_scope)

    def _read_directory(self, uri: str) -> t.ReadResourceResult:
        names = self._readable_logs()
        children = [self._resource(name) for name in names[:MAX_CHILDREN]]
        template = self.template if len(names) > MAX_CHILDREN else ""
        text = listing_text(f"{self.name}/", many(len(names), "log"), children, template, describe=_title)
        meta: dict[str, object] = {VERSION: digest(*names)}
        top = t.ResourceContents(
            uri=uri, mime_type=mime.TEXT, text=f"{text}\nParts of a log: {HOW_TO_ASK}\n", meta=meta
        )
        contents = [top, *summaries(children, describe=_title)]
        return t.ReadResourceResult(contents=contents, ttl_ms=0, cache_scope=self.cache_scope)

    # Completion and search

    def complete(self, template: str, argument: str, value: str, context: Mapping[str, str]) -> list[str]:
        """Suggest logs, and usual values of `level`, `since`, `until`, `tail` and `boot`."""
        if argument == "log" and template in (self.template, self._filtered_template):
            return complete_name(self._readable_logs(), value)
        if template != self._filtered_template:
            return []
        values = (*VALUES.get(argument, ()), *(("0", "-1") if argument == "boot" else ()))
        return [choice for choice in values if choice.startswith(value.lower())]

    def documents(self, after: str | None, limit: int) -> tuple[list[Document], str | None]:
        """Return a page of the logs of units and of the kernel, whose newest entries are searched.

        The version of a log changes with its newest entry, if that is among the newest entries of the journal.
        """
        names = self._names_after([name for name in self._readable_logs() if name != ALL], after)
        recent = self._recent_versions() if names else {}
        documents = [
            Document(uri=self.uri_of(name), title=name, version=recent.get(name, "old"), mime_type=mime.TEXT)
            for name in names[:limit]
        ]
        return documents, KEY_PREFIX + names[limit - 1] if len(names) > limit else None

    def _recent_versions(self) -> dict[str, str]:
        """Return a digest of the newest entry of each unit that has one among the newest entries of the journal."""
        versions: dict[str, str] = {}
        size = 0
        filters = [f"--unit={self.unit}"] if self.unit is not None else []
        with self._reader.journalctl.run([*filters, "--reverse", f"--lines={MAX_RECENT_ENTRIES}"], LOG_FIELDS) as run:
            for entry in run.entries():
                for log in [self.unit] if self.unit is not None else logs_of(entry):
                    versions.setdefault(log, digest(cursor_of(entry)))
                size += entry.size
                if size > MAX_RECENT_BYTES:
                    break
        return versions

    def text(self, uri: str) -> Iterator[str]:
        """Yield the text of the newest entries of a log, redacted like a read.

        Raises:
            ResourceNotFound: there is no such log.
        """
        _, log, _ = self._parse(uri)
        if not log:
            raise ResourceNotFound(uri)
        may_read = self._entry_check()
        windows: list[str] = []
        query = JournalQuery()
        for _ in range(MAX_SEARCHED_WINDOWS):
            selection = self._reader.select(log, query, may_read)
            windows.append(self._reader.text(log, selection))
            if not selection.before:
                break
            query = JournalQuery(before=selection.before)
        yield from reversed(windows)

    def describe(self) -> str:
        """Return the number of logs, and how changes are found."""
        partly = " (only this account's entries: see systemd-journald(8))" if self._hides_entries else ""
        with self._lock:
            cached = self._known_logs
        counted = f"{many(len(cached[1]), 'log')}{partly}, " if cached else f"journal files{partly}, "
        return f"{counted}watched by {self._watches.means}"

    # Watching

    def probe(self) -> object:
        """Check that the journal can be read.

        Raises:
            SourceUnavailable: it cannot; the message says why.
        """
        if not self._files():
            raise SourceUnavailable(f"There are no journal files in {self.directory or ' or '.join(_DIRECTORIES)}.")
        return self._reader.newest(ALL if self.unit is None else self.unit, lambda entry: True)

    def _prepare(self) -> None:
        self._round_files = tuple(self._files())

    def _look(self, uri: str | None) -> Hashable:
        """Return the version of a URI, or of the list of logs if `uri` is None.

        If no journal file has changed, this is the last version.
        """
        with self._lock:
            cached = self._versions.get(uri)
        if cached is not None and cached[0] == self._round_files:
            return cached[1]
        files = self._round_files
        if uri is None:
            version = digest(*self._logs())
        else:
            try:
                version = self._version(*self._parse(uri)[1:])
            except InvalidArgument as error:
                version = digest(str(error))
        self._remember(uri, files, version)
        return version

    def _remember(self, uri: str | None, files: Hashable, version: str) -> None:
        with self._lock:
            self._versions.pop(uri, None)
            self._versions[uri] = files, version
            if len(self._versions) > MAX_KEPT_VERSIONS:
                del self._versions[next(iter(self._versions))]


def _journal_files(directory: str) -> Iterator[tuple[str, int, int, int]]:
    """Yield the path, time, inode and size of each journal file in a directory and its subfolders."""
    with os.scandir(directory) as top:
        subfolders = sorted(entry.path for entry in top if entry.is_dir())
    for folder in (directory, *subfolders):
        with suppress(FileNotFoundError), os.scandir(folder) as entries:  # a folder may be removed meanwhile
            for entry in entries:
                if entry.name.endswith((".journal", ".journal~")):
                    with suppress(FileNotFoundError):  # systemd removes old files
                        status = entry.stat()
                        yield entry.path, status.st_mtime_ns, status.st_ino, status.st_size


def _is_unit(name: str) -> bool:
    return bool(_UNIT(name) and _TYPE(name)) and not name.startswith(("-", "."))


def _is_log(name: str) -> bool:
    return name in (ALL, KERNEL) or _is_unit(name)


def _title(child: t.Resource) -> str:
    return str(child.title) if child.title != child.name else "entries of a unit"


def _links(base: str, query: JournalQuery, selection: JournalSelection, began: float) -> dict[str, object]:
    """Return the links to the windows before and after, with the filters of the query."""
    links: dict[str, object] = {}
    filters = query.filters
    if selection.after and not (selection.closed and query.until is not None):
        links[NEXT] = with_query(base, f"after={position_of_cursor(selection.after)}") + filters
    elif not selection.after and query.until is None:
        links[NEXT] = with_query(base, f"since={began:.3f}") + filters  # there are no entries yet
    if selection.before:
        since = None if query.forward else query.since
        links[PREVIOUS] = uri_before(base, position_of_cursor(selection.before), query.tail, since, filters)
    return links


def _remarks(
    uri: str, log: str, query: JournalQuery, selection: JournalSelection, facts: Mapping[str, object]
) -> list[t.ResourceContents]:
    """Return remarks about the window: why it is empty, how to continue, and where a search ended."""
    notes = list(selection.notes)
    following, previous = facts.get(NEXT), facts.get(PREVIOUS)
    if not selection.lines:
        asked = "&".join(
            [f"{name}={shown(value)[:100]}" for name, value in split_query(uri)[1].items() if name not in _PLACES]
        )
        if asked:
            notes.insert(0, f"No entry of {log} matched {asked}. Try tail=200, another time, or a lower level.")
        else:
            side = "after" if query.after else "before" if query.before else ""
            notes.insert(0, f"Nothing was written {side} this." if side else f"{log} has no entries.")
    if query.forward and selection.more and following:
        return [continuation(str(following), " ".join([*notes, "More follows."]))]
    if not query.forward and not selection.full and previous:
        notes.append(f"For earlier entries, read {previous}")
    if query.plain and not has_budget():  # a tool that reads within a budget gives this hint itself
        notes.append(f"Parts of it: {HOW_TO_ASK}")
    return [remark(str(following or previous or uri), " ".join(notes))] if notes else []
