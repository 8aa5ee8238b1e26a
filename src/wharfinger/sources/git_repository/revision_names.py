"""From the name of a revision to one object: names and object names only, and a few steps to parents.

git's own language for revisions (`:/text`, `^{/expression}`, `@{-1}`, `rev:path`) is refused: no expression of a client
is ever run, and nothing is looked for in reflogs. Refuses to know URIs.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from wharfinger.errors import InvalidArgument
from wharfinger.sources.git_repository.objects import PureMissing, PureReader
from wharfinger.sources.git_repository.parsing import Commit
from wharfinger.sources.git_repository.references import References

__all__ = ["SHORTEST", "GitRevision", "UnknownRevision", "commit_of", "peel", "resolve", "short_name"]

SHORTEST = 4  # digits of an object's name at least, as git has it
STEPS = 1_000  # parents that a revision may go back
PEELED = 10  # tags of tags

_FULL = re.compile(r"[0-9a-f]{40}").fullmatch
_SHORT = re.compile(r"[0-9a-f]{4,39}").fullmatch
_PARSED = re.compile(r"([^~^]+)((?:[~^][0-9]{0,7})*)").fullmatch
_STEP = re.compile(r"([~^])([0-9]*)")
# In the order of gitrevisions(7).
_WHERE = ("{}", "refs/{}", "refs/tags/{}", "refs/heads/{}", "refs/remotes/{}", "refs/remotes/{}/HEAD")


class UnknownRevision(LookupError):
    """Nothing here has this name."""


class GitRevision(NamedTuple):
    """One object. `fixed` where its name can never mean another one."""

    oid: str
    fixed: bool


def resolve(name: str, references: References, objects: PureReader) -> GitRevision:
    """Find the one object that a name means: HEAD, a branch, a tag, an object's name, and `~2` or `^` behind it.

    Raises:
        UnknownRevision: there is none, or it cannot be a name.
        InvalidArgument: it could be several, or goes back too far.
    """
    parsed = _PARSED(name)
    if parsed is None:
        raise UnknownRevision(name)
    found = _named(parsed[1], references, objects)
    steps = [(kind, int(number or 1)) for kind, number in _STEP.findall(parsed[2])]
    if sum(number for kind, number in steps if kind == "~") + len(steps) > STEPS:
        raise InvalidArgument(
            f"{name} goes back more than {STEPS:,} commits: find the commit in the log, and use its name."
        )
    oid = found.oid
    for kind, number in steps:
        oid = _step(kind, number, commit_of(oid, objects), references, name, objects)
    return GitRevision(oid, found.fixed)


def _named(name: str, references: References, objects: PureReader) -> GitRevision:
    if _FULL(name):
        if name not in objects:
            raise UnknownRevision(name)
        return GitRevision(name, True)
    if name == "HEAD":
        if references.head is None:
            raise UnknownRevision(name)
        return GitRevision(references.head, False)
    for full in _names(name):
        oid = references.names.get(full)
        if oid is not None:
            return GitRevision(oid, False)
    if not _SHORT(name):
        raise UnknownRevision(name)
    candidates = objects.starting_with(name, 50)
    if len(candidates) > 1:
        # As git does: a short name of a commit means that, whatever else begins so.
        candidates = [oid for oid in candidates if objects.header(oid)[0] == "commit"] or candidates
    if len(candidates) > 1:
        raise InvalidArgument(f"The names of several objects start with {name}: write more digits.")
    if not candidates:
        raise UnknownRevision(name)
    return GitRevision(candidates[0], False)


def _step(kind: str, number: int, commit: Commit, references: References, name: str, objects: PureReader) -> str:
    """`~n` goes to first parents, `^n` to the n-th parent, and `^0` stays."""
    for _ in range(number if kind == "~" else min(number, 1)):
        parents = () if commit.oid in references.shallow else commit.parents
        wanted = 1 if kind == "~" else number
        if len(parents) < wanted:
            raise UnknownRevision(name)
        commit = objects.commit(parents[wanted - 1])
    return commit.oid


def peel(oid: str, objects: PureReader) -> tuple[str, str]:
    """The kind and name of what is not a tag.

    Raises:
        PureMissing: the object, or that which a tag stands for, is not there.
    """
    for _ in range(PEELED):
        kind, _size = objects.header(oid)
        if kind != "tag":
            return kind, oid
        oid = objects.tag(oid).target
    raise PureMissing(oid)


def commit_of(oid: str, objects: PureReader) -> Commit:
    """The commit that an object is, or that a tag stands for.

    Raises:
        PureMissing: it is none.
    """
    return objects.commit(peel(oid, objects)[1])


def short_name(name: str, references: References) -> str:
    """The shortest form of a reference's name that means it: `main`, or `heads/main` where a tag has the same name."""
    short = name.split("/", 2)[2]
    ambiguous = _FULL(short) or short == "HEAD"
    if not ambiguous and next((at for at in _names(short) if at in references.names), None) == name:
        return short
    return name.removeprefix("refs/")


def _names(name: str) -> list[str]:
    return [pattern.format(name) for pattern in _WHERE]
