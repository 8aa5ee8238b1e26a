"""A folder as live resources: files and directories listed in pages, read, completed, searched and watched.

Refuses to know who asks, in which revision, or over what.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from msgspec import UNSET, UnsetType

from wharfinger import types as t
from wharfinger.errors import InvalidArgument, ResourceNotFound
from wharfinger.server import mime
from wharfinger.server.source import Changed, Hit, Hits, Source
from wharfinger.sources.file_uri import UnreadableUri, join_parts, quote, split_path
from wharfinger.sources.ignore import Choice, Verdict
from wharfinger.sources.labels import UnusableFolder, default_label, resolve_root
from wharfinger.sources.safe_open import Handle, NotServed, holds, open_file, stat_entry
from wharfinger.sources.tree import Entry, Listing, Parts, Place, Position, Tree, read_key, write_key
from wharfinger.sources.watch import Watch

__all__ = ["CHILDREN", "Count", "Folder", "UnusableFolder", "files", "size_text"]

MIB = 1 << 20
CHILDREN = 1_000
"""Entries that the reading of a directory holds at most."""
COMPLETIONS = 100  # values of one completion (all revisions, completion)
COMPLETING = 0.1  # seconds for looking further than one directory

ENCODING = "wharfinger/encoding"
"""In `_meta` of a text that was not UTF-8: what it was decoded from."""
SUMMARY = "wharfinger/summary"
"""In `_meta` of a directory's child: its text says what the child is, and is not its content."""


class Count(NamedTuple):
    """How much a folder publishes, and how much of it not; `complete` is False where time ran out."""

    files: int
    directories: int
    size: int
    withheld: dict[Verdict, int]
    complete: bool

    def __str__(self) -> str:
        amount = f"{'' if self.complete else 'more than '}{_many(self.files, 'file')}, {size_text(self.size)}"
        reasons = [f"{self.withheld[why]:,} {words}" for why, words in _WITHHELD.items() if self.withheld.get(why)]
        return f"{amount} ({', '.join(reasons)})" if reasons else amount


_WITHHELD: Mapping[Verdict, str] = {
    "ignored": "ignored by .gitignore",
    "hidden": "hidden",
    "secret": "like credentials",
    "excluded": "excluded",
}


def files(
    path: str | os.PathLike[str],
    *,
    label: str | None = None,
    include: Iterable[str] = (),
    exclude: Iterable[str] = (),
    hidden: bool = False,
    absolute_uris: bool = False,
    max_size: int = 32 * MIB,
    poll: bool | float | None = None,
) -> Folder:
    """Publish a folder: `server.include(files("charts"))`.

    `.gitignore` files below the folder hold; `.git`, symbolic links and what is no regular file are never published.

    Args:
        path: The folder.
        label: Its name in URIs, `file:///<label>/…`; the folder's own name by default.
        include: Patterns as in .gitignore: only files that match are published. A hidden, ignored or credential-like
            name that a pattern spells out without a wildcard is published too.
        exclude: Patterns of what is never published.
        hidden: Publish names that begin with a dot, too.
        absolute_uris: Use the folder's real path in URIs, for a server and its client on the same machine.
        max_size: Bytes of the largest file that is read.
        poll: Watch by looking again and again, every so many seconds (True: 1); by default only where the system
            cannot tell of changes.

    Raises:
        UnusableFolder: it is missing, no folder, not readable, or `/` or the home folder by a relative path.
    """
    return Folder(
        resolve_root(path),
        label=label,
        choice=Choice(_several("include", include), _several("exclude", exclude), hidden),
        absolute_uris=absolute_uris,
        max_size=max_size,
        poll=1.0 if poll is True else poll or None,
    )


def _several(name: str, patterns: Iterable[str]) -> tuple[str, ...]:
    if isinstance(patterns, str):
        raise TypeError(f"{name} takes several patterns: write {name}=[{patterns!r}].")
    return tuple(patterns)


