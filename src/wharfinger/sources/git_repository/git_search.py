"""Completing revisions and paths, and looking through files and messages where no index is kept, within bounds."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

from wharfinger.content import mime
from wharfinger.errors import InvalidArgument
from wharfinger.source import Hit, Hits
from wharfinger.sources.folder.file_uri import UnreadableUri, join_parts, split_path
from wharfinger.sources.git_repository.answer_commit import commit_resource
from wharfinger.sources.git_repository.answer_tree import entry_resource
from wharfinger.sources.git_repository.answers import Repository
from wharfinger.sources.git_repository.git_uris import Parts
from wharfinger.sources.git_repository.history import LIMIT
from wharfinger.sources.git_repository.objects import MissingObject
from wharfinger.sources.git_repository.parsing import GitTreeEntry
from wharfinger.sources.git_repository.references import BRANCHES, REMOTES, TAGS, References
from wharfinger.sources.git_repository.revision_names import SHORTEST, UnknownRevision, commit_of, resolve, short_name
from wharfinger.sources.git_repository.trees import NoSuchPath, find, is_link, is_module, is_tree, name_of, walk
from wharfinger.sources.path_completion import typed_name
from wharfinger.sources.text_match import COMPLETIONS, has_all, line_with, words_of

__all__ = ["complete", "search"]

COMPLETING = 0.1  # seconds for looking further than one folder
SEARCHING = 1.0  # seconds of one search
LARGEST = 1 << 20  # bytes of a file that is searched through
COMMITS = 2_000  # commits whose messages are searched through

_HEX = re.compile(r"[0-9a-f]{4,40}").fullmatch
_REVISIONS = frozenset(("rev", "from", "to"))


def complete(
    repository: Repository, references: References, argument: str, value: str, context: Mapping[str, str]
) -> list[str]:
    """What may stand for an argument of a template, given its beginning."""
    if argument in _REVISIONS:
        return list(islice(_revisions(repository, references, value), COMPLETIONS))
    if argument == "path":
        return _paths(repository, references, value, context)
    return []


def _revisions(repository: Repository, references: References, value: str) -> Iterator[str]:
    """Names that begin so, then those that hold it, then the short names of commits."""
    wanted = value.casefold()
    names = [] if references.head is None else ["HEAD"]
    for prefix in (BRANCHES, TAGS, REMOTES):
        names += [short_name(prefix + name, references) for name in references.under(prefix)]
    names = [name for name in names if name.isprintable()]
    found = [name for name in names if name.casefold().startswith(wanted)]
    yield from found
    if wanted:
        yield from (name for name in names if wanted in name.casefold()[1:] and name not in set(found[:COMPLETIONS]))
    if len(value) >= SHORTEST and _HEX(value):
        for oid in repository.objects.starting_with(value, COMPLETIONS):
            if repository.objects.header(oid)[0] == "commit":
                yield oid if len(value) > 12 else oid[:12]


def _paths(repository: Repository, references: References, value: str, context: Mapping[str, str]) -> list[str]:
    """Paths that begin so, then those that have it in their last part; folders end with a slash."""
    objects = repository.objects
    head, _, typed = value.rpartition("/")
    try:
        rev = context.get("rev") or context.get("to") or "HEAD"
        tree = commit_of(resolve(rev, references, objects).oid, objects).tree
        parts = split_path(head)[0] if head else ()
        folder = find(objects, tree, parts)
        entries: Sequence[GitTreeEntry] = objects.tree(folder.oid) if is_tree(folder.mode) else ()
        wanted = typed_name(typed)
    except (LookupError, InvalidArgument, UnreadableUri):
        return []
    begin: list[str] = []
    hold: list[str] = []
    for entry in entries:
        name = name_of(entry).casefold()
        if name.startswith(wanted):
            begin.append(_completion((*parts, name_of(entry)), entry))
            if len(begin) >= COMPLETIONS:
                return begin
        elif wanted in name:
            hold.append(_completion((*parts, name_of(entry)), entry))
    found = dict.fromkeys(begin + hold)
    if wanted and len(found) < COMPLETIONS:
        ends = time.monotonic() + COMPLETING
        for below, entry in walk(objects, folder.oid):
            if len(found) >= COMPLETIONS or time.monotonic() > ends:
                break
            if wanted in below[-1].casefold():
                found[_completion((*parts, *below), entry)] = None
    return list(found)[:COMPLETIONS]


def _completion(parts: Parts, entry: GitTreeEntry) -> str:
    return join_parts(parts) + ("/" if is_tree(entry.mode) else "")


def search(repository: Repository, references: References, query: str, limit: int) -> Hits:
    """Files of HEAD whose path has all the words, then those whose text has, then commits whose message has."""
    hits = Hits()
    words = words_of(query)
    if not words or references.head is None:
        return hits
    ends = time.monotonic() + SEARCHING
    found: dict[str, Hit] = {}
    for look in (_by_path, _by_message, _by_text):
        try:
            for hit in look(repository, references, words, ends):
                found.setdefault(hit.uri, hit)
                if len(found) >= limit:
                    break
        except _Late:
            hits.truncated = f"Searching stopped after {SEARCHING:g} s: more words, or an index, would find more."
        except (MissingObject, UnknownRevision, NoSuchPath, InvalidArgument):
            hits.truncated = "Some objects of the repository cannot be read."
        if len(found) >= limit:
            break
    hits += list(found.values())[:limit]
    return hits


class _Late(Exception):
    """The time for searching is over."""


def _by_path(repository: Repository, references: References, words: list[str], ends: float) -> Iterator[Hit]:
    for parts, entry in _files(repository, references, ends):
        if has_all("/".join(parts), words):
            yield _hit(repository, parts, entry, "")


def _by_message(repository: Repository, references: References, words: list[str], ends: float) -> Iterator[Hit]:
    assert references.head is not None
    tip = commit_of(references.head, repository.objects).oid
    history = repository.histories.walk(tip, references.shallow)
    for number, commit in enumerate(islice(history.commits(0), COMMITS)):
        if number % LIMIT == 0 and time.monotonic() > ends:
            raise _Late
        if has_all(commit.message, words):
            resource = commit_resource(repository, commit)
            snippet = line_with(commit.message, words)
            yield Hit(uri=resource.uri, title=str(resource.title), snippet=snippet, resource=resource)


def _by_text(repository: Repository, references: References, words: list[str], ends: float) -> Iterator[Hit]:
    objects = repository.objects
    for parts, entry in _files(repository, references, ends):
        if is_tree(entry.mode) or is_link(entry.mode) or is_module(entry.mode):
            continue
        try:
            if objects.header(entry.oid)[1] > LARGEST:
                continue
            decoded = mime.decode_text(objects.whole(entry.oid)[1])
        except (MissingObject, InvalidArgument):
            continue
        if decoded is not None and has_all(decoded[0], words):
            yield _hit(repository, parts, entry, line_with(decoded[0], words))


def _files(repository: Repository, references: References, ends: float) -> Iterator[tuple[Parts, GitTreeEntry]]:
    assert references.head is not None
    tree = commit_of(references.head, repository.objects).tree
    for parts, entry in walk(repository.objects, tree):
        if time.monotonic() > ends:
            raise _Late
        yield parts, entry


def _hit(repository: Repository, parts: Parts, entry: GitTreeEntry, snippet: str) -> Hit:
    resource = entry_resource(repository, "HEAD", parts, entry)
    return Hit(uri=resource.uri, title=str(resource.title), snippet=snippet, resource=resource)
