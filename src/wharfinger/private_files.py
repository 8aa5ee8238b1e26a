"""Files that only their owner may read, and the check of the folder that holds them."""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path

__all__ = ["is_private", "replace_privately"]


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
    """Replace a file atomically by one that only this user may read: a reader sees the old file or the new one.

    Raises:
        OSError: it cannot be written; the old file stays.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    opened = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(opened, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