class Folder(Source):
    """The source that `files()` makes. Its methods may be called from several threads at once."""

    def __init__(
        self, root: str, *, label: str | None, choice: Choice, absolute_uris: bool, max_size: int, poll: float | None
    ) -> None:
        self.root = root
        self.label = default_label(root) if label is None else label
        if self.label in ("", ".", "..") or "/" in self.label or "\0" in self.label:
            raise UnusableFolder(f"{self.label!r} cannot be a name in URIs: choose another label.")
        self.max_size = max_size
        self.uri = _absolute_uri(root) if absolute_uris else f"file:///{quote(self.label)}"
        self._inside = self.uri if self.uri.endswith("/") else self.uri + "/"
        self.tree = Tree(root, choice)
        self.template = f"{self._inside}{{+path}}"
        shown = _shown(self.label)
        self.templates = [
            t.ResourceTemplate(
                uri_template=self.template,
                name=shown,
                title=f"Any file or folder in {shown}",
                description=f"Path of a file or folder in {shown}, each part percent-encoded, such as docs/guide.md.",
            )
        ]
        self._watch = Watch(self.tree, self._locate, poll)

    def __repr__(self) -> str:
        return f"files({self.root!r}, label={self.label!r})"

    @property
    def watched_by(self) -> str:
        """What tells of changes, in words: `inotify`, or `polling every 1 s (why)`."""
        return self._watch.means

    def claims(self, uri: str) -> bool:
        """Whether this URI is of this folder, existing or not."""
        return uri.startswith(self._inside) or uri == self.uri

    def uri_of(self, parts: Parts) -> str:
        """The URI of a path below the folder."""
        return self._inside + join_parts(parts) if parts else self.uri

    def _locate(self, uri: str) -> tuple[Parts, bool]:
        """The path that a URI means, and whether it can only be a directory."""
        if uri == self.uri:
            return (), True
        if not uri.startswith(self._inside):
            raise ResourceNotFound(uri)
        try:
            parts, slashed = split_path(uri[len(self._inside) :])
        except UnreadableUri:
            raise ResourceNotFound(uri) from None
        return parts, slashed or not parts

    # Listing

    def page(self, after: str | None, limit: int) -> tuple[list[t.Resource], str | None]:
        """At most `limit` resources behind the key, and the key of the next page."""
        resources: list[t.Resource] = []
        position: Position | None = None
        if after is not None:
            try:
                position = read_key(after)
            except ValueError:
                raise InvalidArgument("This cursor is not valid here: list again without one.") from None
        self._watch.asked = time.monotonic()
        entries = self.tree.walk(position)
        try:
            for entry in entries:
                if len(resources) == limit and position is not None:
                    return resources, write_key(position)
                resource = self._resource(entry)
                if resource is not None:
                    resources.append(resource)
                    position = Position(entry.directory, entry.parts)
        finally:
            entries.close()
            self._watch.asked = time.monotonic()
        return resources, None

    def children(
        self, uri: str, after: str | None = None, limit: int = CHILDREN
    ) -> tuple[list[t.Resource], str | None]:
        """The entries of a directory in pages: sub-directories by name, then files by name.

        Raises:
            ResourceNotFound: there is no such directory.
        """
        parts, _ = self._locate(uri)
        try:
            with self.tree.directory(parts) as place:
                return self._children(place, parts, after, limit)
        except NotServed:
            raise ResourceNotFound(uri) from None

    def _children(
        self, place: Place, parts: Parts, after: str | None, limit: int
    ) -> tuple[list[t.Resource], str | None]:
        listing = self.tree.listing(place)
        resources: list[t.Resource] = []
        last: Position | None = None
        for directory, name in _names(listing, after):
            if len(resources) == limit and last is not None:
                return resources, write_key(last)
            resource = self._child(place.handle, (*parts, name), directory)
            if resource is not None:
                resources.append(resource)
                last = Position(directory, (name,))
        return resources, None

    def _child(self, handle: Handle, parts: Parts, directory: bool) -> t.Resource | None:
        name = parts[-1]
        try:
            with holds():
                status = stat_entry(handle, name)
        except NotServed:
            return None
        return self._describe(parts, mime.DIRECTORY if directory else _listed_type(handle, name), status)

    def _resource(self, entry: Entry) -> t.Resource | None:
        if not entry.directory:
            return self._child(entry.handle, entry.parts, False)
        try:
            with holds():
                return self._describe(entry.parts, mime.DIRECTORY, os.stat(entry.handle))
        except NotServed:
            return None

    def _describe(self, parts: Parts, kind: str, status: os.stat_result, uri: str = "") -> t.Resource:
        name = _shown(parts[-1] if parts else self.label)
        modified = _iso(status.st_mtime)
        return t.Resource(
            uri=uri or self.uri_of(parts),
            name=name,
            title="/".join([_shown(part) for part in parts]) if len(parts) > 1 else name,
            mime_type=kind,
            size=UNSET if kind == mime.DIRECTORY else status.st_size,
            annotations=t.Annotations(last_modified=modified) if modified else UNSET,
        )

    def stat(self, uri: str) -> t.Resource:
        """What is known of a URI that can be read, without reading it.

        Raises:
            ResourceNotFound: missing or not published, which look the same.
        """
        parts, only_directory = self._locate(uri)
        try:
            if not only_directory:
                try:
                    with self.tree.file(parts) as descriptor:
                        kind = _type(parts[-1], descriptor)
                        return self._describe(parts, kind, os.fstat(descriptor), uri)
                except NotServed:
                    pass
            with self.tree.directory(parts) as place, holds():
                return self._describe(parts, mime.DIRECTORY, os.stat(place.handle), uri)
        except NotServed:
            raise ResourceNotFound(uri) from None

    # Reading

    def read(self, uri: str) -> t.ReadResourceResult:
        """The content of a file, or a directory's listing with one more content for each child.

        Raises:
            ResourceNotFound: missing or not published, which look the same.
            InvalidArgument: the file is larger than `max_size`.
        """
        parts, only_directory = self._locate(uri)
        try:
            if not only_directory:
                try:
                    with self.tree.file(parts) as descriptor:
                        return self._read_file(uri, parts[-1], descriptor)
                except NotServed:
                    pass
            with self.tree.directory(parts) as place:
                return self._read_directory(uri, parts, place)
        except NotServed:
            raise ResourceNotFound(uri) from None

    def _read_file(self, uri: str, name: str, descriptor: int) -> t.ReadResourceResult:
        size = os.fstat(descriptor).st_size
        if size > self.max_size:
            raise self._too_large(uri, size)
        with holds():  # a file system may say only now that it does not want to (EACCES, ESTALE)
            data = _read_all(descriptor, size, self.max_size)
        if len(data) > self.max_size:
            raise self._too_large(uri, len(data))
        decoded = mime.decode_text(data)
        kind = mime.classify(name, data[: mime.SNIFFED], decoded is not None)
        if decoded is None or kind == mime.PDF:
            return t.ReadResourceResult(contents=[t.ResourceContents(uri=uri, mime_type=kind, blob=data)])
        text, encoding = decoded
        meta: dict[str, object] | UnsetType = UNSET if encoding == "utf-8" else {ENCODING: encoding}
        return t.ReadResourceResult(contents=[t.ResourceContents(uri=uri, mime_type=kind, text=text, meta=meta)])

    def _too_large(self, uri: str, size: int) -> InvalidArgument:
        return InvalidArgument(
            f"This file has {size_text(size)}, and at most {size_text(self.max_size)} are read at once "
            f"(max_size={self.max_size} of files(), --max-size of `wharfinger serve`).",
            data={"uri": uri, "size": size, "limit": self.max_size},
        )

    def _read_directory(self, uri: str, parts: Parts, place: Place) -> t.ReadResourceResult:
        listing = self.tree.listing(place)
        children, _ = self._children(place, parts, None, CHILDREN)
        text = self._listing_text(parts, listing, children)
        contents = [t.ResourceContents(uri=uri, mime_type=mime.TEXT, text=text)]
        contents += [_summary(child) for child in children]
        return t.ReadResourceResult(contents=contents)

    def _listing_text(self, parts: Parts, listing: Listing, children: list[t.Resource]) -> str:
        where = "/".join([_shown(part) for part in (self.label, *parts)])
        lines = [f"{where}/ holds {_many(len(listing.directories), 'folder')} and {_many(len(listing.files), 'file')}."]
        if len(listing) > CHILDREN:
            lines.append(
                f"Only the first {CHILDREN:,} of {len(listing):,} entries follow. "
                f"The others are in resources/list, and in the completion of {self.template}."
            )
        if children:
            lines.append("")
        lines += [f"{child.name}{_facts(child)}  {child.uri}" for child in children]
        return "\n".join(lines) + "\n"

    # Finding

    def complete(self, template: str, argument: str, value: str, context: Mapping[str, str]) -> list[str]:
        """Paths that begin with `value`, then those that have its last part in their name; directories end with `/`."""
        if argument != "path":
            return []
        head, _, typed = value.rpartition("/")
        try:
            parts = split_path(head)[0] if head else ()
            with self.tree.directory(parts) as place:
                listing = self.tree.listing(place)
        except (NotServed, UnreadableUri):
            return []
        wanted = _typed(typed)
        found = _completions(parts, listing, wanted)
        if wanted and len(found) < COMPLETIONS:
            found += self._complete_deeper(parts, wanted, COMPLETIONS - len(found), set(found))
        return found[:COMPLETIONS]

    def _complete_deeper(self, parts: Parts, wanted: str, most: int, known: set[str]) -> list[str]:
        """Paths further down whose last part holds what was typed, as far as a tenth of a second goes."""
        ends = time.monotonic() + COMPLETING
        found: list[str] = []
        entries = self.tree.walk(Position(True, parts)) if parts else self.tree.walk()
        try:
            for number, entry in enumerate(entries):
                if entry.parts[: len(parts)] != parts or len(found) >= most:
                    break
                if number % 256 == 255 and time.monotonic() > ends:
                    break
                if wanted in entry.name.casefold():
                    path = join_parts(entry.parts) + ("/" if entry.directory else "")
                    if path not in known:
                        found.append(path)
        finally:
            entries.close()
        return found

    def search(self, query: str, limit: int) -> Hits:
        """Files and directories whose path has every word of `query`, then files whose text has; within bounds."""
        from wharfinger.sources.file_search import search_tree

        results = search_tree(self.tree, query, limit)
        hits = Hits()
        hits.cut = results.cut
        for found in results.found:
            uri = self.uri_of(found.parts)
            try:
                resource = self.stat(uri)
            except ResourceNotFound:
                continue
            hits.append(Hit(uri=uri, title=str(resource.title), snippet=found.snippet, resource=resource))
        return hits

    def count(self, seconds: float = 1.0) -> Count:
        """Count what is published, for at most about this long. Blocks: call it in a thread."""
        ends = time.monotonic() + seconds
        number = directories = size = 0
        complete = True
        withheld: dict[Verdict, int] = {}
        entries = self.tree.walk()
        try:
            for entry in entries:
                if entry.directory:
                    directories += 1
                    for why, many in entry.listing.withheld.items():
                        withheld[why] = withheld.get(why, 0) + many
                    continue
                try:
                    size += stat_entry(entry.handle, entry.name).st_size
                except (OSError, NotServed):
                    continue
                number += 1
                if number % 256 == 0 and time.monotonic() > ends:
                    complete = False
                    break
        finally:
            entries.close()
        return Count(number, directories, size, withheld, complete)

    # Watching

    def attach(self, uri: str | None, changed: Changed) -> None:
        """Tell `changed` when this URI's content changes, or the list."""
        self._watch.attach(uri, changed)

    def detach(self, uri: str | None) -> None:
        """Stop telling."""
        self._watch.detach(uri)

    async def close(self) -> None:
        """Stop watching."""
        self._watch.close()


