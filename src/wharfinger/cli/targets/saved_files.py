"""Saves content that a server sent: in files with safe names, without replacing any file."""

from __future__ import annotations

import contextlib
import mimetypes
import os
import re
import secrets
import shutil
from collections.abc import Generator
from pathlib import Path
from typing import BinaryIO
from urllib.parse import unquote, urlsplit

from wharfinger.content.mime import essence_of
from wharfinger.content.text import BIDI

__all__ = ["name_of_uri", "new_file", "replacement"]

SPECIAL_CHARACTERS = re.compile(rf'[\x00-\x1f\x7f-\x9f{BIDI}/\\:*?"<>|]+')
"""Separators, what Windows forbids in names, and characters that could change what a terminal shows."""
RESERVED_NAME = re.compile(r"(?i)^(con|prn|aux|nul|com\d|lpt\d)(\..*)?$")
"""Names of devices on Windows."""
MAX_NAME_BYTES = 200
"""Maximum size of a name in UTF-8. File systems allow 255, and a number and a suffix may be added."""


def name_of_uri(uri: str, fallback: str = "content") -> str:
    """Return a safe file name made from the last segment of a URI, or `fallback` if nothing of it is left.

    The name has no separators or control characters, and is not hidden.
    """
    try:
        path = urlsplit(uri).path
    except ValueError:
        path = uri
    last = unquote(path.rstrip("/").rpartition("/")[2]).encode("utf-8", "ignore").decode()
    safe_name = SPECIAL_CHARACTERS.sub("-", last).strip(" .-")
    name = safe_name.encode()[:MAX_NAME_BYTES].decode("utf-8", "ignore").rstrip(" .-")
    return f"_{name}" if RESERVED_NAME.match(name) else name or fallback


def new_file(folder: Path, name: str, mime_type: str, data: bytes) -> Path:
    """Write a new file and return its path. The folder is created if needed; an existing name gets a number."""
    folder.mkdir(parents=True, exist_ok=True)
    stem, suffix = Path(name).stem, Path(name).suffix
    if not suffix:
        suffix = mimetypes.guess_extension(essence_of(mime_type)) or ".bin"
    number = 1
    while True:
        path = folder / f"{stem}{f'-{number}' if number > 1 else ''}{suffix}"
        try:
            with path.open("xb") as out:
                out.write(data)
        except FileExistsError:
            number += 1
        else:
            return path


@contextlib.contextmanager
def replacement(output: str) -> Generator[BinaryIO]:
    """Open a file that replaces the one at `output` at the end of the block, unless the block raises an exception.

    What is not a file, such as a pipe or `/dev/stdout`, is written directly.

    Raises:
        OSError: the file cannot be written.
    """
    if os.path.exists(output) and not os.path.isfile(output):
        with open(output, "wb") as file:
            yield file
        return
    path = Path(os.path.realpath(output))  # a link stays a link
    if path.exists():
        path.open("ab").close()  # a file that may not be written is not replaced
    temporary = path.with_name(f".wharfinger-{secrets.token_hex(8)}")
    try:
        try:
            file = temporary.open("xb")
        except OSError as error:
            error.filename = output
            raise
        with file:
            yield file
        if path.exists():
            shutil.copymode(path, temporary)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
