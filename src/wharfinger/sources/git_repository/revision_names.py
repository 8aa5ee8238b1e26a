"""From the name of a revision to one object: names and object names only, and a few steps to parents.

git's own language for revisions (`:/text`, `^{/expression}`, `@{-1}`, `rev:path`) is refused: no expression of a client
is ever run, and nothing is looked up in reflogs. Only the name of an object is passed on, once.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from wharfinger.errors import InvalidArgument
from wharfinger.sources.git_repository.git_objects import GitObjects
from wharfinger.sources.git_repository.object_reader import AmbiguousName
from wharfinger.sources.git_repository.references import References

__all__ = ["SHORTEST", "GitRevision", "UnknownRevision", "is_full", "resolve", "short_name"]

SHORTEST = 4
"""The least number of digits of an object's name, as in git."""
STEPS = 1_000
"""Parents that a revision may go back."""
CANDIDATES = 50
"""Objects whose names begin in the same way that are looked at."""

_FULL = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}").fullmatch
_SHORT = re.compile(r"[0-9a-f]{4,63}").fullmatch
_PARSED = re.compile(r"([^~^]+)((?:[~^][0-9]{0,7})*)").fullmatch
_STEP = re.compile(r"([~^])([0-9]*)")
# In the order of gitrevisions(7).
_WHERE = ("{}", "refs/{}", "refs/tags/{}", "refs/heads/{}", "refs/remotes/{}", "refs/remotes/{}/HEAD")


class UnknownRevision(LookupError):
    """Nothing in this repository has this name."""


class GitRevision(NamedTuple):
    """One object. `fixed` if its name can never mean another one."""

    oid: str
    fixed: bool


def is_full(name: str) -> bool:
    """Whether a revision is the full name of an object, perhaps with steps to parents."""
    parsed = _PARSED(name)
    return parsed is not None and bool(_FULL(parsed[1]))


async def resolve(name: str, references: References, objects: GitObjects) -> GitRevision:
    """Find the one object that a name means: HEAD, a branch, a tag, an object's name, and `~2` or `^` after it.

    Raises:
        UnknownRevision: there is none, or it cannot be a name.
        InvalidArgument: it could be several, or goes back too far.
    """
    parsed = _PARSED(name)
    if parsed is None:
        raise UnknownRevision(name)
    steps = _STEP.findall(parsed[2])
    if sum([int(number or 1) for kind, number in steps if kind == "~"]) + len(steps) > STEPS:
        raise InvalidArgument(
            f"{name[:100]} goes back more than {STEPS:,} commits: find the commit in the log, and use its name."
        )
    found = await _named(parsed[1], references, objects)
    if not steps:
        return found
    return GitRevision((await objects.info(found.oid + parsed[2])).oid, found.fixed)


async def _named(name: str, references: References, objects: GitObjects) -> GitRevision:
    if _FULL(name) and len(name) == objects.private.length:
        return GitRevision(name, True)
    if name == "HEAD":
        if references.head is None:
            raise UnknownRevision(name)
        return GitRevision(references.head, False)
    for full in _names(name):
        oid = references.names.get(full)
        if oid is not None:
            return GitRevision(oid, False)
    if not _SHORT(name) or len(name) >= objects.private.length:
        raise UnknownRevision(name)
    try:
        oid = (await objects.info(name)).oid
        if oid.startswith(name):  # otherwise a reference outside of branches and tags has this name
            return GitRevision(oid, False)
    except AmbiguousName:
        pass
    candidates = await objects.reader.starting_with(name, CANDIDATES)
    if len(candidates) > 1:
        # As in git, the beginning of a commit's name means the commit, whatever else begins so.
        infos = await objects.infos(candidates)
        candidates = [oid for oid, info in infos.items() if info.kind == "commit"] or candidates
    if len(candidates) > 1:
        raise AmbiguousName(f"The names of several objects start with {name}: write more digits.")
    if not candidates:
        raise UnknownRevision(name)
    return GitRevision(candidates[0], False)


def short_name(name: str, references: References) -> str:
    """The shortest form of a reference's name that means it: `main`, or `heads/main` if a tag has the same name."""
    short = name.split("/", 2)[2]
    ambiguous = _FULL(short) or short == "HEAD"
    if not ambiguous and next((at for at in _names(short) if at in references.names), None) == name:
        return short
    return name.removeprefix("refs/")


def _names(name: str) -> list[str]:
    return [pattern.format(name) for pattern in _WHERE]
