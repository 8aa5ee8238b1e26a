"""Objects by their name: their kind and size, their bytes within bounds, and what commits, trees and tags say.

The name of what is read whole is checked against its bytes, so that a damaged repository gives errors and no nonsense.
Replacements, grafts and alternates are ignored: an object is what its name says, from this repository. Knows no URIs.
"""

from __future__ import annotations

import hashlib
import threading
import time
import zlib
from collections.abc import Callable
from typing import NamedTuple, TypeVar

from wharfinger.errors import InvalidArgument
from wharfinger.sources.bounded_cache import BoundedCache
from wharfinger.sources.folder.safe_open import NotServed
from wharfinger.sources.git_repository.inflating import (
    BadDelta,
    Stream,
    apply_delta,
    delta_sizes,
    inflate,
    inflate_start,
)
from wharfinger.sources.git_repository.packs import DELTAS, KINDS, BadPack, Pack, PackedObject
from wharfinger.sources.git_repository.parsing import (
    DIGITS,
    Commit,
    GitTree,
    NotParsed,
    Tag,
    parse_commit,
    parse_tag,
    parse_tree,
)
from wharfinger.sources.git_repository.repository import OpenRepository, PureDirectory
from wharfinger.sources.windows.window import Data, RandomAccess

__all__ = ["WHOLE", "PureDamaged", "PureMissing", "PureReader"]

Parsed = TypeVar("Parsed")

MIB = 1 << 20
WHOLE = 32 * MIB  # bytes of an object that is read whole, of a delta, and of what a delta makes
SMALL = {"commit": 4 * MIB, "tag": 4 * MIB, "tree": 16 * MIB}  # bytes of objects that are more than bytes
WORK = 1024 * MIB  # bytes that are made by following the deltas of one object, in all
CHAIN = 5_000  # deltas of deltas; git makes 4,095 at most
STREAMED = MIB  # bytes from which a blob that is no delta is read in parts
PACKS = 1_024  # packs that are looked at
KEPT = 16 * MIB  # bytes of objects that are kept for the next read
TREES = 24 * MIB  # bytes of trees that are kept, about
COMMITS = 8 * MIB  # and of commits


class PureMissing(KeyError):
    """This repository has no such object."""


class PureDamaged(InvalidArgument):
    """This object cannot be read; the message says which, and what to do."""

    def __init__(self, oid: str, why: str) -> None:
        super().__init__(f"The object {oid[:12]} of this repository is damaged ({why}): see `git fsck`.")


class _Place(NamedTuple):
    """Where an object is: in a pack at an offset, or in a file of its own."""

    pack: Pack | None
    offset: int
    file: OpenRepository | None


