"""Objects in any store of fsspec. Each directory is listed completely: most of these stores have no pages.

Schemes are refused if they read this machine's files, wrap other stores, fetch web pages or belong to other sources.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime
from importlib import import_module
from itertools import islice
from typing import Any, TypeVar, cast

from wharfinger.errors import MissingExtra
from wharfinger.source import UnusableSource
from wharfinger.sources.etag import digest
from wharfinger.sources.object_store.object_store_contract import (
    ObjectChanged,
    ObjectContent,
    ObjectInfo,
    StoreFailed,
    StoreUnavailable,
    is_served,
)
from wharfinger.sources.windows.window import RandomAccess

__all__ = ["LibraryStore", "refuse_scheme"]

_FILES = "to publish files of this machine, give the path of their folder"
_PAGES = "web pages cannot be listed"
_WRAPS = "it wraps another store: give that one"
_REFUSED = {
    **dict.fromkeys(("file", "local", "asynclocal", "root"), _FILES),
    **dict.fromkeys(("http", "https", "jupyter", "jlab", "webdav", "pyscript"), _PAGES),
    **dict.fromkeys(
        ("simplecache", "filecache", "blockcache", "cached", "dir", "reference", "generic", "dask"), _WRAPS
    ),
    **dict.fromkeys(("async_wrapper", "asyncwrapper", "libarchive", "dvc"), _WRAPS),
    # Without a configuration, Hadoop's library reads the files of this machine.
    **dict.fromkeys(("hdfs", "arrow_hdfs"), "give webhdfs://HOST:PORT/PATH"),
    "data": "such a URL contains its content itself",
    "git": "give a repository as git:PATH",
    "tar": "give an archive as tar:FILE",
    "zip": "give an archive as zip:FILE",
}
_VERSION_FIELDS = ("ETag", "etag", "md5", "md5Hash", "content_hash", "generation", "version_id", "sha", "crc32c")
"""Members of an entry that change with the content."""
_TIME_FIELDS = ("LastModified", "last_modified", "mtime", "updated", "modified", "modify", "created")
"""Members of an entry with a time. The first one that is a time is the time of the last change."""

T = TypeVar("T")


def refuse_scheme(scheme: str) -> None:
    """Refuse schemes that are not stores of objects.

    Raises:
        UnusableSource: it is for files or web pages, wraps another store, or belongs to another source.
    """
    reason = _REFUSED.get(scheme)
    if reason:
        raise UnusableSource(f"{scheme}: cannot be published as objects: {reason}.")


class LibraryStore:
    """The objects below one path of a store. To list a page, each directory that has objects on this page is listed."""

    noun = "store"
    poll_seconds = 2.0
    sleep_ratio = 5.0

    def __init__(self, url: str, location: str, options: Mapping[str, Any]) -> None:
        self.location = location
        self._fs, self._root = _open(url, location, options)
        # Only asynchronous file systems may be called from several threads at once: FTP has a single connection.
        self._lock: AbstractContextManager[object] = nullcontext() if self._fs.async_impl else threading.Lock()
        # Paths below an empty root begin with a slash in some stores (memory), and without one in others (GitHub).
        self._prefix = self._root.rstrip("/") + "/" if self._root else str(self._fs.root_marker)

    # Listing

    def page(self, after: str, limit: int) -> tuple[list[ObjectInfo], bool]:
        """List a page of all objects. The walk skips the directories before `after`."""
        objects = list(islice(self._walk("", after), limit + 1))
        return objects[:limit], len(objects) > limit

    def _walk(self, directory: str, after: str) -> Iterator[ObjectInfo]:
        for info in self._list(directory):
            if not info.is_directory:
                if info.key > after:
                    yield info
            elif info.key > after or after.startswith(info.key):
                yield from self._walk(info.key, after)

    def directory_page(self, directory: str, begin: str, after: str, limit: int) -> tuple[list[ObjectInfo], bool]:
        """List a page of one directory."""
        start = directory + begin
        objects = [info for info in self._list(directory) if info.key.startswith(start) and info.key > after]
        return objects[:limit], len(objects) > limit

    def _list(self, directory: str) -> list[ObjectInfo]:
        """List the entries of a directory in order, without links and names that cannot be part of a URI."""
        path = (self._prefix + directory).rstrip("/") or self._root
        try:
            try:
                entries = self._call(lambda: self._fs.ls(path, detail=True, refresh=True))
            except TypeError:  # this `ls` has no `refresh`, and therefore no cache
                entries = self._call(lambda: self._fs.ls(path, detail=True))
        except FileNotFoundError:
            return []
        children: list[ObjectInfo] = []
        for info in map(self._info, entries):
            if info is not None and info.key.startswith(directory):
                name = info.key[len(directory) :]
                if name and "/" not in name[:-1]:  # a direct child: only the key of a directory ends with a slash
                    children.append(info)
        return sorted(children)

    def _info(self, entry: Mapping[str, Any]) -> ObjectInfo | None:
        name, kind = str(entry.get("name", "")), entry.get("type")
        if not name.startswith(self._prefix) or entry.get("islink") or kind not in ("file", "directory"):
            return None
        key = name[len(self._prefix) :].rstrip("/")
        if not is_served(key):
            return None
        if kind == "directory":
            return ObjectInfo(key + "/")
        size = entry.get("size")
        tags = [str(entry[field]) for field in _VERSION_FIELDS if entry.get(field)]
        times = [_moment(entry[field]) for field in _TIME_FIELDS if entry.get(field)]
        modified = next((moment for moment in times if isinstance(moment, float)), None)
        version = digest("\0".join([str(size), *tags, *map(str, times)])) if tags or times else ""
        return ObjectInfo(key, int(size) if size is not None else None, modified, version, name)

    def info(self, key: str) -> ObjectInfo | None:
        """Return one object, or None if it does not exist or the library resolves its path to another object."""
        try:
            entry = self._call(lambda: self._fs.info(self._prefix + key))
        except FileNotFoundError:
            return None
        info = self._info({**entry, "name": entry.get("name") or self._prefix + key})
        return info if info is not None and info.key == key else None

    def content(self, info: ObjectInfo) -> RandomAccess:
        """Return the content of an object, whose version is checked after each read."""
        return ObjectContent(self, info)

    def range(self, info: ObjectInfo, offset: int, length: int) -> bytes:
        """Read bytes of an object.

        Raises:
            ObjectChanged: it has another version, or no longer exists.
        """
        try:
            data = self._call(lambda: self._fs.cat_file(info.handle, start=offset, end=offset + length))
        except FileNotFoundError:
            raise ObjectChanged from None
        current = self.info(info.key)
        if current is None or current.version != info.version:
            raise ObjectChanged
        return cast("bytes", data)[:length]

    def describe(self) -> str:
        """Return an empty string, because counting the objects would take too long."""
        return ""

    def close(self) -> None:
        """Do nothing: the file systems of fsspec have no common method that closes their connections."""

    def _call(self, call: Callable[[], T]) -> T:
        try:
            with self._lock:
                return call()
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            raise FileNotFoundError from None
        except PermissionError:
            raise StoreFailed(f"{self.location} may not be read with these credentials.") from None
        except TypeError:  # `_list` calls again without `refresh`
            raise
        except Exception as error:  # each library has its own errors, whose texts may contain secrets
            kind = StoreUnavailable if isinstance(error, (ConnectionError, TimeoutError)) else StoreFailed
            raise kind(f"{self.location} does not answer: {type(error).__name__}.") from None


def _open(url: str, location: str, options: Mapping[str, Any]) -> tuple[Any, str]:
    try:
        url_to_fs: Any = import_module("fsspec.core").url_to_fs
    except ImportError:
        raise MissingExtra("objects", "Publishing a store of objects") from None
    fs: Any
    try:
        fs, path = url_to_fs(url, **{"use_listings_cache": False, "skip_instance_cache": True, **options})
    except ImportError as error:
        raise UnusableSource(f"{location} needs a library that is not installed: {error}.") from None
    except ValueError:
        raise UnusableSource(f"fsspec does not support {location}.") from None
    except Exception as error:
        raise UnusableSource(f"{location} cannot be opened: {type(error).__name__}.") from None
    # Programs can register further schemes.
    if getattr(fs, "local_file", False):
        raise UnusableSource(f"{location} cannot be published as objects: {_FILES}.")
    if hasattr(fs, "fs"):
        raise UnusableSource(f"{location} cannot be published as objects: {_WRAPS}.")
    return fs, str(path)


def _moment(value: object) -> object:
    """Convert a time to seconds. Returns other values unchanged.

    Some stores return a time as one type in a list, and as another for a single object.
    """
    return value.timestamp() if isinstance(value, datetime) else float(value) if isinstance(value, int) else value
