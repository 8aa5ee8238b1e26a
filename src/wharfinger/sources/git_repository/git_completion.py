"""Completing revisions and paths."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

from wharfinger.errors import InvalidArgument
from wharfinger.sources.folder.file_uri import UnreadableUri, join_parts, split_path
from wharfinger.sources.git_repository.answers import Repository
from wharfinger.sources.git_repository.git_uris import Parts
from wharfinger.sources.git_repository.parsing import GitTreeEntry
from wharfinger.sources.git_repository.references import BRANCHES, REMOTES, TAGS, References
from wharfinger.sources.git_repository.revision_names import SHORTEST, commit_of, resolve, short_name
from wharfinger.sources.git_repository.trees import find, is_tree, name_of, walk
from wharfinger.sources.name_completion import COMPLETIONS
from wharfinger.sources.path_completion import typed_name

__all__ = ["complete"]

COMPLETING = 0.1  # seconds for looking further than one folder

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
