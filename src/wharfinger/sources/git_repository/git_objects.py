"""Reads commits, tags, trees and blobs by the names of their objects, and finds paths in trees.

A walk reads a tree only when it comes to the entries of that tree: a tree can contain another tree many times, so a few
objects can make billions of paths.
"""

from __future__ import annotations

import asyncio
import os
import stat
import tempfile
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import IO, TypeVar

from wharfinger.content import mime
from wharfinger.errors import InvalidArgument
from wharfinger.sources.bounded_cache import BoundedCache
from wharfinger.sources.git_repository.git_process import GitFailed, run_git
from wharfinger.sources.git_repository.git_uris import Parts
from wharfinger.sources.git_repository.object_reader import (
    WHOLE_BYTES,
    DamagedObject,
    GitObject,
    MissingObject,
    ObjectReader,
)
from wharfinger.sources.git_repository.parsing import (
    Commit,
    GitTree,
    GitTreeEntry,
    NotParsed,
    Tag,
    parse_commit,
    parse_tag,
    parse_tree,
)
from wharfinger.sources.git_repository.private_directory import PrivateDirectory
from wharfinger.sources.windows.window import BytesContent, RandomAccess

__all__ = ["GitObjects", "NoSuchPath", "is_file", "is_link", "is_submodule", "is_tree"]

Found = TypeVar("Found")
Parsed = TypeVar("Parsed")

MIB = 1 << 20
MAX_PARSED_BYTES = {"commit": 4 * MIB, "tag": 4 * MIB, "tree": 32 * MIB}
"""Maximum bytes of an object of each kind that is parsed."""
TREES_BYTES, COMMITS_BYTES = 48 * MIB, 16 * MIB
"""Memory for trees and for commits that are kept, approximately."""
LARGEST_BYTES = 2048 * MIB
"""Maximum bytes of a blob that can be read, in windows, through a temporary file."""
LARGE_FILES = 2
"""Maximum number of temporary files of large blobs that are kept."""
LARGE_SECONDS = 60.0
"""Timeout for writing such a file."""
MAX_TAGS = 10
"""Maximum length of a chain of tags, each of which is a tag of the next."""
MAX_FOLDER_LEVELS = 512
"""Maximum number of levels of folders that a walk enters."""
SNIFFED_WHOLE_BYTES = MIB
"""Maximum bytes of a blob that is read whole to get its first bytes."""


class NoSuchPath(LookupError):
    """The tree has no such path."""


def is_tree(mode: int) -> bool:
    """Return whether an entry is a folder."""
    return stat.S_ISDIR(mode)


def is_link(mode: int) -> bool:
    """Return whether an entry is a symbolic link, whose content is its target."""
    return stat.S_ISLNK(mode)


def is_submodule(mode: int) -> bool:
    """Return whether an entry is a submodule: a commit of another repository."""
    return not (
        stat.S_ISREG(mode) or is_tree(mode) or is_link(mode)
    )  # git takes any other mode for that of a submodule


def is_file(mode: int) -> bool:
    """Return whether an entry is a file, and neither a folder nor a link nor a submodule."""
    return stat.S_ISREG(mode)


