"""Content at a terminal: text in colour, and a description of binary content."""

from __future__ import annotations

import os
import struct
import sys

from wharfinger.content.mime import essence_of
from wharfinger.content.text import escape_controls, size_text

__all__ = ["kind_and_size", "print_highlighted", "summary"]

COLOURED_CHARACTERS = 512 * 1024
"""Maximum number of characters of a coloured text, because a lexer takes a second for a megabyte or two."""
LANGUAGES = {
    "application/json": "json",
    "application/toml": "toml",
    "application/xml": "xml",
    "application/yaml": "yaml",
    "text/css": "css",
    "text/html": "html",
    "text/markdown": "markdown",
    "text/x-python": "python",
    "text/xml": "xml",
    "text/yaml": "yaml",
}
PLAIN_TYPES = frozenset(("text/plain", "text/csv", ""))


def print_highlighted(text: str, mime_type: str, uri: str) -> bool:
    """Print a text with syntax highlighting. Returns False, and prints nothing, if it cannot be highlighted."""
    if os.environ.get("NO_COLOR") or len(text) > COLOURED_CHARACTERS:
        return False
    try:
        from rich.console import Console
        from rich.syntax import Syntax
    except ImportError:
        return False
    language = language_of(mime_type, uri)
    if not language:
        return False
    highlighted = Syntax("", language, theme="ansi_dark", background_color="default").highlight(
        escape_controls(text, keep="\n\t\r")
    )
    if not text.endswith("\n"):
        highlighted.rstrip()
    sys.stdout.flush()
    Console(highlight=False, soft_wrap=True).print(highlighted, end="" if text.endswith("\n") else "\n")
    return True


def language_of(mime_type: str, uri: str) -> str:
    """Return the language for a MIME type or the suffix of a URI, or an empty string if it is plain or unknown."""
    base = essence_of(mime_type)
    language = LANGUAGES.get(base) or ("json" if base.endswith("+json") else "xml" if base.endswith("+xml") else "")
    if language:
        return language
    from mimetypes import guess_extension

    from rich.syntax import Syntax

    name = uri.partition("?")[0].rpartition("/")[2]
    file = name if base in PLAIN_TYPES else f"x{guess_extension(base) or ''}"
    lexer = Syntax.guess_lexer(file) if "." in file else ""
    return "" if lexer in ("default", "text") else lexer


SIGNATURES = (
    (b"\x89PNG\r\n\x1a\n", "PNG image"),
    (b"\xff\xd8\xff", "JPEG image"),
    (b"GIF8", "GIF image"),
    (b"%PDF-", "PDF document"),
    (b"PK\x03\x04", "ZIP archive"),
    (b"\x1f\x8b", "gzip data"),
    (b"SQLite format 3\0", "SQLite database"),
    (b"\x7fELF", "ELF program"),
    (b"OggS", "Ogg media"),
    (b"fLaC", "FLAC audio"),
    (b"ID3", "MP3 audio"),
    (b"PAR1", "Parquet table"),
)
"""The first bytes of well-known formats."""


def summary(data: bytes, mime_type: str) -> str:
    """Return a line that describes binary content and says how to get it."""
    return f"[{kind_and_size(data, mime_type)}: write it to a file with -o FILE, or to a pipe]"


def kind_and_size(data: bytes, mime_type: str) -> str:
    """Return the type and size of binary content, such as `image/png, 24 B, PNG image 256 x 128`."""
    format_name = next((name for sign, name in SIGNATURES if data.startswith(sign)), "")
    parts = [mime_type or "binary", size_text(len(data)), format_name + dimensions(data)]
    return ", ".join(part for part in parts if part)


def dimensions(data: bytes) -> str:
    """Return width and height of a PNG or GIF image, with a leading space, or an empty string for anything else."""
    if data.startswith(b"\x89PNG\r\n\x1a\n") and len(data) >= 24:
        width, height = struct.unpack(">II", data[16:24])
        return f" {width} x {height}"
    if data.startswith(b"GIF8") and len(data) >= 10:
        width, height = struct.unpack("<HH", data[6:10])
        return f" {width} x {height}"
    return ""