def size_text(octets: int) -> str:
    """A number of bytes for people: `512 B`, `2.1 KiB`, `38 MiB`."""
    value, unit = float(octets), 0
    while value >= 1024 and unit < 4:
        value, unit = value / 1024, unit + 1
    return f"{value:.1f} {_UNITS[unit]}" if unit and value < 10 else f"{value:.0f} {_UNITS[unit]}"


_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def _many(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def _shown(name: str) -> str:
    """A file name as text for people and JSON: what cannot be shown is written as an escape."""
    if name.isprintable():
        return name
    return "".join(
        character
        if character.isprintable()
        else f"\\x{code & 0xFF:02x}"
        if (code := ord(character)) < 256 or 0xDC80 <= code <= 0xDCFF
        else f"\\u{code:04x}"
        for character in name
    )


def _iso(seconds: float) -> str:
    """A time as ISO 8601 in UTC; empty where it is none."""
    try:
        return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds)) if seconds > -62135596800 else ""
    except (OverflowError, ValueError, OSError):
        return ""


def _type(name: str, descriptor: int) -> str:
    """The type that the name promises, or else that the first bytes show."""
    promised = mime.by_name(name)
    if promised:
        return promised
    try:
        head = os.read(descriptor, mime.SNIFFED)
    except OSError:
        return mime.OCTETS
    return mime.classify(name, head, mime.begins_text(head))