class GitObjects:
    """The objects of one repository."""

    def __init__(self, private_directory: PrivateDirectory) -> None:
        self.private_directory = private_directory
        self.reader = ObjectReader(private_directory, private_directory.oid_length)
        self._trees: BoundedCache[str, GitTree] = BoundedCache(TREES_BYTES)
        self._commits: BoundedCache[str, Commit] = BoundedCache(COMMITS_BYTES)
        self._first_bytes: BoundedCache[str, bytes] = BoundedCache(4 * MIB)
        self._large: BoundedCache[str, _LargeBlob] = BoundedCache(LARGE_FILES)
        self._copying = asyncio.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        """The event loop of the lock."""

    def forget(self) -> None:
        """Clear the caches: objects may have been pruned, or the repository may have been replaced."""
        self.reader.restart()
        for cache in (self._trees, self._commits, self._first_bytes, self._large):
            cache.clear()

    async def info(self, name: str) -> GitObject:
        """Return the kind and size of an object (see `ObjectReader.info`)."""
        return await self.reader.info(name)

    async def infos(self, oids: Sequence[str]) -> dict[str, GitObject]:
        """Return the kinds and sizes of objects, except those that cannot be read."""
        return await _read_several(oids, self.reader.kept_info, self.reader.info)

    async def commit(self, oid: str) -> Commit:
        """Return a commit.

        Raises:
            MissingObject: no commit has this name.
            DamagedObject: it cannot be read.
        """
        cached = self._commits.get(oid)
        if cached is None:
            data = await self._data(oid, "commit")
            cached = self._commits.put(oid, _parsed(oid, lambda: parse_commit(oid, data)), len(data) + 500)
        return cached

    async def commits(self, oids: Sequence[str]) -> dict[str, Commit]:
        """Return the commits, except those that cannot be read."""
        return await _read_several(oids, self._commits.get, self.commit)

    async def tag(self, oid: str) -> Tag:
        """Return an annotated tag. Raises what `commit` raises."""
        data = await self._data(oid, "tag")
        return _parsed(oid, lambda: parse_tag(oid, data))

    async def tree(self, oid: str) -> GitTree:
        """Return the entries of a tree. Raises what `commit` raises."""
        cached = self._trees.get(oid)
        if cached is None:
            data = await self._data(oid, "tree")
            cached = _parsed(oid, lambda: parse_tree(data, self.private_directory.oid_length // 2))
            self._trees.put(oid, cached, cached.cost)
        return cached

    async def _data(self, oid: str, kind: str) -> bytes:
        if (await self.reader.info(oid)).kind != kind:
            raise MissingObject(oid)
        return await self.reader.contents(oid, MAX_PARSED_BYTES[kind])

    async def peel(self, oid: str) -> GitObject:
        """Return the object that a tag leads to. If the object is not a tag, return it as it is.

        Raises:
            MissingObject: the object, or one that a tag names, is missing, or the chain of tags is too long.
        """
        for _ in range(MAX_TAGS + 1):  # the tags, and what the last one names
            info = await self.reader.info(oid)
            if info.kind != "tag":
                return info
            oid = (await self.tag(oid)).target
        raise MissingObject(oid)

    async def commit_of(self, oid: str) -> Commit:
        """Return a commit, or the commit that a tag leads to.

        Raises:
            MissingObject: there is no commit.
        """
        return await self.commit((await self.peel(oid)).oid)

    # Contents

    async def content(self, oid: str) -> RandomAccess:
        """Return access to the bytes of a blob. The bytes of a large blob are in a temporary file.

        Raises:
            MissingObject: no object has this name.
            DamagedObject: it cannot be read.
            GitFailed: it is too large, or git cannot print it.
        """
        info = await self.reader.info(oid)
        if info.size <= WHOLE_BYTES:
            return BytesContent(await self.reader.contents(oid))
        if info.size > LARGEST_BYTES:
            raise GitFailed(f"The object {oid[:12]} has {info.size:,} bytes: at most {LARGEST_BYTES:,} can be read.")
        loop = asyncio.get_running_loop()
        if self._loop is not loop:  # a lock for which a task has waited is bound to that task's loop
            self._loop, self._copying = loop, asyncio.Lock()
        async with self._copying:
            cached = self._large.get(oid)
            if cached is None:
                with tempfile.TemporaryFile(dir=self.private_directory.path) as file:
                    await run_git(
                        self.private_directory, "cat-file", info.kind, oid, seconds=LARGE_SECONDS, output=file,
                        max_file_bytes=info.size,
                    )  # fmt: skip
                    if not await asyncio.to_thread(self._is_whole, file, info):
                        raise DamagedObject(oid, "its bytes do not match its name")
                    cached = self._large.put(oid, _LargeBlob(os.dup(file.fileno()), info.size))
        return cached

    def _is_whole(self, file: IO[bytes], info: GitObject) -> bool:
        digest = self.reader.digest(info)
        file.seek(0)
        while piece := file.read(MIB):
            digest.update(piece)
        return digest.hexdigest() == info.oid

    async def first_bytes(self, oid: str) -> bytes:
        """Return the first bytes of a blob, enough to detect its type. Raises what `content` raises."""
        cached = self._first_bytes.get(oid)
        if cached is not None:
            return cached
        if (await self.reader.info(oid)).size <= SNIFFED_WHOLE_BYTES:
            data = (await self.reader.contents(oid))[: mime.SNIFFED_BYTES]
        else:
            command = ("cat-file", "blob", oid)
            data, cut, _ = await run_git(
                self.private_directory, *command, max_output_bytes=mime.SNIFFED_BYTES, partial=True
            )
            if cut != "size":
                raise GitFailed(f"The first bytes of the object {oid[:12]} could not be read: try again later.")
        return self._first_bytes.put(oid, data, len(data) + 100)

    # Paths

    async def find(self, tree: str, parts: Parts) -> GitTreeEntry:
        """Return the entry at a path; the tree itself for an empty path.

        Raises:
            NoSuchPath: the tree has no such path.
            MissingObject: a tree on the way is missing.
        """
        entry = GitTreeEntry(b"", stat.S_IFDIR, tree)
        for part in parts:
            if not is_tree(entry.mode):
                raise NoSuchPath("/".join(parts))
            entries = await self.tree(entry.oid)
            index = entries.index_of(os.fsencode(part))
            if index is None:
                raise NoSuchPath("/".join(parts))
            entry = entries[index]
        return entry

    async def walk(
        self, tree: str, after: Parts = (), should_enter: Callable[[Parts], bool] | None = None
    ) -> AsyncIterator[tuple[Parts, GitTreeEntry]]:
        """Yield all entries below a tree, each folder before its entries. If `after` is given, begin after this path.

        Folders for which `should_enter` returns False are yielded without their entries. So are folders that cannot be
        read, and those at level `MAX_FOLDER_LEVELS`.

        Raises:
            NoSuchPath: the tree has no path `after`.
            MissingObject: `tree`, or a tree on the way to `after`, is missing.
        """
        stack: list[tuple[Parts, GitTree, int]] = []
        oid = tree
        parts: Parts = ()
        for part in after:
            entries = await self.tree(oid)
            index = entries.index_of(os.fsencode(part))
            if index is None:
                raise NoSuchPath(part)
            stack.append((parts, entries, index + 1))
            entry = entries[index]
            parts, oid = (*parts, part), entry.oid
            if not is_tree(entry.mode):
                break
        else:
            stack.append((parts, await self.tree(oid), 0))
        while stack:
            parts, entries, index = stack.pop()
            if index >= len(entries):
                continue
            stack.append((parts, entries, index + 1))
            entry = entries[index]
            path = (*parts, entry.part)
            yield path, entry
            if is_tree(entry.mode) and len(path) < MAX_FOLDER_LEVELS and (should_enter is None or should_enter(path)):
                try:
                    stack.append((path, await self.tree(entry.oid), 0))
                except (MissingObject, InvalidArgument):  # a read of this tree reports the error
                    continue


async def _read_several(
    oids: Sequence[str], kept: Callable[[str], Found | None], read: Callable[[str], Awaitable[Found]]
) -> dict[str, Found]:
    """Read the objects that are not cached concurrently, and return all that can be read."""
    objects: dict[str, Found] = {}
    unread: list[str] = []
    for oid in dict.fromkeys(oids):
        cached = kept(oid)
        if cached is None:
            unread.append(oid)
        else:
            objects[oid] = cached
    results = await asyncio.gather(*[read(oid) for oid in unread], return_exceptions=True)
    for oid, result in zip(unread, results, strict=True):
        if not isinstance(result, BaseException):
            objects[oid] = result
        elif not isinstance(result, (MissingObject, InvalidArgument)):
            raise result
    return objects


def _parsed(oid: str, parse: Callable[[], Parsed]) -> Parsed:
    try:
        return parse()
    except NotParsed as error:
        raise DamagedObject(oid, str(error)) from None


class _LargeBlob:
    """A blob in a temporary file without a name."""

    def __init__(self, descriptor: int, size: int) -> None:
        self.size = size
        self._file = os.fdopen(descriptor, "rb")
        self._lock = threading.Lock()

    def read(self, offset: int, length: int) -> bytes:
        with self._lock:
            self._file.seek(offset)
            return self._file.read(length)
