"""Completes revisions and paths."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from wharfinger.errors import InvalidArgument
from wharfinger.policy.current import may_read
from wharfinger.sources.folder.file_uri import UnreadableUri, join_parts, split_path
from wharfinger.sources.git_repository.answers import Repository
from wharfinger.sources.git_repository.git_objects import is_tree
from wharfinger.sources.git_repository.git_uris import Parts
from wharfinger.sources.git_repository.parsing import GitTreeEntry
from wharfinger.sources.git_repository.references import BRANCHES, REMOTES, TAGS, References
from wharfinger.sources.git_repository.revision_names import begins_oid, short_name
from wharfinger.sources.name_completion import MAX_COMPLETIONS
from wharfinger.sources.path_completion import typed_name

__all__ = ["complete"]

COMPLETION_SECONDS = 0.1
"""Maximum time of the search for paths below the typed folder."""

_REVISIONS = frozenset(("rev", "from", "to"))


async def complete(
    repository: Repository, references: References, argument: str, value: str, context: Mapping[str, str]
) -> list[str]:
    """Return completions of `value`, the beginning of an argument of a template."""
    if argument in _REVISIONS:
        return await _revisions(repository, references, value)
    if argument == "path":
        return await _paths(repository, references, value, context)
    return []


async def _revisions(repository: Repository, references: References, value: str) -> list[str]:
    """Return names that begin with `value`, then others that contain it, then names of commits.

    Among the tags, newer ones come first.
    """
    folded = value.casefold()
    names = [] if references.head is None else ["HEAD"]
    tags = await repository.references.tags(references)
    for prefix, under in ((BRANCHES, references.under(BRANCHES)), (TAGS, tags), (REMOTES, references.under(REMOTES))):
        names += [short_name(prefix + name, references) for name in under]
    readable = repository.readable_history()
    if readable is not None:
        names = [name for name in names if may_read(repository.uris.tree(name))]
    names = [name for name in names if name.isprintable()]
    matches = [name for name in names if name.casefold().startswith(folded)]
    if folded:
        matches += [name for name in names if folded in name.casefold() and not name.casefold().startswith(folded)]
    if len(matches) < MAX_COMPLETIONS and begins_oid(value):
        infos = await repository.objects.infos(await repository.objects.reader.starting_with(value, MAX_COMPLETIONS))
        commits = [oid for oid, info in infos.items() if info.kind == "commit"]
        if readable is not None:
            commits = [oid for oid in commits if may_read(repository.uris.commit(oid)) and await readable.shows(oid)]
        matches += [oid if len(value) > 12 else oid[:12] for oid in commits]
    return matches[:MAX_COMPLETIONS]


async def _paths(repository: Repository, references: References, value: str, context: Mapping[str, str]) -> list[str]:
    """Return paths that begin with `value`, then others whose name contains its last part. Folders end with a slash."""
    objects = repository.objects
    folder_path, _, typed = value.rpartition("/")
    try:
        rev = context.get("rev") or context.get("to") or "HEAD"
        readable = repository.readable_history()
        tree = (await objects.commit_of((await repository.revision(rev, references, readable)).oid)).tree
        parts = split_path(folder_path)[0] if folder_path else ()
        folder = await objects.find(tree, parts)
        entries: Sequence[GitTreeEntry] = await objects.tree(folder.oid) if is_tree(folder.mode) else ()
        if readable is not None and is_tree(folder.mode):
            entries = [entry for entry in entries if readable.may_read(rev, (*parts, entry.part))]
        folded = typed_name(typed)
    except (LookupError, InvalidArgument, UnreadableUri):
        return []
    beginning: list[str] = []
    containing: list[str] = []
    for entry in entries:
        name = entry.part.casefold()
        if name.startswith(folded):
            beginning.append(_completion((*parts, entry.part), entry))
            if len(beginning) >= MAX_COMPLETIONS:
                return beginning
        elif folded in name:
            containing.append(_completion((*parts, entry.part), entry))
    matches = dict.fromkeys(beginning + containing)
    if folded and len(matches) < MAX_COMPLETIONS and is_tree(folder.mode):
        deadline = time.monotonic() + COMPLETION_SECONDS

        def should_enter(below: Parts) -> bool:
            return readable is None or readable.may_read_below(rev, (*parts, *below))

        async for below, entry in objects.walk(folder.oid, should_enter=should_enter):
            if len(matches) >= MAX_COMPLETIONS or time.monotonic() > deadline:
                break
            if folded in below[-1].casefold() and (readable is None or readable.may_read(rev, (*parts, *below))):
                matches[_completion((*parts, *below), entry)] = None
    return list(matches)[:MAX_COMPLETIONS]


def _completion(parts: Parts, entry: GitTreeEntry) -> str:
    return join_parts(parts) + ("/" if is_tree(entry.mode) else "")
