"""The commits that led to a revision, newest first, in windows that stay valid while commits arrive.

A walk goes on where the last window ended, and keeps no more of a commit than its name. Refuses to know how commits
are shown.
"""

from __future__ import annotations

import heapq
import threading
import time
from collections.abc import Iterator
from typing import NamedTuple

from wharfinger.errors import InvalidArgument
from wharfinger.sources.bounded_cache import BoundedCache
from wharfinger.sources.git_repository.git_uris import Parts
from wharfinger.sources.git_repository.objects import PureDamaged, PureMissing, PureReader
from wharfinger.sources.git_repository.parsing import Commit
from wharfinger.sources.git_repository.trees import NoSuchPath, find

__all__ = ["LIMIT", "MOST", "Chosen", "Histories", "Stretch"]

MOST = 100_000  # commits that one walk goes back; an older one can be named, and walked from
WALKS = 4  # walks that are kept
PATIENCE = 0.5  # seconds of looking for commits that fit, before what was found is told
LIMIT = 50  # commits of a window that asks for no number
OID = 20
AHEAD = 1_000  # commits that are walked at once on the way to one


class Chosen(NamedTuple):
    """Which commits are wanted: those that changed a path, and of a time (seconds since 1970, both ends within)."""

    parts: Parts = ()
    since: int | None = None
    until: int | None = None


_EVERYTHING = Chosen()


class Stretch(NamedTuple):
    """Some commits of a log; `after` is the commit to go on behind, None at the end. `whole` is False where the walk
    ends because it goes no further."""

    commits: list[Commit]
    after: str | None
    whole: bool = True


class Histories:
    """Walks through the history of one repository. Used by several threads at once."""

    def __init__(self, objects: PureReader) -> None:
        self._objects = objects
        self._walks: BoundedCache[tuple[str, int], _Walk] = BoundedCache(WALKS)
        self._lock = threading.Lock()

    def walk(self, tip: str, shallow: frozenset[str]) -> _Walk:
        """The walk from one commit."""
        key = tip, hash(shallow)
        with self._lock:
            return self._walks.get(key) or self._walks.put(key, _Walk(self._objects, tip, shallow))

    def stretch(
        self, tip: str, shallow: frozenset[str], after: str | None, limit: int, chosen: Chosen = _EVERYTHING
    ) -> Stretch:
        """At most `limit` commits that led to `tip`, newest first, behind `after`.

        Raises:
            InvalidArgument: `after` is no commit of this log.
        """
        walk = self.walk(tip, shallow)
        place = 0
        if after is not None:
            place = walk.place_of(after) + 1
            if not place:
                raise InvalidArgument(f"after={after} is not a commit of this log: leave it out to start anew.")
        ends = time.monotonic() + PATIENCE
        found: list[Commit] = []
        last: str | None = None
        for commit in walk.commits(place):
            if chosen.since is not None and commit.committer.seconds < chosen.since:
                return Stretch(found, None)
            if len(found) >= limit or (last is not None and time.monotonic() > ends):
                return Stretch(found, last)
            last = commit.oid
            if self._fits(commit, chosen, shallow):
                found.append(commit)
        return Stretch(found, None, walk.complete)

    def _fits(self, commit: Commit, chosen: Chosen, shallow: frozenset[str]) -> bool:
        if chosen.until is not None and commit.committer.seconds > chosen.until:
            return False
        if not chosen.parts:
            return True
        here = self._at(commit.oid, chosen.parts)
        parents = () if commit.oid in shallow else commit.parents
        if not parents:
            return here is not None
        return all(self._at(parent, chosen.parts) != here for parent in parents)

    def _at(self, oid: str, parts: Parts) -> tuple[int, str] | None:
        """What a commit has at a path."""
        try:
            entry = find(self._objects, self._objects.commit(oid).tree, parts)
        except (NoSuchPath, PureMissing, PureDamaged):
            return None
        return entry.mode, entry.oid


class _Walk:
    """The commits that led to one, by the time that they say, newest first; read as far as somebody asked."""

    def __init__(self, objects: PureReader, tip: str, shallow: frozenset[str]) -> None:
        self._objects = objects
        self._shallow = shallow
        self._lock = threading.Lock()
        self._order = bytearray()
        self._seen: set[bytes] = set()
        self._next: list[tuple[int, int, bytes]] = []
        self._number = 0
        self.complete = True
        """False where there are more commits than a walk goes back, or some are not in the repository."""
        self._push(tip)

    def commits(self, place: int) -> Iterator[Commit]:
        """The commits from a place on."""
        while self._reach(place):
            yield self._objects.commit(bytes(self._order[place * OID : place * OID + OID]).hex())
            place += 1

    def place_of(self, oid: str) -> int:
        """Where a commit is in this walk, which goes on until it is there; -1 where it is not."""
        try:
            raw = bytes.fromhex(oid)
        except ValueError:
            return -1
        begin = 0
        while len(raw) == OID:
            at = self._order.find(raw, begin)
            while at % OID and at >= 0:
                at = self._order.find(raw, at + 1)
            if at >= 0:
                return at // OID
            begin = len(self._order)
            self._reach(begin // OID + AHEAD)
            if len(self._order) == begin:
                break
        return -1

    def _reach(self, place: int) -> bool:
        """Go on until there is a commit at this place; whether there is."""
        with self._lock:
            while len(self._order) <= place * OID:
                if not self._next or len(self._order) >= MOST * OID:
                    self.complete = self.complete and not self._next
                    return False
                _, _, raw = heapq.heappop(self._next)
                self._order += raw
                oid = raw.hex()
                if oid not in self._shallow:
                    for parent in self._objects.commit(oid).parents:
                        self._push(parent)
            return True

    def _push(self, oid: str) -> None:
        raw = bytes.fromhex(oid)
        if raw in self._seen:
            return
        try:
            seconds = self._objects.commit(oid).committer.seconds
        except (PureMissing, PureDamaged):
            self.complete = False
            return
        self._seen.add(raw)
        self._number += 1
        heapq.heappush(self._next, (-seconds, self._number, raw))
