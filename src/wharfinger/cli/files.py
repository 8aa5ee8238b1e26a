"""Names for files that hold what a server sent: never outside the folder, never over what is there already."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

__all__ = ["name_of_uri", "new_file"]

RESERVED = re.compile(r"(?i)^(con|prn|aux|nul|com\d|lpt\d)(\..*)?$")
"""Names that Windows takes for devices."""
LONGEST = 100


def name_of_uri(uri: str, fallback: str = "content") -> str:
    """Make a file name of the last segment of a URI: no separators, no control characters, not hidden."""
    try:
        path = urlsplit(uri).path
    except ValueError:
        path = uri
    last = unquote(path.rstrip("/").rpartition("/")[2])
    name = re.sub(r'[\x00-\x1f\x7f/\\:*?"<>|]+', "-", last).strip(" .-")[:LONGEST]
    return f"_{name}" if RESERVED.match(name) else name or fallback


def new_file(folder: Path, name: str, kind: str, data: bytes) -> Path:
    """Write a file of a name that is free in the folder, which is made if need be; return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    stem, suffix = (name, suffix_of(kind)) if not Path(name).suffix else (Path(name).stem, Path(name).suffix)
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


def suffix_of(kind: str) -> str:
    """Find the usual end of a file name for a MIME type."""
    import mimetypes

    return mimetypes.guess_extension(kind.partition(";")[0].strip()) or ".bin"