class PureReader:
    """The objects of one repository. Used by several threads at once."""

    def __init__(self, directory: PureDirectory) -> None:
        self._directory = directory
        self._lock = threading.Lock()
        self._packs: dict[str, Pack] = {}
        self._packs_mark: object = None
        self._kept: BoundedCache[object, tuple[str, bytes]] = BoundedCache(KEPT)
        self._trees: BoundedCache[str, GitTree] = BoundedCache(TREES)
        self._commits: BoundedCache[str, Commit] = BoundedCache(COMMITS)
        self._streams: BoundedCache[str, Stream] = BoundedCache(4)
        self._headers: BoundedCache[str, tuple[str, int]] = BoundedCache(20_000)

    # Finding

    def __contains__(self, oid: str) -> bool:
        try:
            self._place(oid)
        except PureMissing:
            return False
        return True

    def starting_with(self, digits: str, most: int) -> list[str]:
        """At most `most` names of objects that begin with these hexadecimal digits, two at least."""
        found: set[str] = set()
        try:
            for rest, _ in self._directory.scan("objects", digits[:2]):
                name = digits[:2] + rest
                if len(name) == 40 and name.startswith(digits) and set(name) <= DIGITS:
                    found.add(name)
        except NotServed:
            pass
        self._look_for_packs()
        for pack in list(self._packs.values()):
            found.update(pack.starting_with(digits, most))
        return sorted(found)[:most]

    def _place(self, oid: str) -> _Place:
        raw = bytes.fromhex(oid)
        for again in (False, True):
            if again and not self._look_for_packs():
                break
            for pack in list(self._packs.values()):
                offset = pack.find(raw)
                if offset is not None:
                    return _Place(pack, offset, None)
            try:
                return _Place(None, 0, self._directory.open("objects", oid[:2], oid[2:]))
            except NotServed:
                continue
        raise PureMissing(oid)

    def _look_for_packs(self) -> bool:
        """Open new packs and forget removed ones; whether any was new."""
        looked = self._directory.look("objects", "pack")
        mark = looked and (looked.st_mtime_ns, looked.st_ino)
        with self._lock:
            if mark == self._packs_mark and mark is not None and self._settled(mark[0]):
                return False
            try:
                names = {name for name, _ in self._directory.scan("objects", "pack")}
            except NotServed:
                names = set[str]()
            wanted = [name[:-4] for name in names if name.endswith(".idx") and name[:-4] + ".pack" in names][:PACKS]
            opened = {name: self._packs.get(name) or self._open_pack(name) for name in sorted(wanted)}
            before, self._packs = self._packs, {name: pack for name, pack in opened.items() if pack is not None}
            self._packs_mark = mark
            return bool(self._packs.keys() - before.keys())

    @staticmethod
    def _settled(mtime_ns: int) -> bool:
        return abs(time.time_ns() - mtime_ns) > 100_000_000

    def _open_pack(self, name: str) -> Pack | None:
        try:
            return Pack(
                name,
                self._directory.open("objects", "pack", name + ".idx"),
                self._directory.open("objects", "pack", name + ".pack"),
            )
        except (NotServed, BadPack):
            return None

    # Reading bytes

    def header(self, oid: str) -> tuple[str, int]:
        """The kind of an object and its size in bytes, without reading it whole.

        Raises:
            PureMissing: there is none.
            PureDamaged: it cannot be read.
        """
        return self._headers.get(oid) or self._headers.put(oid, self._read_header(oid))

    def _read_header(self, oid: str) -> tuple[str, int]:
        try:
            place = self._place(oid)
            if place.file is not None:
                kind, size, _ = _loose_header(place.file)
                return kind, size
            assert place.pack is not None
            stored = place.pack.stored(place.offset)
            if stored.number not in DELTAS:
                return KINDS[stored.number], stored.size
            _, size, _ = delta_sizes(inflate_start(place.pack.data, stored.start, 32))
            return self._kind(place.pack, stored), size
        except (zlib.error, BadPack, BadDelta) as error:
            raise PureDamaged(oid, str(error)) from None

    def _kind(self, pack: Pack, stored: PackedObject) -> str:
        for _ in range(CHAIN):
            if stored.number in KINDS:
                return KINDS[stored.number]
            if stored.base_oid is not None:
                place = self._place(stored.base_oid.hex())
                if place.file is not None:
                    return _loose_header(place.file)[0]
                assert place.pack is not None
                pack, offset = place.pack, place.offset
            else:
                assert stored.base_offset is not None
                offset = stored.base_offset
            stored = pack.stored(offset)
        raise BadDelta("deltas without an end")

    def whole(self, oid: str, most: int = WHOLE) -> tuple[str, bytes]:
        """The kind of an object and all its bytes, at most `most`.

        Raises:
            PureMissing: there is none.
            InvalidArgument: it is larger, or made by deltas that are.
            PureDamaged: it cannot be read, or is another than its name says.
        """
        kept = self._kept.get(oid)
        if kept is not None:
            return kept
        try:
            kind, data = self._read(self._place(oid), oid, most)
        except (zlib.error, BadPack, BadDelta) as error:
            raise PureDamaged(oid, str(error)) from None
        digest = hashlib.sha1(b"%s %d\0" % (kind.encode(), len(data)), usedforsecurity=False)
        digest.update(data)
        if digest.hexdigest() != oid:
            raise PureDamaged(oid, "its content has another name")
        if kind == "commit":  # parsed once, and kept so
            return kind, data
        return self._kept.put(oid, (kind, data), len(data) + 200)

    def _read(self, place: _Place, oid: str, most: int) -> tuple[str, bytes]:
        if place.file is not None:
            kind, size, skip = _loose_header(place.file)
            _check_size(oid, size, min(most, SMALL.get(kind, WHOLE)))
            return kind, inflate(place.file, 0, skip + size)[skip:]
        assert place.pack is not None
        return self._unpack(place.pack, place.offset, oid, most)

    def _unpack(self, pack: Pack, offset: int, oid: str, most: int) -> tuple[str, bytes]:
        """Read an object of a pack: down its deltas to what is none, and up again."""
        chain: list[tuple[Pack, int, PackedObject]] = []
        base: tuple[str, bytes] | None = None
        while base is None:
            base = self._kept.get((pack.name, offset))
            if base is not None:
                break
            stored = pack.stored(offset)
            _check_size(oid, stored.size, WHOLE)
            if stored.number in KINDS:
                kind = KINDS[stored.number]
                _check_size(oid, stored.size, min(most if not chain else WHOLE, SMALL.get(kind, WHOLE)))
                base = kind, inflate(pack.data, stored.start, stored.size)
                break
            chain.append((pack, offset, stored))
            if len(chain) > CHAIN:
                raise BadDelta("deltas without an end")
            if stored.base_oid is not None:
                place = self._place(stored.base_oid.hex())
                if place.pack is None:
                    base = self._read(place, oid, WHOLE)
                else:
                    pack, offset = place.pack, place.offset
            else:
                assert stored.base_offset is not None
                offset = stored.base_offset
        kind, data = base
        work = 0
        for pack, offset, stored in reversed(chain):
            delta = inflate(pack.data, stored.start, stored.size)
            size = delta_sizes(delta)[1]
            _check_size(oid, size, min(WHOLE, SMALL.get(kind, WHOLE)))
            work += size
            _check_size(oid, work, WORK)
            data = apply_delta(data, delta)
            if len(data) <= MIB:
                self._kept.put((pack.name, offset), (kind, data), len(data) + 200)
        _check_size(oid, len(data), most)
        return kind, data

    def content(self, oid: str) -> RandomAccess:
        """A blob's content: a large one is read in parts, as far as it is no delta.

        Raises:
            PureMissing: there is none.
            InvalidArgument: it is a large delta.
            PureDamaged: it cannot be read.
        """
        stream = self._streams.get(oid)
        if stream is None:
            stored = self._plain(oid)
            if stored is None or stored.size <= STREAMED:
                return Data(self.whole(oid)[1])
            stream = self._streams.put(oid, stored)
        return _Guarded(oid, stream)

    def start(self, oid: str, length: int) -> bytes:
        """The first bytes of a blob, about `length` of them at most, which tell what it is.

        Raises:
            PureMissing: there is none.
            InvalidArgument: it is a large delta.
            PureDamaged: it cannot be read.
        """
        stored = self._plain(oid)
        if stored is None:
            return self.whole(oid)[1][:length]
        return _Guarded(oid, stored).read(0, min(length, stored.size))

    def _plain(self, oid: str) -> Stream | None:
        """An object that is stored as it is; None for one that is a delta."""
        try:
            place = self._place(oid)
            if place.file is not None:
                _, size, skip = _loose_header(place.file)
                return Stream(place.file, 0, size, skip)
            assert place.pack is not None
            stored = place.pack.stored(place.offset)
            return None if stored.number in DELTAS else Stream(place.pack.data, stored.start, stored.size)
        except (zlib.error, BadPack, BadDelta) as error:
            raise PureDamaged(oid, str(error)) from None

    # Reading what objects say

    def commit(self, oid: str) -> Commit:
        """What a commit says.

        Raises:
            PureMissing: there is no such object, or it is no commit.
            PureDamaged: it cannot be read.
        """
        kept = self._commits.get(oid)
        if kept is not None:
            return kept
        commit = self._parsed(oid, "commit", lambda data: parse_commit(oid, data))
        return self._commits.put(oid, commit, 800 + len(commit.message) + 100 * len(commit.parents))

    def tag(self, oid: str) -> Tag:
        """What an annotated tag says.

        Raises:
            PureMissing: there is no such object, or it is no tag.
            PureDamaged: it cannot be read.
        """
        return self._parsed(oid, "tag", lambda data: parse_tag(oid, data))

    def tree(self, oid: str) -> GitTree:
        """The entries of a tree in git's order, without those whose names no file can have.

        Raises:
            PureMissing: there is no such object, or it is no tree.
            PureDamaged: it cannot be read.
        """
        kept = self._trees.get(oid)
        if kept is not None:
            return kept
        entries = self._parsed(oid, "tree", parse_tree)
        return self._trees.put(oid, entries, entries.cost)

    def _parsed(self, oid: str, kind: str, parse: Callable[[bytes], Parsed]) -> Parsed:
        found, data = self.whole(oid)
        if found != kind:
            raise PureMissing(oid)
        try:
            return parse(data)
        except NotParsed as error:
            raise PureDamaged(oid, str(error)) from None


class _Guarded:
    """A stream whose errors name the object."""

    def __init__(self, oid: str, stream: Stream) -> None:
        self._oid = oid
        self._stream = stream
        self.size = stream.size

    def read(self, offset: int, length: int) -> bytes:
        try:
            return self._stream.read(offset, length)
        except zlib.error as error:
            raise PureDamaged(self._oid, str(error)) from None


def _check_size(oid: str, size: int, most: int) -> None:
    if size > most:
        raise InvalidArgument(
            f"Reading the object {oid[:12]} takes {size:,} bytes, and at most {most:,} are allowed: "
            "read it with git itself, or repack the repository without deltas (`git repack -a -d -f --depth=0`)."
        )


def _loose_header(file: OpenRepository) -> tuple[str, int, int]:
    """The kind and size of an object in a file of its own, and how many bytes say so."""
    head, nul, _ = inflate_start(file, 0, 64).partition(b"\0")
    kind, _, size = head.decode("ascii", "replace").partition(" ")
    if not nul or kind not in KINDS.values() or not size.isdecimal():
        raise zlib.error("this is no object")
    return kind, int(size), len(head) + 1
