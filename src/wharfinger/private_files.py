"""Files that only their owner may read, the check of the folder that holds them, and the folders of the user."""

from __future__ import annotations

import contextlib
import os
import secrets
import sys
from pathlib import Path

__all__ = ["cache_folder", "home_folder", "is_private", "replace_privately"]


def cache_folder() -> Path:
    """Return Wharfinger's folder for caches: in `XDG_CACHE_HOME`, on Windows in `LOCALAPPDATA`, or in `~/.cache`.

    Raises:
        FileNotFoundError: this user has no home folder.
    """
    cache_home = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(cache_home):
        return Path(cache_home) / "wharfinger"
    if sys.platform == "win32" and (local := os.environ.get("LOCALAPPDATA")):
        return Path(local) / "wharfinger" / "cache"
    return home_folder("XDG_CACHE_HOME") / ".cache" / "wharfinger"


def home_folder(alternative: str = "") -> Path:
    """Return the home folder. `alternative` is a variable that could be set instead, for the message of the error.

    Raises:
        FileNotFoundError: this user has no home folder; the message names the variables to set.
    """
    home = os.path.expanduser("~")
    if not os.path.isabs(home):  # the user is not in the list of users, as in a container
        variables = f"HOME or {alternative}" if alternative else "HOME"
        raise FileNotFoundError(f"there is no home folder: set {variables}")
    return Path(home)


def is_private(folder: Path) -> bool:
    """Return whether only this user may enter a folder. Always True on systems without user ids, such as Windows.

    Raises:
        OSError: the folder does not exist, or its status cannot be read.
    """
    if not hasattr(os, "getuid"):
        return True
    status = folder.stat()
    return status.st_uid == os.getuid() and not status.st_mode & 0o077


def replace_privately(path: Path, data: bytes) -> None:
    """Replace a file atomically with one that only this user may read: a reader sees the old file or the new one.

    Raises:
        OSError: it cannot be written; the old file stays.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