def _listed_type(parent: Handle, name: str) -> str:
    """The type of a file in a list, which is opened only where its name promises nothing."""
    promised = mime.by_name(name)
    if promised:
        return promised
    try:
        descriptor = open_file(parent, name)
    except (NotServed, OSError):
        return mime.OCTETS
    try:
        return _type(name, descriptor)
    finally:
        os.close(descriptor)


def _absolute_uri(root: str) -> str:
    drive, rest = os.path.splitdrive(root.replace(os.sep, "/"))
    path = "/".join(quote(part) for part in rest.strip("/").split("/"))
    return f"file:///{quote(drive)}/{path}" if drive else f"file:///{path}"


def _read_all(descriptor: int, size: int, most: int) -> bytes:
    """The whole file, and a little more than `most` if it grew beyond."""
    data = os.read(descriptor, size + 1)
    if len(data) == size:
        return data
    pieces = [data]
    total = len(data)
    while data and total <= most:
        data = os.read(descriptor, min(1 << 20, most + 1 - total))
        pieces.append(data)
        total += len(data)
    return b"".join(pieces)


def _names(listing: Listing, after: str | None) -> Iterable[tuple[bool, str]]:
    """The entries of a directory behind a key: sub-directories, then files."""
    behind = Position(True, ("",))
    if after is not None:
        try:
            behind = read_key(after)
        except ValueError:
            raise InvalidArgument("This cursor is not valid here: list again without one.") from None
    last = behind.parts[-1] if behind.parts else ""
    if behind.directory:
        for at in range(listing.directories.behind(last), len(listing.directories)):
            yield True, listing.directories[at]
        last = ""
    for at in range(listing.files.behind(last), len(listing.files)):
        yield False, listing.files[at]


