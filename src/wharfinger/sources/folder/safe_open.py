"""Opens files below a root, part by part from a directory handle, so that no link or race leads out of the root.

Never follows a symbolic link below the root, and opens only regular files and directories. Hard links and mount points
inside the root are files and directories like any other.
"""

from __future__ import annotations

import errno
import os
import stat
import unicodedata

__all__ = [
    "NOT_SERVED_ERRNOS",
    "NotServed",
    "OpenFile",
    "has_another_spelling",
    "is_missing",
    "missing_as_not_served",
    "open_directory",
    "open_file",
    "open_root",
    "open_with_status",
    "stamp_of",
    "stat_entry",
]

NOT_SERVED_ERRNOS = frozenset(
    {
        errno.EACCES,
        errno.EINVAL,
        errno.EISDIR,
        errno.ELOOP,
        errno.ENAMETOOLONG,
        errno.ENODEV,
        errno.ENOENT,
        errno.ENOTDIR,
        errno.ENXIO,
        errno.EPERM,
        errno.ESTALE,
    }
)
"""Errors of files that are missing or forbidden. Clients get one error for all, so they cannot probe for names."""

HAS_DIRECTORY_HANDLES = os.open in os.supports_dir_fd and hasattr(os, "O_NOFOLLOW") and os.scandir in os.supports_fd
"""Whether files can be opened relative to a directory handle. If not (Windows), a path is checked, and then opened."""

_DIRECTORY_FLAGS = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_CLOEXEC", 0)
_NO_LINK_FLAG = getattr(os, "O_NOFOLLOW", 0)
# A plain open of a FIFO without a writer, or of a device, could wait for ever.
_FILE_FLAGS = sum(getattr(os, flag, 0) for flag in ("O_NONBLOCK", "O_NOFOLLOW", "O_NOCTTY", "O_CLOEXEC", "O_BINARY"))

Handle = int | str
"""A directory: a file descriptor, or its path on a platform without directory handles."""


OpenFile = tuple[int, os.stat_result]
"""A file descriptor, and the status of the file when it was opened."""


class NotServed(Exception):
    """A file or directory is missing or may not be served. The reason is not reported."""


class _MissingAsNotServed:
    """The context manager of `missing_as_not_served`: without state, six times as fast as one from a generator."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if error is not None and is_missing(error):
            raise NotServed from None


_MISSING_AS_NOT_SERVED = _MissingAsNotServed()


def is_missing(error: BaseException) -> bool:
    """Return whether an error of a file operation is in `NOT_SERVED_ERRNOS`, or a ValueError for an embedded NUL."""
    return isinstance(error, ValueError) or (isinstance(error, OSError) and error.errno in NOT_SERVED_ERRNOS)


def missing_as_not_served() -> _MissingAsNotServed:
    """Return a context manager that turns errors into NotServed if `is_missing` is true of them.

    Other errors (EIO, EMFILE) pass through.
    """
    return _MISSING_AS_NOT_SERVED


def open_root(path: str) -> Handle:
    """Open the root itself, by its path, which the operator trusts. It may have been recreated since the last call."""
    if HAS_DIRECTORY_HANDLES:
        return os.open(path, _DIRECTORY_FLAGS)
    return path


def open_directory(parent: Handle, name: str) -> Handle:
    """Open a directory in a directory. Links are not followed."""
    if isinstance(parent, int):
        return os.open(name, _DIRECTORY_FLAGS | _NO_LINK_FLAG, dir_fd=parent)
    path = _checked_path(parent, name)
    if not stat.S_ISDIR(os.lstat(path).st_mode):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
    return path


def open_file(parent: Handle, name: str) -> int:
    """Open a regular file in a directory, for reading."""
    return open_with_status(parent, name)[0]


def open_with_status(parent: Handle, name: str, *, was_regular: bool = False) -> OpenFile:
    """Open a regular file in a directory, for reading, and return its status too.

    Its type is checked before it is opened, because opening a FIFO or a device has effects. It is checked again on the
    descriptor, because the file may have been replaced in between. `was_regular` says that it was a regular file
    when it was last opened: then only the second check is made.
    """
    if not was_regular and not stat.S_ISREG(stat_entry(parent, name).st_mode):
        raise NotServed
    if isinstance(parent, int):
        descriptor = os.open(name, _FILE_FLAGS, dir_fd=parent)
    else:
        descriptor = os.open(_checked_path(parent, name), _FILE_FLAGS)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise NotServed
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor, status


def stat_entry(parent: Handle, name: str) -> os.stat_result:
    """Return the status of an entry of a directory. Links are not followed."""
    if isinstance(parent, int):
        return os.stat(name, dir_fd=parent, follow_symlinks=False)
    return os.lstat(_checked_path(parent, name))


def stamp_of(status: os.stat_result) -> tuple[int, int, int, int, int]:
    """Return the identity, size and times of a file. If they are the same, it has most likely not changed."""
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def has_another_spelling(parent: Handle, name: str) -> bool:
    """Return whether the disk also finds an entry in another case or Unicode form, or without its last dots and spaces.

    This also happens on Linux: on mounted disks of Windows or macOS, and in directories with the attribute +F
    (case-insensitive). Two hard links whose names differ only in spelling also count.
    """
    spellings = {name.swapcase(), name.rstrip(". ")}
    if not name.isascii():
        spellings |= {unicodedata.normalize("NFC", name), unicodedata.normalize("NFD", name)}
    spellings -= {name, ""}
    for spelling in spellings:
        try:
            other_status = stat_entry(parent, spelling)  # first, since it hardly ever exists
            if os.path.samestat(other_status, stat_entry(parent, name)):
                return True
        except (OSError, ValueError, NotServed):
            continue
    return False


def close(handle: Handle) -> None:
    """Close a directory."""
    if isinstance(handle, int):
        os.close(handle)


def _checked_path(parent: str, name: str) -> str:
    """Return the path of an entry, if its parent is not reached through a junction, link or short name."""
    path = os.path.join(parent, name)
    if os.path.normcase(os.path.realpath(path)) != os.path.normcase(path):
        raise NotServed
    return path
