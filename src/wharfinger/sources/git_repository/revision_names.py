"""Resolves the name of a revision to one object: a reference or an object's name, and steps to parents.

Other forms that git understands (`:/text`, `^{/expression}`, `@{-1}`, `rev:path`) are refused, so no expression of a
client is ever run, and no reflog is read. A name is resolved once, and only the name of its object is passed on.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from wharfinger.errors import InvalidArgument
from wharfinger.sources.git_repository.git_objects import GitObjects
from wharfinger.sources.git_repository.object_reader import AmbiguousName
from wharfinger.sources.git_repository.references import References

__all__ = ["GitRevision", "UnknownRevision", "begins_oid", "is_full", "resolve", "short_name"]

MAX_GENERATIONS = 1_000
"""Maximum number of generations that a revision may go back."""
MAX_CANDIDATES = 50
"""Maximum number of objects with the same first digits that are examined."""

Nearest = Callable[[str], Awaitable[str]]
"""Returns the commit itself or, if it is hidden, the nearest shown one before it; raises UnknownRevision."""

_FULL = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}").fullmatch
begins_oid = re.compile(r"[0-9a-f]{4,64}").fullmatch
"""Matches a text with which the name of an object may begin. git requires four digits."""
_PARSED = re.compile(r"([^~^]+)((?:[~^][0-9]{0,7})*)").fullmatch
_STEP = re.compile(r"([~^])([0-9]*)")
# In the order of gitrevisions(7).
_REFERENCE_FORMS = ("{}", "refs/{}", "refs/tags/{}", "refs/heads/{}", "refs/remotes/{}", "refs/remotes/{}/HEAD")


class UnknownRevision(LookupError):
    """Nothing in this repository has this name."""


class GitRevision(NamedTuple):
    """The object that a name means. `fixed` is true if the name can never mean another object."""

    oid: str
    fixed: bool


def is_full(name: str) -> bool:
    """Return whether a revision is the full name of an object, with or without steps to parents."""
    parsed = _PARSED(name)
    return parsed is not None and bool(_FULL(parsed[1]))


async def resolve(
    name: str, references: References, objects: GitObjects, nearest: Nearest | None = None
) -> GitRevision:
    """Find the object that a name means: HEAD, a branch, a tag or an object's name, which `~2` or `^` may follow.

    With `nearest`, only commits are found, and each is replaced by the one that `nearest` returns (`readable_history`).

    Raises:
        UnknownRevision: nothing has this name, or it cannot be a name. Without `nearest`, the full name of an object is
            not checked.
        MissingObject: the steps lead to no object.
        InvalidArgument: several objects could be meant, or the name goes back too far.
    """
    parsed = _PARSED(name)
    if parsed is None:
        raise UnknownRevision(name)
    steps = _STEP.findall(parsed[2])
    if sum([int(number or 1) for kind, number in steps if kind == "~"]) + len(steps) > MAX_GENERATIONS:
        raise InvalidArgument(
            f"{name[:100]} goes back more than {MAX_GENERATIONS:,} commits: "
            "find the commit in the log, and use its name."
        )
    if nearest is not None:
        return await _resolve_shown(parsed[1], steps, references, objects, nearest)
    revision = await _resolve_name(parsed[1], references, objects)
    if not steps:
        return revision
    return GitRevision((await objects.info(revision.oid + parsed[2])).oid, revision.fixed)


async def _resolve_shown(
    name: str, steps: list[tuple[str, str]], references: References, objects: GitObjects, nearest: Nearest
) -> GitRevision:
    """Resolve a name with `nearest`: each step goes from one shown commit to the next."""
    if begins_oid(name) and not any(full in references.names for full in _full_names(name)):
        is_full_name = len(name) == objects.private_directory.oid_length
        candidates = [name] if is_full_name else await objects.reader.starting_with(name, MAX_CANDIDATES)
        infos = await objects.infos(candidates)
        oids = [oid for oid, info in infos.items() if info.kind == "commit" and await _is_shown(oid, nearest)]
        if len(oids) != 1:
            raise AmbiguousName(name) if oids else UnknownRevision(name)
        revision = GitRevision(oids[0], is_full_name)
    else:
        revision = await _resolve_name(name, references, objects)
    info = await objects.peel(revision.oid)
    if info.kind != "commit":
        raise UnknownRevision(name)
    oid = await nearest(info.oid)
    for kind, number in steps:
        times, parent = (int(number or 1), 1) if kind == "~" else (1, int(number or 1))
        for _ in range(times if parent else 0):  # `^0` is the commit itself
            parents = (await objects.commit(oid)).parents
            if len(parents) < parent:
                raise UnknownRevision(name)
            oid = await nearest(parents[parent - 1])
    return GitRevision(oid, revision.fixed and oid == info.oid)


async def _is_shown(oid: str, nearest: Nearest) -> bool:
    try:
        return await nearest(oid) == oid
    except LookupError:
        return False


async def _resolve_name(name: str, references: References, objects: GitObjects) -> GitRevision:
    if _FULL(name) and len(name) == objects.private_directory.oid_length:
        return GitRevision(name, True)
    if name == "HEAD":
        if references.head is None:
            raise UnknownRevision(name)
        return GitRevision(references.head, False)
    for full in _full_names(name):
        oid = references.names.get(full)
        if oid is not None:
            return GitRevision(oid, False)
    if not begins_oid(name) or len(name) >= objects.private_directory.oid_length:
        raise UnknownRevision(name)
    try:
        oid = (await objects.info(name)).oid
        if oid.startswith(name):  # otherwise a reference outside of branches and tags has this name
            return GitRevision(oid, False)
    except AmbiguousName:
        pass
    candidates = await objects.reader.starting_with(name, MAX_CANDIDATES)
    if len(candidates) > 1:
        # As in git, the first digits of a commit's name mean the commit, even if other objects share them.
        infos = await objects.infos(candidates)
        candidates = [oid for oid, info in infos.items() if info.kind == "commit"] or candidates
    if len(candidates) > 1:
        raise AmbiguousName(name)
    if not candidates:
        raise UnknownRevision(name)
    return GitRevision(candidates[0], False)


def short_name(name: str, references: References) -> str:
    """Return the shortest unambiguous name of a reference: `main`, or `heads/main` if a tag has the same name."""
    short_form = name.split("/", 2)[2]
    ambiguous = _FULL(short_form) or short_form == "HEAD"
    if not ambiguous and next((full for full in _full_names(short_form) if full in references.names), None) == name:
        return short_form
    return name.removeprefix("refs/")


def _full_names(name: str) -> list[str]:
    return [pattern.format(name) for pattern in _REFERENCE_FORMS]
