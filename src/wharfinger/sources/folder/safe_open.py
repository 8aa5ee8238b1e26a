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
    "NOT_HERE",
    "NotServed",
    "OpenFile",
    "has_another_spelling",
    "missing_as_not_served",
    "open_directory",
    "open_file",
    "open_root",
    "open_with_status",
    "stat_entry",
]

NOT_HERE = frozenset(
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
"""Errors of files that are missing or forbidden. Clients cannot distinguish them, and so cannot probe for names."""

HANDLES = os.open in os.supports_dir_fd and hasattr(os, "O_NOFOLLOW") and os.scandir in os.supports_fd
"""Whether this platform opens relative to a directory handle; without it paths are checked, then opened (Windows)."""

_DIRECTORY = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_CLOEXEC", 0)
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)
# A plain open of a FIFO without a writer, or of a device, could wait for ever.
_FILE = sum(getattr(os, flag, 0) for flag in ("O_NONBLOCK", "O_NOFOLLOW", "O_NOCTTY", "O_CLOEXEC", "O_BINARY"))

Handle = int | str
"""A directory: a file descriptor, or its path on a platform without directory handles."""


OpenFile = tuple[int, os.stat_result]
"""A file descriptor, and the status of the file when it was opened."""


class NotServed(Exception):
    """A file or directory is missing or may not be served. The reason is not reported."""


class _MissingAsNotServed:
    """The context manager of `missing_as_not_served`. It has no state: six times as fast as one from a generator."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        missing = isinstance(error, OSError) and error.errno in NOT_HERE
        if missing or isinstance(error, ValueError):  # ValueError: an embedded NUL
            raise NotServed from None


_MISSING_AS_NOT_SERVED = _MissingAsNotServed()


def missing_as_not_served() -> _MissingAsNotServed:
    """Raise NotServed instead of the errors in `NOT_HERE`; other errors (EIO, EMFILE) pass through."""
    return _MISSING_AS_NOT_SERVED


def open_root(path: str) -> Handle:
    """Open the root itself. Its path is from the operator, and trusted. The directory may have been recreated."""
    if HANDLES:
        return os.open(path, _DIRECTORY)
    return path


def open_directory(parent: Handle, name: str) -> Handle:
    """Open a directory in a directory. Links are not followed."""
    if isinstance(parent, int):
        return os.open(name, _DIRECTORY | _NO_LINK, dir_fd=parent)
    path = _checked(parent, name)
    if not stat.S_ISDIR(os.lstat(path).st_mode):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
    return path


def open_file(parent: Handle, name: str) -> int:
    """Open a regular file in a directory, for reading."""
    return open_with_status(parent, name)[0]


def open_with_status(parent: Handle, name: str) -> OpenFile:
    """Open a regular file in a directory, for reading, and return its status too.

    Its type is checked before it is opened, because opening a FIFO or a device has effects. It is checked again on the
    descriptor, because the file may have been replaced in between.
    """
    if not stat.S_ISREG(stat_entry(parent, name).st_mode):
        raise NotServed
    if isinstance(parent, int):
        descriptor = os.open(name, _FILE, dir_fd=parent)
    else:
        descriptor = os.open(_checked(parent, name), _FILE)
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
    return os.lstat(_checked(parent, name))


def has_another_spelling(parent: Handle, name: str) -> bool:
    """Return whether a disk may find an entry by several names: in the other case, normalised, or without a dot.

    A disk of Windows or macOS, or a directory with the attribute +F, can be mounted on Linux. Two hard links that
    differ only in this also count.
    """
    normalise = unicodedata.normalize
    spellings = {name.swapcase(), normalise("NFC", name), normalise("NFD", name), name.rstrip(". ")} - {name, ""}
    if not spellings:
        return False
    try:
        known = stat_entry(parent, name)
    except (OSError, ValueError, NotServed):
        return False
    for spelling in spellings:
        try:
            if os.path.samestat(known, stat_entry(parent, spelling)):
                return True
        except (OSError, ValueError, NotServed):
            continue
    return False


def close(handle: Handle) -> None:
    """Close a directory."""
    if isinstance(handle, int):
        os.close(handle)


def _checked(parent: str, name: str) -> str:
    """Return the path of an entry, if its parent is not reached through a junction, link or short name."""
    path = os.path.join(parent, name)
    if os.path.normcase(os.path.realpath(path)) != os.path.normcase(path):
        raise NotServed
    return path
