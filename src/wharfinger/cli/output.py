"""What client commands print: plain lines for people, one JSON value a line for programs."""

from __future__ import annotations

import os
import sys
from typing import Any

import msgspec

from wharfinger.cli.words import columns, printable

__all__ = ["print_bytes", "print_json", "print_rows", "print_text", "to_terminal"]


def to_terminal() -> bool:
    """Tell whether a person reads stdout."""
    return sys.stdout.isatty()


def print_json(value: Any) -> None:
    """Print a value on one line, as the protocol writes it; in colour and on several lines where a person reads it."""
    line = printable_json(msgspec.json.encode(value).decode("utf-8"))
    if to_terminal() and not os.environ.get("NO_COLOR") and coloured(line):
        return
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def coloured(line: str) -> bool:
    """Print JSON with rich; False where that is not installed (extra `pretty`)."""
    try:
        from rich.console import Console
    except ImportError:
        return False
    Console(highlight=False, soft_wrap=True).print_json(line)
    return True


def printable_json(line: str) -> str:
    """Escape what JSON lets through and a terminal obeys: C1 controls, DEL and direction marks."""
    if line.isascii() and line.isprintable():
        return line
    shown = printable(line)
    if shown == line:
        return line
    return "".join(character if printable(character) == character else f"\\u{ord(character):04x}" for character in line)


def print_rows(rows: list[tuple[str, ...]]) -> None:
    """Print rows in columns."""
    for line in columns([tuple(printable(cell) for cell in row) for row in rows]):
        sys.stdout.write(line + "\n")
    sys.stdout.flush()


def print_text(text: str) -> None:
    """Print text: harmless at a terminal, as it is into a file or pipe."""
    data = printable(text, keep="\n\t\r") if to_terminal() else text
    print_bytes(data.encode("utf-8", "surrogatepass"))
    if to_terminal() and not text.endswith("\n"):
        print_bytes(b"\n")


def print_bytes(data: bytes) -> None:
    """Write bytes as they are."""
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()