def _facts(resource: t.Resource) -> str:
    if resource.mime_type == mime.DIRECTORY:
        return "/"
    annotations = resource.annotations
    modified = f", {annotations.last_modified}" if annotations is not UNSET else ""
    return f"  ({size_text(resource.size or 0)}, {resource.mime_type}{modified})"


def _summary(child: t.Resource) -> t.ResourceContents:
    """A child in the reading of its directory.

    VS Code takes a child with an empty content for a directory and any other for a file, whatever else it says, so that
    an empty file must not be shown by its content (its mcpResourceFilesystem, `readdir`).
    """
    directory = child.mime_type == mime.DIRECTORY
    return t.ResourceContents(
        uri=child.uri,
        mime_type=mime.DIRECTORY if directory else mime.TEXT,
        text="" if directory else f"{size_text(child.size or 0)} {child.mime_type}",
        meta={SUMMARY: True},
    )


def _typed(typed: str) -> str:
    """What a person typed of a name, which may be percent-encoded, or half so."""
    try:
        return split_path(typed)[0][0].casefold() if typed else ""
    except (UnreadableUri, IndexError):
        return typed.casefold()


def _completions(parts: Parts, listing: Listing, wanted: str) -> list[str]:
    """The entries of one directory that begin with what was typed, then those that hold it."""
    before = join_parts(parts) + "/" if parts else ""
    begin: list[str] = []
    hold: list[str] = []
    for names, end in ((listing.directories, "/"), (listing.files, "")):
        for name in names:
            folded = name.casefold()
            if folded.startswith(wanted):
                begin.append(before + quote(name) + end)
                if len(begin) >= COMPLETIONS:
                    return begin
            elif wanted in folded and len(hold) < COMPLETIONS:
                hold.append(before + quote(name) + end)
    return begin + hold
